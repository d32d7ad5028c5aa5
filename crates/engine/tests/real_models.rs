//! Serves the published models of the folder `LEMON_REAL_MODELS` and compares their greedy continuations with llama.cpp's.
//! Without the folder the test says that it was skipped. `crates/model/tests/llama_cpp.py` writes the references.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use lemon_engine::{CompletionRequest, Engine, EngineSettings};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Deserialize)]
struct Reference {
    greedy: Vec<Greedy>,
}

#[derive(Deserialize)]
struct Greedy {
    prompt: Vec<u32>,
    written: Vec<Written>,
}

#[derive(Deserialize)]
struct Written {
    id: u32,
    top: Vec<(u32, f32)>,
}

/// The engine and llama.cpp round differently: where llama.cpp sees two tokens this close, either may be ahead, and what
/// follows is another text.
const MARGIN: f32 = 0.5;

#[test]
fn continuations_are_llama_cpps() {
    let Some(folder) = std::env::var_os("LEMON_REAL_MODELS") else {
        println!("skipped: LEMON_REAL_MODELS is not set");
        return;
    };
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|it| it == "gguf"));
    paths.sort();
    for path in paths {
        let Ok(text) = std::fs::read(path.with_extension("reference.json")) else {
            println!("skipped: {} has no reference", path.display());
            continue;
        };
        let reference: Reference = serde_json::from_slice(&text).unwrap();
        let start = Instant::now();
        let engine = Engine::load(&path, EngineSettings::default()).unwrap();
        println!("{}: loaded in {:.1} s", path.display(), start.elapsed().as_secs_f32());
        let (mut same, mut count, mut errors) = (0, 0, Vec::new());
        for Greedy { prompt, written } in reference.greedy {
            // One token at a time after llama.cpp's own text: a token that differs does not change what follows.
            for (at, it) in written.iter().enumerate() {
                let before = prompt.iter().copied().chain(written.iter().take(at).map(|it| it.id)).collect();
                let found = engine.try_submit(CompletionRequest::new(before, 1)).unwrap().wait().unwrap();
                count += 1;
                if found.tokens == [it.id] {
                    same += 1;
                    errors.push(f64::from(found.logprobs[0] - it.top[0].1));
                    continue;
                }
                let margin = it.top[0].1 - it.top[1].1;
                println!("  token {at} is {:?}, llama.cpp's margin is {margin}", found.text);
                assert!(margin < MARGIN, "token {at} is another one, its margin was {margin}");
            }
        }
        let rms = (errors.iter().map(|it| it * it).sum::<f64>() / errors.len().max(1) as f64).sqrt();
        println!("  {same} of {count} tokens alike; the log-probabilities of these differ by {rms:.4} (rms)");
        assert!(count >= 200, "{}: the reference is an older one: write it again", path.display());
    }
}
