//! Which workers are there? Endpoints, models of this process, simulated and recorded workers; how each is found, fetched and
//! loaded; and the configuration that selects them.
//!
//! A command reads a [`Config`] and applies its endpoint flags to it, computes a [`Resolved`] configuration once, and takes from
//! that everything a run needs: language, backend, settings, orchestrator. [`kind`] is the only list of worker kinds. Nothing
//! here prints: what a person should know goes to a [`Tell`].

mod backend;
pub mod bundled;
mod code;
mod config;
mod critic;
pub mod discover;
mod download;
mod error;
pub mod evidence;
mod files;
pub mod hub;
pub mod kind;
pub mod local;
pub mod models;
mod orchestrators;
pub mod progress;
mod recipe;
mod recorded;
mod resolve;
mod run;
mod simulation;
mod spending;
mod started;
pub mod task_sets;
mod tools;

pub use backend::{WorkerFiles, endpoint, load_model, open_ai};
pub use code::SandboxRunner;
pub use config::{
    Capacity, Config, EndpointFlags, FILE_NAME, OrchestratorConfig, OrchestratorKind, TEMPLATE, check_prices,
};
pub use critic::{BUNDLED_FOR, CriticTasks, PROMPT_WEIGHT, bundled_critic, critic_tasks};
pub use error::{WorkersError, WorkersErrorKind};
pub use files::{need_plain_file, read_file};
pub use kind::{Scope, WorkerKind};
pub use local::{CARD, Calibration, Card, Local, LocalError, LocalModel, OUT_OF_REACH, PromptForm, is_word_problem};
pub use orchestrators::{BUNDLED_ORCHESTRATOR, MOST_AGENTS, PolicySource, encoder, policy};
pub use recipe::WorkerRecipe;
pub use recorded::{RecordedItems, recorded_items};
pub use resolve::{Resolved, RunLimits};
pub use run::{Before, ReadyRun, RunRequest};
pub use simulation::{OnMiss, Simulation, WorkerSet, recordings};
pub use spending::{SharedLimits, ended};
pub use started::told;
pub use tools::{AgentTools, Consent};

/// Receives the lines a person should see while something is found, fetched or waited for.
pub type Tell = fn(&str);
