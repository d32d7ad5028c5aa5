//! Which server, and which model there.

use crate::client::TinkerKey;
use crate::{ServerName, TinkerError};
use lemon_model::PolicyError;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The variable that replaces the address of a recipe.
const URL_VARIABLE: &str = "TINKER_BASE_URL";
/// The file that says how many tokens a model knows and reads.
const CONFIG: &str = "config.json";

/// A model behind the Tinker API, as a recipe names it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TinkerStart {
    /// The address of the server, without `/api/v1`. The variable `TINKER_BASE_URL` replaces it.
    pub url: String,
    /// The name of the model there.
    pub base_model: String,
    /// The folder with the `tokenizer.json`, `tokenizer_config.json` and `config.json` of that model; it needs no weights.
    pub folder: PathBuf,
    /// Tokens that a prompt and its text may have together, where that is less than the model can read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positions: Option<usize>,
    /// How the server divides a sum over tokens; where it is not given, that is measured at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduction: Option<Reduction>,
    /// Texts that are sampled at a time.
    #[serde(default = "default_in_flight")]
    pub in_flight: usize,
    /// Seconds that one operation of the server may take.
    #[serde(default = "default_timeout")]
    pub timeout_s: u64,
    /// Another endpoint that samples the texts, held to the grammar of teams; without it the server samples them, and writes what it
    /// likes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampler: Option<SamplerStart>,
}

/// A vLLM server that samples texts under a grammar.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplerStart {
    /// Its address, with or without `/v1`.
    pub url: String,
    /// The name of the model there; the same as `base_model`, unless it is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The variable that holds its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// The folder into which the adapter of each step is unpacked, for the sampler to read. Without it the Tinker server hands its
    /// weights on by itself, under the name of its model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapters: Option<PathBuf>,
    /// The same folder as the sampler finds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapters_there: Option<String>,
    /// The most that a token may count for being likelier by the policy than where it was drawn.
    #[serde(default = "default_most_ratio")]
    pub most_ratio: f32,
}

/// How a server divides the loss of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reduction {
    /// By the weights of a text, then by the texts: the JAX backend of SkyRL.
    Mean,
    /// Not at all.
    Sum,
}

fn default_in_flight() -> usize {
    64
}

fn default_timeout() -> u64 {
    3_600
}

fn default_most_ratio() -> f32 {
    2.0
}

/// What the shape of a model says about its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenLimits {
    /// Every token is a number below.
    pub vocabulary: usize,
    /// Tokens that the model can read.
    pub positions: usize,
}

impl TinkerStart {
    /// A start with default limits.
    pub fn new(url: impl Into<String>, base_model: impl Into<String>, folder: impl Into<PathBuf>) -> Self {
        TinkerStart {
            url: url.into(),
            base_model: base_model.into(),
            folder: folder.into(),
            positions: None,
            reduction: None,
            in_flight: default_in_flight(),
            timeout_s: default_timeout(),
            sampler: None,
        }
    }

    /// The address below which the operations are.
    ///
    /// # Errors
    /// It is no address of HTTP.
    pub(crate) fn address(&self) -> Result<Url, TinkerError> {
        let text = match std::env::var(URL_VARIABLE) {
            Ok(url) if !url.trim().is_empty() => url.trim().to_owned(),
            _ => self.url.trim().to_owned(),
        };
        address_of(ServerName::Tinker, &text, "/api/v1")
    }

    /// Reads what the folder says about the model's tokens.
    pub(crate) fn limits(&self) -> Result<TokenLimits, PolicyError> {
        let path = self.folder.join(CONFIG);
        let text = std::fs::read(&path).map_err(|source| PolicyError::File { path: path.clone(), source })?;
        let limits = limits(&text).map_err(|fact| PolicyError::Malformed { path: path.clone(), fact })?;
        let positions = self.positions.unwrap_or(limits.positions);
        if positions < 2 || positions > limits.positions {
            let fact =
                format!("`positions` must be 2 to {}, as in {}; got {positions}", limits.positions, path.display());
            return Err(PolicyError::Request(fact));
        }
        if self.in_flight == 0 || self.timeout_s == 0 {
            return Err(PolicyError::Request("`in_flight` and `timeout_s` must be at least 1, got 0".to_owned()));
        }
        if let Some(sampler) = &self.sampler {
            sampler.check()?;
        }
        Ok(TokenLimits { positions, ..limits })
    }

    /// Where the files of the model are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl SamplerStart {
    /// A sampler that gets its weights from the Tinker server.
    pub fn new(url: impl Into<String>) -> Self {
        SamplerStart {
            url: url.into(),
            model: None,
            api_key_env: None,
            adapters: None,
            adapters_there: None,
            most_ratio: default_most_ratio(),
        }
    }

    /// The address below which the operations are.
    ///
    /// # Errors
    /// It is no address of HTTP.
    pub(crate) fn address(&self) -> Result<Url, TinkerError> {
        address_of(ServerName::Sampler, self.url.trim(), "/v1")
    }

    /// The key in the variable that the recipe names, or none.
    pub(crate) fn key(&self) -> Result<TinkerKey, PolicyError> {
        let Some(name) = &self.api_key_env else { return Ok(TinkerKey::default()) };
        match std::env::var(name) {
            Ok(secret) if !secret.trim().is_empty() => Ok(TinkerKey::new(secret)),
            _ => Err(PolicyError::Request(format!("`api_key_env` of the sampler names `{name}`, which is not set"))),
        }
    }

    fn check(&self) -> Result<(), PolicyError> {
        if !(self.most_ratio >= 1.0 && self.most_ratio.is_finite()) {
            let fact = format!("`most_ratio` of the sampler must be a number of at least 1, got {}", self.most_ratio);
            return Err(PolicyError::Request(fact));
        }
        if self.adapters.is_none() && self.adapters_there.is_some() {
            let fact = "`adapters_there` of the sampler says where it finds the folder of `adapters`, which is missing";
            return Err(PolicyError::Request(fact.to_owned()));
        }
        Ok(())
    }
}

/// The address below which the operations of a server are.
fn address_of(server: ServerName, text: &str, below: &str) -> Result<Url, TinkerError> {
    let unusable = |fact: String| TinkerError::Address { server, url: lemon_exec::worker::mask_url(text), fact };
    let mut url = Url::parse(text).map_err(|error| unusable(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(unusable("expected http:// or https:// and a host".to_owned()));
    }
    let path = url.path().trim_end_matches('/');
    let path = path.strip_suffix(below).unwrap_or(path);
    url.set_path(&format!("{path}{below}/"));
    Ok(url)
}

/// Models that read pictures too keep the figures of their language model in a part of their own.
fn limits(text: &[u8]) -> Result<TokenLimits, String> {
    #[derive(Deserialize)]
    struct Shape {
        vocab_size: Option<usize>,
        max_position_embeddings: Option<usize>,
        text_config: Option<Box<Shape>>,
    }
    let shape: Shape =
        serde_json::from_slice(text).map_err(|error| format!("it is not the shape of a model: {error}"))?;
    let part = shape.text_config.as_deref().unwrap_or(&shape);
    match (part.vocab_size.or(shape.vocab_size), part.max_position_embeddings.or(shape.max_position_embeddings)) {
        (Some(vocabulary), Some(positions)) => Ok(TokenLimits { vocabulary, positions }),
        (None, _) => Err("it has no `vocab_size`".to_owned()),
        (_, None) => Err("it has no `max_position_embeddings`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_with_and_without_its_path() {
        let address = |url: &str| address_of(ServerName::Tinker, url, "/api/v1").map(|url| url.to_string());
        for url in ["http://host:8000", "http://host:8000/", "http://host:8000/api/v1", "http://host:8000/api/v1/"] {
            assert_eq!(address(url).unwrap(), "http://host:8000/api/v1/", "{url}");
        }
        assert_eq!(address("https://host/services/t").unwrap(), "https://host/services/t/api/v1/");
        for url in ["http://host:8001", "http://host:8001/v1", "http://host:8001/v1/"] {
            assert_eq!(SamplerStart::new(url).address().unwrap().to_string(), "http://host:8001/v1/", "{url}");
        }
        for (url, fact) in [
            ("host:8000", "expected http:// or https://"),
            ("tinker", "relative URL without a base"),
            ("ftp://host", "expected http:// or https://"),
            ("", "relative URL without a base"),
        ] {
            let error = address(url).unwrap_err();
            let sampler = SamplerStart::new(url).address().unwrap_err();
            assert!(sampler.hint().unwrap().contains("[start.sampler]"), "{sampler}");
            assert!(error.to_string().contains(fact), "{url}: {error}");
            assert!(error.hint().unwrap().contains("TINKER_BASE_URL"));
        }
        let secret = address("ftp://user:secret@host").unwrap_err().to_string();
        assert!(!secret.contains("secret"), "{secret}");
    }

    #[test]
    fn the_shape_of_a_model_says_which_tokens_it_knows() {
        let read = |text: &str| limits(text.as_bytes());
        let expected = Ok(TokenLimits { vocabulary: 9, positions: 7 });
        assert_eq!(read(r#"{"vocab_size": 9, "max_position_embeddings": 7, "more": 1}"#), expected);
        assert_eq!(read(r#"{"text_config": {"vocab_size": 9, "max_position_embeddings": 7}}"#), expected);
        assert_eq!(read(r#"{"vocab_size": 9}"#).unwrap_err(), "it has no `max_position_embeddings`");
        assert_eq!(read(r#"{"max_position_embeddings": 9}"#).unwrap_err(), "it has no `vocab_size`");
        assert!(read("[]").unwrap_err().starts_with("it is not the shape of a model"));
    }
}
