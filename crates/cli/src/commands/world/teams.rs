//! `lemon world teams`: is one agent always best here?

use crate::args::WorldCommand;
use crate::commands::eval::{fault, request::preset};
use crate::commands::grade::sandbox;
use crate::fault::Fault;
use crate::{print, println, runtime, to_json};
use indicatif::{ProgressBar, ProgressStyle};
use lemon_eval::{Best, FoundTeam, Gap, SearchSettings, search};
use lemon_exec::Settings;
use lemon_rollout::{Case, Grader, RolloutEnv};
use lemon_spec::{Language, validate};
use lemon_task::{Item, SetName, Source, load};
use lemon_world::World;
use serde::Serialize;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const THIRDS: [&str; 3] = ["easiest third", "middle third", "hardest third"];

/// What was searched and found.
#[derive(Serialize)]
struct Findings {
    set: String,
    world: &'static str,
    price: f64,
    teams: usize,
    seed: u64,
    groups: Vec<Group>,
}

/// The best teams for some of the items.
#[derive(Serialize)]
struct Group {
    name: &'static str,
    found: Vec<FoundTeam>,
}

pub fn teams(command: &WorldCommand) -> Result<u8, Fault> {
    let WorldCommand::Teams { set, split, data, world, price, teams, seed, json } = command else { return Ok(0) };
    if !price.is_finite() || *price < 0.0 {
        return Err(Fault::new(format!("price must be at least 0, got {price}"))
            .hint("give a number of right answers, such as 0.01"));
    }
    let set: SetName = set.parse().map_err(Fault::new)?;
    let source = data.clone().map_or(Source::Sample, Source::Folder);
    let items = load(&source, set, split).map_err(Fault::new)?.items;
    let name = format!("{set}/{split}");
    let cases: Vec<Case> = items.iter().map(|item| Case { set: name.as_str().into(), item: item.clone() }).collect();
    let mut known: Vec<Item> = items;
    if set == SetName::HumanEvalPy {
        // The variant publishes no solutions; the original does.
        known.extend(load(&source, SetName::HumanEval, "test").map_err(Fault::new)?.items);
    }
    let world_of_set = World::new(preset(*world), &known);
    if world_of_set.skipped() > 0 {
        return Err(Fault::new(format!("{} items have no published solution to simulate", world_of_set.skipped())));
    }
    let groups = groups(cases, &world_of_set);
    let sandbox = match Grader::needs_sandbox(&known) {
        true => Some(sandbox(false)?),
        false => None,
    };
    let run_settings = Settings { reuse: false, ..Settings::default() };
    let language = Arc::new(Language::default());
    let env = RolloutEnv::new(world_of_set.backend(), language, run_settings, Grader::new(sandbox));
    let settings = SearchSettings { teams: *teams, price: *price, seed: *seed, ..SearchSettings::default() };
    let findings = Findings {
        set: name,
        world: preset(*world).as_str(),
        price: *price,
        teams: *teams,
        seed: *seed,
        groups: searched(&env, &settings, groups)?,
    };
    match json {
        true => println(&to_json(&findings)),
        false => print(&describe(&findings)),
    }
}

/// All cases, then those of each third of difficulty.
fn groups(mut cases: Vec<Case>, world: &World) -> Vec<(&'static str, Vec<Case>)> {
    let mut groups = vec![("all items", cases.clone())];
    let difficulty = |case: &Case| world.difficulty(&case.item.task.question).unwrap_or(0.0);
    cases.sort_by(|a, b| difficulty(a).total_cmp(&difficulty(b)));
    for (third, name) in THIRDS.into_iter().enumerate() {
        let edge = |third: usize| third * cases.len() / THIRDS.len();
        groups.push((name, cases.get(edge(third)..edge(third + 1)).unwrap_or_default().to_vec()));
    }
    groups
}

fn searched(
    env: &RolloutEnv,
    settings: &SearchSettings,
    groups: Vec<(&'static str, Vec<Case>)>,
) -> Result<Vec<Group>, Fault> {
    let runtime = runtime()?;
    let cancel = CancellationToken::new();
    // It is drawn on terminals only.
    let bar = ProgressBar::new(settings.teams as u64);
    let style = ProgressStyle::with_template("{msg:13} {bar:32.yellow/dim} {pos}/{len} teams · {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut searched = Vec::new();
    for (name, cases) in groups {
        bar.set_message(name);
        let progress = |tried: usize, _| bar.set_position(tried as u64);
        let found = runtime.block_on(search(env, &cases, settings, &cancel, progress)).map_err(fault)?;
        searched.push(Group { name, found });
    }
    bar.finish_and_clear();
    Ok(searched)
}

fn describe(findings: &Findings) -> String {
    let Findings { set, world, price, teams, .. } = findings;
    let mut text = format!(
        "{set} in the {world} world: {teams} teams tried for each group of items; a thousand tokens of the smallest capacity \
         cost {price} right answers, of the others 3 and 8 times that\nfigures are from seeds the search has not seen\n"
    );
    for group in &findings.groups {
        let items = group.found.first().map_or(0, |team| team.items);
        text += &format!("\n{}: {items}\n", group.name);
        text += &format!(
            "  {:<18}  {:>8}  {:>12}  {:>6}  {:>8}  {:>6}  team\n",
            "best", "accuracy", "95 %", "tokens", "weighted", "value"
        );
        group.found.iter().for_each(|team| text += &line(team));
    }
    text + "\n" + &verdict(findings)
}

fn line(team: &FoundTeam) -> String {
    let best = match &team.best {
        Best::Value => "for its price".to_owned(),
        Best::Accuracy => "in accuracy".to_owned(),
        Best::Alone(level) => format!("{level} agent alone"),
    };
    let [low, high] = team.interval.map(|end| 100.0 * end);
    format!(
        "  {best:<18}  {:>6.1} %  {:>12}  {:>6.0}  {:>8.0}  {:>6.3}  {}\n",
        100.0 * team.accuracy,
        format!("{low:.1} to {high:.1}"),
        team.tokens,
        team.weighted_tokens,
        team.value,
        shape(&team.spec),
    )
}

/// A team on one line: each agent with those it reads, and how the answer is made.
fn shape(spec: &str) -> String {
    let Ok(plan) = validate(spec, &Language::default()) else { return String::new() };
    let agents = plan.spec().agents.iter().map(|agent| {
        let reads = if agent.after.is_empty() { String::new() } else { format!(" reads {}", agent.after.join(" ")) };
        let share = if agent.share == lemon_spec::Share::Answer { ", hands on its answer alone" } else { "" };
        format!("{} {} {}{reads}{share}", agent.id, agent.capacity, agent.base)
    });
    let agents = agents.collect::<Vec<_>>().join("; ");
    if plan.agents().len() == 1 {
        return agents;
    }
    let answer = &plan.spec().answer;
    format!("{agents} → {} of {}", answer.by, answer.from.join(" "))
}

/// Is one agent always best?
fn verdict(findings: &Findings) -> String {
    let mut text = String::from("is one agent always best here?\n");
    for (title, wanted) in [("for its price", Best::Value), ("in accuracy", Best::Accuracy)] {
        let best: Vec<(&str, &FoundTeam)> = findings
            .groups
            .iter()
            .filter_map(|group| Some((group.name, group.found.iter().find(|team| team.best == wanted)?)))
            .collect();
        let teams = best.iter().filter(|(_, team)| is_surely_better(team)).count();
        let word = match teams {
            0 => "as far as this search can tell, yes",
            _ if teams == best.len() => "never",
            _ => "no",
        };
        text += &format!("  {title}: {word}\n");
        for (group, team) in best {
            text += &format!("    {group}: {}\n", finding(team));
        }
    }
    text
}

fn is_surely_better(team: &FoundTeam) -> bool {
    team.over_alone.is_some_and(|gap| gap.interval[0] > 0.0)
}

fn finding(team: &FoundTeam) -> String {
    let Some(Gap { difference, interval: [low, high] }) = team.over_alone else { return "one agent".to_owned() };
    let gap = format!(
        "{:+.1} points over the best agent alone, 95 % {:+.1} to {:+.1}",
        100.0 * difference,
        100.0 * low,
        100.0 * high
    );
    match is_surely_better(team) {
        true => format!("a team of {}, {gap}", team.agents),
        false => format!("a team of {} was chosen, but fresh runs do not tell it from one agent ({gap})", team.agents),
    }
}
