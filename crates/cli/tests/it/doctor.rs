//! `lemon doctor` against endpoints of every kind.

use crate::common::{Folder, wait_until};
use crate::snapshot;
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};
use serde_json::{Value, json};

const KEY: &str = "sk-0123456789abcdef";

/// A folder with one level, served by this endpoint, whose key is in `TEST_KEY`.
fn folder(base_url: &str) -> Folder {
    let level = format!("[capacity.only]\nbase_url = '{base_url}'\nmodel = 'fake'\napi_key_env = 'TEST_KEY'\n");
    Folder::new().file("lemon.toml", level)
}

/// Replies in JSON where a schema asks for it, in words elsewhere.
fn good() -> Behaviour {
    Behaviour::function(|request| match request.response_format {
        Some(_) => FakeReply::Text("{\"ok\": true}".into()),
        None => FakeReply::Text("Ready.".into()),
    })
}

#[track_caller]
fn check(behaviour: Behaviour, code: i32, expected: &Value) {
    let endpoint = FakeEndpoint::start(behaviour).unwrap();
    let ran = folder(&endpoint.base_url()).lemon_with(&[("TEST_KEY", KEY)], &["doctor", "--json"]).code(code);
    let report = ran.json();
    assert_eq!(report["healthy"], code == 0);
    let finding = &report["endpoints"][0];
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&finding[field], value, "{field} of {finding}");
    }
    let sent = endpoint.requests().iter().all(|request| request.authorization == Some(format!("Bearer {KEY}")));
    assert!(sent && !ran.stdout.contains(KEY) && !ran.stderr.contains(KEY));
}

#[test]
fn findings() {
    let all = json!({
        "capacity": "only", "model": "fake", "reachable": true, "key_works": true, "replies": true, "returns_usage": true,
        "structured_output": true, "fact": null, "hint": null
    });
    check(good().api_key(KEY), 0, &all);
    let refused = json!({"reachable": true, "key_works": false, "replies": false, "returns_usage": null});
    check(good().api_key("another"), 1, &refused);
    let no_usage = FakeReply::NoUsage("{\"ok\": true}".into());
    check(Behaviour::script([no_usage]), 0, &json!({"replies": true, "returns_usage": false}));
    check(Behaviour::text("Certainly!"), 0, &json!({"replies": true, "structured_output": false}));
    check(good().without_schema(), 0, &json!({"replies": true, "structured_output": false}));
    check(Behaviour::script([FakeReply::status(404)]), 1, &json!({"reachable": true, "replies": false}));
    check(Behaviour::script([FakeReply::HtmlError(502)]), 1, &json!({"reachable": true, "replies": false}));
    check(Behaviour::script([FakeReply::Truncated("{".into())]), 0, &json!({"replies": true, "returns_usage": true}));
}

#[test]
fn said_to_people() {
    let mut text = String::new();
    let mut add = |behaviour: Behaviour| {
        let endpoint = FakeEndpoint::start(behaviour).unwrap();
        text += &folder(&endpoint.base_url()).lemon_with(&[("TEST_KEY", KEY)], &["doctor"]).exchange();
        text += "\n";
    };
    add(good());
    add(good().without_schema());
    add(Behaviour::text("").api_key("another"));
    add(Behaviour::script([FakeReply::NoUsage("{\"ok\": true}".into())]));
    add(Behaviour::script([FakeReply::status(404)]));
    text += &folder("http://127.0.0.1:1/v1").exchange(&["doctor"]);
    text += "\n";
    text += &folder("http://127.0.0.1:1/v1").lemon_with(&[("TEST_KEY", KEY)], &["doctor"]).exchange();
    text += "\n";
    text += &Folder::new().exchange(&["doctor"]);
    snapshot!("doctor", text);
}

#[test]
fn every_level_is_looked_at() {
    let bad = Behaviour::script([FakeReply::status(500)]);
    let (good, bad) = (FakeEndpoint::start(good()).unwrap(), FakeEndpoint::start(bad).unwrap());
    let level = |name, endpoint: &FakeEndpoint| {
        format!("[capacity.{name}]\nbase_url = '{}'\nmodel = 'm'\n", endpoint.base_url())
    };
    let folder = Folder::new().file("lemon.toml", level("small", &good) + &level("large", &bad));
    let report = folder.lemon(&["doctor", "--json"]).code(1).json();
    let replies: Vec<_> = report["endpoints"].as_array().unwrap().iter().map(|finding| &finding["replies"]).collect();
    assert_eq!(replies, [true, false]);
    assert_eq!(report["endpoints"][0]["key_works"], Value::Null, "there is no key to work");
    let flags = ["doctor", "--base-url", &good.base_url(), "--model", "other"];
    assert!(folder.lemon(&flags).ok().stdout.contains("large  other at "));
}

#[test]
fn servers_on_this_machine() {
    let models = ["qwen2.5:7b", "nomic-embed-text", "qwen2.5:0.5b", "mistral"].map(str::to_owned).to_vec();
    let behaviour = Behaviour { models: models.clone(), owned_by: "library".into(), ..Behaviour::default() };
    let server = FakeEndpoint::start(behaviour).unwrap();
    let ports = format!("1, {}", server.port());
    let ran = |args: &[&str]| Folder::new().lemon_with(&[("LEMON_LOCAL_PORTS", &ports)], args);
    let levels = json!({"small": "qwen2.5:0.5b", "medium": "qwen2.5:0.5b", "large": "qwen2.5:7b"});
    let found = json!({"kind": "ollama", "base_url": server.base_url(), "models": models, "levels": levels});
    // A machine that is very busy may not answer in time.
    let patiently = |args: &[&str]| {
        let mut done = None;
        wait_until("an answer in time", || done.insert(ran(args)).stdout.contains(&server.base_url()));
        done.unwrap().ok()
    };
    assert_eq!(patiently(&["doctor", "--json"]).json()["servers"], json!([found]));
    snapshot!("doctor_server", patiently(&["doctor"]).exchange());
    assert_eq!(server.calls(), 0, "nothing is asked of the models");
    let bad = Folder::new().lemon_with(&[("LEMON_LOCAL_PORTS", "11434;8000")], &["doctor"]).code(2);
    bad.complains(&["LEMON_LOCAL_PORTS must be a list of ports, got `11434;8000`", "for instance 11434,8000"]);
}
