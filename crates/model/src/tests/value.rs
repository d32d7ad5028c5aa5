//! The head: its gradient, what it learns, and that a text says the same alone and behind a shared prompt.

use super::*;
use crate::value::{ValueExample, ValueModel, ValueTarget, ValueText};

fn head(seed: u64, learning: Learning) -> ValueModel {
    let tokenizer = tokenizer();
    let config = ModelConfig { positions: 128, ..ModelConfig::small(260, 32, 2, tokenizer.end()) };
    ValueModel::fresh(config, tokenizer, seed, learning).unwrap()
}

fn example(prompt: &str, text: &str, targets: &[(usize, f64, f64)]) -> ValueExample {
    let tokens = tokenizer().encode_plain(text);
    let at = targets.iter().map(|(at, ..)| *at).collect();
    let target = |(_, success, cost): &(usize, f64, f64)| ValueTarget { success: *success, cost: *cost, weight: 0.5 };
    let targets = targets.iter().map(target).collect();
    ValueExample { prompt: tokenizer().encode_plain(prompt), text: ValueText { tokens, at }, targets }
}

fn lesson() -> Vec<ValueExample> {
    vec![
        example("one", "eins", &[(0, 0.9, 1.0), (4, 0.1, -1.0)]),
        example("two", "zwei", &[(2, 0.3, 0.5)]),
        example("three", "", &[(0, 0.7, 0.0)]),
    ]
}

const STEP: StepSettings = StepSettings { learning_rate: 3e-3, temperature: 1.0, clip_norm: 1.0, micro_batch: 0 };

/// A step of no length reports the loss and the norm of its gradient.
const STILL: StepSettings = StepSettings { learning_rate: 0.0, ..STEP };

#[test]
fn the_gradient_is_that_of_the_loss() {
    // A first step moves the head off zero, so that the model has a gradient too.
    let mut head = head(1, Learning::Everything);
    (0..5).for_each(|_| assert!(!head.update(&lesson(), &STEP).unwrap().skipped));
    let (loss, gradients) = head.loss_and_gradients(&lesson()).unwrap();
    let mut checked = 0;
    for name in ["value_head.weight", "value_head.bias", "model.layers.0.mlp.down_proj.weight", "model.norm.weight"] {
        let gradient = gradients[name].flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let place = (0..gradient.len()).max_by(|a, b| gradient[*a].abs().total_cmp(&gradient[*b].abs())).unwrap();
        let moved = |head: &mut ValueModel, by: f32| {
            let var = head.parameters().var(name).unwrap().clone();
            let mut values = var.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            values[place] += by;
            var.set(&Tensor::from_vec(values, var.dims(), &Device::Cpu).unwrap()).unwrap();
        };
        let step = 1e-2;
        moved(&mut head, step);
        let above = head.loss_and_gradients(&lesson()).unwrap().0;
        moved(&mut head, -2.0 * step);
        let below = head.loss_and_gradients(&lesson()).unwrap().0;
        moved(&mut head, step);
        let slope = (above - below) / (2.0 * f64::from(step));
        let found = f64::from(gradient[place]);
        assert!((found - slope).abs() < 0.02 * slope.abs().max(1e-3), "{name}: {found} {slope}");
        checked += 1;
    }
    assert!(loss > 0.0 && checked == 4);
}

#[test]
fn a_head_learns_by_heart_and_a_frozen_model_stays() {
    let mut learned = head(2, Learning::Everything);
    for _ in 0..250 {
        learned.update(&lesson(), &STEP).unwrap();
    }
    for example in lesson() {
        let found = learned.read(&example.prompt, &[example.text]).unwrap();
        for (reading, target) in found[0].iter().zip(&example.targets) {
            let success = lemon_num::logistic(reading.logit);
            assert!((success - target.success).abs() < 0.05 && (reading.cost - target.cost).abs() < 0.1, "{reading:?}");
        }
    }
    let mut frozen = head(3, Learning::Nothing);
    let first = frozen.update(&lesson(), &STEP).unwrap();
    let before = frozen.read(&[1], &[ValueText { tokens: vec![2], at: vec![1] }]).unwrap();
    for _ in 0..50 {
        frozen.update(&lesson(), &STEP).unwrap();
    }
    let after = frozen.read(&[1], &[ValueText { tokens: vec![2], at: vec![1] }]).unwrap();
    assert_eq!(before[0][0].state, after[0][0].state);
    assert!(frozen.update(&lesson(), &STILL).unwrap().loss < 0.8 * first.loss);
}

#[test]
fn texts_behind_one_prompt_are_read_as_each_alone() {
    let mut head = head(4, Learning::Everything);
    head.update(&lesson(), &STEP).unwrap();
    let prompt = tokenizer().encode_plain("A task?");
    let text = |text: &str, at: &[usize]| ValueText { tokens: tokenizer().encode_plain(text), at: at.to_vec() };
    let texts = [text("a long team", &[0, 3, 11]), text("short", &[5]), text("", &[0]), text("a long one", &[3, 10])];
    let together = head.read(&prompt, &texts).unwrap();
    for (text, found) in texts.iter().zip(&together) {
        assert_eq!(&head.read(&prompt, std::slice::from_ref(text)).unwrap()[0], found);
    }
    assert_eq!(together[0][0], together[2][0], "both are read before any token");
    assert_eq!(together[0][1], together[3][0], "both begin with the same tokens");
    // Before a step is taken its loss is that of the readings.
    let example = ValueExample {
        targets: vec![ValueTarget { success: 0.2, cost: 2.0, weight: 1.0 }],
        prompt: prompt.clone(),
        text: texts[1].clone(),
    };
    let reading = &together[1][0];
    let expected = (1.0 + reading.logit.exp()).ln() - 0.2 * reading.logit + 0.5 * (reading.cost - 2.0).powi(2);
    assert!((head.update(&[example], &STILL).unwrap().loss - expected).abs() < 1e-5);
}

#[test]
fn a_head_is_saved_with_its_model_and_mistakes_are_refused() {
    let mut head = head(5, Learning::Everything);
    head.update(&lesson(), &STEP).unwrap();
    let folder = tempfile::tempdir().unwrap();
    head.save(folder.path()).unwrap();
    let (prompt, text) = (vec![1, 2], ValueText { tokens: vec![3, 4], at: vec![0, 2] });
    let loaded = ValueModel::load(folder.path(), Learning::Nothing).unwrap();
    assert_eq!(head.read(&prompt, std::slice::from_ref(&text)).unwrap(), loaded.read(&prompt, &[text]).unwrap());
    // A folder without a head has a new one, which says 0.
    let plain = tempfile::tempdir().unwrap();
    small(5).save(plain.path(), Precision::F32).unwrap();
    let new = ValueModel::load(plain.path(), Learning::Nothing).unwrap();
    let reading = new.read(&prompt, &[ValueText { tokens: vec![3], at: vec![1] }]).unwrap().remove(0).remove(0);
    assert_eq!((reading.logit, reading.cost), (0.0, 0.0));
    assert_eq!(small(5).states(&prompt, &ValueText { tokens: vec![3], at: vec![1] }).unwrap()[0], reading.state);
    let refused =
        |tokens: Vec<u32>, at: Vec<usize>| new.read(&[1], &[ValueText { tokens, at }]).unwrap_err().to_string();
    assert_eq!(refused(vec![1], vec![2]), "position 2 of a text of 1 tokens");
    assert_eq!(refused(vec![4_000], vec![1]), "the model has no token 4000");
    assert_eq!(refused(vec![1; 128], vec![1]), "a text of 129 tokens, 1 of them prompt; from 1 to 128 can be read");
    let mut short = lesson();
    short[0].targets.pop();
    assert_eq!(head.update(&short, &STEP).unwrap_err().to_string(), "1 targets for 2 positions");
    let mut bad = lesson();
    bad[0].targets[0].cost = f64::NAN;
    assert!(head.update(&bad, &STEP).unwrap().skipped);
}
