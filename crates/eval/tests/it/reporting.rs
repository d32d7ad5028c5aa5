//! What a report makes of the rows.

use crate::made::{Line, close, evaluation, row};
use lemon_eval::{AgentRow, Evaluation, Partial, Report, Row, Training};
use lemon_num::stats::{mcnemar_exact, permutation, wilson};
use lemon_trace::StopReason;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn report(lines: &[Line]) -> Report {
    Report::new(&evaluation(lines))
}

/// The report after something was done to every row.
fn report_of(lines: &[Line], change: impl Fn(&mut Row)) -> Report {
    let mut evaluation = evaluation(lines);
    evaluation.rows.iter_mut().for_each(change);
    Report::new(&evaluation)
}

#[test]
fn nothing_comes_of_nothing() {
    for lines in [&[][..], &[("solo", 1, "...")]] {
        let report = report(lines);
        assert!(report.methods.is_empty() && report.sets.is_empty() && report.pairs.is_empty());
    }
}

#[test]
fn one_seed_is_wilson_and_mcnemar() {
    let report = report(&[("solo", 1, "1100101100"), ("team", 1, "1111101110")]);
    let [solo, team] = &report.methods[..] else { panic!("{report:?}") };
    assert_eq!((solo.runs, solo.accuracy, solo.interval), (10, 0.5, wilson(5, 10)));
    assert_eq!((team.runs, team.accuracy, team.interval), (10, 0.8, wilson(8, 10)));
    assert_eq!((solo.interval_kind.as_str(), solo.legacy_interval), ("wilson", wilson(5, 10)));
    let [pair] = &report.pairs[..] else { panic!("{report:?}") };
    assert_eq!((pair.a.as_str(), pair.b.as_str(), pair.runs), ("solo", "team", 10));
    assert_eq!((pair.both, pair.only_a, pair.only_b, pair.neither), (5, 0, 3, 2));
    assert!(close(pair.difference, -0.3) && pair.interval[0] < -0.3 && pair.interval[1] > -0.3);
    assert_eq!(pair.mcnemar_p, Some(mcnemar_exact(0, 3)));
    assert_eq!((pair.permutation_p, pair.holm_p), (mcnemar_exact(0, 3), mcnemar_exact(0, 3)));
}

#[test]
fn several_seeds_are_clustered() {
    let lines = [("solo", 1, "110010"), ("solo", 2, "110000"), ("team", 1, "111110"), ("team", 2, "111101")];
    let report = report(&lines);
    let [solo, team] = &report.methods[..] else { panic!("{report:?}") };
    assert_eq!((solo.runs, solo.interval_kind.as_str()), (12, "clustered bootstrap"));
    assert!(close(solo.accuracy, 5.0 / 12.0) && close(team.accuracy, 10.0 / 12.0));
    let pair = &report.pairs[0];
    assert_eq!((pair.runs, pair.both, pair.only_a, pair.only_b, pair.neither), (12, 5, 0, 5, 2));
    assert_eq!(pair.mcnemar_p, None);
    assert_eq!(pair.permutation_p, permutation(&[0.0, 0.0, 1.0, 1.0, 0.0, 0.5], 0));
}

#[test]
fn items_that_look_alike_are_one_draw() {
    let lines = [("solo", 1, "111100001111000010"), ("team", 1, "111111111111000001")];
    let alone = report(&lines);
    assert_eq!(report_of(&lines, |row| row.cluster = Some(row.item)), alone);
    let report = report_of(&lines, |row| row.cluster = Some(row.item / 4));
    for (method, alone) in report.methods.iter().zip(&alone.methods) {
        assert_eq!((method.runs, method.accuracy), (alone.runs, alone.accuracy));
        assert_eq!(method.interval_kind, "clustered bootstrap");
        // Five clusters that are right or wrong as one say less than eighteen items.
        let width = |interval: [f64; 2]| interval[1] - interval[0];
        assert!(width(method.interval) > 1.5 * width(alone.interval), "{:?}, {:?}", method.interval, alone.interval);
    }
    let (pair, alone) = (&report.pairs[0], &alone.pairs[0]);
    assert_eq!((pair.runs, pair.difference, pair.only_b), (18, alone.difference, alone.only_b));
    assert_eq!((pair.mcnemar_p, alone.mcnemar_p.is_some()), (None, true));
    // Four in one cluster are one chance in two of being noise, whatever they would be as four.
    assert_eq!(pair.permutation_p, permutation(&[0.0, 4.0, 0.0, 0.0, 0.0], 0));
    assert!(pair.permutation_p > 0.9 && alone.permutation_p < 0.3);
}

#[test]
fn a_pair_is_what_both_ran() {
    let lines =
        [("solo", 1, "11.0"), ("solo", 2, "1..."), ("team", 1, "0111"), ("team", 3, "1111"), ("idle", 1, "....")];
    let report = report(&lines);
    assert_eq!(report.methods.iter().map(|method| method.runs).collect::<Vec<_>>(), [4, 8]);
    let [pair] = &report.pairs[..] else { panic!("{report:?}") };
    assert_eq!((pair.runs, pair.both, pair.only_a, pair.only_b, pair.neither), (3, 1, 1, 1, 0));
    assert_eq!(pair.mcnemar_p, Some(1.0));
    // With nothing in common, there is no pair.
    let apart = self::report(&[("solo", 1, "11.."), ("team", 1, "..11"), ("duo", 2, "1111")]);
    assert_eq!((apart.methods.len(), apart.pairs.len()), (3, 0));
}

#[test]
fn p_values_are_adjusted_over_all_pairs() {
    let zeros = "0".repeat(12);
    let report = report(&[("none", 1, &zeros), ("all", 1, &"1".repeat(12)), ("half", 1, "111111000000")]);
    let p: Vec<[f64; 2]> = report.pairs.iter().map(|pair| [pair.permutation_p, pair.holm_p]).collect();
    let [clear, half] = [mcnemar_exact(0, 12), mcnemar_exact(0, 6)];
    assert_eq!(p, [[clear, 3.0 * clear], [half, 2.0 * half], [half, 2.0 * half]]);
}

#[test]
fn the_front_is_what_nothing_beats() {
    let check = |points: &[(&str, u64)], expected: &[bool]| {
        let names: Vec<String> = (0..points.len()).map(|i| format!("m{i}")).collect();
        let lines: Vec<Line> = names.iter().zip(points).map(|(name, (runs, _))| (name.as_str(), 1, *runs)).collect();
        let tokens: BTreeMap<&str, u64> = names.iter().zip(points).map(|(name, (_, t))| (name.as_str(), *t)).collect();
        let report = report_of(&lines, |row| row.tokens.total = tokens[&*row.method]);
        assert_eq!(report.methods.iter().map(|method| method.on_front).collect::<Vec<_>>(), expected, "{points:?}");
    };
    check(&[("11", 10)], &[true]);
    check(&[("11", 10), ("10", 5), ("00", 1)], &[true, true, true]);
    check(&[("11", 10), ("10", 10), ("10", 20)], &[true, false, false]);
    check(&[("10", 10), ("01", 10)], &[true, true]);
    check(&[("11", 10), ("11", 9), ("00", 9)], &[false, true, false]);
}

#[test]
fn means_ranks_and_ends() {
    let evaluation = {
        let mut evaluation = evaluation(&[("team", 1, &"1".repeat(20))]);
        for row in &mut evaluation.rows {
            row.wall_s = (20 - row.item) as f64;
            row.usd = Some(0.5);
            row.calls = 3;
            row.tokens.orchestrator = row.item as u64;
            row.agents = vec![AgentRow::default(); row.item % 2];
            row.legacy_right = row.item < 5;
            row.stop_reason = (row.item > 0).then_some(StopReason::Answered);
        }
        let learned = |tokens| Training { method: "team".to_owned(), runs: 1, tokens, ..Training::default() };
        let proposed = Training { optimiser_tokens: 5, ..learned(70) };
        evaluation.training = vec![learned(700), proposed];
        evaluation
    };
    let team = &Report::new(&evaluation).methods[0];
    assert_eq!(team.seconds, [10.5, 10.0, 19.0]);
    assert_eq!((team.usd, team.calls, team.agents), (Some(0.5), 3.0, 0.5));
    assert_eq!((team.tokens, team.tokens_by.orchestrator, team.tokens_by.workers), (100.0, 9.5, 100.0));
    assert_eq!((team.accuracy, team.legacy_accuracy, team.legacy_interval), (1.0, 0.25, wilson(5, 20)));
    assert_eq!(team.ends, BTreeMap::from([("answered".to_owned(), 19), ("unfinished".to_owned(), 1)]));
    assert_eq!(team.training_tokens, Some(775));

    // One run without a price, and there is no mean.
    let lines = [("team", 1, "11")];
    assert_eq!(report_of(&lines, |row| row.usd = (row.item == 0).then_some(1.0)).methods[0].usd, None);
    assert_eq!(report(&lines).methods[0].training_tokens, None);
}

#[test]
fn sets_are_told_apart_where_there_are_several() {
    let mut evaluation = evaluation(&[("solo", 1, "11"), ("team", 1, "10")]);
    evaluation.rows.push(row("other/test", 0, "team", 1, false));
    evaluation.set_up.sets.insert(0, "other/test".to_owned());
    let report = Report::new(&evaluation);
    assert_eq!(report.methods.iter().map(|method| method.runs).collect::<Vec<_>>(), [2, 3]);
    let sets: Vec<(&str, Vec<(&str, usize)>)> = report
        .sets
        .iter()
        .map(|set| (set.set.as_str(), set.methods.iter().map(|m| (m.method.as_str(), m.runs)).collect()))
        .collect();
    assert_eq!(sets, [("other/test", vec![("team", 1)]), ("made/test", vec![("solo", 2), ("team", 2)])]);
    // The front of a set is that of its own methods.
    assert!(report.sets[0].methods[0].on_front && !report.sets[1].methods[1].on_front);
}

#[test]
fn bands_are_by_events() {
    let lines = [("team", 1, "1010101")];
    let events = [0, 1, 10, 11, 40, 81, 9000];
    let report = report_of(&lines, |row| {
        row.metrics.events = events[row.item];
        row.metrics.parallel_speedup = (row.item != 1).then_some(row.item as f64);
    });
    let bands = report.methods[0].bands.iter();
    let bands: Vec<_> =
        bands.map(|band| (band.events.as_str(), band.runs, band.success, band.parallel_speedup)).collect();
    let expected = [
        ("1–10", 2, 0.5, Some(2.0)),
        ("11–20", 1, 0.0, Some(3.0)),
        ("21–40", 1, 1.0, Some(4.0)),
        ("81+", 2, 0.5, Some(5.5)),
    ];
    assert_eq!(bands, expected);
    assert_eq!(report.methods[0].bands[0].useful_agents, None);
}

#[test]
fn error_amplification_is_pooled() {
    // Agents as `id<parents:grade`, runs apart from each other.
    let check = |runs: &[&str], expected: Option<f64>| {
        let agent = |text: &str| {
            let (id, rest) = text.split_once('<').unwrap();
            let (after, grade) = rest.split_once(':').unwrap();
            let right = BTreeMap::from([("right", true), ("wrong", false)]).get(grade).copied();
            let after = after.chars().map(|id| String::from(id).into()).collect();
            AgentRow { id: id.into(), after, right, ..AgentRow::default() }
        };
        let report = report_of(&[("team", 1, &"1".repeat(runs.len()))], |row| {
            row.metrics.events = 5;
            row.agents = runs[row.item].split_whitespace().map(agent).collect();
        });
        let got = report.methods[0].bands[0].error_amplification;
        assert!(got.is_some() == expected.is_some() && close(got.unwrap_or(0.0), expected.unwrap_or(0.0)), "{got:?}");
    };
    // Alone, 1 of 2 errs; misled, 1 of 1.
    check(&["a<:right b<:wrong c<ab:wrong"], Some(2.0));
    // Neither run has both groups; together they have. The first agent of the second run has an ungraded parent.
    check(&["a<:right b<:wrong", "c<x:wrong d<c:wrong"], Some(2.0));
    // 1 of 2 misled ones err, and 2 of 4 others: no amplification.
    check(&["a<:wrong b<a:right", "a<:right b<a:right", "a<:wrong b<a:wrong"], Some(1.0));
    // No agent misled; no agent wrong alone; no agent graded.
    check(&["a<:right b<:wrong"], None);
    check(&["a<:right b<a:right"], None);
    check(&["a<:none b<a:wrong"], None);
    check(&[""], None);
    // Agents with a parent that has no grade, or that is not there, do not count: 1 of 2, and 1 of 1.
    check(&["a<:right b<:wrong c<b:wrong d<bx:right e<:none f<e:right"], Some(2.0));
}

#[test]
fn a_method_has_the_same_intervals_in_any_company() {
    let (team, solo) = (("team", 1, "110101"), ("solo", 1, "010101"));
    let lines = [solo, ("solo", 2, "011100"), team, ("team", 2, "100111")];
    let vary = |row: &mut Row| row.tokens.total = 100 + row.item as u64 * row.seed;
    let both = report_of(&lines, vary);
    assert_eq!(both.methods[1].tokens_interval, report_of(&lines[2..], vary).methods[0].tokens_interval);
    assert_eq!(both.methods[1].interval, report_of(&lines[2..], vary).methods[0].interval);
    let turned = report_of(&[lines[2], lines[3], lines[0], lines[1]], vary);
    assert!(close(turned.pairs[0].interval[0], -both.pairs[0].interval[1]));
    assert!(close(turned.pairs[0].token_interval[1], -both.pairs[0].token_interval[0]));
}

/// Rows as an interrupted, resumed or strange evaluation may leave them.
pub fn rows() -> impl Strategy<Value = Vec<Row>> {
    let places = (0..3_usize, 0..2_usize, 0..6_usize, 0..3_u64);
    let agents = prop::collection::vec((prop::option::of(any::<bool>()), 0..4_usize), 0..4);
    let numbers = (0..1_000_u64, 0..100_u64, 0.0..100.0, prop::option::of(0.0..1.0), agents);
    let row = (places, any::<bool>(), numbers).prop_map(|((method, set, item, seed), right, numbers)| {
        let (tokens, events, wall_s, usd, agents) = numbers;
        let mut row = row(["x/test", "y/test"][set], item, ["solo", "duo", "team"][method], seed, right);
        row.tokens.total = tokens;
        row.metrics.events = events;
        (row.wall_s, row.usd) = (wall_s, usd);
        let agent = |(place, (right, parent)): (usize, (_, usize))| AgentRow {
            id: place.to_string().into(),
            after: vec![parent.to_string().into(); usize::from(place > 1)],
            right,
            ..AgentRow::default()
        };
        row.agents = agents.into_iter().enumerate().map(agent).collect();
        row
    });
    prop::collection::vec(row, 0..40).prop_map(|mut rows| {
        rows.iter_mut().enumerate().for_each(|(place, row)| row.run_id = format!("run-{place}"));
        rows
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_order_of_rows_does_not_matter((rows, shuffled) in rows().prop_flat_map(|r| (Just(r.clone()), Just(r).prop_shuffle()))) {
        let mut evaluation = Evaluation { rows, ..evaluation(&[("team", 1, "")]) };
        let report = Report::new(&evaluation);
        evaluation.rows = shuffled;
        prop_assert_eq!(&report, &Report::new(&evaluation));
        // A number that is none would be written as null.
        let json = serde_json::to_string(&report).unwrap();
        prop_assert!(serde_json::from_str::<Report>(&json).is_ok(), "{}", json);
    }
}

#[test]
fn a_partial_evaluation_compares_what_all_have() {
    let whole = |items: usize, lines: &[Line]| {
        let mut evaluation = evaluation(lines);
        evaluation.set_up.items = items;
        Report::new(&evaluation)
    };
    let report = whole(6, &[("solo", 1, "110..."), ("team", 1, "0101.."), ("duo", 1, "01....")]);
    assert_eq!(report.partial, Some(Partial { runs: 9, of: 18, compared: 2 }));
    let runs: Vec<_> = report.methods.iter().map(|method| (method.runs, method.accuracy)).collect();
    assert_eq!(runs, [(2, 1.0), (2, 0.5), (2, 0.5)], "the first two items, which all have");
    assert!(report.pairs.iter().all(|pair| pair.runs == 2));
    // A method that has not begun is no reason to compare nothing.
    let begun = whole(6, &[("solo", 1, "110..."), ("team", 1, "01...."), ("idle", 1, "......")]);
    assert_eq!(begun.partial, Some(Partial { runs: 5, of: 18, compared: 2 }));
    // Where nothing is shared, each is told by what it has.
    let apart = whole(4, &[("solo", 1, "11.."), ("team", 1, "..11")]);
    assert_eq!((apart.partial, apart.methods.len()), (Some(Partial { runs: 4, of: 8, compared: 0 }), 2));
    // What is whole is whole, and says nothing.
    let lines = [("solo", 1, "1100"), ("team", 1, "0110")];
    assert_eq!(whole(4, &lines).partial, None);
    assert_eq!(whole(4, &lines).methods, self::report(&lines).methods);
}
