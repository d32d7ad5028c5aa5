//! `lemon run --tasks`: many tasks from a file.

use crate::common::{Folder, endpoint, reply_of};
use crate::snapshot;
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};

const SCRIPTED: [&str; 9] =
    ["run", "--tasks", "tasks.jsonl", "--workers", "scripted", "--script", "script.toml", "--spec", "pair.yaml"];

const TASKS: &str = r#"{"id": "first", "question": "What is 1 + 1?"}

not JSON at all
{"id": "first", "question": "again"}
{"id": 2, "question": "What is 2 + 2?", "gold": "4"}
["a list"]
{"id": "empty", "question": " "}
{"id": "none"}
{"id": {}, "question": "Who?"}
{"question": "What is 3 + 3?"}
"#;

#[test]
fn bad_lines_are_named_and_skipped() {
    let folder = Folder::with_pair().file("tasks.jsonl", TASKS);
    // One at a time: progress is told in the order tasks end, which is chance where several run.
    let one_at_a_time = [&SCRIPTED[..], &["--width", "1"]].concat();
    snapshot!("bad_lines_are_named_and_skipped", folder.exchange(&one_at_a_time));
    let lines = folder.lemon(&[&SCRIPTED[..], &["--json", "-q"]].concat()).ok().json_lines();
    let ids: Vec<_> = lines.iter().map(|line| line["task_id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["first", "2", "line-10"]);
    assert!(lines.iter().all(|line| line["stop_reason"] == "answered" && line["answer"] == "68"));
}

#[test]
fn nothing_but_bad_lines() {
    let folder = Folder::with_pair().file("tasks.jsonl", "nonsense\n[]\n");
    let ran = folder.lemon(&SCRIPTED).code(2);
    assert!(ran.stdout.is_empty() && ran.stderr.contains("error: tasks.jsonl has no usable task"), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("warning: tasks.jsonl, line ").count(), 2);
    assert!(folder.runs().is_empty());
}

/// The order of the file, however long each task takes.
#[test]
fn the_order_of_the_file() {
    // Later tasks are answered sooner.
    let reply = |request: &lemon_fakes::ChatRequest| {
        let number = (0..12).find(|number| request.text().contains(&format!("task {number}.")));
        FakeReply::Text(format!("{}{}", "well ".repeat(12 - number.unwrap_or(0)), reply_of(request)))
    };
    let endpoint = FakeEndpoint::start(Behaviour::function(reply).per_token_ms(5)).unwrap();
    let tasks: String =
        (0..12).map(|n| format!("{{\"id\": \"t{n}\", \"question\": \"This is task {n}.\"}}\n")).collect();
    let folder = Folder::with_endpoint(&endpoint, "").file("tasks.jsonl", tasks);
    let args = ["run", "--tasks", "tasks.jsonl", "--spec", "pair.yaml", "--json", "-q"];
    let ids =
        |lines: Vec<serde_json::Value>| lines.iter().map(|line| line["task_id"].as_str().unwrap().to_owned()).collect();
    let expected: Vec<String> = (0..12).map(|n| format!("t{n}")).collect();
    let found: Vec<String> = ids(folder.lemon(&args).ok().json_lines());
    assert_eq!(found, expected);
    assert_eq!(endpoint.calls(), 24);
    // A finished batch taken up again says the same and asks no worker.
    let batch = folder.runs()[0]["batch"].as_str().unwrap().to_owned();
    let found: Vec<String> = ids(folder.lemon(&["run", "--resume", &batch, "--json", "-q"]).ok().json_lines());
    assert_eq!((found, endpoint.calls()), (expected, 24));
}

#[test]
fn width_bounds_what_runs_at_a_time() {
    let tasks: String = (0..9).map(|n| format!("{{\"question\": \"This is task {n}.\"}}\n")).collect();
    for (flags, config, bound) in
        [(&["--width", "3"][..], "", 3), (&[], "[run]\nwidth = 2\n", 2), (&["--width", "0"], "", 1)]
    {
        let endpoint = FakeEndpoint::start(Behaviour::text("Answer: 1").latency_ms(15)).unwrap();
        let folder = Folder::with_endpoint(&endpoint, config).file("tasks.jsonl", &tasks);
        // A stream counts as in flight until its connection notices the end; a whole reply until it is sent.
        let whole = folder.read("lemon.toml").replace("model = ", "stream = false\nmodel = ");
        let folder = folder.file("lemon.toml", whole);
        let args = [&["run", "--tasks", "tasks.jsonl", "--spec", "pair.yaml", "--json", "-q"], flags].concat();
        assert_eq!(folder.lemon(&args).ok().json_lines().len(), 9);
        assert!((1..=bound).contains(&endpoint.peak_in_flight()), "{} of {bound}", endpoint.peak_in_flight());
    }
}

#[test]
fn one_that_fails_does_not_stop_the_others() {
    let reply = |request: &lemon_fakes::ChatRequest| match request.text().contains("poison") {
        true => FakeReply::status(400),
        false => FakeReply::Text("Answer: fine".into()),
    };
    let endpoint = FakeEndpoint::start(Behaviour::function(reply)).unwrap();
    let tasks = "{\"id\": \"a\", \"question\": \"water\"}\n{\"id\": \"b\", \"question\": \"poison\"}\n{\"id\": \"c\", \"question\": \"bread\"}\n";
    let folder = Folder::with_endpoint(&endpoint, "").file("tasks.jsonl", tasks);
    let args = ["run", "--tasks", "tasks.jsonl", "--spec", "pair.yaml"];
    let ran = folder.lemon(&args).code(1);
    assert_eq!(ran.stdout, "a\tfine\nb\t-\nc\tfine\n");
    let lines = folder.lemon(&[&args[..], &["--json"]].concat()).code(1).json_lines();
    let reasons: Vec<_> = lines.iter().map(|line| line["stop_reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["answered", "all_agents_failed", "answered"]);
}

/// Each task has the whole budget, and no task more.
#[test]
fn a_budget_is_one_task_s() {
    let endpoint = endpoint();
    let tasks = "{\"question\": \"One?\"}\n{\"question\": \"Two?\"}\n";
    let folder = Folder::with_endpoint(&endpoint, "").file("tasks.jsonl", tasks);
    let args = ["run", "--tasks", "tasks.jsonl", "--spec", "pair.yaml", "--json", "--budget-calls", "1"];
    let lines = folder.lemon(&args).code(1).json_lines();
    assert!(lines.iter().all(|line| line["calls"] == 1 && line["stop_reason"] == "call_budget"), "{lines:?}");
    assert_eq!(endpoint.calls(), 2);
}

#[test]
fn skipped_lines_are_a_failure_if_that_is_asked_for() {
    let folder =
        Folder::with_pair().file("tasks.jsonl", TASKS).file("good.jsonl", "{\"question\": \"What is 1 + 1?\"}\n");
    let strict = [&SCRIPTED[..], &["--strict"]].concat();
    folder.lemon(&SCRIPTED).ok();
    let ran = folder.lemon(&strict).code(1);
    assert!(ran.stderr.ends_with("6 lines were skipped, which --strict counts as a failure\n"), "{}", ran.stderr);
    // The tasks that there are were run all the same.
    assert_eq!(ran.stdout.lines().count(), 3);
    let batch = ran.stderr.split("--resume ").nth(1).unwrap().split('`').next().unwrap();
    folder.lemon(&["run", "--resume", batch, "--strict"]).code(1);
    folder.lemon(&["run", "--resume", batch]).ok();
    let good: Vec<&str> = strict.iter().map(|word| if *word == "tasks.jsonl" { "good.jsonl" } else { word }).collect();
    folder.lemon(&good).ok();
}

/// Some editors begin a file with a mark of its byte order.
#[test]
fn a_byte_order_mark_is_no_part_of_a_task() {
    let tasks = "\u{feff}{\"id\": \"first\", \"question\": \"What is 1 + 1?\"}\n{\"id\": \"second\", \"question\": \"And 2 + 2?\"}\n";
    let folder = Folder::with_pair()
        .file("tasks.jsonl", tasks)
        .file("script.toml", format!("\u{feff}{}", crate::common::SCRIPT))
        .file("pair.yaml", format!("\u{feff}{}", crate::common::PAIR));
    let lines = folder.lemon(&[&SCRIPTED[..], &["--strict", "--json"]].concat()).ok().json_lines();
    assert_eq!(lines.iter().map(|line| line["task_id"].clone()).collect::<Vec<_>>(), ["first", "second"]);
}

#[cfg(unix)]
#[test]
fn what_is_no_plain_file_is_refused_at_once() {
    let folder = Folder::with_pair().file("folder/x", "");
    assert!(std::process::Command::new("mkfifo").arg(folder.path("pipe")).status().unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", folder.path("zero")).unwrap();
    for (name, kind) in [
        ("pipe", "a device or a pipe"),
        ("zero", "a device or a pipe"),
        ("/dev/zero", "a device"),
        ("folder", "a folder"),
    ] {
        let words = format!("{name} is {kind}");
        let refused = |args: &[&str]| {
            let ran = folder.lemon(args).code(2);
            let has = |word: &str| ran.stderr.contains(word);
            assert!(has(&words) && has("a plain file was expected") && has("hint: name a file"), "{}", ran.stderr);
        };
        refused(&["run", "--tasks", name]);
        refused(&["run", "--spec", name, "What is 1 + 1?"]);
        refused(&["validate", name]);
        refused(&["run", "--workers", "replay", "--cassette", name, "--spec", "pair.yaml", "What is 1 + 1?"]);
        refused(&["--config", name, "run", "What is 1 + 1?"]);
        refused(&["grade", "--set", "gsm8k", "--replies", name]);
        refused(&["sft", "--data", name, "--model", "new", "--out", "taught"]);
        refused(&["train", "--recipe", name, "--out", "trained"]);
    }
    // Sets of tasks.
    std::fs::create_dir_all(folder.path("data/gsm8k")).unwrap();
    std::fs::rename(folder.path("pipe"), folder.path("data/gsm8k/test.jsonl")).unwrap();
    let ran = folder.lemon(&["grade", "--set", "gsm8k", "--data", "data", "--replies", "script.toml"]).code(2);
    ran.complains(&["test.jsonl: it is no plain file"]);
}
