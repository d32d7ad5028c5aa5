//! From capacities to workers: endpoints, models of this process, scripts, cassettes.

use crate::bundled;
use crate::code::SandboxRunner;
use crate::config::Capacity;
use crate::error::{WorkersError, WorkersErrorKind};
use crate::files::read_file;
use crate::kind::{Build, WorkerKind};
use crate::local::{LazyModel, Local, LocalModel};
use crate::models;
use crate::resolve::Resolved;
use crate::tools::AgentTools;
use lemon_engine::EngineSettings;
use lemon_exec::worker::{
    ApiKey, ByLevel, Endpoint, Identity, OpenAi, Recording, Replay, Script, Scripted, Worker, mask_url,
};
use lemon_exec::{Backend, Clock, CodeRunner, Level, ToolRunner};
use lemon_model::DeviceChoice;
use lemon_sandbox::Containment;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// What the scripted workers say by default.
const DEMO_SCRIPT: &str = include_str!("demo.toml");
/// Variables that may hold the token of the Hugging Face hub.
const HUB_TOKENS: [&str; 2] = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"];

/// The files that workers are made of, or write.
#[derive(Debug, Clone, Default)]
pub struct WorkerFiles {
    /// What scripted workers say.
    pub script: Option<PathBuf>,
    /// The cassette to replay.
    pub cassette: Option<PathBuf>,
    /// The new cassette that every call is recorded into.
    pub record: Option<PathBuf>,
}

/// A worker for all capacities.
pub(crate) struct Built {
    worker: Arc<dyn Worker>,
    /// What runs programs, where that is not the sandbox.
    code: Option<Arc<dyn CodeRunner>>,
    /// What runs tools, where that is not the configured ones.
    tools: Option<Arc<dyn ToolRunner>>,
    /// What tells the model of each capacity from every other; empty where no model is called.
    identities: Vec<Identity>,
    /// The file it was made of.
    file: Option<PathBuf>,
}

impl Resolved {
    /// The workers, and the file they were made of, if they were.
    ///
    /// # Errors
    /// A key is missing, a file cannot be used, or a model is not there.
    pub fn backend(&self, files: &WorkerFiles) -> Result<(Backend, Option<PathBuf>), WorkersError> {
        let kind = self.kind;
        let Build::Worker(build) = kind.entry().build else {
            return Err(WorkersError::new(format!("`--workers {}` needs a set of tasks", kind.name())));
        };
        let Built { worker, code, tools, identities, file } = build(self, files)?;
        let tools = match tools {
            Some(tools) => Some(tools),
            None => self.tools()?,
        };
        let code = code.unwrap_or_else(|| self.code());
        if self.config.runs_programs() {
            code.ready().map_err(|error| SandboxRunner::unavailable(&error))?;
        }
        let (worker, code, tools): (Arc<dyn Worker>, Arc<dyn CodeRunner>, _) = match &files.record {
            None => (worker, code, tools),
            Some(path) => {
                let recording = Recording::create(path, kind.name(), worker).map_err(|error| {
                    let hint = "a cassette is never overwritten: choose a new name, or move the old one";
                    WorkersError::new(error).hint(hint)
                })?;
                let recording = Arc::new(recording.with_code(Some(code)).with_tools(tools));
                (recording.clone(), recording.clone(), Some(recording as Arc<dyn ToolRunner>))
            }
        };
        let capacities = &self.config.capacity;
        let level = |name: &String| match capacities.iter().position(|(known, _)| known == name) {
            None => Level::new(name),
            Some(at) => {
                let capacity = &capacities[at].1; // `at` is a position in it
                Level {
                    name: name.clone(),
                    identity: identities.get(at).cloned().unwrap_or_else(|| String::new().into()),
                    price: capacity.price.unwrap_or_default(),
                    gate: Arc::new(Semaphore::new(capacity.concurrency().min(Semaphore::MAX_PERMITS))),
                    max_tokens: capacity.max_tokens(),
                    long_tokens: capacity.long_tokens(),
                    temperature: capacity.temperature,
                    style: capacity.style,
                }
            }
        };
        let levels = self.language.capacities.iter().map(level).collect();
        let name = kind.name().to_owned();
        Ok((Backend { worker, name, levels, clock: Clock::Real, code: Some(code), tools }, file))
    }

    /// What runs the tools of agents; `None` where none is configured.
    ///
    /// # Errors
    /// A table cannot be used.
    pub fn tools(&self) -> Result<Option<Arc<dyn ToolRunner>>, WorkersError> {
        let set = self.config.tool_set()?;
        let consent = self.config.consent.clone();
        Ok((!set.is_empty()).then(|| Arc::new(AgentTools::new(set, consent)) as Arc<dyn ToolRunner>))
    }

    /// What runs the programs of agents.
    pub fn code(&self) -> Arc<dyn CodeRunner> {
        Arc::new(SandboxRunner::new(Containment::unless(self.config.run.unsafe_no_sandbox.unwrap_or(false))))
    }
}

/// Endpoints and models of this process, by capacity.
pub(crate) fn models(resolved: &Resolved, _: &WorkerFiles) -> Result<Built, WorkersError> {
    let (mut endpoints, mut locals) = (Vec::new(), Vec::new());
    let mut known: BTreeMap<&str, Arc<LazyModel>> = BTreeMap::new();
    let (mut places, mut identities) = (Vec::new(), Vec::new());
    for (name, capacity) in &resolved.config.capacity {
        match &capacity.local {
            None => {
                places.push((false, endpoints.len()));
                identities.push(format!("{} {}", mask_url(&capacity.base_url), capacity.model).into());
                endpoints.push(endpoint(name, capacity)?);
            }
            Some(local) => {
                let model = match known.get(local.as_str()) {
                    Some(model) => model.clone(),
                    None => Arc::new(lazy_model(name, local, resolved.config.run.device())?),
                };
                known.insert(local, model.clone());
                places.push((true, locals.len()));
                identities.push(model.clone().identity());
                locals.push(model);
            }
        }
    }
    let endpoints: Arc<dyn Worker> = Arc::new(open_ai(endpoints)?);
    let locals: Arc<dyn Worker> = Arc::new(Local::lazy(locals));
    let place = |(local, at): (bool, usize)| (if local { locals.clone() } else { endpoints.clone() }, at);
    let worker = Arc::new(ByLevel::new(places.into_iter().map(place).collect()));
    Ok(Built { worker, code: None, tools: None, identities, file: None })
}

/// Workers that answer by a script.
pub(crate) fn scripted(_: &Resolved, files: &WorkerFiles) -> Result<Built, WorkersError> {
    let script = match &files.script {
        Some(path) => read_file(path)?,
        None => DEMO_SCRIPT.to_owned(),
    };
    let script = Script::parse(&script).map_err(|error| WorkersError::new(error.to_string().trim_end()))?;
    let worker = Arc::new(Scripted::new(script));
    Ok(Built { worker, code: None, tools: None, identities: Vec::new(), file: files.script.clone() })
}

/// Workers that answer as a cassette has it.
pub(crate) fn cassette(_: &Resolved, files: &WorkerFiles) -> Result<Built, WorkersError> {
    let Some(path) = &files.cassette else {
        let fact = format!("`--workers {}` needs a cassette", WorkerKind::CASSETTE.name());
        return Err(WorkersError::new(fact).hint("name one with --cassette FILE; `lemon run --record FILE` makes one"));
    };
    let worker = Arc::new(Replay::open(path).map_err(WorkersError::new)?);
    let tools = Some(worker.clone() as Arc<dyn ToolRunner>);
    Ok(Built { code: Some(worker.clone()), tools, worker, identities: Vec::new(), file: Some(path.clone()) })
}

/// The endpoint of a capacity, with its key from the environment.
///
/// # Errors
/// The variable that should hold the key is not set.
pub fn endpoint(name: &str, capacity: &Capacity) -> Result<Endpoint, WorkersError> {
    if capacity.model.is_empty() {
        let fact = format!("capacity `{name}` has an endpoint and no model");
        return Err(WorkersError::new(fact).hint("name the model with --model"));
    }
    let api_key = match &capacity.api_key_env {
        None => None,
        Some(variable) => match std::env::var(variable) {
            Ok(secret) if !secret.trim().is_empty() => Some(ApiKey::new(secret.trim())),
            _ => {
                let fact = format!("capacity `{name}` takes its key from {variable}, which is not set");
                let hint = format!("export {variable}=…, or remove `api_key_env` if the endpoint needs no key");
                return Err(WorkersError::new(fact).hint(hint));
            }
        },
    };
    let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    Ok(Endpoint {
        base_url: capacity.base_url.clone(),
        model: capacity.model.clone(),
        api_key,
        timeout: seconds(capacity.timeout_s),
        total_timeout: seconds(capacity.total_timeout()),
        stream: capacity.stream,
        send_seed: capacity.send_seed,
    })
}

/// A worker for these endpoints. It removes their keys and the token of the hub from everything they send.
///
/// # Errors
/// A key or an address cannot be used.
pub fn open_ai(endpoints: Vec<Endpoint>) -> Result<OpenAi, WorkersError> {
    let worker = OpenAi::new(endpoints).map_err(WorkersError::new)?;
    let tokens = HUB_TOKENS.iter().filter_map(|name| std::env::var(name).ok()); // A variable that is not set hides nothing.
    Ok(tokens.fold(worker, |worker, token| worker.hiding(&token)))
}

/// Loads the model of a capacity now.
///
/// # Errors
/// There is none, or it cannot be loaded.
pub fn load_model(capacity: &str, local: &str, device: DeviceChoice) -> Result<LocalModel, WorkersError> {
    lazy_model(capacity, local, device)?.load().cloned().map_err(|error| error.clone())
}

/// The model of a capacity, loaded when it is first asked. What can be checked quickly is checked now.
fn lazy_model(capacity: &str, local: &str, device: DeviceChoice) -> Result<LazyModel, WorkersError> {
    let of_capacity = |error: WorkersError| error.of_capacity(capacity);
    if let Some(name) = bundled::name(local) {
        let model = bundled::find(name).map_err(of_capacity)?;
        let capacity = capacity.to_owned();
        let load = move || model.load().map_err(|error| error.of_capacity(&capacity));
        return Ok(LazyModel::new(model.form().map_err(of_capacity)?, load));
    }
    let folder = match models::locate(local) {
        Some(found) => found.map_err(of_capacity)?,
        None => PathBuf::from(local),
    };
    let name = models::own_name(local).map_or_else(|| models::name_of(&folder), |name| Some(name.to_owned()));
    let unusable = {
        let capacity = capacity.to_owned();
        move |error: String| {
            let hint = "`local` is a GGUF file, a folder with config.json, model.safetensors and tokenizer.json, or a name \
                        that `lemon models list` shows";
            WorkersError::new(format!("capacity `{capacity}`: {error}")).hint(hint).kind(WorkersErrorKind::Model)
        }
    };
    let form = crate::local::check(&folder).map_err(|error| unusable(error.to_string()))?;
    let load = move || {
        let model = LocalModel::load(&folder, EngineSettings { device, ..EngineSettings::default() })
            .map_err(|error| unusable(error.to_string()))?;
        // A file of Ollama's is called by its digest, a checkpoint of the hub's by its commit.
        Ok(LocalModel { name: name.clone().unwrap_or(model.name), ..model })
    };
    Ok(LazyModel::new(form, load))
}
