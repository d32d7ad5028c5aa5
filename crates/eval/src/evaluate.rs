//! Runs methods on items: every run goes through one rollout environment, is graded, and becomes a row.

use crate::method::{Ask, Method};
use crate::row::{AgentRow, Name, Row, TokenRow};
use futures::stream::{self, StreamExt};
use lemon_exec::orchestrator::Orchestrator;
use lemon_num::seed_of;
use lemon_rollout::reward::{Channels, Grades};
use lemon_rollout::{Case, Record, RolloutEnv, RolloutError, RunOptions};
use lemon_spec::Language;
use lemon_task::Key;
use lemon_trace::{AgentSummary, EventKind, StopReason, Summary, Trace};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// Everything that the runs of an evaluation share.
pub struct Evaluator {
    /// What runs and scores teams.
    pub env: RolloutEnv,
    /// By capacity: whether it has a price.
    pub priced: Vec<bool>,
    /// Short texts of the rows so far.
    names: Mutex<HashSet<Name>>,
}

/// A method, ready to be scored.
#[derive(Clone)]
pub struct MethodRun {
    pub method: Method,
    writer: TeamWriter,
}

/// Who writes the teams of a method.
#[derive(Clone)]
enum TeamWriter {
    Rule,
    One(Arc<dyn Orchestrator>),
    Each(Arc<dyn CaseWriters>),
}

/// Writes teams by case and seed: a method that was trained once for each seed.
pub trait CaseWriters: Send + Sync {
    /// Who writes the team for this case with this seed. `None`: nothing was trained for it.
    fn writer(&self, case: &Case, seed: u64) -> Option<Arc<dyn Orchestrator>>;
}

/// What to run.
pub struct Work {
    /// The name of the evaluation.
    pub eval_id: String,
    /// The items.
    pub cases: Arc<Vec<Case>>,
    pub methods: Vec<MethodRun>,
    pub seeds: Vec<u64>,
    /// The capacity every agent of a rule's team gets; `None`: they take turns.
    pub capacity: Option<String>,
    /// Runs at a time.
    pub width: usize,
}

impl MethodRun {
    /// A method whose rule writes its teams.
    pub fn by_rule(method: Method) -> Self {
        MethodRun { method, writer: TeamWriter::Rule }
    }

    /// A method whose teams this orchestrator writes.
    pub fn written_by(method: Method, writer: Arc<dyn Orchestrator>) -> Self {
        MethodRun { method, writer: TeamWriter::One(writer) }
    }

    /// A method whose teams depend on case and seed.
    pub fn trained(method: Method, writers: Arc<dyn CaseWriters>) -> Self {
        MethodRun { method, writer: TeamWriter::Each(writers) }
    }

    /// Whether its rule writes its teams.
    pub(crate) fn has_rule(&self) -> bool {
        matches!(self.writer, TeamWriter::Rule)
    }

    /// Who writes the team for a case. A rule that draws, draws for each task and seed anew.
    ///
    /// # Errors
    /// The method has no rule, and no writer was given.
    pub fn orchestrator(
        &self,
        case: &Case,
        language: &Language,
        capacity: Option<&str>,
        seed: u64,
    ) -> Result<Arc<dyn Orchestrator>, RolloutError> {
        match &self.writer {
            TeamWriter::Rule => {}
            TeamWriter::One(writer) => return Ok(writer.clone()),
            TeamWriter::Each(writers) => {
                return writers.writer(case, seed).ok_or_else(|| RolloutError::NoTeam(self.method.name()));
            }
        }
        let capacity = self.method.capacity().or(capacity);
        let draw = seed_of(&[&self.method.name(), &case.item.task.question, &seed.to_string()]);
        let ask = Ask::new(&case.item, language, capacity, draw);
        self.method.orchestrator(&ask).ok_or_else(|| RolloutError::NoTeam(self.method.name()))
    }
}

impl Work {
    /// Runs in all.
    pub fn runs(&self) -> usize {
        self.methods.len() * self.seeds.len() * self.cases.len()
    }

    /// The positions in the order they are run: by seed, then item, then method. So an evaluation that ends early has every
    /// method on the items it got to. Positions themselves never change: runs on record are found by them.
    fn order(&self) -> impl Iterator<Item = usize> + use<> {
        let (methods, seeds, cases) = (self.methods.len(), self.seeds.len(), self.cases.len());
        let position = move |place: usize| {
            let (item, method) = (place / methods.max(1), place % methods.max(1));
            // `item` counts through all cases of the first seed, then of the next.
            method * seeds * cases + item
        };
        (0..self.runs()).map(position)
    }

    /// Method, seed and case of the run at a position.
    fn at(&self, position: usize) -> Option<(&MethodRun, u64, usize)> {
        let case = position % self.cases.len().max(1);
        let rest = position / self.cases.len().max(1);
        let seed = self.seeds.get(rest % self.seeds.len().max(1))?;
        Some((self.methods.get(rest / self.seeds.len().max(1))?, *seed, case))
    }
}

impl Evaluator {
    /// An evaluator; `priced` says for each capacity whether it has a price.
    pub fn new(env: RolloutEnv, priced: Vec<bool>) -> Self {
        Evaluator { env, priced, names: Mutex::default() }
    }

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
    ) -> Result<(), RolloutError> {
        let one = |position: usize| {
            let (evaluator, work, cancel) = (self.clone(), work.clone(), cancel.clone());
            // A task of its own for the runtime: woken alone, not with all the others.
            let run = tokio::spawn(async move { evaluator.score(&work, position, &cancel).await });
            async move { run.await.unwrap_or_else(|error| Err(RolloutError::BrokeOff(error.to_string()))) }
        };
        let mut ends = stream::iter(work.order()).map(one).buffer_unordered(work.width.max(1));
        while let Some(row) = ends.next().await {
            if let Some(row) = row? {
                on_row(row);
            }
        }
        Ok(())
    }

    /// Enters what the runs on record of an evaluation of so many runs have spent into the budget they share.
    ///
    /// # Errors
    /// The store failed.
    pub fn enter_spent(&self, eval_id: &str, runs: usize) -> Result<(), RolloutError> {
        let (Some(store), Some(shared)) = (&self.env.store, &self.env.settings.shared) else { return Ok(()) };
        for position in 0..runs {
            if let Some(run_id) = store.run_of_task(eval_id, position)? {
                shared.enter_run(&store.trace(&run_id)?, &self.env.backend.levels);
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
    ) -> Result<Option<Row>, RolloutError> {
        let Some((method, seed, case)) = work.at(position) else { return Ok(None) };
        let Some(case) = work.cases.get(case) else { return Ok(None) };
        let orchestrator = method.orchestrator(case, &self.env.language, work.capacity.as_deref(), seed)?;
        let record = Record::Batch(work.eval_id.clone(), position);
        let options = RunOptions { record, cancel: Some(cancel), ..RunOptions::default() };
        let trace = self.env.execute(case, orchestrator, seed, &options).await?;
        let ended = trace.summary().stop_reason.is_some_and(|reason| reason != StopReason::Cancelled);
        if !ended {
            return Ok(None);
        }
        self.row(case.clone(), method.method.name(), seed, trace).await.map(Some)
    }

    async fn row(self: Arc<Self>, case: Case, method: String, seed: u64, trace: Trace) -> Result<Row, RolloutError> {
        if !matches!(case.item.key(), Key::Code { .. }) {
            return self.row_of(&case, method, seed, trace);
        }
        // Programs take a moment; the runs of others need not wait for them.
        let graded = tokio::task::spawn_blocking(move || self.row_of(&case, method, seed, trace)).await;
        graded.unwrap_or_else(|error| Err(RolloutError::BrokeOff(error.to_string())))
    }

    fn row_of(&self, case: &Case, method: String, seed: u64, trace: Trace) -> Result<Row, RolloutError> {
        let summary = trace.summary();
        // A failed run counts as not right here, whatever it failed of: every method has a row for every item.
        let graded = match &summary.answer {
            None => None,
            Some(answer) => Some(self.env.grade(case, &trace, answer)?),
        };
        let right = graded.as_ref().is_some_and(|graded| graded.right);
        let score = self.env.score_as(case, &trace, &summary, right);
        let agents: Vec<AgentRow> = summary.agents.iter().map(|agent| self.agent_row(&score.grades, agent)).collect();
        let has_price = |capacity: usize| self.priced.get(capacity).copied().unwrap_or(false);
        let priced = summary.agents.iter().all(|agent| has_price(agent.level));
        let metrics = trace.metrics(Some(&score.grades.agents));
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
            reward: score.reward,
            answer: graded.and_then(|graded| graded.extracted).map(|answer| self.name(&short(answer))),
            stop_reason: summary.stop_reason,
            tokens: token_row(&trace, &summary),
            usd: priced.then_some(summary.usd),
            wall_s: summary.wall_s,
            calls: summary.calls,
            agents,
            metrics,
        };
        self.record_score(trace, row.right, &score.channels);
        Ok(row)
    }

    /// Adds to a run's trace what it earned, unless that was done before.
    fn record_score(&self, mut trace: Trace, right: bool, channels: &Channels) {
        let told = trace.events.iter().any(|event| matches!(event.kind, EventKind::Score { .. }));
        let Some(store) = self.env.store.as_ref().filter(|_| !told) else { return };
        let rewards = channels.named();
        // Not waited for: nothing is lost, since the score can be measured again and the store writes everything before it
        // closes.
        drop(store.annotate(&mut trace, [EventKind::Score { right: Some(right), rewards }]));
    }

    fn agent_row(&self, grades: &Grades, agent: &AgentSummary) -> AgentRow {
        AgentRow {
            id: self.name(&agent.id),
            base: self.name(&agent.base),
            role: self.name(&agent.role),
            capacity: self.name(&agent.capacity),
            after: agent.after.iter().map(|id| self.name(id)).collect(),
            status: agent.status,
            right: grades.agents.get(&agent.id).copied(),
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
