//! Measures the engine on a GPU.
//!
//! ```text
//! gpu_serve speed SHAPE TEXTS PROMPT REPLY SHARED [ROUNDS]     random weights; SHAPE is qwen (2.5, 1.5B) or smol (135M)
//! gpu_serve fidelity MODEL [PROMPTS] [TOKENS]                  greedy texts of the GPU against those of the CPU in f32
//! ```

use lemon_engine::{Completion, CompletionRequest, Engine, EngineSettings, PendingCompletion, WeightForm};
use lemon_model::{DeviceChoice, ModelConfig, ModelFamily, Tokenizer};
use std::error::Error;
use std::path::Path;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| args.get(at).map_or(Ok(default), |it| it.parse::<usize>());
    let word = |at: usize| args.get(at).map_or("", String::as_str);
    match word(0) {
        "speed" => {
            let (texts, prompt, reply, shared) = (number(2, 256)?, number(3, 600)?, number(4, 200)?, number(5, 1)?);
            speed(word(1), texts, prompt, reply, shared, number(6, 3)?)
        }
        "fidelity" => fidelity(Path::new(word(1)), number(2, 100)?, number(3, 64)?),
        _ => Err("expected speed or fidelity".into()),
    }
}

fn speed(
    shape: &str,
    texts: usize,
    prompt: usize,
    reply: usize,
    shared: usize,
    rounds: usize,
) -> Result<(), Box<dyn Error>> {
    let tokenizer = Tokenizer::train(std::iter::empty(), 257, &["<|end|>"])?;
    let small = ModelConfig::small(151_936, 1_536, 28, tokenizer.end());
    let config = match shape {
        "qwen" => ModelConfig { intermediate: 8_960, heads: 12, kv_heads: 2, head_dim: 128, ..small },
        "smol" => ModelConfig {
            family: ModelFamily::Llama,
            vocabulary: 49_152,
            hidden: 576,
            layers: 30,
            intermediate: 1_536,
            heads: 9,
            kv_heads: 3,
            head_dim: 64,
            attention_bias: false,
            ..small
        },
        other => return Err(format!("expected the shape qwen or smol, found {other}").into()),
    };
    let settings =
        EngineSettings { device: DeviceChoice::Cuda, width: texts, queue: 2 * texts, ..EngineSettings::default() };
    let start = Instant::now();
    let engine = Engine::fresh(config, tokenizer, 7, settings)?;
    println!("  made in {:.1} s; {:?}", start.elapsed().as_secs_f64(), engine.status());
    let mut rates = Vec::new();
    for round in 0..=rounds {
        let start = Instant::now();
        let ask = |text: usize| {
            // Every round has prompts of its own, so that nothing is found in the cache.
            let leader = text / shared + round * texts;
            let tokens = (0..prompt).map(|at| ((leader * 7_919 + at * 104_729) % 40_000) as u32).collect();
            let request = CompletionRequest::new(tokens, reply);
            engine.try_submit(CompletionRequest { temperature: 1.0, seed: text as u64, ..request })
        };
        let pending = (0..texts).map(ask).collect::<Result<Vec<PendingCompletion>, _>>()?;
        let done = pending.into_iter().map(PendingCompletion::wait).collect::<Result<Vec<Completion>, _>>()?;
        let took = start.elapsed().as_secs_f64();
        let written: usize = done.iter().map(|it| it.usage.completion).sum();
        let reused: usize = done.iter().map(|it| it.usage.reused).sum();
        println!(
            "  round {round}: {:.0} tok/s ({written} tokens in {took:.3} s, {reused} of prompts reused)",
            written as f64 / took
        );
        if round > 0 {
            rates.push(written as f64 / took);
        }
    }
    rates.sort_by(f64::total_cmp);
    let median = rates.get(rates.len() / 2).copied().unwrap_or(f64::NAN);
    println!("engine, {shape} {texts} x ({prompt} + {reply}), prompts shared by {shared}: {median:.0} tok/s");
    Ok(())
}

fn prompts(count: usize) -> impl Iterator<Item = String> {
    let subjects = [
        "a lighthouse",
        "the tides",
        "bread",
        "a violin",
        "the moon",
        "compilers",
        "a glacier",
        "honey bees",
        "the harbour",
        "chess",
        "a garden",
        "the printing press",
        "volcanoes",
        "a clock",
        "the desert",
        "tea",
        "bridges",
        "a library",
        "the railway",
        "salt",
    ];
    let openings = [
        "Explain in simple words how people use",
        "Write a short story about",
        "List five facts about",
        "The history of",
        "Question: what is special about",
    ];
    (0..count)
        .map(move |at| format!("{} {}", openings[at / subjects.len() % openings.len()], subjects[at % subjects.len()]))
}

fn fidelity(path: &Path, count: usize, tokens: usize) -> Result<(), Box<dyn Error>> {
    let load = |device, weights| {
        let start = Instant::now();
        let settings =
            EngineSettings { device, weights, width: count, queue: count * tokens, ..EngineSettings::default() };
        let engine = Engine::load(path, EngineSettings { cache_tokens: 1 << 18, ..settings })?;
        println!("  {device:?} loaded in {:.1} s", start.elapsed().as_secs_f64());
        Ok::<Engine, Box<dyn Error>>(engine)
    };
    let all = |engine: &Engine, requests: Vec<CompletionRequest>| {
        let pending = requests.into_iter().map(|it| engine.try_submit(it)).collect::<Result<Vec<_>, _>>()?;
        pending.into_iter().map(PendingCompletion::wait).collect::<Result<Vec<Completion>, _>>()
    };
    let gpu = load(DeviceChoice::Cuda, WeightForm::F32)?;
    let cpu = load(DeviceChoice::Cpu, WeightForm::F32)?;
    let prompts = prompts(count).map(|text| gpu.tokenizer().encode(&text)).collect::<Vec<Vec<u32>>>();
    let greedy = |engine: &Engine| {
        let start = Instant::now();
        let requests = prompts.iter().map(|prompt| CompletionRequest::new(prompt.clone(), tokens));
        let done = all(engine, requests.collect())?;
        println!("  {count} texts in {:.2} s", start.elapsed().as_secs_f64());
        Ok::<_, Box<dyn Error>>(done)
    };
    let (on_cpu, on_gpu, again) = (greedy(&cpu)?, greedy(&gpu)?, greedy(&gpu)?);
    let same = on_cpu.iter().zip(&on_gpu).filter(|(a, b)| a.tokens == b.tokens).count();
    let repeated = again.iter().zip(&on_gpu).filter(|(a, b)| a.tokens == b.tokens).count();
    println!("the same greedy text of {tokens} tokens: {same} of {count}; again on the GPU: {repeated} of {count}");
    // One token at a time after the CPU's own text: a token that differs does not change what follows.
    let mut requests = Vec::new();
    for (prompt, written) in prompts.iter().zip(&on_cpu) {
        for at in 0..written.tokens.len() {
            requests.push(CompletionRequest::new([prompt, &written.tokens[..at]].concat(), 1));
        }
    }
    let found = all(&gpu, requests)?;
    let expected = on_cpu.iter().flat_map(|it| it.tokens.iter().zip(&it.logprobs));
    let (mut alike, mut sum, mut worst) = (0usize, 0.0f64, 0.0f64);
    for ((token, logprob), found) in expected.zip(&found) {
        if found.tokens.first() == Some(token) {
            alike += 1;
            let off = found.logprobs.first().map_or(f64::NAN, |it| f64::from((it - logprob).abs()));
            sum += off;
            worst = worst.max(off);
        }
    }
    println!(
        "after the CPU's text: {alike} of {} tokens alike; their log-probabilities differ by {:.4} on average, {worst:.4} at most",
        found.len(),
        sum / alike.max(1) as f64,
    );
    Ok(())
}
