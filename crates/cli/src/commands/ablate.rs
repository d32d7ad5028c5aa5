//! `lemon ablate`: ways to train, compared.

use super::train::recipe;
use crate::args::train::AblateArgs;
use crate::args::{Cli, WorkerKind};
use crate::commands::cluster::{join, leave};
use crate::fault::Fault;
use crate::{notices, println, runtime};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lemon::jobs::ablation::{AblationJob, AblationRequest, StudyRuns};
use lemon_cluster::Priority;
use lemon_model::DeviceChoice;
use lemon_study::estimators::table;
use lemon_study::row::StudyRow;
use lemon_study::{MixedRows, ReportError, write};
use lemon_train::estimators::{ESTIMATORS, LabSettings, compare};
use lemon_workers::Config;
use std::path::Path;
use tokio_util::sync::CancellationToken;

pub fn ablate(cli: &Cli, args: &AblateArgs) -> Result<u8, Fault> {
    if args.study == "estimators" {
        return estimators(args);
    }
    // A simulated world needs no configuration.
    let config = if args.workers == WorkerKind::SIM { Config::default() } else { cli.config(&args.endpoints)? };
    let request = request(args)?;
    let study = request.study()?;
    let runtime = runtime()?;
    let cluster = runtime.block_on(join(&args.cluster, Priority::High))?;
    let job = AblationJob::prepare(&config, &request, study, cluster.as_ref(), notices(args.quiet));
    let job = runtime.block_on(job)?;
    let runs = StudyRuns {
        rows: &args.rows,
        device: args.endpoints.device.map_or(DeviceChoice::Cpu, Into::into),
        threads: args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
    };
    let bar = bar(args.quiet);
    let rows = job.run(&runs, &CancellationToken::new(), |row: &StudyRow, done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
        bar.set_message(format!("{} {} {}: {:.3}", row.regime, row.arm, row.seed, row.after.reward));
    });
    bar.finish_and_clear();
    runtime.block_on(leave(cluster))?;
    let rows = rows?;
    let Some(report) = &args.report else { return println(&args.rows.display().to_string()) };
    let pool = if args.pool { MixedRows::Allow } else { MixedRows::Refuse };
    let written = write(report, &rows, &command(args), pool).map_err(|error| match error {
        ReportError::File(error) => at(report, &error),
        ReportError::Mixed { .. } => Fault::new(error).hint("--pool lets them stand in one report"),
    })?;
    println(&written.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join("\n"))
}

fn request(args: &AblateArgs) -> Result<AblationRequest, Fault> {
    let recipe = args.recipe.as_ref().map(|file| recipe(&file.display().to_string()));
    Ok(AblationRequest {
        study: args.study.clone(),
        arms: args.arms.clone(),
        recipe: recipe.transpose()?,
        only: args.only.clone(),
        sweep: args.sweep.clone(),
        seeds: args.seeds,
        first_seed: args.first_seed,
        data: args.data.clone(),
        workers: args.workers,
        levels: args.replay.levels.clone(),
        samples: args.replay.samples.into(),
        on_miss: args.replay.on_miss.into(),
    })
}

fn bar(quiet: bool) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs · {msg} · {eta} left");
    let bar = ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    if quiet {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar
}

/// Bias and variance of every estimator: a table, to standard output or into a folder.
fn estimators(args: &AblateArgs) -> Result<u8, Fault> {
    let settings = LabSettings { groups: args.groups, seed: args.first_seed, ..LabSettings::default() };
    let names: Vec<&str> = args.arms.iter().map(String::as_str).collect();
    if let Some(name) = names.iter().find(|name| !ESTIMATORS.iter().any(|known| known.name == **name)) {
        let known: Vec<&str> = ESTIMATORS.iter().map(|known| known.name).collect();
        let fact = format!("there is no estimator `{name}`");
        return Err(Fault::new(fact).hint(format!("the estimators are {}", known.join(", "))));
    }
    let compared = compare(&settings, &names).map_err(Fault::new)?;
    let mut command = format!("lemon ablate estimators --groups {}", args.groups);
    if !names.is_empty() {
        command += &format!(" --arms {}", names.join(","));
    }
    let text = table(&compared, &settings, &command);
    let Some(folder) = &args.report else { return println(text.trim_end()) };
    let path = folder.join("estimators.md");
    std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, text)).map_err(|error| at(&path, &error))?;
    println(&path.display().to_string())
}

/// The command that makes the same again.
fn command(args: &AblateArgs) -> String {
    let mut command = format!("lemon ablate {}", args.study);
    if !args.arms.is_empty() {
        command += &format!(" --arms {}", args.arms.join(","));
    }
    if let Some(recipe) = &args.recipe {
        command += &format!(" --recipe {}", recipe.display());
    }
    if let Some(text) = &args.only {
        command += &format!(" --only \"{text}\"");
    }
    if let Some(sweep) = &args.sweep {
        command += &format!(" --sweep {sweep}");
    }
    if let Some(seeds) = args.seeds {
        command += &format!(" --seeds {seeds}");
    }
    if args.first_seed != 1 {
        command += &format!(" --first-seed {}", args.first_seed);
    }
    if args.workers != WorkerKind::SIM {
        command += &format!(" --workers {}", args.workers.name());
    }
    if args.data.is_some() {
        command += " --data DIR";
    }
    command + " --report DIR"
}

fn at(path: &Path, error: &std::io::Error) -> Fault {
    Fault::new(format!("{}: {error}", path.display()))
}
