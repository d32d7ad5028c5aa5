//! Two evaluations of the same methods.

use crate::made::{Line, close, evaluation};
use crate::reporting::rows;
use lemon_eval::{EvalComparison, Evaluation, Flips, compare};
use lemon_num::stats::{mcnemar_exact, permutation};
use proptest::prelude::*;

fn compared(a: &[Line], b: &[Line]) -> EvalComparison {
    compare(&evaluation(a), &evaluation(b))
}

fn ids(flips: &Flips) -> Vec<&str> {
    flips.first.iter().map(|item| item.item_id.as_str()).collect()
}

#[test]
fn nothing_changes_from_an_evaluation_to_itself() {
    let lines = [("solo", 1, "110"), ("team", 1, "111"), ("team", 2, "101")];
    let comparison = compared(&lines, &lines);
    assert!(comparison.warnings.is_empty() && comparison.methods_only_a.is_empty());
    for method in &comparison.methods {
        assert_eq!((method.items, method.change, method.token_change), (3, 0.0, 0.0));
        assert_eq!((method.permutation_p, method.holm_p), (1.0, 1.0));
        // Three items are no proof that nothing ever changes.
        assert!(method.interval[0] < -0.5 && method.interval[1] > 0.5);
        assert_eq!((method.gained.items, method.lost.items, method.unmatched_seeds), (0, 0, 0));
    }
    assert_eq!(comparison.methods.len(), 2);
}

#[test]
fn items_flip_both_ways() {
    let comparison = compared(&[("team", 1, "000011")], &[("team", 1, "110001")]);
    let team = &comparison.methods[0];
    assert!(close(team.change, 1.0 / 6.0) && close(team.accuracy[0], 2.0 / 6.0) && close(team.accuracy[1], 0.5));
    assert_eq!((ids(&team.gained), ids(&team.lost)), (vec!["id-0", "id-1"], vec!["id-4"]));
    assert_eq!(team.permutation_p, mcnemar_exact(2, 1));

    // Those with many are counted, the first named, by position.
    let many = compared(&[("team", 1, &"0".repeat(30))], &[("team", 1, &"1".repeat(30))]);
    let gained = &many.methods[0].gained;
    assert_eq!((gained.items, gained.first.len(), gained.first[19].item), (30, 20, 19));
}

#[test]
fn seeds_are_matched_where_they_can_be() {
    // Seed 2 is in both: it alone is compared.
    let some = compared(&[("team", 1, "11"), ("team", 2, "00")], &[("team", 2, "01"), ("team", 3, "11")]);
    let team = &some.methods[0];
    assert_eq!((team.accuracy, team.change, team.unmatched_seeds), ([0.0, 0.5], 0.5, 0));
    assert_eq!(some.warnings, ["seeds differ: 1, 2; 2, 3"]);

    // None is: the means are. One of two runs is not more than half.
    let none = compared(&[("team", 1, "110"), ("team", 2, "100")], &[("team", 3, "011")]);
    let team = &none.methods[0];
    assert_eq!((team.accuracy, team.unmatched_seeds), ([0.5, 2.0 / 3.0], 3));
    assert_eq!(team.permutation_p, permutation(&[-1.0, 0.5, 1.0], 0));
    assert_eq!((ids(&team.gained), ids(&team.lost)), (vec!["id-1", "id-2"], vec!["id-0"]));
}

#[test]
fn what_only_one_has_is_counted() {
    let comparison = compared(
        &[("old", 1, "1"), ("solo", 1, "11.."), ("team", 1, "111.")],
        &[("solo", 1, "..11"), ("team", 1, ".110"), ("new", 1, "1")],
    );
    assert_eq!(comparison.methods_only_a, ["old"]);
    assert_eq!(comparison.methods_only_b, ["new"]);
    assert_eq!(comparison.warnings, ["no items in common: solo"]);
    let [team] = &comparison.methods[..] else { panic!("{comparison:?}") };
    assert_eq!((team.items, team.items_only_a, team.items_only_b), (2, 1, 1));
}

#[test]
fn items_are_matched_by_id() {
    let a = evaluation(&[("team", 1, "1100")]);
    // The same items, one place further on.
    let mut b = a.clone();
    b.rows.iter_mut().for_each(|row| row.item += 1);
    let moved = compare(&a, &b);
    assert_eq!((moved.methods[0].items, moved.methods[0].change), (4, 0.0));
    // Without ids, their places tell them apart.
    let nameless = |mut evaluation: Evaluation| {
        evaluation.rows.iter_mut().for_each(|row| row.item_id = "".into());
        evaluation
    };
    let by_place = compare(&nameless(a), &nameless(b));
    assert_eq!((by_place.methods[0].items, by_place.methods[0].items_only_a), (3, 1));
}

#[test]
fn tokens_are_compared_on_the_same_items() {
    let a = evaluation(&[("team", 1, "1111")]);
    let mut b = a.clone();
    b.rows.iter_mut().for_each(|row| row.tokens.total += 10 * row.item as u64);
    let team = &compare(&a, &b).methods[0];
    assert_eq!((team.tokens, team.token_change), ([100.0, 115.0], 15.0));
    assert!(0.0 <= team.token_interval[0] && team.token_interval[0] < 15.0 && team.token_interval[1] > 15.0);
}

#[test]
fn p_values_are_adjusted_over_the_methods() {
    let ones = "1".repeat(9);
    let zeros = "0".repeat(9);
    let comparison =
        compared(&[("solo", 1, &zeros), ("team", 1, &zeros)], &[("solo", 1, &ones), ("team", 1, "111111000")]);
    let p: Vec<[f64; 2]> = comparison.methods.iter().map(|method| [method.permutation_p, method.holm_p]).collect();
    let [clear, less] = [mcnemar_exact(0, 9), mcnemar_exact(0, 6)];
    assert_eq!(p, [[clear, 2.0 * clear], [less, less]]);
}

#[test]
fn differences_of_the_set_up_are_told() {
    let a = evaluation(&[("team", 1, "1")]);
    let mut b = a.clone();
    b.set_up.workers = "endpoints: qwen".to_owned();
    b.set_up.capacity = Some("large".to_owned());
    b.set_up.sets = vec!["made/test".to_owned(), "gsm8k/test".to_owned()];
    b.set_up.seeds = vec![2, 1];
    let mut a = a;
    a.set_up.workers = "sim".to_owned();
    insta::assert_snapshot!(compare(&a, &b).warnings.join("\n"), @r"
    workers differ: sim; endpoints: qwen
    capacities differ: mixed; large
    sets differ: made/test; gsm8k/test, made/test
    seeds differ: 1; 1, 2
    ");
    // Their order is no difference.
    a.set_up = b.set_up.clone();
    a.set_up.seeds.reverse();
    a.set_up.sets.reverse();
    assert!(compare(&a, &b).warnings.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Back is the opposite of there.
    #[test]
    fn a_comparison_can_be_turned(a in rows(), b in rows()) {
        let evaluation = |rows| Evaluation { rows, ..evaluation(&[]) };
        let (a, b) = (evaluation(a), evaluation(b));
        let (there, back) = (compare(&a, &b), compare(&b, &a));
        prop_assert_eq!(&there.methods_only_a, &back.methods_only_b);
        prop_assert_eq!(there.methods.len(), back.methods.len());
        for (there, back) in there.methods.iter().zip(&back.methods) {
            prop_assert!(close(there.change, -back.change) && close(there.token_change, -back.token_change));
            prop_assert!(close(there.interval[0], -back.interval[1]));
            prop_assert!(close(there.permutation_p, back.permutation_p) && close(there.holm_p, back.holm_p));
            prop_assert_eq!(there.gained.items, back.lost.items);
            prop_assert!(there.interval[0] <= there.change && there.change <= there.interval[1]);
        }
        let json = serde_json::to_string(&there).unwrap();
        prop_assert!(serde_json::from_str::<EvalComparison>(&json).is_ok(), "{}", json);
    }
}
