//! One changed decision: every edit that applies to a team, and the team it makes.
//!
//! Edits work on the canonical text, so that everything outside the edited field stays the same, byte for byte, wherever
//! the change allows it. Each keeps the team valid.
//!
//! To add a family, add a row to the table below and a [`Change`] in this file, and in `edit/apply.rs` what it does and when it
//! applies. The compiler names the places in both.

mod apply;
mod family;

use crate::{AnswerRule, Field, Plan, Rejection, Share, Span};
use serde::{Deserialize, Serialize};
use std::fmt;

pub use apply::{apply, edits, prefix_truncations};
pub use family::{EditFamily, UnknownFamily};

family::families! {
    Dependency = "dependency", "Delete or add one reference.";
    Role = "role", "Roll the identity back to the base role.";
    Duty = "duty", "Roll the duty back to the base role.";
    Capacity = "capacity", "One capacity down or up.";
    Agent = "agent", "Remove an agent; its children read its parents instead.";
    Share = "share", "Reply to answer, or answer to reply.";
    Answer = "answer", "Change the aggregation rule.";
    Stop = "stop", "Stop to review, or review to stop.";
    Tool = "tool", "Take a tool from an agent, or give it one that another agent has.";
    Message = "message", "Withhold one message, or one result of a tool, at run time; the text stays.";
}

/// The five decisions an orchestrator makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// O1: that an agent exists.
    Spawn,
    /// O2: the role, the duty, the capacity and the tools of each agent.
    Delegate,
    /// O3: which agent reads which, and how much.
    Communicate,
    /// O4: how one answer is made.
    Aggregate,
    /// O5: when to end.
    Stop,
}

/// One edit of a team.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Edit {
    /// The family it belongs to.
    pub family: Family,
    /// The decision it changes; for a message the one that led to it.
    pub decision: Decision,
    /// It simplifies the team or makes it cheaper; `false`: it is the reverse of such an edit.
    pub forward: bool,
    #[serde(flatten)]
    pub change: Change,
}

/// What an edit changes; agents by their ids.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// `agent` no longer reads `parent`.
    DeleteReference {
        /// The reader.
        agent: String,
        /// The one it read.
        parent: String,
    },
    /// `agent` reads `parent` too.
    AddReference {
        /// The reader.
        agent: String,
        /// The one it reads.
        parent: String,
        /// The place in its list, from 0.
        at: usize,
    },
    /// `agent` goes by its base role's title.
    ResetRole {
        /// Whose role.
        agent: String,
    },
    /// `agent` does its base role's duty.
    ResetDuty {
        /// Whose duty.
        agent: String,
    },
    /// `agent` is served one capacity weaker.
    LowerCapacity {
        /// Whose capacity.
        agent: String,
    },
    /// `agent` is served one capacity stronger.
    RaiseCapacity {
        /// Whose capacity.
        agent: String,
    },
    /// There is no `agent`; its children read its parents.
    RemoveAgent {
        /// Which.
        agent: String,
    },
    /// Prefix truncation: the team ends before `agent`, and neither it nor any agent after it exists. Agents that no other reads
    /// then answer, and those of earlier rounds that had a part in the answer.
    #[serde(alias = "end_before")]
    PrefixTruncation {
        /// The first that there is not.
        agent: String,
    },
    /// Its children see only the answer of `agent`.
    ShareAnswer {
        /// Whose output.
        agent: String,
    },
    /// Its children see all of the reply of `agent`.
    ShareReply {
        /// Whose output.
        agent: String,
    },
    /// `agent` can no longer call `tool`.
    RemoveTool {
        /// Whose tool.
        agent: String,
        /// Which.
        tool: String,
    },
    /// `agent` can call `tool` too.
    AddTool {
        /// Whose tool.
        agent: String,
        /// Which.
        tool: String,
        /// The place in its list, from 0.
        at: usize,
    },
    /// The answer is made by `rule`.
    AnswerBy {
        /// How.
        rule: AnswerRule,
    },
    /// The run ends after this round.
    Stop,
    /// The orchestrator reviews the results of this round.
    Review,
    /// The message of `from` does not reach `to`.
    WithholdMessage {
        /// The sender.
        from: String,
        /// The reader.
        to: String,
    },
    /// `agent` does not get the result of its first call of `tool`, which is not made.
    WithholdResult {
        /// Who calls.
        agent: String,
        /// What it calls.
        tool: String,
    },
}

/// The sender of a tool's results, where messages are withheld: no agent has such an id.
pub fn tool_sender(tool: &str) -> String {
    format!("tool:{tool}")
}

/// A team after an edit.
#[derive(Debug, Clone)]
pub struct Edited {
    /// The edited team, of canonical text.
    pub plan: Plan,
    /// The edited field, named as in the original.
    pub field: Field,
    /// Where the field stood in the original's own text; `None` if it was left out there.
    pub before: Option<Span>,
    /// Where the field stood in the original's canonical text; empty where that leaves out a list of tools.
    pub before_canonical: Span,
    /// Where the field stands in the edited text; empty at the place where a removed agent or list of tools stood.
    pub after: Span,
    /// The message to withhold at run time: sender and reader. The sender of results is [`tool_sender`].
    pub withhold: Option<(String, String)>,
    /// Other fields of the edited plan that changed with it: the lists that named a removed agent.
    pub also_changed: Vec<Field>,
}

/// An edit that does not apply to a team.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EditError {
    /// The team has no such agent.
    #[error("there is no agent `{0}` in this round")]
    NoSuchAgent(String),
    /// What the edit would change is not there, or is so already.
    #[error("{0} does not apply: {1}")]
    NotApplicable(String, &'static str),
    /// The edited team would break a limit of the language.
    #[error("the edited team is invalid: {0}")]
    Invalid(#[source] Box<Rejection>),
}

impl Edit {
    /// The edit that makes `change` in `plan`.
    pub fn new(change: Change, plan: &Plan) -> Edit {
        let (family, decision, forward) = match &change {
            Change::DeleteReference { .. } => (Family::Dependency, Decision::Communicate, true),
            Change::AddReference { .. } => (Family::Dependency, Decision::Communicate, false),
            Change::ResetRole { .. } => (Family::Role, Decision::Delegate, true),
            Change::ResetDuty { .. } => (Family::Duty, Decision::Delegate, true),
            Change::LowerCapacity { .. } => (Family::Capacity, Decision::Delegate, true),
            Change::RaiseCapacity { .. } => (Family::Capacity, Decision::Delegate, false),
            Change::RemoveAgent { .. } | Change::PrefixTruncation { .. } => (Family::Agent, Decision::Spawn, true),
            Change::ShareAnswer { .. } => (Family::Share, Decision::Communicate, true),
            Change::ShareReply { .. } => (Family::Share, Decision::Communicate, false),
            Change::RemoveTool { .. } => (Family::Tool, Decision::Delegate, true),
            Change::AddTool { .. } => (Family::Tool, Decision::Delegate, false),
            // `last` needs nothing, `vote` compares, `judge` makes one more call.
            Change::AnswerBy { rule } => (Family::Answer, Decision::Aggregate, *rule < plan.answer_rule()),
            Change::Stop => (Family::Stop, Decision::Stop, true),
            Change::Review => (Family::Stop, Decision::Stop, false),
            Change::WithholdMessage { .. } => (Family::Message, Decision::Communicate, true),
            Change::WithholdResult { .. } => (Family::Message, Decision::Delegate, true),
        };
        Edit { family, decision, forward, change }
    }

    /// The field of `plan` that this edit changes, or `None` if the plan has no such agent.
    pub fn field(&self, plan: &Plan) -> Option<Field> {
        let position = |id: &str| plan.agents().iter().position(|agent| agent.id == id);
        match &self.change {
            Change::DeleteReference { agent, .. } | Change::AddReference { agent, .. } => {
                position(agent).map(Field::After)
            }
            Change::WithholdMessage { to, .. } => position(to).map(Field::After),
            Change::ResetRole { agent } => position(agent).map(Field::Role),
            Change::ResetDuty { agent } => position(agent).map(Field::Duty),
            Change::LowerCapacity { agent } | Change::RaiseCapacity { agent } => position(agent).map(Field::Capacity),
            Change::RemoveAgent { agent } | Change::PrefixTruncation { agent } => position(agent).map(Field::Agent),
            Change::ShareAnswer { agent } | Change::ShareReply { agent } => position(agent).map(Field::Share),
            Change::RemoveTool { agent, .. } | Change::AddTool { agent, .. } | Change::WithholdResult { agent, .. } => {
                position(agent).map(Field::Tools)
            }
            Change::AnswerBy { .. } => Some(Field::AnswerBy),
            Change::Stop | Change::Review => Some(Field::Next),
        }
    }

    /// The edit of the edited plan that gives `plan`, which this one applies to, back; `None` where there is none.
    pub fn inverse(&self, plan: &Plan) -> Option<Edit> {
        let change = match &self.change {
            Change::DeleteReference { agent, parent } => {
                let after = &plan.spec().agents.iter().find(|reader| reader.id == *agent)?.after;
                let at = after.iter().position(|id| id == parent)?;
                Change::AddReference { agent: agent.clone(), parent: parent.clone(), at }
            }
            Change::AddReference { agent, parent, .. } => {
                Change::DeleteReference { agent: agent.clone(), parent: parent.clone() }
            }
            Change::LowerCapacity { agent } => Change::RaiseCapacity { agent: agent.clone() },
            Change::RaiseCapacity { agent } => Change::LowerCapacity { agent: agent.clone() },
            Change::ShareAnswer { agent } => Change::ShareReply { agent: agent.clone() },
            Change::ShareReply { agent } => Change::ShareAnswer { agent: agent.clone() },
            Change::RemoveTool { agent, tool } => {
                let tools = &plan.spec().agents.iter().find(|owner| owner.id == *agent)?.tools;
                let at = tools.iter().position(|known| known == tool)?;
                Change::AddTool { agent: agent.clone(), tool: tool.clone(), at }
            }
            Change::AddTool { agent, tool, .. } => Change::RemoveTool { agent: agent.clone(), tool: tool.clone() },
            Change::AnswerBy { .. } => Change::AnswerBy { rule: plan.answer_rule() },
            Change::Stop => Change::Review,
            Change::Review => Change::Stop,
            Change::ResetRole { .. }
            | Change::ResetDuty { .. }
            | Change::RemoveAgent { .. }
            | Change::PrefixTruncation { .. }
            | Change::WithholdMessage { .. }
            | Change::WithholdResult { .. } => return None,
        };
        Some(Edit { forward: !self.forward, change, ..self.clone() })
    }

    /// What it does, in a short sentence.
    pub fn describe(&self) -> String {
        self.change.to_string()
    }
}

impl Change {
    /// What it does, as the subject of a sentence: "removing `a1`".
    pub fn act(&self) -> String {
        match self {
            Change::DeleteReference { agent, parent } => format!("not letting `{agent}` read `{parent}`"),
            Change::AddReference { agent, parent, .. } => format!("letting `{agent}` read `{parent}` too"),
            Change::ResetRole { agent } => format!("giving `{agent}` the title of its base role"),
            Change::ResetDuty { agent } => format!("giving `{agent}` the duty of its base role"),
            Change::LowerCapacity { agent } => format!("running `{agent}` one level lower"),
            Change::RaiseCapacity { agent } => format!("running `{agent}` one level higher"),
            Change::RemoveAgent { agent } => format!("removing `{agent}`"),
            Change::PrefixTruncation { agent } => format!("ending the team before `{agent}`"),
            Change::ShareAnswer { agent } => format!("sharing only the answer of `{agent}`"),
            Change::ShareReply { agent } => format!("sharing the whole reply of `{agent}`"),
            Change::RemoveTool { agent, tool } => format!("taking `{tool}` from `{agent}`"),
            Change::AddTool { agent, tool, .. } => format!("giving `{agent}` `{tool}` too"),
            Change::AnswerBy { rule } => format!("making the answer by {rule}"),
            Change::Stop => "stopping after this round".to_owned(),
            Change::Review => "reviewing this round".to_owned(),
            Change::WithholdMessage { from, to } => format!("withholding the message of `{from}` from `{to}`"),
            Change::WithholdResult { agent, tool } => {
                format!("withholding the first result of `{tool}` from `{agent}`")
            }
        }
    }

    /// The agent that the change is made at; `None` where it is made at the answer or at the end of the round.
    pub fn edited_agent(&self) -> Option<&str> {
        match self {
            Change::DeleteReference { agent, .. }
            | Change::AddReference { agent, .. }
            | Change::ResetRole { agent }
            | Change::ResetDuty { agent }
            | Change::LowerCapacity { agent }
            | Change::RaiseCapacity { agent }
            | Change::WithholdMessage { to: agent, .. }
            | Change::RemoveAgent { agent }
            | Change::PrefixTruncation { agent }
            | Change::RemoveTool { agent, .. }
            | Change::AddTool { agent, .. }
            | Change::WithholdResult { agent, .. }
            | Change::ShareAnswer { agent }
            | Change::ShareReply { agent } => Some(agent),
            Change::AnswerBy { .. } | Change::Stop | Change::Review => None,
        }
    }

    /// The message that the change is made at: sender and reader, which is `*` where it is all that read the sender.
    pub fn edited_message(&self) -> Option<(&str, &str)> {
        match self {
            Change::DeleteReference { agent: to, parent: from }
            | Change::AddReference { agent: to, parent: from, .. }
            | Change::WithholdMessage { from, to } => Some((from, to)),
            Change::ShareAnswer { agent } | Change::ShareReply { agent } => Some((agent, "*")),
            _ => None,
        }
    }

    /// The agent whose own output the change can alter: it is still there and is asked something else.
    pub fn rewritten_agent(&self) -> Option<&str> {
        let others_only = matches!(
            self,
            Change::RemoveAgent { .. }
                | Change::PrefixTruncation { .. }
                | Change::ShareAnswer { .. }
                | Change::ShareReply { .. }
        );
        self.edited_agent().filter(|_| !others_only)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::DeleteReference { agent, parent } => write!(formatter, "{agent} no longer reads {parent}"),
            Change::AddReference { agent, parent, .. } => write!(formatter, "{agent} also reads {parent}"),
            Change::ResetRole { agent } => write!(formatter, "{agent} has the title of its base role"),
            Change::ResetDuty { agent } => write!(formatter, "{agent} does the duty of its base role"),
            Change::LowerCapacity { agent } => write!(formatter, "{agent} runs one capacity level lower"),
            Change::RaiseCapacity { agent } => write!(formatter, "{agent} runs one capacity level higher"),
            Change::RemoveAgent { agent } => write!(formatter, "{agent} is removed"),
            Change::PrefixTruncation { agent } => write!(formatter, "the team ends before {agent}"),
            Change::ShareAnswer { agent } => write!(formatter, "{agent} shares only its {}", Share::Answer),
            Change::ShareReply { agent } => write!(formatter, "{agent} shares its whole {}", Share::Reply),
            Change::RemoveTool { agent, tool } => write!(formatter, "{agent} no longer has {tool}"),
            Change::AddTool { agent, tool, .. } => write!(formatter, "{agent} also has {tool}"),
            Change::AnswerBy { rule } => write!(formatter, "the answer is made by {rule}"),
            Change::Stop => formatter.write_str("the run stops after this round"),
            Change::Review => formatter.write_str("the orchestrator reviews this round"),
            Change::WithholdMessage { from, to } => write!(formatter, "the message of {from} is withheld from {to}"),
            Change::WithholdResult { agent, tool } => {
                write!(formatter, "the first result of {tool} is withheld from {agent}")
            }
        }
    }
}
