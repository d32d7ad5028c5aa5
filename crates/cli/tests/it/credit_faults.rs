//! `lemon credit` against endpoints that cost something, people who change their mind, and people who mistype.

use crate::common::{Folder, PAIR, finish, signal, wait_until};
use crate::eval::list;
use crate::snapshot;
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};
use serde_json::Value;

const ANSWER: &str = "The answer follows.\nAnswer: 18";
/// Pads a reply: what is said costs something.
const PADDING: usize = 200;

fn start(behaviour: Behaviour) -> FakeEndpoint {
    FakeEndpoint::start(behaviour).unwrap()
}

fn profile<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["credit", "--spec", "pair.yaml", "--set", "gsm8k", "--workers", "endpoints"], more].concat()
}

/// By the endpoint's own count, where a word is a token.
fn reported(endpoint: &FakeEndpoint) -> u64 {
    let words = |text: &str| text.split_whitespace().count() as u64;
    let spent = |body: &Value| {
        let prompt: u64 =
            list(&body["messages"]).iter().map(|message| words(message["content"].as_str().unwrap())).sum();
        prompt + (PADDING as u64 + words(ANSWER)).min(body["max_tokens"].as_u64().unwrap())
    };
    endpoint.requests().iter().map(|request| spent(&request.body)).sum()
}

/// Whatever the budget is, it holds; what it did not reach is not measured, and that is not zero.
#[test]
fn a_budget_is_never_overrun() {
    let mut complete = Vec::new();
    for budget in [12_000_u64, 16_000, 25_000, 60_000, 400_000] {
        let endpoint = start(Behaviour::text("word ".repeat(PADDING) + ANSWER));
        let folder = Folder::with_endpoint(&endpoint, "");
        let words = budget.to_string();
        let ran = folder.lemon(&profile(&["--limit", "4", "--budget-tokens", &words, "--json"]));
        assert!(ran.stderr.contains(&format!("at most {budget} tokens will be spent")), "{}", ran.stderr);
        let found = ran.json();
        let spent = reported(&endpoint);
        assert!(0 < spent && spent <= budget, "{spent} of {budget}");
        assert_eq!(found["reuse"]["tokens"], spent, "all of it is told");
        let effects = list(&found["effects"]);
        let missing = effects.iter().filter(|effect| effect["effect"].is_null()).count();
        let said = |effect: &Value| effect["verdict"] == "not_measured";
        assert!(effects.iter().all(|effect| effect["effect"].is_null() == said(effect)), "{found}");
        let is_complete = found["complete"] == true;
        assert!(!is_complete || missing == 0, "{found}");
        // As an evaluation that its budget ends: everything that was measured, and exit code 1.
        let code = i32::from(!is_complete);
        let ran = ran.code(code);
        assert_eq!(ran.stderr.contains("error: the budget is used up: "), !is_complete, "{}", ran.stderr);
        assert_eq!(
            ran.stderr.contains(&format!("; {missing} of {} edits are not measured", effects.len())),
            !is_complete
        );
        assert_eq!(ran.stderr.contains("hint: give more with --budget-tokens N"), !is_complete, "{}", ran.stderr);
        complete.push(is_complete);
        // Which calls wait for one another differs from run to run, and with it what a short budget reaches.
        let told = folder.lemon(&profile(&["--limit", "4", "--budget-tokens", &words]));
        let is_partial = told.stdout.starts_with("partial: not everything was measured\n");
        assert!(is_partial || !told.stdout.contains(" not measured: "), "{}", told.stdout);
        told.code(i32::from(is_partial));
    }
    assert_eq!((complete.first(), complete.last()), (Some(&false), Some(&true)));
}

#[test]
fn a_budget_that_allows_no_run() {
    let endpoint = start(Behaviour::text(ANSWER));
    let folder = Folder::with_endpoint(&endpoint, "");
    let ran = folder.lemon(&profile(&["--budget-tokens", "100", "-q"])).code(1);
    ran.complains(&["the budget is too small for one run", "hint: give more with --budget-tokens"]);
    assert_eq!(endpoint.calls(), 0);
}

/// What asks for limits or cannot be done is said before any worker is asked.
#[test]
fn what_endpoints_do_not_do() {
    let endpoint = start(Behaviour::text(ANSWER));
    let folder = Folder::with_endpoint(&endpoint, "");
    folder.lemon(&profile(&[])).code(2).complains(&["there is no limit", "hint: ", "--budget-tokens N"]);
    for more in [&["--apply", "lean.yaml"][..], &["--apply", "lean.yaml", "--budget-tokens", "100000"]] {
        folder.lemon(&profile(more)).code(2).complains(&["in the simulated world only", "hint: "]);
    }
    assert_eq!(endpoint.calls(), 0);
    assert!(!folder.path("lean.yaml").exists());
}

/// Half a profile is not told as if it were whole, and is added to no trace.
#[test]
fn interrupted() {
    for name in ["INT", "TERM"] {
        // The endpoint answers the original of two agents, and no call after it.
        let asked = std::sync::atomic::AtomicUsize::new(0);
        let endpoint =
            start(Behaviour::function(move |_| match asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
                0..4 => FakeReply::Text(ANSWER.into()),
                _ => FakeReply::Hang,
            }));
        let question = "What is 9 + 9?";
        let folder = Folder::with_endpoint(&endpoint, "")
            .file("sums.jsonl", "{\"question\": \"What is 9 + 9?\", \"answer\": 18}\n");
        folder.lemon(&["run", question, "--spec", "pair.yaml", "-q"]).ok();
        let before = folder.trace("last");
        let args = ["credit", "last", "--tasks", "sums.jsonl", "--workers", "endpoints", "--json"];
        let args = [&args[..], &["--repeats", "1", "--budget-tokens", "1000000"]].concat();
        let process = folder.start(&args);
        wait_until("a counterfactual waits", || endpoint.calls() > 4 && endpoint.in_flight() > 0);
        signal(&process, name);
        let ran = finish(&args, process).code(1);
        let found = ran.json();
        assert_eq!((&found["complete"], &found["baseline"]["runs"]), (&false.into(), &1.into()), "{found}");
        assert!(list(&found["effects"]).iter().any(|effect| effect["effect"].is_null()), "{found}");
        let end = "error: cancelled: not everything was measured\nhint: nothing was added to the run's trace\n";
        assert!(ran.stderr.ends_with(end), "{}", ran.stderr);
        assert_eq!(folder.trace("last"), before);
    }
}

#[test]
fn interrupted_before_anything_ended() {
    let endpoint = start(Behaviour::function(|_| FakeReply::Hang));
    let folder = Folder::with_endpoint(&endpoint, "");
    let args = profile(&["--limit", "2", "--budget-tokens", "1000000"]);
    let process = folder.start(&args);
    wait_until("an agent waits", || endpoint.in_flight() > 0);
    signal(&process, "INT");
    let ran = finish(&args, process).code(1);
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.ends_with("error: cancelled before the first run ended\n"), "{}", ran.stderr);
}

/// A run that has not ended has nothing to be credited for yet.
#[test]
fn a_run_under_way() {
    let endpoint = start(Behaviour::function(|_| FakeReply::Hang));
    let folder = Folder::with_endpoint(&endpoint, "");
    let mut process = folder.start(&["run", "What is 2 + 2?", "--spec", "pair.yaml"]);
    wait_until("an agent is asked", || endpoint.in_flight() > 0);
    folder.lemon(&["credit", "last", "--set", "gsm8k"]).code(2).complains(&["another process", "hint: "]);
    process.kill().unwrap();
    process.wait().unwrap();
    let ended = folder.lemon(&["credit", "last", "--set", "gsm8k"]).code(2);
    ended.complains(&["run r-", "has not ended", "hint: go on with it: `lemon run --resume r-"]);
}

#[test]
fn profiles_that_cannot_begin() {
    let folder = Folder::new()
        .file("bad.yaml", "agents:\n  - {id: think, base: genius, capacity: small, after: [absent]}\n")
        .file("pair.yaml", PAIR)
        .file("empty.jsonl", "\n");
    let mut text = String::new();
    let mut add = |args: &[&str]| {
        let ran = folder.lemon(&[&["credit"], args].concat()).code(2);
        assert_eq!(ran.stdout, "", "{}", ran.args);
        assert!(!folder.path(".lemon").exists(), "{} leaves something behind", ran.args);
        text += &(folder.tidy(&ran.exchange()) + "\n");
    };
    add(&[]);
    add(&["--set", "gsm8k"]);
    add(&["--spec", "pair.yaml"]);
    add(&["--spec", "bad.yaml", "--set", "gsm8k"]);
    add(&["--spec", "nowhere.yaml", "--set", "gsm8k"]);
    add(&["--spec", "pair.yaml", "--set", "chess"]);
    add(&["--spec", "pair.yaml", "--set", "gsm8k", "--tasks", "empty.jsonl"]);
    add(&["--spec", "pair.yaml", "--tasks", "empty.jsonl"]);
    add(&["--spec", "pair.yaml", "--tasks", "nowhere.jsonl"]);
    add(&["--spec", "pair.yaml", "--set", "gsm8k", "--limit", "0"]);
    add(&["--spec", "pair.yaml", "--set", "gsm8k", "--workers", "replay"]);
    add(&["--spec", "pair.yaml", "--set", "gsm8k", "--workers", "endpoints", "--budget-tokens", "9"]);
    add(&["--spec", "pair.yaml", "--set", "gsm8k", "--review", "nowhere.yaml"]);
    add(&["--spec", "pair.yaml", "--set", "gsm8k", "--apply", "a.yaml", "--picture", "a.svg"]);
    add(&["--spec", "pair.yaml", "r-22222222"]);
    add(&["r-22222222"]);
    snapshot!("profiles_that_cannot_begin", text);
    folder.lemon(&["eval", "--set", "gsm8k", "--methods", "cot", "--limit", "1", "-q"]).ok();
    folder.lemon(&["credit", "nope"]).code(2).complains(&["no run is called `nope`", "hint: "]);
}
