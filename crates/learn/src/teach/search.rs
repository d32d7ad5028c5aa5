//! The teacher that searches the simulated world: teams of the usual shapes and changes of them are run, and those that earn
//! most are kept.
//!
//! The best of many noisy measurements is mostly luck, and part of what makes a task hard cannot be seen in it. So tasks
//! that look alike are pooled ([`Pooling::Cluster`]): one team is chosen for all of them, with duties worded for each. The
//! other way, the best team for each task by itself, is there for comparison. In the calibrated world, 531 such teams, the
//! best of 16 by four runs each, promised a reward of 1.06 and earned 0.92 with other seeds, where the pooled teams earned
//! 0.94; on new tasks that look the same they earned 0.85 and the pooled ones 0.96
//! (`cargo run -p lemon-learn --example rewards`).

mod pool;
mod rounds;

use super::look::{Kind, Sight, look};
use super::rules::{decided, later_pair};
use super::words::worded;
use super::{Lessons, WIDTH, draw, rules};
use crate::pair::{Pair, Teacher, canonical_ids, dedupe};
use crate::trial::Earned;
use futures::stream::{self, StreamExt, TryStreamExt};
use lemon_eval::{Case, EvalError};
use lemon_exec::orchestrator::{Brief, Draft, Orchestrator, Refused};
use lemon_rollout::RolloutRequest;
use lemon_spec::{Language, Spec, render};
use pool::{Candidate, Pool};
pub use rounds::Staged;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How to search.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Not at all: this team is taught, with marks for duties or without. How it is asked in two rounds may be searched for.
    pub team: Option<Spec>,
    /// What a team is chosen for.
    pub pooling: Pooling,
    /// Teams tried for each cluster, or for each task.
    pub teams: usize,
    /// Of these, so many drawn at random: solvers of any level who vote, some of whom read the task in other words, and in every
    /// other team some with a plan.
    pub drawn: usize,
    /// Changes of the best of them that challenge it then, up to all the runs. Not for each task by itself.
    pub challengers: usize,
    /// Agents of a team at most. In the simulated world no reward was seen to grow beyond five, and pairs get long.
    pub most_agents: usize,
    /// Whether the team is asked in two rounds where that earns more. Not for each task by itself.
    pub two_rounds: bool,
    /// Runs that a team of a cluster is chosen by in the end, or for each task, runs of each team.
    pub runs: usize,
    /// Runs for each pair, with seeds the search has not seen.
    pub lesson_runs: u32,
    /// Whether the subject of a task is believed, where it says one, for the words of roles and duties.
    pub subjects: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            team: None,
            pooling: Pooling::Cluster,
            teams: 90,
            drawn: 0,
            challengers: 0,
            most_agents: 5,
            two_rounds: false,
            runs: 1200,
            lesson_runs: 2,
            subjects: true,
        }
    }
}

/// What a team is chosen for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pooling {
    /// For all tasks that look alike.
    #[default]
    Cluster,
    /// For all tasks that ask for the same kind of thing, however hard they look: one choice, by more runs.
    Kind,
    /// For each task by itself.
    Task,
}

/// Tasks that look alike: what is asked for, and how hard it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cluster {
    /// What is asked for.
    pub kind: Kind,
    /// The place of its difficulty between [`Cluster::BOUNDS`]: 0 is easiest.
    pub band: usize,
}

impl Cluster {
    /// The difficulties between the bands.
    pub const BOUNDS: [f64; 4] = [-0.7, 0.0, 0.6, 1.2];

    /// Where a question belongs.
    pub fn of(sight: &Sight) -> Self {
        Cluster { kind: sight.kind, band: Self::BOUNDS.iter().filter(|bound| sight.difficulty >= **bound).count() }
    }
}

/// A team that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The team, with marks for duties.
    pub team: Spec,
    /// How it is asked in two rounds, if it is.
    pub staged: Option<Staged>,
    /// What it earned in the runs it was chosen by: too good to be true, as the best of many is.
    pub earned: Earned,
    /// Those runs.
    pub runs: usize,
}

/// The teams that were found, by cluster. As an orchestrator it writes them.
#[derive(Debug, Clone, Default)]
pub struct Book {
    /// The teams.
    pub teams: BTreeMap<Cluster, Found>,
    /// The seed of the words.
    pub seed: u64,
}

impl Book {
    /// The team for a question, or the first round of it: that of its cluster, else of the nearest band of its kind, else by the
    /// [`rules`].
    pub fn team(&self, question: &str, subject: Option<&str>, language: &Language, seed: u64) -> Spec {
        match self.found(question) {
            Some(Found { staged: Some(way), .. }) => worded(&way.opening, &look(question, subject), question, seed),
            Some(found) => worded(&found.team, &look(question, subject), question, seed),
            None => rules::team(question, subject, rules::Aim::default(), language, seed),
        }
    }

    fn found(&self, question: &str) -> Option<&Found> {
        let cluster = Cluster::of(&look(question, None));
        let same_kind = self.teams.iter().filter(|(known, _)| known.kind == cluster.kind);
        same_kind.min_by_key(|(known, _)| known.band.abs_diff(cluster.band)).map(|(_, found)| found)
    }
}

impl Orchestrator for Book {
    fn draft(&self, brief: &Brief<'_>) -> Option<Draft> {
        let spec = match brief.round {
            1 => self.team(brief.question, None, brief.language, self.seed),
            _ => self.found(brief.question)?.staged.as_ref()?.second(brief, &look(brief.question, None), self.seed),
        };
        Some(Draft::Text(render(&spec).text))
    }

    fn repair(&self, _: &Brief<'_>, _: &Refused<'_>) -> Option<Draft> {
        None
    }

    fn fallback(&self, _: &Brief<'_>) -> Option<String> {
        None
    }
}

/// Pairs for these tasks, in their order. Cancelled, it gives those made by then.
///
/// # Errors
/// The sandbox failed.
pub async fn teach(lessons: &Lessons<'_>, settings: &Settings) -> Result<Vec<Pair>, EvalError> {
    let language = &lessons.trials.language;
    let seed = draw(lessons.seed, &["wording", "0"]);
    let (book, own) = match settings.pooling {
        Pooling::Cluster | Pooling::Kind => (find(lessons, settings).await?, Vec::new()),
        Pooling::Task => (Book::default(), find_each(lessons, settings).await?),
    };
    let one = |at: usize| {
        let case = lessons.cases.get(at)?;
        let task = &case.item.task;
        let subject = task.subject.as_deref().filter(|_| settings.subjects);
        let found = match settings.pooling {
            Pooling::Cluster | Pooling::Kind => book.found(&task.question),
            Pooling::Task => own.get(at),
        };
        let team = match (settings.pooling, found) {
            (_, Some(found)) => worded(&found.team, &look(&task.question, subject), &task.question, seed),
            (Pooling::Task, None) => return None, // Cancelled before its turn.
            (Pooling::Cluster | Pooling::Kind, None) => book.team(&task.question, subject, language, seed),
        };
        let way = found.and_then(|found| found.staged.as_ref());
        Some((case, render(&canonical_ids(&team)).text, way.map(|way| way.writer(&task.question, subject, seed))))
    };
    let written: Vec<_> = (0..lessons.cases.len()).filter_map(one).collect();
    let runs = stream::iter(written).map(|(case, text, staged)| async move {
        match staged {
            Some(writer) => pairs_of_both_rounds(lessons, case, writer).await,
            None => {
                let pair = lessons.pair(case, text, Teacher::Search, settings.lesson_runs).await?;
                Ok(Vec::from_iter(pair))
            }
        }
    });
    let pairs: Vec<Vec<Pair>> = runs.buffered(WIDTH).try_collect().await?;
    Ok(dedupe(pairs.into_iter().flatten().collect()))
}

/// Runs a team in two rounds and makes a pair of each. None: cancelled.
async fn pairs_of_both_rounds(
    lessons: &Lessons<'_>,
    case: &Case,
    writer: Arc<dyn Orchestrator>,
) -> Result<Vec<Pair>, EvalError> {
    let seed = draw(lessons.seed, &["lesson", "0"]);
    let run = lessons.trials.rollout(RolloutRequest::new(case, writer, seed).cancelled_by(lessons.cancel)).await?;
    if lessons.cancel.is_cancelled() {
        return Ok(Vec::new());
    }
    let (trace, earned) = (&run.trace, run.earned());
    let pair = |text| lessons.written(case, text, Teacher::Search, earned, u32::from(earned.is_some()));
    let first = decided(trace, 1).map(pair);
    let second = later_pair(lessons, case, trace, Teacher::Search, earned);
    Ok(first.into_iter().chain(second).collect())
}

/// The best team of each cluster. Cancelled, it holds the clusters done by then.
///
/// # Errors
/// The sandbox failed.
pub async fn find(lessons: &Lessons<'_>, settings: &Settings) -> Result<Book, EvalError> {
    let mut clusters: BTreeMap<Cluster, Vec<&Case>> = BTreeMap::new();
    for case in lessons.cases {
        let cluster = Cluster::of(&look(&case.item.task.question, None));
        let band = if settings.pooling == Pooling::Kind { 0 } else { cluster.band };
        clusters.entry(Cluster { band, ..cluster }).or_default().push(case);
    }
    let mut book = Book { teams: BTreeMap::new(), seed: draw(lessons.seed, &["words of the book"]) };
    let clusters = joined(clusters);
    let count = clusters.len();
    for (at, (cluster, cases)) in clusters.into_iter().enumerate() {
        let name = format!("{cluster:?}");
        let pool = Pool { lessons, cases, kind: cluster.kind, settings, name, turn: (at, count) };
        match pool.best().await? {
            Some((best, staged)) => drop(book.teams.insert(cluster, Found { staged, ..found(&best) })),
            None if lessons.cancel.is_cancelled() => break,
            // Nobody can tell what teams earn on these: the book leaves them to the rules.
            None => {}
        }
    }
    Ok(book)
}

/// Tasks that a cluster needs for a choice of its own.
const FEWEST: usize = 25;

/// The clusters, small ones joined with the next of their kind, and left out where there is none.
fn joined(clusters: BTreeMap<Cluster, Vec<&Case>>) -> BTreeMap<Cluster, Vec<&Case>> {
    let mut joined: BTreeMap<Cluster, Vec<&Case>> = BTreeMap::new();
    let mut waiting: Option<(Cluster, Vec<&Case>)> = None;
    for (cluster, mut cases) in clusters {
        if let Some((known, mut before)) = waiting.take() {
            match known.kind == cluster.kind {
                true => cases.append(&mut before),
                false => last_of(&mut joined, known).append(&mut before),
            }
        }
        match cases.len() < FEWEST {
            true => waiting = Some((cluster, cases)),
            false => drop(joined.insert(cluster, cases)),
        }
    }
    if let Some((known, mut before)) = waiting {
        last_of(&mut joined, known).append(&mut before);
    }
    // One odd question is not worth a search of its own where there are others: the rules write its team.
    if joined.values().any(|cases| cases.len() >= FEWEST) {
        joined.retain(|_, cases| cases.len() >= FEWEST);
    }
    joined
}

/// The last cluster of the same kind, or a new one.
fn last_of<'m, 'c>(clusters: &'m mut BTreeMap<Cluster, Vec<&'c Case>>, cluster: Cluster) -> &'m mut Vec<&'c Case> {
    let known = clusters.keys().rev().find(|known| known.kind == cluster.kind).copied();
    clusters.entry(known.unwrap_or(cluster)).or_default()
}

/// The best team of each task by itself, in their order. Cancelled, it ends early.
///
/// # Errors
/// The sandbox failed.
pub async fn find_each(lessons: &Lessons<'_>, settings: &Settings) -> Result<Vec<Found>, EvalError> {
    let mut each = Vec::with_capacity(lessons.cases.len());
    for (at, case) in lessons.cases.iter().enumerate() {
        let sight = look(&case.item.task.question, None);
        let (cases, name) = (vec![case], format!("task {at}"));
        let pool = Pool { lessons, cases, kind: sight.kind, settings, name, turn: (at, lessons.cases.len()) };
        match pool.best_of_few().await? {
            Some(best) => each.push(found(&best)),
            None if lessons.cancel.is_cancelled() => break,
            None => {
                let team = rules::shape(&sight, rules::Aim::default(), &lessons.trials.language);
                each.push(Found { team, staged: None, earned: Earned::default(), runs: 0 });
            }
        }
    }
    Ok(each)
}

fn found(best: &Candidate) -> Found {
    Found { team: canonical_ids(&best.team), staged: None, earned: best.mean(), runs: best.earned.len() }
}

#[cfg(test)]
mod tests;
