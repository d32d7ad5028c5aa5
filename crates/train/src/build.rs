//! From a recipe to what training needs: tasks, an environment to run teams in, a policy and its encoder.

use super::recipe::{Recipe, Start, TaskSettings, WarmStart};
use lemon_exec::{Backend, Settings};
use lemon_model::{DeviceChoice, LanguagePolicy, Learning, LoraSettings, Packed, PolicyError, Tokenizer};
use lemon_num::Random;
use lemon_policy::LanguagePromptEncoder;
use lemon_policy::fields::{FieldPromptEncoder, FieldTable};
use lemon_policy::pair::{Pair, canonical_ids};
use lemon_policy::small_model;
use lemon_policy::{PromptEncoder, TrainablePolicy};
use lemon_problems::{DataError, Generator, Problem, ProblemPart, SourceWeights};
use lemon_rollout::{Case, Grader, RolloutEnv, RolloutError};
use lemon_sft::pretrain::Sources;
use lemon_sft::sft::{SftError, SftMetrics, SftSettings, sft};
use lemon_sft::teach::{TeachContext, broad, draw};
use lemon_sft::tokenize;
use lemon_spec::{Effort, Language, Shape, validate};
use lemon_task::{Item, SetName, Source, TaskError, compose, load};
use lemon_tinker::{Patience, TinkerKey, TinkerPolicy, TinkerStart};
use lemon_world::{AgentNoise, Choices, Preset, World};
use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Tasks to train on, and held-out tasks.
#[derive(Debug, Clone)]
pub struct Tasks {
    /// To train on.
    pub train: Vec<Case>,
    /// To evaluate on: none of them is trained on.
    pub held_out: Vec<Case>,
}

/// What can go wrong before training starts.
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
    Eval(#[from] RolloutError),
    /// No problem has so many steps.
    #[error("`problem_steps` must be 1 to 5, got {0}")]
    Steps(usize),
    /// The team that the warm start is to be taught cannot be.
    #[error("the team of the warm start {0}")]
    Team(String),
    /// Adapters cannot be trained.
    #[error("`lora` must be a rank of 1 to 256, and the policy must start from a model: got {0}")]
    Adapters(usize),
    /// A server trains adapters alone.
    #[error("a start of kind `tinker` trains adapters: expected `lora` from 1 to 256, got {}", given(.0))]
    ServerAdapters(Option<usize>),
    /// A server cannot do what the recipe asks for.
    #[error("a start of kind `tinker` needs `{key}` to be {value}, got {found}: the Tinker API has no other")]
    Server {
        /// The key of the recipe.
        key: &'static str,
        /// What it has to be.
        value: String,
        /// What it is.
        found: String,
    },
    /// A sampler begins every text anew.
    #[error(
        "a sampler under [start.sampler] cannot go on from a fork of a text: expected `rollouts.branches` 1, got {0}"
    )]
    Branches(usize),
    /// The warm start failed.
    #[error("the warm start failed: {0}")]
    Sft(#[from] SftError),
}

fn given(rank: &Option<usize>) -> String {
    rank.map_or_else(|| "none".to_owned(), |rank| rank.to_string())
}

impl BuildError {
    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            BuildError::Policy(error) => error.hint(),
            _ => None,
        }
    }
}

/// The splits of published sets to teach and train with. The test splits are for evaluation.
pub const SPLITS: [(SetName, &str); 3] = [(SetName::Gsm8k, "train"), (SetName::Mmlu, "val"), (SetName::Aqua, "dev")];
/// The seeds of composed tasks: of the warm start, to train on, to evaluate on.
const OWN: [u64; 3] = [0x6c65_7373, 0x7472_6169, 0x6865_6c64];

/// The seeds of problems: to train on, to evaluate on, and of the warm start.
const PROBLEMS: [u64; 3] = [0x7072_6f62, 0x6c6f_6f6b, 0x7761_726d];
/// Three in four problems are published ones, where there are any: they are closest to what people ask.
const LIKE_PEOPLES: SourceWeights = SourceWeights { situations: 50, stories: 26, facts: 14, drills: 0, published: 270 };
/// The steps that problems have.
const STEPS: RangeInclusive<usize> = 1..=5;
/// One situation in so many is held out.
const HELD_OUT: u64 = 4;

/// The tasks of a recipe. Published sets are evaluated on their test split and trained on another split. A set without another
/// split is trained on composed tasks of the same kind.
///
/// # Errors
/// A task set cannot be read.
pub fn tasks(settings: &TaskSettings, data: Option<&Path>) -> Result<Tasks, BuildError> {
    tasks_of_seed(settings, data, 0)
}

/// The same with tasks of its own for each seed: composed or drawn by it. Seed 0 has those of [`tasks`].
///
/// # Errors
/// A task set cannot be read.
pub fn tasks_of_seed(settings: &TaskSettings, data: Option<&Path>, seed: u64) -> Result<Tasks, BuildError> {
    let own = OWN.map(|part| part ^ lemon_num::mix(seed));
    let mut tasks = Tasks { train: Vec::new(), held_out: Vec::new() };
    for set in &settings.sets {
        let published = |split: &str, count: usize| -> Result<Option<Vec<Item>>, TaskError> {
            let Some(folder) = data else { return Ok(None) };
            let items = load(&Source::Folder(folder.to_owned()), *set, split)?.items;
            if seed != 0 {
                let mut items = items;
                Random::named(seed, split).shuffle(&mut items);
                return Ok(Some(items.into_iter().take(count).collect()));
            }
            // Spread over the whole split: some are sorted by subject.
            let every = (items.len() / count.max(1)).max(1);
            Ok(Some(items.into_iter().step_by(every).take(count).collect()))
        };
        let split = SPLITS.iter().find(|(known, _)| known == set).map(|(_, split)| *split);
        let train = split.map(|split| published(split, settings.train)).transpose()?.flatten();
        let train = named(*set, split, train, || compose(*set, settings.train, own[1]));
        let held_out = published("test", settings.held_out)?;
        let held_out = named(*set, Some("test"), held_out, || compose(*set, settings.held_out, own[2]));
        tasks.train.extend(train);
        tasks.held_out.extend(held_out);
    }
    if settings.problems + settings.held_out_problems > 0 {
        let counts = (settings.problems, settings.held_out_problems);
        let problems = problems_of_seed(counts, settings.problem_steps, data, seed)?;
        tasks.train.extend(problems.train);
        tasks.held_out.extend(problems.held_out);
    }
    let held_out: HashSet<&str> = tasks.held_out.iter().map(|case| case.item.task.question.as_str()).collect();
    tasks.train.retain(|case| !held_out.contains(case.item.task.question.as_str()));
    Ok(tasks)
}

/// Word problems of situations that the bundled workers were not trained on, and published ones where `data` holds them. Held-out
/// problems are of other situations than those to train on. With `steps`, only problems of so many steps.
///
/// # Errors
/// Published problems cannot be read, or none has so many steps.
pub fn problems(train: usize, held_out: usize, steps: Option<usize>, data: Option<&Path>) -> Result<Tasks, BuildError> {
    problems_of_seed((train, held_out), steps, data, 0)
}

fn problems_of_seed(
    (train, held_out): (usize, usize),
    steps: Option<usize>,
    data: Option<&Path>,
    seed: u64,
) -> Result<Tasks, BuildError> {
    if let Some(steps) = steps.filter(|steps| !STEPS.contains(steps)) {
        return Err(BuildError::Steps(steps));
    }
    let sources = match data {
        Some(folder) => Sources::read(folder)?.0,
        None => Sources::default(),
    };
    let of = |seed: u64, is_held_out_part: bool, count: usize| {
        let mut generator = sources.generator(seed, ProblemPart::Dev).with_weights(LIKE_PEOPLES);
        let is_held_out = |problem: &Problem| draw(0, &["held out", &problem.situation]).is_multiple_of(HELD_OUT);
        let problems = std::iter::repeat_with(move || generator.problem())
            .filter(move |problem| steps.is_none_or(|steps| problem.steps.len() == steps));
        as_cases(problems.filter(move |problem| is_held_out(problem) == is_held_out_part).take(count))
    };
    let own = PROBLEMS.map(|part| part ^ lemon_num::mix(seed));
    Ok(Tasks { train: of(own[0], false, train), held_out: of(own[1], true, held_out) })
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

/// What teams may say to the workers of a simulated world.
pub fn language_of(world: Preset) -> Language {
    let default = Language::default();
    let capacities: Vec<String> = world.levels().iter().map(|level| (*level).to_owned()).collect();
    if capacities == default.capacities {
        return default;
    }
    let efforts = world.styles().iter().map(|style| Effort { style: *style, price: None }).collect();
    Language { capacities, efforts, ..default }
}

/// An environment of simulated workers for these tasks. `choices` replaces the figures of the preset.
pub fn simulated(
    tasks: &Tasks,
    settings: &TaskSettings,
    choices: Option<Choices>,
    language: Arc<Language>,
    cancel: CancellationToken,
) -> RolloutEnv {
    let items = tasks.train.iter().chain(&tasks.held_out).map(|case| &case.item);
    let mut world = World::new(settings.world, items);
    if let Some(choices) = choices {
        world = world.with_choices(choices);
    }
    if settings.keep_noise {
        world = world.with_noise(AgentNoise::Kept);
    }
    rollout_env(world.backend(), language, Grader::new(None), Settings::default(), cancel)
}

/// An environment of any workers.
pub fn rollout_env(
    backend: Backend,
    language: Arc<Language>,
    grader: Grader,
    settings: Settings,
    cancel: CancellationToken,
) -> RolloutEnv {
    let mut env = RolloutEnv::new(backend, language, settings, grader);
    env.cancel = cancel;
    env
}

/// A policy to train, and its encoder.
pub struct BuiltPolicy {
    /// The policy.
    pub policy: AnyPolicy,
    /// Turns tasks into its prompts.
    pub encoder: Box<dyn PromptEncoder>,
}

/// The policies that a recipe can start from.
pub enum AnyPolicy {
    /// A language model.
    Language(Box<LanguagePolicy>),
    /// A table of choices.
    Fields(Box<FieldTable>),
    /// A model on a server.
    Tinker(Box<TinkerPolicy>),
}

impl AnyPolicy {
    /// As a policy to train.
    pub fn trainable(&mut self) -> &mut dyn TrainablePolicy {
        match self {
            AnyPolicy::Language(policy) => policy.as_mut(),
            AnyPolicy::Fields(table) => table.as_mut(),
            AnyPolicy::Tinker(policy) => policy.as_mut(),
        }
    }
}

/// The policy that a recipe starts from. A warm start keeps its own run in `folder` and resumes there. Its teams run on `workers`,
/// or on simulated ones. `watch` sees its steps and returns whether to go on.
///
/// # Errors
/// A model cannot be read, or the warm start fails.
pub async fn build_policy(
    recipe: &Recipe,
    bundled: Packed,
    device: DeviceChoice,
    language: &Arc<Language>,
    (workers, folder): (Option<&RolloutEnv>, &Path),
    watch: impl FnMut(&SftMetrics) -> bool,
) -> Result<BuiltPolicy, BuildError> {
    let rollouts = &recipe.rollouts;
    let mut writing = language.as_ref().clone();
    if !rollouts.capacity {
        writing.capacities = writing.capacities.pop().into_iter().collect();
    }
    let mut shape = Shape { review: rollouts.rounds > 1, agents: rollouts.agents, ..Shape::default() };
    if rollouts.plain_agents {
        let others: Vec<String> =
            writing.roles.iter().map(|role| role.name.clone()).filter(|name| name != "solver").collect();
        writing.roles = others.iter().fold(writing.roles, |roles, name| roles.without(name));
        (shape.parents, shape.role_chars, shape.duty_chars) = (0, 0, 0);
    }
    let writing = Arc::new(writing);
    let encoder = |tokenizer: &Tokenizer, positions: usize| {
        LanguagePromptEncoder::new(tokenizer.clone(), writing.clone(), shape.clone(), positions)
            .with_rounds(rollouts.rounds)
    };
    let learning = match (recipe.lora, &recipe.start) {
        // The adapters are those of the server.
        (_, Start::Tinker(_)) => Learning::Nothing,
        (None, _) => Learning::Everything,
        (Some(rank), Start::Model { .. }) if RANKS.contains(&rank) => {
            Learning::Adapters(LoraSettings { rank, alpha: 2.0 * rank as f64 })
        }
        (Some(rank), _) => return Err(BuildError::Adapters(rank)),
    };
    let policy = match &recipe.start {
        Start::Fields(start) => {
            let table = FieldTable::new(start, &writing)?;
            let encoder: Box<dyn PromptEncoder> = Box::new(FieldPromptEncoder::new(start, writing, rollouts.rounds)?);
            return Ok(BuiltPolicy { policy: AnyPolicy::Fields(Box::new(table)), encoder });
        }
        Start::Tinker(start) => {
            let policy = tinker(recipe, start)?;
            let encoder = encoder(policy.tokenizer(), policy.positions());
            let encoder =
                if policy.is_held_to_grammars() { encoder.spelt_elsewhere() } else { encoder.unconstrained() };
            return Ok(BuiltPolicy { policy: AnyPolicy::Tinker(Box::new(policy)), encoder: Box::new(encoder) });
        }
        Start::Model { folder: Some(folder) } => LanguagePolicy::load(folder, device, learning)?,
        Start::Model { folder: None } => LanguagePolicy::load_packed(bundled, device, learning)?,
        Start::Warm(start) => warm(recipe, start, device, language, (workers, folder), watch).await?,
    };
    let encoder = Box::new(encoder(policy.tokenizer(), policy.config().positions));
    Ok(BuiltPolicy { policy: AnyPolicy::Language(Box::new(policy)), encoder })
}

/// A model on a server of the Tinker API, which cannot do all that a recipe may ask for.
fn tinker(recipe: &Recipe, start: &TinkerStart) -> Result<TinkerPolicy, BuildError> {
    let Recipe { rollouts, update, credit, .. } = recipe;
    let rank = recipe.lora.filter(|rank| RANKS.contains(rank)).ok_or(BuildError::ServerAdapters(recipe.lora))?;
    let wanted = [
        ("rollouts.temperature", 1.0, rollouts.temperature),
        ("update.clip_norm", 0.0, update.clip_norm as f32),
        ("update.kl", 0.0, update.kl),
        ("credit.guard.entropy_floor", 0.0, credit.guard.entropy_floor as f32),
    ];
    if let Some((key, value, found)) = wanted.into_iter().find(|(_, value, found)| value != found) {
        return Err(BuildError::Server { key, value: value.to_string(), found: found.to_string() });
    }
    if update.optimiser.muon.is_some() {
        let (value, found) = ("absent".to_owned(), "a table".to_owned());
        return Err(BuildError::Server { key: "update.optimiser.muon", value, found });
    }
    if start.sampler.is_some() && rollouts.branches > 1 {
        return Err(BuildError::Branches(rollouts.branches));
    }
    Ok(TinkerPolicy::open(start, (rank, recipe.seed), &TinkerKey::from_environment(), Patience::default())?)
}

/// The ranks that adapters may have.
const RANKS: RangeInclusive<usize> = 1..=256;

/// A new model, fine-tuned on teams of every kind.
async fn warm(
    recipe: &Recipe,
    start: &WarmStart,
    device: DeviceChoice,
    language: &Arc<Language>,
    (workers, folder): (Option<&RolloutEnv>, &Path),
    watch: impl FnMut(&SftMetrics) -> bool,
) -> Result<LanguagePolicy, BuildError> {
    let pairs = broad_pairs(recipe, start, language, workers).await?;
    let specs = pairs.iter().map(|pair| pair.spec.clone()).collect();
    let (config, tokenizer) = small_model(specs, start.vocabulary, start.hidden, start.layers)?;
    let mut policy = LanguagePolicy::fresh(config, tokenizer, recipe.seed, device, Learning::Everything)?;
    if start.steps == 0 {
        return Ok(policy);
    }
    let shape = Shape { agents: recipe.rollouts.agents, ..Shape::default() };
    let encoder =
        LanguagePromptEncoder::new(policy.tokenizer().clone(), language.clone(), shape, policy.config().positions);
    // A team that is larger than the recipe allows is left out.
    let mut examples = tokenize(&encoder, &pairs)?;
    let validation = examples.split_off(examples.len() - (examples.len() / 20).max(1).min(examples.len()));
    let settings = SftSettings {
        seed: recipe.seed,
        steps: start.steps,
        batch: start.batch,
        learning_rate: start.learning_rate,
        eval_every: start.steps.div_ceil(4),
        patience: 0,
        ..SftSettings::default()
    };
    sft(&mut policy, &examples, &validation, &settings, folder, |_| Ok(None), watch)?;
    Ok(policy)
}

async fn broad_pairs(
    recipe: &Recipe,
    start: &WarmStart,
    language: &Arc<Language>,
    workers: Option<&RolloutEnv>,
) -> Result<Vec<Pair>, BuildError> {
    let mut cases: Vec<Case> = recipe
        .tasks
        .sets
        .iter()
        .flat_map(|set| named(*set, None, None, || compose(*set, start.tasks, OWN[0] ^ recipe.seed)))
        .collect();
    if recipe.tasks.problems > 0 {
        let mut generator = Generator::new(PROBLEMS[2] ^ recipe.seed, ProblemPart::Train);
        cases.extend(as_cases(std::iter::repeat_with(|| generator.problem()).take(start.tasks)));
    }
    let tasks = Tasks { train: cases, held_out: Vec::new() };
    let world = || simulated(&tasks, &recipe.tasks, None, language.clone(), CancellationToken::new());
    let simulated = workers.is_none().then(world);
    let Some(env) = workers.or(simulated.as_ref()) else { return Ok(Vec::new()) };
    let lessons =
        TeachContext { env, cases: &tasks.train, world: None, seed: recipe.seed, cancel: &env.cancel, watch: None };
    if let Some(text) = &start.team {
        let plan =
            validate(text, language).map_err(|rejection| BuildError::Team(format!("is not valid: {rejection}")))?;
        let pairs = broad::teach_in_two_rounds(&lessons, &canonical_ids(plan.spec())).await?;
        let divided = !pairs.is_empty() || env.cancel.is_cancelled();
        return divided.then_some(pairs).ok_or_else(|| {
            BuildError::Team(
                "must have two agents that read the task as it stands, and others that vote with them".to_owned(),
            )
        });
    }
    // Where a run has one round, no example asks for a second.
    let review = if recipe.rollouts.rounds > 1 { 0.3 } else { 0.0 };
    let settings = broad::BroadSettings {
        review,
        advised: start.advised,
        voting: start.voting,
        ..broad::BroadSettings::default()
    };
    Ok(broad::teach(&lessons, &settings).await?)
}
