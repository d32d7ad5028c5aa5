//! Markdown of a model as markup, with a small, fixed set of tags and none of the text's own.
//!
//! A parser for Markdown reads the text; this module writes the tags. HTML in the text stays text, pictures are never loaded,
//! and a link goes to `http` and `https` only, with the host it leads to beside it.

use crate::markup::{Markup, escape};
use lemon_trace::text;
use pulldown_cmark::{Alignment, CodeBlockKind, CowStr, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd};

/// Longer texts are shown as they are written, so that the time stays bounded.
const MOST_RENDERED: usize = 200_000;
/// Longer texts are cut on the page; the trace has them whole.
const MOST_SHOWN: usize = 1_000_000;
/// Elements inside of one another; what is deeper loses its frame and keeps its text.
const DEEPEST: usize = 24;

/// The text as an `article` element.
pub fn markdown(source: &str) -> Markup {
    let mut html = String::with_capacity(source.len() + source.len() / 4 + 64);
    html.push_str("<article class=\"md\">\n");
    if source.len() > MOST_RENDERED {
        plain(&mut html, source);
    } else if let Some(language) = program(source) {
        code_begins(&mut html, language);
        html.push_str(&escape(source.trim_end()));
        html.push_str(CODE_ENDS);
    } else {
        let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
        let mut writer = Writer { html, ..Writer::default() };
        Parser::new_ext(source, options).for_each(|event| writer.event(event));
        html = writer.html;
    }
    html.push_str("</article>\n");
    Markup::trusted(html)
}

/// Whether a text is one short line without any mark-up of its own, so that it can be shown large.
pub fn is_short(source: &str) -> bool {
    let source = source.trim();
    let is_line = !source.is_empty() && !source.contains('\n') && source.chars().nth(120).is_none();
    let options = Options::ENABLE_TABLES;
    is_line
        && Parser::new_ext(source, options)
            .all(|event| matches!(event, Event::Start(Tag::Paragraph) | Event::End(TagEnd::Paragraph) | Event::Text(_)))
}

/// A text as it is written, cut where it is longer than a page can take.
fn plain(html: &mut String, source: &str) {
    let end = (0..=MOST_SHOWN.min(source.len())).rev().find(|at| source.is_char_boundary(*at)).unwrap_or(0);
    html.push_str(&format!("<pre>{}</pre>\n", escape(&source[..end])));
    if end < source.len() {
        let left = text::count((source.len() - end) as u64);
        html.push_str(&format!("<p>… {left} more bytes are in the trace and not on this page.</p>\n"));
    }
}

/// The language of a text that is a program or JSON as a whole, without a fence. Read as Markdown, its comments would become
/// headings.
fn program(source: &str) -> Option<&'static str> {
    const BEGINNINGS: [(&str, &str); 19] = [
        ("def ", "python"),
        ("class ", "python"),
        ("import ", "python"),
        ("from ", "python"),
        ("async def ", "python"),
        ("@", "python"),
        ("#!/", "sh"),
        ("#include", "c"),
        ("#define ", "c"),
        ("fn ", "rust"),
        ("pub fn ", "rust"),
        ("use std::", "rust"),
        ("function ", "javascript"),
        ("const ", "javascript"),
        ("public class ", "java"),
        ("package ", "go"),
        ("<?xml", "xml"),
        ("<!doctype html", "html"),
        ("<html", "html"),
    ];
    let text = source.trim_start();
    if source.contains("```") {
        return None;
    }
    if text.starts_with(['{', '[']) && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() {
        return Some("json");
    }
    let head: String = text.chars().take(40).collect::<String>().to_lowercase();
    let (_, language) = BEGINNINGS.iter().find(|(beginning, _)| head.starts_with(beginning))?;
    // "From here on we count" and "Class A is better" are prose: a program has lines that only a program has.
    let marks = |line: &str| {
        let line = line.trim_end();
        let imports = line.starts_with("import ") && line.split_whitespace().count() <= 4;
        imports || line.contains(" import ") || line.contains(" = ") || line.ends_with([':', '{', ';', '}', ')', '>'])
    };
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let first_is_code = lines.first().is_some_and(|line| marks(line));
    (first_is_code && lines.iter().filter(|line| marks(line)).count() * 3 >= lines.len()).then_some(language)
}

const CODE_ENDS: &str = "</code></pre></div>\n";

fn code_begins(html: &mut String, language: &str) {
    let word = language.split([' ', ',', '{']).next().unwrap_or_default();
    html.push_str(&format!(
        "<div class=\"code\"><p><span>{}</span><button type=\"button\" class=\"copy\">Copy</button></p><pre><code>",
        escape(&text::line(word, 24))
    ));
}

/// Turns events into tags. Every tag it opens is on the stack until it is closed.
#[derive(Default)]
struct Writer {
    html: String,
    /// What closes each open element: empty for one that is too deep to have a frame.
    open: Vec<String>,
    /// The columns of the table that is being written.
    columns: Vec<Alignment>,
    column: usize,
    in_head: bool,
    /// Whether that table has a frame, so that its rows may have theirs.
    in_table: bool,
}

impl Writer {
    fn event(&mut self, event: Event) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.text(&text),
            Event::Code(text) => self.wrapped("code", &text),
            Event::InlineMath(text) | Event::DisplayMath(text) => self.wrapped("code", &text),
            Event::FootnoteReference(name) => self.text(&name),
            Event::SoftBreak | Event::HardBreak => self.html.push_str("<br>\n"),
            Event::Rule => self.html.push_str("<hr>\n"),
            Event::TaskListMarker(done) => self.html.push_str(if done { "☑ " } else { "☐ " }),
        }
    }

    fn text(&mut self, text: &str) {
        self.html.push_str(&escape(text));
    }

    fn wrapped(&mut self, tag: &str, text: &str) {
        self.html.push_str(&format!("<{tag}>{}</{tag}>", escape(text)));
    }

    fn start(&mut self, tag: Tag) {
        let framed = match tag {
            Tag::CodeBlock(_) => true,
            Tag::TableHead | Tag::TableRow | Tag::TableCell => self.in_table,
            _ => self.open.len() < DEEPEST,
        };
        let (begin, end) = if framed { self.frame(tag) } else { Default::default() };
        self.html.push_str(&begin);
        self.open.push(end);
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::CodeBlock => self.html.truncate(self.html.trim_end_matches('\n').len()),
            TagEnd::Table => self.in_table = false,
            TagEnd::TableCell => self.column += 1,
            TagEnd::TableHead => self.in_head = false,
            _ => {}
        }
        let end = self.open.pop().unwrap_or_default();
        self.html.push_str(&end);
    }

    /// The markup before and after an element's content.
    fn frame(&mut self, tag: Tag) -> (String, String) {
        let simple = |name: &str, line: &str| (format!("<{name}>"), format!("</{name}>{line}"));
        match tag {
            Tag::Paragraph => simple("p", "\n"),
            // A text's HTML is shown as it is written.
            Tag::HtmlBlock | Tag::MetadataBlock(_) => ("<p class=\"raw\">".into(), "</p>\n".into()),
            Tag::Heading { level, .. } => simple(heading(level), "\n"),
            Tag::BlockQuote(_) => simple("blockquote", "\n"),
            Tag::CodeBlock(kind) => {
                let language = match &kind {
                    CodeBlockKind::Fenced(language) => language,
                    CodeBlockKind::Indented => "",
                };
                let mut begin = String::new();
                code_begins(&mut begin, language);
                (begin, CODE_ENDS.into())
            }
            Tag::List(None) => simple("ul", "\n"),
            Tag::List(Some(1)) => simple("ol", "\n"),
            Tag::List(Some(first)) => (format!("<ol start=\"{}\">", first.min(999_999_999)), "</ol>\n".into()),
            Tag::Item => simple("li", "\n"),
            Tag::Emphasis => simple("em", ""),
            Tag::Strong => simple("strong", ""),
            Tag::Strikethrough => simple("s", ""),
            Tag::Link { link_type, dest_url, .. } => link(link_type, &dest_url),
            // Never loaded: what it is called stands for it.
            Tag::Image { dest_url, .. } => ("<span>picture: ".into(), format!("{}</span>", target(&dest_url))),
            Tag::Table(columns) => {
                (self.columns, self.in_table) = (columns, true);
                ("<div class=\"wide\"><table>".into(), "</tbody></table></div>\n".into())
            }
            Tag::TableHead => {
                (self.column, self.in_head) = (0, true);
                ("<thead><tr>".into(), "</tr></thead>\n<tbody>".into())
            }
            Tag::TableRow => {
                self.column = 0;
                simple("tr", "\n")
            }
            Tag::TableCell => {
                let name = if self.in_head { "th" } else { "td" };
                let class = match self.columns.get(self.column) {
                    Some(Alignment::Right) => " class=\"n\"",
                    Some(Alignment::Center) => " class=\"c\"",
                    _ => "",
                };
                (format!("<{name}{class}>"), format!("</{name}>"))
            }
            // Not switched on; their texts are shown.
            _ => Default::default(),
        }
    }
}

/// The page's own headings come above those of a text.
fn heading(level: HeadingLevel) -> &'static str {
    match level {
        HeadingLevel::H1 => "h3",
        HeadingLevel::H2 => "h4",
        HeadingLevel::H3 => "h5",
        _ => "h6",
    }
}

/// A link to the web has its host beside it, so that its text cannot pretend to lead elsewhere. Any other is text.
fn link(kind: LinkType, url: &CowStr) -> (String, String) {
    let Some(host) = host(url) else { return (String::new(), target(url)) };
    let shown = match kind {
        LinkType::Autolink => String::new(),
        _ => format!(" <small>({})</small>", escape(&text::line(host, 60))),
    };
    (format!("<a href=\"{}\" rel=\"noopener noreferrer nofollow\">", escape(url)), format!("</a>{shown}"))
}

/// Where something leads to, as text.
fn target(url: &str) -> String {
    match url {
        "" => String::new(),
        url => format!(" ({})", escape(&text::line(url, 200))),
    }
}

/// The host of an address that a link may have.
fn host(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    let is_web = ["http", "https"].iter().any(|web| scheme.eq_ignore_ascii_case(web));
    let is_clean = url.chars().all(|char| !char.is_control() && !char.is_whitespace() && char != '\\');
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    (is_web && is_clean && !host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests;
