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
        for Greedy { prompt, written } in reference.greedy {
            let request = CompletionRequest::new(prompt, written.len());
            let found = engine.try_submit(request).unwrap().wait().unwrap();
            let alike = found.tokens.iter().zip(&written).take_while(|(found, it)| **found == it.id).count();
            println!("  {alike} of {} tokens alike: {:?}", written.len(), found.text);
            if let Some(it) = written.get(alike).filter(|_| alike < found.tokens.len()) {
                let margin = it.top[0].1 - it.top[1].1;
                assert!(margin < MARGIN, "token {alike} is another one, its margin was {margin}");
            }
        }
    }
}
