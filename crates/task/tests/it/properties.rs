//! What holds for any reply and any number.

use crate::common;
use std::sync::LazyLock;

use lemon_task::{Item, Program, SetName, Source, Verdict, grade, load, load_jsonl};
use proptest::prelude::*;

static ITEMS: LazyLock<Vec<Item>> = LazyLock::new(|| {
    let sets = SetName::PUBLIC.into_iter().map(|set| load(&Source::Sample, set, "test").unwrap().items.remove(0));
    sets.chain([common::open("the Nile"), common::open("15%")]).collect()
});

#[rustfmt::skip]
const FRAGMENTS: &[&str] = &[
    "answer", " is ", "The answer is ", ":", "####", "\\boxed{", "}", "{", "\\frac{", "\\", "$", "-", "−", "1",
    "000", ",", ".", "/", "%", "^", "e", "E5", "½", "²", " ", "\n", "**", "A", "(B)", "C)", "option ",
    "is correct", "\u{a0}", "```python\n", "```", "def ", "million", "é", "🦀", "=", "x", "10", "\\text{ ", "_",
    "'", "boxed", "####\n", "and ",
];

/// Texts near what graders look for: fragments of markup, announcements and numbers in any order.
fn reply() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        prop::collection::vec(prop::sample::select(FRAGMENTS), 0..30).prop_map(|parts| parts.concat()),
    ]
}

/// A number with at most two decimals, in one of the ways people write it.
fn written(cents: i64, style: u8) -> String {
    let sign = if cents < 0 { "-" } else { "" };
    let (whole, part) = (cents.unsigned_abs() / 100, cents.unsigned_abs() % 100);
    let decimals = if part == 0 { String::new() } else { format!(".{part:02}") };
    let grouped = |separator: &str| {
        let digits = whole.to_string();
        let head = digits.len() % 3;
        let mut groups: Vec<&str> = if head > 0 { vec![&digits[..head]] } else { vec![] };
        groups.extend((head..digits.len()).step_by(3).map(|at| &digits[at..at + 3]));
        groups.join(separator)
    };
    match style {
        0 => format!("{sign}{whole}{decimals}"),
        1 => format!("{sign}{}{decimals}", grouped(",")),
        2 => format!("{sign}{}{decimals}", grouped(" ")),
        3 => format!("{sign}{}{decimals}", grouped("_")),
        4 => format!("{sign}${}{decimals}", grouped(",")),
        5 => format!("${sign}{whole}{decimals}"),
        6 => format!("**{sign}{whole}{decimals}**"),
        7 => format!("{sign}{whole}{decimals}dollars"),
        8 => format!("{sign}{whole}.{part:02}0"),
        9 => format!("\\boxed{{{sign}{}{decimals}}}", grouped("{,}")),
        10 => format!("{sign}{}/100", cents.unsigned_abs()),
        11 => format!("{sign}\\frac{{{}}}{{100}}", cents.unsigned_abs()),
        12 => format!("{sign}{whole} {part}/100"),
        13 => format!("{sign}{}e-2", cents.unsigned_abs()),
        14 => format!("{sign}{} \\times 10^{{-2}}", cents.unsigned_abs()),
        15 => format!("{}{whole}{decimals} %", sign.replace('-', "−")),
        _ => format!("$${sign}{whole}{decimals}$$"),
    }
}

const STYLES: u8 = 17;
const FRAMES: [&str; 9] = [
    "{}",
    "The answer is {}.",
    "Answer: {}",
    "**Answer:** {} apples",
    "3 + 4 = 7\n#### {}",
    "x = {}",
    "Step 1: 5 of 12.\nThe final answer is {}",
    "### Final Answer\n\n{}",
    "The answer is 3 * 5 = {}. I checked 2 times.",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn graders_never_panic(reply in reply()) {
        for item in ITEMS.iter() {
            let grade = grade(item, &reply);
            prop_assert!(grade.verdict == Verdict::Wrong || grade.extracted.is_some());
            prop_assert_eq!(grade.verdict == Verdict::MustRun, Program::new(item, &reply).is_some());
        }
    }

    #[test]
    fn a_number_is_right_however_it_is_written(cents in -10_000_000_000i64..10_000_000_000, style in 0..STYLES, frame in 0..FRAMES.len()) {
        let item = common::open(&format!("{}", cents as f64 / 100.0));
        let reply = FRAMES[frame].replace("{}", &written(cents, style));
        let grade = grade(&item, &reply);
        prop_assert!(grade.verdict.is_right(), "{:?}: {:?}", reply, grade.extracted);
    }

    #[test]
    fn another_number_is_wrong(cents in -1_000_000_000i64..1_000_000_000, off in 1i64..1000, style in 0..STYLES, frame in 0..FRAMES.len()) {
        let item = common::open(&format!("{}", cents as f64 / 100.0));
        let reply = FRAMES[frame].replace("{}", &written(cents + off, style));
        prop_assert!(!grade(&item, &reply).verdict.is_right(), "{:?}", reply);
    }

    #[test]
    fn a_letter_is_right_however_it_is_written(index in 0usize..5, other in 0usize..5, style in 0usize..8) {
        let letters = ["A", "B", "C", "D", "E"];
        let item = common::choice(&["one", "two", "three", "four", "five"], letters[index]);
        let frame = ["{}", "({})", "{}.", "**{}**", "Option {}", "{}) this", "The answer is {}.", "\\boxed{{}}"][style];
        let reply = frame.replace("{}", letters[other]);
        prop_assert_eq!(grade(&item, &reply).verdict.is_right(), index == other, "{}", reply);
    }

    #[test]
    fn reading_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), head in prop::sample::select(vec!["", "[", "{\"question\": \"q\", \"answer\": "])) {
        let folder = tempfile::tempdir().unwrap();
        let mut content = head.as_bytes().to_vec();
        content.extend(&bytes);
        for path in ["own.jsonl", "gsm8k/test.jsonl", "svamp/SVAMP.json", "mmlu/test/x_test.csv", "humaneval/HumanEval.jsonl.gz"] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, &content).unwrap();
        }
        let _ = load_jsonl(folder.path().join("own.jsonl"));
        prop_assert_eq!(lemon_task::check(folder.path()).len(), SetName::PUBLIC.len());
    }
}
