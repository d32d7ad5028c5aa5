//! Small facts about written English: number words, capitals, articles, sentences.

/// Numbers in words, from zero.
pub(crate) const NUMBER_WORDS: [&str; 21] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
];

/// The number in words, from two (one is also a pronoun) to twenty.
pub(crate) fn in_words(number: i64) -> Option<&'static str> {
    usize::try_from(number).ok().filter(|number| *number >= 2).and_then(|number| NUMBER_WORDS.get(number).copied())
}

/// The number that a word stands for, in digits (`1,200`) or in words from two to twenty, of any case.
pub(crate) fn number(word: &str) -> Option<i64> {
    if word.starts_with(|c: char| c.is_ascii_digit()) {
        return word.replace(',', "").parse().ok();
    }
    if !word.starts_with(|c: char| c.is_ascii_alphabetic()) || word.len() > 9 {
        return None;
    }
    let position = NUMBER_WORDS.iter().position(|number| number.eq_ignore_ascii_case(word))?;
    (position >= 2).then_some(position as i64)
}

/// All numbers of a text in order.
pub(crate) fn numbers_in(text: &str) -> Vec<i64> {
    words(text).filter_map(number).collect()
}

/// The words and numbers of a text, without the signs around them. Commas and points inside a number belong to it.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_break = |c: char| !(c.is_alphanumeric() || matches!(c, ',' | '.' | '\'' | '’'));
    text.split(is_break).flat_map(|word| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        // `3,then` is two words, `3,000` is one.
        let is_number = word.chars().all(|c| c.is_ascii_digit() || matches!(c, ',' | '.'));
        word.split(move |c| !is_number && matches!(c, ',' | '.')).filter(|part| !part.is_empty())
    })
}

/// With a capital first letter.
pub(crate) fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

/// With a small first letter.
pub(crate) fn uncapitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_lowercase().chain(chars).collect())
}

/// Whether `an` stands before it.
pub(crate) fn sounds_like_vowel(text: &str) -> bool {
    let digits = text.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    if !digits.is_empty() {
        return digits.starts_with('8') || digits == "11" || digits == "18";
    }
    let consonants = ["one", "uni", "use", "eu", "unicorn"];
    text.starts_with(['a', 'e', 'i', 'o', 'u', 'A', 'E', 'I', 'O', 'U'])
        && !consonants.iter().any(|begin| text.starts_with(begin))
}

/// The sentences of a text. A stop inside quotation marks ends none.
pub(crate) fn sentences(text: &str) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut begin = 0;
    let mut quoted = false;
    let mut chars = text.char_indices().peekable();
    while let Some((index, c)) = chars.next() {
        quoted ^= c == '"';
        let ends = matches!(c, '.' | '!' | '?') && !quoted && chars.peek().is_none_or(|(_, next)| *next == ' ');
        let ends = ends || c == '"' && !quoted && text[..index].ends_with(['.', '!', '?']);
        if ends {
            let end = index + c.len_utf8();
            sentences.push(text[begin..end].trim().to_owned());
            begin = end;
        }
    }
    let rest = text[begin..].trim();
    if !rest.is_empty() {
        sentences.push(rest.to_owned());
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_digits_and_words() {
        assert_eq!(numbers_in("Twelve 3-page letters, $1,200 and five-cent coins."), [12, 3, 1200, 5]);
        assert_eq!(numbers_in("One of 7. Then 8,9 and 1.5"), [7, 8_9]);
        assert!(numbers_in("").is_empty());
    }

    #[test]
    fn sentences_end_at_stops_outside_of_quotes() {
        let text = "A sign says: \"Save! Now 5.\" It is 3.5 m. Is it? yes";
        assert_eq!(sentences(text), ["A sign says: \"Save! Now 5.\"", "It is 3.5 m.", "Is it?", "yes"]);
    }
}
