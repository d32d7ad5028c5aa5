//! What an evaluation was asked for: from the command line, or from the record of one that is resumed.

use crate::args::{CreditArgs, EvalArgs, OnMissArg, Scope, WorkerKind, WorldName};
use crate::fault::{Fault, read_file};
use crate::tell;
use lemon_eval::{Method, TeamSource as Writer};
use lemon_exec::store::Store;
use lemon_exec::unix_ms;
use lemon_rollout::Case;
use lemon_task::{Item, SetName, Source, TaskError, TaskSet, load, load_jsonl};
use lemon_workers::{Config, OnMiss, SharedLimits, Simulation, WorkerSet, recordings};
use lemon_world::{Preset, Recordings, SamplePool};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Broken records of a set that are named one by one.
const MOST_WARNINGS: usize = 10;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EvalRequest {
    sets: Vec<String>,
    split: String,
    data: Option<PathBuf>,
    methods: Vec<String>,
    pub capacity: Option<String>,
    workers: String,
    world: Preset,
    simulate_misses: bool,
    #[serde(default)]
    skip_misses: bool,
    /// The recorded levels that are served; empty: those served by default.
    #[serde(default)]
    levels: Vec<String>,
    #[serde(default)]
    samples: SamplePool,
    #[serde(skip)]
    recordings: OnceLock<Arc<Recordings>>,
    spec: Option<String>,
    /// The folder of the model of the method `policy`.
    #[serde(default)]
    pub policy: Option<PathBuf>,
    limit: Option<usize>,
    pub seeds: Vec<u64>,
    /// Of each run.
    budget_tokens: Option<u64>,
    /// Of all runs together.
    #[serde(default)]
    pub together: SharedLimits,
    pub started_at_ms: u64,
    /// Simulated agents keep their noise when their inputs change: for counterfactuals.
    #[serde(default, rename = "keep_luck", alias = "shared_noise")]
    shared_noise: bool,
    /// Questions that look alike count as one draw.
    #[serde(default)]
    pub clusters: bool,
}

impl EvalRequest {
    pub fn new(args: &EvalArgs) -> Result<Self, Fault> {
        if args.sets.is_empty() {
            return Err(Fault::new("there is no task set").hint("name one: lemon eval --set gsm8k"));
        }
        if let Some(set) = twice(&args.sets) {
            return Err(Fault::new(format!("set `{set}` is given twice")).hint("name it once"));
        }
        let mut seeds = if args.seeds.is_empty() { vec![args.seed] } else { args.seeds.clone() };
        let given = seeds.len();
        seeds.sort_unstable();
        seeds.dedup();
        if seeds.len() < given {
            return Err(Fault::new("a seed is given twice").hint("each seed runs every item once; name it once"));
        }
        Ok(EvalRequest {
            sets: args.sets.clone(),
            split: args.split.clone(),
            data: args.data.clone(),
            methods: args.methods.clone(),
            capacity: args.capacity.clone(),
            workers: args.workers.name().to_owned(),
            world: preset(args.world),
            simulate_misses: args.replay.on_miss == OnMissArg::Sim,
            skip_misses: args.replay.on_miss == OnMissArg::Skip && args.workers == WorkerKind::RECORDED,
            levels: args.replay.levels.clone(),
            samples: args.replay.samples.into(),
            recordings: OnceLock::new(),
            spec: args.spec.as_deref().map(crate::commands::read_input).transpose()?,
            policy: args.policy.clone(),
            limit: args.limit,
            seeds,
            budget_tokens: args.run_tokens,
            together: SharedLimits { tokens: args.budget_tokens, usd: args.budget_usd },
            started_at_ms: unix_ms(),
            shared_noise: false,
            clusters: args.clusters,
        })
    }

    /// The same for one team on one set, as `lemon credit` asks it.
    pub fn for_team(args: &CreditArgs, set: &str, split: &str, limit: Option<usize>) -> Self {
        EvalRequest {
            sets: vec![set.to_owned()],
            split: split.to_owned(),
            data: args.data.clone(),
            methods: Vec::new(),
            capacity: None,
            workers: args.workers.name().to_owned(),
            world: preset(args.world),
            simulate_misses: args.replay.on_miss == OnMissArg::Sim,
            skip_misses: args.replay.on_miss == OnMissArg::Skip && args.workers == WorkerKind::RECORDED,
            levels: args.replay.levels.clone(),
            samples: args.replay.samples.into(),
            recordings: OnceLock::new(),
            spec: None,
            policy: None,
            limit,
            seeds: Vec::new(),
            budget_tokens: None,
            together: SharedLimits::default(),
            started_at_ms: unix_ms(),
            shared_noise: !args.fresh_draws,
            clusters: false,
        }
    }

    /// What an evaluation was begun with.
    pub fn on_record(store: &Store, name: &str) -> Result<Self, Fault> {
        let batch = store.batch(name)?.ok_or_else(|| {
            Fault::new(format!("no evaluation is called `{name}`"))
                .hint("each evaluation says its name (e-…) when it begins; another store can be named with --store")
        })?;
        serde_json::from_str(&batch.meta).map_err(|_| {
            Fault::new(format!("`{name}` is no evaluation"))
                .hint(format!("`lemon run --resume {name}` goes on with a batch of tasks"))
        })
    }

    pub fn methods(&self) -> Result<Vec<Method>, Fault> {
        let mut methods: Vec<Method> = Vec::new();
        for name in &self.methods {
            let hint = "`lemon eval --methods help` lists the methods and what each takes";
            let method: Method = name.parse().map_err(|error| Fault::new(error).hint(hint))?;
            if methods.iter().any(|other| other.name() == method.name()) {
                return Err(Fault::new(format!("method `{name}` is given twice")).hint("name it once"));
            }
            methods.push(method);
        }
        let uses = |writer: Writer| methods.iter().any(|method| method.source() == Some(writer));
        if uses(Writer::Prompted) && self.kind()? != WorkerKind::ENDPOINTS {
            return Err(
                Fault::new("the method `prompted` needs a model that writes teams").hint("use --workers endpoints")
            );
        }
        if (uses(Writer::AgentPrune) || uses(Writer::AgentDropout)) && self.kind()? != WorkerKind::SIM {
            return Err(Fault::new(
                "agentprune and agentdropout train on hundreds of runs, in the simulated world only",
            )
            .hint("use --workers sim; `--methods file --spec FILE` runs the teams they found with other workers"));
        }
        if uses(Writer::File) && self.spec.is_none() {
            return Err(Fault::new("the method `file` needs a team").hint("name it with --spec FILE"));
        }
        if self.spec.is_some() && !uses(Writer::File) {
            return Err(Fault::new("no method runs the team of --spec").hint("add `file` to --methods"));
        }
        Ok(methods)
    }

    pub fn spec(&self) -> Result<String, Fault> {
        self.spec.clone().ok_or_else(|| Fault::new("the method `file` needs a team"))
    }

    pub fn set_names(&self) -> Vec<String> {
        self.sets.iter().map(|set| self.set_name(set)).collect()
    }

    fn set_name(&self, set: &str) -> String {
        match set.parse::<SetName>() {
            Ok(set) => format!("{set}/{}", self.split),
            Err(_) => set.to_owned(),
        }
    }

    pub fn cases(&self) -> Result<Vec<Case>, Fault> {
        let mut cases = Vec::new();
        let on_record = if self.skip_misses { self.recordings(false)? } else { None };
        let known = |item: &Item| on_record.as_ref().is_none_or(|record| record.knows(&item.task.question));
        for set in &self.sets {
            let mut items = self.items(set, &self.split)?;
            items.retain(known);
            let name: std::sync::Arc<str> = self.set_name(set).into();
            let limit = self.limit.unwrap_or(usize::MAX);
            cases.extend(items.into_iter().take(limit).map(|item| Case { set: name.clone(), item }));
        }
        if cases.is_empty() {
            return Err(Fault::new("there is no item to run").hint("--limit must be 1 or more"));
        }
        Ok(cases)
    }

    /// What a method that learns may learn from: the papers' 40 items of each set.
    pub fn training_cases(&self) -> Result<Vec<Case>, Fault> {
        let mut cases = Vec::new();
        for set in &self.sets {
            let split = if is(set, SetName::HumanEval) { "test" } else { "paper-train" };
            let items = self.items(set, split)?;
            cases.extend(items.into_iter().take(40).map(|item| Case { set: format!("{set}/{split}").into(), item }));
        }
        Ok(cases)
    }

    fn items(&self, set: &str, split: &str) -> Result<Vec<Item>, Fault> {
        let tasks = match set.parse::<SetName>() {
            Ok(set) => self.load(set, split)?,
            Err(unknown) if !Path::new(set).exists() => {
                return Err(Fault::new(unknown).hint("or give a JSONL file of {question, answer}"));
            }
            Err(_) => load_jsonl(Path::new(set)).map_err(Fault::new)?,
        };
        for fault in tasks.faults.iter().take(MOST_WARNINGS) {
            eprintln!("warning: {}, line {}: {}; skipped", fault.file, fault.line, fault.reason);
        }
        if tasks.faults.len() > MOST_WARNINGS {
            eprintln!("warning: {} more lines of {set} are skipped", tasks.faults.len() - MOST_WARNINGS);
        }
        if tasks.items.is_empty() {
            return Err(Fault::new(format!("{set} has no usable item"))
                .hint(r#"one JSON object a line: {"question": "What is …?", "answer": "…"}"#));
        }
        Ok(tasks.items)
    }

    fn load(&self, set: SetName, split: &str) -> Result<TaskSet, Fault> {
        load(&self.source(), set, split).map_err(|error| match error {
            TaskError::UnknownSet { .. } | TaskError::UnknownSplit { .. } => Fault::new(error),
            _ => Fault::new(error)
                .hint("`lemon data fetch DIR` downloads the whole sets; give that folder with --data DIR"),
        })
    }

    fn source(&self) -> Source {
        self.data.clone().map_or(Source::Sample, Source::Folder)
    }

    /// Runs at a time by default.
    pub fn default_width(&self) -> Result<usize, Fault> {
        Ok(if self.kind()?.costs_money() { 8 } else { 64 })
    }

    /// The kind of workers.
    pub fn kind(&self) -> Result<WorkerKind, Fault> {
        Ok(WorkerKind::named(Scope::Tasks, &self.workers)?)
    }

    /// The workers, and how runs are carried out with them.
    pub async fn workers(&self, config: &Config, cases: &[Case], quiet: bool) -> Result<WorkerSet, Fault> {
        let kind = self.kind()?;
        let questions: Vec<&str> = cases.iter().map(|case| case.item.task.question.as_str()).collect();
        let more = if kind.asks_models() { Vec::new() } else { self.more_items()? };
        let recordings = self.recordings(!quiet)?;
        if let Some(recordings) = recordings.as_ref().filter(|_| !self.simulate_misses) {
            warn_of_misses(recordings, &questions);
        }
        let simulation = || {
            Ok(Simulation {
                preset: self.world,
                items: cases.iter().map(|case| &case.item).chain(&more).collect(),
                shared_noise: self.shared_noise,
                strict: true,
                recordings: recordings.clone(),
                pool: self.samples,
                on_miss: if self.simulate_misses { OnMiss::Simulate } else { OnMiss::Fail },
            })
        };
        let set = WorkerSet::new(config, kind, &questions, self.budget_tokens, simulation, tell(quiet)).await?;
        Ok(match &recordings {
            Some(recordings) => set.with_roles_of(recordings),
            None => set,
        })
    }

    /// Items that are no cases, and that a world has to know all the same.
    fn more_items(&self) -> Result<Vec<Item>, Fault> {
        let learns = |method: &Method| matches!(method.source(), Some(Writer::AgentPrune | Writer::AgentDropout));
        let mut items = Vec::new();
        if self.methods()?.iter().any(learns) {
            items.extend(self.training_cases()?.into_iter().map(|case| case.item));
        }
        if self.sets.iter().any(|set| is(set, SetName::HumanEvalPy)) {
            // The variant publishes no solutions; the original does.
            items.extend(self.load(SetName::HumanEval, "test")?.items);
        }
        Ok(items)
    }

    /// The recorded calls, where the workers serve them. They are read once.
    fn recordings(&self, aloud: bool) -> Result<Option<Arc<Recordings>>, Fault> {
        if !WorkerKind::RECORDED.is_called(&self.workers) {
            return Ok(None);
        }
        if let Some(known) = self.recordings.get() {
            return Ok(Some(known.clone()));
        }
        let sets = self.sets.iter().map(|set| set.parse().map_err(Fault::new)).collect::<Result<Vec<SetName>, _>>()?;
        let read = recordings(self.data.as_deref(), &sets, &self.levels, tell(!aloud))?;
        Ok(Some(self.recordings.get_or_init(|| read).clone()))
    }
}

fn warn_of_misses(recordings: &Recordings, questions: &[&str]) {
    let missing = questions.iter().filter(|question| !recordings.knows(question)).count();
    if missing > 0 {
        eprintln!(
            "warning: {missing} of {} items are not on record and will fail; --on-miss sim simulates them, --on-miss skip leaves them out",
            questions.len()
        );
    }
}

/// The first name that has been before.
fn twice(names: &[String]) -> Option<&String> {
    names
        .iter()
        .enumerate()
        .find(|(at, name)| names.iter().take(*at).any(|before| before == *name))
        .map(|(_, name)| name)
}

fn is(name: &str, set: SetName) -> bool {
    name == set.as_str()
}

pub fn preset(name: WorldName) -> Preset {
    match name {
        WorldName::Calibrated => Preset::Calibrated,
        WorldName::Teams => Preset::Teams,
        WorldName::Real => Preset::Real,
    }
}

/// A file of figures of one's own.
pub fn figures(path: &Path) -> Result<lemon_world::Fitted, Fault> {
    lemon_world::Fitted::parse(&read_file(path)?).map_err(|error| Fault::new(format!("{}: {error}", path.display())))
}
