//! The terms of a run, from its trace and its grades.

use super::{Channels, GradedRun, Grades, REWARD_TERMS, RewardSettings};
use lemon_num::mean_of;
use lemon_trace::{AgentSummary, EventKind, StopReason, Summary, Trace};

/// Measures every term that can be measured: those of the registry, then those of the settings.
pub fn measure(trace: &Trace, grades: &Grades, settings: &RewardSettings) -> Channels {
    let run = GradedRun::new(trace, grades, settings);
    let registered = REWARD_TERMS.iter();
    let mut channels =
        registered.fold(Channels::default(), |channels, term| channels.with(term.channel, (term.measure)(&run)));
    for term in &settings.terms {
        if let Some(value) = (term.measure)(&run) {
            channels.add_custom(term, value);
        }
    }
    channels
}

/// What an agent's reply cost, whether it was paid in this run or reused: the edited team is to be compared with the
/// original, not with what the cache held. `None` if the reply was reused and its cost is not on record.
pub fn nominal_tokens(agent: &AgentSummary) -> Option<u64> {
    let unknown = agent.reused && agent.saved == 0;
    (!unknown).then(|| agent.tokens().saturating_add(agent.saved))
}

/// What the replies of a whole team cost, reused or not. `None` where one is not on record.
pub fn team_tokens(summary: &Summary) -> Option<u64> {
    summary.agents.iter().map(nominal_tokens).try_fold(0_u64, |sum, tokens| Some(sum.saturating_add(tokens?)))
}

/// A run that ended without an answer is wrong without a grade; a cancelled run is not measured.
pub(super) fn success(run: &GradedRun<'_>) -> Option<f64> {
    let summary = run.summary();
    let ended = summary.stop_reason.is_some_and(|reason| reason != StopReason::Cancelled);
    let right = run.grades().team.or((ended && summary.answer.is_none()).then_some(false));
    right.map(|right| f64::from(u8::from(right)))
}

/// The share of graded agents whose own answer is right.
pub(super) fn individual(run: &GradedRun<'_>) -> Option<f64> {
    mean_of(run.grades().agents.values().map(|right| f64::from(u8::from(*right))))
}

/// `exp(−Σ weight · tokens / scale)`. Absent without agents: a rejected specification is not a cheap team.
pub(super) fn efficiency(run: &GradedRun<'_>) -> Option<f64> {
    let (summary, settings) = (run.summary(), run.settings());
    if summary.agents.is_empty() || summary.stop_reason.is_none() {
        return None;
    }
    let weighted = |agent: &AgentSummary| Some(settings.token_weight(agent.level) * nominal_tokens(agent)? as f64);
    let tokens: f64 = summary.agents.iter().map(weighted).sum::<Option<f64>>()?;
    Some((-tokens / settings.token_scale).exp()).filter(|value| value.is_finite())
}

pub(super) fn structure(run: &GradedRun<'_>) -> Option<f64> {
    let (summary, settings) = (run.summary(), run.settings());
    let agents = summary.agents.len();
    let edges: usize = summary.agents.iter().map(|agent| agent.after.len()).sum();
    (agents > 0).then_some(settings.agent_cost * agents as f64 + settings.edge_cost * edges as f64)
}

/// The share of texts that were refused. A fallback is not the orchestrator's own text, and a text that never came because
/// no endpoint could be reached is not its fault.
pub(super) fn invalid(trace: &Trace) -> Option<f64> {
    let own = |kind: &EventKind| matches!(kind, EventKind::Decision { by, .. } if by != "fallback");
    let refused = |kind: &EventKind| matches!(kind, EventKind::Rejection { failure: None, .. });
    let count = |is: &dyn Fn(&EventKind) -> bool| trace.events.iter().filter(|event| is(&event.kind)).count() as f64;
    let texts = count(&own);
    (texts > 0.0).then(|| (count(&refused) / texts).min(1.0))
}

pub(super) fn tool_results(trace: &Trace) -> impl Iterator<Item = f64> {
    trace.events.iter().filter_map(|event| match &event.kind {
        EventKind::ToolResult { ok, .. } => Some(f64::from(u8::from(*ok))),
        _ => None,
    })
}
