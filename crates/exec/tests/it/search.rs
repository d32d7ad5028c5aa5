//! Runs are found by their words, ends, teams, times and costs, page after page.

use crate::common::store;
use lemon_exec::store::{RunEnd, RunMeta, RunOrdering, RunSearch, ServedRequest, Store, Sync};
use lemon_trace::{Event, EventKind, Header, ORCHESTRATOR, Spend, StopReason, Trace, VERSION};
use proptest::prelude::*;

/// A run as a search sees it.
struct Run<'a> {
    id: String,
    question: String,
    answer: Option<&'a str>,
    reason: Option<StopReason>,
    tokens: u64,
    began_ms: u64,
    model: Option<&'a str>,
}

fn enter(store: &Store, run: &Run<'_>) {
    let header = Header {
        version: VERSION,
        run_id: run.id.clone(),
        task_id: run.id.clone(),
        question: run.question.clone(),
        started_at_ms: run.began_ms,
        seed: 0,
        workers: "test".into(),
    };
    let served = run.model.map(|model| ServedRequest { model: model.to_owned(), ..ServedRequest::default() });
    store.begin_run(&header, &RunMeta { served, ..RunMeta::default() }).unwrap();
    let Some(reason) = run.reason else { return };
    let spend = Spend { tokens_in: run.tokens, usd: run.tokens as f64 / 1e6, ..Spend::default() };
    let kind = EventKind::Stop { reason, answer: run.answer.map(str::to_owned) };
    let stop = Event { id: 1, t: 1.0, agent: ORCHESTRATOR.into(), kind, spend, edges: Vec::new() };
    let trace = Trace { header, events: vec![stop] };
    drop(store.finish_run(&run.id, &trace.summary()));
}

fn found(store: &Store, search: &RunSearch) -> Vec<String> {
    let (rows, total) = store.search(search, 0, 1_000).unwrap();
    assert_eq!(rows.len() as u64, total);
    rows.into_iter().map(|found| found.row.run_id).collect()
}

fn sample(store: &Store) {
    let run = |id: &str, question: &str, answer, reason, tokens, began_ms, model| Run {
        id: id.to_owned(),
        question: question.to_owned(),
        answer,
        reason,
        tokens,
        began_ms,
        model,
    };
    let (answered, budget) = (Some(StopReason::Answered), Some(StopReason::TokenBudget));
    enter(store, &run("r-1", "How many pens has Ana?", Some("7 pens"), answered, 100, 1_000, Some("lemon")));
    enter(store, &run("r-2", "What is 100 % of 5_0?", Some("50"), answered, 300, 2_000, Some("lemon/pair")));
    enter(store, &run("r-3", "Where is Ana's pen?", None, budget, 200, 3_000, Some("lemon/pair")));
    enter(store, &run("r-4", "Is it running?", None, None, 0, 4_000, None));
    // What is written is written in order: once this is there, all is.
    store.begin_batch("end", 1, String::new(), Vec::new()).wait_blocking().unwrap();
}

#[test]
fn each_filter_keeps_what_it_says() {
    let (store, _folder) = store();
    sample(&store);
    let check = |search: RunSearch, expected: &[&str]| assert_eq!(found(&store, &search), expected, "{search:?}");
    let any = RunSearch::default;
    check(any(), &["r-4", "r-3", "r-2", "r-1"]);
    check(RunSearch { text: "ana PEN".into(), ..any() }, &["r-3", "r-1"]);
    check(RunSearch { text: "7 pens".into(), ..any() }, &["r-1"]);
    check(RunSearch { text: "r-2".into(), ..any() }, &["r-2"]);
    // No character stands for others.
    check(RunSearch { text: "%".into(), ..any() }, &["r-2"]);
    check(RunSearch { text: "5_0".into(), ..any() }, &["r-2"]);
    check(RunSearch { text: "'; DROP TABLE runs; --".into(), ..any() }, &[]);
    check(RunSearch { end: RunEnd::Reason("answered".into()), ..any() }, &["r-2", "r-1"]);
    check(RunSearch { end: RunEnd::Budget, ..any() }, &["r-3"]);
    check(RunSearch { end: RunEnd::Running, ..any() }, &["r-4"]);
    check(RunSearch { end: RunEnd::Interrupted, ..any() }, &[]);
    check(RunSearch { model: Some("lemon/pair".into()), ..any() }, &["r-3", "r-2"]);
    check(RunSearch { from_ms: Some(2_000), before_ms: Some(4_000), ..any() }, &["r-3", "r-2"]);
    check(RunSearch { least_tokens: Some(200), ..any() }, &["r-3", "r-2"]);
    check(RunSearch { order: RunOrdering::Tokens, ..any() }, &["r-2", "r-3", "r-1", "r-4"]);
    check(RunSearch { text: "pen".into(), model: Some("lemon".into()), ..any() }, &["r-1"]);
    assert_eq!(store.models_asked().unwrap(), ["lemon", "lemon/pair"]);
    let (rows, _) = store.search(&RunSearch { text: "50".into(), ..any() }, 0, 1).unwrap();
    assert_eq!((rows[0].model.as_deref(), rows[0].row.answer.as_deref()), (Some("lemon/pair"), Some("50")));
}

#[test]
fn a_run_whose_process_is_gone_is_interrupted() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("lemon.db");
    let first = Store::open(&path, Sync::Normal).unwrap();
    sample(&first);
    let second = Store::open(&path, Sync::Normal).unwrap();
    let ended = |end| found(&second, &RunSearch { end, ..RunSearch::default() });
    assert_eq!((ended(RunEnd::Running), ended(RunEnd::Interrupted)), (vec!["r-4".to_owned()], vec![]));
    drop(first);
    assert_eq!((ended(RunEnd::Running), ended(RunEnd::Interrupted)), (vec![], vec!["r-4".to_owned()]));
}

#[test]
fn pages_of_ten_thousand_runs_follow_each_other() {
    let (store, _folder) = store();
    for number in 0..10_000 {
        let question = format!("How many pens are in {} boxes?", number % 97);
        let reason = Some(StopReason::Answered);
        let (id, began_ms, tokens) = (format!("r-{number}"), number, number % 1_000);
        enter(&store, &Run { id, question, answer: Some("7"), reason, tokens, began_ms, model: None });
    }
    store.begin_batch("end", 1, String::new(), Vec::new()).wait_blocking().unwrap();
    let search = RunSearch { text: "in 42 boxes".into(), ..RunSearch::default() };
    // A word may be a part of the question or of the id.
    let matches = |number: &u64| number % 97 == 42 || number.to_string().contains("42");
    let expected: Vec<String> = (0..10_000).rev().filter(matches).map(|n| format!("r-{n}")).collect();
    let mut all = Vec::new();
    for skip in (0..=expected.len() as u64).step_by(50) {
        let (rows, total) = store.search(&search, skip, 50).unwrap();
        assert_eq!(total, expected.len() as u64);
        all.extend(rows.into_iter().map(|found| found.row.run_id));
    }
    assert_eq!(all, expected);
    let (rows, total) = store.search(&RunSearch::default(), 9_990, 50).unwrap();
    assert_eq!((rows.len(), total), (10, 10_000));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_words_are_words(text in ".{0,12}", question in "[a-c%_\\\\ ]{1,12}") {
        let (store, _folder) = store();
        let run = Run { id: "r-1".into(), question: question.clone(), answer: None, reason: None, tokens: 0, began_ms: 1, model: None };
        enter(&store, &run);
        store.begin_batch("end", 1, String::new(), Vec::new()).wait_blocking().unwrap();
        for text in [&text, &question] {
            let words = text.split(|char: char| char.is_whitespace() || char.is_control());
            let mut words = words.filter(|word| !word.is_empty()).take(12);
            let lower = question.to_ascii_lowercase();
            let expected = words.all(|word| lower.contains(&word.to_ascii_lowercase()) || "r-1".contains(&word.to_ascii_lowercase()));
            prop_assert_eq!(found(&store, &RunSearch { text: text.clone(), ..RunSearch::default() }).len(), usize::from(expected));
        }
    }
}
