//! The places of a reply that announce its final answer.

use super::plain::closing_brace;

/// Words that announce an answer.
pub(crate) const ANSWER: &[&str] = &["answer"];
/// Words that announce a choice.
pub(crate) const CHOICE: &[&str] = &["answer", "correct option", "correct choice", "best option", "right option"];

/// Where an announced answer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place<'a> {
    start: usize,
    text: &'a str,
}

/// An announced answer is short, and a final one is near the end: both bounds keep grading linear in the length of a
/// reply, whatever it repeats.
const MAX_LENGTH: usize = 2000;
const MAX_PLACES: usize = 32;

/// The places of a plain text, the last one first: behind `answer:`, `the answer is` and the like, behind `####`
/// before a short line, and inside `\boxed{}`.
pub(crate) fn places<'a>(text: &'a str, words: &[&str]) -> Vec<Place<'a>> {
    let lower = text.to_ascii_lowercase();
    let mut starts = Vec::new();
    for word in words {
        starts.extend(lower.match_indices(word).filter_map(|(at, _)| announced(&lower, at, word.len())));
    }
    let marks = text.match_indices("####").map(|(at, mark)| at + mark.len());
    starts.extend(marks.filter(|start| !is_heading(&text[*start..])));
    let mut places: Vec<_> = starts.iter().map(|start| Place { start: *start, text: head(&text[*start..]) }).collect();
    places.extend(text.match_indices("\\boxed").filter_map(|(at, mark)| boxed(text, at + mark.len())));
    places.sort_by_key(|place| std::cmp::Reverse(place.start));
    places.truncate(MAX_PLACES);
    places
}

/// The content of the box at `at`.
fn boxed(text: &str, at: usize) -> Option<Place<'_>> {
    let inside = text[at..].trim_start().strip_prefix('{')?;
    let content = head(inside);
    Some(Place { start: text.len() - inside.len(), text: &content[..closing_brace(content).unwrap_or(content.len())] })
}

fn head(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_LENGTH)]
}

impl<'a> Place<'a> {
    /// What the place may state, the narrowest reading first: the sentence, the line, the next line.
    pub fn readings(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let mut lines = self.text.lines();
        let line = lines.next().unwrap_or_default();
        let next = lines.find(|line| !line.trim().is_empty());
        // A label on a line of its own announces the next one; behind a line with content, the next is another matter.
        let next = next.filter(|_| !line.contains(char::is_alphanumeric));
        [Some(sentence(line)), Some(line), next.map(sentence), next].into_iter().flatten()
    }
}

/// Whether a reading says what the answer is not.
pub(crate) fn excludes(reading: &str) -> bool {
    reading.trim_start().get(..4).is_some_and(|head| head.eq_ignore_ascii_case("not "))
}

/// The line up to its first full stop before a space.
fn sentence(line: &str) -> &str {
    line.find(". ").map_or(line, |end| &line[..end])
}

/// Where the answer begins that the word at `at` announces.
fn announced(lower: &str, at: usize, length: usize) -> Option<usize> {
    let before = lower[..at].trim_end();
    let is_verb = before == "to" || before.ends_with(" to");
    if lower[..at].ends_with(char::is_alphanumeric) || is_verb {
        return None;
    }
    let rest = &lower[at + length..];
    let rest = rest.strip_prefix('s').unwrap_or(rest);
    let start = lower.len() - rest.len();
    let label = rest.trim_start_matches([' ', '*', '_', '#', '"']);
    if label.starts_with('\n') {
        return Some(lower.len() - label.len());
    }
    if rest.starts_with(char::is_alphanumeric) {
        return None;
    }
    // "The answer to the whole question is": a few words may stand between.
    let window = &rest[..rest.floor_char_boundary(60)];
    let window = window.split(['\n', '.', ';', '?', '!']).next().unwrap_or_default();
    let copula = ["is", "are", "was", "equals"].iter().filter_map(|word| find_word(window, word)).min();
    let colon = window.find([':', '=']).map(|end| end + 1);
    let end = [copula, colon].into_iter().flatten().min()?;
    // "The answer choices are" lists them.
    let lists = ["choice", "option"].iter().any(|word| window[..end].contains(word));
    (!lists).then_some(start + end)
}

/// Where a word ends that stands alone.
fn find_word(text: &str, word: &str) -> Option<usize> {
    let alone = |(at, _): &(usize, &str)| {
        let end = at + word.len();
        !text[..*at].ends_with(char::is_alphanumeric) && !text[end..].starts_with(char::is_alphanumeric)
    };
    text.match_indices(word).find(alone).map(|(at, _)| at + word.len())
}

/// `#### 18` announces an answer; `#### Step 2`, `#### Sum up: 3 and 4` and `#### 1. Sum up` are Markdown headings.
fn is_heading(rest: &str) -> bool {
    if rest.starts_with('#') {
        return true;
    }
    let line = head(rest).lines().next().unwrap_or_default().trim();
    let numbered = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_numbered = numbered.len() < line.len() && (numbered.starts_with(". ") || numbered.starts_with(") "));
    let is_titled = line.starts_with(char::is_alphabetic) && line.contains(|c: char| c == ':' || c.is_ascii_digit());
    let is_long = line.split_whitespace().nth(4).is_some();
    is_numbered || is_titled || is_long || line.is_empty()
}
