//! `lemon ablate`: ways to train, compared.

use super::train::recipe;
use crate::args::train::AblateArgs;
use crate::args::{Cli, WorkerKind};
use crate::fault::Fault;
use crate::{println, runtime, tell};
use indicatif::{ProgressBar, ProgressStyle};
use lemon_exec::{Backend, Settings};
use lemon_spec::Language;
use lemon_study::arms::{ARMS, Arm};
use lemon_study::run::{Study, StudyError, run};
use lemon_study::{named, write};
use lemon_workers::{Resolved, RunLimits, WorkerFiles, bundled};
use std::path::Path;
use tokio_util::sync::CancellationToken;

pub fn ablate(cli: &Cli, args: &AblateArgs) -> Result<u8, Fault> {
    let mut study = study(args)?;
    let runtime = runtime()?;
    study.workers = runtime.block_on(workers(cli, args))?;
    if !args.arms.is_empty() {
        study.arms = args.arms.iter().map(|name| arm(name)).collect::<Result<_, _>>()?;
    }
    if let Some(text) = &args.only {
        let names: Vec<String> = study.regimes.iter().map(|regime| regime.name.clone()).collect();
        study.regimes.retain(|regime| regime.name.contains(text));
        if study.regimes.is_empty() {
            let fact = format!("no regime of the study `{}` has a name with `{text}`", args.study);
            return Err(Fault::new(fact).hint(format!("its regimes are {}", names.join("; "))));
        }
    }
    if let Some(file) = &args.recipe {
        let own = recipe(&file.display().to_string())?;
        study.regimes.iter_mut().for_each(|regime| regime.recipe = own.clone());
    }
    if let Some(count) = args.seeds {
        study.seeds = (0..count).map(|seed| args.first_seed + seed).collect();
    }
    let cancel = CancellationToken::new();
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let scratch = args.rows.with_extension("runs");
    if let Some(folder) = args.rows.parent() {
        std::fs::create_dir_all(folder).map_err(|error| Fault::new(format!("{}: {error}", folder.display())))?;
    }
    let style = "{bar:30} {pos}/{len} runs · {msg} · {eta} left";
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
    if args.quiet {
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    }
    let files = (args.rows.as_path(), scratch.as_path());
    let rows = run(
        &study,
        bundled::orchestrator(&[]).files()?,
        args.device.into(),
        files,
        threads,
        &cancel,
        |row, done, total| {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
            bar.set_message(format!("{} {} {}: {:.3}", row.regime, row.arm, row.seed, row.after.reward));
        },
    );
    bar.finish_and_clear();
    let rows = rows.map_err(|error: StudyError| {
        Fault::new(error).hint("what ended is in the file of runs; the same command goes on with the rest")
    })?;
    // What runs leave behind is made again from their seeds.
    drop(std::fs::remove_dir_all(&scratch));
    let Some(report) = &args.report else { return println(&args.rows.display().to_string()) };
    let written = write(report, &rows, &command(args)).map_err(|error| at(report, &error))?;
    println(&written.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join("\n"))
}

fn study(args: &AblateArgs) -> Result<Study, Fault> {
    named(&args.study, args.data.as_deref()).ok_or_else(|| {
        Fault::new(format!("there is no study `{}`", args.study)).hint("the studies are table, map, language and stop")
    })
}

/// The workers, if not a simulated world.
async fn workers(cli: &Cli, args: &AblateArgs) -> Result<Option<(Backend, Settings)>, Fault> {
    if args.workers == WorkerKind::RECORDED {
        return Err(
            Fault::new("recorded replies cannot answer the teams of a study").hint("use another kind of workers")
        );
    }
    if !args.workers.asks_models() {
        return Ok(None);
    }
    let config = cli.config(&args.endpoints)?;
    let resolved = Resolved::new(&config, Some(args.workers), &[], tell(args.quiet)).await?;
    let (found, expected) = (&resolved.language.capacities, Language::default().capacities);
    if *found != expected {
        let fact = format!("a study needs the capacities {}, got {}", expected.join(", "), found.join(", "));
        return Err(Fault::new(fact).hint("rename them in lemon.toml"));
    }
    let (backend, _) = resolved.backend(&WorkerFiles::default())?;
    Ok(Some((backend, resolved.settings(&RunLimits::default())?)))
}

fn arm(name: &str) -> Result<Arm, Fault> {
    Arm::named(name).ok_or_else(|| {
        let known: Vec<&str> = ARMS.iter().map(|arm| arm.name).collect();
        Fault::new(format!("there is no arm `{name}`")).hint(format!("the arms are {}", known.join(", ")))
    })
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
