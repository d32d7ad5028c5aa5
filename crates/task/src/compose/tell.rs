//! Stories with blanks, told with numbers, names and things drawn for them.
//!
//! | in a text | stands for |
//! |---|---|
//! | `{a:2-9}`, `{a:10-90:5}` | a number from 2 to 9; from 10 to 90 in steps of 5; drawn once |
//! | `{a}` | the number drawn for `a` |
//! | `<a:2-9 b:3-5>` at the beginning | numbers drawn without being shown there |
//! | `{=a*b}` | what the formula comes to |
//! | `{N}`, `{M}`, `{L}` | three different first names |
//! | `{he}`, `{his}`, `{him}` | the pronouns of `{N}`; `{He}`, `{His}` at the beginning of a sentence |
//! | `{@fruit}`, `{@fruit2}` | a thing of that list, and another one |
//! | `[has\|owns]` | one of these words |

use super::sum;
use super::things;
use lemon_num::Random;

/// A word problem: what happens, what is asked, and the formula of the answer.
pub(super) struct Story {
    pub body: &'static str,
    pub ask: &'static str,
    pub answer: &'static str,
    /// What an option writes with the number: `$` goes before it, anything else after it.
    pub unit: &'static str,
}

/// A story to be told; see the table above for its blanks.
pub(super) const fn story(body: &'static str, ask: &'static str, answer: &'static str, unit: &'static str) -> Story {
    Story { body, ask, answer, unit }
}

/// A story as it is told.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub body: String,
    pub ask: String,
    pub answer: i64,
    pub unit: &'static str,
    /// The formula in numbers.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests work it out again"))]
    pub sum: String,
    /// The numbers drawn.
    pub given: Vec<i64>,
}

/// How often numbers are drawn again until the answer is whole and sensible.
const MOST_TRIES: usize = 200;
/// The largest sensible answer.
const MOST: i64 = 1_000_000;
/// In so many of a hundred stories small numbers are written in words.
const IN_WORDS: usize = 18;

/// Tells a story. `None` if no sensible numbers were found, which the tests exclude for the stories here.
pub(super) fn tell(story: &Story, random: &mut Random) -> Option<Told> {
    (0..MOST_TRIES).find_map(|_| {
        let mut teller = Teller::new(random);
        let body = teller.fill(story.body)?;
        let ask = teller.fill(story.ask)?;
        let answer = teller.work_out(story.answer)?;
        let sum = sum::written(story.answer, &|c| teller.value(c).map(|value| value.to_string()));
        let given = teller.values.iter().map(|(_, value)| *value).collect();
        Some(Told { body: sentences(&body), ask: sentences(&ask), answer, unit: story.unit, sum, given })
    })
}

/// Who tells a story: what was drawn so far.
pub(super) struct Teller<'r> {
    random: &'r mut Random,
    values: Vec<(char, i64)>,
    names: Vec<things::Name>,
    nouns: Vec<(String, &'static str)>,
    in_words: bool,
}

impl<'r> Teller<'r> {
    pub fn new(random: &'r mut Random) -> Self {
        let names = random.some(things::NAMES, 3);
        let in_words = random.percent(IN_WORDS);
        Teller { random, values: Vec::new(), names, nouns: Vec::new(), in_words }
    }

    /// Forgets the numbers, but neither names nor things.
    pub fn forget_numbers(&mut self) {
        self.values.clear();
    }

    pub fn set(&mut self, letter: char, value: i64) {
        self.values.push((letter, value));
    }

    pub fn value(&self, letter: char) -> Option<i64> {
        self.values.iter().find(|(known, _)| *known == letter).map(|(_, value)| *value)
    }

    pub fn values(&self) -> impl Iterator<Item = i64> {
        self.values.iter().map(|(_, value)| *value)
    }

    /// What a formula comes to, if that is whole, positive and not too large.
    pub fn work_out(&self, formula: &str) -> Option<i64> {
        sum::whole(formula, &|letter| self.value(letter)).filter(|value| (1..=MOST).contains(value))
    }

    /// The text with its blanks filled. `None` if a number comes out that is not sensible.
    pub fn fill(&mut self, text: &str) -> Option<String> {
        let chosen = self.choose(text);
        let mut filled = String::with_capacity(chosen.len() + 16);
        let mut rest = self.draw_hidden(&chosen)?;
        while let Some((before, blank)) = rest.split_once('{') {
            filled.push_str(before);
            let (blank, after) = blank.split_once('}')?;
            let word = self.word(blank, filled.ends_with('$') || after.starts_with(['%', '.', ':', '/']))?;
            filled.push_str(&word);
            rest = after;
        }
        filled.push_str(rest);
        Some(filled)
    }

    /// Draws the numbers declared at the beginning; the text behind them.
    fn draw_hidden<'t>(&mut self, text: &'t str) -> Option<&'t str> {
        let Some((hidden, text)) = text.strip_prefix('<').and_then(|text| text.split_once('>')) else {
            return Some(text);
        };
        for declared in hidden.split(' ') {
            self.declare(declared)?;
        }
        Some(text)
    }

    /// Draws a number declared as `a:2-9`.
    fn declare(&mut self, declared: &str) -> Option<()> {
        let (letter, range) = declared.split_once(':')?;
        let value = self.draw(range)?;
        self.set(letter.chars().next()?, value);
        Some(())
    }

    /// The text with one of each group of words.
    fn choose(&mut self, text: &str) -> String {
        let mut chosen = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, group)) = rest.split_once('[') {
            let Some((group, after)) = group.split_once(']') else { break };
            let words: Vec<&str> = group.split('|').collect();
            chosen.push_str(before);
            chosen.push_str(self.random.pick(&words).copied().unwrap_or_default());
            rest = after;
        }
        chosen + rest
    }

    fn word(&mut self, blank: &str, as_digits: bool) -> Option<String> {
        if let Some(formula) = blank.strip_prefix('=') {
            return Some(self.work_out(formula)?.to_string());
        }
        if let Some(list) = blank.strip_prefix('@') {
            return self.noun(list).map(str::to_owned);
        }
        if blank.contains(':') {
            self.declare(blank)?;
        }
        if let Some(name) = self.name(blank) {
            return Some(name.to_owned());
        }
        let value = self.value(blank.chars().next()?)?;
        let word = usize::try_from(value).ok().and_then(|at| things::NUMBER_WORDS.get(at));
        Some(word.filter(|_| self.in_words && !as_digits).map_or_else(|| value.to_string(), |word| (*word).to_owned()))
    }

    /// A number of a range `2-9` or `10-90:5`.
    fn draw(&mut self, range: &str) -> Option<i64> {
        let (range, step) = range.split_once(':').unwrap_or((range, "1"));
        let (low, high) = range.split_once('-')?;
        let (low, high, step): (i64, i64, i64) = (low.parse().ok()?, high.parse().ok()?, step.parse().ok()?);
        let choices = usize::try_from((high - low).checked_div(step)? + 1).ok()?;
        Some(low + step * i64::try_from(self.random.below(choices)).ok()?)
    }

    fn name(&self, blank: &str) -> Option<&'static str> {
        let [first, second, third] = self.names.as_slice() else { return None };
        let pronoun = |she: &'static str, he: &'static str| if first.she { she } else { he };
        Some(match blank {
            "N" => first.name,
            "M" => second.name,
            "L" => third.name,
            "he" => pronoun("she", "he"),
            "He" => pronoun("She", "He"),
            "his" => pronoun("her", "his"),
            "His" => pronoun("Her", "His"),
            "him" => pronoun("her", "him"),
            _ => return None,
        })
    }

    fn noun(&mut self, list: &str) -> Option<&'static str> {
        if let Some((_, known)) = self.nouns.iter().find(|(key, _)| key == list) {
            return Some(known);
        }
        let words = things::list(list.trim_end_matches(|c: char| c.is_ascii_digit()))?;
        let free: Vec<&str> = words.iter().filter(|word| self.nouns.iter().all(|(_, w)| w != *word)).copied().collect();
        let noun = *self.random.pick(&free)?;
        self.nouns.push((list.to_owned(), noun));
        Some(noun)
    }
}

/// The text with a capital at the beginning of each sentence.
pub(super) fn sentences(text: &str) -> String {
    let mut begins = true;
    let mut out = String::with_capacity(text.len());
    let mut before = ' ';
    for c in text.trim().chars() {
        let capital = begins && c.is_alphabetic();
        if capital {
            out.extend(c.to_uppercase());
        } else if !(c == ' ' && before == ' ') {
            // An empty choice of words leaves two spaces.
            out.push(c);
        }
        begins = (begins && !c.is_alphanumeric()) || (matches!(before, '.' | '?' | '!') && c == ' ');
        before = c;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(body: &'static str, ask: &'static str, answer: &'static str, seed: u64) -> Option<Told> {
        tell(&story(body, ask, answer, ""), &mut crate::compose::draw::random(seed, "test"))
    }

    #[test]
    fn blanks_are_filled_and_kept() {
        for seed in 0..50 {
            let told =
                told("{a:2-4} and {a}, {b:10-30:10}%, {=a*b}. {@fruit} are {@fruit}", "[x|y]?", "a*b", seed).unwrap();
            let (first, second) = (told.given[0], told.given[1]);
            assert!((2..=4).contains(&first) && [10, 20, 30].contains(&second));
            assert_eq!(told.answer, first * second);
            assert!(told.body.contains(&format!(", {second}%, {}. ", told.answer)), "{}", told.body);
            assert!(told.ask == "X?" || told.ask == "Y?");
            assert!(!told.body.contains(['{', '}', '[', '@']));
        }
    }

    #[test]
    fn numbers_are_drawn_until_the_answer_is_whole_and_positive() {
        for seed in 0..50 {
            let told = told("{a:1-30} {b:1-30}", "?", "a/b-1", seed).unwrap();
            assert_eq!((told.given[0] / told.given[1] - 1) * told.given[1] + told.given[1], told.given[0]);
            assert!(told.answer > 0);
        }
        assert!(told("{a:1-3}", "?", "a-5", 0).is_none());
        assert!(told("{a:1-3", "?", "a", 0).is_none());
        assert!(told("{z}", "?", "1", 0).is_none());
    }

    #[test]
    fn sentences_begin_with_a_capital() {
        let check = |text: &str, expected: &str| assert_eq!(sentences(text), expected);
        check("three cats sit.  they wait. how many?", "Three cats sit. They wait. How many?");
        check("it costs $4.50 a piece. ok", "It costs $4.50 a piece. Ok");
        check("  5 cats. 6 dogs. and", "5 cats. 6 dogs. And");
        check("", "");
    }
}
