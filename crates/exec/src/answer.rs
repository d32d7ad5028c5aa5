//! The answer inside a reply: what `share: answer` passes on, what a vote counts, what a run returns.

use std::collections::HashSet;

/// The answer a reply states, if it states one: after the last `Answer:` line, `####`, in the last `\boxed{}`, or after
/// "the answer is".
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

/// What two answers must share to count as the same vote: case, decoration and the way a number is written do not
/// matter.
pub fn vote_key(answer: &str) -> String {
    let trimmed = clean(answer).trim_matches(|c: char| c == '.' || c == '"' || c == '\'' || c.is_whitespace());
    let digits: String = trimmed.chars().filter(|c| !matches!(c, ',' | '$' | '€' | '£' | ' ')).collect();
    match digits.parse::<f64>() {
        Ok(number) if number.is_finite() && digits.chars().any(|c| c.is_ascii_digit()) => number.to_string(),
        _ => trimmed.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

/// Those of these answers that differ as votes, in the order first given.
pub fn distinct(answers: &[String]) -> Vec<&str> {
    let mut seen = HashSet::new();
    answers.iter().filter(|answer| seen.insert(vote_key(answer))).map(String::as_str).collect()
}

/// The rest of the last line that begins with `Answer:` and the lines up to the next empty one; if that rest is empty,
/// everything that follows.
fn after_answer_line(reply: &str) -> Option<String> {
    let lines: Vec<&str> = reply.lines().collect();
    let (at, rest) = lines.iter().enumerate().rev().find_map(|(at, line)| Some((at, answer_line(line)?)))?;
    let following = lines.get(at + 1..).unwrap_or_default();
    if rest.is_empty() {
        return Some(following.join("\n").trim().to_owned());
    }
    let paragraph = following.iter().take_while(|line| !line.trim().is_empty());
    Some(std::iter::once(&rest).chain(paragraph).copied().collect::<Vec<_>>().join("\n"))
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

fn after_hashes(reply: &str) -> Option<String> {
    reply.lines().rev().find_map(|line| line.trim().strip_prefix("####")).map(|rest| rest.trim().to_owned())
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

fn after_answer_is(reply: &str) -> Option<String> {
    const PHRASE: &str = "answer is";
    // ASCII lower-casing keeps byte offsets, which Unicode lower-casing does not.
    let at = reply.to_ascii_lowercase().rfind(PHRASE)? + PHRASE.len();
    let line = reply.get(at..)?.lines().next()?;
    Some(line.trim_start_matches([':', ' ']).trim_end().trim_end_matches('.').to_owned())
}

fn clean(answer: &str) -> &str {
    answer.trim().trim_matches(|c| matches!(c, '*' | '`')).trim()
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
        check("Answer: a list:\n- one\n- two\n\nBye", Some("a list:\n- one\n- two"));
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
        assert_eq!(extract_or_all(" It is raining. "), "It is raining.");
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
            let _ = (extract(&reply), extract(&both), vote_key(&both), extract_or_all(&both));
        }
    }
}
