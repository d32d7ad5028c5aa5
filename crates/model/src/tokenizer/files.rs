//! The files beside `tokenizer.json`: which tokens end a text, and how a conversation is written.

use super::template::Template;
use crate::PolicyError;
use crate::files::ModelFiles;
use serde_json::{Value, json};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use tokenizers::Tokenizer as Whole;

pub(super) const TOKENIZER: &str = "tokenizer.json";
const SETTINGS: &str = "tokenizer_config.json";
const GENERATION: &str = "generation_config.json";
const MODEL: &str = "config.json";
const TEMPLATE: &str = "chat_template.jinja";

/// What the files say, kept so that saving writes it again.
pub(super) struct Files {
    /// Where `settings` are from, for errors.
    path: PathBuf,
    /// `tokenizer_config.json`, the template included.
    settings: Value,
    /// `generation_config.json`
    generation: Value,
    /// `eos_token_id` of `config.json`, which is the model's to write.
    model_ends: Value,
}

impl Files {
    /// Reads them; none of them has to be there.
    pub(super) fn load(folder: ModelFiles<'_>) -> Result<Files, PolicyError> {
        let mut settings = read_json(folder, SETTINGS)?;
        if let Some(text) = folder.read(TEMPLATE)? {
            let text = std::str::from_utf8(&text).map_err(|error| malformed(&folder.path(TEMPLATE), error))?;
            set(&mut settings, "chat_template", Value::from(text));
        }
        let mut model = read_json(folder, MODEL)?;
        Ok(Files {
            path: folder.path(SETTINGS),
            settings,
            generation: read_json(folder, GENERATION)?,
            model_ends: model.get_mut("eos_token_id").map(Value::take).unwrap_or_default(),
        })
    }

    /// Those of a vocabulary of our own.
    pub(super) fn made(end: &str, end_id: u32) -> Files {
        let settings = json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": end,
            "pad_token": end,
            "clean_up_tokenization_spaces": false,
        });
        let generation = json!({"eos_token_id": end_id, "pad_token_id": end_id});
        Files { path: PathBuf::from(SETTINGS), settings, generation, model_ends: Value::Null }
    }

    /// Those of another file that says the same things.
    pub(super) fn given(path: &Path, settings: Value, generation: Value) -> Files {
        Files { path: path.to_owned(), settings, generation, model_ends: Value::Null }
    }

    pub(super) fn with_template(&self, template: &str) -> Files {
        let mut settings = self.settings.clone();
        set(&mut settings, "chat_template", Value::from(template));
        let (path, generation, model_ends) = (self.path.clone(), self.generation.clone(), self.model_ends.clone());
        Files { path, settings, generation, model_ends }
    }

    pub(super) fn save(&self, folder: &Path) -> Result<(), PolicyError> {
        for (name, value) in [(SETTINGS, &self.settings), (GENERATION, &self.generation)] {
            if !value.is_null() {
                write(&folder.join(name), &format!("{value:#}\n"))?;
            }
        }
        // An older template in the folder would count for more.
        let template = folder.join(TEMPLATE);
        match chat_template(&self.settings["chat_template"]) {
            Some(source) if template.exists() => write(&template, source),
            _ => Ok(()),
        }
    }

    /// The tokens that end a text. The tokenizer's own comes first: where a model has several, it is the one that ends a
    /// turn of its conversations.
    pub(super) fn ends(&self, whole: &Whole, tokens: usize) -> Result<Vec<u32>, PolicyError> {
        let own = self.special("eos_token").and_then(|word| whole.token_to_id(word));
        let listed = [&self.generation["eos_token_id"], &self.model_ends].into_iter().flat_map(numbers);
        let mut ends: Vec<u32> = Vec::new();
        for end in own.into_iter().chain(listed).filter(|end| (*end as usize) < tokens) {
            if !ends.contains(&end) {
                ends.push(end);
            }
        }
        if ends.is_empty() {
            let fact = "names no token that ends a text; give it as `eos_token`";
            return Err(malformed(&self.path, fact));
        }
        Ok(ends)
    }

    /// The token that fills rows, if there is one.
    pub(super) fn pad(&self, whole: &Whole) -> Option<u32> {
        whole.token_to_id(self.special("pad_token")?)
    }

    pub(super) fn template(&self) -> Result<Option<Template>, PolicyError> {
        let Some(source) = chat_template(&self.settings["chat_template"]) else { return Ok(None) };
        let word = |key: &str| self.special(key).unwrap_or_default().to_owned();
        let template = Template::new(source, word("bos_token"), word("eos_token"));
        template.map(Some).map_err(|error| malformed(&self.path, format!("chat_template: {}", error.0)))
    }

    /// A special token by its role: written as a text, or as an object with its properties.
    fn special(&self, key: &str) -> Option<&str> {
        let value = &self.settings[key];
        value.as_str().or_else(|| value["content"].as_str())
    }
}

/// The template, or of several the one called `default`.
fn chat_template(value: &Value) -> Option<&str> {
    let named = |entries: &'_ Vec<Value>| entries.iter().position(|entry| entry["name"] == "default");
    match value {
        Value::Array(entries) => value[named(entries)?]["template"].as_str(),
        other => other.as_str(),
    }
}

/// A number, or a list of them.
fn numbers(value: &Value) -> Vec<u32> {
    let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
    match value {
        Value::Array(items) => items.iter().filter_map(number).collect(),
        other => number(other).into_iter().collect(),
    }
}

fn set(object: &mut Value, key: &str, value: Value) {
    match object {
        Value::Object(fields) => {
            fields.insert(key.to_owned(), value);
        }
        other => *other = json!({ key: value }),
    }
}

/// The object in a file; null if there is no such file.
fn read_json(folder: ModelFiles<'_>, name: &str) -> Result<Value, PolicyError> {
    let Some(text) = folder.read(name)? else { return Ok(Value::Null) };
    let path = folder.path(name);
    let value: Value = serde_json::from_slice(&text).map_err(|error| malformed(&path, error))?;
    if value.is_object() { Ok(value) } else { Err(malformed(&path, "it has to be an object")) }
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), PolicyError> {
    std::fs::write(path, text).map_err(|source| PolicyError::File { path: path.to_owned(), source })
}

pub(super) fn malformed(path: &Path, fact: impl Display) -> PolicyError {
    PolicyError::Malformed { path: path.to_owned(), fact: fact.to_string() }
}
