//! The answer rules of the public multi-agent repositories, quirks included, so that their numbers can be compared.
//!
//! They lose signs, decimals and everything before a thousands comma, and they read a letter out of any capital.

use super::{Verdict, plain::closing_brace};
use crate::{
    Item, SetName, code,
    item::{Gold, letter},
};

/// The verdict of the public rule and what it extracted. Sets of the user's own have no public rule; the one of the
/// nearest public set stands in.
pub(crate) fn judge(item: &Item, reply: &str) -> (Verdict, Option<String>) {
    let (right, found) = match &item.gold {
        Gold::Number(gold) => {
            let found = number(reply);
            (found.as_ref().and_then(|found| found.parse().ok()) == Some(gold.value), found)
        }
        Gold::Choice { answer, .. } => {
            let found = if item.set == SetName::Mmlu { first_character(reply) } else { last_capital(reply) };
            (found.as_deref() == Some(&*letter(*answer).to_string()), found)
        }
        Gold::Text(gold) => (reply.trim() == gold, Some(reply.trim().to_owned())),
        Gold::Code(_) => return (Verdict::MustRun, Some(code::legacy_extract(reply).to_owned())),
    };
    (right.into(), found)
}

/// GSM8K, SVAMP, MultiArith: the last run of digits of the announced text, or of the last number. `None` where the
/// public code stops with an error.
fn number(reply: &str) -> Option<String> {
    let announced = ["The answer is ", "the answer is "].iter().find_map(|words| reply.rsplit_once(words));
    let text = match announced {
        Some((_, text)) => text.trim().to_owned(),
        None if reply.contains("boxed") => boxed(reply)?,
        None => last_number(reply).to_owned(),
    };
    if text == "." {
        return None;
    }
    let text = text.strip_suffix('.').unwrap_or(&text);
    let text = stripped(text.strip_suffix('/').unwrap_or(text))?;
    let text = if text.contains("boxed") { boxed(&text)? } else { text };
    let run = text.rsplit(|c: char| !c.is_ascii_digit()).find(|run| !run.is_empty());
    Some(run.unwrap_or("0").to_owned())
}

/// AQuA: the last capital letter of the announced text, or of the reply.
fn last_capital(reply: &str) -> Option<String> {
    let text = match reply.rsplit_once("The answer is ") {
        Some((_, text)) => text.trim().to_owned(),
        None if reply.contains("boxed") => boxed(reply)?,
        None => reply.to_owned(),
    };
    text.chars().rfind(char::is_ascii_uppercase).map(String::from)
}

/// MMLU: the first character behind the first `answer is`, or of the reply.
fn first_character(reply: &str) -> Option<String> {
    let text = match reply.split_once("answer is") {
        // Meant to take off the word, it takes off these letters wherever they stand.
        Some((_, text)) => text.trim_matches(':').trim().trim_matches(['O', 'p', 't', 'i', 'o', 'n']).trim(),
        None => reply,
    };
    text.chars().next().map(String::from)
}

/// The last number, cut from left to right: optional minus sign, digits, and a point if digits follow it.
fn last_number(text: &str) -> &str {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (mut last, mut rest) = ("", text);
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let point = rest[..at].strip_suffix('.');
        let head = point.unwrap_or(&rest[..at]);
        let start = head.strip_suffix('-').unwrap_or(head).len();
        let whole = at + digits(&rest[at..]);
        let decimals = rest[whole..].strip_prefix('.').map_or(0, digits);
        let end = if point.is_none() && decimals > 0 { whole + 1 + decimals } else { whole };
        (last, rest) = (&rest[start..end], &rest[end..]);
    }
    last
}

/// The content of the last `boxed`: in braces, else up to a dollar sign.
fn boxed(text: &str) -> Option<String> {
    let (_, rest) = text.rsplit_once("boxed")?;
    let content = match rest.strip_prefix('{') {
        Some(inside) => &inside[..closing_brace(inside).unwrap_or(inside.len())],
        None if rest.is_empty() => return None,
        None => rest.split('$').next().unwrap_or_default().trim(),
    };
    stripped(content)
}

/// Takes off LaTeX, units, percent signs and all spaces, as far as that changes which digits come last.
fn stripped(text: &str) -> Option<String> {
    let mut text = text.replace('\n', "").replace("\\!", "").replace("\\\\", "\\");
    text = text.replace("tfrac", "frac").replace("dfrac", "frac");
    for mark in ["\\left", "\\right", "^{\\circ}", "^\\circ", "\\$"] {
        text = text.replace(mark, "");
    }
    let mut units = text.split("\\text{ ");
    let value = units.next().unwrap_or_default();
    // One unit is cut off; at a second one the public code stops.
    units.next();
    if units.next().is_some() {
        return None;
    }
    let value = value.replace("\\%", "").replace(" .", " 0.").replace("{.", "{0.");
    let value = if value.starts_with('.') { format!("0{value}") } else { value };
    let value = match value.split('=').collect::<Vec<_>>().as_slice() {
        [left, right] if left.chars().count() <= 2 => (*right).to_owned(),
        _ => value,
    };
    let value = braced(&value, "\\sqrt", 1)?.replace(' ', "");
    let value = braced(&value, "\\frac", 2)?;
    // "0.5" becomes a half as a LaTeX fraction, whose last digits are 2.
    Some(if value == "0.5" { "\\frac{1}{2}".to_owned() } else { value })
}

/// Puts the single characters behind a LaTeX command in braces, which parts the digits of `\frac12`.
fn braced(text: &str, command: &str, arguments: usize) -> Option<String> {
    let mut parts = text.split(command);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(command);
        let first = part.chars().next()?;
        let mut rest = part;
        if first != '{' && part.chars().nth(arguments - 1).is_none() {
            return Some(text.to_owned());
        }
        for _ in 0..arguments {
            let Some(argument) = rest.chars().next().filter(|c| *c != '{') else { break };
            out.extend(['{', argument, '}']);
            rest = &rest[argument.len_utf8()..];
        }
        out.push_str(rest);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_numbers_as_the_public_rule_does() {
        let check = |reply: &str, expected: &str| assert_eq!(number(reply).as_deref(), Some(expected), "{reply:?}");
        check("The answer is 18", "18");
        check("The answer is 18.", "18");
        check("The answer is 70,000", "000");
        check("so it is 70,000", "000");
        check("The answer is 12.50", "50");
        check("The answer is $12.50.", "50");
        check("The answer is -7", "7");
        check("the answer is 5. The answer is 6 or so. the answer is 7", "7");
        check("The answer is 6 eggs. the answer is 7 eggs", "7");
        check("the answer is 3", "3");
        check("it costs 4 dollars", "4");
        check("The answer is 1 000", "1000");
        check("The answer is 18 dollars for 2 eggs", "2");
        check(r"thus \boxed{42}", "42");
        check(r"thus \boxed{42 \text{ kg of 3}}", "42");
        check(r"The answer is \boxed{17}.", "17");
        check(r"The answer is 15\%", "15");
        check("The answer is 3/4", "4");
        check("The answer is 0.5", "2");
        check(r"The answer is \frac12", "2");
        check(r"The answer is \sqrt12", "2");
        check("The answer is unknown", "0");
        check("nothing", "0");
        check("The final answer is 9, as 3 squared", "3");
        check("", "0");
        assert_eq!(number("is boxed"), None);
        assert_eq!(number("The answer is ."), None);
        assert_eq!(number(r"The answer is 3\text{ kg} 4\text{ g}"), None);
    }

    #[test]
    fn reads_letters_as_the_public_rules_do() {
        let aqua = |reply: &str| last_capital(reply);
        assert_eq!(aqua("The answer is C").as_deref(), Some("C"));
        assert_eq!(aqua("The answer is (B) 5 Km").as_deref(), Some("K"));
        assert_eq!(aqua("I think A, so I Say").as_deref(), Some("S"));
        assert_eq!(aqua(r"Thus \boxed{D}").as_deref(), Some("D"));
        assert_eq!(aqua("none"), None);
        let mmlu = |reply: &str| first_character(reply);
        assert_eq!(mmlu("C").as_deref(), Some("C"));
        assert_eq!(mmlu("(C)").as_deref(), Some("("));
        assert_eq!(mmlu("The answer is: Option B").as_deref(), Some("B"));
        assert_eq!(mmlu("The answer is D. The answer is A.").as_deref(), Some("D"));
        assert_eq!(mmlu("I think it is B").as_deref(), Some("I"));
        assert_eq!(mmlu(""), None);
    }

    #[test]
    fn finds_the_last_number() {
        for (text, expected) in [
            ("a 12.50 b", "12.50"),
            ("-7", "-7"),
            ("70,000", "000"),
            ("1.", "1"),
            (".5", ".5"),
            ("", ""),
            ("0.50.5", ".5"),
            ("3-4", "-4"),
        ] {
            assert_eq!(last_number(text), expected);
        }
    }
}
