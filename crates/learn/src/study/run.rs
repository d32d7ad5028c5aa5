//! The runs of a study: every regime, arm and seed, as many at a time as there are cores, each one line of a file.

use super::arms::Arm;
use super::row::{Look, StudyRow};
use super::stop::stop_rows;
use crate::sft::BEST;
use crate::teach::{draw, look};
use crate::train::arena::Arena;
use crate::train::build::{BuildError, Enrolled, Tasks, arena, enrol, simulated, tasks};
use crate::train::metrics::{Means, Metrics};
use crate::train::recipe::{Recipe, Start};
use crate::train::{Ground, TrainError, train};
use lemon_credit::economy::FamilyReport;
use lemon_eval::Grader;
use lemon_exec::{Backend, Settings};
use lemon_model::{DeviceChoice, Packed};
use lemon_spec::Language;
use lemon_spec::edit::Family;
use lemon_world::Choices;
use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// What to run.
pub struct Study {
    /// Its name.
    pub name: String,
    /// What a run of it is.
    pub kind: Kind,
    /// Where: each with a recipe of its own.
    pub regimes: Vec<Regime>,
    /// What is compared.
    pub arms: Vec<Arm>,
    /// How often.
    pub seeds: Vec<u64>,
    /// The folder of published task sets, if they are to be used.
    pub data: Option<PathBuf>,
    /// Who works; without, the simulated world of the recipe.
    pub workers: Option<(Backend, Settings)>,
}

/// What a run of a study is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Training: one row.
    Train,
    /// Training, and then the trained policy's stops against never, always and by chance: a row for each, in all and by how
    /// hard tasks look.
    Stop,
}

/// Where a comparison is made.
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
    /// A run could not begin.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A run could not go on.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// A file could not be read or written.
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
struct Place<'a> {
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
    in_the_box: Packed,
    device: DeviceChoice,
    (file, scratch): (&Path, &Path),
    threads: usize,
    cancel: &CancellationToken,
    watch: impl Fn(&StudyRow, usize, usize) + Sync,
) -> Result<Vec<StudyRow>, StudyError> {
    let at = |source| StudyError::File { path: file.to_owned(), source };
    let known = read(file).map_err(at)?;
    let done: HashSet<(String, String, String, u64)> = known.iter().map(key).collect();
    let mut places = Vec::new();
    // Seed by seed, so that a study that is stopped has all arms of the first ones.
    for seed in &study.seeds {
        for (regime, setting) in study.regimes.iter().enumerate() {
            for arm in &study.arms {
                let key = match study.kind {
                    Kind::Train => (study.name.clone(), setting.name.clone(), arm.name.to_owned(), *seed),
                    // The last row that a run leaves.
                    Kind::Stop => (study.name.clone(), "difficulty=hard".to_owned(), "random".to_owned(), *seed),
                };
                if !done.contains(&key) {
                    places.push(Place { regime, arm, seed: *seed });
                }
            }
        }
    }
    let total = places.len();
    places.reverse();
    let queue = Mutex::new(places);
    let out = std::fs::OpenOptions::new().create(true).append(true).open(file).map_err(at)?;
    let results = Mutex::new((out, known, 0usize));
    let fault: Mutex<Option<StudyError>> = Mutex::new(None);
    let worlds: Vec<Tasks> = study
        .regimes
        .iter()
        .map(|regime| tasks(&regime.recipe.tasks, study.data.as_deref()))
        .collect::<Result<_, BuildError>>()?;
    warm_up(study, &lock(&queue), in_the_box, device, scratch, threads, cancel)?;
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let Some(place) = lock(&queue).pop() else { return };
                    if cancel.is_cancelled() || lock(&fault).is_some() {
                        return;
                    }
                    match one(study, place, &worlds[place.regime], in_the_box, device, scratch, cancel) {
                        Ok(rows) if rows.is_empty() => return,
                        Ok(rows) => {
                            let mut results = lock(&results);
                            results.2 += 1;
                            for row in rows {
                                let line = serde_json::to_string(&row).unwrap_or_default();
                                if let Err(source) = writeln!(results.0, "{line}").and_then(|()| results.0.flush()) {
                                    *lock(&fault) = Some(StudyError::File { path: file.to_owned(), source });
                                }
                                watch(&row, results.2, total);
                                results.1.push(row);
                            }
                        }
                        Err(error) => *lock(&fault) = Some(error),
                    }
                }
            });
        }
    });
    let fault = fault.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (_, rows, _) = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    fault.map_or(Ok(rows), Err)
}

/// Makes the warm starts, which arms share: those of one seed begin with the same model.
fn warm_up(
    study: &Study,
    places: &[Place<'_>],
    in_the_box: Packed,
    device: DeviceChoice,
    scratch: &Path,
    threads: usize,
    cancel: &CancellationToken,
) -> Result<(), StudyError> {
    let mut folders: BTreeMap<PathBuf, Recipe> = BTreeMap::new();
    for place in places {
        let recipe = study.recipe(place);
        if matches!(&recipe.start, Start::Warm(_)) {
            folders.insert(study.warm_folder(place, &recipe, scratch), recipe);
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
                        let language = Arc::new(Language::default());
                        let hired = study.hired(&recipe, &language, cancel);
                        let place = (hired.as_ref(), folder.as_path());
                        let enrolled = enrol(&recipe, in_the_box, device, &language, place, |_| !cancel.is_cancelled());
                        Ok(runtime.block_on(enrolled).map(drop)?)
                    });
                    if let Err(error) = made {
                        *lock(&fault) = Some(error);
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
    fn recipe(&self, place: &Place<'_>) -> Recipe {
        let regime = &self.regimes[place.regime]; // A position of `regimes`.
        Recipe { seed: place.seed, ..place.arm.recipe(&regime.recipe) }
    }

    /// Where its teams are run, if not in a simulated world.
    fn hired(&self, recipe: &Recipe, language: &Arc<Language>, cancel: &CancellationToken) -> Option<Arena> {
        let (backend, settings) = self.workers.clone()?;
        let settings = Settings { max_rounds: recipe.rollouts.rounds.max(1), ..settings };
        Some(arena(backend, language.clone(), Grader::new(None), settings, cancel.clone()))
    }

    /// Where the warm start of a run is kept. Arms that are taught the same share it.
    fn warm_folder(&self, place: &Place<'_>, recipe: &Recipe, scratch: &Path) -> PathBuf {
        let taught = format!("{:?} {}", recipe.start, recipe.rollouts.rounds > 1);
        let number = draw(0, &[&taught]);
        scratch.join(format!("{}-{}-warm-{}-{number:016x}", self.name, place.regime, place.seed))
    }
}

/// The rows of a file; none if there is no file. A last line that was cut short is no row.
///
/// # Errors
/// The file cannot be read.
pub fn read(file: &Path) -> std::io::Result<Vec<StudyRow>> {
    match std::fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
        Ok(text) => Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()),
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
    place: Place<'_>,
    tasks: &Tasks,
    in_the_box: Packed,
    device: DeviceChoice,
    scratch: &Path,
    cancel: &CancellationToken,
) -> Result<Vec<StudyRow>, StudyError> {
    let regime = &study.regimes[place.regime]; // A position of `regimes`.
    let recipe = study.recipe(&place);
    let name = format!("{}-{}-{}-{}", study.name, place.regime, place.arm.name, place.seed);
    let folder = scratch.join(name);
    let file = |source| StudyError::File { path: folder.clone(), source };
    let runtime = runtime(&folder)?;
    let language = Arc::new(Language::default());
    let world = || simulated(tasks, &recipe.tasks, regime.choices, language.clone(), cancel.clone());
    let mut arena = study.hired(&recipe, &language, cancel).unwrap_or_else(world);
    arena.weights = recipe.reward.weights();
    let mut looks = Vec::new();
    let mut sums = Sums::default();
    let (trained, stops) = runtime.block_on(async {
        let warm = study.warm_folder(&place, &recipe, scratch);
        let start = match &recipe.start {
            // It was made before: its lessons need not be written again.
            Start::Warm(start) if start.steps > 0 => Start::Model { folder: Some(warm.join(BEST)) },
            start => start.clone(),
        };
        let from = Recipe { start, ..recipe.clone() };
        let place = (study.workers.is_some().then_some(&arena), warm.as_path());
        let Enrolled { mut student, scribe } =
            enrol(&from, in_the_box, device, &language, place, |_| !cancel.is_cancelled()).await?;
        let ground = Ground {
            arena: Arc::new(arena),
            scribe: scribe.as_ref(),
            cases: Arc::new(tasks.train.clone()),
            held_out: Arc::new(tasks.held_out.clone()),
            reference: None,
        };
        let watch = |metrics: &Metrics, _: &_| {
            sums.add(metrics);
            if let Some(means) = metrics.look {
                looks.push(Look { step: metrics.step, worker_tokens: metrics.worker_tokens, means });
            }
            !cancel.is_cancelled()
        };
        let trained = train(&ground, student.student(), &recipe, &folder.join("train"), watch).await?;
        let mut stops = Vec::new();
        if study.kind == Kind::Stop && !cancel.is_cancelled() {
            let hardness = |case: &lemon_eval::Case| look(&case.item.task.question, None).difficulty;
            let hardness: Vec<f64> = ground.held_out.iter().map(hardness).collect();
            let (who, what) = ((&*student.student(), scribe.as_ref()), (&ground.held_out, hardness.as_slice()));
            stops = stop_rows(&ground.arena, who, what, &recipe).await?;
        }
        Ok::<_, StudyError>((trained, stops))
    })?;
    if cancel.is_cancelled() {
        return Ok(Vec::new());
    }
    std::fs::remove_dir_all(&folder).map_err(file)?;
    let row = StudyRow {
        study: study.name.clone(),
        regime: regime.name.clone(),
        arm: place.arm.name.to_owned(),
        seed: place.seed,
        steps: trained.steps,
        rollout_tokens: trained.rollout_tokens,
        credit_tokens: trained.credit_tokens,
        before: trained.before,
        after: trained.after,
        curve: looks,
        families: sums.families(),
    };
    Ok(match study.kind {
        Kind::Train => vec![row],
        Kind::Stop => {
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

/// What families came to over a whole run.
#[derive(Default)]
struct Sums {
    families: BTreeMap<Family, (FamilyReport, [f64; 5], [f64; 5])>,
}

impl Sums {
    fn add(&mut self, metrics: &Metrics) {
        for (family, report) in &metrics.families {
            let (sum, values, counts) = self.families.entry(*family).or_default();
            sum.free += report.free;
            sum.bought += report.bought;
            sum.declined += report.declined;
            sum.capped += report.capped;
            sum.tokens += report.tokens;
            let means = [report.worth, report.mean, report.contrast, report.variance, report.zeros];
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
            FamilyReport { worth: mean(0), mean: mean(1), contrast: mean(2), variance: mean(3), zeros: mean(4), ..*sum }
        };
        self.families.iter().map(|(family, sums)| (*family, report(sums))).collect()
    }
}
