//! Runs methods on items: every run goes through the one executor, is graded, and becomes a row.

use crate::grader::Grader;
use crate::method::{Ask, Method};
use crate::row::{AgentRow, Name, Row, TokenRow};
use crate::stats::seed_of;
use futures::stream::{self, StreamExt};
use lemon_credit::reward::{Channels, Grades, RewardSettings, Weights, measure};
use lemon_exec::orchestrator::{Fixed, Orchestrator};
use lemon_exec::store::{RunMeta, Store, StoreError};
use lemon_exec::{Backend, Job, RunError, Runner, Settings, fresh_id};
use lemon_sandbox::SandboxError;
use lemon_spec::Language;
use lemon_task::{Item, Key};
use lemon_trace::{AgentStatus, EventKind, StopReason, Summary, Trace};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// Everything that the runs of an evaluation share.
pub struct Evaluator {
    /// Who works.
    pub backend: Backend,
    /// What a specification may say.
    pub language: Arc<Language>,
    /// Where runs are kept.
    pub store: Option<Arc<Store>>,
    /// How runs are carried out.
    pub settings: Settings,
    /// Who grades.
    pub grader: Grader,
    /// By level: whether it has a price.
    pub priced: Vec<bool>,
    /// Short texts of the rows so far.
    pub names: Mutex<HashSet<Name>>,
}

/// An item to be scored.
#[derive(Debug, Clone)]
pub struct Case {
    /// The set and split: `gsm8k/test`.
    pub set: Arc<str>,
    /// The item.
    pub item: Item,
}

/// A method, ready to be scored.
#[derive(Clone)]
pub struct Contestant {
    /// The method.
    pub method: Method,
    /// Who writes its teams; `None`: its rule.
    pub writer: Option<Arc<dyn Orchestrator>>,
}

/// What to run.
pub struct Work {
    /// The name of the evaluation.
    pub eval_id: String,
    /// The items.
    pub cases: Arc<Vec<Case>>,
    /// The methods.
    pub contestants: Vec<Contestant>,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// The level every agent of a rule's team gets; `None`: they take turns.
    pub capacity: Option<String>,
    /// Runs at a time.
    pub width: usize,
}

/// An evaluation that could not go on.
#[derive(Debug, thiserror::Error)]
pub enum EvalError {
    /// Nothing may go on that cannot be recorded.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A program could not be graded.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The tasks are not those the evaluation began with.
    #[error("run {run_id} is on record with another question than task `{task}` has now: the tasks have changed")]
    OtherTask {
        /// The run.
        run_id: String,
        /// The task.
        task: String,
    },
    /// A run panicked: a defect of ours.
    #[error("a run broke off: {0}")]
    BrokeOff(String),
}

impl Work {
    /// Runs in all.
    pub fn runs(&self) -> usize {
        self.contestants.len() * self.seeds.len() * self.cases.len()
    }

    /// The positions in the order they are run: by seed, then item, then method. So an evaluation that ends early has every
    /// method on the items it got to. Positions themselves never change: runs on record are found by them.
    fn order(&self) -> impl Iterator<Item = usize> + use<> {
        let (methods, seeds, cases) = (self.contestants.len(), self.seeds.len(), self.cases.len());
        let position = move |place: usize| {
            let (item, method) = (place / methods.max(1), place % methods.max(1));
            // `item` counts through all cases of the first seed, then of the next.
            method * seeds * cases + item
        };
        (0..self.runs()).map(position)
    }

    /// Contestant, seed and case of the run at a position.
    fn at(&self, position: usize) -> Option<(&Contestant, u64, usize)> {
        let case = position % self.cases.len().max(1);
        let rest = position / self.cases.len().max(1);
        let seed = self.seeds.get(rest % self.seeds.len().max(1))?;
        Some((self.contestants.get(rest / self.seeds.len().max(1))?, *seed, case))
    }
}

impl Evaluator {
    /// Runs everything that is not on record yet, and hands over each row as it comes, in any order. A cancelled evaluation
    /// ends early; what is finished is on record.
    ///
    /// # Errors
    /// The store or the sandbox failed.
    pub async fn evaluate(
        self: &Arc<Self>,
        work: &Arc<Work>,
        cancel: &CancellationToken,
        mut on_row: impl FnMut(Row),
    ) -> Result<(), EvalError> {
        let one = |position: usize| {
            let (evaluator, work, cancel) = (self.clone(), work.clone(), cancel.clone());
            // A task of its own for the runtime: woken alone, not with all the others.
            let run = tokio::spawn(async move { evaluator.score(&work, position, &cancel).await });
            async move { run.await.unwrap_or_else(|error| Err(EvalError::BrokeOff(error.to_string()))) }
        };
        let mut ends = stream::iter(work.order()).map(one).buffer_unordered(work.width.max(1));
        while let Some(row) = ends.next().await {
            if let Some(row) = row? {
                on_row(row);
            }
        }
        Ok(())
    }

    /// Enters what the runs of this work that are on record have spent into the budget they share.
    ///
    /// # Errors
    /// The store failed.
    pub fn enter_spent(&self, work: &Work) -> Result<(), EvalError> {
        let (Some(store), Some(shared)) = (&self.store, &self.settings.shared) else { return Ok(()) };
        for position in 0..work.runs() {
            if let Some(run_id) = store.run_of_task(&work.eval_id, position)? {
                shared.enter_run(&store.trace(&run_id)?, &self.backend.levels);
            }
        }
        Ok(())
    }

    /// Runs one case, goes on with it, or reads what it came to. `None`: cancelled before its end.
    async fn score(
        self: Arc<Self>,
        work: &Work,
        position: usize,
        cancel: &CancellationToken,
    ) -> Result<Option<Row>, EvalError> {
        let Some((contestant, seed, case)) = work.at(position) else { return Ok(None) };
        let Some(case) = work.cases.get(case) else { return Ok(None) };
        let place = Some((work.eval_id.clone(), position));
        let writer = match &contestant.writer {
            Some(writer) => writer.clone(),
            None => {
                // A rule that draws, draws for each task and seed anew.
                let draw = seed_of(&[&contestant.method.name(), &case.item.task.question, &seed.to_string()]);
                let ask = Ask::new(&case.item, &self.language.capacities, work.capacity.as_deref(), draw);
                let text = contestant.method.spec(&ask).unwrap_or_default();
                Arc::new(Fixed { text, reviewer: None })
            }
        };
        let Some(trace) = self.run(case, writer, seed, place, cancel).await? else { return Ok(None) };
        let ended = trace.summary().stop_reason.is_some_and(|reason| reason != StopReason::Cancelled);
        if !ended {
            return Ok(None);
        }
        self.row(case.clone(), contestant.method.name(), seed, trace).await.map(Some)
    }

    /// What runs the teams of a writer.
    pub fn runner(&self, writer: Arc<dyn Orchestrator>) -> Runner {
        Runner {
            backend: self.backend.clone(),
            orchestrator: writer,
            language: self.language.clone(),
            store: self.store.clone(),
            reply_cache: None,
            settings: self.settings.clone(),
            on_delta: None,
        }
    }

    /// Runs a team on a case, or takes up what is on record of it. `None`: not begun, because everything was cancelled.
    ///
    /// # Errors
    /// The store failed.
    pub async fn run(
        &self,
        case: &Case,
        writer: Arc<dyn Orchestrator>,
        seed: u64,
        place: Option<(String, usize)>,
        cancel: &CancellationToken,
    ) -> Result<Option<Trace>, EvalError> {
        let mut runner = self.runner(writer);
        // What has no place is not worth keeping: the runs of a search.
        runner.store = runner.store.filter(|_| place.is_some());
        let meta = RunMeta { batch: place.clone(), budget: self.settings.budget, ..RunMeta::default() };
        if let (Some(store), Some((batch, position))) = (&self.store, &place)
            && let Some(run_id) = store.run_of_task(batch, *position)?
        {
            let trace = store.trace(&run_id)?;
            if trace.header.question != case.item.task.question {
                return Err(EvalError::OtherTask { run_id, task: case.item.task.id.clone() });
            }
            let summary = trace.summary();
            if summary.stop_reason.is_some_and(|reason| reason != StopReason::Cancelled) {
                // The process may have died between the last event and this entry.
                drop(store.finish_run(&run_id, &summary));
                return Ok(Some(trace));
            }
            if cancel.is_cancelled() {
                return Ok(Some(trace));
            }
            return Ok(Some(runner.resume(trace, &meta, cancel, None).await?));
        }
        if cancel.is_cancelled() {
            return Ok(None);
        }
        let job = Job {
            run_id: format!("r-{}", fresh_id()),
            task_id: format!("{}/{}", case.set, case.item.task.id),
            question: case.item.task.question.clone(),
            seed,
            meta,
        };
        Ok(Some(runner.run(&job, cancel, None).await?))
    }

    /// Whether the answer of a run is right. Programs are run.
    ///
    /// # Errors
    /// The sandbox failed.
    pub fn is_right(&self, case: &Case, trace: &Trace) -> Result<bool, EvalError> {
        let summary = trace.summary();
        let Some(answer) = &summary.answer else { return Ok(false) };
        Ok(self.grader.grade(&case.item, answer)?.right)
    }

    async fn row(self: Arc<Self>, case: Case, method: String, seed: u64, trace: Trace) -> Result<Row, EvalError> {
        if !matches!(case.item.key(), Key::Code { .. }) {
            return self.row_of(&case, method, seed, trace);
        }
        // Programs take a moment; the runs of others need not wait for them.
        let graded = tokio::task::spawn_blocking(move || self.row_of(&case, method, seed, trace)).await;
        graded.unwrap_or_else(|error| Err(EvalError::BrokeOff(error.to_string())))
    }

    fn row_of(&self, case: &Case, method: String, seed: u64, trace: Trace) -> Result<Row, EvalError> {
        let summary = trace.summary();
        let graded = match &summary.answer {
            None => None,
            Some(answer) => Some(self.grader.grade(&case.item, answer)?),
        };
        let agents: Vec<AgentRow> = summary.agents.iter().map(|agent| self.agent_row(&case.item, agent)).collect();
        let grades: BTreeMap<String, bool> =
            agents.iter().filter_map(|agent| Some((agent.id.to_string(), agent.right?))).collect();
        let has_price = |level: usize| self.priced.get(level).copied().unwrap_or(false);
        let priced = summary.agents.iter().all(|agent| has_price(agent.level));
        let right = graded.as_ref().is_some_and(|graded| graded.right);
        let metrics = trace.metrics(Some(&grades));
        let channels = measure(&trace, &Grades { team: Some(right), agents: grades }, &RewardSettings::default());
        let row = Row {
            set: case.set.clone(),
            item: case.item.position,
            cluster: None,
            item_id: self.name(&case.item.task.id),
            method: self.name(&method),
            seed,
            run_id: trace.header.run_id.clone(),
            right,
            legacy_right: graded.as_ref().is_some_and(|graded| graded.legacy),
            reward: channels.total(&Weights::default(), 0),
            answer: graded.and_then(|graded| graded.extracted).map(|answer| self.name(&short(answer))),
            stop_reason: summary.stop_reason,
            tokens: token_row(&trace, &summary),
            usd: priced.then_some(summary.usd),
            wall_s: summary.wall_s,
            calls: summary.calls,
            agents,
            metrics,
        };
        self.tell(trace, row.right, &channels);
        Ok(row)
    }

    /// Adds to a run's trace what it earned, unless that was done before.
    fn tell(&self, mut trace: Trace, right: bool, channels: &Channels) {
        let told = trace.events.iter().any(|event| matches!(event.kind, EventKind::Score { .. }));
        let Some(store) = self.store.as_ref().filter(|_| !told) else { return };
        let rewards = channels.named();
        // Not waited for: it can be measured again, and the store writes what it was given before it closes.
        drop(store.annotate(&mut trace, [EventKind::Score { right: Some(right), rewards }]));
    }

    fn agent_row(&self, item: &Item, agent: &lemon_trace::AgentSummary) -> AgentRow {
        let done = agent.status == Some(AgentStatus::Done);
        AgentRow {
            id: self.name(&agent.id),
            base: self.name(&agent.base),
            role: self.name(&agent.role),
            capacity: self.name(&agent.capacity),
            after: agent.after.iter().map(|id| self.name(id)).collect(),
            status: agent.status,
            right: agent.answer.as_deref().filter(|_| done).and_then(|answer| Grader::quick(item, answer)),
            answer: agent.answer.clone().map(|answer| self.name(&short(answer))),
            tokens: agent.tokens(),
        }
    }

    /// The one copy of a short text.
    fn name(&self, text: &str) -> Name {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = names.get(text) {
            return name.clone();
        }
        let name: Name = text.into();
        names.insert(name.clone());
        name
    }
}

/// Rows are many: an answer that is a program or an essay is kept in the trace.
fn short(answer: String) -> String {
    const MOST: usize = 80;
    if answer.chars().count() <= MOST {
        return answer;
    }
    answer.chars().take(MOST - 1).chain(['…']).collect()
}

fn token_row(trace: &Trace, summary: &Summary) -> TokenRow {
    let spent = |wanted: fn(&EventKind) -> bool| -> u64 {
        trace.events.iter().filter(|event| wanted(&event.kind)).map(|event| event.spend.tokens()).sum()
    };
    let retried = spent(|kind| matches!(kind, EventKind::Retry { .. }));
    TokenRow {
        total: summary.tokens.total,
        orchestrator: summary.tokens.orchestrator,
        workers: summary.tokens.workers,
        retried,
        failed: summary.tokens.failed.saturating_sub(retried),
    }
}
