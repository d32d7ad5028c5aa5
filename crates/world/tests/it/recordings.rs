//! Files of recorded calls: found by what is in them, read whole, and every fault named with its file and line.

use crate::common::{Asked, ask, public_data};
use lemon_exec::worker::FailedCost;
use lemon_task::{Item, SetName, Source, grade, load};
use lemon_trace::FailureKind;
use lemon_world::{Recorded, RecordedCall, Recordings, SamplePool};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// GSM8K's sample with an empty folder of recordings beside it.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../task/samples");
    std::fs::create_dir_all(folder.path().join("gsm8k")).unwrap();
    std::fs::create_dir(folder.path().join("outcomes")).unwrap();
    std::fs::copy(samples.join("gsm8k/test.jsonl"), folder.path().join("gsm8k/test.jsonl")).unwrap();
    folder
}

fn write(folder: &TempDir, name: &str, text: &str) {
    std::fs::write(folder.path().join("outcomes").join(name), text).unwrap();
}

fn read(folder: &TempDir, levels: &[&str]) -> Result<Recordings, String> {
    let levels: Vec<String> = levels.iter().map(|level| (*level).to_owned()).collect();
    Recordings::read(folder.path(), &[SetName::Gsm8k], &levels).map_err(|error| error.to_string())
}

fn line(model: &str, kind: &str, sample: u32, rest: &str) -> String {
    format!(
        r#"{{"item": "gsm8k/test/0", "model": "{model}", "kind": "{kind}", "sample": {sample}, "tokens_in": 9, "tokens_out": 4{rest}}}"#
    ) + "\n"
}

fn first_item() -> Item {
    load(&Source::Sample, SetName::Gsm8k, "test").unwrap().items[0].clone()
}

fn calls(recordings: &Recordings) -> &[RecordedCall] {
    &recordings.get(&first_item().task.question).unwrap().calls
}

#[test]
fn recordings_are_found_by_what_is_in_them() {
    let folder = folder();
    write(&folder, "any name.jsonl", &line("qwen", "solve", 1, r#", "reply": "Answer: 5""#));
    write(
        &folder,
        "another.jsonl",
        &line("smol", "solve", 0, r#", "reply": "Six", "finished": false, "correct": false"#),
    );
    write(&folder, "notes.jsonl", "{\"item\": 3, \"reply\": \"of another format\"}\n");
    write(&folder, "readme.txt", "not a recording");
    let found = read(&folder, &[]).unwrap();
    assert_eq!(found.levels(), ["smol", "reasoned"]);
    let texts: Vec<(&str, usize, bool)> =
        calls(&found).iter().map(|call| (&*call.text, call.level, call.truncated)).collect();
    assert_eq!(texts, [("Six", 0, true), ("Answer: 5", 1, false)]);
    assert_eq!((calls(&found)[0].tokens, calls(&found)[0].correct), (Some((9, 4)), Some(false)));
    assert_eq!(read(&folder, &["reasoned"]).unwrap().levels(), ["reasoned"]);
    let error = read(&folder, &["huge"]).unwrap_err();
    assert!(error.contains("no recording has the level `huge`; expected some of reasoned, smol"), "{error}");
}

#[test]
fn a_program_answers_what_it_printed() {
    let folder = folder();
    let text = line("qwen", "pal", 0, r#", "reply": "```python\nprint(18)\n```", "printed": "18""#)
        + &line("qwen", "pal", 1, r#", "temperature": 0.7, "reply": "```python\nx = 18\n```", "printed": null"#);
    write(&folder, "programs.jsonl", &text);
    let found = read(&folder, &[]).unwrap();
    let [printed, silent] = calls(&found) else { panic!("two programs are on record") };
    assert_eq!(lemon_exec::answer::extract(&printed.text).as_deref(), Some("18"));
    assert!(!printed.silent && silent.silent);
    let recordings = Arc::new(found);
    let worker = Recorded::new(recordings, None).with_pool(SamplePool::Sampled);
    let request = Asked { level: 0, ..Asked::default() }.request(&first_item());
    let error = ask(&worker, &request).unwrap_err();
    assert_eq!(error.failure.kind, FailureKind::Program, "a number in the code is no answer");
    assert!(matches!(error.cost, FailedCost::Known(usage) if usage.tokens_out == 4), "it costs what it cost");
}

#[test]
fn a_line_may_say_itself_what_it_is_and_so_may_a_table() {
    let folder = folder();
    let own = r#", "level": "mine", "bases": ["critic"], "reads": [{"level": "reasoned", "sample": 1}], "sees": "answer", "reply": "Answer: 5""#;
    let text = line("qwen", "solve", 1, r#", "reply": "Answer: 4""#)
        + &line("other", "critic of one", 0, own)
        + &line("other", "guess", 0, r#", "reply": "Answer: 3""#)
        + &line("other", "unheard", 0, r#", "reply": "Answer: 2""#);
    write(&folder, "own.jsonl", &text);
    write(&folder, "kinds.toml", "[[kind]]\nmodel = \"other\"\nkind = \"guess\"\nlevel = \"guessed\"\n");
    let found = read(&folder, &[]).unwrap();
    assert_eq!(found.levels(), ["reasoned", "guessed", "mine"]);
    let critic = calls(&found).iter().find(|call| !call.reads.is_empty()).unwrap();
    assert_eq!((critic.level, &*critic.reads, critic.sees_answers), (2, &[(0, 1)][..], true));
    assert_eq!(found.unknown().iter().collect::<Vec<_>>(), [(&"other/unheard".to_owned(), &1)]);
    write(&folder, "kinds.toml", "[[kind]]\nmodel = \"other\"\nkind = \"guess\"\nlevle = \"guessed\"\n");
    let error = read(&folder, &[]).unwrap_err();
    assert!(error.contains("kinds.toml") && error.contains("levle"), "{error}");
}

#[test]
fn a_bad_line_is_named_with_its_file() {
    let good = line("qwen", "solve", 1, r#", "reply": "Answer: 4""#);
    let check = |bad: &str, expected: &[&str]| {
        let folder = folder();
        write(&folder, "calls.jsonl", &format!("{good}\n{bad}\n{good}"));
        let error = read(&folder, &[]).unwrap_err();
        for part in [&["calls.jsonl", "line 3: "], expected].concat() {
            assert!(error.contains(part), "`{part}` is not in: {error}");
        }
    };
    check("{", &["EOF"]);
    check("[]", &["expected"]);
    check(r#"{"item": "gsm8k/test/0", "model": "qwen", "kind": "solve"}"#, &["missing field `reply`"]);
    check(&line("qwen", "solve", 2, r#", "reply": " ""#), &["expected a `reply`, found an empty one"]);
    check(&line("qwen", "solve", 2, r#", "reply": "4", "temperature": -1"#), &["`temperature` must be at least 0"]);
    check(r#"{"model": "qwen", "kind": "solve", "reply": "4"}"#, &["expected `item` or `question`"]);
    check(r#"{"item": "gsm8k", "model": "qwen", "reply": "4"}"#, &["set/split/id", "`gsm8k`"]);
    check(r#"{"item": "gsm9k/test/0", "model": "qwen", "reply": "4"}"#, &["gsm9k"]);
    check(r#"{"item": "gsm8k/test/x", "model": "qwen", "reply": "4"}"#, &["gsm8k/test has no item `x`"]);
    let folder = folder();
    write(&folder, "calls.jsonl", "no JSON\n");
    assert!(read(&folder, &[]).unwrap_err().contains("calls.jsonl: line 1: "));
    write(&folder, "calls.jsonl", &good);
    write(&folder, "more.jsonl.gz", "not packed");
    assert!(read(&folder, &[]).unwrap_err().contains("more.jsonl.gz"));
}

#[test]
fn the_recordings_at_hand_are_graded_as_they_were() {
    let Some(data) = public_data().filter(|data| data.join("outcomes/real_qwen_solve.jsonl.gz").exists()) else {
        return;
    };
    let sets = [SetName::Gsm8k, SetName::Svamp, SetName::Aqua, SetName::Mmlu];
    let recordings = Recordings::read(&data, &sets, &[]).unwrap();
    assert_eq!(recordings.levels(), ["smol", "brief", "program", "reasoned"]);
    assert!(recordings.unknown().is_empty(), "{:?}", recordings.unknown());
    let items: std::collections::HashMap<String, Item> =
        [("gsm8k", "test"), ("gsm8k", "train"), ("svamp", "test"), ("aqua", "test"), ("aqua", "dev"), ("mmlu", "val")]
            .into_iter()
            .flat_map(|(set, split)| load(&Source::Folder(data.clone()), set.parse().unwrap(), split).unwrap().items)
            .map(|item| (item.task.question.trim().to_owned(), item))
            .collect();
    let (mut agree, mut all) = (0, 0);
    for (question, record) in recordings.items() {
        for call in record.calls.iter().filter(|call| call.reads.is_empty() && !call.silent) {
            let answer = lemon_exec::answer::extract_or_all(&call.text);
            let right = grade(&items[question], &answer).verdict.is_right();
            agree += usize::from(call.correct == Some(right));
            all += 1;
        }
    }
    println!("{agree} of {all} agree");
    assert!(all > 30_000 && agree * 100 >= all * 98, "{agree} of {all}");
}
