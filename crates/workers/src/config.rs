//! `lemon.toml`, with the endpoint flags applied.

mod effort;

use crate::error::WorkersError;
use crate::files::read_file;
use crate::models;
use crate::tools::Consent;
use lemon_exec::store::Sync;
use lemon_exec::{Budget, OnParentFailure, Price, Retry};
use lemon_model::DeviceChoice;
use lemon_spec::{Language, Limits, Style};
use lemon_tools::ToolsConfig;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// The name looked for in the current folder.
pub const FILE_NAME: &str = "lemon.toml";
/// What a new configuration says.
pub const TEMPLATE: &str = include_str!("lemon.toml");
/// Where the store is by default.
const STORE: &str = ".lemon/lemon.db";
/// The default names of capacities, weakest first.
pub(crate) const CAPACITIES: [&str; 3] = ["small", "medium", "large"];

/// Everything a configuration can say. All of it is optional.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The capacities, weakest first, in the order of the file.
    #[serde(deserialize_with = "in_order")]
    pub capacity: Vec<(String, Capacity)>,
    /// What writes the team.
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
    /// The tools that agents may call.
    pub tools: ToolsConfig,
    /// The folder paths in the file are relative to.
    #[serde(skip)]
    pub folder: PathBuf,
    /// The endpoint flags that [`Config::with_endpoint`] applied.
    #[serde(skip)]
    pub(crate) flags: EndpointFlags,
    /// The store that [`Config::with_store`] set.
    #[serde(skip)]
    store_flag: Option<PathBuf>,
    /// Who lets tools run that may change something.
    #[serde(skip)]
    pub(crate) consent: Consent,
}

/// Where models are served, from flags and environment. They take the place of what the file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointFlags {
    /// The address of an OpenAI-compatible endpoint, for every capacity.
    pub base_url: Option<String>,
    /// The model there, for every capacity.
    pub model: Option<String>,
    /// The environment variable that holds its key.
    pub api_key_env: Option<String>,
    /// Where models of this process run.
    pub device: Option<DeviceChoice>,
}

impl EndpointFlags {
    /// Whether one of address and model is given without the other.
    pub(crate) fn is_half(&self) -> bool {
        self.base_url.is_some() != self.model.is_some() && self.in_process().is_none()
    }

    /// What `--model` says where no address is given, if it is a GGUF file or the name of a model on this machine: that runs
    /// in this process.
    fn in_process(&self) -> Option<&str> {
        let model = self.model.as_deref().filter(|_| self.base_url.is_none())?;
        (models::is_gguf(Path::new(model)) || models::is_name(model)).then_some(model)
    }
}

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
    /// `critic`: the reward that 1,000 tokens are worth, where a right answer is 1; 0.1 where absent.
    pub price: Option<f64>,
    /// Tokens that a team may cost which no measurement supports, in plain calls; 2 where absent.
    pub max_cost: Option<f64>,
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
            None if self.spec.is_some() => OrchestratorKind::Fixed,
            None => default,
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
    pub fn load(path: Option<&Path>) -> Result<Self, WorkersError> {
        let here = Path::new(FILE_NAME);
        let path = match path {
            Some(path) => path,
            None if here.exists() => here,
            None => return Ok(Config::default()),
        };
        let text = read_file(path)?;
        let mut config: Config = toml::from_str(&text)
            .map_err(|error| WorkersError::new(format!("{}: {}", path.display(), error.to_string().trim_end())))?;
        config.folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let folder = config.folder.clone();
        let locals = config.capacity.iter_mut().filter_map(|(_, capacity)| capacity.local.as_mut());
        for local in locals.filter(|local| !models::is_name(local)) {
            *local = folder.join(&*local).to_string_lossy().into_owned();
        }
        config.check(path)?;
        Ok(config)
    }

    /// This configuration with flags and environment in the place of what the file says of endpoints.
    #[must_use]
    pub fn with_endpoint(mut self, flags: EndpointFlags) -> Self {
        self.run.device = flags.device.or(self.run.device);
        if let Some(file) = flags.in_process() {
            let capacity = Capacity::local(file);
            self.capacity = CAPACITIES.map(|name| (name.to_owned(), capacity.clone())).to_vec();
            self.flags = flags;
            return self;
        }
        if self.capacity.is_empty()
            && let (Some(base_url), Some(model)) = (&flags.base_url, &flags.model)
        {
            let capacity = Capacity::new(base_url, model, None);
            self.capacity = CAPACITIES.map(|name| (name.to_owned(), capacity.clone())).to_vec();
        }
        for (_, capacity) in &mut self.capacity {
            if let Some(base_url) = &flags.base_url {
                capacity.base_url.clone_from(base_url);
                capacity.local = None;
            }
            if let Some(model) = &flags.model {
                capacity.model.clone_from(model);
            }
            if let Some(variable) = &flags.api_key_env {
                capacity.api_key_env = Some(variable.clone());
            }
        }
        self.flags = flags;
        self
    }

    /// This configuration with the store that a flag or the environment names, if one does.
    #[must_use]
    pub fn with_store(self, path: Option<&Path>) -> Self {
        Config { store_flag: path.map(Path::to_owned), ..self }
    }

    /// This configuration with another word on tools that may change something.
    #[must_use]
    pub fn with_consent(self, consent: Consent) -> Self {
        Config { consent, ..self }
    }

    /// This configuration with other capacities, and without endpoint flags.
    #[must_use]
    pub fn with_capacities(&self, capacity: Vec<(String, Capacity)>) -> Self {
        Config { capacity, flags: EndpointFlags::default(), ..self.clone() }
    }

    /// The roles, capacities and limits of this installation.
    ///
    /// # Errors
    /// A role file cannot be used.
    pub fn language(&self) -> Result<Language, WorkersError> {
        let mut language = Language { limits: self.limits.clone(), tools: self.agent_tools(), ..Language::default() };
        if !self.capacity.is_empty() {
            language.capacities = self.capacity.iter().map(|(name, _)| name.clone()).collect();
            language.efforts = effort::efforts(&self.capacity);
            language.tests = self.runs_programs();
        }
        if let Some(folder) = &self.roles.folder {
            language.roles.add_folder(&self.resolve(folder)).map_err(|errors| {
                let facts = errors.iter().map(|error| match &error.hint {
                    Some(hint) => format!("{error} ({hint})"),
                    None => error.to_string(),
                });
                let facts = facts.collect::<Vec<_>>().join("\n  ");
                WorkersError::new(format!("the role library cannot be used:\n  {facts}"))
            })?;
        }
        Ok(language)
    }

    /// Whether agents of some capacity write programs that are run.
    pub fn runs_programs(&self) -> bool {
        self.capacity.iter().any(|(_, capacity)| capacity.style == Some(Style::Program))
    }

    /// The capacity of this name.
    pub fn capacity(&self, name: &str) -> Option<&Capacity> {
        self.capacity.iter().find(|(known, _)| known == name).map(|(_, capacity)| capacity)
    }

    /// Where the store is: flag or environment, then the file, then the current folder.
    pub fn store_path(&self, flag: Option<&Path>) -> PathBuf {
        match (flag.or(self.store_flag.as_deref()), &self.store.path) {
            (Some(path), _) => path.to_owned(),
            (None, Some(path)) => self.resolve(path),
            (None, None) => PathBuf::from(STORE),
        }
    }

    /// A path of the file, relative to the file.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        self.folder.join(path)
    }

    fn check(&self, path: &Path) -> Result<(), WorkersError> {
        let fault = |place: String, fact: &str| Err(WorkersError::new(format!("{}: {place} {fact}", path.display())));
        for (name, capacity) in &self.capacity {
            let place = |key: &str| format!("capacity.{name}.{key}");
            if capacity.max_concurrency == Some(0) {
                return fault(place("max_concurrency"), "must be at least 1, got 0");
            }
            if capacity.max_tokens == Some(0) {
                return fault(place("max_tokens"), "must be at least 1, got 0");
            }
            if !(capacity.timeout_s > 0.0 && capacity.timeout_s.is_finite()) {
                let fact = format!("must be a number of seconds above 0, got {}", capacity.timeout_s);
                return fault(place("timeout_s"), &fact);
            }
            if let Some(total) = capacity.total_timeout_s.filter(|it| !(*it >= capacity.timeout_s && it.is_finite())) {
                let fact = format!("must be a number of seconds, at least `timeout_s`, got {total}");
                return fault(place("total_timeout_s"), &fact);
            }
            let price = capacity.price.unwrap_or_default();
            let wrong = |price: &f64| !(*price >= 0.0 && price.is_finite());
            if let Some(price) = [price.input, price.output].into_iter().find(wrong) {
                return fault(place("price"), &format!("must be at least 0, got {price}"));
            }
            let (endpoint, model) = (!capacity.base_url.is_empty(), !capacity.model.is_empty());
            match (&capacity.local, endpoint && model) {
                (Some(_), _) if endpoint || model => {
                    return fault(place("local"), "and an endpoint exclude each other: remove one of them");
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
        if let Some(cost) = self.orchestrator.max_cost.filter(|cost| !(1.0..f64::INFINITY).contains(cost)) {
            return fault("orchestrator.max_cost".to_owned(), &format!("must be at least 1, got {cost}"));
        }
        for (place, value) in [("budget.usd", self.budget.usd), ("budget.seconds", self.budget.seconds)] {
            if let Some(value) = value.filter(|value| value.is_nan() || *value < 0.0) {
                return fault(place.to_owned(), &format!("must be at least 0, got {value}"));
            }
        }
        self.check_tools(path)
    }
}

/// Whether a budget in US dollars can be kept with these capacities.
///
/// # Errors
/// A capacity that costs money has no price.
pub fn check_prices(capacities: &[(String, Capacity)]) -> Result<(), WorkersError> {
    let fact = "a budget in US dollars needs the price of every capacity";
    let unpriced = |(_, capacity): &&(String, Capacity)| capacity.price.is_none() && capacity.local.is_none();
    if let Some((name, _)) = capacities.iter().find(unpriced) {
        return Err(WorkersError::new(format!("{fact}: capacity `{name}` has no price"))
            .hint(format!("add `price = {{ input = …, output = … }}` (USD per million tokens) to [capacity.{name}]")));
    }
    match capacities.is_empty() {
        true => Err(WorkersError::new(format!("{fact}: no capacity is configured"))),
        false => Ok(()),
    }
}

/// The entries of a table in the order of the file, which a map would lose: capacities are listed weakest first.
fn in_order<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, Capacity)>, D::Error> {
    struct Entries;
    impl<'de> Visitor<'de> for Entries {
        type Value = Vec<(String, Capacity)>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a table of capacities")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while let Some((name, entry)) = map.next_entry::<String, Capacity>()? {
                entries.extend(effort::capacities(name, entry).map_err(A::Error::custom)?);
            }
            effort::check_names(&entries).map_err(A::Error::custom)?;
            Ok(entries)
        }
    }
    deserializer.deserialize_map(Entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_keep_the_order_of_the_file() {
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
        check("local = 'bundled:small'\n", 4_096);
        check("base_url = 'http://a'\nmodel = 'm'\n", 32);
        check("local = 'box:small'\nmax_concurrency = 3\n", 3);
        check("base_url = 'http://a'\nmodel = 'm'\nmax_concurrency = 300\n", 300);
    }

    #[test]
    fn flags_take_the_place_of_the_file() {
        let flags =
            EndpointFlags { base_url: Some("http://b".into()), model: Some("n".into()), ..EndpointFlags::default() };
        let places = |config: &Config| {
            let place = |(name, it): &(String, Capacity)| format!("{name} {} {}", it.base_url, it.model_name());
            config.capacity.iter().map(place).collect::<Vec<_>>()
        };
        let nothing = Config::default().with_endpoint(flags.clone());
        assert_eq!(places(&nothing), ["small http://b n", "medium http://b n", "large http://b n"]);
        let file: Config = toml::from_str("[capacity.one]\nlocal = 'here'\n").unwrap();
        assert_eq!(places(&file), ["one  here"]);
        assert_eq!(places(&file.clone().with_endpoint(flags)), ["one http://b n"]);
        assert_eq!(places(&file.clone().with_endpoint(EndpointFlags::default())), ["one  here"]);
        let in_process = EndpointFlags { model: Some("m/a.GGUF".into()), ..EndpointFlags::default() };
        assert!(!in_process.is_half());
        assert_eq!(places(&file.with_endpoint(in_process)), ["small  m/a.GGUF", "medium  m/a.GGUF", "large  m/a.GGUF"]);
    }

    #[test]
    fn the_file_that_init_writes_can_be_read() {
        let config: Config = toml::from_str(TEMPLATE).unwrap();
        assert_eq!(config.capacity.len(), 3);
    }
}
