//! Results are text of others: bounded, and harmless for a terminal, a page and a prompt.

/// What replaces a character that is not shown.
const REPLACEMENT: char = '\u{fffd}';

/// A text of a tool that is safe to keep: at most `most` bytes, no control characters but line ends and tabs, no characters
/// that change the direction or the visibility of others. The second value says whether it was cut.
///
/// A terminal's control sequence loses its first character and becomes plain text.
pub fn clean(text: &str, most: usize) -> (String, bool) {
    let mut cleaned = String::with_capacity(text.len().min(most));
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        let shown = match character {
            // A line end as Windows writes it is a line end.
            '\r' if rest.peek() == Some(&'\n') => continue,
            '\r' => '\n',
            character if is_harmful(character) => REPLACEMENT,
            character => character,
        };
        if cleaned.len() + shown.len_utf8() > most {
            return (cleaned, true);
        }
        cleaned.push(shown);
    }
    (cleaned, false)
}

/// As [`clean`], for a name or a message: on one line, with `…` where it was cut.
pub fn clean_line(text: &str, most: usize) -> String {
    // More than enough bytes are looked at: white space may shrink.
    let (text, mut was_cut) = clean(text, most.saturating_mul(4));
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (mut line, cut) = clean(&line, most);
    was_cut |= cut;
    if was_cut {
        line.push('…');
    }
    line
}

fn is_harmful(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        // Tags, which spell text that a person does not see; marks that turn the direction of writing; fillers of no width.
        '\u{e0000}'..='\u{e007f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2060}' | '\u{feff}' | '\u{061c}' => true,
        // Noncharacters, and private use, which a model's tokenizer may have given a meaning.
        '\u{fdd0}'..='\u{fdef}' | '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}' => true,
        character => character.is_control() || (character as u32) & 0xfffe == 0xfffe,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn harmful_characters_are_replaced() {
        let check = |text: &str, expected: &str| assert_eq!(clean(text, 100), (expected.to_owned(), false), "{text:?}");
        check("plain ä ∑ 漢\n\ttext", "plain ä ∑ 漢\n\ttext");
        check("a\r\nb\rc", "a\nb\nc");
        check("\u{1b}[2J\u{9b}31mred\u{7}", "\u{fffd}[2J\u{fffd}31mred\u{fffd}");
        check("a\u{202e}b\u{200b}c\u{e0041}d\u{0}", "a\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}");
        check("\u{feff}x\u{ffff}\u{1fffe}", "\u{fffd}x\u{fffd}\u{fffd}");
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        assert_eq!(clean("ää", 3), ("ä".to_owned(), true));
        assert_eq!(clean("ää", 4), ("ää".to_owned(), false));
        assert_eq!(clean_line("a  b\nc", 10), "a b c");
        assert_eq!(clean_line("a  b\nc", 3), "a b…");
        assert_eq!(clean_line(&" ".repeat(100), 3), "…");
    }

    proptest! {
        #[test]
        fn never_too_long_and_never_harmful(text in any::<String>(), most in 0_usize..200) {
            let (cleaned, cut) = clean(&text, most);
            prop_assert!(cleaned.len() <= most);
            prop_assert!(!cleaned.chars().any(is_harmful));
            prop_assert!(cut || cleaned.len() == most || clean(&text, usize::MAX).0 == cleaned);
            // What is clean stays as it is.
            prop_assert_eq!(clean(&cleaned, most), (cleaned.clone(), false));
        }
    }
}
