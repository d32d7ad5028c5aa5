//! `lemon critic`: fit a critic of decisions to recorded replies, and test it.

use crate::args::critic::{CriticCommand, CriticEvalArgs, CriticFitArgs, CriticSets, HeadArgs};
use crate::commands::sft::pairs;
use crate::fault::Fault;
use crate::say::talk;
use crate::{print, print_json, println, tell};
use lemon_critic::{
    CriticError, CriticSettings, DecisionCritic, EvaluationSettings, HeadTrial, LEVELS, cross_validate, evaluate,
    evaluate_critic, fit_critic, fit_head, load_head,
};
use lemon_model::ValueModel;
use lemon_policy::{HeadSettings, TeamHead};
use lemon_spec::Language;
use lemon_task::SetName;
use lemon_workers::{BUNDLED_FOR, CriticTasks, bundled_critic, critic_tasks, recordings};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

pub fn critic(command: &CriticCommand) -> Result<u8, Fault> {
    match command {
        CriticCommand::Fit(args) => fit(args),
        CriticCommand::Eval(args) => eval(args),
    }
}

fn tasks(data: &Path, sets: &CriticSets) -> Result<CriticTasks, Fault> {
    let sets = sets.sets.iter().map(|name| name.parse()).collect::<Result<Vec<SetName>, _>>().map_err(Fault::new)?;
    let recordings = recordings(Some(data), &sets, &LEVELS.map(str::to_owned), tell(true))?;
    Ok(critic_tasks(data, &sets, &recordings)?)
}

fn head(args: &HeadArgs, seed: u64) -> Result<Option<HeadTrial>, Fault> {
    let Some(model) = args.on.clone() else { return Ok(None) };
    let (epochs, learning_rate) = (args.epochs, args.learning_rate);
    if epochs == 0 || !(learning_rate > 0.0 && learning_rate < 1.0) {
        let fact =
            format!("expected a pass or more and a learning rate between 0 and 1, got {epochs} and {learning_rate}");
        return Err(Fault::new(fact).hint("for instance --epochs 4 --learning-rate 0.0005"));
    }
    let settings = HeadSettings { epochs, learning_rate, seed, ..HeadSettings::default() };
    Ok(Some(HeadTrial { model, frozen: args.frozen, settings }))
}

/// A head on teams that were run.
fn fit_pairs(path: &Path, trial: &HeadTrial) -> Result<TeamHead, Fault> {
    let language = Arc::new(Language::default());
    let pairs = pairs(path, &language)?;
    let model = ValueModel::load(&trial.model, trial.learning()).map_err(Fault::new)?;
    let mut head = TeamHead::new(model, language);
    let tasks = head.tasks_of(&pairs).map_err(Fault::new)?;
    if tasks.is_empty() {
        let fact = format!("{}: expected pairs with figures, found none", path.display());
        return Err(Fault::new(fact).hint("`lemon teach` with --runs above 0 runs every team"));
    }
    head.fit(&tasks, &trial.settings, &mut talk).map_err(Fault::new)?;
    Ok(head)
}

/// Writes a head and says what came of it.
fn leave(args: &CriticFitArgs, trial: &HeadTrial, head: &TeamHead) -> Result<u8, Fault> {
    head.save(&args.out).map_err(Fault::new)?;
    let (out, model, report) = (args.out.display(), trial.model.display(), head.report());
    let (tasks, others, loss, mean) = (report.tasks, report.held_out, report.log_loss, report.log_loss_of_mean);
    println(&format!(
        "{out}: a head on {model} fitted to {tasks} tasks; on {others} others: log-loss {loss:.4}, of one probability for \
         all {mean:.4}"
    ))
}

fn fit(args: &CriticFitArgs) -> Result<u8, Fault> {
    let trial = head(&args.head, args.seed)?;
    if let (Some(pairs), Some(trial)) = (&args.pairs, &trial) {
        return leave(args, trial, &fit_pairs(pairs, trial)?);
    }
    // The command line has the one or the other.
    let mut tasks = tasks(args.data.as_deref().unwrap_or(Path::new("")), &args.sets)?;
    if args.all {
        tasks.train.append(&mut tasks.held_out);
    }
    if let Some(trial) = &trial {
        let head = fit_head(&tasks.train, trial, &mut talk).map_err(no_record)?;
        return leave(args, trial, &head);
    }
    let settings = CriticSettings { seed: args.seed, ..CriticSettings::default() };
    let critic = fit_critic(&tasks.train, &settings).map_err(no_record)?.for_model(args.model.clone());
    critic.save(&args.out).map_err(Fault::new)?;
    println(&format!("{}: a critic fitted to {} tasks", args.out.display(), critic.tasks()))
}

fn eval(args: &CriticEvalArgs) -> Result<u8, Fault> {
    if let Some(price) = args.prices.iter().find(|price| !price.is_finite() || **price < 0.0) {
        return Err(Fault::new(format!("a price must be at least 0, got {price}"))
            .hint("give the reward that 1,000 tokens are worth, where a right answer is 1; for instance 0.1"));
    }
    let tasks = tasks(&args.data, &args.sets)?;
    let (guard, hide_sure) = (args.guard, args.hide_sure);
    let mut settings =
        EvaluationSettings { rounds: args.rounds.max(1), guard, hide_sure, ..EvaluationSettings::default() };
    settings.seeds = (1..=args.seeds.max(1)).collect();
    if !args.prices.is_empty() {
        settings.prices.clone_from(&args.prices);
    }
    let found = match (&args.critic, args.cross) {
        (Some(path), _) => {
            let critic = match path.to_str() {
                Some("bundled") => bundled_critic(BUNDLED_FOR)?,
                _ => DecisionCritic::load(path).map_err(Fault::new)?,
            };
            let unseen = "every recorded test item is one that this critic was fitted to; name a folder with others";
            evaluate_critic(&critic, &tasks.test(), &settings).map_err(|error| Fault::new(error).hint(unseen))
        }
        (None, Some(parts)) => cross_validate(&tasks.train, parts, &settings).map_err(no_record),
        (None, None) => {
            let heads = args.head.iter().map(|folder| load_head(folder)).collect::<Result<Vec<_>, _>>();
            let heads = heads
                .map_err(|error| Fault::new(error).hint("`lemon critic fit --on MODEL --out DIR` makes a head"))?;
            evaluate(&tasks.train, &tasks.held_out, &settings, &heads).map_err(no_record)
        }
    }?;
    if let Some(path) = &args.rows {
        std::fs::write(path, found.rows()).map_err(|error| Fault::new(format!("{}: {error}", path.display())))?;
    }
    let (matched, best) = found.paired();
    match args.json {
        true => {
            let (sets, sizes) = (found.sets(), found.tasks());
            print_json(&json!({
                "sets": sets, "tasks": sizes, "curve": found.curve(), "matched": matched, "against_best": best,
            }))
        }
        false => print(&found.markdown()),
    }
}

fn no_record(error: CriticError) -> Fault {
    if let CriticError::Model(_) = error {
        return Fault::new(error).hint("--on names a folder with config.json, model.safetensors and tokenizer.json");
    }
    Fault::new(error).hint("--data names a folder of task sets with recorded replies in outcomes/")
}
