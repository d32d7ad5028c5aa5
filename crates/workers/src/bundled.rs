//! The models that ship with this program: two orchestrators and three workers. No other crate includes their bytes.
//!
//! A release has weights and vocabularies packed in the binary. A build for tests reads them from the source tree, see `build.rs`.

use crate::config::Capacity;
use crate::error::{WorkersError, WorkersErrorKind};
use crate::local::{CARD, Card, LocalModel, PromptForm};
use crate::models::{CONFIG, FoundModel};
use lemon_engine::EngineSettings;
use lemon_model::{ModelConfig, Packed};
use std::path::PathBuf;
use std::sync::OnceLock;

#[cfg(test)]
mod pack;
#[cfg_attr(not(embedded_models), allow(dead_code))]
pub(crate) mod unpack;

/// The weights of a checkpoint.
const WEIGHTS: &str = "model.safetensors";
/// Its vocabulary.
const TOKENIZER: &str = "tokenizer.json";

/// What the names of bundled workers begin with, where the folder of a model could stand.
pub const PREFIX: &str = "bundled:";
/// The same in older files.
const OLD_PREFIX: &str = "box:";

/// What a user should know of the bundled workers.
pub const NOTICE: &str = "the small bundled models answer: arithmetic word problems only, and often wrong";

/// How to use another model.
pub const STRONGER: &str =
    "for something stronger: --base-url URL --model NAME, or `lemon models pull qwen2.5-coder-1.5b`, or start Ollama";

/// A file of `models/`: packed in this build, or in the source tree.
macro_rules! stored {
    ($file:expr, $unpack:ident) => {{
        #[cfg(embedded_models)]
        let stored = $crate::bundled::Stored::Packed(
            include_bytes!(concat!(env!("OUT_DIR"), "/", $file, ".packed")),
            $crate::bundled::unpack::$unpack,
        );
        #[cfg(not(embedded_models))]
        let stored = $crate::bundled::Stored::File(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/", $file));
        stored
    }};
}
pub(crate) use stored;

macro_rules! model {
    ($name:literal, $folder:literal, $unpack:ident, $($file:literal)*) => {
        BundledModel {
            name: $name,
            files: &[$(($file, include_bytes!(concat!("../../../models/", $folder, "/", $file)))),*],
            stored: [
                (TOKENIZER, stored!(concat!($folder, "/tokenizer.json"), text)),
                (WEIGHTS, stored!(concat!($folder, "/model.safetensors"), $unpack)),
            ],
            unpacked: OnceLock::new(),
        }
    };
}

macro_rules! orchestrator {
    ($name:literal) => {
        model!($name, $name, exact, "config.json" "generation_config.json" "tokenizer_config.json")
    };
}

macro_rules! worker {
    ($name:literal, $folder:literal) => {
        model!($name, $folder, rounded, "config.json" "generation_config.json" "tokenizer_config.json" "lemon.json")
    };
}

/// The orchestrator for any workers.
static FOR_ANY: BundledModel = orchestrator!("orchestrator");

/// The orchestrator that was trained with the bundled workers.
static FOR_WORDS: BundledModel = orchestrator!("orchestrator-for-words");

/// The workers, weakest first. Statics, not constants: each use of a constant may be one more copy in the binary.
static WORKERS: [BundledModel; 3] =
    [worker!("small", "workers/small"), worker!("medium", "workers/medium"), worker!("large", "workers/large")];

/// Where a bundled file is. A build has one of the two.
#[allow(dead_code)]
pub(crate) enum Stored {
    /// In the binary, as the build script packed it, and what unpacks it.
    Packed(&'static [u8], fn(&[u8]) -> Result<Vec<u8>, String>),
    /// In the source tree that this program was built from.
    File(&'static str),
}

impl Stored {
    pub(crate) fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::Packed(packed, unpack) => unpack(packed),
            Self::File(path) => std::fs::read(path).map_err(|error| format!("{path}: {error}")),
        }
    }

    fn len(&self) -> Result<u64, String> {
        match self {
            Self::Packed(packed, _) => Ok(unpack::length(packed)? as u64),
            Self::File(path) => {
                std::fs::metadata(path).map(|file| file.len()).map_err(|error| format!("{path}: {error}"))
            }
        }
    }
}

pub struct BundledModel {
    name: &'static str,
    /// Its small files.
    files: Packed,
    /// The vocabulary and the weights.
    stored: [(&'static str, Stored); 2],
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

    /// All its files, unpacked. In a release the weights of a worker are as the engine rounds them for [`Self::load`]; those of
    /// an orchestrator are exact, because training starts from them.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn files(&self) -> Result<Packed, WorkersError> {
        let unpack = || -> Result<Packed, String> {
            let mut files = self.files.to_vec();
            for (name, stored) in &self.stored {
                files.push((name, stored.read()?.leak()));
            }
            Ok(files.leak())
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
        let stored = model.stored.iter().map(|(name, stored)| stored.len().map_err(|fact| format!("{name}: {fact}")));
        let (stored, fault) = match stored.sum::<Result<u64, String>>() {
            Ok(stored) => (stored, fault),
            Err(fact) => (0, fault.or(Some(fact))),
        };
        FoundModel {
            folder: PathBuf::from(&name),
            name,
            revision: env!("CARGO_PKG_VERSION").to_owned(),
            bytes: model.files.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>() + stored,
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
