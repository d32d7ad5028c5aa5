//! Specifications for the same tasks before and after, side by side.

use super::TeamChange;
use crate::markup::{Markup, escape};

/// Tasks that are shown at once; the others are folded away.
pub(super) const FIRST: usize = 4;
/// Two texts whose words would make more pairs than this are not compared word by word.
const MOST_PAIRS: usize = 4_000_000;

/// A task with the specifications before and after, round by round.
pub(super) struct TeamBlock<'a> {
    pub set: &'a str,
    pub question: &'a str,
    pub sides: Vec<Side>,
}

/// One text.
pub(super) struct Side {
    /// Of later rounds their number.
    pub round: Option<usize>,
    /// The text with its marks; `None`: there was no such round.
    pub text: Option<Markup>,
}

impl<'a> TeamBlock<'a> {
    pub(super) fn new(team: &'a TeamChange) -> TeamBlock<'a> {
        let rounds = team.before.len().max(team.after.len()).max(1);
        let sides = (0..rounds).flat_map(|round| {
            let (before, after) = (team.before.get(round), team.after.get(round));
            let texts = match (before, after) {
                (Some(before), Some(after)) => {
                    let (before, after) = marked(before, after);
                    [Some(Markup::trusted(before)), Some(Markup::trusted(after))]
                }
                alone => [alone.0, alone.1].map(|text| text.map(|text| Markup::text(text))),
            };
            texts.map(|text| Side { round: (round > 0).then_some(round + 1), text })
        });
        TeamBlock { set: &team.set, question: &team.question, sides: sides.collect() }
    }
}

/// Both texts as markup, with the words marked that the other does not have there.
pub(crate) fn marked(before: &str, after: &str) -> (String, String) {
    let (old, new) = (words(before), words(after));
    let (kept_old, kept_new) = common(&old, &new);
    (markup(&old, &kept_old, "del"), markup(&new, &kept_new, "ins"))
}

/// A word, and the white space before it.
struct Word<'a> {
    space: &'a str,
    text: &'a str,
}

/// The words of a text; the last one may be empty.
fn words(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (space, from_word) = rest.split_at(rest.find(|char: char| !char.is_whitespace()).unwrap_or(rest.len()));
        let (word, after) = from_word.split_at(from_word.find(char::is_whitespace).unwrap_or(from_word.len()));
        words.push(Word { space, text: word });
        rest = after;
    }
    words
}

/// Which words of each belong to a longest common subsequence of both.
fn common(old: &[Word], new: &[Word]) -> (Vec<bool>, Vec<bool>) {
    let same = |(a, b): &(&Word, &Word)| a.text == b.text;
    let head = old.iter().zip(new).take_while(same).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(same).count();
    let ends = |length: usize| (0..length).map(|at| at < head || at >= length - tail).collect::<Vec<bool>>();
    let (mut kept_old, mut kept_new) = (ends(old.len()), ends(new.len()));
    // `head + tail` is at most the length of the shorter one.
    let (old, new) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    if old.len().saturating_mul(new.len()) > MOST_PAIRS {
        return (kept_old, kept_new);
    }
    // lengths[i][j]: of the longest common subsequence of old[i..] and new[j..], for i and j up to the lengths themselves.
    let wide = new.len() + 1;
    let mut lengths = vec![0u32; (old.len() + 1) * wide];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            lengths[i * wide + j] = match old[i].text == new[j].text {
                true => lengths[(i + 1) * wide + j + 1] + 1,
                false => lengths[(i + 1) * wide + j].max(lengths[i * wide + j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < old.len() && j < new.len() {
        if old[i].text == new[j].text {
            (kept_old[head + i], kept_new[head + j]) = (true, true);
            (i, j) = (i + 1, j + 1);
        } else if lengths[(i + 1) * wide + j] >= lengths[i * wide + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    (kept_old, kept_new)
}

/// The text again, with `tag` around the words that are not kept. A mark goes on over blanks and ends with its line.
fn markup(words: &[Word], kept: &[bool], tag: &str) -> String {
    let mut html = String::new();
    let mut is_open = false;
    for (word, kept) in words.iter().zip(kept) {
        let kept = *kept || word.text.is_empty();
        let goes_on = is_open && !kept && !word.space.contains('\n');
        if is_open && !goes_on {
            html.push_str(&format!("</{tag}>"));
        }
        html.push_str(&escape(word.space));
        if !kept && !goes_on {
            html.push_str(&format!("<{tag}>"));
        }
        html.push_str(&escape(word.text));
        is_open = !kept;
    }
    if is_open {
        html.push_str(&format!("</{tag}>"));
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_that_differ_are_marked() {
        let check = |before, after, expected: (&str, &str)| {
            let (old, new) = marked(before, after);
            assert_eq!((old.as_str(), new.as_str()), expected);
        };
        check("", "", ("", ""));
        check("a b", "a b", ("a b", "a b"));
        check("a b c", "a c", ("a <del>b</del> c", "a c"));
        check("a", "b", ("<del>a</del>", "<ins>b</ins>"));
        check("a b c d", "a x y d", ("a <del>b c</del> d", "a <ins>x y</ins> d"));
        check("- x\n- y", "- z", ("- <del>x</del>\n<del>- y</del>", "- <ins>z</ins>"));
        check("a <b>", "a &", ("a <del>&lt;b&gt;</del>", "a <ins>&amp;</ins>"));
        check("a\n", "a", ("a\n", "a"));
        check("a a a", "a a", ("a a <del>a</del>", "a a"));
    }

    proptest! {
        #[test]
        fn without_its_marks_a_text_is_as_it_was(before in "[ab<\n ]{0,30}", after in "[ab<\n ]{0,30}") {
            let (old, new) = marked(&before, &after);
            prop_assert_eq!(old.replace("<del>", "").replace("</del>", ""), escape(&before));
            prop_assert_eq!(new.replace("<ins>", "").replace("</ins>", ""), escape(&after));
        }

        #[test]
        fn what_is_not_marked_is_in_both(before in "[ab ]{0,30}", after in "[ab ]{0,30}") {
            let (old, new) = (words(&before), words(&after));
            let (kept_old, kept_new) = common(&old, &new);
            let kept = |words: &[Word], kept: &[bool]| -> Vec<String> {
                words.iter().zip(kept).filter(|(_, kept)| **kept).map(|(word, _)| word.text.to_owned()).collect()
            };
            prop_assert_eq!(kept(&old, &kept_old), kept(&new, &kept_new));
        }
    }
}
