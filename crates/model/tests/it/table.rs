//! The tabular policy implements the same trait as the language model, and its gradient is exact.

use lemon_model::{
    Example, Finish, Grammar, Objective, Policy, SampleRequest, SampleSettings, Sequence, StepSettings, TablePolicy,
    Tokenizer,
};

/// Two words, one of three, then one of two.
const GRAMMAR: &str = "start: (\"red\" | \"green\" | \"blue\") (\" fish\" | \" bird\")";

fn tokenizer() -> Tokenizer {
    Tokenizer::train(std::iter::empty(), 257, &["<|end|>"]).unwrap()
}

fn policy() -> (TablePolicy, Grammar) {
    let tokenizer = tokenizer();
    (TablePolicy::new(tokenizer.clone(), 3, 2), Grammar::new(GRAMMAR, &tokenizer).unwrap())
}

fn samples(policy: &TablePolicy, grammar: &Grammar, temperature: f32) -> Vec<(Sequence, Vec<f32>, String)> {
    let prompt = tokenizer().encode_plain("Say it");
    let request = |seed| SampleRequest { prompt: prompt.clone(), grammar: Some(grammar.clone()), seed };
    let requests: Vec<SampleRequest> = (0..40).map(request).collect();
    let settings = SampleSettings { temperature, ..SampleSettings::default() };
    let written = policy.sample(&requests, &settings).unwrap();
    let sequence = |tokens: Vec<u32>| Sequence { prompt: prompt.clone(), tokens, grammar: Some(grammar.clone()) };
    assert!(written.iter().all(|sample| sample.finish == Finish::Stop));
    written.into_iter().map(|it| (sequence(it.tokens), it.logprobs, it.text)).collect()
}

/// Blue things are good, birds are bad.
fn advantage(text: &str) -> f32 {
    f32::from(u8::from(text.starts_with("blue"))) - f32::from(u8::from(text.ends_with("bird")))
}

fn examples(policy: &TablePolicy, grammar: &Grammar) -> Vec<Example> {
    let example = |(sequence, old, text): (Sequence, Vec<f32>, String)| {
        let advantage = advantage(&text);
        let count = sequence.tokens.len();
        let objective = Objective::Clipped {
            weights: vec![0.025; count],
            advantages: vec![advantage; count],
            // As if the policy that wrote had been another: some ratios are clipped, some are not.
            old: old.iter().enumerate().map(|(at, it)| it + [0.0, 0.15, -0.4][at % 3]).collect(),
            reference: Some(old.iter().map(|it| it - 0.2).collect()),
            low: 0.2,
            high: 0.3,
            kl: 0.05,
        };
        Example { sequence, objective }
    };
    samples(policy, grammar, 1.0).into_iter().map(example).collect()
}

const STEP: StepSettings = StepSettings { learning_rate: 1.0, temperature: 1.0, clip_norm: 0.0, micro_batch: 0 };

#[test]
fn what_was_sampled_is_scored_the_same() {
    let (mut policy, grammar) = policy();
    for temperature in [0.5, 1.0, 2.0] {
        let written = samples(&policy, &grammar, temperature);
        let sequences: Vec<Sequence> = written.iter().map(|(sequence, _, _)| sequence.clone()).collect();
        let scores = policy.score(&sequences, temperature).unwrap();
        assert_eq!(written.into_iter().map(|(_, logprobs, _)| logprobs).collect::<Vec<_>>(), scores);
        policy.update(&examples(&policy, &grammar), &STEP).unwrap();
    }
}

#[test]
fn the_gradient_is_the_slope_of_the_loss() {
    let (mut policy, grammar) = policy();
    policy.update(&examples(&policy, &grammar), &STEP).unwrap();
    let examples = examples(&policy, &grammar);
    let gradient = policy.gradient(&examples, 1.0).unwrap();
    let steepest = gradient.values().flatten().map(|it| it * it).sum::<f64>();
    assert!(steepest > 1e-6);
    // Along the gradient itself: the loss falls by its squared length for each unit of step.
    let loss = |rate: f64| {
        let mut moved = policy.clone();
        moved.update(&examples, &StepSettings { learning_rate: rate, ..STEP }).unwrap();
        moved.update(&examples, &StepSettings { learning_rate: 0.0, ..STEP }).unwrap().loss
    };
    let step = 0.02;
    let slope = (loss(step) - loss(-step)) / (2.0 * step);
    assert!((slope / -steepest - 1.0).abs() < 0.02, "{slope} {steepest}");
}

#[test]
fn it_learns_what_pays() {
    let (mut policy, grammar) = policy();
    for _ in 0..200 {
        // Where the policy that wrote is the one that learns, an advantage is a weight.
        let weighted = |(sequence, _, text): (Sequence, Vec<f32>, String)| {
            let count = sequence.tokens.len();
            let objective = Objective::Likelihood { weights: vec![0.05 * advantage(&text); count] };
            Example { sequence, objective }
        };
        let examples: Vec<Example> = samples(&policy, &grammar, 1.0).into_iter().map(weighted).collect();
        policy.update(&examples, &STEP).unwrap();
    }
    let good = samples(&policy, &grammar, 1.0).iter().filter(|(_, _, text)| text == "blue fish").count();
    assert!(good > 30, "{good} of 40");
}
