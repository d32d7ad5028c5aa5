//! `lemon train`: reinforcement learning by a recipe.

use crate::args::Cli;
use crate::args::train::TrainArgs;
use crate::commands::cluster::{join, leave};
use crate::fault::{Fault, read_file};
use crate::live::train::TrainView;
use crate::{notices, print_json, println, runtime};
use lemon::jobs::training::{TrainJob, TrainRequest, check_begun};
use lemon_cluster::Priority;
use lemon_exec::SharedBudget;
use lemon_exec::store::Store;
use lemon_model::DeviceChoice;
use lemon_train::build::Tasks;
use lemon_train::by_recipe::{RecipeError, RecipeTrainingError, TrainProgress, timings};
use lemon_train::metrics::Timing;
use lemon_train::recipe::Recipe;
use lemon_train::{End, Trained};
use lemon_workers::{Config, SharedLimits};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub fn train_command(cli: &Cli, args: &TrainArgs) -> Result<u8, Fault> {
    let config = cli.config(&args.endpoints)?;
    let mut recipe = recipe(&args.recipe)?;
    recipe.seed = args.seed.unwrap_or(recipe.seed);
    recipe.steps = args.steps.unwrap_or(recipe.steps);
    recipe.lora = args.lora.or(recipe.lora);
    recipe.worker_tokens = args.worker_tokens.or(recipe.worker_tokens);
    super::training_folder::open(&args.out)?;
    check_begun(&args.out, args.resume)?;
    let runtime = runtime()?;
    let cancel = CancellationToken::new();
    runtime.spawn(super::run::cancel_on_signal(cancel.clone(), "what is learned so far is kept; --resume goes on"));
    // Ended by the user, or by the budget.
    runtime.block_on(learn(cli, args, &config, recipe, &cancel.child_token()))
}

/// A recipe by its name, or from a file.
pub fn recipe(name: &str) -> Result<Recipe, Fault> {
    Recipe::find(name).map_err(|error| match error {
        RecipeError::Unknown(_) => {
            Fault::new(error).hint("`quick`, `language` and `full` come with this program; or name a TOML file")
        }
        // Reading it again says what kind of file it is.
        RecipeError::File { ref path, .. } => read_file(path).err().unwrap_or_else(|| Fault::new(error)),
        RecipeError::Text { .. } => Fault::new(error),
    })
}

async fn learn(
    cli: &Cli,
    args: &TrainArgs,
    config: &Config,
    recipe: Recipe,
    cancel: &CancellationToken,
) -> Result<u8, Fault> {
    let steps = recipe.steps;
    let request = TrainRequest {
        recipe,
        folder: args.out.clone(),
        workers: args.workers,
        data: args.data.clone(),
        levels: args.replay.levels.clone(),
        samples: args.replay.samples.into(),
        on_miss: args.replay.on_miss.into(),
        together: SharedLimits { tokens: args.budget_tokens, usd: args.budget_usd },
        device: args.endpoints.device.map_or(DeviceChoice::Auto, Into::into),
    };
    let mut view = TrainView::new(steps, args.quiet);
    let notices = notices(args.quiet);
    let found = request.tasks(notices)?;
    let Tasks { train, held_out } = &found.tasks;
    view.say(&format!("{} tasks to train on, {} held out", train.len(), held_out.len()));
    let store = || Ok(Arc::new(Store::open(&config.store_path(cli.store.as_deref()), config.store.sync)?));
    let mut job = TrainJob::prepare(config, &request, found, notices, cancel, store).await?;
    let cluster = join(&args.cluster, Priority::High).await?;
    if let Some(cluster) = &cluster {
        job.on_cluster(config, cluster).await?;
    }
    if let Some(outlook) = job.outlook() {
        view.say(&outlook);
    }
    let shared = job.shared.clone();
    let trained = job.train(|progress| {
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
    leave(cluster).await?;
    close(shared.as_ref())?;
    let undone = match &trained {
        Err(RecipeTrainingError::InWarmStart) => Some("the warm start is not done".to_owned()),
        Ok(trained) if trained.end == End::Stopped => Some(format!("{} of {} steps are taken", trained.steps, steps)),
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
pub fn close(shared: Option<&Arc<SharedBudget>>) -> Result<(), Fault> {
    let closed = shared.map_or(Ok(()), |shared| shared.close());
    closed.map_err(|error| Fault::new(format!("what was spent cannot be kept: {error}")))
}

fn out_of_budget(args: &TrainArgs, shared: Option<&Arc<SharedBudget>>, undone: &str) -> Option<Fault> {
    let way_on = format!("go on with `lemon train --out {} --resume", args.out.display());
    lemon_workers::ended(shared, undone, &way_on).map(Fault::from)
}

/// Says what came of it.
fn tell_of(args: &TrainArgs, trained: &Trained) -> Result<u8, Fault> {
    if args.json {
        print_json(trained)?;
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
