//! `lemon eval` against endpoints that fail, processes that are killed, and people who mistype.

use crate::common::{Draws, Folder, PAIR, finish, reply_of, signal, wait_until};
use crate::eval::{list, report, rows, without_names};
use crate::snapshot;
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::Child;
use std::time::Duration;

const GSM8K: &str = include_str!("../../../task/samples/gsm8k/test.jsonl");
/// Reuse would hide that an agent is asked again.
const NO_REUSE: &str = "[run]\nreuse = false\n";

/// Questions and answers of the sample.
fn sample() -> Vec<(String, String)> {
    let lines = GSM8K.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |record: &Value, key: &str| record[key].as_str().unwrap().to_owned();
    let answer = |record: &Value| text(record, "answer").rsplit("#### ").next().unwrap().trim().to_owned();
    lines.map(|record| (text(&record, "question"), answer(&record))).collect()
}

fn start(behaviour: Behaviour) -> FakeEndpoint {
    FakeEndpoint::start(behaviour).unwrap()
}

fn total(rows: &[Value], what: impl Fn(&Value) -> &Value) -> u64 {
    rows.iter().map(|row| what(row).as_u64().unwrap()).sum()
}

/// What the fake counts: a word is a token.
fn prompt_words(endpoint: &FakeEndpoint) -> u64 {
    let words = |text: &Value| text.as_str().unwrap().split_whitespace().count() as u64;
    let prompt = |body: &Value| list(&body["messages"]).iter().map(|message| words(&message["content"])).sum::<u64>();
    endpoint.requests().iter().map(|request| prompt(&request.body)).sum()
}

fn on_endpoints<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["--set", "gsm8k", "--workers", "endpoints"], more].concat()
}

#[test]
fn an_endpoint_that_always_says_the_same() {
    let answer = &sample()[0].1;
    let endpoint = start(Behaviour::text(format!("So it is.\nAnswer: {answer}")));
    let folder = Folder::with_endpoint(&endpoint, "");
    let report = report(&folder, &on_endpoints(&["--methods", "cot"]));
    let rows = rows(&folder, &report);
    let right = sample().iter().filter(|(_, gold)| gold == answer).count();
    assert!((1..24).contains(&right));
    let cot = &report["methods"][0];
    assert_eq!(cot["accuracy"].as_f64(), Some(right as f64 / 24.0));
    assert_eq!((endpoint.calls(), &cot["calls"], &cot["interval_kind"]), (24, &json!(1.0), &json!("wilson")));
    // Tokens are counted as the endpoint reports them, money by its prices.
    let words = prompt_words(&endpoint);
    assert_eq!(total(&rows, |row| &row["tokens"]["total"]), words + 24 * 5);
    let usd: f64 = rows.iter().map(|row| row["usd"].as_f64().unwrap()).sum();
    assert!((usd - (words as f64 * 10.0 + 24.0 * 5.0 * 20.0) / 1e6).abs() < 1e-9, "{usd}");
    assert_eq!((&cot["tokens_by"]["retried"], &cot["tokens_by"]["failed"]), (&json!(0.0), &json!(0.0)));
}

/// Every call fails once in this way and then succeeds.
#[track_caller]
fn check_retried(fault: FakeReply, costs: bool) {
    let endpoint = start(Behaviour::text("Answer: 1").fault_first_time(fault));
    let folder = Folder::with_endpoint(&endpoint, "");
    let report = report(&folder, &on_endpoints(&["--methods", "cot", "--limit", "4"]));
    let rows = rows(&folder, &report);
    assert_eq!((total(&rows, |row| &row["calls"]), endpoint.calls()), (8, 8), "each attempt counts");
    // Both attempts ask the same: each half of the words.
    let words = prompt_words(&endpoint) / 2;
    let retried = if costs { words } else { 0 };
    assert_eq!(total(&rows, |row| &row["tokens"]["retried"]), retried);
    assert_eq!(total(&rows, |row| &row["tokens"]["failed"]), 0, "nothing failed for good");
    assert_eq!(total(&rows, |row| &row["tokens"]["total"]), words + retried + 4 * 2);
    assert_eq!(report["methods"][0]["ends"], json!({"answered": 4}));
}

#[test]
fn attempts_that_are_tried_again() {
    check_retried(FakeReply::status(429), false);
    check_retried(FakeReply::Empty, true);
}

/// Runs that fail are wrong; the evaluation goes on and says so.
#[test]
fn a_level_that_always_fails() {
    let (good, bad) = (start(Behaviour::text("Answer: 42")), start(Behaviour::script([FakeReply::status(400)])));
    let cut = start(Behaviour::script([FakeReply::Truncated(" ".into())]));
    let level = |name, endpoint: &FakeEndpoint| {
        format!("[capacity.{name}]\nbase_url = '{}'\nmodel = 'm'\n", endpoint.base_url())
    };
    let folder =
        Folder::new().file("lemon.toml", level("small", &bad) + &level("medium", &good) + &level("large", &cut));
    let evaluate = |capacity| {
        let args = on_endpoints(&["--methods", "cot,chain:2,sc-cot:3", "--limit", "6"]);
        report(&folder, &[&args[..], capacity].concat())
    };
    let of = |report: &Value, what: &str| list(&report["methods"]).iter().map(|method| method[what].clone()).collect();
    let ends: Vec<Value> = of(&evaluate(&["--capacity", "small"]), "ends");
    assert_eq!(
        ends,
        [json!({"all_agents_failed": 6}), json!({"all_agents_failed": 6}), json!({"all_agents_failed": 6})]
    );

    // What was cut off before it had text cost something and is lost.
    let report = evaluate(&["--capacity", "large"]);
    let accuracies: Vec<Value> = of(&report, "accuracy");
    assert_eq!(accuracies, [0.0; 3]);
    for method in list(&report["methods"]) {
        assert!(method["tokens_by"]["failed"].as_f64() > Some(100.0), "{method}");
        assert_eq!((&method["tokens_by"]["failed"], &method["tokens_by"]["retried"]), (&method["tokens"], &json!(0.0)));
        assert_eq!(method["usd"], Value::Null, "no level has a price");
    }

    // Mixed: the chain's second agent and one of three voters are left.
    let ends: Vec<Value> = of(&evaluate(&[]), "ends");
    assert_eq!(ends[0], json!({"all_agents_failed": 6}));
    assert_eq!(ends[2], json!({"answered": 6}));

    let args = ["eval", "--set", "gsm8k", "--workers", "endpoints", "--limit", "2", "--methods", "cot", "-q"];
    let table = folder.lemon(&args).ok().stdout;
    assert!(table.contains("cot: 2 of 2 runs did not end as planned: 2 all_agents_failed\n"), "{table}");
}

#[test]
fn a_model_that_writes_the_teams() {
    const TEAM: &str = "agents:\n  - {id: think, base: solver, capacity: small}\n  \
                        - {id: look, base: critic, capacity: large, after: [think]}\n";
    let endpoint = start(Behaviour::function(|request| {
        let orchestrator = request.last("system").starts_with("You write teams.");
        FakeReply::Text(if orchestrator { TEAM.to_owned() } else { reply_of(request) })
    }));
    let folder = Folder::with_endpoint(&endpoint, "");
    let report = report(&folder, &on_endpoints(&["--methods", "prompted,cot", "--limit", "3"]));
    let rows = rows(&folder, &report);
    let prompted = &report["methods"][0];
    assert_eq!((&prompted["agents"], &prompted["calls"]), (&json!(2.0), &json!(3.0)));
    for row in &rows[..3] {
        let tokens = |what: &str| row["tokens"][what].as_u64().unwrap();
        assert!(tokens("orchestrator") > 100 && tokens("workers") > 50, "{row}");
        assert_eq!(tokens("total"), tokens("orchestrator") + tokens("workers"));
    }
    assert!(rows[3..].iter().all(|row| row["tokens"]["orchestrator"] == 0));
}

/// Kills a process, with a signal that cannot be caught, this many milliseconds after it has said so many lines; a tenth
/// of the runs is a line. Gives what it said.
fn kill_after(mut process: Child, lines: u64, ms: u64) -> String {
    let (mut said, mut stderr) = (String::new(), BufReader::new(process.stderr.take().unwrap()));
    for _ in 0..lines {
        stderr.read_line(&mut said).unwrap();
    }
    std::thread::sleep(Duration::from_millis(ms));
    process.kill().unwrap();
    process.wait().unwrap();
    said
}

/// The name of an evaluation, from the first line it says.
fn name_in(said: &str) -> String {
    let (id, _) = said.split_once(": ").unwrap();
    assert!(id.starts_with("e-"), "{said}");
    id.to_owned()
}

/// Of a run that was cut off, one event more is on record, and a call whose end is not on record counts in full. Its spans of time
/// begin elsewhere, so that their lengths may differ in the last bit.
fn as_if_never_killed(row: &Value, never_killed: &Value) -> Value {
    let mut row = without_names(row.clone());
    row["metrics"]["events"] = never_killed["metrics"]["events"].clone();
    let (found, expected) = (&row["metrics"]["parallel_speedup"], &never_killed["metrics"]["parallel_speedup"]);
    if let (Some(found), Some(expected)) = (found.as_f64(), expected.as_f64())
        && (found - expected).abs() < 1e-9
    {
        row["metrics"]["parallel_speedup"] = expected.into();
    }
    if row["tokens"]["failed"] != 0 {
        for what in ["tokens", "calls", "wall_s", "metrics", "agents"] {
            row[what] = never_killed[what].clone();
        }
    }
    row
}

#[test]
fn killed_in_the_simulated_world() {
    let seeds = (1..=16).map(|seed| seed.to_string()).collect::<Vec<_>>().join(",");
    let args = ["eval", "--set", "gsm8k", "--methods", "chain:3,random:3", "--seeds", &seeds, "--json"];
    let folder = Folder::new();
    let expected = folder.lemon(&args).ok().json();
    let expected_rows: Vec<Value> = rows(&folder, &expected).into_iter().map(without_names).collect();
    for seed in 1..=3 {
        let (folder, mut draws) = (Folder::new(), Draws::new(seed));
        let id = name_in(&kill_after(folder.start(&args), 1 + draws.below(5), draws.below(9)));
        let resume = ["eval", "--resume", &id, "--json"];
        kill_after(folder.start(&resume), 6 + draws.below(5), draws.below(9));
        let found = folder.lemon(&resume).ok().json();
        let found_rows = rows(&folder, &found);
        assert_eq!(found_rows.len(), expected_rows.len());
        for (found, expected) in found_rows.iter().zip(&expected_rows) {
            assert_eq!(as_if_never_killed(found, expected), *expected, "seed {seed}");
        }
        for (found, expected) in list(&found["methods"]).iter().zip(list(&expected["methods"])) {
            for what in ["runs", "accuracy", "interval", "legacy_accuracy", "agents", "ends"] {
                assert_eq!(found[what], expected[what], "seed {seed}");
            }
        }
        // Once more costs nothing and changes nothing.
        let again = folder.lemon(&resume).ok().json();
        assert_eq!(again, found, "seed {seed}");
        assert_eq!(rows(&folder, &again), found_rows);
    }
}

/// Calls by item.
fn calls_by_question(endpoint: &FakeEndpoint) -> BTreeMap<usize, usize> {
    let questions = sample();
    let mut calls = BTreeMap::new();
    for request in endpoint.requests() {
        let text = request.body["messages"][1]["content"].as_str().unwrap().to_owned();
        let item = questions.iter().position(|(question, _)| text.contains(question.trim())).unwrap();
        *calls.entry(item).or_default() += 1;
    }
    calls
}

/// What was finished is not asked again.
#[test]
fn killed_against_an_endpoint() {
    let slow = || start(Behaviour::function(|request| FakeReply::Text(reply_of(request))).latency_ms(25));
    let args: Vec<&str> =
        [&["eval", "--json"], &on_endpoints(&["--methods", "chain:2", "--limit", "10", "--width", "2"])[..]].concat();
    let endpoint = slow();
    let folder = Folder::with_endpoint(&endpoint, NO_REUSE);
    let expected = rows(&folder, &folder.lemon(&args).ok().json());
    assert_eq!(calls_by_question(&endpoint), (0..10).map(|item| (item, 2)).collect());
    for seed in 1..=4 {
        let (endpoint, mut draws) = (slow(), Draws::new(seed));
        let folder = Folder::with_endpoint(&endpoint, NO_REUSE);
        let mut finished: BTreeMap<usize, usize> = BTreeMap::new();
        let lines = [1, 5].map(|least| least + draws.below(4));
        // What it is likely to cost is a line too.
        let id = name_in(&kill_after(folder.start(&args), lines[0] + 1, draws.below(30)));
        let resume = ["eval", "--resume", &id, "--json"];
        let mut look = || {
            let calls = calls_by_question(&endpoint);
            for run in folder.runs().iter().filter(|run| run["stop_reason"] == "answered") {
                let item: usize = run["task_id"].as_str().unwrap().rsplit('/').next().unwrap().parse().unwrap();
                assert_eq!(finished.entry(item).or_insert(calls[&item]), &calls[&item], "seed {seed}, item {item}");
            }
            finished.len() as u64
        };
        assert!(look() >= lines[0] - 1, "what was reported is on record");
        kill_after(folder.start(&resume), lines[1], draws.below(30));
        assert!(look() >= lines[1] - 1, "what was reported is on record");
        let found = rows(&folder, &folder.lemon(&resume).ok().json());
        let seen =
            |rows: &[Value]| rows.iter().map(|row| (row["answer"].clone(), row["right"].clone())).collect::<Vec<_>>();
        assert_eq!(seen(&found), seen(&expected), "seed {seed}");
        assert_eq!(look(), 10);
        assert!(endpoint.most_calls_of_a_key() <= 3, "once for each process at most");
        let of_evaluation = folder.runs().into_iter().filter(|run| run["batch"] == id.as_str());
        assert_eq!(of_evaluation.count(), 10, "one run an item, however often it was taken up");
    }
}

/// What is finished is reported, what is missing is said, and the way on.
#[test]
fn interrupted() {
    for name in ["INT", "TERM"] {
        let question = sample().swap_remove(2).0;
        let endpoint = start(Behaviour::function(move |request| {
            match request.text().contains(question.trim()) && request.asked_before == 0 {
                true => FakeReply::Hang,
                false => FakeReply::Text(reply_of(request)),
            }
        }));
        let folder = Folder::with_endpoint(&endpoint, "");
        let args = ["eval", "--set", "gsm8k", "--workers", "endpoints", "--methods", "cot", "--limit", "4", "--json"];
        let process = folder.start(&args);
        let ended = || folder.path(".lemon/lemon.db").exists() && endpoint.calls() == 4 && endpoint.in_flight() == 1;
        wait_until("all but one are answered", || ended() && count_ended(&folder) == 3);
        let id = folder.runs()[0]["batch"].as_str().unwrap().to_owned();
        let second = folder.lemon(&["eval", "--resume", &id]).code(2);
        second.complains(&[&format!("another process works on `{id}`"), "hint: "]);
        signal(&process, name);
        let ran = finish(&args, process).code(1);
        assert_eq!(ran.json()["methods"][0]["runs"], 3, "{}", ran.stderr);
        let expected = format!("error: 1 of 4 runs are missing\nhint: go on with `lemon eval --resume {id}`\n");
        assert!(ran.stderr.ends_with(&expected), "{}", ran.stderr);
        let report = folder.lemon(&["eval", "--resume", &id, "--json"]).ok().json();
        assert_eq!(report["methods"][0]["ends"], json!({"answered": 4}));
        assert_eq!(endpoint.calls(), 5);
    }
}

fn count_ended(folder: &Folder) -> usize {
    folder.runs().iter().filter(|run| run["stop_reason"] == "answered").count()
}

#[test]
fn evaluations_that_cannot_begin() {
    let folder = Folder::new()
        .file("bad.yaml", "agents:\n  - {id: think, base: genius, capacity: small, after: [absent]}\n")
        .file("pair.yaml", PAIR)
        .file("empty.jsonl", "\n")
        .file("one.jsonl", "{\"question\": \"What is 1 + 1?\", \"answer\": 2}\n")
        .file("broken.jsonl", "what?\n{\"question\": \"Which?\"}\n")
        .file("a_file", "in the way")
        .file("other.db", "This is not a database, and long enough to be sure of it.".repeat(40));
    let mut text = String::new();
    let mut add = |args: &[&str]| {
        let ran = folder.lemon(&[&["eval"], args].concat()).code(2);
        assert_eq!(ran.stdout, "", "{}", ran.args);
        assert!(!folder.path(".lemon").exists(), "{} leaves something behind", ran.args);
        text += &(folder.tidy(&ran.exchange()) + "\n");
    };
    add(&[]);
    add(&["--set", "chess"]);
    add(&["--set", "gsm8k,gsm8k"]);
    add(&["--set", "empty.jsonl"]);
    add(&["--set", "broken.jsonl"]);
    add(&["--set", "gsm8k", "--split", "exam"]);
    add(&["--set", "gsm8k", "--split", "arg-designer"]);
    add(&["--set", "gsm8k", "--data", "nowhere"]);
    add(&["--set", "gsm8k", "--limit", "0"]);
    add(&["--set", "gsm8k", "--methods", "coot"]);
    add(&["--set", "gsm8k", "--methods", "cot:3"]);
    add(&["--set", "gsm8k", "--methods", "debate:99"]);
    add(&["--set", "gsm8k", "--methods", "cot,debate:2,debate"]);
    add(&["--set", "gsm8k", "--capacity", "huge"]);
    add(&["--set", "gsm8k", "--seeds", "1,2,1"]);
    add(&["--set", "gsm8k", "--seeds", "1", "--seed", "2"]);
    add(&["--set", "gsm8k", "--workers", "elves"]);
    add(&["--set", "gsm8k", "--workers", "endpoints"]);
    add(&["--set", "gsm8k", "--workers", "replay"]);
    add(&["--set", "gsm8k", "--methods", "prompted"]);
    add(&["--set", "gsm8k", "--methods", "agentprune", "--workers", "replay", "--data", "nowhere"]);
    add(&["--set", "gsm8k", "--split", "paper-train", "--methods", "agentprune"]);
    add(&["--set", "one.jsonl", "--methods", "agentprune"]);
    add(&["--set", "gsm8k", "--methods", "file"]);
    add(&["--set", "gsm8k", "--methods", "cot", "--spec", "pair.yaml"]);
    add(&["--set", "gsm8k", "--methods", "file", "--spec", "nowhere.yaml"]);
    add(&["--set", "gsm8k", "--methods", "cot,file", "--spec", "bad.yaml"]);
    add(&["--set", "gsm8k", "--out", "a_file"]);
    add(&["--set", "gsm8k", "--out", "a_file/deeper"]);
    add(&["--set", "gsm8k", "--out", "reports", "--store", "other.db"]);
    add(&["--resume", "e-22222222"]);
    add(&["--resume", "e-22222222", "--set", "gsm8k"]);
    add(&["--resume", "e-22222222", "--methods", "cot"]);
    snapshot!("evaluations_that_cannot_begin", text);
    assert!(folder.read("other.db").starts_with("This is not a database"), "it is left as it is");
}

/// A database has four bytes that say whose it is.
#[test]
fn a_store_of_another_program() {
    let folder = Folder::new();
    let args = ["--set", "gsm8k", "--limit", "1", "--methods", "cot"];
    let id = report(&folder, &args)["set_up"]["eval_id"].clone();
    let mut store = std::fs::read(folder.path(".lemon/lemon.db")).unwrap();
    store[68..72].copy_from_slice(b"none");
    let folder = folder.file(".lemon/lemon.db", store);
    let resume = ["eval", "--resume", id.as_str().unwrap()];
    for args in [&[&["eval"], &args[..]].concat()[..], &resume] {
        folder.lemon(args).code(2).complains(&["database of another program", "hint: name another store with --store"]);
    }
}

#[test]
fn what_is_no_evaluation_is_not_taken_up_as_one() {
    let folder = Folder::with_pair().file("tasks.jsonl", "{\"question\": \"What is 2 + 2?\"}\n");
    let args = ["run", "--tasks", "tasks.jsonl", "--workers", "scripted", "--script", "script.toml"];
    folder.lemon(&[&args[..], &["--spec", "pair.yaml"]].concat()).ok();
    let batch = folder.runs()[0]["batch"].as_str().unwrap().to_owned();
    let id = report(&folder, &["--set", "gsm8k", "--limit", "1", "--methods", "cot"])["set_up"]["eval_id"].clone();
    let exchange = |args: &[&str]| {
        folder.lemon(args).code(2).complains(&["hint: "]);
        folder.exchange(args) + "\n"
    };
    let text = [
        exchange(&["eval", "--resume", &batch]),
        exchange(&["eval", "--resume", "e-2222222"]),
        exchange(&["run", "--resume", id.as_str().unwrap()]),
    ];
    snapshot!("no_evaluations", text.concat());
}
