//! `lemon.toml`: what stands in it, and where it is.

use crate::fault::{Fault, read_file};
use crate::in_the_box;
use lemon_exec::store::Sync;
use lemon_exec::{Budget, OnParentFailure, Price, Retry};
use lemon_spec::Limits;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::path::{Path, PathBuf};

/// The name looked for in the current folder.
pub const FILE_NAME: &str = "lemon.toml";

/// Everything a configuration can say. All of it is optional.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The levels of model, weakest first, in the order of the file.
    #[serde(deserialize_with = "in_order")]
    pub capacity: Vec<(String, Capacity)>,
    /// Who writes the team.
    pub orchestrator: OrchestratorConfig,
    /// The limits of a run.
    pub budget: BudgetConfig,
    /// How runs are carried out.
    pub run: RunConfig,
    /// The limits of a specification.
    pub limits: Limits,
    /// The role library.
    pub roles: RolesConfig,
    /// The store.
    pub store: StoreConfig,
    /// The folder paths in the file are relative to.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// One level of model.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// The address of an OpenAI-compatible endpoint, up to `/v1`.
    #[serde(default)]
    pub base_url: String,
    /// The model's name there.
    #[serde(default)]
    pub model: String,
    /// Instead of both: the folder of a model to run in this process, or `box:small`, `box:medium`, `box:large`.
    pub local: Option<String>,
    /// The environment variable that holds the key.
    pub api_key_env: Option<String>,
    /// Calls at a time; as [`Capacity::concurrency`] says where absent.
    pub max_concurrency: Option<usize>,
    /// What its tokens cost.
    pub price: Option<Price>,
    /// Completion tokens of a reply at most.
    #[serde(default = "Capacity::default_max_tokens")]
    pub max_tokens: u64,
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
    /// A level with the defaults for all that is not said.
    pub fn new(base_url: &str, model: &str, api_key_env: Option<String>) -> Self {
        Capacity {
            base_url: base_url.to_owned(),
            model: model.to_owned(),
            local: None,
            api_key_env,
            max_concurrency: None,
            price: None,
            max_tokens: Self::default_max_tokens(),
            temperature: None,
            timeout_s: Self::default_timeout(),
            total_timeout_s: None,
            stream: true,
            send_seed: true,
        }
    }

    /// A level that a model of this process serves.
    pub fn local(folder: &str) -> Self {
        Capacity { local: Some(folder.to_owned()), ..Capacity::new("", "", None) }
    }

    /// Calls at a time.
    pub fn concurrency(&self) -> usize {
        // An engine in this process has a queue of its own, and nobody else to be polite to.
        let usual = if self.local.is_some() { 4_096 } else { 32 };
        self.max_concurrency.unwrap_or(usual)
    }

    /// Seconds a reply that comes piece by piece may take in all.
    pub fn total_timeout(&self) -> f64 {
        self.total_timeout_s.unwrap_or(10.0 * self.timeout_s)
    }

    fn default_max_tokens() -> u64 {
        1024
    }

    fn default_timeout() -> f64 {
        120.0
    }
}

fn yes() -> bool {
    true
}

/// Who writes the team.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OrchestratorConfig {
    /// Which kind; where absent, the kind that the other settings are for; where there are none, the policy (with scripted
    /// workers the script).
    kind: Option<OrchestratorKind>,
    /// `policy`: the folder of its model; the one in the box where absent.
    pub model: Option<PathBuf>,
    /// `prompted`: the level of model that writes; the strongest where absent.
    pub capacity: Option<String>,
    /// `fixed`: the file.
    pub spec: Option<PathBuf>,
    /// `prompted`: the team to run where the model writes none that is valid.
    pub fallback: Option<PathBuf>,
    /// `prompted`: whether to ask the endpoint to enforce the JSON Schema, which makes every field be written; not where absent.
    pub structured: Option<bool>,
    /// Whether teams are held to what one plain call would answer; they are where absent.
    pub guard: Option<bool>,
}

/// The kinds of orchestrator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OrchestratorKind {
    /// A file.
    Fixed,
    /// An endpoint's model.
    Prompted,
    /// A model of our own that learned to write teams.
    Policy,
}

impl OrchestratorConfig {
    /// Makes it this kind.
    pub fn set_kind(&mut self, kind: OrchestratorKind) {
        self.kind = Some(kind);
    }

    /// Which kind; `usual` where nothing is said.
    pub fn kind(&self, usual: OrchestratorKind) -> OrchestratorKind {
        let prompted = self.capacity.is_some() || self.fallback.is_some() || self.structured.is_some();
        match self.kind {
            Some(kind) => kind,
            None if prompted => OrchestratorKind::Prompted,
            None if self.spec.is_some() => OrchestratorKind::Fixed,
            None => usual,
        }
    }
}

/// The limits of a run.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetConfig {
    /// Tokens.
    pub tokens: Option<u64>,
    /// US dollars.
    pub usd: Option<f64>,
    /// Calls.
    pub calls: Option<u64>,
    /// Seconds.
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
    /// The seed.
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
    /// Whether replies on record answer the same call again.
    pub reuse: Option<bool>,
    /// When a failed call is tried again.
    pub retry: Retry,
}

/// The role library.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RolesConfig {
    /// A folder of `NAME.yaml` files with `title`, `duty` and `prompt`.
    pub folder: Option<PathBuf>,
}

/// The store.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    /// The file.
    pub path: Option<PathBuf>,
    /// What is lost at worst when the machine dies.
    pub sync: Sync,
}

impl Config {
    /// Reads the configuration at `path`, or the one in the current folder if there is one.
    ///
    /// # Errors
    /// The file cannot be read, or says something that cannot be understood.
    pub fn load(path: Option<&Path>) -> Result<Self, Fault> {
        let here = Path::new(FILE_NAME);
        let path = match path {
            Some(path) => path,
            None if here.exists() => here,
            None => return Ok(Config::default()),
        };
        let text = read_file(path)?;
        let mut config: Config = toml::from_str(&text)
            .map_err(|error| Fault::new(format!("{}: {}", path.display(), error.to_string().trim_end())))?;
        config.folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let folder = config.folder.clone();
        let on_disk = config.capacity.iter_mut().filter(|(_, capacity)| !in_the_box::serves(capacity));
        for local in on_disk.filter_map(|(_, capacity)| capacity.local.as_mut()) {
            *local = folder.join(&*local).to_string_lossy().into_owned();
        }
        config.check(path)?;
        Ok(config)
    }

    /// A path of the file, relative to the file.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        self.folder.join(path)
    }

    fn check(&self, path: &Path) -> Result<(), Fault> {
        let fault = |place: String, fact: &str| Err(Fault::new(format!("{}: {place} {fact}", path.display())));
        for (name, capacity) in &self.capacity {
            let place = |key: &str| format!("capacity.{name}.{key}");
            if capacity.max_concurrency == Some(0) {
                return fault(place("max_concurrency"), "is 0: no call could ever be made");
            }
            if capacity.max_tokens == 0 {
                return fault(place("max_tokens"), "is 0: no reply could have text");
            }
            if !(capacity.timeout_s > 0.0 && capacity.timeout_s.is_finite()) {
                return fault(place("timeout_s"), "must be a number of seconds above 0");
            }
            if capacity.total_timeout_s.is_some_and(|total| !(total >= capacity.timeout_s && total.is_finite())) {
                return fault(place("total_timeout_s"), "must be a number of seconds, and at least `timeout_s`");
            }
            let price = capacity.price.unwrap_or_default();
            if !(price.input >= 0.0 && price.output >= 0.0 && price.input.is_finite() && price.output.is_finite()) {
                return fault(place("price"), "must not be negative");
            }
            let (endpoint, model) = (!capacity.base_url.is_empty(), !capacity.model.is_empty());
            match (&capacity.local, endpoint && model) {
                (Some(_), _) if endpoint || model => {
                    return fault(place("local"), "and an endpoint exclude each other: take one of them out");
                }
                (Some(_), _) => continue,
                (None, true) => {}
                (None, false) => {
                    return fault(format!("capacity.{name}"), "needs `base_url` and `model`, or `local`");
                }
            }
            if !capacity.base_url.starts_with("http://") && !capacity.base_url.starts_with("https://") {
                return fault(place("base_url"), "must begin with http:// or https://");
            }
        }
        let numbers = [("budget.usd", self.budget.usd), ("budget.seconds", self.budget.seconds)];
        for (place, value) in numbers {
            if value.is_some_and(|value| value.is_nan() || value < 0.0) {
                return fault(place.to_owned(), "must not be negative");
            }
        }
        Ok(())
    }
}

/// The entries of a table in the order of the file: the order of levels is a fact, and a map would lose it.
fn in_order<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, Capacity)>, D::Error> {
    struct Entries;
    impl<'de> Visitor<'de> for Entries {
        type Value = Vec<(String, Capacity)>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a table of capacity levels")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = map.next_entry()? {
                entries.push(entry);
            }
            Ok(entries)
        }
    }
    deserializer.deserialize_map(Entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_keep_the_order_of_the_file() {
        let text = "[capacity.zeta]\nbase_url = 'http://a'\nmodel = 'm'\n[capacity.alpha]\nbase_url = 'http://a'\nmodel = 'm'\n";
        let config: Config = toml::from_str(text).unwrap();
        assert_eq!(config.capacity.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["zeta", "alpha"]);
    }

    #[test]
    fn a_model_of_this_process_is_asked_by_as_many_as_its_queue_holds() {
        let check = |keys: &str, concurrency: usize| {
            let config: Config = toml::from_str(&format!("[capacity.small]\n{keys}")).unwrap();
            assert_eq!(config.capacity[0].1.concurrency(), concurrency, "{keys}");
        };
        check("local = 'box:small'\n", 4_096);
        check("base_url = 'http://a'\nmodel = 'm'\n", 32);
        check("local = 'box:small'\nmax_concurrency = 3\n", 3);
        check("base_url = 'http://a'\nmodel = 'm'\nmax_concurrency = 300\n", 300);
    }

    #[test]
    fn the_file_that_init_writes_can_be_read() {
        let config: Config = toml::from_str(crate::commands::init::TEMPLATE).unwrap();
        assert_eq!(config.capacity.len(), 3);
    }
}
