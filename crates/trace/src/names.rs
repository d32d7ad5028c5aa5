//! The names of kinds and outcomes, the same that their JSON forms have.

use crate::{AgentStatus, EdgeKind, EventKind, FailureKind, LimitKind, StopReason};
use std::fmt;

/// Gives an enum `as_str` and `Display`.
macro_rules! names {
    ($kind:ident: $($variant:ident => $name:literal),+ $(,)?) => {
        impl $kind {
            /// Its name, as in JSON.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($kind::$variant => $name),+
                }
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

names!(AgentStatus: Done => "done", Failed => "failed", Skipped => "skipped", Cancelled => "cancelled");
names!(EdgeKind: Cause => "cause", Spawn => "spawn", Message => "message", Return => "return", Aggregate => "aggregate");
names!(LimitKind: Tokens => "tokens", Usd => "usd", Calls => "calls", Seconds => "seconds");
names!(FailureKind:
    Unreachable => "unreachable",
    Timeout => "timeout",
    RateLimited => "rate_limited",
    ServerError => "server_error",
    Loading => "loading",
    Unauthorized => "unauthorized",
    Refused => "refused",
    SchemaRefused => "schema_refused",
    CutShort => "cut_short",
    Malformed => "malformed",
    Empty => "empty",
    Truncated => "truncated",
    NotRecorded => "not_recorded",
    ParentFailed => "parent_failed",
    Budget => "budget",
    Cancelled => "cancelled",
    Program => "program",
    Orchestrator => "orchestrator",
);
names!(StopReason:
    Answered => "answered",
    TokenBudget => "token_budget",
    TimeBudget => "time_budget",
    CostBudget => "cost_budget",
    CallBudget => "call_budget",
    AnswerAgentsFailed => "answer_agents_failed",
    AllAgentsFailed => "all_agents_failed",
    Cancelled => "cancelled",
    Approval => "approval",
    Rejected => "rejected",
    OrchestratorFailed => "orchestrator_failed",
);

impl EventKind {
    /// The name of the kind, as in the `type` of its JSON form.
    pub fn name(&self) -> &'static str {
        match self {
            EventKind::Decision { .. } => "decision",
            EventKind::Rejection { .. } => "rejection",
            EventKind::Spawn { .. } => "spawn",
            EventKind::Delegate { .. } => "delegate",
            EventKind::Message { .. } => "message",
            EventKind::ToolCall { .. } => "tool_call",
            EventKind::ToolResult { .. } => "tool_result",
            EventKind::Approval { .. } => "approval",
            EventKind::Retry { .. } => "retry",
            EventKind::Return { .. } => "return",
            EventKind::Budget { .. } => "budget",
            EventKind::Aggregate { .. } => "aggregate",
            EventKind::Stop { .. } => "stop",
            EventKind::Resume { .. } => "resume",
            EventKind::Score { .. } => "score",
            EventKind::Credit { .. } => "credit",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Serialize, de::DeserializeOwned};

    /// Reads every name back through serde: the two cannot drift apart, and no variant is left out by the match.
    fn check<T: Serialize + DeserializeOwned + fmt::Display>(names: &[&str]) {
        for name in names {
            let value: T = serde_json::from_value((*name).into()).unwrap();
            assert_eq!(value.to_string(), *name);
        }
    }

    #[test]
    fn names_are_those_of_json() {
        check::<AgentStatus>(&["done", "failed", "skipped", "cancelled"]);
        check::<EdgeKind>(&["cause", "spawn", "message", "return", "aggregate"]);
        check::<LimitKind>(&["tokens", "usd", "calls", "seconds"]);
        check::<FailureKind>(&["unreachable", "timeout", "rate_limited", "server_error", "unauthorized", "refused"]);
        check::<FailureKind>(&["cut_short", "malformed", "empty", "truncated", "not_recorded", "parent_failed"]);
        check::<FailureKind>(&["budget", "cancelled", "loading", "schema_refused", "orchestrator"]);
        check::<StopReason>(&["answered", "token_budget", "time_budget", "cost_budget", "call_budget", "cancelled"]);
        check::<StopReason>(&["answer_agents_failed", "all_agents_failed", "rejected", "orchestrator_failed"]);
    }

    #[test]
    fn event_names_are_those_of_json() {
        for event in crate::sample::eight().events {
            assert_eq!(serde_json::to_value(&event).unwrap()["type"], event.kind.name());
        }
    }
}
