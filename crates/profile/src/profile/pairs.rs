//! The runs of a profile: the team as it is on every task, and pairs of it with an edited team.

use super::ProfileWork;
use crate::budget::{Cost, TokenBudget};
use crate::counterfactual::{Counterfactual, Counterfactuals, Measurement, cost_of};
use futures::stream::{self, StreamExt};
use lemon_credit::choose::CounterfactualOption;
use lemon_rollout::{Outcome, Rollout, RolloutError, Score, UnknownReason};
use lemon_spec::edit::{Change, Edit, Edited, apply, edits};
use lemon_spec::{Language, Plan};
use tokio_util::sync::CancellationToken;

/// The team as it is on a task, with a known outcome.
pub(super) struct Base {
    /// The position of its task.
    pub case: usize,
    pub run: Rollout,
    pub score: Score,
}

/// All base runs.
pub(super) struct Bases {
    pub bases: Vec<Base>,
    /// Runs whose outcome is unknown.
    pub unknown: Vec<UnknownReason>,
    /// What all of them spent.
    pub spent: Cost,
}

/// A base run and an edited run.
pub(super) struct Pair {
    pub edit: usize,
    pub task: usize,
    pub found: Counterfactual,
}

/// Every edit of the wanted families that can be run: those that ask for another round need a reviewer to write it.
pub(super) fn applicable(work: &ProfileWork<'_>, language: &Language, reviews: bool) -> Vec<(Edit, Edited)> {
    let ProfileWork { plan, families, .. } = work;
    let is_wanted = |edit: &Edit| families.is_empty() || families.contains(&edit.family);
    let runnable = |edit: &Edit| is_wanted(edit) && (reviews || edit.change != Change::Review);
    let all = edits(plan, language).into_iter().filter(runnable);
    // Only edits that apply are enumerated; one that breaks a limit of the language all the same cannot be run.
    all.filter_map(|edit| Some((edit.clone(), apply(plan, &edit, language).ok()?))).collect()
}

/// Runs the team as it is on every task with every seed, as far as the budget goes.
pub(super) async fn bases(
    runs: &Counterfactuals<'_>,
    work: &ProfileWork<'_>,
    budget: &TokenBudget,
    cancel: &CancellationToken,
) -> Result<Bases, RolloutError> {
    // A list and no iterator over borrowed cases: with that the compiler could not prove that this future can be sent.
    let mut places = Vec::new();
    for case in 0..work.cases.len() {
        places.extend(work.seeds.iter().map(|seed| (case, *seed)));
    }
    let one = |(case, seed): (usize, u64)| async move {
        let most = runs.most(&work.cases[case], work.plan); // `case` counts the cases
        if cancel.is_cancelled() || !budget.take(most).await {
            return Ok::<_, RolloutError>(None);
        }
        let run = runs.base(&work.cases[case], work.plan, seed, cancel).await?;
        budget.put_back(most.less(cost_of(&run)));
        // A run that was cut off says nothing about the team.
        Ok((!cancel.is_cancelled()).then_some((case, run)))
    };
    let mut ends = stream::iter(places).map(one).buffered(work.width.max(1));
    let mut all = Bases { bases: Vec::new(), unknown: Vec::new(), spent: Cost::default() };
    while let Some(end) = ends.next().await {
        let Some((case, run)) = end? else { continue };
        all.spent = [all.spent, cost_of(&run)].into_iter().sum();
        match run.outcome.clone() {
            Outcome::Scored(score) => all.bases.push(Base { case, run, score }),
            Outcome::Unknown(reason) => all.unknown.push(reason),
        }
    }
    Ok(all)
}

/// Every edit on every base run, with what it will cost: the agents it can reach.
pub(super) fn candidates(plan: &Plan, edits: &[(Edit, Edited)], bases: &[Base]) -> Vec<CounterfactualOption> {
    let mut candidates = Vec::new();
    for (edit, (what, _)) in edits.iter().enumerate() {
        let reached = reached(plan, what);
        for (task, base) in bases.iter().enumerate() {
            let summary = &base.run.summary;
            let tokens = |id: &String| summary.agent(id).map_or(0, lemon_trace::AgentSummary::tokens);
            let cost = reached.iter().map(tokens).sum();
            candidates.push(CounterfactualOption { edit, family: what.family, task, cost });
        }
    }
    candidates
}

/// The agents that may say something else after an edit: the edited one, if it is still there, and all downstream of it.
pub(crate) fn reached(plan: &Plan, edit: &Edit) -> Vec<String> {
    let position = |id: &str| plan.agents().iter().position(|agent| agent.id == id);
    let Some(start) = edit.change.edited_agent().and_then(position) else { return Vec::new() };
    let mut reached = vec![start];
    for (index, agent) in plan.agents().iter().enumerate() {
        if agent.parents.iter().any(|parent| reached.iter().any(|from| plan.earlier() + from == *parent)) {
            reached.push(index);
        }
    }
    let skip = usize::from(edit.change.rewritten_agent().is_none());
    reached.into_iter().skip(skip).filter_map(|index| Some(plan.agents().get(index)?.id.clone())).collect()
}

/// Runs a candidate. `None`: cancelled, or the budget has no room for it.
pub(super) async fn pair(
    runs: &Counterfactuals<'_>,
    bases: &[Base],
    edits: &[(Edit, Edited)],
    candidate: &CounterfactualOption,
    budget: &TokenBudget,
    cancel: &CancellationToken,
) -> Result<Option<Measurement>, RolloutError> {
    let (Some(base), Some((edit, edited))) = (bases.get(candidate.task), edits.get(candidate.edit)) else {
        return Ok(None);
    };
    let most = runs.most(&base.run.case, &edited.plan);
    if cancel.is_cancelled() || !budget.take(most).await {
        return Ok(None);
    }
    let measured = runs.counterfactual(&base.run, edit, edited, cancel).await?;
    budget.put_back(most.less(measured.cost()));
    Ok((!cancel.is_cancelled()).then_some(measured))
}
