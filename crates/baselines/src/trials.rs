//! The runs that a method learns from, and the account of what they cost.

use crate::cards::Domain;
use crate::error::BaselineError;
use crate::graph::{RoleGraph, SpecFrame};
use async_trait::async_trait;
use futures::stream::{self, StreamExt, TryStreamExt};
use lemon_num::seed_of;
use lemon_rollout::{Case, RolloutEnv, RolloutError, RolloutRequest, Team};
use lemon_spec::{Spec, render};
use serde::{Deserialize, Serialize};
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// Runs at a time.
const WIDTH: usize = 32;

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunScore {
    /// Whether the answer is right; `None`: unknown, which is missing data.
    pub right: Option<bool>,
    /// The reward of this project: success, efficiency and structure.
    pub reward: Option<f64>,
    /// Tokens that were spent.
    pub tokens: u64,
    /// Tokens in those of the weakest capacity.
    pub cost: f64,
    /// The answer that was given.
    pub answer: String,
}

/// A task that a method learns from or designs for.
#[derive(Debug, Clone, PartialEq)]
pub struct LearnerTask {
    /// The question.
    pub question: String,
    /// What kind of task it is.
    pub domain: Domain,
    /// What is shown of the right answer where a failure is told of.
    pub gold: String,
}

/// Runs a team on a task and scores it.
#[async_trait]
pub trait Scorer: Send + Sync {
    /// Runs this team on the task at this position. `None`: cancelled.
    ///
    /// # Errors
    /// The store or the sandbox failed.
    async fn score(&self, task: usize, spec: &Spec, seed: u64) -> Result<Option<RunScore>, RolloutError>;
}

/// Scores teams in a rollout environment.
pub struct EnvScorer<'a> {
    /// What runs and grades them.
    pub env: &'a RolloutEnv,
    /// The tasks.
    pub cases: &'a [Case],
    /// Ends it early.
    pub cancel: &'a CancellationToken,
}

impl EnvScorer<'_> {
    /// The tasks as learners see them.
    pub fn tasks(&self) -> Vec<LearnerTask> {
        self.cases.iter().map(LearnerTask::of).collect()
    }
}

impl LearnerTask {
    /// A case as learners see it.
    pub fn of(case: &Case) -> Self {
        let gold = match case.item.key() {
            lemon_task::Key::Number(number) => number,
            lemon_task::Key::Choice { options, answer } => options.get(answer).cloned().unwrap_or_default(),
            lemon_task::Key::Text(text) => text.to_owned(),
            lemon_task::Key::Code { .. } => "a program that passes the tests".to_owned(),
        };
        LearnerTask { question: case.item.task.question.clone(), domain: Domain::of(case), gold }
    }
}

#[async_trait]
impl Scorer for EnvScorer<'_> {
    async fn score(&self, task: usize, spec: &Spec, seed: u64) -> Result<Option<RunScore>, RolloutError> {
        let Some(case) = self.cases.get(task) else { return Ok(None) };
        let team = Team::Text(render(spec).text);
        let rollout = self.env.rollout(RolloutRequest::new(case, team, seed).cancelled_by(self.cancel)).await?;
        if rollout.is_cancelled() {
            return Ok(None);
        }
        let score = rollout.outcome.score();
        Ok(Some(RunScore {
            right: score.map(|score| score.right),
            reward: score.and_then(|score| score.reward),
            tokens: rollout.summary.tokens.total,
            cost: score.map_or(0.0, |score| score.cost),
            answer: rollout.summary.answer.unwrap_or_default(),
        }))
    }
}

/// What a method climbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RivalObjective {
    /// Right answers, as in the papers; MasRouter's has its price.
    #[default]
    Native,
    /// The reward of this project, which tokens and structure lower.
    Cost,
}

/// What learning has cost.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TrainingAccount {
    /// Tasks that were learned from.
    pub items: usize,
    /// Runs.
    pub runs: u64,
    /// Tokens of the workers in them, those that decide included.
    pub worker_tokens: u64,
    /// Calls of a model that proposes teams.
    pub optimiser_calls: u64,
    /// Their tokens.
    pub optimiser_tokens: u64,
    /// Seconds.
    pub seconds: f64,
}

impl TrainingAccount {
    /// Tokens of the workers and of a model that proposes teams.
    pub fn all_tokens(&self) -> u64 {
        self.worker_tokens.saturating_add(self.optimiser_tokens)
    }

    /// Both accounts together; the tasks are the same ones.
    #[must_use]
    pub fn and(&self, other: &TrainingAccount) -> TrainingAccount {
        TrainingAccount {
            items: self.items.max(other.items),
            runs: self.runs + other.runs,
            worker_tokens: self.worker_tokens + other.worker_tokens,
            optimiser_calls: self.optimiser_calls + other.optimiser_calls,
            optimiser_tokens: self.optimiser_tokens + other.optimiser_tokens,
            seconds: self.seconds + other.seconds,
        }
    }
}

/// A team to be run on a task.
#[derive(Debug, Clone)]
pub struct TrialJob {
    /// The position of the task.
    pub task: usize,
    /// The team.
    pub spec: Spec,
    /// What the seed of its workers is made of, besides the seed of the training.
    pub occasion: u64,
}

/// The tasks of a training, its runs and its account.
pub struct Trials<'a> {
    /// The tasks.
    pub tasks: &'a [LearnerTask],
    /// What the specifications are made with.
    pub frame: SpecFrame,
    /// What is climbed.
    pub objective: RivalObjective,
    /// What it has cost so far.
    pub account: TrainingAccount,
    /// Worker tokens to be spent. `None`: as the method itself has it.
    pub limit: Option<u64>,
    scorer: &'a dyn Scorer,
    seed: u64,
    started: Instant,
    cancelled: bool,
}

impl<'a> Trials<'a> {
    /// Trials of these tasks.
    pub fn new(scorer: &'a dyn Scorer, tasks: &'a [LearnerTask], frame: SpecFrame, seed: u64) -> Self {
        let account = TrainingAccount { items: tasks.len(), ..TrainingAccount::default() };
        Trials {
            tasks,
            frame,
            objective: RivalObjective::Native,
            account,
            limit: None,
            scorer,
            seed,
            started: Instant::now(),
            cancelled: false,
        }
    }

    /// Runs teams, many at a time, and gives what they came to in the same order. `None`: the budget was spent or the
    /// training cancelled before.
    ///
    /// # Errors
    /// The store or the sandbox failed.
    pub async fn run(&mut self, jobs: Vec<TrialJob>) -> Result<Vec<Option<RunScore>>, BaselineError> {
        let mut scores = Vec::with_capacity(jobs.len());
        for jobs in jobs.chunks(WIDTH) {
            if self.is_over() {
                scores.extend(jobs.iter().map(|_| None));
                continue;
            }
            let (scorer, seed) = (self.scorer, self.seed);
            let one = |job: &'_ TrialJob| {
                let (task, spec) = (job.task, job.spec.clone());
                let seed = seed_of(&["trial", &seed.to_string(), &job.occasion.to_string()]);
                async move { scorer.score(task, &spec, seed).await }
            };
            let made: Vec<Option<RunScore>> =
                stream::iter(jobs.iter().map(one).collect::<Vec<_>>()).buffered(WIDTH).try_collect().await?;
            for score in &made {
                match score {
                    Some(score) => {
                        self.account.runs += 1;
                        self.account.worker_tokens += score.tokens;
                    }
                    None => self.cancelled = true,
                }
            }
            scores.extend(made);
        }
        self.account.seconds = self.started.elapsed().as_secs_f64();
        Ok(scores)
    }

    /// Runs a graph on a task each.
    ///
    /// # Errors
    /// The store or the sandbox failed.
    pub async fn run_graphs(
        &mut self,
        graphs: &[(usize, RoleGraph)],
        occasion: u64,
    ) -> Result<Vec<Option<RunScore>>, BaselineError> {
        let job = |(task, graph): &(usize, RoleGraph)| {
            let domain = self.tasks.get(*task).map_or(Domain::Math, |task| task.domain);
            TrialJob { task: *task, spec: self.frame.spec(graph, domain), occasion }
        };
        let jobs = graphs.iter().map(job).collect();
        self.run(jobs).await
    }

    /// Nothing more is run: the training was ended from outside.
    pub fn end(&mut self) {
        self.cancelled = true;
    }

    /// Whether no more is to be run.
    pub fn is_over(&self) -> bool {
        self.cancelled || self.limit.is_some_and(|limit| self.account.worker_tokens >= limit)
    }

    /// Whether another pass over the tasks is to be made, of so many that the method itself makes: with a budget, until it is
    /// spent.
    pub fn goes_on(&self, passes: usize, of: usize) -> bool {
        /// A budget that nothing spends ends as well.
        const MOST_PASSES: usize = 1_000;
        !self.is_over() && passes < if self.limit.is_some() { MOST_PASSES } else { of }
    }

    /// What a run is worth to the method. `None`: unknown.
    pub fn utility(&self, score: &RunScore) -> Option<f64> {
        match self.objective {
            RivalObjective::Native => score.right.map(|right| f64::from(u8::from(right))),
            RivalObjective::Cost => score.reward,
        }
    }

    /// The utilities of some runs; what is unknown has none.
    pub fn utilities(&self, scores: &[Option<RunScore>]) -> Vec<Option<f64>> {
        scores.iter().map(|score| score.as_ref().and_then(|score| self.utility(score))).collect()
    }

    /// The account, closed now.
    pub fn closed(mut self) -> TrainingAccount {
        self.account.seconds = self.started.elapsed().as_secs_f64();
        self.account
    }
}

/// What is taken off the utilities of a policy gradient.
#[derive(Debug, Clone, Default)]
pub struct ItemBaseline {
    means: Vec<(f64, f64)>,
    used: bool,
}

impl ItemBaseline {
    /// None: as in the public code.
    pub fn none() -> Self {
        ItemBaseline::default()
    }

    /// The mean of the task in the passes before; in the first, the mean of the batch.
    pub fn of_items(tasks: usize) -> Self {
        ItemBaseline { means: vec![(0.0, 0.0); tasks], used: true }
    }

    /// The advantages of the runs of one batch. What is unknown has an advantage of 0: it moves nothing.
    pub fn advantages(&mut self, tasks: &[usize], utilities: &[Option<f64>]) -> Vec<f64> {
        if !self.used {
            return utilities.iter().map(|utility| utility.unwrap_or(0.0)).collect();
        }
        let known: Vec<f64> = utilities.iter().flatten().copied().collect();
        let batch = known.iter().sum::<f64>() / known.len().max(1) as f64;
        let advantage = |(task, utility): (&usize, &Option<f64>)| {
            let (Some(utility), Some((sum, count))) = (utility, self.means.get_mut(*task)) else { return 0.0 };
            let baseline = if *count > 0.0 { *sum / *count } else { batch };
            (*sum, *count) = (*sum + utility, *count + 1.0);
            utility - baseline
        };
        tasks.iter().zip(utilities).map(advantage).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_measured_against_its_item_and_at_first_against_its_batch() {
        let mut baseline = ItemBaseline::of_items(4);
        let all = [Some(1.0), Some(0.0), Some(0.0), Some(0.0)];
        assert_eq!(baseline.advantages(&[0, 1, 2, 3], &all), [0.75, -0.25, -0.25, -0.25]);
        assert_eq!(baseline.advantages(&[0, 1, 2], &[Some(1.0), Some(1.0), None]), [0.0, 1.0, 0.0]);
        assert_eq!(baseline.advantages(&[1], &[Some(0.0)]), [-0.5]);
        assert_eq!(ItemBaseline::none().advantages(&[0, 1], &[Some(1.0), None]), [1.0, 0.0]);
    }
}
