//! `lemon train`: reinforcement learning by a recipe.

use crate::args::train::TrainArgs;
use crate::args::{Cli, OnMissArg, WorkerKind};
use crate::fault::{Fault, read_file};
use crate::live::train::TrainView;
use crate::{println, runtime, tell, to_json};
use lemon_exec::{Backend, Forecast, LIKELY_REPLY, SharedBudget};
use lemon_model::DeviceChoice;
use lemon_rollout::{Case, Grader};
use lemon_spec::{Language, validate};
use lemon_task::Item;
use lemon_train::build::{self, Tasks};
use lemon_train::by_recipe::{RecipeError, RecipeTraining, RecipeTrainingError, TrainProgress, timings};
use lemon_train::metrics::Timing;
use lemon_train::recipe::Recipe;
use lemon_train::{End, Trained};
use lemon_workers::{Config, OnMiss, SharedLimits, Simulation, WorkerSet, bundled, recorded_items, recordings};
use lemon_world::Recordings;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub fn train_command(cli: &Cli, args: &TrainArgs) -> Result<u8, Fault> {
    let config = cli.config(&args.endpoints)?;
    let mut recipe = recipe(&args.recipe)?;
    recipe.seed = args.seed.unwrap_or(recipe.seed);
    recipe.steps = args.steps.unwrap_or(recipe.steps);
    recipe.worker_tokens = args.worker_tokens.or(recipe.worker_tokens);
    folder(args)?;
    let runtime = runtime()?;
    let cancel = CancellationToken::new();
    runtime.spawn(super::run::cancel_on_signal(cancel.clone(), "what is learned so far is kept; --resume goes on"));
    // Ended by the user, or by the budget.
    runtime.block_on(learn(cli, args, &config, &recipe, &cancel.child_token()))
}

/// Where it is kept what a training may spend, and what it has.
const SPENDING: &str = "spending.json";

/// A recipe by its name, or from a file.
pub fn recipe(name: &str) -> Result<Recipe, Fault> {
    Recipe::find(name).map_err(|error| match error {
        RecipeError::Unknown(_) => {
            Fault::new(error).hint("`quick` and `full` come with this program; or name a TOML file")
        }
        // Reading it again says what kind of file it is.
        RecipeError::File { ref path, .. } => read_file(path).err().unwrap_or_else(|| Fault::new(error)),
        RecipeError::Text { .. } => Fault::new(error),
    })
}

/// A folder with a training in it is continued only with --resume.
fn folder(args: &TrainArgs) -> Result<(), Fault> {
    super::training_folder::open(&args.out)?;
    let begun = args.out.join("run.json").exists();
    match (begun, args.resume) {
        (true, false) => Err(Fault::new(format!("{} holds a training already", args.out.display()))
            .hint("--resume goes on with it; --out DIR begins another")),
        (false, true) if !args.out.join("warm").exists() => {
            Err(Fault::new(format!("{} holds no training", args.out.display())).hint("leave --resume out to begin one"))
        }
        _ => Ok(()),
    }
}

async fn learn(
    cli: &Cli,
    args: &TrainArgs,
    config: &Config,
    recipe: &Recipe,
    cancel: &CancellationToken,
) -> Result<u8, Fault> {
    let mut view = TrainView::new(recipe.steps, args.quiet);
    let recordings = match args.workers == WorkerKind::RECORDED {
        true => Some(recordings(args.data.as_deref(), &recipe.tasks.sets, &args.replay.levels, tell(args.quiet))?),
        false => None,
    };
    let tasks = match &recordings {
        Some(recordings) => recorded_tasks(args, recipe, recordings)?,
        None => build::tasks(&recipe.tasks, args.data.as_deref()).map_err(Fault::new)?,
    };
    view.say(&format!("{} tasks to train on, {} held out", tasks.train.len(), tasks.held_out.len()));
    let WorkerSet { backend, resolved, mut settings } =
        workers(args, config, recipe, &tasks, recordings.as_ref()).await?;
    let language = resolved.language.clone();
    let given = SharedLimits { tokens: args.budget_tokens, usd: args.budget_usd };
    let (together, shared) = given.kept_in(&args.out.join(SPENDING), resolved.capacities(), cancel)?;
    settings.shared = shared.clone();
    if args.workers.costs_money() {
        view.say(&outlook(recipe, &tasks, &backend, &language, &together));
    }
    let sandbox = match Grader::needs_sandbox(tasks.train.iter().chain(&tasks.held_out).map(|case| &case.item)) {
        true => Some(super::grade::sandbox(false)?),
        false => None,
    };
    let mut env = build::rollout_env(backend, language, Grader::new(sandbox), settings, cancel.clone());
    if args.workers.costs_money() {
        // Replies are paid for: those of a step that is taken again come from the store.
        env.store = Some(super::run::open_store(cli, config)?);
    }
    let training = RecipeTraining {
        recipe,
        tasks,
        env,
        taught_in_env: args.workers.asks_models(),
        bundled: bundled::orchestrator(resolved.capacities()).files()?,
        device: DeviceChoice::from(args.device),
        folder: &args.out,
    };
    let trained = training.train(|progress| {
        match progress {
            TrainProgress::WarmStart(metrics) => {
                if let Some(eval) = metrics.eval {
                    view.say(&format!("warm start, step {}: validation loss {:.3}", metrics.step, eval.loss));
                }
            }
            TrainProgress::Step(metrics, timing) => view.step(metrics, timing),
        }
        true
    });
    let trained = trained.await;
    view.finish();
    close(shared.as_ref())?;
    let undone = match &trained {
        Err(RecipeTrainingError::InWarmStart) => Some("the warm start is not done".to_owned()),
        Ok(trained) if trained.end == End::Stopped => {
            Some(format!("{} of {} steps are taken", trained.steps, recipe.steps))
        }
        _ => None,
    };
    let out_of_budget = undone.and_then(|undone| out_of_budget(args, shared.as_ref(), &undone));
    match (trained, out_of_budget) {
        (Ok(trained), None) => tell_of(args, &trained),
        (Ok(trained), Some(fault)) => {
            tell_of(args, &trained)?;
            Err(fault)
        }
        (Err(_), Some(fault)) => Err(fault),
        (Err(error), None) => Err(Fault { hint: error.hint().map(str::to_owned), ..Fault::new(&error) }),
    }
}

/// Puts on record what was spent, to the token.
fn close(shared: Option<&Arc<SharedBudget>>) -> Result<(), Fault> {
    let closed = shared.map_or(Ok(()), |shared| shared.close());
    closed.map_err(|error| Fault::new(format!("what was spent cannot be kept: {error}")))
}

fn out_of_budget(args: &TrainArgs, shared: Option<&Arc<SharedBudget>>, undone: &str) -> Option<Fault> {
    let way_on = format!("go on with `lemon train --out {} --resume", args.out.display());
    lemon_workers::ended(shared, undone, &way_on).map(Fault::from)
}

/// What training is likely to spend. The teams are not known yet: teams of two agents are assumed.
fn outlook(recipe: &Recipe, tasks: &Tasks, backend: &Backend, language: &Language, together: &SharedLimits) -> String {
    let Recipe { steps, rollouts, eval, .. } = recipe;
    let evaluations = (eval.first_seeds + eval.final_seeds).max(2)
        + steps.checked_div(eval.every).unwrap_or(0).saturating_mul(eval.seeds.max(1));
    let rolled_out = steps.saturating_mul((rollouts.tasks.max(1) * rollouts.group.max(1)) as u64);
    let runs = rolled_out.saturating_add(evaluations.saturating_mul(tasks.held_out.len() as u64));
    // A case without an estimate is left out of the mean.
    let of_two = |case: &Case| {
        let (weak, strong) = (language.capacities.first()?, language.capacities.last()?);
        let team = format!(
            "agents:\n  - {{id: a, base: solver, capacity: {weak}}}\n  - {{id: b, base: critic, capacity: {strong}, after: [a]}}\n"
        );
        let plan = validate(&team, language).ok()?;
        let judge = language.roles.get("judge")?.clone();
        Some(Forecast::new(&plan, &case.item.task.question, &backend.levels, judge).likely())
    };
    let sample: Vec<u64> = tasks.train.iter().take(50).filter_map(of_two).collect();
    let each = sample.iter().sum::<u64>() / sample.len().max(1) as u64;
    format!(
        "estimate: about {} tokens ({runs} runs × {each}, teams of two agents and replies of {LIKELY_REPLY} tokens); \
         there is no other bound than the budget: {}",
        runs.saturating_mul(each),
        together.in_words()
    )
}

/// Says what came of it.
fn tell_of(args: &TrainArgs, trained: &Trained) -> Result<u8, Fault> {
    if args.json {
        println(&to_json(trained))?;
        return Ok(u8::from(trained.end == End::Stopped));
    }
    if trained.end == End::Stopped {
        if !args.quiet {
            eprintln!("stopped after step {}; --resume goes on", trained.steps);
        }
        return Ok(1);
    }
    if !args.quiet {
        eprintln!("{}", in_words(trained, &timings(&args.out).map_err(Fault::new)?));
    }
    println(&args.out.join("report.html").display().to_string())
}

fn in_words(trained: &Trained, timings: &[Timing]) -> String {
    let (before, after) = (&trained.before, &trained.after);
    let share = 100.0 * trained.credit_tokens as f64 / (trained.rollout_tokens as f64).max(1.0);
    // Of nothing the sum is −0, which would be shown.
    let sum = |of: fn(&Timing) -> f64| timings.iter().map(of).sum::<f64>() + 0.0;
    format!(
        "held-out tasks: reward {:.3} → {:.3}, {:.1} % → {:.1} % right, {:.0} → {:.0} tokens a run\n\
         worker tokens: {} for rollouts, {} for counterfactuals ({share:.1} %)\n\
         seconds: {:.0} sampling, {:.0} running, {:.0} counterfactuals, {:.0} update, {:.0} other",
        before.reward,
        after.reward,
        100.0 * before.success,
        100.0 * after.success,
        before.tokens,
        after.tokens,
        trained.rollout_tokens,
        trained.credit_tokens,
        sum(|it| it.sampling),
        sum(|it| it.running),
        sum(|it| it.credit),
        sum(|it| it.update),
        sum(|it| it.other),
    )
}

/// The recorded items of the sets of a recipe, divided into those to train on and those held out.
fn recorded_tasks(args: &TrainArgs, recipe: &Recipe, recordings: &Recordings) -> Result<Tasks, Fault> {
    let data = args.data.as_deref().ok_or_else(|| Fault::new("recorded replies are read from a folder"))?;
    let parts = recorded_items(data, &recipe.tasks.sets, recordings)?;
    let cases = |items: Vec<(String, Item)>, most: usize| {
        // Spread over the whole: sets stand one after the other.
        let every = (items.len() / most.max(1)).max(1);
        let case = |(set, item): (String, Item)| Case { set: set.into(), item };
        items.into_iter().step_by(every).take(most).map(case).collect()
    };
    let sets = recipe.tasks.sets.len();
    Ok(Tasks {
        train: cases(parts.train, recipe.tasks.train * sets),
        held_out: cases(parts.held_out, recipe.tasks.held_out * sets),
    })
}

/// The workers, and how runs are carried out with them.
async fn workers(
    args: &TrainArgs,
    config: &Config,
    recipe: &Recipe,
    tasks: &Tasks,
    recordings: Option<&Arc<Recordings>>,
) -> Result<WorkerSet, Fault> {
    let cases = || tasks.train.iter().chain(&tasks.held_out);
    let questions: Vec<&str> = cases().map(|case| case.item.task.question.as_str()).collect();
    let simulation = || {
        Ok(Simulation {
            preset: recipe.tasks.world,
            items: cases().map(|case| &case.item).collect(),
            shared_noise: recipe.tasks.keep_noise,
            strict: false,
            recordings: recordings.cloned(),
            pool: args.replay.samples.into(),
            on_miss: if args.replay.on_miss == OnMissArg::Sim { OnMiss::Simulate } else { OnMiss::Fail },
        })
    };
    Ok(WorkerSet::new(config, args.workers, &questions, None, simulation, tell(args.quiet)).await?)
}
