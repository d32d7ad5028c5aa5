//! The grader for numbers, on replies as models write them.

use crate::common;
use lemon_task::grade;

fn check(gold: &str, reply: &str, expected: bool) {
    let grade = grade(&common::open(gold), reply);
    assert_eq!(grade.verdict.is_right(), expected, "gold {gold}, reply {reply:?}, extracted {:?}", grade.extracted);
}

fn check_all(gold: &str, replies: &[&str]) {
    replies.iter().for_each(|reply| check(gold, reply, true));
}

#[test]
fn finds_the_final_answer() {
    check_all(
        "18",
        &[
            "18",
            "18.",
            "$18$",
            "**18**",
            "Answer: 18",
            "**Answer:** 18",
            "**Answer**: $18",
            "Final Answer: 18 dollars",
            "### Final Answer\n\n18",
            "Answer:\n\n$$18$$",
            "The answer is 18.",
            "The answer is $18 per day.",
            "The final answer is: $\\boxed{18}$. I hope it is correct.",
            "The answer to the question is 18 dollars. I used 3 steps.",
            "The answer, in dollars, is 18",
            "9 * 2 = 18\n#### 18",
            "#### 18\nChecked twice in 2 ways.",
            "#### Step 1: eat 3\nShe has 13 left.\n#### Step 2: sell\nShe earns 18",
            "#### 1. Count\n16 eggs\n#### 2. Sell\nShe earns $18",
            "\\boxed{18}",
            "So \\boxed{18 \\text{ dollars}} in 7 days",
            "\\boxed{x = 18}",
            "The answer is 9 * 2 = 18 dollars.",
            "The answer is 17. No, wait. The answer is 18.",
            "To answer this: 3 steps. She makes 18",
            "First 3, then 4, at last she makes 18 dollars every day.",
            "The answer is 18. We checked it with 9 * 2.",
            "Answer: about 18 eggs in 2 baskets",
            "answer = 18",
            "ANSWER: 18",
            "The answer is $18 (16 - 3 - 4 = 9 eggs at $2).",
            "The answer is 18 = 9 * 2.",
            "Answer: (16 - 3 - 4) * 2 = 18",
            "9 * 2 = 18 dollars\n\nTherefore, she makes $18 in 7 days.",
            "16 - 7 = 9 eggs\nSo with them she makes $18.",
            "16 - 7 = 9 eggs\nShe sells 9 eggs and makes $18.",
            "The answer is not 17. The answer is 18.",
            "The answer is eighteen, that is 18",
            "There is no answer is there? She has 18",
        ],
    );
    for reply in [
        "",
        "I do not know.",
        "Answer: none",
        "The answer is 19, not 18",
        "17",
        "18 - 1 = 17",
        "1 8",
        "x18",
        "#### 9\n18",
    ] {
        check("18", reply, false);
    }
}

#[test]
fn reads_signs() {
    check_all(
        "-7",
        &["-7", "−7", "Answer: -7 degrees", "The answer is -$7.", "$-7", "\\boxed{-7}", "= -7", "(-7)", "–7"],
    );
    for reply in ["7", "10-7", "10 -7", "10 - 7", "x-7", "3–7", "The loss is - 7"] {
        check("-7", reply, false);
    }
    check("3", "10-7=3", true);
    check("7", "A range of 3-7", true);
    check("7", "- 7 apples", true);
    check("7", "+7", true);
}

#[test]
fn reads_separators_and_decimals() {
    check_all(
        "70000",
        &[
            "70,000",
            "$70,000",
            "70 000",
            "70\u{202f}000",
            "70_000",
            "70'000",
            "70{,}000",
            "70\\,000",
            "$70,000.00",
            "70000.0",
            "7e4",
            "7.0E+4",
            "7 × 10^4",
            "7 \\times 10^{4}",
            "7x10^4",
            "7·10⁴",
            "70 thousand",
            "Rs70000",
            "Rs. 70,000",
            "The answer is Rs. 70,000.",
            "USD70,000",
            "€70,000",
        ],
    );
    check_all("1450000", &["1.45 million", "$1.45 million dollars", "1,450,000", "1 450 000"]);
    check_all("3", &["3 million", "Answer: 3 million"]);
    check_all("12.5", &["12.50", "$12.50.", "12.5 km", "12½", "12 1/2", "25/2", "12 and 1/2"]);
    check("0.5", ".5", true);
    check("1234", "12,34", false);
    check("1000001", "1000000", false);
    check("10000000000", "10000000001", false);
    check("0.00000003", "0", false);
    check("0.333333", "1/3", true);
    check("33.33", "33.34", false);
}

#[test]
fn reads_fractions_units_and_percent() {
    check_all(
        "0.75",
        &["3/4", "\\frac{3}{4}", "\\dfrac34", "¾", "\\boxed{\\frac{3}{4}}", "The answer is 3/4 of it.", "3 / 4"],
    );
    check_all("1.5", &["1 1/2", "1½", "1\\frac{1}{2}", "$1\\tfrac{1}{2}$ hours"]);
    check_all("-0.75", &["-3/4", "-\\frac{3}{4}"]);
    check_all(
        "68",
        &["68dollars", "68km", "68 cm²", "68 m^2", "68kg/day", "68/day", "68 per 1"]
            .map(|reply| format!("Answer: {reply}"))
            .each_ref()
            .map(String::as_str),
    );
    check_all("15", &["15%", "15 %", "15 percent", "15\\%", "**15%**"]);
    check_all("15%", &["15%", "15", "0.15", "15 percent"]);
    check("0.15", "15%", false);
    check("15", "0.15", false);
    check("15", "1500%", false);
    check("1024", "2^10", true);
    check("2", "H2", false);
    check("5", "5 / 0", false);
    check("3", "on 3/4/2020", false);
}

#[test]
fn says_what_it_extracted() {
    for (reply, expected) in [
        ("The answer is $70,000.00", Some("70000")),
        ("15 %", Some("15%")),
        ("-7", Some("-7")),
        ("3/4", Some("0.75")),
        ("1.45 million", Some("1450000")),
        ("none", None),
    ] {
        assert_eq!(grade(&common::open("1"), reply).extracted.as_deref(), expected, "{reply}");
    }
}

#[test]
fn compares_texts_without_case_and_punctuation() {
    check_all(
        "The Nile",
        &["The Nile", "the nile.", "Answer: **The Nile**", "It flows north.\nThe Nile", "The answer is \"the Nile\"."],
    );
    for reply in ["", "The Niles", "Not the Nile", "Answer: the Amazon\nThe Nile"] {
        check("The Nile", reply, false);
    }
}

#[test]
fn a_question_of_ones_own_is_graded_like_any_other() {
    let item = lemon_task::Item::of_number("7".into(), "Ana has 3 pens and buys 4. How many?".into(), 7);
    assert_eq!((item.task.id.as_str(), item.set()), ("7", lemon_task::SetName::Custom));
    assert!(grade(&item, "3 + 4 = 7\n#### 7").verdict.is_right());
    assert!(!grade(&item, "#### 12").verdict.is_right());
}
