//! Renders conversations with the model's own chat template, which never sees the contents of messages.

use super::guard::on_own_stack;
use super::jinja::{self, Objection, Variables};
use super::{Message, Role};
use crate::PolicyError;
use std::sync::{Arc, Mutex, PoisonError};

/// A template, ready to be rendered.
pub(super) struct Template {
    source: String,
    begin: String,
    end: String,
    /// What it made of conversations so far. It sees their roles only, so that equal roles are written alike.
    known: Mutex<Vec<(Vec<Role>, Arc<str>)>>,
}

/// A part of a conversation.
#[derive(Debug, PartialEq)]
pub(super) enum Piece<'m> {
    /// What the template writes.
    Frame(String),
    /// What a message says.
    Content(&'m str),
}

/// How many conversations of different roles are kept.
const MOST_KNOWN: usize = 32;

/// A message's place in the rendered text, by its number between these. They are of no alphabet, and the messages that
/// could hold them are not rendered.
const OPEN: char = '\u{e0f0}';
const CLOSE: char = '\u{e0f1}';

impl Template {
    /// Reads a template; `begin` and `end` are the tokens it may want to write around a text.
    pub(super) fn new(source: &str, begin: String, end: String) -> Result<Template, Objection> {
        on_own_stack(|| jinja::check(source)).map_err(Objection).flatten()?;
        Ok(Template { source: source.to_owned(), begin, end, known: Mutex::default() })
    }

    /// The conversation up to where the model speaks.
    pub(super) fn pieces<'m>(&self, messages: &'m [Message]) -> Result<Vec<Piece<'m>>, PolicyError> {
        let roles: Vec<Role> = messages.iter().map(|message| message.role).collect();
        let known = self.known().iter().find(|(other, _)| *other == roles).map(|(_, text)| text.clone());
        if let Some(text) = known {
            return Ok(split(&text, messages));
        }
        match on_own_stack(|| self.render(&roles)).map_err(Objection).flatten() {
            Ok(text) => Ok(split(&self.keep(roles, text), messages)),
            Err(Objection(fact)) => Err(PolicyError::Request(format!("the chat template failed: {fact}"))),
        }
    }

    fn render(&self, roles: &[Role]) -> Result<String, Objection> {
        let shown = |(number, role): (usize, &Role)| (role.name(), format!("{OPEN}{number}{CLOSE}"));
        let messages: Vec<_> = roles.iter().enumerate().map(shown).collect();
        jinja::render(&self.source, &Variables { messages: &messages, begin: &self.begin, end: &self.end })
    }

    fn keep(&self, roles: Vec<Role>, text: String) -> Arc<str> {
        let text: Arc<str> = text.into();
        let mut known = self.known();
        if known.len() >= MOST_KNOWN {
            known.remove(0);
        }
        known.push((roles, text.clone()));
        text
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Vec<(Vec<Role>, Arc<str>)>> {
        // A list of texts is whole whatever happened to another thread that held it.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts the messages where their places are.
fn split<'m>(text: &str, messages: &'m [Message]) -> Vec<Piece<'m>> {
    let mut pieces = Vec::new();
    for part in text.split(OPEN) {
        let placed = part
            .split_once(CLOSE)
            .and_then(|(number, rest)| Some((messages.get(number.parse::<usize>().ok()?)?.content.as_str(), rest)));
        let (content, frame) = placed.map_or((None, part), |(content, rest)| (Some(content), rest));
        pieces.extend(content.map(Piece::Content));
        if !frame.is_empty() {
            pieces.push(Piece::Frame(frame.to_owned()));
        }
    }
    pieces
}
