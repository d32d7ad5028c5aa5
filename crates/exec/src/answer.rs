//! The answer inside a reply: what `share: answer` passes on, what a vote counts, what a grader reads. A person gets the
//! whole reply ([`response`]).

mod value;

pub use value::options_in;
pub(crate) use value::{last_number, option_in};

use crate::form::Form;
use std::collections::HashSet;
use std::ops::Range;

/// How long a phrase after "the answer is" may be to count as an answer, in words.
const MOST_ANSWER_WORDS: usize = 4;

/// The answer a reply states, if it states one by a strict marker: the last line `Answer: …`, `#### NUMBER`, the last
/// `\boxed{}`, or "the answer is" before a number or a letter. Lines of code are no markers.
pub fn extract(reply: &str) -> Option<String> {
    after_answer_line(reply)
        .or_else(|| after_hashes(reply))
        .or_else(|| boxed(reply))
        .or_else(|| after_answer_is(reply))
        .map(|answer| clean(&answer).to_owned())
        .filter(|answer| !answer.is_empty())
}

/// The answer a reply states, or all of it: nothing is lost where no marker stands.
pub fn extract_or_all(reply: &str) -> String {
    extract(reply).unwrap_or_else(|| reply.trim().to_owned())
}

/// What a person gets of a reply: all of it, without a label `Answer:` at its beginning. A last line `#### 21` is how one
/// data set marks answers; it becomes `Answer: 21`.
pub fn response(reply: &str) -> String {
    let reply = without_label(reply.trim());
    let (before, last) = reply.rsplit_once('\n').unwrap_or(("", reply));
    match last.trim().strip_prefix("####").map(str::trim).filter(|rest| is_number(rest)) {
        Some(number) if before.trim().is_empty() => number.to_owned(),
        Some(number) => format!("{}\nAnswer: {number}", before.trim_end()),
        None => reply.to_owned(),
    }
}

fn without_label(reply: &str) -> &str {
    let (first, rest) = reply.split_once('\n').unwrap_or((reply, ""));
    match answer_line(first) {
        // The label stood alone on its line.
        Some("") if !rest.trim().is_empty() => rest.trim(),
        Some(answer) if !answer.is_empty() => {
            // A decorated label (`**Answer: 68**`) is closed behind the answer: there it is one line, cleaned.
            let decorated = !first.trim_start().starts_with(|c: char| c.is_alphabetic());
            match (rest.trim().is_empty(), decorated) {
                (true, _) => clean(answer),
                (false, true) => reply,
                (false, false) => reply.find(answer).and_then(|at| reply.get(at..)).unwrap_or(reply),
            }
        }
        _ => reply,
    }
}

/// The answer to a task of this form in a reply: what it states where the task has a short answer. Of a text, only what
/// the last line states in few words; otherwise all of it. Code and JSON are never taken apart.
pub fn answer_of(reply: &str, form: Form) -> String {
    match form {
        Form::Number | Form::Choice | Form::Short => extract_or_all(reply),
        Form::Open => last_line(reply).unwrap_or_else(|| response(reply)),
        Form::Code | Form::Json => response(reply),
    }
}

/// What the last line states after a label, where that is short.
fn last_line(reply: &str) -> Option<String> {
    const MOST_CHARS: usize = 80;
    let answer = answer_line(reply.trim().lines().next_back()?)?;
    let short = !answer.is_empty() && answer.chars().count() <= MOST_CHARS && !answer.ends_with(':');
    short.then(|| clean(answer).to_owned())
}

/// What two answers to a task of this form must share to count as the same vote. Where the form is a number or a choice,
/// words around it do not matter, and an option is the same by its letter, its text or its value.
pub fn ballot(answer: &str, form: Form, options: &[(char, String)]) -> String {
    let stated = extract_or_all(answer);
    let said = match form {
        Form::Number => value::value_of(&stated).or_else(|| number_in(&stated)),
        Form::Choice => option_in(&stated, options).or_else(|| letter_in(&stated)).map(String::from),
        Form::Open | Form::Short | Form::Code | Form::Json => None,
    };
    vote_key(said.as_deref().unwrap_or(&stated))
}

/// The number an answer comes to: of a line without a calculation the first, otherwise the last.
fn number_in(answer: &str) -> Option<String> {
    let one_line = !answer.trim().contains('\n') && !answer.contains('=');
    let mut numbers = numbers(answer);
    let chosen = if one_line { numbers.next() } else { numbers.last() };
    let chosen = chosen?;
    // `3/4 of it` is three quarters; a date or a path is none.
    let below = answer.get(chosen.end..)?.strip_prefix('/').unwrap_or_default();
    let digits = below.len() - below.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let after = below.get(digits..)?.chars().next();
    let fraction = digits > 0 && after.is_none_or(|c| c != '/' && !c.is_alphanumeric());
    let end = if fraction { chosen.end + 1 + digits } else { chosen.end };
    answer.get(chosen.start..end).map(|number| number.replace(',', ""))
}

/// Where the decimal numbers of a text stand, thousands separators included.
fn numbers(text: &str) -> impl Iterator<Item = Range<usize>> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() && !digit(at) {
            at += 1;
        }
        if at >= bytes.len() {
            return None;
        }
        let sign = at.checked_sub(1).filter(|before| bytes.get(*before) == Some(&b'-'));
        // A minus after a number or a word is an operator or a hyphen.
        let signed = sign.filter(|sign| {
            sign.checked_sub(1).is_none_or(|before| !bytes.get(before).is_some_and(u8::is_ascii_alphanumeric))
        });
        let start = signed.unwrap_or(at);
        while digit(at) || matches!(bytes.get(at), Some(b',' | b'.')) && digit(at + 1) {
            at += 1;
        }
        Some(start..at)
    })
}

/// The letter of the option an answer names: the one it begins with, or the last it calls the answer or the option.
fn letter_in(answer: &str) -> Option<char> {
    let begins = |text: &str| {
        let text = text.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '(' | '*' | '"' | '`' | ':'));
        let mut chars = text.chars();
        let letter = chars.next().filter(char::is_ascii_alphabetic)?;
        let ends = chars.next().is_none_or(|c| {
            matches!(c, ')' | '.' | ':' | '*' | ',' | '"' | '`' | '\n')
                || c == ' ' && letter.is_ascii_uppercase() && letter != 'A' && letter != 'I'
        });
        ends.then(|| letter.to_ascii_uppercase())
    };
    let lower = answer.to_ascii_lowercase();
    let named = ["answer is", "option", "choice is", "answer:"].into_iter().filter_map(|phrase| {
        let at = lower.rfind(phrase)? + phrase.len();
        Some((at, begins(answer.get(at..)?.trim_start_matches(" option"))?))
    });
    begins(answer).or_else(|| named.max_by_key(|(at, _)| *at).map(|(_, letter)| letter))
}

/// A reply without the fences of the prompt that some models repeat. `code` is the code those fences carried.
pub fn without_fences(reply: &str, code: &str) -> String {
    let mark = format!("[{code}");
    let fence = |line: &str| {
        let line = line.trim();
        line.starts_with(&mark) && line.ends_with(']')
    };
    let end = format!("[{code} end]");
    let kept = reply.lines().filter(|line| !fence(line)).map(|line| line.replace(&end, ""));
    kept.collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// What two answers must share to count as the same vote: case, decoration and the way a number is written do not
/// matter.
pub fn vote_key(answer: &str) -> String {
    let trimmed = clean(answer).trim_matches(|c: char| c == '.' || c == '"' || c == '\'' || c.is_whitespace());
    let words = || trimmed.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
    value::value_of(trimmed).unwrap_or_else(words)
}

/// Those of these answers that differ as votes, in the order first given.
pub fn distinct(answers: &[String]) -> Vec<&str> {
    let mut seen = HashSet::new();
    answers.iter().filter(|answer| seen.insert(vote_key(answer))).map(String::as_str).collect()
}

/// What follows the last label `Answer:` at the start of a line that is no code. If more lines follow directly, or the
/// line ends with a colon, the answer has several lines and goes on to the end; otherwise it is the line.
fn after_answer_line(reply: &str) -> Option<String> {
    let lines: Vec<&str> = reply.lines().collect();
    let code = lines_of_code(&lines);
    let is_code = |at: usize| code.iter().any(|block| block.contains(&at));
    let labelled = lines.iter().enumerate().rev().filter(|(at, _)| !is_code(*at));
    let (at, rest) = labelled.filter_map(|(at, line)| Some((at, answer_line(line)?))).next()?;
    let following = lines.get(at + 1..).unwrap_or_default();
    let goes_on = following.first().is_some_and(|line| !line.trim().is_empty());
    if rest.is_empty() {
        return Some(following.join("\n").trim().to_owned());
    }
    if goes_on || rest.ends_with(':') || rest.starts_with("```") {
        return Some(std::iter::once(&rest).chain(following).copied().collect::<Vec<_>>().join("\n"));
    }
    Some(rest.to_owned())
}

/// The lines inside fenced blocks, the fences included. A block that is never closed goes on to the end.
fn lines_of_code(lines: &[&str]) -> Vec<Range<usize>> {
    let mut blocks = Vec::new();
    let mut open = None;
    for (at, line) in lines.iter().enumerate() {
        if line.trim_start().starts_with("```") {
            match open.take() {
                None => open = Some(at),
                Some(start) => blocks.push(start..at + 1),
            }
        }
    }
    blocks.extend(open.map(|start| start..lines.len()));
    blocks
}

/// What follows `Answer:` or `Final answer:` at the start of a line, whatever Markdown decorates it.
fn answer_line(line: &str) -> Option<&str> {
    let line = line.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '*' | '#' | '>' | '_' | '-'));
    let line = strip_prefix_ignoring_case(line, "final ").unwrap_or(line);
    let rest = strip_prefix_ignoring_case(line, "answer")?.trim_start_matches(['*', '_']);
    Some(rest.strip_prefix(':')?.trim_start_matches(['*', '_']).trim())
}

fn strip_prefix_ignoring_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| text.get(prefix.len()..).unwrap_or_default())
}

/// The number after `####`, as GSM8K marks it. A heading of Markdown has the same sign and is no answer.
fn after_hashes(reply: &str) -> Option<String> {
    let marked = |line: &str| line.trim().strip_prefix("####").map(|rest| rest.trim().to_owned());
    reply.lines().rev().filter_map(marked).find(|rest| is_number(rest))
}

/// Whether a text is a number, with signs of currency or percent at most.
fn is_number(text: &str) -> bool {
    let bare = text.trim_matches(|c: char| matches!(c, '$' | '€' | '£' | '%' | '+' | '-' | '.' | ' '));
    bare.starts_with(|c: char| c.is_ascii_digit())
        && bare.chars().all(|c| c.is_ascii_digit() || matches!(c, ',' | '.' | '/' | ' '))
}

fn boxed(reply: &str) -> Option<String> {
    const OPEN: &str = "\\boxed{";
    let inside = reply.get(reply.rfind(OPEN)? + OPEN.len()..)?;
    let mut depth = 1usize;
    for (at, c) in inside.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return inside.get(..at).map(str::to_owned);
        }
    }
    None
}

/// What follows the last "answer is", if it is a number or a letter with few words behind it: "the answer is magic" is prose.
fn after_answer_is(reply: &str) -> Option<String> {
    const PHRASE: &str = "answer is";
    // ASCII lower-casing keeps byte offsets, which Unicode lower-casing does not.
    let at = reply.to_ascii_lowercase().rfind(PHRASE)? + PHRASE.len();
    let line = reply.get(at..)?.lines().next()?;
    let said = line.split(". ").next()?.trim_start_matches([':', ' ']).trim_end().trim_end_matches('.');
    let words: Vec<&str> = said.split_whitespace().collect();
    let first = words
        .first()?
        .trim_matches(|c: char| matches!(c, '*' | '(' | ')' | '$' | '€' | '£' | '`' | '\\' | '.' | ':' | ','));
    let number = is_number(first);
    let letter = first.len() == 1
        && first.starts_with(|c: char| c.is_ascii_uppercase())
        && (words.len() == 1 || !first.starts_with(['A', 'I']));
    (words.len() <= MOST_ANSWER_WORDS && (number || letter)).then(|| said.to_owned())
}

/// An answer without white space and emphasis around it. Backticks are taken off inline code, never off a fenced block.
fn clean(answer: &str) -> &str {
    let answer = answer.trim();
    if answer.contains("```") || answer.contains('\n') {
        return answer;
    }
    answer.trim_matches(|c| matches!(c, '*' | '`')).trim()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(reply: &str, expected: Option<&str>) {
        assert_eq!(extract(reply).as_deref(), expected, "in {reply:?}");
    }

    #[test]
    fn the_stated_answer_is_found() {
        check("So 80 × 0.85.\nAnswer: 68", Some("68"));
        check("Answer: 12\nNo, wait.\nAnswer: 13", Some("13"));
        check("**Answer:** 68 dollars", Some("68 dollars"));
        check("**Final Answer**: B", Some("B"));
        check("### Answer: yes\n\nAnything else?", Some("yes"));
        check("Answer:\ndef f():\n    return 1", Some("def f():\n    return 1"));
        check("Answer: a list:\n- one\n- two\n\nBye", Some("a list:\n- one\n- two\n\nBye"));
        check("Answer: ```python\nx = 1\n\ny = 2\n```", Some("```python\nx = 1\n\ny = 2\n```"));
        check(
            "Answer:\n```python\ndef f():\n    return 1\n\n\nprint(f())\n```",
            Some("```python\ndef f():\n    return 1\n\n\nprint(f())\n```"),
        );
        check("The answer is $42 in all.", Some("$42 in all"));
        check("So the correct answer is B. Mercury is small.", Some("B"));
        check("work\n#### 70,000", Some("70,000"));
        check("thus \\boxed{\\frac{1}{2}} holds", Some("\\frac{1}{2}"));
        check("I think the answer is 42.", Some("42"));
        check("ANSWER: C", Some("C"));
    }

    #[test]
    fn no_stated_answer_is_none() {
        check("", None);
        check("Answer:", None);
        check("It is raining.", None);
        check("answers: many", None);
        check("\\boxed{open", None);
        check("#### Day 2\nSee the museum.", None);
        check("They say the answer is magic. In truth it is physics.", None);
        check("The answer is a long walk by the river", None);
        check("```\nAnswer: 3\n```", None);
        assert_eq!(extract_or_all(" It is raining. "), "It is raining.");
    }

    #[track_caller]
    fn check_response(reply: &str, expected: &str) {
        assert_eq!(response(reply), expected, "of {reply:?}");
    }

    #[test]
    fn a_person_gets_the_whole_reply() {
        check_response(" It is raining. ", "It is raining.");
        check_response("Answer: Here is the plan:\n\n#### Day 1\nWalk.", "Here is the plan:\n\n#### Day 1\nWalk.");
        check_response("Answer:\n```python\nx = 1\n```", "```python\nx = 1\n```");
        check_response("**Answer: 68**", "68");
        check_response("Answer: 68", "68");
        check_response("24 - 15 = 9\nAnswer: 9", "24 - 15 = 9\nAnswer: 9");
        check_response("24 - 15 = 9\n#### 9", "24 - 15 = 9\nAnswer: 9");
        check_response("#### 9", "9");
        check_response("Plan\n#### Day 2", "Plan\n#### Day 2");
        check_response("Answer:", "Answer:");
        check_response("", "");
    }

    #[test]
    fn fences_of_the_prompt_are_taken_out() {
        let reply = "[f0bc403b message from a1, Solver]\n7\n[f0bc403b end]\nIt is 7. [f0bc403b end]";
        assert_eq!(without_fences(reply, "f0bc403b"), "7\nIt is 7.");
        assert_eq!(without_fences("[1] a list\n[2] more", "f0bc403b"), "[1] a list\n[2] more");
    }

    #[test]
    fn ballots_follow_the_form() {
        let same =
            |form, a: &str, b: &str| assert_eq!(ballot(a, form, &[]), ballot(b, form, &[]), "{a} and {b} as {form}");
        let differ =
            |form, a: &str, b: &str| assert_ne!(ballot(a, form, &[]), ballot(b, form, &[]), "{a} and {b} as {form}");
        same(Form::Number, "68 dollars", "$68");
        same(Form::Number, "3 * 4 = 12", "12 eggs");
        same(Form::Number, "First 3 + 4.\nThat makes 7 apples.", "7");
        same(Form::Number, "70,000", "70000");
        same(Form::Number, "1.0", "1 apple");
        same(Form::Number, "$1", "1%");
        same(Form::Number, "3/4 of the cake", "0.75");
        same(Form::Number, "\\frac{1}{2}", "It is 1/2.");
        differ(Form::Number, "3/4", "3");
        differ(Form::Number, "50%", "0.5");
        differ(Form::Number, "-7", "7");
        same(Form::Choice, "B) carbon dioxide", "b");
        same(Form::Choice, "The correct answer is (C).", "C. helium");
        differ(Form::Choice, "A) one", "B) one");
        let options = options_in("How far?\nA) 10 km\nB) 20 km");
        assert_eq!(ballot("20.0", Form::Choice, &options), ballot("B", Form::Choice, &options));
        differ(Form::Open, "I have 3 apples", "You have 3 pears");
    }

    #[test]
    fn votes_ignore_how_an_answer_is_written() {
        for (a, b) in
            [("68", "$68.00"), ("70,000", "70000"), ("B", "b."), ("**Yes**", "yes"), ("New  York", "new york")]
        {
            assert_eq!(vote_key(a), vote_key(b), "{a} and {b}");
        }
        for (a, b) in [("7", "-7"), ("12.5", "125"), ("A", "B"), ("inf", "nan")] {
            assert_ne!(vote_key(a), vote_key(b), "{a} and {b}");
        }
    }

    #[test]
    fn answers_that_are_one_vote_are_kept_once() {
        let answers = ["68", "70", "$68.00", "B", "b.", "70"].map(String::from);
        assert_eq!(distinct(&answers), ["68", "70", "B"]);
        assert!(distinct(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(reply in "(?s).{0,200}", tail in "(Answer: |#### |\\\\boxed\\{|answer is ).{0,20}") {
            let both = format!("{reply}\n{tail}");
            let _ = (extract(&reply), extract(&both), vote_key(&both), extract_or_all(&both), without_fences(&both, "answer"));
            for form in Form::ALL {
                ballot(&both, form, &options_in(&reply));
            }
            // Nothing but labels, white space and emphasis is ever taken from what a person gets.
            let kept: String = response(&both).chars().filter(|c| c.is_alphanumeric()).collect();
            let all: String = both.chars().filter(|c| c.is_alphanumeric()).collect();
            prop_assert!(kept.len() + "finalanswer".len() >= all.len(), "{both:?}");
        }
    }
}
