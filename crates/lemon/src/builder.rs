//! What teams run on: workers, budget, seed, store, reward.

use crate::error::Error;
use lemon_exec::store::Store;
use lemon_exec::{Backend, Budget, Level, Settings, Worker};
use lemon_rollout::reward::{GradedRun, RewardSettings, Weight, Weights};
use lemon_spec::{Language, Plan};
use lemon_workers::{
    Capacity, Config, Resolved, RunLimits, Simulation, Tell, WorkerFiles, WorkerKind, WorkerSet, WorkersError,
};
use lemon_world::Preset;
use std::path::PathBuf;
use std::sync::Arc;

/// Runs, evaluates, profiles and trains teams. [`Lemon::builder`] makes one; it can be used for any number of runs.
pub struct Lemon {
    pub(crate) workers: WorkerSet,
    /// The simulated world, which is made anew for the cases of each call.
    pub(crate) world: Option<Preset>,
    pub(crate) seed: u64,
    pub(crate) repeats: u64,
    pub(crate) store: Option<Arc<Store>>,
    pub(crate) data: Option<PathBuf>,
    pub(crate) rewards: RewardSettings,
    pub(crate) weights: Weights,
}

/// Collects what a [`Lemon`] needs. Where no workers are named, the first that are found answer: a model server on this
/// machine, pulled checkpoints, the bundled models.
#[must_use]
pub struct Builder {
    config: Config,
    workers: Workers,
    budget: Budget,
    seed: Option<u64>,
    repeats: u64,
    store: Option<PathBuf>,
    data: Option<PathBuf>,
    rewards: RewardSettings,
    weights: Weights,
    notices: Tell,
}

enum Workers {
    /// Those that are configured, or the first that are found.
    Found,
    Kind(WorkerKind),
    Own(Arc<dyn Worker>),
    Simulated(Preset),
}

impl Lemon {
    /// A builder without workers, budget and store, with seed 0.
    pub fn builder() -> Builder {
        Builder {
            config: Config::default(),
            workers: Workers::Found,
            budget: Budget::default(),
            seed: None,
            repeats: 1,
            store: None,
            data: None,
            rewards: RewardSettings::default(),
            weights: Weights::default(),
            notices: |_| {},
        }
    }

    /// The roles, capacities and limits that specifications are checked against.
    pub fn language(&self) -> &Arc<Language> {
        &self.workers.resolved.language
    }

    /// The capacities, weakest first, with what serves each.
    pub fn capacities(&self) -> &[(String, Capacity)] {
        self.workers.resolved.capacities()
    }

    /// What each run may spend.
    pub fn budget(&self) -> Budget {
        self.workers.settings.budget
    }

    /// The same workers and store with a tighter budget for each run: of two limits on the same thing the lower one counts.
    ///
    /// # Errors
    /// A limit on money where prices are missing.
    pub fn with_budget(&self, limit: Budget) -> Result<Lemon, Error> {
        fn lower<T: PartialOrd>(a: Option<T>, b: Option<T>) -> Option<T> {
            match (a, b) {
                (Some(a), Some(b)) => Some(if b < a { b } else { a }),
                (a, b) => a.or(b),
            }
        }
        if limit.usd.is_some() {
            lemon_workers::check_prices(self.capacities())?;
        }
        let WorkerSet { backend, resolved, settings } = &self.workers;
        let now = settings.budget;
        let budget = Budget {
            tokens: lower(now.tokens, limit.tokens),
            usd: lower(now.usd, limit.usd),
            calls: lower(now.calls, limit.calls),
            seconds: lower(now.seconds, limit.seconds),
        };
        let settings = Settings { budget, ..settings.clone() };
        Ok(Lemon {
            workers: WorkerSet { backend: backend.clone(), resolved: resolved.clone(), settings },
            world: self.world,
            seed: self.seed,
            repeats: self.repeats,
            store: self.store.clone(),
            data: self.data.clone(),
            rewards: self.rewards.clone(),
            weights: self.weights.clone(),
        })
    }

    /// Where runs are kept, if they are.
    pub fn store(&self) -> Option<&Arc<Store>> {
        self.store.as_ref()
    }

    /// Checks a specification against the roles, capacities and limits of this installation.
    ///
    /// # Errors
    /// The text is no specification: [`Error::Spec`] holds every fault.
    pub fn validate(&self, text: &str) -> Result<Plan, Error> {
        Ok(lemon_spec::validate(text, &self.workers.resolved.language)?)
    }
}

impl Builder {
    /// Takes everything that a configuration file can say; see [`Config::load`].
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Adds a capacity that an OpenAI-compatible endpoint serves. Name the weakest capacity first.
    pub fn endpoint(self, capacity: &str, base_url: &str, model: &str) -> Self {
        self.capacity(capacity, Capacity::new(base_url, model, None))
    }

    /// Adds a capacity with all its settings: key, price, limits, or a model folder. Name the weakest capacity first. A
    /// capacity of the same name is replaced.
    pub fn capacity(mut self, name: &str, capacity: Capacity) -> Self {
        match self.config.capacity.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = capacity,
            None => self.config.capacity.push((name.to_owned(), capacity)),
        }
        self
    }

    /// Runs on the bundled models, which solve arithmetic word problems only.
    pub fn bundled(self) -> Self {
        self.workers(WorkerKind::BUNDLED)
    }

    /// Runs on workers of this kind.
    pub fn workers(mut self, kind: WorkerKind) -> Self {
        self.workers = Workers::Kind(kind);
        self
    }

    /// Runs on a worker of your own. It answers for every capacity: those of the configuration, or `small`, `medium` and
    /// `large`. Its replies are not reused from the store: another version of it may have written them.
    pub fn worker(mut self, worker: Arc<dyn Worker>) -> Self {
        self.workers = Workers::Own(worker);
        self
    }

    /// Runs on simulated workers. They know the cases of a call and no other question, so they serve [`Lemon::rollout`],
    /// [`Lemon::evaluate`], [`Lemon::profile`] and [`Lemon::train`].
    pub fn simulated(mut self, preset: Preset) -> Self {
        self.workers = Workers::Simulated(preset);
        self
    }

    /// Limits the tokens of each run.
    pub fn budget_tokens(mut self, tokens: u64) -> Self {
        self.budget.tokens = Some(tokens);
        self
    }

    /// Limits tokens, calls, money and time of each run.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// Sets the seed of every random choice.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets how often [`Lemon::evaluate`] and [`Lemon::profile`] run each case: with the seed, the one after it, and so on.
    pub fn repeats(mut self, repeats: u64) -> Self {
        self.repeats = repeats.max(1);
        self
    }

    /// Keeps every run in this file. It is made if there is none.
    pub fn store(mut self, path: impl Into<PathBuf>) -> Self {
        self.store = Some(path.into());
        self
    }

    /// Names the folder of published task sets that [`Lemon::train`] reads. Without one it composes tasks.
    pub fn data(mut self, folder: impl Into<PathBuf>) -> Self {
        self.data = Some(folder.into());
        self
    }

    /// Adds a reward term of your own. `measure` returns `None` where a run does not show it.
    pub fn reward_term(
        mut self,
        name: impl Into<String>,
        weight: Weight,
        measure: impl Fn(&GradedRun<'_>) -> Option<f64> + Send + Sync + 'static,
    ) -> Self {
        self.rewards = self.rewards.with_term(name, weight, measure);
        self
    }

    /// Sets how much each registered reward term counts. [`Lemon::train`] takes the weights of its recipe instead.
    pub fn reward_weights(mut self, weights: Weights) -> Self {
        self.weights = weights;
        self
    }

    /// Sets what receives notices for people: which workers were found, what is loaded. Without it they are dropped.
    pub fn notices(mut self, notices: Tell) -> Self {
        self.notices = notices;
        self
    }

    /// Finds the workers and opens the store.
    ///
    /// # Errors
    /// There are no such workers, they cannot be used, or the store cannot be opened.
    pub async fn build(self) -> Result<Lemon, Error> {
        let Builder { config, workers, budget, notices, .. } = self;
        let config = config.with_store(self.store.as_deref());
        let limits = RunLimits { budget, no_reuse: false };
        let mut world = None;
        let workers = match workers {
            Workers::Found => of_models(&config, None, &limits, notices).await?,
            Workers::Kind(kind) => of_models(&config, Some(kind), &limits, notices).await?,
            Workers::Own(worker) => {
                let resolved = Resolved::new(&config, Some(WorkerKind::OWN), &[], notices).await?;
                let settings = Settings { reuse: false, ..resolved.settings(&limits)? };
                WorkerSet { backend: own(&resolved, worker)?, resolved, settings }
            }
            Workers::Simulated(preset) => {
                world = Some(preset);
                let set = simulated(&config, preset, Vec::new(), Noise::Fresh, notices).await?;
                WorkerSet { settings: Settings { budget, ..set.settings }, ..set }
            }
        };
        let path = self.store.or_else(|| config.store.path.as_ref().map(|path| config.resolve(path)));
        let store = path.map(|path| Store::open(&path, config.store.sync).map(Arc::new)).transpose()?;
        Ok(Lemon {
            workers,
            world,
            seed: self.seed.or(config.run.seed).unwrap_or(0),
            repeats: self.repeats,
            store,
            data: self.data,
            rewards: self.rewards,
            weights: self.weights,
        })
    }
}

async fn of_models(
    config: &Config,
    kind: Option<WorkerKind>,
    limits: &RunLimits,
    notices: Tell,
) -> Result<WorkerSet, WorkersError> {
    let resolved = Resolved::new(config, kind, &[], notices).await?;
    let (backend, _) = resolved.backend(&WorkerFiles::default())?;
    let settings = resolved.settings(limits)?;
    Ok(WorkerSet { backend, resolved, settings })
}

/// The capacities of a worker of the user's own, with the limits and prices that the configuration has.
fn own(resolved: &Resolved, worker: Arc<dyn Worker>) -> Result<Backend, WorkersError> {
    let level = |name: &String| match resolved.config.capacity(name) {
        None => Level::new(name),
        Some(capacity) => Level {
            price: capacity.price.unwrap_or_default(),
            max_tokens: capacity.max_tokens(),
            long_tokens: capacity.long_tokens(),
            temperature: capacity.temperature,
            style: capacity.style,
            ..Level::new(name)
        },
    };
    let levels = resolved.language.capacities.iter().map(level).collect();
    Ok(Backend {
        worker,
        name: resolved.kind.name().to_owned(),
        levels,
        clock: Default::default(),
        code: Some(resolved.code()),
        tools: resolved.tools()?,
    })
}

/// Whether simulated workers keep their noise when their inputs change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noise {
    Fresh,
    /// For counterfactuals.
    Shared,
}

pub(crate) async fn simulated(
    config: &Config,
    preset: Preset,
    items: Vec<&lemon_task::Item>,
    noise: Noise,
    notices: Tell,
) -> Result<WorkerSet, WorkersError> {
    let simulation = || {
        let shared_noise = noise == Noise::Shared;
        Ok(Simulation { preset, items, shared_noise, strict: true, ..Simulation::default() })
    };
    WorkerSet::new(config, WorkerKind::SIM, &[], None, simulation, notices).await
}
