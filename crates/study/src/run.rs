//! The runs of a study: every regime, arm and seed, as many at a time as there are cores, each one line of a file.

use super::arms::{Arm, ArmKind};
use super::row::{EvalPoint, RowError, RowFile, Stamp, StudyRow};
use lemon_credit::economy::FamilyReport;
use lemon_exec::{Backend, Settings};
use lemon_model::{DeviceChoice, Packed};
use lemon_num::Random;
use lemon_policy::featurize;
use lemon_rollout::{Case, Grader, RemoteRuns, RolloutEnv};
use lemon_sft::sft::BEST;
use lemon_sft::teach::draw;
use lemon_spec::Language;
use lemon_spec::edit::Family;
use lemon_train::build::{
    AnyPolicy, BuildError, BuiltPolicy, Tasks, build_policy, language_of, rollout_env, simulated, tasks_of_seed,
};
use lemon_train::metrics::{Means, StepMetrics};
use lemon_train::recipe::{Recipe, Start, TaskSettings};
use lemon_train::stop::stop_rows;
use lemon_train::{HeldOutResult, TrainContext, TrainError, candidates, evaluate_at, search_fixed, train};
use lemon_world::{Choices, Preset};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// What to run.
pub struct Study {
    /// Its name.
    pub name: String,
    /// What one run of it does.
    pub kind: RunKind,
    /// The regimes, each with a recipe of its own.
    pub regimes: Vec<Regime>,
    /// The arms that are compared.
    pub arms: Vec<Arm>,
    /// The seeds: each arm is trained once with each.
    pub seeds: Vec<u64>,
    /// The folder of published task sets, if they are to be used.
    pub data: Option<PathBuf>,
    /// The workers; `None`: the simulated world of the recipe.
    pub workers: Option<StudyWorkers>,
    /// Other machines that make the runs of simulated worlds. `None`: this process does.
    pub remote_worlds: Option<Arc<dyn RemoteWorlds>>,
    /// What the build is known by.
    pub commit: String,
}

/// Machines that make the runs of simulated worlds.
pub trait RemoteWorlds: Send + Sync {
    /// Has the runs of this environment made there. `world` says what it simulates.
    ///
    /// # Errors
    /// The machines cannot be used, and why.
    fn take(&self, env: &mut RolloutEnv, world: &WorldOfTasks<'_>) -> Result<(), String>;
}

/// What a simulated world is made of.
pub struct WorldOfTasks<'a> {
    pub tasks: &'a Tasks,
    pub settings: &'a TaskSettings,
    /// Figures in place of those of the preset.
    pub choices: Option<Choices>,
}

/// Workers of a study that are not simulated.
#[derive(Clone)]
pub struct StudyWorkers {
    /// What answers.
    pub backend: Backend,
    /// How runs are carried out.
    pub settings: Settings,
    /// What teams may say to them.
    pub language: Arc<Language>,
    /// All tasks that they can answer; `None`: any. Each seed draws its own.
    pub tasks: Option<Tasks>,
    /// Other machines that make the runs. `None`: this process does.
    pub remote: Option<Arc<dyn RemoteRuns>>,
}

impl StudyWorkers {
    /// The tasks of a seed, as many as the recipe says.
    fn tasks(&self, settings: &TaskSettings, seed: u64) -> Option<Tasks> {
        let drawn = |cases: &[Case], part: &str, each: usize| {
            let mut cases = cases.to_vec();
            Random::named(seed, part).shuffle(&mut cases);
            cases.truncate(each * settings.sets.len());
            cases
        };
        let all = self.tasks.as_ref()?;
        let train = drawn(&all.train, "recorded, to train on", settings.train);
        Some(Tasks { train, held_out: drawn(&all.held_out, "recorded, held out", settings.held_out) })
    }
}

impl Study {
    /// Every arm changes this recipe in place of the study's own. The recipe names its world, so a study over worlds keeps one
    /// regime, named after that world.
    ///
    /// # Errors
    /// The regimes of the study differ in more than the world: the recipe would make them equal under different names.
    pub fn use_recipe(&mut self, recipe: Recipe) -> Result<(), StudyError> {
        let over_worlds =
            self.regimes.iter().all(|it| it.name == world_name(it.recipe.tasks.world) && it.choices.is_none());
        let name = match self.regimes.as_slice() {
            [only] if only.name.is_empty() => String::new(),
            _ if over_worlds => world_name(recipe.tasks.world),
            _ => return Err(StudyError::OwnRecipe(self.name.clone())),
        };
        self.regimes = vec![Regime { name, recipe, choices: None }];
        Ok(())
    }
}

/// The name of the regime that differs from others in its world.
pub(crate) fn world_name(world: Preset) -> String {
    format!("world={}", world.as_str())
}

/// What one run of a study does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunKind {
    /// It trains a policy: one row.
    Train,
    /// It trains a policy and compares its stop decisions with stopping never, always and by chance: a row for each, over all
    /// tasks and by difficulty.
    Stop,
}

/// The setting of a comparison.
#[derive(Debug, Clone)]
pub struct Regime {
    /// `name=value` pairs; empty where there is only one.
    pub name: String,
    /// The recipe that the arms change.
    pub recipe: Recipe,
    /// Figures of the simulated world, if not those of the recipe's preset.
    pub choices: Option<Choices>,
}

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A run could not start.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A run failed.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// The file of rows cannot be used.
    #[error(transparent)]
    Rows(#[from] RowError),
    /// A recipe would replace what the study compares.
    #[error("the study `{0}` compares settings of its own recipe, and another recipe would replace them")]
    OwnRecipe(String),
    /// Other machines cannot make the runs.
    #[error("the cluster cannot be used: {0}")]
    Remote(String),
    /// A folder could not be written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// One run of a study.
#[derive(Clone, Copy)]
struct PlannedRun<'a> {
    regime: usize,
    arm: &'a Arm,
    seed: u64,
}

/// Runs what the file does not hold yet, and adds it there line by line: a study that was stopped goes on. `scratch` is a folder
/// for what runs leave behind. `watch` is told of every run that ends, how many are done and how many there are.
///
/// # Errors
/// A run fails, or a file cannot be written.
pub fn run(
    study: &Study,
    bundled: Packed,
    device: DeviceChoice,
    (file, scratch): (&Path, &Path),
    threads: usize,
    cancel: &CancellationToken,
    watch: impl Fn(&StudyRow, usize, usize) + Sync,
) -> Result<Vec<StudyRow>, StudyError> {
    let (out, known) = RowFile::open(file)?;
    let done: HashSet<(String, String, String, u64)> = known.iter().map(key).collect();
    let mut planned = Vec::new();
    // Seed by seed, so that a study that is stopped has all arms of the first ones.
    for seed in &study.seeds {
        for (regime, setting) in study.regimes.iter().enumerate() {
            for arm in &study.arms {
                let key = match study.kind {
                    RunKind::Train => (study.name.clone(), setting.name.clone(), arm.name.to_owned(), *seed),
                    // The last row that a run leaves.
                    RunKind::Stop => (study.name.clone(), "difficulty=hard".to_owned(), "random".to_owned(), *seed),
                };
                if !done.contains(&key) {
                    planned.push(PlannedRun { regime, arm, seed: *seed });
                }
            }
        }
    }
    let total = planned.len();
    planned.reverse();
    let queue = Mutex::new(planned);
    let results = Mutex::new((out, known, 0usize));
    let fault: Mutex<Option<StudyError>> = Mutex::new(None);
    warm_up(study, &lock(&queue), bundled, device, scratch, threads, cancel)?;
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let Some(run) = lock(&queue).pop() else { return };
                    if cancel.is_cancelled() || lock(&fault).is_some() {
                        return;
                    }
                    match one(study, run, bundled, device, scratch, cancel) {
                        Ok(rows) if rows.is_empty() => return,
                        Ok(rows) => {
                            let mut results = lock(&results);
                            results.2 += 1;
                            for row in rows {
                                if let Err(error) = results.0.add(&row) {
                                    lock(&fault).get_or_insert(error.into());
                                }
                                watch(&row, results.2, total);
                                results.1.push(row);
                            }
                        }
                        Err(error) => drop(lock(&fault).get_or_insert(error)),
                    }
                }
            });
        }
    });
    let fault = fault.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (_, rows, _) = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    fault.map_or(Ok(rows), Err)
}

/// Trains the warm starts. Arms share them: those of one seed start from the same model.
fn warm_up(
    study: &Study,
    planned: &[PlannedRun<'_>],
    bundled: Packed,
    device: DeviceChoice,
    scratch: &Path,
    threads: usize,
    cancel: &CancellationToken,
) -> Result<(), StudyError> {
    let mut folders: BTreeMap<PathBuf, Recipe> = BTreeMap::new();
    for run in planned {
        let recipe = study.recipe(run);
        if matches!(&recipe.start, Start::Warm(_)) {
            folders.insert(study.warm_folder(run, &recipe, scratch), recipe);
        }
    }
    let queue = Mutex::new(folders.into_iter().collect::<Vec<_>>());
    let fault: Mutex<Option<StudyError>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let Some((folder, recipe)) = lock(&queue).pop() else { return };
                    let made = runtime(&folder).and_then(|runtime| {
                        let language = study.language(&recipe);
                        let external_env = study.external_env(&recipe, &language, cancel);
                        let place = (external_env.as_ref(), folder.as_path());
                        let built =
                            build_policy(&recipe, bundled, device, &language, place, |_| !cancel.is_cancelled());
                        Ok(runtime.block_on(built).map(drop)?)
                    });
                    if let Err(error) = made {
                        lock(&fault).get_or_insert(error);
                    }
                }
            });
        }
    });
    fault.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

fn runtime(folder: &Path) -> Result<tokio::runtime::Runtime, StudyError> {
    let at = |source| StudyError::File { path: folder.to_owned(), source };
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(at)
}

impl Study {
    /// The recipe of a run.
    fn recipe(&self, run: &PlannedRun<'_>) -> Recipe {
        let regime = &self.regimes[run.regime]; // A position of `regimes`.
        Recipe { seed: run.seed, ..run.arm.recipe(&regime.recipe) }
    }

    /// What teams may say to the workers of a recipe.
    fn language(&self, recipe: &Recipe) -> Arc<Language> {
        match &self.workers {
            Some(workers) => workers.language.clone(),
            None => Arc::new(language_of(recipe.tasks.world)),
        }
    }

    /// The environment of workers that are not simulated; `None`: the workers are simulated.
    fn external_env(
        &self,
        recipe: &Recipe,
        language: &Arc<Language>,
        cancel: &CancellationToken,
    ) -> Option<RolloutEnv> {
        let StudyWorkers { backend, settings, remote, .. } = self.workers.clone()?;
        let settings = Settings { max_rounds: recipe.rollouts.rounds.max(1), ..settings };
        let mut env = rollout_env(backend, language.clone(), Grader::new(None), settings, cancel.clone());
        env.remote = remote;
        Some(env)
    }

    /// The folder of the warm start of a run. Arms with the same warm start share it.
    fn warm_folder(&self, run: &PlannedRun<'_>, recipe: &Recipe, scratch: &Path) -> PathBuf {
        let taught = format!("{:?} {}", recipe.start, recipe.rollouts.rounds > 1);
        let number = draw(0, &[&taught]);
        scratch.join(format!("{}-{}-warm-{}-{number:016x}", self.name, run.regime, run.seed))
    }
}

fn key(row: &StudyRow) -> (String, String, String, u64) {
    (row.study.clone(), row.regime.clone(), row.arm.clone(), row.seed)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One run; no rows if it was stopped.
fn one(
    study: &Study,
    run: PlannedRun<'_>,
    bundled: Packed,
    device: DeviceChoice,
    scratch: &Path,
    cancel: &CancellationToken,
) -> Result<Vec<StudyRow>, StudyError> {
    let began = Instant::now();
    let regime = &study.regimes[run.regime]; // A position of `regimes`.
    let recipe = study.recipe(&run);
    let name = format!("{}-{}-{}-{}", study.name, run.regime, run.arm.name, run.seed);
    let folder = scratch.join(name);
    let file = |source| StudyError::File { path: folder.clone(), source };
    let runtime = runtime(&folder)?;
    let language = study.language(&recipe);
    // Tasks of its own for each seed: intervals over seeds are intervals over tasks too. Arms of one seed share them.
    let recorded = study.workers.as_ref().and_then(|workers| workers.tasks(&recipe.tasks, run.seed));
    let tasks = match recorded {
        Some(tasks) => tasks,
        None => tasks_of_seed(&recipe.tasks, study.data.as_deref(), run.seed)?,
    };
    let mut env = match study.external_env(&recipe, &language, cancel) {
        Some(env) => env,
        None => {
            let mut env = simulated(&tasks, &recipe.tasks, regime.choices, language.clone(), cancel.clone());
            if let Some(remote) = &study.remote_worlds {
                let world = WorldOfTasks { tasks: &tasks, settings: &recipe.tasks, choices: regime.choices };
                remote.take(&mut env, &world).map_err(StudyError::Remote)?;
            }
            env
        }
    };
    env.weights = recipe.reward.weights();
    let mut looks = Vec::new();
    let mut sums = Sums::default();
    let made = runtime.block_on(async {
        let warm = study.warm_folder(&run, &recipe, scratch);
        let start = match &recipe.start {
            // `warm_up` trained it.
            Start::Warm(start) if start.steps > 0 => Start::Model { folder: Some(warm.join(BEST)) },
            start => start.clone(),
        };
        let from = Recipe { start, ..recipe.clone() };
        let place = (study.workers.is_some().then_some(&env), warm.as_path());
        let BuiltPolicy { mut policy, encoder } =
            build_policy(&from, bundled, device, &language, place, |_| !cancel.is_cancelled()).await?;
        let mut reference = match recipe.update.kl > 0.0 {
            true => Some(build_policy(&from, bundled, device, &language, place, |_| true).await?.policy),
            false => None,
        };
        let context = TrainContext {
            env: Arc::new(env),
            encoder: encoder.as_ref(),
            cases: Arc::new(tasks.train.clone()),
            held_out: Arc::new(tasks.held_out.clone()),
            reference: reference.as_mut().map(|policy| &*policy.trainable()),
        };
        let on = device_of(&policy);
        if run.arm.kind != ArmKind::Train {
            return Ok(Made { device: on, ..searched(&context, run.arm.kind, &recipe).await? });
        }
        let watch = |metrics: &StepMetrics, _: &_| {
            sums.add(metrics);
            if let Some(means) = metrics.held_out {
                looks.push(EvalPoint { step: metrics.step, worker_tokens: metrics.worker_tokens, means });
            }
            !cancel.is_cancelled()
        };
        let trained = train(&context, policy.trainable(), &recipe, &folder.join("train"), watch).await?;
        let mut stops = Vec::new();
        if study.kind == RunKind::Stop && !cancel.is_cancelled() {
            let hardness = |case: &lemon_rollout::Case| featurize(&case.item.task.question, None).difficulty;
            let hardness: Vec<f64> = context.held_out.iter().map(hardness).collect();
            let (who, what) = ((&*policy.trainable(), encoder.as_ref()), (&context.held_out, hardness.as_slice()));
            stops = stop_rows(&context.env, who, what, &recipe).await?;
        }
        let mut evaluations = Vec::new();
        for temperature in [0.0, recipe.rollouts.temperature] {
            let seeds = recipe.eval.final_seeds;
            evaluations.push(evaluate_at(&context, &*policy.trainable(), &recipe, temperature, seeds).await?);
        }
        let (steps, policy_tokens) = (trained.steps, trained.policy_tokens);
        let tokens = [trained.rollout_tokens, trained.credit_tokens];
        let (before, after) = (trained.before, trained.after);
        Ok::<_, StudyError>(Made { device: on, steps, tokens, policy_tokens, before, after, evaluations, stops })
    })?;
    if cancel.is_cancelled() {
        return Ok(Vec::new());
    }
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(file)?;
    }
    let stamp = Stamp {
        commit: study.commit.clone(),
        device: made.device.clone(),
        recipe: recipe_hash(&recipe),
        learning_rate: recipe.update.learning_rate,
        seconds: began.elapsed().as_secs_f64(),
        worker_tokens: made.tokens.iter().sum(),
        policy_tokens: made.policy_tokens,
    };
    let row = StudyRow {
        study: study.name.clone(),
        regime: regime.name.clone(),
        arm: run.arm.name.to_owned(),
        seed: run.seed,
        steps: made.steps,
        rollout_tokens: made.tokens[0],
        credit_tokens: made.tokens[1],
        before: made.before,
        after: made.after,
        curve: looks,
        stamp: Some(stamp),
        evaluations: made.evaluations,
        families: sums.families(),
    };
    let stops = made.stops;
    Ok(match study.kind {
        RunKind::Train => vec![row],
        RunKind::Stop => {
            let of = |(arm, regime, after): (&str, String, Means)| StudyRow {
                arm: arm.to_owned(),
                regime,
                after,
                curve: Vec::new(),
                ..row.clone()
            };
            stops.into_iter().map(of).collect()
        }
    })
}

/// What a run came to.
struct Made {
    device: String,
    steps: u64,
    /// Worker tokens of rollouts, and of counterfactuals.
    tokens: [u64; 2],
    policy_tokens: u64,
    before: Means,
    after: Means,
    evaluations: Vec<HeldOutResult>,
    stops: Vec<(&'static str, String, Means)>,
}

/// A fixed team, found with the worker tokens that a training of the recipe has.
async fn searched(context: &TrainContext<'_>, kind: ArmKind, recipe: &Recipe) -> Result<Made, StudyError> {
    let most = if kind == ArmKind::OneAgent { 1 } else { recipe.rollouts.agents };
    let teams = candidates(&context.env.language, most);
    let tokens = recipe.worker_tokens.unwrap_or(SEARCH_TOKENS);
    let found = search_fixed(context, recipe, &teams, tokens).await?;
    let (evaluation, tokens) = found.map(|found| (found.evaluation, found.tokens)).unwrap_or_default();
    Ok(Made {
        device: String::new(),
        steps: 0,
        tokens: [tokens, 0],
        policy_tokens: 0,
        before: evaluation.means,
        after: evaluation.means,
        evaluations: vec![evaluation],
        stops: Vec::new(),
    })
}

/// What a search may spend where the recipe sets no limit.
const SEARCH_TOKENS: u64 = 1_000_000;

fn device_of(policy: &AnyPolicy) -> String {
    match policy {
        AnyPolicy::Language(policy) => format!("{} {}", policy.device(), std::env::consts::ARCH),
        AnyPolicy::Fields(_) => format!("cpu {}", std::env::consts::ARCH),
        AnyPolicy::Tinker(_) => "a Tinker server".to_owned(),
    }
}

/// A hash of everything in a recipe but its seed and what it says of itself.
fn recipe_hash(recipe: &Recipe) -> String {
    let recipe = Recipe { seed: 0, about: String::new(), ..recipe.clone() };
    format!("{:016x}", draw(0, &[&format!("{recipe:?}")]))
}

/// What families came to over a whole run.
#[derive(Default)]
struct Sums {
    families: BTreeMap<Family, (FamilyReport, [f64; 5], [f64; 5])>,
}

impl Sums {
    fn add(&mut self, metrics: &StepMetrics) {
        for (family, report) in &metrics.families {
            let (sum, values, counts) = self.families.entry(*family).or_default();
            sum.free += report.free;
            sum.purchased += report.purchased;
            sum.declined += report.declined;
            sum.capped += report.capped;
            sum.tokens += report.tokens;
            let means = [report.worth, report.mean, report.absolute, report.variance, report.zeros];
            for ((value, count), mean) in values.iter_mut().zip(counts.iter_mut()).zip(means) {
                if let Some(mean) = mean {
                    *value += mean;
                    *count += 1.0;
                }
            }
        }
    }

    fn families(&self) -> BTreeMap<Family, FamilyReport> {
        let report = |(sum, values, counts): &(FamilyReport, [f64; 5], [f64; 5])| {
            let mean = |at: usize| (counts[at] > 0.0).then(|| values[at] / counts[at]);
            FamilyReport { worth: mean(0), mean: mean(1), absolute: mean(2), variance: mean(3), zeros: mean(4), ..*sum }
        };
        self.families.iter().map(|(family, sums)| (*family, report(sums))).collect()
    }
}

#[cfg(test)]
mod tests;
