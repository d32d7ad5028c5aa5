//! Who answers: what is configured, or else the best that is found on this machine.

use crate::args::{Endpoints, WorkerKind};
use crate::config::{Capacity, Config};
use crate::discover::{self, Found, Levels};
use crate::fault::Fault;
use crate::{in_the_box, models, setup};
use lemon_engine::EngineSettings;
use lemon_exec::worker::{ByLevel, Endpoint, OpenAi, Worker, mask_url};
use lemon_local::{Local, LocalModel, OUT_OF_REACH, is_word_problem};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The usual names of levels.
const LEVELS: [&str; 3] = ["small", "medium", "large"];
/// Why the models in the box refuse tasks.
const WHY: &str = "they solve arithmetic word problems only";
/// Variables that may hold the token of the Hugging Face hub.
const HUB_TOKENS: [&str; 2] = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"];

/// Who answers, and what is known of each level of model.
pub struct Chosen {
    /// The kind, as traces name it.
    pub kind: WorkerKind,
    /// The levels, weakest first.
    pub levels: Vec<(String, Capacity)>,
    /// Whether they are configured: of those that were found it was said who they are.
    pub configured: bool,
}

/// The workers of this kind; where no kind is named, the first there are: what is configured, a server that runs on this
/// machine, a checkpoint that was pulled, the models in the box. Unless it is to be quiet, it says whom it found.
///
/// # Errors
/// There are none of the kind, or none that could answer these questions.
pub async fn choose(
    config: &Config,
    endpoints: &Endpoints,
    kind: Option<WorkerKind>,
    questions: &[&str],
    quiet: bool,
) -> Result<Chosen, Fault> {
    let mut configured = setup::capacities(config, endpoints);
    let chosen = |kind, levels, notice: Option<String>| {
        let chosen = Chosen { kind, levels, configured: false };
        let warning = chosen.beyond(questions)?;
        for line in notice.into_iter().chain(warning).filter(|_| !quiet) {
            eprintln!("{line}");
        }
        Ok(chosen)
    };
    let in_the_box = || {
        let notice = format!("{}\n{}", in_the_box::NOTICE, in_the_box::STRONGER);
        chosen(WorkerKind::InTheBox, in_the_box::levels(), Some(notice))
    };
    let usual = match kind {
        Some(kind @ (WorkerKind::Scripted | WorkerKind::Replay)) => return chosen(kind, configured, None),
        Some(WorkerKind::InTheBox) => return in_the_box(),
        Some(WorkerKind::Local) => {
            configured.retain(|(_, capacity)| capacity.local.is_some());
            WorkerKind::Local
        }
        Some(WorkerKind::Endpoints) | None => WorkerKind::Endpoints,
    };
    // Half an address must not be completed by what happens to be found.
    let is_local = |(_, capacity): &(String, Capacity)| capacity.local.is_some();
    let half = endpoints.base_url.is_some() != endpoints.model.is_some();
    if half && (configured.is_empty() || configured.iter().any(is_local)) {
        return Err(Fault::new("--base-url and --model belong together").hint("give both, or neither"));
    }
    if !configured.is_empty() {
        let local = configured.iter().all(is_local);
        let chosen = chosen(if local { WorkerKind::Local } else { usual }, configured, None)?;
        return Ok(Chosen { configured: true, ..chosen });
    }
    if usual == WorkerKind::Endpoints {
        let servers = discover::running_servers(&discover::ports()?).await;
        if let Some((levels, notice)) = servers.iter().find_map(served) {
            return chosen(WorkerKind::Endpoints, levels, Some(notice));
        }
    }
    if kind == Some(WorkerKind::Endpoints) {
        return Err(Fault::new("no endpoint is configured").hint(
            "give --base-url and --model, or write a lemon.toml with `lemon init`; \
             `--workers box` asks the small models that ship with this program",
        ));
    }
    match pulled() {
        Some((levels, notice)) => chosen(WorkerKind::Local, levels, Some(notice)),
        None => in_the_box(),
    }
}

impl Chosen {
    /// The models, each once. Their addresses may hold what is nobody's business.
    pub fn names(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for (_, Capacity { local, model, .. }) in &self.levels {
            let name = local.as_deref().unwrap_or(model);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(", ")
    }

    /// What to say of questions that none of them would answer.
    ///
    /// # Errors
    /// All are such questions.
    fn beyond(&self, questions: &[&str]) -> Result<Option<String>, Fault> {
        let asked = matches!(self.kind, WorkerKind::Local | WorkerKind::InTheBox);
        if !(asked && self.levels.iter().all(|(_, capacity)| in_the_box::serves(capacity))) {
            return Ok(None);
        }
        let beyond = questions.iter().filter(|question| !is_word_problem(question)).count();
        let fact = match (beyond, questions.len()) {
            (0, _) => return Ok(None),
            (1, 1) => format!("the models in the box solve {OUT_OF_REACH}"),
            (beyond, all) if beyond < all => {
                return Ok(Some(format!("warning: the models in the box will refuse {beyond} of {all} tasks: {WHY}")));
            }
            (_, all) => format!("the models in the box would refuse all {all} tasks: {WHY}"),
        };
        Err(Fault::new(fact).hint(in_the_box::STRONGER))
    }
}

/// The models of a server as levels, and what to say of them.
fn served(server: &Found) -> Option<(Vec<(String, Capacity)>, String)> {
    let Levels { small, medium, large } = server.levels()?;
    let level = |(name, model): (&str, String)| (name.to_owned(), Capacity::new(&server.base_url, &model, None));
    let notice = format!("{} at {} answers; nothing else is configured", server.kind, server.base_url);
    Some((LEVELS.into_iter().zip([small, medium, large]).map(level).collect(), notice))
}

/// The checkpoints that were pulled as levels: the largest three, or fewer more than once.
fn pulled() -> Option<(Vec<(String, Capacity)>, String)> {
    let models = models::pulled();
    let largest = models.first()?;
    let nth = |rank: usize| models.get(rank.min(models.len() - 1)).unwrap_or(largest);
    let level = |(rank, name): (usize, &str)| (name.to_owned(), Capacity::local(&nth(rank).folder.to_string_lossy()));
    let levels = LEVELS.into_iter().rev().enumerate().map(level).collect::<Vec<_>>().into_iter().rev().collect();
    let names = models.iter().take(LEVELS.len()).map(|model| model.name.as_str()).collect::<Vec<_>>().join(", ");
    Some((levels, format!("models in this process answer: {names}; nothing else is configured")))
}

/// A worker for all levels, whatever each is served by, and what tells each from every other.
///
/// # Errors
/// A key is missing, or a model cannot be loaded.
pub fn worker(levels: &[(String, Capacity)]) -> Result<(Arc<dyn Worker>, Vec<String>), Fault> {
    let (mut endpoints, mut locals) = (Vec::new(), Vec::new());
    let mut known: BTreeMap<&str, LocalModel> = BTreeMap::new();
    let (mut places, mut identities) = (Vec::new(), Vec::new());
    for (name, capacity) in levels {
        match &capacity.local {
            None => {
                places.push((false, endpoints.len()));
                identities.push(format!("{} {}", mask_url(&capacity.base_url), capacity.model));
                endpoints.push(setup::endpoint(name, capacity)?);
            }
            Some(local) => {
                let model = match known.get(local.as_str()) {
                    Some(model) => model.clone(),
                    None => load(name, local)?,
                };
                known.insert(local, model.clone());
                places.push((true, locals.len()));
                identities.push(model.identity());
                locals.push(model);
            }
        }
    }
    let endpoints: Arc<dyn Worker> = Arc::new(open_ai(endpoints)?);
    let locals: Arc<dyn Worker> = Arc::new(Local::new(locals));
    let place = |(local, at): (bool, usize)| (if local { locals.clone() } else { endpoints.clone() }, at);
    Ok((Arc::new(ByLevel::new(places.into_iter().map(place).collect())), identities))
}

/// A worker for these endpoints. What comes from them is cleaned of their keys, and of the token of the hub.
///
/// # Errors
/// A key or an address cannot be used.
pub fn open_ai(endpoints: Vec<Endpoint>) -> Result<OpenAi, Fault> {
    let worker = OpenAi::new(endpoints).map_err(Fault::new)?;
    Ok(HUB_TOKENS
        .iter()
        .filter_map(|name| std::env::var(name).ok())
        .fold(worker, |worker, token| worker.hiding(&token)))
}

fn load(level: &str, local: &str) -> Result<LocalModel, Fault> {
    if let Some(name) = local.strip_prefix(in_the_box::PREFIX) {
        return in_the_box::load(name)
            .map_err(|fault| Fault { fact: format!("capacity `{level}`: {}", fault.fact), ..fault });
    }
    let folder = Path::new(local);
    let loaded = LocalModel::load(folder, EngineSettings::default());
    let named = |model| match models::name_of(folder) {
        Some(name) => LocalModel { name, ..model },
        None => model,
    };
    loaded.map(named).map_err(|error| {
        Fault::new(format!("capacity `{level}`: {error}")).hint(
            "`local` is a folder with config.json, model.safetensors and tokenizer.json; `lemon models pull` gets one",
        )
    })
}
