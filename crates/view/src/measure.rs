//! How wide a text is, and how it fits its box.

/// The first words of a text on one line, cut so that they fit `pixels` in a system font of this size. Not escaped.
pub fn fit(text: &str, pixels: f64, size: f64) -> String {
    // No line is as long as this; a text may be.
    let line = text.split_whitespace().take(200).collect::<Vec<_>>().join(" ");
    if width(&line, size) <= pixels {
        return line;
    }
    let mut room = pixels - em('…') * size;
    let fits = |char: &char| {
        room -= em(*char) * size;
        room >= 0.0
    };
    let mut cut: String = line.chars().take_while(fits).collect();
    cut.truncate(cut.trim_end().len());
    cut.push('…');
    cut
}

/// A text broken into lines that fit; a word longer than a line stays whole. Not escaped.
pub fn wrapped(text: &str, pixels: f64, size: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line, size) + width(word, size) + em(' ') * size <= pixels => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// About how wide a text is in a system font of this size.
pub fn width(text: &str, size: f64) -> f64 {
    text.chars().map(em).sum::<f64>() * size
}

/// About how wide a character is: system fonts differ, so rather too wide than too narrow.
fn em(char: char) -> f64 {
    match char {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.32,
        'f' | 'r' | 't' | '(' | ')' | '[' | ']' | '-' | '/' => 0.42,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' => 0.95,
        '−' | '±' => 0.8,
        'A'..='Z' | '_' | '+' | '=' | '<' | '>' | '~' => 0.7,
        '\u{1100}'.. => 1.05,
        _ => 0.62,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::markup::escape;
    use proptest::prelude::*;

    #[test]
    fn texts_are_cut_to_fit() {
        let check = |text, pixels, expected: &str| assert_eq!(escape(&fit(text, pixels, 10.0)), expected);
        check("short", 60.0, "short");
        check(" one\n line ", 60.0, "one line");
        check("much too long a text", 60.0, "much too…");
        check("日本語日本語日本語", 60.0, "日本語日…");
        check("<<<<<<<<<", 60.0, "&lt;&lt;&lt;&lt;&lt;&lt;&lt;…");
        check("anything", 0.0, "…");
    }

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(wrapped("one two three", 50.0, 10.0), ["one two", "three"]);
        assert_eq!(wrapped("toolongforit", 5.0, 10.0), ["toolongforit"]);
    }

    proptest! {
        #[test]
        fn what_is_fitted_fits(text: String, pixels in 20.0..300.0) {
            prop_assert!(width(&fit(&text, pixels, 12.0), 12.0) <= pixels + 1e-9);
        }
    }
}
