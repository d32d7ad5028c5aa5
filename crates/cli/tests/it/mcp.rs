//! `lemon mcp`, spoken to by hand, and by published clients where they are installed.

use crate::common::{Folder, PAIR, PATIENCE, finish, send_signal};
use lemon_fakes::{Behaviour, FakeEndpoint};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// A server on standard input and output.
struct Server {
    child: Child,
    lines: Receiver<String>,
    next: u64,
}

impl Server {
    fn start(folder: &Folder, args: &[&str]) -> Self {
        let mut command = folder.command(&[&["mcp"], args].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || output.lines().try_for_each(|line| sender.send(line.unwrap())));
        let mut server = Server { child, lines, next: 0 };
        let client = json!({"name": "test", "version": "0"});
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        let (hello, _) = server.ask("initialize", hello);
        assert_eq!(hello["result"]["serverInfo"]["name"], "lemon");
        server.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        server
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    /// The reply, and the notifications before it. Every line must be JSON.
    #[track_caller]
    fn ask(&mut self, method: &str, params: Value) -> (Value, Vec<Value>) {
        self.next += 1;
        let id = self.next;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let mut before = Vec::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap();
            let message: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            match message["id"] == json!(id) {
                true => return (message, before),
                false => before.push(message),
            }
        }
    }

    /// The structured result of a call, or its error.
    #[track_caller]
    fn call(&mut self, tool: &str, arguments: Value) -> Result<Value, String> {
        let (reply, _) = self.ask("tools/call", json!({"name": tool, "arguments": arguments}));
        let result = &reply["result"];
        match result["isError"] == json!(true) {
            true => Err(result["content"][0]["text"].as_str().unwrap().to_owned()),
            false => Ok(result["structuredContent"].clone()),
        }
    }

    /// Ends its input, and waits until it has ended.
    #[track_caller]
    fn end(mut self) {
        drop(self.child.stdin.take());
        finish(&["mcp"], self.child).ok();
    }
}

fn endpoint() -> FakeEndpoint {
    FakeEndpoint::start(Behaviour::text("Answer: 68")).unwrap()
}

#[test]
fn a_team_runs_and_its_run_can_be_read() {
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "");
    let mut server = Server::start(&folder, &[]);
    let (listed, _) = server.ask("tools/list", json!({}));
    let names: Vec<_> = listed["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, ["run_team", "validate_team", "profile_team", "list_runs", "get_run"]);
    let params = json!({
        "name": "run_team", "arguments": {"question": "What is 17 times 4?", "spec": PAIR}, "_meta": {"progressToken": "p"},
    });
    let (reply, notes) = server.ask("tools/call", params);
    let run = &reply["result"]["structuredContent"];
    assert_eq!((&run["answer"], &run["stop_reason"]), (&json!("68"), &json!("answered")), "{reply}");
    assert!(notes.len() >= 4, "{notes:?}");
    assert!(
        notes.iter().all(|note| note["method"] == "notifications/progress" && note["params"]["progressToken"] == "p")
    );
    let steps: Vec<_> = notes.iter().map(|note| note["params"]["progress"].as_f64().unwrap()).collect();
    assert!(steps.is_sorted_by(|a, b| a < b), "{steps:?}");
    let listed = server.call("list_runs", json!({})).unwrap();
    assert_eq!(listed["runs"][0]["run_id"], run["run_id"]);
    let read = server.call("get_run", json!({"run": "last", "replies": true})).unwrap();
    assert_eq!((&read["run_id"], &read["agents"][0]["reply"]), (&run["run_id"], &json!("Answer: 68")));
    let valid = server.call("validate_team", json!({"spec": PAIR})).unwrap();
    assert_eq!(valid["valid"], true);
    server.end();
    assert_eq!(folder.runs().len(), 1);
}

#[test]
fn faults_are_told_to_the_model_that_called() {
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "");
    let mut server = Server::start(&folder, &[]);
    let fault = |server: &mut Server, tool: &str, arguments: Value, word: &str| {
        let fault = server.call(tool, arguments).unwrap_err();
        assert!(fault.contains(word), "{fault}");
    };
    fault(&mut server, "run_team", json!({}), "question");
    fault(&mut server, "run_team", json!({"question": " "}), "empty");
    fault(&mut server, "run_team", json!({"question": "a", "bugdet": 1}), "bugdet");
    fault(
        &mut server,
        "run_team",
        json!({"question": "a", "spec": "agents: [{id: a, base: solvr, capacity: small}]"}),
        "solvr",
    );
    fault(&mut server, "get_run", json!({"run": "nothing"}), "nothing");
    fault(&mut server, "profile_team", json!({"spec": PAIR, "cases": [], "budget_tokens": 1}), "1 to 200");
    let (reply, _) = server.ask("tools/call", json!({"name": "fly", "arguments": {}}));
    assert_eq!(reply["error"]["message"], "unknown tool `fly`");
    let invalid =
        server.call("validate_team", json!({"spec": "agents: [{id: a, base: solvr, capacity: small}]"})).unwrap();
    assert_eq!(invalid["valid"], false);
    server.end();
    assert_eq!(endpoint.calls(), 0);
}

#[test]
fn budgets_are_hard() {
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "[budget]\ncalls = 1\n");
    let mut server = Server::start(&folder, &[]);
    let ask = json!({"question": "What is 17 times 4?", "spec": PAIR, "budget_calls": 100});
    let run = server.call("run_team", ask).unwrap();
    assert_eq!((&run["calls"], endpoint.calls()), (&json!(1), 1), "a request cannot raise the limit: {run}");
    server.end();
    let folder = Folder::with_endpoint(&endpoint, "");
    let mut server = Server::start(&folder, &["--total-tokens", "1000"]);
    let (mut spent, mut last) = (0, Value::Null);
    let refused = (0..50).find_map(|number| {
        let ask = json!({"question": format!("What is 17 times {number}?"), "spec": PAIR});
        match server.call("run_team", ask) {
            Ok(run) => {
                spent += run["tokens"]["total"].as_u64().unwrap();
                last = run;
                (last["stop_reason"] == "token_budget").then(String::new)
            }
            Err(fault) => Some(fault),
        }
    });
    assert!(spent <= 1000, "{spent}");
    assert!(refused.is_some(), "the budget is met at some time: {spent} tokens, {last}");
    server.end();
}

#[test]
fn a_team_is_profiled() {
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "");
    let mut server = Server::start(&folder, &[]);
    let cases =
        json!([{"question": "What is 17 times 4?", "answer": "68"}, {"question": "What is 1 + 1?", "answer": "2"}]);
    let ask = json!({"spec": PAIR, "cases": cases, "budget_tokens": 200_000});
    let profile = server.call("profile_team", ask).unwrap();
    assert_eq!((&profile["baseline"]["runs"], &profile["baseline"]["success"]), (&json!(2), &json!(0.5)), "{profile}");
    assert!(!profile["effects"].as_array().unwrap().is_empty());
    server.end();
}

#[test]
fn addresses_of_other_machines_are_refused() {
    Folder::new().lemon(&["mcp", "--http", "0.0.0.0:0"]).code(2).complains(&["must be an address of this machine"]);
}

/// A server over HTTP, and its address.
struct HttpServer {
    child: Child,
    url: String,
}

impl HttpServer {
    fn start(folder: &Folder) -> Self {
        let mut child = folder.start(&["mcp", "--http", "127.0.0.1:0"]);
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("serving MCP at ") {
            line.clear();
            assert!(errors.read_line(&mut line).unwrap() > 0, "it ended");
        }
        let url = line.trim().rsplit(' ').next().unwrap().to_owned();
        // Whatever else it says is read, so that it never waits for a reader.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        HttpServer { child, url }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn over_http_it_is_the_same_server() {
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "");
    let server = HttpServer::start(&folder);
    let client = Folder::new().file("lemon.toml", format!("[tools.it]\nmcp = {{ url = '{}' }}\n", server.url));
    let ask = json!({"question": "What is 17 times 4?", "spec": PAIR}).to_string();
    let run = client.lemon(&["tools", "call", "it.run_team", &ask]).ok().json();
    assert_eq!((&run["answer"], &run["calls"]), (&json!("68"), &json!(2)));
}

fn installed(variable: &str) -> Option<PathBuf> {
    let place = std::env::var_os(variable).map(PathBuf::from);
    if place.is_none() {
        println!("skipped: {variable} is not set; see `cargo xtask mcp`");
    }
    place
}

/// Runs a published program and returns what it printed. Its exit code must be 0.
#[track_caller]
fn published(command: &mut Command) -> String {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let ran = finish(&["(published)"], child);
    println!("{}\n{}", ran.stdout, ran.stderr);
    ran.ok().stdout
}

#[test]
fn the_official_python_client_is_answered() {
    let Some(python) = installed("LEMON_MCP_PYTHON") else { return };
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "").file("client.py", include_str!("mcp_client.py"));
    let server = HttpServer::start(&folder);
    for way in [server.url.as_str(), env!("CARGO_BIN_EXE_lemon")] {
        let mut command = Command::new(python.join("bin/python"));
        command.arg(folder.path("client.py")).arg(way).arg(PAIR).current_dir(folder.path("."));
        let said: Value = serde_json::from_str(published(&mut command).trim()).unwrap();
        assert_eq!(said["tools"].as_array().unwrap().len(), 5, "{way}");
        assert_eq!(
            (&said["answer"], &said["valid"], &said["error"]),
            (&json!("68"), &json!(false), &json!(true)),
            "{way}"
        );
        assert!(said["progress"].as_u64().unwrap() >= 4, "{way}: {said}");
    }
}

#[test]
fn the_inspector_is_answered() {
    let Some(npm) = installed("LEMON_MCP_NPM") else { return };
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "");
    let inspect = |more: &[&str]| {
        let mut command = Command::new(npm.join("node_modules/.bin/mcp-inspector"));
        command.args(["--cli", env!("CARGO_BIN_EXE_lemon"), "mcp"]).args(more).current_dir(folder.path("."));
        let said = published(&mut command);
        serde_json::from_str::<Value>(&said).unwrap()
    };
    assert_eq!(inspect(&["--method", "tools/list"])["tools"].as_array().unwrap().len(), 5);
    let call = ["--method", "tools/call", "--tool-name", "run_team", "--tool-arg", "question=What is 17 times 4?"];
    let run = inspect(&[&call[..], &["--tool-arg", &format!("spec={PAIR}")]].concat());
    assert_eq!(run["structuredContent"]["answer"], "68", "{run}");
}

#[test]
fn the_official_conformance_scenarios_that_apply_pass() {
    let Some(npm) = installed("LEMON_MCP_NPM") else { return };
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "");
    let server = HttpServer::start(&folder);
    // The other scenarios test what the server does not claim: prompts, resources, logging, sampling, elicitation, and tools of
    // fixed names.
    for scenario in [
        "server-initialize",
        "ping",
        "tools-list",
        "completion-complete",
        "dns-rebinding-protection",
        "server-sse-multiple-streams",
        "server-sse-polling",
    ] {
        let mut command = Command::new(npm.join("node_modules/.bin/conformance"));
        command.args(["server", "--url", &server.url, "--scenario", scenario]).current_dir(folder.path("."));
        let said = published(&mut command);
        assert!(!said.contains("FAILURE"), "{scenario}: {said}");
    }
}

#[test]
fn a_killed_client_leaves_no_server() {
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "");
    let server = Server::start(&folder, &[]);
    let id = server.child.id().to_string();
    server.end();
    assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
    // A signal ends it, too.
    let server = Server::start(&folder, &[]);
    send_signal("TERM", &server.child.id().to_string());
    let ran = finish(&["mcp"], server.child);
    assert_eq!(ran.code, None);
}
