//! What is each decision of a team worth? This crate runs the counterfactuals that `credit` proposes, and makes a profile
//! of them: for every agent, dependency, role, duty, capacity, share, aggregation and stop, what it is worth and what it costs.

mod budget;
mod counterfactual;
mod improve;
mod picture;
mod profile;
mod review;

pub use budget::{Cost, SpendingLimits, TokenBudget};
pub use counterfactual::{Counterfactual, Counterfactuals, Measurement};
pub use improve::{ImproveStep, Improvement, improve};
pub use picture::{hosted_picture, picture};
pub use profile::{Baseline, CascadeRow, Effect, Profile, ProfileWork, Reuse, estimate, profile};
pub use review::{Reviewer, trace_entries};
