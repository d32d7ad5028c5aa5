//! The published form of orchestration traces.

use lemon_trace::export::schema::{Content, schema};
use lemon_trace::{EventKind, Trace, sample};
use proptest::prelude::*;
use serde_json::Value;
use std::path::Path;

/// The published schema, where a checkout has it next to the workspace.
fn published() -> Option<jsonschema::Validator> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/schemas/orchestration_trace.schema.json");
    let Ok(text) = std::fs::read_to_string(path) else {
        println!("skipped: the published schema is not here");
        return None;
    };
    Some(jsonschema::validator_for(&serde_json::from_str(&text).unwrap()).unwrap())
}

#[test]
fn valid_against_the_published_schema() {
    let Some(validator) = published() else { return };
    let random = (0..200).map(sample::random).filter(|trace| !trace.events.is_empty());
    let credited = [sample::credited(sample::three()), sample::credited(sample::forty())];
    let samples = [sample::three(), sample::eight(), sample::forty()].into_iter().chain(credited);
    for trace in samples.chain(random) {
        for content in [Content::Omitted, Content::Included] {
            let value = schema(&trace, content);
            let faults: Vec<String> = validator.iter_errors(&value).map(|fault| fault.to_string()).collect();
            assert!(faults.is_empty(), "{}: {faults:?}", trace.header.run_id);
        }
    }
}

/// What the published schema asks for, in our own words, for where it is not at hand.
fn check_structure(trace: &Trace, value: &Value) {
    const TYPES: [&str; 8] = [
        "orchestrator_decision",
        "spawn",
        "message",
        "return",
        "aggregate",
        "safety_event",
        "human_intervention",
        "tool_call",
    ];
    const EDGES: [&str; 6] = ["causal", "spawn", "message", "return", "aggregate", "tool_dependency"];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let events = value["events"].as_array().unwrap();
    let ids: Vec<String> = events.iter().map(|event| text(&event["id"])).collect();
    assert_eq!(ids.len(), trace.events.len());
    for (event, ours) in events.iter().zip(&trace.events) {
        assert!(TYPES.contains(&event["type"].as_str().unwrap()), "{event}");
        assert_eq!(event["lemon_type"], ours.kind.name());
        assert!(event["t"].as_f64().unwrap() >= 0.0 && !text(&event["agent"]).is_empty());
        assert_eq!(event["content_ref"], event["id"]);
    }
    for edge in value["edges"].as_array().unwrap() {
        assert!(EDGES.contains(&edge["type"].as_str().unwrap()), "{edge}");
        assert!(ids.contains(&text(&edge["src"])) && ids.contains(&text(&edge["dst"])));
        assert_eq!(edge.as_object().unwrap().len(), 3);
    }
    assert_eq!(value["rewards"], serde_json::json!({}));
    for cost in ["tokens", "wall_clock_s", "tool_calls", "messages"] {
        assert!(value["costs"][cost].as_f64().unwrap() >= 0.0);
    }
    assert!(value["metrics"].as_object().unwrap().values().all(Value::is_number));
}

proptest! {
    #[test]
    fn always_of_the_published_shape(seed: u64) {
        let trace = sample::random(seed);
        check_structure(&trace, &schema(&trace, Content::Omitted));
    }
}

/// Rewards and credit are numbers by name; what was not measured is not there, and the rest is as without them.
#[test]
fn credit_is_told_as_rewards() {
    let trace = sample::credited(sample::three());
    let (mut plain, value) = (schema(&sample::three(), Content::Included), schema(&trace, Content::Included));
    let rewards = value["rewards"].as_object().unwrap();
    assert_eq!((&rewards["success"], &rewards["tokens"]), (&1.0.into(), &0.418.into()));
    let names: Vec<&str> = rewards.keys().map(String::as_str).filter(|name| name.starts_with("credit.")).collect();
    let expected = [
        "credit.agent.check.agent",
        "credit.agent.report.agent",
        "credit.agent.solve.agent",
        "credit.message.check → report.dependency",
        "credit.message.solve → check.dependency",
        "credit.role.check.capacity: check runs one capacity level lower",
        "credit.role.report.capacity: report runs one capacity level higher",
        "credit.role.solve.capacity: solve runs one capacity level higher",
        "credit.role.solve.capacity: solve runs one capacity level lower",
    ];
    let sorted: std::collections::BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(sorted, expected.into());
    plain["rewards"] = value["rewards"].clone();
    assert_eq!(plain, value);
}

#[test]
fn three_agents() {
    insta::assert_json_snapshot!(schema(&sample::three(), Content::Omitted));
}

#[test]
fn texts_travel_only_when_asked() {
    let secret = "xyzzy";
    let mut trace = sample::eight();
    for event in &mut trace.events {
        match &mut event.kind {
            EventKind::Decision { text, .. } => *text = secret.into(),
            EventKind::Spawn { role, .. } => *role = secret.into(),
            EventKind::Delegate { duty, .. } => *duty = secret.into(),
            EventKind::Message { content, .. } => *content = secret.into(),
            EventKind::Return { reply, answer, .. } => (*reply, *answer) = (Some(secret.into()), Some(secret.into())),
            EventKind::Aggregate { answer, candidates, .. } => {
                *answer = Some(secret.into());
                candidates.iter_mut().for_each(|candidate| candidate.answer = secret.into());
            }
            EventKind::Stop { answer, .. } => *answer = Some(secret.into()),
            _ => {}
        }
    }
    assert!(!schema(&trace, Content::Omitted).to_string().contains(secret));
    assert!(schema(&trace, Content::Included).to_string().matches(secret).count() > trace.events.len());
}

#[test]
fn topologies() {
    let check = |team: &[(&str, &str, &[&str])], expected: &str| {
        let mut trace = sample::three();
        let example = trace.events.iter().find(|event| event.kind.name() == "spawn").unwrap().clone();
        trace.events = team
            .iter()
            .map(|(id, role, parents)| {
                let mut event = example.clone();
                if let EventKind::Spawn { to, base, after, .. } = &mut event.kind {
                    (*to, *base) = ((*id).into(), (*role).into());
                    *after = parents.iter().map(ToString::to_string).collect();
                }
                event
            })
            .collect();
        assert_eq!(schema(&trace, Content::Omitted)["topology"], expected);
    };
    check(&[], "unknown");
    check(&[("a", "solver", &[]), ("b", "solver", &[])], "centralized");
    check(&[("a", "solver", &[]), ("b", "solver", &[]), ("judge", "judge", &["a", "b"])], "centralized");
    check(&[("p", "planner", &[]), ("a", "solver", &["p"]), ("c", "critic", &["a"])], "planner_executor_critic");
    check(&[("a", "s", &[]), ("b", "s", &[]), ("c", "s", &["a", "b"]), ("d", "s", &["b", "a"])], "debate");
    check(&[("a", "s", &[]), ("b", "s", &["a"]), ("c", "s", &["a"])], "hierarchical");
    check(&[("a", "s", &[]), ("b", "s", &[]), ("c", "s", &["a", "b"])], "hierarchical");
    check(&[("a", "s", &[]), ("b", "s", &["a"]), ("c", "s", &["a", "b"])], "mixed");
}
