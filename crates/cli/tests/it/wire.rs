//! What comes over the wire, as a person meets it: answers cut off, servers that load, secrets that come back.

use crate::common::Folder;
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};

const ONE: &str = "agents: [{id: only, base: solver, capacity: small}]\n";
const TASK: &str = "Count to five.";

fn folder(behaviour: Behaviour) -> (Folder, FakeEndpoint) {
    let endpoint = FakeEndpoint::start(behaviour).unwrap();
    (Folder::with_endpoint(&endpoint, "").file("one.yaml", ONE), endpoint)
}

#[test]
fn an_answer_that_is_cut_off_is_told_and_can_go_on() {
    let (folder, endpoint) = folder(Behaviour::function(|request| match request.last("assistant") {
        "" => FakeReply::Text("one two three four five".into()),
        _ => FakeReply::Text(" four five".into()),
    }));
    let ran = folder.lemon(&["run", TASK, "--spec", "one.yaml", "--max-tokens", "3"]).ok();
    assert_eq!(ran.stdout.trim(), "one two three");
    let words =
        ["warning: the answer is cut off", "max_tokens = 3", "[capacity.small]", "--max-tokens N", "--continue"];
    words.iter().for_each(|word| assert!(ran.stderr.contains(word), "no {word:?} in {}", ran.stderr));
    assert_eq!(endpoint.requests()[0].body["max_tokens"], 3);

    let ran = folder.lemon(&["run", "--resume", "last", "--continue", "--json"]).ok();
    let result = ran.json();
    assert_eq!((result["answer"].as_str(), result.get("truncated")), (Some("one two three four five"), None));
    assert!(!ran.stderr.contains("cut off"), "{}", ran.stderr);
    folder.lemon(&["run", "--resume", "last", "--continue"]).code(2).complains(&["nothing to continue"]);
    folder.lemon(&["run", TASK, "--continue"]).code(2);

    let ran = folder.lemon(&["run", TASK, "--spec", "one.yaml", "--max-tokens", "2", "--json", "--quiet"]).ok();
    let result = ran.json();
    assert_eq!((&result["truncated"], &result["agents"][0]["truncated"]), (&true.into(), &true.into()));
    assert_eq!(ran.stderr, "");
    assert!(folder.lemon(&["trace", "show"]).ok().stdout.contains("cut off at max_tokens"));
}

#[test]
fn a_budget_that_cuts_an_answer_is_named_instead() {
    let words = "word ".repeat(500);
    let (folder, _endpoint) = folder(Behaviour::text(words.trim()));
    let ran = folder.lemon(&["run", TASK, "--spec", "one.yaml", "--budget-tokens", "500"]).ok();
    assert!(
        ran.stderr.contains("less than max_tokens = 1024") && ran.stderr.contains("--budget-tokens"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_server_that_loads_its_model_is_named() {
    let (folder, _endpoint) = folder(Behaviour::script([FakeReply::loading()]));
    let ran = folder.lemon(&["doctor"]).code(1);
    assert!(ran.stdout.contains("the server is loading its model"), "{}", ran.stdout);
    let finding = &folder.lemon(&["doctor", "--json"]).code(1).json()["endpoints"][0];
    assert_eq!((&finding["reachable"], &finding["replies"]), (&true.into(), &false.into()));
}

#[test]
fn a_server_that_loads_its_model_is_waited_for() {
    let mut replies = vec![FakeReply::loading(); 5];
    replies.push(FakeReply::Text("Answer: 5".into()));
    let (folder, _endpoint) = folder(Behaviour::script(replies));
    let ran = folder.lemon(&["run", TASK, "--spec", "one.yaml"]).ok();
    assert_eq!(ran.stdout.trim(), "5");
    assert!(ran.stderr.contains("the server is loading its model"), "{}", ran.stderr);
}

#[test]
fn the_password_of_an_address_is_never_shown() {
    const PASSWORD: &str = "hunter2-hunter2";
    let endpoint = FakeEndpoint::start(Behaviour::text(format!("I know {PASSWORD}.\nAnswer: 5"))).unwrap();
    let url = endpoint.base_url().replace("http://", &format!("http://me:{PASSWORD}@"));
    let folder = Folder::new().file("one.yaml", ONE);
    let mut output = String::new();
    let mut run = |args: &[&str], code: i32| {
        output += &folder.lemon_with(&[("LEMON_BASE_URL", &url), ("LEMON_MODEL", "m")], args).code(code).exchange();
    };
    run(&["doctor"], 0);
    run(&["doctor", "--json"], 0);
    run(&["run", TASK, "--spec", "one.yaml", "--json", "--record", "tape.jsonl"], 0);
    run(&["run", TASK, "--spec", "one.yaml"], 0);
    run(&["trace", "export", "--format", "html", "--content", "--out", "run.html"], 0);
    assert!(endpoint.requests().iter().all(|request| request.authorization.is_some()), "it is used");
    drop(endpoint);
    run(&["doctor"], 1);
    run(&["run", TASK, "--spec", "one.yaml", "--no-reuse"], 1);
    assert!(output.contains("http://***@127.0.0.1") && !output.contains(PASSWORD), "{output}");
    for (path, bytes) in folder.all_bytes() {
        let found = bytes.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes());
        assert!(!found, "the password is in {}", path.display());
    }
}
