//! Here is some text: is it a team?
//!
//! `text → parse → Spec + Spans + diagnostics → validate → Plan`. Only [`validate`] makes a [`Plan`], and nothing but a
//! plan can be run. Every field of a specification has a byte span in its source text, because every field is a decision
//! that can be edited ([`edit`]) and credited on its own.

mod check;
pub mod diagnostic;
pub mod edit;
mod effort;
#[doc(hidden)]
pub mod generate;
mod grammar;
mod language;
mod mend;
mod model;
mod parse;
mod plan;
mod render;
mod role;
mod schema;
mod span;
mod yaml;

pub use diagnostic::{Code, Diagnostic, Severity, explain};
pub use effort::{Effort, Style};
pub use grammar::{Shape, grammar};
pub use language::{Language, Limits};
pub use mend::mend;
pub use model::{Agent, Answer, AnswerRule, Next, Share, Spec, UnknownWord};
pub use plan::{Plan, PlannedAgent, Rejection, validate, validate_round};
pub use render::{Rendered, render};
pub use role::{BaseRole, PLAIN, RoleError, RoleLibrary};
pub use schema::json_schema;
pub use span::{AgentSpans, AnswerSpans, Field, Span, Spans};
