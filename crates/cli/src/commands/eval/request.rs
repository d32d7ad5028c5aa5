//! What an evaluation was asked for: from the command line, or from the record of one that is taken up again.

use crate::args::{CreditArgs, Endpoints, EvalArgs, EvalWorkers, OnMiss, WorkerKind, WorldName};
use crate::config::Config;
use crate::fault::{Fault, read_file};
use crate::setup::{self, Staff};
use crate::spending::Together;
use lemon_eval::{Case, Method, Source as Writer};
use lemon_exec::store::Store;
use lemon_exec::{Settings, unix_ms};
use lemon_spec::Language;
use lemon_task::{Item, SetName, Source, TaskError, TaskSet, load, load_jsonl};
use lemon_world::outcomes::{self, RecordedReply};
use lemon_world::{Luck, Preset, Recorded, World};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Broken records of a set that are named one by one.
const MOST_WARNINGS: usize = 10;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
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
    pub together: Together,
    pub started_at_ms: u64,
    /// Simulated agents keep their luck when their inputs change: for counterfactuals.
    #[serde(default)]
    keep_luck: bool,
    /// Questions that look alike count as one draw.
    #[serde(default)]
    pub clusters: bool,
}

impl Request {
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
        Ok(Request {
            sets: args.sets.clone(),
            split: args.split.clone(),
            data: args.data.clone(),
            methods: args.methods.clone(),
            capacity: args.capacity.clone(),
            workers: args.workers.name().to_owned(),
            world: preset(args.world),
            simulate_misses: args.on_miss == OnMiss::Sim,
            skip_misses: args.on_miss == OnMiss::Skip && args.workers == EvalWorkers::Replay,
            spec: args.spec.as_deref().map(crate::commands::read_input).transpose()?,
            policy: args.policy.clone(),
            limit: args.limit,
            seeds,
            budget_tokens: args.run_tokens,
            together: Together { tokens: args.budget_tokens, usd: args.budget_usd },
            started_at_ms: unix_ms(),
            keep_luck: false,
            clusters: args.clusters,
        })
    }

    /// The same for one team on one set, as `lemon credit` asks it.
    pub fn for_team(args: &CreditArgs, set: &str, split: &str, limit: Option<usize>) -> Self {
        Request {
            sets: vec![set.to_owned()],
            split: split.to_owned(),
            data: args.data.clone(),
            methods: Vec::new(),
            capacity: None,
            workers: args.workers.name().to_owned(),
            world: preset(args.world),
            simulate_misses: true,
            skip_misses: false,
            spec: None,
            policy: None,
            limit,
            seeds: Vec::new(),
            budget_tokens: None,
            together: Together::default(),
            started_at_ms: unix_ms(),
            keep_luck: !args.fresh_draws,
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
        if uses(Writer::Prompted) && self.workers != EvalWorkers::Endpoints.name() {
            return Err(
                Fault::new("the method `prompted` needs a model that writes teams").hint("use --workers endpoints")
            );
        }
        if (uses(Writer::AgentPrune) || uses(Writer::AgentDropout)) && self.workers != EvalWorkers::Sim.name() {
            return Err(Fault::new(
                "agentprune and agentdropout learn from hundreds of runs, in the simulated world only",
            )
            .hint("use --workers sim; `--methods file --spec FILE` runs what they arrived at elsewhere"));
        }
        if uses(Writer::File) && self.spec.is_none() {
            return Err(Fault::new("the method `file` needs a team").hint("say which with --spec FILE"));
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
        let on_record = if self.skip_misses { Some(self.replies()?) } else { None };
        let known = |item: &Item| on_record.as_ref().is_none_or(|known| known.contains_key(item.task.question.trim()));
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

    pub fn usual_width(&self) -> usize {
        if self.kind() == Some(WorkerKind::Endpoints) { 8 } else { 64 }
    }

    /// The kind of models that are asked, where any are.
    pub fn kind(&self) -> Option<WorkerKind> {
        <EvalWorkers as clap::ValueEnum>::from_str(&self.workers, false).ok()?.served()
    }

    /// Who works, and how.
    pub async fn workers(
        &self,
        config: &Config,
        endpoints: &Endpoints,
        cases: &[Case],
        quiet: bool,
    ) -> Result<Staff, Fault> {
        if let Some(kind) = self.kind() {
            return setup::served(config, endpoints, kind, cases.iter(), self.budget_tokens, quiet).await;
        }
        // Worlds bring their own levels: small, medium, large.
        let language = Language { limits: config.limits.clone(), ..Language::default() };
        let backend = match self.workers == EvalWorkers::Replay.name() {
            false => self.world(cases)?.backend(),
            true => self.recorded(cases)?.backend(),
        };
        let budget = lemon_exec::Budget { tokens: self.budget_tokens, ..lemon_exec::Budget::default() };
        let settings = Settings { budget, reuse: false, ..Settings::default() };
        Ok(Staff { backend, language, levels: Vec::new(), settings })
    }

    fn world(&self, cases: &[Case]) -> Result<World, Fault> {
        let mut items: Vec<Item> = cases.iter().map(|case| case.item.clone()).collect();
        if self
            .methods()?
            .iter()
            .any(|method| matches!(method.source(), Some(Writer::AgentPrune | Writer::AgentDropout)))
        {
            items.extend(self.training_cases()?.into_iter().map(|case| case.item));
        }
        if self.sets.iter().any(|set| is(set, SetName::HumanEvalPy)) {
            // The variant publishes no solutions; the original does.
            items.extend(self.load(SetName::HumanEval, "test")?.items);
        }
        let luck = if self.keep_luck { Luck::Kept } else { Luck::Fresh };
        let world = World::new(self.world, &items).with_luck(luck);
        match world.skipped() {
            0 => Ok(world),
            count => Err(Fault::new(format!("{count} items have no published solution to simulate"))),
        }
    }

    /// What recorded models replied, by question.
    fn replies(&self) -> Result<HashMap<String, Vec<RecordedReply>>, Fault> {
        let Some(data) = &self.data else {
            return Err(Fault::new("recorded replies are read from a folder").hint("say which with --data DIR"));
        };
        let mut replies = HashMap::new();
        for set in &self.sets {
            let set: SetName = set.parse().map_err(Fault::new)?;
            replies.extend(outcomes::replies(data, set).map_err(Fault::new)?);
        }
        Ok(replies)
    }

    fn recorded(&self, cases: &[Case]) -> Result<Recorded, Fault> {
        let replies = self.replies()?;
        let on_miss = if self.simulate_misses { Some(self.world(cases)?) } else { None };
        let simulates = on_miss.is_some();
        let recorded = Recorded::new(replies, on_miss);
        let missing = cases.iter().filter(|case| !recorded.knows(&case.item.task.question)).count();
        if missing > 0 && !simulates {
            eprintln!(
                "warning: {missing} of {} items are not on record and will fail; --on-miss sim simulates them, --on-miss skip leaves them out",
                cases.len()
            );
        }
        Ok(recorded)
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
    }
}

/// A file of figures of one's own.
pub fn figures(path: &Path) -> Result<lemon_world::Fitted, Fault> {
    lemon_world::Fitted::parse(&read_file(path)?).map_err(|error| Fault::new(format!("{}: {error}", path.display())))
}
