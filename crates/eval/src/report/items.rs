//! Single items for readers: the question, the expected answer, and what each method replied.

use crate::{Evaluation, Row};
use lemon_rollout::Case;
use lemon_task::{Item, Key};
use lemon_trace::text::clip;
use lemon_trace::{EventKind, Trace};
use std::collections::BTreeMap;

pub use lemon_view::evaluation::{ItemDetail, ReplyDetail};

/// Items on a page.
pub const MOST_ITEMS: usize = 40;
/// Longer questions and replies are cut on the page; the traces have them whole.
const MOST_CHARS: usize = 6_000;
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

/// What is asked and expected in a case, without replies.
pub fn item_detail(case: &Case) -> ItemDetail {
    ItemDetail {
        set: case.set.to_string(),
        item_id: case.item.task.id.clone(),
        question: clip(&case.item.task.question, MOST_CHARS),
        expected: clip(&expected(&case.item), MOST_CHARS),
        replies: Vec::new(),
    }
}

/// What a run replied: the reply of the agent whose answer was taken, or the answer where no reply is on record.
pub fn reply_detail(row: &Row, trace: Option<&Trace>) -> ReplyDetail {
    ReplyDetail {
        method: row.method.to_string(),
        run_id: row.run_id.clone(),
        right: row.right,
        answer: row.answer.as_deref().map(str::to_owned),
        text: trace.and_then(reply_of).map(|text| clip(&text, MOST_CHARS)),
        page: None,
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
