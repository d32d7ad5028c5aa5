//! Gradients and steps: what the server computes is the gradient of the sum that the caller means.

use crate::common::*;
use lemon_fakes::{FakeTinker, TinkerWorld};
use lemon_model::{Example, Objective, OptimiserSettings, Policy};
use lemon_policy::TrainablePolicy;
use lemon_tinker::TinkerPolicy;
use proptest::prelude::*;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// What the fake's gradient must come to: every log-probability follows its number one to one.
fn slope(examples: &[Example], score: f32) -> f64 {
    let of_text = |example: &Example| -> f64 {
        (0..example.sequence.tokens.len()).map(|token| example.objective.term(token, score).slope).sum()
    };
    examples.iter().map(of_text).sum()
}

/// Servers that average and that sum, each with a policy. They are made once.
fn policies() -> &'static [(FakeTinker, Mutex<TinkerPolicy>); 2] {
    static POLICIES: OnceLock<[(FakeTinker, Mutex<TinkerPolicy>); 2]> = OnceLock::new();
    POLICIES.get_or_init(|| {
        [true, false].map(|averages| {
            let fake = FakeTinker::start(TinkerWorld { averages, ..world() }).unwrap();
            let policy = open(&fake);
            (fake, Mutex::new(policy))
        })
    })
}

fn locked(policy: &Mutex<TinkerPolicy>) -> MutexGuard<'_, TinkerPolicy> {
    policy.lock().unwrap_or_else(PoisonError::into_inner)
}

fn examples() -> impl Strategy<Value = Vec<Example>> {
    let token = (0f32..2.0, -3f32..3.0, -2.3f32..-1.7);
    let text = (1usize..5, prop::collection::vec(token, 0..9));
    prop::collection::vec(text, 1..6).prop_map(|texts| texts.into_iter().map(made).collect())
}

fn made((prompt, tokens): (usize, Vec<(f32, f32, f32)>)) -> Example {
    let mut example = example("", 0.0);
    example.sequence.prompt = vec![7; prompt];
    example.sequence.tokens = vec![9; tokens.len()];
    let objective = Objective::Clipped {
        weights: tokens.iter().map(|it| it.0).collect(),
        advantages: tokens.iter().map(|it| it.1).collect(),
        old: tokens.iter().map(|it| it.2).collect(),
        reference: None,
        low: 10.0,
        high: 10.0,
        kl: 0.0,
    };
    Example { objective, ..example }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_gradient_is_always_that_of_the_sum(examples in examples()) {
        for (fake, policy) in policies() {
            // A step of no length: the weights stay as they are.
            let report = locked(policy).update(&examples, &step(0.0)).unwrap();
            let expected = slope(&examples, -2.0).abs();
            prop_assert!((report.gradient_norm - expected).abs() <= 1e-4 * (1.0 + expected), "{report:?} {expected}");
            prop_assert_eq!(theta(fake), 0.0);
            let terms = examples.iter().flat_map(|it| (0..it.sequence.tokens.len()).map(|at| it.objective.term(at, -2.0)));
            let loss: f64 = terms.map(|term| term.loss).sum();
            prop_assert!((report.loss - loss).abs() <= 1e-4 * (1.0 + loss.abs()), "{report:?} {loss}");
        }
    }
}

#[test]
fn a_step_says_what_it_did_and_goes_to_the_server_with_its_settings() {
    let fake = fake();
    let mut policy = open(&fake);
    policy.set_optimiser(OptimiserSettings { beta1: 0.5, epsilon: 1e-3, weight_decay: 0.25, ..Default::default() });
    let batch = [example("one", 1.0), example("three", -1.0)];
    let report = policy.update(&batch, &step(0.25)).unwrap();
    // Tokens: 4 and 6 of weight 1/2; the ratio is 1 everywhere.
    assert_eq!((report.tokens, report.clipped, report.kl_old, report.skipped), (10, 0.0, 0.0, false));
    assert!((report.gradient_norm - 1.0).abs() < 1e-6 && report.entropy.is_nan(), "{report:?}");
    assert_eq!(policy.steps(), 1);
    // The optimiser of the fake keeps half of a gradient of +1.
    assert!((theta(&fake) + 0.125).abs() < 1e-6, "{}", theta(&fake));
    let adam = fake.calls("optim_step").pop().unwrap()["adam_params"].take();
    let expected = serde_json::json!(
        {"learning_rate": 0.25, "beta1": 0.5, "beta2": 0.98, "eps": 0.001, "weight_decay": 0.25}
    );
    assert_eq!(adam, expected);
    let input = fake.calls("forward_backward").pop().unwrap()["forward_backward_input"].take();
    assert_eq!(input["loss_fn"], "ppo");
    let clip = &input["loss_fn_config"];
    let bound = |name: &str| clip[name].as_f64().unwrap();
    assert!((bound("clip_low_threshold") - 0.8).abs() < 1e-6 && (bound("clip_high_threshold") - 1.2).abs() < 1e-6);
    // One number for each token that is predicted, none for the prompt's.
    let inputs = &input["data"][0]["loss_fn_inputs"];
    for name in ["target_tokens", "weights", "advantages", "logprobs"] {
        assert_eq!(inputs[name]["data"].as_array().unwrap().len(), 6 + 4, "{name}");
        assert_eq!(inputs[name]["shape"], serde_json::json!([10]));
    }
    assert_eq!(inputs["weights"]["data"], serde_json::json!([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]));
}

#[test]
fn large_batches_go_in_parts_and_count_as_one() {
    let fake = fake();
    let mut policy = open(&fake);
    let before = fake.calls("forward_backward").len();
    let batch: Vec<Example> = (0..300).map(|_| example("one", 0.01)).collect();
    let report = policy.update(&batch, &step(0.0)).unwrap();
    assert_eq!(fake.calls("forward_backward").len() - before, 3);
    let expected = slope(&batch, -2.0).abs();
    assert!((report.gradient_norm - expected).abs() < 1e-4, "{report:?} {expected}");
    let sequences: Vec<_> = batch.into_iter().map(|example| example.sequence).collect();
    assert_eq!(policy.score(&sequences, 1.0).unwrap(), vec![vec![-2.0; 4]; 300]);
    assert_eq!(fake.calls("forward").len(), 3);
}

#[test]
fn a_training_that_goes_on_elsewhere_goes_on_alike() {
    let fake = fake();
    let folder = tempfile::tempdir().unwrap();
    let train = |policy: &mut TinkerPolicy, steps: u32| {
        for number in 0..steps {
            policy.update(&[example("one", 1.0 + number as f32)], &step(0.1)).unwrap();
        }
    };
    let mut policy = open(&fake);
    train(&mut policy, 2);
    policy.save_state(folder.path()).unwrap();
    policy.save_state(folder.path()).unwrap();
    train(&mut policy, 3);
    let expected = theta(&fake);
    drop(policy);
    let mut again = open(&fake);
    assert_eq!(theta(&fake), 0.0);
    again.load_state(folder.path()).unwrap();
    assert_eq!(again.steps(), 2);
    train(&mut again, 3);
    // The memory of the optimiser came along.
    assert_eq!((theta(&fake), again.steps()), (expected, 5));
    let saved: Vec<String> = fake.calls("save_weights").iter().map(|call| call["path"].to_string()).collect();
    assert_eq!(saved, ["\"begin\"", "\"step-2-1\"", "\"step-2-2\"", "\"begin\""]);
}

#[test]
fn a_checkpoint_of_another_model_is_refused() {
    let fake = fake();
    let folder = tempfile::tempdir().unwrap();
    open(&fake).save_state(folder.path()).unwrap();
    let kept = folder.path().join("tinker.json");
    let text = std::fs::read_to_string(&kept).unwrap();
    let load = |text: &str| {
        std::fs::write(&kept, text).unwrap();
        fault(open(&fake).load_state(folder.path()))
    };
    let (fact, _) = load(&text.replace("\"rank\": 4", "\"rank\": 8"));
    assert!(fact.ends_with("tinker.json: it is of `tiny` with rank 8; expected `tiny` with rank 4"), "{fact}");
    let (fact, _) = load("{}");
    assert!(fact.contains("it does not say where a server keeps weights"), "{fact}");
    let (fact, hint) = load(&text.replace("step-0-1", "step-9-9"));
    assert!(fact.contains("refused `load_weights` with status 404: Checkpoint not found"), "{fact}");
    assert!(hint.unwrap().contains("the weights are there"));
    std::fs::remove_file(&kept).unwrap();
    assert!(fault(open(&fake).load_state(folder.path())).0.contains("tinker.json"));
}

#[test]
fn what_was_learned_is_left_for_other_programs() {
    let fake = fake();
    let folder = tempfile::tempdir().unwrap();
    let mut policy = open(&fake);
    policy.update(&[example("one", 1.0)], &step(0.1)).unwrap();
    policy.leave(folder.path()).unwrap();
    let kept: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("tinker.json")).unwrap()).unwrap();
    let expected = serde_json::json!({
        "path": "tinker://model_1/weights/step-1-1",
        "adapter": "tinker://model_1/adapter-1-2",
        "base_model": "tiny",
        "rank": 4,
        "steps": 1,
    });
    assert_eq!(kept, expected);
    // It is a checkpoint too.
    open(&fake).load_state(folder.path()).unwrap();
}
