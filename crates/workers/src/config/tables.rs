//! The tables of `lemon.toml`, one type for each.

use lemon_exec::store::Sync;
use lemon_exec::{Budget, OnParentFailure, Price, Retry};
use lemon_model::DeviceChoice;
use lemon_spec::Style;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One capacity: a model, and how it is asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// The address of an OpenAI-compatible endpoint, up to `/v1`.
    #[serde(default)]
    pub base_url: String,
    /// The model's name there.
    #[serde(default)]
    pub model: String,
    /// Instead of both: a model to run in this process. A GGUF file, a folder as on the Hugging Face hub, or a name that
    /// `lemon models list` shows: `ollama:…`, `lmstudio:…`, `hf:…`, `bundled:…`.
    pub local: Option<String>,
    /// The environment variable that holds the key.
    pub api_key_env: Option<String>,
    /// Calls at a time; as [`Capacity::concurrency`] says where absent.
    pub max_concurrency: Option<usize>,
    /// What its tokens cost.
    pub price: Option<Price>,
    /// How it is asked to reply; as the roles of its agents say where absent.
    pub style: Option<Style>,
    /// The styles that this entry makes a capacity of each; none is left once the file is read.
    pub(crate) efforts: Option<Vec<Style>>,
    /// Completion tokens of a reply at most; as [`Capacity::max_tokens`] says where absent.
    pub max_tokens: Option<u64>,
    /// Sampling temperature; the endpoint's own where absent.
    pub temperature: Option<f64>,
    /// Seconds without anything new of a reply that comes piece by piece; seconds that a reply that comes whole may take.
    #[serde(default = "Capacity::default_timeout")]
    pub timeout_s: f64,
    /// Seconds a reply that comes piece by piece may take in all; ten times `timeout_s` where absent.
    pub total_timeout_s: Option<f64>,
    /// Whether to ask for replies piece by piece.
    #[serde(default = "yes")]
    pub stream: bool,
    /// Whether to send a seed.
    #[serde(default = "yes")]
    pub send_seed: bool,
}

impl Capacity {
    /// A capacity with the defaults for everything else.
    pub fn new(base_url: &str, model: &str, api_key_env: Option<String>) -> Self {
        Capacity {
            base_url: base_url.to_owned(),
            model: model.to_owned(),
            local: None,
            api_key_env,
            max_concurrency: None,
            price: None,
            style: None,
            efforts: None,
            max_tokens: None,
            temperature: None,
            timeout_s: Self::default_timeout(),
            total_timeout_s: None,
            stream: true,
            send_seed: true,
        }
    }

    /// A capacity that a model of this process serves.
    pub fn local(folder: &str) -> Self {
        Capacity { local: Some(folder.to_owned()), ..Capacity::new("", "", None) }
    }

    /// Calls at a time.
    pub fn concurrency(&self) -> usize {
        // An engine in this process has a queue of its own, and no other clients.
        let default = if self.local.is_some() { 4_096 } else { 32 };
        self.max_concurrency.unwrap_or(default)
    }

    /// Seconds a reply that comes piece by piece may take in all.
    pub fn total_timeout(&self) -> f64 {
        self.total_timeout_s.unwrap_or(10.0 * self.timeout_s)
    }

    /// The model: its folder or bundled name, or its name at the endpoint.
    pub fn model_name(&self) -> &str {
        self.local.as_deref().unwrap_or(&self.model)
    }

    /// Completion tokens of a reply at most.
    pub fn max_tokens(&self) -> u64 {
        self.max_tokens.unwrap_or_else(|| self.style.unwrap_or(Style::Reasoned).max_tokens())
    }

    /// The same for what the style does not shorten.
    pub fn long_tokens(&self) -> u64 {
        self.max_tokens.unwrap_or_else(|| Style::Reasoned.max_tokens())
    }

    fn default_timeout() -> f64 {
        120.0
    }
}

fn yes() -> bool {
    true
}

/// What writes the team.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OrchestratorConfig {
    /// Which kind; where absent, the kind that the other settings are for; where there are none, the policy (with scripted
    /// workers the script).
    kind: Option<OrchestratorKind>,
    /// `policy`: the folder of its model; the bundled one where absent.
    pub model: Option<PathBuf>,
    /// `prompted`: the capacity that writes; the strongest where absent.
    pub capacity: Option<String>,
    /// `fixed`: the file.
    pub spec: Option<PathBuf>,
    /// `prompted`: the team to run where the model writes none that is valid.
    pub fallback: Option<PathBuf>,
    /// `prompted`: whether to ask the endpoint to enforce the JSON Schema, which makes every field be written; not where absent.
    pub structured: Option<bool>,
    /// Whether teams are held to what one plain call would answer; they are where absent.
    pub guard: Option<bool>,
    /// `critic`: its file; the one that ships for the model where absent.
    pub critic: Option<PathBuf>,
    /// `critic`: whether it may be used with another model than the one it was fitted to.
    pub any_model: Option<bool>,
    /// `policy`: the folder of a head, which chooses among several teams for each task; none where absent.
    pub head: Option<PathBuf>,
    /// `policy` with a head: teams that are drawn beside the likeliest; 8 where absent.
    pub samples: Option<usize>,
    /// `critic`, and `policy` with a head: the reward that 1,000 tokens are worth, where a right answer is 1; 0.1 where absent.
    pub price: Option<f64>,
    /// Tokens that a team may cost which no measurement supports, in plain calls; 2 where absent.
    pub max_cost: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OrchestratorKind {
    /// A file.
    Fixed,
    /// An endpoint's model.
    Prompted,
    /// A model of our own that learned to write teams.
    Policy,
    /// A critic that weighs teams under a price of tokens.
    Critic,
}

impl OrchestratorConfig {
    /// Makes it this kind.
    pub fn set_kind(&mut self, kind: OrchestratorKind) {
        self.kind = Some(kind);
    }

    /// Which kind; `default` where the configuration does not say.
    pub fn kind(&self, default: OrchestratorKind) -> OrchestratorKind {
        let prompted = self.capacity.is_some() || self.fallback.is_some() || self.structured.is_some();
        match self.kind {
            Some(kind) => kind,
            None if prompted => OrchestratorKind::Prompted,
            None if self.critic.is_some() => OrchestratorKind::Critic,
            None if self.head.is_some() => OrchestratorKind::Policy,
            None if self.spec.is_some() => OrchestratorKind::Fixed,
            None => default,
        }
    }
}

/// The limits of a run.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetConfig {
    pub tokens: Option<u64>,
    /// US dollars.
    pub usd: Option<f64>,
    pub calls: Option<u64>,
    pub seconds: Option<f64>,
}

impl From<BudgetConfig> for Budget {
    fn from(config: BudgetConfig) -> Self {
        let BudgetConfig { tokens, usd, calls, seconds } = config;
        Budget { tokens, usd, calls, seconds }
    }
}

/// How runs are carried out.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunConfig {
    /// The kind of workers.
    pub workers: Option<String>,
    pub seed: Option<u64>,
    /// Tasks at a time.
    pub width: Option<usize>,
    /// Calls of one run at a time.
    pub max_parallel: Option<usize>,
    /// Rounds at most.
    pub max_rounds: Option<u32>,
    /// What becomes of the children of an agent that failed.
    pub on_parent_failure: Option<OnParentFailure>,
    /// Completion tokens below which a call is not worth making.
    pub least_reply_tokens: Option<u64>,
    /// Whether programs of agents run without isolation; they do not where absent.
    pub unsafe_no_sandbox: Option<bool>,
    /// Whether replies on record answer the same call again.
    pub reuse: Option<bool>,
    /// Calls of tools that one agent makes at most.
    pub max_tool_calls: Option<u32>,
    /// Where models of this process run, as [`RunConfig::device`] says where absent.
    pub device: Option<DeviceChoice>,
    /// When a failed call is tried again.
    pub retry: Retry,
}

impl RunConfig {
    /// Where models of this process run. Bundled models are so small that they always run on the CPU.
    pub fn device(&self) -> DeviceChoice {
        self.device.unwrap_or(DeviceChoice::Auto)
    }
}

/// The role library.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RolesConfig {
    /// A folder of `NAME.yaml` files with `title`, `duty` and `prompt`.
    pub folder: Option<PathBuf>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    /// The file.
    pub path: Option<PathBuf>,
    /// What is lost at worst when the machine dies.
    pub sync: Sync,
}
