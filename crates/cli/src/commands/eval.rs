//! `lemon eval`: methods side by side on the same tasks and workers.

mod details;
mod files;
mod progress;
pub mod request;
mod table;

pub use files::{find, read};

use crate::args::{Cli, EvalArgs};
use crate::fault::Fault;
use crate::{print, println, runtime};
use files::Claim;
use lemon_eval::{
    Evaluation, Evaluator, METHODS, Method, MethodRun, Report, Row, SetUp, TeamSource, Training, Work, learn, report,
};
use lemon_exec::fresh_id;
use lemon_exec::orchestrator::Fixed;
use lemon_exec::store::Store;
use lemon_rollout::{Case, Grader, RolloutEnv, RolloutError};
use lemon_spec::{Language, diagnostic};
use lemon_workers::{Config, PolicySource, Resolved, SandboxRunner, SharedLimits, WorkerSet};
use progress::EvalProgress;
use request::EvalRequest;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub fn eval(cli: &Cli, args: &EvalArgs) -> Result<u8, Fault> {
    if args.methods.iter().any(|name| name == "help") {
        return list_methods();
    }
    let config = cli.config(&args.endpoints)?;
    let runtime = runtime()?;
    let cancel = CancellationToken::new();
    runtime.spawn(super::run::cancel_on_signal(cancel.clone(), super::run::ON_RECORD));
    let store_path = config.store_path(cli.store.as_deref());
    let (request, eval_id, on_record) = match &args.resume {
        Some(name) => {
            let store = Arc::new(Store::open_existing(&store_path)?);
            let mut request = EvalRequest::on_record(&store, name)?;
            let given = SharedLimits { tokens: args.budget_tokens, usd: args.budget_usd };
            request.together = given.or(request.together);
            (request, name.clone(), Some(store))
        }
        None => (EvalRequest::new(args)?, format!("e-{}", fresh_id()), None),
    };
    let folder = args.out.clone().unwrap_or_else(|| files::folder(&store_path, &eval_id));
    let store = || {
        files::make_folder(&folder)?;
        on_record.map_or_else(|| super::run::open_store(cli, &config), Ok)
    };
    // Ended by the user, or by the budget.
    let end = cancel.child_token();
    let prepared = runtime.block_on(prepare(&config, args, request, eval_id, store, &end))?;
    let _claim = Claim::new(&store_path, &prepared.eval_id)?;
    runtime.block_on(run(args, prepared, folder, &end))
}

/// Everything an evaluation needs.
struct Prepared {
    eval_id: String,
    request: EvalRequest,
    methods: Vec<Method>,
    cases: Vec<Case>,
    evaluator: Arc<Evaluator>,
    store: Arc<Store>,
    resolved: Resolved,
}

async fn prepare(
    config: &Config,
    args: &EvalArgs,
    request: EvalRequest,
    eval_id: String,
    store: impl FnOnce() -> Result<Arc<Store>, Fault>,
    end: &CancellationToken,
) -> Result<Prepared, Fault> {
    let methods = request.methods()?;
    let cases = request.cases()?;
    let set = request.workers(config, &cases, args.quiet).await?;
    let priced = set.priced();
    let WorkerSet { mut backend, resolved, mut settings } = set;
    let language = &resolved.language;
    settings.shared = request.together.shared(resolved.capacities(), end)?;
    if let Some(capacity) = &request.capacity
        && !language.capacities.contains(capacity)
    {
        return Err(Fault::new(format!(
            "unknown capacity `{capacity}`; expected one of {}",
            language.capacities.join(", ")
        )));
    }
    methods.iter().try_for_each(|method| method.check(&language.efforts)).map_err(Fault::new)?;
    check_team(&request, &methods, language)?;
    let sandbox = match Grader::needs_sandbox(cases.iter().map(|case| &case.item)) {
        true => {
            // What grades programs can also compare them (`by: test`).
            backend.code = Some(Arc::new(SandboxRunner::new(args.unsafe_no_sandbox)));
            Some(super::grade::sandbox(args.unsafe_no_sandbox)?)
        }
        false => None,
    };
    // Last, so that an evaluation that cannot begin leaves no store behind.
    let store = store()?;
    let mut env = RolloutEnv::new(backend, language.clone(), settings, Grader::new(sandbox));
    env.store = Some(store.clone());
    let evaluator = Evaluator::new(env, priced);
    Ok(Prepared { eval_id, request, methods, cases, evaluator: Arc::new(evaluator), store, resolved })
}

/// A team that is none would be rejected again in every run.
fn check_team(request: &EvalRequest, methods: &[Method], language: &Language) -> Result<(), Fault> {
    if !methods.iter().any(|method| method.source() == Some(TeamSource::File)) {
        return Ok(());
    }
    let text = request.spec()?;
    let Err(rejection) = lemon_spec::validate(&text, language) else { return Ok(()) };
    let color = console::colors_enabled_stderr();
    eprintln!("{}", diagnostic::explain(&rejection.diagnostics, &text, "the specification", color).trim_end());
    Err(Fault::new("the specification is not valid").hint("correct it; `lemon validate FILE` checks it"))
}

async fn run(args: &EvalArgs, prepared: Prepared, folder: PathBuf, cancel: &CancellationToken) -> Result<u8, Fault> {
    let mut set_up = set_up(&prepared);
    if args.resume.is_none() {
        let meta = serde_json::to_string(&prepared.request).map_err(Fault::new)?;
        prepared.store.begin_batch(&prepared.eval_id, set_up.started_at_ms, meta, Vec::new()).wait().await?;
    }
    let (methods, training) = method_runs(&prepared, args.quiet, cancel).await?;
    let default_width = prepared.request.default_width()?;
    let work = Arc::new(Work {
        eval_id: prepared.eval_id.clone(),
        methods,
        seeds: prepared.request.seeds.clone(),
        capacity: prepared.request.capacity.clone(),
        // Within a budget one item at a time: many runs at once would all be half done when it ends.
        width: args.width.unwrap_or_else(|| match prepared.evaluator.env.settings.shared {
            Some(_) => prepared.methods.len(),
            None => default_width,
        }),
        cases: Arc::new(prepared.cases),
    });
    let shared = prepared.evaluator.env.settings.shared.clone();
    if args.resume.is_some() {
        prepared.evaluator.enter_spent(&work).map_err(fault)?;
    }
    let mut rows: Vec<Row> = Vec::with_capacity(work.runs());
    let progress = EvalProgress::start(args.quiet, &prepared.eval_id, work.runs());
    if prepared.resolved.kind.costs_money() {
        let together = prepared.request.together;
        match (&shared, &args.resume) {
            (_, None) => {
                let estimate = prepared.evaluator.estimate(&work).await;
                let estimate = estimate.map_err(|error| Fault::new(error.to_string()))?;
                progress.say(&together.estimate(&estimate, prepared.resolved.capacities()));
            }
            (Some(shared), _) => {
                progress.say(&format!("{} tokens are spent so far; budget: {}", shared.spent().0, together.in_words()));
            }
            (None, _) => {}
        }
    }
    let result = prepared.evaluator.evaluate(&work, cancel, |row| {
        progress.add(&row);
        rows.push(row);
    });
    result.await.map_err(fault)?;
    progress.finish();
    let complete = rows.len() == work.runs();
    if prepared.request.clusters {
        set_up.clusters = Some(mark_clusters(&mut rows, &work.cases));
    }
    files::in_order(&mut rows, &set_up);
    let evaluation = Evaluation { set_up, training, rows };
    let report = Report::new(&evaluation);
    let details = details::details(&evaluation, &work.cases, &prepared.store, &folder);
    files::write(&folder, &evaluation, &report, &details)?;
    match args.json {
        true => println(&report::json(&report))?,
        false => print(&table::table(&report))?,
    };
    if !args.quiet {
        eprintln!("report: {}", folder.join("report.html").display());
    }
    if !complete {
        let missing = work.runs() - evaluation.rows.len();
        let undone = format!("{missing} of {} runs are missing", work.runs());
        let way_on = format!("go on with `lemon eval --resume {}", prepared.eval_id);
        if let Some(fault) = lemon_workers::ended(shared.as_ref(), &undone, &way_on) {
            return Err(fault.into());
        }
        return Err(Fault::new(undone).hint(format!("{way_on}`")).code(1));
    }
    Ok(0)
}

/// Notes in each row which questions of its set its own looks like, and says how many clusters there are.
fn mark_clusters(rows: &mut [Row], cases: &[Case]) -> usize {
    let mut sets: BTreeMap<&str, Vec<&Case>> = BTreeMap::new();
    for case in cases {
        sets.entry(&case.set).or_default().push(case);
    }
    let (mut clusters, mut count) = (HashMap::new(), 0);
    for (set, cases) in sets {
        let questions: Vec<&str> = cases.iter().map(|case| case.item.task.question.as_str()).collect();
        let numbers = lemon_problems::clusters(&questions);
        count += numbers.iter().max().map_or(0, |last| last + 1);
        clusters.extend(cases.iter().zip(numbers).map(|(case, number)| ((set, case.item.position), number)));
    }
    for row in rows {
        row.cluster = clusters.get(&(&*row.set, row.item)).copied();
    }
    count
}

fn set_up(prepared: &Prepared) -> SetUp {
    let request = &prepared.request;
    SetUp {
        eval_id: prepared.eval_id.clone(),
        started_at_ms: request.started_at_ms,
        sets: request.set_names(),
        items: prepared.cases.len(),
        clusters: None,
        methods: prepared.methods.iter().map(Method::name).collect(),
        capacity: request.capacity.clone(),
        workers: prepared.evaluator.env.backend.name.clone(),
        seeds: request.seeds.clone(),
    }
}

/// The methods with the orchestrators of their teams; those that learn, learn now.
async fn method_runs(
    prepared: &Prepared,
    quiet: bool,
    cancel: &CancellationToken,
) -> Result<(Vec<MethodRun>, Vec<Training>), Fault> {
    let (mut methods, mut training) = (Vec::new(), Vec::new());
    for method in &prepared.methods {
        let writer = match method.source() {
            None => None,
            Some(TeamSource::File) => Some(fixed(prepared.request.spec()?)),
            Some(TeamSource::Prompted) => Some(prepared.resolved.prompted()?),
            Some(TeamSource::Policy) => Some(learned(prepared, quiet)?),
            Some(TeamSource::AgentPrune | TeamSource::AgentDropout) => {
                let cases = prepared.request.training_cases()?;
                if !quiet {
                    eprintln!("{} learns on {} items", method.name(), cases.len());
                }
                let capacity = prepared.request.capacity.as_deref();
                let seed = prepared.request.seeds.first().copied().unwrap_or(0);
                let learned = learn(&prepared.evaluator.env, method, capacity, &cases, seed, cancel).await;
                let learned = learned.map_err(fault)?;
                let spec = learned.spec.clone();
                training.push(learned);
                Some(fixed(spec))
            }
        };
        methods.push(MethodRun { method: method.clone(), writer });
    }
    Ok((methods, training))
}

/// The policy, with all its teams written ahead: many at a time is far quicker than one by one.
fn learned(prepared: &Prepared, quiet: bool) -> Result<Arc<dyn lemon_exec::Orchestrator>, Fault> {
    let source = PolicySource { folder: prepared.request.policy.clone(), ..PolicySource::default() };
    let writer = prepared.resolved.writer(&source)?;
    let questions: Vec<&str> = prepared.cases.iter().map(|case| case.item.task.question.as_str()).collect();
    if !quiet {
        eprintln!("the policy writes {} teams", questions.len());
    }
    writer.write_ahead(&questions).map_err(Fault::new)?;
    Ok(Arc::new(writer))
}

fn fixed(text: String) -> Arc<dyn lemon_exec::Orchestrator> {
    Arc::new(Fixed { text, reviewer: None })
}

pub fn fault(error: RolloutError) -> Fault {
    match error {
        RolloutError::Sandbox(error) => super::grade::refusal(error),
        RolloutError::Store(error) => error.into(),
        RolloutError::Run(error) => error.into(),
        error @ RolloutError::OtherTask { .. } => {
            Fault::new(error).hint("go on with the tasks it began with, or begin a new evaluation")
        }
        RolloutError::NoTeam(_) | RolloutError::NoPlan | RolloutError::BrokeOff(_) => Fault::new(error),
    }
}

fn list_methods() -> Result<u8, Fault> {
    for kind in METHODS {
        let number = kind.number.map(|(what, default, _)| format!(" [:N {what}, {default} by default]"));
        println(&format!("{:<13} {}{}", kind.name, kind.about, number.unwrap_or_default()))?;
    }
    Ok(0)
}
