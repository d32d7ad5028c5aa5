//! The reply that will be the answer, while it is being written. Only where one agent alone can give the answer: of several,
//! it is not known yet which reply it will be.

use console::measure_text_width;
use lemon_spec::{AnswerRule, Language, Next, validate_round};
use lemon_trace::{Event, EventKind, visible};
use std::sync::Arc;

/// Bytes that are kept: more than the largest window shows.
const KEPT: usize = 64 << 10;
/// The most lines that are shown.
const LINES: usize = 16;

/// What the answering agent has said so far.
pub struct Growing {
    language: Arc<Language>,
    /// The agents of the rounds so far.
    ids: Vec<String>,
    answering: Option<String>,
    text: String,
}

impl Growing {
    /// Nothing yet.
    pub fn new(language: Arc<Language>) -> Self {
        Growing { language, ids: Vec::new(), answering: None, text: String::new() }
    }

    /// Takes in an event: who will answer, and what becomes of its reply.
    pub fn note(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Decision { text, .. } => {
                self.answering = self.answering_in(text);
                self.text.clear();
            }
            EventKind::Spawn { to, .. } if !self.ids.contains(to) => self.ids.push(to.clone()),
            EventKind::Delegate { to: agent, .. } if self.is_answering(agent) => self.text.clear(),
            // What a failed attempt said does not count, and what is finished is shown elsewhere.
            EventKind::Retry { .. } | EventKind::Return { .. } if self.is_answering(&event.agent) => self.text.clear(),
            EventKind::Stop { .. } => self.text.clear(),
            _ => {}
        }
    }

    /// Takes in a piece of an agent's reply.
    pub fn hear(&mut self, agent: &str, piece: &str) {
        if !self.is_answering(agent) {
            return;
        }
        self.text.push_str(piece);
        if self.text.len() > 2 * KEPT {
            let start = self.text.ceil_char_boundary(self.text.len() - KEPT);
            self.text.drain(..start);
        }
    }

    fn is_answering(&self, agent: &str) -> bool {
        self.answering.as_deref() == Some(agent)
    }

    fn answering_in(&self, text: &str) -> Option<String> {
        // A text that is no team makes no agent answer.
        let plan = validate_round(text, &self.language, &self.ids).ok()?;
        match (plan.answer_from(), plan.answer_rule(), plan.next()) {
            ([one], AnswerRule::Last, Next::Stop) => plan.id(*one).map(str::to_owned),
            _ => None,
        }
    }

    /// The last lines of it, in a window with room for so many of this width.
    pub fn lines(&self, room: usize, columns: usize) -> Vec<String> {
        let (room, width) = (room.min(LINES), columns.saturating_sub(4).max(16));
        let start = self.text.ceil_char_boundary(self.text.len().saturating_sub(room.saturating_mul(width * 4)));
        let tail = visible(self.text.get(start..).unwrap_or_default());
        let mut lines: Vec<String> = tail.trim_end().lines().flat_map(|line| wrap(line, width)).collect();
        lines.drain(..lines.len().saturating_sub(room));
        lines
    }
}

/// A line in pieces of at most this width.
fn wrap(line: &str, width: usize) -> Vec<String> {
    let (mut lines, mut current, mut used) = (Vec::new(), String::new(), 0);
    for character in line.replace('\t', "    ").chars() {
        let wide = measure_text_width(character.encode_utf8(&mut [0; 4]));
        if used + wide > width {
            lines.push(std::mem::take(&mut current));
            used = 0;
        }
        current.push(character);
        used += wide;
    }
    lines.push(current);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_trace::{Failure, FailureKind, ORCHESTRATOR, Spend};

    fn event(agent: &str, kind: EventKind) -> Event {
        Event { id: 1, t: 0.0, agent: agent.into(), kind, spend: Spend::default(), edges: Vec::new() }
    }

    fn growing(team: &str) -> Growing {
        let mut growing = Growing::new(Arc::new(Language::default()));
        let decision =
            EventKind::Decision { round: 1, by: "fixed".into(), model: None, text: team.into(), written: None };
        growing.note(&event(ORCHESTRATOR, decision));
        growing
    }

    const ONE: &str =
        "agents: [{id: a, base: solver, capacity: small}, {id: b, base: critic, capacity: small, after: [a]}]";

    #[test]
    fn only_the_answering_agent_is_shown() {
        let mut growing = growing(ONE);
        growing.hear("a", "no");
        growing.hear("b", "It is ");
        growing.hear("b", "17.\nBecause\u{1b}[2J");
        assert_eq!(growing.lines(9, 80), ["It is 17.", "Because\\u001b[2J"]);
        let failure = Failure { kind: FailureKind::Timeout, message: String::new() };
        growing.note(&event("b", EventKind::Retry { attempt: 1, failure, wait_s: 0.1 }));
        assert!(growing.lines(9, 80).is_empty(), "a new attempt begins anew");
    }

    #[test]
    fn of_several_that_may_answer_none_is_shown() {
        let team = "agents: [{id: a, base: solver, capacity: small}, {id: b, base: solver, capacity: small}]";
        let mut growing = growing(team);
        growing.hear("a", "It is 17.");
        growing.hear("b", "It is 19.");
        assert!(growing.lines(9, 80).is_empty());
    }

    #[test]
    fn a_long_reply_is_shown_by_its_end() {
        let mut growing = growing(ONE);
        (0..100_000).for_each(|number| growing.hear("b", &format!("{number} ")));
        let lines = growing.lines(3, 40);
        assert_eq!(lines.len(), 3);
        assert!(lines.last().unwrap().ends_with("99999"), "{lines:?}");
        assert!(lines.iter().all(|line| measure_text_width(line) <= 36), "{lines:?}");
        assert!(growing.lines(0, 0).is_empty());
    }
}
