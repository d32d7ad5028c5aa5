//! `lemon.toml`, with the endpoint flags applied.

mod effort;
mod tables;

pub use tables::{BudgetConfig, Capacity, OrchestratorConfig, OrchestratorKind, RolesConfig, RunConfig, StoreConfig};

use crate::error::WorkersError;
use crate::files::read_file;
use crate::models;
use crate::tools::Consent;
use lemon_model::DeviceChoice;
use lemon_spec::{Language, Limits, Style};
use lemon_tools::ToolsConfig;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
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
