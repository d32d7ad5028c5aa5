use super::*;
use lemon_spec::edit::edits;
use lemon_spec::generate::spec;
use lemon_spec::{Language, render, validate};
use proptest::prelude::*;

fn check_group(rewards: &[Option<f64>], normalise: bool, expected: &[Option<f64>]) {
    let got = group_relative(rewards, normalise);
    let same = |(got, expected): (&Option<f64>, &Option<f64>)| match (got, expected) {
        (Some(got), Some(expected)) => (got - expected).abs() < 1e-12,
        (got, expected) => got == expected,
    };
    assert!(got.len() == expected.len() && got.iter().zip(expected).all(same), "{got:?} is not {expected:?}");
}

#[test]
fn advantages_are_rewards_less_the_mean_of_those_measured() {
    check_group(&[], false, &[]);
    check_group(&[None, None], false, &[None, None]);
    check_group(&[Some(3.0)], false, &[Some(0.0)]);
    check_group(&[Some(3.0)], true, &[Some(0.0)]);
    check_group(&[Some(1.0), Some(0.0), None, Some(0.5)], false, &[Some(0.5), Some(-0.5), None, Some(0.0)]);
    check_group(&[Some(3.0), Some(1.0)], true, &[Some(1.0), Some(-1.0)]);
    check_group(&[Some(2.0), Some(2.0)], true, &[Some(0.0), Some(0.0)]);
}

#[test]
fn dividing_by_the_deviation_makes_much_of_little() {
    let nearly_equal = [Some(1.001), Some(1.0)];
    check_group(&nearly_equal, false, &[Some(0.0005), Some(-0.0005)]);
    let normalised = group_relative(&nearly_equal, true);
    assert!((normalised[0].unwrap() - 1.0).abs() < 1e-9);
}

/// Tokens that follow one another, of these lengths, from byte 0.
fn tokens(lengths: &[usize]) -> Vec<Range<usize>> {
    let ends = lengths.iter().scan(0, |end, length| {
        *end += length;
        Some(*end - length..*end)
    });
    ends.collect()
}

fn check_tokens(lengths: &[usize], spans: &[(usize, usize, f64)], expected: &[Option<f64>]) {
    let spans: Vec<(Span, f64)> =
        spans.iter().map(|(start, end, credit)| (Span { start: *start, end: *end }, *credit)).collect();
    assert_eq!(token_weights(&tokens(lengths), &spans), expected, "{lengths:?} {spans:?}");
}

#[test]
fn a_token_counts_to_the_field_that_holds_most_of_it() {
    let (a, b) = (Some(1.0), Some(-2.0));
    check_tokens(&[4, 4, 4], &[], &[None, None, None]);
    check_tokens(&[4, 4, 4], &[(4, 8, 1.0)], &[None, a, None]);
    // Most of the first token is in it, least of the last.
    check_tokens(&[4, 4, 4], &[(1, 9, 1.0)], &[a, a, None]);
    check_tokens(&[4, 4, 4], &[(3, 11, 1.0)], &[None, a, a]);
    // Between two fields the larger part decides, and the first of equals.
    check_tokens(&[4], &[(0, 1, 1.0), (1, 4, -2.0)], &[b]);
    check_tokens(&[4], &[(0, 2, 1.0), (2, 4, -2.0)], &[a]);
    check_tokens(&[5], &[(0, 2, 1.0), (3, 5, -2.0)], &[a]);
    check_tokens(&[4], &[(0, 2, 1.0)], &[a]);
    check_tokens(&[4], &[(0, 1, 1.0)], &[None]);
    // Fields in one another add up, and so do two edits of one field.
    check_tokens(&[4, 4], &[(0, 8, 1.0), (4, 8, -2.0)], &[a, Some(-1.0)]);
    check_tokens(&[4], &[(0, 4, 1.0), (0, 4, -2.0)], &[Some(-1.0)]);
    // Nothing holds nothing.
    check_tokens(&[0, 4], &[(0, 0, 1.0), (2, 2, 1.0)], &[None, None]);
    check_tokens(&[], &[(0, 4, 1.0)], &[]);
}

#[test]
fn an_effect_of_zero_is_a_credit_of_zero() {
    check_tokens(&[4, 4], &[(0, 4, 0.0)], &[Some(0.0), None]);
    assert_eq!(combine(0.5, &[Some(0.0), None], 3.0), [0.5, 0.5]);
    assert_eq!(combine(0.5, &[Some(-1.0), None], 0.25), [0.25, 0.5]);
}

#[test]
fn nonsense_ranges_have_no_credit() {
    let backwards = Range { start: 9, end: 3 };
    let spans = [(Span { start: 0, end: 20 }, 1.0), (Span { start: 8, end: 2 }, 1.0)];
    assert_eq!(token_weights(&[backwards], &spans), [None]);
    let endless = [(Span { start: 0, end: usize::MAX }, 1.0); 2];
    assert_eq!(token_weights(&[0..usize::MAX, 0..1], &endless), [Some(2.0); 2]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn advantages_of_a_group_sum_to_nothing(rewards in prop::collection::vec(prop::option::of(-5.0..5.0), 0..16), normalise: bool) {
        let advantages = group_relative(&rewards, normalise);
        prop_assert!(advantages.iter().flatten().sum::<f64>().abs() < 1e-9);
        for (reward, advantage) in rewards.iter().zip(&advantages) {
            prop_assert_eq!(reward.is_some(), advantage.is_some());
        }
    }

    /// No edits: plain GRPO, bit for bit, whatever the weight of the local term.
    #[test]
    fn without_edits_it_is_plain_grpo(group: f64, lengths in prop::collection::vec(0_usize..9, 0..40), lambda: f64) {
        let local = token_weights(&tokens(&lengths), &[]);
        let combined = combine(group, &local, lambda);
        prop_assert_eq!(combined.len(), lengths.len());
        prop_assert!(combined.iter().all(|advantage| advantage.to_bits() == group.to_bits()));
    }

    /// Every field of a real specification that holds most of some token gives its credit to a token, and tokens that
    /// touch no field get none.
    #[test]
    fn every_field_reaches_a_token(seed: u64, lengths in prop::collection::vec(1_usize..7, 400)) {
        let language = Language::default();
        let text = render(&spec(seed, &language)).text;
        let plan = validate(&text, &language).unwrap();
        let fields = edits(&plan, &language).into_iter().filter_map(|edit| plan.spans().get(edit.field(&plan)?));
        let tokens = tokens(&lengths);
        // Each alone: the credit of one field cannot hide behind that of another.
        for span in fields {
            let weights = token_weights(&tokens, &[(span, 1.0)]);
            let holds_most = |token: &Range<usize>| 2 * overlap(token, span) > token.len();
            prop_assert!(!tokens.iter().any(holds_most) || weights.contains(&Some(1.0)));
            for (token, weight) in tokens.iter().zip(&weights) {
                prop_assert!(weight.is_none() || overlap(token, span) > 0);
            }
        }
    }

    /// All fields at once: a field that holds most of a token is in that token's credit.
    #[test]
    fn fields_in_one_another_all_count(lengths in prop::collection::vec(1_usize..7, 1..30), spans in prop::collection::vec((0_usize..90, 1_usize..40), 1..7)) {
        let tokens = tokens(&lengths);
        // Powers of two: each sum tells which fields are in it.
        let spans: Vec<(Span, f64)> = (0..).zip(&spans).map(|(place, (start, length))| {
            (Span { start: *start, end: start + length }, f64::from(1 << place))
        }).collect();
        let weights = token_weights(&tokens, &spans);
        for (token, weight) in tokens.iter().zip(&weights) {
            let counted = weight.unwrap_or(0.0) as u32;
            for (span, credit) in &spans {
                let holds_most = 2 * overlap(token, *span) > token.len();
                prop_assert!(!holds_most || counted & *credit as u32 != 0, "{token:?} {span:?}");
            }
        }
    }
}
