//! Items from inline texts, and the public data where it is at hand.

use std::path::PathBuf;

use lemon_task::{Item, TaskSet, load_jsonl};

/// Loads a text as a file of the user's own.
pub fn custom(text: &str) -> TaskSet {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.jsonl");
    std::fs::write(&path, text).unwrap();
    load_jsonl(path).unwrap()
}

/// An item with an open answer.
pub fn open(answer: &str) -> Item {
    let record = serde_json::json!({"question": "What?", "answer": answer});
    custom(&record.to_string()).items.remove(0)
}

/// A multiple-choice item.
pub fn choice(options: &[&str], answer: &str) -> Item {
    let record = serde_json::json!({"question": "Which?", "options": options, "answer": answer});
    custom(&record.to_string()).items.remove(0)
}

/// The folder with the public data: `LEMON_TEST_DATA`, else `../shared/data` beside the workspace.
pub fn public_data() -> Option<PathBuf> {
    let beside = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data"));
    let folder = std::env::var_os("LEMON_TEST_DATA").map_or_else(beside, PathBuf::from);
    if folder.join("gsm8k").is_dir() {
        return Some(folder);
    }
    println!("skipped: no public data in {}", folder.display());
    None
}
