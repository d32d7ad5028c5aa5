//! The critic as an orchestrator: it asks the team that is worth most under a price of tokens, reads what comes back, and
//! asks again where that is worth more than to stop.

use crate::model::{DecisionCritic, Prepared, Rule, counts_of};
use crate::task::SeenReply;
use crate::team::{LEVELS, TeamCounts};
use crate::text::Group;
use async_trait::async_trait;
use lemon_exec::Orchestrator;
use lemon_exec::orchestrator::{Draft, OrchestratorError, RoundResult, WriteContext, plain_team};
use lemon_spec::{Agent, Answer, AnswerRule, Next, Share, Spec, render};
use lemon_trace::AgentStatus;

/// The base role of the agents it asks.
const SOLVER: &str = "solver";
/// What a prompt holds beside the question, in tokens, about: instructions of the role and the style.
const INSTRUCTIONS: f64 = 90.0;
/// What a token of a prompt costs less than one of a reply, in the tokens that a critic counts.
const PROMPT_DISCOUNT: f64 = 0.75;

/// How a critic's advice is followed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CriticRule {
    /// What 1,000 tokens are worth, in rewards: a right answer is 1.
    pub price: f64,
    /// Rounds of calls at most. The driver has to allow one round more, in which the answer is chosen.
    pub rounds: u32,
    /// Whether the first team must not be worse than one call of the strongest level, as far as the critic can tell.
    pub guard: bool,
}

impl Default for CriticRule {
    fn default() -> Self {
        CriticRule { price: 0.1, rounds: 2, guard: true }
    }
}

/// An orchestrator that follows a critic.
pub struct CriticOrchestrator {
    critic: DecisionCritic,
    /// The capacity that serves each level; `None`: no capacity does.
    capacities: [Option<String>; 3],
    rule: CriticRule,
    name: String,
}

impl CriticOrchestrator {
    /// An orchestrator that asks these capacities: one for each of [`LEVELS`], `None` where there is none.
    pub fn new(critic: DecisionCritic, capacities: [Option<String>; 3], rule: CriticRule, name: String) -> Self {
        CriticOrchestrator { critic, capacities, rule: CriticRule { rounds: rule.rounds.max(1), ..rule }, name }
    }

    fn available(&self) -> [usize; 3] {
        std::array::from_fn(|level| if self.capacities[level].is_some() { usize::MAX } else { 0 })
    }

    /// The team of a round; `None`: it has no opinion on such tasks.
    fn team(&self, context: &WriteContext<'_>) -> Option<Spec> {
        // Votes tell nothing of programs: one plain call writes the best that there is (docs/results/real-models.md).
        let prepared = self.critic.prepare(context.question, context.form).filter(|it| it.group != Group::Code)?;
        let seen: Vec<(SeenReply, &RoundResult<'_>)> =
            context.results.iter().filter_map(|result| Some((self.seen(result, context)?, result))).collect();
        if context.round > 1 && seen.is_empty() {
            return None;
        }
        let replies: Vec<&SeenReply> = seen.iter().map(|(reply, _)| reply).collect();
        let counts = counts_of(&replies);
        let stand = prepared.standpoint(&replies, false);
        let supporters = || stand.support.iter().filter_map(|at| seen.get(*at)).map(|(_, result)| *result);
        let spent = context.round > self.rule.rounds;
        let more = if spent { None } else { self.affordable(&prepared, counts, &stand, context) };
        let Some(more) = more else {
            if context.round == 1 {
                return None;
            }
            // The answer that is most likely right; where none is stated, all replies are all there is.
            let mut from: Vec<String> = supporters().map(|result| result.agent.to_owned()).collect();
            if from.is_empty() {
                from = seen.iter().map(|(_, result)| result.agent.to_owned()).collect();
            }
            return Some(Spec { agents: Vec::new(), answer: Answer { from, by: AnswerRule::Vote }, next: Next::Stop });
        };
        let agents = self.agents(more, counts);
        let earlier = seen.iter().map(|(_, result)| result.agent.to_owned());
        let from: Vec<String> = earlier.chain(agents.iter().map(|agent| agent.id.clone())).collect();
        let by = if from.len() > 1 { AnswerRule::Vote } else { AnswerRule::Last };
        Some(Spec { agents, answer: Answer { from, by }, next: Next::Review })
    }

    /// The team that is worth most and that the tokens left can pay, as far as the critic can tell.
    fn affordable(
        &self,
        prepared: &Prepared<'_>,
        counts: TeamCounts,
        stand: &crate::prefix::Standpoint,
        context: &WriteContext<'_>,
    ) -> Option<TeamCounts> {
        // A budget counts the tokens of prompts in full.
        let surplus = PROMPT_DISCOUNT * (context.question.chars().count() as f64 / 4.0 + INSTRUCTIONS);
        let most_tokens = context.tokens_left.map_or(f64::INFINITY, |left| left as f64);
        let CriticRule { price, rounds, guard } = self.rule;
        let rule = Rule { price, guard, most_tokens, surplus, most_calls: context.language.limits.agents };
        let chosen = prepared.choose(counts, stand, self.available(), &rule, context.round >= rounds)?;
        Some(chosen.team)
    }

    fn agents(&self, team: TeamCounts, asked: TeamCounts) -> Vec<Agent> {
        let mut agents = Vec::new();
        for (level, (more, asked)) in team.counts().into_iter().zip(asked.counts()).enumerate() {
            let (Some(Some(capacity)), Some(name)) = (self.capacities.get(level), LEVELS.get(level)) else { continue };
            agents.extend((1..=more).map(|number| Agent {
                id: format!("{name}{}", asked + number),
                base: SOLVER.to_owned(),
                role: None,
                duty: None,
                capacity: capacity.clone(),
                after: Vec::new(),
                share: Share::Answer,
                tools: Vec::new(),
            }));
        }
        agents
    }

    /// What an earlier agent of this orchestrator replied; its id says the level.
    fn seen(&self, result: &RoundResult<'_>, context: &WriteContext<'_>) -> Option<SeenReply> {
        let level = LEVELS
            .iter()
            .position(|name| result.agent.strip_prefix(name).is_some_and(|rest| rest.parse::<u8>().is_ok()))?;
        let reply = result.reply.filter(|_| result.status == AgentStatus::Done);
        let Some(reply) = reply else { return Some(SeenReply::none(level)) };
        let log_sure = result.sure.map(|percent| (f64::from(percent.max(1)) / 100.0).ln());
        Some(SeenReply::new(level, reply, log_sure, context.form, context.question))
    }
}

#[async_trait]
impl Orchestrator for CriticOrchestrator {
    async fn draft(&self, context: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError> {
        let spec = self.team(context);
        let text = spec.map(|spec| render(&spec).text);
        Ok(match text {
            Some(text) => Some(Draft::Learned { text, model: self.name.clone() }),
            // Tasks it was not trained for get one plain call.
            None if context.round == 1 => plain_team(context.language).map(Draft::Guarded),
            None => None,
        })
    }

    fn fallback(&self, context: &WriteContext<'_>) -> Option<String> {
        (context.round == 1).then(|| plain_team(context.language)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::{CriticSettings, fit_critic};
    use crate::synthetic;
    use lemon_exec::Form;
    use lemon_spec::{Language, validate_round};

    fn orchestrator(price: f64) -> CriticOrchestrator {
        let critic = fit_critic(&synthetic::tasks(150, 1), &CriticSettings::default()).unwrap();
        let capacities = ["small", "medium", "large"].map(|name| Some(name.to_owned()));
        let rule = CriticRule { price, ..CriticRule::default() };
        CriticOrchestrator::new(critic, capacities, rule, "critic".into())
    }

    const HARD: &str = "A hard puzzle about trains: there are 4 and 7. How many?";

    fn context<'a>(
        question: &'a str,
        form: Form,
        results: Vec<RoundResult<'a>>,
        language: &'a Language,
    ) -> WriteContext<'a> {
        let round = if results.is_empty() { 1 } else { 2 };
        WriteContext { question, round, results, language, form, tokens_left: None, seed: 0 }
    }

    fn result<'a>(agent: &'a str, reply: &'a str) -> RoundResult<'a> {
        RoundResult { agent, role: "Solver", status: AgentStatus::Done, reply: Some(reply), sure: None }
    }

    #[tokio::test]
    async fn first_rounds_are_valid_and_ask_for_a_review() {
        let (language, orchestrator) = (Language::default(), orchestrator(0.1));
        let context = context(HARD, Form::Number, Vec::new(), &language);
        let Some(Draft::Learned { text, model }) = orchestrator.draft(&context).await.unwrap() else {
            panic!("a team was expected")
        };
        assert_eq!(model, "critic");
        let plan = validate_round(&text, &language, &[]).unwrap();
        assert!(!plan.agents().is_empty() && text.contains("next: review"), "{text}");
    }

    #[tokio::test]
    async fn agreement_stops_and_disagreement_asks_more() {
        let (language, orchestrator) = (Language::default(), orchestrator(0.1));
        let second = async |replies: [&str; 2]| {
            let results = vec![result("reasoned1", replies[0]), result("reasoned2", replies[1])];
            let context = context(HARD, Form::Number, results, &language);
            let Some(Draft::Learned { text, .. }) = orchestrator.draft(&context).await.unwrap() else {
                panic!("a round was expected")
            };
            let earlier = ["reasoned1".to_owned(), "reasoned2".to_owned()];
            let plan = validate_round(&text, &language, &earlier).map_err(|it| format!("{it:?}")).unwrap();
            (plan.agents().len(), text)
        };
        let (agreed, text) = second(["Answer: 5", "So it is 5."]).await;
        assert!(agreed <= 1 && !text.contains("capacity: large"), "a brief reply at most: {text}");
        assert!(text.contains("reasoned1") && text.contains("reasoned2"), "{text}");
        let (more, text) = second(["Answer: 5", "Answer: 6"]).await;
        assert!(more > 0, "{text}");
        assert!(!text.contains("id: reasoned1\n"), "ids are new: {text}");
    }

    #[tokio::test]
    async fn the_last_round_chooses_the_answer() {
        let (language, orchestrator) = (Language::default(), orchestrator(0.0001));
        let results =
            vec![result("program1", "Answer: 5"), result("reasoned1", "Answer: 6"), result("reasoned2", "Answer: 6")];
        let mut context = context(HARD, Form::Number, results, &language);
        context.round = 3;
        let Some(Draft::Learned { text, .. }) = orchestrator.draft(&context).await.unwrap() else {
            panic!("a round was expected")
        };
        assert!(text.contains("from: [reasoned1, reasoned2]") && text.contains("next: stop"), "{text}");
    }

    #[tokio::test]
    async fn tasks_it_was_not_trained_for_get_a_plain_call() {
        let (language, orchestrator) = (Language::default(), orchestrator(0.1));
        for (question, form) in [("Write a poem.", Form::Open), ("Which?\nA) 1\nB) 2", Form::Choice)] {
            let context = context(question, form, Vec::new(), &language);
            assert!(matches!(orchestrator.draft(&context).await.unwrap(), Some(Draft::Guarded(_))), "{question}");
        }
    }

    #[tokio::test]
    async fn a_team_that_tokens_cannot_pay_is_not_asked() {
        let (language, orchestrator) = (Language::default(), orchestrator(0.1));
        let mut context = context(HARD, Form::Number, Vec::new(), &language);
        context.tokens_left = Some(50);
        assert!(matches!(orchestrator.draft(&context).await.unwrap(), Some(Draft::Guarded(_))));
    }
}
