//! From a configuration to the things that run: language, workers, orchestrator, store.

use crate::args::policy::ModelArgs;
use crate::args::{Endpoints, RunArgs, WorkerKind};
use crate::config::{Capacity, Config, OrchestratorKind};
use crate::fault::{Fault, read_file};
use crate::workers::Chosen;
use crate::{evidence, in_the_box, workers};
use async_trait::async_trait;
use lemon_eval::Case;
use lemon_exec::orchestrator::{
    Draft, Fixed, Guard, ModelNote, Orchestrator, OrchestratorError, Prompted, WriteContext,
};
use lemon_exec::store::Store;
use lemon_exec::worker::{ApiKey, Endpoint, Recording, Replay, Script, Scripted, Worker};
use lemon_exec::{Backend, Budget, Clock, Level, Settings};
use lemon_model::{DeviceChoice, LanguagePolicy, Learning, Packed, SampleSettings};
use lemon_policy::{LEAST_CONFIDENCE, LanguagePromptEncoder as Desk, MOST_TOKENS, Writer};
use lemon_spec::{Language, Shape};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OnceCell, Semaphore};

/// Where the store is unless somebody says otherwise.
const STORE: &str = ".lemon/lemon.db";
/// What the scripted workers say unless told otherwise.
const DEMO_SCRIPT: &str = include_str!("demo.toml");

/// The roles, levels and limits of this installation.
///
/// # Errors
/// A role file cannot be used.
pub fn language(config: &Config, endpoints: &Endpoints) -> Result<Language, Fault> {
    let mut language = Language { limits: config.limits.clone(), ..Language::default() };
    let levels = capacities(config, endpoints);
    if !levels.is_empty() {
        language.capacities = levels.into_iter().map(|(name, _)| name).collect();
    }
    if let Some(folder) = &config.roles.folder {
        let folder = config.resolve(folder);
        language.roles.add_folder(&folder).map_err(|errors| {
            let facts = errors.iter().map(|error| match &error.hint {
                Some(hint) => format!("{error} ({hint})"),
                None => error.to_string(),
            });
            Fault::new(format!("the role library cannot be used:\n  {}", facts.collect::<Vec<_>>().join("\n  ")))
        })?;
    }
    Ok(language)
}

/// The levels of model: those of the file, with what flags and environment say in their place.
pub fn capacities(config: &Config, endpoints: &Endpoints) -> Vec<(String, Capacity)> {
    let mut levels = config.capacity.clone();
    if levels.is_empty()
        && let (Some(base_url), Some(model)) = (&endpoints.base_url, &endpoints.model)
    {
        let capacity = Capacity::new(base_url, model, None);
        levels = ["small", "medium", "large"].map(|name| (name.to_owned(), capacity.clone())).to_vec();
    }
    for (_, capacity) in &mut levels {
        if let Some(base_url) = &endpoints.base_url {
            capacity.base_url.clone_from(base_url);
            capacity.local = None;
        }
        if let Some(model) = &endpoints.model {
            capacity.model.clone_from(model);
        }
        if let Some(variable) = &endpoints.api_key_env {
            capacity.api_key_env = Some(variable.clone());
        }
    }
    levels
}

/// The endpoint of a level, with its key from the environment.
///
/// # Errors
/// The variable that should hold the key is not set.
pub fn endpoint(name: &str, capacity: &Capacity) -> Result<Endpoint, Fault> {
    if capacity.model.is_empty() {
        return Err(
            Fault::new(format!("capacity `{name}` has an endpoint and no model")).hint("say which with --model")
        );
    }
    let api_key = match &capacity.api_key_env {
        None => None,
        Some(variable) => match std::env::var(variable) {
            Ok(secret) if !secret.trim().is_empty() => Some(ApiKey::new(secret.trim())),
            _ => {
                let fact = format!("capacity `{name}` takes its key from {variable}, which is not set");
                return Err(
                    Fault::new(fact).hint(format!("export {variable}=…, or take `api_key_env` out if it needs no key"))
                );
            }
        },
    };
    Ok(Endpoint {
        base_url: capacity.base_url.clone(),
        model: capacity.model.clone(),
        api_key,
        timeout: Duration::try_from_secs_f64(capacity.timeout_s).unwrap_or(Duration::MAX),
        total_timeout: Duration::try_from_secs_f64(capacity.total_timeout()).unwrap_or(Duration::MAX),
        stream: capacity.stream,
        send_seed: capacity.send_seed,
    })
}

/// The kind of workers that was asked for, if one was.
///
/// # Errors
/// The configuration names a kind that does not exist.
pub fn worker_kind(config: &Config, args: &RunArgs) -> Result<Option<WorkerKind>, Fault> {
    if args.workers.is_some() {
        return Ok(args.workers);
    }
    let kind = |name: &String| {
        <WorkerKind as clap::ValueEnum>::from_str(name, false).map_err(|_| {
            Fault::new(format!("run.workers is `{name}`, which no workers are called"))
                .hint("they are called endpoints, local, box, replay and scripted")
        })
    };
    config.run.workers.as_ref().map(kind).transpose()
}

/// The workers, and the file they were made of, if they were.
///
/// # Errors
/// A key is missing, or a file cannot be used.
pub fn backend(
    config: &Config,
    args: &RunArgs,
    kind: WorkerKind,
    language: &Language,
) -> Result<(Backend, Option<PathBuf>), Fault> {
    let levels = capacities(config, &args.endpoints);
    let (mut worker_file, mut identities) = (None, Vec::new());
    let worker: Arc<dyn Worker> = match kind {
        WorkerKind::Endpoints | WorkerKind::Local | WorkerKind::InTheBox => {
            let (worker, known) = workers::worker(&levels)?;
            identities = known;
            worker
        }
        WorkerKind::Scripted => {
            let script = match &args.script {
                Some(path) => read_file(path)?,
                None => DEMO_SCRIPT.to_owned(),
            };
            worker_file.clone_from(&args.script);
            Arc::new(Scripted::new(Script::parse(&script).map_err(|error| Fault::new(error.to_string().trim_end()))?))
        }
        WorkerKind::Replay => {
            let Some(path) = &args.cassette else {
                return Err(Fault::new("`--workers replay` needs a cassette")
                    .hint("say which with --cassette FILE; `lemon run --record FILE` makes one"));
            };
            worker_file = Some(path.clone());
            Arc::new(Replay::open(path).map_err(Fault::new)?)
        }
    };
    let worker = match &args.record {
        None => worker,
        Some(path) => Arc::new(Recording::create(path, kind.name(), worker).map_err(|error| {
            Fault::new(error).hint("a cassette is never overwritten: choose a new name, or move the old one away")
        })?),
    };
    let level = |name: &String| match levels.iter().enumerate().find(|(_, (level, _))| level == name) {
        None => Level::new(name),
        Some((at, (_, capacity))) => Level {
            name: name.clone(),
            identity: identities.get(at).cloned().unwrap_or_default(),
            price: capacity.price.unwrap_or_default(),
            gate: Arc::new(Semaphore::new(capacity.concurrency().min(Semaphore::MAX_PERMITS))),
            max_tokens: capacity.max_tokens,
            temperature: capacity.temperature,
        },
    };
    let levels = language.capacities.iter().map(level).collect();
    Ok((Backend { worker, name: kind.name().to_owned(), levels, clock: Clock::Real }, worker_file))
}

/// Who works on many tasks, and how.
pub struct Staff {
    /// Who is asked.
    pub backend: Backend,
    /// The language they understand.
    pub language: Language,
    /// What serves each level: nothing, in a world.
    pub levels: Vec<(String, Capacity)>,
    /// How runs are carried out.
    pub settings: Settings,
}

impl Staff {
    /// Which levels have a price, in the order of the language.
    pub fn priced(&self) -> Vec<bool> {
        let is_priced = |name: &String| self.levels.iter().any(|(level, it)| level == name && it.price.is_some());
        self.language.capacities.iter().map(is_priced).collect()
    }
}

/// Models that are asked, of a kind, for these tasks.
///
/// # Errors
/// Nobody is there, or cannot be used.
pub async fn served(
    config: &Config,
    endpoints: &Endpoints,
    kind: WorkerKind,
    cases: impl Iterator<Item = &Case>,
    budget_tokens: Option<u64>,
    quiet: bool,
) -> Result<Staff, Fault> {
    let questions: Vec<&str> = cases.map(|case| case.item.task.question.as_str()).collect();
    let Chosen { kind, levels, .. } = workers::choose(config, endpoints, Some(kind), &questions, quiet).await?;
    let (config, args) =
        (Config { capacity: levels, ..config.clone() }, RunArgs { budget_tokens, ..RunArgs::default() });
    let language = language(&config, &args.endpoints)?;
    let (backend, _) = backend(&config, &args, kind, &language)?;
    let settings = settings(&config, &args, kind)?;
    Ok(Staff { backend, language, levels: config.capacity, settings })
}

/// What it is called in traces.
const IN_THE_BOX_NAME: &str = "orchestrator in the box";

/// The policy, and the desk it writes at: a folder that was named, what the configuration says, or the one in the box.
///
/// # Errors
/// A file of the model cannot be used, or the device is not there.
pub fn policy(config: &Config, args: &ModelArgs, language: Arc<Language>) -> Result<(LanguagePolicy, Desk), Fault> {
    let configured = config.orchestrator.model.as_ref().map(|path| config.resolve(path));
    let device = args.device.into();
    let policy = match args.model.clone().or(configured) {
        Some(folder) => LanguagePolicy::load(&folder, device, Learning::Nothing).map_err(|error| {
            Fault::new(error).hint("a model is a folder with config.json, model.safetensors and tokenizer.json")
        })?,
        None => {
            let files = in_the_box::orchestrator(&config.capacity);
            LanguagePolicy::load_packed(files, device, Learning::Nothing).map_err(Fault::new)?
        }
    };
    let desk = desk(&policy, language);
    Ok((policy, desk))
}

/// What a specification may say at the desk of the orchestrator in the box, which has learned the usual names of levels.
fn as_in_the_box(language: &Language) -> Arc<Language> {
    Arc::new(Language { capacities: Language::default().capacities, ..language.clone() })
}

/// Agents in a round of what a policy writes. More than it usually may draw in training: the weaker models are, the more of them pay.
pub const MOST_AGENTS: u8 = 12;

/// Where a policy writes.
pub fn desk(policy: &LanguagePolicy, language: Arc<Language>) -> Desk {
    let shape = Shape { agents: MOST_AGENTS.into(), ..Shape::default() };
    Desk::new(policy.tokenizer().clone(), language, shape, policy.config().positions)
}

/// The policy as an orchestrator that takes the most likely team.
///
/// # Errors
/// As [`policy`].
pub fn writer(config: &Config, args: &ModelArgs, language: &Arc<Language>) -> Result<Writer, Fault> {
    let in_the_box = args.model.is_none() && config.orchestrator.model.is_none();
    let at_the_desk = if in_the_box { as_in_the_box(language) } else { language.clone() };
    let (policy, desk) = policy(config, args, at_the_desk)?;
    let name = match (&args.model, &config.orchestrator.model) {
        (Some(folder), _) | (None, Some(folder)) => folder.display().to_string(),
        (None, None) => IN_THE_BOX_NAME.to_owned(),
    };
    let writer = greedy(policy, desk, name).for_levels(&language.capacities);
    Ok(careful(writer, in_the_box && in_the_box::is_general(&config.capacity)))
}

/// The bundled orchestrator for all kinds of tasks, with a plain call in place of what it is not sure of.
fn careful(writer: Writer, is_general: bool) -> Writer {
    if is_general { writer.or_plain_below(LEAST_CONFIDENCE) } else { writer }
}

fn greedy(policy: LanguagePolicy, desk: Desk, name: String) -> Writer {
    let settings = SampleSettings { temperature: 0.0, top_p: 1.0, most_tokens: MOST_TOKENS };
    Writer::new(Box::new(policy), desk, settings, name)
}

/// The orchestrator in the box, read when it first has to write.
struct InTheBox {
    files: Packed,
    /// Whether it was taught tasks of all kinds.
    is_general: bool,
    language: Arc<Language>,
    writer: OnceCell<Writer>,
}

impl InTheBox {
    async fn writer(&self) -> Result<&Writer, OrchestratorError> {
        let (files, language, is_general) = (self.files, self.language.clone(), self.is_general);
        let failed = |reason| OrchestratorError::Load { model: IN_THE_BOX_NAME.to_owned(), reason };
        let read = move || {
            let policy = LanguagePolicy::load_packed(files, DeviceChoice::Cpu, Learning::Nothing);
            let policy = policy.map_err(|error| failed(error.to_string()))?;
            let desk = desk(&policy, as_in_the_box(&language));
            let writer = greedy(policy, desk, IN_THE_BOX_NAME.to_owned()).for_levels(&language.capacities);
            Ok(careful(writer, is_general))
        };
        let read = || async { tokio::task::spawn_blocking(read).await.map_err(|error| failed(error.to_string()))? };
        self.writer.get_or_try_init(read).await
    }
}

#[async_trait]
impl Orchestrator for InTheBox {
    async fn draft(&self, context: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError> {
        self.writer().await?.draft(context).await
    }

    fn fallback(&self, context: &WriteContext<'_>) -> Option<String> {
        // Asked only after a draft, which has read the model.
        self.writer.get()?.fallback(context)
    }
}

/// Who writes the team: the given specification, or what the configuration says.
///
/// # Errors
/// A file cannot be read, or a capacity does not exist.
pub fn orchestrator(
    config: &Config,
    spec: Option<&str>,
    language: &Arc<Language>,
    workers: WorkerKind,
) -> Result<Arc<dyn Orchestrator>, Fault> {
    let settings = &config.orchestrator;
    let file = |path: &PathBuf| read_file(&config.resolve(path));
    let guarded = |inner, writing_costs| guarded(config, language, workers, inner, writing_costs);
    let prompted = || match workers {
        WorkerKind::InTheBox => Err(Fault::new("the models in the box solve word problems; they write no teams")
            .hint("take `kind` out of [orchestrator], or make it `fixed` and give --spec FILE")),
        _ => prompted(config, language),
    };
    let learned = || -> Result<Arc<dyn Orchestrator>, Fault> {
        match &settings.model {
            Some(_) => Ok(Arc::new(writer(config, &ModelArgs::default(), language)?)),
            // Read only if it has to write: most runs of a given team never ask.
            None => {
                let files = in_the_box::orchestrator(&config.capacity);
                let is_general = in_the_box::is_general(&config.capacity);
                Ok(Arc::new(InTheBox { files, is_general, language: language.clone(), writer: OnceCell::new() }))
            }
        }
    };
    let after_a_file = |reviewer| -> Result<Arc<dyn Orchestrator>, Fault> {
        Ok(Arc::new(Fixed { text: spec.unwrap_or_default().to_owned(), reviewer }))
    };
    // A script speaks for its orchestrator too, unless somebody says otherwise.
    let usual = if workers == WorkerKind::Scripted { OrchestratorKind::Prompted } else { OrchestratorKind::Policy };
    match (spec, settings.kind(usual)) {
        (Some(_), OrchestratorKind::Prompted) => after_a_file(Some(prompted()?)),
        (Some(_), OrchestratorKind::Policy) => after_a_file(Some(learned()?)),
        (Some(_), OrchestratorKind::Fixed) => after_a_file(None),
        (None, OrchestratorKind::Prompted) => Ok(guarded(prompted()?, true)),
        (None, OrchestratorKind::Policy) => Ok(guarded(learned()?, false)),
        (None, OrchestratorKind::Fixed) => match &settings.spec {
            Some(path) => Ok(Arc::new(Fixed { text: file(path)?, reviewer: None })),
            None => Err(Fault::new("orchestrator.kind is `fixed`, but there is no file")
                .hint("set orchestrator.spec, or give --spec FILE")),
        },
    }
}

/// An orchestrator behind the guard, unless the configuration says that there is none. Scripts need none: they answer what
/// they were written to. Nor do the bundled models: their orchestrator was measured with them (its card has the figures).
fn guarded(
    config: &Config,
    language: &Arc<Language>,
    workers: WorkerKind,
    inner: Arc<dyn Orchestrator>,
    writing_costs: bool,
) -> Arc<dyn Orchestrator> {
    let bundled = !config.capacity.is_empty() && config.capacity.iter().all(|(_, it)| in_the_box::serves(it));
    let exempt = bundled || matches!(workers, WorkerKind::Scripted | WorkerKind::InTheBox);
    if exempt || config.orchestrator.guard == Some(false) {
        return inner;
    }
    let reply_tokens = |name: &String| {
        let known = config.capacity.iter().find(|(level, _)| level == name);
        known.map_or(Level::new(name).max_tokens, |(_, capacity)| capacity.max_tokens)
    };
    Arc::new(Guard {
        inner,
        proven: evidence::proven(config, language),
        reply_tokens: language.capacities.iter().map(reply_tokens).collect(),
        writing_costs,
    })
}

/// An endpoint's model as orchestrator.
///
/// # Errors
/// A file cannot be read, or a capacity does not exist.
pub fn prompted(config: &Config, language: &Language) -> Result<Arc<dyn Orchestrator>, Fault> {
    let settings = &config.orchestrator;
    let level = match &settings.capacity {
        None => language.capacities.len().saturating_sub(1),
        Some(name) => language.capacities.iter().position(|level| level == name).ok_or_else(|| {
            Fault::new(format!("orchestrator.capacity is `{name}`, which is no level"))
                .hint(format!("the levels are {}", language.capacities.join(", ")))
        })?,
    };
    let fallback = settings.fallback.as_ref().map(|path| read_file(&config.resolve(path))).transpose()?;
    let note = |name: &String| {
        let capacity = config.capacity.iter().find(|(level, _)| level == name).map(|(_, capacity)| capacity);
        let model = capacity.map(|it| it.local.clone().unwrap_or_else(|| it.model.clone())).unwrap_or_default();
        ModelNote { model, price: capacity.and_then(|it| it.price).map(|price| (price.input, price.output)) }
    };
    let models = language.capacities.iter().filter(|_| !config.capacity.is_empty()).map(note).collect();
    Ok(Arc::new(Prompted { level, structured: settings.structured.unwrap_or(false), fallback, models }))
}

/// How runs are carried out: flags over environment over file.
///
/// # Errors
/// A limit on money where prices are missing.
pub fn settings(config: &Config, args: &RunArgs, kind: WorkerKind) -> Result<Settings, Fault> {
    let run = &config.run;
    let file = Budget::from(config.budget);
    let budget = Budget {
        tokens: args.budget_tokens.or(file.tokens),
        usd: args.budget_usd.or(file.usd),
        calls: args.budget_calls.or(file.calls),
        seconds: args.timeout.or(file.seconds),
    };
    let levels = capacities(config, &args.endpoints);
    if budget.usd.is_some() {
        check_prices(&levels)?;
    }
    let usual = Settings::default();
    // Scripts and cassettes cost nothing, and a recording must see every call.
    let reuse = !matches!(kind, WorkerKind::Scripted | WorkerKind::Replay)
        && args.record.is_none()
        && !args.no_reuse
        && run.reuse.unwrap_or(true);
    Ok(Settings {
        budget,
        max_parallel: run.max_parallel.unwrap_or(usual.max_parallel).max(1),
        max_rounds: run.max_rounds.unwrap_or(usual.max_rounds).max(1),
        on_parent_failure: run.on_parent_failure.unwrap_or_default(),
        retry: run.retry,
        least_reply_tokens: run.least_reply_tokens.unwrap_or(usual.least_reply_tokens).max(1),
        reuse,
        shared: None,
    })
}

/// Whether a budget in US dollars can be kept.
///
/// # Errors
/// A level has no price.
pub fn check_prices(levels: &[(String, Capacity)]) -> Result<(), Fault> {
    let fact = "a budget in US dollars cannot be kept";
    if let Some((name, _)) = levels.iter().find(|(_, level)| level.price.is_none() && level.local.is_none()) {
        return Err(Fault::new(format!("{fact}: capacity `{name}` has no price"))
            .hint(format!("add `price = {{ input = …, output = … }}` (USD per million tokens) to [capacity.{name}]")));
    }
    match levels.is_empty() {
        true => Err(Fault::new(format!("{fact}: no capacity has a price"))),
        false => Ok(()),
    }
}

/// Where the store is: flag or environment, then file, then beside the user.
pub fn store_path(config: &Config, flag: Option<&Path>) -> PathBuf {
    match (flag, &config.store.path) {
        (Some(path), _) => path.to_owned(),
        (None, Some(path)) => config.resolve(path),
        (None, None) => PathBuf::from(STORE),
    }
}

/// The store, made if there is none.
///
/// # Errors
/// It cannot be written, or is not one.
pub fn store(config: &Config, flag: Option<&Path>) -> Result<Arc<Store>, Fault> {
    Ok(Arc::new(Store::open(&store_path(config, flag), config.store.sync)?))
}
