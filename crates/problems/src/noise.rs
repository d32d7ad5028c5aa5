//! Wrong words in questions: who has seen some is less surprised by words never seen.

use crate::person;
use crate::random::Random;
use crate::situation::shipped;
use crate::wording;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// How much noise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noise {
    /// The share of questions that get any.
    pub share: f64,
    /// In those, the probability that a word is replaced.
    pub probability: f64,
}

impl Default for Noise {
    fn default() -> Self {
        Noise { share: 0.8, probability: 0.12 }
    }
}

impl Noise {
    /// None.
    pub const NONE: Noise = Noise { share: 0.0, probability: 0.0 };

    /// The question with some words replaced by other words of the situations. Numbers, and words that stand for one, stay.
    pub fn apply(&self, question: &str, random: &mut Random) -> String {
        if !random.chance(self.share) {
            return question.to_owned();
        }
        let noisy = question.split(' ').map(|token| {
            let word = token.trim_matches(|c: char| !c.is_alphanumeric());
            let replaceable = word.chars().any(char::is_alphabetic) && !counts(word);
            match random.pick(vocabulary()).filter(|_| replaceable && random.chance(self.probability)) {
                Some(other) => token.replacen(word, other, 1),
                None => token.to_owned(),
            }
        });
        noisy.collect::<Vec<_>>().join(" ")
    }
}

/// Whether a word is a number or stands for one.
fn counts(word: &str) -> bool {
    const WORDS: [&str; 18] = [
        "one", "twice", "double", "half", "pair", "pairs", "dozen", "week", "weeks", "day", "days", "hour", "hours",
        "triple", "hundred", "thousand", "year", "years",
    ];
    let mut parts = word.split(|c: char| !c.is_alphanumeric());
    parts.any(|part| {
        part.starts_with(|c: char| c.is_ascii_digit())
            || wording::number(part).is_some()
            || WORDS.iter().any(|counting| counting.eq_ignore_ascii_case(part))
    })
}

/// The words of all situations in small letters.
pub(crate) fn vocabulary() -> &'static [String] {
    static VOCABULARY: LazyLock<Vec<String>> = LazyLock::new(|| {
        let mut words = BTreeSet::new();
        for situation in shipped() {
            let questions = situation.questions.iter().flat_map(|question| &question.texts);
            for text in situation.stories.iter().chain(&situation.extras).chain(questions) {
                let outside = text.split('{').map(|part| part.split_once('}').map_or(part, |(_, after)| after));
                words.extend(outside.flat_map(wording::words).map(str::to_lowercase));
            }
        }
        let fits =
            |word: &String| word.chars().all(|c| c.is_ascii_lowercase()) && !counts(word) && !person::is_name(word);
        words.into_iter().filter(fits).collect()
    });
    &VOCABULARY
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_vocabulary_is_large_and_has_no_numbers() {
        assert!(vocabulary().len() > 1000, "{}", vocabulary().len());
        assert!(vocabulary().iter().all(|word| !counts(word)));
    }

    #[test]
    fn as_many_words_change_as_wanted() {
        let question = "the cat saw a bird ".repeat(2000);
        let noisy = Noise { share: 1.0, probability: 0.08 }.apply(question.trim(), &mut Random::new(1));
        let changed = question.trim().split(' ').zip(noisy.split(' ')).filter(|(old, new)| old != new).count();
        assert!((700..900).contains(&changed), "{changed} of 10,000");
    }

    proptest! {
        #[test]
        fn numbers_and_signs_stay(seed: u64, question in "([a-z]{1,6}|[0-9]{1,3}|\\$[0-9]{1,2}|twelve|\\+)([ ,.?]([a-z]{1,6}|[0-9]{1,3}|five)){0,12}\\?") {
            let noisy = Noise { share: 1.0, probability: 0.5 }.apply(&question, &mut Random::new(seed));
            prop_assert_eq!(wording::numbers_in(&noisy), wording::numbers_in(&question));
            prop_assert_eq!(noisy.split(' ').count(), question.split(' ').count());
        }
    }
}
