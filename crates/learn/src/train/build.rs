//! From a recipe to what training stands on: tasks, an arena, a student and its desk.

use super::arena::Arena;
use super::recipe::{Recipe, Start, TaskSettings, WarmStart};
use crate::fields::{FieldDesk, FieldTable};
use crate::pair::{Pair, canonical_ids};
use crate::pretrain::Sources;
use crate::sft::{Lesson, Metrics, SftError, SftSettings, sft};
use crate::small_model;
use crate::student::{Scribe, Student};
use crate::teach::{Lessons, broad, draw};
use crate::writer::{Desk, brief};
use lemon_eval::{Case, EvalError, Grader};
use lemon_exec::{Backend, Settings};
use lemon_model::{DeviceChoice, LanguagePolicy, Learning, Packed, PolicyError};
use lemon_problems::{DataError, Generator, Part, Problem, Weights};
use lemon_spec::{Language, Shape, validate};
use lemon_task::{Item, SetName, Source, TaskError, compose, load};
use lemon_world::{Choices, Luck, World};
use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Tasks to train on, and tasks to look at.
#[derive(Debug, Clone)]
pub struct Tasks {
    /// To train on.
    pub train: Vec<Case>,
    /// To look at: none of them is among the others.
    pub held_out: Vec<Case>,
}

/// What can go wrong before training begins.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A task set cannot be read.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// Published problems cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The model cannot be used.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A run of the warm start failed.
    #[error(transparent)]
    Eval(#[from] EvalError),
    /// No problem has so many steps.
    #[error("no word problem has {0} steps; `problem_steps` may be 1 to 5")]
    Steps(usize),
    /// The team that the warm start is to be taught cannot be.
    #[error("the team of the warm start {0}")]
    Team(String),
    /// The warm start failed.
    #[error("the warm start failed: {0}")]
    Sft(#[from] SftError),
}

/// Of the published sets: the split to teach and train with. The test splits are for measuring.
pub const SPLITS: [(SetName, &str); 3] = [(SetName::Gsm8k, "train"), (SetName::Mmlu, "val"), (SetName::Aqua, "dev")];
/// The seeds of tasks of our own: lessons of the warm start, tasks to train on, tasks to look at.
const OWN: [u64; 3] = [0x6c65_7373, 0x7472_6169, 0x6865_6c64];

/// The seeds of problems: to train on, to look at, and of the warm start.
const PROBLEMS: [u64; 3] = [0x7072_6f62, 0x6c6f_6f6b, 0x7761_726d];
/// Three in four are published ones, where there are any: those are nearest to what people ask.
const LIKE_PEOPLES: Weights = Weights { situations: 50, stories: 26, facts: 14, drills: 0, published: 270 };
/// The steps that problems have.
const STEPS: RangeInclusive<usize> = 1..=5;
/// One situation in so many is looked at and never trained on.
const HELD_OUT: u64 = 4;

/// The tasks of a recipe. Of published sets the test splits are looked at and another split is trained on; a set that has
/// none is trained on tasks of our own of the same kind.
///
/// # Errors
/// A task set cannot be read.
pub fn tasks(settings: &TaskSettings, data: Option<&Path>) -> Result<Tasks, BuildError> {
    let mut tasks = Tasks { train: Vec::new(), held_out: Vec::new() };
    for set in &settings.sets {
        let published = |split: &str, count: usize| -> Result<Option<Vec<Item>>, TaskError> {
            let Some(folder) = data else { return Ok(None) };
            let items = load(&Source::Folder(folder.to_owned()), *set, split)?.items;
            // Spread over the whole split: some are sorted by subject.
            let every = (items.len() / count.max(1)).max(1);
            Ok(Some(items.into_iter().step_by(every).take(count).collect()))
        };
        let split = SPLITS.iter().find(|(known, _)| known == set).map(|(_, split)| *split);
        let train = split.map(|split| published(split, settings.train)).transpose()?.flatten();
        let train = named(*set, split, train, || compose(*set, settings.train, OWN[1]));
        let held_out = published("test", settings.held_out)?;
        let held_out = named(*set, Some("test"), held_out, || compose(*set, settings.held_out, OWN[2]));
        tasks.train.extend(train);
        tasks.held_out.extend(held_out);
    }
    if settings.problems + settings.held_out_problems > 0 {
        let problems = problems(settings.problems, settings.held_out_problems, settings.problem_steps, data)?;
        tasks.train.extend(problems.train);
        tasks.held_out.extend(problems.held_out);
    }
    let looked_at: HashSet<&str> = tasks.held_out.iter().map(|case| case.item.task.question.as_str()).collect();
    tasks.train.retain(|case| !looked_at.contains(case.item.task.question.as_str()));
    Ok(tasks)
}

/// Word problems of situations that the workers in the box never learned from, with published ones where there is a folder of them;
/// those to look at are of other situations than those to train on. With `steps`, only problems of so many.
///
/// # Errors
/// Published problems cannot be read, or none has so many steps.
pub fn problems(train: usize, held_out: usize, steps: Option<usize>, data: Option<&Path>) -> Result<Tasks, BuildError> {
    if let Some(steps) = steps.filter(|steps| !STEPS.contains(steps)) {
        return Err(BuildError::Steps(steps));
    }
    let sources = match data {
        Some(folder) => Sources::read(folder)?.0,
        None => Sources::default(),
    };
    let of = |seed: u64, to_look_at: bool, count: usize| {
        let mut generator = sources.generator(seed, Part::Dev).with_weights(LIKE_PEOPLES);
        let is_held_out = |problem: &Problem| draw(0, &["held out", &problem.situation]).is_multiple_of(HELD_OUT);
        let problems = std::iter::repeat_with(move || generator.problem())
            .filter(move |problem| steps.is_none_or(|steps| problem.steps.len() == steps));
        as_cases(problems.filter(move |problem| is_held_out(problem) == to_look_at).take(count))
    };
    Ok(Tasks { train: of(PROBLEMS[0], false, train), held_out: of(PROBLEMS[1], true, held_out) })
}

fn named(set: SetName, split: Option<&str>, items: Option<Vec<Item>>, own: impl FnOnce() -> Vec<Item>) -> Vec<Case> {
    let origin = if items.is_some() { split.unwrap_or("own") } else { "own" };
    let name: Arc<str> = format!("{}/{origin}", set.as_str()).into();
    items.unwrap_or_else(own).into_iter().map(|item| Case { set: name.clone(), item }).collect()
}

fn as_cases(problems: impl Iterator<Item = Problem>) -> Vec<Case> {
    let set: Arc<str> = "problems/own".into();
    let case = |(at, problem): (usize, Problem)| Case {
        set: set.clone(),
        item: Item::of_number(at.to_string(), problem.question, problem.answer),
    };
    problems.enumerate().map(case).collect()
}

/// An arena of simulated workers for these tasks; `choices`: figures of one's own.
pub fn simulated(
    tasks: &Tasks,
    settings: &TaskSettings,
    choices: Option<Choices>,
    language: Arc<Language>,
    cancel: CancellationToken,
) -> Arena {
    let items = tasks.train.iter().chain(&tasks.held_out).map(|case| &case.item);
    let mut world = World::new(settings.world, items);
    if let Some(choices) = choices {
        world = world.with_choices(choices);
    }
    if settings.keep_luck {
        world = world.with_luck(Luck::Kept);
    }
    arena(world.backend(), language, Grader::new(None), Settings::default(), cancel)
}

/// An arena of any workers.
pub fn arena(
    backend: Backend,
    language: Arc<Language>,
    grader: Grader,
    settings: Settings,
    cancel: CancellationToken,
) -> Arena {
    let mut arena = Arena::new(backend, language, settings, grader);
    arena.cancel = cancel;
    arena
}

/// Somebody to be trained, and where they write.
pub struct Enrolled {
    /// Who is trained.
    pub student: Enrolment,
    /// Where they write.
    pub scribe: Box<dyn Scribe>,
}

/// Who is trained.
pub enum Enrolment {
    /// A language model.
    Language(Box<LanguagePolicy>),
    /// A table of choices.
    Fields(Box<FieldTable>),
}

impl Enrolment {
    /// As somebody to be trained.
    pub fn student(&mut self) -> &mut dyn Student {
        match self {
            Enrolment::Language(policy) => policy.as_mut(),
            Enrolment::Fields(table) => table.as_mut(),
        }
    }
}

/// Who a recipe begins with. The warm start keeps its own run in `folder`, and is taken up again there; `workers` answer in its
/// lessons, else simulated ones. `watch` sees its steps and says whether to go on.
///
/// # Errors
/// A model cannot be read, or the warm start fails.
pub async fn enrol(
    recipe: &Recipe,
    in_the_box: Packed,
    device: DeviceChoice,
    language: &Arc<Language>,
    (workers, folder): (Option<&Arena>, &Path),
    watch: impl FnMut(&Metrics) -> bool,
) -> Result<Enrolled, BuildError> {
    let rollouts = &recipe.rollouts;
    let mut writing = language.as_ref().clone();
    if !rollouts.capacity {
        writing.capacities = writing.capacities.pop().into_iter().collect();
    }
    let writing = Arc::new(writing);
    let shape = Shape { review: rollouts.rounds > 1, agents: rollouts.agents, ..Shape::default() };
    let desk = |policy: &LanguagePolicy| -> Box<dyn Scribe> {
        let desk = Desk::new(policy.tokenizer().clone(), writing.clone(), shape.clone(), policy.config().positions);
        Box::new(desk.with_rounds(rollouts.rounds))
    };
    let policy = match &recipe.start {
        Start::Fields(start) => {
            let table = FieldTable::new(start, &writing)?;
            let scribe: Box<dyn Scribe> = Box::new(FieldDesk::new(start, writing, rollouts.rounds)?);
            return Ok(Enrolled { student: Enrolment::Fields(Box::new(table)), scribe });
        }
        Start::Model { folder: Some(folder) } => LanguagePolicy::load(folder, device, Learning::Everything)?,
        Start::Model { folder: None } => LanguagePolicy::load_packed(in_the_box, device, Learning::Everything)?,
        Start::Warm(start) => warm(recipe, start, device, language, (workers, folder), watch).await?,
    };
    let scribe = desk(&policy);
    Ok(Enrolled { student: Enrolment::Language(Box::new(policy)), scribe })
}

/// A new model that was taught teams of every kind.
async fn warm(
    recipe: &Recipe,
    start: &WarmStart,
    device: DeviceChoice,
    language: &Arc<Language>,
    (workers, folder): (Option<&Arena>, &Path),
    watch: impl FnMut(&Metrics) -> bool,
) -> Result<LanguagePolicy, BuildError> {
    let pairs = broad_pairs(recipe, start, language, workers).await?;
    let specs = pairs.iter().map(|pair| pair.spec.clone()).collect();
    let (config, tokenizer) = small_model(specs, start.vocabulary, start.hidden, start.layers)?;
    let mut policy = LanguagePolicy::fresh(config, tokenizer, recipe.seed, device, Learning::Everything)?;
    if start.steps == 0 {
        return Ok(policy);
    }
    let shape = Shape { agents: recipe.rollouts.agents, ..Shape::default() };
    let desk = Desk::new(policy.tokenizer().clone(), language.clone(), shape, policy.config().positions);
    let mut lessons = Vec::new();
    for pair in &pairs {
        let brief = brief(pair, language);
        let earlier: Vec<String> = brief.results.iter().map(|result| result.agent.to_owned()).collect();
        let Ok(tokens) = desk.grammar(&earlier).and_then(|grammar| grammar.encode(&pair.spec)) else { continue };
        lessons.push(Lesson { prompt: desk.prompt(&brief)?, tokens });
    }
    let validation = lessons.split_off(lessons.len() - (lessons.len() / 20).max(1).min(lessons.len()));
    let settings = SftSettings {
        seed: recipe.seed,
        steps: start.steps,
        batch: start.batch,
        learning_rate: start.learning_rate,
        look_every: start.steps.div_ceil(4),
        patience: 0,
        ..SftSettings::default()
    };
    sft(&mut policy, &lessons, &validation, &settings, folder, |_| Ok(None), watch)?;
    Ok(policy)
}

async fn broad_pairs(
    recipe: &Recipe,
    start: &WarmStart,
    language: &Arc<Language>,
    workers: Option<&Arena>,
) -> Result<Vec<Pair>, BuildError> {
    let mut cases: Vec<Case> = recipe
        .tasks
        .sets
        .iter()
        .flat_map(|set| named(*set, None, None, || compose(*set, start.tasks, OWN[0] ^ recipe.seed)))
        .collect();
    if recipe.tasks.problems > 0 {
        let mut generator = Generator::new(PROBLEMS[2] ^ recipe.seed, Part::Train);
        cases.extend(as_cases(std::iter::repeat_with(|| generator.problem()).take(start.tasks)));
    }
    let tasks = Tasks { train: cases, held_out: Vec::new() };
    let world = || simulated(&tasks, &recipe.tasks, None, language.clone(), CancellationToken::new());
    let simulated = workers.is_none().then(world);
    let Some(arena) = workers.or(simulated.as_ref()) else { return Ok(Vec::new()) };
    let lessons = Lessons {
        trials: arena,
        cases: &tasks.train,
        world: None,
        seed: recipe.seed,
        cancel: &arena.cancel,
        watch: None,
    };
    if let Some(text) = &start.team {
        let plan =
            validate(text, language).map_err(|rejection| BuildError::Team(format!("is not valid: {rejection}")))?;
        let pairs = broad::teach_in_two_rounds(&lessons, &canonical_ids(plan.spec())).await?;
        let divided = !pairs.is_empty() || arena.cancel.is_cancelled();
        return divided.then_some(pairs).ok_or_else(|| {
            BuildError::Team("has no two who read the task as it stands, and others who vote with them".to_owned())
        });
    }
    // Where nobody may ask for a review, nobody is taught to.
    let review = if recipe.rollouts.rounds > 1 { 0.3 } else { 0.0 };
    let settings =
        broad::Settings { review, advised: start.advised, voting: start.voting, ..broad::Settings::default() };
    Ok(broad::teach(&lessons, &settings).await?)
}
