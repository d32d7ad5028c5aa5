//! Everything that a recipe can change about rewards and credit.

use super::*;
use crate::build::AnyPolicy;
use lemon_exec::orchestrator::WriteContext;
use lemon_model::{DeviceChoice, LanguagePolicy, Learning, ModelConfig, Precision, Tokenizer};

/// A change and its name.
type Named<T> = (&'static str, fn(&mut T));

/// Every reward family can be weighted by a recipe. R5 has nothing to measure: these agents have no tools.
#[tokio::test]
async fn every_reward_family_with_a_weight_changes_what_is_learned() {
    let plain = learn(&small()).await.policy;
    let own = |channel: &&Channel| !matches!(channel, Channel::Success | Channel::Invalid | Channel::Team);
    let families = Channel::ALL.iter().filter(own).filter(|it| small().reward.weights().get(**it).end == 0.0);
    let families: Vec<&Channel> = families.collect();
    assert!(families.len() >= 9, "{families:?}");
    for channel in families {
        let (name, mut recipe) = (channel.as_str(), small());
        recipe.reward.set(*channel, 1.0);
        let text = serde_json::to_value(&recipe).unwrap();
        assert_eq!(text["reward"][name], 1.0, "{name}");
        assert_eq!(serde_json::from_value::<Recipe>(text).unwrap(), recipe);
        assert_eq!(learn(&recipe).await.policy == plain, name == "tool", "{name}");
    }
}

/// Trees, other baselines, other forms and guards all train, and each learns something else.
#[tokio::test]
async fn every_way_to_credit_trains_and_is_repeatable() {
    let mut seen: Vec<(&str, Vec<u8>)> = vec![("full", learn(&small()).await.policy)];
    let ways: [Named<Recipe>; 14] = [
        ("tree", |recipe| (recipe.rollouts.group, recipe.rollouts.branches) = (4, 2)),
        ("edge", |recipe| (recipe.credit.form, recipe.credit.baseline) = (CreditForm::None, RewardBaseline::Edge)),
        ("agent", |recipe| (recipe.credit.form, recipe.credit.baseline) = (CreditForm::None, RewardBaseline::Agent)),
        ("group", |recipe| recipe.credit.baseline = RewardBaseline::Group),
        ("replace", |recipe| recipe.credit.replace = true),
        ("keep", |recipe| (recipe.credit.suffix, recipe.credit.replace) = (Suffix::Keep, true)),
        ("pairwise", |recipe| recipe.credit.form = CreditForm::Gradient),
        ("preference", |recipe| recipe.credit.form = CreditForm::Preference),
        ("decay", |recipe| recipe.credit.prefix_decay = 0.5),
        ("everywhere", |recipe| recipe.credit.place = recipe::Place::Everywhere),
        ("values", |recipe| recipe.credit.guard.value_baseline = 1.0),
        ("critic", |recipe| (recipe.credit.form, recipe.credit.baseline) = (CreditForm::None, RewardBaseline::Critic)),
        ("unsure", |recipe| (recipe.credit.economy.paid, recipe.credit.economy.cap) = (Paid::Unsure, 1.0)),
        ("entropy", |recipe| recipe.credit.guard.entropy_floor = 5.0),
    ];
    for (name, change) in ways {
        let mut recipe = small();
        change(&mut recipe);
        let left = learn(&recipe).await;
        assert_eq!(left, learn_by(&recipe, 1).await, "{name}");
        if let Some((other, _)) = seen.iter().find(|(_, policy)| *policy == left.policy) {
            panic!("{name} learned what {other} did");
        }
        seen.push((name, left.policy));
    }
}

/// A critic that reads the states of the policy's own model is another baseline and another judge of what it is unsure of; it is resumed
/// to the bit, and needs a model to read.
#[tokio::test]
async fn the_critic_reads_the_states_of_a_language_model() {
    let with = |reads: CriticReads| {
        let mut recipe = of_a_language_model();
        (recipe.credit.baseline, recipe.credit.critic_reads) = (RewardBaseline::Critic, reads);
        (recipe.credit.economy.paid, recipe.credit.economy.cap) = (Paid::Unsure, 1.0);
        recipe
    };
    let (counts, states) = (learn(&with(CriticReads::Counts)).await, learn(&with(CriticReads::States)).await);
    assert_ne!(counts.policy, states.policy);
    assert_eq!(states, learn_by(&with(CriticReads::States), 1).await);
    let mut recipe = small();
    (recipe.credit.baseline, recipe.credit.critic_reads) = (RewardBaseline::Critic, CriticReads::States);
    let tasks = tasks(&recipe.tasks, None).unwrap();
    let language = Arc::new(Language::default());
    let folder = tempfile::tempdir().unwrap();
    let build = async || {
        build_policy(&recipe, &[], Default::default(), &language, (None, folder.path()), |_| true).await.unwrap()
    };
    let (mut built, mut table) = (build().await, build().await.policy);
    for (reference, expected) in [
        (None, "expected `update.kl` above 0, so that the first model is kept, got 0"),
        (Some(&*table.trainable()), "expected a language model, found a policy without hidden states"),
    ] {
        let context = TrainContext {
            env: Arc::new(simulated(&tasks, &recipe.tasks, None, language.clone(), CancellationToken::new())),
            encoder: built.encoder.as_ref(),
            cases: Arc::new(tasks.train.clone()),
            held_out: Arc::new(tasks.held_out.clone()),
            reference,
        };
        let refused = train(&context, built.policy.trainable(), &recipe, folder.path(), |_, _| true).await;
        let refused = refused.map(|it| it.steps).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
}

/// A bound: every field of every team is measured, nothing of it is counted, and rewards have less noise.
#[tokio::test]
async fn the_oracle_measures_everything_and_counts_nothing() {
    let mut recipe = small();
    (recipe.rollouts.rounds, recipe.credit.oracle) = (1, 16);
    let left = learn(&recipe).await;
    assert_eq!(left, learn_by(&recipe, 1).await);
    assert_eq!(left.trained.credit_tokens, 0);
    let plain =
        learn(&Recipe { credit: CreditSettings { oracle: 0, ..recipe.credit.clone() }, ..recipe.clone() }).await;
    let variance = |left: &Left, family: Family| {
        let reports = metrics_of(left).into_iter().filter_map(|mut metrics| metrics.families.remove(&family));
        let (mut measured, mut sum) = (0, 0.0);
        for report in reports {
            measured += report.free;
            sum += report.variance.unwrap_or(0.0) * report.free as f64;
        }
        (measured, sum / measured.max(1) as f64)
    };
    for family in [Family::Capacity, Family::Duty, Family::Agent] {
        let ((all, quiet), (some, loud)) = (variance(&left, family), variance(&plain, family));
        assert!(all >= some && all > 50, "{family:?}: {all} of {some}");
        assert!(some < 50 || quiet < loud, "{family:?}: {quiet} of {loud}");
    }
    assert!(left.trained.rollout_tokens > 0);
    // Workers that are no simulation could cost something.
    let tasks = tasks(&recipe.tasks, None).unwrap();
    let language = Arc::new(Language::default());
    let mut backend =
        simulated(&tasks, &recipe.tasks, None, language.clone(), CancellationToken::new()).backend.clone();
    backend.clock = lemon_exec::Clock::Real;
    let env = rollout_env(backend, language.clone(), Grader::new(None), Settings::default(), CancellationToken::new());
    let mut built =
        build_policy(&recipe, &[], Default::default(), &language, (None, Path::new("")), |_| true).await.unwrap();
    let context = TrainContext {
        env: Arc::new(env),
        encoder: built.encoder.as_ref(),
        cases: Arc::new(tasks.train.clone()),
        held_out: Arc::new(tasks.held_out.clone()),
        reference: None,
    };
    let folder = tempfile::tempdir().unwrap();
    let refused = train(&context, built.policy.trainable(), &recipe, folder.path(), |_, _| true).await;
    let refused = refused.map(|it| it.steps).unwrap_err().to_string();
    assert!(refused.contains("expected simulated workers, got"), "{refused}");
}

/// A policy that decides by the question has information; the metrics show it.
#[tokio::test]
async fn metrics_tell_what_decisions_say_about_questions() {
    let metrics = metrics_of(&learn(&small()).await);
    let last = metrics.last().unwrap();
    assert_eq!(last.information.keys().collect::<Vec<_>>(), ["agents", "base", "by", "capacity", "next"]);
    assert!(last.information.values().all(|it| it.information >= 0.0 && it.information <= it.entropy + 1e-9));
    assert!(last.information["agents"].entropy > 0.1 && last.policy_tokens > 0, "{last:?}");
}

/// The best fixed team is found with about the tokens it may cost, and is not worse than the average one.
#[tokio::test]
async fn the_best_fixed_team_is_searched_and_evaluated() {
    let recipe = small();
    let (tasks, language) = (tasks(&recipe.tasks, None).unwrap(), Arc::new(Language::default()));
    let built =
        build_policy(&recipe, &[], Default::default(), &language, (None, Path::new("")), |_| true).await.unwrap();
    let context = TrainContext {
        env: Arc::new(simulated(&tasks, &recipe.tasks, None, language.clone(), CancellationToken::new())),
        encoder: built.encoder.as_ref(),
        cases: Arc::new(tasks.train.clone()),
        held_out: Arc::new(tasks.held_out.clone()),
        reference: None,
    };
    let teams = candidates(&language, 5);
    assert_eq!((teams.len(), candidates(&language, 1).len()), (21, 6));
    let found = search_fixed(&context, &recipe, &teams, 300_000).await.unwrap().unwrap();
    assert!(teams.contains(&found.text) && found.tokens > 200_000 && found.tokens < 500_000, "{found:?}");
    assert_eq!(found.evaluation.items.len(), tasks.held_out.len());
    let mut others = Vec::new();
    for team in &teams {
        let alone = search_fixed(&context, &recipe, std::slice::from_ref(team), 0).await.unwrap().unwrap();
        others.push(alone.evaluation.means.reward);
    }
    let mean = others.iter().sum::<f64>() / others.len() as f64;
    assert!(found.evaluation.means.reward > mean, "{} of {mean}", found.evaluation.means.reward);
    assert!(search_fixed(&context, &recipe, &[], 100).await.unwrap().is_none());
}

/// With `lora`, adapters beside a frozen model are trained; other policies have none.
#[tokio::test]
async fn adapters_are_trained_where_a_policy_starts_from_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = Tokenizer::train(std::iter::empty(), 257, &["<|end|>"]).unwrap();
    let config = ModelConfig::small(260, 32, 1, tokenizer.end());
    let model = LanguagePolicy::fresh(config, tokenizer, 1, DeviceChoice::Cpu, Learning::Everything).unwrap();
    model.save(folder.path(), Precision::F32).unwrap();
    let start = Start::Model { folder: Some(folder.path().to_owned()) };
    let recipe = Recipe { start, lora: Some(4), ..small() };
    let language = Arc::new(Language::default());
    let built = async |recipe: &Recipe| {
        build_policy(recipe, &[], Default::default(), &language, (None, Path::new("")), |_| true).await
    };
    let AnyPolicy::Language(policy) = built(&recipe).await.unwrap().policy else { panic!("expected a model") };
    let state = folder.path().join("state");
    policy.save_state(&state).unwrap();
    // The names of tensors stand at the beginning of the file.
    let saved = std::fs::read(state.join("model.safetensors")).unwrap();
    let names = String::from_utf8_lossy(&saved[..8_000.min(saved.len())]).into_owned();
    assert!(names.contains("lora_A") && !names.contains("embed_tokens"), "{names}");
    for wrong in [Recipe { lora: Some(0), ..recipe }, Recipe { lora: Some(4), ..small() }] {
        let error = built(&wrong).await.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("`lora` must be a rank of 1 to 256"), "{error}");
    }
}

/// With `plain_agents` a language model writes what recordings hold, and nothing else.
#[tokio::test]
async fn plain_agents_are_solvers_that_read_no_other() {
    let mut recipe = of_a_language_model();
    recipe.rollouts.plain_agents = true;
    let language = Arc::new(Language::default());
    let folder = tempfile::tempdir().unwrap();
    let built = build_policy(&recipe, &[], Default::default(), &language, (None, folder.path()), |_| true);
    let mut built = built.await.unwrap();
    let request = |seed: u64| {
        let (question, form) = ("A box holds 12 eggs. How many do 3 boxes hold?", lemon_exec::Form::Number);
        let (results, tokens_left) = (Vec::new(), None);
        let context = WriteContext { question, round: 1, results, language: &language, form, tokens_left, seed };
        built.encoder.request(&context).unwrap()
    };
    let requests: Vec<SampleRequest> = (0..30).map(request).collect();
    let samples = built.policy.trainable().sample(&requests, &SampleSettings::default()).unwrap();
    let mut agents = 0;
    for sample in samples {
        let plan = validate(&sample.text, &language).unwrap();
        for agent in &plan.spec().agents {
            assert!(agent.base == "solver" && agent.role.is_none() && agent.duty.is_none(), "{}", sample.text);
            assert!(agent.after.is_empty(), "{}", sample.text);
            agents += 1;
        }
    }
    assert!(agents > 40, "some teams have several agents: {agents}");
}
