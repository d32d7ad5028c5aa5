mod masked;
mod signals;
mod ways;

use super::alternatives::{Alternative, alternatives};
use super::build::{Tasks, build_policy, rollout_env, simulated, tasks};
use super::counterfactual::Candidate;
use super::episode::{Episode, Round};
use super::estimators::world::nothing;
use super::recipe::{
    CreditForm, CreditSettings, EvalSettings, FieldStart, FirstTeams, Per, RewardBaseline, Start, Suffix, TaskSettings,
    UpdateSettings, WarmStart,
};
use super::rollout::{Outcome, Run};
use super::*;
use async_trait::async_trait;
use lemon_credit::economy::{Economy, Paid};
use lemon_exec::worker::{AskError, Reply, Request as Call, Worker};
use lemon_exec::{ReplyCache, Settings};
use lemon_model::{
    Example, Objective, OptimiserSettings, Policy, PolicyError, Sample, SampleRequest, SampleSettings, Sequence,
    StepReport, StepSettings,
};
use lemon_policy::fields::{FieldPromptEncoder, FieldTable};
use lemon_rollout::reward::{Channel, Weight};
use lemon_rollout::{Grader, RolloutEnv};
use lemon_spec::edit::{Family, apply, edits};
use lemon_spec::{Language, validate};
use lemon_task::SetName;
use lemon_trace::FailureKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio_util::sync::CancellationToken;

/// A table that learns for a few steps.
fn small() -> Recipe {
    let mut recipe = Recipe { steps: 4, start: Start::Fields(FieldStart::default()), ..Recipe::default() };
    recipe.tasks =
        TaskSettings { sets: vec![SetName::Gsm8k, SetName::Mmlu], train: 30, held_out: 6, ..TaskSettings::default() };
    (recipe.rollouts.tasks, recipe.rollouts.group) = (3, 3);
    recipe.update = UpdateSettings { learning_rate: 0.15, warm_up: 0, per: Per::Rollout, ..UpdateSettings::default() };
    recipe.eval = EvalSettings { every: 2, ..EvalSettings::default() };
    recipe
}

/// What a training left behind: what came of it, its metrics, and its policy, byte for byte.
#[derive(Debug, PartialEq)]
struct Left {
    trained: Trained,
    metrics: String,
    policy: Vec<u8>,
}

/// Trains by a recipe in a folder, so many steps at a time; 0: all at once.
async fn learn_in(folder: &Path, recipe: &Recipe, at_a_time: u64, tasks: &Tasks, env: impl Fn() -> RolloutEnv) -> Left {
    let language = Arc::new(Language::default());
    loop {
        let warm = folder.join("warm");
        let build =
            async || build_policy(recipe, &[], Default::default(), &language, (None, &warm), |_| true).await.unwrap();
        let (mut built, mut first) = (build().await, None);
        if recipe.credit.critic_reads == CriticReads::States {
            first = Some(build().await.policy);
        }
        let context = TrainContext {
            env: Arc::new(env()),
            encoder: built.encoder.as_ref(),
            cases: Arc::new(tasks.train.clone()),
            held_out: Arc::new(tasks.held_out.clone()),
            reference: first.as_mut().map(|policy| &*policy.trainable()),
        };
        let mut steps = 0;
        let watch = |_: &StepMetrics, _: &Timing| {
            steps += 1;
            at_a_time == 0 || steps < at_a_time
        };
        let trained = train(&context, built.policy.trainable(), recipe, folder, watch).await.unwrap();
        if trained.end == End::Stopped {
            continue;
        }
        built.policy.trainable().save_state(&folder.join("last")).unwrap();
        let file = if matches!(recipe.start, Start::Fields(_)) { "fields.json" } else { "model.safetensors" };
        return Left {
            trained,
            metrics: std::fs::read_to_string(folder.join(METRICS)).unwrap(),
            policy: std::fs::read(folder.join("last").join(file)).unwrap(),
        };
    }
}

async fn learn(recipe: &Recipe) -> Left {
    learn_by(recipe, 0).await
}

async fn learn_by(recipe: &Recipe, at_a_time: u64) -> Left {
    let folder = tempfile::tempdir().unwrap();
    let tasks = tasks(&recipe.tasks, None).unwrap();
    let simulated = || {
        let language = Arc::new(Language::default());
        let mut env = simulated(&tasks, &recipe.tasks, None, language, CancellationToken::new());
        env.weights = recipe.reward.weights();
        env
    };
    learn_in(folder.path(), recipe, at_a_time, &tasks, simulated).await
}

fn metrics_of(left: &Left) -> Vec<StepMetrics> {
    left.metrics.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn the_same_seed_gives_the_same_bytes_however_often_it_is_interrupted() {
    let recipe = small();
    let whole = learn(&recipe).await;
    assert_eq!(whole, learn(&recipe).await);
    for at_a_time in [1, 3] {
        assert_eq!(whole, learn_by(&recipe, at_a_time).await, "{at_a_time} at a time");
    }
    // Steps since the last checkpoint are taken again.
    let rare = Recipe { checkpoint_every: 3, ..recipe.clone() };
    assert_eq!(learn(&rare).await.policy, learn_by(&rare, 2).await.policy);
    let other = learn(&Recipe { seed: 1, ..recipe }).await;
    assert_ne!((&other.metrics, &other.policy), (&whole.metrics, &whole.policy));
}

#[test]
fn problems_to_train_on_are_of_other_situations_than_those_to_look_at() {
    let none = TaskSettings { sets: Vec::new(), train: 0, held_out: 0, ..TaskSettings::default() };
    let some = |problems, held_out_problems| {
        tasks(&TaskSettings { problems, held_out_problems, ..none.clone() }, None).unwrap()
    };
    let all = some(200, 60);
    assert_eq!((all.train.len(), all.held_out.len()), (200, 60));
    let questions = |cases: &[Case]| cases.iter().map(|it| it.item.task.question.clone()).collect::<Vec<_>>();
    // Blind to names and numbers, hardly one is like another of the other kind.
    let both = [questions(&all.train), questions(&all.held_out)].concat();
    let cluster = lemon_problems::clusters(&both);
    let (train, held_out) = cluster.split_at(200);
    let alike = held_out.iter().filter(|it| train.contains(it)).count();
    assert!(alike < 10, "{alike} of 60");
    // The same each time, and more begin with the fewer.
    assert_eq!(questions(&some(20, 0).train), questions(&all.train)[..20]);
    // The bundled workers were trained on none of them.
    let mut lessons = lemon_problems::Generator::new(1, lemon_problems::ProblemPart::Train);
    let learned: Vec<String> = (0..500).map(|_| lessons.problem().question).collect();
    assert!(both.iter().all(|question| !learned.contains(question)));
    // They may be of so many steps each.
    let stepped = |steps| tasks(&TaskSettings { problems: 30, problem_steps: Some(steps), ..none.clone() }, None);
    let [one, two] = [1, 2].map(|steps| questions(&stepped(steps).unwrap().train));
    assert_eq!((one.len(), two.len()), (30, 30));
    assert!(one.iter().all(|question| !two.contains(question)));
    assert_eq!(stepped(9).unwrap_err().to_string(), "`problem_steps` must be 1 to 5, got 9");
}

#[tokio::test]
async fn without_edits_it_is_plain_grpo_to_the_bit() {
    let mut plain = small();
    plain.credit.form = CreditForm::None;
    let expected = learn(&plain).await.policy;
    let check = |name: &'static str, change: fn(&mut CreditSettings)| {
        let mut recipe = small();
        change(&mut recipe.credit);
        let expected = &expected;
        async move { assert_eq!(learn(&recipe).await.policy, *expected, "{name}") }
    };
    check("no families", |credit| credit.families.clear()).await;
    check("no weight", |credit| credit.lambda = Weight::fixed(0.0)).await;
    check("nothing is free and nothing is purchased", |credit| {
        credit.common_noise = false;
        credit.economy.paid = Paid::Never;
    })
    .await;
    check("nothing is free and there is no money", |credit| {
        credit.common_noise = false;
        credit.economy.cap = 0.0;
    })
    .await;
    // And with them it is not.
    assert_ne!(learn(&small()).await.policy, expected);
}

/// Two steps of a language model with few weights.
fn of_a_language_model() -> Recipe {
    let mut recipe = Recipe { steps: 2, ..small() };
    recipe.rollouts.tasks = 2;
    recipe.tasks.train = 8;
    recipe.start = Start::Warm(WarmStart {
        hidden: 32,
        layers: 1,
        vocabulary: 300,
        tasks: 6,
        advised: 0.5,
        voting: 0.5,
        team: None,
        steps: 4,
        batch: 4,
        learning_rate: 1e-3,
    });
    recipe
}

#[tokio::test]
async fn a_language_model_learns_the_same_way_and_its_ratio_is_one_at_first() {
    let mut recipe = of_a_language_model();
    let whole = learn(&recipe).await;
    assert_eq!(whole, learn_by(&recipe, 1).await);
    for metrics in metrics_of(&whole).iter().skip(1) {
        assert!(!metrics.skipped && metrics.gradient_norm > 0.0, "{metrics:?}");
        assert_eq!((metrics.kl_old, metrics.clipped), (0.0, 0.0), "before its update a policy is the one that wrote");
    }
    // A second pass over the same texts is with another policy.
    recipe.update.epochs = 2;
    assert!(metrics_of(&learn(&recipe).await).iter().skip(1).all(|metrics| metrics.kl_old > 0.0));
    // In tree groups it continues texts from their first tokens.
    recipe.update.epochs = 1;
    (recipe.rollouts.group, recipe.rollouts.branches) = (4, 2);
    for metrics in metrics_of(&learn(&recipe).await).iter().skip(1) {
        assert!(!metrics.skipped && metrics.gradient_norm > 0.0 && metrics.rollouts.valid == 1.0, "{metrics:?}");
        assert_eq!((metrics.kl_old, metrics.clipped), (0.0, 0.0), "what was given is not learned from");
    }
}

#[tokio::test]
async fn credit_costs_no_more_than_its_cap_and_says_what_it_purchased() {
    for (seed, paid) in [(1, Paid::Worth), (2, Paid::Uniform), (3, Paid::Effect)] {
        let mut recipe = Recipe { seed, steps: 20, ..small() };
        recipe.credit.economy.paid = paid;
        let left = learn(&recipe).await;
        let share = left.trained.credit_tokens as f64 / left.trained.rollout_tokens as f64;
        // Costs are estimates: what one step overspends the next make up for.
        assert!(share > 0.0 && share < 0.15 * 1.1, "{paid:?}: {share}");
        let metrics = metrics_of(&left);
        let sum = |of: fn(&lemon_credit::economy::FamilyReport) -> u64| -> u64 {
            metrics.iter().flat_map(|metrics| metrics.families.values()).map(of).sum()
        };
        assert!(sum(|it| it.free) > 0 && sum(|it| it.purchased) > 0 && sum(|it| it.declined + it.capped) > 0);
        assert_eq!(sum(|it| it.tokens), left.trained.credit_tokens);
    }
    let mut recipe = small();
    recipe.credit.economy.paid = Paid::Never;
    let left = learn(&recipe).await;
    assert_eq!(left.trained.credit_tokens, 0);
    assert!(metrics_of(&left).iter().any(|metrics| metrics.families.values().any(|it| it.free > 0)));
}

#[tokio::test]
async fn shared_draws_save_tokens_and_change_no_price() {
    let mut recipe = small();
    recipe.start = Start::Fields(FieldStart { first: FirstTeams::Lean, lean: 2.0, ..FieldStart::default() });
    recipe.credit.form = CreditForm::None;
    recipe.rollouts.group = 8;
    let shared = metrics_of(&learn(&recipe).await);
    recipe.rollouts.shared_noise = false;
    let apart = metrics_of(&learn(&recipe).await);
    // The first step is drawn alike: the same teams, priced alike.
    assert_eq!(shared[1].rollouts.agents, apart[1].rollouts.agents);
    assert!(apart.iter().all(|metrics| metrics.reused == 0.0));
    assert!(shared.iter().map(|metrics| metrics.reused).sum::<f64>() > 0.02);
}

#[tokio::test]
async fn it_learns() {
    let mut recipe = Recipe { steps: 2_000, worker_tokens: Some(4_000_000), ..small() };
    recipe.tasks.train = 100;
    recipe.tasks.held_out = 60;
    (recipe.rollouts.tasks, recipe.rollouts.group) = (4, 4);
    recipe.eval = EvalSettings { every: 0, first_seeds: 2, final_seeds: 2, ..EvalSettings::default() };
    let Trained { before, after, end, .. } = learn(&recipe).await.trained;
    assert_eq!(end, End::WorkerTokens);
    // The teams it begins with are cheap: their critics read answers only. That leaves 0.027 to be gained.
    assert!(after.reward > before.reward + 0.02 && after.tokens < 0.6 * before.tokens, "{before:?} {after:?}");
}

#[tokio::test]
async fn a_short_prefix_of_the_quick_recipe_learns() {
    let mut recipe = Recipe::find("quick").unwrap();
    recipe.worker_tokens = Some(150_000);
    recipe.tasks.held_out = 20;
    recipe.eval = EvalSettings { every: 0, first_seeds: 1, final_seeds: 1, ..EvalSettings::default() };
    let Trained { before, after, .. } = learn(&recipe).await.trained;
    assert!(after.success > before.success + 0.05, "{before:?} {after:?}");
}

/// Workers that go away after some calls.
struct Leaving {
    inner: Arc<dyn Worker>,
    calls: AtomicUsize,
    stays: usize,
}

#[async_trait]
impl Worker for Leaving {
    async fn ask(&self, request: &Call) -> Result<Reply, AskError> {
        if self.calls.fetch_add(1, Ordering::Relaxed) >= self.stays {
            return Err(AskError::free(FailureKind::Unauthorized, "no worker is here any more"));
        }
        self.inner.ask(request).await
    }
}

#[tokio::test]
async fn workers_that_leave_pause_training_and_nothing_is_lost() {
    let recipe = small();
    let expected = learn(&recipe).await;
    let folder = tempfile::tempdir().unwrap();
    let tasks = tasks(&recipe.tasks, None).unwrap();
    let language = Arc::new(Language::default());
    let world = || simulated(&tasks, &recipe.tasks, None, language.clone(), CancellationToken::new());
    let mut paused = 0;
    for stays in [0, 40, 60, 60] {
        let mut backend = world().backend.clone();
        backend.worker = Arc::new(Leaving { inner: backend.worker.clone(), calls: AtomicUsize::new(0), stays });
        let settings = Settings::default();
        let env = rollout_env(backend, language.clone(), Grader::new(None), settings, CancellationToken::new());
        let mut built =
            build_policy(&recipe, &[], Default::default(), &language, (None, folder.path()), |_| true).await.unwrap();
        let context = TrainContext {
            env: Arc::new(env),
            encoder: built.encoder.as_ref(),
            cases: Arc::new(tasks.train.clone()),
            held_out: Arc::new(tasks.held_out.clone()),
            reference: None,
        };
        match train(&context, built.policy.trainable(), &recipe, folder.path(), |_, _| true).await {
            Err(TrainError::WorkersGone { fact, .. }) => {
                assert!(fact.contains("no worker is here"), "{fact}");
                paused += 1;
            }
            other => assert!(other.is_ok_and(|trained| trained.steps == recipe.steps)),
        }
    }
    assert!(paused >= 3, "{paused}");
    let left = learn_in(folder.path(), &recipe, 0, &tasks, world).await;
    assert_eq!((left.trained.steps, left.policy), (expected.trained.steps, expected.policy));
}

/// A policy whose second update fails.
struct Stumbling {
    inner: FieldTable,
    updates: usize,
}

impl Policy for Stumbling {
    fn sample(&self, requests: &[SampleRequest], settings: &SampleSettings) -> Result<Vec<Sample>, PolicyError> {
        self.inner.sample(requests, settings)
    }

    fn score(&self, sequences: &[Sequence], temperature: f32) -> Result<Vec<Vec<f32>>, PolicyError> {
        self.inner.score(sequences, temperature)
    }

    fn update(&mut self, examples: &[Example], settings: &StepSettings) -> Result<StepReport, PolicyError> {
        self.updates += 1;
        let rate = if self.updates == 2 { f64::NAN } else { settings.learning_rate };
        let mut examples = examples.to_vec();
        if let (true, lemon_model::Objective::Clipped { advantages, .. }) = (rate.is_nan(), &mut examples[0].objective)
        {
            advantages.fill(f32::NAN);
        }
        self.inner.update(&examples, settings)
    }
}

impl TrainablePolicy for Stumbling {
    fn set_optimiser(&mut self, settings: OptimiserSettings) {
        self.inner.set_optimiser(settings);
    }

    fn save_state(&self, folder: &Path) -> Result<(), PolicyError> {
        self.inner.save_state(folder)
    }

    fn load_state(&mut self, folder: &Path) -> Result<(), PolicyError> {
        self.inner.load_state(folder)
    }

    fn scores_as_it_writes(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_step_that_is_not_a_number_is_left_out_counted_and_shown() {
    let recipe = small();
    let Start::Fields(start) = &recipe.start else { panic!() };
    let language = Arc::new(Language::default());
    let tasks = tasks(&recipe.tasks, None).unwrap();
    let mut policy = Stumbling { inner: FieldTable::new(start, &language).unwrap(), updates: 0 };
    let encoder = FieldPromptEncoder::new(start, language.clone(), recipe.rollouts.rounds).unwrap();
    let context = TrainContext {
        env: Arc::new(simulated(&tasks, &recipe.tasks, None, language, CancellationToken::new())),
        encoder: &encoder,
        cases: Arc::new(tasks.train.clone()),
        held_out: Arc::new(tasks.held_out.clone()),
        reference: None,
    };
    let folder = tempfile::tempdir().unwrap();
    let trained = train(&context, &mut policy, &recipe, folder.path(), |_, _| true).await.unwrap();
    assert_eq!((trained.steps, trained.skipped), (4, 1));
    let text = std::fs::read_to_string(folder.path().join(METRICS)).unwrap();
    let metrics: Vec<StepMetrics> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(metrics.iter().map(|it| it.skipped).collect::<Vec<_>>(), [false, false, true, false, false]);
}

#[tokio::test]
async fn a_folder_is_taken_up_only_with_what_it_was_begun_with() {
    let folder = tempfile::tempdir().unwrap();
    let recipe = small();
    let tasks = tasks(&recipe.tasks, None).unwrap();
    let language = Arc::new(Language::default());
    let world = || simulated(&tasks, &recipe.tasks, None, language.clone(), CancellationToken::new());
    learn_in(folder.path(), &recipe, 0, &tasks, world).await;
    let mut built =
        build_policy(&recipe, &[], Default::default(), &language, (None, folder.path()), |_| true).await.unwrap();
    let few: Vec<Case> = tasks.train.iter().take(5).cloned().collect();
    for (recipe, cases, fact) in
        [(Recipe { steps: 9, ..recipe.clone() }, tasks.train.clone(), "settings"), (recipe.clone(), few, "tasks")]
    {
        let context = TrainContext {
            env: Arc::new(world()),
            encoder: built.encoder.as_ref(),
            cases: Arc::new(cases),
            held_out: Arc::new(tasks.held_out.clone()),
            reference: None,
        };
        let refused = train(&context, built.policy.trainable(), &recipe, folder.path(), |_, _| true).await;
        let refused = refused.map(|it| it.steps).unwrap_err().to_string();
        assert!(refused.contains(&format!("begun with other {fact}")), "{refused}");
    }
}
