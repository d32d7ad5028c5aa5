//! Killed, interrupted, ended: nothing that was finished is done again, and the end is the same.

use crate::common::{Draws, Folder, calls_of, finish, reply_of, role_in, signal, wait_until};
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply, fault_rounds};
use lemon_trace::{AgentStatus, Event, EventKind, Trace};
use serde_json::Value;
use std::collections::HashMap;
use std::process::Child;
use std::time::Duration;

const TASK: &str = "What is the seventh prime?";
/// Ten agents in four layers.
const TEAM: &str = "agents:
  - {id: a1, base: solver, role: R1, capacity: small}
  - {id: a2, base: solver, role: R2, capacity: small}
  - {id: a3, base: solver, role: R3, capacity: small}
  - {id: a4, base: solver, role: R4, capacity: small}
  - {id: b1, base: critic, role: R5, capacity: medium, after: [a1, a2]}
  - {id: b2, base: critic, role: R6, capacity: medium, after: [a3, a4]}
  - {id: b3, base: critic, role: R7, capacity: medium, after: [a1, a4]}
  - {id: c1, base: critic, role: R8, capacity: large, after: [b1, b2]}
  - {id: c2, base: critic, role: R9, capacity: large, after: [b2, b3]}
  - {id: d1, base: judge, role: R10, capacity: large, after: [c1, c2]}
";

/// Answers by [`reply_of`], each role after a time of its own: 60 to 120 ms.
fn slow() -> FakeEndpoint {
    let reply = |request: &lemon_fakes::ChatRequest| {
        let role = role_in(request.last("system")).trim_start_matches('R').parse().unwrap_or(0usize);
        FakeReply::Text(format!("{}{}", "well ".repeat(role * 7 % 10), reply_of(request)))
    };
    FakeEndpoint::start(Behaviour::function(reply).latency_ms(30).per_token_ms(6)).unwrap()
}

fn folder(endpoint: &FakeEndpoint, more: &str) -> Folder {
    Folder::with_endpoint(endpoint, more).file("team.yaml", TEAM)
}

/// How often each finished agent has been asked.
fn calls_of_finished(folder: &Folder, run: &str, endpoint: &FakeEndpoint) -> HashMap<String, usize> {
    let trace = folder.trace(run);
    let summary = trace.summary();
    let done = summary.agents.iter().filter(|agent| agent.status == Some(AgentStatus::Done));
    done.map(|agent| (agent.role.clone(), calls_of(endpoint, &agent.role, TASK))).collect()
}

/// How often an agent finished.
fn times_done(trace: &Trace) -> usize {
    let done = |event: &&Event| matches!(event.kind, EventKind::Return { status: AgentStatus::Done, .. });
    trace.events.iter().filter(done).count()
}

/// Kills a process, with a signal that cannot be caught, a moment after it has made some of the ten calls or more that all of it
/// would make: at its start, or in the middle, however slow the machine is.
fn kill_in_the_middle(process: &mut Child, endpoint: &FakeEndpoint, draws: &mut Draws, kills: usize) {
    let (calls, wait) = (endpoint.calls() + draws.below(10 / kills as u64 + 1), draws.below(60));
    wait_until("calls, or the end", || endpoint.calls() >= calls || process.try_wait().unwrap().is_some());
    std::thread::sleep(Duration::from_millis(wait));
    process.kill().unwrap();
    process.wait().unwrap();
}

/// Starts a run and kills it again and again, at instants that depend on the seed; then lets it end.
fn check_killed(seed: u64, kills: usize, more: &str) {
    let endpoint = slow();
    let expected =
        folder(&endpoint, "").lemon(&["run", TASK, "--spec", "team.yaml", "--json"]).ok().json()["answer"].clone();
    let endpoint = slow();
    let folder = folder(&endpoint, more);
    let mut draws = Draws::new(seed);
    let mut finished: HashMap<String, usize> = HashMap::new();
    for _ in 0..kills {
        let id = folder.runs().first().map(|run| run["run_id"].as_str().unwrap().to_owned());
        let args = match &id {
            None => vec!["run", TASK, "--spec", "team.yaml", "--json"],
            Some(id) => vec!["run", "--resume", id, "--json"],
        };
        let mut process = folder.start(&args);
        kill_in_the_middle(&mut process, &endpoint, &mut draws, kills);
        if let Some(run) = folder.runs().first() {
            let now = calls_of_finished(&folder, run["run_id"].as_str().unwrap(), &endpoint);
            for (role, calls) in &finished {
                assert_eq!(now.get(role), Some(calls), "{role} was finished and is asked again, seed {seed}");
            }
            finished = now;
        }
    }
    let args =
        if folder.runs().is_empty() { ["run", TASK, "--spec", "team.yaml"] } else { ["run", "--resume", "last", "-q"] };
    let result = folder.lemon(&[&args[..], &["--json"]].concat()).ok().json();
    assert_eq!((&result["answer"], &result["stop_reason"]), (&expected, &"answered".into()), "seed {seed}");
    assert_eq!(result["agents"].as_array().map(Vec::len), Some(10));
    for (role, calls) in finished {
        assert_eq!(calls_of(&endpoint, &role, TASK), calls, "{role} was finished and is asked again, seed {seed}");
    }
    assert!(endpoint.most_calls_of_a_key() <= kills as u64 + 1, "once for each process at most");
    assert_eq!(folder.runs().len(), 1, "one run, however often it was taken up");
    let trace = folder.trace("last");
    let ids: Vec<u32> = trace.events.iter().map(|event| event.id).collect();
    assert_eq!(ids, (1..=ids.len() as u32).collect::<Vec<_>>(), "no event is lost or told twice");
    let stops = trace.events.iter().filter(|event| matches!(event.kind, EventKind::Stop { .. })).count();
    assert_eq!(stops, 1);
    assert_eq!(times_done(&trace), 10, "every agent finished once, seed {seed}");
}

// Mostly without the reuse of replies, which would hide that an agent is asked again.
const NO_REUSE: &str = "[run]\nreuse = false\n";

#[test]
fn killed_once() {
    (0..fault_rounds(5)).for_each(|seed| check_killed(1 + 16 * seed, 1, NO_REUSE));
}

#[test]
fn killed_twice() {
    (0..fault_rounds(3)).for_each(|seed| check_killed(2 + 16 * seed, 2, ""));
}

#[test]
fn killed_four_times() {
    (0..fault_rounds(1)).for_each(|seed| check_killed(3 + 16 * seed, 4, NO_REUSE));
}

/// A batch: each task once, in order, and what was finished is not run again.
fn check_batch_killed(seed: u64, kills: usize) {
    let endpoint = slow();
    let ids = ["t1", "t2", "t3", "t4", "t5", "t6"];
    let line = |id: &&str| format!("{{\"id\": \"{id}\", \"question\": \"What about {id}?\"}}\n");
    let tasks: String = ids.iter().map(line).collect();
    let folder = folder(&endpoint, NO_REUSE).file("tasks.jsonl", tasks);
    let begin = ["run", "--tasks", "tasks.jsonl", "--spec", "pair.yaml", "--width", "2", "--json"];
    let mut draws = Draws::new(seed);
    let mut finished: HashMap<String, usize> = HashMap::new();
    let calls =
        |question: &str| ["First", "Second"].map(|role| calls_of(&endpoint, role, question)).iter().sum::<usize>();
    let batch = || folder.runs().first().map(|run| run["batch"].as_str().unwrap().to_owned());
    for _ in 0..kills {
        let batch = batch();
        let args = batch.as_ref().map_or(begin.to_vec(), |batch| vec!["run", "--resume", batch, "--json"]);
        let mut process = folder.start(&args);
        kill_in_the_middle(&mut process, &endpoint, &mut draws, kills);
        for run in folder.runs().iter().filter(|run| run["stop_reason"] == "answered") {
            let question = run["question"].as_str().unwrap();
            let before = finished.insert(question.to_owned(), calls(question));
            assert!(before.is_none_or(|before| before == calls(question)), "{question} was finished, seed {seed}");
        }
    }
    let batch = batch();
    let args = batch.as_ref().map_or(begin.to_vec(), |batch| vec!["run", "--resume", batch, "--json"]);
    let results = folder.lemon(&args).ok().json_lines();
    let answered: Vec<_> = results.iter().map(|result| result["task_id"].as_str().unwrap()).collect();
    assert_eq!(answered, ids, "seed {seed}");
    assert!(results.iter().all(|result| result["stop_reason"] == "answered"));
    for (question, before) in finished {
        assert_eq!(calls(&question), before, "{question} was finished, seed {seed}");
    }
    assert_eq!(results.len(), folder.runs().len(), "one run a task");
    for result in results {
        let trace = folder.trace(result["run_id"].as_str().unwrap());
        assert_eq!(times_done(&trace), 2, "every agent finished once, seed {seed}");
    }
}

#[test]
fn a_batch_killed_once() {
    (0..fault_rounds(2)).for_each(|seed| check_batch_killed(4 + 16 * seed, 1));
}

#[test]
fn a_batch_killed_three_times() {
    (0..fault_rounds(1)).for_each(|seed| check_batch_killed(5 + 16 * seed, 3));
}

/// Two agents; the second is not answered when it is asked for the first time.
fn hanging() -> FakeEndpoint {
    let behaviour =
        Behaviour::function(|request| match request.text().contains("You are: Second.") && request.asked_before == 0 {
            true => FakeReply::Hang,
            false => FakeReply::Text(reply_of(request)),
        });
    FakeEndpoint::start(behaviour).unwrap()
}

fn check_signal(name: &str) {
    let endpoint = hanging();
    let folder = folder(&endpoint, "");
    let args = ["run", TASK, "--spec", "pair.yaml", "--json"];
    let process = folder.start(&args);
    wait_until("the second agent is asked", || endpoint.calls() == 2);
    signal(&process, name);
    let result = finish(&args, process).code(1).json();
    assert_eq!(result["stop_reason"], "cancelled", "{result}");
    let status: Vec<_> = result["agents"].as_array().unwrap().iter().map(|agent| agent["status"].clone()).collect();
    assert_eq!(status, ["done", "cancelled"]);
    let resumed = folder.lemon(&["run", "--resume", result["run_id"].as_str().unwrap(), "--json"]).ok().json();
    assert_eq!(resumed["stop_reason"], "answered");
    assert_eq!([calls_of(&endpoint, "First", TASK), calls_of(&endpoint, "Second", TASK)], [1, 2]);
}

#[test]
fn interrupted() {
    check_signal("INT");
}

#[test]
fn terminated() {
    check_signal("TERM");
}

#[test]
fn interrupted_while_the_team_is_written() {
    let behaviour = Behaviour::script([
        FakeReply::Hang,
        FakeReply::Text("agents: [{id: x, base: solver, capacity: small}]".into()),
    ]);
    let endpoint = FakeEndpoint::start(behaviour).unwrap();
    let folder = folder(&endpoint, "[orchestrator]\nkind = 'prompted'\nguard = false\n");
    let args = ["run", TASK, "--json"];
    let process = folder.start(&args);
    wait_until("the orchestrator is asked", || endpoint.calls() == 1);
    signal(&process, "INT");
    let result = finish(&args, process).code(1).json();
    assert_eq!((&result["stop_reason"], &result["spec"]), (&"cancelled".into(), &Value::Null), "{result}");
    let resumed = folder.lemon(&["run", "--resume", "last", "--json"]).ok().json();
    assert_eq!(resumed["agents"][0]["id"], "x");
}

/// Every task that was begun has its line; the batch goes on where it stood.
#[test]
fn a_batch_interrupted() {
    let endpoint = hanging();
    let folder = folder(&endpoint, "").file("tasks.jsonl", "{\"question\": \"What about this?\"}");
    let args = ["run", "--tasks", "tasks.jsonl", "--spec", "pair.yaml", "--json"];
    let process = folder.start(&args);
    wait_until("the second agent is asked", || endpoint.calls() == 2);
    signal(&process, "INT");
    let lines = finish(&args, process).code(1).json_lines();
    assert_eq!(lines[0]["stop_reason"], "cancelled");
    let batch = folder.runs()[0]["batch"].as_str().unwrap().to_owned();
    let lines = folder.lemon(&["run", "--resume", &batch, "--json"]).ok().json_lines();
    assert_eq!((lines.len(), &lines[0]["stop_reason"]), (1, &"answered".into()));
}

/// The cost of a call that was killed is unknown: it counts as all that was reserved for it, in every budget.
#[test]
fn what_a_killed_call_may_have_cost_is_counted() {
    let endpoint = hanging();
    let folder = folder(&endpoint, "");
    let limits = ["--budget-tokens", "4000", "--budget-usd", "0.1", "--budget-calls", "3"];
    let mut process = folder.start(&[&["run", TASK, "--spec", "pair.yaml", "--json"], &limits[..]].concat());
    wait_until("the second agent is asked", || endpoint.calls() == 2);
    // A reservation is sent to the store before the call, and not waited for.
    let is_call = |kind: &EventKind| matches!(kind, EventKind::Delegate { .. });
    wait_until("its reservation is on record", || {
        folder.trace("last").events.iter().filter(|event| is_call(&event.kind)).count() == 2
    });
    process.kill().unwrap();
    process.wait().unwrap();
    let reserved = folder.trace("last").events.iter().fold(0, |last, event| match event.kind {
        EventKind::Delegate { reserved, .. } => reserved,
        _ => last,
    });
    assert!(reserved > 1000, "{reserved}");
    let result = folder.lemon(&["run", "--resume", "last", "--json"]).ok().json();
    let tokens = |who: &str| result["tokens"][who].as_u64().unwrap();
    assert!(tokens("failed") == reserved && (reserved..=4000).contains(&tokens("total")), "{result}");
    let usd = result["cost_usd"].as_f64().unwrap();
    assert!(usd >= reserved as f64 * 10.0 / 1e6 && usd <= 0.1, "{result}");
    assert_eq!(result["calls"], 3);
}

/// A run is worked on by one process at a time.
#[test]
fn busy() {
    let endpoint = hanging();
    let folder = folder(&endpoint, "");
    let mut process = folder.start(&["run", TASK, "--spec", "pair.yaml"]);
    wait_until("the second agent is asked", || endpoint.calls() == 2);
    assert_eq!(folder.runs()[0]["running"], true);
    assert!(folder.lemon(&["trace", "list"]).ok().stdout.contains("running"));
    let shown = folder.lemon(&["trace", "show", "--json"]).ok().json();
    assert_eq!((&shown["stop_reason"], &shown["agents"][1]["status"]), (&Value::Null, &"unfinished".into()));
    folder.lemon(&["run", "--resume", "last"]).code(2).complains(&["another process", "hint: "]);
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(folder.runs()[0]["running"], false);
    assert!(folder.lemon(&["trace", "list"]).ok().stdout.contains("interrupted"));
    folder.lemon(&["run", "--resume", "last"]).ok();
}
