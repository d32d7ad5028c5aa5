use super::*;
use crate::generator::{Generator, ProblemPart, SourceWeights};
use std::fs;
use std::sync::Arc;

/// Where the real files are, if they are anywhere.
fn data() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = std::env::var_os("LEMON_TEST_DATA").map_or(beside, PathBuf::from);
    let found = folder.join("gsm8k/train.jsonl").exists();
    if !found {
        println!("skipped: no data at {}; set LEMON_TEST_DATA", folder.display());
    }
    found.then_some(folder)
}

#[test]
fn nothing_that_is_kept_is_a_leak() {
    let Some(folder) = data() else { return };
    let leaks = Arc::new(Leaks::of(&test_questions(&folder).unwrap()));
    let published = read_published(&folder, &leaks).unwrap();
    let Published { templates, records, dropped, unusable } = &published;
    println!("{records} records: {dropped:?}, {unusable} unusable, {} templates", templates.len());
    assert!(dropped.exact > 500 && dropped.near > 50, "{dropped:?}");
    assert!(templates.len() > 3_000, "{}", templates.len());
    let mut random = crate::seeded(1);
    for template in templates {
        let problem = template.problem(&mut random).unwrap();
        assert_eq!(leaks.find(&problem.question), None, "{}", problem.question);
        assert!(problem.steps.iter().all(|step| step.holds() && step.result > 0), "{problem:?}");
    }
    let weights = SourceWeights { published: 100, ..SourceWeights::default() };
    let mut generator =
        Generator::new(1, ProblemPart::Train).with_weights(weights).with_published(templates).without(leaks.clone());
    for _ in 0..5_000 {
        let problem = generator.problem();
        assert_eq!(leaks.find(&problem.question), None, "{}", problem.question);
    }
    println!("of 5000 problems made: {:?}", generator.dropped());
}

#[test]
fn the_training_file_has_most_of_multiarith_in_it() {
    let Some(folder) = data() else { return };
    let tests = &test_questions(&folder).unwrap()[..600];
    let training: Vec<String> = mawps::read(&folder.join("svamp/mawps-asdiv-a_svamp_train.csv"))
        .unwrap()
        .into_iter()
        .map(|record| record.text)
        .collect();
    let leaks = Leaks::of(&training);
    let found = tests.iter().filter(|test| leaks.find(test).is_some()).count();
    println!("{found} of {} MultiArith questions are in the training file", tests.len());
    assert!(found > 500, "{found}");
}

/// Writes a data folder with these records.
fn folder(gsm8k: &str, mawps: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for sub in ["gsm8k", "svamp", "multiarith"] {
        fs::create_dir(folder.path().join(sub)).unwrap();
    }
    fs::write(folder.path().join("gsm8k/train.jsonl"), gsm8k).unwrap();
    fs::write(folder.path().join("svamp/mawps-asdiv-a_svamp_train.csv"), mawps).unwrap();
    folder
}

const GSM8K: &str = r#"{"question": "A mill grinds 14 sacks a day for 3 days. How many sacks is that?", "answer": "<<14*3=42>>42\n#### 42"}
{"question": "A mill grinds 1/2 of 90 sacks. How many sacks is that?", "answer": "<<90/2=45>>45\n#### 45"}
"#;
const MAWPS: &str = "Question,Numbers,Equation,Answer,group_nums,Body,Ques
Mona has number0 kites and loses number1 . How many kites has she left ?,9.0 4.0,- number0 number1,5.0,[],,
";

#[test]
fn records_are_read_dropped_and_counted() {
    let folder = folder(GSM8K, MAWPS);
    let none: [&str; 0] = [];
    let all = read_published(folder.path(), &Leaks::of(&none)).unwrap();
    assert_eq!((all.records, all.templates.len(), all.unusable), (3, 2, 1));
    let leaks = Leaks::of(&["Petra has 8 kites and loses 2. How many kites has she left?"]);
    let some = read_published(folder.path(), &leaks).unwrap();
    assert_eq!((some.templates.len(), some.dropped), (1, Dropped { exact: 0, near: 1 }));
}

#[test]
fn faults_name_file_and_record() {
    let check = |gsm8k: &str, mawps: &str, expected: &str| {
        let folder = folder(gsm8k, mawps);
        let none: [&str; 0] = [];
        let error = read_published(folder.path(), &Leaks::of(&none)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(&format!("{GSM8K}nonsense"), MAWPS, "train.jsonl, record 3: ");
    check(GSM8K, &format!("{MAWPS}a,b\n"), "train.csv, record 2: ");
    let empty = tempfile::tempdir().unwrap();
    let error = test_questions(empty.path()).unwrap_err().to_string();
    assert!(error.contains("MultiArith.json"), "{error}");
}
