//! Syntax errors in words a person understands.

use crate::Span;
use crate::diagnostic::{Code, Faults};

/// Reports the scanner's complaint about the byte at `at`; `opened` is where the innermost open bracket stands.
pub(super) fn report(text: &str, at: usize, opened: Option<usize>, complaint: &str, faults: &mut Faults) {
    let rest = text.get(at..).unwrap_or_default();
    let (code, fact, hint) = match rest.starts_with("```") {
        true => (Code::Syntax, "a code fence is not part of a specification", "give only the text between the fences"),
        false => in_plain_words(complaint),
    };
    let at = match opened {
        // The end of the text says little; the bracket that was never closed says more.
        Some(opened) if rest.trim_ascii().is_empty() => opened,
        // The scanner points at the value before the tab.
        _ if complaint.contains("found a tab") => at + rest.find("\n\t").map_or(0, |end| end + 1),
        _ => at,
    };
    let next = text.get(at..).and_then(|rest| rest.chars().next()).filter(|next| *next != '\n' && *next != '\r');
    let span = Span { start: at, end: at + next.map_or(0, char::len_utf8) };
    faults.error(code, span, fact, Some(hint.to_owned()));
}

/// The scanner speaks in terms of the YAML grammar; the author wants to know what to change.
fn in_plain_words(complaint: &str) -> (Code, &'static str, &'static str) {
    let has = |part: &str| complaint.contains(part);
    if has("unknown anchor") || has("anchor or alias") {
        return (
            Code::Anchor,
            "aliases are not part of the language",
            "put the value in quotes if it begins with `*` or `&`",
        );
    }
    if has("tag") || has("TAG") || has("handle wasn't declared") {
        return (Code::Tag, "tags are not part of the language", "put the value in quotes if it begins with `!`");
    }
    if has("recursion limit") {
        return (Code::NestedTooDeep, "nested too deep", "a specification needs four levels");
    }
    let (fact, hint) = match () {
        () if has("mapping values are not allowed") || has("illegal placement of ':'") => (
            "a `:` is not possible here",
            "put a text that contains `: ` in quotes, and check the keys above and their indentation",
        ),
        () if has("quoted scalar, found unexpected") => ("this quotation mark is never closed", "close the quotes"),
        () if has("escape") || has("hexadecimal") => {
            ("the quoted text has an escape that does not exist", r"write `\\` for a backslash, or use single quotes")
        }
        () if has("trailing content after") => {
            ("text follows after the closing quotation mark", r#"write `\"` for a quotation mark within the quotes"#)
        }
        () if has("tab") => ("a tab is used for indentation", "indent with spaces"),
        () if has("flow sequence") => {
            ("a list `[…]` is not closed or lacks a comma", "separate with `,` and close with `]`")
        }
        () if has("flow mapping") => {
            ("a mapping `{…}` is not closed or lacks a comma", "separate with `,` and close with `}`")
        }
        () if has("misplaced bracket") => {
            ("a closing bracket without an opening one", "remove it or put the text in quotes")
        }
        () if has("expected key")
            || has("simple key")
            || has("expected '-'")
            || has("indentation")
            || has("indented") =>
        {
            (
                "this line does not fit the lines around it",
                "check its indentation, and that each key is followed by `: `",
            )
        }
        () if has("not allowed in this context") || has("only valid inside a block") => {
            ("a list entry or key is not possible here", "begin it on a line of its own, indented like its neighbours")
        }
        () if has("unexpected character") || has("expected node content") || has("plain scalar") => {
            ("a value cannot begin like this", "put a text in quotes, and close a bracket that was opened")
        }
        () if has("byte order mark") || has("unprintable") => ("an invisible character stands here", "remove it"),
        () if has("comment") => ("a comment is not possible here", "put a text that contains ` #` in quotes"),
        () if has("directive") || has("document") => {
            ("a line that begins with `%`, `---` or `...` is out of place", "remove it")
        }
        () => ("this is not YAML", "put texts with special characters in quotes"),
    };
    (Code::Syntax, fact, hint)
}
