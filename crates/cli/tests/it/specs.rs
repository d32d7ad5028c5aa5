//! `validate`, `schema`, `edits`: what can be said about a specification without running it.

use crate::common::{Folder, PAIR};
use crate::snapshot;
use serde_json::Value;

const BAD: &str = "agents:
  - {id: a, base: solvr, capacity: smal}
  - {id: a, base: solver, capacity: small, after: [zz], colour: red}
  - {id: 9x, base: critic, capacity: medium, share: some}
answer: {from: [q], by: coin}
next: maybe
";

#[test]
fn validate() {
    let folder = Folder::with_pair().file("bad.yaml", BAD).file("garbage.yaml", [0xc3, 0x28]).file("empty.yaml", "");
    let mut text = String::new();
    let mut add = |args: &[&str]| text += &(folder.exchange(args) + "\n");
    add(&["validate", "pair.yaml"]);
    add(&["validate", "pair.yaml", "--json"]);
    add(&["validate", "bad.yaml"]);
    add(&["validate", "empty.yaml"]);
    add(&["validate", "garbage.yaml"]);
    add(&["validate", "nowhere.yaml"]);
    snapshot!("validate", text);
}

#[test]
fn validate_as_json() {
    let folder = Folder::new().file("bad.yaml", BAD);
    let report = folder.lemon(&["validate", "bad.yaml", "--json"]).code(1).json();
    assert_eq!(report["valid"], false);
    let faults = report["diagnostics"].as_array().unwrap();
    let codes: Vec<_> = faults.iter().map(|fault| fault["code"].as_str().unwrap()).collect();
    let expected = [
        ["unknown_base", "unknown_capacity", "duplicate_id"],
        ["missing_reference", "unknown_key", "malformed_id"],
        ["unknown_share", "missing_reference", "unknown_rule"],
    ]
    .concat();
    assert_eq!(codes, [expected, vec!["unknown_next"]].concat());
    for fault in faults {
        let at = |edge: &str| fault["span"][edge].as_u64().unwrap() as usize;
        assert!(at("start") < at("end") && at("end") <= BAD.len(), "{fault}");
    }
    assert_eq!(&BAD[span(&faults[0])], "solvr");
}

fn span(fault: &Value) -> std::ops::Range<usize> {
    let at = |edge: &str| fault["span"][edge].as_u64().unwrap() as usize;
    at("start")..at("end")
}

#[test]
fn the_levels_of_the_configuration_are_the_language() {
    let level = |name| format!("[capacity.{name}]\nbase_url = 'http://localhost:1/v1'\nmodel = 'm'\n");
    let folder = Folder::with_pair().file("lemon.toml", level("tiny") + &level("giant") + "[limits]\nagents = 1\n");
    let report = folder.lemon(&["validate", "pair.yaml", "--json"]).code(1).json().to_string();
    assert!(report.contains("unknown_capacity") && report.contains("too_many_agents"), "{report}");
    let schema = folder.lemon(&["schema"]).ok().json().to_string();
    assert!(schema.contains(r#"["tiny","giant"]"#), "{schema}");
}

#[test]
fn schema() {
    let folder = Folder::new();
    let schema = folder.lemon(&["schema"]).ok().json();
    assert_eq!(schema["type"], "object");
    assert_eq!(schema["properties"]["agents"]["type"], "array");
    let validator = jsonschema::validator_for(&schema).unwrap();
    let agent = serde_json::json!({
        "id": "solve", "base": "solver", "role": null, "duty": null, "capacity": "small", "after": [], "share": "reply"
    });
    let mut team = serde_json::json!({"agents": [agent], "answer": {"from": ["solve"], "by": "last"}, "next": "stop"});
    assert!(validator.is_valid(&team), "{schema:#}");
    // What the schema allows, the checker takes.
    folder.file("team.json", team.to_string()).lemon(&["validate", "team.json"]).ok();
    team["agents"][0]["capacity"] = "gigantic".into();
    assert!(!validator.is_valid(&team));
}

#[test]
fn edits() {
    let folder = Folder::with_pair().file("bad.yaml", BAD);
    snapshot!("edits", folder.exchange(&["edits", "pair.yaml"]));
    snapshot!("edits_of_a_bad_specification", folder.exchange(&["edits", "bad.yaml"]));
}

#[test]
fn edits_as_json() {
    let folder = Folder::with_pair().file("bad.yaml", BAD);
    let edits = folder.lemon(&["edits", "pair.yaml", "--json"]).ok().json();
    let edits = edits["edits"].as_array().unwrap();
    assert!(edits.len() > 5);
    for edit in edits {
        // Spans are byte spans of the text before and of the text after.
        if let Some(before) = edit["before"].as_object() {
            let at = |edge: &str| before[edge].as_u64().unwrap() as usize;
            assert_eq!(before["text"], PAIR[at("start")..at("end")], "{edit}");
        }
        let spec = edit["spec"].as_str().unwrap();
        let at = |edge: &str| edit["after"][edge].as_u64().unwrap() as usize;
        assert_eq!(edit["after"]["text"], spec[at("start")..at("end")], "{edit}");
        let same = edit["before"]["text"] == edit["after"]["text"];
        assert_eq!(same, !edit["withhold"].is_null(), "the span changes unless a message is withheld: {edit}");
    }
    let refused = folder.lemon(&["edits", "bad.yaml", "--json"]).code(1).json();
    assert_eq!(refused["edits"], serde_json::json!([]));
    assert!(refused["diagnostics"].as_array().is_some_and(|faults| faults.len() > 5), "{refused}");
}
