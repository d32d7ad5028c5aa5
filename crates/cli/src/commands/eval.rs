//! `lemon eval`: methods side by side on the same tasks and workers.

mod progress;
mod table;

use crate::args::{Cli, EvalArgs, OnMissArg, RivalArgs, WorkerKind};
use crate::commands::cluster::{join, leave};
use crate::fault::Fault;
use crate::{notices, print, println, runtime, say};
use lemon::jobs::EvalRequest;
use lemon::jobs::SPENDING;
use lemon::jobs::details::details;
use lemon::jobs::evaluation::EvalJob;
use lemon_cluster::Priority;
use lemon_eval::folder::{self, Claim, default_folder};
use lemon_eval::{METHODS, Report, report};
use lemon_exec::store::Store;
use lemon_exec::{fresh_id, unix_ms};
use lemon_sandbox::Containment;
use lemon_workers::SharedLimits;
use progress::EvalProgress;
use std::path::{Path, PathBuf};
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
    let (mut request, eval_id, on_record) = match &args.resume {
        Some(name) => {
            let store = Arc::new(Store::open_existing(&store_path)?);
            let mut request = EvalRequest::on_record(&store, name)?;
            request.together = limits(args).or(request.together);
            (request, name.clone(), Some(store))
        }
        None => (request(args, &store_path)?, format!("e-{}", fresh_id()), None),
    };
    let own = default_folder(&store_path, &eval_id);
    request.trained = Some(own.join("trained"));
    let folder = args.out.clone().unwrap_or_else(|| own.clone());
    let store = || {
        folder::make_folder(&folder)?;
        match on_record {
            Some(store) => Ok(store),
            None => Ok(Arc::new(Store::open(&store_path, config.store.sync)?)),
        }
    };
    // Ended by the user, or by the budget.
    let end = cancel.child_token();
    let contained = Containment::unless(args.unsafe_no_sandbox);
    let job = EvalJob::prepare(&config, request, eval_id, contained, notices(args.quiet), &end, store);
    let mut job = runtime.block_on(job).map_err(Fault::of_spec)?;
    let _claim = Claim::new(&store_path, &job.eval_id)?;
    runtime.block_on(async {
        let cluster = join(&args.cluster, Priority::Low).await?;
        let mut width = args.width;
        let spending = own.join(SPENDING);
        // What learning spends is not in the store.
        let is_kept = cluster.is_some() || job.learns() || spending.exists();
        let is_known = is_kept && job.keep_spending(&spending, &end)?;
        if let Some(cluster) = &cluster {
            job.on_cluster(&config, cluster).await.map_err(Fault::of_spec)?;
            width = Some(width.unwrap_or(cluster.width().await?));
        }
        let code = run(args, &job, (folder, is_known), width, &end).await;
        leave(cluster).await?;
        code
    })
}

fn request(args: &EvalArgs, store_path: &Path) -> Result<EvalRequest, Fault> {
    let request = EvalRequest {
        sets: args.sets.clone(),
        split: args.split.clone(),
        data: args.data.clone(),
        methods: args.methods.clone(),
        capacity: args.capacity.clone(),
        workers: args.workers.name().to_owned(),
        world: args.world.into(),
        simulate_misses: args.replay.on_miss == OnMissArg::Sim,
        skip_misses: args.replay.on_miss == OnMissArg::Skip && args.workers == WorkerKind::RECORDED,
        levels: args.replay.levels.clone(),
        samples: args.replay.samples.into(),
        spec: args.spec.as_deref().map(super::read_input).transpose()?,
        policy: args.policy.clone(),
        critic: args.critic.clone(),
        price: args.price,
        limit: args.limit,
        seeds: if args.seeds.is_empty() { vec![args.seed] } else { args.seeds.clone() },
        budget_tokens: args.run_tokens,
        together: limits(args),
        started_at_ms: unix_ms(),
        shared_noise: false,
        clusters: args.clusters,
        tiers: args.tiers.clone(),
        baselines: args.baselines.clone(),
        trained: None,
        training_tokens: args.rivals.training_tokens,
        encoder: args.rivals.encoder.clone(),
        vectors: vectors(&args.rivals, store_path),
    };
    Ok(request.checked()?)
}

/// The file of vectors, beside the store.
pub fn vectors(args: &RivalArgs, store_path: &Path) -> Option<PathBuf> {
    args.encoder.as_ref().map(|_| store_path.with_file_name("vectors.bin"))
}

fn limits(args: &EvalArgs) -> SharedLimits {
    SharedLimits { tokens: args.budget_tokens, usd: args.budget_usd }
}

async fn run(
    args: &EvalArgs,
    job: &EvalJob,
    (folder, spending_is_known): (PathBuf, bool),
    width: Option<usize>,
    cancel: &CancellationToken,
) -> Result<u8, Fault> {
    if args.resume.is_none() {
        job.begin().await?;
    }
    let shared = job.evaluator.env.settings.shared.as_ref();
    if args.resume.is_some() && !spending_is_known {
        job.enter_spent()?;
    }
    let Some((work, training)) = job.work(width, cancel).await? else {
        super::train::close(shared)?;
        return Err(unfinished(job, "the methods have not learned yet"));
    };
    let progress = EvalProgress::start(args.quiet, &job.eval_id, work.runs());
    if job.resolved.kind.costs_money() {
        let together = job.request.together;
        match (shared, &args.resume) {
            (_, None) => {
                let estimate = job.evaluator.estimate(&work).await.map_err(Fault::new)?;
                progress.say(&together.estimate(&estimate, job.resolved.capacities()));
            }
            (Some(shared), _) => {
                progress.say(&format!("{} tokens are spent so far; budget: {}", shared.spent().0, together.in_words()));
            }
            (None, _) => {}
        }
    }
    let rows = job.run(&work, cancel, |row| progress.add(row)).await?;
    progress.finish();
    super::train::close(shared)?;
    let evaluation = job.evaluation(training, rows);
    let report = Report::new(&evaluation);
    let details = details(&evaluation, &work.cases, &job.store, &folder, say::talk);
    folder::write(&folder, &evaluation, &report, &details)?;
    match args.json {
        true => println(&report::json(&report))?,
        false => print(&table::table(&report))?,
    };
    if !args.quiet {
        eprintln!("report: {}", folder.join("report.html").display());
    }
    let missing = work.runs() - evaluation.rows.len();
    if missing > 0 {
        return Err(unfinished(job, &format!("{missing} of {} runs are missing", work.runs())));
    }
    Ok(0)
}

/// That the evaluation ended before its end, and how it goes on.
fn unfinished(job: &EvalJob, undone: &str) -> Fault {
    let way_on = format!("go on with `lemon eval --resume {}", job.eval_id);
    match lemon_workers::ended(job.evaluator.env.settings.shared.as_ref(), undone, &way_on) {
        Some(fault) => fault.into(),
        None => Fault::new(undone).hint(format!("{way_on}`")).code(1),
    }
}

fn list_methods() -> Result<u8, Fault> {
    for kind in METHODS {
        let number = kind.number.map(|(what, default, _)| format!(" [:N {what}, {default} by default]"));
        let variants: String = kind.variants.iter().map(|variant| format!(" [+{}]", variant.as_str())).collect();
        println(&format!("{:<16} {}{}{variants}", kind.name, kind.about, number.unwrap_or_default()))?;
    }
    Ok(0)
}
