//! LEMON as a library: run teams of language models, evaluate them, profile them, and train the policy that writes them.
//!
//! A *team* is a YAML text: agents, what each must do, which model capacity serves it, and whose results it reads. A
//! [`Lemon`] runs teams on workers inside a hard budget and records what happened as a [`trace::Trace`].
//!
//! | to | call | example |
//! |---|---|---|
//! | check a specification | [`validate`] | `101_validate_a_spec` |
//! | run a team and stream its events | [`Lemon::start`], [`Lemon::run`] | `102_run_a_team` |
//! | run without any server | [`Builder::bundled`], [`Lemon::ask`] | `103_bundled_models` |
//! | compare methods on cases | [`Lemon::evaluate`] | `201_evaluate_two_methods` |
//! | measure what each decision of a team is worth | [`Lemon::profile`] | `202_profile_a_team` |
//! | train the policy that writes teams | [`Lemon::train`] | `301_train_a_table_policy` |
//! | use a worker of your own | [`Builder::worker`] | `302_own_worker` |
//! | add a reward term of your own | [`Builder::reward_term`] | `303_own_reward_term` |
//!
//! The commands of the binary are in [`jobs`].
//!
//! `cargo run -p lemon --example 101_validate_a_spec` runs an example from the folder `examples`.
//!
//! # Check a specification
//!
//! ```
//! let plan = lemon::validate("agents: [{id: solve, base: solver, capacity: small}]")?;
//! assert_eq!(plan.agents().len(), 1);
//!
//! let error = lemon::validate("agents: [{id: solve, base: solver, capacity: huge}]").unwrap_err();
//! assert!(error.to_string().contains("huge"));
//! # Ok::<(), lemon::Error>(())
//! ```
//!
//! # Run a team on an endpoint and stream its events
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), lemon::Error> {
//! let lemon = lemon::Lemon::builder()
//!     .endpoint("small", "http://localhost:11434/v1", "qwen2.5:7b")
//!     .budget_tokens(20_000)
//!     .seed(1)
//!     .build()
//!     .await?;
//! let plan = lemon.validate("agents: [{id: solve, base: solver, capacity: small}]")?;
//! let mut run = lemon.start(&plan, "What is 17 times 3?")?;
//! while let Some(event) = run.next_event().await {
//!     println!("{:6.2} s  {}  {:?}", event.t, event.agent, event.kind);
//! }
//! println!("{:?}", run.finish().await?.summary().answer);
//! # Ok(())
//! # }
//! ```
//!
//! # Run on the bundled models
//!
//! The bundled models need no server and no key. They solve arithmetic word problems only.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), lemon::Error> {
//! let lemon = lemon::Lemon::builder().bundled().build().await?;
//! let trace = lemon.ask("Ana has 3 pens and buys 4 more. How many pens does she have?").await?;
//! println!("{:?}", trace.summary().answer);
//! # Ok(())
//! # }
//! ```
//!
//! # Evaluate, profile and train
//!
//! Simulated workers answer without any model. They are calibrated on the record of real ones.
//!
//! ```
//! use lemon::eval::Report;
//! use lemon::profile::SpendingLimits;
//! use lemon::task::{SetName, Source};
//! use lemon::world::Preset;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), lemon::Error> {
//! let lemon = lemon::Lemon::builder().simulated(Preset::Calibrated).build().await?;
//! let cases = lemon::cases(&Source::Sample, SetName::Gsm8k, "test")?;
//! let cases = &cases[..4];
//!
//! let methods = [lemon.method("cot")?, lemon.method("sc-cot:3")?];
//! let report = Report::new(&lemon.evaluate(&methods, cases).await?);
//! assert_eq!(report.methods.len(), 2);
//!
//! let plan = lemon.validate("agents: [{id: solve, base: solver, capacity: small}]")?;
//! let profile = lemon.profile(&plan, cases, SpendingLimits::default()).await?;
//! assert_eq!(profile.baseline.runs, 4);
//! # Ok(())
//! # }
//! ```
//!
//! ```
//! use lemon::train::recipe::{FieldStart, Recipe, Start};
//! use lemon::world::Preset;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! let lemon = lemon::Lemon::builder().simulated(Preset::Calibrated).build().await?;
//! let mut recipe = Recipe { steps: 2, start: Start::Fields(FieldStart::default()), ..Recipe::default() };
//! (recipe.tasks.train, recipe.tasks.held_out) = (8, 2);
//! let trained = lemon.train(&recipe, folder, |metrics| metrics.step < 2).await?;
//! assert_eq!(trained.steps, 2);
//! # Ok(())
//! # }
//! ```

mod builder;
mod error;
pub mod jobs;
mod learn;
mod result;
mod run;
mod tasks;
#[cfg(test)]
mod tests;

pub use async_trait::async_trait;
pub use builder::{Builder, Lemon};
pub use error::Error;
pub use result::{AgentResult, RunResult, response};
pub use run::Run;
pub use tasks::{cases, cases_of_file};

pub use lemon_credit as credit;
pub use lemon_eval as eval;
pub use lemon_exec as exec;
pub use lemon_model as model;
pub use lemon_policy as policy;
pub use lemon_profile as profile;
pub use lemon_rollout as rollout;
pub use lemon_sft as sft;
pub use lemon_spec as spec;
pub use lemon_study as study;
pub use lemon_task as task;
pub use lemon_tools as tools;
pub use lemon_trace as trace;
pub use lemon_train as train;
pub use lemon_workers as workers;
pub use lemon_world as world;

use lemon_spec::{Language, Plan};

/// Checks a specification against the built-in roles, the default capacities (`small`, `medium`, `large`) and the default
/// limits. [`Lemon::validate`] checks it against those of an installation.
///
/// # Errors
/// The text is no specification: [`Error::Spec`] holds every fault.
pub fn validate(text: &str) -> Result<Plan, Error> {
    Ok(lemon_spec::validate(text, &Language::default())?)
}
