//! Runs whose agents call tools: built-in ones, the fake MCP server, hostile results, killed processes, permission, approval.

use crate::common::{Draws, Folder, wait_until};
use crate::served::Served;
use lemon_fakes::{Behaviour, ChatRequest, FakeEndpoint, FakeMcp, FakeReply, HOSTILE_TOOLS, fault_rounds};
use lemon_trace::{EventKind, Trace};
use serde_json::json;
use std::time::Duration;

const TASK: &str = "What is the seventh prime?";

/// Replies by the number of results in the conversation.
fn by_results(reply: impl Fn(usize) -> FakeReply + Send + Sync + 'static) -> FakeEndpoint {
    FakeEndpoint::start(Behaviour::function(move |request: &ChatRequest| reply(request.results()))).unwrap()
}

fn team(tools: &str) -> String {
    format!("agents:\n  - {{id: solve, base: solver, capacity: small, tools: [{tools}]}}\n")
}

fn folder(endpoint: &FakeEndpoint, tools: &str, table: &str) -> Folder {
    Folder::with_endpoint(endpoint, table).file("team.yaml", team(tools))
}

fn results(trace: &Trace) -> Vec<(bool, String)> {
    let text = |event: &lemon_trace::Event| match &event.kind {
        EventKind::ToolResult { output, ok, call: Some(_), .. } => {
            Some((*ok, output[if *ok { "text" } else { "error" }].as_str().unwrap().to_owned()))
        }
        _ => None,
    };
    trace.events.iter().filter_map(text).collect()
}

#[test]
fn an_agent_computes_with_the_calculator() {
    let endpoint = by_results(|results| match results {
        0 => FakeReply::tool_call("calculator", r#"{"expression": "17 * 3"}"#),
        1 => FakeReply::tool_call("calculator", r#"{"expression": "1/0"}"#),
        _ => FakeReply::Text("Answer: 51".into()),
    });
    let folder = folder(&endpoint, "calculator", "[tools.calculator]\nprice = 0.001\n");
    let ran = folder.lemon(&["run", TASK, "--spec", "team.yaml", "--json"]).ok().json();
    assert_eq!(ran["answer"], "51");
    let trace = folder.trace("last");
    assert_eq!(results(&trace), [(true, "51".to_owned()), (false, "failed: division by zero".to_owned())]);
    let tools: f64 = trace
        .events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::ToolResult { .. }))
        .map(|event| event.spend.usd)
        .sum();
    assert!((tools - 0.002).abs() < 1e-12, "{tools}");
    folder.lemon(&["validate", "team.yaml"]).ok();
    let other = Folder::new().file("team.yaml", team("calculator"));
    other.lemon(&["validate", "team.yaml"]).code(1);
}

#[test]
fn what_may_change_something_needs_permission() {
    let fake = FakeMcp::start().unwrap();
    let endpoint = by_results(|results| match results {
        0 => FakeReply::tool_call("notes__echo", r#"{"text": "one"}"#),
        _ => FakeReply::Text("Answer: 17".into()),
    });
    let table = format!("[tools.notes]\nmcp = {{ url = {:?} }}\nallow = ['echo']\n", fake.url());
    let folder = folder(&endpoint, "notes.echo", &table);
    folder.lemon(&["run", TASK, "--spec", "team.yaml", "--no-reuse"]).ok();
    let [(false, told)] = &results(&folder.trace("last"))[..] else { panic!("{:?}", folder.trace("last")) };
    assert!(told.contains("no person allowed it") && told.contains("--allow-tools"), "{told}");
    assert!(fake.texts("echo").is_empty());
    folder.lemon(&["run", TASK, "--spec", "team.yaml", "--allow-tools", "--no-reuse"]).ok();
    assert_eq!(results(&folder.trace("last")), [(true, "one".to_owned())]);
    assert_eq!(fake.texts("echo"), ["one"]);
}

#[test]
fn a_run_waits_for_approval_and_goes_on() {
    let endpoint = by_results(|results| match results {
        0 => FakeReply::tool_call("calculator", r#"{"expression": "17"}"#),
        _ => FakeReply::Text("Answer: 17".into()),
    });
    for (decision, said) in
        [("--approve", (true, "17")), ("--deny", (false, "A person denied this call. It was not made."))]
    {
        let folder = folder(&endpoint, "calculator", "[tools.calculator]\napprove = true\n[run]\nreuse = false\n");
        let ran = folder.lemon(&["run", TASK, "--spec", "team.yaml", "--json"]).code(1).json();
        assert_eq!(ran["stop_reason"], "approval");
        let shown = folder.lemon(&["trace", "show", "last"]).ok().stdout;
        assert!(shown.contains("solve/c1.1"), "{shown}");
        let wrong = ["run", "--resume", "last", decision, "solve/c9.9"];
        folder.lemon(&wrong).code(2).complains(&["no call `solve/c9.9` waits", "these wait: solve/c1.1"]);
        let calls = endpoint.calls();
        folder.lemon(&["run", "--resume", "last", "-q"]).code(1);
        assert_eq!(endpoint.calls(), calls, "no model is asked while the call waits");
        let ran = folder.lemon(&["run", "--resume", "last", decision, "solve/c1.1", "--json"]).ok().json();
        assert_eq!((&ran["answer"], &ran["stop_reason"]), (&json!("17"), &json!("answered")));
        assert_eq!(results(&folder.trace("last")), [(said.0, said.1.to_owned())]);
    }
}

/// In the application: the page has the buttons, and what a person says lets the run go on.
#[test]
fn a_person_decides_in_the_application() {
    let endpoint = by_results(|results| match results {
        0 => FakeReply::tool_call("calculator", r#"{"expression": "17 </pre><b>"}"#),
        _ => FakeReply::Text("Answer: 17".into()),
    });
    let folder = folder(&endpoint, "calculator", "[tools.calculator]\napprove = true\n[run]\nreuse = false\n");
    let served = Served::start(&folder, &[]);
    for (approve, expected) in [(true, "failed: "), (false, "A person denied this call. It was not made.")] {
        let team = json!({ "kind": "text", "text": team("calculator") });
        let begun = served.post("/api/runs", &json!({ "question": TASK, "team": team }));
        assert_eq!(begun.status, 202, "{begun:?}");
        let run = begun.json()["run_id"].as_str().unwrap().to_owned();
        let page = || served.get(&format!("/runs/{run}")).body;
        wait_until("the run waits", || page().contains("data-call=\"solve/c1.1\""));
        assert!(page().contains("17 &lt;/pre&gt;&lt;b&gt;") && !page().contains("17 </pre><b>"));
        let decide = |call: &str| {
            let said = json!({ "decisions": { call: approve } });
            wait_until("the run is free", || served.counter("lemon_runs_under_way") == 0.0);
            served.post(&format!("/api/runs/{run}/decide"), &said)
        };
        let wrong = decide("solve/c9.9");
        assert!(wrong.status == 409 && wrong.body.contains("no call `solve/c9.9`"), "{wrong:?}");
        let decided = decide("solve/c1.1");
        assert_eq!((decided.status, decided.json()["run_id"].as_str()), (202, Some(run.as_str())), "{decided:?}");
        wait_until("the run ends", || page().contains("answered"));
        let [(false, said)] = &results(&folder.trace(&run))[..] else { panic!("{:?}", folder.trace(&run)) };
        assert!(said.starts_with(expected), "{said}");
        assert!(!page().contains("data-call="), "nothing waits any more");
        assert_eq!(decide("solve/c1.1").status, 409);
    }
}

/// Every way to reply badly, in one run: each costs one call, and nothing of it reaches a terminal or a page as it is.
#[test]
fn hostile_results_cost_a_call_each() {
    let fake = FakeMcp::start().unwrap();
    let endpoint = by_results(|results| match HOSTILE_TOOLS.get(results) {
        Some(tool) => FakeReply::tool_call(&format!("bad__{tool}"), "{}"),
        None => FakeReply::Text("Answer: 17".into()),
    });
    let allow: Vec<String> = HOSTILE_TOOLS.iter().map(|tool| format!("'{tool}'")).collect();
    let table = format!(
        "max_tool_calls = 40\n[limits]\ntools = 40\n[tools.bad]\nmcp = {{ url = {:?} }}\nallow = [{}]\nread_only = true\ntimeout_s = 1\nmax_result_bytes = 4096\n",
        fake.url(),
        allow.join(", ")
    );
    let tools: Vec<String> = HOSTILE_TOOLS.iter().map(|tool| format!("bad.{tool}")).collect();
    let folder = folder(&endpoint, &tools.join(", "), &format!("[run]\n{table}"));
    let ran = folder.lemon(&["run", TASK, "--spec", "team.yaml", "--json"]).ok();
    assert_eq!(ran.json()["answer"], "17");
    let trace = folder.trace("last");
    let results = results(&trace);
    assert_eq!(results.len(), HOSTILE_TOOLS.len());
    assert!(results.iter().all(|(_, text)| text.len() <= 4096 + 200 && !text.contains('\u{1b}')));
    let shown = folder.lemon(&["trace", "show", "last"]).ok().stdout;
    folder.lemon(&["trace", "export", "last", "--format", "html", "-o", "run.html"]).ok();
    let page = folder.read("run.html");
    for text in [&shown, &page, &ran.stderr] {
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text}");
    }
    assert!(!page.contains("<script>alert(1)"));
    let last = endpoint.requests().last().unwrap().body.clone();
    let tool_messages: Vec<&str> = last["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    assert_eq!(tool_messages.len(), HOSTILE_TOOLS.len());
    for text in tool_messages {
        let code = &text[1..9];
        assert_eq!(text.matches(code).count(), 2, "a result stays between its fences");
    }
}

const CALLS: usize = 6;

/// Starts a run of six calls that must not be made twice, kills it, and takes it up until it ends.
fn check_killed(seed: u64) {
    let fake = FakeMcp::start().unwrap();
    let reply = |request: &ChatRequest| match request.results() {
        done if done < CALLS => FakeReply::tool_call("notes__slow", &json!({"text": done.to_string()}).to_string()),
        _ => FakeReply::Text("Answer: 17".into()),
    };
    let endpoint = FakeEndpoint::start(Behaviour::function(reply).latency_ms(10)).unwrap();
    let table = format!("[tools.notes]\nmcp = {{ url = {:?} }}\nallow = ['slow']\n[run]\nreuse = false\n", fake.url());
    let folder = folder(&endpoint, "notes.slow", &table);
    let mut draws = Draws::new(seed);
    let kills = 1 + draws.below(3);
    let mut begin = vec!["run", TASK, "--spec", "team.yaml", "--allow-tools", "--json"];
    for _ in 0..kills {
        let mut process = folder.start(&begin);
        // Within a call, as a rule: they take most of the time.
        let (calls, wait) = (fake.texts("slow").len() + 1 + draws.below(2) as usize, draws.below(60));
        wait_until("calls, or the end", || fake.texts("slow").len() >= calls || process.try_wait().unwrap().is_some());
        std::thread::sleep(Duration::from_millis(wait));
        process.kill().unwrap();
        process.wait().unwrap();
        if !folder.runs().is_empty() {
            begin = vec!["run", "--resume", "last", "--allow-tools", "--json"];
        }
    }
    let ran = folder.lemon(&begin).ok().json();
    assert_eq!((&ran["answer"], &ran["stop_reason"]), (&json!("17"), &json!("answered")), "seed {seed}");
    let mut made = fake.texts("slow");
    made.sort();
    let count = made.len();
    made.dedup();
    assert_eq!(made.len(), count, "a call was made twice, seed {seed}: {made:?}");
    let found = results(&folder.trace("last"));
    assert_eq!(found.len(), CALLS, "every call has one result, seed {seed}");
    // Each call was made, or its outcome is unknown: none is skipped in silence.
    for (at, (ok, text)) in found.iter().enumerate() {
        let unknown = text.contains("The outcome of this call is unknown");
        assert!(*ok && *text == at.to_string() || !*ok && unknown, "seed {seed}: {text}");
        assert!(!*ok || made.contains(&at.to_string()), "seed {seed}: {made:?}");
    }
}

#[test]
fn interrupted_calls_are_not_made_twice() {
    (0..fault_rounds(5)).for_each(|seed| check_killed(11 + seed));
}
