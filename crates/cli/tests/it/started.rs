//! A run that is resumed asks the models it was started with, or is refused. Agents that failed are
//! named, and replies are printed on request.

use crate::common::{Folder, Ran, endpoint, finish, reply_of, signal, wait_until};
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};

const TASK: &str = "What is the seventh prime?";

/// The second agent is not answered when it is asked for the first time.
fn hanging() -> FakeEndpoint {
    let hangs =
        |request: &lemon_fakes::ChatRequest| request.text().contains("You are: Second.") && request.asked_before == 0;
    FakeEndpoint::start(Behaviour::function(move |request| match hangs(request) {
        true => FakeReply::Hang,
        false => FakeReply::Text(reply_of(request)),
    }))
    .unwrap()
}

/// A folder without configuration, and a run in it that was interrupted.
fn interrupted(endpoint: &FakeEndpoint, url: &str) -> Folder {
    let folder = Folder::with_pair();
    let args = ["run", TASK, "--spec", "pair.yaml", "--base-url", url, "--model", "first-model", "-q"];
    let process = folder.start(&args);
    wait_until("the second agent is asked", || endpoint.calls() == 2);
    signal(&process, "INT");
    finish(&args, process).code(1);
    folder
}

fn with_another(folder: Folder, other: &FakeEndpoint) -> Folder {
    let level =
        |name: &str| format!("[capacity.{name}]\nbase_url = \"{}\"\nmodel = \"second-model\"\n", other.base_url());
    folder.file("lemon.toml", ["small", "medium", "large"].map(level).concat())
}

#[test]
fn it_goes_on_where_it_was_started() {
    let first = hanging();
    let folder = interrupted(&first, &first.base_url());
    let ran = folder.lemon(&["run", "--resume", "last"]).ok();
    assert!(ran.stderr.contains("the models the run was started with: first-model at http://"), "{}", ran.stderr);
    assert_eq!(first.calls(), 3);
    let models: Vec<_> = first.requests().iter().map(|request| request.body["model"].clone()).collect();
    assert!(models.iter().all(|model| model == "first-model"), "{models:?}");
}

#[test]
fn it_is_not_sent_elsewhere_unless_that_is_said() {
    let (first, other) = (hanging(), endpoint());
    let folder = with_another(interrupted(&first, &first.base_url()), &other);
    let url = first.base_url();
    let refused = folder.lemon(&["run", "--resume", "last"]).code(2);
    refused.complains(&[
        "started with first-model at",
        "resumed with second-model at",
        "--model first-model",
        "--anyway",
    ]);
    assert!(refused.stderr.contains(&format!("--base-url {url}")), "{}", refused.stderr);
    assert_eq!((first.calls(), other.calls()), (2, 0));
    // As the hint says.
    let again = folder.lemon(&["run", "--resume", "last", "--base-url", &url, "--model", "first-model", "-q"]);
    again.ok();
    assert_eq!((first.calls(), other.calls()), (3, 0));

    let first = hanging();
    let folder = with_another(interrupted(&first, &first.base_url()), &other);
    folder.lemon(&["run", "--resume", "last", "--anyway"]).ok();
    assert_eq!((first.calls(), other.calls()), (2, 1));
}

#[test]
fn workers_of_another_kind_are_refused() {
    let first = hanging();
    let folder = interrupted(&first, &first.base_url());
    let args = ["run", "--resume", "last", "--workers", "scripted"];
    folder.lemon(&args).code(2).complains(&["started with first-model", "scripted workers", "--workers endpoints"]);
    folder.lemon(&[&args[..], &["--anyway"]].concat()).ok();
}

/// The name and password of an address are not on record: a resumed run needs them again.
#[test]
fn credentials_are_not_on_record() {
    let first = hanging();
    let url = first.base_url().replace("http://", "http://ann:hush@");
    let folder = interrupted(&first, &url);
    folder.lemon(&["run", "--resume", "last"]).code(2).complains(&["held a secret", "--base-url URL"]);
    let hush = |bytes: &[u8]| bytes.windows(4).any(|part| part == b"hush");
    let found: Vec<_> = folder.all_bytes().into_iter().filter(|(_, bytes)| hush(bytes)).map(|(path, _)| path).collect();
    assert!(found.is_empty(), "{found:?}");
    folder.lemon(&["run", "--resume", "last", "--base-url", &url, "--model", "first-model", "-q"]).ok();
}

#[test]
fn a_batch_goes_on_where_it_was_started() {
    let (first, other) = (hanging(), endpoint());
    let folder = Folder::with_pair().file("tasks.jsonl", format!("{{\"question\": \"{TASK}\"}}"));
    let url = first.base_url();
    let args = ["run", "--tasks", "tasks.jsonl", "--spec", "pair.yaml", "--base-url", &url, "--model", "m", "-q"];
    let process = folder.start(&args);
    wait_until("the second agent is asked", || first.calls() == 2);
    signal(&process, "INT");
    finish(&args, process).code(1);
    let folder = with_another(folder, &other);
    let batch = folder.runs()[0]["batch"].as_str().unwrap().to_owned();
    folder.lemon(&["run", "--resume", &batch, "-q"]).code(2).complains(&["started with m at", "--anyway"]);
    folder.lemon(&["run", "--resume", &batch, "-q", "--base-url", &url, "--model", "m"]).ok();
    assert_eq!((first.calls(), other.calls()), (3, 0));
}

/// A run of which a program that did not know better recorded nothing goes on as runs did then.
#[test]
fn a_run_without_a_record_of_its_models_goes_on() {
    let (first, other) = (hanging(), endpoint());
    let folder = with_another(interrupted(&first, &first.base_url()), &other);
    let store = rusqlite::Connection::open(folder.path(".lemon/lemon.db")).unwrap();
    store.execute("UPDATE runs SET meta = json_remove(meta, '$.started_with')", []).unwrap();
    drop(store);
    folder.lemon(&["run", "--resume", "last"]).ok();
    assert_eq!((first.calls(), other.calls()), (2, 1));
}

/// Three agents, of which one answers.
fn mostly_failing() -> (FakeEndpoint, Folder) {
    let behaviour = Behaviour::function(|request| match request.text().contains("You are: Third.") {
        true => FakeReply::Text("I see.\nIt is simple.\nAnswer: 17".into()),
        false => FakeReply::status(400),
    });
    let endpoint = FakeEndpoint::start(behaviour).unwrap();
    let team = "agents:\n  - {id: a1, base: solver, role: First, capacity: small}\n  \
                - {id: a2, base: solver, role: Second, capacity: small}\n  \
                - {id: a3, base: solver, role: Third, capacity: small}\nanswer: {from: [a1, a2, a3], by: vote}\n";
    let folder = Folder::with_endpoint(&endpoint, "").file("team.yaml", team);
    (endpoint, folder)
}

#[test]
fn an_answer_in_spite_of_failures_comes_with_a_warning() {
    let (_endpoint, folder) = mostly_failing();
    let warned = |ran: &Ran| ran.stderr.lines().find(|line| line.starts_with("warning: ")).map(str::to_owned);
    let ran = folder.lemon(&["run", TASK, "--spec", "team.yaml"]).ok();
    let warning = warned(&ran).unwrap_or_else(|| panic!("no warning in {}", ran.stderr));
    assert!(warning.starts_with("warning: 2 of 3 agents failed: a1 ("), "{warning}");
    assert!(warning.contains(", a2 (") && !warning.contains("a3"), "{warning}");
    assert!(warned(&folder.lemon(&["run", TASK, "--spec", "team.yaml", "--json"]).ok()).is_some());
    assert_eq!(folder.lemon(&["run", TASK, "--spec", "team.yaml", "-q"]).ok().stderr, "");
    let folder = folder.file("tasks.jsonl", "{\"id\": \"t1\", \"question\": \"What?\"}");
    let ran = folder.lemon(&["run", "--tasks", "tasks.jsonl", "--spec", "team.yaml"]).ok();
    assert!(warned(&ran).is_some_and(|warning| warning.starts_with("warning: t1: 2 of 3 agents failed")));
}

#[test]
fn replies_are_printed_on_request() {
    let (_endpoint, folder) = mostly_failing();
    let run = ["run", TASK, "--spec", "team.yaml"];
    let plain = folder.lemon(&[&run[..], &["--json"]].concat()).ok().json();
    assert!(plain["agents"][2].get("reply").is_none(), "{plain}");
    let whole = "I see.\nIt is simple.\nAnswer: 17";
    let with = folder.lemon(&[&run[..], &["--json", "--replies"]].concat()).ok().json();
    assert_eq!(with["agents"][2]["reply"], whole);
    let told = folder.lemon(&[&run[..], &["--replies"]].concat()).ok();
    assert!(told.stderr.contains(whole), "{}", told.exchange());
    let shown = folder.lemon(&["trace", "show", "--replies"]).ok().stdout;
    assert!(shown.contains(whole) && shown.contains("── a3 · Third · small") && shown.contains("── a1"), "{shown}");
    assert!(!folder.lemon(&["trace", "show"]).ok().stdout.contains(whole));
    let shown = folder.lemon(&["trace", "show", "--replies", "--json"]).ok().json();
    assert_eq!(shown["agents"][2]["reply"], whole);
}
