//! What an evaluation was asked for: by a command, or by the record of one that is resumed.

use super::Notices;
use super::rivals::learns;
use crate::error::Error;
use lemon_eval::{Kind, METHODS, Method, TeamSource};
use lemon_exec::store::Store;
use lemon_rollout::Case;
use lemon_task::{Item, SetName, Source, TaskError, TaskSet, load, load_jsonl};
use lemon_workers::{
    Config, OnMiss, Resolved, Scope, SharedLimits, Simulation, WorkerKind, WorkerRecipe, WorkerSet, recordings,
};
use lemon_world::{Preset, Recordings, SamplePool};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The name that stands for all methods.
const ALL: &str = "all";

/// The split that methods learn from, where a set has it.
const PAPER_TRAIN: &str = "paper-train";

/// Items of each set that methods learn from, at most.
const LEARNED_FROM: usize = 40;

/// Broken records of a set that are named one by one.
const MOST_WARNINGS: usize = 10;

/// Task sets, methods, workers and limits of an evaluation. The field names are on record in stores.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct EvalRequest {
    /// The task sets: names of published ones, or files.
    pub sets: Vec<String>,
    /// The split of published sets.
    pub split: String,
    /// The folder of published sets; `None`: the bundled sample.
    pub data: Option<PathBuf>,
    /// The methods by their names.
    pub methods: Vec<String>,
    /// The capacity of the methods that do not choose one themselves.
    pub capacity: Option<String>,
    /// The kind of workers by its name.
    pub workers: String,
    /// The simulated world.
    pub world: Preset,
    /// Calls that are not on record are simulated.
    pub simulate_misses: bool,
    /// Items that are not on record are left out.
    #[serde(default)]
    pub skip_misses: bool,
    /// The recorded levels that are served; empty: those served by default.
    #[serde(default)]
    pub levels: Vec<String>,
    /// Which of several recorded samples are served.
    #[serde(default)]
    pub samples: SamplePool,
    /// The team of the method `file`.
    pub spec: Option<String>,
    /// The folder of the model of the method `policy`.
    #[serde(default)]
    pub policy: Option<PathBuf>,
    /// The file of the method `decision-critic`; `None`: the configured or the bundled one.
    #[serde(default)]
    pub critic: Option<PathBuf>,
    /// The price of the method `decision-critic`; `None`: the configured or the default one.
    #[serde(default)]
    pub price: Option<f64>,
    /// Items of each set at most.
    pub limit: Option<usize>,
    /// The seeds, each once.
    pub seeds: Vec<u64>,
    /// Tokens of each run.
    pub budget_tokens: Option<u64>,
    /// Of all runs together.
    #[serde(default)]
    pub together: SharedLimits,
    /// When it began, in milliseconds of Unix time.
    pub started_at_ms: u64,
    /// Simulated agents keep their noise when their inputs change: for counterfactuals.
    #[serde(default, rename = "keep_luck", alias = "shared_noise")]
    pub shared_noise: bool,
    /// Questions that look alike count as one draw.
    #[serde(default)]
    pub clusters: bool,
    /// The capacities that methods without one are run at, each as a method of its own; empty: as they are.
    #[serde(default)]
    pub tiers: Vec<String>,
    /// The folder of methods that were trained before.
    #[serde(default)]
    pub baselines: Option<PathBuf>,
    /// Where this evaluation keeps what methods learn: one that is resumed has the teams it began with, and pays for them once.
    /// `None`: nowhere.
    #[serde(skip)]
    pub trained: Option<PathBuf>,
    /// Worker tokens that each training spends; `None`: each method makes its own number of runs.
    #[serde(default)]
    pub training_tokens: Option<u64>,
    /// The folder of the encoder all-MiniLM-L6-v2; `None`: hashed words.
    #[serde(default)]
    pub encoder: Option<PathBuf>,
    /// The file that keeps its vectors.
    #[serde(default)]
    pub vectors: Option<PathBuf>,
}

/// The tasks of a request, and the recorded calls about them where the workers serve those.
pub struct RequestedCases {
    /// The tasks.
    pub cases: Vec<Case>,
    /// The recorded calls.
    pub recordings: Option<Arc<Recordings>>,
}

/// The items of a set where methods learn.
struct Divided {
    training: Vec<Item>,
    scored: Vec<Item>,
}

impl EvalRequest {
    /// What an evaluation was begun with.
    ///
    /// # Errors
    /// There is none of this name, or it is something else.
    pub fn on_record(store: &Store, name: &str) -> Result<Self, Error> {
        let batch = store.batch(name)?.ok_or_else(|| {
            Error::input(format!("no evaluation is called `{name}`")).with_hint(
                "each evaluation says its name (e-…) when it begins; another store can be named with --store",
            )
        })?;
        serde_json::from_str(&batch.meta).map_err(|_| {
            Error::input(format!("`{name}` is no evaluation"))
                .with_hint(format!("`lemon run --resume {name}` goes on with a batch of tasks"))
        })
    }

    /// The request with its seeds in order, if it names sets and names nothing twice.
    ///
    /// # Errors
    /// It does not.
    pub fn checked(mut self) -> Result<Self, Error> {
        if self.sets.is_empty() {
            return Err(Error::input("there is no task set").with_hint("name one: lemon eval --set gsm8k"));
        }
        if let Some(set) = twice(&self.sets) {
            return Err(Error::input(format!("set `{set}` is given twice")).with_hint("name it once"));
        }
        let given = self.seeds.len();
        self.seeds.sort_unstable();
        self.seeds.dedup();
        if self.seeds.len() < given {
            return Err(Error::input("a seed is given twice").with_hint("each seed runs every item once; name it once"));
        }
        Ok(self)
    }

    /// The methods.
    ///
    /// # Errors
    /// One is unknown, given twice, or cannot be had with these workers.
    pub fn methods(&self) -> Result<Vec<Method>, Error> {
        let mut methods: Vec<Method> = Vec::new();
        let hint = "`lemon eval --methods help` lists the methods and what each takes";
        let can_learn = self.can_learn()?;
        for name in self.method_names(can_learn) {
            let method: Method = name.parse().map_err(|error| Error::input(error).with_hint(hint))?;
            for method in self.at_tiers(method) {
                if methods.iter().any(|other| other.name() == method.name()) {
                    return Err(Error::input(format!("method `{name}` is given twice")).with_hint("name it once"));
                }
                methods.push(method);
            }
        }
        let uses = |source: TeamSource| methods.iter().any(|method| method.source() == Some(source));
        if uses(TeamSource::Prompted) && self.kind()? != WorkerKind::ENDPOINTS {
            return Err(Error::input("the method `prompted` needs a model that writes teams")
                .with_hint("use --workers endpoints"));
        }
        let trained = methods.iter().find(|method| matches!(method.source(), Some(TeamSource::Trained(_))));
        if let Some(method) = trained.filter(|_| !can_learn) {
            return Err(Error::input(format!("`{}` learns on hundreds of runs first", method.name())).with_hint(
                "use --workers sim; or --budget-tokens with models; or --baselines DIR with what `lemon baseline train` wrote",
            ));
        }
        if uses(TeamSource::File) && self.spec.is_none() {
            return Err(Error::input("the method `file` needs a team").with_hint("name it with --spec FILE"));
        }
        if self.spec.is_some() && !uses(TeamSource::File) {
            return Err(Error::input("no method runs the team of --spec").with_hint("add `file` to --methods"));
        }
        Ok(methods)
    }

    /// Whether methods can learn with these workers, or learned before.
    fn can_learn(&self) -> Result<bool, Error> {
        Ok(self.baselines.is_some() || self.may_learn_now()?)
    }

    /// Whether methods may learn with these workers: hundreds of runs of models have a budget.
    ///
    /// # Errors
    /// There is no such kind of workers.
    pub(super) fn may_learn_now(&self) -> Result<bool, Error> {
        let simulates = self.kind()? == WorkerKind::SIM || self.simulate_misses;
        let is_bounded = self.together.is_limited() && self.kind()?.asks_models();
        Ok(simulates || is_bounded)
    }

    /// Whether all methods are asked for.
    pub fn names_all(&self) -> bool {
        self.methods.iter().any(|name| name == ALL)
    }

    /// The names, with `all` as those methods that need nothing else: no model that writes teams, no file, no style, and nothing to
    /// learn where they cannot.
    fn method_names(&self, can_learn: bool) -> Vec<String> {
        let needs_more = |name: &str| ["prompted", "decision-critic", "file", "aflow"].contains(&name);
        let is_fit = |kind: &&Kind| !needs_more(kind.name) && (can_learn || !kind.learns());
        let all = || METHODS.iter().filter(is_fit).map(|kind| kind.name.to_owned());
        let expanded = |name: &String| if name == ALL { all().collect() } else { vec![name.clone()] };
        self.methods.iter().flat_map(expanded).collect()
    }

    /// The method at each of the capacities asked for, where it takes one and names none itself.
    fn at_tiers(&self, method: Method) -> Vec<Method> {
        let at: Vec<Method> = match method.capacity() {
            None => self.tiers.iter().filter_map(|capacity| method.at(capacity)).collect(),
            Some(_) => Vec::new(),
        };
        if at.is_empty() { vec![method] } else { at }
    }

    /// The team of the method `file`.
    ///
    /// # Errors
    /// There is none.
    pub fn team(&self) -> Result<&str, Error> {
        self.spec.as_deref().ok_or_else(|| Error::input("the method `file` needs a team"))
    }

    /// The sets with their splits.
    pub fn set_names(&self) -> Vec<String> {
        self.sets.iter().map(|set| self.set_name(set)).collect()
    }

    fn set_name(&self, set: &str) -> String {
        match set.parse::<SetName>() {
            Ok(set) => format!("{set}/{}", self.split),
            Err(_) => set.to_owned(),
        }
    }

    /// Reads the tasks, and the recorded calls about them. Where a method learns, what it learns from is not among them.
    ///
    /// # Errors
    /// A set or the record cannot be read, or nothing is left to run.
    pub fn cases(&self, notices: Notices) -> Result<RequestedCases, Error> {
        let learns = self.methods()?.iter().any(learns);
        let mut items = Vec::new();
        for set in &self.sets {
            items.push(if learns {
                self.divided(set, notices)?.scored
            } else {
                self.items(set, &self.split, notices)?
            });
        }
        let recordings = self.recordings(notices)?;
        let on_record = recordings.as_ref().filter(|_| self.skip_misses);
        let known = |item: &Item| on_record.is_none_or(|record| record.knows(&item.task.question));
        let mut cases = Vec::new();
        for (set, items) in self.sets.iter().zip(items) {
            let name: Arc<str> = self.set_name(set).into();
            let limit = self.limit.unwrap_or(usize::MAX);
            let items = items.into_iter().filter(known).take(limit);
            cases.extend(items.map(|item| Case { set: name.clone(), item }));
        }
        if cases.is_empty() {
            return Err(Error::input("there is no item to run").with_hint("--limit must be 1 or more"));
        }
        Ok(RequestedCases { cases, recordings })
    }

    /// What a method that learns may learn from: the papers' 40 items of each set.
    ///
    /// # Errors
    /// A set cannot be read, or it is too small to learn from and to be scored.
    pub fn training_cases(&self) -> Result<Vec<Case>, Error> {
        let mut cases = Vec::new();
        for set in &self.sets {
            let name: Arc<str> = format!("{set}/{}", training_split(set)).into();
            // `cases` has told what is wrong with these items.
            let training = self.divided(set, Notices::NONE)?.training;
            cases.extend(training.into_iter().map(|item| Case { set: name.clone(), item }));
        }
        Ok(cases)
    }

    /// The items of a set that methods learn from, and those that are scored. No question is in both.
    fn divided(&self, set: &str, notices: Notices) -> Result<Divided, Error> {
        let (published, learned_from) = (set.parse::<SetName>().is_ok(), training_split(set));
        if published && self.split == learned_from && learned_from == PAPER_TRAIN {
            return Err(Error::input(format!("methods learn from {set}/{learned_from}: it cannot be scored"))
                .with_hint("choose another split; of `test`, what methods learn from is left out"));
        }
        let mut scored = self.items(set, &self.split, notices)?;
        let mut training = if published { self.items(set, learned_from, notices)? } else { scored.clone() };
        training.truncate(LEARNED_FROM);
        let questions =
            |items: &[Item]| -> HashSet<String> { items.iter().map(|item| item.task.question.clone()).collect() };
        let mut seen = questions(&training);
        if scored.iter().all(|item| seen.contains(&item.task.question)) {
            // A small file: half of it each.
            training.truncate(training.len() / 2);
            seen = questions(&training);
        }
        let all = scored.len();
        scored.retain(|item| !seen.contains(&item.task.question));
        if training.is_empty() || scored.is_empty() {
            return Err(Error::input(format!("{set} has {all} items: too few to learn from and to be scored"))
                .with_hint("a set needs two items at least; --data DIR names a folder of whole sets"));
        }
        if scored.len() < all {
            let left_out = all - scored.len();
            (notices.warn)(&format!(
                "warning: {left_out} of {all} items of {} are left out, because methods learn from them",
                self.set_name(set)
            ));
        }
        Ok(Divided { training, scored })
    }

    fn items(&self, set: &str, split: &str, notices: Notices) -> Result<Vec<Item>, Error> {
        let tasks = match set.parse::<SetName>() {
            Ok(set) => self.load(set, split)?,
            Err(unknown) if !Path::new(set).exists() => {
                return Err(Error::input(unknown).with_hint("or give a JSONL file of {question, answer}"));
            }
            Err(_) => load_jsonl(Path::new(set))?,
        };
        for fault in tasks.faults.iter().take(MOST_WARNINGS) {
            (notices.warn)(&format!("warning: {}, line {}: {}; skipped", fault.file, fault.line, fault.reason));
        }
        if tasks.faults.len() > MOST_WARNINGS {
            (notices.warn)(&format!("warning: {} more lines of {set} are skipped", tasks.faults.len() - MOST_WARNINGS));
        }
        if tasks.items.is_empty() {
            return Err(Error::input(format!("{set} has no usable item"))
                .with_hint(r#"one JSON object a line: {"question": "What is …?", "answer": "…"}"#));
        }
        Ok(tasks.items)
    }

    fn load(&self, set: SetName, split: &str) -> Result<TaskSet, Error> {
        load(&self.source(), set, split).map_err(|error| match error {
            TaskError::UnknownSet { .. } | TaskError::UnknownSplit { .. } => error.into(),
            _ => Error::input(error)
                .with_hint("`lemon data fetch DIR` downloads the whole sets; give that folder with --data DIR"),
        })
    }

    fn source(&self) -> Source {
        self.data.clone().map_or(Source::Sample, Source::Folder)
    }

    /// Runs at a time by default.
    ///
    /// # Errors
    /// There is no such kind of workers.
    pub fn default_width(&self) -> Result<usize, Error> {
        Ok(if self.kind()?.costs_money() { 8 } else { 64 })
    }

    /// The kind of workers.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn kind(&self) -> Result<WorkerKind, Error> {
        Ok(WorkerKind::named(Scope::Tasks, &self.workers)?)
    }

    /// The workers, and how runs are carried out with them.
    ///
    /// # Errors
    /// They cannot be used, or the tasks cannot be simulated.
    pub async fn workers(
        &self,
        config: &Config,
        requested: &RequestedCases,
        notices: Notices,
    ) -> Result<WorkerSet, Error> {
        let RequestedCases { cases, recordings } = requested;
        let kind = self.kind()?;
        let questions: Vec<&str> = cases.iter().map(|case| case.item.task.question.as_str()).collect();
        let more = self.world_items()?;
        if let Some(recordings) = recordings.as_ref().filter(|_| !self.simulate_misses) {
            warn_of_misses(recordings, &questions, notices);
        }
        let simulation = || Ok(self.simulation(cases, &more, recordings.clone()));
        let set = WorkerSet::new(config, kind, &questions, self.budget_tokens, simulation, notices.tell).await?;
        Ok(match recordings {
            Some(recordings) => set.with_roles_of(recordings),
            None => set,
        })
    }

    /// What another machine needs to make the same workers for these tasks.
    ///
    /// # Errors
    /// It could not make them.
    pub(super) fn recipe(&self, config: &Config, resolved: &Resolved, cases: &[Case]) -> Result<WorkerRecipe, Error> {
        let more = self.world_items()?;
        Ok(WorkerRecipe::new(config, resolved, self.budget_tokens, || Ok(self.simulation(cases, &more, None)))?)
    }

    fn simulation<'a>(
        &self,
        cases: &'a [Case],
        more: &'a [Item],
        recordings: Option<Arc<Recordings>>,
    ) -> Simulation<'a> {
        Simulation {
            preset: self.world,
            choices: None,
            items: cases.iter().map(|case| &case.item).chain(more).collect(),
            shared_noise: self.shared_noise,
            strict: true,
            recordings,
            pool: self.samples,
            on_miss: if self.simulate_misses { OnMiss::Simulate } else { OnMiss::Fail },
        }
    }

    /// Items that are no cases, and that the workers have to know all the same, if they are a world.
    fn world_items(&self) -> Result<Vec<Item>, Error> {
        if self.kind()?.asks_models() { Ok(Vec::new()) } else { self.more_items() }
    }

    /// Items that are no cases, and that a world has to know all the same.
    fn more_items(&self) -> Result<Vec<Item>, Error> {
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

    /// The recorded calls, where the workers serve them.
    fn recordings(&self, notices: Notices) -> Result<Option<Arc<Recordings>>, Error> {
        if !WorkerKind::RECORDED.is_called(&self.workers) {
            return Ok(None);
        }
        let sets =
            self.sets.iter().map(|set| set.parse().map_err(Error::input)).collect::<Result<Vec<SetName>, _>>()?;
        Ok(Some(recordings(self.data.as_deref(), &sets, &self.levels, notices.tell)?))
    }
}

fn warn_of_misses(recordings: &Recordings, questions: &[&str], notices: Notices) {
    let missing = questions.iter().filter(|question| !recordings.knows(question)).count();
    if missing > 0 {
        (notices.warn)(&format!(
            "warning: {missing} of {} items are not on record and will fail; --on-miss sim simulates them, --on-miss skip leaves them out",
            questions.len()
        ));
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

/// The split that methods learn from.
fn training_split(set: &str) -> &'static str {
    if is(set, SetName::HumanEval) { "test" } else { PAPER_TRAIN }
}

fn is(name: &str, set: SetName) -> bool {
    name == set.as_str()
}
