//! One decision changed: the edited team on the same task, with the noise seed and the reply cache of its base.
//!
//! The edited team is run whole. What the edit cannot reach is the same call as before and is answered from the cache; only
//! what differs is asked. So a counterfactual gives exactly what a full run of the edited team with the same seed would give.

use crate::env::{Rollout, RolloutEnv};
use crate::error::RolloutError;
use crate::request::{RolloutRequest, RunOptions};
use crate::team::Team;
use lemon_spec::edit::{Edit, Edited, apply};
use std::sync::Arc;

impl RolloutEnv {
    /// Runs the team of a rollout with one decision changed. `None`: the edit does not apply to that team.
    ///
    /// # Errors
    /// The base was not run from a plan, or the store or the sandbox failed.
    pub async fn counterfactual(&self, base: &Rollout, edit: &Edit) -> Result<Option<Rollout>, RolloutError> {
        let Team::Plan { plan, .. } = &base.team else { return Err(RolloutError::NoPlan) };
        // The error says only that the edit does not apply; that is the answer here.
        let Ok(edited) = apply(plan, edit, &self.language) else { return Ok(None) };
        self.rollout(base.counterfactual(&edited)?).await.map(Some)
    }
}

impl Rollout {
    /// The request for the edited team: same task, seed, reply cache and reviewer.
    ///
    /// # Errors
    /// This rollout was not run from a plan.
    pub fn counterfactual(&self, edited: &Edited) -> Result<RolloutRequest<'_>, RolloutError> {
        let Team::Plan { reviewer, .. } = &self.team else { return Err(RolloutError::NoPlan) };
        let team = Team::Plan { plan: Arc::new(edited.plan.clone()), reviewer: reviewer.clone() };
        let (cache, withhold) = (self.cache.clone(), edited.withhold.clone());
        let options = RunOptions { cache, withhold, ..RunOptions::default() };
        Ok(RolloutRequest { case: &self.case, team, seed: self.seed, options })
    }
}
