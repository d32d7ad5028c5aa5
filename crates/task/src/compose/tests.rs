//! Composed items are right, readable, the same for the same seed, and mostly different from each other.

use super::*;
use crate::{Key, Program, Verdict, gold_reply, grade};
use proptest::prelude::*;

/// A second way to work a sum out: by replacing its innermost brackets, in floating point.
fn worked_out(sum: &str) -> f64 {
    let Some(close) = sum.find(')') else { return flat(sum) };
    let open = sum[..close].rfind('(').unwrap();
    let inner = flat(&sum[open + 1..close]);
    // A negative result in the middle of a sum is written so that `flat` can read it.
    worked_out(&format!("{}{}{}", &sum[..open], format!("{inner:.9}").replace('-', "m"), &sum[close + 1..]))
}

fn flat(sum: &str) -> f64 {
    let number = |text: &str| text.replace('m', "-").parse::<f64>().unwrap_or_else(|_| panic!("{sum}: {text}"));
    let product = |text: &str| {
        let mut factors = text.split('*').map(|factor| {
            let mut parts = factor.split('/').map(number);
            let first = parts.next().unwrap();
            parts.fold(first, |value, part| value / part)
        });
        let first = factors.next().unwrap();
        factors.fold(first, |value, factor| value * factor)
    };
    let term = |text: &str| {
        let mut terms = text.split('-').map(product);
        let first = terms.next().unwrap();
        terms.fold(first, |value, term| value - term)
    };
    sum.split('+').map(term).sum()
}

#[test]
fn every_story_can_be_told_and_its_answer_is_right() {
    let stocks = LONGER.iter().chain([&BASIC, &ALGEBRA]).flat_map(|stock| stock.iter());
    let stocks = stocks.chain(facts::STORIES.iter().map(|(_, story)| story));
    for (at, story) in stocks.enumerate() {
        for seed in 0..30 {
            let told = tell::tell(story, &mut crate::compose::draw::random(seed, &format!("story {at}")));
            let told = told.unwrap_or_else(|| panic!("cannot be told: {}", story.body));
            assert!((worked_out(&told.sum) - told.answer as f64).abs() < 1e-6, "{} is not {}", told.sum, told.answer);
            let text = question(&told);
            assert!(!text.contains(['{', '}', '[', ']', '<', '@', '|']) && !text.contains("  "), "{text}");
            assert!(text.starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit() || c == '$'), "{text}");
            assert!(text.ends_with(['?', '=']), "{text}");
        }
    }
}

#[test]
fn the_answer_of_a_chain_is_right() {
    for seed in 0..500 {
        let told =
            stories::chain(1 + (seed % 5) as usize, 50, &mut crate::compose::draw::random(seed, "chain")).unwrap();
        assert!((worked_out(&told.sum) - told.answer as f64).abs() < 1e-6, "{} is not {}", told.sum, told.answer);
        let text = question(&told);
        assert!(!text.contains(['{', '}', '[', ']', '<', '@', '|']) && !text.contains("  "), "{text}");
    }
}

#[test]
fn there_is_enough_to_compose_from() {
    let stories: usize = LONGER.iter().chain([&BASIC, &ALGEBRA]).map(|stock| stock.len()).sum();
    assert!(stories >= 150, "{stories}");
    let facts: usize = facts::TABLES.iter().flat_map(|tables| tables.iter()).map(|table| table.rows.len()).sum();
    assert!(facts >= 500, "{facts}");
}

#[test]
fn tables_of_facts_hold_each_pair_once_and_enough_others() {
    for table in facts::TABLES.iter().flat_map(|tables| tables.iter()) {
        let pairs: HashSet<_> = table.rows.iter().collect();
        assert_eq!(pairs.len(), table.rows.len(), "{}: {:?}", table.subject, table.rows.first());
        assert!(!table.asks.is_empty());
        for ask in table.asks.iter().chain(table.backs) {
            assert_eq!(ask.matches("{}").count(), 1, "{ask}");
        }
        assert!(table.says.is_empty() || (table.says.contains("{a}") && table.says.contains("{b}")), "{}", table.says);
        for (a, b) in table.rows {
            let others: HashSet<_> = table.rows.iter().filter(|(other, _)| other != a).map(|(_, b)| b).collect();
            assert!(others.iter().filter(|other| **other != b).count() >= 3, "{}: {a}", table.subject);
        }
    }
}

fn check(set: SetName, count: usize, seed: u64) {
    let items = compose(set, count, seed);
    assert_eq!(items.len(), count, "{set}");
    for (position, item) in items.iter().enumerate() {
        assert_eq!((item.position, item.set()), (position, set));
        let reply = gold_reply(item).unwrap();
        let question = &item.task.question;
        match item.key() {
            Key::Code { entry_point, prompt, solution } => {
                assert_eq!(grade(item, &reply).verdict, Verdict::MustRun);
                let program = Program::new(item, &reply).unwrap();
                assert!(program.test.contains("assert candidate(") && program.code.contains(solution.unwrap()));
                assert!(prompt.contains(&format!("def {entry_point}(")) && prompt.matches("\"\"\"").count() == 2);
            }
            Key::Choice { options, answer } => {
                assert_eq!(grade(item, &reply).verdict, Verdict::Right, "{question}");
                assert_eq!(options.len(), if set == SetName::Aqua { 5 } else { 4 }, "{question}");
                assert!(answer < options.len());
                assert_eq!(options.iter().collect::<HashSet<_>>().len(), options.len(), "{question}");
            }
            Key::Number(_) | Key::Text(_) => assert_eq!(grade(item, &reply).verdict, Verdict::Right, "{question}"),
        }
        assert_eq!(item.task.subject.is_some(), set == SetName::Mmlu);
    }
    let different: HashSet<&str> = items.iter().map(|item| item.task.question.as_str()).collect();
    assert!(different.len() * 20 >= count * 19, "{set}: {} of {count}", different.len());
}

#[test]
fn the_gold_of_every_composed_item_is_right_and_most_questions_differ() {
    for set in SetName::PUBLIC {
        check(set, if set == SetName::HumanEval { 500 } else { 1500 }, 1);
    }
    check(SetName::Custom, 50, 1);
}

#[test]
fn right_options_are_spread_evenly() {
    for (set, options) in [(SetName::Mmlu, 4), (SetName::Aqua, 5)] {
        let mut counts = vec![0; options];
        for item in compose(set, 1000, 3) {
            let Key::Choice { answer, .. } = item.key() else { panic!("{set} without options") };
            counts[answer] += 1;
        }
        assert!(counts.iter().all(|count| count * options > 700 && count * options < 1300), "{set}: {counts:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_seed_gives_items_the_same_each_time(seed: u64, set in 0_usize..7, count in 0_usize..40) {
        let set = SetName::PUBLIC[set];
        check(set, count, seed);
        let items = compose(set, count, seed);
        prop_assert_eq!(&items, &compose(set, count, seed));
        prop_assert_eq!(&items[..count / 2], &compose(set, count / 2, seed)[..]);
    }
}
