//! The models that ship with this program: two that write teams, three that answer.

use crate::config::Capacity;
use crate::fault::Fault;
use crate::models::{CONFIG, Cached};
use lemon_engine::EngineSettings;
use lemon_local::LocalModel;
use lemon_model::{ModelConfig, Packed};
use std::path::PathBuf;

/// What the names of those that answer begin with, where the folder of a model could stand.
pub const PREFIX: &str = "box:";

/// What is said of those that answer.
pub const NOTICE: &str = "the small models in the box answer: arithmetic word problems only, and often wrong";

/// How to have somebody else answer.
pub const STRONGER: &str =
    "for something stronger: --base-url URL --model NAME, or `lemon models pull OWNER/NAME`, or start Ollama";

macro_rules! packed {
    ($folder:literal, $($file:literal)*) => {
        &[$(($file, include_bytes!(concat!("../../../models/", $folder, "/", $file)))),*]
    };
}

macro_rules! worker {
    ($folder:literal) => {
        packed!(
            $folder,
            "config.json" "generation_config.json" "lemon.json" "model.safetensors" "tokenizer.json" "tokenizer_config.json"
        )
    };
}

macro_rules! orchestrator {
    ($folder:literal) => {
        packed!(
            $folder,
            "config.json" "generation_config.json" "model.safetensors" "tokenizer.json" "tokenizer_config.json"
        )
    };
}

/// The one that writes teams of any workers.
const FOR_ANY: Packed = orchestrator!("orchestrator");

/// The one that was trained with those that answer.
const FOR_WORDS: Packed = orchestrator!("orchestrator-for-words");

/// Those that answer, weakest first.
const WORKERS: [(&str, Packed); 3] =
    [("small", worker!("workers/small")), ("medium", worker!("workers/medium")), ("large", worker!("workers/large"))];

/// Those that answer, a level each.
pub fn levels() -> Vec<(String, Capacity)> {
    WORKERS.iter().map(|(name, _)| ((*name).to_owned(), Capacity::local(&format!("{PREFIX}{name}")))).collect()
}

/// Whether one of them serves a level.
pub fn serves(capacity: &Capacity) -> bool {
    capacity.local.as_ref().is_some_and(|local| local.starts_with(PREFIX))
}

/// The one that writes teams for these levels.
pub fn orchestrator(levels: &[(String, Capacity)]) -> Packed {
    if is_general(levels) { FOR_ANY } else { FOR_WORDS }
}

/// Whether that one was taught tasks of all kinds, and not word problems for the bundled workers alone.
pub fn is_general(levels: &[(String, Capacity)]) -> bool {
    levels.is_empty() || !levels.iter().all(|(_, capacity)| serves(capacity))
}

/// Loads one by its name, without the prefix.
///
/// # Errors
/// There is none of this name.
pub fn load(name: &str) -> Result<LocalModel, Fault> {
    let Some((name, files)) = WORKERS.iter().find(|(known, _)| *known == name) else {
        let known = WORKERS.map(|(name, _)| format!("{PREFIX}{name}")).join(", ");
        return Err(Fault::new(format!("no model in the box is called `{name}`")).hint(format!("there are {known}")));
    };
    LocalModel::load_packed(&format!("{PREFIX}{name}"), files, EngineSettings::default()).map_err(Fault::new)
}

/// Those that answer, as checkpoints are listed.
pub fn listed() -> impl Iterator<Item = Cached> {
    WORKERS.iter().map(|(name, files)| {
        let name = format!("{PREFIX}{name}");
        let config = files.iter().find(|(file, _)| *file == CONFIG).map(|(_, text)| String::from_utf8_lossy(text));
        Cached {
            folder: PathBuf::from(&name),
            name,
            revision: env!("CARGO_PKG_VERSION").to_owned(),
            bytes: files.iter().map(|(_, bytes)| bytes.len() as u64).sum(),
            parameters: config.and_then(|text| ModelConfig::parse(&text).ok()).map(|config| config.parameters()),
            complete: true,
            fault: None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_local::PromptForm;

    #[test]
    fn who_writes_fits_who_answers() {
        let elsewhere = ("large".to_owned(), Capacity::local("somewhere/else"));
        let check = |levels: &[(String, Capacity)], expected: Packed| assert!(orchestrator(levels) == expected);
        check(&levels(), FOR_WORDS);
        check(&levels()[1..2], FOR_WORDS);
        check(&[], FOR_ANY);
        check(&[&levels()[..2], &[elsewhere]].concat(), FOR_ANY);
    }

    #[test]
    fn those_that_answer_can_be_loaded_and_grow_from_level_to_level() {
        let mut before = 0;
        for ((level, capacity), listed) in levels().into_iter().zip(listed()) {
            let model = load(&level).map_err(|fault| fault.fact).unwrap();
            assert_eq!((Some(&model.name), &model.name), (capacity.local.as_ref(), &listed.name));
            assert_eq!(model.form, PromptForm::Short);
            let parameters = listed.parameters.unwrap();
            assert!(parameters > before && parameters == model.engine.config().parameters());
            before = parameters;
        }
        let fault = load("huge").err().unwrap();
        assert_eq!(fault.fact, "no model in the box is called `huge`");
        assert_eq!(fault.hint.unwrap(), "there are box:small, box:medium, box:large");
    }
}
