//! Learning curves of runs, at equal worker tokens and at equal steps.

use super::compare::{Estimate, TokenRatio};
use super::row::StudyRow;
use lemon_num::Random;
use serde::Serialize;
use std::collections::BTreeSet;

/// A mean curve is read at so many places after its first.
const PLACES: usize = 40;

/// How far below the reference's final reward an arm has arrived.
const SLACK: f64 = 0.01;

/// Draws of seeds behind the interval of a ratio.
const RESAMPLES: usize = 499;

/// Fewer pairs than this say nothing about the spread of a ratio.
const FEWEST_RESAMPLED: usize = 5;

/// A place on a mean curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CurvePoint {
    /// After so many worker tokens.
    pub worker_tokens: f64,
    /// The reward of held-out tasks, interpolated between two evaluations.
    pub reward: Estimate,
}

/// The mean curve of runs with different seeds, as far as all of them went. Empty where none went anywhere.
pub fn mean_curve(runs: &[&StudyRow]) -> Vec<CurvePoint> {
    let sampled = Sampled::new(runs.iter().copied());
    let estimate = |place: usize| sampled.runs.iter().filter_map(|run| run.get(place)).copied().collect();
    let places = sampled.tokens.iter().enumerate();
    places.map(|(place, tokens)| CurvePoint { worker_tokens: *tokens, reward: estimate(place) }).collect()
}

/// The worker tokens that the first of each pair needs on its mean curve until the final reward of the second less 0.01, over
/// those that the second needs itself. `None` where the second began there, or never went anywhere.
pub fn token_ratio(pairs: &[(&StudyRow, &StudyRow)], seed: u64) -> Option<TokenRatio> {
    let goes = |row: &StudyRow| path(row).len() > 1;
    let pairs: Vec<_> = pairs.iter().filter(|(run, other)| goes(run) && goes(other)).collect();
    let arm = Sampled::new(pairs.iter().map(|(run, _)| *run));
    let reference = Sampled::new(pairs.iter().map(|(_, other)| *other));
    // Infinite: never.
    let ratio = |chosen: &[usize]| {
        let goal = *reference.means(chosen).last()? - SLACK;
        let base = reference.reach(chosen, goal).filter(|tokens| *tokens > 0.0)?;
        Some(arm.reach(chosen, goal).map_or(f64::INFINITY, |tokens| tokens / base))
    };
    let all: Vec<usize> = (0..pairs.len()).collect();
    let known = |ratio: f64| ratio.is_finite().then_some(ratio);
    let mut drawn = Vec::new();
    if pairs.len() >= FEWEST_RESAMPLED {
        let mut random = Random::new(seed);
        let mut draw = |_: &usize| ((random.next_u64() >> 32).wrapping_mul(pairs.len() as u64) >> 32) as usize;
        drawn.extend((0..RESAMPLES).filter_map(|_| ratio(&all.iter().map(&mut draw).collect::<Vec<_>>())));
        drawn.sort_by(f64::total_cmp);
    }
    // Draws in which the reference learns nothing have no ratio; where they are many, neither has the interval.
    let ends = || Some([known(*drawn.get(drawn.len() / 40)?), known(*drawn.get(drawn.len() - 1 - drawn.len() / 40)?)]);
    let interval = if drawn.len() * 10 >= RESAMPLES * 9 { ends() } else { None };
    Some(TokenRatio { ratio: known(ratio(&all)?), interval })
}

/// The last step at which all runs of all pairs were evaluated, and the differences in reward there.
pub fn at_equal_steps(pairs: &[(&StudyRow, &StudyRow)]) -> Option<(u64, Vec<f64>)> {
    let steps =
        |row: &StudyRow| path(row).iter().map(|look| look.step).filter(|step| *step > 0).collect::<BTreeSet<_>>();
    let mut of_runs = pairs.iter().flat_map(|(run, other)| [steps(run), steps(other)]);
    let first = of_runs.next()?;
    let step = *of_runs.fold(first, |common, steps| &common & &steps).last()?;
    let reward = |row: &StudyRow| path(row).iter().find(|look| look.step == step).map(|look| look.reward);
    let differences = pairs.iter().filter_map(|(run, other)| Some(reward(run)? - reward(other)?)).collect();
    Some((step, differences))
}

/// An evaluation of a run.
struct Reached {
    step: u64,
    tokens: f64,
    reward: f64,
}

/// The evaluations of a run, with its first and last, which its curve may lack.
fn path(row: &StudyRow) -> Vec<Reached> {
    let at = |step, tokens: u64, reward| Reached { step, tokens: tokens as f64, reward };
    let mut looks: Vec<Reached> =
        row.curve.iter().map(|look| at(look.step, look.worker_tokens, look.means.reward)).collect();
    if looks.iter().all(|look| look.step > 0) {
        looks.push(at(0, 0, row.before.reward));
    }
    if looks.iter().all(|look| look.step < row.steps) {
        looks.push(at(row.steps, row.rollout_tokens.saturating_add(row.credit_tokens), row.after.reward));
    }
    looks.retain(|look| look.reward.is_finite());
    looks.sort_by(|left, right| left.tokens.total_cmp(&right.tokens).then(left.step.cmp(&right.step)));
    looks
}

/// Runs at common places: what each came to after so many worker tokens.
struct Sampled {
    tokens: Vec<f64>,
    runs: Vec<Vec<f64>>,
}

impl Sampled {
    fn new<'a>(runs: impl Iterator<Item = &'a StudyRow>) -> Sampled {
        let paths: Vec<Vec<Reached>> = runs.map(path).filter(|path| path.len() > 1).collect();
        let end = |path: &Vec<Reached>| path.last().map_or(0.0, |look| look.tokens);
        let end = paths.iter().map(end).fold(f64::INFINITY, f64::min);
        if !(end.is_finite() && end > 0.0) {
            return Sampled { tokens: Vec::new(), runs: Vec::new() };
        }
        let tokens: Vec<f64> = (0..=PLACES).map(|place| end * (place as f64 / PLACES as f64)).collect();
        let runs = paths.iter().map(|path| tokens.iter().map(|tokens| between(path, *tokens)).collect()).collect();
        Sampled { tokens, runs }
    }

    /// The mean curve of some of the runs; one may be chosen twice.
    fn means(&self, chosen: &[usize]) -> Vec<f64> {
        let mut sums = vec![0.0; self.tokens.len()];
        for run in chosen.iter().filter_map(|run| self.runs.get(*run)) {
            sums.iter_mut().zip(run).for_each(|(sum, reward)| *sum += reward);
        }
        sums.into_iter().map(|sum| sum / chosen.len() as f64).collect()
    }

    /// The worker tokens at which their mean curve first reaches a goal.
    fn reach(&self, chosen: &[usize], goal: f64) -> Option<f64> {
        let mut before: Option<(f64, f64)> = None;
        for (tokens, reward) in self.tokens.iter().zip(self.means(chosen)) {
            if reward >= goal {
                let (from, low) = before.unwrap_or((*tokens, reward));
                // `low` is below the goal and `reward` is not, unless they are the same place.
                let share = if reward > low { (goal - low) / (reward - low) } else { 0.0 };
                return Some(from + share * (tokens - from));
            }
            before = Some((*tokens, reward));
        }
        None
    }
}

/// The reward after so many tokens, interpolated between the evaluations before and after.
fn between(path: &[Reached], tokens: f64) -> f64 {
    let after = path.partition_point(|look| look.tokens < tokens);
    match (after.checked_sub(1).and_then(|before| path.get(before)), path.get(after)) {
        (Some(before), Some(after)) => {
            let share = (tokens - before.tokens) / (after.tokens - before.tokens);
            before.reward + share * (after.reward - before.reward)
        }
        (Some(look), None) | (None, Some(look)) => look.reward,
        (None, None) => 0.0,
    }
}
