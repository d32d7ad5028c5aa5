//! Lines of JSON, there and back.

use lemon_trace::export::jsonl::{read_jsonl, write_jsonl};
use lemon_trace::{Trace, sample};
use proptest::prelude::*;

fn lines(trace: &Trace) -> String {
    let mut out = Vec::new();
    write_jsonl(trace, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn one_line_each() {
    let trace = sample::eight();
    let text = lines(&trace);
    assert_eq!(text.lines().count(), 1 + trace.events.len());
    insta::assert_snapshot!(text.lines().take(6).collect::<Vec<_>>().join("\n"));
}

#[test]
fn faults_are_named_by_line() {
    let whole = lines(&sample::three());
    let check = |text: &str, expected: &str| {
        let error = read_jsonl(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    };
    check("", "no header");
    check("\n \n", "no header");
    check("{}", "line 1: missing field `version`");
    check("[1]", "line 1: ");
    check(
        &whole.replace("\"version\":1", "\"version\":2"),
        "line 1: the trace has version 2; this reader knows versions up to 1",
    );
    check(&whole.replace("\"type\":\"delegate\"", "\"type\":\"delegated\""), "line 2: unknown variant `delegated`");
    check(&whole.replacen("\"t\":", "\"t\":\"\",\"u\":", 1), "line 2: invalid type");
    check(&whole[..whole.len() - 9], "line 16: the last line is cut off; the 14 events before it are whole");
    check(&whole[..20], "line 1: the last line is cut off; the 0 events");
}

#[test]
fn blank_lines_are_passed_over() {
    let trace = sample::three();
    assert_eq!(read_jsonl(&lines(&trace).replace('\n', "\r\n\n")).unwrap(), trace);
}

proptest! {
    #[test]
    fn reads_back_equal(seed: u64, t: f64, usd in 0.0..1e3, text: String) {
        let mut trace = sample::credited(sample::random(seed));
        trace.header.question = text;
        for event in trace.events.iter_mut().take(1) {
            event.t = t;
            event.spend.usd = usd;
        }
        prop_assume!(t.is_finite());
        prop_assert_eq!(read_jsonl(&lines(&trace)).unwrap(), trace);
    }

    #[test]
    fn never_panics(text: String, seed: u64, cut: prop::sample::Index) {
        let _ = read_jsonl(&text);
        let whole = lines(&sample::random(seed));
        let part = &whole[..cut.index(whole.len())];
        // Cut at the end of a line it is whole, anywhere else it is not.
        prop_assert_eq!(read_jsonl(part).is_ok(), part.ends_with(['}', '\n']) && !part.is_empty() && whole_line(part));
    }
}

fn whole_line(part: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(part.lines().last().unwrap_or("")).is_ok()
}
