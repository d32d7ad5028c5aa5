//! Which training texts are test questions, or nearly so?
//!
//! Two texts are *equal* if they have the same words and numbers, whatever the case and the signs between them. They are *near* if
//! enough of their shape is shared: words in small letters, every number as `0`, every first name as `a`; of that, the set of all
//! runs of three words. The overlap of two texts is the number of shared runs over that of the text with fewer of them
//! (containment, which is never below the Jaccard index), and 0.6 is near. So a question stays found when persons and numbers are
//! replaced, when a sentence is added, and when one of several is rewritten.

use crate::person;
use crate::random::hash;
use crate::wording;
use std::collections::{HashMap, HashSet};

/// From this overlap on, two texts are near.
pub const NEAR: f64 = 0.6;

/// Test questions, indexed to be found again.
#[derive(Debug, Clone)]
pub struct Leaks {
    exact: HashSet<u64>,
    names: HashSet<String>,
    /// For each run of three words, the questions that have it.
    index: HashMap<u64, Vec<u32>>,
    /// How many different runs each question has.
    sizes: Vec<usize>,
}

/// How a text gives a test question away.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Leak {
    /// It is one.
    Exact,
    /// It is nearly one, with this overlap.
    Near(f64),
}

/// What was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dropped {
    /// Texts that equal a test question.
    pub exact: usize,
    /// Texts that are near one.
    pub near: usize,
}

impl Dropped {
    pub(crate) fn count(&mut self, leak: Leak) {
        match leak {
            Leak::Exact => self.exact += 1,
            Leak::Near(_) => self.near += 1,
        }
    }
}

impl Leaks {
    /// Indexes test questions.
    pub fn of<T: AsRef<str>>(questions: &[T]) -> Self {
        let mut leaks = Leaks {
            exact: questions.iter().map(|question| hash(&words(question.as_ref()).join(" "))).collect(),
            names: names(questions),
            index: HashMap::new(),
            sizes: Vec::new(),
        };
        for (number, question) in questions.iter().enumerate() {
            let runs = leaks.runs(question.as_ref());
            leaks.sizes.push(runs.len());
            for run in runs {
                leaks.index.entry(run).or_default().push(number as u32);
            }
        }
        leaks
    }

    /// Whether a text is a test question, or near one.
    pub fn find(&self, text: &str) -> Option<Leak> {
        if self.exact.contains(&hash(&words(text).join(" "))) {
            return Some(Leak::Exact);
        }
        let overlap = self.overlaps(text).map(|(_, overlap)| overlap).fold(0.0, f64::max);
        (overlap >= NEAR).then_some(Leak::Near(overlap))
    }

    /// Drops every item whose text is a test question or near one.
    pub fn filter<T>(&self, items: Vec<T>, text: impl Fn(&T) -> &str) -> (Vec<T>, Dropped) {
        let mut dropped = Dropped::default();
        let keep = |item: &T| self.find(text(item)).inspect(|leak| dropped.count(*leak)).is_none();
        let kept = items.into_iter().filter(keep).collect();
        (kept, dropped)
    }

    /// The questions that share a run with a text, and by how much they overlap.
    fn overlaps(&self, text: &str) -> impl Iterator<Item = (usize, f64)> {
        let runs = self.runs(text);
        let mut shared = vec![0usize; self.sizes.len()];
        for question in runs.iter().filter_map(|run| self.index.get(run)).flatten() {
            shared[*question as usize] += 1;
        }
        let overlap = move |(number, shared): (usize, usize)| {
            (shared > 0).then(|| (number, shared as f64 / runs.len().min(self.sizes[number]) as f64))
        };
        shared.into_iter().enumerate().filter_map(overlap)
    }

    /// The different runs of three words of a text's shape; the whole shape where it is shorter. Numbers alone are no run: bare
    /// arithmetic is like every other.
    fn runs(&self, text: &str) -> Vec<u64> {
        let own = names(&[text]);
        let shape: Vec<String> = words(text)
            .into_iter()
            .map(|word| match word {
                word if word.starts_with(|c: char| c.is_ascii_digit()) || wording::number(&word).is_some() => {
                    "0".to_owned()
                }
                word if self.names.contains(&word) || own.contains(&word) || person::is_name(&word) => "a".to_owned(),
                word => word,
            })
            .collect();
        let mut runs: Vec<u64> = match shape.len() {
            0 => Vec::new(),
            1 | 2 => vec![hash(&shape.join(" "))],
            _ => {
                let telling = shape.windows(3).filter(|run| run.iter().any(|word| word != "0"));
                telling.map(|run| hash(&run.join(" "))).collect()
            }
        };
        runs.sort_unstable();
        runs.dedup();
        runs
    }
}

/// Groups look-alike questions: for each, the number of its group. Groups are the connected parts of the relation *near*.
pub fn clusters<T: AsRef<str>>(questions: &[T]) -> Vec<usize> {
    let leaks = Leaks::of(questions);
    let mut parents: Vec<usize> = (0..questions.len()).collect();
    for (number, question) in questions.iter().enumerate() {
        for (other, overlap) in leaks.overlaps(question.as_ref()) {
            if overlap >= NEAR {
                let (one, other) = (root(&mut parents, number), root(&mut parents, other));
                parents[one.max(other)] = one.min(other);
            }
        }
    }
    let mut numbers = HashMap::new();
    (0..questions.len())
        .map(|number| {
            let next = numbers.len();
            *numbers.entry(root(&mut parents, number)).or_insert(next)
        })
        .collect()
}

fn root(parents: &mut [usize], mut number: usize) -> usize {
    while parents[number] != number {
        parents[number] = parents[parents[number]];
        number = parents[number];
    }
    number
}

/// The words and numbers of a text in small letters. A comma inside a number is left out, any other sign separates.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut chars = text.chars().peekable();
    let mut last = ' ';
    while let Some(c) = chars.next() {
        let inside_number = c == ',' && last.is_ascii_digit() && chars.peek().is_some_and(char::is_ascii_digit);
        if c.is_alphanumeric() {
            if let Some(word) = words.last_mut() {
                word.extend(c.to_lowercase());
            }
        } else if !inside_number && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        last = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// What is taken for a name: words that have a capital inside a sentence, and words that have one at the beginning of sentences
/// and never occur without. The second needs many texts to tell names from other first words.
fn names<T: AsRef<str>>(texts: &[T]) -> HashSet<String> {
    let mut capitals = HashSet::new();
    let mut firsts = HashSet::new();
    let mut small = HashSet::new();
    for text in texts {
        let mut begins = true;
        for token in text.as_ref().split(|c: char| !c.is_alphanumeric() && !matches!(c, '.' | '?' | '!')) {
            let word = token.trim_matches(['.', '?', '!']);
            if word.starts_with(|c: char| c.is_uppercase()) {
                if begins { &mut firsts } else { &mut capitals }.insert(word.to_lowercase());
            } else if !word.is_empty() {
                small.insert(word.to_owned());
            }
            if !token.is_empty() {
                begins = token.ends_with(['.', '?', '!']);
            }
        }
    }
    if texts.len() >= 100 {
        capitals.extend(firsts.into_iter().filter(|word| !small.contains(word)));
    }
    capitals
}

#[cfg(test)]
#[path = "leak_tests.rs"]
mod tests;
