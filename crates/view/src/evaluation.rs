//! An evaluation as one page: opens offline, loads nothing, in light and dark, on a desk, on a phone and on paper.
//!
//! Everything in it that came from a model, an item or a file is untrusted text. It reaches the markup only through
//! `markup::escape` and the script only as JSON without `<`; the script makes text of it, never markup.

use super::bars::bars;
use super::data;
use super::findings::{findings, partial, survives};
use super::items::{self, ItemDetail};
use super::markup::{clip, escape, fragment};
use super::scatter::scatter;
use super::tables::{self, Align, Cell, Table};
use super::words::{self, p_value, plural, points, range};
use crate::{Evaluation, PairReport, Report};
use lemon_trace::export::{COPY_JS, MARKDOWN_CSS};
use std::collections::HashMap;
use std::fmt::Write;

/// The page, without questions and replies.
pub fn html(report: &Report, evaluation: &Evaluation) -> String {
    html_with_items(report, evaluation, &[])
}

/// The page, with the question, the expected answer and the replies of some items.
pub fn html_with_items(report: &Report, evaluation: &Evaluation, details: &[ItemDetail]) -> String {
    let title = words::title(&report.set_up);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{}{MARKDOWN_CSS}</style>\n</head>\n<body>\n",
        escape(&clip(&format!("{} – {title}", report.set_up.eval_id), 200)),
        include_str!("page.css"),
    );
    let together = "How the agents worked together, by trace length";
    let mut sections = vec![
        ("methods", "Methods", "Methods", table(&tables::methods(&report.methods), "What each method achieved")),
        ("front", "Accuracy and tokens", "Accuracy against tokens", front(report)),
        ("sets", "Sets", "Accuracy on each set", sets(report)),
        ("pairs", "Pairs", "Methods against each other", pairs(report)),
    ];
    if !details.is_empty() {
        let body = items::items(details, report.set_up.items);
        sections.push(("replies", "Questions", "Questions, expected answers and replies", body));
    }
    sections.extend([
        ("compare", "Compare two", "What one got right that the other did not", compare()),
        ("items", "All runs", "All runs, by item", browse(evaluation)),
        ("together", "Working together", together, table(&tables::bands(&report.methods), together)),
        (
            "ends",
            "Ends",
            "How the runs ended",
            table(&tables::ends(&report.methods), "How the runs ended") + &learned(evaluation),
        ),
    ]);
    let names: Vec<(&str, &str)> = sections.iter().map(|(id, name, ..)| (*id, *name)).collect();
    headline(&mut page, report, &title, &names);
    page.push_str("<main>\n");
    for (id, _, title, body) in &sections {
        let _ = write!(page, "<section id=\"{id}\">\n<h2>{title}</h2>\n{body}</section>\n");
    }
    let _ = write!(
        page,
        "</main>\n<dialog id=\"run\" aria-labelledby=\"run-title\"><div></div></dialog>\n\
         <script type=\"application/json\" id=\"data\">{}</script>\n<script>\n{}{COPY_JS}</script>\n</body>\n</html>\n",
        data::json(evaluation),
        include_str!("page.js"),
    );
    page
}

fn headline(page: &mut String, report: &Report, title: &str, sections: &[(&str, &str)]) {
    let _ = write!(
        page,
        "<header>\n<p class=\"run\"><b>LEMON</b> {}</p>\n<h1>{}</h1>\n<div class=\"findings\">",
        escape(&words::set_up(&report.set_up).join(" · ")),
        escape(title)
    );
    let partial = partial(report);
    for finding in findings(report) {
        let class = if Some(&finding) == partial.as_ref() { " class=\"partial\"" } else { "" };
        let _ = write!(page, "<p{class}>{}</p>", escape(&finding));
    }
    page.push_str("</div>\n</header>\n<nav aria-label=\"Sections\"><div>");
    for (id, name) in sections {
        let _ = write!(page, "<a href=\"#{id}\">{name}</a>");
    }
    page.push_str("</div></nav>\n");
}

fn table(table: &Table, label: &str) -> String {
    if table.rows.is_empty() {
        return "<p class=\"hint\">Nothing to show.</p>\n".to_owned();
    }
    let mut html =
        format!("<div class=\"scroll\" tabindex=\"0\"><table class=\"sortable\" aria-label=\"{label}\">\n<thead><tr>");
    for column in &table.columns {
        let _ = write!(
            html,
            "<th scope=\"col\"{}><button type=\"button\">{}</button></th>",
            class(column.align, false),
            column.name
        );
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        html.push_str("<tr>");
        for (place, (cell, column)) in row.iter().zip(&table.columns).enumerate() {
            cell_of(&mut html, cell, column.align, place == 0);
        }
        html.push_str("</tr>\n");
    }
    let _ = write!(html, "</tbody></table></div>\n<p class=\"hint\">{}</p>\n", escape(&table.caption));
    html
}

fn cell_of(html: &mut String, cell: &Cell, align: Align, is_head: bool) {
    let (tag, scope) = if is_head { ("th", " scope=\"row\"") } else { ("td", "") };
    let value = cell.value.map_or_else(String::new, |value| format!(" data-v=\"{value}\""));
    let note = cell.note.as_ref().map_or_else(String::new, |note| format!("<small>{}</small>", escape(note)));
    let _ = write!(html, "<{tag}{scope}{}{value}>{}{note}</{tag}>", class(align, cell.strong), escape(&cell.text));
}

fn class(align: Align, strong: bool) -> &'static str {
    match (align, strong) {
        (Align::Left, false) => "",
        (Align::Left, true) => " class=\"strong\"",
        (Align::Right, false) => " class=\"n\"",
        (Align::Right, true) => " class=\"n strong\"",
    }
}

/// Twice, drawn for a desk and for a phone; the style shows one.
fn front(report: &Report) -> String {
    let front =
        key(40, "<path class=\"stair\" d=\"M0 6H40\"/><circle class=\"point front\" cx=\"20\" cy=\"6\" r=\"5\"/>");
    let other = key(
        24,
        "<path class=\"whisker\" d=\"M1 6H23M1 3v6M23 3v6\"/><circle class=\"point\" cx=\"12\" cy=\"6\" r=\"5\"/>",
    );
    format!(
        "{}{}<p class=\"hint\">{front} on the front: no other method is as accurate for fewer tokens, or more accurate \
         for as many. {other} not on it. Lines are 95 % intervals.</p>\n",
        scatter(&report.methods, "wide", 1080.0, 430.0),
        scatter(&report.methods, "narrow", 358.0, 380.0),
    )
}

/// A sign of a picture beside its meaning.
fn key(width: u32, sign: &str) -> String {
    format!("<svg class=\"key\" viewBox=\"0 0 {width} 12\" aria-hidden=\"true\">{sign}</svg>")
}

fn sets(report: &Report) -> String {
    let mut html = String::from("<div class=\"charts\">\n");
    if report.sets.is_empty() {
        let set = report.set_up.sets.first().map_or("all items", String::as_str);
        figure(&mut html, set, &bars(set, &report.methods), "");
    }
    for set in &report.sets {
        let numbers = table(&tables::methods(&set.methods), "What each method came to on this set");
        let numbers = format!("<details><summary>All numbers</summary>{numbers}</details>");
        figure(&mut html, &set.set, &bars(&set.set, &set.methods), &numbers);
    }
    let _ = writeln!(
        html,
        "</div>\n<p class=\"hint\">{} correct, on the front (bold); {} correct, not on it; {} its 95 % interval; {} \
         correct by the legacy rule. In percent.</p>",
        key(24, "<rect class=\"bar front\" y=\"1\" width=\"24\" height=\"10\"/>"),
        key(24, "<rect class=\"bar\" y=\"1\" width=\"24\" height=\"10\"/>"),
        key(24, "<path class=\"whisker over\" d=\"M1 6H23M1 3v6M23 3v6\"/>"),
        key(12, "<path class=\"legacy\" d=\"M6 1.5l4.5 4.5-4.5 4.5-4.5-4.5z\"/>"),
    );
    html
}

fn figure(html: &mut String, name: &str, picture: &str, below: &str) {
    let _ = writeln!(html, "<figure><figcaption>{}</figcaption>{picture}{below}</figure>", escape(name));
}

/// Each against each at a glance, then all the numbers.
fn pairs(report: &Report) -> String {
    if report.pairs.is_empty() {
        return "<p class=\"hint\">One method has nothing to be compared with.</p>\n".to_owned();
    }
    let mut html = matrix(report);
    let numbers = table(&tables::pairs(&report.pairs), "Every pair of methods");
    let _ = writeln!(
        html,
        "<details><summary>All numbers of {}</summary>{numbers}</details>",
        plural(report.pairs.len(), "pair")
    );
    html
}

fn matrix(report: &Report) -> String {
    let by_name: HashMap<(&str, &str), &PairReport> =
        report.pairs.iter().map(|pair| ((pair.a.as_str(), pair.b.as_str()), pair)).collect();
    let mut html = String::from(
        "<div class=\"scroll\" tabindex=\"0\"><table class=\"matrix\" aria-label=\"Differences in accuracy\">\n<thead><tr>\
         <th scope=\"col\">points</th>",
    );
    for method in &report.methods {
        let _ = write!(html, "<th scope=\"col\" class=\"n\">− {}</th>", escape(&clip(&method.method, 24)));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in &report.methods {
        let _ = write!(html, "<tr><th scope=\"row\">{}</th>", escape(&clip(&row.method, 24)));
        for column in &report.methods {
            let (a, b) = (row.method.as_str(), column.method.as_str());
            match (by_name.get(&(a, b)), by_name.get(&(b, a))) {
                (Some(pair), _) => difference(&mut html, pair, a, b, 1.0),
                (None, Some(pair)) => difference(&mut html, pair, a, b, -1.0),
                (None, None) => html.push_str("<td class=\"n\"></td>"),
            }
        }
        html.push_str("</tr>\n");
    }
    html.push_str(
        "</tbody></table></div>\n<p class=\"hint\">Accuracy of the row less that of the column, in points, and p after \
         Holm’s correction over all pairs. Marked and bold: it survives at 5 %. Choose a cell to see which items made the \
         difference.</p>\n",
    );
    html
}

fn difference(html: &mut String, pair: &PairReport, a: &str, b: &str, sign: f64) {
    let [low, high] = pair.interval.map(|end| end * sign);
    let class = match survives(pair) {
        false => "n",
        true if pair.difference * sign >= 0.0 => "n strong better",
        true => "n strong worse",
    };
    let _ = write!(
        html,
        "<td class=\"{class}\"><a href=\"#a={}&amp;b={}\" title=\"{} less {}: {} points\">{}<small>p {}</small></a></td>",
        fragment(a),
        fragment(b),
        escape(a),
        escape(b),
        range(&points(low.min(high)), &points(low.max(high))),
        points(pair.difference * sign),
        escape(&p_value(pair.holm_p))
    );
}

/// The script fills it in.
fn compare() -> String {
    "<noscript><p class=\"hint\">The lists of runs need JavaScript; the counts are in the table of pairs.</p></noscript>\n\
     <div class=\"live\"><p class=\"choose\"><label>A <select id=\"a\"></select></label>\
     <label>B <select id=\"b\"></select></label></p>\n\
     <div id=\"groups\" role=\"group\" aria-label=\"Who was right\"></div>\n\
     <div id=\"differing\" aria-live=\"polite\"></div></div>\n"
        .to_owned()
}

/// The script fills it in.
fn browse(evaluation: &Evaluation) -> String {
    format!(
        "<noscript><p class=\"hint\">Browsing items needs JavaScript.</p></noscript>\n\
         <div class=\"live\"><p class=\"choose\"><label>Search <input type=\"search\" id=\"query\" \
         placeholder=\"Item or run id\" autocomplete=\"off\"></label>\
         <label><input type=\"checkbox\" id=\"split\"> only where methods differ</label>\
         <output id=\"found\"></output></p>\n\
         <div id=\"list\"></div>\n<p class=\"hint\">{} in all. Choose a result to see its run.</p></div>\n",
        plural(evaluation.rows.len(), "run")
    )
}

/// What the methods that learn arrived at.
fn learned(evaluation: &Evaluation) -> String {
    let mut html = String::new();
    for training in &evaluation.training {
        let _ = writeln!(
            html,
            "<details><summary>What {} learned beforehand, in {} and {}</summary><pre>{}</pre></details>",
            escape(&training.method),
            plural(usize::try_from(training.runs).unwrap_or(usize::MAX), "run"),
            plural(usize::try_from(training.tokens).unwrap_or(usize::MAX), "token"),
            escape(&training.spec)
        );
    }
    html
}
