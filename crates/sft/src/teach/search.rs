//! The teacher that searches the simulated world: it runs teams of standard shapes and edits of them, and keeps those that earn most.
//!
//! The best of many noisy measurements is mostly noise, and a question does not show all that makes a task hard. So tasks with
//! similar features are pooled ([`Pooling::Cluster`]): one team is chosen for all of them, with duties worded for each. The
//! alternative, the best team for each task, is available for comparison. Rewards in the calibrated world, of 531 teams that are
//! the best of 16 by four runs each, and of the pooled teams (`cargo run -p lemon-sft --example rewards`):
//! | | in the search | same tasks, new seeds | new tasks of the same cluster |
//! |---|---|---|---|
//! | each task by itself | 1.06 | 0.92 | 0.85 |
//! | pooled | | 0.94 | 0.96 |

mod pool;
mod rounds;

use super::rules::{decided, later_pair};
use super::words::worded;
use super::{TeachContext, WIDTH, draw, rules};
use async_trait::async_trait;
use futures::stream::{self, StreamExt, TryStreamExt};
use lemon_exec::orchestrator::{Draft, Orchestrator, OrchestratorError, WriteContext};
use lemon_policy::pair::{Pair, Teacher, canonical_ids, dedupe};
use lemon_policy::{TaskFeatures, TaskKind, featurize};
use lemon_rollout::{Case, Earned, RolloutError, RolloutRequest};
use lemon_spec::{Language, Spec, render};
use pool::{Candidate, Pool};
pub use rounds::Staged;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq)]
pub struct TeamSearchSettings {
    /// A team that replaces the search, with marks for duties or without. Only its division into two rounds may be searched.
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

impl Default for TeamSearchSettings {
    fn default() -> Self {
        TeamSearchSettings {
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
    /// For all tasks with similar features.
    #[default]
    Cluster,
    /// For all tasks that ask for the same kind of thing, whatever their difficulty: one choice, by more runs.
    Kind,
    /// For each task by itself.
    Task,
}

/// Tasks with similar features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskCluster {
    /// What is asked for.
    pub kind: TaskKind,
    /// The place of its difficulty between [`TaskCluster::BOUNDS`]: 0 is easiest.
    pub band: usize,
}

impl TaskCluster {
    /// The difficulties between the bands.
    pub const BOUNDS: [f64; 4] = [-0.7, 0.0, 0.6, 1.2];

    /// The cluster of a task.
    pub fn of(features: &TaskFeatures) -> Self {
        TaskCluster {
            kind: features.kind,
            band: Self::BOUNDS.iter().filter(|bound| features.difficulty >= **bound).count(),
        }
    }
}

/// A team that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The team, with marks for duties.
    pub team: Spec,
    /// How it is asked in two rounds, if it is.
    pub staged: Option<Staged>,
    /// What it earned in the runs it was chosen by: biased upwards, as the best of many is.
    pub earned: Earned,
    /// Those runs.
    pub runs: usize,
}

/// The best teams, by cluster. An orchestrator that writes them.
#[derive(Debug, Clone, Default)]
pub struct BestTeams {
    pub teams: BTreeMap<TaskCluster, Found>,
    /// The seed of the words.
    pub seed: u64,
}

impl BestTeams {
    /// The team for a question, or the first round of it: that of its cluster, else of the nearest band of its kind, else by the
    /// [`rules`].
    pub fn team(&self, question: &str, subject: Option<&str>, language: &Language, seed: u64) -> Spec {
        match self.found(question) {
            Some(Found { staged: Some(way), .. }) => {
                worded(&way.opening, &featurize(question, subject), question, seed)
            }
            Some(found) => worded(&found.team, &featurize(question, subject), question, seed),
            None => rules::team(question, subject, rules::Aim::default(), language, seed),
        }
    }

    fn found(&self, question: &str) -> Option<&Found> {
        let cluster = TaskCluster::of(&featurize(question, None));
        let same_kind = self.teams.iter().filter(|(known, _)| known.kind == cluster.kind);
        same_kind.min_by_key(|(known, _)| known.band.abs_diff(cluster.band)).map(|(_, found)| found)
    }
}

#[async_trait]
impl Orchestrator for BestTeams {
    async fn draft(&self, context: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError> {
        let staged = || self.found(context.question)?.staged.as_ref();
        let spec = match context.round {
            1 => Some(self.team(context.question, None, context.language, self.seed)),
            _ => staged().map(|staged| staged.second(context, &featurize(context.question, None), self.seed)),
        };
        Ok(spec.map(|spec| Draft::Text(render(&spec).text)))
    }
}

/// Pairs for these tasks, in their order. Cancelled, it gives those made by then.
///
/// # Errors
/// The sandbox failed.
pub async fn teach(context: &TeachContext<'_>, settings: &TeamSearchSettings) -> Result<Vec<Pair>, RolloutError> {
    let language = &context.env.language;
    let seed = draw(context.seed, &["wording", "0"]);
    let (best_teams, own) = match settings.pooling {
        Pooling::Cluster | Pooling::Kind => (find(context, settings).await?, Vec::new()),
        Pooling::Task => (BestTeams::default(), find_each(context, settings).await?),
    };
    let one = |at: usize| {
        let case = context.cases.get(at)?;
        let task = &case.item.task;
        let subject = task.subject.as_deref().filter(|_| settings.subjects);
        let found = match settings.pooling {
            Pooling::Cluster | Pooling::Kind => best_teams.found(&task.question),
            Pooling::Task => own.get(at),
        };
        let team = match (settings.pooling, found) {
            (_, Some(found)) => worded(&found.team, &featurize(&task.question, subject), &task.question, seed),
            (Pooling::Task, None) => return None, // Cancelled before its turn.
            (Pooling::Cluster | Pooling::Kind, None) => best_teams.team(&task.question, subject, language, seed),
        };
        let way = found.and_then(|found| found.staged.as_ref());
        Some((case, render(&canonical_ids(&team)).text, way.map(|way| way.writer(&task.question, subject, seed))))
    };
    let written: Vec<_> = (0..context.cases.len()).filter_map(one).collect();
    let runs = stream::iter(written).map(|(case, text, staged)| async move {
        match staged {
            Some(writer) => pairs_of_both_rounds(context, case, writer).await,
            None => {
                let pair = context.pair(case, text, Teacher::Search, settings.lesson_runs).await?;
                Ok(Vec::from_iter(pair))
            }
        }
    });
    let pairs: Vec<Vec<Pair>> = runs.buffered(WIDTH).try_collect().await?;
    Ok(dedupe(pairs.into_iter().flatten().collect()))
}

/// Runs a team in two rounds and makes a pair of each. None: cancelled.
async fn pairs_of_both_rounds(
    context: &TeachContext<'_>,
    case: &Case,
    writer: Arc<dyn Orchestrator>,
) -> Result<Vec<Pair>, RolloutError> {
    let seed = draw(context.seed, &["lesson", "0"]);
    let run = context.env.rollout(RolloutRequest::new(case, writer, seed).cancelled_by(context.cancel)).await?;
    if context.cancel.is_cancelled() {
        return Ok(Vec::new());
    }
    let (trace, earned) = (&run.trace, run.earned());
    let pair = |text| context.written(case, text, Teacher::Search, earned, u32::from(earned.is_some()));
    let first = decided(trace, 1).map(pair);
    let second = later_pair(context, case, trace, Teacher::Search, earned);
    Ok(first.into_iter().chain(second).collect())
}

/// The best team of each cluster. Cancelled, it holds the clusters done by then.
///
/// # Errors
/// The sandbox failed.
pub async fn find(context: &TeachContext<'_>, settings: &TeamSearchSettings) -> Result<BestTeams, RolloutError> {
    let mut clusters: BTreeMap<TaskCluster, Vec<&Case>> = BTreeMap::new();
    for case in context.cases {
        let cluster = TaskCluster::of(&featurize(&case.item.task.question, None));
        let band = if settings.pooling == Pooling::Kind { 0 } else { cluster.band };
        clusters.entry(TaskCluster { band, ..cluster }).or_default().push(case);
    }
    let mut best_teams = BestTeams { teams: BTreeMap::new(), seed: draw(context.seed, &["words of the book"]) };
    let clusters = joined(clusters);
    let count = clusters.len();
    for (at, (cluster, cases)) in clusters.into_iter().enumerate() {
        // The seeds of a search are drawn from this text, so it stays what it was.
        let name = format!("Cluster {{ kind: {:?}, band: {} }}", cluster.kind, cluster.band);
        let pool = Pool { context, cases, kind: cluster.kind, settings, name, turn: (at, count) };
        match pool.best().await? {
            Some((best, staged)) => drop(best_teams.teams.insert(cluster, Found { staged, ..found(&best) })),
            None if context.cancel.is_cancelled() => break,
            // The rewards of these tasks are not known: the rules write their teams.
            None => {}
        }
    }
    Ok(best_teams)
}

/// Tasks that a cluster needs for a choice of its own.
const FEWEST: usize = 25;

/// The clusters, small ones joined with the next of their kind, and left out where there is none.
fn joined(clusters: BTreeMap<TaskCluster, Vec<&Case>>) -> BTreeMap<TaskCluster, Vec<&Case>> {
    let mut joined: BTreeMap<TaskCluster, Vec<&Case>> = BTreeMap::new();
    let mut waiting: Option<(TaskCluster, Vec<&Case>)> = None;
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
fn last_of<'m, 'c>(
    clusters: &'m mut BTreeMap<TaskCluster, Vec<&'c Case>>,
    cluster: TaskCluster,
) -> &'m mut Vec<&'c Case> {
    let known = clusters.keys().rev().find(|known| known.kind == cluster.kind).copied();
    clusters.entry(known.unwrap_or(cluster)).or_default()
}

/// The best team of each task by itself, in their order. Cancelled, it ends early.
///
/// # Errors
/// The sandbox failed.
pub async fn find_each(context: &TeachContext<'_>, settings: &TeamSearchSettings) -> Result<Vec<Found>, RolloutError> {
    let mut each = Vec::with_capacity(context.cases.len());
    for (at, case) in context.cases.iter().enumerate() {
        let features = featurize(&case.item.task.question, None);
        let (cases, name) = (vec![case], format!("task {at}"));
        let pool = Pool { context, cases, kind: features.kind, settings, name, turn: (at, context.cases.len()) };
        match pool.best_of_few().await? {
            Some(best) => each.push(found(&best)),
            None if context.cancel.is_cancelled() => break,
            None => {
                let team = rules::shape(&features, rules::Aim::default(), &context.env.language);
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
