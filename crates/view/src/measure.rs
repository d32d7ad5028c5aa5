//! Text that is safe in HTML, SVG and Markdown, and fits its box.

pub use lemon_trace::export::escape;

/// A text without characters that could make it look like another: control characters and marks that turn the reading
/// direction become `�`.
pub fn clean(text: &str) -> String {
    text.chars().map(clean_char).collect()
}

fn clean_char(char: char) -> char {
    match char {
        '\t' | '\n' | '\r' => char,
        '\0'..' ' | '\u{7f}'..'\u{a0}' | '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}' => '\u{fffd}',
        _ => char,
    }
}

/// Escapes a text for a cell of a Markdown table, on one line.
pub fn markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars().map(clean_char) {
        match char {
            '\t' | '\n' | '\r' => out.push(' '),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '|' | '*' | '`' | '\\' | '[' | ']' | '_' | '~' | '#' => out.extend(['\\', char]),
            _ => out.push(char),
        }
    }
    out
}

/// Escapes a text for one part of a fragment: `#a=…&b=…`.
pub fn fragment(text: &str) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(text.len());
    for byte in clean(text).bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte.into()),
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

/// At most `chars` characters; what was longer ends in `…`.
pub fn clip(text: &str, chars: usize) -> String {
    if text.chars().nth(chars).is_none() {
        return text.to_owned();
    }
    let mut clipped: String = text.chars().take(chars.saturating_sub(1)).collect();
    clipped.push('…');
    clipped
}

/// A text cut so that it fits `pixels` in a system font of this size. Not escaped.
pub fn fit(text: &str, pixels: f64, size: f64) -> String {
    if width(text, size) <= pixels {
        return text.to_owned();
    }
    let mut room = pixels - em('…') * size;
    let fits = |char: &char| {
        room -= em(*char) * size;
        room >= 0.0
    };
    let mut cut: String = text.chars().take_while(fits).collect();
    cut.push('…');
    cut
}

/// About how wide a text is.
pub fn width(text: &str, size: f64) -> f64 {
    text.chars().map(em).sum::<f64>() * size
}

/// About how wide a character is: system fonts differ, so rather too wide than too narrow.
fn em(char: char) -> f64 {
    match char {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.32,
        'f' | 'r' | 't' | '(' | ')' | '[' | ']' | '-' | '/' => 0.42,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' => 0.95,
        'A'..='Z' | '_' | '+' | '=' | '<' | '>' | '~' => 0.7,
        '\u{1100}'.. => 1.05,
        _ => 0.62,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes() {
        let check = |written: String, expected: &str| assert_eq!(written, expected);
        check(escape("a < b & \"c\" > 'd'"), "a &lt; b &amp; &quot;c&quot; &gt; &#39;d&#39;");
        check(escape("a\0b\u{202e}c\u{2066}\n"), "a\u{fffd}b\u{fffd}c\u{fffd}\n");
        check(markdown("a|b\n*c* <d>"), "a\\|b \\*c\\* &lt;d&gt;");
        check(fragment("vote-5 &b=ü"), "vote-5%20%26b%3D%C3%BC");
    }

    #[test]
    fn cuts() {
        let check = |written: String, expected: &str| assert_eq!(written, expected);
        check(clip("äöü", 3), "äöü");
        check(clip("äöüß", 3), "äö…");
        check(clip("a", 0), "…");
        check(fit("short", 60.0, 10.0), "short");
        check(fit("much too long a text", 60.0, 10.0), "much too…");
        check(fit("anything", 0.0, 10.0), "…");
    }

    proptest! {
        #[test]
        fn nothing_escaped_is_markup(text: String) {
            let marks = ['<', '>', '"', '\'', '\0', '\u{202e}'];
            prop_assert!(!escape(&text).contains(marks));
            let marks = ['<', '>', '\n', '\r', '\u{202e}'];
            prop_assert!(!markdown(&text).contains(marks));
            prop_assert!(fragment(&text).is_ascii());
        }

        #[test]
        fn what_is_fitted_fits(text: String, pixels in 20.0..300.0) {
            prop_assert!(width(&fit(&text, pixels, 12.0), 12.0) <= pixels + 1e-9);
        }
    }
}
