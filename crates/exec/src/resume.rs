//! Taking a run up again: its state, read back from its events.

use crate::compute;
use crate::driver::Run;
use crate::ledger::{Budget, Price};
use crate::state::{AgentOutcome, RunState};
use crate::tool_loop::PastCalls;
use crate::worker::Level;
use lemon_spec::{Language, validate_round};
use lemon_trace::{AgentStatus, EventKind, FailureKind, Spend, Trace};
use std::collections::HashMap;

/// What the events of a run say about where it stands.
pub(crate) struct Replayed {
    pub spent: Spend,
    pub calls: u64,
    /// What calls whose end was never seen took on top of it, at most.
    pub lost_tokens: u64,
    pub lost_usd: f64,
    /// Agents that will not run again.
    pub finished: usize,
    /// The calls of tools on record, of agents that will.
    pub past_calls: PastCalls,
}

/// Replays events into a fresh state.
pub(crate) fn replay(trace: &Trace, state: &mut RunState, language: &Language, levels: &[Level]) -> Replayed {
    let mut past_calls = PastCalls::default();
    // US dollars of a call of a tool whose end is not on record.
    let mut open_tools: HashMap<&str, f64> = HashMap::new();
    let mut spent = Spend::default();
    let mut calls = 0;
    let mut open: HashMap<&str, u64> = HashMap::new();
    let mut stopped = false;
    for event in &trace.events {
        spent += event.spend;
        past_calls.enter(event);
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
            EventKind::Retry { failure, .. } => calls += u64::from(failure.kind != FailureKind::Loading),
            EventKind::Return { status, reply, failure, confidence, truncated, .. } => {
                open.remove(event.agent.as_str());
                open_tools.remove(event.agent.as_str());
                if let Some(index) = state.find(&event.agent) {
                    // A program that gave no answer is read all the same.
                    let is_program = failure.as_ref().is_some_and(|failure| failure.kind == FailureKind::Program);
                    let whole = *status == AgentStatus::Done || is_program;
                    let reply = reply.as_deref().filter(|_| whole).map(Into::into);
                    let (status, confidence, failure) = (*status, *confidence, failure.clone());
                    let outcome = AgentOutcome { status, reply, confidence, truncated: *truncated, failure };
                    match status {
                        // One that was cut off may have gone on.
                        AgentStatus::Done => state.amend(index, outcome),
                        _ => state.end(index, outcome),
                    }
                }
            }
            EventKind::Resume { lost_tokens, .. } => {
                // Counted then, once.
                open.clear();
                open_tools.clear();
                spent.tokens_in += lost_tokens;
                if std::mem::take(&mut stopped) {
                    state.reopen();
                }
            }
            EventKind::ToolResult { tool, output, .. } if tool == compute::TEST => {
                if let (Some(index), Some(passed)) = (state.find(&event.agent), compute::tested(output)) {
                    state.enter_test(index, passed);
                }
            }
            // A reply that asks for calls has ended.
            EventKind::ToolCall { call: Some(call), .. } => {
                open.remove(event.agent.as_str());
                calls += u64::from(call.usd.is_some());
                open_tools.extend(call.usd.map(|usd| (event.agent.as_str(), usd)));
            }
            EventKind::Approval { .. } => drop(open.remove(event.agent.as_str())),
            EventKind::ToolResult { call: Some(_), .. } => drop(open_tools.remove(event.agent.as_str())),
            // A call that was refused has ended, even if earlier attempts at it were not.
            EventKind::Budget { .. } => {
                open.remove(event.agent.as_str());
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
    let lost_usd: f64 = open.iter().map(|(agent, tokens)| dearest(state, agent, levels).usd(*tokens, 0)).sum();
    let lost_usd: f64 = lost_usd + open_tools.values().sum::<f64>();
    let finished = state.members().iter().filter(|member| member.is_done()).count();
    Replayed { spent, calls, lost_tokens, lost_usd, finished, past_calls }
}

/// The most a token of this agent can cost, as an input price: a reservation does not say how many it has of which kind.
/// The orchestrator is no member, so its capacity is not known here.
fn dearest(state: &RunState, agent: &str, levels: &[Level]) -> Price {
    let member = state.find(agent).and_then(|index| state.members().get(index));
    let own = levels.iter().enumerate().filter(|(level, _)| member.is_none_or(|member| member.agent.level == *level));
    let input = own.map(|(_, level)| level.price.input.max(level.price.output)).fold(0.0, f64::max);
    Price { input, output: 0.0 }
}

impl Run<'_> {
    /// Puts on record that the run goes on, and enters what it has spent.
    pub(crate) fn enter(&self, replayed: Replayed) {
        *self.past_calls() = replayed.past_calls;
        let Budget { tokens, usd, .. } = self.runner.settings.budget;
        let spent = replayed.spent;
        // No reservation was for more than there was; a call that waited for another attempt had none.
        let lost_tokens =
            replayed.lost_tokens.min(tokens.map_or(u64::MAX, |limit| limit.saturating_sub(spent.tokens())));
        let lost_usd = replayed.lost_usd.min(usd.map_or(f64::MAX, |limit| (limit - spent.usd).max(0.0)));
        let mut ledger = self.ledger();
        ledger.spend(spent.tokens().saturating_add(lost_tokens), spent.usd + lost_usd);
        ledger.count_calls(replayed.calls);
        drop(ledger);
        let kind = EventKind::Resume { finished: replayed.finished, lost_tokens };
        let spend = Spend { usd: lost_usd, ..Spend::default() };
        self.recorder.note(lemon_trace::ORCHESTRATOR, kind, spend);
    }
}
