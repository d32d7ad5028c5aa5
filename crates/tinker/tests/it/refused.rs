//! What a server would misread, or never answer, is refused before it is sent.

use crate::common::*;
use lemon_model::{Example, Grammar, Objective, Policy, StepReport, StepSettings};

/// Changes the numbers of an example.
fn changed(change: impl FnOnce(&mut Vec<f32>, &mut Vec<f32>, &mut Vec<f32>)) -> Example {
    let mut example = example("one", 1.0);
    if let Objective::Clipped { weights, advantages, old, .. } = &mut example.objective {
        change(weights, advantages, old);
    }
    example
}

#[test]
fn data_that_would_be_misread_is_never_sent() {
    let fake = fake();
    let mut policy = open(&fake);
    let before = fake.operations().len();
    let tokens = |tokens: Vec<u32>, prompt: Vec<u32>| {
        let mut example = example("one", 1.0);
        (example.sequence.tokens, example.sequence.prompt) = (tokens, prompt);
        example
    };
    let grammar = Grammar::new("start: \"one\"", &tokenizer()).unwrap();
    let mut constrained = example("one", 1.0);
    constrained.sequence.grammar = Some(grammar);
    let mut wide = example("one", 1.0);
    if let Objective::Clipped { high, .. } = &mut wide.objective {
        *high = 0.5;
    }
    let mut referred = example("one", 1.0);
    if let Objective::Clipped { reference, kl, .. } = &mut referred.objective {
        (*reference, *kl) = (Some(vec![-2.0; 4]), 0.1);
    }
    let supervised = Example { objective: Objective::Likelihood { weights: vec![1.0; 4] }, ..example("one", 1.0) };
    for (bad, expected) in [
        // Servers fill a list that is too short with zeros.
        (changed(|_, advantages, _| advantages.truncate(2)), "2 figures for 4 tokens"),
        (changed(|_, _, old| old.truncate(3)), "3 figures for 4 tokens"),
        (changed(|weights, _, _| weights.push(1.0)), "5 figures for 4 tokens"),
        (changed(|_, advantages, _| advantages[1] = f32::NAN), "is not a number"),
        (changed(|_, _, old| old[0] = f32::NEG_INFINITY), "is not a number"),
        (changed(|weights, _, _| weights[0] = -1.0), "the weight of a token is negative"),
        (
            tokens(vec![1, VOCABULARY, 1, 1], vec![1]),
            "the model has no token 260: by the config.json of its folder it has 260",
        ),
        (tokens(vec![1; 4], vec![u32::MAX]), "the model has no token 4294967295"),
        (tokens(vec![1; 4], vec![]), "a prompt has to have at least one token"),
        (tokens(vec![1; 4], vec![1; POSITIONS]), "a prompt has 64 tokens; the model reads 64 in all"),
        (tokens(vec![1; 4], vec![1; 61]), "a text and its prompt have 65 tokens; the model reads 64"),
        (constrained, "the Tinker API knows no grammars"),
        (wide, "the examples of a step differ in how ratios are clipped"),
        (referred, "a divergence from a reference cannot be learned from"),
        (supervised, "expected clipped objectives, got a likelihood"),
    ] {
        // Good ones before it are not sent either.
        let (fact, _) = fault(policy.update(&[example("two", 1.0), bad.clone()], &step(0.1)));
        assert!(fact.contains(expected), "{fact}, expected {expected}");
        assert_eq!(fake.operations().len(), before, "{expected}");
    }
    let (fact, _) = fault(policy.sample(&[request("", 0)], &settings()));
    assert_eq!(fact, "a prompt has to have at least one token");
    let (fact, _) = fault(policy.sample(&[request(&"x".repeat(POSITIONS), 0)], &settings()));
    assert_eq!(fact, "a prompt has 64 tokens; the model reads 64 in all");
    let mut bound = request("Write.", 0);
    bound.grammar = Some(Grammar::new("start: \"one\"", &tokenizer()).unwrap());
    assert_eq!(fault(policy.sample(&[bound], &settings())).0, "the Tinker API samples without a grammar");
    assert_eq!(fake.operations().len(), before);
    // Nothing was spoilt by any of it.
    policy.update(&[example("two", 1.0)], &step(0.1)).unwrap();
}

#[test]
fn settings_that_servers_do_not_have_are_refused() {
    let fake = fake();
    let mut policy = open(&fake);
    let before = fake.operations().len();
    let clipped = StepSettings { clip_norm: 1.0, ..step(0.1) };
    assert!(fault(policy.update(&[example("one", 1.0)], &clipped)).0.contains("`clip_norm` must be 0"));
    let warm = StepSettings { temperature: 0.7, ..step(0.1) };
    let expected = "the Tinker API computes probabilities at a temperature of 1, got 0.7";
    assert_eq!(fault(policy.update(&[example("one", 1.0)], &warm)).0, expected);
    assert_eq!(fault(policy.score(&[sequence("Say it.", "one")], 0.7)).0, expected);
    assert_eq!(fake.operations().len(), before);
}

#[test]
fn a_step_on_nothing_is_not_sent_because_it_would_never_be_answered() {
    let fake = fake();
    let mut policy = open(&fake);
    let before = fake.operations().len();
    assert_eq!(policy.update(&[], &step(0.1)).unwrap(), StepReport::default());
    let mut empty = changed(|weights, advantages, old| {
        [weights, advantages, old].into_iter().for_each(Vec::clear);
    });
    empty.sequence.tokens.clear();
    assert_eq!(policy.update(&[empty.clone()], &step(0.1)).unwrap(), StepReport::default());
    assert_eq!((fake.operations().len(), policy.steps()), (before, 0));
    // Beside others it counts nothing.
    let report = policy.update(&[empty, example("one", 1.0)], &step(0.0)).unwrap();
    assert!((report.gradient_norm - 2.0).abs() < 1e-6, "{report:?}");
}
