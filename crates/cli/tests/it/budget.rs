//! Limits: met in good order, never overrun, and a run can go on with more.

use crate::common::{Folder, calls_of, endpoint};
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};
use serde_json::Value;

const TASK: &str = "What is 2 + 2?";
const CHAIN: &str = "agents:
  - {id: a, base: solver, role: R1, capacity: small}
  - {id: b, base: critic, role: R2, capacity: small, after: [a]}
  - {id: c, base: critic, role: R3, capacity: medium, after: [b]}
  - {id: d, base: critic, role: R4, capacity: large, after: [c]}
";

fn folder(endpoint: &FakeEndpoint) -> Folder {
    Folder::with_endpoint(endpoint, "[run]\nleast_reply_tokens = 8\n").file("chain.yaml", CHAIN)
}

/// Runs the chain under `limit`, checks how it ended, goes on with `more`, and checks that no agent was asked twice.
#[track_caller]
fn check(limit: [&str; 2], more: [&str; 2], reason: &str, within: impl Fn(&Value) -> bool) {
    let endpoint = endpoint();
    let folder = folder(&endpoint);
    let whole = folder.lemon(&["run", TASK, "--spec", "chain.yaml", "--json", "--store", "other.db"]).ok().json();
    assert!(!within(&whole), "the limit would not be met: {whole}");
    let before = endpoint.calls();
    let args = [&["run", TASK, "--spec", "chain.yaml", "--json"], &limit[..]].concat();
    let ran = folder.lemon(&args).code(1);
    let result = ran.json();
    assert_eq!(result["stop_reason"], reason, "{result}");
    assert!(within(&result), "{result}");
    assert!(ran.stderr.contains("hint: ") && ran.stderr.contains(more[0]), "the way on is told: {}", ran.stderr);
    assert!(endpoint.calls() - before < 4);
    // The same limit again does not help, and does no harm.
    let again = folder.lemon(&["run", "--resume", "last", "--json"]).code(1).json();
    assert_eq!((&again["stop_reason"], within(&again)), (&reason.into(), true), "{again}");
    let result = folder.lemon(&[&["run", "--resume", "last", "--json"], &more[..]].concat()).ok().json();
    assert_eq!((&result["stop_reason"], &result["answer"]), (&"answered".into(), &whole["answer"]), "{result}");
    assert_eq!(endpoint.calls() - before, 4, "no agent was asked twice");
    for role in ["R1", "R2", "R3", "R4"] {
        assert_eq!(calls_of(&endpoint, role, TASK), 2, "{role}: once for each run");
    }
    assert_eq!(folder.runs().len(), 1);
}

#[test]
fn calls() {
    check(["--budget-calls", "2"], ["--budget-calls", "9"], "call_budget", |result| {
        result["calls"].as_u64() <= Some(2)
    });
    check(["--budget-calls", "0"], ["--budget-calls", "4"], "call_budget", |result| {
        result["calls"].as_u64() == Some(0)
    });
}

#[test]
fn tokens() {
    let within = |limit: u64| move |result: &Value| result["tokens"]["total"].as_u64().unwrap() <= limit;
    check(["--budget-tokens", "280"], ["--budget-tokens", "100000"], "token_budget", within(280));
    check(["--budget-tokens", "0"], ["--budget-tokens", "100000"], "token_budget", within(0));
}

#[test]
fn money() {
    let within = |limit: f64| move |result: &Value| result["cost_usd"].as_f64().unwrap() <= limit;
    check(["--budget-usd", "0.003"], ["--budget-usd", "1"], "cost_budget", within(0.003));
    check(["--budget-usd", "0"], ["--budget-usd", "1"], "cost_budget", within(0.0));
}

/// Every limit from nothing to plenty: whatever it is, it holds, by the endpoint's own count.
#[test]
fn never_overrun() {
    for limit in (0..1200).step_by(75) {
        let endpoint = FakeEndpoint::start(Behaviour::text("word ".repeat(3000))).unwrap();
        let folder = folder(&endpoint);
        let args = ["run", TASK, "--spec", "chain.yaml", "--json", "--budget-tokens", &limit.to_string()];
        let result = folder.lemon(&args).code(1).json();
        let words = |text: &str| text.split_whitespace().count() as u64;
        let prompt = |body: &Value| {
            body["messages"].as_array().unwrap().iter().map(|m| words(m["content"].as_str().unwrap())).sum::<u64>()
        };
        // Every reply is cut at what it was allowed.
        let spent = |body: &Value| prompt(body) + body["max_tokens"].as_u64().unwrap();
        let spent: u64 = endpoint.requests().iter().map(|request| spent(&request.body)).sum();
        assert!(spent <= limit, "{spent} of {limit}: {result}");
        assert_eq!(result["tokens"]["total"], spent);
    }
}

#[test]
fn time() {
    // The second agent is never answered the first time.
    let behaviour =
        Behaviour::function(|request| match request.text().contains("You are: R2.") && request.asked_before == 0 {
            true => FakeReply::Hang,
            false => FakeReply::Text("Answer: 4".into()),
        });
    let endpoint = FakeEndpoint::start(behaviour).unwrap();
    let folder = folder(&endpoint);
    let args = ["run", TASK, "--spec", "chain.yaml", "--json", "--timeout", "4"];
    let result = folder.lemon(&args).code(1).json();
    assert_eq!((&result["stop_reason"], &result["answer"]), (&"time_budget".into(), &"4".into()), "{result}");
    let result = folder.lemon(&["run", "--resume", "last", "--json", "--timeout", "600"]).ok().json();
    assert_eq!(result["stop_reason"], "answered");
    assert_eq!(["R1", "R2", "R3", "R4"].map(|role| calls_of(&endpoint, role, TASK)), [1, 2, 1, 1]);
}

/// A budget in money needs the price of every level.
#[test]
fn money_without_prices() {
    let endpoint = endpoint();
    let url = endpoint.base_url();
    let level = |name, more| format!("[capacity.{name}]\nbase_url = '{url}'\nmodel = 'm'\n{more}");
    let toml = level("small", "price = { input = 1, output = 1 }\n") + &level("large", "");
    let folder = Folder::with_pair().file("lemon.toml", toml);
    let ran = folder.lemon(&["run", TASK, "--budget-usd", "1"]).code(2);
    ran.complains(&["capacity `large` has no price", "hint: add `price"]);
    assert_eq!(endpoint.calls(), 0);
}
