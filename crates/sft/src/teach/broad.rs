//! The teacher that does not know what pays: random teams of sensible shapes.
//!
//! Reinforcement learning can only find teams that the policy writes now and then. So each task gets random teams, whatever its
//! question: one to four agents, standard shapes, every capacity, with and without words of their own, with and without a second
//! round. The policy learns from them to write valid teams of every kind. Training then finds which of them pay.

mod drawn;

use super::rules::later_pair;
use super::search::Staged;
use super::words::worded;
use super::{TeachContext, WIDTH, draw};
use async_trait::async_trait;
pub(super) use drawn::TeamSampler;
use futures::stream::{self, StreamExt, TryStreamExt};
use lemon_exec::answer;
use lemon_exec::orchestrator::{Draft, Fixed, Orchestrator, OrchestratorError, WriteContext};
use lemon_policy::pair::{Pair, Teacher, dedupe};
use lemon_policy::{TaskFeatures, featurize};
use lemon_rollout::{Case, RolloutError, RolloutRequest, Team};
use lemon_spec::{Answer, Language, Next, Spec, render};
use std::sync::Arc;

/// The settings of this teacher.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BroadSettings {
    /// Teams for each task.
    pub per_task: u32,
    /// The share of teams of up to six in which some plan, and others solve with a plan or without and vote.
    pub advised: f64,
    /// The share of teams in which all solve the task, some of them in other words, and vote; in a second round more of them vote.
    pub voting: f64,
    /// The share of first rounds that ask for a second; of votes it is every other one, if there are second rounds at all.
    pub review: f64,
    /// Whether the second rounds are written too: each takes a run of its first.
    pub second_rounds: bool,
    /// Runs for each pair of a first round; 0: nothing is measured.
    pub runs: u32,
}

impl Default for BroadSettings {
    fn default() -> Self {
        BroadSettings { per_task: 2, advised: 0.0, voting: 0.0, review: 0.3, second_rounds: true, runs: 0 }
    }
}

/// Pairs for these tasks, in their order; a second round comes behind its first. Cancelled, it gives those made by then.
///
/// What a first round earned is what it earned alone, without the second round it may ask for.
///
/// # Errors
/// The sandbox failed.
pub async fn teach(context: &TeachContext<'_>, settings: &BroadSettings) -> Result<Vec<Pair>, RolloutError> {
    let teams = |case| (0..settings.per_task).map(move |number| (case, number));
    let works: Vec<(&Case, u32)> = context.cases.iter().flat_map(teams).collect();
    let all = stream::iter(works).map(|(case, number)| pairs(context, settings, case, number)).buffered(WIDTH);
    let all: Vec<Vec<Pair>> = all.try_collect().await?;
    // With another library of roles, or narrow limits, some of these teams are not valid.
    let language = &context.env.language;
    let valid = all.into_iter().flatten().filter(|pair| pair.fault(language).is_none());
    Ok(dedupe(valid.collect()))
}

/// The pair of one team, and of its second round.
async fn pairs(
    context: &TeachContext<'_>,
    settings: &BroadSettings,
    case: &Case,
    number: u32,
) -> Result<Vec<Pair>, RolloutError> {
    let task = &case.item.task;
    let seed = draw(context.seed, &["broad", &case.set, &task.id, &task.question, &number.to_string()]);
    let features = featurize(&task.question, task.subject.as_deref());
    let language = &context.env.language;
    let (team, further) = team(&task.question, &features, settings, language, seed);
    let text = render(&team).text;
    let mut pairs = Vec::from_iter(context.pair(case, text.clone(), Teacher::Broad, settings.runs).await?);
    if settings.second_rounds && team.next == Next::Review {
        let reviewer = Reviewer { answer: team.answer, further, features, seed: draw(seed, &["second round"]) };
        pairs.extend(second_round(context, case, text, reviewer).await?);
    }
    Ok(pairs)
}

/// Pairs of a team in two rounds, for these tasks in their order. Two of its agents start. Then the run ends, the more often the
/// surer they are together, or some of the others follow. No pairs: no two of its agents can start.
///
/// # Errors
/// The sandbox failed.
pub async fn teach_in_two_rounds(context: &TeachContext<'_>, team: &Spec) -> Result<Vec<Pair>, RolloutError> {
    let Some(way) = Staged::ways(team).into_iter().next() else { return Ok(Vec::new()) };
    let way = &way;
    let cases: Vec<&Case> = context.cases.iter().collect();
    let all = stream::iter(cases).map(|case| both_rounds(context, way, case)).buffered(WIDTH);
    let all: Vec<Vec<Pair>> = all.try_collect().await?;
    Ok(dedupe(all.into_iter().flatten().collect()))
}

async fn both_rounds(context: &TeachContext<'_>, way: &Staged, case: &Case) -> Result<Vec<Pair>, RolloutError> {
    let task = &case.item.task;
    let seed = draw(context.seed, &["two rounds", &case.set, &task.id, &task.question]);
    let features = featurize(&task.question, task.subject.as_deref());
    let text = render(&worded(&way.opening, &features, &task.question, seed)).text;
    let mut pairs = Vec::from_iter(context.pair(case, text.clone(), Teacher::Broad, 0).await?);
    let (answer, further) = (way.opening.answer.clone(), Further::Of(way.rest.clone()));
    let reviewer = Reviewer { answer, further, features, seed: draw(seed, &["second round"]) };
    pairs.extend(second_round(context, case, text, reviewer).await?);
    Ok(pairs)
}

/// A team drawn at random, as the settings say, and who would follow in a second round.
fn team(
    question: &str,
    features: &TaskFeatures,
    settings: &BroadSettings,
    language: &Language,
    seed: u64,
) -> (Spec, Further) {
    let mut sampler = TeamSampler::new(seed);
    if settings.voting > 0.0 && sampler.chance(settings.voting) {
        let next = if settings.review > 0.0 && sampler.chance(0.5) { Next::Review } else { Next::Stop };
        let most = if next == Next::Review { FEW } else { MANY };
        return (
            worded(&sampler.vote(features.kind, &[], most, next, language), features, question, seed),
            Further::Voters,
        );
    }
    let next = if sampler.chance(settings.review) { Next::Review } else { Next::Stop };
    let is_advised = settings.advised > 0.0 && sampler.chance(settings.advised);
    let mut team = if is_advised { sampler.advised(features.kind, next) } else { sampler.opening(features.kind, next) };
    sampler.assign(&mut team, question, features, language);
    (team, Further::Readers)
}

/// Voters at most where a second round may follow, and where not.
const FEW: usize = 4;
const MANY: usize = 8;

/// Runs an opening and writes its second round. `None`: cancelled, or no agent of it replied.
async fn second_round(
    context: &TeachContext<'_>,
    case: &Case,
    text: String,
    reviewer: Reviewer,
) -> Result<Option<Pair>, RolloutError> {
    let seed = reviewer.seed;
    let writer = Arc::new(Fixed { text, reviewer: Some(Arc::new(reviewer)) });
    let request = RolloutRequest::new(case, Team::Orchestrator(writer), seed).cancelled_by(context.cancel);
    let run = context.env.rollout(request).await?;
    if context.cancel.is_cancelled() {
        return Ok(None);
    }
    let pair = later_pair(context, case, &run.trace, Teacher::Broad, run.earned());
    Ok(pair.filter(|pair| pair.results.iter().any(|told| told.reply.is_some())))
}

/// The agents of a second round.
enum Further {
    /// Some that read those of the first.
    Readers,
    /// More that vote with them.
    Voters,
    /// The first few of these, which vote with them.
    Of(Spec),
}

/// Writes random second rounds. They have no agents more often where the answers agree.
struct Reviewer {
    /// The answer of the first round.
    answer: Answer,
    further: Further,
    features: TaskFeatures,
    seed: u64,
}

impl Reviewer {
    fn review(&self, context: &WriteContext<'_>) -> Spec {
        let mut sampler = TeamSampler::new(self.seed);
        if !matches!(self.further, Further::Readers) {
            return self.more_votes(context, &mut sampler);
        }
        let in_dispute = answer::distinct(&context.stated()).len() > 1;
        if sampler.chance(if in_dispute { 0.25 } else { 0.5 }) {
            let answer = Answer { from: self.answer.from.clone(), by: sampler.rule(self.answer.from.len()) };
            return Spec { agents: Vec::new(), answer, next: Next::Stop };
        }
        let earlier: Vec<String> = context.results.iter().map(|result| result.agent.to_owned()).collect();
        let most = if in_dispute { 2 } else { 1 };
        let mut team = sampler.further(self.features.kind, &earlier, most);
        sampler.assign(&mut team, context.question, &self.features, context.language);
        team
    }

    /// The vote as it stands, the more often the surer its answer is, or with more voters.
    fn more_votes(&self, context: &WriteContext<'_>, sampler: &mut TeamSampler) -> Spec {
        let leading = context.weights().and_then(|weights| weights.iter().map(|(_, weight)| *weight).max());
        if sampler.chance(f64::from(leading.unwrap_or(0)) / 100.0) {
            return Spec { agents: Vec::new(), answer: self.answer.clone(), next: Next::Stop };
        }
        let earlier: Vec<String> = context.results.iter().map(|result| result.agent.to_owned()).collect();
        let team = match &self.further {
            Further::Of(rest) => sampler.some_of(rest, &earlier),
            Further::Readers | Further::Voters => {
                sampler.vote(self.features.kind, &earlier, MANY, Next::Stop, context.language)
            }
        };
        worded(&team, &self.features, context.question, self.seed)
    }
}

#[async_trait]
impl Orchestrator for Reviewer {
    async fn draft(&self, context: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError> {
        Ok((context.round == 2).then(|| Draft::Text(render(&self.review(context)).text)))
    }
}

#[cfg(test)]
mod tests;
