//! What the commands of the binary do, as a library: each job is prepared from a request that is plain data, and run. Jobs
//! print nothing: what a person should know goes to [`Notices`].
//!
//! | job | question |
//! |---|---|
//! | [`evaluation`] | which of these methods is better on these task sets? |
//! | [`credit`] | what is each decision of this team worth? |
//! | [`best_teams`] | which teams are best in a simulated world? |
//! | [`answers`] | does an orchestrator answer better than one plain call? |
//! | [`training`] | how is a policy trained with these workers? |
//! | [`ablation`] | which way to train is better? |
//! | [`teaching`] | which pairs of tasks and teams does a teacher make? |
//! | [`plan`](mod@plan) | what would this run cost? |
//! | [`batch`] | what do many tasks come to? |
//! | [`cluster`] | which other machines make the runs? |
//! | [`doctor`] | does each endpoint answer? |
//! | [`scoring`] | how likely does the orchestrator find this team? |
//! | [`pages`] | where are the pages of the runs? |

pub mod ablation;
pub mod answers;
pub mod batch;
pub mod best_teams;
pub mod cluster;
pub mod credit;
pub mod details;
pub mod doctor;
pub mod evaluation;
mod kept_trainings;
pub mod pages;
pub mod plan;
mod proposals;
mod request;
mod rivals;
pub mod scoring;
pub mod teaching;
pub mod training;

pub use request::EvalRequest;
pub use rivals::SavedTrainings;

use crate::error::Error;
use lemon_spec::{Language, Plan, diagnostic, validate};
use lemon_workers::Tell;

/// The file that says what a training or an evaluation may spend, and what it has.
pub const SPENDING: &str = "spending.json";

/// Receives what a person should know while a job is prepared and run.
#[derive(Clone, Copy)]
pub struct Notices {
    /// What goes on. A quiet command drops it.
    pub tell: Tell,
    /// What a result lacks: records that were skipped, calls that are not on record.
    pub warn: Tell,
}

impl Notices {
    /// Drops everything.
    pub const NONE: Notices = Notices { tell: |_| {}, warn: |_| {} };
}

/// The plan of a text that comes from `name`.
fn valid_team(text: &str, name: &str, language: &Language) -> Result<Plan, Error> {
    validate(text, language).map_err(|rejection| {
        let faults = diagnostic::explain(&rejection.diagnostics, text, name, false);
        Error::input(format!("the team is not valid\n{}", faults.trim_end()))
    })
}
