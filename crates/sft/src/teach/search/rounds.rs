//! A team in two rounds: two of its voters start, and the others follow only where these two together are not sure enough.

use crate::teach::words::{REWORDED, worded};
use async_trait::async_trait;
use lemon_exec::orchestrator::{Draft, Fixed, Orchestrator, OrchestratorError, WriteContext};
use lemon_policy::pair::canonical_ids;
use lemon_policy::{TaskFeatures, featurize};
use lemon_spec::{Agent, Answer, AnswerRule, Next, Spec, render};
use std::sync::Arc;

/// A team that is divided into two rounds, with marks for duties.
#[derive(Debug, Clone, PartialEq)]
pub struct Staged {
    /// Two agents that do not read each other. They have the first ids.
    pub opening: Spec,
    /// All other agents, and the vote of all.
    pub rest: Spec,
    /// The percentage of the vote for one answer at which the run stops after the first round: a multiple of ten, as the
    /// orchestrator's prompt shows it.
    pub enough: u32,
}

impl Staged {
    /// The thresholds to try.
    pub const ENOUGH: [u32; 4] = [20, 30, 40, 50];

    /// The ways to ask a team in two rounds: each kind of two that may begin once, with everything that may be enough. Who begins
    /// reads the task as it stands.
    pub fn ways(team: &Spec) -> Vec<Staged> {
        let is_reworded = |agent: &Agent| agent.duty.as_deref() == Some(REWORDED);
        let begins =
            |agent: &Agent| agent.after.is_empty() && team.answer.from.contains(&agent.id) && !is_reworded(agent);
        let places: Vec<usize> = (0..team.agents.len()).filter(|at| team.agents.get(*at).is_some_and(begins)).collect();
        let kind = |at: usize| team.agents.get(at).map(|agent| (agent.capacity.as_str(), agent.duty.as_deref()));
        let pairs = places
            .iter()
            .flat_map(|one| places.iter().filter(move |other| one < *other).map(move |other| (*one, *other)));
        let mut known = Vec::new();
        let mut ways = Vec::new();
        for (one, other) in pairs {
            let mut kinds = [kind(one), kind(other)];
            kinds.sort_unstable();
            let is_new = !known.contains(&kinds);
            if is_new && team.agents.len() > 2 && team.answer.by == AnswerRule::Vote {
                known.push(kinds);
                ways.extend(Self::ENOUGH.map(|enough| Self::divided(team, one, other, enough)));
            }
        }
        ways
    }

    fn divided(team: &Spec, one: usize, other: usize, enough: u32) -> Staged {
        let mut team = team.clone();
        // The later one first, so that the earlier keeps its place.
        let (second, first) = (team.agents.remove(other), team.agents.remove(one));
        team.agents.splice(0..0, [first, second]);
        let mut rest = canonical_ids(&team);
        let agents: Vec<Agent> = rest.agents.drain(..2).collect();
        let from = agents.iter().map(|agent| agent.id.clone()).collect();
        let opening = Spec { agents, answer: Answer { from, by: AnswerRule::Vote }, next: Next::Review };
        Staged { opening, rest, enough }
    }

    /// The orchestrator of both rounds for a question.
    pub fn writer(&self, question: &str, subject: Option<&str>, seed: u64) -> Arc<dyn Orchestrator> {
        let features = featurize(question, subject);
        let text = render(&worded(&self.opening, &features, question, seed)).text;
        Arc::new(Fixed { text, reviewer: Some(Arc::new(Reviewer { staged: self.clone(), features, seed })) })
    }

    /// The second round after what the first gave.
    pub fn second(&self, context: &WriteContext<'_>, features: &TaskFeatures, seed: u64) -> Spec {
        let most = context.weights().and_then(|weights| weights.iter().map(|(_, weight)| *weight).max());
        if most.is_some_and(|most| most >= self.enough) {
            let answer = self.opening.answer.clone();
            return Spec { agents: Vec::new(), answer, next: Next::Stop };
        }
        worded(&self.rest, features, context.question, seed)
    }
}

struct Reviewer {
    staged: Staged,
    features: TaskFeatures,
    seed: u64,
}

#[async_trait]
impl Orchestrator for Reviewer {
    async fn draft(&self, context: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError> {
        Ok((context.round == 2)
            .then(|| Draft::Text(render(&self.staged.second(context, &self.features, self.seed)).text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::teach::words::WORKED;
    use lemon_exec::orchestrator::RoundResult;
    use lemon_spec::{Language, Share, validate, validate_round};
    use lemon_trace::AgentStatus;

    fn team() -> Spec {
        let agent = |id: &str, base: &str, capacity: &str, mark: &str, after: &[&str]| Agent {
            id: id.to_owned(),
            base: base.to_owned(),
            role: None,
            duty: Some(mark.to_owned()),
            capacity: capacity.to_owned(),
            after: after.iter().map(|id| (*id).to_owned()).collect(),
            share: Share::Reply,
            tools: Vec::new(),
        };
        let agents = vec![
            agent("a1", "planner", "large", WORKED, &[]),
            agent("a2", "solver", "large", REWORDED, &["a1"]),
            agent("a3", "solver", "medium", WORKED, &[]),
            agent("a4", "solver", "large", WORKED, &[]),
            agent("a5", "solver", "large", WORKED, &[]),
        ];
        let from = ["a2", "a3", "a4", "a5"].map(str::to_owned).to_vec();
        Spec { agents, answer: Answer { from, by: AnswerRule::Vote }, next: Next::Stop }
    }

    #[test]
    fn two_agents_that_read_none_begin_and_all_vote() {
        let ways = Staged::ways(&team());
        // Medium and large, and two large.
        assert_eq!(ways.len(), 2 * Staged::ENOUGH.len());
        for way in &ways {
            let whole = validate(&render(&way.opening).text, &Language::default()).unwrap();
            assert_eq!((whole.spec().agents.len(), whole.spec().next), (2, Next::Review));
            let earlier = ["a1", "a2"].map(str::to_owned);
            assert!(validate_round(&render(&way.rest).text, &Language::default(), &earlier).is_ok(), "{:?}", way.rest);
            assert_eq!((way.rest.agents.len(), way.rest.answer.from.len()), (3, 4));
        }
        let levels = |way: &Staged| way.opening.agents.iter().map(|agent| agent.capacity.clone()).collect::<Vec<_>>();
        assert_eq!(
            (levels(&ways[0]), levels(ways.last().unwrap())),
            (vec!["medium".into(), "large".into()], vec!["large".into(), "large".into()])
        );
        let alone = Spec { agents: team().agents.split_off(4), ..team() };
        assert!(Staged::ways(&alone).is_empty());
    }

    #[track_caller]
    fn check(replies: [(&str, Option<u8>); 2], enough: u32, asks: bool) {
        let staged = Staged { enough, ..Staged::ways(&team()).remove(0) };
        let result = |(at, (reply, sure)): (usize, &(&'static str, Option<u8>))| RoundResult {
            agent: ["a1", "a2"][at],
            role: "Solver",
            status: AgentStatus::Done,
            reply: Some(reply),
            sure: *sure,
        };
        let replies: Vec<(&'static str, Option<u8>)> =
            replies.iter().map(|(reply, sure)| (&*(*reply).to_owned().leak(), *sure)).collect();
        let results = replies.iter().enumerate().map(result).collect();
        let language = Language::default();
        let question = "Ana has 3 pens and buys 4. How many?";
        let context = WriteContext {
            question,
            round: 2,
            results,
            language: &language,
            form: Default::default(),
            tokens_left: None,
            seed: 0,
        };
        let second = staged.second(&context, &featurize(question, None), 1);
        assert_eq!(!second.agents.is_empty(), asks, "{second:?}");
        assert!(validate_round(&render(&second).text, &language, &["a1".into(), "a2".into()]).is_ok());
    }

    #[test]
    fn others_are_asked_where_the_first_are_not_sure_enough_together() {
        check([("#### 7", Some(50)), ("#### 7", Some(40))], 40, false);
        check([("#### 7", Some(30)), ("#### 7", Some(40))], 40, true);
        check([("#### 7", Some(90)), ("#### 8", Some(20))], 40, false);
        check([("#### 7", Some(70)), ("#### 8", Some(90))], 60, true);
        // An agent without a confidence or a reply is not enough.
        check([("#### 7", None), ("#### 7", Some(90))], 20, true);
        check([("no idea", Some(90)), ("#### 7", Some(90))], 20, true);
    }
}
