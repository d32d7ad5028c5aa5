//! The key goes to the endpoint and nowhere else.

use crate::common::Folder;
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};

const KEY: &str = "sk-live-7f3a9c51e2d84b60";

fn folder(endpoint: &FakeEndpoint) -> Folder {
    let url = endpoint.base_url();
    let level = |name| format!("[capacity.{name}]\nbase_url = '{url}'\nmodel = 'm'\napi_key_env = 'TEST_KEY'\n");
    Folder::with_pair().file("lemon.toml", level("small") + &level("medium") + "[run.retry]\nfirst_wait_s = 0.01\n")
}

/// Runs commands that print and write all there is, and looks for the key in every byte of it.
#[track_caller]
fn check(endpoint: &FakeEndpoint, code: i32) {
    let folder = folder(endpoint);
    let variables = [("TEST_KEY", KEY)];
    let task = "What is 2 + 2?";
    let mut output = String::new();
    let mut run = |args: &[&str], code: i32| {
        let ran = folder.lemon_with(&variables, args).code(code);
        output += &ran.exchange();
    };
    run(&["run", task, "--spec", "pair.yaml", "--record", "tape.jsonl"], code);
    run(&["run", task, "--spec", "pair.yaml", "--json", "--no-reuse"], code);
    run(&["run", task, "--json"], code);
    run(&["doctor"], code);
    run(&["doctor", "--json"], code);
    run(&["trace", "show"], 0);
    run(&["trace", "list", "--json"], 0);
    for format in ["schema", "jsonl", "otlp", "svg", "html"] {
        let out = format!("export.{format}");
        run(&["trace", "export", "--format", format, "--content", "--out", &out], 0);
    }
    // Most of it is as bad as all of it.
    let most = &KEY[..KEY.len() - 4];
    assert!(!output.contains(most), "{output}");
    let files = folder.all_bytes();
    for name in ["lemon.db", "tape.jsonl", "export.otlp", "export.html"] {
        assert!(files.iter().any(|(path, _)| path.ends_with(name)), "no {name} was written");
    }
    for (path, bytes) in &files {
        assert!(!bytes.windows(most.len()).any(|window| window == most.as_bytes()), "the key is in {}", path.display());
    }
    let requests = endpoint.requests();
    let sent = requests.iter().filter(|request| request.authorization == Some(format!("Bearer {KEY}")));
    assert_eq!(sent.count(), requests.len());
    assert!(requests.len() >= 6, "it was sent");
}

#[test]
fn with_an_endpoint_that_takes_it() {
    check(&FakeEndpoint::start(Behaviour::text("Answer: 4").api_key(KEY)).unwrap(), 0);
}

#[test]
fn with_an_endpoint_that_refuses_it() {
    check(&FakeEndpoint::start(Behaviour::text("Answer: 4").api_key("another")).unwrap(), 1);
}

/// Some endpoints quote the key they refuse.
#[test]
fn with_an_endpoint_that_repeats_it() {
    let body = format!("{{\"error\": {{\"message\": \"the key {KEY} is no good\"}}}}");
    let quotes = FakeReply::Status { code: 401, retry_after: None, body };
    check(&FakeEndpoint::start(Behaviour::script([quotes])).unwrap(), 1);
}

#[test]
fn with_an_endpoint_whose_pages_repeat_it() {
    let quotes = FakeReply::Status { code: 503, retry_after: None, body: format!("<p>Bearer {KEY}</p>") };
    check(&FakeEndpoint::start(Behaviour::script([quotes])).unwrap(), 1);
}

/// Some models repeat whatever they get to know.
#[test]
fn with_an_endpoint_whose_replies_repeat_it() {
    check(&FakeEndpoint::start(Behaviour::text(format!("Your key is {KEY}.\nAnswer: 4"))).unwrap(), 0);
}

#[test]
fn with_an_endpoint_whose_model_is_called_like_it() {
    let reply = FakeReply::ByModel("Answer: 4".into(), format!("model-{KEY}"));
    check(&FakeEndpoint::start(Behaviour::script([reply])).unwrap(), 0);
}

/// A name that is too long is cut, here within the key.
#[test]
fn with_an_endpoint_whose_long_model_name_ends_with_it() {
    for beyond in [1, 4] {
        let model = "m".repeat(200 + beyond - KEY.len()) + KEY;
        check(&FakeEndpoint::start(Behaviour::script([FakeReply::ByModel("Answer: 4".into(), model)])).unwrap(), 0);
    }
}
