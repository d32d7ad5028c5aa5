//! The vocabulary: words that the project retired, and public type names that stand for two things. `docs/glossary.md` has the
//! words in use.

use std::collections::{BTreeMap, BTreeSet};

/// Retired words, each with what to write. A word is found inside names too: `NoiseLuck` and `noise_luck` hold `luck`.
const RETIRED: &[(&str, &str)] = &[
    ("arena", "rollout environment"),
    ("contestant", "method"),
    ("contestants", "methods"),
    ("contrasts", "counterfactuals"),
    ("crew", "thread pool"),
    ("dearer", "more expensive"),
    ("enrol", "build the policy"),
    ("enrolled", "the built policy"),
    ("everybody", "name the component"),
    ("founders", "seeds"),
    ("gist", "cache key"),
    ("hired", "worker set"),
    ("loudness", "inverse-variance weight"),
    ("luck", "noise seed"),
    ("nobody", "name the component"),
    ("purse", "token budget"),
    ("scribe", "prompt encoder"),
    ("somebody", "name the component"),
    ("whoever", "name the component"),
];

/// Retired phrases.
const RETIRED_PHRASES: &[(&str, &str)] = &[("in the box", "bundled")];

/// Where the words may stand: the record of what was, the table of words itself, and the made-up tasks, which speak as people do.
const EXEMPT: &[&str] = &[
    "CHANGELOG.md",
    "LOG.md",
    "crates/problems/",
    "crates/task/src/compose",
    "docs/glossary.md",
    "docs/study/",
    "xtask/src/words.rs",
];

/// Every retired word in a file.
pub fn retired(file: &str, text: &str) -> Vec<String> {
    let spoken = [".rs", ".md", ".toml"].iter().any(|end| file.ends_with(end));
    if !spoken || EXEMPT.iter().any(|exempt| file.starts_with(exempt)) {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for (number, line) in text.lines().enumerate() {
        // Old names in files and flags are read for ever.
        if line.contains("alias") {
            continue;
        }
        let words: BTreeSet<String> = words(line).collect();
        let lower = line.to_lowercase();
        let found = RETIRED.iter().filter(|(word, _)| words.contains(*word));
        let found = found.chain(RETIRED_PHRASES.iter().filter(|(phrase, _)| lower.contains(phrase)));
        faults
            .extend(found.map(|(word, instead)| format!("{file}:{}: `{word}` is retired; use: {instead}", number + 1)));
    }
    faults
}

/// The words of a line in lower case, with names taken apart: `RetryAfter` and `retry_after` are two each.
fn words(line: &str) -> impl Iterator<Item = String> {
    line.split(|letter: char| !letter.is_ascii_alphabetic()).flat_map(humps)
}

fn humps(name: &str) -> Vec<String> {
    let mut humps: Vec<String> = Vec::new();
    let mut before_was_lower = false;
    for letter in name.chars() {
        if humps.is_empty() || (letter.is_ascii_uppercase() && before_was_lower) {
            humps.push(String::new());
        }
        before_was_lower = letter.is_ascii_lowercase();
        if let Some(hump) = humps.last_mut() {
            hump.push(letter.to_ascii_lowercase());
        }
    }
    humps
}

/// The public types of our crates: where each name is defined.
#[derive(Debug, Default)]
pub struct PublicNames(BTreeMap<String, BTreeSet<String>>);

impl PublicNames {
    /// Adds the names that a file defines. Tests may name theirs as they like.
    pub fn read(&mut self, file: &str, text: &str) {
        let Some((package, path)) = file.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/")) else {
            return;
        };
        if path.contains("tests") {
            return;
        }
        for line in text.lines() {
            let kinds = ["pub struct ", "pub enum ", "pub trait ", "pub type "];
            let Some(rest) = kinds.iter().find_map(|kind| line.trim_start().strip_prefix(kind)) else { continue };
            let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
            self.0.entry(rest[..end].to_owned()).or_default().insert(package.to_owned());
        }
    }

    /// Every name that two crates define.
    pub fn faults(&self) -> Vec<String> {
        let shared = self.0.iter().filter(|(_, packages)| packages.len() > 1);
        let fault = |(name, packages): (&String, &BTreeSet<String>)| {
            let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
            format!("type `{name}` is public in {}; a name stands for one thing", packages.join(" and "))
        };
        shared.map(fault).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &str, text: &str, expected: &[&str]) {
        assert_eq!(retired(file, text), expected, "{file}: {text}");
    }

    #[test]
    fn retired_words_are_found_inside_names() {
        check("a.rs", "let noise = 1;\nlet keep_luck = 2;", &["a.rs:2: `luck` is retired; use: noise seed"]);
        check("a.rs", "struct PurseOf;", &["a.rs:1: `purse` is retired; use: token budget"]);
        check("a.md", "The models In the Box.", &["a.md:1: `in the box` is retired; use: bundled"]);
        check("a.rs", "a lucky pursestring", &[]);
        check("a.rs", "#[serde(alias = \"keep_luck\")]", &[]);
        check("a.jsonl", "luck", &[]);
        check("LOG.md", "luck", &[]);
        check("crates/problems/src/a.rs", "nobody", &[]);
    }

    #[test]
    fn names_are_taken_apart() {
        let of = |line: &str| words(line).collect::<Vec<_>>();
        assert_eq!(of("RetryAfter retry_after SHARED"), ["retry", "after", "retry", "after", "shared"]);
        assert_eq!(of(""), [""; 0]);
    }

    #[test]
    fn a_public_name_is_defined_once() {
        let mut names = PublicNames::default();
        names.read("crates/a/src/lib.rs", "pub struct One;\n    pub enum Two<T> {\npub(crate) struct Hidden;");
        names.read("crates/b/src/lib.rs", "pub struct Two;\nstruct One;\npub fn two() {}\npub type Hidden = u8;");
        names.read("crates/b/src/tests.rs", "pub struct One;");
        assert_eq!(names.faults(), ["type `Two` is public in a and b; a name stands for one thing"]);
    }
}
