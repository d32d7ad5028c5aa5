//! Single items for readers: the question, the expected answer, and what each method replied.

use crate::markdown::markdown;
use crate::markup::Markup;
use lemon_trace::text::clip;

/// Longer replies are closed at first.
const SHORT_REPLY: usize = 600;

/// An item as the page shows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplyDetail {
    pub method: String,
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

/// An item on the page; closed, so that a reader sees which there are.
pub(super) struct ItemBlock<'a> {
    pub id: String,
    pub set: String,
    /// The first line of the question.
    pub asked: String,
    pub question: &'a str,
    pub expected: Markup,
    pub replies: Vec<ReplyBlock<'a>>,
}

pub(super) struct ReplyBlock<'a> {
    pub method: String,
    pub verdict: &'static str,
    pub is_open: bool,
    pub answer: String,
    pub page: Option<&'a str>,
    pub run_id: String,
    pub text: Option<Markup>,
}

impl<'a> ItemBlock<'a> {
    pub(super) fn new(item: &'a ItemDetail) -> ItemBlock<'a> {
        // A question of nothing but blanks has no first line.
        let first = item.question.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        ItemBlock {
            id: clip(&item.item_id, 80),
            set: clip(&item.set, 80),
            asked: clip(first, 160),
            question: &item.question,
            expected: markdown(&item.expected),
            replies: item.replies.iter().map(ReplyBlock::new).collect(),
        }
    }
}

impl<'a> ReplyBlock<'a> {
    fn new(reply: &'a ReplyDetail) -> ReplyBlock<'a> {
        let answer = reply.answer.as_deref();
        ReplyBlock {
            method: clip(&reply.method, 60),
            verdict: if reply.right { "right" } else { "wrong" },
            is_open: reply.text.as_deref().is_none_or(|text| text.chars().nth(SHORT_REPLY).is_none()),
            answer: answer.map_or_else(|| "no answer".to_owned(), |answer| format!("answer: {}", clip(answer, 120))),
            page: reply.page.as_deref(),
            run_id: clip(&reply.run_id, 80),
            text: reply.text.as_deref().map(markdown),
        }
    }
}
