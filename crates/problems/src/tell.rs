//! Tells a draft in one of several ways that mean the same.

use crate::person;
use crate::problem::{Draft, Problem, ProblemStep};
use crate::wording::{self, capitalised, uncapitalised};
use lemon_num::Random;

/// The draft as a problem.
pub(crate) fn tell(draft: Draft, random: &mut Random) -> Option<Problem> {
    let Draft { mut facts, mut question, steps, situation } = draft;
    let mut asked_first = false;
    match random.below(100) {
        0..12 => merge(&mut facts, random),
        12..30 => condition(&mut facts, &mut question, &steps),
        30..37 if stands_alone(&question) => asked_first = true,
        _ => {}
    }
    let parts = if asked_first { [question, facts.join(" ")] } else { [facts.join(" "), question] };
    Problem::new(other_words(parts.join(" ").trim(), random), steps, situation)
}

/// Joins two short sentences by `and`.
fn merge(facts: &mut Vec<String>, random: &mut Random) {
    let fits = |index: &usize| {
        let (first, second) = (&facts[*index], &facts[index + 1]);
        let short = |text: &str| text.len() < 70 && !text.contains(" and ") && !text.starts_with("If ");
        plain(first) && joinable(second) && short(first) && short(second)
    };
    let places: Vec<usize> = (0..facts.len().saturating_sub(1)).filter(fits).collect();
    if let Some(place) = random.pick(&places).copied() {
        let second = facts.remove(place + 1);
        facts[place] = format!("{}, and {}", facts[place].trim_end_matches('.'), inside(&second));
    }
}

/// Makes the last fact a condition of the question: `If she gave 3 away, how many …?`
///
/// Only a fact that matters: with a spare one it would be a riddle.
fn condition(facts: &mut Vec<String>, question: &mut String, steps: &[ProblemStep]) {
    let needed = |number: &i64| steps.iter().any(|step| step.left == *number || step.right == *number);
    let fits = |last: &&String| joinable(last) && wording::numbers_in(last).iter().any(needed);
    let Some(last) = facts.last().filter(fits) else { return };
    if question.starts_with("How ") || question.starts_with("What ") {
        *question = format!("If {}, {}", inside(last).trim_end_matches('.'), uncapitalised(question));
        facts.pop();
    }
}

/// A statement without signs that would not survive being joined.
fn plain(sentence: &str) -> bool {
    sentence.ends_with('.') && !sentence.contains([':', ';', '"', '?', '!'])
}

/// Whether a sentence begins so that it can follow `and` or `if`.
fn joinable(sentence: &str) -> bool {
    const BEGINNINGS: [&str; 15] = [
        "He", "She", "They", "It", "The", "There", "A", "An", "Each", "Every", "Her", "His", "Their", "Another", "Half",
    ];
    let first = wording::words(sentence).next().unwrap_or_default();
    plain(sentence) && (BEGINNINGS.contains(&first) || is_name(first) || wording::number(first).is_some())
}

/// Whether a question needs nothing that was said before it.
fn stands_alone(question: &str) -> bool {
    const BACK: [&str; 30] = [
        "he", "she", "it", "they", "him", "her", "his", "them", "their", "its", "this", "that", "these", "those",
        "such", "then", "now", "there", "same", "both", "others", "other", "ones", "still", "each", "one", "If", "if",
        "left", "more",
    ];
    !wording::words(question).any(|word| BACK.contains(&word))
}

/// A sentence as it stands inside another.
fn inside(sentence: &str) -> String {
    let first = wording::words(sentence).next().unwrap_or_default();
    if is_name(first) { sentence.to_owned() } else { uncapitalised(sentence) }
}

fn is_name(word: &str) -> bool {
    person::is_name(word.strip_suffix("'s").unwrap_or(word))
}

/// Words that may stand for each other wherever they stand, each with its other forms.
const PAIRS: &[&[(&str, &str)]] = &[
    &[("children", "kids")],
    &[("kids", "children")],
    &[("shop", "store"), ("shops", "stores")],
    &[("pupil", "student"), ("pupils", "students")],
    &[("bike", "bicycle"), ("bikes", "bicycles")],
    &[("photo", "picture"), ("photos", "pictures")],
    &[("bought", "purchased"), ("buys", "purchases")],
    &[("begins", "starts"), ("began", "started")],
    &[("father", "dad")],
    &[("mother", "mom")],
    &[("grandmother", "grandma"), ("grandfather", "grandpa")],
    &[("apiece", "each")],
    &[("somebody", "someone")],
    &[("each day", "every day"), ("each week", "every week"), ("each month", "every month")],
    &[("every day", "each day"), ("every week", "each week"), ("every month", "each month")],
    &[("How much money", "How many dollars"), ("how much money", "how many dollars")],
];

/// Ends of questions that mean the same.
const ENDS: [&[&str]; 2] = [&["in all?", "in total?", "altogether?", "all together?"], &[" are left?", " remain?"]];

/// Some words replaced by others, each everywhere or nowhere.
fn other_words(text: &str, random: &mut Random) -> String {
    let mut text = text.to_owned();
    for ends in ENDS {
        if let Some(begin) = ends.iter().find_map(|end| text.strip_suffix(end))
            && let Some(end) = random.pick(ends)
        {
            text = format!("{begin}{end}");
        }
    }
    for pair in PAIRS {
        if pair.iter().any(|(from, _)| text.contains(from)) && random.chance(0.25) {
            for (from, to) in *pair {
                text = replace_word(&text, from, to);
                text = replace_word(&text, &capitalised(from), &capitalised(to));
            }
            break; // one is enough, and two could undo each other
        }
    }
    text
}

fn replace_word(text: &str, from: &str, to: &str) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(from) {
        let (before, after) = (&rest[..at], &rest[at + from.len()..]);
        let apart = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '-');
        // `before` may begin right after an occurrence that was no word of its own.
        let whole = apart(before.chars().next_back().or(replaced.chars().next_back())) && apart(after.chars().next());
        replaced.push_str(before);
        replaced.push_str(if whole { to } else { from });
        rest = after;
    }
    replaced + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Op;

    #[test]
    fn only_whole_words_are_replaced() {
        assert_eq!(replace_word("the shop, shopping, shop", "shop", "store"), "the store, shopping, store");
        assert_eq!(replace_word("a shop-girl", "shop", "store"), "a shop-girl");
    }

    fn check(facts: &[&str], question: &str, expected: &str) {
        let mut facts = facts.iter().map(|fact| (*fact).to_owned()).collect();
        let mut question = question.to_owned();
        condition(&mut facts, &mut question, &[ProblemStep::new(5, Op::Subtract, 2).unwrap()]);
        facts.push(question);
        assert_eq!(facts.join(" "), expected);
    }

    #[test]
    fn a_last_fact_becomes_a_condition_where_it_can() {
        check(&["Ana had 5.", "She ate 2."], "How many are left?", "Ana had 5. If she ate 2, how many are left?");
        check(&["Ana is 7."], "What is left?", "Ana is 7. What is left?");
        check(&["Ana ate 2."], "What is left?", "If Ana ate 2, what is left?");
        check(&["Then Ana ate 2."], "What is left?", "Then Ana ate 2. What is left?");
        check(&["Ana said: eat 2."], "What is left?", "Ana said: eat 2. What is left?");
        check(&["Ana ate 2."], "Ben asks: what is left?", "Ana ate 2. Ben asks: what is left?");
    }

    #[test]
    fn short_sentences_are_merged() {
        let mut facts = vec!["Ana had 5.".to_owned(), "Ben had 3.".to_owned()];
        merge(&mut facts, &mut crate::seeded(1));
        assert_eq!(facts, ["Ana had 5, and Ben had 3."]);
    }
}
