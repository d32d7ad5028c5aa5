//! An engine against the model it serves, and against itself: alone, in large batches, with shared prefixes, in chunks, with
//! little memory.

use crate::batch_runner::BatchRunner;
use crate::kernels::paged_attention::BLOCK;
use crate::network::{Batch, Network, Row};
use crate::sampling::SamplingParams;
use crate::scheduler::Scheduler;
use crate::*;
use lemon_model::{
    Constraint, DeviceChoice, Grammar, LanguagePolicy, Learning, ModelConfig, ModelFamily, ModelFiles, Tokenizer,
    WeightOrigin,
};
use lemon_num::Random;
use proptest::prelude::*;
use safetensors::tensor::{Dtype, TensorView};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

mod gpu;
mod real;
mod stored;

/// A small model with weights large enough to have opinions, in a folder.
fn folder(family: ModelFamily, tied: bool) -> (tempfile::TempDir, ModelConfig) {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer();
    let small = ModelConfig::small(tokenizer.vocabulary() + 3, 48, 2, tokenizer.end());
    let attention_bias = family == ModelFamily::Qwen2;
    let heads = ModelConfig { heads: 6, kv_heads: 2, head_dim: 18, intermediate: 80, ..small };
    let config = ModelConfig { family, tied, attention_bias, positions: 200, ..heads };
    std::fs::write(folder.path().join("config.json"), config.to_json("float32")).unwrap();
    tokenizer.save(folder.path()).unwrap();
    let tensor = |(name, shape): (String, Vec<usize>)| {
        let mut values = Random::named(3, &name).normals(shape.iter().product(), 0.3);
        if name.ends_with("norm.weight") {
            values.iter_mut().for_each(|value| *value += 1.0);
        }
        (name, shape, values.into_iter().flat_map(f32::to_le_bytes).collect())
    };
    let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = config.tensor_shapes().into_iter().map(tensor).collect();
    let views =
        tensors.iter().map(|(name, shape, bytes)| (name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    std::fs::write(folder.path().join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    (folder, config)
}

fn tokenizer() -> Tokenizer {
    Tokenizer::train(std::iter::empty(), 257, &["<|end|>"]).unwrap()
}

fn settings(weights: WeightForm) -> EngineSettings {
    EngineSettings { threads: Arc::new(ThreadPool::new(1)), weights, cache_tokens: 4_096, ..EngineSettings::default() }
}

fn engine(settings: EngineSettings) -> Engine {
    Engine::load(folder(ModelFamily::Qwen2, true).0.path(), settings).unwrap()
}

/// The logits after each token of a text.
fn served_logits(config: &ModelConfig, origin: &WeightOrigin<'_>, text: &[u32], form: WeightForm) -> Vec<Vec<f32>> {
    let network = Network::new(config.clone(), origin, form).unwrap();
    let blocks = text.len().div_ceil(BLOCK) as u32;
    // In any order.
    let mut batch = Batch { blocks: (1..=blocks).rev().collect(), ..Batch::default() };
    for (at, token) in text.iter().enumerate() {
        batch.rows.push(Row { token: *token, position: at as u32, blocks: 0 });
        let params = SamplingParams { temperature: 0.0, top_p: 1.0, seed: 0, position: 0, mask: None };
        batch.samples.push((at as u32, params));
    }
    BatchRunner::new(network, text.len(), text.len(), blocks as usize + 1, 1).unwrap().logits_of(batch)
}

fn model_logits(folder: &Path, text: &[u32]) -> Vec<Vec<f32>> {
    LanguagePolicy::load(folder, DeviceChoice::Cpu, Learning::Nothing).unwrap().logits(text).unwrap()
}

fn text(seed: u64, length: usize, vocabulary: usize) -> Vec<u32> {
    let mut random = Random::new(seed);
    (0..length).map(|_| (random.next_u64() % vocabulary as u64) as u32).collect()
}

/// The largest difference of two logits, the largest logit, and at how many positions the likeliest token is the same.
fn compare(a: &[Vec<f32>], b: &[Vec<f32>]) -> (f32, f32, usize) {
    let best = |row: &[f32]| (0..row.len()).max_by(|x, y| row[*x].total_cmp(&row[*y]));
    let pairs = || a.iter().flatten().zip(b.iter().flatten());
    let off = pairs().map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
    let most = pairs().map(|(a, _)| a.abs()).fold(0f32, f32::max);
    (off, most, a.iter().zip(b).filter(|(a, b)| best(a) == best(b)).count())
}

#[test]
fn the_logits_are_those_of_the_model() {
    for (family, tied) in [(ModelFamily::Qwen2, true), (ModelFamily::Qwen3, false), (ModelFamily::Llama, true)] {
        let (folder, config) = folder(family, tied);
        let origin = WeightOrigin::Files(ModelFiles::Disk(folder.path()));
        let text = text(1, 40, config.vocabulary);
        let exact = model_logits(folder.path(), &text);
        let (off, most, _) = compare(&served_logits(&config, &origin, &text, WeightForm::F32), &exact);
        println!("{family:?}: f32 off by {off}, logits up to {most}");
        assert!(off < 1e-4 * most.max(1.0), "{family:?}: off by {off} of {most}");
        let (off, most, same) = compare(&served_logits(&config, &origin, &text, WeightForm::Int8), &exact);
        println!("{family:?}: int8 off by {off}, logits up to {most}, likeliest the same at {same} of 40");
        // Weights at random magnify every difference; a model that has learned is below.
        assert!(off < 0.2 * most && same >= 32, "{family:?}: off by {off} of {most}, {same} of 40 alike");
    }
}

#[test]
fn eight_bits_are_enough_for_a_trained_model() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/orchestrator");
    if !folder.exists() {
        println!("skipped: there is no {}", folder.display());
        return;
    }
    let origin = WeightOrigin::Files(ModelFiles::Disk(&folder));
    let config = ModelConfig::load(ModelFiles::Disk(&folder)).unwrap();
    let tokenizer = Tokenizer::load(&folder).unwrap();
    let mut text =
        tokenizer.encode_plain("Maya had 24 stickers. She gave 3 to each of 5 friends. How many are left?\n");
    let engine = Engine::load(&folder, settings(WeightForm::F32)).unwrap();
    text.extend(engine.try_submit(CompletionRequest::new(text.clone(), 60)).unwrap().wait().unwrap().tokens);
    let exact = served_logits(&config, &origin, &text, WeightForm::F32);
    let (off, most, _) = compare(&model_logits(&folder, &text), &exact);
    assert!(off < 1e-4 * most, "off by {off} of {most}");
    let (off, most, same) = compare(&served_logits(&config, &origin, &text, WeightForm::Int8), &exact);
    println!("int8 off by {off}, logits up to {most}, likeliest the same at {same} of {}", text.len());
    assert!(off < 0.05 * most && same * 100 >= text.len() * 95, "off by {off} of {most}, {same} of {}", text.len());
}

/// A request of a few kinds: prompts begin alike, replies are drawn in different ways.
fn request(kind: u64) -> CompletionRequest {
    let mut prompt = text(kind % 3, 20 + 17 * (kind % 4) as usize, 257);
    prompt.extend(text(kind, 1 + (kind % 19) as usize, 257));
    CompletionRequest {
        prompt,
        max_tokens: 1 + (kind % 37) as usize,
        temperature: [0.0, 0.7, 1.0][(kind % 3) as usize],
        top_p: [1.0, 0.9][(kind / 3 % 2) as usize],
        seed: kind / 5,
        stop: vec![['a', 'e', 'q'][(kind % 3) as usize].to_string()],
        constraints: if kind.is_multiple_of(2) { CONSTRAINTS.clone() } else { Arc::default() },
        caller: kind % 4,
    }
}

/// After an `i` or a `t` only these texts may follow. What follows `t` leaves a choice at its first letter alone.
static CONSTRAINTS: LazyLock<Arc<[Constraint]>> = LazyLock::new(|| {
    let constraint = |after: &str, grammar: &str| {
        let grammar = Grammar::new(grammar, &tokenizer()).unwrap();
        Constraint { after: after.to_owned(), grammar }
    };
    [constraint("i", r#"start: /[0-9]{1,9}/ "!""#), constraint("t", r#"start: "the end of it" | "over and done""#)]
        .into()
});

#[test]
fn a_grammar_holds_after_its_text_and_ends_the_completion() {
    let engine = engine(settings(WeightForm::F32));
    let (mut digits, mut forced) = (0, 0);
    for seed in 0..60 {
        let request = CompletionRequest {
            temperature: 1.0,
            seed,
            constraints: CONSTRAINTS.clone(),
            ..CompletionRequest::new(text(seed, 9, 257), 400)
        };
        let reply = engine.try_submit(request).unwrap().wait().unwrap();
        let Some(at) = reply.text.find(['i', 't']) else { continue };
        let (mark, said) = reply.text[at..].split_at(1);
        if reply.finish == FinishReason::Length {
            // The model's context ended first.
            assert!(said.len() < 13, "{said:?}");
            continue;
        }
        assert_eq!(reply.finish, FinishReason::Stop, "{reply:?}");
        assert_eq!(reply.tokens.len(), reply.logprobs.len());
        if mark == "i" {
            let number = said.strip_suffix('!').unwrap();
            assert!((1..=9).contains(&number.len()) && number.bytes().all(|it| it.is_ascii_digit()), "{said:?}");
            digits += 1;
        } else {
            assert!(["the end of it", "over and done"].contains(&said), "{said:?}");
            // All but the first letter were written without a choice, and read all the same.
            let (_, rest) = reply.logprobs.split_at(reply.logprobs.len() - (said.len() - 1));
            assert!(rest.iter().all(|logprob| *logprob == 0.0), "{rest:?}");
            forced += 1;
        }
    }
    assert!(digits > 5 && forced > 5, "{digits} and {forced}");
}

/// What has to be the same whatever else goes on.
fn essence(reply: Completion) -> (String, Vec<u32>, Vec<u32>, FinishReason, usize, usize) {
    let bits = reply.logprobs.iter().map(|it| it.to_bits()).collect();
    (reply.text, reply.tokens, bits, reply.finish, reply.usage.prompt, reply.usage.completion)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_request_gets_the_same_reply_whatever_is_beside_it(
        kinds in prop::collection::vec(0u64..1_000, 1..24),
        threads in 1usize..4,
        width in 1usize..10,
        chunk in 16usize..90,
        cache_tokens in 208usize..700,
        share in any::<bool>(),
        int8 in any::<bool>(),
    ) {
        let weights = if int8 { WeightForm::Int8 } else { WeightForm::F32 };
        let alone = engine(EngineSettings { width: 1, share: false, chunk: 256, ..settings(weights) });
        let threads = Arc::new(ThreadPool::new(threads));
        let crowded = engine(EngineSettings { threads, width, chunk, cache_tokens, share, ..settings(weights) });
        // Twice, so that the second time much is found in the cache.
        for _ in 0..2 {
            let pending: Vec<PendingCompletion> = kinds.iter().map(|kind| crowded.try_submit(request(*kind)).unwrap()).collect();
            for (kind, pending) in kinds.iter().zip(pending) {
                let expected = alone.try_submit(request(*kind)).unwrap().wait().unwrap();
                prop_assert_eq!(expected.usage.reused, 0);
                let found = pending.wait().unwrap();
                prop_assert!(share || found.usage.reused == 0);
                prop_assert!(found.usage.reused < found.usage.prompt);
                prop_assert_eq!(essence(found), essence(expected), "kind {}", kind);
                prop_assert!(crowded.status().cached_tokens <= cache_tokens);
            }
        }
        let status = settled(&crowded, |status| status.running == 0);
        prop_assert_eq!((status.waiting, status.read_tokens), (0, 0));
    }
}

/// Waits until an engine's status is as it should be; a test that waits too long fails.
fn settled(engine: &Engine, is_right: impl Fn(&EngineStatus) -> bool) -> EngineStatus {
    for _ in 0..20_000 {
        let status = engine.status();
        if is_right(&status) {
            return status;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("never: {:?}", engine.status());
}

/// A request that goes on for as long as the model can.
fn long(seed: u64) -> CompletionRequest {
    CompletionRequest { temperature: 1.0, seed, ..CompletionRequest::new(text(seed, 5, 257), 10_000) }
}

#[test]
fn beginnings_are_shared() {
    let engine = engine(settings(WeightForm::Int8));
    let prompt = text(5, 100, 257);
    let ask = |prompt: &[u32]| engine.try_submit(CompletionRequest::new(prompt.to_vec(), 2)).unwrap();
    let reused = |pending: PendingCompletion| pending.wait().unwrap().usage.reused;
    assert_eq!(reused(ask(&prompt)), 0);
    assert_eq!(reused(ask(&prompt)), 96);
    assert_eq!(reused(ask(&prompt[..97])), 96);
    // The last token is always read.
    assert_eq!(reused(ask(&prompt[..96])), 80);
    let mut other = prompt.clone();
    other[40] = (other[40] + 1) % 257;
    assert_eq!(reused(ask(&other)), 32);
    // Those that come together wait for the first of them.
    let fresh = text(6, 70, 257);
    let pending: Vec<PendingCompletion> = (0..5).map(|_| ask(&fresh)).collect();
    let mut all: Vec<usize> = pending.into_iter().map(reused).collect();
    all.sort_unstable();
    assert_eq!(all, [0, 64, 64, 64, 64]);
}

#[test]
fn a_cancelled_request_frees_its_place() {
    // The model ends no text by itself before its context is full, with so many seeds.
    let engine = engine(EngineSettings { width: 1, ..settings(WeightForm::Int8) });
    for round in 0..20 {
        let (first, second) = (engine.try_submit(long(round)).unwrap(), engine.try_submit(long(round + 100)).unwrap());
        drop(first);
        drop(second);
    }
    let status = settled(&engine, |status| status.running == 0 && status.waiting == 0);
    assert_eq!(status.read_tokens, 0);
    assert!(engine.try_submit(request(1)).unwrap().wait().is_ok());
}

#[test]
fn a_full_queue_refuses() {
    let engine = engine(EngineSettings { width: 1, queue: 2, ..settings(WeightForm::Int8) });
    let pending: Vec<Result<PendingCompletion, EngineError>> =
        (0..50).map(|seed| engine.try_submit(long(seed))).collect();
    let refused = pending.iter().filter_map(|pending| pending.as_ref().err());
    assert_eq!(refused.clone().next(), Some(&EngineError::QueueFull { waiting: 2 }));
    let count = refused.count();
    let served = pending.into_iter().flatten().map(PendingCompletion::wait).filter(Result::is_ok).count();
    assert_eq!(served + count, 50);
    assert!(engine.try_submit(long(0)).is_ok(), "there is room again");
}

#[test]
fn a_late_small_caller_is_not_starved() {
    let engine = engine(EngineSettings { width: 2, ..settings(WeightForm::Int8) });
    let big: Vec<PendingCompletion> = (0..3000).map(|seed| engine.try_submit(long(seed)).unwrap()).collect();
    let late = engine.try_submit(CompletionRequest { caller: 1, ..request(7) }).unwrap();
    late.wait().unwrap();
    assert!(engine.status().waiting > 2000, "{:?}", engine.status());
    drop(big);
}

#[test]
fn closing_an_engine_ends_all_requests() {
    let engine = engine(EngineSettings { width: 2, ..settings(WeightForm::Int8) });
    let pending: Vec<PendingCompletion> = (0..3000).map(|seed| engine.try_submit(long(seed)).unwrap()).collect();
    drop(engine);
    let closed = pending.into_iter().map(PendingCompletion::wait).filter(|it| *it == Err(EngineError::Closed));
    assert!(closed.count() > 1000);
}

#[test]
fn stop_strings_are_found_across_tokens() {
    let engine = engine(settings(WeightForm::Int8));
    // Bytes that are letters, so that the text is what the tokens say.
    let ask = |stop: Vec<String>, seed: u64| {
        let request =
            CompletionRequest { stop, seed, temperature: 1.0, ..CompletionRequest::new(vec![65, 66, 67], 60) };
        let told = Arc::new(std::sync::Mutex::new(String::new()));
        let pieces = Arc::clone(&told);
        let on_text: OnText = Box::new(move |piece| pieces.lock().unwrap().push_str(piece));
        let reply = engine.try_submit_streaming(request, Some(on_text)).unwrap().wait().unwrap();
        assert_eq!(*told.lock().unwrap(), reply.text, "the pieces are the text");
        reply
    };
    let mut found = 0;
    for seed in 0..40 {
        let whole = ask(Vec::new(), seed);
        let letters: Vec<char> = whole.text.chars().collect();
        // A token is a byte here: two letters are of two tokens.
        let pair = letters.windows(2).enumerate().skip(5).find(|(_, pair)| pair.iter().all(char::is_ascii));
        let Some((_, pair)) = pair else { continue };
        let stop: String = pair.iter().collect();
        let cut = ask(vec!["no such text".to_owned(), stop.clone()], seed);
        let (before, _) = whole.text.split_once(&stop).unwrap();
        assert_eq!((cut.text.as_str(), cut.finish), (before, FinishReason::StopString));
        assert_eq!(cut.tokens, whole.tokens[..cut.tokens.len()]);
        assert_eq!((cut.usage.completion, cut.logprobs.len()), (cut.tokens.len(), cut.tokens.len()));
        found += 1;
    }
    assert!(found > 20, "{found}");
}

#[test]
fn a_fingerprint_tells_models_apart() {
    let of = |family, weights| Engine::load(folder(family, true).0.path(), settings(weights)).unwrap().fingerprint();
    let print = of(ModelFamily::Qwen2, WeightForm::Int8);
    assert_eq!(print, of(ModelFamily::Qwen2, WeightForm::Int8));
    assert_ne!(print, of(ModelFamily::Qwen2, WeightForm::F32));
    assert_ne!(print, of(ModelFamily::Qwen3, WeightForm::Int8));
    // The same weights say something else with other figures.
    let (folder, config) = folder(ModelFamily::Qwen2, true);
    let other = ModelConfig { rope_theta: 2.0 * config.rope_theta, ..config };
    std::fs::write(folder.path().join("config.json"), other.to_json("float32")).unwrap();
    assert_ne!(print, Engine::load(folder.path(), settings(WeightForm::Int8)).unwrap().fingerprint());
}

#[test]
fn seeds_decide() {
    let engine = engine(settings(WeightForm::Int8));
    let ask = |seed| essence(engine.try_submit(CompletionRequest { seed, ..long(3) }).unwrap().wait().unwrap());
    assert_eq!(ask(1), ask(1));
    assert_ne!(ask(1).1, ask(2).1);
}

#[test]
fn replies_end_for_a_reason() {
    let engine = engine(settings(WeightForm::F32));
    let ask = |request: CompletionRequest| engine.try_submit(request).unwrap().wait().unwrap();
    let short = ask(CompletionRequest::new(vec![1, 2, 3], 4));
    assert_eq!(
        (short.finish, short.usage),
        (FinishReason::Length, CompletionUsage { prompt: 3, reused: 0, completion: 4 })
    );
    assert!(short.logprobs.iter().all(|it| *it <= 0.0) && (0.0..=1.0).contains(&short.confidence()));
    let ended = (0..200).map(|seed| ask(long(seed))).find(|reply| reply.finish == FinishReason::Stop).unwrap();
    assert_eq!(ended.tokens.last(), Some(&engine.tokenizer().end()));
    assert_eq!(ended.text, engine.tokenizer().decode(&ended.tokens));
    // The model reads 200 positions.
    let full = (0..200).map(|seed| ask(long(seed))).find(|reply| reply.finish == FinishReason::Length).unwrap();
    assert_eq!(full.usage.prompt + full.usage.completion, 200);
}

#[test]
fn what_cannot_be_served_is_refused() {
    let engine = engine(settings(WeightForm::Int8));
    let check = |request: CompletionRequest, expected: &str| {
        let error = engine.try_submit(request).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some(expected));
    };
    let long = "the prompt has 200 tokens, and at most 200 can be read and written together; shorten it";
    check(CompletionRequest::new(text(1, 200, 257), 5), long);
    check(CompletionRequest::new(vec![1, 260], 5), "token 260 of the prompt: the model knows 260");
    check(CompletionRequest::new(vec![], 5), "a prompt and its reply have at least one token each, got 0 and 5");
    check(CompletionRequest::new(vec![1], 0), "a prompt and its reply have at least one token each, got 1 and 0");
    let negative = "temperature and top_p must be at least 0, got -1 and 1";
    check(CompletionRequest { temperature: -1.0, ..CompletionRequest::new(vec![1], 1) }, negative);
    assert!(engine.try_submit(CompletionRequest { top_p: f32::NAN, ..CompletionRequest::new(vec![1], 1) }).is_err());
    let tiny = EngineSettings { cache_tokens: 16, ..settings(WeightForm::Int8) };
    assert!(Engine::load(folder(ModelFamily::Llama, true).0.path(), tiny).is_err());
    for huge in [usize::MAX, 1 << 50] {
        let wide = EngineSettings { width: huge, ..settings(WeightForm::Int8) };
        let cached = EngineSettings { cache_tokens: huge, ..settings(WeightForm::F32) };
        for settings in [wide, cached] {
            let error = Engine::load(folder(ModelFamily::Llama, true).0.path(), settings).err().unwrap();
            assert_eq!(error.to_string(), "there is no memory for the cache and the width asked for");
        }
    }
}

#[test]
fn damaged_weights_are_no_reply() {
    let (folder, config) = folder(ModelFamily::Qwen2, true);
    let path = folder.path().join("model.safetensors");
    let whole = std::fs::read(&path).unwrap();
    for form in [WeightForm::Int8, WeightForm::F32] {
        let mut damaged = whole.clone();
        let (start, end) = place(&whole, "model.layers.0.mlp.down_proj.weight");
        damaged[start..end].as_chunks_mut::<4>().0[37] = f32::NAN.to_le_bytes();
        std::fs::write(&path, &damaged).unwrap();
        let engine = Engine::load(folder.path(), settings(form)).unwrap();
        let reply = engine.try_submit(CompletionRequest::new(text(1, 20, config.vocabulary), 5)).unwrap().wait();
        assert_eq!(reply, Err(EngineError::NotNumbers), "{form:?}");
    }
}

/// Where the bytes of a tensor are in a file of weights.
fn place(file: &[u8], name: &str) -> (usize, usize) {
    let (length, metadata) = safetensors::SafeTensors::read_metadata(file).unwrap();
    let (start, end) = metadata.info(name).unwrap().data_offsets;
    (8 + length + start, 8 + length + end)
}

#[test]
fn a_device_that_fails_ends_all_requests() {
    let queue = Arc::new(crate::queue::RequestQueue::new(10));
    let pending: Vec<PendingCompletion> =
        (0..5).map(|at| queue.push(CompletionRequest::new(vec![at], 3), None).unwrap()).collect();
    let backend = crate::backend::Backend::Broken { batch: Batch::default() };
    let settings = EngineSettings { width: 2, ..settings(WeightForm::F32) };
    let cache_tokens = (64 * BLOCK).into();
    let gauges = Arc::new(crate::engine::Gauges { cache_tokens, ..Default::default() });
    Scheduler::new(backend, tokenizer(), queue.clone(), gauges, settings, 64).run();
    let failed = EngineError::Device("the GPU failed".to_owned());
    for pending in pending {
        assert_eq!(pending.wait(), Err(failed.clone()));
    }
    assert_eq!(queue.push(CompletionRequest::new(vec![1], 3), None).err(), Some(failed));
}

#[test]
fn an_engine_says_where_it_computes() {
    let on = |device| engine(EngineSettings { device, ..settings(WeightForm::F32) }).device().to_owned();
    assert_eq!(on(DeviceChoice::Cpu), "CPU");
    let auto = on(DeviceChoice::Auto);
    let with_reason = auto.starts_with("CPU; no GPU: ") && auto.contains("hint:");
    assert!(with_reason || auto.starts_with("GPU "), "{auto}");
}

/// A waker that has the engine, and lets go of it where it is woken: in the engine's own thread.
struct Owner {
    engine: std::sync::Mutex<Option<Engine>>,
    is_free: std::sync::atomic::AtomicBool,
}

impl std::task::Wake for Owner {
    fn wake(self: Arc<Self>) {
        drop(self.engine.lock().unwrap().take());
        self.is_free.store(true, Ordering::Release);
    }
}

#[test]
fn an_engine_may_be_dropped_in_its_own_thread() {
    let engine = engine(EngineSettings { width: 1, ..settings(WeightForm::Int8) });
    // Enough before it that it is still waited for when it is asked after.
    let _before: Vec<PendingCompletion> = (0..300).map(|seed| engine.try_submit(long(seed)).unwrap()).collect();
    let mut pending = engine.try_submit(long(1)).unwrap();
    let owner = Arc::new(Owner { engine: std::sync::Mutex::new(Some(engine)), is_free: false.into() });
    let waker = std::task::Waker::from(owner.clone());
    let asked = std::pin::Pin::new(&mut pending).poll(&mut std::task::Context::from_waker(&waker));
    assert!(asked.is_pending());
    for _ in 0..20_000 {
        if owner.is_free.load(Ordering::Acquire) {
            return assert!(pending.wait().is_ok());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the engine's thread never came back from dropping the engine");
}
