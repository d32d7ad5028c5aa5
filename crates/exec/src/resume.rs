//! Taking a run up again: its state, read back from its events.

use crate::driver::Run;
use crate::state::{Outcome, RunState};
use lemon_spec::{Language, validate_round};
use lemon_trace::{AgentStatus, EventKind, Spend, Trace};
use std::collections::HashMap;

/// What the events of a run say about where it stands.
pub(crate) struct Replayed {
    /// Tokens, money and calls so far; calls whose end was never seen count in full.
    pub spent: Spend,
    pub calls: u64,
    pub lost_tokens: u64,
    /// Agents that will not run again.
    pub finished: usize,
}

/// Replays events into a fresh state.
pub(crate) fn replay(trace: &Trace, state: &mut RunState, language: &Language) -> Replayed {
    let mut spent = Spend::default();
    let mut calls = 0;
    let mut open: HashMap<&str, u64> = HashMap::new();
    let mut stopped = false;
    for event in &trace.events {
        spent += event.spend;
        match &event.kind {
            EventKind::Decision { text, .. } => {
                open.remove(lemon_trace::ORCHESTRATOR);
                // A text that was refused then is refused now; a valid one was always taken.
                if let Ok(plan) = validate_round(text, language, &state.ids()) {
                    state.add_round(plan);
                }
            }
            EventKind::Rejection { .. } => {
                open.remove(lemon_trace::ORCHESTRATOR);
            }
            EventKind::Spawn { to, .. } if state.find(to).is_none() => {
                // Only a judge comes into being without standing in a text.
                state.add_judge();
            }
            EventKind::Delegate { to, reserved, .. } => {
                calls += u64::from(*reserved > 0);
                open.insert(to, *reserved);
            }
            EventKind::Retry { .. } => calls += 1,
            EventKind::Return { status, reply, failure, .. } => {
                open.remove(event.agent.as_str());
                if let Some(index) = state.find(&event.agent) {
                    let reply = reply.as_deref().filter(|_| *status == AgentStatus::Done).map(Into::into);
                    state.end(index, Outcome { status: *status, reply, failure: failure.clone() });
                }
            }
            EventKind::Resume { lost_tokens, .. } => {
                // Counted then, once.
                open.clear();
                spent.tokens_in += lost_tokens;
                if std::mem::take(&mut stopped) {
                    state.reopen();
                }
            }
            EventKind::Stop { .. } => stopped = true,
            _ => {}
        }
    }
    match stopped {
        true => state.reopen(),
        false => state.release(),
    }
    let lost_tokens = open.values().sum();
    spent.tokens_in += lost_tokens;
    let finished = state.members().iter().filter(|member| member.is_done()).count();
    Replayed { spent, calls, lost_tokens, finished }
}

impl Run<'_> {
    /// Puts on record that the run goes on, and enters what it has spent.
    pub(crate) fn enter(&self, replayed: &Replayed) {
        let mut ledger = self.ledger();
        ledger.spend(replayed.spent.tokens(), replayed.spent.usd);
        ledger.count_calls(replayed.calls);
        drop(ledger);
        let kind = EventKind::Resume { finished: replayed.finished, lost_tokens: replayed.lost_tokens };
        drop(self.recorder.record(lemon_trace::ORCHESTRATOR, kind, Spend::default()));
    }
}
