//! Names made alike: who solves a problem need not have heard of the people in it.

use crate::noise;
use crate::person;
use std::collections::HashSet;
use std::sync::LazyLock;

/// What people are called instead, in the order in which they appear; names of any person.
const INSTEAD: [&str; 8] = ["alex", "kim", "sam", "lee", "robin", "jo", "max", "pat"];

/// The text with every name replaced by one of a few, the same by the same. More than these keep their own.
///
/// A name is a capitalised word that a sentence does not begin with, or that is no word otherwise.
pub(crate) fn made_alike(text: &str) -> String {
    let inside: HashSet<&str> = words(text).filter(|it| !it.begins && may_be_name(it.word)).map(|it| it.word).collect();
    let (mut known, mut plain, mut end): (Vec<&str>, String, usize) = (Vec::new(), String::new(), 0);
    for Word { word, start, .. } in words(text) {
        let is_name = inside.contains(word) || may_be_name(word) && (person::is_name(word) || !is_word(word));
        if !is_name {
            continue;
        }
        let number = known.iter().position(|name| *name == word).unwrap_or_else(|| {
            known.push(word);
            known.len() - 1
        });
        if let Some(name) = INSTEAD.get(number) {
            plain.push_str(&text[end..start]);
            plain.push_str(name);
            end = start + word.len();
        }
    }
    plain + &text[end..]
}

/// Whether a word is one of the names that people get.
pub(crate) fn is_stand_in(word: &str) -> bool {
    INSTEAD.contains(&word)
}

struct Word<'a> {
    word: &'a str,
    /// Where it begins, in bytes.
    start: usize,
    /// Whether a sentence begins with it.
    begins: bool,
}

/// The runs of letters of a text.
fn words(text: &str) -> impl Iterator<Item = Word<'_>> {
    let mut rest = 0;
    std::iter::from_fn(move || {
        let start = rest + text[rest..].find(char::is_alphabetic)?;
        let length = text[start..].find(|c: char| !c.is_alphabetic()).unwrap_or(text.len() - start);
        rest = start + length;
        let before = text[..start].trim_end_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '“' | '('));
        let begins = before.is_empty() || before.ends_with(['.', '!', '?', ':']);
        Some(Word { word: &text[start..rest], start, begins })
    })
}

/// Whether a word is written as a name is, and is no part of the calendar and no title.
fn may_be_name(word: &str) -> bool {
    let mut chars = word.chars();
    let is_written_so = chars.next().is_some_and(char::is_uppercase) && chars.next().is_some();
    is_written_so && chars.all(char::is_lowercase) && !OTHERS.contains(&word)
}

#[rustfmt::skip]
const OTHERS: &[&str] = &[
    "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday", "January", "February", "March", "April",
    "May", "June", "July", "August", "September", "October", "November", "December", "Mr", "Mrs", "Ms", "Dr", "Christmas",
    "Easter", "Halloween",
];

/// Whether a word is one of ours, and is not only a name.
fn is_word(word: &str) -> bool {
    static WORDS: LazyLock<HashSet<&str>> =
        LazyLock::new(|| noise::vocabulary().iter().map(String::as_str).chain(BEGINNINGS.iter().copied()).collect());
    WORDS.contains(word.to_lowercase().as_str())
}

/// What sentences begin with, beside the words of the situations.
#[rustfmt::skip]
const BEGINNINGS: &[&str] = &[
    "a", "about", "according", "after", "all", "also", "although", "altogether", "among", "an", "another", "as", "assume",
    "assuming", "at", "because", "before", "between", "both", "but", "by", "calculate", "compute", "currently", "due",
    "during", "each", "earlier", "eight", "eleven", "even", "every", "everyone", "find", "fifty", "first", "five", "for",
    "forty", "four", "from", "given", "half", "he", "her", "here", "his", "how", "however", "if", "in", "initially", "instead",
    "it", "its", "last", "later", "let", "many", "more", "most", "my", "next", "nine", "now", "of", "on", "once", "one",
    "only", "originally", "other", "our", "out", "over", "per", "previously", "seven", "she", "since", "six", "so", "some",
    "someone", "suppose", "ten", "that", "the", "their", "then", "there", "these", "they", "thirty", "this", "those", "three",
    "through", "today", "together", "tomorrow", "twelve", "twenty", "twice", "two", "unfortunately", "until", "up", "we", "what",
    "when", "where", "which", "while", "who", "with", "within", "without", "would", "yesterday", "you", "your",
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(made_alike(text), expected, "{text}");
    }

    #[test]
    fn names_are_made_alike() {
        check("Faye had 3 pens. How many has Faye?", "alex had 3 pens. How many has alex?");
        check("Ana's cat and Bo's dog met Ana.", "alex's cat and kim's dog met alex.");
        check("On Monday Mrs. Hilt and her son Zed ate.", "On Monday Mrs. alex and her son kim ate.");
        check("The farm of Will. Will sells it.", "The farm of alex. alex sells it.");
        check("Will it rain? I say so.", "Will it rain? I say so.");
        check("\"There are 4 in Rome,\" he said.", "\"There are 4 in alex,\" he said.");
        check("no names here, not one", "no names here, not one");
        check("", "");
    }

    #[test]
    fn more_people_than_names_keep_their_own() {
        let text = "we saw Aa, Bb, Cc, Dd, Ee, Ff, Gg, Hh, Ii and Aa";
        check(text, "we saw alex, kim, sam, lee, robin, jo, max, pat, Ii and alex");
    }

    proptest! {
        #[test]
        fn everything_but_names_stays(text in "([A-Z]?[a-z]{1,5}|[0-9]{1,3}|é|Él)([ .,?]([A-Z]?[a-z]{1,5}|[0-9]{1,2})){0,12}") {
            let plain = made_alike(&text);
            // A person that kept a name for want of another would get one the next time.
            let capitalised: HashSet<_> = words(&text).map(|it| it.word).filter(|word| may_be_name(word)).collect();
            if capitalised.len() <= INSTEAD.len() {
                prop_assert_eq!(made_alike(&plain), plain.clone());
            }
            let numbers = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
            prop_assert_eq!(numbers(&plain), numbers(&text));
            prop_assert_eq!(words(&plain).count(), words(&text).count());
        }

        #[test]
        fn nothing_panics(text in any::<String>()) {
            made_alike(&text);
        }
    }
}
