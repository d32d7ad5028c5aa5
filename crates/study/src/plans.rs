//! The studies that come with this program.

use super::arms::{ARMS, Arm};
use super::run::{Regime, RunKind, Study, world_name};
use lemon_train::recipe::{EvalSettings, FieldStart, FirstTeams, Per, Recipe, Start, WarmStart};
use lemon_world::{Choices, Preset};
use std::path::Path;

/// The study of this name.
pub fn named(name: &str, data: Option<&Path>) -> Option<Study> {
    let study = |kind: RunKind, regimes: Vec<Regime>, arms: &[&str], seeds: u64| Study {
        name: name.to_owned(),
        kind,
        regimes,
        arms: arms.iter().filter_map(|arm| Arm::named(arm)).collect(),
        seeds: (1..=seeds).collect(),
        data: data.map(Path::to_owned),
        workers: None,
        remote_worlds: None,
        commit: "unknown".to_owned(),
    };
    let table_arms: Vec<&str> = ARMS.iter().map(|arm| arm.name).filter(|arm| !ON_REQUEST.contains(arm)).collect();
    Some(match name {
        "table" => study(RunKind::Train, worlds(), &table_arms, 40),
        "map" => study(RunKind::Train, regimes(), &["plain-shared", "full", "uniform"], 20),
        "language" => {
            let regime = Regime { name: String::new(), recipe: language(), choices: None };
            study(RunKind::Train, vec![regime], &LANGUAGE_ARMS, 5)
        }
        "demo" => {
            let mut recipe = table(Preset::Calibrated);
            recipe.about = "A small version of the study `table`: minutes on two cores.".to_owned();
            recipe.worker_tokens = Some(DEMO_TOKENS);
            (recipe.tasks.train, recipe.tasks.held_out, recipe.eval.final_seeds) = (100, 20, 2);
            let regime = Regime { name: String::new(), recipe, choices: None };
            study(RunKind::Train, vec![regime], &DEMO_ARMS, 5)
        }
        "stop" => {
            let regime = Regime { name: String::new(), recipe: table(Preset::Calibrated), choices: None };
            study(RunKind::Stop, vec![regime], &["full"], 20)
        }
        _ => return None,
    })
}

/// Arms that a table does not have, and those that take many times the runs of others.
const ON_REQUEST: [&str; 4] = ["no-warm", "oracle", "oracle-rewards", "batch-16"];

/// Worker tokens of a run of the demonstration.
const DEMO_TOKENS: u64 = 200_000;

const DEMO_ARMS: [&str; 7] = ["full", "plain-shared", "plain", "global", "paper-shared", "tree", "fixed-team"];

/// What a language model is trained with: the slow study has the arms that decide something.
const LANGUAGE_ARMS: [&str; 12] = [
    "full",
    "plain",
    "plain-shared",
    "global",
    "purchased",
    "uniform",
    "paper",
    "simplify",
    "no-common",
    "one-level",
    "one-round",
    "no-warm",
];

/// The worlds of the studies over worlds: those whose capacities are three models.
const STUDIED: [Preset; 2] = [Preset::Calibrated, Preset::Teams];

/// The table policy: many runs of a few seconds.
pub fn table(world: Preset) -> Recipe {
    let mut recipe = Recipe {
        about: "A table of choices, trained until its worker tokens are spent.".to_owned(),
        steps: 100_000,
        worker_tokens: Some(TABLE_TOKENS),
        start: Start::Fields(FieldStart::default()),
        // Short runs are begun again rather than kept.
        checkpoint_every: i64::MAX as u64,
        eval: EvalSettings { every: 10, seeds: 1, first_seeds: 1, final_seeds: 8, ..EvalSettings::default() },
        ..Recipe::default()
    };
    (recipe.tasks.world, recipe.tasks.train, recipe.tasks.held_out) = (world, 400, 100);
    recipe.rollouts.tasks = 2;
    recipe.update.learning_rate = 0.15;
    (recipe.update.warm_up, recipe.update.final_rate, recipe.update.clip_norm) = (0, 1.0, 0.0);
    recipe.update.per = Per::Rollout;
    recipe
}

/// Worker tokens of a run of the table: about a thousand rollouts. With three times as many every arm has learned what there is.
const TABLE_TOKENS: u64 = 1_000_000;

/// A small language model, from its warm start on.
pub fn language() -> Recipe {
    let mut recipe = Recipe {
        about: "A language model of a million parameters, trained until its worker tokens are spent.".to_owned(),
        steps: 100_000,
        worker_tokens: Some(1_500_000),
        start: Start::Warm(WarmStart::default()),
        checkpoint_every: i64::MAX as u64,
        eval: EvalSettings { every: 20, seeds: 1, first_seeds: 1, final_seeds: 8, ..EvalSettings::default() },
        ..Recipe::default()
    };
    (recipe.tasks.train, recipe.tasks.held_out) = (400, 60);
    recipe.rollouts.tasks = 4;
    recipe.update.learning_rate = 5e-4;
    recipe.update.final_rate = 1.0;
    recipe
}

fn worlds() -> Vec<Regime> {
    let regime = |world: Preset| Regime { name: world_name(world), recipe: table(world), choices: None };
    STUDIED.map(regime).to_vec()
}

/// Where credit might pay or not: how large teams can be, how noisy workers are, what an edit costs, where it begins.
fn regimes() -> Vec<Regime> {
    let mut regimes = Vec::new();
    for world in STUDIED {
        let mut add = |name: &str, change: &dyn Fn(&mut FieldStart, &mut Recipe, &mut Choices)| {
            let mut recipe = table(world);
            let (mut start, mut choices) = (FieldStart::default(), world.choices());
            change(&mut start, &mut recipe, &mut choices);
            recipe.start = Start::Fields(start);
            let choices = Some(choices).filter(|choices| *choices != world.choices());
            regimes.push(Regime { name: format!("{} {name}", world_name(world)), recipe, choices });
        };
        add("usual=yes", &|_, _, _| {});
        for slots in [2, 6] {
            add(&format!("slots={slots}"), &|start, _, _| start.slots = slots);
        }
        for steadiness in [0.5, 3.0] {
            add(&format!("steadiness={steadiness}"), &|_, _, choices| choices.steadiness = steadiness);
        }
        for group in [2, 8] {
            add(&format!("group={group}"), &|_, recipe, _| {
                (recipe.rollouts.tasks, recipe.rollouts.group) = (8 / group, group);
            });
        }
        add("start=lean", &|start, _, _| start.first = FirstTeams::Lean);
        add("start=uniform", &|start, _, _| start.first = FirstTeams::Uniform);
        add("luck=kept", &|_, recipe, _| recipe.tasks.keep_noise = true); // alias: written to rows
        for times in [0.5, 3.0] {
            add(&format!("tokens={times}M"), &|_, recipe, _| {
                recipe.worker_tokens = Some((times * TABLE_TOKENS as f64) as u64);
            });
        }
        // An edit of a chain reaches all that follows; without rounds and with one answer it reaches little.
        add("rounds=1", &|_, recipe, _| recipe.rollouts.rounds = 1);
    }
    regimes
}
