//! The models that ship with this program: two orchestrators and three workers. No other crate includes their bytes.
//!
//! A release has the packed weights in the binary. A build for tests reads them from the source tree, see `build.rs`.

use crate::config::Capacity;
use crate::error::{WorkersError, WorkersErrorKind};
use crate::local::{CARD, Card, LocalModel, PromptForm};
use crate::models::{CONFIG, FoundModel};
use lemon_engine::EngineSettings;
use lemon_model::{ModelConfig, Packed};
use std::path::PathBuf;
use std::sync::OnceLock;

mod planes;

/// The weights of a checkpoint.
const WEIGHTS: &str = "model.safetensors";

/// What the names of bundled workers begin with, where the folder of a model could stand.
pub const PREFIX: &str = "bundled:";
/// The same in older files.
const OLD_PREFIX: &str = "box:";

/// What a user should know of the bundled workers.
pub const NOTICE: &str = "the small bundled models answer: arithmetic word problems only, and often wrong";

/// How to use another model.
pub const STRONGER: &str =
    "for something stronger: --base-url URL --model NAME, or `lemon models pull qwen2.5-coder-1.5b`, or start Ollama";

/// The files of a model, beside the weights.
macro_rules! files {
    ($folder:literal, $($file:literal)*) => {
        &[$(($file, include_bytes!(concat!("../../../models/", $folder, "/", $file)))),*]
    };
}

#[cfg(embedded_weights)]
macro_rules! weights {
    ($folder:literal, $planes:literal) => {
        Weights::Packed(include_bytes!(concat!(env!("OUT_DIR"), "/", $planes)))
    };
}

#[cfg(not(embedded_weights))]
macro_rules! weights {
    ($folder:literal, $planes:literal) => {
        Weights::File(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/", $folder, "/model.safetensors"))
    };
}

macro_rules! model {
    ($name:literal, $folder:literal, $planes:literal $(, $card:literal)?) => {
        BundledModel {
            name: $name,
            files: files!(
                $folder,
                "config.json" "generation_config.json" "tokenizer.json" "tokenizer_config.json" $($card)?
            ),
            weights: weights!($folder, $planes),
            unpacked: OnceLock::new(),
        }
    };
}

/// The orchestrator for any workers.
static FOR_ANY: BundledModel = model!("orchestrator", "orchestrator", "orchestrator.planes");

/// The orchestrator that was trained with the bundled workers.
static FOR_WORDS: BundledModel =
    model!("orchestrator-for-words", "orchestrator-for-words", "orchestrator-for-words.planes");

/// The workers, weakest first. Statics, not constants: each use of a constant may be one more copy in the binary.
static WORKERS: [BundledModel; 3] = [
    model!("small", "workers/small", "workers-small.planes", "lemon.json"),
    model!("medium", "workers/medium", "workers-medium.planes", "lemon.json"),
    model!("large", "workers/large", "workers-large.planes", "lemon.json"),
];

/// Where the weights of a bundled model are. A build has one of the two.
#[allow(dead_code)]
enum Weights {
    /// In the binary, as [`planes`] packs them.
    Packed(&'static [u8]),
    /// In the source tree that this program was built from.
    File(&'static str),
}

impl Weights {
    fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::Packed(packed) => planes::unpack(packed),
            Self::File(path) => std::fs::read(path).map_err(|error| format!("{path}: {error}")),
        }
    }

    fn len(&self) -> Result<u64, String> {
        match self {
            Self::Packed(packed) => Ok(planes::unpacked_len(packed)? as u64),
            Self::File(path) => {
                std::fs::metadata(path).map(|file| file.len()).map_err(|error| format!("{path}: {error}"))
            }
        }
    }
}

/// A bundled model.
pub struct BundledModel {
    name: &'static str,
    /// Its files but for the weights.
    files: Packed,
    weights: Weights,
    /// All files, once they were needed. They stay in memory: the program has them at most once.
    unpacked: OnceLock<Result<Packed, String>>,
}

/// The bundled workers, a capacity each.
pub fn capacities() -> Vec<(String, Capacity)> {
    let capacity = |model: &BundledModel| (model.name.to_owned(), Capacity::local(&format!("{PREFIX}{}", model.name)));
    WORKERS.iter().map(capacity).collect()
}

/// The name in `bundled:NAME`; `None` for anything else that `local` may say.
pub fn name(local: &str) -> Option<&str> {
    local.strip_prefix(PREFIX).or_else(|| local.strip_prefix(OLD_PREFIX))
}

/// Whether a bundled model serves a capacity.
pub fn serves(capacity: &Capacity) -> bool {
    capacity.local.as_deref().is_some_and(|local| name(local).is_some())
}

/// Whether bundled models serve all of these capacities, and there are some.
pub fn serve_all(capacities: &[(String, Capacity)]) -> bool {
    !capacities.is_empty() && capacities.iter().all(|(_, capacity)| serves(capacity))
}

/// The bundled orchestrator for these capacities.
pub fn orchestrator(capacities: &[(String, Capacity)]) -> &'static BundledModel {
    if is_general(capacities) { &FOR_ANY } else { &FOR_WORDS }
}

/// Whether that orchestrator was taught tasks of all kinds, and not word problems for the bundled workers alone.
pub fn is_general(capacities: &[(String, Capacity)]) -> bool {
    !serve_all(capacities)
}

/// The bundled worker of this name, without the prefix.
///
/// # Errors
/// There is none.
pub fn find(name: &str) -> Result<&'static BundledModel, WorkersError> {
    WORKERS.iter().find(|model| model.name == name).ok_or_else(|| {
        let known = WORKERS.iter().map(|model| format!("{PREFIX}{}", model.name)).collect::<Vec<_>>().join(", ");
        WorkersError::new(format!("no bundled model is called `{name}`")).hint(format!("there are {known}"))
    })
}

impl BundledModel {
    /// Loads it.
    ///
    /// # Errors
    /// Its files are not what they should be: the build is broken.
    pub fn load(&self) -> Result<LocalModel, WorkersError> {
        let name = format!("{PREFIX}{}", self.name);
        let files = self.files()?;
        LocalModel::load_packed(&name, files, EngineSettings::default()).map_err(|error| broken(&name, &error))
    }

    /// All its files, unpacked.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn files(&self) -> Result<Packed, WorkersError> {
        let unpack = || -> Result<Packed, String> {
            let weights: &'static [u8] = self.weights.read()?.leak();
            let files: &'static [_] = [self.files, &[(WEIGHTS, weights)]].concat().leak();
            Ok(files)
        };
        self.unpacked.get_or_init(unpack).clone().map_err(|error| broken(self.name, &error))
    }

    /// How it wants to be asked.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn form(&self) -> Result<PromptForm, WorkersError> {
        let card = self.file(CARD).map_or_else(|| Ok(Card::default()), serde_json::from_slice);
        Ok(card.map_err(|error| broken(self.name, &error))?.prompt)
    }

    fn file(&self, name: &str) -> Option<&'static [u8]> {
        self.files.iter().find(|(file, _)| *file == name).map(|(_, bytes)| *bytes)
    }
}

fn broken(name: &str, error: &dyn std::fmt::Display) -> WorkersError {
    let fact = format!("the bundled model {name} cannot be loaded: {error}");
    WorkersError::new(fact).hint("this build of lemon is broken; install it again").kind(WorkersErrorKind::Model)
}

/// The bundled workers, as checkpoints are listed.
pub fn listed() -> impl Iterator<Item = FoundModel> {
    WORKERS.iter().map(|model| {
        let name = format!("{PREFIX}{}", model.name);
        let config = model.file(CONFIG).map(String::from_utf8_lossy).map(|text| ModelConfig::parse(&text));
        let (parameters, fault) = match config {
            Some(Ok(config)) => (Some(config.parameters()), None),
            Some(Err(fact)) => (None, Some(format!("{CONFIG}: {fact}"))),
            None => (None, Some(format!("{CONFIG} is missing"))),
        };
        let (weights, fault) = match model.weights.len() {
            Ok(weights) => (weights, fault),
            Err(fact) => (0, fault.or(Some(format!("{WEIGHTS}: {fact}")))),
        };
        FoundModel {
            folder: PathBuf::from(&name),
            name,
            revision: env!("CARGO_PKG_VERSION").to_owned(),
            bytes: model.files.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>() + weights,
            parameters,
            complete: true,
            fault,
            can_chat: false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_orchestrator_fits_the_workers() {
        let elsewhere = ("large".to_owned(), Capacity::local("somewhere/else"));
        let check = |levels: &[(String, Capacity)], expected: &BundledModel| {
            assert_eq!(orchestrator(levels).name, expected.name);
        };
        check(&capacities(), &FOR_WORDS);
        check(&capacities()[1..2], &FOR_WORDS);
        check(&[("one".to_owned(), Capacity::local("box:small"))], &FOR_WORDS);
        check(&[], &FOR_ANY);
        check(&[&capacities()[..2], &[elsewhere]].concat(), &FOR_ANY);
    }

    #[test]
    fn bundled_workers_can_be_loaded_and_grow_from_capacity_to_capacity() {
        let mut before = 0;
        for ((level, capacity), listed) in capacities().into_iter().zip(listed()) {
            let found = find(&level).unwrap();
            let model = found.load().unwrap();
            assert_eq!((Some(&model.name), &model.name), (capacity.local.as_ref(), &listed.name));
            assert_eq!((model.form, found.form().unwrap()), (PromptForm::Short, PromptForm::Short));
            let parameters = listed.parameters.unwrap();
            assert!(parameters > before && parameters == model.engine.config().parameters());
            before = parameters;
        }
        let error = find("huge").err().unwrap();
        assert_eq!(error.fact, "no bundled model is called `huge`");
        assert_eq!(error.hint.unwrap(), "there are bundled:small, bundled:medium, bundled:large");
    }

    #[test]
    fn older_names_are_understood() {
        let check = |local: &str, expected: Option<&str>| assert_eq!(name(local), expected, "{local}");
        check("bundled:small", Some("small"));
        check("box:small", Some("small"));
        check("models/small", None);
    }
}
