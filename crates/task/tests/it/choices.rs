//! The grader for multiple choice, on replies as models write them.

use crate::common;
use lemon_task::grade;

const FRUITS: &[&str] = &["an apple", "a banana", "vitamin C", "A pear", "none of these"];
const PRICES: &[&str] = &["$61", "$65", "$67.40", "1,000", "3/4"];

fn check(options: &[&str], reply: &str, expected: Option<&str>) {
    let item = common::choice(options, "A");
    assert_eq!(grade(&item, reply).extracted.as_deref(), expected, "{reply:?}");
}

fn check_all(options: &[&str], expected: &str, replies: &[&str]) {
    replies.iter().for_each(|reply| check(options, reply, Some(expected)));
}

#[test]
fn finds_the_letter() {
    check_all(
        FRUITS,
        "C",
        &[
            "C",
            "c",
            "(C)",
            "(c)",
            "C.",
            "C)",
            "**C**",
            "**C.**",
            "[C]",
            "Option C",
            "option c",
            "C) vitamin C",
            "C. It is the one.",
            "C: it is the one",
            "Answer: C",
            "Answer: (C)",
            "**Answer: C**",
            "**Answer:** Option C",
            "Answer:\nC",
            "### Answer\n\n**C**",
            "The answer is C",
            "The answer is C.",
            "The answer is (C).",
            "The answer is clearly C.",
            "The answer is: option C, because A is wrong",
            "The correct answer is C) vitamin C",
            "The correct option is C.",
            "The correct choice: (C)",
            "\\boxed{C}",
            "\\boxed{\\text{C}}",
            "$\\boxed{\\textbf{(C)}}$",
            "#### C",
            "A is wrong and B too.\n\nC",
            "Option A is wrong. (B) is wrong. The answer is C.",
            "The answer is A. No: the answer is C.",
            "So C is correct.",
            "(C) is the right answer, (A) is not.",
            "I choose option C",
            "It must be (C), it must",
            "C\n\nOption A is wrong, because it is none.",
            "Answer: C, not A",
            "the answer is c because a is wrong",
            "I choose option c for this",
            "The answer choices are (A), (B), (C), (D), (E). The answer is C.",
            "The answer is not A. The answer is C.",
        ],
    );
}

#[test]
fn finds_the_text() {
    check_all(
        FRUITS,
        "C",
        &["vitamin C", "Vitamin C.", "The answer is vitamin C.", "Answer: **Vitamin C**", "It is this:\nVitamin C"],
    );
    check_all(FRUITS, "A", &["an apple", "Answer: An apple.", "The answer is \"an apple\""]);
    check_all(FRUITS, "D", &["The answer is a pear.", "Answer: A pear", "A pear"]);
    check_all(FRUITS, "E", &["None of these.", "\\boxed{\\text{none of these}}"]);
    check_all(PRICES, "B", &["$65", "65", "Answer: $65", "The answer is \\$65.00.", "\\boxed{65}"]);
    check_all(PRICES, "D", &["1000", "The answer is 1,000.", "$1,000"]);
    check_all(PRICES, "E", &["0.75", "\\frac{3}{4}"]);
}

#[test]
fn an_article_is_no_letter() {
    check(FRUITS, "The answer is a fruit.", None);
    check(FRUITS, "Answer: A fruit that grows", None);
    check(FRUITS, "A fruit, I think", None);
    check_all(FRUITS, "A", &["The answer is A because it grows.", "A", "A. It grows", "The answer is A, as it grows"]);
}

#[test]
fn several_letters_without_a_final_place_are_no_answer() {
    for reply in [
        "",
        "I do not know.",
        "A or B",
        "The answer is A or B",
        "Answer: A and C",
        "Answer: A, B",
        "The answer is (A) or (B).",
        "The answer is both (A) and (B).",
        "A) an apple\nB) a banana\nC) vitamin C",
        "Option A, option B",
        "(A) may be, (B) may be",
        "A is correct. B is correct.",
        "F",
        "The answer is F",
        "Answer: Z",
        "The answer is not A.",
        "The answer choices are A and B.",
    ] {
        check(FRUITS, reply, None);
    }
}

#[test]
fn equal_options_are_told_apart_by_letter_only() {
    check(&["one", "one", "two"], "The answer is one", None);
    check(&["one", "one", "two"], "The answer is B", Some("B"));
    check(&["B", "A", "C"], "The answer is B", Some("B"));
    check(&["BB", "Bb", "bb"], "The answer is Bb.", Some("B"));
    check(&["one", "two", "A and B"], "The answer is C, A and B.", Some("C"));
    check(&["one", "two", "A and B"], "A and B", Some("C"));
}

#[test]
fn right_means_the_gold_letter() {
    for (gold, right) in [("A", false), ("B", true), ("b", false), ("a banana", true)] {
        let set = common::custom(&format!(r#"{{"question": "q", "choices": ["x", "a banana"], "correct": "{gold}"}}"#));
        let found = set.items.first().map(|item| grade(item, "(B)").verdict.is_right());
        assert_eq!(found.unwrap_or(false), right, "{gold}");
    }
}
