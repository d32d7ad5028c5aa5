//! What each decision of a team is worth on tasks with known answers, and what it costs.

use super::cluster::WorkerCluster;
use super::request::{EvalRequest, RequestedCases};
use super::{Notices, valid_team};
use crate::error::Error;
use lemon_credit::choose::ChoiceRule;
use lemon_eval::SpendEstimate;
use lemon_exec::orchestrator::Orchestrator;
use lemon_exec::store::Store;
use lemon_profile::{
    Counterfactuals, ImproveStep, Improvement, Profile, ProfileWork, Reviewer, SpendingLimits, estimate, improve,
    profile, trace_entries,
};
use lemon_rollout::{Case, Grader, RolloutEnv};
use lemon_sandbox::Containment;
use lemon_spec::Plan;
use lemon_spec::edit::Family;
use lemon_task::SetName;
use lemon_trace::{EventKind, Trace};
use lemon_workers::{Capacity, Config, Resolved, SharedLimits, WorkerSet, check_prices};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Repeats of a single task: enough for an error to mean something.
const REPEATS: u64 = 30;
/// Tasks that an improvement needs: half of them are held out.
const LEAST_TO_IMPROVE: usize = 40;

/// What is profiled, and with which workers.
pub struct CreditRequest {
    /// The workers, the folder of task sets, the split and the most tasks; its sets are those of `tasks`.
    pub workers: EvalRequest,
    /// The tasks. `None`: the task of the run.
    pub tasks: Option<CreditTasks>,
    /// A run on record: its team is profiled on its own task.
    pub run: Option<String>,
    /// The team by its name for messages, where no run is named.
    pub team: Option<(String, String)>,
    /// The team of a second round.
    pub review: Option<String>,
    /// Whether the team is to be improved: found on half of the tasks, confirmed on the other half.
    pub improve: bool,
    /// The first seed.
    pub seed: u64,
    /// How often each task is run.
    pub repeats: Option<u64>,
    /// Runs at a time.
    pub width: Option<usize>,
    /// The families of edits that are run; all where it is empty.
    pub families: Vec<Family>,
    /// What everything may cost.
    pub together: SharedLimits,
    /// How programs are contained.
    pub containment: Containment,
}

/// Where tasks come from.
pub enum CreditTasks {
    /// A file of JSON lines.
    File(PathBuf),
    /// A published set.
    Set(String),
}

/// A profile that can begin.
pub struct CreditJob {
    /// The team.
    pub plan: Plan,
    /// The tasks.
    pub cases: Vec<Case>,
    /// A run of each task with each.
    pub seeds: Vec<u64>,
    /// What runs and scores teams.
    pub env: RolloutEnv,
    /// What everything may cost.
    pub together: SharedLimits,
    /// What serves each capacity.
    pub levels: Vec<(String, Capacity)>,
    reviewer: Arc<dyn Orchestrator>,
    request: EvalRequest,
    resolved: Resolved,
    /// The run whose trace gets the credit.
    run: Option<(Arc<Store>, Trace)>,
    width: usize,
    families: Vec<Family>,
}

impl CreditJob {
    /// Reads team and tasks, and makes the workers.
    ///
    /// # Errors
    /// The request cannot be carried out.
    pub async fn prepare(
        config: &Config,
        store: &Path,
        request: CreditRequest,
        notices: Notices,
    ) -> Result<Self, Error> {
        let kind = request.workers.kind()?;
        let together = request.together;
        if request.improve && (together.is_limited() || kind.asks_models()) {
            return Err(Error::input("--apply profiles a team again after every change, in the simulated world only")
                .with_hint("profile with endpoints, apply what it advises by hand, and profile again"));
        }
        if kind.costs_money() && !together.is_limited() {
            return Err(Error::input("a profile makes many calls, and there is no limit")
                .with_hint("limit it with --budget-tokens N or --budget-usd X"));
        }
        let run = request.run.as_deref().map(|name| ended_run(store, name)).transpose()?;
        let (workers, requested) = cases(&request, run.as_ref().map(|(_, trace)| trace), notices)?;
        if request.improve && requested.cases.len() < LEAST_TO_IMPROVE {
            return Err(Error::input(format!("{} tasks are too few to hold some out", requested.cases.len()))
                .with_hint(format!("give at least {LEAST_TO_IMPROVE}: --set gsm8k --data DIR, or --tasks FILE")));
        }
        let set = workers.workers(config, &requested, notices).await?;
        let RequestedCases { cases, .. } = requested;
        let WorkerSet { backend, resolved, settings } = set;
        let language = resolved.language.clone();
        let levels = resolved.config.capacity.clone();
        if together.usd.is_some() {
            check_prices(&levels)?;
        }
        if let Some((_, trace)) = run.as_ref().filter(|(_, trace)| trace.header.workers != backend.name) {
            let (its, ours) = (&trace.header.workers, &backend.name);
            (notices.tell)(&format!("warning: the run used {its} workers; its team is profiled with {ours} workers"));
        }
        let (name, text) = match (&run, request.team) {
            (Some((_, trace)), _) => ("the team of the run".to_owned(), written(trace)?),
            (None, Some(team)) => team,
            (None, None) => return Err(Error::input("there is no team").with_hint("give --spec FILE, or a run")),
        };
        let plan = valid_team(&text, &name, &language)?;
        let grader = Grader::for_items(cases.iter().map(|case| &case.item), request.containment)?;
        let first = run.as_ref().map_or(request.seed, |(_, trace)| trace.header.seed);
        let repeats = request.repeats.unwrap_or(if cases.len() == 1 { REPEATS } else { 1 }).max(1);
        Ok(CreditJob {
            plan,
            seeds: (0..repeats).map(|number| first.wrapping_add(number)).collect(),
            reviewer: Arc::new(Reviewer { text: request.review }),
            env: RolloutEnv::new(backend, language, settings, grader),
            request: workers,
            resolved,
            cases,
            run,
            together,
            levels,
            families: request.families,
            width: request.width.unwrap_or(if kind.asks_models() { 8 } else { 64 }),
        })
    }

    /// Gives the runs to a cluster, so many at a time unless the request says otherwise.
    ///
    /// # Errors
    /// Other machines could not make the same workers, or the cluster cannot be used.
    pub async fn on_cluster(&mut self, config: &Config, cluster: &WorkerCluster, width: usize) -> Result<(), Error> {
        let recipe = self.request.recipe(config, &self.resolved, &self.cases)?;
        self.width = self.width.max(width);
        cluster.take(&mut self.env, recipe, &self.cases).await
    }

    /// Whether a run's trace gets the credit.
    pub fn has_run(&self) -> bool {
        self.run.is_some()
    }

    fn runs(&self) -> Counterfactuals<'_> {
        Counterfactuals { env: &self.env, reviewer: Some(self.reviewer.clone()) }
    }

    fn work(&self, policy: ChoiceRule) -> ProfileWork<'_> {
        ProfileWork {
            plan: &self.plan,
            cases: &self.cases,
            seeds: &self.seeds,
            families: &self.families,
            width: self.width,
            budget: SpendingLimits { tokens: self.together.tokens, usd: self.together.usd },
            policy,
        }
    }

    /// What the profile may spend.
    pub fn estimate(&self, policy: ChoiceRule) -> SpendEstimate {
        estimate(&self.runs(), &self.work(policy))
    }

    /// Runs the team and its counterfactuals. `progress` hears how many are done, of how many.
    ///
    /// # Errors
    /// A program could not be graded.
    pub async fn profile(
        &self,
        policy: ChoiceRule,
        cancel: &CancellationToken,
        progress: impl FnMut(usize, usize),
    ) -> Result<Profile, Error> {
        Ok(profile(&self.runs(), &self.work(policy), cancel, progress).await?)
    }

    /// Adds the credit to the trace of the run, if it is the team of one.
    ///
    /// # Errors
    /// The store failed, or a program could not be graded.
    pub async fn annotate(&mut self, found: &Profile) -> Result<(), Error> {
        let (Some((store, trace)), Some(case)) = (&mut self.run, self.cases.first()) else { return Ok(()) };
        let score = self.env.score(case, trace, &trace.summary())?;
        Ok(store.annotate(trace, trace_entries(&self.plan, &score, found)).wait().await?)
    }

    /// Improves the team on every second task and confirms the changes on the others. `on_step` sees each change.
    ///
    /// # Errors
    /// A program could not be graded.
    pub async fn improve(
        &self,
        cancel: &CancellationToken,
        on_step: impl FnMut(&ImproveStep),
    ) -> Result<Improvement, Error> {
        // Every second task: a set may be sorted.
        let half = |odd: usize| self.cases.iter().skip(odd).step_by(2).cloned().collect::<Vec<_>>();
        let (chosen_by, held_out) = (half(0), half(1));
        let cases = (&chosen_by[..], &held_out[..]);
        Ok(improve(&self.runs(), &self.plan, cases, &self.seeds, self.width, cancel, on_step).await?)
    }
}

/// A run of the store that has ended.
fn ended_run(store: &Path, name: &str) -> Result<(Arc<Store>, Trace), Error> {
    let store = Arc::new(Store::open_existing(store)?);
    let run_id = store.find_run(name)?;
    // Refused while another process works on it.
    store.meta(&run_id)?;
    let trace = store.trace(&run_id)?;
    if trace.summary().stop_reason.is_none() {
        return Err(Error::input(format!("run {} has not ended", trace.header.run_id))
            .with_hint(format!("go on with it: `lemon run --resume {run_id}`")));
    }
    Ok((store, trace))
}

/// The tasks, with the workers' request that fits them.
fn cases(
    request: &CreditRequest,
    trace: Option<&Trace>,
    notices: Notices,
) -> Result<(EvalRequest, RequestedCases), Error> {
    // An evaluation names its tasks `set/split/id`, or `file/id`.
    let named = trace.and_then(|trace| {
        let mut parts = trace.header.task_id.splitn(3, '/');
        let (set, split) = (parts.next()?, parts.next()?);
        set.parse::<SetName>().is_ok().then(|| (set.to_owned(), split.to_owned()))
    });
    let (set, split) = match (&request.tasks, named) {
        (Some(CreditTasks::File(file)), _) => {
            std::fs::metadata(file).map_err(|error| Error::input(format!("{}: {error}", file.display())))?;
            (file.display().to_string(), request.workers.split.clone())
        }
        (Some(CreditTasks::Set(set)), _) => (set.clone(), request.workers.split.clone()),
        (None, Some((set, split))) => (set, split),
        (None, None) => {
            return Err(Error::input("there are no tasks with known answers")
                .with_hint("give --set NAME or --tasks FILE; a run is looked up there by its question"));
        }
    };
    let workers = EvalRequest { sets: vec![set.clone()], split, ..request.workers.clone() };
    let mut requested = workers.cases(notices)?;
    if let Some(trace) = trace {
        let cases = &mut requested.cases;
        cases.retain(|case| case.item.task.question.trim() == trace.header.question.trim());
        cases.truncate(1);
        if cases.is_empty() {
            return Err(Error::input(format!("the question of run {} is not in {set}", trace.header.run_id))
                .with_hint("name the task's source with --set NAME --data DIR, or --tasks FILE"));
        }
    }
    Ok((workers, requested))
}

/// The specification of a run's first round.
fn written(trace: &Trace) -> Result<String, Error> {
    let text = trace.events.iter().find_map(|event| match &event.kind {
        EventKind::Decision { round: 1, text, .. } => Some(text.clone()),
        _ => None,
    });
    text.ok_or_else(|| Error::input(format!("run {} has no team", trace.header.run_id)))
}
