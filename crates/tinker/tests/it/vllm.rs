//! Real servers, where they are installed: vLLM samples under a grammar with the adapters that SkyRL trains, both on the processor.

use crate::skyrl::{RANK, model, open_with, step};
use lemon_fakes::{SkyrlServer, VllmServer};
use lemon_model::{
    Example, Grammar, Objective, OptimiserSettings, Policy, SampleRequest, SampleSettings, Sequence, Tokenizer,
};
use lemon_policy::TrainablePolicy;
use lemon_tinker::{SamplerStart, TinkerPolicy};
use std::collections::BTreeMap;

/// Three texts: at the first token two are allowed, after one of them two again.
const LARK: &str = "start: \"x\" | \"y\" | \"yz\"\n";
const TEXTS: usize = 48;

fn texts(policy: &TinkerPolicy, tokenizer: &Tokenizer, seed: u64) -> BTreeMap<String, (Vec<u32>, Vec<f32>)> {
    let grammar = Grammar::new(LARK, tokenizer).unwrap();
    let request = |seed| SampleRequest { prompt: vec![200, 201, 202], grammar: Some(grammar.clone()), seed };
    let requests: Vec<SampleRequest> = (seed..seed + TEXTS as u64).map(request).collect();
    let samples = policy.sample(&requests, &SampleSettings { most_tokens: 8, ..Default::default() }).unwrap();
    samples.into_iter().map(|sample| (sample.text, (sample.tokens, sample.logprobs))).collect()
}

/// What the sampler drew has the probabilities of the model that learns, cut by the grammar: over all texts they add up to 1, and two
/// tokens that exclude each other are to each other as the model has them.
fn agrees(policy: &TinkerPolicy, tokenizer: &Tokenizer, seed: u64) -> f64 {
    let found = texts(policy, tokenizer, seed);
    assert_eq!(found.keys().collect::<Vec<_>>(), ["x", "y", "yz"], "all of {TEXTS} texts");
    let whole: f64 = found.values().map(|(_, drawn)| drawn.iter().map(|it| f64::from(*it)).sum::<f64>().exp()).sum();
    assert!((whole - 1.0).abs() < 1e-3, "{whole}: {found:?}");
    let sequence = |tokens: &[u32]| Sequence { prompt: vec![200, 201, 202], tokens: tokens.to_vec(), grammar: None };
    let sequences: Vec<Sequence> = found.values().map(|(tokens, _)| sequence(tokens)).collect();
    let scores = policy.score(&sequences, 1.0).unwrap();
    // At each prefix: what the grammar leaves is the same for all its tokens.
    let mut kept: BTreeMap<Vec<u32>, Vec<f64>> = BTreeMap::new();
    for ((tokens, drawn), scores) in found.values().zip(&scores) {
        for (at, (drawn, score)) in drawn.iter().zip(scores).enumerate() {
            kept.entry(tokens[..at].to_vec()).or_default().push(f64::from(score - drawn));
        }
    }
    let spread = |logs: &Vec<f64>| logs.iter().map(|log| (log - logs[0]).abs()).fold(0.0, f64::max);
    let worst = kept.values().map(spread).fold(0.0, f64::max);
    let most = kept.values().flatten().fold(f64::NEG_INFINITY, |most, log| most.max(*log));
    assert!(worst < 2e-3 && most < 1e-3, "apart by {worst}; left {}: {kept:?}", most.exp());
    eprintln!("probabilities of the sampler and of the model that learns are apart by {worst:.1e} (logarithms)");
    f64::from(found["x"].1[0])
}

#[test]
fn a_real_sampler_draws_with_the_weights_that_a_real_server_trains() {
    let folder = tempfile::tempdir().unwrap();
    model(folder.path());
    let Some(server) = SkyrlServer::start(folder.path()) else { return };
    let mode = std::env::var("LEMON_VLLM_LOGPROBS").unwrap_or_else(|_| "processed_logprobs".to_owned());
    let Some(sampler) = VllmServer::start(folder.path(), &mode, 256) else { return };
    let adapters = Some(folder.path().join("adapters"));
    let start = SamplerStart { adapters, model: Some("model".to_owned()), ..SamplerStart::new(sampler.url()) };
    let mut policy = open_with(&server, folder.path(), None, Some(start));
    policy.set_optimiser(OptimiserSettings { weight_decay: 0.0, ..Default::default() });
    let tokenizer = policy.tokenizer().clone();
    let before = agrees(&policy, &tokenizer, 0);
    // Far enough to be seen. Which of the two texts gains is left open: `x` and `y` have a direction in common, which is pushed.
    for number in 1..=4 {
        let tokens = texts(&policy, &tokenizer, 100 * number)["x"].0.clone();
        let sequence = Sequence { prompt: vec![200, 201, 202], tokens, grammar: None };
        let old = policy.score(std::slice::from_ref(&sequence), 1.0).unwrap().remove(0);
        let (weights, advantages) = (vec![1.0; old.len()], vec![-1.0; old.len()]);
        let objective = Objective::Clipped { weights, advantages, old, reference: None, low: 0.2, high: 0.2, kl: 0.0 };
        policy.update(&[Example { sequence, objective }], &step(0.02)).unwrap();
    }
    let after = agrees(&policy, &tokenizer, 1_000);
    eprintln!("the log-probability of `x` under the grammar goes from {before:.3} to {after:.3} (rank {RANK})");
    assert!((after - before).abs() > 0.05, "{before} {after}");
}
