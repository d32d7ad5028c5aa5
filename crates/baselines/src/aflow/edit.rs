//! One random change of a workflow: what `aflow-random` has in the place of a model.

use crate::cards::{CARDS, Domain};
use crate::graph::SpecFrame;
use lemon_num::Random;
use lemon_spec::{Agent, Answer, AnswerRule, Language, Spec, render, validate};

/// Agents a workflow grows to.
const MOST_AGENTS: usize = 10;

/// What was changed, and the workflow that this gives. `None`: what was drawn cannot be done.
pub fn random(
    spec: &Spec,
    domain: Domain,
    language: &Language,
    frame: &SpecFrame,
    random: &mut Random,
) -> Option<(String, String)> {
    let roster: Vec<usize> = domain.roster().collect();
    let card = CARDS.get(random.pick(&roster).copied()?)?;
    let mut changed = spec.clone();
    let id = (1..).map(|number| format!("a{number}")).find(|id| spec.agents.iter().all(|agent| agent.id != *id))?;
    let at = random.below(spec.agents.len());
    let chosen = spec.agents.get(at)?.id.clone();
    let grows = spec.agents.len() < MOST_AGENTS;
    let new = |after: Vec<String>| Agent {
        id: id.clone(),
        role: Some(card.title.to_owned()),
        duty: Some(card.duty.to_owned()),
        after,
        ..frame.agent(spec.agents.len(), card.base)
    };
    let told = match random.below(7) {
        0 if grows => {
            let agent = new(spec.answer.from.clone());
            changed.agents.push(agent);
            changed.answer = Answer { from: vec![id.clone()], by: AnswerRule::Last };
            format!("add {} after the answer", card.title)
        }
        1 if grows => {
            changed.agents.insert(0, new(Vec::new()));
            changed.agents.iter_mut().find(|agent| agent.id == chosen)?.after.push(id.clone());
            format!("add {} before {chosen}", card.title)
        }
        2 if grows => {
            changed.agents.push(new(Vec::new()));
            changed.answer.from.push(id.clone());
            changed.answer.by = if domain.is_code() { AnswerRule::Test } else { AnswerRule::Judge };
            format!("add {} beside the others, and a judge", card.title)
        }
        3 if spec.agents.len() > 1 => {
            changed.agents.retain(|agent| agent.id != chosen);
            changed.agents.iter_mut().for_each(|agent| agent.after.retain(|read| *read != chosen));
            changed.answer.from.retain(|from| *from != chosen);
            if changed.answer.from.is_empty() {
                changed.answer.from.extend(changed.agents.last().map(|agent| agent.id.clone()));
            }
            format!("delete {chosen}")
        }
        4 => {
            let agent = changed.agents.get_mut(at)?;
            *agent = Agent {
                id: agent.id.clone(),
                after: agent.after.clone(),
                role: Some(card.title.to_owned()),
                duty: Some(card.duty.to_owned()),
                ..frame.agent(at, card.base)
            };
            format!("make {chosen} a {}", card.title)
        }
        5 if spec.answer.from.len() > 1 => {
            let rules: Vec<AnswerRule> = match domain.is_code() {
                true => vec![AnswerRule::Test, AnswerRule::Judge],
                false => vec![AnswerRule::Vote, AnswerRule::Judge],
            };
            changed.answer.by = *random.pick(&rules)?;
            format!("answer by {}", changed.answer.by)
        }
        6 if grows && spec.agents.len() + 2 <= MOST_AGENTS => {
            // Self-consistency: the same agent three times, and an ensemble.
            let agent = spec.agents.get(at)?;
            for copy in ["x", "y"] {
                changed.agents.push(Agent { id: format!("{id}{copy}"), ..agent.clone() });
                changed.answer.from.push(format!("{id}{copy}"));
            }
            if !changed.answer.from.contains(&chosen) {
                changed.answer.from.push(chosen.clone());
            }
            changed.answer.by = if domain.is_code() { AnswerRule::Test } else { AnswerRule::Judge };
            format!("run {chosen} three times, and a judge")
        }
        _ => return None,
    };
    let text = render(&changed).text;
    validate(&text, language).ok().map(|_| (told, text))
}
