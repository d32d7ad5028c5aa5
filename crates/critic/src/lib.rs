//! What will a team be worth on this task, given what came back so far?
//!
//! A [`DecisionCritic`] estimates Q(task, prefix, team): the probability that the answer is right after one more round of
//! calls, and what these calls cost. The prefix holds what earlier calls replied. It is fitted by regression on recorded
//! outcomes ([`RecordedTask`]); every stage reads predictions that were made without the task at hand (cross-fitting).
//! [`CriticOrchestrator`] asks for the team that is worth most under a price of tokens, and asks again where that pays. One
//! critic serves every price.

mod evaluate;
mod fit;
mod head;
mod linear;
mod model;
mod optimise;
mod orchestrator;
mod prefix;
mod report;
mod router;
#[cfg(test)]
mod synthetic;
mod table;
mod task;
mod team;
mod text;
mod walk;

pub use evaluate::{CriticEvaluation, EvaluationSettings, cross_validate, evaluate, evaluate_critic};
pub use fit::{CriticSettings, fit_critic};
pub use head::{HeadTrial, fit_head, load_head};
pub use model::{CriticError, DecisionCritic, TeamEstimate};
pub use orchestrator::{CriticOrchestrator, CriticRule};
pub use report::{CurveRow, PairedRow};
pub use task::{RecordedTask, ScoredReply, SeenReply};
pub use team::{LEVELS, TeamCounts};
pub use text::stated_answer;
