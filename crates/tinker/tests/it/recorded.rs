//! An exchange with a real server (SkyRL 0.3.0 on a processor, a random Qwen3 of two layers), recorded once: the client still sends the
//! same, to the letter, and still understands the replies.

use crate::common::*;
use lemon_fakes::RecordedTinker;
use lemon_model::{Objective, Policy, SampleSettings};
use lemon_policy::TrainablePolicy;
use lemon_tinker::{TinkerKey, TinkerPolicy, TinkerStart};

/// Made by `exchange_with` a real server behind a proxy that writes down what passes: set this variable to its address.
const LIVE: &str = "LEMON_TINKER_RECORDING";
const RECORD: &str = include_str!("skyrl-0.3.0.jsonl");

/// Samples, scores, learns, saves and goes on: every operation once. Returns what it saw.
fn exchange_with(url: &str) -> Vec<String> {
    let folder = files();
    let config = r#"{"vocab_size": 320, "max_position_embeddings": 64}"#;
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    let start = TinkerStart { base_model: "model".to_owned(), ..start(url, folder.path()) };
    let mut policy = TinkerPolicy::open(&start, (4, 7), &TinkerKey::default(), patience()).unwrap();
    let settings = SampleSettings { most_tokens: 6, ..settings() };
    let requests = [request("Count.", 1), request("Count to three.", 2)];
    let mut seen = vec![format!("{:?}", policy.reduction())];
    let samples = policy.sample(&requests, &settings).unwrap();
    let sequences: Vec<_> = samples.iter().map(|sample| sample.tokens.clone()).collect();
    seen.push(format!("{sequences:?}"));
    let mut batch = [example("one", 1.0), example("three", -1.0)];
    let texts: Vec<_> = batch.iter().map(|example| example.sequence.clone()).collect();
    for (example, scores) in batch.iter_mut().zip(policy.score(&texts, 1.0).unwrap()) {
        if let Objective::Clipped { old, .. } = &mut example.objective {
            *old = scores;
        }
    }
    seen.push(format!("{:?}", policy.update(&batch, &step(0.01)).unwrap()));
    let kept = tempfile::tempdir().unwrap();
    policy.save_state(kept.path()).unwrap();
    seen.push(format!("{:?}", policy.score(&texts, 1.0).unwrap()));
    policy.load_state(kept.path()).unwrap();
    let likeliest = SampleSettings { temperature: 0.0, ..settings };
    seen.push(format!("{:?}", policy.sample(&requests[..1], &likeliest).unwrap()[0].tokens));
    seen
}

#[test]
fn the_exchange_with_a_real_server_is_as_it_was() {
    if let Ok(url) = std::env::var(LIVE) {
        println!("{}", exchange_with(&url).join("\n"));
        return;
    }
    let server = RecordedTinker::start(RECORD).unwrap();
    let seen = exchange_with(&server.url());
    assert_eq!(server.differences(), (Vec::new(), Vec::new()));
    assert_eq!(seen[0], "Mean");
    // The batch has five tokens of each sign at least; the figures are those of the real model.
    assert!(seen[2].contains("tokens: 10, entropy: NaN, clipped: 0.0"), "{}", seen[2]);
    assert!(!seen[2].contains("gradient_norm: 0.0") && !seen[2].contains("gradient_norm: NaN"), "{}", seen[2]);
}
