//! `lemon teach`: pairs of tasks and specifications that a model can learn from.

use crate::args::policy::{AimName, TeachArgs, TeacherName};
use crate::args::{Cli, WorkerKind};
use crate::fault::{Fault, read_file};
use crate::{println, runtime, tell, to_json};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lemon_policy::pair::{self, Pair};
use lemon_rollout::{Case, Grader, RolloutEnv};
use lemon_sft::teach::search::Pooling;
use lemon_sft::teach::{self, SearchProgress, TeachContext};
use lemon_spec::{Language, Spec, diagnostic, validate};
use lemon_task::{SetName, Source, compose, load};
use lemon_train::build::{self, SPLITS};
use lemon_train::recipe::Prices;
use lemon_workers::{Config, Resolved, Simulation, WorkerFiles, WorkerSet};
use serde::Serialize;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What was made, as `--json` shows it.
#[derive(Debug, Default, Serialize)]
struct Summary {
    tasks: usize,
    pairs: usize,
    /// Mean reward, success and tokens of the pairs that were run.
    #[serde(skip_serializing_if = "Option::is_none")]
    reward: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    success: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<f64>,
    /// Of an endpoint: texts that were no teams, by what was wrong first.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    refused: BTreeMap<String, usize>,
    /// Of an endpoint: tasks for which it wrote nothing.
    silent: usize,
}

pub fn teach(cli: &Cli, args: &TeachArgs) -> Result<u8, Fault> {
    let config = cli.config(&args.endpoints)?;
    let runtime = runtime()?;
    let cancel = CancellationToken::new();
    runtime.spawn(super::run::cancel_on_signal(cancel.clone(), "what is made so far is written"));
    let cases = cases(args)?;
    let WorkerSet { backend, resolved, settings } = runtime.block_on(workers(args, &config, &cases))?;
    let language = resolved.language;
    let sandbox = match Grader::needs_sandbox(cases.iter().map(|case| &case.item)) {
        true => Some(super::grade::sandbox(args.unsafe_no_sandbox)?),
        false => None,
    };
    let mut env = RolloutEnv::new(backend, language.clone(), settings, Grader::new(sandbox));
    if args.workers.is_in_process() {
        env.weights = Prices::IN_PROCESS.weights();
    }
    let world = match args.workers {
        kind if kind == WorkerKind::SIM => super::eval::request::preset(args.world).as_str(),
        kind => kind.name(),
    };
    let world = Some(world.to_owned());
    let bar = ProgressBar::new(0).with_style(style());
    if args.quiet || args.teacher != TeacherName::Search {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let told = Cell::new(0);
    let tell = |tried: &SearchProgress| {
        bar.set_length(tried.of as u64);
        bar.set_position(tried.teams as u64);
        let (reward, success) = (tried.best.reward, 100.0 * tried.best.success);
        let best = format!("best: reward {reward:.3}, {success:.1} % right, {:.0} tokens", tried.best.tokens);
        // A bar is drawn on terminals only. Elsewhere every tenth is said.
        let tenth = 10 * tried.teams / tried.of.max(1);
        if bar.is_hidden() && !args.quiet && told.replace(tenth) < tenth {
            eprintln!("{}/{} teams · {best}", tried.teams, tried.of);
        }
        bar.set_message(best);
    };
    let watch: Option<&dyn Fn(&SearchProgress)> = Some(&tell);
    let lessons = TeachContext { env: &env, cases: &cases, world, seed: args.seed, cancel: &cancel, watch };
    if !args.quiet {
        eprintln!("{} tasks", cases.len());
    }
    let made = runtime.block_on(pairs(&config, args, &lessons));
    bar.finish_and_clear();
    let (pairs, mut summary) = made?;
    let pairs = pair::dedupe(pairs);
    let at = |error: std::io::Error| Fault::new(format!("{}: {error}", args.out.display()));
    if let Some(folder) = args.out.parent() {
        std::fs::create_dir_all(folder).map_err(at)?;
    }
    pair::write(&pairs, BufWriter::new(std::fs::File::create(&args.out).map_err(at)?)).map_err(at)?;
    summary.describe(cases.len(), &pairs);
    if args.json {
        return println(&to_json(&summary));
    }
    if !args.quiet {
        eprintln!("{}", summary.in_words());
    }
    println(&args.out.display().to_string())
}

/// The team of a file, with the ids and the order of references that models learn.
fn given_team(path: &Path, language: &Language) -> Result<Spec, Fault> {
    let text = read_file(path)?;
    let plan = validate(&text, language).map_err(|rejection| {
        let faults = diagnostic::explain(&rejection.diagnostics, &text, &path.display().to_string(), false);
        Fault::new(format!("the team is not valid\n{}", faults.trim_end()))
    })?;
    Ok(pair::canonical_ids(plan.spec()))
}

fn style() -> ProgressStyle {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} teams · {msg} · {eta} left");
    style.unwrap_or_else(|_| ProgressStyle::default_bar())
}

async fn pairs(config: &Config, args: &TeachArgs, lessons: &TeachContext<'_>) -> Result<(Vec<Pair>, Summary), Fault> {
    let fault = super::eval::fault;
    match args.teacher {
        TeacherName::Rules => {
            let aim = match args.aim {
                AimName::Thrift => teach::rules::Aim::Thrift,
                AimName::Reward => teach::rules::Aim::Reward,
            };
            let mut pairs = teach::rules::teach(
                lessons,
                &teach::rules::RulesSettings { aim, runs: args.runs, ..Default::default() },
            )
            .await
            .map_err(fault)?;
            let language = &lessons.env.language;
            pairs.extend(teach::rules::everyday(args.everyday, language, args.seed));
            Ok((pairs, Summary::default()))
        }
        TeacherName::Search => {
            let language = &lessons.env.language;
            let team = args.team.as_deref().map(|path| given_team(path, language)).transpose()?;
            let settings = teach::search::TeamSearchSettings {
                team,
                pooling: if args.one_for_all { Pooling::Kind } else { Pooling::Cluster },
                teams: args.teams,
                drawn: args.drawn,
                challengers: args.challengers,
                most_agents: args.most_agents.into(),
                two_rounds: args.two_rounds,
                runs: args.search_runs,
                lesson_runs: args.runs,
                ..Default::default()
            };
            let pairs = teach::search::teach(lessons, &settings).await.map_err(fault)?;
            Ok((pairs, Summary::default()))
        }
        TeacherName::Endpoint => {
            let language = &lessons.env.language;
            let mut resolved = Resolved::new(config, Some(WorkerKind::ENDPOINTS), &[], tell(args.quiet)).await?;
            resolved.language = language.clone();
            let (backend, _) = resolved.backend(&WorkerFiles::default())?;
            let level = language.capacities.len().saturating_sub(1);
            let structured = config.orchestrator.structured.unwrap_or(true);
            let settings =
                teach::endpoint::EndpointTeacherSettings { level, structured, runs: args.runs, ..Default::default() };
            let asked = teach::endpoint::teach(lessons, &backend, &settings).await.map_err(fault)?;
            let refused = asked.refused.iter().map(|(code, count)| (code.as_str().to_owned(), *count)).collect();
            if let (Some(failure), true) = (&asked.failure, asked.pairs.is_empty()) {
                return Err(Fault::new(format!("no team was written: {}", failure.message))
                    .hint("`lemon doctor` says what is wrong with an endpoint"));
            }
            Ok((asked.pairs, Summary { refused, silent: asked.silent, ..Summary::default() }))
        }
        TeacherName::Broad => {
            let settings = teach::broad::BroadSettings { runs: args.runs, ..Default::default() };
            let pairs = teach::broad::teach(lessons, &settings).await.map_err(fault)?;
            Ok((pairs, Summary::default()))
        }
    }
}

/// The workers of the teams that are tried.
async fn workers(args: &TeachArgs, config: &Config, cases: &[Case]) -> Result<WorkerSet, Fault> {
    if args.workers == WorkerKind::RECORDED {
        let fact = "recorded replies answer one agent, not a team";
        return Err(Fault::new(fact).hint("use --workers sim, local or bundled"));
    }
    let questions: Vec<&str> = cases.iter().map(|case| case.item.task.question.as_str()).collect();
    let simulation = || {
        Ok(Simulation {
            preset: super::eval::request::preset(args.world),
            items: cases.iter().map(|case| &case.item).collect(),
            ..Simulation::default()
        })
    };
    let mut set = WorkerSet::new(config, args.workers, &questions, None, simulation, tell(args.quiet)).await?;
    if !args.workers.asks_models() {
        // Lessons name the capacities and roles of this installation.
        set.resolved.language = Arc::new(config.language()?);
    }
    Ok(set)
}

/// The tasks: of our own, or the first of the split of each set that teachers use.
fn cases(args: &TeachArgs) -> Result<Vec<Case>, Fault> {
    let all = || match args.data {
        // The variant of HumanEval asks the same tasks once more.
        None => SetName::PUBLIC.into_iter().filter(|set| *set != SetName::HumanEvalPy).collect(),
        Some(_) => SPLITS.map(|(set, _)| set).to_vec(),
    };
    let (sets, mut cases) = match args.problems {
        Some(count) => {
            (Vec::new(), build::problems(count, 0, args.problem_steps, args.data.as_deref()).map_err(Fault::new)?.train)
        }
        None => (if args.sets.is_empty() { all() } else { args.sets.clone() }, Vec::new()),
    };
    for set in sets {
        let (items, origin) = match &args.data {
            None => (compose(set, args.count, args.seed), "own"),
            Some(folder) => {
                let Some((_, split)) = SPLITS.iter().find(|(known, _)| *known == set) else {
                    return Err(Fault::new(format!("{} has only a test split, which is for measuring", set.as_str()))
                        .hint("leave it out, or leave --data out for tasks of our own"));
                };
                let loaded = load(&Source::Folder(folder.clone()), set, split).map_err(Fault::new)?;
                (loaded.items.into_iter().take(args.count).collect(), *split)
            }
        };
        let name: Arc<str> = format!("{}/{origin}", set.as_str()).into();
        cases.extend(items.into_iter().map(|item| Case { set: name.clone(), item }));
    }
    if cases.is_empty() {
        return Err(Fault::new("there are no tasks").hint("name sets with --set, and how many with --count"));
    }
    Ok(cases)
}

impl Summary {
    fn describe(&mut self, tasks: usize, pairs: &[Pair]) {
        let mean = |of: fn(&Pair) -> Option<f64>| {
            let values: Vec<f64> = pairs.iter().filter_map(of).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        (self.tasks, self.pairs) = (tasks, pairs.len());
        self.reward = mean(|pair| pair.reward);
        self.success = mean(|pair| pair.success);
        self.tokens = mean(|pair| pair.tokens);
    }

    fn in_words(&self) -> String {
        let mut text = format!("{} pairs for {} tasks", self.pairs, self.tasks);
        if let (Some(reward), Some(success), Some(tokens)) = (self.reward, self.success, self.tokens) {
            text += &format!(": reward {reward:.3}, {:.1} % right, {tokens:.0} tokens a run", 100.0 * success);
        }
        for (code, count) in &self.refused {
            text += &format!("\n{count} texts were no teams: {code}");
        }
        if self.silent > 0 {
            text += &format!("\n{} tasks got no text at all", self.silent);
        }
        text
    }
}
