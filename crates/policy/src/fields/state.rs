//! A table as a file: its logits and the optimiser's memory.

use super::{FieldTable, Memory};
use lemon_model::{OptimiserSettings, PolicyError};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// The name of the file in its folder.
const FILE: &str = "fields.json";

/// Everything that the next step depends on. Numbers are written as `f64`, which holds every `f32`: a reader that is off by
/// the last bit of one still finds the other.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    slots: usize,
    kinds: usize,
    levels: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    conditioned: bool,
    steps: u64,
    optimiser: OptimiserSettings,
    logits: Vec<f64>,
    means: Vec<f64>,
    squares: Vec<f64>,
}

pub(super) fn save(table: &FieldTable, folder: &Path) -> Result<(), PolicyError> {
    let wide = |values: &[f32]| values.iter().map(|value| f64::from(*value)).collect();
    let state = State {
        slots: table.layout.slots,
        kinds: table.kinds,
        levels: table.layout.levels.clone(),
        conditioned: table.conditioned,
        steps: table.memory.steps,
        optimiser: table.optimiser,
        logits: wide(&table.logits),
        means: wide(&table.memory.means),
        squares: wide(&table.memory.squares),
    };
    let path = folder.join(FILE);
    let part = folder.join("fields.json.part");
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| PolicyError::File { path, source }
    };
    let bytes = serde_json::to_vec(&state)
        .map_err(|error| PolicyError::Malformed { path: path.clone(), fact: error.to_string() })?;
    fs::create_dir_all(folder).map_err(at(folder))?;
    // Whole or not at all: a reader sees the old one or the new one.
    fs::write(&part, bytes).map_err(at(&part))?;
    fs::rename(&part, &path).map_err(at(&path))
}

pub(super) fn load(table: &mut FieldTable, folder: &Path) -> Result<(), PolicyError> {
    let path = folder.join(FILE);
    let text = fs::read(&path).map_err(|source| PolicyError::File { path: path.clone(), source })?;
    let malformed = |fact: String| PolicyError::Malformed { path: path.clone(), fact };
    let state: State =
        serde_json::from_slice(&text).map_err(|error| malformed(format!("it is not the state of a table: {error}")))?;
    let there = (state.slots, state.kinds, &state.levels);
    let here = (table.layout.slots, table.kinds, &table.layout.levels);
    if there != here {
        let words = |(slots, kinds, levels): (usize, usize, &Vec<String>)| {
            format!("{slots} slots, {kinds} kinds of task and the levels {}", levels.join(", "))
        };
        return Err(malformed(format!("it is a table with {}; this one has {}", words(there), words(here))));
    }
    if state.conditioned != table.conditioned {
        return Err(malformed("expected a table that is conditioned like this one".to_owned()));
    }
    let lengths = [state.logits.len(), state.means.len(), state.squares.len()];
    if let Some(length) = lengths.iter().find(|length| **length != table.logits.len()) {
        return Err(malformed(format!("it has {length} values where {} belong", table.logits.len())));
    }
    let narrow = |values: &[f64]| values.iter().map(|value| *value as f32).collect();
    table.logits = narrow(&state.logits);
    table.memory = Memory { steps: state.steps, means: narrow(&state.means), squares: narrow(&state.squares) };
    table.optimiser = state.optimiser;
    Ok(())
}
