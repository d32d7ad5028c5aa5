//! The public files, where they are at hand: counts, checksums, and every gold accepted.

use crate::common;
use std::{collections::HashMap, fs, io::Read};

use flate2::read::GzDecoder;
use lemon_task::{SetName, Source, Verdict, check, gold_reply, grade, load, splits};

#[test]
fn counts_and_checksums_are_the_published_ones() {
    let Some(folder) = common::public_data() else { return };
    let reports: HashMap<_, _> = check(&folder).into_iter().map(|report| (report.set, report)).collect();
    let expected = [
        (SetName::Mmlu, 285 + 1531 + 14042, 171),
        (SetName::Gsm8k, 7473 + 1319, 2),
        (SetName::Aqua, 254 + 254, 2),
        (SetName::MultiArith, 600, 1),
        (SetName::Svamp, 1000, 1),
        (SetName::HumanEval, 164, 1),
        (SetName::HumanEvalPy, 161, 1),
    ];
    for (set, records, files) in expected {
        let report = &reports[&set];
        assert_eq!((report.records, report.files.len()), (records, files), "{set}");
        assert_eq!(report.faults, [], "{set}");
        assert_eq!(report.problems, [] as [String; 0], "{set}");
    }
    let sums: HashMap<_, _> = reports
        .values()
        .flat_map(|report| &report.files)
        .map(|file| (file.path.as_str(), file.sha256.as_str()))
        .collect();
    for (path, sha256) in CHECKSUMS {
        assert_eq!(sums[path], sha256, "{path}");
    }
}

const CHECKSUMS: [(&str, &str); 8] = [
    ("gsm8k/train.jsonl", "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465"),
    ("gsm8k/test.jsonl", "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14"),
    ("svamp/SVAMP.json", "5be77703a6d891ae476d7c082787ad361392aa02453b132516cdd5f4e7934e3e"),
    ("multiarith/MultiArith.json", "dc9db1b6cc68b1ecc2dec830d15aaf8c9a0932aa31d5ffce88ef3628179d36f4"),
    ("aqua/test.jsonl", "de41581881ef95c5588c44ddc701c77fd480839241dd422a0d181262af24520c"),
    ("aqua/dev.jsonl", "4a52301d8a49ae0b286f8e697f9c5da1b109b247b825b47b4c6de34312dceec5"),
    ("humaneval/HumanEval.jsonl.gz", "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef"),
    ("humaneval/humaneval-py.jsonl", "74a24f601800a3f94d3d9014fdc8c2a149b36806e2847eb251615dab16c60004"),
];

#[test]
fn every_gold_is_accepted() {
    let Some(folder) = common::public_data() else { return };
    let source = Source::Folder(folder);
    let mut checked = 0;
    for split in SetName::PUBLIC.into_iter().flat_map(splits) {
        for item in load(&source, split.set, split.name).unwrap().items {
            let Some(reply) = gold_reply(&item) else { continue };
            let is_code = matches!(split.set, SetName::HumanEval | SetName::HumanEvalPy);
            let expected = if is_code { Verdict::MustRun } else { Verdict::Right };
            assert_eq!(grade(&item, &reply).verdict, expected, "{} {} {}", split.set, split.name, item.task.id);
            checked += 1;
        }
    }
    println!("{checked} golds accepted");
    assert!(checked > 25_000);
}

#[test]
fn the_shuffled_splits_are_the_published_orders() {
    let Some(folder) = common::public_data() else { return };
    let source = Source::Folder(folder.clone());
    for (split, of, file) in
        [("val-153", "val", "mmlu_val_rng888_order.csv"), ("paper-train", "dev", "mmlu_dev_rng888_order.csv")]
    {
        let Ok(order) = fs::read_to_string(folder.join("splits").join(file)) else { continue };
        let whole = load(&source, SetName::Mmlu, of).unwrap();
        let mut first_of: HashMap<&str, usize> = HashMap::new();
        for item in &whole.items {
            first_of.entry(item.task.subject.as_deref().unwrap()).or_insert(item.position);
        }
        let items = load(&source, SetName::Mmlu, split).unwrap().items;
        for (item, line) in items.iter().zip(order.lines().skip(1)) {
            let mut fields = line.split(',').skip(1);
            let (subject, row) = (fields.next().unwrap(), fields.next().unwrap().parse::<usize>().unwrap());
            assert_eq!(item.task.subject.as_deref(), Some(subject));
            assert_eq!(item.position, first_of[subject] + row);
        }
    }
}

#[derive(serde::Deserialize)]
struct Recorded {
    item: usize,
    correct: bool,
    reply: String,
}

#[test]
fn agrees_with_recorded_verdicts() {
    let Some(folder) = common::public_data() else { return };
    let Ok(packed) = fs::File::open(folder.join("outcomes/gsm8k_ladder.jsonl.gz")) else {
        println!("skipped: no recorded replies");
        return;
    };
    let mut text = String::new();
    GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    let set = load(&Source::Folder(folder), SetName::Gsm8k, "test").unwrap();
    let recorded: Vec<Recorded> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let agrees = |r: &&Recorded| grade(set.at(r.item).unwrap(), &r.reply).verdict.is_right() == r.correct;
    let legacy = |r: &&Recorded| grade(set.at(r.item).unwrap(), &r.reply).legacy.is_right() == r.correct;
    let agreed = recorded.iter().filter(agrees).count();
    println!("agreement on {agreed} of {}, legacy on {}", recorded.len(), recorded.iter().filter(legacy).count());
    for r in recorded.iter().filter(|r| !agrees(r)) {
        println!(
            "item {}: recorded {}, extracted {:?}",
            r.item,
            r.correct,
            grade(set.at(r.item).unwrap(), &r.reply).extracted
        );
    }
    assert!(agreed * 100 >= recorded.len() * 98);
}
