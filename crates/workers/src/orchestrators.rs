//! From a resolved configuration to what writes the team.

use crate::bundled::{self, BundledModel};
use crate::config::{Capacity, Config, OrchestratorKind};
use crate::critic::{CriticUse, critic_orchestrator};
use crate::error::{WorkersError, WorkersErrorKind};
use crate::evidence;
use crate::files::read_file;
use crate::resolve::Resolved;
use async_trait::async_trait;
use lemon_critic::CriticRule;
use lemon_exec::orchestrator::{
    Draft, Fixed, Guard, MAX_COST, ModelNote, Orchestrator, OrchestratorError, Prompted, WriteContext,
};
use lemon_exec::{Level, Settings};
use lemon_model::{DeviceChoice, LanguagePolicy, Learning, PolicyError, SampleSettings};
use lemon_policy::{LEAST_CONFIDENCE, LanguagePromptEncoder, MOST_TOKENS, TeamHead, Writer};
use lemon_spec::{Language, Shape};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::OnceCell;

/// What traces call the bundled orchestrator.
pub const BUNDLED_ORCHESTRATOR: &str = "bundled orchestrator";

/// Teams that are drawn where a head chooses.
const SAMPLES: usize = 8;
const MOST_SAMPLES: usize = 256;

/// Which model of an orchestrator, and where it runs.
#[derive(Debug, Clone)]
pub struct PolicySource {
    /// The folder of the model. `None`: the one that the configuration names, or else the bundled one.
    pub folder: Option<PathBuf>,
    /// Where it runs.
    pub device: DeviceChoice,
}

impl Default for PolicySource {
    fn default() -> Self {
        PolicySource { folder: None, device: DeviceChoice::Auto }
    }
}

impl PolicySource {
    /// The folder, if it is not the bundled model.
    fn folder(&self, config: &Config) -> Option<PathBuf> {
        let configured = || config.orchestrator.model.as_ref().map(|path| config.resolve(path));
        self.folder.clone().or_else(configured)
    }
}

/// A policy, and the encoder it writes at.
///
/// # Errors
/// A file of the model cannot be used, or the device is not there.
pub fn policy(
    config: &Config,
    source: &PolicySource,
    language: Arc<Language>,
) -> Result<(LanguagePolicy, LanguagePromptEncoder), WorkersError> {
    let policy = match source.folder(config) {
        Some(folder) => LanguagePolicy::load(&folder, source.device, Learning::Nothing).map_err(|error| {
            WorkersError::new(error)
                .hint("a model is a folder with config.json, model.safetensors and tokenizer.json")
                .kind(WorkersErrorKind::Model)
        })?,
        None => load_bundled(bundled::orchestrator(&config.capacity), source.device)?,
    };
    let encoder = encoder(&policy, language);
    Ok((policy, encoder))
}

fn load_bundled(model: &BundledModel, device: DeviceChoice) -> Result<LanguagePolicy, WorkersError> {
    LanguagePolicy::load_packed(model.files()?, device, Learning::Nothing).map_err(|error| match error {
        PolicyError::Device(_) => WorkersError::new(error),
        _ => {
            let fact = format!("the {BUNDLED_ORCHESTRATOR} cannot be loaded: {error}");
            WorkersError::new(fact).kind(WorkersErrorKind::Model)
        }
    })
}

/// The language of the bundled orchestrator, which was taught the default names of capacities, and no tools.
fn with_default_names(language: &Language) -> Arc<Language> {
    let Language { capacities, efforts, tests, tools, .. } = Language::default();
    Arc::new(Language { capacities, efforts, tests, tools, ..language.clone() })
}

/// Agents in a round of what a policy writes. More than training draws by default: the weaker the models, the more agents pay.
pub const MOST_AGENTS: u8 = 12;

/// Where a policy writes.
pub fn encoder(policy: &LanguagePolicy, language: Arc<Language>) -> LanguagePromptEncoder {
    let shape = Shape { agents: MOST_AGENTS.into(), ..Shape::default() };
    LanguagePromptEncoder::new(policy.tokenizer().clone(), language, shape, policy.config().positions)
}

/// The bundled orchestrator for all kinds of tasks, with a plain call in place of a team it is not sure of.
fn careful(writer: Writer, is_general: bool) -> Writer {
    if is_general { writer.or_plain_below(LEAST_CONFIDENCE) } else { writer }
}

fn greedy(policy: LanguagePolicy, encoder: LanguagePromptEncoder, name: String) -> Writer {
    let settings = SampleSettings { temperature: 0.0, top_p: 1.0, most_tokens: MOST_TOKENS };
    Writer::new(Box::new(policy), encoder, settings, name)
}

/// The bundled orchestrator, loaded when it first has to write: most runs of a given team never ask it.
struct BundledOrchestrator {
    model: &'static BundledModel,
    /// Whether it was taught tasks of all kinds.
    is_general: bool,
    language: Arc<Language>,
    writer: OnceCell<Writer>,
}

impl BundledOrchestrator {
    async fn writer(&self) -> Result<&Writer, OrchestratorError> {
        let (model, language, is_general) = (self.model, self.language.clone(), self.is_general);
        let failed = |reason| OrchestratorError::Load { model: BUNDLED_ORCHESTRATOR.to_owned(), reason };
        let load = move || {
            let policy = load_bundled(model, DeviceChoice::Cpu).map_err(|error| failed(error.to_string()))?;
            let encoder = encoder(&policy, with_default_names(&language));
            let writer = greedy(policy, encoder, BUNDLED_ORCHESTRATOR.to_owned()).for_levels(&language.capacities);
            Ok(careful(writer, is_general))
        };
        // Loading takes a moment: a thread of its own does it, once.
        let ended = || async { tokio::task::spawn_blocking(load).await.map_err(|error| failed(error.to_string()))? };
        self.writer.get_or_try_init(ended).await
    }
}

#[async_trait]
impl Orchestrator for BundledOrchestrator {
    async fn draft(&self, context: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError> {
        self.writer().await?.draft(context).await
    }

    fn fallback(&self, context: &WriteContext<'_>) -> Option<String> {
        // Asked only after a draft, which has loaded the model.
        self.writer.get()?.fallback(context)
    }
}

impl Resolved {
    /// What writes the team: the given specification, or what the configuration says.
    ///
    /// # Errors
    /// A file cannot be read, a model cannot be loaded, or a capacity does not exist.
    pub fn orchestrator(&self, spec: Option<&str>) -> Result<Arc<dyn Orchestrator>, WorkersError> {
        let settings = &self.config.orchestrator;
        let file = |path: &PathBuf| read_file(&self.config.resolve(path));
        let after_a_file =
            |text: &str, reviewer| -> Arc<dyn Orchestrator> { Arc::new(Fixed { text: text.to_owned(), reviewer }) };
        match (spec, settings.kind(self.kind.entry().orchestrator)) {
            (Some(spec), OrchestratorKind::Prompted) => Ok(after_a_file(spec, Some(self.prompted()?))),
            (Some(spec), OrchestratorKind::Policy) => Ok(after_a_file(spec, Some(self.learned()?))),
            (Some(spec), OrchestratorKind::Fixed) => Ok(after_a_file(spec, None)),
            (Some(spec), OrchestratorKind::Critic) => Ok(after_a_file(spec, Some(self.critic(None, None)?))),
            (None, OrchestratorKind::Critic) => self.critic(None, None),
            (None, OrchestratorKind::Prompted) => Ok(self.guarded(self.prompted()?, true)),
            (None, OrchestratorKind::Policy) => Ok(self.guarded(self.learned()?, false)),
            (None, OrchestratorKind::Fixed) => match &settings.spec {
                Some(path) => Ok(after_a_file(&file(path)?, None)),
                None => Err(WorkersError::new("orchestrator.kind is `fixed`, but there is no file")
                    .hint("set orchestrator.spec, or give --spec FILE")),
            },
        }
    }

    /// A policy as an orchestrator that takes the most likely team.
    ///
    /// # Errors
    /// As [`policy`].
    pub fn writer(&self, source: &PolicySource) -> Result<Writer, WorkersError> {
        let folder = source.folder(&self.config);
        let language = match folder {
            None => with_default_names(&self.language),
            Some(_) => self.language.clone(),
        };
        let (policy, encoder) = policy(&self.config, source, language)?;
        let name = match source.folder.as_ref().or(self.config.orchestrator.model.as_ref()) {
            Some(folder) => folder.display().to_string(),
            None => BUNDLED_ORCHESTRATOR.to_owned(),
        };
        let writer = greedy(policy, encoder, name).for_levels(&self.language.capacities);
        if let Some(writer) = self.choosing(&writer)? {
            return Ok(writer);
        }
        Ok(careful(writer, folder.is_none() && bundled::is_general(self.capacities())))
    }

    /// The writer with the head that the configuration names, if it names one.
    fn choosing(&self, writer: &Writer) -> Result<Option<Writer>, WorkersError> {
        let settings = &self.config.orchestrator;
        let Some(folder) = settings.head.as_ref().map(|path| self.config.resolve(path)) else { return Ok(None) };
        let (price, samples) =
            (settings.price.unwrap_or(CriticRule::default().price), settings.samples.unwrap_or(SAMPLES));
        if !(price.is_finite() && price >= 0.0) {
            return Err(WorkersError::new(format!("orchestrator.price must be at least 0, got {price}")));
        }
        if !(1..=MOST_SAMPLES).contains(&samples) {
            return Err(WorkersError::new(format!(
                "orchestrator.samples must be from 1 to {MOST_SAMPLES}, got {samples}"
            )));
        }
        let head = TeamHead::load(&folder, writer.encoder().language().clone())
            .map_err(|error| WorkersError::new(error).hint("`lemon critic fit --on MODEL --out DIR` makes a head"))?;
        Ok(Some(writer.clone().choosing(Arc::new(head), price, samples)))
    }

    /// A model of our own that learned to write teams.
    fn learned(&self) -> Result<Arc<dyn Orchestrator>, WorkersError> {
        if self.config.orchestrator.model.is_some() || self.config.orchestrator.head.is_some() {
            return Ok(Arc::new(self.writer(&PolicySource::default())?));
        }
        Ok(Arc::new(BundledOrchestrator {
            model: bundled::orchestrator(self.capacities()),
            is_general: bundled::is_general(self.capacities()),
            language: self.language.clone(),
            writer: OnceCell::new(),
        }))
    }

    /// A critic: this file and price, or what the configuration says, or else the bundled critic for the model. The guard's
    /// rule is part of it: its first team is not worse than one call, as far as it can tell; it asks for a plain call where it
    /// knows nothing, and for no team that the tokens left cannot pay.
    ///
    /// # Errors
    /// The file cannot be used, or the critic does not fit the capacities.
    pub fn critic(&self, file: Option<&Path>, price: Option<f64>) -> Result<Arc<dyn Orchestrator>, WorkersError> {
        let settings = &self.config.orchestrator;
        let configured = || settings.critic.as_ref().map(|path| self.config.resolve(path));
        let path = file.map(Path::to_path_buf).or_else(configured);
        let default = CriticRule::default();
        // The last round of a run chooses the answer.
        let rounds = self.config.run.max_rounds.unwrap_or(Settings::default().max_rounds).saturating_sub(1);
        let rule = CriticRule {
            price: price.or(settings.price).unwrap_or(default.price),
            rounds,
            guard: settings.guard.unwrap_or(default.guard),
        };
        let model = |name: &String| {
            let known = self.config.capacity(name).map(|capacity| capacity.model_name().to_owned());
            (name.clone(), known.filter(|model| !model.is_empty()))
        };
        let capacities = self.language.capacities.iter().map(model).collect();
        let any_model = settings.any_model.unwrap_or(false);
        Ok(Arc::new(critic_orchestrator(&CriticUse { path: path.as_deref(), capacities, any_model, rule })?))
    }

    /// An orchestrator behind the guard, unless the configuration turns it off. Scripts need no guard: they answer what they
    /// were written to. Nor do the bundled models: their orchestrator was measured with them (its card has the figures).
    fn guarded(&self, inner: Arc<dyn Orchestrator>, writing_costs: bool) -> Arc<dyn Orchestrator> {
        let exempt = !self.kind.entry().guarded || bundled::serve_all(self.capacities());
        if exempt || self.config.orchestrator.guard == Some(false) {
            return inner;
        }
        let reply_tokens = |name: &String| {
            self.config.capacity(name).map_or_else(|| Level::new(name).max_tokens, Capacity::max_tokens)
        };
        Arc::new(Guard {
            inner,
            proven: evidence::proven(self),
            reply_tokens: self.language.capacities.iter().map(reply_tokens).collect(),
            writing_costs,
            max_cost: self.config.orchestrator.max_cost.unwrap_or(MAX_COST),
        })
    }

    /// A worker's model as orchestrator.
    ///
    /// # Errors
    /// A file cannot be read, a capacity does not exist, or these models write no teams.
    pub fn prompted(&self) -> Result<Arc<dyn Orchestrator>, WorkersError> {
        if !self.kind.entry().writes_teams {
            return Err(WorkersError::new(format!("{} models write no teams", self.kind.name()))
                .hint("remove `kind` from [orchestrator], or set it to `fixed` and give --spec FILE"));
        }
        let (settings, capacities) = (&self.config.orchestrator, &self.language.capacities);
        let level = match &settings.capacity {
            None => capacities.len().saturating_sub(1),
            Some(name) => capacities.iter().position(|known| known == name).ok_or_else(|| {
                let known = capacities.join(", ");
                WorkersError::new(format!("orchestrator.capacity must be one of {known}, got `{name}`"))
            })?,
        };
        let fallback = settings.fallback.as_ref().map(|path| read_file(&self.config.resolve(path))).transpose()?;
        let note = |name: &String| {
            let capacity = self.config.capacity(name);
            ModelNote {
                model: capacity.map_or_else(String::new, |it| it.model_name().to_owned()),
                price: capacity.and_then(|it| it.price).map(|price| (price.input, price.output)),
            }
        };
        let models = capacities.iter().filter(|_| !self.capacities().is_empty()).map(note).collect();
        Ok(Arc::new(Prompted { level, structured: settings.structured.unwrap_or(false), fallback, models }))
    }
}
