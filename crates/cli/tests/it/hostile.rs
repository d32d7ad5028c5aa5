//! Texts that would move the cursor, set a title, clear the screen or reverse the writing: none of them reaches a terminal.

use crate::common::{Folder, Ran};
use crate::live::on_a_terminal;
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};

/// Clears the screen, sets the title, hides, speaks in C1, rings, deletes, reverses the writing, and hides again.
const EVIL: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{1b}[8mEVIL\u{9b}31m\u{8}\u{7f}\u{202e}\u{2066}\u{200b}\u{2028}\rX";

fn is_evil(character: char) -> bool {
    let hides = matches!(character, '\u{200b}' | '\u{2028}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    hides || (character.is_control() && character != '\n' && character != '\t')
}

/// That there is nothing of it in what people read.
#[track_caller]
fn check(ran: &Ran) {
    for (stream, text) in [("stdout", &ran.stdout), ("stderr", &ran.stderr)] {
        assert!(!text.contains(is_evil), "lemon {}: {stream} {text:?}", ran.args.escape_debug());
    }
}

/// The first agent answers with it; the second fails with it.
fn endpoint() -> FakeEndpoint {
    let body = serde_json::json!({"error": {"message": format!("refused {EVIL}")}}).to_string();
    let behaviour = Behaviour::function(move |request| match request.text().contains("You are: Second.") {
        false => FakeReply::Text(format!("Look:\n{EVIL}\nAnswer: {EVIL}")),
        true => FakeReply::Status { code: 400, retry_after: None, body: body.clone() },
    });
    FakeEndpoint::start(behaviour).unwrap()
}

/// Two agents; the answer is the first one's, and the model has a name of that kind.
fn folder(endpoint: &FakeEndpoint) -> Folder {
    let level = |name: &str| {
        let url = endpoint.base_url();
        format!("[capacity.{name}]\nbase_url = \"{url}\"\nmodel = \"fake \\u001b[2J\\u009b \\u202e\"\n")
    };
    let team = "agents:\n  - {id: one, base: solver, role: First, capacity: small}\n  \
                - {id: two, base: critic, role: Second, capacity: medium}\nanswer: {from: [one], by: last}\n";
    Folder::new().file("lemon.toml", ["small", "medium"].map(level).concat()).file("team.yaml", team)
}

#[test]
fn what_people_read_is_harmless() {
    let endpoint = endpoint();
    let folder = folder(&endpoint);
    let question = format!("What about {EVIL}?");
    let run = folder.lemon(&["run", &question, "--spec", "team.yaml", "--json", "--replies"]).ok();
    check(&run);
    assert!(run.stderr.contains("\\u001b"), "made visible: {}", run.stderr);
    let reply = run.json()["agents"][0]["reply"].as_str().unwrap().to_owned();
    assert!(reply.contains(EVIL), "JSON says what was said: {reply:?}");
    folder.lemon(&["run", "another", "--spec", "team.yaml", "--replies", "--json"]).ok();
    for args in [
        &["trace", "list"][..],
        &["trace", "list", "--json"],
        &["trace", "show", "last", "--replies"],
        &["trace", "show", "--json", "--replies"],
        &["doctor"],
        &["doctor", "--json"],
    ] {
        check(&folder.lemon(args));
    }
    let runs = folder.runs();
    let id = |at: usize| runs[at]["run_id"].as_str().unwrap();
    check(&folder.lemon(&["trace", "diff", id(1), id(0)]).ok());
}

/// Scripts get the answer as it is; everything else on the way is talk.
#[test]
fn an_answer_that_no_terminal_shows_is_left_as_it_is() {
    let endpoint = endpoint();
    let ran = folder(&endpoint).lemon(&["run", "What?", "--spec", "team.yaml"]).ok();
    assert!(ran.stdout.contains("\u{1b}[2J"), "{:?}", ran.stdout);
    assert!(!ran.stderr.contains(is_evil), "{:?}", ran.stderr);
}

#[test]
fn names_files_and_faults_are_harmless() {
    let endpoint = endpoint();
    let tasks = [("a", "one"), (EVIL, "two")]
        .map(|(id, question)| serde_json::json!({"id": id, "question": question}).to_string())
        .join("\n");
    let name = format!("bad {EVIL}.yaml");
    let folder = folder(&endpoint)
        .file("tasks.jsonl", format!("{tasks}\n{{\"id\": \"{}\"}}\n", EVIL.escape_default()))
        .file("fine.yaml", "agents: [{id: one, base: solver, capacity: small}]")
        .file(&name, format!("agents: [{{id: one, base: '{EVIL}', capacity: small}}]"))
        .file("replies.jsonl", serde_json::json!({"item": 0, "reply": format!("Answer: {EVIL}")}).to_string());
    for args in [
        &["run", "--tasks", "tasks.jsonl", "--spec", "fine.yaml"][..],
        &["validate", &name],
        &["validate", EVIL],
        &["edits", &name],
        &["run", "What?", "--spec", &name],
        &["run", "--resume", EVIL],
        &["trace", "show", EVIL],
        &["trace", "export", EVIL, "--format", "jsonl"],
        &["grade", "--set", "gsm8k", "--replies", "replies.jsonl"],
        &["grade", "--set", EVIL, "--replies", "replies.jsonl"],
        &["run", "What?", "--workers", EVIL],
        &["models", "pull", EVIL],
        &["compare", EVIL, EVIL],
        &["--store", EVIL, "trace", "show"],
        &["--config", EVIL, "doctor"],
    ] {
        check(&folder.lemon(args));
    }
}

/// The same on a terminal, where what is ours has colours and is drawn in place: nothing but that.
#[test]
fn a_terminal_gets_no_sequence_but_ours() {
    let endpoint = endpoint();
    let folder = folder(&endpoint).file("question", format!("What about {EVIL}?"));
    for args in [
        "run - --spec team.yaml --replies < question",
        "run - --spec team.yaml --json --replies < question",
        "trace list",
        "trace show --replies",
        "trace show --json --replies",
        "trace export --format jsonl",
        "trace export --format html",
        "run \"$(cat question)\" --workers \"$(cat question)\"",
        "trace show \"$(cat question)\"",
    ] {
        let Some(ran) = on_a_terminal(&folder, args) else { return };
        let ours = strip_ours(&ran.stdout);
        assert!(ours.contains("EVIL"), "lemon {args}: {:?}", ran.stdout);
        assert!(!ours.contains(is_evil), "lemon {args}: {ours:?}");
    }
}

/// Without line ends of the terminal, the colours, and the sequences that draw in place.
fn strip_ours(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    let mut parts = text.split("\u{1b}[");
    let mut stripped = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|character: char| !character.is_ascii_digit() && character != ';').unwrap_or(0);
        let (parameters, rest) = part.split_at(end);
        match rest.chars().next() {
            // Colours but no hidden text; up, to the left, and clear the line.
            Some('m') if parameters != "8" => stripped.push_str(&rest[1..]),
            Some('A' | 'G') => stripped.push_str(&rest[1..]),
            Some('K') => stripped.push_str(&rest[1..]),
            _ => stripped.push_str(&format!("\u{1b}[{part}")),
        }
    }
    // The live view goes to the beginning of a line.
    stripped.replace('\r', "")
}
