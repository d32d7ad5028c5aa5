//! The engine in a process of its own, so that its start and its memory can be measured: one JSON request a line on standard
//! input, one reply a line on standard output, as `llama_cpp.py` does for llama.cpp.

use crate::fault::Fault;
use crate::println;
use lemon_engine::{CompletionRequest, Engine, EngineSettings, ThreadPool, WeightForm};
use serde::{Deserialize, Serialize};
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Tokens of a prompt and its reply together at most.
pub const CONTEXT: usize = 1_024;

/// Prompts that are continued all at once, greedily.
#[derive(Debug, Serialize, Deserialize)]
pub struct ServeRequest {
    /// Token ids.
    pub prompts: Vec<Vec<u32>>,
    /// Tokens of each reply at most.
    pub tokens: usize,
}

/// What a program replies.
#[derive(Debug, Serialize, Deserialize)]
pub struct ServeReply {
    /// Seconds from the request to its last token.
    pub seconds: f64,
    /// The tokens of each reply.
    pub written: Vec<Vec<u32>>,
    /// The program and the instructions it uses.
    pub program: String,
}

/// Serves requests until standard input ends.
pub fn run(model: &Path, threads: usize, weights: WeightForm) -> Result<u8, Fault> {
    let threads = Arc::new(ThreadPool::new(threads));
    let settings = EngineSettings { threads, weights, ..EngineSettings::default() };
    let engine = Engine::load(model, settings).map_err(Fault::new)?;
    let program = format!("lemon {}: {}, weights {weights:?}", env!("CARGO_PKG_VERSION"), lemon_engine::simd_level());
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| Fault::new(format!("standard input cannot be read: {error}")))?;
        let request: ServeRequest =
            serde_json::from_str(&line).map_err(|error| Fault::new(format!("expected a request, found {error}")))?;
        let began = Instant::now();
        let submit = |(caller, prompt)| {
            let request = CompletionRequest::new(prompt, request.tokens);
            engine.try_submit(CompletionRequest { caller, ..request })
        };
        let pending = (0u64..).zip(request.prompts).map(submit).collect::<Result<Vec<_>, _>>().map_err(Fault::new)?;
        let mut written = Vec::with_capacity(pending.len());
        for completion in pending {
            written.push(completion.wait().map_err(Fault::new)?.tokens);
        }
        let reply = ServeReply { seconds: began.elapsed().as_secs_f64(), written, program: program.clone() };
        println(&serde_json::to_string(&reply).map_err(Fault::new)?)?;
    }
    Ok(0)
}
