//! `lemon ablate`: ways to train, compared.

use super::train::recipe;
use crate::args::train::AblateArgs;
use crate::args::{Cli, OnMissArg, WorkerKind};
use crate::commands::cluster::{join, leave};
use crate::fault::Fault;
use crate::{println, runtime, tell};
use indicatif::{ProgressBar, ProgressStyle};
use lemon::jobs::cluster::WorkerCluster;
use lemon::jobs::training::recorded_cases;
use lemon_cluster::Priority;
use lemon_model::DeviceChoice;
use lemon_rollout::{Grader, RolloutEnv};
use lemon_spec::Language;
use lemon_study::arms::{ARMS, Arm};
use lemon_study::estimators::table;
use lemon_study::run::{Regime, Study, StudyError, StudyWorkers, run};
use lemon_study::{MixedRows, ReportError, named, write};
use lemon_task::SetName;
use lemon_train::estimators::{ESTIMATORS, LabSettings, compare};
use lemon_workers::{
    OnMiss, Resolved, RunLimits, Simulation, WorkerFiles, WorkerRecipe, WorkerSet, bundled, recordings,
};
use lemon_world::Preset;
use std::path::Path;
use tokio_util::sync::CancellationToken;

pub fn ablate(cli: &Cli, args: &AblateArgs) -> Result<u8, Fault> {
    if args.study == "estimators" {
        return estimators(args);
    }
    let mut study = study(args)?;
    study.commit = commit();
    let runtime = runtime()?;
    if !args.arms.is_empty() {
        study.arms = args.arms.iter().map(|name| arm(name)).collect::<Result<_, _>>()?;
    }
    if let Some(file) = &args.recipe {
        let hint = "leave `--recipe` out, or use the study `table` with `--sweep KEY=VALUE,…`";
        study.use_recipe(recipe(&file.display().to_string())?).map_err(|error| Fault::new(error).hint(hint))?;
    }
    if let Some(text) = &args.only {
        let names: Vec<String> = study.regimes.iter().map(|regime| regime.name.clone()).collect();
        study.regimes.retain(|regime| regime.name.contains(text));
        if study.regimes.is_empty() {
            let fact = format!("no regime of the study `{}` has a name with `{text}`", args.study);
            return Err(Fault::new(fact).hint(format!("its regimes are {}", names.join("; "))));
        }
    }
    if let Some(sweep) = &args.sweep {
        study.regimes = swept(&study.regimes, sweep)?;
    }
    if let Some(count) = args.seeds {
        study.seeds = (0..count).map(|seed| args.first_seed + seed).collect();
    }
    let mut sets: Vec<SetName> = Vec::new();
    for set in study.regimes.iter().flat_map(|regime| &regime.recipe.tasks.sets) {
        if !sets.contains(set) {
            sets.push(*set);
        }
    }
    let cluster = runtime.block_on(join(&args.cluster, Priority::High))?;
    study.workers = runtime.block_on(workers(cli, args, &sets, cluster.as_ref()))?;
    if cluster.is_some() && study.workers.as_ref().is_none_or(|workers| workers.remote.is_none()) {
        return Err(Fault::new("these workers compute nothing that a cluster could share")
            .hint("leave --cluster out, or use --workers endpoints or local"));
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
        args.endpoints.device.map_or(DeviceChoice::Cpu, Into::into),
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
    runtime.block_on(leave(cluster))?;
    let rows = rows.map_err(|error: StudyError| {
        Fault::new(error).hint("what ended is in the file of runs; the same command goes on with the rest")
    })?;
    // What runs leave behind is made again from their seeds.
    drop(std::fs::remove_dir_all(&scratch));
    let Some(report) = &args.report else { return println(&args.rows.display().to_string()) };
    let pool = if args.pool { MixedRows::Allow } else { MixedRows::Refuse };
    let written = write(report, &rows, &command(args), pool).map_err(|error| match error {
        ReportError::File(error) => at(report, &error),
        ReportError::Mixed { .. } => Fault::new(error).hint("--pool lets them stand in one report"),
    })?;
    println(&written.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join("\n"))
}

fn study(args: &AblateArgs) -> Result<Study, Fault> {
    named(&args.study, args.data.as_deref()).ok_or_else(|| {
        Fault::new(format!("there is no study `{}`", args.study))
            .hint("the studies are demo, table, map, language, stop and estimators")
    })
}

/// What the build is known by: its commit, where the build was told (`LEMON_COMMIT`), else a hash of the program.
fn commit() -> String {
    if let Some(commit) = option_env!("LEMON_COMMIT") {
        return commit.to_owned();
    }
    let program = std::env::current_exe().and_then(std::fs::read);
    // A program that cannot be read is of no known build, which a report says.
    program.map_or_else(|_| "unknown".to_owned(), |bytes| format!("build-{:016x}", lemon_num::fnv1a(bytes)))
}

/// Each regime with each of the values of a key of its recipe.
fn swept(regimes: &[Regime], sweep: &str) -> Result<Vec<Regime>, Fault> {
    let expected =
        || Fault::new(format!("expected KEY=VALUE,…, got `{sweep}`")).hint("--sweep update.learning_rate=0.1,0.3");
    let (key, values) = sweep.split_once('=').ok_or_else(expected)?;
    let mut all = Vec::new();
    for regime in regimes {
        for value in values.split(',') {
            let mut table = toml::Table::try_from(&regime.recipe).map_err(Fault::new)?;
            set(&mut table, key, value).ok_or_else(expected)?;
            let recipe = table.try_into().map_err(|error| Fault::new(format!("{key} = {value}: {error}")))?;
            let name = format!("{} {key}={value}", regime.name).trim().to_owned();
            all.push(Regime { name, recipe, choices: regime.choices });
        }
    }
    Ok(all)
}

/// Sets a key of a table by its path.
fn set(table: &mut toml::Table, key: &str, value: &str) -> Option<()> {
    // One value of TOML: a number, a word in quotes, or a word without.
    let value = value.parse::<toml::Value>().unwrap_or_else(|_| toml::Value::String(value.to_owned()));
    match key.split_once('.') {
        None => {
            table.insert(key.to_owned(), value);
        }
        Some((part, rest)) => {
            let part = table.entry(part).or_insert_with(|| toml::Table::new().into()).as_table_mut()?;
            return set(part, rest, &value.to_string());
        }
    }
    Some(())
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

/// The workers, if not a simulated world.
async fn workers(
    cli: &Cli,
    args: &AblateArgs,
    sets: &[SetName],
    cluster: Option<&WorkerCluster>,
) -> Result<Option<StudyWorkers>, Fault> {
    if args.workers == WorkerKind::RECORDED {
        return recorded(cli, args, sets).await.map(Some);
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
    let (settings, language) = (resolved.settings(&RunLimits::default())?, resolved.language.clone());
    let mut remote = None;
    if let Some(cluster) = cluster {
        let recipe = WorkerRecipe::new(&config, &resolved, None, || Ok(Simulation::default()))?;
        let mut env = RolloutEnv::new(backend.clone(), language.clone(), settings.clone(), Grader::new(None));
        cluster.take(&mut env, recipe, &[]).await?;
        remote = env.remote;
    }
    Ok(Some(StudyWorkers { backend, settings, language, tasks: None, remote }))
}

/// Recorded replies: the tasks of every seed are drawn from those on record.
async fn recorded(cli: &Cli, args: &AblateArgs, sets: &[SetName]) -> Result<StudyWorkers, Fault> {
    let recordings = recordings(args.data.as_deref(), sets, &args.replay.levels, tell(args.quiet))?;
    let tasks = recorded_cases(args.data.as_deref(), sets, &recordings)?;
    let simulation = || {
        Ok(Simulation {
            preset: Preset::Real,
            items: tasks.train.iter().chain(&tasks.held_out).map(|case| &case.item).collect(),
            recordings: Some(recordings.clone()),
            pool: args.replay.samples.into(),
            on_miss: if args.replay.on_miss == OnMissArg::Sim { OnMiss::Simulate } else { OnMiss::Fail },
            ..Simulation::default()
        })
    };
    let config = cli.config(&args.endpoints)?;
    let set = WorkerSet::new(&config, args.workers, &[], None, simulation, tell(args.quiet)).await?;
    let WorkerSet { backend, resolved, settings } = set;
    Ok(StudyWorkers { backend, settings, language: resolved.language.clone(), tasks: Some(tasks), remote: None })
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
