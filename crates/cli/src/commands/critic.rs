//! `lemon critic`: fit a critic of decisions to recorded replies, and test it.

use crate::args::critic::{CriticCommand, CriticData, CriticEvalArgs, CriticFitArgs};
use crate::fault::Fault;
use crate::{print, print_json, println, tell};
use lemon_critic::{
    CriticSettings, DecisionCritic, EvaluationSettings, LEVELS, cross_validate, evaluate, evaluate_critic, fit_critic,
};
use lemon_task::SetName;
use lemon_workers::{BUNDLED_FOR, CriticTasks, bundled_critic, critic_tasks, recordings};
use serde_json::json;

pub fn critic(command: &CriticCommand) -> Result<u8, Fault> {
    match command {
        CriticCommand::Fit(args) => fit(args),
        CriticCommand::Eval(args) => eval(args),
    }
}

fn tasks(data: &CriticData) -> Result<CriticTasks, Fault> {
    let sets = data.sets.iter().map(|name| name.parse()).collect::<Result<Vec<SetName>, _>>().map_err(Fault::new)?;
    let recordings = recordings(Some(&data.data), &sets, &LEVELS.map(str::to_owned), tell(true))?;
    Ok(critic_tasks(&data.data, &sets, &recordings)?)
}

fn fit(args: &CriticFitArgs) -> Result<u8, Fault> {
    let mut tasks = tasks(&args.data)?;
    if args.all {
        tasks.train.append(&mut tasks.held_out);
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
    let tasks = tasks(&args.data)?;
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
        (None, None) => evaluate(&tasks.train, &tasks.held_out, &settings).map_err(no_record),
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

fn no_record(error: lemon_critic::CriticError) -> Fault {
    Fault::new(error).hint("--data names a folder of task sets with recorded replies in outcomes/")
}
