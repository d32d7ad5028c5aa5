//! Other words in questions: who has seen some is less surprised by words never seen, and reads a question anew in others.

use crate::names;
use crate::person;
use crate::situation::shipped;
use crate::wording;
use lemon_num::Random;
use std::collections::{BTreeSet, HashSet};
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
    pub const NONE: Noise = Noise { share: 0.0, probability: 0.0 };

    /// The question with some words replaced by other words of the situations. Numbers, and words that stand for one, stay.
    pub fn apply(&self, question: &str, random: &mut Random) -> String {
        if !random.chance(self.share) {
            return question.to_owned();
        }
        replaced(question, self.probability, |_| true, random)
    }
}

/// In other words: people get the names they get in every prompt, and some words that are neither common nor a name are replaced
/// by others, which the seed draws.
///
/// What a small model takes for the meaning of a question hangs on words that have nothing to do with it. Who reads it in several
/// such ways and finds the same each time is right more often.
///
/// ```
/// let question = "Ana had 24 marbles and bought 3 more. How many marbles does she have?";
/// let other = lemon_problems::in_other_words(question, 5);
/// assert_ne!(other, question);
/// assert!(other.contains(" had 24 ") && other.contains(" and bought 3 more. How many "));
/// ```
pub fn in_other_words(question: &str, seed: u64) -> String {
    let may = |word: &str| !is_common(word) && !names::is_stand_in(word);
    replaced(&names::made_alike(question), REPLACED, may, &mut crate::seeded(seed))
}

/// The share of less common words that other words stand for. Votes of several readings did best with it on problems never learned
/// from, of what was tried there; other shares of less common words alone were not.
const REPLACED: f64 = 0.4;

/// The question with words that may be replaced replaced, with this probability. Numbers, and words that stand for one, stay.
fn replaced(question: &str, probability: f64, may: impl Fn(&str) -> bool, random: &mut Random) -> String {
    let words = question.split(' ').map(|token| {
        let word = token.trim_matches(|c: char| !c.is_alphanumeric());
        let replaceable = word.chars().any(char::is_alphabetic) && !counts(word) && may(word);
        match random.pick(vocabulary()).filter(|_| replaceable && random.chance(probability)) {
            Some(other) => token.replacen(word, other, 1),
            None => token.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Whether a word says how things stand to each other rather than what they are.
fn is_common(word: &str) -> bool {
    static COMMON: LazyLock<HashSet<&str>> = LazyLock::new(|| RELATIONS.split_whitespace().collect());
    COMMON.contains(word.to_lowercase().as_str())
}

/// Words that a calculation hangs on: who and when, what is asked, what happens to amounts, and what they are measured in.
const RELATIONS: &str = "
    a an the this that these those it its he him his she her they them their we our you your i my who whom whose which what how
    where when why is are was were be been being am has have had having do does did done can could will would shall should must may
    might not no nor didn't doesn't don't wasn't isn't and or but if then than as so because while since until before after
    during of in on at to from for with without by into onto out off up down over under between among through per
    each every all both either neither any some none other others another same different more most less least fewer few
    many much several enough only just also too still again already now later earlier today yesterday tomorrow
    first second third last next new whole rest remaining extra total altogether together left right away back
    there here number amount times time equal equally evenly split divided share shared shares put puts
    give gives gave given get gets got buy buys bought sell sells sold find finds found lose loses lost eat eats ate eaten
    use uses used need needs needed want wants wanted make makes made take takes took taken bring brings brought
    pick picks picked add adds added remove removes removed keep keeps kept spend spends spent pay pays paid cost costs
    earn earns earned save saves saved receive receives received collect collects collected throw threw thrown break broke broken
    fill fills filled hold holds fit fits contain contains come comes came go goes went leave leaves start starts started end ended
    begin began read reads run runs ran walk walks walked grow grows grew join joined become became
    combined returned borrowed moved donated deleted traded cut packed baked planted drank
    old older younger long longer short shorter tall taller high higher heavy heavier far big bigger large larger small smaller
    minute minutes month months morning afternoon evening night
    dollar dollars cent cents penny pennies nickel nickels dime dimes quarter quarters
    inch inches foot feet yard yards mile miles metre metres meter meters centimetre centimetres kilometre kilometres
    gram grams kilogram kilograms pound pounds ounce ounces litre litres liter liters gallon gallons percent
    group groups set sets row rows piece pieces part parts people person money price
";

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
        let noisy = Noise { share: 1.0, probability: 0.08 }.apply(question.trim(), &mut crate::seeded(1));
        let changed = question.trim().split(' ').zip(noisy.split(' ')).filter(|(old, new)| old != new).count();
        assert!((700..900).contains(&changed), "{changed} of 10,000");
    }

    #[test]
    fn common_words_say_how_things_stand() {
        for word in ["How", "many", "the", "and", "has", "gave", "left", "more", "each", "bought", "does"] {
            assert!(is_common(word), "{word}");
        }
        for word in ["marbles", "siamese", "Halloween", "zorp", ""] {
            assert!(!is_common(word), "{word}");
        }
    }

    #[test]
    fn readings_in_other_words_differ_by_seed_and_keep_what_is_common() {
        let question = "A pet store had 13 siamese cats and 5 house cats. They sold 10 cats. How many cats are left?";
        let readings: BTreeSet<String> = (0..20).map(|seed| in_other_words(question, seed)).collect();
        assert!(readings.len() > 15, "{readings:?}");
        for reading in &readings {
            for kept in [" had 13 ", " and 5 ", "They sold 10 ", "How many ", " left?"] {
                assert!(reading.contains(kept), "{kept:?} in {reading:?}");
            }
        }
        assert_eq!(in_other_words(question, 3), in_other_words(question, 3));
    }

    proptest! {
        #[test]
        fn numbers_stay_in_other_words(seed: u64, question in "[a-zA-Z0-9$,.? ]{0,80}") {
            let other = in_other_words(&question, seed);
            prop_assert_eq!(wording::numbers_in(&other), wording::numbers_in(&question));
        }

        #[test]
        fn numbers_and_signs_stay(seed: u64, question in "([a-z]{1,6}|[0-9]{1,3}|\\$[0-9]{1,2}|twelve|\\+)([ ,.?]([a-z]{1,6}|[0-9]{1,3}|five)){0,12}\\?") {
            let noisy = Noise { share: 1.0, probability: 0.5 }.apply(&question, &mut crate::seeded(seed));
            prop_assert_eq!(wording::numbers_in(&noisy), wording::numbers_in(&question));
            prop_assert_eq!(noisy.split(' ').count(), question.split(' ').count());
        }
    }
}
