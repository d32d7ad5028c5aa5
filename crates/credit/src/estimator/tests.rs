use super::*;
use lemon_num::Random;
use proptest::prelude::*;

fn softmax(logits: &[f64]) -> Vec<f64> {
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit - most).exp()).sum();
    logits.iter().map(|logit| (logit - most).exp() / sum).collect()
}

fn argmax(values: &[f64]) -> usize {
    (0..values.len()).max_by(|a, b| values[*a].total_cmp(&values[*b])).unwrap()
}

/// The gradient of the logits: Σ advantage · (hit − p).
fn by_logit(probabilities: &[f64], advantages: &[f64]) -> Vec<f64> {
    let sum: f64 = advantages.iter().sum();
    probabilities.iter().zip(advantages).map(|(probability, advantage)| advantage - probability * sum).collect()
}

/// The mean gradient of the single-action form over what is drawn.
fn single_action_by_logit(probabilities: &[f64], rewards: &[f64]) -> Vec<f64> {
    let weighted = |drawn: usize| probabilities[drawn] * single_action(probabilities, rewards, drawn).unwrap();
    by_logit(probabilities, &(0..rewards.len()).map(weighted).collect::<Vec<_>>())
}

/// What the trainer did before: differences to the neighbours only, added up on the drawn value.
fn neighbours_by_logit(probabilities: &[f64], rewards: &[f64]) -> Vec<f64> {
    let difference = |drawn: usize| -> f64 {
        let others = [drawn.checked_sub(1), Some(drawn + 1)].into_iter().flatten();
        others.filter_map(|other| rewards.get(other)).map(|other| rewards[drawn] - other).sum()
    };
    let weighted = |drawn: usize| probabilities[drawn] * difference(drawn);
    by_logit(probabilities, &(0..rewards.len()).map(weighted).collect::<Vec<_>>())
}

/// Where gradient ascent ends: the value that has nearly all of the probability.
fn ascend(rewards: &[f64], first: &[f64], gradient: fn(&[f64], &[f64]) -> Vec<f64>) -> usize {
    let mut logits = first.to_vec();
    for _ in 0..20_000 {
        let probabilities = softmax(&logits);
        // Nearer to certainty than a plateau before the best value comes up.
        if probabilities.iter().any(|probability| *probability > 1.0 - 1e-6) {
            break;
        }
        let slopes = gradient(&probabilities, rewards);
        // Steps of equal length: plain ascent crawls where a value is rare.
        let norm = slopes.iter().map(|slope| slope * slope).sum::<f64>().sqrt();
        logits.iter_mut().zip(&slopes).for_each(|(logit, slope)| *logit += 0.05 * slope / norm.max(1e-12));
    }
    argmax(&softmax(&logits))
}

#[test]
fn ascent_with_exact_rewards_ends_at_the_best_value() {
    let mut random = Random::new(1);
    let mut neighbours_right = 0;
    for case in 0..1_000 {
        let count = 2 + case % 3;
        let mut draw = || (0..count).map(|_| random.uniform()).collect::<Vec<f64>>();
        let (mut rewards, first) = (draw(), draw());
        let best = argmax(&rewards);
        // A tie has no best value: keep it away from one.
        rewards[best] += 0.02;
        for form in [|p: &[f64], q: &[f64]| by_logit(p, &all_action(p, q)), single_action_by_logit] {
            assert_eq!(ascend(&rewards, &first, form), best, "{rewards:?} from {first:?}");
        }
        neighbours_right += usize::from(ascend(&rewards, &first, neighbours_by_logit) == best);
    }
    // The check can fail: the former sum of differences to the neighbours ends elsewhere in many cases.
    assert!(neighbours_right < 950, "{neighbours_right}");
    let capacities = [0.40, 0.55, 0.60];
    assert_eq!(ascend(&capacities, &[0.0; 3], neighbours_by_logit), 1);
    assert_eq!(ascend(&capacities, &[0.0; 3], single_action_by_logit), 2);
}

#[test]
fn prefix_advantages_are_those_of_gae() {
    let values = [Some(0.2), Some(0.5), Some(0.4)];
    let close = |found: &[Option<f64>], expected: &[Option<f64>]| {
        let same = |(a, b): (&Option<f64>, &Option<f64>)| match (a, b) {
            (Some(a), Some(b)) => (a - b).abs() < 1e-12,
            (a, b) => a == b,
        };
        assert!(found.len() == expected.len() && found.iter().zip(expected).all(same), "{found:?} {expected:?}");
    };
    // Each difference alone, the whole reward less the potential, and in between.
    close(&prefix_advantages(&values, 0.9, 0.0), &[Some(0.3), Some(-0.1), Some(0.5)]);
    close(&prefix_advantages(&values, 0.9, 1.0), &[Some(0.7), Some(0.4), Some(0.5)]);
    close(&prefix_advantages(&values, 0.9, 0.5), &[Some(0.3 + 0.5 * 0.15), Some(-0.1 + 0.25), Some(0.5)]);
    close(&prefix_advantages(&[None, Some(0.5), None], 0.9, 0.0), &[None, Some(0.4), None]);
    close(&prefix_advantages(&[], 0.9, 1.0), &[]);
}

#[test]
fn others_are_the_baseline_of_each() {
    assert_eq!(leave_one_out(&[Some(1.0), None, Some(0.0), Some(0.5)]), [Some(0.75), None, Some(-0.75), Some(0.0)]);
    assert_eq!(leave_one_out(&[Some(1.0)]), [Some(0.0)]);
    assert_eq!(leave_one_out(&[]), []);
}

#[test]
fn presence_and_classes_compare_what_there_is() {
    let texts = [(1.0, vec!["x", "y", "x"]), (0.0, vec!["y"]), (0.5, vec!["x", "y"])];
    let credit = presence_credit(&texts);
    assert_eq!((credit["x"], credit["y"]), (Some(0.75), None));
    let normalised = normalised_by_class(&[("a", 1.0), ("a", 3.0), ("b", 7.0), ("c", 1.0), ("c", 1.0)]);
    let half = 0.5_f64.sqrt();
    assert!((normalised[0].unwrap() + half).abs() < 1e-12 && (normalised[1].unwrap() - half).abs() < 1e-12);
    assert_eq!(normalised[2..], [None, None, None]);
}

proptest! {
    /// Both forms have the same mean: that of the gradient of the mean reward.
    #[test]
    fn both_forms_have_the_mean_of_the_gradient(cells in prop::collection::vec((-3.0..3.0_f64, -1.0..1.0_f64), 2..6)) {
        let (logits, rewards): (Vec<f64>, Vec<f64>) = cells.into_iter().unzip();
        let probabilities = softmax(&logits);
        let mean: f64 = probabilities.iter().zip(&rewards).map(|(p, q)| p * q).sum();
        let exact = probabilities.iter().zip(&rewards).map(|(p, q)| p * (q - mean));
        let all = by_logit(&probabilities, &all_action(&probabilities, &rewards));
        let single = single_action_by_logit(&probabilities, &rewards);
        for ((exact, all), single) in exact.zip(all).zip(single) {
            prop_assert!((exact - all).abs() < 1e-12 && (exact - single).abs() < 1e-12);
        }
    }

    /// A control that does not depend on the later fields changes no mean.
    #[test]
    fn a_control_changes_no_mean(cells in prop::collection::vec((0.05..1.0_f64, 0.05..1.0_f64, -1.0..1.0_f64), 2..6), control in -1.0..1.0_f64) {
        let normal = |values: Vec<f64>| { let sum: f64 = values.iter().sum(); values.into_iter().map(|it| it / sum).collect::<Vec<_>>() };
        let written = normal(cells.iter().map(|it| it.0).collect());
        let wanted = normal(cells.iter().map(|it| it.1).collect());
        let exact: f64 = wanted.iter().zip(&cells).map(|(p, it)| p * it.2).sum();
        let found: f64 = (0..cells.len()).map(|at| written[at] * weighted_reward(cells[at].2, wanted[at] / written[at], control)).sum();
        prop_assert!((exact - found).abs() < 1e-12);
    }
}
