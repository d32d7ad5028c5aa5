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

pub use check::{Check, Figure, check, check_real};
pub use features::{Difficulty, features};
pub use fit::{fit as fit_to_record, fit_real};
pub use preset::{Choices, FamilyFit, Fitted, LEVELS, LevelFit, Preset, REAL_LEVELS, ReaderFit, Revision};
pub use recordings::{RecordedCall, RecordedItem, Recordings, is_to_fit};
pub use replay::{Recorded, SamplePool};
pub use sim::{AgentNoise, World};
pub use skill::{SKILLS, Skill, SkillFit, TaskFamily, fit, needs};
