//! A team changed at random: a field edited, an agent added, a role exchanged.

use crate::trial::agent;
use lemon_num::Random;
use lemon_spec::edit::{Change, Edit, apply, edits};
use lemon_spec::{Agent, Answer, AnswerRule, Language, Plan, Share, Spec, render, validate};

/// Agents a team grows to.
pub const MOST_AGENTS: usize = 9;

/// The base roles that an agent may get, where a text is asked for and where a program is.
const FOR_TEXTS: [&str; 8] = ["solver", "expert", "critic", "verifier", "planner", "decomposer", "summariser", "judge"];
const FOR_PROGRAMS: [&str; 6] = ["programmer", "critic", "verifier", "tester", "planner", "judge"];

/// Roles that need an answer to read, and roles that hand on notes instead of one.
const READERS: [&str; 4] = ["critic", "verifier", "judge", "summariser"];
const NOTE_TAKERS: [&str; 3] = ["planner", "decomposer", "tester"];

/// The team with one change, sometimes with more; `None` if what was drawn does not go or makes no sense.
pub fn mutant(plan: &Plan, language: &Language, code: bool, random: &mut Random) -> Option<Plan> {
    let mut changed = changed(plan, language, code, random)?;
    while random.below(3) == 0 {
        changed = self::changed(&changed, language, code, random)?;
    }
    makes_sense(&changed).then_some(changed)
}

/// Whether every agent is of use. That each counts towards the answer is what a plan without warnings says. The
/// world would let a judge with nothing to judge solve the task, and charge less for it, since its prompt is shorter.
fn makes_sense(plan: &Plan) -> bool {
    let agents = &plan.spec().agents;
    let takes_notes = |agent: &Agent| NOTE_TAKERS.contains(&agent.base.as_str());
    let reads_answers = |agent: &Agent| agents.iter().any(|read| agent.after.contains(&read.id) && !takes_notes(read));
    let is_read = |agent: &Agent| agents.iter().any(|reader| reader.after.contains(&agent.id));
    let answers = |agent: &Agent| plan.spec().answer.from.contains(&agent.id);
    let does_its_part = |agent: &Agent| {
        (reads_answers(agent) || !READERS.contains(&agent.base.as_str()))
            && !(takes_notes(agent) && (answers(agent) || agent.share == Share::Answer))
            && (is_read(agent) || agent.share == Share::Reply)
    };
    plan.warnings().is_empty() && agents.iter().all(does_its_part)
}

fn changed(plan: &Plan, language: &Language, code: bool, random: &mut Random) -> Option<Plan> {
    let roles: &[&str] = if code { &FOR_PROGRAMS } else { &FOR_TEXTS };
    let role = *roles.get(random.below(roles.len()))?;
    let spec = match random.below(6) {
        0 | 1 if plan.agents().len() < MOST_AGENTS => with_agent(plan.spec(), role, language, random)?,
        2 => with_role(plan.spec(), role, random)?,
        _ => return edited(plan, language, random),
    };
    // A change that breaks a limit of the language is no candidate.
    validate(&render(&spec).text, language).ok()
}

/// One edit of those that change what happens.
fn edited(plan: &Plan, language: &Language, random: &mut Random) -> Option<Plan> {
    let is_read = |id: &String| plan.spec().agents.iter().any(|agent| agent.after.contains(id));
    let matters = |edit: &Edit| match &edit.change {
        // A search writes no further round, and the text stays as it is.
        Change::Review | Change::Stop | Change::WithholdMessage { .. } | Change::WithholdResult { .. } => false,
        Change::ShareAnswer { agent } | Change::ShareReply { agent } => is_read(agent),
        Change::AnswerBy { .. } => plan.answer_from().len() > 1,
        _ => true,
    };
    let edits: Vec<Edit> = edits(plan, language).into_iter().filter(matters).collect();
    let edit = edits.get(random.below(edits.len()))?;
    // Only edits that apply are enumerated; one that breaks a limit all the same is no candidate.
    Some(apply(plan, edit, language).ok()?.plan)
}

/// One more agent: at the end, beside the others, or before one of them.
fn with_agent(spec: &Spec, role: &str, language: &Language, random: &mut Random) -> Option<Spec> {
    let mut spec = spec.clone();
    let id = (1..).map(|number| format!("a{number}")).find(|id| spec.agents.iter().all(|agent| agent.id != *id))?;
    let capacity = language.capacities.get(random.below(language.capacities.len()))?;
    let mut new = agent(id.clone(), role, capacity);
    match random.below(3) {
        0 => {
            new.after.clone_from(&spec.answer.from);
            spec.agents.push(new);
            spec.answer = Answer { from: vec![id], by: AnswerRule::Last };
        }
        1 => {
            spec.agents.push(new);
            spec.answer.from.push(id);
            if spec.answer.by == AnswerRule::Last {
                spec.answer.by = AnswerRule::Vote;
            }
        }
        _ => {
            let reader = random.below(spec.agents.len());
            spec.agents.get_mut(reader)?.after.insert(0, id);
            spec.agents.insert(0, new);
        }
    }
    Some(spec)
}

/// One agent in another base role.
fn with_role(spec: &Spec, role: &str, random: &mut Random) -> Option<Spec> {
    let mut spec = spec.clone();
    let at = random.below(spec.agents.len());
    role.clone_into(&mut spec.agents.get_mut(at)?.base);
    Some(spec)
}

#[cfg(test)]
mod tests {
    use super::super::seeds::seed_teams;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_mutant_is_a_small_valid_team_of_the_roles_allowed(seed: u64, seed_team in 0_usize..30, code: bool) {
            let language = Language::default();
            let mut random = Random::new(seed);
            let mut plan = validate(&render(&seed_teams(&language, code)[seed_team]).text, &language).unwrap();
            for _ in 0..12 {
                plan = mutant(&plan, &language, code, &mut random).unwrap_or(plan);
                // A plan is valid by construction; its own text has to say the same team.
                let again = validate(&render(plan.spec()).text, &language).unwrap();
                prop_assert_eq!(again.spec(), plan.spec());
                prop_assert!((1..=MOST_AGENTS).contains(&plan.agents().len()));
                prop_assert_eq!(plan.next(), lemon_spec::Next::Stop);
                let roles: &[&str] = if code { &FOR_PROGRAMS } else { &FOR_TEXTS };
                prop_assert!(plan.agents().iter().all(|agent| roles.contains(&agent.base.name.as_str())));
                prop_assert!(makes_sense(&plan));
            }
        }
    }

    #[track_caller]
    fn check(agents: &str, from: &str, sense: bool) {
        let text = format!("agents:\n{agents}answer: {{from: [{from}], by: vote}}\n");
        let plan = validate(&text, &Language::default()).unwrap();
        assert_eq!(makes_sense(&plan), sense, "{text}");
    }

    #[test]
    fn every_agent_contributes_to_the_answer() {
        let solver = "  - {id: a, base: solver, capacity: small}\n";
        let planner = "  - {id: p, base: planner, capacity: small}\n";
        check(solver, "a", true);
        check("  - {id: a, base: judge, capacity: small}\n", "a", false);
        check("  - {id: a, base: solver, capacity: small, share: answer}\n", "a", false);
        check(&format!("{solver}  - {{id: b, base: critic, capacity: small, after: [a]}}\n"), "b", true);
        check(&format!("{solver}  - {{id: b, base: critic, capacity: small}}\n"), "a, b", false);
        check(&format!("{solver}  - {{id: b, base: expert, capacity: small}}\n"), "a", false);
        check(&format!("{solver}{planner}"), "a, p", false);
        check(&format!("{planner}  - {{id: a, base: solver, capacity: small, after: [p]}}\n"), "a", true);
        check(&format!("{planner}  - {{id: a, base: critic, capacity: small, after: [p]}}\n"), "a", false);
    }

    #[test]
    fn single_agents_become_teams_and_teams_single_agents() {
        let language = Language::default();
        let mut random = Random::new(7);
        let reached = |from: usize, wanted: fn(&Plan) -> bool, random: &mut Random| {
            let plan = validate(&render(&seed_teams(&language, false)[from]).text, &language).unwrap();
            (0..200).filter_map(|_| mutant(&plan, &language, false, random)).any(|plan| wanted(&plan))
        };
        assert!(reached(0, |plan| plan.agents().len() == 2, &mut random));
        assert!(reached(0, |plan| plan.agents()[0].capacity == "medium", &mut random));
        assert!(reached(0, |plan| plan.agents()[0].base.name == "expert", &mut random));
        assert!(reached(8, |plan| plan.agents().len() == 1, &mut random));
        assert!(reached(3, |plan| plan.answer_rule() == AnswerRule::Judge, &mut random));
    }
}
