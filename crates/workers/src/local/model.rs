//! One model of this process: its engine, its name, and how it wants to be spoken to.

use crate::local::calibration::Calibration;
use lemon_engine::{Engine, EngineSettings};
use lemon_model::{ModelFiles, Packed, PolicyError};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes at the beginning of a GGUF file that tell it from others: more than any vocabulary takes.
const GGUF_HEAD: u64 = 16 << 20;

/// A model that serves one capacity or several; cheap to clone.
#[derive(Clone)]
pub struct LocalModel {
    /// What it is called.
    pub name: String,
    /// What computes.
    pub engine: Arc<Engine>,
    /// How a request becomes a prompt.
    pub form: PromptForm,
    /// The temperature of requests that name none.
    pub temperature: f32,
    /// Only the likeliest tokens that together have this probability are drawn from.
    pub top_p: f32,
    /// Texts that end a reply, besides the model's own end.
    pub stop: Vec<String>,
    /// How likely a solution is right, where that was found out. `None`: it is as sure as its tokens are likely.
    pub calibration: Option<Calibration>,
    /// What tells its vocabulary, its template and its settings from others.
    pub files: u64,
}

/// How a request becomes a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PromptForm {
    /// The conversation, by the model's chat template.
    #[default]
    Chat,
    /// What an agent was told, in the short form of `lemon_problems::prompt`.
    Short,
}

/// Why a model cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// It cannot be loaded.
    #[error(transparent)]
    Model(#[from] PolicyError),
    /// A file is missing, or says something that cannot be understood.
    #[error("{}: {fact}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fact: String,
    },
}

/// What a model says about itself beyond what the hub's files have a place for.
pub const CARD: &str = "lemon.json";

/// What [`CARD`] says.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// How a request becomes a prompt.
    #[serde(default)]
    pub prompt: PromptForm,
    /// The temperature of requests that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
    /// How likely a solution is right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
}

impl Card {
    /// What the card in a folder says; without one, nothing.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(folder: &Path) -> Result<Card, LocalError> {
        let path = folder.join(CARD);
        match std::fs::read(&path) {
            Ok(text) => read_card(&path, &text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Card::default()),
            Err(error) => Err(LocalError::File { path, fact: error.to_string() }),
        }
    }

    /// Puts it into a folder.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), LocalError> {
        let path = folder.join(CARD);
        let written = serde_json::to_string(self).map_err(std::io::Error::other);
        let written = written.and_then(|text| std::fs::write(&path, text + "\n"));
        written.map_err(|error| LocalError::File { path, fact: error.to_string() })
    }
}

impl LocalModel {
    /// Loads a model from a GGUF file, or from a folder as on the Hugging Face hub; its name is that of the file or folder.
    ///
    /// # Errors
    /// A file is missing or malformed.
    pub fn load(folder: &Path, settings: EngineSettings) -> Result<LocalModel, LocalError> {
        if ModelFiles::Disk(folder).gguf().is_some() {
            return LocalModel::load_gguf(folder, settings);
        }
        let card = Card::read(folder)?;
        let name = folder.file_name().map_or_else(|| folder.display().to_string(), |it| it.to_string_lossy().into());
        // A file that is not there has no say in replies; `Engine::load` reports those it needs and cannot read.
        let files = fingerprint(|name| std::fs::read(folder.join(name)).ok().map(Cow::Owned));
        Ok(LocalModel::new(name, Engine::load(folder, settings)?, card.prompt).with(&card, files))
    }

    fn load_gguf(path: &Path, settings: EngineSettings) -> Result<LocalModel, LocalError> {
        let name = path.file_stem().map_or_else(|| path.display().to_string(), |it| it.to_string_lossy().into());
        let unreadable = |error: std::io::Error| LocalError::File { path: path.to_owned(), fact: error.to_string() };
        // Vocabulary and template stand before the weights.
        let mut head = Vec::new();
        File::open(path).and_then(|file| file.take(GGUF_HEAD).read_to_end(&mut head)).map_err(unreadable)?;
        let files = fingerprint(|_| Some(Cow::Borrowed(&head)));
        Ok(LocalModel::new(name, Engine::load(path, settings)?, PromptForm::Chat).with(&Card::default(), files))
    }

    /// Loads a model whose files are part of the program.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_packed(name: &str, files: Packed, settings: EngineSettings) -> Result<LocalModel, LocalError> {
        let file = |name: &str| files.iter().find(|(known, _)| *known == name).map(|(_, bytes)| *bytes);
        let card = match file(CARD) {
            Some(text) => read_card(Path::new(CARD), text)?,
            None => Card::default(),
        };
        let model = LocalModel::new(name.to_owned(), Engine::load_packed(files, settings)?, card.prompt);
        Ok(model.with(&card, fingerprint(|name| file(name).map(Cow::Borrowed))))
    }

    /// A model that is served already.
    pub fn new(name: String, engine: Engine, form: PromptForm) -> LocalModel {
        let engine = Arc::new(engine);
        LocalModel { name, engine, form, temperature: 0.7, top_p: 1.0, stop: Vec::new(), calibration: None, files: 0 }
    }

    fn with(self, card: &Card, files: u64) -> LocalModel {
        let temperature = card.temperature.unwrap_or(self.temperature);
        LocalModel { temperature, calibration: card.calibration, files, ..self }
    }

    /// Everything about it that determines a reply, for the reuse key. It reads all weights once.
    pub fn identity(&self) -> String {
        let LocalModel { name, form, temperature, top_p, stop, calibration, files, .. } = self;
        let weights = self.engine.fingerprint();
        format!("local {name} {weights:016x} {files:016x} {form:?} {temperature} {top_p} {stop:?} {calibration:?}")
    }
}

/// A number that follows from the files beside the weights that have a say in replies.
fn fingerprint<'a>(read: impl Fn(&str) -> Option<Cow<'a, [u8]>>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for name in ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"] {
        read(name).hash(&mut hasher);
    }
    hasher.finish()
}

fn read_card(path: &Path, text: &[u8]) -> Result<Card, LocalError> {
    let fact = |error: serde_json::Error| format!("{error}; it may say {{\"prompt\": \"chat\"}} or \"short\"");
    serde_json::from_slice(text).map_err(|error| LocalError::File { path: path.to_owned(), fact: fact(error) })
}
