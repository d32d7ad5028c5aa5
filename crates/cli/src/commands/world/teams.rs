//! `lemon world teams`: is one agent always best here?

use crate::args::WorldCommand;
use crate::fault::Fault;
use crate::{print, print_json, runtime};
use indicatif::{ProgressBar, ProgressStyle};
use lemon::jobs::best_teams::{WorldSearch, best_teams};
use lemon_eval::{Best, FoundTeam, Gap, SearchSettings};
use lemon_spec::{Language, validate};
use lemon_task::{SetName, Source};

pub fn teams(command: &WorldCommand) -> Result<u8, Fault> {
    let WorldCommand::Teams { set, split, data, world, price, teams, seed, json } = command else { return Ok(0) };
    let set: SetName = set.parse().map_err(Fault::new)?;
    let source = data.clone().map_or(Source::Sample, Source::Folder);
    let settings = SearchSettings { teams: *teams, price: *price, seed: *seed, ..SearchSettings::default() };
    // It is drawn on terminals only.
    let bar = ProgressBar::new(settings.teams as u64);
    let style = ProgressStyle::with_template("{msg:13} {bar:32.yellow/dim} {pos}/{len} teams · {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let found = best_teams(set, split, &source, (*world).into(), &settings, |group, tried| {
        bar.set_message(group);
        bar.set_position(tried as u64);
    });
    let found = runtime()?.block_on(found)?;
    bar.finish_and_clear();
    match json {
        true => print_json(&found),
        false => print(&describe(&found)),
    }
}

fn describe(findings: &WorldSearch) -> String {
    let WorldSearch { set, world, price, teams, .. } = findings;
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
fn verdict(findings: &WorldSearch) -> String {
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
