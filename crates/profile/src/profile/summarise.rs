//! From pairs of runs to effects with their errors.

use super::pairs::{Base, Pair};
use super::{Baseline, CascadeRow, Effect, Profile, Reuse};
use crate::counterfactual::{Counterfactual, nominal_tokens};
use lemon_credit::advice::{AdviceSettings, Finding, advice};
use lemon_credit::cascade::{CascadeSummary, EffectSplit};
use lemon_credit::estimate::ClusteredPaired;
use lemon_credit::unit::{target_of, unit_of};
use lemon_num::stats::wilson;
use lemon_spec::edit::{Change, Edit, Edited, Family};
use std::collections::BTreeMap;

/// Success that a saving may cost: with 200 tasks, less could not be told from nothing.
const TOLERANCE: f64 = 0.02;

/// A profile of what was run; `spent`: tokens beside those of the pairs.
pub(super) fn summarise(edits: &[(Edit, Edited)], bases: &[Base], pairs: &[Pair], spent: u64) -> Profile {
    let baseline = baseline(bases);
    let mut cascades = CascadeSummary::default();
    let mut reuse = Reuse { tokens: spent, ..Reuse::default() };
    for Pair { edit, found, .. } in pairs {
        let split =
            found.direct.map(|direct| EffectSplit { total: found.success, direct, downstream: found.success - direct });
        if let Some((edit, _)) = edits.get(*edit) {
            cascades.push(edit.family, &found.cascade, split.as_ref());
        }
        reuse.calls += found.calls;
        reuse.calls_reused += found.reused;
        reuse.tokens += found.spent;
        reuse.tokens_saved += found.saved;
    }
    let effect = |(at, (edit, _)): (usize, &(Edit, Edited))| {
        let own: Vec<&Pair> = pairs.iter().filter(|pair| pair.edit == at).collect();
        effect(edit, &own, bases, &baseline)
    };
    let mut effects: Vec<Effect> = edits.iter().enumerate().map(effect).collect();
    effects.sort_by(|a, b| a.rank().total_cmp(&b.rank()));
    let (cascades, accounts) = (cascade_rows(&cascades), BTreeMap::new());
    Profile { baseline, effects, cascades, reuse, accounts, complete: false, unknown: Vec::new() }
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

fn baseline(bases: &[Base]) -> Baseline {
    let runs = bases.len();
    let mean = |value: &dyn Fn(&Base) -> f64| bases.iter().map(value).sum::<f64>() / (runs.max(1) as f64);
    let mut by_task: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    let mut agents: BTreeMap<String, f64> = BTreeMap::new();
    let mut rewards: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for Base { case, run, score } in bases {
        by_task.entry(*case).or_default().push(score.success());
        for agent in &run.summary.agents {
            *agents.entry(agent.id.clone()).or_default() += agent.tokens() as f64 / runs as f64;
        }
        for (name, value) in score.channels.named() {
            let (sum, count) = rewards.entry(name).or_default();
            (*sum, *count) = (*sum + value, *count + 1.0);
        }
    }
    let success = mean(&|base| base.score.success());
    // Runs of one task are not independent: as many observations as tasks; where there is only one, as many as draws.
    let observations = if by_task.len() == 1 { runs } else { by_task.len() } as u64;
    Baseline {
        runs,
        success,
        interval: wilson((success * observations as f64).round() as u64, observations),
        tokens: mean(&|base| nominal_tokens(&base.run, &base.score)),
        cost: mean(&|base| base.score.cost),
        agents,
        rewards: rewards.into_iter().map(|(name, (sum, count))| (name, sum / count)).collect(),
    }
}

fn effect(edit: &Edit, pairs: &[&Pair], bases: &[Base], baseline: &Baseline) -> Effect {
    // Runs of one task are one observation; where there is only one task, each of its draws is.
    let single = bases.iter().all(|base| base.case == 0);
    let task = |pair: &Pair| match bases.get(pair.task) {
        Some(base) if !single => base.case,
        _ => pair.task,
    };
    let estimate = |value: &dyn Fn(&Counterfactual) -> Option<f64>| {
        let mut estimate = ClusteredPaired::default();
        pairs.iter().for_each(|pair| {
            if let Some(value) = value(&pair.found) {
                estimate.push(task(pair), value);
            }
        });
        estimate
    };
    let success = estimate(&|found| Some(found.success));
    let tokens = estimate(&|found| Some(found.tokens)).mean();
    let cost = estimate(&|found| Some(found.cost)).mean();
    let interval = success.over_tasks().interval_within(1.0);
    let (calls, reused) =
        pairs.iter().fold((0, 0), |(calls, reused), pair| (calls + pair.found.calls, reused + pair.found.reused));
    // A capacity changes what a token costs and hardly how many there are.
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
        reward: estimate(&|found| found.reward).mean(),
        direct: estimate(&|found| found.direct).mean(),
        descendants_changed: estimate(&|found| Some(found.cascade.changed as f64)).mean(),
        answer_changed: estimate(&|found| Some(f64::from(u8::from(found.cascade.answer_changed)))).mean(),
        zeros: success.zeros(),
        spent: pairs.iter().map(|pair| pair.found.spent).sum(),
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
