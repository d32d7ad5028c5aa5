use super::*;

/// Enough groups to tell a bias of a tenth from none.
const SETTINGS: LabSettings = LabSettings { groups: 2_000, group: 4, seed: 1, noise: 0.2 };

/// The exact gradient is the slope of the expected reward.
#[test]
fn the_truth_is_the_slope_of_the_expected_reward() {
    let lab = Lab::new(&SETTINGS).unwrap();
    let truth = Truth::new(&lab).unwrap();
    assert_eq!((lab.texts.len(), truth.gradient.len()), (468, truth.names.len()));
    let norm = truth.gradient.iter().map(|slope| slope * slope).sum::<f64>().sqrt();
    assert!(norm > 0.05, "there is something to learn: {norm}");
    // A small step along the gradient raises the reward by the step times the squared norm.
    let step = 1e-3;
    let mut reached = [0.0; 2];
    for (reward, sign) in reached.iter_mut().zip([1.0, -1.0]) {
        let mut table = lab.table.clone();
        table.move_by(&truth.gradient.iter().map(|slope| sign * step * slope / norm).collect::<Vec<_>>());
        *reward = expected_reward(&lab, &table).unwrap();
    }
    let slope = (reached[0] - reached[1]) / (2.0 * step);
    assert!((slope / norm - 1.0).abs() < 1e-2, "{slope} is not {norm}");
}

/// Every estimator has the bias that the table says, or none: if one appears or disappears, this fails.
#[test]
fn each_estimator_is_biased_or_not_as_it_says() {
    let compared = compare(&SETTINGS, &[]).unwrap();
    let mut wrong = Vec::new();
    for Compared { name, is_unbiased, all, .. } in &compared.estimators {
        // In direction: a common factor is a learning rate.
        let is_biased = all.z > 4.0 && all.bias > 0.05;
        if is_biased == *is_unbiased {
            wrong.push(format!("{name}: scale {:.3}, bias {:.3}, z {:.1}", all.scale, all.bias, all.z));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let of = |name: &str| compared.estimators.iter().find(|it| it.name == name).unwrap();
    // The mean of the group includes the text itself: three quarters of the gradient.
    let grpo = of("grpo").all.scale;
    assert!((grpo - 0.75).abs() < 0.01, "{grpo}");
    for name in ["plain", "prefix", "all-action", "sampled", "pairwise", "tree", "full"] {
        let Figures { scale, .. } = of(name).all;
        assert!((scale - 1.0).abs() < 0.1, "{name}: {scale}");
    }
    // What the forms are for: less noise than comparing whole texts, field by field where they apply.
    let noise = |name: &str, field: &str| {
        let found = of(name).fields.iter().find(|it| it.field == field).unwrap();
        found.figures.noise
    };
    for field in ["answer by", "next"] {
        assert!(noise("all-action", field) < noise("sampled", field), "{field}");
        assert!(noise("sampled", field) < noise("plain", field), "{field}");
    }
}

/// With rewards and policies of another seed too.
#[test]
fn the_default_is_unbiased_for_other_policies() {
    for seed in [2, 3] {
        let settings = LabSettings { seed, groups: 1_000, ..SETTINGS };
        for Compared { name, all, .. } in compare(&settings, &["full", "prefix", "all-action"]).unwrap().estimators {
            assert!(!(all.z > 4.0 && all.bias > 0.05), "{name}, seed {seed}: {all:?}");
        }
    }
}
