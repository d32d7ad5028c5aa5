//! A record that is missing or damaged: the error names the file, and the line where there is one.

use flate2::{Compression, write::GzEncoder};
use lemon_task::SetName;
use lemon_world::outcomes::{self, OutcomesError};
use std::io::Write;
use std::path::Path;
use tempfile::TempDir;

const ROW: &str = r#"{"item": 0, "capacity": "small", "model": "m", "correct": true, "reply": "Answer: 1"}"#;
const MMLU_HEAD: &str = "subject,row,gold,capacity,model,seed,n_samples,n_correct,answers\n";
const MMLU_ROW: &str = "astronomy,0,B,small,m,1,3,1,BCD\n";

/// The samples' layout with a record of two items beside it.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../task/samples");
    let copy = |name: &str| {
        let to = folder.path().join(name);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(samples.join(name), to).unwrap();
    };
    copy("gsm8k/test.jsonl");
    copy("humaneval/HumanEval.jsonl");
    for file in std::fs::read_dir(samples.join("mmlu/test")).unwrap() {
        copy(&format!("mmlu/test/{}", file.unwrap().file_name().to_str().unwrap()));
    }
    std::fs::create_dir(folder.path().join("outcomes")).unwrap();
    folder
}

fn pack(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn write(folder: &TempDir, name: &str, bytes: impl AsRef<[u8]>) {
    std::fs::write(folder.path().join("outcomes").join(name), bytes).unwrap();
}

#[track_caller]
fn check<T: std::fmt::Debug>(result: Result<T, OutcomesError>, file: &str, parts: &[&str]) {
    let error = result.unwrap_err().to_string();
    for part in [&[file], parts].concat() {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}

#[test]
fn a_good_record_is_read() {
    let folder = folder();
    write(&folder, "gsm8k_ladder.jsonl.gz", pack(&format!("{ROW}\n\n{}\n", ROW.replace("true", "false"))));
    let [item] = &outcomes::gsm8k(folder.path()).unwrap()[..] else { panic!("one item is on record") };
    assert_eq!((item.levels[0].right, item.levels[0].samples), (1, 2));
    assert_eq!((item.share(0), item.share(1), item.share(7)), (Some(0.5), None, None));
    assert_eq!(item.wrong[0], ["1"]);
    write(&folder, "mmlu_ladder.csv.gz", pack(&format!("{MMLU_HEAD}{MMLU_ROW}")));
    let replies = outcomes::replies(folder.path(), SetName::Mmlu).unwrap();
    let texts: Vec<_> = replies.values().flatten().map(|reply| reply.text.as_str()).collect();
    assert_eq!(texts, ["Answer: B", "Answer: C", "Answer: D"]);
    write(&folder, "humaneval_10runs.csv", "task,a,b,c\n0,1.0,0.4,0.6\n");
    assert_eq!(
        outcomes::humaneval(folder.path()).unwrap()[0].levels.iter().map(|tally| tally.right).collect::<Vec<_>>(),
        [10, 4, 6]
    );
}

#[test]
fn a_missing_file_is_named() {
    let folder = folder();
    check(outcomes::gsm8k(folder.path()), "gsm8k_ladder.jsonl.gz", &["No such file"]);
    check(outcomes::mmlu(folder.path()), "mmlu_ladder.csv.gz", &["No such file"]);
    check(outcomes::humaneval(folder.path()), "humaneval_10runs.csv", &["No such file"]);
    check(outcomes::debates(folder.path()), "debate_revision.csv", &["No such file"]);
    let empty = tempfile::tempdir().unwrap();
    check(outcomes::gsm8k(empty.path()), "gsm8k", &["test.jsonl"]);
}

#[test]
fn a_truncated_file_is_named() {
    let folder = folder();
    let rows = pack(&format!("{ROW}\n").repeat(100));
    for (name, cut) in [("cut short", rows.len() / 2), ("without its check sum", rows.len() - 4), ("empty", 0)] {
        write(&folder, "gsm8k_ladder.jsonl.gz", &rows[..cut]);
        assert!(outcomes::gsm8k(folder.path()).is_err(), "{name}");
        check(outcomes::replies(folder.path(), SetName::Gsm8k), "gsm8k_ladder.jsonl.gz", &[]);
    }
    write(&folder, "mmlu_ladder.csv.gz", "not packed at all");
    check(outcomes::mmlu(folder.path()), "mmlu_ladder.csv.gz", &["header"]);
}

#[test]
fn a_bad_line_is_named() {
    let folder = folder();
    for bad in ["{", "[]", r#"{"item": -1}"#, "\u{0}"] {
        write(&folder, "gsm8k_ladder.jsonl.gz", pack(&format!("{ROW}\n\n{bad}\n{ROW}\n")));
        check(outcomes::gsm8k(folder.path()), "gsm8k_ladder.jsonl.gz", &["line 3: "]);
    }
    write(
        &folder,
        "mmlu_ladder.csv.gz",
        pack(&format!("{MMLU_HEAD}{MMLU_ROW}{MMLU_ROW}astronomy,first,B,small,m,1,3,1,BCD\n")),
    );
    check(outcomes::mmlu(folder.path()), "mmlu_ladder.csv.gz", &["line: 4", "invalid digit"]);
    write(&folder, "humaneval_10runs.csv", "task,a,b,c\n0,1.0,0.4,0.6\n1,1.0,0.4\n");
    check(outcomes::humaneval(folder.path()), "humaneval_10runs.csv", &["line: 3"]);
    write(&folder, "debate_revision.csv", "dataset,model\ngsm,m\n");
    check(outcomes::debates(folder.path()), "debate_revision.csv", &["missing field", "n_agents"]);
}

#[test]
fn only_two_sets_have_replies_on_record() {
    let folder = folder();
    check(outcomes::replies(folder.path(), SetName::Svamp), "outcomes", &["there is no record of svamp"]);
}
