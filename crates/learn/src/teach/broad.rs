//! The teacher that does not know what pays: teams as a careful person would write them who has never measured one.
//!
//! Reinforcement learning can only find what is written now and then. So each task gets teams drawn at random, whatever
//! stands in it: one to four agents, the usual shapes, every level of model, with and without words of their own, with and
//! without a second round. What is learned from them is to write teams that are valid, and to write all of them; which of
//! them pay is left to be found.

mod drawn;

use super::look::{Sight, look};
use super::rules::later_pair;
use super::search::Staged;
use super::words::worded;
use super::{Lessons, WIDTH, draw};
use crate::pair::{Pair, Teacher, dedupe};
pub(super) use drawn::Dice;
use futures::stream::{self, StreamExt, TryStreamExt};
use lemon_eval::{Case, EvalError};
use lemon_exec::answer;
use lemon_exec::orchestrator::{Brief, Draft, Fixed, Orchestrator, Refused};
use lemon_rollout::{RolloutRequest, Team};
use lemon_spec::{Answer, Language, Next, Spec, render};
use std::sync::Arc;

/// How to teach so.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
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

impl Default for Settings {
    fn default() -> Self {
        Settings { per_task: 2, advised: 0.0, voting: 0.0, review: 0.3, second_rounds: true, runs: 0 }
    }
}

/// Pairs for these tasks, in their order; a second round comes behind its first. Cancelled, it gives those made by then.
///
/// What a first round earned is what it earned alone, without the second round it may ask for.
///
/// # Errors
/// The sandbox failed.
pub async fn teach(lessons: &Lessons<'_>, settings: &Settings) -> Result<Vec<Pair>, EvalError> {
    let teams = |case| (0..settings.per_task).map(move |number| (case, number));
    let works: Vec<(&Case, u32)> = lessons.cases.iter().flat_map(teams).collect();
    let all = stream::iter(works).map(|(case, number)| pairs(lessons, settings, case, number)).buffered(WIDTH);
    let all: Vec<Vec<Pair>> = all.try_collect().await?;
    // A library without the usual roles, or narrow limits, cannot write these teams.
    let language = &lessons.trials.language;
    let valid = all.into_iter().flatten().filter(|pair| pair.fault(language).is_none());
    Ok(dedupe(valid.collect()))
}

/// The pair of one team, and of its second round.
async fn pairs(lessons: &Lessons<'_>, settings: &Settings, case: &Case, number: u32) -> Result<Vec<Pair>, EvalError> {
    let task = &case.item.task;
    let seed = draw(lessons.seed, &["broad", &case.set, &task.id, &task.question, &number.to_string()]);
    let sight = look(&task.question, task.subject.as_deref());
    let language = &lessons.trials.language;
    let (team, further) = team(&task.question, &sight, settings, language, seed);
    let text = render(&team).text;
    let mut pairs = Vec::from_iter(lessons.pair(case, text.clone(), Teacher::Broad, settings.runs).await?);
    if settings.second_rounds && team.next == Next::Review {
        let reviewer = Reviewer { answer: team.answer, further, sight, seed: draw(seed, &["second round"]) };
        pairs.extend(second_round(lessons, case, text, reviewer).await?);
    }
    Ok(pairs)
}

/// Pairs of a team in two rounds, for these tasks in their order: two of it begin, and then nobody more is asked, the more often the
/// surer these are together, or some of the others. When that pays is left to be found. None: no two of it can begin.
///
/// # Errors
/// The sandbox failed.
pub async fn teach_in_two_rounds(lessons: &Lessons<'_>, team: &Spec) -> Result<Vec<Pair>, EvalError> {
    let Some(way) = Staged::ways(team).into_iter().next() else { return Ok(Vec::new()) };
    let way = &way;
    let cases: Vec<&Case> = lessons.cases.iter().collect();
    let all = stream::iter(cases).map(|case| both_rounds(lessons, way, case)).buffered(WIDTH);
    let all: Vec<Vec<Pair>> = all.try_collect().await?;
    Ok(dedupe(all.into_iter().flatten().collect()))
}

async fn both_rounds(lessons: &Lessons<'_>, way: &Staged, case: &Case) -> Result<Vec<Pair>, EvalError> {
    let task = &case.item.task;
    let seed = draw(lessons.seed, &["two rounds", &case.set, &task.id, &task.question]);
    let sight = look(&task.question, task.subject.as_deref());
    let text = render(&worded(&way.opening, &sight, &task.question, seed)).text;
    let mut pairs = Vec::from_iter(lessons.pair(case, text.clone(), Teacher::Broad, 0).await?);
    let (answer, further) = (way.opening.answer.clone(), Further::Of(way.rest.clone()));
    let reviewer = Reviewer { answer, further, sight, seed: draw(seed, &["second round"]) };
    pairs.extend(second_round(lessons, case, text, reviewer).await?);
    Ok(pairs)
}

/// A team drawn at random, as the settings say, and who would follow in a second round.
fn team(question: &str, sight: &Sight, settings: &Settings, language: &Language, seed: u64) -> (Spec, Further) {
    let mut dice = Dice::new(seed);
    if settings.voting > 0.0 && dice.chance(settings.voting) {
        let next = if settings.review > 0.0 && dice.chance(0.5) { Next::Review } else { Next::Stop };
        let most = if next == Next::Review { FEW } else { MANY };
        return (worded(&dice.vote(sight.kind, &[], most, next, language), sight, question, seed), Further::Voters);
    }
    let next = if dice.chance(settings.review) { Next::Review } else { Next::Stop };
    let is_advised = settings.advised > 0.0 && dice.chance(settings.advised);
    let mut team = if is_advised { dice.advised(sight.kind, next) } else { dice.opening(sight.kind, next) };
    dice.staff(&mut team, question, sight, language);
    (team, Further::Readers)
}

/// Voters at most where more may be asked later, and where not.
const FEW: usize = 4;
const MANY: usize = 8;

/// Runs an opening and has its second round written. `None`: cancelled, or nobody in it gave anything.
async fn second_round(
    lessons: &Lessons<'_>,
    case: &Case,
    text: String,
    reviewer: Reviewer,
) -> Result<Option<Pair>, EvalError> {
    let seed = reviewer.seed;
    let writer = Arc::new(Fixed { text, reviewer: Some(Arc::new(reviewer)) });
    let request = RolloutRequest::new(case, Team::Orchestrator(writer), seed).cancelled_by(lessons.cancel);
    let run = lessons.trials.rollout(request).await?;
    if lessons.cancel.is_cancelled() {
        return Ok(None);
    }
    let pair = later_pair(lessons, case, &run.trace, Teacher::Broad, run.earned());
    Ok(pair.filter(|pair| pair.results.iter().any(|told| told.reply.is_some())))
}

/// Who is asked in a second round.
enum Further {
    /// Some who read those of the first.
    Readers,
    /// More who vote with them.
    Voters,
    /// The first few of these, who vote with them.
    Of(Spec),
}

/// Writes second rounds at random, with some sense: nobody more is asked more often where nothing is in dispute.
struct Reviewer {
    /// Whose results would be the answer as it stands.
    answer: Answer,
    further: Further,
    sight: Sight,
    seed: u64,
}

impl Reviewer {
    fn review(&self, brief: &Brief<'_>) -> Spec {
        let mut dice = Dice::new(self.seed);
        if !matches!(self.further, Further::Readers) {
            return self.more_votes(brief, &mut dice);
        }
        let in_dispute = answer::distinct(&brief.stated()).len() > 1;
        if dice.chance(if in_dispute { 0.25 } else { 0.5 }) {
            let answer = Answer { from: self.answer.from.clone(), by: dice.rule(self.answer.from.len()) };
            return Spec { agents: Vec::new(), answer, next: Next::Stop };
        }
        let earlier: Vec<String> = brief.results.iter().map(|result| result.agent.to_owned()).collect();
        let most = if in_dispute { 2 } else { 1 };
        let mut team = dice.further(self.sight.kind, &earlier, most);
        dice.staff(&mut team, brief.question, &self.sight, brief.language);
        team
    }

    /// The vote as it stands, the more often the surer its answer is, or with more voters.
    fn more_votes(&self, brief: &Brief<'_>, dice: &mut Dice) -> Spec {
        let leading = brief.weights().and_then(|weights| weights.iter().map(|(_, weight)| *weight).max());
        if dice.chance(f64::from(leading.unwrap_or(0)) / 100.0) {
            return Spec { agents: Vec::new(), answer: self.answer.clone(), next: Next::Stop };
        }
        let earlier: Vec<String> = brief.results.iter().map(|result| result.agent.to_owned()).collect();
        let team = match &self.further {
            Further::Of(rest) => dice.some_of(rest, &earlier),
            Further::Readers | Further::Voters => {
                dice.vote(self.sight.kind, &earlier, MANY, Next::Stop, brief.language)
            }
        };
        worded(&team, &self.sight, brief.question, self.seed)
    }
}

impl Orchestrator for Reviewer {
    fn draft(&self, brief: &Brief<'_>) -> Option<Draft> {
        (brief.round == 2).then(|| Draft::Text(render(&self.review(brief)).text))
    }

    fn repair(&self, _: &Brief<'_>, _: &Refused<'_>) -> Option<Draft> {
        None
    }

    fn fallback(&self, _: &Brief<'_>) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests;
