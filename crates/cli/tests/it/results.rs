//! What a run prints, and what can be seen of it afterwards.

use crate::common::{Folder, endpoint};
use crate::snapshot;
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};
use serde_json::Value;

const TASK: &str = "A jacket of 80 dollars is 15 % off. What does it cost?";
const SCRIPTED: [&str; 6] = ["--workers", "scripted", "--script", "script.toml", "--spec", "pair.yaml"];

fn scripted<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["run", TASK], &SCRIPTED[..], more].concat()
}

#[test]
fn a_scripted_run() {
    let folder = Folder::with_pair();
    let plain = folder.exchange(&scripted(&[]));
    let quiet = folder.exchange(&scripted(&["--quiet"]));
    let json = folder.exchange(&scripted(&["--json", "--quiet"]));
    snapshot!("a_scripted_run", format!("{plain}\n{quiet}\n{json}"));
}

/// The one that needs nothing at all: no configuration, no endpoint, no files.
#[test]
fn the_demonstration() {
    let folder = Folder::new();
    let ran = folder.lemon(&["run", TASK, "--workers", "scripted"]).ok();
    assert_eq!(ran.stdout.lines().last(), Some("Answer: 68 dollars"), "{}", ran.exchange());
    assert!(ran.stderr.starts_with("scripted workers: the replies come from a script, no model is called\n"));
}

#[test]
fn the_task_can_come_from_standard_input() {
    use std::io::Write;
    let folder = Folder::with_pair();
    let args = [&["run", "-", "--json"], &SCRIPTED[..]].concat();
    let mut process = folder.command(&args);
    let mut process = crate::common::spawn(process.stdin(std::process::Stdio::piped()));
    process.stdin.take().unwrap().write_all(b"\n What is it? \n").unwrap();
    crate::common::finish(&args, process).ok();
    assert_eq!(folder.runs()[0]["question"], "What is it?");
}

#[track_caller]
fn check_result(result: &Value) {
    for field in ["run_id", "answer", "stop_reason", "spec", "agents", "tokens", "cost_usd", "wall_s"] {
        assert!(result.get(field).is_some(), "no {field} in {result}");
    }
    for agent in result["agents"].as_array().unwrap() {
        for field in ["id", "capacity", "status", "tokens_in", "tokens_out", "seconds"] {
            assert!(!agent[field].is_null(), "no {field} in {agent}");
        }
    }
    let tokens = |who: &str| result["tokens"][who].as_u64().unwrap();
    assert_eq!(tokens("total"), tokens("orchestrator") + tokens("workers"));
}

#[test]
fn json_is_json_however_it_ends() {
    let folder = Folder::with_pair()
        .file("bad.yaml", "agents: []\nanswer: {from: [x]}\n")
        .file("fails.toml", "[[reply]]\nerror = \"refused\"\n")
        .file("slow.toml", "[[reply]]\ntext = \"Answer: 1\"\ndelay_ms = 60000\n")
        .file("half.toml", "[[reply]]\nagent = \"two\"\nerror = \"refused\"\n[[reply]]\ntext = \"Answer: 1\"\n");
    let check = |more: &[&str], code: i32, reason: &str, answer: Value| {
        let ran = folder.lemon(&[&["run", TASK, "--workers", "scripted", "--json"], more].concat()).code(code);
        let result = ran.json();
        check_result(&result);
        assert_eq!((&result["stop_reason"], &result["answer"]), (&reason.into(), &answer), "{result}");
        assert_eq!(ran.stderr.contains("error: "), code != 0, "{}", ran.stderr);
        result
    };
    let pair = ["--script", "script.toml", "--spec", "pair.yaml"];
    let result = check(&pair, 0, "answered", "68".into());
    assert_eq!(result["spec"]["agents"].as_array().map(Vec::len), Some(2));
    check(&["--script", "fails.toml", "--spec", "pair.yaml"], 1, "all_agents_failed", Value::Null);
    check(&["--script", "half.toml", "--spec", "pair.yaml"], 1, "answer_agents_failed", "1".into());
    check(&["--script", "script.toml", "--spec", "bad.yaml"], 1, "rejected", Value::Null);
    check(&[&pair[..], &["--budget-calls", "0"]].concat(), 1, "call_budget", Value::Null);
    check(&[&pair[..], &["--budget-calls", "1"]].concat(), 1, "call_budget", "68".into());
    check(&[&pair[..], &["--budget-tokens", "0"]].concat(), 1, "token_budget", Value::Null);
    check(&["--script", "slow.toml", "--spec", "pair.yaml", "--timeout", "0"], 1, "time_budget", Value::Null);
}

#[test]
fn a_bad_specification_is_explained() {
    let folder = Folder::with_pair().file("bad.yaml", "agents:\n  - {id: a, base: solvr, capacity: small}\n");
    let args = ["run", TASK, "--workers", "scripted", "--script", "script.toml", "--spec", "bad.yaml"];
    snapshot!("a_bad_specification_is_explained", folder.exchange(&args));
}

#[test]
fn tokens_and_money_are_what_the_endpoint_says() {
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "");
    let result = folder.lemon(&["run", TASK, "--spec", "pair.yaml", "--json", "-q"]).ok().json();
    check_result(&result);
    // A word is a token there; a million in cost 10 dollars, out 20.
    let words = |text: &str| text.split_whitespace().count() as u64;
    let asked = |message: &Value| words(message["content"].as_str().unwrap());
    let requests = endpoint.requests();
    let tokens_in: u64 = requests.iter().flat_map(|r| r.body["messages"].as_array().unwrap()).map(asked).sum();
    let tokens_out = 2 * words("I have read it.\nAnswer: 123");
    assert_eq!(result["tokens"]["total"], tokens_in + tokens_out);
    let usd = (tokens_in * 10 + tokens_out * 20) as f64 / 1e6;
    assert!((result["cost_usd"].as_f64().unwrap() - usd).abs() < 1e-12, "{result}");
    assert_eq!(result["calls"], 2);
}

#[test]
fn without_prices_the_cost_is_not_known() {
    let endpoint = endpoint();
    let folder = Folder::with_pair();
    let url = endpoint.base_url();
    let args = ["run", TASK, "--spec", "pair.yaml", "--json", "--base-url", &url, "--model", "fake"];
    assert_eq!(folder.lemon(&args).ok().json()["cost_usd"], Value::Null);
}

#[test]
fn the_same_call_is_not_made_twice_unless_asked_for() {
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "");
    let run =
        |more: &[&str]| folder.lemon(&[&["run", TASK, "--spec", "pair.yaml", "--json"], more].concat()).ok().json();
    let first = run(&[]);
    let second = run(&[]);
    assert_eq!((&first["answer"], endpoint.calls()), (&second["answer"], 2));
    assert_eq!((&second["tokens"]["total"], &second["agents"][0]["reused"]), (&0.into(), &true.into()));
    run(&["--no-reuse"]);
    assert_eq!(endpoint.calls(), 4);
    run(&["--seed", "7"]);
    assert_eq!(endpoint.calls(), 6);
}

#[test]
fn a_flaky_endpoint_is_asked_again() {
    let behaviour = Behaviour::text("Answer: 5").fault_first_time(FakeReply::status(503));
    let endpoint = FakeEndpoint::start(behaviour).unwrap();
    let folder = Folder::with_endpoint(&endpoint, "");
    let result = folder.lemon(&["run", TASK, "--spec", "pair.yaml", "--json"]).ok().json();
    assert_eq!((&result["agents"][0]["attempts"], &result["calls"]), (&2.into(), &4.into()));
}

#[test]
fn traces() {
    let folder = Folder::with_pair();
    let none = folder.exchange(&["trace", "list"]);
    let none_json = folder.exchange(&["trace", "list", "--json"]);
    let no_store = folder.exchange(&["trace", "show"]);
    assert!(!folder.path(".lemon").exists(), "looking leaves nothing behind");
    folder.lemon(&scripted(&[])).ok();
    let mut text = format!("{none}\n{none_json}\n{no_store}\n");
    for args in [&["trace", "list"][..], &["trace", "show"], &["trace", "show", "nope"], &["trace", "show", ""]] {
        text += &(folder.exchange(args) + "\n");
    }
    snapshot!("traces", text);
    let row = &folder.runs()[0];
    let shown = folder.lemon(&["trace", "show", "--json"]).ok().json();
    check_result(&shown);
    assert_eq!((&shown["run_id"], &shown["question"]), (&row["run_id"], &TASK.into()));
    assert_eq!(row["running"], false);
    let beginning = &row["run_id"].as_str().unwrap()[..5];
    assert_eq!(folder.lemon(&["trace", "show", beginning, "--json"]).ok().json(), shown);
    folder.lemon(&scripted(&[])).ok();
    folder.lemon(&["trace", "show", "r-"]).code(2).complains(&["the beginning of 2 runs", "hint: "]);
    assert_eq!(
        folder.lemon(&["trace", "list", "--limit", "1", "--json"]).ok().json().as_array().map(Vec::len),
        Some(1)
    );
}

#[test]
fn diff() {
    let folder = Folder::with_pair().file("other.toml", "[[reply]]\ntext = \"Answer: 70\"\n");
    let run = |more: &[&str]| folder.lemon(&scripted(more)).ok();
    run(&[]);
    run(&[]);
    folder.lemon(&["run", TASK, "--workers", "scripted", "--script", "other.toml", "--spec", "pair.yaml"]).ok();
    let ids: Vec<String> = folder.runs().iter().map(|run| run["run_id"].as_str().unwrap().to_owned()).collect();
    // Newest first.
    let [other, second, first] = ids.as_slice() else { panic!("{ids:?}") };
    let equal = folder.exchange(&["trace", "diff", first, second]);
    let different = folder.exchange(&["trace", "diff", first, other]);
    snapshot!("diff", format!("{equal}\n{different}"));
    let json = folder.lemon(&["trace", "diff", first, other, "--json"]).ok().json();
    assert!(json.is_object(), "{json}");
    folder.lemon(&["trace", "diff", first, "nope"]).code(2).complains(&["no run is called `nope`"]);
}

/// `lemon trace show | head` ends without a complaint.
#[test]
fn a_reader_may_go_away() {
    let folder = Folder::with_pair();
    folder.lemon(&scripted(&[])).ok();
    let args = ["trace", "export", "--format", "html"];
    let mut process = folder.start(&args);
    drop(process.stdout.take());
    let ran = crate::common::finish(&args, process);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
}
