//! How quick models of this process are: tokens a second, alone and in a batch, against what the memory allows.
//!
//! `cargo run --release -p lemon-workers --example serve_bench [-- shape [int8 | f32]]`

use lemon_model::serve::{Engine, EngineSettings, Request, WeightForm};
use lemon_model::{ModelConfig, Tokenizer};
use std::error::Error;
use std::time::Instant;

/// Name, hidden width, layers and key heads: the models in the box, and Qwen2.5-0.5B.
const SHAPES: [(&str, usize, usize, usize); 4] =
    [("0.5m", 96, 4, 1), ("3m", 192, 6, 3), ("12m", 320, 9, 5), ("qwen-0.5b", 896, 24, 2)];

fn main() -> Result<(), Box<dyn Error>> {
    let (only, form) = (std::env::args().nth(1), std::env::args().nth(2));
    let threads = std::thread::available_parallelism()?.get();
    let bandwidth = bandwidth(threads);
    println!("{threads} threads; a plain streaming read of 1 GiB: {:.1} GB/s", bandwidth / 1e9);
    println!(
        "{:<10} {:<5} {:>8} {:>9} {:>9} {:>9} {:>7} {:>7} {:>10}",
        "shape", "form", "MB/step", "tok/s ×1", "×8", "×64", "64 : 1", "of mem.", "prefill/s"
    );
    for (name, hidden, layers, kv_heads) in SHAPES {
        if only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        for weights in [WeightForm::Int8, WeightForm::F32] {
            let word = format!("{weights:?}").to_lowercase();
            if form.as_ref().is_some_and(|form| *form != word) {
                continue;
            }
            let engine =
                engine(name, (hidden, layers, kv_heads), EngineSettings { weights, ..EngineSettings::default() })?;
            let tokens = if hidden > 500 { 48 } else { 64 };
            let (one, eight, many) =
                (decode(&engine, 1, tokens)?, decode(&engine, 8, tokens)?, decode(&engine, 64, tokens)?);
            let share = one * engine.bytes_per_step() as f64 / bandwidth;
            println!(
                "{name:<10} {word:<5} {:>8.1} {one:>9.1} {eight:>9.1} {many:>9.1} {:>7.1} {:>6.0}% {:>10.0}",
                engine.bytes_per_step() as f64 / 1e6,
                many / one,
                share * 100.0,
                prefill(&engine)?,
            );
        }
        for share in [false, true] {
            let engine =
                engine(name, (hidden, layers, kv_heads), EngineSettings { share, ..EngineSettings::default() })?;
            println!("{name:<10} 64 prompts with 160 of 176 tokens alike, sharing {share}: {:.3} s", alike(&engine)?);
        }
    }
    Ok(())
}

fn engine(
    name: &str,
    (hidden, layers, kv_heads): (usize, usize, usize),
    settings: EngineSettings,
) -> Result<Engine, Box<dyn Error>> {
    let tokenizer = Tokenizer::train(std::iter::empty(), 257, &["<|end|>"])?;
    let small = ModelConfig::small(2_560, hidden, layers, tokenizer.end());
    let mut config = ModelConfig { heads: hidden / 32, kv_heads, head_dim: 32, ..small };
    if name == "qwen-0.5b" {
        config = ModelConfig { vocabulary: 151_936, intermediate: 4_864, heads: 14, head_dim: 64, ..config };
    }
    Ok(Engine::fresh(config, tokenizer, 1, settings)?)
}

/// A prompt like no other, of tokens that end nothing.
fn prompt(number: usize, length: usize) -> Vec<u32> {
    (0..length).map(|at| 1 + ((number * 7_919 + at * 31 + at * at) % 250) as u32).collect()
}

/// Tokens a second of so many texts at once, the best of several times. A reply may end early: what counts is what was
/// written.
fn decode(engine: &Engine, count: usize, tokens: usize) -> Result<f64, Box<dyn Error>> {
    let request = |number: usize| Request {
        temperature: 1.0,
        seed: number as u64,
        caller: number as u64,
        // A block and one more: after the first time it is found, and only writing is measured.
        ..Request::new(prompt(number, 17), tokens)
    };
    let mut best = 0f64;
    // Models that are quick are measured more often: on a busy machine most times are not its best.
    let times = if tokens < 64 { 3 } else { 12 };
    for _ in 0..times {
        let start = Instant::now();
        let written = run(engine, (0..count).map(request))?;
        best = best.max(written as f64 / start.elapsed().as_secs_f64());
    }
    Ok(best)
}

fn prefill(engine: &Engine) -> Result<f64, Box<dyn Error>> {
    let start = Instant::now();
    run(engine, (0..4).map(|number| Request::new(prompt(number + 500, 256), 1)))?;
    Ok(1_024.0 / start.elapsed().as_secs_f64())
}

/// Seconds for many prompts that begin alike.
fn alike(engine: &Engine) -> Result<f64, Box<dyn Error>> {
    let start = Instant::now();
    run(engine, (0..64).map(|number| Request::new([prompt(900, 160), prompt(number, 16)].concat(), 4)))?;
    Ok(start.elapsed().as_secs_f64())
}

/// Serves all, and counts the tokens written.
fn run(engine: &Engine, requests: impl Iterator<Item = Request>) -> Result<usize, Box<dyn Error>> {
    let tickets = requests.map(|request| engine.try_submit(request)).collect::<Result<Vec<_>, _>>()?;
    let mut written = 0;
    for ticket in tickets {
        written += ticket.wait()?.tokens.len();
    }
    Ok(written)
}

/// Bytes a second that all threads read together, the best of a few times.
fn bandwidth(threads: usize) -> f64 {
    let words = vec![1u64; (1 << 30) / 8];
    let once = || {
        let start = Instant::now();
        let sums = std::thread::scope(|scope| {
            let read = |part| scope.spawn(move || sum(part));
            let parts: Vec<_> = words.chunks(words.len().div_ceil(threads)).map(read).collect();
            parts.into_iter().filter_map(|part| part.join().ok()).sum::<u64>()
        });
        assert_eq!(sums, words.len() as u64);
        (1u64 << 30) as f64 / start.elapsed().as_secs_f64()
    };
    (0..5).map(|_| once()).fold(0.0, f64::max)
}

/// In many chains, so that reading and not adding takes the time.
fn sum(words: &[u64]) -> u64 {
    let (chunks, rest) = words.as_chunks::<32>();
    let mut sums = [0u64; 32];
    for chunk in chunks {
        for (sum, word) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().sum::<u64>() + rest.iter().sum::<u64>()
}
