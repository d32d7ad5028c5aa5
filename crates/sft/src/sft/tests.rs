use super::*;
use lemon_model::{DeviceChoice, Learning, ModelConfig, Tokenizer};

fn policy() -> LanguagePolicy {
    let tokenizer = Tokenizer::train(std::iter::empty(), 257, &["<|end|>"]).unwrap();
    let config = ModelConfig { positions: 64, ..ModelConfig::small(257, 32, 1, tokenizer.end()) };
    LanguagePolicy::fresh(config, tokenizer, 1, DeviceChoice::Cpu, Learning::Everything).unwrap()
}

fn pair(prompt: &str, text: &str) -> TokenizedPair {
    let tokens = text.bytes().map(u32::from).chain([200]).collect();
    TokenizedPair { prompt: prompt.bytes().map(u32::from).collect(), tokens }
}

fn pairs() -> Vec<TokenizedPair> {
    (0..20).map(|number| pair(&format!("{number} and one"), &format!("{}", number + 1))).collect()
}

const SETTINGS: SftSettings = SftSettings {
    seed: 5,
    steps: 24,
    batch: 6,
    micro_batch: 0,
    learning_rate: 3e-3,
    warm_up: 4,
    final_rate: 0.1,
    clip_norm: 1.0,
    optimiser: OptimiserSettings { beta1: 0.9, beta2: 0.98, epsilon: 1e-8, weight_decay: 0.01, muon: None },
    eval_every: 5,
    patience: 0,
};

fn run(folder: &Path, settings: &SftSettings, stop_after: u64) -> Result<(Learned, Vec<SftMetrics>), SftError> {
    let mut seen = Vec::new();
    let all = pairs();
    let learned = sft(
        &mut policy(),
        &all[..16],
        &all[16..],
        settings,
        folder,
        |_| Ok(None),
        |metrics| {
            seen.push(metrics.clone());
            metrics.step < stop_after
        },
    )?;
    Ok((learned, seen))
}

#[test]
fn a_run_that_was_broken_off_ends_with_the_same_bits() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (learned, seen) = run(whole.path(), &SETTINGS, u64::MAX).unwrap();
    assert!(seen.last().unwrap().loss < seen[0].loss);
    // Broken off between checkpoints, right at one, and before the first.
    for stop in [3, 7, 15, 18] {
        run(parts.path(), &SETTINGS, stop).unwrap();
    }
    let (again, _) = run(parts.path(), &SETTINGS, u64::MAX).unwrap();
    assert_eq!(learned, again);
    let read = |folder: &Path, name: &str| std::fs::read(folder.join(name)).unwrap();
    for name in ["metrics.jsonl", "best/model.safetensors", "checkpoint-00000024/model.safetensors"] {
        assert!(read(whole.path(), name) == read(parts.path(), name), "{name}");
    }
    // A run that has ended does nothing more.
    assert_eq!(run(parts.path(), &SETTINGS, u64::MAX).unwrap(), (learned, Vec::new()));
}

#[test]
fn a_half_written_checkpoint_is_not_one() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &SETTINGS, 12).unwrap();
    let part = folder.path().join("checkpoint.part");
    std::fs::create_dir(&part).unwrap();
    std::fs::write(part.join("model.safetensors"), b"half").unwrap();
    let metrics = folder.path().join("metrics.jsonl");
    let mut torn = std::fs::read_to_string(&metrics).unwrap();
    torn.push_str("{\"step\": 13, \"lo");
    std::fs::write(&metrics, torn).unwrap();
    let (_, seen) = run(folder.path(), &SETTINGS, u64::MAX).unwrap();
    assert_eq!(seen[0].step, 11);
    let lines = std::fs::read_to_string(&metrics).unwrap();
    let steps: Vec<u64> = lines.lines().map(|line| serde_json::from_str::<SftMetrics>(line).unwrap().step).collect();
    assert_eq!(steps, (1..=24).collect::<Vec<_>>());
}

#[test]
fn a_folder_belongs_to_one_run() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &SETTINGS, 2).unwrap();
    let other = SftSettings { seed: 6, ..SETTINGS };
    let error = run(folder.path(), &other, 2).unwrap_err().to_string();
    assert!(error.ends_with("run.json: the run here was begun with other settings; take another folder"), "{error}");
}

#[test]
fn it_stops_when_it_no_longer_helps() {
    let folder = tempfile::tempdir().unwrap();
    // So high a rate that the model only gets worse.
    let wild = SftSettings { learning_rate: 2.0, patience: 2, eval_every: 2, steps: 200, warm_up: 1, ..SETTINGS };
    let (learned, _) = run(folder.path(), &wild, u64::MAX).unwrap();
    assert!(learned.stopped_early && learned.steps < 200, "{learned:?}");
    assert_eq!(learned.steps, learned.best_step + 4);
}

#[test]
fn the_rate_rises_and_falls() {
    let settings = SftSettings { steps: 110, warm_up: 10, learning_rate: 1.0, final_rate: 0.2, ..SETTINGS };
    let close = |step: u64, rate: f64| assert!((settings.rate(step) - rate).abs() < 1e-12, "{step}");
    close(1, 0.1);
    close(10, 1.0);
    close(60, 0.6);
    close(110, 0.2);
}

#[test]
fn every_pass_has_every_lesson_once() {
    let settings = SftSettings { batch: 7, ..SETTINGS };
    let drawn: Vec<usize> = (1..=10).flat_map(|step| batch(10, &settings, step)).collect();
    assert_eq!(drawn.len(), 70);
    for pass in drawn.chunks(10) {
        let mut sorted = pass.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..10).collect::<Vec<_>>());
    }
    assert_ne!(drawn[..10], drawn[10..20]);
}

#[test]
fn old_keys_are_read_and_written() {
    let settings: SftSettings = serde_json::from_str(r#"{"eval_every": 7}"#).unwrap();
    assert_eq!(serde_json::from_str::<SftSettings>(r#"{"look_every": 7}"#).unwrap(), settings);
    assert_eq!(serde_json::to_value(&settings).unwrap()["look_every"], 7);
    let line = |key: &str| {
        format!(r#"{{"step": 1, "loss": 1.0, "gradient_norm": 1.0, "learning_rate": 1.0, "{key}": {{"loss": 2.0}}}}"#)
    };
    let metrics: SftMetrics = serde_json::from_str(&line("eval")).unwrap();
    assert_eq!(serde_json::from_str::<SftMetrics>(&line("look")).unwrap(), metrics);
    assert_eq!(serde_json::to_value(&metrics).unwrap()["look"]["loss"], 2.0);
}
