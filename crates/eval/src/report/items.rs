//! Single items for readers: the question, the expected answer, and what each method replied.

use super::markup::{clip, escape};
use super::words::plural;
use crate::{Case, Evaluation, Row};
use lemon_task::{Item, Key};
use lemon_trace::export::markdown;
use lemon_trace::{EventKind, Trace};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Items on a page.
pub const MOST_ITEMS: usize = 40;
/// Longer questions and replies are cut on the page; the traces have them whole.
const MOST_CHARS: usize = 6_000;
/// Longer replies are closed at first.
const SHORT_REPLY: usize = 600;

/// An item as the page shows it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ItemDetail {
    /// The set and split.
    pub set: String,
    /// The item's id.
    pub item_id: String,
    /// What was asked.
    pub question: String,
    /// The right answer.
    pub expected: String,
    /// What each method replied.
    pub replies: Vec<ReplyDetail>,
}

/// What a method replied to an item.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReplyDetail {
    /// The method.
    pub method: String,
    /// The run.
    pub run_id: String,
    /// Whether its answer is right.
    pub right: bool,
    /// The answer that the grader read in the reply.
    pub answer: Option<String>,
    /// The reply; `None`: there is none on record.
    pub text: Option<String>,
    /// The address of the run's page from where this page lies, where there is one.
    pub page: Option<String>,
}

/// The runs of the items to show, one run a method: items on which methods differ first.
pub fn chosen(evaluation: &Evaluation) -> Vec<Vec<&Row>> {
    let set_of = |row: &Row| evaluation.set_up.sets.iter().position(|set| **set == *row.set);
    let mut items: BTreeMap<(Option<usize>, &str, usize), Vec<&Row>> = BTreeMap::new();
    for row in &evaluation.rows {
        let rows = items.entry((set_of(row), &row.set, row.item)).or_default();
        // One seed is enough to read; rows come in the order of seeds.
        if rows.iter().all(|other| other.method != row.method) {
            rows.push(row);
        }
    }
    let differs = |rows: &[&Row]| rows.iter().any(|row| rows.first().is_some_and(|first| first.right != row.right));
    let (mut first, rest): (Vec<_>, Vec<_>) = items.into_values().partition(|rows| differs(rows));
    first.extend(rest);
    first.truncate(MOST_ITEMS);
    first
}

impl ItemDetail {
    /// What is asked and expected in a case.
    pub fn new(case: &Case) -> ItemDetail {
        ItemDetail {
            set: case.set.to_string(),
            item_id: case.item.task.id.clone(),
            question: clip(&case.item.task.question, MOST_CHARS),
            expected: clip(&expected(&case.item), MOST_CHARS),
            replies: Vec::new(),
        }
    }
}

impl ReplyDetail {
    /// What a run replied: the reply of the agent whose answer was taken, or the answer where no reply is on record.
    pub fn new(row: &Row, trace: Option<&Trace>) -> ReplyDetail {
        ReplyDetail {
            method: row.method.to_string(),
            run_id: row.run_id.clone(),
            right: row.right,
            answer: row.answer.as_deref().map(str::to_owned),
            text: trace.and_then(reply_of).map(|text| clip(&text, MOST_CHARS)),
            page: None,
        }
    }
}

fn reply_of(trace: &Trace) -> Option<String> {
    let summary = trace.summary();
    let chosen = trace.events.iter().rev().find_map(|event| match &event.kind {
        EventKind::Aggregate { chosen, .. } => chosen.as_deref(),
        _ => None,
    });
    let reply = chosen.and_then(|id| summary.agent(id)).and_then(|agent| agent.reply.clone());
    reply.or_else(|| summary.answer.clone())
}

fn expected(item: &Item) -> String {
    match item.key() {
        Key::Number(number) => number,
        Key::Text(text) => text.to_owned(),
        Key::Choice { options, answer } => {
            let letter =
                u8::try_from(answer).ok().filter(|place| *place < 26).map_or('?', |place| (b'A' + place).into());
            let option = options.get(answer).map_or("", String::as_str);
            format!("{letter}: {option}")
        }
        Key::Code { entry_point, solution: None, .. } => format!("a function `{entry_point}` that passes the tests"),
        Key::Code { prompt, solution: Some(solution), .. } => format!("```python\n{prompt}{solution}\n```"),
    }
}

/// The section: every item closed, so that a reader sees which there are.
pub(super) fn items(details: &[ItemDetail], all: usize) -> String {
    let mut html = String::new();
    for item in details {
        let marks: String = item
            .replies
            .iter()
            .map(|reply| {
                format!("<span class=\"{}\">{}</span> ", verdict(reply.right), escape(&clip(&reply.method, 60)))
            })
            .collect();
        let _ = write!(
            html,
            "<details class=\"item\"><summary><b>{}</b> <small>{}</small> <span class=\"asked\">{}</span>\
             <span class=\"marks\">{marks}</span></summary>\n<div class=\"body\"><h3>Question</h3>\
             <p class=\"text\">{}</p><h3>Expected answer</h3>{}",
            escape(&clip(&item.item_id, 80)),
            escape(&clip(&item.set, 80)),
            escape(&clip(item.question.lines().find(|line| !line.trim().is_empty()).unwrap_or_default(), 160)),
            escape(&item.question),
            markdown(&item.expected),
        );
        item.replies.iter().for_each(|item| reply(&mut html, item));
        html.push_str("</div></details>\n");
    }
    let _ = writeln!(
        html,
        "<p class=\"hint\">{} of {}: those on which methods differ come first, with one run for each method. \
         <code>lemon trace show RUN</code> shows any other.</p>",
        plural(details.len(), "item"),
        super::words::number(all as f64)
    );
    html
}

fn verdict(right: bool) -> &'static str {
    if right { "right" } else { "wrong" }
}

fn reply(html: &mut String, reply: &ReplyDetail) {
    let is = verdict(reply.right);
    let page = match &reply.page {
        Some(page) => format!(" <a href=\"{}\">the run’s page</a>", escape(page)),
        None => format!(" <small>{}</small>", escape(&clip(&reply.run_id, 80))),
    };
    let answer = match &reply.answer {
        Some(answer) => format!("answer: {}", escape(&clip(answer, 120))),
        None => "no answer".to_owned(),
    };
    let text = reply.text.as_deref().unwrap_or_default();
    let is_open = text.chars().nth(SHORT_REPLY).is_none();
    let _ = write!(
        html,
        "<details class=\"reply\"{}><summary><b>{}</b> <span class=\"{is}\">{is}</span> <small>{answer}</small>{page}</summary>{}</details>",
        if is_open { " open" } else { "" },
        escape(&clip(&reply.method, 60)),
        match reply.text {
            Some(_) => markdown(text),
            None => "<p class=\"hint\">No reply is on record.</p>".to_owned(),
        }
    );
}
