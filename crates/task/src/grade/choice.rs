//! Multiple choice: the option a reply settles on, by its letter or by its text.

use super::{
    number,
    place::{self, Place},
    plain::{bare, plain},
};
use crate::item::letter;

/// The option a reply settles on; `None` if it names none, or several without a final place that decides.
///
/// In this order: the last place that announces an answer; a last line that is nothing but a letter; the text of an
/// option as the last line or the whole reply; a letter that is said to be correct; a letter at the head of a line; a
/// letter in brackets or behind `option`.
pub(crate) fn answer(reply: &str, options: &[String]) -> Option<usize> {
    let text = plain(reply);
    for place in &place::places(&text, place::CHOICE) {
        match announced(place, options) {
            Stated::None => {}
            Stated::One(index) => return Some(index),
            Stated::Several => return None,
        }
    }
    let count = options.len();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines.last().copied().unwrap_or_default();
    let rules = [
        Stated::from_iter(only_letter(last, count)),
        Stated::from_iter(same_text(last, options).or_else(|| same_text(&text, options))),
        said_to_be_correct(&text, count),
        Stated::from_iter(lines.iter().filter_map(|line| head_letter(line, count))),
        Stated::from_iter(marked_letters(&text, count)),
    ];
    rules.into_iter().find(|stated| *stated != Stated::None)?.only()
}

/// The one option that is this text, or this number, but for case, spaces and outer punctuation.
pub(crate) fn same_text(text: &str, options: &[String]) -> Option<usize> {
    let wanted = bare(text);
    let matches = |test: &dyn Fn(&str) -> bool| Stated::from_iter((0..options.len()).filter(|at| test(&options[*at])));
    if wanted.is_empty() {
        return None;
    }
    // With its case first, for options that differ in nothing else (BB and Bb).
    let number = number::whole(text.trim_end_matches(['.', ' ']));
    let stated = [
        matches(&|option| bare(option) == wanted),
        matches(&|option| bare(option).to_lowercase() == wanted.to_lowercase()),
        matches(&|option| number.zip(number::whole(option)).is_some_and(|(number, gold)| number.agrees_with(&gold))),
    ];
    stated.into_iter().find(|stated| *stated != Stated::None)?.only()
}

/// What a text states: the distinct options it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stated {
    None,
    One(usize),
    Several,
}

impl Stated {
    fn only(self) -> Option<usize> {
        if let Stated::One(index) = self { Some(index) } else { None }
    }

    fn from_iter(named: impl IntoIterator<Item = usize>) -> Self {
        named.into_iter().fold(Stated::None, |stated, index| match stated {
            Stated::None => Stated::One(index),
            Stated::One(other) if other == index => stated,
            _ => Stated::Several,
        })
    }
}

/// What an announced place states. The text of an option goes before letters, because texts hold letters (vitamin C).
fn announced(place: &Place<'_>, options: &[String]) -> Stated {
    let count = options.len();
    for reading in place.readings() {
        if let Some(index) = only_letter(reading, count) {
            return Stated::One(index);
        }
        if let Some(index) = same_text(reading, options) {
            return Stated::One(index);
        }
    }
    for reading in place.readings().filter(|reading| !place::excludes(reading)) {
        let stated = match leading_letter(reading, options) {
            Stated::None => Stated::from_iter(marked_letters(reading, count)),
            stated => stated,
        };
        if stated != Stated::None {
            return stated;
        }
    }
    Stated::None
}

const WRAPPING: &[char] = &[' ', '\t', '*', '_', '(', ')', '[', ']', '{', '}', '"', '\'', ':', '$', '.', '!', '\\'];

/// The letter that a text is, but for brackets, emphasis and the word `option`.
fn only_letter(text: &str, count: usize) -> Option<usize> {
    let text = text.trim_matches(|c| WRAPPING.contains(&c));
    let text = without_lead(text).trim_matches(|c| WRAPPING.contains(&c));
    let mut chars = text.chars();
    let only = chars.next()?;
    if chars.next().is_some() {
        return None;
    }
    index_of(only.to_ascii_uppercase(), count)
}

fn index_of(letter_of_option: char, count: usize) -> Option<usize> {
    (0..count).find(|index| letter(*index) == letter_of_option)
}

const LEADS: [&str; 12] = [
    "option",
    "choice",
    "letter",
    "the",
    "clearly",
    "therefore",
    "thus",
    "probably",
    "likely",
    "most",
    "definitely",
    "indeed",
];

/// The text without the words that may stand before a letter: `clearly option C`.
fn without_lead(text: &str) -> &str {
    let mut text = text;
    loop {
        let start = text.trim_start_matches(|c| WRAPPING.contains(&c) || c == ',');
        let lead = LEADS.iter().find_map(|lead| {
            let head = start.get(..lead.len()).filter(|head| head.eq_ignore_ascii_case(lead))?;
            start[head.len()..].starts_with([' ', ':', ',']).then(|| &start[head.len()..])
        });
        match lead {
            Some(rest) => text = rest,
            None => return start,
        }
    }
}

/// The letter an announced text begins with; several if it goes on with `and B`, `or B`, `, B`.
fn leading_letter(text: &str, options: &[String]) -> Stated {
    let count = options.len();
    let Some((index, rest)) = split_letter(without_lead(text), count) else { return Stated::None };
    let closed = rest.trim_start_matches([')', ']', '*', '_', '"', '\'', '}']);
    let joined = closed.trim_start();
    let next = [",", "/", "&", "and ", "or ", "+"].iter().find_map(|joint| joined.strip_prefix(joint));
    let next = next.map(|next| next.strip_prefix(" and").or(next.strip_prefix(" or")).unwrap_or(next));
    match next.and_then(|next| split_letter(without_lead(next), count)) {
        // "D, A and B" is one choice where D reads "A and B".
        Some((other, _)) if other != index && bare(joined) != bare(&options[index]) => Stated::Several,
        _ => Stated::One(index),
    }
}

/// Splits off a letter that stands alone and is no article.
fn split_letter(text: &str, count: usize) -> Option<(usize, &str)> {
    let first = text.chars().next()?;
    let rest = &text[first.len_utf8()..];
    let alone = !rest.starts_with(|c: char| c.is_alphanumeric() || "'’-_^".contains(c));
    let index = index_of(first.to_ascii_uppercase(), count)?;
    (alone && !is_article(first, rest)).then_some((index, rest))
}

/// `A car`, but not `A because` and not `A is`.
fn is_article(first: char, rest: &str) -> bool {
    const AFTER_A_LETTER: [&str; 14] =
        ["is", "are", "was", "and", "or", "because", "since", "as", "but", "not", "with", "which", "for", "given"];
    let word: String = rest.strip_prefix(' ').unwrap_or_default().chars().take_while(|c| c.is_alphabetic()).collect();
    first.eq_ignore_ascii_case(&'a') && !word.is_empty() && !AFTER_A_LETTER.contains(&word.as_str())
}

/// The letter at the head of a line: `C`, `C) 5 km`, `(C) 5 km`, `C. 5 km`, `C: 5 km`.
fn head_letter(line: &str, count: usize) -> Option<usize> {
    let line = line.trim_start_matches([' ', '*', '_', '-', '"', '\t']);
    let line = line.strip_prefix("Option ").or(line.strip_prefix("Choice ")).unwrap_or(line);
    let bracketed = line.strip_prefix(['(', '[']);
    let (index, rest) = split_letter(bracketed.unwrap_or(line), count)?;
    let is_capital = rest.starts_with(')') || !line.starts_with(|c: char| c.is_ascii_lowercase());
    let closed = rest.starts_with([')', ']', '.', ':']) || rest.trim().is_empty();
    // "(A) may be, (B) may be" is a sentence, not a label.
    let is_label = bracketed.is_none() || Stated::from_iter(marked_letters(line, count)) == Stated::One(index);
    (closed && is_capital && is_label).then_some(index)
}

/// Letters in brackets, `(C)`, and behind a word, `option C`.
fn marked_letters(text: &str, count: usize) -> Vec<usize> {
    let lower = text.to_ascii_lowercase();
    let behind = |mark: &'static str| {
        let places = lower.match_indices(mark).map(move |(at, _)| at + mark.len());
        places.filter_map(|at| split_letter(text[at..].trim_start_matches(WRAPPING), count).map(|(index, _)| index))
    };
    let bracketed = text.match_indices('(').filter_map(|(at, _)| {
        let (index, rest) = split_letter(&text[at + 1..], count)?;
        rest.starts_with(')').then_some(index)
    });
    bracketed.chain(behind("option ")).chain(behind("choice ")).collect()
}

/// Letters that are followed by `is correct`, `is the right answer` and the like.
fn said_to_be_correct(text: &str, count: usize) -> Stated {
    let named = ["correct", "right", "best", "true"].into_iter().flat_map(|word| {
        text.match_indices(word).filter_map(move |(at, _)| {
            let before = text[..at].trim_end();
            let before = before.strip_suffix(" the").unwrap_or(before).strip_suffix(" is")?;
            let before = before.trim_end_matches([')', ']', '"', '\'', ' ']);
            let last = before.chars().next_back()?;
            let head = &before[..before.len() - last.len_utf8()];
            let alone = last.is_ascii_uppercase() && !head.ends_with(|c: char| c.is_alphanumeric() || c == '\'');
            index_of(last, count).filter(|_| alone)
        })
    });
    Stated::from_iter(named)
}
