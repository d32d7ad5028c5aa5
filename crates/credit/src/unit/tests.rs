use super::*;
use crate::story::{part, tell};
use lemon_spec::edit::edits;
use lemon_spec::{Language, validate};
use lemon_trace::sample;
use proptest::prelude::*;

const TEAM: &str = "\
agents:
  - id: solve
    base: solver
    duty: Set up the equation and solve it.
    capacity: medium
  - id: check
    base: critic
    capacity: large
    after: [solve]
answer: {from: [check], by: last}
next: stop
";

fn plan() -> Plan {
    validate(TEAM, &Language::default()).unwrap()
}

#[test]
fn every_edit_has_a_unit_and_a_target() {
    let edits = edits(&plan(), &Language::default());
    let rows: Vec<String> =
        edits.iter().map(|edit| format!("{}: {} {}", edit.describe(), unit_of(edit), target_of(edit))).collect();
    let expected = [
        "solve is removed: agent solve",
        "solve does the duty of its base role: role solve",
        "solve runs one capacity level lower: role solve",
        "solve runs one capacity level higher: role solve",
        "solve shares only its answer: message solve → *",
        "check is removed: agent check",
        "check runs one capacity level lower: role check",
        "check shares only its answer: message check → *",
        "check no longer reads solve: message solve → check",
        "the message of solve is withheld from check: message solve → check",
        "the answer is made by vote: orchestrator answer",
        "the answer is made by judge: orchestrator answer",
        "the orchestrator reviews this round: orchestrator next",
    ];
    assert_eq!(rows, expected);
}

/// What the whole team is worth beyond its first agent is measured by the prefix team of that agent.
#[test]
fn a_prefix_team_measures_the_team() {
    let (plan, language) = (plan(), Language::default());
    let edit = lemon_spec::edit::prefix_truncations(&plan, &language).remove(0);
    assert_eq!((unit_of(&edit), target_of(&edit).as_str()), (Unit::Team, "team"));
    let entry = CreditEntry::measured(&edit, Some(0.1), Some(0.02), 9);
    let table = credit_table(&units_of_plan(&plan), std::slice::from_ref(&entry));
    assert_eq!(table.first(), Some(&entry));
}

#[test]
fn a_run_and_its_plan_have_the_same_units() {
    let parts = [part("solve", "solver", &[], "1"), part("check", "critic", &["solve"], "1")];
    let units = units_of_trace(&tell(&parts, &["check"]));
    let rows: Vec<String> = units.iter().map(|(unit, target)| format!("{unit} {target}")).collect();
    let expected = [
        "team team",
        "orchestrator answer",
        "orchestrator next",
        "role solve",
        "role check",
        "agent solve",
        "agent check",
        "turn solve",
        "turn check",
        "message solve → check",
        "token round 1",
    ];
    assert_eq!(rows, expected);
    assert_eq!(units, units_of_plan(&plan()));
}

#[test]
fn tool_calls_are_units_each() {
    let mut trace = tell(&[part("solve", "solver", &[], "1")], &["solve"]);
    for _ in 0..2 {
        let kind = EventKind::ToolCall { tool: "python".into(), input: serde_json::Value::Null, call: None };
        crate::story::push(&mut trace, "solve", kind);
    }
    let calls: Vec<String> = units_of_trace(&trace)
        .into_iter()
        .filter(|(unit, _)| *unit == Unit::ToolCall)
        .map(|(_, target)| target)
        .collect();
    assert_eq!(calls, ["solve python #1", "solve python #2"]);
}

#[test]
fn the_table_tells_nothing_from_zero() {
    let plan = plan();
    let all = edits(&plan, &Language::default());
    let find = |words: &str| all.iter().find(|edit| edit.describe() == words).unwrap();
    let removed = CreditEntry::measured(find("solve is removed"), Some(0.0), Some(0.01), 40);
    let lower = CreditEntry::measured(find("solve runs one capacity level lower"), Some(0.2), Some(0.05), 40);
    let higher = CreditEntry::measured(find("solve runs one capacity level higher"), None, None, 0);
    let table = credit_table(&units_of_plan(&plan), &[higher.clone(), removed.clone(), lower.clone()]);
    assert_eq!(table.len(), 12);
    assert_eq!(table.iter().filter(|entry| entry.effect.is_none()).count(), 9);
    let of = |unit: Unit, target: &str| -> Vec<&CreditEntry> {
        table.iter().filter(|entry| entry.unit == unit && entry.target == target).collect()
    };
    assert_eq!(of(Unit::Agent, "solve"), [&removed]);
    assert_eq!(of(Unit::Role, "solve"), [&higher, &lower]);
    // The one call of an agent is worth what the agent is.
    assert_eq!(of(Unit::Turn, "solve"), [&CreditEntry { unit: Unit::Turn, ..removed.clone() }]);
    assert_eq!(of(Unit::Turn, "check"), [&CreditEntry::not_measured(Unit::Turn, "check")]);
    assert_eq!(of(Unit::Role, "check"), [&CreditEntry::not_measured(Unit::Role, "check")]);
    let added = CreditEntry { target: "check → later".into(), ..CreditEntry::not_measured(Unit::Message, "") };
    let table = credit_table(&units_of_plan(&plan), std::slice::from_ref(&added));
    let messages: Vec<&str> =
        table.iter().filter(|entry| entry.unit == Unit::Message).map(|entry| entry.target.as_str()).collect();
    assert_eq!(messages, ["solve → check", "check → later"]);
    assert!(table.is_sorted_by_key(|entry| entry.unit));
}

#[test]
fn names_are_the_same_everywhere() {
    let units = [
        Unit::Team,
        Unit::Orchestrator,
        Unit::Role,
        Unit::Agent,
        Unit::Turn,
        Unit::Message,
        Unit::ToolCall,
        Unit::Token,
    ];
    for unit in units {
        assert_eq!(serde_json::to_value(unit).unwrap(), unit.as_str());
    }
    let absent = serde_json::to_value(CreditEntry::not_measured(Unit::ToolCall, "t")).unwrap();
    assert_eq!(absent["effect"], serde_json::Value::Null);
    assert_eq!(serde_json::from_value::<CreditEntry>(absent).unwrap(), CreditEntry::not_measured(Unit::ToolCall, "t"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Every unit stands in the table, each once where nothing was measured.
    #[test]
    fn every_unit_is_listed(seed: u64) {
        let units = units_of_trace(&sample::random(seed));
        let table = credit_table(&units, &[]);
        let listed: Vec<(Unit, String)> = table.into_iter().map(|entry| (entry.unit, entry.target)).collect();
        prop_assert_eq!(listed, units);
    }
}
