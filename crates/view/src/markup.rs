//! Text that is safe in HTML, SVG, Markdown and scripts.

use std::fmt::{self, Display, Formatter, Write};

/// Markup that this crate wrote. Every untrusted text in it is escaped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Markup(String);

impl Markup {
    /// Markup without an untrusted part. Only this crate writes any.
    pub(crate) fn trusted(markup: impl Into<String>) -> Markup {
        Markup(markup.into())
    }

    /// A text, escaped.
    pub fn text(text: &str) -> Markup {
        Markup(escape(text))
    }

    /// Adds what is safe as it is.
    pub(crate) fn push(&mut self, markup: impl Into<Markup>) {
        self.0.push_str(&markup.into().0);
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The markup as a string.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl Display for Markup {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl<T: Into<Markup>> FromIterator<T> for Markup {
    fn from_iter<I: IntoIterator<Item = T>>(parts: I) -> Markup {
        let mut all = Markup::default();
        parts.into_iter().for_each(|part| all.push(part));
        all
    }
}

/// Escapes what templates insert.
#[derive(Debug, Clone, Copy)]
pub struct PageEscaper;

impl askama::filters::Escaper for PageEscaper {
    fn write_escaped_str<W: Write>(&self, mut out: W, text: &str) -> fmt::Result {
        write_escaped(&mut out, text)
    }
}

/// Filters of the templates. Each module with a template imports them.
pub(crate) mod filters {
    use super::Markup;
    use askama::filters::Safe;

    /// Markup, however often it is borrowed.
    pub trait IsMarkup {}

    impl IsMarkup for Markup {}

    impl<T: IsMarkup> IsMarkup for &T {}

    /// Inserts markup as it is. Only [`Markup`] has this right: a string cannot pass.
    #[askama::filter_fn]
    pub fn markup<T: IsMarkup>(markup: T, _: &dyn askama::Values) -> askama::Result<Safe<T>> {
        // Nothing is left to escape.
        Ok(Safe(markup))
    }
}

/// Escapes a text for element content and quoted attributes. Characters that XML does not allow become `�`.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // Writing to a string cannot fail.
    let _ = write_escaped(&mut out, text);
    out
}

fn write_escaped(out: &mut impl Write, text: &str) -> fmt::Result {
    for char in text.chars() {
        match char {
            '&' => out.write_str("&amp;")?,
            '<' => out.write_str("&lt;")?,
            '>' => out.write_str("&gt;")?,
            '"' => out.write_str("&quot;")?,
            '\'' => out.write_str("&#39;")?,
            _ => out.write_char(clean_char(char))?,
        }
    }
    Ok(())
}

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
    let mut out = String::with_capacity(text.len());
    for byte in clean(text).bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte.into()),
            // Writing to a string cannot fail.
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

/// JSON for a script of a page. No text in it can end the script early: it has no `<`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptData(String);

impl ScriptData {
    /// JSON as it is, but for its `<`, which can only be inside of a string.
    pub fn from_json(json: &str) -> ScriptData {
        ScriptData(json.replace('<', "\\u003c"))
    }

    /// The JSON.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn markup(&self) -> Markup {
        Markup(self.0.clone())
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
        check(escape("a\0b\u{1b}c\u{202e}d\n"), "a\u{fffd}b\u{fffd}c\u{fffd}d\n");
        check(escape("a\0b\u{202e}c\u{2066}\n"), "a\u{fffd}b\u{fffd}c\u{fffd}\n");
        check(escape("\u{1b}\u{ffff}\n"), "\u{fffd}\u{fffd}\n");
        check(markdown("a|b\n*c* <d>"), "a\\|b \\*c\\* &lt;d&gt;");
        check(fragment("vote-5 &b=ü"), "vote-5%20%26b%3D%C3%BC");
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
    }

    /// A template may insert strings and [`Markup`], never a string unescaped.
    #[test]
    fn no_template_inserts_a_string_as_it_is() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
        for file in std::fs::read_dir(folder).unwrap() {
            let file = file.unwrap().path();
            let template = std::fs::read_to_string(&file).unwrap();
            assert!(!template.replace(' ', "").contains("|safe"), "{}: use the filter `markup`", file.display());
        }
    }
}
