//! Reading: the sample, broken records, broken files.

use crate::common;
use std::{fs, io::Write, path::Path};

use flate2::{Compression, write::GzEncoder};
use lemon_task::{SetName, Source, TaskError, check, gold_reply, grade, load, load_jsonl, splits};

/// Writes one file of the layout into a fresh folder and loads its set.
fn load_file(set: SetName, path: &str, content: &[u8]) -> (tempfile::TempDir, Result<lemon_task::TaskSet, TaskError>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, content).unwrap();
    let loaded = load(&Source::Folder(folder.path().to_owned()), set, "test");
    (folder, loaded)
}

fn check_faults(set: SetName, path: &str, content: &[u8], items: usize, expected: &[(usize, &str)]) {
    let (_folder, loaded) = load_file(set, path, content);
    let loaded = loaded.unwrap();
    let faults: Vec<_> = loaded.faults.iter().map(|fault| (fault.line, fault.reason.as_str())).collect();
    assert_eq!(faults, expected);
    assert_eq!(loaded.items.len(), items);
    assert!(loaded.faults.iter().all(|fault| fault.file == path));
    assert_eq!((loaded.files[0].records, loaded.files[0].faults), (items, expected.len()));
}

#[test]
fn a_broken_line_is_skipped_and_named() {
    let text = b"\xef\xbb\xbf{\"question\": \"q\", \"answer\": \"#### 1,000\"}\r\n\
        {\"question\": \r\n\
        \r\n\
        [1]\r\n\
        {\"question\": \"q\"}\r\n\
        {\"question\": 3, \"answer\": \"#### 3\"}\r\n\
        {\"question\": \"q\", \"answer\": \"3\"}\r\n\
        {\"question\": \"q\", \"answer\": \"#### three\"}\r\n\
        {\"question\": \"q\xff\", \"answer\": \"#### 3\"}\r\n\
        {\"question\": \" \", \"answer\": \"#### 3\"}\r\n\
        {\"question\": \"last\", \"answer\": \"#### -3\"}";
    let expected = [
        (2, "not JSON: EOF while parsing a value"),
        (4, "not a JSON object"),
        (5, "no field `answer`"),
        (6, "`question` is not a text"),
        (7, "`answer` has no `####`"),
        (8, "the gold `three` is not a number"),
        (9, "not UTF-8"),
        (10, "`question` is empty"),
    ];
    check_faults(SetName::Gsm8k, "gsm8k/test.jsonl", text, 2, &expected);
    let (_folder, loaded) = load_file(SetName::Gsm8k, "gsm8k/test.jsonl", text);
    let loaded = loaded.unwrap();
    // The last record keeps its position although seven before it are broken.
    assert_eq!(loaded.at(9).map(|item| (item.task.question.as_str(), item.task.id.as_str())), Some(("last", "9")));
    assert_eq!(loaded.at(1), None);
}

#[test]
fn a_broken_element_of_a_list_costs_only_itself() {
    let text = br#"[
        {"ID": "chal-1", "Body": "b", "Question": "q?", "Answer": 51.0},
        {"ID": "chal-2", "Body": "b", "Question": "q?", "Answer": "many"},
        {"ID": , "Body"},
        {"ID": "chal-4", "Body": "b", "Question": "q?", "Answer": 4}
    ]"#;
    let expected = [(3, "`Answer` is not a number"), (4, "not JSON: expected value")];
    check_faults(SetName::Svamp, "svamp/SVAMP.json", text, 2, &expected);
    let text =
        br#"[{"iIndex": 7, "sQuestion": " How many? ", "lSolutions": []}, {"iIndex": 8, "sQuestion": " How many? ",
        "lSolutions": [3.0]}, {"iIndex": 9, "sQuestion": "q", "lSolutions": ["x"]}, {"iIndex": 10, "lSolu"#;
    let expected = [
        (1, "`lSolutions` is empty"),
        (2, "`lSolutions` holds no number"),
        (2, "not JSON: EOF while parsing a string"),
    ];
    check_faults(SetName::MultiArith, "multiarith/MultiArith.json", text, 1, &expected);
}

#[test]
fn a_broken_choice_is_skipped_and_named() {
    let text = br#"{"question": "q", "options": ["A)1", "B)2"], "correct": "B"}
{"question": "q", "options": ["A)1", "B)2"], "correct": "C"}
{"question": "q", "options": "A)1", "correct": "A"}
{"question": "q", "options": ["A)1", null], "correct": "A"}
{"question": "q", "options": ["A)1"], "correct": "A"}"#;
    let expected = [
        (2, "`C` is not the letter of one of the 2 options"),
        (3, "`options` is not a list"),
        (4, "`options` holds something that is not a text"),
        (5, "expected 2 to 26 options, found 1"),
    ];
    check_faults(SetName::Aqua, "aqua/test.jsonl", text, 1, &expected);
    let text =
        b"q,1,2,3,4,B\r\n\"two\nlines\",1,2,3,4,E\r\n\r\nq,1,2,3,B\r\n\xff,1,2,3,4,A\r\nq,1,2,3,4,D\n\"open,1,2,3,4,D";
    let expected = [
        (2, "`E` is not the letter of one of the 4 options"),
        (5, "expected 6 fields, found 5"),
        (6, "not UTF-8"),
        (8, "expected 6 fields, found 1"),
    ];
    check_faults(SetName::Mmlu, "mmlu/test/anatomy_test.csv", text, 2, &expected);
}

#[test]
fn a_broken_problem_is_skipped_and_named() {
    let text = br#"{"name": "a", "prompt": "def f(x):\n    \"\"\"Same.\"\"\"\n", "entry_point": "g", "test": "t"}
{"name": "b", "prompt": "def f(x):\n    \"\"\"Same.\"\"\"\n", "entry_point": "f"}
{"name": "c", "prompt": "def f(x):\n    \"\"\"Same.\"\"\"\n", "entry_point": "f", "test": "t"}
{"name": "d", "prompt": "def f(x):\n    \"\"\"Same.\"\"\"\n", "entry_point": "f", "test": "def check(f): pass"}"#;
    let expected = [(1, "`prompt` does not define `g`"), (2, "no field `test`"), (3, "`test` does not define `check`")];
    check_faults(SetName::HumanEvalPy, "humaneval/humaneval-py.jsonl", text, 1, &expected);
}

#[test]
fn a_damaged_gzip_file_is_an_error() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder
        .write_all(br#"{"task_id": "1", "prompt": "def f():\n", "entry_point": "f", "test": "def check(f): pass"}"#)
        .unwrap();
    let whole = encoder.finish().unwrap();
    let path = "humaneval/HumanEval.jsonl.gz";
    assert_eq!(load_file(SetName::HumanEval, path, &whole).1.unwrap().items.len(), 1);
    for damaged in [&whole[..whole.len() - 4], &whole[..20], b"plain".as_slice(), b""] {
        let error = load_file(SetName::HumanEval, path, damaged).1.unwrap_err();
        assert!(error.to_string().contains("HumanEval.jsonl.gz is not a complete gzip file"), "{error}");
    }
}

#[test]
fn a_missing_file_is_an_error_and_a_problem_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let source = Source::Folder(folder.path().to_owned());
    for set in SetName::PUBLIC {
        assert!(matches!(load(&source, set, "test"), Err(TaskError::Unreadable { .. })), "{set}");
    }
    fs::create_dir_all(folder.path().join("mmlu/test")).unwrap();
    let error = load(&source, SetName::Mmlu, "test").unwrap_err().to_string();
    assert!(error.contains("mmlu/test/*_test.csv"), "{error}");
    let reports = check(folder.path());
    assert_eq!(reports.len(), SetName::PUBLIC.len());
    assert!(reports.iter().all(|report| report.records == 0 && !report.problems.is_empty()));
    assert!(load_jsonl(folder.path().join("none.jsonl")).is_err());
    assert!(load_jsonl(folder.path()).is_err());
}

#[test]
fn own_files_may_be_open_or_multiple_choice() {
    let set = common::custom(
        r#"{"question": "1 + 1?", "answer": 2}
{"id": "own", "question": "River?", "answer": "the Nile", "subject": "geography"}
{"question": "Sum?", "answer": "1 + 1 = 2\n#### 2"}
{"question": "Which?", "choices": ["x", "y"], "answer": 1}
{"question": "Which?", "options": ["A) x", "B) y"], "correct": "y"}
{"question": "Which?", "options": ["x", "y"], "answer": "z"}
{"question": "Which?", "options": ["x", "y"], "answer": 2}
{"question": "Which?", "answer": null}
{"question": "Which?", "answer": true}
{"question": "Which?", "answer": " "}"#,
    );
    let faults: Vec<_> = set.faults.iter().map(|fault| format!("{}: {}", fault.line, fault.reason)).collect();
    assert_eq!(
        faults,
        [
            "6: `z` is neither the letter nor the text of one option",
            "7: there is no option 2, counted from 0",
            "8: no field `answer`",
            "9: `answer` is neither a text nor a number",
            "10: `answer` is empty",
        ]
    );
    let replies = ["2", "the Nile", "2", "B", "B"];
    for (item, reply) in set.items.iter().zip(replies) {
        assert!(grade(item, reply).verdict.is_right(), "{item:?}");
    }
    assert_eq!(set.items.len(), replies.len());
    assert_eq!(set.items[1].task.id, "own");
    assert_eq!(set.items[1].task.subject.as_deref(), Some("geography"));
    assert_eq!(set.items[4].task.question, "Which?\n\nA) x\nB) y");
}

#[test]
fn no_gold_is_shown() {
    let item = common::open("4711");
    assert!(!format!("{item:?}").contains("4711"));
}

#[test]
fn the_sample_has_twenty_sound_items_of_every_set() {
    for set in SetName::PUBLIC {
        let loaded = load(&Source::Sample, set, "test").unwrap();
        assert!(loaded.items.len() >= 20, "{set}: {}", loaded.items.len());
        assert_eq!(loaded.faults, [], "{set}");
        for item in &loaded.items {
            if let Some(reply) = gold_reply(item) {
                assert_ne!(grade(item, &reply).verdict, lemon_task::Verdict::Wrong, "{set} {}", item.task.id);
            }
        }
    }
}

#[test]
fn every_split_of_the_sample_loads_or_says_why_not() {
    for split in SetName::PUBLIC.into_iter().flat_map(splits) {
        match load(&Source::Sample, split.set, split.name) {
            Ok(set) => assert!(!set.items.is_empty()),
            Err(error) => assert!(matches!(error, TaskError::EmptySplit { .. }), "{error}"),
        }
    }
}

#[test]
fn names_are_read_back() {
    for set in SetName::PUBLIC {
        assert_eq!(set.as_str().parse::<SetName>().unwrap(), set);
        assert_eq!(serde_json::to_value(set).unwrap(), set.as_str());
    }
    let error = "gsm".parse::<SetName>().unwrap_err().to_string();
    assert!(error.contains("gsm8k"), "{error}");
}

#[test]
fn a_folder_is_reported_set_by_set() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples");
    for report in check(&sample) {
        assert_eq!(report.problems, [] as [String; 0], "{}", report.set);
        assert_eq!(report.faults, []);
        assert_eq!(report.records, report.files.iter().map(|file| file.records).sum::<usize>());
        assert!(report.files.iter().all(|file| file.sha256.len() == 64));
    }
}
