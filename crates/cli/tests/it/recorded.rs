//! Record once, replay offline.

use crate::common::{Folder, endpoint};
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};

const TASK: &str = "What is 2 + 2?";
const REPLAY: [&str; 7] = ["run", TASK, "--json", "--workers", "replay", "--cassette", "tape.jsonl"];

/// Everything of a result but what is new each time.
fn essence(mut result: serde_json::Value) -> serde_json::Value {
    for field in ["run_id", "task_id", "wall_s"] {
        result[field] = serde_json::Value::Null;
    }
    result["agents"].as_array_mut().unwrap().iter_mut().for_each(|agent| agent["seconds"] = serde_json::Value::Null);
    result
}

#[test]
fn a_replay_is_the_run_again() {
    let mut endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "");
    let recorded = folder.lemon(&["run", TASK, "--json", "--spec", "pair.yaml", "--record", "tape.jsonl"]).ok().json();
    let calls = endpoint.calls();
    endpoint.stop();
    let spec = ["--spec", "pair.yaml"];
    for _ in 0..2 {
        let replayed = folder.lemon(&[&REPLAY[..], &spec].concat()).ok().json();
        assert_eq!(essence(replayed), essence(recorded.clone()));
    }
    assert_eq!(endpoint.calls(), calls);
    assert_eq!(folder.lemon(&["trace", "diff", "last", recorded["run_id"].as_str().unwrap()]).ok().code, Some(0));
}

/// The orchestrator that wrote for the bundled models writes for a recording of them.
#[test]
fn a_replay_of_the_bundled_models() {
    let folder = Folder::new();
    let task = "Ana has 3 pens. She buys 4 more pens. How many pens does she have now?";
    let recorded = folder.lemon(&["run", task, "--json", "--record", "tape.jsonl"]).ok().json();
    let replayed =
        folder.lemon(&["run", task, "--json", "--workers", "replay", "--cassette", "tape.jsonl"]).ok().json();
    let told = |result: &serde_json::Value| {
        ["answer", "confidence", "tokens", "stop_reason"].map(|field| result[field].clone())
    };
    assert_eq!(told(&replayed), told(&recorded));
    assert_eq!(replayed["agents"].as_array().map(Vec::len), recorded["agents"].as_array().map(Vec::len));
}

#[test]
fn failures_are_recorded_too() {
    let behaviour =
        Behaviour::text("Answer: 4").fault_at(1, FakeReply::status(503)).fault_at(3, FakeReply::status(400));
    let endpoint = FakeEndpoint::start(behaviour).unwrap();
    let folder = Folder::with_endpoint(&endpoint, "");
    let recorded =
        folder.lemon(&["run", TASK, "--json", "--spec", "pair.yaml", "--record", "tape.jsonl"]).code(1).json();
    assert_eq!(recorded["stop_reason"], "answer_agents_failed", "{recorded}");
    let replayed = folder.lemon(&[&REPLAY[..], &["--spec", "pair.yaml"]].concat()).code(1).json();
    assert_eq!((essence(replayed), endpoint.calls()), (essence(recorded), 3));
}

#[test]
fn a_miss_is_a_clear_error() {
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "");
    folder.lemon(&["run", TASK, "--spec", "pair.yaml", "--record", "tape.jsonl"]).ok();
    for more in [&["--seed", "1"][..], &[]] {
        let task = if more.is_empty() { "Another?" } else { TASK };
        let args = [&["run", task], &REPLAY[2..], &["--spec", "pair.yaml"], more].concat();
        let ran = folder.lemon(&args).code(1);
        let result = ran.json();
        assert_eq!(result["agents"][0]["failure"]["kind"], "not_recorded", "{result}");
        assert!(ran.stderr.contains("has no recording of this call by agent `one`"), "{}", ran.stderr);
    }
    assert_eq!(endpoint.calls(), 2, "a replay asks no worker");
}

#[test]
fn a_cassette_is_never_overwritten() {
    let folder = Folder::with_pair().file("tape.jsonl", "precious");
    let args = ["run", TASK, "--workers", "scripted", "--script", "script.toml", "--record", "tape.jsonl"];
    folder.lemon(&args).code(2).complains(&["tape.jsonl", "hint: "]);
    assert_eq!(folder.read("tape.jsonl"), "precious");
}

/// A recording that was cut short by a crash can be replayed as far as it goes.
#[test]
fn a_cassette_cut_short() {
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "");
    folder.lemon(&["run", TASK, "--spec", "pair.yaml", "--record", "tape.jsonl"]).ok();
    let tape = folder.read("tape.jsonl");
    let folder = folder.file("tape.jsonl", &tape[..tape.len() - 20]);
    let result = folder.lemon(&[&REPLAY[..], &["--spec", "pair.yaml"]].concat()).code(1).json();
    assert_eq!((&result["agents"][0]["status"], &result["agents"][1]["status"]), (&"done".into(), &"failed".into()));
}
