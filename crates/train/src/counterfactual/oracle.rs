//! Rewards and counterfactuals with next to none of the workers' noise: a bound on what credit can bring, and no way to train.
//!
//! Every team of a step, and every edit of it, is run with several noise seeds, and the means take the place of single runs. None
//! of these runs is counted. So only simulated workers are asked.

use super::{Candidate, Counterfactuals, of_group};
use crate::TrainError;
use crate::episode::{Episode, EpisodeRunner, Job};
use crate::recipe::{CreditForm, Recipe};
use lemon_credit::economy::{FamilyLedger, OfferVerdict};
use lemon_credit::estimate::Paired;
use lemon_exec::{Clock, ReplyCache};
use lemon_rollout::Replies;
use lemon_sft::teach::draw;
use std::sync::Arc;

/// Replaces the rewards of a step by means over `credit.oracle` noise seeds, and measures every counterfactual the same way. Those
/// whose later rounds are still to be written stay unmeasured.
pub(crate) async fn measure(
    runner: &EpisodeRunner<'_>,
    groups: &mut [Vec<Episode>],
    recipe: &Recipe,
    number: u64,
) -> Result<Counterfactuals, TrainError> {
    if !matches!(runner.env.backend.clock, Clock::Simulated) {
        return Err(TrainError::Oracle { workers: runner.env.backend.name.to_string() });
    }
    let mut candidates: Vec<Candidate> = Vec::new();
    if recipe.credit.form != CreditForm::None {
        let of_group = |(at, group): (usize, &Vec<Episode>)| of_group(runner, at, group, &recipe.credit);
        candidates.extend(groups.iter().enumerate().flat_map(of_group).filter(|candidate| !candidate.is_open));
    }
    let teams: Vec<(usize, usize)> =
        groups.iter().enumerate().flat_map(|(at, group)| (0..group.len()).map(move |own| (at, own))).collect();
    let mut own = vec![Paired::default(); teams.len()];
    let mut edited = vec![Paired::default(); candidates.len()];
    for seed in 0..recipe.credit.oracle {
        // What teams of a group and their edits ask alike is one call, as in training.
        let group = |at: usize| {
            let names = [number, at as u64, u64::from(seed)].map(|it| it.to_string());
            (draw(recipe.seed, &["oracle", &names[0], &names[1], &names[2]]), Arc::new(ReplyCache::default()))
        };
        let noise: Vec<(u64, Arc<ReplyCache>)> = (0..groups.len()).map(group).collect();
        let job = |(group, episode): (usize, usize), texts: Vec<String>| {
            let (seed, memory) = noise[group].clone(); // Places are those of `groups`, here and below.
            Job { texts, seed, memory, case: groups[group][episode].case }
        };
        let of_teams = teams.iter().map(|place| job(*place, groups[place.0][place.1].texts()));
        let of_edits = candidates.iter().map(|it| job((it.group, it.episode), it.texts.clone()));
        let runs = runner.run_all(of_teams.chain(of_edits).collect(), Replies::Workers).await?;
        for (sum, run) in own.iter_mut().chain(&mut edited).zip(runs) {
            run.outcome.into_iter().for_each(|outcome| sum.push(outcome.reward));
        }
    }
    for ((group, episode), mean) in teams.iter().zip(&own) {
        let outcome = groups[*group][*episode].run.as_mut().and_then(|run| run.outcome.as_mut());
        if let (Some(outcome), Some(mean)) = (outcome, mean.mean()) {
            outcome.reward = mean;
        }
    }
    let mut ledger = FamilyLedger::default();
    for (candidate, mean) in candidates.iter_mut().zip(&edited) {
        candidate.delta = super::reward(groups, candidate).zip(mean.mean()).map(|(before, after)| before - after);
        ledger.add(candidate.edit.family, OfferVerdict::Free, candidate.delta, 0);
    }
    candidates.retain(|candidate| candidate.delta.is_some());
    Ok(Counterfactuals { measured: candidates, ledger, spent: 0 })
}
