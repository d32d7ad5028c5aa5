//! A vLLM server that samples texts under a grammar, with the weights of a model that another server trains.
//!
//! What the protocol leaves to the client:
//!
//! 1. Fields that a server does not know are ignored, so a server without structured outputs writes what it likes; and log-probabilities
//!    may be those before the grammar cut tokens off. Both are found out at the start: two texts of one character each are demanded
//!    after the same prompt. Each must come, with a probability near 1; without the cut both together have at most 1.
//! 2. A server takes its defaults from the files of the model: top-p, top-k and a penalty of repetition. All are named in each request.
//! 3. Adapters are known by name, and what was computed of a prompt is kept under that name: each step has a name of its own. Where
//!    another program loads them, under one name, a salt keeps apart what was computed with different weights.

use crate::adapter::unpack;
use crate::client::{Client, Patience, Twice};
use crate::remote::{RemoteModel, Weights};
use crate::settings::SamplerStart;
use crate::wire::SampledText;
use crate::{ServerName, TinkerError};
use lemon_model::{PolicyError, Tokenizer};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) const COMPLETE: &str = "completions";
pub(crate) const LOAD: &str = "load_lora_adapter";
const UNLOAD: &str = "unload_lora_adapter";
const MODELS: &str = "models";

/// What is demanded at the start, character by character.
const DEMANDED: [&str; 2] = ["~", "Q"];
/// Two texts that exclude each other cannot both be likelier than this without a grammar.
const SURE: f32 = 0.9;

const GRAMMAR_HINT: &str = "it has to be a vLLM server with structured outputs (0.27.1 is tried), started with \
     --structured-outputs-config.backend guidance, and to serve the model whose tokenizer is in `folder` under [start]";
const LOGPROBS_HINT: &str = "start vLLM with --logprobs-mode processed_logprobs";

/// A server that samples for a model.
pub(crate) struct Sampler {
    client: Client,
    /// The name of the model without an adapter.
    base: String,
    /// The folder of adapters here, and as the server finds it.
    adapters: Option<(PathBuf, String)>,
    /// What the names of adapters of this process begin with.
    prefix: String,
    /// How often weights were handed on.
    handed_on: AtomicU64,
    pub most_ratio: f32,
}

/// A text to be sampled.
pub(crate) struct Completion<'a> {
    pub prompt: &'a [u32],
    /// The grammar in Lark's notation, as llguidance has it.
    pub grammar: Option<&'a str>,
    pub max_tokens: usize,
    pub temperature: f32,
    pub top_p: f32,
    pub seed: u32,
    pub ends: &'a [u32],
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    prompt: &'a [u32],
    max_tokens: usize,
    temperature: f32,
    top_p: f32,
    top_k: i32,
    min_p: f32,
    repetition_penalty: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
    seed: u32,
    stop_token_ids: &'a [u32],
    /// None but that of the token that was drawn.
    logprobs: u32,
    return_token_ids: bool,
    add_special_tokens: bool,
    cache_salt: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    structured_outputs: Option<StructuredOutputs<'a>>,
}

#[derive(Serialize)]
struct StructuredOutputs<'a> {
    grammar: &'a str,
}

#[derive(Deserialize)]
struct Completed {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    token_ids: Option<Vec<u32>>,
    logprobs: Option<Logprobs>,
}

#[derive(Deserialize)]
struct Logprobs {
    token_logprobs: Vec<Option<f32>>,
}

#[derive(Deserialize)]
struct Models {
    data: Vec<Served>,
}

#[derive(Deserialize)]
struct Served {
    id: String,
}

#[derive(Serialize)]
struct Load<'a> {
    lora_name: &'a str,
    lora_path: &'a str,
    /// So that a request that is sent twice does not fail.
    load_inplace: bool,
}

#[derive(Serialize)]
struct Unload<'a> {
    lora_name: &'a str,
}

impl Sampler {
    /// The sampler of a recipe, which serves `base_model`.
    pub fn new(
        start: &SamplerStart,
        base_model: &str,
        patience: Patience,
        longest: Duration,
    ) -> Result<Self, PolicyError> {
        let client = Client::new((ServerName::Sampler, start.address()?), &start.key()?, patience, longest)?;
        let adapters = start.adapters.as_ref().map(|folder| -> Result<_, PolicyError> {
            let file = |source| PolicyError::File { path: folder.clone(), source };
            std::fs::create_dir_all(folder).map_err(file)?;
            let folder = std::fs::canonicalize(folder).map_err(file)?;
            let there = start.adapters_there.clone().unwrap_or_else(|| folder.display().to_string());
            Ok((folder, there))
        });
        Ok(Sampler {
            client,
            base: start.model.clone().unwrap_or_else(|| base_model.to_owned()),
            adapters: adapters.transpose()?,
            prefix: format!("lemon-{}", lemon_exec::fresh_id()),
            handed_on: AtomicU64::new(0),
            most_ratio: start.most_ratio,
        })
    }

    /// Finds out whether the server does what it has to.
    pub async fn check(&self, tokenizer: &Tokenizer) -> Result<(), TinkerError> {
        let Models { data } = self.client.ask(MODELS).await?;
        if !data.iter().any(|served| served.id == self.base) {
            let served: Vec<String> = data.iter().map(|served| format!("`{}`", served.id)).collect();
            let served = if served.is_empty() { "no model".to_owned() } else { served.join(", ") };
            let fact = format!("it serves {served}, not `{}`", self.base);
            return Err(unfit(fact, "correct `model` under [start.sampler] in the recipe"));
        }
        let prompt = tokenizer.encode_plain("A");
        for demanded in DEMANDED {
            let grammar = format!("start: \"{demanded}\"\n");
            let completion = Completion {
                prompt: &prompt,
                grammar: Some(&grammar),
                max_tokens: 2,
                temperature: 1.0,
                top_p: 1.0,
                seed: 0,
                ends: tokenizer.ends(),
            };
            let SampledText { tokens, logprobs } = self.complete(&self.base, &completion).await?;
            // A special token has no bytes.
            let written = tokenizer.decode(&tokens);
            if written != demanded {
                let fact = format!("under a grammar that allows `{demanded}` alone it wrote {written:?}");
                return Err(unfit(fact, GRAMMAR_HINT));
            }
            let first = logprobs.and_then(|logprobs| logprobs.first().copied()).unwrap_or(f32::NEG_INFINITY);
            if first < SURE.ln() {
                let fact = format!(
                    "it tells log-probabilities from before the grammar: that of a forced token is {first}, expected 0"
                );
                return Err(unfit(fact, LOGPROBS_HINT));
            }
        }
        Ok(())
    }

    /// Hands the current weights of a model on, under a name of their own. Returns that name, and how many names were tried.
    pub async fn hand_on(
        &self,
        model: &RemoteModel,
        steps: u64,
        saved: u64,
        before: Option<&str>,
    ) -> Result<(String, u64), TinkerError> {
        self.handed_on.fetch_add(1, Ordering::Relaxed);
        let Some((folder, there)) = &self.adapters else {
            let (_, tried) = model.save(Weights::Sampled, saved).await?;
            return Ok((model.id.clone(), tried));
        };
        let (path, tried) = model.save(Weights::Adapter { steps }, saved).await?;
        let archive = model.archive(&path).await?;
        let name = format!("{}-{}", self.prefix, saved + tried);
        let own = folder.join(&name);
        let (named, target) = (path.clone(), own.clone());
        let unpacked = tokio::task::spawn_blocking(move || unpack(&named, &archive, &target)).await;
        unpacked.map_err(|error| TinkerError::Adapter { name: path, fact: error.to_string() })??;
        let load = Load { lora_name: &name, lora_path: &format!("{there}/{name}"), load_inplace: true };
        self.client.tell(LOAD, &load, Twice::Harmless).await?;
        if let Some(before) = before {
            self.forget(before).await?;
        }
        Ok((name, tried))
    }

    /// Takes an adapter of this process from the sampler, and from the folder.
    pub async fn forget(&self, name: &str) -> Result<(), TinkerError> {
        let Some((folder, _)) = self.adapters.as_ref().filter(|_| name.starts_with(&self.prefix)) else {
            return Ok(());
        };
        match self.client.tell(UNLOAD, &Unload { lora_name: name }, Twice::Harmless).await {
            // A server that has restarted knows it no more.
            Ok(_) | Err(TinkerError::Refused { status: 404, .. }) => {}
            Err(error) => return Err(error),
        }
        remove(&folder.join(name))
            .map_err(|error| TinkerError::Adapter { name: name.to_owned(), fact: error.to_string() })
    }

    /// Samples one text: its tokens, and the log-probability by which each was drawn.
    pub async fn complete(&self, model: &str, completion: &Completion<'_>) -> Result<SampledText, TinkerError> {
        let Completion { prompt, grammar, max_tokens, temperature, top_p, seed, ends } = *completion;
        let request = Request {
            model,
            prompt,
            max_tokens,
            temperature,
            top_p,
            top_k: -1,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            seed,
            stop_token_ids: ends,
            logprobs: 0,
            return_token_ids: true,
            add_special_tokens: false,
            cache_salt: &format!("{}-{}", self.prefix, self.handed_on.load(Ordering::Relaxed)),
            structured_outputs: grammar.map(|grammar| StructuredOutputs { grammar }),
        };
        let Completed { choices } = self.client.call(COMPLETE, &request, Twice::Harmless).await?;
        let malformed = |fact: &str| self.client.malformed(COMPLETE, fact.to_owned());
        let [choice] = <[Choice; 1]>::try_from(choices).map_err(|_| malformed("expected one text"))?;
        let tokens = choice.token_ids.ok_or_else(|| malformed("it has no `token_ids`"))?;
        let logprobs = choice.logprobs.ok_or_else(|| malformed("it has no `logprobs`"))?.token_logprobs;
        let logprobs: Option<Vec<f32>> = logprobs.into_iter().collect();
        Ok(SampledText { tokens, logprobs: Some(logprobs.ok_or_else(|| malformed("a token has no log-probability"))?) })
    }
}

fn unfit(fact: String, hint: &'static str) -> TinkerError {
    TinkerError::Unfit { fact, hint }
}

fn remove(folder: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
