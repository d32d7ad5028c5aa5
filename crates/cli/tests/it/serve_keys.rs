//! `lemon keys`, and what a server makes of them: strangers are kept out, and no budget is overrun, whatever crashes.

use crate::common::{Draws, Folder, PATIENCE, wait_until};
use crate::served::{Served, chat, read};
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply, fault_rounds};
use serde_json::{Value, json};
use std::net::TcpStream;

const QUESTION: &str = "Write a letter to Ann.";

fn add(folder: &Folder, name: &str, args: &[&str]) -> String {
    let ran = folder.lemon(&[&["keys", "add", name], args].concat()).ok();
    ran.stdout.trim().to_owned()
}

fn bearer(key: &str) -> (&'static str, String) {
    ("authorization", format!("Bearer {key}"))
}

fn ask(served: &Served, key: &str, question: &str) -> TcpStream {
    let (name, value) = bearer(key);
    served.begin("POST", "/v1/chat/completions", &[(name, &value)], &chat(question, json!({})).to_string())
}

fn listed(folder: &Folder) -> Vec<Value> {
    folder.lemon(&["keys", "list", "--json"]).ok().json().as_array().unwrap().clone()
}

#[test]
fn keys_are_made_listed_and_removed() {
    let folder = Folder::new();
    let args = ["--budget-usd", "5", "--budget-tokens", "1M", "--per", "day", "--rpm", "60"];
    let key = add(&folder, "ann", &args);
    assert!(key.starts_with("lemon-sk-"), "{key}");
    folder.lemon(&["keys", "add", "ann"]).code(2).complains(&["`ann` already"]);
    folder.lemon(&["keys", "add", "bob", "--per", "year"]).code(2);
    let [one] = listed(&folder).try_into().unwrap();
    let expected = json!({"budget_tokens": 1_000_000, "budget_usd": 5.0, "per": "day", "rpm": 60, "spent_tokens": 0});
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&one[name], value, "{name}");
    }
    let shown = folder.lemon(&["keys", "list"]).ok().stdout;
    assert!(shown.contains("ann") && shown.contains("1000000 tokens and 5 USD per day") && !shown.contains(&key));
    for (path, bytes) in folder.all_bytes() {
        assert!(!bytes.windows(key.len()).any(|part| part == key.as_bytes()), "the key is in {}", path.display());
    }
    folder.lemon(&["keys", "remove", "ann"]).ok();
    assert!(listed(&folder).is_empty());
    folder.lemon(&["keys", "remove", "ann"]).code(2).complains(&["no key is called `ann`"]);
}

#[test]
fn strangers_are_kept_out_where_they_could_come_from() {
    let endpoint = FakeEndpoint::start(Behaviour::text("Hello.")).unwrap();
    let folder = Folder::with_endpoint(&endpoint, "");
    let refused = folder.lemon(&["serve", "--addr", "0.0.0.0:0", "-q"]).code(2);
    refused.complains(&["no address of this machine alone", "lemon keys add"]);
    let key = add(&folder, "ann", &[]);
    let served = Served::start(&folder, &["--require-key"]);
    let ask = |headers: &[(&str, &str)], path: &str| served.send("GET", path, headers, "").status;
    let (name, value) = bearer(&key);
    for path in ["/v1/models", "/metrics"] {
        assert_eq!(ask(&[], path), 401, "{path}");
        assert_eq!(ask(&[(name, "Bearer something")], path), 401, "{path}");
        assert_eq!(ask(&[(name, &value)], path), 200, "{path}");
        assert_eq!(ask(&[("cookie", &format!("lemon_key={key}"))], path), 200, "{path}");
    }
    let form = |key: &str| served.send("POST", "/login", &[], &format!("key={key}"));
    let cookie = form(&key).header("set-cookie").unwrap().to_owned();
    assert!(
        cookie.starts_with(&format!("lemon_key={key}; ")) && cookie.contains("HttpOnly; SameSite=Strict"),
        "{cookie}"
    );
    let refused = form("lemon-sk-none");
    assert_eq!((refused.header("location"), refused.header("set-cookie")), (Some("/login?refused"), None));
    for path in ["/healthz", "/readyz", "/openapi.json"] {
        assert_eq!(ask(&[], path), 200, "{path}");
    }
    folder.lemon(&["keys", "remove", "ann"]).ok();
    assert_eq!(ask(&[(name, &value)], "/v1/models"), 401, "it is removed while the server runs");
    drop(served);
    let served = Served::start(&folder, &[]);
    let ask = |value: &str| served.send("GET", "/v1/models", &[(name, value)], "").status;
    assert_eq!((ask("Bearer sk-anything"), ask(&value)), (200, 401), "a key that was ours is not free of charge");
}

#[test]
fn a_budget_ends_what_would_overrun_it() {
    let endpoint = FakeEndpoint::start(Behaviour::text("word ".repeat(50))).unwrap();
    let folder = Folder::with_endpoint(&endpoint, "");
    let key = add(&folder, "ann", &["--budget-tokens", "3000"]);
    let served = Served::start(&folder, &[]);
    let mut answered = 0;
    let refusal = loop {
        let response = read(ask(&served, &key, &format!("{QUESTION} It is number {answered}.")));
        match response.status {
            200 => answered += 1,
            _ => break response,
        }
        assert!(answered < 100);
    };
    refusal.refused(429, Some("insufficient_quota"));
    assert_eq!(refusal.header("x-should-retry"), Some("false"));
    assert!(answered > 2, "{answered}");
    let spent = listed(&folder)[0]["spent_tokens"].as_u64().unwrap();
    let on_record: u64 = folder.runs().iter().map(|run| run["tokens"].as_u64().unwrap()).sum();
    assert_eq!(spent, on_record, "what is on record is what the runs spent");
    assert!(spent <= 3000, "{spent}");
    // Others are not concerned.
    served.chat(QUESTION, json!({})).ok();
}

#[test]
fn requests_of_a_minute_are_counted() {
    let endpoint = FakeEndpoint::start(Behaviour::text("Hello.")).unwrap();
    let folder = Folder::with_endpoint(&endpoint, "");
    let key = add(&folder, "ann", &["--rpm", "2"]);
    let served = Served::start(&folder, &[]);
    let asked: Vec<u16> = (0..3).map(|_| read(ask(&served, &key, QUESTION)).status).collect();
    assert_eq!(asked, [200, 200, 429]);
}

#[test]
fn a_run_that_a_crash_interrupted_ends_on_record() {
    let endpoint = FakeEndpoint::start(Behaviour::script([FakeReply::Hang])).unwrap();
    let folder = Folder::with_endpoint(&endpoint, "");
    let key = add(&folder, "ann", &["--budget-tokens", "100000"]);
    let served = Served::start(&folder, &[]);
    let client = ask(&served, &key, QUESTION);
    wait_until("the model is asked", || endpoint.in_flight() == 1);
    served.kill();
    drop(client);
    assert_eq!(folder.runs()[0]["stop_reason"], Value::Null);
    let spent = listed(&folder)[0]["spent_tokens"].as_u64().unwrap();
    assert!(spent > 1000, "the call in flight counts as all that was reserved for it: {spent}");
    let served = Served::start(&folder, &[]);
    assert_eq!(served.said.recv_timeout(PATIENCE).unwrap(), "1 interrupted runs are taken up");
    wait_until("the run is over", || served.counter("lemon_runs_under_way") == 0.0);
    assert_eq!(folder.runs()[0]["stop_reason"], "cancelled");
    assert_eq!(endpoint.calls(), 1, "no client waits for it: nothing more is spent");
}

/// However often the server is killed while many clients ask at the same time, the endpoint is never made to use more tokens
/// than the key may spend, and every run that was begun has an end.
#[test]
fn no_budget_is_overrun_across_crashes() {
    let reply = "word ".repeat(40);
    for round in 0..fault_rounds(1) {
        let (limit, mut draws) = (60_000, Draws::new(round));
        let faulty = Behaviour::text(reply.clone()).latency_ms(5).fault_every(4, FakeReply::status(500));
        let endpoint = FakeEndpoint::start(faulty).unwrap();
        let folder = Folder::with_endpoint(&endpoint, "");
        let key = add(&folder, "ann", &["--budget-tokens", &limit.to_string()]);
        for life in 0..4 {
            let served = Served::start(&folder, &[]);
            let clients: Vec<TcpStream> =
                (0..12).map(|n| ask(&served, &key, &format!("{QUESTION} Life {life}, number {n}."))).collect();
            let seen = endpoint.calls() + 2 + draws.below(10);
            wait_until("calls are made", || endpoint.calls() >= seen || served.counter("lemon_runs_under_way") == 0.0);
            served.kill();
            drop(clients);
        }
        wait_until("the endpoint is left alone", || endpoint.in_flight() == 0);
        let words = |text: &str| text.split_whitespace().count();
        let prompt = |body: &Value| -> usize {
            body["messages"].as_array().unwrap().iter().map(|it| words(it["content"].as_str().unwrap())).sum()
        };
        let used: usize = endpoint.requests().iter().map(|request| prompt(&request.body) + words(&reply)).sum();
        let spent = listed(&folder)[0]["spent_tokens"].as_u64().unwrap();
        assert!(used as u64 <= spent && spent <= limit, "used {used}, on record {spent}, limit {limit}");
        let served = Served::start(&folder, &[]);
        wait_until("all runs are over", || served.counter("lemon_runs_under_way") == 0.0);
        assert_eq!(served.end(), Some(0));
        let open: Vec<Value> = folder.runs().into_iter().filter(|run| run["stop_reason"].is_null()).collect();
        assert!(open.is_empty(), "{open:?}");
        assert!(folder.runs().len() > 12, "the test asked too little");
    }
}
