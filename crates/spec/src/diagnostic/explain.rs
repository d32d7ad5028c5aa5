//! Diagnostics for people.

use super::{Diagnostic, Severity, words::is_invisible};
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

/// The bytes of the longest line that is shown; the renderer keeps what it shows of it within a terminal's width.
const MAX_LINE_BYTES: usize = 32 * 1024;

/// The most characters that are underlined.
const MAX_MARKED_CHARS: usize = 60;

/// Renders diagnostics for people: code, place, the line itself with a caret, and the hint.
pub fn explain(diagnostics: &[Diagnostic], source: &str, name: &str, color: bool) -> String {
    let renderer = if color { Renderer::styled() } else { Renderer::plain() };
    let name = harmless(name);
    let blocks = diagnostics.iter().map(|diagnostic| explain_one(diagnostic, source, &name, &renderer) + "\n");
    blocks.collect::<Vec<_>>().join("\n")
}

fn explain_one(diagnostic: &Diagnostic, source: &str, name: &str, renderer: &Renderer) -> String {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let mut group = Group::with_title(level.primary_title(harmless(&diagnostic.message)).id(diagnostic.code.as_str()));
    group = match Excerpt::of(diagnostic, source) {
        Some(excerpt) => group.element(
            Snippet::source(excerpt.line)
                .path(name)
                .line_start(diagnostic.line)
                .annotation(AnnotationKind::Primary.span(excerpt.start..excerpt.end)),
        ),
        None => group.element(Origin::path(name).line(diagnostic.line).char_column(diagnostic.column)),
    };
    if let Some(hint) = &diagnostic.hint {
        group = group.element(Level::HELP.message(harmless(hint)));
    }
    renderer.render(&[group])
}

/// The line a diagnostic begins on, and the marked bytes of it.
struct Excerpt {
    line: String,
    start: usize,
    end: usize,
}

impl Excerpt {
    /// Cuts the line out here, because the renderer would go through the whole text for each diagnostic.
    fn of(diagnostic: &Diagnostic, source: &str) -> Option<Excerpt> {
        let start = source.floor_char_boundary(diagnostic.span.start);
        let line_start = source[..start].rfind('\n').map_or(0, |end| end + 1);
        let line_end = source[start..].find('\n').map_or(source.len(), |length| start + length);
        if line_end - line_start > MAX_LINE_BYTES {
            return None;
        }
        let end = source.ceil_char_boundary(diagnostic.span.end).clamp(start, line_end);
        let marked = &source[start..end];
        let marked = marked.char_indices().nth(MAX_MARKED_CHARS).map_or(marked, |(length, _)| &marked[..length]);

        let mut line = harmless(&source[line_start..start]);
        let mark_start = line.len();
        line.push_str(&harmless(marked));
        let mark_end = line.len();
        line.push_str(&harmless(source[start + marked.len()..line_end].trim_end()));
        Some(Excerpt { line, start: mark_start, end: mark_end })
    }
}

/// One line of text in which nothing can move the cursor, colour the terminal or reverse the writing.
fn harmless(text: &str) -> String {
    let shown = |character: char| match character {
        '\t' => ' ',
        character if character.is_control() || is_invisible(character) => '\u{fffd}',
        character => character,
    };
    text.chars().map(shown).collect()
}
