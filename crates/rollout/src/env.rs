//! What all rollouts share, and the one way to make one.

use crate::case::Case;
use crate::error::RolloutError;
use crate::grade_cache::GradeCache;
use crate::grader::{Graded, Grader};
use crate::outcome::{Outcome, Score, UnknownReason};
use crate::remote::{RemoteRun, RemoteRuns, RemoteTrace};
use crate::request::{Record, Replies, RolloutRequest, RunOptions};
use crate::reward::{Grades, RewardSettings, Weights, measure, nominal_tokens};
use crate::team::{CacheOnly, Team};
use lemon_exec::store::{RunMeta, Store};
use lemon_exec::{Backend, Job, Orchestrator, ReplyCache, Runner, Settings, fresh_id};
use lemon_spec::Language;
use lemon_task::Key;
use lemon_trace::{AgentStatus, AgentSummary, Header, StopReason, Summary, Trace, VERSION};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Everything that rollouts share: who works, what a team may say, how it is run, graded and rewarded.
pub struct RolloutEnv {
    /// The workers.
    pub backend: Backend,
    /// What a specification may say.
    pub language: Arc<Language>,
    /// Where runs are kept.
    pub store: Option<Arc<Store>>,
    /// How runs are carried out.
    pub settings: Settings,
    /// Grades answers.
    pub grader: Grader,
    /// How the terms of the reward are measured; a term of your own is added here.
    pub rewards: RewardSettings,
    /// How much each term counts.
    pub weights: Weights,
    /// Ends all rollouts early.
    pub cancel: CancellationToken,
    /// Other machines that make the runs. `None`: this process does.
    pub remote: Option<Arc<dyn RemoteRuns>>,
    grades: GradeCache,
}

/// A team on a task: what happened, and what it came to.
#[derive(Clone)]
pub struct Rollout {
    /// What happened. Without events: cancelled before it began.
    pub trace: Trace,
    /// The same, summed up.
    pub summary: Summary,
    /// What it came to.
    pub outcome: Outcome,
    /// The task.
    pub case: Case,
    /// Who wrote the team.
    pub team: Team,
    /// The noise seed of the workers.
    pub seed: u64,
    /// The replies that counterfactuals of it share.
    pub cache: Option<Arc<ReplyCache>>,
}

impl RolloutEnv {
    /// An environment without a store, with the default reward.
    pub fn new(backend: Backend, language: Arc<Language>, settings: Settings, grader: Grader) -> Self {
        RolloutEnv {
            backend,
            language,
            store: None,
            settings,
            grader,
            rewards: RewardSettings::default(),
            weights: Weights::default(),
            cancel: CancellationToken::new(),
            remote: None,
            grades: GradeCache::default(),
        }
    }

    /// Runs a team on a case, grades its answer and measures its reward.
    ///
    /// # Errors
    /// The store or the sandbox failed. A run that fails is no error: see [`Outcome`].
    pub async fn rollout(&self, request: RolloutRequest<'_>) -> Result<Rollout, RolloutError> {
        let RolloutRequest { case, team, seed, options } = request;
        let trace = self.execute(case, team.orchestrator(), seed, &options).await?;
        let summary = trace.summary();
        let outcome = self.outcome(case, &trace, &summary)?;
        Ok(Rollout { trace, summary, outcome, case: case.clone(), team, seed, cache: options.cache })
    }

    /// Runs a team on a case, or reads or resumes what is on record of it, and grades nothing. A run that was cancelled
    /// before it began has no events.
    ///
    /// # Errors
    /// The store failed, or has another question on record.
    pub async fn execute(
        &self,
        case: &Case,
        orchestrator: Arc<dyn Orchestrator>,
        seed: u64,
        options: &RunOptions<'_>,
    ) -> Result<Trace, RolloutError> {
        self.execute_question(&case.task_id(), &case.item.task.question, orchestrator, seed, options).await
    }

    /// The same for a question that has no gold answer.
    ///
    /// # Errors
    /// The store failed, or has another question on record.
    pub async fn execute_question(
        &self,
        task_id: &str,
        question: &str,
        orchestrator: Arc<dyn Orchestrator>,
        seed: u64,
        options: &RunOptions<'_>,
    ) -> Result<Trace, RolloutError> {
        let cancel = options.cancel.unwrap_or(&self.cancel);
        let runner = self.runner(orchestrator, options);
        let batch = match &options.record {
            Record::Batch(batch, position) => Some((batch.clone(), *position)),
            Record::Nowhere | Record::Store(_) => None,
        };
        let meta = RunMeta {
            batch: batch.clone(),
            budget: runner.settings.budget,
            withhold: options.withhold.clone().into_iter().collect(),
            ..RunMeta::default()
        };
        if let (Some(store), Some((batch, position))) = (&runner.store, &batch)
            && let Some(run_id) = store.run_of_task(batch, *position)?
        {
            let trace = store.trace(&run_id)?;
            if trace.header.question != question {
                return Err(RolloutError::OtherTask { run_id, task: task_id.to_owned() });
            }
            let summary = trace.summary();
            if summary.stop_reason.is_some_and(|reason| reason != StopReason::Cancelled) {
                // The process may have died between the last event and this entry. Not waited for: nothing is lost, since the
                // next resume makes the entry again, and a store that cannot write fails the next run.
                drop(store.finish_run(&run_id, &summary));
                return Ok(trace);
            }
            if cancel.is_cancelled() {
                return Ok(trace);
            }
            return Ok(runner.resume(trace, &meta, cancel, None).await?);
        }
        let prefix = if let Record::Store(prefix) = options.record { prefix } else { "r" };
        let run_id = format!("{prefix}-{}", fresh_id());
        let (task_id, question) = (task_id.to_owned(), question.to_owned());
        let job = Job { run_id, task_id, question, seed, meta };
        if cancel.is_cancelled() {
            return Ok(self.not_begun(job));
        }
        match &self.remote {
            // What only the cache may answer is quicker here than it is sent.
            Some(remote) if options.replies == Replies::Workers => {
                let Some(run) = remote.run(RemoteRun { runner: &runner, job: &job, cancel }).await? else {
                    return Ok(self.not_begun(job));
                };
                self.keep(run, &runner, &job.meta).await
            }
            _ => Ok(runner.run(&job, cancel, None).await?),
        }
    }

    /// The record of a run that was made elsewhere.
    async fn keep(&self, run: RemoteTrace, runner: &Runner, meta: &RunMeta) -> Result<Trace, RolloutError> {
        let RemoteTrace { trace, events, graded } = run;
        if let Some(graded) = graded {
            self.grades.enter(&trace.header.run_id, graded);
        }
        if let Some(store) = &runner.store {
            store.enter_run(&trace, events, meta)?.wait().await?;
        }
        Ok(trace)
    }

    /// A run that was cancelled before it began.
    fn not_begun(&self, job: Job) -> Trace {
        let Job { run_id, task_id, question, seed, .. } = job;
        let (workers, started_at_ms) = (self.backend.name.clone(), lemon_exec::unix_ms());
        let header = Header { version: VERSION, run_id, task_id, question, started_at_ms, seed, workers };
        Trace { header, events: Vec::new() }
    }

    fn runner(&self, orchestrator: Arc<dyn Orchestrator>, options: &RunOptions<'_>) -> Runner {
        let mut backend = self.backend.clone();
        if options.replies == Replies::CacheOnly {
            backend.worker = Arc::new(CacheOnly(backend.worker));
        }
        let kept = options.replies == Replies::Workers && options.record != Record::Nowhere;
        let mut settings = self.settings.clone();
        settings.budget = options.budget.unwrap_or(settings.budget);
        Runner {
            backend,
            orchestrator,
            language: self.language.clone(),
            store: self.store.clone().filter(|_| kept),
            reply_cache: options.cache.clone(),
            reply_record: None,
            settings,
            on_delta: None,
        }
    }

    /// What a run came to.
    ///
    /// # Errors
    /// The sandbox failed.
    pub fn outcome(&self, case: &Case, trace: &Trace, summary: &Summary) -> Result<Outcome, RolloutError> {
        if let Some(reason) = UnknownReason::of(summary) {
            return Ok(Outcome::Unknown(reason));
        }
        if matches!(case.item.key(), Key::Code { .. }) && !self.grader.runs_programs() {
            return Ok(Outcome::Unknown(UnknownReason::NotGradable));
        }
        let score = self.score(case, trace, summary)?;
        Ok(match score.reward.is_some_and(f64::is_finite) {
            true => Outcome::Scored(score),
            false => Outcome::Unknown(UnknownReason::NotMeasured),
        })
    }

    /// The score of a run whatever its end: without an answer it is not right.
    ///
    /// # Errors
    /// The sandbox failed.
    pub fn score(&self, case: &Case, trace: &Trace, summary: &Summary) -> Result<Score, RolloutError> {
        let right = match &summary.answer {
            Some(answer) => match self.grades.of_run(&trace.header.run_id) {
                Some(graded) => graded.right,
                None => self.is_right(case, answer)?,
            },
            None => false,
        };
        Ok(self.score_as(case, trace, summary, right))
    }

    /// The score of a run whose answer was graded already.
    pub fn score_as(&self, case: &Case, trace: &Trace, summary: &Summary, right: bool) -> Score {
        let grade = |agent: &AgentSummary| {
            let done = agent.status == Some(AgentStatus::Done);
            let answer = agent.answer.as_deref().filter(|_| done)?;
            Some((agent.id.clone(), Grader::quick(&case.item, answer)?))
        };
        let grades = Grades { team: Some(right), agents: summary.agents.iter().filter_map(grade).collect() };
        let channels = measure(trace, &grades, &self.rewards);
        let nominal = |agent: &AgentSummary| nominal_tokens(agent).unwrap_or_else(|| agent.tokens());
        let cost = |agent: &AgentSummary| self.rewards.token_weight(agent.level) * nominal(agent) as f64;
        Score {
            right,
            reward: channels.total(&self.weights, 0),
            channels,
            grades,
            tokens: summary.agents.iter().map(nominal).sum(),
            cost: summary.agents.iter().map(cost).sum(),
        }
    }

    /// The grade of a run's answer. A program of a run that was made elsewhere was graded there.
    ///
    /// # Errors
    /// The sandbox failed.
    pub fn grade(&self, case: &Case, trace: &Trace, answer: &str) -> Result<Graded, RolloutError> {
        match self.grades.of_run(&trace.header.run_id) {
            Some(graded) => Ok(graded),
            None => Ok(self.grader.grade(&case.item, answer)?),
        }
    }

    /// Whether an answer is right. A program is run once for each case.
    ///
    /// # Errors
    /// The sandbox failed.
    pub fn is_right(&self, case: &Case, answer: &str) -> Result<bool, RolloutError> {
        Ok(self.grades.is_right(&self.grader, case, answer)?)
    }
}

impl Rollout {
    /// Whether it was cancelled before its end.
    pub fn is_cancelled(&self) -> bool {
        self.outcome.unknown() == Some(&UnknownReason::Cancelled)
    }
}
