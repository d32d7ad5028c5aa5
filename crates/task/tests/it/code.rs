//! Programming problems: which code a reply holds, and pass@k.

use crate::common;
use std::fs;

use lemon_task::{Item, Program, SetName, Source, Verdict, grade, load, pass_at_k};

const PROMPT: &str = "from typing import List\n\ndef double(x: int) -> int:\n    \"\"\"Twice x.\"\"\"\n";

fn problem() -> Item {
    let folder = tempfile::tempdir().unwrap();
    let record = serde_json::json!({
        "task_id": "Own/0", "prompt": PROMPT, "entry_point": "double",
        "canonical_solution": "    return 2 * x\n", "test": "def check(candidate):\n    assert candidate(2) == 4\n",
    });
    fs::create_dir(folder.path().join("humaneval")).unwrap();
    fs::write(folder.path().join("humaneval/HumanEval.jsonl"), record.to_string()).unwrap();
    load(&Source::Folder(folder.path().to_owned()), SetName::HumanEval, "test").unwrap().items.remove(0)
}

fn check(reply: &str, expected: Option<&str>) {
    let grade = grade(&problem(), reply);
    assert_eq!(grade.extracted.as_deref(), expected, "{reply:?}");
    assert_eq!(grade.verdict, if expected.is_some() { Verdict::MustRun } else { Verdict::Wrong });
}

#[test]
fn finds_the_code() {
    let code = "def double(x):\n    return 2 * x\n";
    check(&format!("```python\n{code}```"), Some(code));
    check(&format!("Here:\n\n```py\n{code}```\nIt doubles."), Some(code));
    check(&format!("```python\n{code}```\nUse it so:\n```python\nprint(double(2))\n```"), Some(code));
    check(&format!("```\ndef double(x):\n    pass\n```\nBetter:\n```\n{code}```"), Some(code));
    check(&format!("```python\n{code}"), Some(code));
    check(code, Some(code));
    check(&format!("It is this:\nimport math\n{code}"), Some(&format!("import math\n{code}")));
    check("```python\nreturn 2 * x\n```", Some("return 2 * x\n"));
    check("    return 2 * x\n", Some("    return 2 * x"));
    check("", None);
    check("I cannot.", None);
    check("```\n\n```", None);
}

#[test]
fn the_program_is_prompt_code_and_test() {
    let program = Program::new(&problem(), "```python\ndef double(x):\n    return x + x\n```").unwrap();
    assert_eq!(program.entry_point, "double");
    assert_eq!(program.code, format!("{PROMPT}\ndef double(x):\n    return x + x\n\n"));
    assert_eq!(program.prompt, PROMPT);
    assert_eq!(program.test, "def check(candidate):\n    assert candidate(2) == 4\n");
    for reply in ["```\nreturn x + x\n```", "    return x + x"] {
        let program = Program::new(&problem(), reply).unwrap();
        assert_eq!(program.code.trim_end(), format!("{PROMPT}\n    return x + x"));
    }
    assert_eq!(Program::new(&common::open("1"), "```\nx\n```"), None);
}

#[test]
fn the_legacy_rule_strips_characters() {
    let legacy = |reply: &str| Program::legacy(&problem(), reply).unwrap().code;
    assert_eq!(legacy("```python\ndef f(): pass\n```"), "from typing import *\ndef f(): pass");
    // It eats the head of code that begins with one of its characters.
    assert_eq!(legacy("```python\nprint(1)\n```"), "from typing import *\nrint(1)");
    assert_eq!(legacy("Here:\n```python\nx = 1\n```\n"), "from typing import *\nHere:\n```python\nx = 1");
}

#[test]
fn the_question_asks_for_the_whole_function() {
    let question = problem().task.question;
    assert!(question.contains("```python") && question.contains("def double") && !question.contains("2 * x"));
}

#[test]
fn pass_at_k_is_the_chance_of_one_right_sample() {
    let check = |n, correct, k, expected: Option<f64>| match (pass_at_k(n, correct, k), expected) {
        (Some(found), Some(expected)) => assert!((found - expected).abs() < 1e-12, "{n} {correct} {k}: {found}"),
        (found, expected) => assert_eq!(found, expected, "{n} {correct} {k}"),
    };
    check(10, 3, 1, Some(0.3));
    check(5, 2, 2, Some(0.7));
    check(5, 2, 4, Some(1.0));
    check(10, 0, 5, Some(0.0));
    check(10, 10, 1, Some(1.0));
    check(200, 100, 100, Some(1.0));
    check(5, 2, 0, None);
    check(5, 2, 6, None);
    check(5, 6, 1, None);
}
