//! Rivals that learn to design teams, as their authors meant them, on the same workers and tasks.

pub mod aflow;
pub mod arg_designer;
mod cards;
mod designer;
pub mod edges;
mod encoder;
mod error;
pub mod g_designer;
mod graph;
mod linear;
pub mod masrouter;
mod nn;
pub mod ofa_mas;
#[cfg(test)]
mod planted;
mod train;
mod trials;

pub use cards::{CARDS, Domain, RoleCard};
pub use designer::{Designer, TrainedRival, TrainedTeams};
pub use encoder::{Encoder, MiniLm, encoded_texts, packed};
pub use error::BaselineError;
pub use graph::{GraphDecider, GraphMember, GraphShape, RoleGraph, SpecFrame};
pub use train::{RivalTrainer, reads_vectors};
pub use trials::{EnvScorer, LearnerTask, RivalObjective, RunScore, Scorer, TrainingAccount, TrialJob, Trials};
