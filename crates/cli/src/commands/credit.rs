//! `lemon credit`: what each decision of a team is worth, and what it costs.

mod tell;

use crate::args::{ChoosePolicy, Cli, CreditArgs, OnMissArg, WorkerKind};
use crate::commands::cluster::{join, leave};
use crate::fault::{Fault, read_file};
use crate::{notices, print_json};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lemon::jobs::EvalRequest;
use lemon::jobs::credit::{CreditJob, CreditRequest, CreditTasks};
use lemon_cluster::Priority;
use lemon_credit::choose::ChoiceRule;
use lemon_exec::unix_ms;
use lemon_profile::picture;
use lemon_sandbox::Containment;
use lemon_spec::edit::{Edit, edits};
use lemon_workers::SharedLimits;
use std::path::Path;
use tokio_util::sync::CancellationToken;

pub fn credit(cli: &Cli, args: &CreditArgs) -> Result<u8, Fault> {
    let config = cli.config(&args.endpoints)?;
    // Counterfactuals are many, short and simulated, or few and waiting: one thread keeps up with either.
    let runtime = crate::runtime()?;
    let cancel = CancellationToken::new();
    runtime.spawn(super::run::cancel_on_signal(cancel.clone(), "what was measured is told"));
    let store = config.store_path(cli.store.as_deref());
    let job = CreditJob::prepare(&config, &store, request(args)?, notices(args.quiet));
    let mut job = runtime.block_on(job)?;
    if !args.quiet {
        announce(args, &job);
    }
    runtime.block_on(async {
        let cluster = join(&args.cluster, Priority::Low).await?;
        if let Some(cluster) = &cluster {
            let width = args.width.unwrap_or(cluster.width().await?);
            job.on_cluster(&config, cluster, width).await?;
        }
        let code = match &args.apply {
            Some(path) => apply(args, &job, path, &cancel).await,
            None => measure(args, &mut job, &cancel).await,
        };
        leave(cluster).await?;
        code
    })
}

fn request(args: &CreditArgs) -> Result<CreditRequest, Fault> {
    let workers = EvalRequest {
        split: args.split.clone(),
        data: args.data.clone(),
        workers: args.workers.name().to_owned(),
        world: args.world.into(),
        simulate_misses: args.replay.on_miss == OnMissArg::Sim,
        skip_misses: args.replay.on_miss == OnMissArg::Skip && args.workers == WorkerKind::RECORDED,
        levels: args.replay.levels.clone(),
        samples: args.replay.samples.into(),
        limit: args.limit,
        started_at_ms: unix_ms(),
        shared_noise: !args.fresh_draws,
        ..EvalRequest::default()
    };
    let team = |path: &Path| Ok::<_, Fault>((path.display().to_string(), super::read_input(path)?));
    let tasks = match (&args.tasks, &args.set) {
        (Some(file), _) => Some(CreditTasks::File(file.clone())),
        (None, Some(set)) => Some(CreditTasks::Set(set.clone())),
        (None, None) => None,
    };
    Ok(CreditRequest {
        workers,
        tasks,
        run: args.run.clone(),
        team: args.spec.as_deref().filter(|_| args.run.is_none()).map(team).transpose()?,
        review: args.review.as_deref().map(read_file).transpose()?,
        improve: args.apply.is_some(),
        seed: args.seed,
        repeats: args.repeats,
        width: args.width,
        families: args.families.clone(),
        together: SharedLimits { tokens: args.budget_tokens, usd: args.budget_usd },
        containment: Containment::unless(args.unsafe_no_sandbox),
    })
}

fn announce(args: &CreditArgs, job: &CreditJob) {
    let is_wanted = |edit: &Edit| args.families.is_empty() || args.families.contains(&edit.family);
    let edits = edits(&job.plan, &job.env.language).into_iter().filter(is_wanted).count();
    let (agents, tasks, repeats) = (job.plan.agents().len(), job.cases.len(), job.seeds.len());
    let limit = match job.together.is_limited() {
        true => {
            let limit = job.together.in_words();
            format!("at most {limit} will be spent, and what tells most per token is run first")
        }
        false if args.workers.asks_models() => "models in this process answer".to_owned(),
        false => "no model is called".to_owned(),
    };
    let counted = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    eprintln!(
        "{}, {}, {}, {} of each; {limit}",
        counted(agents, "agent"),
        counted(edits, "edit"),
        counted(tasks, "task"),
        counted(repeats, "run")
    );
}

async fn measure(args: &CreditArgs, job: &mut CreditJob, cancel: &CancellationToken) -> Result<u8, Fault> {
    let policy = match args.choose {
        ChoosePolicy::Information => ChoiceRule::Information { floor: 0.02 },
        ChoosePolicy::Effect => ChoiceRule::Effect { floor: 0.05 },
    };
    if args.workers.costs_money() && !args.quiet {
        eprintln!("{}", job.together.estimate(&job.estimate(policy), &job.levels));
    }
    let bar = bar(args.quiet);
    let found = job.profile(policy, cancel, |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    let found = found.await?;
    bar.finish_and_clear();
    let cancelled = cancel.is_cancelled() && !found.complete;
    // How to give it more.
    let more = match job.together.usd {
        None => "give more with --budget-tokens N",
        Some(_) => "give more with --budget-tokens N and --budget-usd X, as far as they are given",
    };
    match (found.baseline.runs, cancelled) {
        (0, true) => return Err(Fault::new("cancelled before the first run ended").code(1)),
        (0, false) => {
            if let Some(reason) = found.unknown.first() {
                return Err(Fault::new(format!("no run has a known outcome: {reason}")).code(1));
            }
            return Err(Fault::new("the budget is too small for one run").hint(more).code(1));
        }
        _ => {}
    }
    if !cancelled {
        job.annotate(&found).await?;
    }
    match args.json {
        true => print_json(&found)?,
        false => crate::print(&tell::profile(&found))?,
    };
    if let Some(path) = &args.picture {
        write(path, &picture(&job.plan, &found))?;
    }
    if cancelled {
        let fault = Fault::new("cancelled: not everything was measured").code(1);
        return Err(if job.has_run() { fault.hint("nothing was added to the run's trace") } else { fault });
    }
    if !found.complete {
        let missing = found.effects.iter().filter(|effect| effect.effect.is_none()).count();
        let fact = format!(
            "the budget is used up: {} tokens are spent, and the profile is partial; {missing} of {} edits are not measured",
            found.reuse.tokens,
            found.effects.len()
        );
        return Err(Fault::new(fact).hint(more).code(1));
    }
    Ok(0)
}

async fn apply(args: &CreditArgs, job: &CreditJob, path: &Path, cancel: &CancellationToken) -> Result<u8, Fault> {
    let found = job.improve(cancel, |step| {
        if !args.quiet {
            eprintln!("{}: success {:+.1} points, {:+.0} tokens", step.change, 100.0 * step.success, step.tokens);
        }
    });
    let found = found.await?;
    if cancel.is_cancelled() {
        return Err(Fault::new("cancelled before the changes were confirmed; nothing is written").code(1));
    }
    write(path, &found.spec)?;
    match args.json {
        true => print_json(&found),
        false => crate::print(&tell::improvement(&found, path)),
    }
}

fn write(path: &Path, content: &str) -> Result<(), Fault> {
    std::fs::write(path, content).map_err(|error| Fault::new(format!("{} cannot be written: {error}", path.display())))
}

fn bar(quiet: bool) -> ProgressBar {
    if quiet || !console::Term::stderr().features().is_attended() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style =
        ProgressStyle::with_template("{bar:32.yellow/dim} {pos}/{len} counterfactuals · {elapsed} · {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
