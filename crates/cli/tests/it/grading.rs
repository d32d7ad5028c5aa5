//! Task sets and grading through the command line, on the sample that ships with the program.

use crate::common::Folder;
use serde_json::{Value, json};

fn replies(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn replies_are_graded_in_their_order() {
    let lines = replies(&[
        json!({"item": 1, "reply": "I do not know."}),
        json!({"item": 0, "reply": "It is hard.\nAnswer: no number at all"}),
    ]);
    let folder = Folder::new().file("replies.jsonl", &lines);
    let result = folder.lemon(&["grade", "--set", "gsm8k", "--replies", "replies.jsonl", "--json"]).ok().json();
    let items: Vec<_> = result["items"].as_array().unwrap().iter().map(|item| item["item"].clone()).collect();
    assert_eq!(items, [1, 0]);
    assert_eq!(result["totals"], json!({"graded": 2, "correct": 0, "legacy": 0, "skipped": 0}));
}

#[test]
fn code_is_graded_by_running_it() {
    let sample = include_str!("../../../task/samples/humaneval/HumanEval.jsonl");
    let problem: Value = serde_json::from_str(sample.lines().next().unwrap()).unwrap();
    let text = |key: &str| problem[key].as_str().unwrap();
    let right = format!("```python\n{}{}\n```", text("prompt"), text("canonical_solution"));
    let wrong = format!("```python\n{}    return None\n```", text("prompt"));
    let exits = format!("```python\nimport os\nos._exit(0)\n{}    pass\n```", text("prompt"));
    let replied = [right, wrong, exits, "no code here".to_owned()];
    let lines = replies(&replied.map(|reply| json!({"item": 0, "reply": reply})));
    let folder = Folder::new().file("replies.jsonl", &lines);
    let output = folder.lemon(&["grade", "--set", "humaneval", "--replies", "replies.jsonl", "--json"]);
    if output.stderr.contains("untrusted code cannot be run here") {
        eprintln!("skipped: this machine cannot contain code");
        return;
    }
    let result = output.ok().json();
    let right: Vec<_> = result["items"].as_array().unwrap().iter().map(|item| item["correct"].clone()).collect();
    assert_eq!(right, [true, false, false, false]);
    let reasons: Vec<_> = result["items"].as_array().unwrap().iter().map(|item| item["reason"].as_str()).collect();
    assert_eq!(reasons[0], None);
    assert!(reasons[1..].iter().all(|reason| reason.is_some_and(|reason| !reason.is_empty())), "{reasons:?}");
    assert!(reasons[3].unwrap().contains("found no answer in the reply"), "{reasons:?}");
}

#[test]
fn a_reason_says_what_is_wrong() {
    let sample = include_str!("../../../task/samples/gsm8k/test.jsonl");
    let problem: Value = serde_json::from_str(sample.lines().next().unwrap()).unwrap();
    let gold = problem["answer"].as_str().unwrap().rsplit("#### ").next().unwrap().to_owned();
    let replied = [format!("Answer: {gold}"), "Answer: 123456".to_owned(), "I do not know.".to_owned()];
    let lines = replies(&replied.map(|reply| json!({"item": 0, "reply": reply}))) + "nonsense\n";
    let folder = Folder::new().file("replies.jsonl", lines);
    let result = folder.lemon(&["grade", "--set", "gsm8k", "--replies", "replies.jsonl", "--json"]).ok().json();
    let reasons: Vec<_> = result["items"].as_array().unwrap().iter().map(|item| item["reason"].clone()).collect();
    let wrong =
        [format!("expected {gold}, found \"123456\""), format!("expected {gold}, found no answer in the reply")];
    assert_eq!(reasons, [Value::Null, wrong[0].clone().into(), wrong[1].clone().into()]);
    assert_eq!(result["skipped"][0]["line"], 4);
    assert!(result["skipped"][0]["reason"].as_str().unwrap().starts_with("not {item, reply}"));
}

#[test]
fn bad_lines_are_named_and_a_file_without_replies_is_refused() {
    let folder = Folder::new().file("replies.jsonl", "nonsense\n{\"item\": 9999, \"reply\": \"x\"}\n");
    let output = folder.lemon(&["grade", "--set", "svamp", "--replies", "replies.jsonl"]);
    let said = output.code(2).stderr;
    assert!(
        said.contains("line 1: not {item, reply}") && said.contains("line 2: the split has no item 9999"),
        "{said}"
    );
    let output = folder.lemon(&["grade", "--set", "chess", "--replies", "replies.jsonl"]);
    output.code(2).complains(&["expected one of mmlu"]);
}

#[test]
fn a_folder_is_checked() {
    let good = "{\"question\": \"1 + 1?\", \"answer\": \"2\\n#### 2\"}\n";
    let folder = Folder::new().file("data/gsm8k/test.jsonl", good).file("data/gsm8k/train.jsonl", good);
    let result = folder.lemon(&["data", "check", "data", "--json"]).ok().json();
    let gsm8k = result["sets"].as_array().unwrap().iter().find(|set| set["set"] == "gsm8k").unwrap().clone();
    assert_eq!((&result["sound"], &gsm8k["records"]), (&json!(true), &json!(2)));
    let folder = folder.file("data/gsm8k/test.jsonl", format!("{good}{{\"question\": 3}}\n"));
    let output = folder.lemon(&["data", "check", "data"]).code(1);
    assert!(output.stdout.contains("gsm8k/test.jsonl, line 2"), "{}", output.stdout);
    folder.lemon(&["data", "check", "nowhere"]).code(2).complains(&["nowhere is no folder"]);
}
