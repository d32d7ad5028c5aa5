//! The second round of a profiled team, and what a run's trace is told of a profile.

use crate::Profile;
use async_trait::async_trait;
use lemon_credit::unit::{CreditEntry, credit_table, units_of_plan};
use lemon_exec::orchestrator::{Draft, Orchestrator, OrchestratorError, WriteContext};
use lemon_rollout::Score;
use lemon_spec::Plan;
use lemon_trace::EventKind;

/// Writes the second round: a given text, or one verifier that reads the answers.
pub struct Reviewer {
    /// The given text.
    pub text: Option<String>,
}

#[async_trait]
impl Orchestrator for Reviewer {
    async fn draft(&self, context: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError> {
        if context.round != 2 {
            return Ok(None);
        }
        let text = self.text.clone().or_else(|| {
            let capacity = context.language.capacities.last()?;
            let read: Vec<&str> = context.results.iter().rev().take(4).map(|result| result.agent).collect();
            Some(format!(
                "agents:\n  - id: review\n    base: verifier\n    capacity: {capacity}\n    after: [{}]\n",
                read.join(", ")
            ))
        });
        Ok(text.map(Draft::Text))
    }
}

/// What a run's trace is told: its own rewards, and credit for every unit, measured or not.
pub fn trace_entries(plan: &Plan, score: &Score, profile: &Profile) -> Vec<EventKind> {
    let measured: Vec<CreditEntry> = profile
        .effects
        .iter()
        .map(|e| CreditEntry::measured(&e.edit, e.effect, e.standard_error, u32::try_from(e.n).unwrap_or(u32::MAX)))
        .collect();
    let score = EventKind::Score { right: Some(score.right), rewards: score.channels.named() };
    let entry = |entry: CreditEntry| EventKind::Credit {
        unit: entry.unit.as_str().to_owned(),
        target: entry.target,
        family: entry.family,
        edit: entry.edit,
        effect: entry.effect,
        standard_error: entry.standard_error,
        n: entry.n,
    };
    std::iter::once(score).chain(credit_table(&units_of_plan(plan), &measured).into_iter().map(entry)).collect()
}
