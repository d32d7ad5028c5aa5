//! `lemon serve`, spoken to by published clients where they are installed: see `cargo xtask clients`.

use crate::common::{Folder, finish, wait_until};
use crate::served::Served;
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const REPLY: &str = "Dear Ann,\n\nthis is a letter of several words.\n\nYours";
const QUESTION: &str = "Write a letter to Ann.";
const SLOW: &str = "Write a slow letter.";

fn installed(variable: &str) -> Option<PathBuf> {
    let place = std::env::var_os(variable).map(PathBuf::from);
    if place.is_none() {
        println!("skipped: {variable} is not set; see `cargo xtask clients`");
    }
    place
}

fn endpoint() -> FakeEndpoint {
    let reply = |text: &str| match text {
        slow if slow.contains(SLOW) => FakeReply::Hang,
        json if json.contains("Reply with") && json.contains("JSON") => FakeReply::Text("{}".to_owned()),
        _ => FakeReply::Text(REPLY.to_owned()),
    };
    FakeEndpoint::start(Behaviour::function(move |request| reply(&request.text()))).unwrap()
}

/// A server with a key, and the key.
fn served(folder: &Folder) -> (Served, String) {
    let ran = folder.lemon(&["keys", "add", "client", "--budget-tokens", "1M"]).ok();
    (Served::start(folder, &["--require-key"]), ran.stdout.trim().to_owned())
}

/// Runs a published program. Gives its exit code and what it printed.
fn published(command: &mut Command) -> (Option<i32>, String) {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let ran = finish(&["(published)"], child);
    (ran.code, ran.stdout + &ran.stderr)
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(name)
}

#[test]
fn the_official_python_client_and_langchain_are_answered() {
    let Some(python) = installed("LEMON_CLIENTS_PYTHON") else { return };
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "[run]\nreuse = false\n");
    let (served, key) = served(&folder);
    let base = format!("http://{}/v1", served.address);
    let mut command = Command::new(python.join("bin/python"));
    let (code, printed) = published(command.arg(file("openai_client.py")).args([&base, &key, QUESTION, SLOW]));
    assert_eq!(code, Some(0), "{printed}");
    let seen: Value = serde_json::from_str(printed.lines().next().unwrap()).unwrap();
    for name in ["answer", "streamed", "response", "response_streamed", "langchain", "langchain_streamed"] {
        assert_eq!(seen[name], REPLY, "{name}");
    }
    assert_eq!((&seen["models"], &seen["header"]), (&json!(["lemon"]), &json!("answered")));
    assert!(seen["pieces"].as_u64().unwrap() > 3, "{seen}");
    let total = seen["total"].as_u64().unwrap();
    assert!(total > 10 && seen["stream_total"] == total && seen["langchain_total"] == total, "{seen}");
    let errors = &seen["errors"];
    assert_eq!(errors["unknown model"], json!(["NotFoundError", "model_not_found"]));
    assert_eq!(errors["bad value"][0], "BadRequestError");
    assert_eq!(errors["no messages"][0], "BadRequestError");
    assert_eq!(errors["timeout"][0], "APITimeoutError");
    // Two attempts that timed out are two runs that were cancelled.
    wait_until("the runs are over", || endpoint.in_flight() == 0);
    let cancelled = || folder.runs().iter().filter(|run| run["stop_reason"] == "cancelled").count();
    wait_until("both are on record", || cancelled() == 2);
}

#[test]
fn the_official_javascript_client_is_answered() {
    let Some(npm) = installed("LEMON_CLIENTS_NPM") else { return };
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "[run]\nreuse = false\n");
    let (served, key) = served(&folder);
    let base = format!("http://{}/v1", served.address);
    let mut command = Command::new("node");
    command.arg(file("openai_client.mjs")).arg(npm).args([&base, &key, QUESTION, SLOW]);
    let (code, printed) = published(&mut command);
    assert_eq!(code, Some(0), "{printed}");
    let seen: Value = serde_json::from_str(printed.lines().next().unwrap()).unwrap();
    for name in ["answer", "streamed", "response"] {
        assert_eq!(seen[name], REPLY, "{name}");
    }
    assert_eq!(seen["streamTotal"], seen["total"]);
    let errors = &seen["errors"];
    assert_eq!(errors["unknown model"], json!(["NotFoundError", "model_not_found"]));
    assert_eq!(errors["bad value"][0], "BadRequestError");
    assert_eq!(errors["timeout"][0], "APIConnectionTimeoutError");
}

/// An evaluation of two questions, with checks.
const PROMPTFOO: &str = r#"
prompts: ["{{question}}"]
providers:
  - id: openai:chat:lemon
    config: {apiBaseUrl: "BASE", apiKey: "KEY"}
tests:
  - vars: {question: "Write a letter to Ann."}
    assert: [{type: contains, value: "Dear Ann"}]
  - vars: {question: "Write another letter to Ann."}
    assert: [{type: contains, value: "several words"}]
"#;

#[test]
fn promptfoo_evaluates_it() {
    let Some(npm) = installed("LEMON_CLIENTS_NPM") else { return };
    let program = npm.join("node_modules/.bin/promptfoo");
    if !program.exists() {
        println!("skipped: there is no promptfoo; see `cargo xtask clients`");
        return;
    }
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "");
    let (served, key) = served(&folder);
    let config = PROMPTFOO.replace("BASE", &format!("http://{}/v1", served.address)).replace("KEY", &key);
    let folder = folder.file("promptfoo.yaml", config);
    let mut command = Command::new(program);
    command.args(["eval", "--no-cache", "--no-table", "-c"]).arg(folder.path("promptfoo.yaml"));
    command.args(["-o", "out.json"]).current_dir(folder.path(""));
    command.env("PROMPTFOO_CONFIG_DIR", folder.path("promptfoo")).env("PROMPTFOO_DISABLE_TELEMETRY", "1");
    let (code, printed) = published(command.env("PROMPTFOO_DISABLE_UPDATE", "1"));
    assert_eq!(code, Some(0), "{printed}");
    let found: Value = serde_json::from_str(&folder.read("out.json")).unwrap();
    let stats = &found["results"]["stats"];
    assert_eq!(
        (&stats["successes"], &stats["failures"], &stats["errors"]),
        (&json!(2), &json!(0), &json!(0)),
        "{stats}"
    );
}

#[test]
fn schemathesis_finds_no_departure_from_the_description() {
    let Some(python) = installed("LEMON_CLIENTS_PYTHON") else { return };
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "");
    let (served, key) = served(&folder);
    let url = format!("http://{}", served.address);
    let mut command = Command::new(python.join("bin/schemathesis"));
    command.args(["run", &format!("{url}/openapi.json"), "--url", &url, "--max-examples", "40", "--seed", "1"]);
    command.args(["-H", &format!("Authorization: Bearer {key}"), "--checks", "all", "--no-color"]);
    // A server that ignores fields it does not know cannot refuse them; and no schema says which text is a team.
    command.args(["--exclude-checks", "negative_data_rejection,positive_data_acceptance"]).current_dir(folder.path(""));
    let (code, printed) = published(&mut command);
    assert_eq!(code, Some(0), "{printed}");
}
