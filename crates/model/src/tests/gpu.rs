//! A policy on a GPU against the same one on the CPU, in f32 and with composed operations. Without a GPU the tests say so and pass;
//! `crates/gpu/emulator` runs them on a CPU.

use super::*;
use crate::StepReport;

/// The same model on both; `None`: there is no GPU.
fn pair(learning: Learning) -> Option<[LanguagePolicy; 2]> {
    let make = |device| {
        let tokenizer = tokenizer();
        let small = ModelConfig::small(260, 64, 2, tokenizer.end());
        let config = ModelConfig { positions: 128, heads: 4, kv_heads: 2, head_dim: 16, ..small };
        LanguagePolicy::fresh(config, tokenizer, 11, device, learning)
    };
    match make(DeviceChoice::Cuda) {
        Ok(gpu) => Some([gpu, make(DeviceChoice::Cpu).unwrap()]),
        Err(PolicyError::Device(why)) => {
            println!("skipped: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn alike(a: f64, b: f64, share: f64) -> bool {
    (a - b).abs() <= share * a.abs().max(b.abs()).max(1e-2)
}

/// Two texts that continue one prompt, and others.
fn texts() -> Vec<Example> {
    let mut examples = lesson();
    examples.insert(1, likelihood("one", "ein anderes"));
    examples
}

fn losses_fall_alike(learning: Learning) {
    let Some(mut policies) = pair(learning) else { return };
    let sequences: Vec<Sequence> = texts().into_iter().map(|example| example.sequence).collect();
    let steps = [0, 2, 3].map(|micro_batch| StepSettings { micro_batch, ..STEP });
    for settings in steps {
        let [gpu, cpu]: [StepReport; 2] = policies.each_mut().map(|policy| policy.update(&texts(), &settings).unwrap());
        assert_eq!((gpu.tokens, gpu.skipped), (cpu.tokens, cpu.skipped));
        assert!(alike(gpu.loss, cpu.loss, 2e-2), "{gpu:?} {cpu:?}");
        assert!(alike(gpu.gradient_norm, cpu.gradient_norm, 5e-2), "{gpu:?} {cpu:?}");
        assert!(alike(gpu.entropy, cpu.entropy, 2e-2), "{gpu:?} {cpu:?}");
    }
    let [gpu, cpu] = policies.each_ref().map(|policy| policy.score(&sequences, 0.9).unwrap().concat());
    for (gpu, cpu) in gpu.iter().zip(&cpu) {
        assert!((gpu - cpu).abs() < 0.15, "{gpu} {cpu}");
    }
    // What is saved is what was trained, and the state goes on where it was.
    let [gpu, _] = policies;
    let folder = tempfile::tempdir().unwrap();
    gpu.save_state(folder.path()).unwrap();
    let [mut again, mut on_cpu] = pair(learning).unwrap();
    again.load_state(folder.path()).unwrap();
    on_cpu.load_state(folder.path()).unwrap();
    let mut gpu = gpu;
    let reports = [&mut gpu, &mut again, &mut on_cpu].map(|policy| {
        policy.update(&texts(), &STEP).unwrap();
        policy.update(&texts(), &STEP).unwrap()
    });
    assert!(alike(reports[0].loss, reports[1].loss, 1e-3), "{reports:?}");
    assert!(alike(reports[0].loss, reports[2].loss, 2e-2), "{reports:?}");
}

#[test]
fn whole_models_learn_as_on_the_cpu() {
    losses_fall_alike(Learning::Everything);
}

#[test]
fn adapters_learn_as_on_the_cpu() {
    losses_fall_alike(Learning::Adapters(LoraSettings { rank: 4, alpha: 8.0 }));
}

#[test]
fn a_gpu_writes_what_it_scores_and_follows_what_it_learns() {
    let Some([mut gpu, _]) = pair(Learning::Everything) else { return };
    let requests: Vec<SampleRequest> = (0..3).map(|seed| request(seed, "Say something")).collect();
    let settings = SampleSettings { most_tokens: 6, temperature: 0.8, top_p: 1.0 };
    for _ in 0..2 {
        let samples = gpu.sample(&requests, &settings).unwrap();
        let sequence = |(request, sample): (&SampleRequest, &crate::Sample)| Sequence {
            prompt: request.prompt.clone(),
            tokens: sample.tokens.clone(),
            grammar: None,
        };
        let sequences: Vec<Sequence> = requests.iter().zip(&samples).map(sequence).collect();
        let scores = gpu.score(&sequences, 0.8).unwrap();
        for (sample, scores) in samples.iter().zip(&scores) {
            assert_eq!(sample.logprobs.len(), scores.len());
            for (written, scored) in sample.logprobs.iter().zip(scores) {
                assert!((written - scored).abs() < 0.1, "{written} {scored}");
            }
        }
        gpu.update(&lesson(), &STEP).unwrap();
    }
}
