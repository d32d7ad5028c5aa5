//! Gradients, steps, and what is kept of them.

use super::*;
use lemon_model::Objective;

/// Examples of both objectives, with weights of both signs.
fn examples(table: &FieldTable, encoder: &FieldPromptEncoder, temperature: f32) -> Vec<Example> {
    let mut random = Random::new(5);
    let mut number = || (random.next_u64() >> 40) as f32 / (1 << 23) as f32 - 1.0;
    let mut all = Vec::new();
    for (at, (_, request)) in requests(encoder, 1).into_iter().enumerate() {
        let sample = one(table, &request, temperature);
        let mut numbers = || sample.tokens.iter().map(|_| number()).collect::<Vec<f32>>();
        let objective = if at % 2 == 0 {
            Objective::Likelihood { weights: numbers() }
        } else {
            // Ratios are clipped or not, and none so near the border that a small step leads over it.
            let gaps = [-0.6, -0.1, 0.1, 0.6];
            let old = sample.logprobs.iter().enumerate().map(|(token, logprob)| logprob + gaps[(at + token) % 4]);
            let reference = sample.logprobs.iter().zip(numbers()).map(|(logprob, number)| logprob + 0.5 * number);
            Objective::Clipped {
                weights: numbers().iter().map(|weight| weight.abs()).collect(),
                advantages: numbers(),
                old: old.collect(),
                reference: (at % 4 == 1).then(|| reference.collect()),
                low: 0.2,
                high: 0.3,
                kl: 0.1,
            }
        };
        all.push(Example { sequence: sequence(&request, &sample.tokens), objective });
    }
    all
}

#[test]
fn the_gradient_is_that_of_the_objective() {
    check_gradient(&start(3, 3, FirstTeams::Large));
    // Two slots keep the pairs of values few.
    check_gradient(&FieldStart { conditioned: true, bases: 2, duties: 2, ..start(2, 1, FirstTeams::Large) });
    let (table, _) = pair(&start(1, 1, FirstTeams::Large));
    assert!(table.gradient(&[], 0.0).is_err());
}

fn check_gradient(start: &FieldStart) {
    let (mut table, encoder) = pair(start);
    table.randomise(3, 0.5);
    for temperature in [1.0, 0.7] {
        let examples = examples(&table, &encoder, temperature);
        let gradient = table.gradient(&examples, temperature).unwrap();
        let step = 1.0 / 256.0;
        let mut moved = 0;
        for (at, slope) in gradient.iter().enumerate() {
            let logit = table.logits[at];
            let mut loss = |by: f32| {
                table.logits[at] = logit + by;
                table.pass(&examples, temperature).unwrap().1.loss
            };
            let measured = (loss(step) - loss(-step)) / f64::from(2.0 * step);
            table.logits[at] = logit;
            assert!((measured - slope).abs() < 2e-3 * (1.0 + slope.abs()), "{at}: {measured} and {slope}");
            moved += usize::from(slope.abs() > 1e-3);
        }
        assert!(moved > 60, "{moved}");
    }
}

const STEP: StepSettings = StepSettings { learning_rate: 0.05, temperature: 1.0, clip_norm: 1.0, micro_batch: 0 };

fn liked(request: &SampleRequest, sample: &Sample, weight: f32) -> Example {
    let objective = Objective::Likelihood { weights: vec![weight; sample.tokens.len()] };
    Example { sequence: sequence(request, &sample.tokens), objective }
}

#[test]
fn a_step_goes_towards_what_was_better() {
    let (mut table, encoder) = pair(&FieldStart::default());
    let request = request(&encoder, QUESTIONS[0], 1, &[], 4);
    let sample = one(&table, &request, 1.0);
    for advantage in [1.0f32, -1.0] {
        let likely = |table: &FieldTable| {
            table.score(&[sequence(&request, &sample.tokens)], 1.0).unwrap()[0].iter().sum::<f32>()
        };
        let (before, mut report) = (likely(&table), StepReport::default());
        for _ in 0..20 {
            report = table.update(&[liked(&request, &sample, advantage)], &STEP).unwrap();
        }
        assert!((likely(&table) - before) * advantage > 0.5);
        assert_eq!(report.tokens, sample.forced.iter().filter(|forced| !**forced).count());
        assert!(!report.skipped && report.entropy > 0.0 && report.gradient_norm > 0.0);
    }
    // The first step of Adam moves each logit by the learning rate, whatever its slope.
    let mut fresh = pair(&FieldStart::default()).0;
    let before = fresh.logits.clone();
    fresh.update(&[liked(&request, &sample, 1.0)], &STEP).unwrap();
    for (now, before) in fresh.logits.iter().zip(&before) {
        let moved = (now - before).abs();
        assert!(moved == 0.0 || (moved - 0.05).abs() < 1e-4, "{moved}");
    }
}

#[test]
fn a_step_without_weights_or_without_numbers_changes_nothing() {
    let (mut table, encoder) = pair(&FieldStart::default());
    let request = request(&encoder, QUESTIONS[0], 1, &[], 4);
    let sample = one(&table, &request, 1.0);
    table.update(&[liked(&request, &sample, 1.0)], &STEP).unwrap();
    let before = table.clone();
    let cases = [(0.0, STEP, false), (f32::NAN, STEP, true), (f32::INFINITY, STEP, true)];
    let too_far = (1.0, StepSettings { learning_rate: f64::INFINITY, ..STEP }, true);
    for (weight, settings, skipped) in cases.into_iter().chain([too_far]) {
        let report = table.update(&[liked(&request, &sample, weight)], &settings).unwrap();
        assert_eq!((report.skipped, &table.logits, &table.memory), (skipped, &before.logits, &before.memory));
    }
    assert_eq!(table.update(&[], &STEP).unwrap(), StepReport::default());
    assert_eq!((&table.logits, &table.memory), (&before.logits, &before.memory));
    let short = Objective::Likelihood { weights: vec![1.0] };
    assert!(
        table.update(&[Example { sequence: sequence(&request, &sample.tokens), objective: short }], &STEP).is_err()
    );
}

#[test]
fn a_table_that_was_put_away_goes_on_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    let (mut table, encoder) = pair(&FieldStart::default());
    table.set_optimiser(OptimiserSettings { beta1: 0.8, ..OptimiserSettings::default() });
    let examples = examples(&table, &encoder, 1.0);
    for _ in 0..7 {
        table.update(&examples, &STEP).unwrap();
    }
    table.save_state(folder.path()).unwrap();
    let mut again = pair(&FieldStart::default()).0;
    again.load_state(folder.path()).unwrap();
    for _ in 0..3 {
        let reports = [&mut table, &mut again].map(|table| table.update(&examples, &STEP).unwrap());
        assert_eq!(reports[0], reports[1]);
        let bits = |table: &FieldTable| table.logits.iter().map(|logit| logit.to_bits()).collect::<Vec<_>>();
        assert_eq!((bits(&table), &table.memory), (bits(&again), &again.memory));
    }
    table.save_state(folder.path()).unwrap();
    let first = std::fs::read(folder.path().join("fields.json")).unwrap();
    again.save_state(folder.path()).unwrap();
    assert_eq!(std::fs::read(folder.path().join("fields.json")).unwrap(), first);

    let fact = |start: &FieldStart| pair(start).0.load_state(folder.path()).unwrap_err().to_string();
    let facts = fact(&start(3, 4, FirstTeams::Large));
    assert!(facts.ends_with(
        "it is a table with 4 slots, 4 kinds of task and the levels small, medium, large; \
         this one has 3 slots, 4 kinds of task and the levels small, medium, large"
    ));
    std::fs::write(folder.path().join("fields.json"), "{}").unwrap();
    assert!(fact(&FieldStart::default()).contains("it is not the state of a table: missing field"));
}
