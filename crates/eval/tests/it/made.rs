//! Small evaluations, made by hand.

use lemon_eval::{Evaluation, Row, SetUp, TokenRow};

/// A method, a seed, and one character an item: `1` right, `0` wrong, anything else not run.
pub type Line<'a> = (&'a str, u64, &'a str);

/// An evaluation on one set. Every run takes 100 tokens.
pub fn evaluation(lines: &[Line]) -> Evaluation {
    let mut methods: Vec<String> = lines.iter().map(|(method, ..)| (*method).to_owned()).collect();
    methods.dedup();
    let mut seeds: Vec<u64> = lines.iter().map(|(_, seed, _)| *seed).collect();
    seeds.sort();
    seeds.dedup();
    let set_up = SetUp { methods, seeds, sets: vec!["made/test".to_owned()], ..SetUp::default() };
    Evaluation { set_up, training: Vec::new(), rows: lines.iter().flat_map(rows).collect() }
}

fn rows((method, seed, runs): &Line) -> Vec<Row> {
    let ran = runs.char_indices().filter(|(_, run)| "01".contains(*run));
    ran.map(|(item, run)| row("made/test", item, method, *seed, run == '1')).collect()
}

pub fn row(set: &str, item: usize, method: &str, seed: u64, right: bool) -> Row {
    Row {
        set: set.into(),
        item,
        item_id: format!("id-{item}").into(),
        method: method.into(),
        seed,
        run_id: format!("{set}-{method}-{item}-{seed}"),
        right,
        legacy_right: right,
        tokens: TokenRow { total: 100, workers: 100, ..TokenRow::default() },
        wall_s: 1.0,
        ..Row::default()
    }
}

/// Equal but for rounding.
pub fn close(got: f64, expected: f64) -> bool {
    (got - expected).abs() <= 1e-9 * (1.0 + expected.abs())
}
