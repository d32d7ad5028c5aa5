//! Here is a reward: which decision earned it?
//!
//! Pure arithmetic on specifications and traces. This crate proposes runs and never runs them: no IO, no clock, and every
//! draw takes a seed.
//!
//! One sign holds throughout: an **effect** is `Δ = R(original) − R(edited)`, what the decision as it was written is worth.
//! A positive Δ says that the edit did harm. *Not measured* is `None`, and never zero.
//!
//! | module | what it answers |
//! |---|---|
//! | [`choose`] | which counterfactual to run next |
//! | [`economy`] | which counterfactuals are worth their tokens, against more rollouts |
//! | [`estimate`] | what the paired differences say, with their error |
//! | [`cascade`] | how far an edit spread |
//! | [`mod@unit`] | the table of credit, one row a unit |
//! | [`estimator`] | which advantages follow from probabilities and rewards |
//! | [`model`] | what a beginning of a team is worth, learned from earlier steps |
//! | [`guard`] | whether the policy collapses to one decision for every question |
//! | [`advantage`] | what the learner gets: one number a token |
//! | [`advice`] | what a person gets: a sentence and a verdict |

pub mod advantage;
pub mod advice;
pub mod answer;
pub mod cascade;
pub mod choose;
pub mod economy;
pub mod estimate;
pub mod estimator;
pub mod guard;
pub mod model;
#[cfg(test)]
mod story;
pub mod unit;
