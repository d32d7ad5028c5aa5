//! The teacher of hand-written rules: it decides by the question.
//!
//! What it decides, and why; the figures are means of simulated runs in the calibrated world with the default rewards
//! (`cargo run -p lemon-sft --example rewards`):
//!
//! - **One agent of the strongest level** for nearly everything. Its tokens cost 0.03 of reward more than the middle
//!   level's, and it is right four to ten points more often; a second agent costs 0.04 to 0.05.
//! - **A role and a duty that name what the task takes.** They cost nothing and are worth half a point of success where
//!   tasks are easy and two where they are hard.
//! - **Knowledge and programs: the answer alone.** Nothing is lost by it there, and a third of the tokens of a question of
//!   knowledge is saved. Word problems need the working.
//! - **A second agent that reads the first one's answer** where a problem looks hard; where that is, the [`Aim`] says.
//! - **The weakest level** for the very simplest programs only.
//! - **One neutral agent** for everything else: a text, a plan, a fact, a greeting, a program in free words. Roles and duties
//!   were found to help on word problems and questions with options alone; elsewhere they do harm.

use super::words::{BRIEF, WORKED, worded};
use super::{TeachContext, WIDTH, draw, task_text};
use async_trait::async_trait;
use futures::stream::{self, StreamExt, TryStreamExt};
use lemon_exec::orchestrator::{Draft, Fixed, Orchestrator, OrchestratorError, WriteContext, percent};
use lemon_exec::{Form, answer};
use lemon_policy::pair::{Pair, TaskText, Teacher, Told, canonical_round, dedupe};
use lemon_policy::{TaskFeatures, TaskKind, featurize, is_option};
use lemon_rollout::{Case, Earned, RolloutError, RolloutRequest, Team};
use lemon_spec::{Agent, Answer, AnswerRule, Language, Next, Share, Spec, render, validate};
use lemon_task::Everyday;
use lemon_trace::{AgentStatus, EventKind, Trace};
use std::sync::Arc;

/// How to teach by rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RulesSettings {
    /// Wordings for each task, at most two of which come to pairs if they differ.
    pub wordings: u32,
    /// Runs for each pair; 0: nothing is run or measured.
    pub runs: u32,
    /// Of so many tasks, one also gets a pair for a second round; 0: none does.
    pub second_round_every: usize,
    /// Whether the subject of a task is believed, where it says one, for the words of roles and duties.
    pub subjects: bool,
    /// What the rules are after.
    pub aim: Aim,
}

impl Default for RulesSettings {
    fn default() -> Self {
        RulesSettings { wordings: 1, runs: 2, second_round_every: 5, subjects: true, aim: Aim::Thrift }
    }
}

/// Pairs for these tasks, in their order; each task's second round comes behind its first. Cancelled, it gives those made
/// by then.
///
/// # Errors
/// The sandbox failed.
pub async fn teach(context: &TeachContext<'_>, settings: &RulesSettings) -> Result<Vec<Pair>, RolloutError> {
    let one = |(at, case)| pairs(context, settings, at, case);
    let all = stream::iter(context.cases.iter().enumerate()).map(one).buffered(WIDTH);
    let all: Vec<Vec<Pair>> = all.try_collect().await?;
    Ok(dedupe(all.into_iter().flatten().collect()))
}

/// The pairs for one task.
async fn pairs(
    context: &TeachContext<'_>,
    settings: &RulesSettings,
    at: usize,
    case: &Case,
) -> Result<Vec<Pair>, RolloutError> {
    let language = &context.env.language;
    let task = &case.item.task;
    let subject = task.subject.as_deref().filter(|_| settings.subjects);
    let mut pairs = Vec::new();
    for wording in 0..settings.wordings {
        let seed = draw(context.seed, &["wording", &wording.to_string()]);
        let text = render(&team(&task.question, subject, settings.aim, language, seed)).text;
        // With another library of roles these teams are not valid.
        if validate(&text, language).is_ok() {
            pairs.extend(context.pair(case, text, Teacher::Rules, settings.runs).await?);
        }
    }
    if settings.second_round_every > 0 && at.is_multiple_of(settings.second_round_every) {
        pairs.extend(second_round(context, case, subject).await?);
    }
    Ok(pairs)
}

/// What the rules are after where a further agent would earn little and cost much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Aim {
    /// More reward than any fixed team, for no more tokens than the best of them: a second agent only for the hardest.
    #[default]
    Thrift,
    /// The most reward.
    Reward,
}

/// The team for a question. Everything but the words of roles and duties is decided by the question alone.
pub fn team(question: &str, subject: Option<&str>, aim: Aim, language: &Language, seed: u64) -> Spec {
    if let Some(base) = neutral_base(question) {
        return neutral(base, language);
    }
    let shape = shape(&featurize(question, None), aim, language);
    worded(&shape, &featurize(question, subject), question, seed)
}

/// One strong agent without a role or a duty of its own.
fn neutral(base: &str, language: &Language) -> Spec {
    let mut team = chain_of(&[Level::Strong], WORKED, TaskKind::Knowledge, language);
    for agent in &mut team.agents {
        base.clone_into(&mut agent.base);
        agent.duty = None;
    }
    team
}

/// The base role for a question that asks for free text or a program in free words. `None`: the question has the shape of
/// the sets that roles and duties were made for.
fn neutral_base(question: &str) -> Option<&'static str> {
    let lists_options = question.lines().filter(|line| is_option(line)).count() > 1;
    match (Form::of(question), featurize(question, None).kind) {
        _ if lists_options => None,
        (_, TaskKind::Program) | (Form::Choice, _) => None,
        (Form::Code, _) => Some("programmer"),
        (_, TaskKind::Knowledge) | (Form::Json, _) => Some("solver"),
        // Word problems have numbers and ask a question; plans and letters have numbers too.
        (Form::Open, TaskKind::Number) if !question.contains('?') => Some("solver"),
        _ => None,
    }
}

/// Pairs for so many everyday tasks of our own: a neutral programmer for those about programs, a neutral solver for the others.
/// What a task is about is known from the way it was composed.
pub fn everyday(count: usize, language: &Language, seed: u64) -> Vec<Pair> {
    let pair = |(at, (kind, question)): (usize, (Everyday, String))| Pair {
        task: TaskText { set: "everyday/own".to_owned(), id: format!("{at}-{seed}"), question },
        round: 1,
        results: Vec::new(),
        spec: render(&neutral(if kind == Everyday::Code { "programmer" } else { "solver" }, language)).text,
        teacher: Teacher::Rules,
        reward: None,
        success: None,
        tokens: None,
        world: None,
        seed,
        runs: 0,
    };
    lemon_task::everyday(count, seed).into_iter().enumerate().map(pair).collect()
}

/// The team with marks for duties.
pub(super) fn shape(features: &TaskFeatures, aim: Aim, language: &Language) -> Spec {
    use Level::{Middle, Strong, Weak};
    let d = features.difficulty;
    let (levels, mark): (&[Level], &str) = match (features.kind, aim) {
        (TaskKind::Number, Aim::Thrift) if d < 1.4 => (&[Strong], WORKED),
        (TaskKind::Number, Aim::Reward) if d < 0.8 => (&[Strong], WORKED),
        (TaskKind::Number, _) if d < 2.0 => (&[Strong, Strong], WORKED),
        (TaskKind::Number, _) => (&[Strong, Strong, Strong], WORKED),
        (TaskKind::Options, Aim::Thrift) if d < 0.6 => (&[Strong], WORKED),
        (TaskKind::Options, Aim::Thrift) => (&[Strong, Strong], WORKED),
        (TaskKind::Options, Aim::Reward) if d < -0.1 => (&[Strong], WORKED),
        (TaskKind::Options, Aim::Reward) if d < 0.4 => (&[Middle, Strong], WORKED),
        (TaskKind::Options, Aim::Reward) if d < 1.0 => (&[Strong, Strong], WORKED),
        (TaskKind::Options, Aim::Reward) => (&[Strong, Strong, Strong], WORKED),
        (TaskKind::Knowledge, Aim::Reward) if d > 0.5 => (&[Middle, Strong], BRIEF),
        (TaskKind::Knowledge, _) => (&[Strong], BRIEF),
        (TaskKind::Program, _) if d < -1.35 => (&[Weak], BRIEF),
        (TaskKind::Program, _) => (&[Strong], BRIEF),
    };
    chain_of(levels, mark, features.kind, language)
}

/// A level of model by its place among those there are.
#[derive(Clone, Copy)]
pub(super) enum Level {
    Weak,
    Middle,
    Strong,
}

impl Level {
    pub(super) fn name(self, language: &Language) -> String {
        let last = language.capacities.len().saturating_sub(1);
        let place = match self {
            Level::Weak => 0,
            Level::Middle => last / 2,
            Level::Strong => last,
        };
        language.capacities.get(place).cloned().unwrap_or_default()
    }
}

/// Agents each of which reads the answer of the one before.
fn chain_of(levels: &[Level], mark: &str, kind: TaskKind, language: &Language) -> Spec {
    let agent = |(at, level): (usize, &Level)| Agent {
        id: format!("a{}", at + 1),
        base: if at > 0 { "critic" } else { first_base(kind) }.to_owned(),
        role: None,
        duty: Some(mark.to_owned()),
        capacity: level.name(language),
        after: if at > 0 { vec![format!("a{at}")] } else { Vec::new() },
        // No agent reads the last one.
        share: if at + 1 < levels.len() { Share::Answer } else { Share::Reply },
        tools: Vec::new(),
    };
    let from = vec![format!("a{}", levels.len())];
    let agents = levels.iter().enumerate().map(agent).collect();
    Spec { agents, answer: Answer { from, by: AnswerRule::Last }, next: Next::Stop }
}

/// Who begins.
pub(super) fn first_base(kind: TaskKind) -> &'static str {
    match kind {
        TaskKind::Number | TaskKind::Options => "solver",
        TaskKind::Knowledge => "expert",
        TaskKind::Program => "programmer",
    }
}

/// A first round for which a second is written: two agents that do not know of each other.
fn opening(question: &str, subject: Option<&str>, language: &Language, seed: u64) -> Spec {
    let features = featurize(question, subject);
    let mark = if matches!(features.kind, TaskKind::Number | TaskKind::Options) { WORKED } else { BRIEF };
    let mut team = chain_of(&[Level::Middle, Level::Strong], mark, features.kind, language);
    for agent in &mut team.agents {
        first_base(features.kind).clone_into(&mut agent.base);
        agent.after.clear();
        agent.share = Share::Reply;
    }
    team.answer = Answer { from: vec!["a1".to_owned(), "a2".to_owned()], by: AnswerRule::Vote };
    team.next = Next::Review;
    worded(&team, &features, question, seed)
}

/// The round after these results: where all agree, no agents; where they differ, one strong agent that reads them all.
pub fn review(question: &str, subject: Option<&str>, results: &[Told], language: &Language, seed: u64) -> Spec {
    let features = featurize(question, subject);
    let ids: Vec<String> = results.iter().map(|told| told.agent.clone()).collect();
    if agree(results) {
        let answer = Answer { from: ids, by: AnswerRule::Vote };
        return Spec { agents: Vec::new(), answer, next: Next::Stop };
    }
    let mark = if matches!(features.kind, TaskKind::Number | TaskKind::Options) { WORKED } else { BRIEF };
    let mut team = chain_of(&[Level::Strong], mark, features.kind, language);
    for agent in &mut team.agents {
        agent.base = if features.kind == TaskKind::Program { "programmer" } else { "critic" }.to_owned();
        agent.after.clone_from(&ids);
    }
    worded(&canonical_round(&renamed(team), &ids), &features, question, seed)
}

/// With an id that no earlier agent has, so that references are told apart.
fn renamed(mut team: Spec) -> Spec {
    for agent in &mut team.agents {
        agent.id = "new".to_owned();
    }
    team.answer.from = vec!["new".to_owned()];
    team
}

/// Whether all ended with a reply and their answers are one.
fn agree(results: &[Told]) -> bool {
    let key = |told: &Told| {
        let reply = told.reply.as_deref().filter(|_| told.status == AgentStatus::Done)?;
        Some(answer::vote_key(&answer::extract_or_all(reply)))
    };
    let mut keys = results.iter().map(key);
    match keys.next().flatten() {
        Some(first) => keys.all(|key| key.as_ref() == Some(&first)),
        None => false,
    }
}

/// Runs an opening and what these rules write after it, and makes a pair of the second round. `None`: cancelled.
async fn second_round(
    context: &TeachContext<'_>,
    case: &Case,
    subject: Option<&str>,
) -> Result<Option<Pair>, RolloutError> {
    let (task, language) = (&case.item.task, &context.env.language);
    let seed = draw(context.seed, &["second round"]);
    let text = render(&opening(&task.question, subject, language, seed)).text;
    let rules = Rules { seed, subject: subject.map(str::to_owned), ..Rules::default() };
    let writer = Arc::new(Fixed { text, reviewer: Some(Arc::new(rules)) });
    let request = RolloutRequest::new(case, Team::Orchestrator(writer), seed).cancelled_by(context.cancel);
    let run = context.env.rollout(request).await?;
    let Some(earned) = run.earned() else { return Ok(None) };
    Ok(later_pair(context, case, &run.trace, Teacher::Rules, Some(earned)))
}

/// The text of a round. `None` if there was no such round.
pub(super) fn decided(trace: &Trace, number: u32) -> Option<String> {
    trace.events.iter().find_map(|event| match &event.kind {
        EventKind::Decision { round, text, .. } if *round == number => Some(text.clone()),
        _ => None,
    })
}

/// The pair of a run's second round. `None` if it had none.
pub(super) fn later_pair(
    context: &TeachContext<'_>,
    case: &Case,
    trace: &Trace,
    teacher: Teacher,
    earned: Option<Earned>,
) -> Option<Pair> {
    let spec = decided(trace, 2)?;
    let told = |agent: &lemon_trace::AgentSummary| {
        Some(Told {
            agent: agent.id.clone(),
            role: agent.role.clone(),
            status: agent.status?,
            reply: agent.reply.clone(),
            sure: agent.confidence.map(percent),
        })
    };
    let agents = &trace.summary().agents;
    let results: Vec<Told> = agents.iter().filter(|agent| agent.round == 1).filter_map(told).collect();
    let pair = context.written(case, spec, teacher, earned, u32::from(earned.is_some()));
    Some(Pair { task: task_text(case), round: 2, results, ..pair })
}

/// These rules as an orchestrator: a method of evaluations, and the writer of second rounds.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// The seed of its words.
    pub seed: u64,
    /// The subject of the task, where one is known.
    pub subject: Option<String>,
    /// What it is after.
    pub aim: Aim,
}

#[async_trait]
impl Orchestrator for Rules {
    async fn draft(&self, context: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError> {
        let subject = self.subject.as_deref();
        let spec = match context.round {
            1 => team(context.question, subject, self.aim, context.language, self.seed),
            _ => {
                let told = |result: &lemon_exec::orchestrator::RoundResult<'_>| Told {
                    agent: result.agent.to_owned(),
                    role: result.role.to_owned(),
                    status: result.status,
                    reply: result.reply.map(str::to_owned),
                    sure: result.sure,
                };
                let results: Vec<Told> = context.results.iter().map(told).collect();
                review(context.question, subject, &results, context.language, self.seed)
            }
        };
        Ok(Some(Draft::Text(render(&spec).text)))
    }
}

#[cfg(test)]
mod tests;
