//! A profile: every edit of a team, run on many tasks, as effects with their errors.

use crate::contrast::{Contrast, Contrasts, Original};
use crate::purse::{Cost, Purse, SpendingLimits};
use futures::stream::{self, StreamExt};
use lemon_credit::advice::{AdviceSettings, Finding, Verdict, advice};
use lemon_credit::cascade::{CascadeSummary, Split};
use lemon_credit::choose::{Account, Candidate, Chooser, Policy};
use lemon_credit::estimate::ClusteredPaired;
use lemon_credit::unit::{Unit, target_of, unit_of};
use lemon_eval::{Case, Estimate, EvalError};
use lemon_exec::{CallForecast, Forecast};
use lemon_num::stats::wilson;
use lemon_spec::edit::{Change, Edit, Edited, Family, apply, edits};
use lemon_spec::{Language, Plan};
use lemon_trace::Trace;
use serde::Serialize;
use std::collections::BTreeMap;
use tokio_util::sync::CancellationToken;

/// Success that a saving may cost: with 200 tasks, less could not be told from nothing.
const TOLERANCE: f64 = 0.02;

/// What to profile.
pub struct ProfileWork<'a> {
    /// The team.
    pub plan: &'a Plan,
    /// The tasks.
    pub cases: &'a [Case],
    /// The seeds: every task is run with each.
    pub seeds: &'a [u64],
    /// Runs at a time.
    pub width: usize,
    /// What to spend at most, over everything.
    pub budget: SpendingLimits,
    /// The sampler, where not everything can be run.
    pub policy: Policy,
}

/// What a team is worth, and each of its decisions.
#[derive(Debug, Clone, Serialize)]
pub struct Profile {
    /// The team as it is.
    pub baseline: Baseline,
    /// Every edit: the least worth for its cost first.
    pub effects: Vec<Effect>,
    /// How far changes spread, by family.
    pub cascades: Vec<CascadeRow>,
    /// What was not run again.
    pub reuse: Reuse,
    /// What each family cost and showed.
    pub accounts: BTreeMap<Family, Account>,
    /// Everything that could be run was run. `false`: the budget, or somebody, ended it first.
    pub complete: bool,
}

/// The team as it is.
#[derive(Debug, Clone, Serialize)]
pub struct Baseline {
    /// Runs.
    pub runs: usize,
    /// The share of right answers.
    pub success: f64,
    /// Its 95 % interval, by tasks.
    pub interval: [f64; 2],
    /// Mean tokens of a run.
    pub tokens: f64,
    /// Mean cost of a run, in tokens of the weakest level.
    pub cost: f64,
    /// Mean tokens of each agent.
    pub agents: BTreeMap<String, f64>,
    /// Reward channels, each the mean over the runs where it could be measured.
    pub rewards: BTreeMap<String, f64>,
}

/// What one decision is worth: the team as it is less the team with it changed.
#[derive(Debug, Clone, Serialize)]
pub struct Effect {
    /// The unit that carries the credit.
    pub unit: Unit,
    /// Which one: an agent's id, `a → b` for a message.
    pub target: String,
    /// The family of the edit.
    pub family: Family,
    /// The edit, in words.
    pub change: String,
    /// Difference in success; absent: not measured, which is not zero.
    pub effect: Option<f64>,
    /// Its 95 % interval.
    pub interval: Option<[f64; 2]>,
    /// Its standard error, over tasks.
    pub standard_error: Option<f64>,
    /// Pairs of runs.
    pub n: u64,
    /// Mean tokens that the decision costs.
    pub tokens: Option<f64>,
    /// The same in tokens of the weakest level.
    pub cost: Option<f64>,
    /// Difference in reward.
    pub reward: Option<f64>,
    /// The part of the effect that is there though nobody downstream changed; absent where a judge decides.
    pub direct: Option<f64>,
    /// Agents downstream whose reply changed, in the mean.
    pub descendants_changed: Option<f64>,
    /// How often the answer changed.
    pub answer_changed: Option<f64>,
    /// The share of pairs without any difference in success.
    pub zeros: Option<f64>,
    /// Tokens spent to learn this.
    pub spent: u64,
    /// The share of calls that the original answered.
    pub reused: Option<f64>,
    /// What to do.
    pub verdict: Verdict,
    /// The same in words.
    pub advice: String,
    /// The edit.
    #[serde(skip)]
    pub edit: Edit,
}

/// How far the changes of a family spread.
#[derive(Debug, Clone, Serialize)]
pub struct CascadeRow {
    /// The family.
    pub family: Family,
    /// Pairs of runs.
    pub n: u64,
    /// Mean number of agents downstream of the change.
    pub descendants: Option<f64>,
    /// The share of those whose reply changed.
    pub changed: Option<f64>,
    /// How often the answer changed.
    pub answer_changed: Option<f64>,
    /// Mean effect on success.
    pub effect: Option<f64>,
    /// The part of it that is there though nobody downstream changed.
    pub direct: Option<f64>,
    /// The rest.
    pub downstream: Option<f64>,
}

/// What counterfactuals did not have to run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Reuse {
    /// Calls made.
    pub calls: usize,
    /// Calls that the original answered.
    pub calls_reused: usize,
    /// Tokens spent, originals included.
    pub tokens: u64,
    /// Tokens saved.
    pub tokens_saved: u64,
}

impl Reuse {
    /// The share of the counterfactuals' calls that were not made.
    pub fn share(&self) -> Option<f64> {
        let all = self.calls + self.calls_reused;
        (all > 0).then(|| self.calls_reused as f64 / all as f64)
    }
}

/// A pair of runs.
struct Pair {
    edit: usize,
    task: usize,
    contrast: Contrast,
}

/// Profiles a team.
///
/// Without a budget every edit is run on every task. With one, the originals come first and then those counterfactuals that
/// tell most per token, until the budget has no room for another.
///
/// # Errors
/// A program could not be graded.
pub async fn profile(
    contrasts: &Contrasts<'_>,
    work: &ProfileWork<'_>,
    cancel: &CancellationToken,
    mut progress: impl FnMut(usize, usize),
) -> Result<Profile, EvalError> {
    let language = &contrasts.evaluator.language;
    let edits = applicable(work.plan, language, contrasts.reviewer.is_some());
    // Half of the budget at most goes into originals, so that something is left to change; one run there has to be.
    let one_run = work.cases.first().map_or(Cost::default(), |case| contrasts.most(case, work.plan));
    let originals = originals(contrasts, work, &Purse::new(work.budget.half(one_run)), cancel).await?;
    let left = work.budget.less(spent(&originals));
    let purse = Purse::new(left);
    let candidates = candidates(work.plan, &edits, &originals);
    let all = candidates.len();
    let cap = left.tokens.unwrap_or(u64::MAX);
    let mut chooser = Chooser::new(work.policy, cap, candidates, work.seeds.first().copied().unwrap_or(0));
    let mut pairs: Vec<Pair> = Vec::new();
    loop {
        let batch: Vec<Candidate> = std::iter::from_fn(|| chooser.propose()).take(8 * work.width.max(1)).collect();
        if batch.is_empty() || cancel.is_cancelled() {
            break;
        }
        let one = |candidate: Candidate| {
            let (originals, edits, purse) = (&originals, &edits, &purse);
            async move { (candidate, pair(contrasts, work, originals, edits, &candidate, purse, cancel).await) }
        };
        let mut ends = stream::iter(batch).map(one).buffer_unordered(work.width.max(1));
        while let Some((candidate, pair)) = ends.next().await {
            let pair = pair?;
            let (delta, tokens) =
                pair.as_ref().map_or((None, 0), |pair| (Some(pair.contrast.success), pair.contrast.spent));
            chooser.record(&candidate, delta, tokens);
            pairs.extend(pair);
            progress(pairs.len(), all);
        }
    }
    // Runs end in any order; the same pairs give the same profile.
    pairs.sort_by_key(|pair| (pair.edit, pair.task));
    let complete = pairs.len() == all && originals.len() == work.cases.len() * work.seeds.len();
    Ok(summarise(&edits, &originals, &pairs, chooser.accounts().clone(), complete))
}

/// What a profile may spend, before its first call: every team whole, and of a counterfactual what its edit can reach.
pub fn estimate(contrasts: &Contrasts<'_>, work: &ProfileWork<'_>) -> Estimate {
    let evaluator = contrasts.evaluator;
    let edits = applicable(work.plan, &evaluator.language, contrasts.reviewer.is_some());
    let Some(judge) = evaluator.language.roles.get("judge") else { return Estimate::default() };
    let reached: Vec<Vec<String>> = edits.iter().map(|(edit, _)| reached(work.plan, edit)).collect();
    let mut sum = Estimate::default();
    for case in work.cases {
        let question = &case.item.task.question;
        let whole = Forecast::new(work.plan, question, &evaluator.backend.levels, judge.clone());
        sum.add(&whole);
        for reached in &reached {
            let again = |call: &&CallForecast| call.is_judge || reached.contains(&call.agent);
            sum.add(&Forecast { calls: whole.calls.iter().filter(again).cloned().collect() });
        }
    }
    let most = work.cases.iter().map(|case| {
        let edited = edits.iter().map(|(_, edited)| contrasts.most(case, &edited.plan));
        std::iter::once(contrasts.most(case, work.plan)).chain(edited).sum::<Cost>()
    });
    let most: Cost = most.sum();
    let sum = Estimate { at_most: most.tokens as f64, at_most_usd: most.usd, ..sum };
    sum.times(work.seeds.len() as f64)
}

/// Every edit that can be run: those that ask for another round need somebody to write it.
fn applicable(plan: &Plan, language: &Language, reviews: bool) -> Vec<(Edit, Edited)> {
    let runnable = |edit: &Edit| reviews || edit.change != Change::Review;
    let all = edits(plan, language).into_iter().filter(runnable);
    all.filter_map(|edit| Some((edit.clone(), apply(plan, &edit, language).ok()?))).collect()
}

/// An original run and where it belongs.
struct Placed {
    case: usize,
    original: Original,
}

async fn originals(
    contrasts: &Contrasts<'_>,
    work: &ProfileWork<'_>,
    purse: &Purse,
    cancel: &CancellationToken,
) -> Result<Vec<Placed>, EvalError> {
    let places = work.cases.iter().enumerate().flat_map(|(case, _)| work.seeds.iter().map(move |seed| (case, *seed)));
    let one = |(case, seed): (usize, u64)| async move {
        let most = contrasts.most(&work.cases[case], work.plan); // `case` counts the cases
        if cancel.is_cancelled() || !purse.take(most).await {
            return Ok::<_, EvalError>(None);
        }
        let original = contrasts.original(&work.cases[case], work.plan, seed, cancel).await?;
        purse.put_back(most.less(cost_of(&original.trace)));
        // A run that was cut off says nothing about the team.
        Ok((!cancel.is_cancelled()).then_some(Placed { case, original }))
    };
    let mut ends = stream::iter(places).map(one).buffered(work.width.max(1));
    let mut originals = Vec::new();
    while let Some(placed) = ends.next().await {
        originals.extend(placed?);
    }
    Ok(originals)
}

fn spent(originals: &[Placed]) -> Cost {
    originals.iter().map(|placed| cost_of(&placed.original.trace)).sum()
}

fn cost_of(trace: &Trace) -> Cost {
    let summary = trace.summary();
    Cost { tokens: summary.tokens.total, usd: summary.usd }
}

/// Every edit on every original, with what it will cost: the agents it can reach.
fn candidates(plan: &Plan, edits: &[(Edit, Edited)], originals: &[Placed]) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for (edit, (what, _)) in edits.iter().enumerate() {
        let reached = reached(plan, what);
        for (task, placed) in originals.iter().enumerate() {
            let summary = placed.original.trace.summary();
            let tokens = |id: &String| summary.agent(id).map_or(0, lemon_trace::AgentSummary::tokens);
            let cost = reached.iter().map(tokens).sum();
            candidates.push(Candidate { edit, family: what.family, task, cost });
        }
    }
    candidates
}

/// The agents that may say something else after an edit: the edited one, if it is still there, and everybody downstream.
pub(crate) fn reached(plan: &Plan, edit: &Edit) -> Vec<String> {
    let position = |id: &str| plan.agents().iter().position(|agent| agent.id == id);
    let (start, itself) = match &edit.change {
        Change::DeleteReference { agent, .. }
        | Change::AddReference { agent, .. }
        | Change::ResetRole { agent }
        | Change::ResetDuty { agent }
        | Change::LowerCapacity { agent }
        | Change::RaiseCapacity { agent }
        | Change::WithholdMessage { to: agent, .. } => (position(agent), true),
        Change::RemoveAgent { agent }
        | Change::EndBefore { agent }
        | Change::ShareAnswer { agent }
        | Change::ShareReply { agent } => (position(agent), false),
        Change::AnswerBy { .. } | Change::Stop | Change::Review => (None, false),
    };
    let Some(start) = start else { return Vec::new() };
    let mut reached = vec![start];
    for (index, agent) in plan.agents().iter().enumerate() {
        let number = plan.earlier() + index;
        if agent.parents.iter().any(|parent| reached.iter().any(|from| plan.earlier() + from == *parent)) {
            reached.push(number - plan.earlier());
        }
    }
    let skip = usize::from(!itself);
    reached.into_iter().skip(skip).filter_map(|index| Some(plan.agents().get(index)?.id.clone())).collect()
}

async fn pair(
    contrasts: &Contrasts<'_>,
    work: &ProfileWork<'_>,
    originals: &[Placed],
    edits: &[(Edit, Edited)],
    candidate: &Candidate,
    purse: &Purse,
    cancel: &CancellationToken,
) -> Result<Option<Pair>, EvalError> {
    let (Some(placed), Some((edit, edited))) = (originals.get(candidate.task), edits.get(candidate.edit)) else {
        return Ok(None);
    };
    let Some(case) = work.cases.get(placed.case) else { return Ok(None) };
    let most = contrasts.most(case, &edited.plan);
    if cancel.is_cancelled() || !purse.take(most).await {
        return Ok(None);
    }
    let contrast = contrasts.contrast(case, &placed.original, edit, edited, cancel).await?;
    purse.put_back(most.less(Cost { tokens: contrast.spent, usd: contrast.spent_usd }));
    Ok((!cancel.is_cancelled()).then_some(Pair { edit: candidate.edit, task: candidate.task, contrast }))
}

fn summarise(
    edits: &[(Edit, Edited)],
    originals: &[Placed],
    pairs: &[Pair],
    accounts: BTreeMap<Family, Account>,
    complete: bool,
) -> Profile {
    let baseline = baseline(originals);
    let mut cascades = CascadeSummary::default();
    let mut reuse = Reuse { tokens: spent(originals).tokens, ..Reuse::default() };
    for Pair { edit, contrast, .. } in pairs {
        let split = contrast.direct.map(|direct| Split {
            total: contrast.success,
            direct,
            downstream: contrast.success - direct,
        });
        if let Some((edit, _)) = edits.get(*edit) {
            cascades.push(edit.family, &contrast.cascade, split.as_ref());
        }
        reuse.calls += contrast.calls;
        reuse.calls_reused += contrast.reused;
        reuse.tokens += contrast.spent;
        reuse.tokens_saved += contrast.saved;
    }
    let effect = |(at, (edit, _)): (usize, &(Edit, Edited))| {
        let own: Vec<&Pair> = pairs.iter().filter(|pair| pair.edit == at).collect();
        effect(edit, &own, originals, &baseline)
    };
    let mut effects: Vec<Effect> = edits.iter().enumerate().map(effect).collect();
    effects.sort_by(|a, b| a.rank().total_cmp(&b.rank()));
    Profile { baseline, effects, cascades: cascade_rows(&cascades), reuse, accounts, complete }
}

impl Effect {
    /// What is worth least for its cost comes first; what was not measured comes last.
    fn rank(&self) -> f64 {
        match (self.effect, self.cost) {
            (Some(effect), Some(cost)) => effect - 0.01 * cost / 1000.0,
            _ => f64::INFINITY,
        }
    }
}

fn baseline(originals: &[Placed]) -> Baseline {
    let runs = originals.len();
    let mean = |value: &dyn Fn(&Original) -> f64| {
        originals.iter().map(|placed| value(&placed.original)).sum::<f64>() / (runs.max(1) as f64)
    };
    let mut by_task: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    let mut agents: BTreeMap<String, f64> = BTreeMap::new();
    let mut rewards: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for Placed { case, original } in originals {
        by_task.entry(*case).or_default().push(original.score.success);
        for agent in original.trace.summary().agents {
            *agents.entry(agent.id.clone()).or_default() += agent.tokens() as f64 / runs as f64;
        }
        for (name, value) in original.score.channels.named() {
            let (sum, count) = rewards.entry(name).or_default();
            (*sum, *count) = (*sum + value, *count + 1.0);
        }
    }
    let success = mean(&|original| original.score.success);
    // Runs of one task are not independent: as many observations as tasks; where there is only one, as many as draws.
    let observations = if by_task.len() == 1 { runs } else { by_task.len() } as u64;
    Baseline {
        runs,
        success,
        interval: wilson((success * observations as f64).round() as u64, observations),
        tokens: mean(&|original| original.score.tokens),
        cost: mean(&|original| original.score.cost),
        agents,
        rewards: rewards.into_iter().map(|(name, (sum, count))| (name, sum / count)).collect(),
    }
}

fn effect(edit: &Edit, pairs: &[&Pair], originals: &[Placed], baseline: &Baseline) -> Effect {
    // Runs of one task are one observation; where there is only one task, each of its draws is.
    let single = originals.iter().all(|placed| placed.case == 0);
    let task = |pair: &Pair| match originals.get(pair.task) {
        Some(placed) if !single => placed.case,
        _ => pair.task,
    };
    let estimate = |value: &dyn Fn(&Contrast) -> Option<f64>| {
        let mut estimate = ClusteredPaired::default();
        pairs.iter().for_each(|pair| {
            if let Some(value) = value(&pair.contrast) {
                estimate.push(task(pair), value);
            }
        });
        estimate
    };
    let success = estimate(&|contrast| Some(contrast.success));
    let tokens = estimate(&|contrast| Some(contrast.tokens)).mean();
    let cost = estimate(&|contrast| Some(contrast.cost)).mean();
    let interval = success.over_tasks().interval_within(1.0);
    let (calls, reused) =
        pairs.iter().fold((0, 0), |(calls, reused), pair| (calls + pair.contrast.calls, reused + pair.contrast.reused));
    // A level changes what a token costs and hardly how many there are.
    let change = match edit.family {
        Family::Capacity => cost.map(|cost| -cost / baseline.cost.max(1.0)),
        _ => tokens.map(|tokens| -tokens / baseline.tokens.max(1.0)),
    };
    let own_share = match &edit.change {
        Change::RemoveAgent { agent } => baseline.agents.get(agent).map(|own| own / baseline.tokens.max(1.0)),
        _ => None,
    };
    let finding = Finding {
        effect: success.mean(),
        interval,
        n: success.tasks() as u64,
        token_share: own_share,
        token_change: change,
    };
    let advice = advice(edit, &finding, &AdviceSettings { tolerance: TOLERANCE, ..AdviceSettings::default() });
    Effect {
        unit: unit_of(edit),
        target: target_of(edit),
        family: edit.family,
        change: edit.describe(),
        effect: success.mean(),
        interval,
        standard_error: success.standard_error(),
        n: success.pairs(),
        tokens,
        cost,
        reward: estimate(&|contrast| contrast.reward).mean(),
        direct: estimate(&|contrast| contrast.direct).mean(),
        descendants_changed: estimate(&|contrast| Some(contrast.cascade.changed as f64)).mean(),
        answer_changed: estimate(&|contrast| Some(f64::from(u8::from(contrast.cascade.answer_changed)))).mean(),
        zeros: success.zeros(),
        spent: pairs.iter().map(|pair| pair.contrast.spent).sum(),
        reused: (calls + reused > 0).then(|| reused as f64 / (calls + reused) as f64),
        verdict: advice.verdict,
        advice: advice.text,
        edit: edit.clone(),
    }
}

fn cascade_rows(cascades: &CascadeSummary) -> Vec<CascadeRow> {
    let row = |(family, row): (Family, &lemon_credit::cascade::FamilyCascade)| CascadeRow {
        family,
        n: row.n,
        descendants: row.mean_descendants(),
        changed: row.changed_share(),
        answer_changed: row.answer_changed_share(),
        effect: row.total.mean(),
        direct: row.direct.mean(),
        downstream: row.downstream.mean(),
    };
    cascades.iter().map(row).collect()
}
