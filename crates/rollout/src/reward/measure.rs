//! The channels of a run, from its trace and its grades.

use super::collaboration::Team;
use super::{Channels, Grades, RewardSettings};
use lemon_num::mean_of;
use lemon_trace::{AgentSummary, EventKind, StopReason, Summary, Trace};

/// Measures every channel that can be measured.
pub fn measure(trace: &Trace, grades: &Grades, settings: &RewardSettings) -> Channels {
    let summary = trace.summary();
    let metrics = trace.metrics(None);
    let team = Team::new(trace, &summary, grades);
    let success = success(&summary, grades);
    let individual = mean_of(grades.agents.values().map(|right| f64::from(u8::from(*right))));
    Channels {
        success,
        efficiency: efficiency(&summary, settings),
        structure: structure(&summary, settings),
        invalid: invalid(trace),
        team: success,
        individual,
        role: mean_of(team.roles_held()),
        process: mean_of(team.processes()),
        tool: mean_of(tool_results(trace)),
        verifier: mean_of(team.verdicts()),
        // Not the speed-up itself, which has no bound.
        speedup: metrics.parallel_speedup.filter(|_| team.took_its_time()).map(|speedup| 1.0 - 1.0 / speedup.max(1.0)),
        aggregation: mean_of(team.aggregations()),
        split: metrics.useful_agents,
        hybrid: success
            .zip(individual)
            .map(|(team, own)| settings.hybrid_team * team + (1.0 - settings.hybrid_team) * own),
    }
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

/// A run that ended without an answer is wrong whoever looks; one that somebody cancelled is nothing.
fn success(summary: &Summary, grades: &Grades) -> Option<f64> {
    let ended = summary.stop_reason.is_some_and(|reason| reason != StopReason::Cancelled);
    let right = grades.team.or((ended && summary.answer.is_none()).then_some(false));
    right.map(|right| f64::from(u8::from(right)))
}

/// `exp(−Σ weight · tokens / scale)`. Absent without agents: a rejected specification is not a cheap team.
fn efficiency(summary: &Summary, settings: &RewardSettings) -> Option<f64> {
    if summary.agents.is_empty() || summary.stop_reason.is_none() {
        return None;
    }
    let weights = &settings.level_weights;
    let weight = |level: usize| weights.get(level).or(weights.last()).copied().unwrap_or(1.0);
    let weighted = |agent: &AgentSummary| Some(weight(agent.level) * nominal_tokens(agent)? as f64);
    let tokens: f64 = summary.agents.iter().map(weighted).sum::<Option<f64>>()?;
    Some((-tokens / settings.token_scale).exp()).filter(|value| value.is_finite())
}

fn structure(summary: &Summary, settings: &RewardSettings) -> Option<f64> {
    let agents = summary.agents.len();
    let edges: usize = summary.agents.iter().map(|agent| agent.after.len()).sum();
    (agents > 0).then_some(settings.agent_cost * agents as f64 + settings.edge_cost * edges as f64)
}

/// The share of texts that were refused. What stood in for the orchestrator's text is not its own, and a text that never
/// came because nobody could be reached is not its fault.
fn invalid(trace: &Trace) -> Option<f64> {
    let own = |kind: &EventKind| matches!(kind, EventKind::Decision { by, .. } if by != "fallback");
    let refused = |kind: &EventKind| matches!(kind, EventKind::Rejection { failure: None, .. });
    let count = |is: &dyn Fn(&EventKind) -> bool| trace.events.iter().filter(|event| is(&event.kind)).count() as f64;
    let texts = count(&own);
    (texts > 0.0).then(|| (count(&refused) / texts).min(1.0))
}

fn tool_results(trace: &Trace) -> impl Iterator<Item = f64> {
    trace.events.iter().filter_map(|event| match &event.kind {
        EventKind::ToolResult { ok, .. } => Some(f64::from(u8::from(*ok))),
        _ => None,
    })
}
