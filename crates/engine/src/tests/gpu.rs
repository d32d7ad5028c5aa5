//! The engine on a GPU against the engine on the CPU. Without a GPU the tests say that they were skipped.

use super::*;
use crate::gpu::GpuRunner;
use lemon_gpu::Device;

/// The largest distance of the logits of one position. bf16 has 8 bits: 0.029 was seen with the models of these tests, and 0.058
/// with SmolLM2-135M. What is computed wrongly is further away than this.
const BOUND: f64 = 0.1;

fn gpu() -> Option<Arc<Device>> {
    match Device::open() {
        Ok(device) => Some(device),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

fn on_gpu() -> EngineSettings {
    EngineSettings { device: DeviceChoice::Cuda, ..settings(WeightForm::F32) }
}

/// The logits of all positions of a text, read in one step, and the largest relative distance of a position.
fn distance(device: &Arc<Device>, config: &ModelConfig, origin: &WeightOrigin<'_>, text: &[u32]) -> f64 {
    let exact = served_logits(config, origin, text, WeightForm::F32);
    let (mut runner, _) = GpuRunner::new(device, config, origin, &mut on_gpu()).unwrap();
    let blocks = text.len().div_ceil(BLOCK) as u32;
    let rows = (0..).zip(text).map(|(position, token)| Row { token: *token, position, blocks: 0 }).collect();
    let greedy = SamplingParams { temperature: 0.0, top_p: 1.0, seed: 0, position: 0, mask: None };
    let samples = (0..text.len() as u32).map(|row| (row, greedy)).collect();
    let found = runner.logits_of(&Batch { rows, blocks: (0..blocks).collect(), samples, ..Batch::default() });
    let size = |values: &mut dyn Iterator<Item = f32>| values.map(|it| f64::from(it).powi(2)).sum::<f64>().sqrt();
    let distance = |(found, exact): (&Vec<f32>, &Vec<f32>)| {
        size(&mut found.iter().zip(exact).map(|(a, b)| a - b)) / size(&mut exact.iter().copied())
    };
    found.iter().zip(&exact).map(distance).fold(0.0, f64::max)
}

/// A model that the kernels can run, in a folder.
fn checkpoint(family: ModelFamily) -> (tempfile::TempDir, ModelConfig) {
    let (folder, config) = folder(family, true);
    let config = ModelConfig { head_dim: 32, heads: 6, kv_heads: 2, ..config };
    std::fs::write(folder.path().join("config.json"), config.to_json("float32")).unwrap();
    let tensor = |(name, shape): (String, Vec<usize>)| {
        let scale = if name.ends_with("norm.weight") { 0.1 } else { 0.2 };
        let offset = if name.ends_with("norm.weight") { 1.0 } else { 0.0 };
        let values = Random::named(3, &name).normals(shape.iter().product(), scale).into_iter().map(|it| it + offset);
        (name, shape, values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>())
    };
    let tensors: Vec<_> = config.tensor_shapes().into_iter().map(tensor).collect();
    let views =
        tensors.iter().map(|(name, shape, bytes)| (name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    std::fs::write(folder.path().join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    (folder, config)
}

#[test]
fn logits_are_those_of_the_cpu() {
    let Some(device) = gpu() else { return };
    for family in [ModelFamily::Qwen2, ModelFamily::Qwen3, ModelFamily::Llama] {
        let (folder, config) = checkpoint(family);
        let origin = WeightOrigin::Files(ModelFiles::Disk(folder.path()));
        let found = distance(&device, &config, &origin, &text(9, 60, 257));
        println!("{family:?}: {found:.2e}");
        assert!(found < BOUND, "{family:?}: {found}");
    }
}

/// The published models of the folder `LEMON_REAL_MODELS`.
#[test]
fn logits_of_real_models_are_those_of_the_cpu() {
    let (Some(device), Some(models)) = (gpu(), std::env::var_os("LEMON_REAL_MODELS")) else {
        return println!("skipped: expected a GPU and LEMON_REAL_MODELS");
    };
    for entry in std::fs::read_dir(models).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|it| it != "gguf") {
            continue;
        }
        let files = ModelFiles::Disk(&path);
        let config = ModelConfig::load(files).unwrap();
        let tokenizer = Tokenizer::read(files).unwrap();
        let words = "The tide comes in twice a day because the moon pulls at the sea. A lighthouse keeper writes: ";
        let text = tokenizer.encode(&words.repeat(6));
        let found = distance(&device, &config, &WeightOrigin::Files(files), &text);
        println!("{}: {} positions, {found:.2e}", path.display(), text.len());
        assert!(found < BOUND, "{}: {found}", path.display());
    }
}

#[test]
fn completions_are_whole_and_share_prefixes() {
    if gpu().is_none() {
        return;
    }
    let (folder, config) = checkpoint(ModelFamily::Qwen3);
    let engine = Engine::load(folder.path(), on_gpu()).unwrap();
    let ask = |prompt: Vec<u32>, seed| {
        let request = CompletionRequest { seed, temperature: 0.8, ..CompletionRequest::new(prompt, 40) };
        engine.try_submit(request).unwrap()
    };
    let long = text(5, 100, 257);
    let first = ask(long.clone(), 1).wait().unwrap();
    assert_eq!((first.usage.reused, first.tokens.len()), (0, first.logprobs.len()));
    assert!(first.tokens.iter().all(|token| (*token as usize) < config.vocabulary));
    assert_eq!(ask(long, 1).wait().unwrap().usage.reused, 96);
    // More requests than places, of many lengths, cancelled or not.
    let pending: Vec<PendingCompletion> = (0..1_200).map(|at| ask(text(at, 1 + at as usize % 150, 257), at)).collect();
    let mut done = 0;
    for (at, pending) in pending.into_iter().enumerate() {
        if at % 7 != 3 {
            let reply = pending.wait().unwrap();
            assert!(!reply.tokens.is_empty() && reply.logprobs.iter().all(|it| *it <= 1e-3), "{reply:?}");
            done += 1;
        }
    }
    assert!(done > 1_000);
    let status = settled(&engine, |status| status.running == 0 && status.waiting == 0);
    assert_eq!(status.read_tokens, 0);
}

#[test]
fn damaged_weights_are_no_reply_and_odd_shapes_are_refused() {
    let Some(device) = gpu() else { return };
    let (folder, _) = folder(ModelFamily::Llama, true);
    // Heads of 18 numbers: the kernels cannot run them, the CPU can.
    let error = Engine::load(folder.path(), on_gpu()).err().unwrap().to_string();
    assert!(error.contains("18") && error.contains("hint: use the CPU"), "{error}");
    let auto = EngineSettings { device: DeviceChoice::Auto, ..settings(WeightForm::F32) };
    assert!(Engine::load(folder.path(), auto).unwrap().try_submit(request(1)).unwrap().wait().is_ok());
    let (folder, config) = checkpoint(ModelFamily::Llama);
    let huge = EngineSettings { cache_tokens: 1 << 32, ..on_gpu() };
    let error = Engine::load(folder.path(), huge).err().unwrap().to_string();
    assert!(error.contains("free GPU memory for keys and values"), "{error}");
    let path = folder.path().join("model.safetensors");
    let mut damaged = std::fs::read(&path).unwrap();
    let (start, end) = place(&damaged, "model.layers.0.mlp.down_proj.weight");
    damaged[start..end].as_chunks_mut::<4>().0[37] = f32::NAN.to_le_bytes();
    std::fs::write(&path, &damaged).unwrap();
    let engine = Engine::load(folder.path(), on_gpu()).unwrap();
    let reply = engine.try_submit(CompletionRequest::new(text(1, 20, config.vocabulary), 5)).unwrap().wait();
    assert_eq!(reply, Err(EngineError::NotNumbers));
    drop(device);
}
