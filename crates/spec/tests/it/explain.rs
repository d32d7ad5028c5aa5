//! What people see.

use lemon_spec::{Code, Diagnostic, Language, Severity, Span, edit, explain, json_schema, render, validate};
use proptest::prelude::*;

fn explained(text: &str) -> String {
    let rejection = validate(text, &Language::default()).expect_err("faults");
    explain(&rejection.diagnostics, text, "team.yaml", false)
}

const EXAMPLE: &str = "\
agents:
  - id: solve                 # O1: this entry exists at all
    base: solver
    role: Percentages tutor
    duty: Set up the equation for the sale price and solve it.
    capacity: small
    after: []
    share: answer
  - id: check
    base: critic
    role: Arithmetic checker
    duty: 'Recompute each step: correct it.'
    capacity: medium
    after: [solve]
answer: {from: [check], by: last}
next: stop
";

#[test]
fn faults_look_like_those_of_a_compiler() {
    insta::assert_snapshot!(explained(
        "agents:
  - id: solve
    base: solvr
    duty: Sólve it 🍋 with care
    capacity: tiny
  - id: my check
    base: critic
    capacity: large
    ater: [solve]
  - {id: solve, base: judge, capacity: small, after: [last, solve]}
  - {id: last, base: judge, capacity: small, after: [solve]}
answer: {from: [lst], by: vote}
nxt: stop
"
    ));
}

#[test]
fn syntax_errors_speak_plainly() {
    insta::assert_snapshot!(
        [
            "agents:\n  - id: a\n    duty: Answer: yes\n",
            "agents:\n  - id: a\n    duty: \"He said \"no\" to it\"\n",
            "agents:\n  - id: a\n\tbase: solver\n",
            "agents:\n  - {id: a, base: solver\n",
            "agents:\n  - id: a\n   base: solver\n",
            "agents:\n  - id: a\n    role: @home\n",
            "agents:\n  - id: a\n    role: \"\\d\"\n",
            "agents:\n  - id a\n    base: solver\n",
            "```yaml\nagents: []\n```\n",
        ]
        .map(explained)
        .join("\n")
    );
}

#[test]
fn a_long_line_is_shown_in_part() {
    let agent = |id: &str| format!("{{id: {id}, base: solver, duty: {}, capacity: small}}", "words ".repeat(20));
    let text = format!("agents: [{}, {}, {}]", agent("a"), agent("5"), agent("c"));
    insta::assert_snapshot!(explained(&text));
    let endless = format!("agents: [{}, {}]", agent("5"), agent("a").repeat(300));
    assert!(explained(&endless).lines().all(|line| line.chars().count() < 200));
}

#[test]
fn colours_on_request() {
    let text = "agents: {}";
    let rejection = validate(text, &Language::default()).unwrap_err();
    assert!(explain(&rejection.diagnostics, text, "team.yaml", true).contains("\u{1b}["));
    assert!(!explain(&rejection.diagnostics, text, "team.yaml", false).contains('\u{1b}'));
}

#[test]
fn nothing_in_the_text_reaches_the_terminal_raw() {
    let shown = explained("agents: [{id: \"\u{1b}[2J\", base: \"\u{202e}solver\", capacity: '\u{1b}]0;x\u{7}'}]");
    assert!(!shown.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{shown}");
}

#[test]
fn the_canonical_text() {
    let plan = validate(EXAMPLE, &Language::default()).unwrap();
    let rendered = render(plan.spec());
    insta::assert_snapshot!(rendered.text);
    assert_eq!(plan.warnings(), []);
}

#[test]
fn the_edits_of_the_example() {
    let language = Language::default();
    let plan = validate(EXAMPLE, &language).unwrap();
    let shown = edit::edits(&plan, &language).into_iter().map(|edit| {
        let edited = edit::apply(&plan, &edit, &language).unwrap();
        let canonical = render(plan.spec()).text;
        let before = edited.before_canonical.of(&canonical).replace('\n', "⏎");
        let after = edited.after.of(edited.plan.source());
        format!("{:?} {:?} {}\n    {before} ⇒ {after}\n", edit.family, edit.forward, edit.describe())
    });
    insta::assert_snapshot!(shown.collect::<String>());
    let first = &edit::edits(&plan, &language)[0];
    insta::assert_snapshot!(serde_json::to_string(first).unwrap(), @r#"{"family":"agent","decision":"spawn","forward":true,"change":"remove_agent","agent":"solve"}"#);
}

#[test]
fn the_schema() {
    insta::assert_json_snapshot!(json_schema(&Language::default()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Diagnostics may come from elsewhere, with spans that fit nothing.
    #[test]
    fn no_span_makes_explaining_panic(source in "([^\u{0}]|\n|\r|\t){0,60}", start in 0_usize..90, end in 0_usize..90, line in 0_usize..9) {
        let span = Span { start, end };
        let (code, message) = (Code::Syntax, "a\nfact\u{1b}".to_owned());
        let fault = Diagnostic { code, severity: Severity::Warning, line, column: start, span, hint: Some(message.clone()), message };
        prop_assert!(explain(&[fault], &source, "team\n.yaml", start % 2 == 0).contains("syntax"));
    }
}
