//! Text that is safe inside XML and HTML, and fits its box.

/// Escapes a text for element content and quoted attributes. Characters that XML does not allow become `�`.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(char),
            '\0'..' ' | '\u{7f}'..'\u{a0}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            // Marks that turn the reading direction could make a text look like another.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}' => {
                out.push('\u{fffd}');
            }
            _ => out.push(char),
        }
    }
    out
}

/// The first line of a text, cut so that it fits `pixels` in a system font of this size, and escaped.
pub fn fit(text: &str, pixels: f64, size: f64) -> String {
    let first = crate::text::line(text, 400);
    let mut width = 0.0;
    let mut fitting = 0;
    for (place, char) in first.char_indices() {
        width += em(char) * size;
        if width + em('…') * size <= pixels {
            fitting = place + char.len_utf8();
        }
    }
    // `fitting` is the end of a character.
    let cut = if width <= pixels { first } else { format!("{}…", first[..fitting].trim_end()) };
    escape(&cut)
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
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' => 0.92,
        'A'..='Z' | '_' | '+' | '=' | '<' | '>' | '~' => 0.7,
        '\u{1100}'.. => 1.05,
        _ => 0.58,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes() {
        let check = |text, expected: &str| assert_eq!(escape(text), expected);
        check("a < b & \"c\" > 'd'", "a &lt; b &amp; &quot;c&quot; &gt; &#39;d&#39;");
        check("a\0b\u{1b}c\u{202e}d\n", "a\u{fffd}b\u{fffd}c\u{fffd}d\n");
    }

    #[test]
    fn fits() {
        let check = |text, pixels, expected: &str| assert_eq!(fit(text, pixels, 10.0), expected);
        check("short", 60.0, "short");
        check("much too long a text", 60.0, "much too…");
        check("日本語日本語日本語", 60.0, "日本語日…");
        check("<<<<<<<<<", 60.0, "&lt;&lt;&lt;&lt;&lt;&lt;&lt;…");
        check("anything", 0.0, "…");
    }

    proptest! {
        #[test]
        fn nothing_escaped_is_markup(text: String) {
            let escaped = escape(&text);
            prop_assert!(!escaped.contains(['<', '>', '"', '\'', '\0']));
        }
    }
}
