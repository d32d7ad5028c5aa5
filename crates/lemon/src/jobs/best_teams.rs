//! The best teams of a simulated world: is one agent always best?

use crate::error::Error;
use lemon_eval::{FoundTeam, SearchSettings, search};
use lemon_exec::Settings;
use lemon_rollout::{Case, Grader, RolloutEnv};
use lemon_sandbox::Containment;
use lemon_spec::Language;
use lemon_task::{Item, SetName, Source, load};
use lemon_world::{Preset, World};
use serde::Serialize;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const THIRDS: [&str; 3] = ["easiest third", "middle third", "hardest third"];

/// What was searched and found.
#[derive(Debug, Serialize)]
pub struct WorldSearch {
    /// The task set and split.
    pub set: String,
    /// The simulated world.
    pub world: &'static str,
    /// Right answers that a thousand tokens of the smallest capacity cost.
    pub price: f64,
    /// Teams tried for each group.
    pub teams: usize,
    pub seed: u64,
    /// All items, then each third of difficulty.
    pub groups: Vec<ItemGroup>,
}

/// The best teams for some of the items.
#[derive(Debug, Serialize)]
pub struct ItemGroup {
    /// Which items.
    pub name: &'static str,
    /// The best in value, in accuracy, and of the single agents.
    pub found: Vec<FoundTeam>,
}

/// Searches the best teams for a task set. `progress` hears the group and how many teams were tried.
///
/// # Errors
/// The tasks cannot be read or simulated, or the sandbox failed.
pub async fn best_teams(
    set: SetName,
    split: &str,
    source: &Source,
    preset: Preset,
    settings: &SearchSettings,
    mut progress: impl FnMut(&'static str, usize),
) -> Result<WorldSearch, Error> {
    let SearchSettings { price, teams, seed, .. } = *settings;
    if !price.is_finite() || price < 0.0 {
        return Err(Error::input(format!("price must be at least 0, got {price}"))
            .with_hint("give a number of right answers, such as 0.01"));
    }
    let items = load(source, set, split)?.items;
    let name = format!("{set}/{split}");
    let cases: Vec<Case> = items.iter().map(|item| Case { set: name.as_str().into(), item: item.clone() }).collect();
    let mut known: Vec<Item> = items;
    if set == SetName::HumanEvalPy {
        // The variant publishes no solutions; the original does.
        known.extend(load(source, SetName::HumanEval, "test")?.items);
    }
    let world = World::new(preset, &known);
    if world.skipped() > 0 {
        return Err(Error::input(format!("{} items have no published solution to simulate", world.skipped())));
    }
    let groups = groups(cases, &world);
    let grader = Grader::for_items(&known, Containment::Isolated)?;
    let run_settings = Settings { reuse: false, ..Settings::default() };
    let env = RolloutEnv::new(world.backend(), Arc::new(Language::default()), run_settings, grader);
    let cancel = CancellationToken::new();
    let mut searched = Vec::new();
    for (name, cases) in groups {
        progress(name, 0);
        let found = search(&env, &cases, settings, &cancel, |tried, _| progress(name, tried)).await?;
        searched.push(ItemGroup { name, found });
    }
    Ok(WorldSearch { set: name, world: preset.as_str(), price, teams, seed, groups: searched })
}

/// All cases, then those of each third of difficulty.
fn groups(mut cases: Vec<Case>, world: &World) -> Vec<(&'static str, Vec<Case>)> {
    let mut groups = vec![("all items", cases.clone())];
    let difficulty = |case: &Case| world.difficulty(&case.item.task.question).unwrap_or(0.0);
    cases.sort_by(|a, b| difficulty(a).total_cmp(&difficulty(b)));
    let mut left = cases.into_iter();
    let count = left.len();
    for (third, name) in THIRDS.into_iter().enumerate() {
        let edge = |third: usize| third * count / THIRDS.len();
        groups.push((name, left.by_ref().take(edge(third + 1) - edge(third)).collect()));
    }
    groups
}
