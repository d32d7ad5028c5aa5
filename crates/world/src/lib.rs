//! Workers without an endpoint: a simulated world calibrated on recorded models, and the recorded replies themselves.
//!
//! Only a world knows the right answers, because it has to make replies up; the executor, the store and the orchestrator see
//! texts and nothing else.

mod check;
mod draws;
mod features;
mod fit;
mod item;
pub mod outcomes;
mod preset;
mod recordings;
mod replay;
mod sim;
mod skill;
mod text;

pub use check::{Check, Figure, check};
pub use features::{Difficulty, features};
pub use fit::fit as fit_to_record;
pub use preset::{Choices, FamilyFit, Fitted, LEVELS, LevelFit, Preset, Revision};
pub use recordings::{RecordedCall, RecordedItem, Recordings};
pub use replay::{Recorded, SamplePool};
pub use sim::{AgentNoise, World};
pub use skill::{SKILLS, Skill, SkillFit, TaskFamily, fit, needs};
