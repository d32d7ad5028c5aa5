//! Every token finds its field.

#![allow(clippy::single_range_in_vec_init)] // one field is a list of fields too

use lemon_model::owners;
use proptest::prelude::*;
use std::ops::Range;

fn check(ends: &[usize], fields: &[Range<usize>], expected: &[Option<usize>]) {
    assert_eq!(owners(ends, fields), expected, "{ends:?} {fields:?}");
}

#[test]
fn a_token_belongs_to_the_field_that_holds_most_of_it() {
    check(&[], &[], &[]);
    check(&[3, 5], &[], &[None, None]);
    check(&[3, 5, 9], &[3..9], &[None, Some(0), Some(0)]);
    // Across a border: the larger part, then the earlier field.
    check(&[4, 8], &[0..5, 5..8], &[Some(0), Some(1)]);
    check(&[4], &[0..2, 2..4], &[Some(0)]);
    check(&[4], &[2..4, 0..2], &[Some(0)]);
    check(&[5], &[0..2, 2..5], &[Some(1)]);
    // More of it outside than in any one field; as much is enough.
    check(&[5], &[0..2], &[None]);
    check(&[4], &[0..2], &[Some(0)]);
    check(&[6], &[0..2, 4..6], &[Some(0)]);
    check(&[7], &[0..2, 5..7], &[None]);
    // No bytes: no owner. The same for a field.
    check(&[2, 2, 4], &[0..4], &[Some(0), None, Some(0)]);
    check(&[2], &[1..1], &[None]);
}

#[test]
fn invalid_spans_have_no_owner() {
    let backwards = Range { start: 4, end: 2 };
    check(&[5, 3], std::slice::from_ref(&backwards), &[None, None]);
    check(&[usize::MAX], &[0..usize::MAX, 0..usize::MAX], &[Some(0)]);
}

/// Ends of tokens, and fields that do not overlap.
fn cases() -> impl Strategy<Value = (Vec<usize>, Vec<Range<usize>>)> {
    let lengths = prop::collection::vec(0..6_usize, 0..20);
    let fields = prop::collection::vec((0..5_usize, 0..7_usize), 0..8);
    (lengths, fields).prop_map(|(lengths, gaps)| {
        let sums = |lengths: Vec<usize>| {
            lengths.into_iter().scan(0, |end, length| {
                *end += length;
                Some(*end)
            })
        };
        let borders: Vec<usize> = sums(gaps.into_iter().flat_map(|(gap, length)| [gap, length]).collect()).collect();
        let fields = borders.chunks_exact(2).map(|border| border[0]..border[1]).collect();
        (sums(lengths).collect(), fields)
    })
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> usize {
    (one.start.max(other.start)..one.end.min(other.end)).len()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn owners_hold_what_they_own((ends, fields) in cases()) {
        let owners = owners(&ends, &fields);
        prop_assert_eq!(owners.len(), ends.len());
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let tokens: Vec<Range<usize>> = starts.zip(&ends).map(|(start, end)| start..*end).collect();
        for (token, owner) in tokens.iter().zip(&owners) {
            if let Some(owner) = owner {
                let held = overlap(token, &fields[*owner]);
                prop_assert!(held > 0);
                prop_assert!(fields.iter().all(|field| overlap(token, field) <= held));
            }
        }
        for (number, field) in fields.iter().enumerate() {
            let within = |token: &Range<usize>| !token.is_empty() && field.start <= token.start && token.end <= field.end;
            for (token, owner) in tokens.iter().zip(&owners) {
                prop_assert!(!within(token) || *owner == Some(number));
            }
            let border = |at: usize| at == 0 || ends.contains(&at);
            if border(field.start) && border(field.end) {
                for (token, owner) in tokens.iter().zip(&owners) {
                    prop_assert_eq!(*owner == Some(number), within(token));
                }
            }
        }
    }
}
