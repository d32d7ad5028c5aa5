//! When two answers are the same.

/// Whether two answers say the same: case, spaces, quotes, a final full stop and the way a number is written do not matter.
pub fn same(left: &str, right: &str) -> bool {
    key(left) == key(right)
}

/// What answers that say the same have in common.
pub fn key(answer: &str) -> String {
    let bare = answer.trim_matches(|c: char| c.is_whitespace() || matches!(c, '.' | '"' | '\'' | '*' | '`'));
    let digits: String = bare.chars().filter(|c| !matches!(c, ',' | '$' | '€' | '£' | ' ')).collect();
    match digits.parse::<f64>() {
        Ok(number) if number.is_finite() => number.to_string(),
        _ => bare.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

/// The answer that most of them give, as its [`key`]. `None` if there is none, or if several are equally frequent.
pub fn majority<'a>(answers: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut keys: Vec<String> = answers.map(key).collect();
    keys.sort_unstable();
    let mut counts: Vec<(usize, &String)> = keys.chunk_by(|a, b| a == b).map(|run| (run.len(), &run[0])).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    match counts.as_slice() {
        [(first, _), (second, _), ..] if first == second => None,
        [(_, key), ..] => Some((*key).clone()),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(left: &str, right: &str, expected: bool) {
        assert_eq!(same(left, right), expected, "{left} and {right}");
    }

    #[test]
    fn writing_does_not_matter_but_values_do() {
        check("68", "$68.00", true);
        check("70,000", "70000.", true);
        check("B", " b. ", true);
        check("**Yes**", "yes", true);
        check("New  York", "new york", true);
        check("7", "-7", false);
        check("12.5", "125", false);
        check("A", "B", false);
        check("inf", "nan", false);
    }

    #[test]
    fn a_majority_is_the_most_frequent_and_only_one() {
        let check = |answers: &[&str], expected: Option<&str>| {
            assert_eq!(majority(answers.iter().copied()).as_deref(), expected, "{answers:?}");
        };
        check(&[], None);
        check(&["A"], Some("a"));
        check(&["A", "B"], None);
        check(&["A", "B", "a."], Some("a"));
        check(&["1", "2", "3", "3.0"], Some("3"));
        check(&["1", "1", "2", "2", "3"], None);
    }
}
