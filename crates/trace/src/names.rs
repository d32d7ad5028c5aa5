//! The names of kinds and outcomes, the same that their JSON forms have.

use crate::{AgentStatus, EdgeKind, EventKind, FailureKind, LimitKind, StopReason};
use std::fmt;

/// Gives an enum `as_str` and `Display`.
macro_rules! names {
    ($kind:ident: $($variant:ident => $name:literal),+ $(,)?) => {
        impl $kind {
            #[cfg(test)]
            const ALL: &[$kind] = &[$($kind::$variant),+];

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

    const SPECIFICATION: &str = include_str!("../../../docs/specification.md");
    const TRACE: &str = include_str!("../../../docs/trace.md");

    /// Every name is the one of the JSON form, and the page names it.
    fn check<T: Serialize + DeserializeOwned + fmt::Display>(all: &[T], page: &str) {
        for value in all {
            let name = value.to_string();
            assert_eq!(serde_json::to_value(value).unwrap(), name);
            assert_eq!(serde_json::from_value::<T>(name.as_str().into()).unwrap().to_string(), name);
            assert!(page.contains(&format!("`{name}`")), "the page does not name `{name}`");
        }
    }

    #[test]
    fn names_are_those_of_json_and_on_the_pages() {
        check(AgentStatus::ALL, TRACE);
        check(EdgeKind::ALL, TRACE);
        check(LimitKind::ALL, TRACE);
        check(FailureKind::ALL, TRACE);
        check(StopReason::ALL, SPECIFICATION);
    }

    #[test]
    fn event_names_are_those_of_json() {
        for event in crate::sample::eight().events {
            assert_eq!(serde_json::to_value(&event).unwrap()["type"], event.kind.name());
        }
    }
}
