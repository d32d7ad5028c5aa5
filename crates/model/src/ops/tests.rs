use super::selfcheck::{ScalarAdamW, relative_error, targets_and_mask, visible};
use super::*;
use crate::simd;
use candle_core::{DType, Device, Tensor, Var};
use lemon_num::Random;
use proptest::prelude::*;

#[test]
fn fused_operations_equal_composed_ones_in_f64() {
    let checks = selfcheck(&Device::Cpu, DType::F32).unwrap();
    assert!(checks.len() > 100, "only {} comparisons", checks.len());
    for Check { name, error } in checks {
        let most = if name.contains("gradient") { 1e-5 } else { 1e-6 };
        assert!(error <= most, "{name}: {error:.2e}");
    }
}

#[test]
fn errors_are_relative_and_show_what_is_no_number() {
    let cases: [(&[f64], &[f64], f64); 7] = [
        (&[1.0, 2.0], &[1.0, 2.0], 0.0),
        (&[3.0, 4.5], &[3.0, 4.0], 0.1),
        (&[0.5], &[0.0], 0.5),
        (&[f64::NEG_INFINITY, 1.0], &[f64::NEG_INFINITY, 1.0], 0.0),
        (&[f64::NEG_INFINITY], &[1.0], f64::INFINITY),
        (&[f64::NAN], &[1.0], f64::INFINITY),
        (&[f64::NAN], &[f64::NAN], f64::INFINITY),
    ];
    for (found, truth, error) in cases {
        assert_eq!(relative_error(found, truth), error, "{found:?} for {truth:?}");
    }
}

/// Compares the gradients of a fused operation with the differences that small steps make to the composed one in `f64`.
fn check_gradients<const N: usize>(
    inputs: [Tensor; N],
    fused: impl Fn([&Tensor; N]) -> Result<Tensor>,
    composed: impl Fn([&Tensor; N]) -> Result<Tensor>,
) {
    let vars = inputs.each_ref().map(|input| Var::from_tensor(input).unwrap());
    let result = fused(vars.each_ref().map(Var::as_tensor)).unwrap();
    let cotangent = draw(&mut Random::new(7), result.dims());
    let grads = (&result * &cotangent).unwrap().sum_all().unwrap().backward().unwrap();

    let wide = |tensor: &Tensor| tensor.to_dtype(DType::F64).unwrap();
    let loss = |inputs: &[Tensor; N]| {
        let result = composed(inputs.each_ref()).unwrap();
        (result * wide(&cotangent)).unwrap().sum_all().unwrap().to_scalar::<f64>().unwrap()
    };
    const STEP: f64 = 1e-5;
    for (which, var) in vars.iter().enumerate() {
        let mut point = inputs.each_ref().map(wide);
        let (start, shape) = (values(&point[which]), inputs[which].shape().clone());
        let slopes = (0..start.len()).map(|at| {
            let mut at_distance = |distance| {
                let mut moved = start.clone();
                moved[at] += distance;
                point[which] = Tensor::from_vec(moved, &shape, &Device::Cpu).unwrap();
                loss(&point)
            };
            (at_distance(STEP) - at_distance(-STEP)) / (2.0 * STEP)
        });
        let error = relative_error(&values(grads.get(var).unwrap()), &slopes.collect::<Vec<_>>());
        assert!(error < 1e-5, "gradient {which}: {error:.2e}");
    }
}

#[test]
fn gradients_are_the_slopes() {
    let mut random = Random::new(3);
    let mut input = |shape: &[usize]| draw(&mut random, shape);
    check_gradients(
        [input(&[3, 2, 19]), input(&[19])],
        |[x, w]| rms_norm(x, w, 1e-3),
        |[x, w]| composed::rms_norm(x, w, 1e-3),
    );
    check_gradients(
        [input(&[4, 9]), input(&[4, 9])],
        |[gate, up]| swiglu(gate, up),
        |[gate, up]| composed::swiglu(gate, up),
    );
    let (cos, sin) = (input(&[6, 5]), input(&[6, 5]));
    check_gradients([input(&[2, 3, 2, 10])], |[x]| rotary(x, &cos, &sin), |[x]| composed::rotary(x, &cos, &sin));
    let visible = Tensor::new(&[[[0u32, 9], [2, 5], [4, 4], [8, 20]]], &Device::Cpu).unwrap();
    check_gradients(
        [input(&[1, 2, 4, 9])],
        |[s]| masked_softmax(s, &visible, 0.7),
        |[s]| composed::masked_softmax(s, &visible, 0.7),
    );
    let targets = Tensor::new(&[3u32, 34, 0], &Device::Cpu).unwrap();
    let allowed = Tensor::new(&[[0xffu32, 0], [0xf0f0_f0f0, 6], [1, 0]], &Device::Cpu).unwrap();
    for allowed in [None, Some(&allowed)] {
        check_gradients(
            [input(&[3, 35])],
            |[x]| gathered_logprob(x, &targets, allowed, 0.8),
            |[x]| composed::gathered_logprob(x, &targets, allowed, 0.8),
        );
    }
}

/// Runs an operation forward and backward on all rows of its inputs at once and on each row alone, and demands the same
/// bits of the results and of the gradients.
fn check_rows<const N: usize>(inputs: [Tensor; N], op: impl Fn([&Tensor; N], Option<usize>) -> Result<Tensor>) {
    let run = |inputs: [Tensor; N], row: Option<usize>| {
        let vars = inputs.map(|input| Var::from_tensor(&input).unwrap());
        let result = op(vars.each_ref().map(Var::as_tensor), row).unwrap();
        let grads = result.sqr().unwrap().sum_all().unwrap().backward().unwrap();
        let grads = vars.each_ref().map(|var| grads.get(var).unwrap().clone());
        grads.into_iter().chain([result]).collect::<Vec<_>>()
    };
    let together = run(inputs.each_ref().map(Tensor::clone), None);
    for row in 0..inputs[0].dim(0).unwrap() {
        let alone = run(inputs.each_ref().map(|input| input.narrow(0, row, 1).unwrap()), Some(row));
        for (together, alone) in together.iter().zip(alone) {
            assert_eq!(bits(&together.narrow(0, row, 1).unwrap()), bits(&alone), "row {row}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_row_does_not_depend_on_others(rows in 1usize..40, width in 1usize..300, seed: u64) {
        let random = &mut Random::new(seed);
        let weight = draw(random, &[width]);
        check_rows([draw(random, &[rows, width])], |[x], _| rms_norm(x, &weight, 1e-6));
        check_rows([draw(random, &[rows, width]), draw(random, &[rows, width])], |[gate, up], _| swiglu(gate, up));

        let (cos, sin) = (draw(random, &[rows, width]), draw(random, &[rows, width]));
        check_rows([draw(random, &[rows, 1, 2, 2 * width])], |[x], row| {
            rotary(x, &part(&cos, row), &part(&sin, row))
        });
        let visible = Tensor::from_vec(visible(random, rows, width), (rows, 1, 2), &Device::Cpu).unwrap();
        check_rows([draw(random, &[rows, 3, 1, width])], |[x], row| masked_softmax(x, &part(&visible, row), 0.3));

        let (targets, mask) = targets_and_mask(random, rows, width);
        let targets = Tensor::from_vec(targets, rows, &Device::Cpu).unwrap();
        let mask = Tensor::from_vec(mask, (rows, width.div_ceil(32)), &Device::Cpu).unwrap();
        let logits = draw(random, &[rows, width]);
        check_rows([logits.clone()], |[x], row| gathered_logprob(x, &part(&targets, row), None, 0.9));
        // As probabilities, because minus infinity has no square.
        check_rows([logits], |[x], row| {
            gathered_logprob(x, &part(&targets, row), Some(&part(&mask, row)), 0.9)?.exp()
        });
    }

    #[test]
    fn probabilities_are_zero_where_nothing_is_seen_and_add_up_elsewhere(
        batch in 1usize..4, heads in 1usize..4, queries in 1usize..6, keys in 1usize..80, seed: u64
    ) {
        let random = &mut Random::new(seed);
        let ranges = visible(random, batch * queries, keys);
        let visible = Tensor::from_vec(ranges.clone(), (batch, queries, 2), &Device::Cpu).unwrap();
        let scores = (draw(random, &[batch, heads, queries, keys]) * 20.0).unwrap();
        let probabilities = values(&masked_softmax(&scores, &visible, 1.0).unwrap());
        for (row, probabilities) in probabilities.chunks(keys).enumerate() {
            let query = row / (heads * queries) * queries + row % queries;
            let seen = ranges[2 * query] as usize..keys.min(ranges[2 * query + 1] as usize);
            let outside = probabilities.iter().enumerate().filter(|(key, _)| !seen.contains(key));
            prop_assert!(outside.map(|(_, probability)| *probability).all(|probability| probability == 0.0));
            let sum: f64 = probabilities.iter().sum();
            prop_assert!((sum - if seen.is_empty() { 0.0 } else { 1.0 }).abs() < 1e-5, "{sum}");
        }
    }

    #[test]
    fn entropy_is_the_mean_surprise(vocabulary in 1usize..70, temperature in 0.2f64..3.0, seed: u64) {
        let random = &mut Random::new(seed);
        let (_, mask) = targets_and_mask(random, 1, vocabulary);
        let mask = Tensor::from_vec(mask, (1, vocabulary.div_ceil(32)), &Device::Cpu).unwrap();
        let logits = draw(random, &[1, vocabulary]);
        let of_all = logits.broadcast_as((vocabulary, vocabulary)).unwrap();
        let mask_of_all = mask.broadcast_as((vocabulary, mask.dim(1).unwrap())).unwrap();
        let every = Tensor::arange(0, vocabulary as u32, &Device::Cpu).unwrap();
        let logprobs = values(&gathered_logprob(&of_all, &every, Some(&mask_of_all), temperature).unwrap());
        let terms = logprobs.iter().filter(|logprob| logprob.is_finite()).map(|logprob| -logprob * logprob.exp());
        let found = values(&entropy(&logits, Some(&mask), temperature).unwrap())[0];
        prop_assert!((found - terms.sum::<f64>()).abs() < 1e-5);
    }
}

#[test]
fn sums_over_rows_do_not_depend_on_the_number_of_threads() {
    let with_threads = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let random = &mut Random::new(11);
            let x = Var::from_tensor(&draw(random, &[999, 70])).unwrap();
            let weight = Var::from_tensor(&draw(random, &[70])).unwrap();
            let grads = rms_norm(&x, &weight, 1e-6).unwrap().sqr().unwrap().sum_all().unwrap().backward().unwrap();
            let norm = squared_norm(&draw(random, &[100_000])).unwrap();
            [bits(grads.get(&x).unwrap()), bits(grads.get(&weight).unwrap()), bits(&norm)]
        })
    };
    let alone = with_threads(1);
    for threads in [2, 3, 8] {
        assert_eq!(alone, with_threads(threads), "{threads} threads");
    }
}

/// The log-probabilities of targets, the gradient of their sum, and the entropies.
fn choose(logits: &[&[f32]], targets: &[u32], allowed: Option<&[u32]>) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let shape = (logits.len(), logits[0].len());
    let logits = Var::from_vec(logits.concat(), shape, &Device::Cpu).unwrap();
    let targets = Tensor::new(targets, &Device::Cpu).unwrap();
    let allowed =
        allowed.map(|words| Tensor::from_slice(words, (shape.0, shape.1.div_ceil(32)), &Device::Cpu).unwrap());
    let logprobs = gathered_logprob(&logits, &targets, allowed.as_ref(), 1.0).unwrap();
    let grads = logprobs.sum_all().unwrap().backward().unwrap();
    let entropies = entropy(&logits, allowed.as_ref(), 1.0).unwrap();
    (values(&logprobs), values(grads.get(&logits).unwrap()), values(&entropies))
}

#[test]
fn choices_at_the_edges() {
    const NONE: f64 = f64::NEG_INFINITY;
    let zeros = vec![0.0; 4];
    // One token allowed: certain.
    let certain = choose(&[&[1.0, -2.0, 3.0, 0.5]], &[1], Some(&[0b0010]));
    assert_eq!(certain, (vec![0.0], zeros.clone(), vec![0.0]));
    // A target that is not allowed, and one that is no token, with and without a mask.
    let even = 2f64.ln() as f32 as f64;
    assert_eq!(choose(&[&[1.0; 4]], &[0], Some(&[0b0110])), (vec![NONE], zeros.clone(), vec![even]));
    assert_eq!(choose(&[&[1.0; 4]], &[4], Some(&[u32::MAX])), (vec![NONE], zeros.clone(), vec![2.0 * even]));
    assert_eq!(choose(&[&[1.0; 4]], &[u32::MAX], None), (vec![NONE], zeros.clone(), vec![2.0 * even]));
    // Nothing allowed.
    assert_eq!(choose(&[&[1.0; 4]], &[2], Some(&[0])), (vec![NONE], zeros, vec![0.0]));
    // Large logits neither overflow nor lose their differences; a logit of minus infinity has no probability.
    let (logprobs, grads, entropies) =
        choose(&[&[1e4, 1e4 - 1.0, -1e4], &[-1e4, -1e4, f32::NEG_INFINITY]], &[0, 1], None);
    let sure = 1.0 / (1.0 + (-1f64).exp());
    assert!(relative_error(&logprobs, &[sure.ln(), 0.5f64.ln()]) < 1e-6, "{logprobs:?}");
    assert!(relative_error(&grads, &[1.0 - sure, sure - 1.0, 0.0, -0.5, 0.5, 0.0]) < 1e-6, "{grads:?}");
    assert!(relative_error(&entropies, &[-sure.ln() + (1.0 - sure), 2f64.ln()]) < 1e-6, "{entropies:?}");
    // A target that is allowed but impossible, and a row where everything is.
    let impossible = choose(&[&[f32::NEG_INFINITY, 0.0]], &[0], None);
    assert_eq!(impossible, (vec![NONE], vec![0.0; 2], vec![0.0]));
    let (logprobs, _, entropies) = choose(&[&[f32::NEG_INFINITY; 2]], &[0], None);
    assert!(logprobs[0].is_nan() && entropies[0] == 0.0);
    // What is no number shows.
    let (logprobs, grads, entropies) = choose(&[&[0.0, f32::NAN]], &[0], None);
    assert!(logprobs.iter().chain(&grads).chain(&entropies).all(|value| value.is_nan()));
}

#[test]
fn queries_that_see_nothing_get_zeros_and_no_gradient() {
    let scores = Var::from_tensor(&draw(&mut Random::new(5), &[1, 2, 3, 6])).unwrap();
    let visible = Tensor::new(&[[[3u32, 3], [5, 2], [9, 12]]], &Device::Cpu).unwrap();
    let probabilities = masked_softmax(&scores, &visible, 1.0).unwrap();
    let grads = probabilities.sum_all().unwrap().backward().unwrap();
    assert_eq!(values(&probabilities), vec![0.0; 36]);
    assert_eq!(values(grads.get(&scores).unwrap()), vec![0.0; 36]);
    let large = Tensor::new(&[[[[1e4f32, -1e4, 1e4]]]], &Device::Cpu).unwrap();
    let all = Tensor::new(&[[[0u32, 3]]], &Device::Cpu).unwrap();
    assert_eq!(values(&masked_softmax(&large, &all, 1.0).unwrap()), [0.5, 0.0, 0.5]);
}

#[test]
fn tensors_need_not_be_contiguous() {
    let random = &mut Random::new(9);
    let x = Var::from_tensor(&draw(random, &[24, 5])).unwrap();
    let weight = draw(random, &[24]);
    let turned = rms_norm(&x.t().unwrap(), &weight, 1e-6).unwrap();
    assert_eq!(bits(&turned), bits(&rms_norm(&x.t().unwrap().contiguous().unwrap(), &weight, 1e-6).unwrap()));
    // The gradient of a transposed result arrives transposed.
    let grads = (turned.t().unwrap() * x.as_tensor()).unwrap().sum_all().unwrap().backward().unwrap();
    let plain = composed::rms_norm(&x.t().unwrap(), &weight, 1e-6).unwrap().t().unwrap();
    let truth = (plain * x.as_tensor()).unwrap().sum_all().unwrap().backward().unwrap();
    assert!(relative_error(&values(grads.get(&x).unwrap()), &values(truth.get(&x).unwrap())) < 1e-5);
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let of = |shape: &[usize]| draw(&mut Random::new(1), shape);
    let tokens = |shape: &[usize]| Tensor::zeros(shape, DType::U32, &Device::Cpu).unwrap();
    let adamw = AdamW { beta1: 0.9, beta2: 0.9, epsilon: 1e-8, weight_decay: 0.0 };
    let refused = [
        rms_norm(&of(&[2, 3]), &of(&[4]), 1e-6).is_err(),
        swiglu(&of(&[2]), &of(&[3])).is_err(),
        rotary(&of(&[1, 2, 3, 4]), &of(&[2, 4]), &of(&[2, 4])).is_err(),
        rotary(&of(&[1, 2, 3, 5]), &of(&[2, 2]), &of(&[2, 2])).is_err(),
        masked_softmax(&of(&[1, 2, 3, 4]), &tokens(&[1, 2, 2]), 1.0).is_err(),
        gathered_logprob(&of(&[2, 3]), &tokens(&[3]), None, 1.0).is_err(),
        gathered_logprob(&of(&[2, 3]), &of(&[2]), None, 1.0).is_err(),
        gathered_logprob(&of(&[2, 33]), &tokens(&[2]), Some(&tokens(&[2, 1])), 1.0).is_err(),
        entropy(&of(&[2, 3]), None, 0.0).is_err(),
        adamw.step(&of(&[2]), &of(&[3]), &of(&[2]), &of(&[2]), 0.1, 1, 1.0).is_err(),
        adamw.step(&of(&[2]), &of(&[2]), &of(&[2]), &of(&[2]), 0.1, 0, 1.0).is_err(),
    ];
    assert_eq!(refused, [true; 11]);
}

#[test]
fn adamw_takes_the_steps_of_the_scalar_one() {
    let optimiser = AdamW { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.05 };
    let random = &mut Random::new(13);
    let var = Var::from_tensor(&draw(random, &[7, 3])).unwrap();
    let mut truth = ScalarAdamW::new(optimiser, values(&var));
    let (m, v) = (var.zeros_like().unwrap(), var.zeros_like().unwrap());
    for step in 1..=20 {
        let (grad, learning_rate) = (draw(random, &[7, 3]), 0.02 / step as f64);
        optimiser.step(&var, &grad, &m, &v, learning_rate, step, 0.25).unwrap();
        truth.step(&values(&grad), learning_rate, step, 0.25);
        assert!(relative_error(&values(&var), &truth.var) < 1e-6, "step {step}");
    }
    // The first step of a lone number, from the definition: both moments are corrected to the gradient itself.
    let var = Tensor::new(&[2f32], &Device::Cpu).unwrap();
    let (m, v) = (var.zeros_like().unwrap(), var.zeros_like().unwrap());
    optimiser.step(&var, &Tensor::new(&[-3f32], &Device::Cpu).unwrap(), &m, &v, 0.1, 1, 1.0).unwrap();
    assert!((values(&var)[0] - (2.0 * (1.0 - 0.1 * 0.05) + 0.1)).abs() < 1e-6);
}

#[test]
fn the_exponential_is_exact_to_about_one_unit_in_the_last_place() {
    let mut x = -87f32;
    while x < 88.0 {
        let truth = f64::from(x).exp();
        let unit = f64::from((truth as f32).next_up()) - f64::from(truth as f32);
        let error = (f64::from(simd::exp(x)) - truth).abs() / unit;
        assert!(error < 1.25, "{error} units at {x}");
        x += 0.000_9;
    }
    let of = [0.0, -0.0, -87.5, f32::NEG_INFINITY].map(simd::exp);
    assert_eq!(of, [1.0, 1.0, 0.0, 0.0]);
    assert!(simd::exp(f32::INFINITY) > 1e38 && simd::exp(f32::NAN).is_nan());
}

fn draw(random: &mut Random, shape: &[usize]) -> Tensor {
    let values = (0..shape.iter().product()).map(|_| random.normal() as f32).collect::<Vec<_>>();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

/// A row, or all.
fn part(tensor: &Tensor, row: Option<usize>) -> Tensor {
    row.map_or(tensor.clone(), |row| tensor.narrow(0, row, 1).unwrap())
}
