//! Searches a simulated world for the best team: is one agent always best?
//!
//! Seed teams of the common shapes are measured, and the best of them changed at random ([`mutate`]) until so many teams have
//! been tried. Most are given up after a few runs (successive halving); all run the same tasks with the same draws, so
//! that differences are paired. The best of many measurements is too good to be true, so the teams that were chosen run
//! once more with seeds the search has not seen, and only those runs are reported. The items stay the same: what is
//! found is the best team for these tasks.

mod mutate;
mod pool;
mod seeds;

pub use mutate::mutant;
pub use seeds::seed_teams;

use crate::trial::Trial;
use lemon_num::stats::{RunCluster, difference_interval, mean_interval};
use lemon_num::{Random, seed_of};
use lemon_rollout::{Case, RolloutEnv, RolloutError};
use lemon_task::Key;
use pool::{Pool, TeamCandidate, value};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

/// Runs an item gets with seeds the search has not seen.
const FRESH: usize = 4;

/// How to search.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchSettings {
    /// Teams tried.
    pub teams: usize,
    /// What a thousand tokens of the smallest capacity cost, in right answers. Tokens of the other capacities count as the
    /// parameters of the recorded models do: 1, 3 and 8 billion.
    pub price: f64,
    /// The seed of every random choice.
    pub seed: u64,
    /// Items at most; of more, so many are drawn.
    pub items: usize,
}

impl Default for SearchSettings {
    fn default() -> Self {
        SearchSettings { teams: 200, price: 0.01, seed: 0, items: 600 }
    }
}

/// A team that was found, and what it came to in runs that played no part in finding it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FoundTeam {
    /// What it is best at.
    pub best: Best,
    /// The specification.
    pub spec: String,
    /// Its agents; one that the rule `judge` adds is not counted.
    pub agents: usize,
    /// The items it ran on.
    pub items: usize,
    /// Its runs: each item several times.
    pub runs: usize,
    /// The share of right answers.
    pub accuracy: f64,
    /// Its 95 % interval, clustered by item.
    pub interval: [f64; 2],
    /// Tokens a run.
    pub tokens: f64,
    /// Tokens a run, weighted by capacity.
    pub weighted_tokens: f64,
    /// The accuracy less the price of the weighted tokens.
    pub value: f64,
    /// How much better it is than the best agent alone, in what it is best at; absent where it is one agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_alone: Option<Gap>,
}

/// What a team is best at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Best {
    /// The accuracy less the price of the tokens.
    Value,
    /// The accuracy alone.
    Accuracy,
    /// The value, of all single agents of this capacity.
    Alone(String),
}

/// A paired difference between two teams on the same items.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gap {
    pub difference: f64,
    /// Its 95 % interval, clustered by item.
    pub interval: [f64; 2],
}

/// Finds the best team for these cases by value, the best by accuracy, and the best single agent of each capacity, in this
/// order. Calls `progress` with the teams tried and all to be tried. The same seed finds the same; a cancelled search finds
/// nothing.
///
/// # Errors
/// The sandbox failed.
pub async fn search(
    env: &RolloutEnv,
    cases: &[Case],
    settings: &SearchSettings,
    cancel: &CancellationToken,
    mut progress: impl FnMut(usize, usize),
) -> Result<Vec<FoundTeam>, RolloutError> {
    let mut random = Random::new(seed_of(&["search", &settings.seed.to_string()]));
    let cases = drawn(cases, settings.items, &mut random);
    if cases.is_empty() {
        return Ok(Vec::new());
    }
    let code = cases.iter().any(|case| matches!(case.item.key(), Key::Code { .. }));
    let mut pool = Pool {
        env,
        cancel,
        cases,
        code,
        price: settings.price,
        seeds: format!("search {}", settings.seed),
        candidates: Vec::new(),
    };
    if !pool.grow(settings.teams, &mut random, &mut progress).await? {
        return Ok(Vec::new());
    }
    let mut chosen = pool.chosen();
    // From here on, seeds that no choice was made by.
    pool.seeds = format!("report {}", settings.seed);
    for (_, candidate) in &mut chosen {
        candidate.outcomes.clear();
        if !pool.measure(candidate, FRESH * pool.cases.len()).await? {
            return Ok(Vec::new());
        }
    }
    Ok(chosen.iter().map(|(best, team)| found(best, team, &chosen, settings, pool.cases.len())).collect())
}

/// So many of the cases, in an order of no meaning.
fn drawn<'c>(cases: &'c [Case], most: usize, random: &mut Random) -> Vec<&'c Case> {
    let mut cases: Vec<&Case> = cases.iter().collect();
    random.shuffle(&mut cases);
    cases.truncate(most);
    cases
}

fn found(
    best: &Best,
    team: &TeamCandidate,
    all: &[(Best, TeamCandidate)],
    settings: &SearchSettings,
    items: usize,
) -> FoundTeam {
    let outcomes = &team.outcomes;
    let mean = |of: fn(&Trial) -> f64| outcomes.iter().map(of).sum::<f64>() / outcomes.len().max(1) as f64;
    let measure = |outcome: &Trial| match best {
        Best::Accuracy => right(outcome),
        Best::Value | Best::Alone(_) => value(outcome, settings.price),
    };
    let alone = all.iter().filter(|(best, _)| matches!(best, Best::Alone(_))).map(|(_, alone)| alone);
    // The least gap counts: the best agent alone in these very runs, which is rather too hard on the team than too easy.
    let gaps = alone.map(|alone| {
        let differences = outcomes.iter().zip(&alone.outcomes).map(|(team, alone)| measure(team) - measure(alone));
        let clusters = by_item(&differences.collect::<Vec<_>>(), items);
        let interval = difference_interval(&clusters, None, settings.seed);
        Gap { difference: lemon_num::stats::mean(&clusters), interval }
    });
    let over_alone = gaps.min_by(|a, b| a.difference.total_cmp(&b.difference));
    FoundTeam {
        best: best.clone(),
        spec: team.text.clone(),
        agents: team.plan.agents().len(),
        items,
        runs: outcomes.len(),
        accuracy: mean(right),
        interval: mean_interval(
            &by_item(&outcomes.iter().map(right).collect::<Vec<_>>(), items),
            Some([0.0, 1.0]),
            settings.seed,
        ),
        tokens: mean(|outcome| outcome.tokens as f64),
        weighted_tokens: mean(|outcome| outcome.weighted as f64),
        value: outcomes.iter().map(|outcome| value(outcome, settings.price)).sum::<f64>()
            / outcomes.len().max(1) as f64,
        over_alone: over_alone.filter(|_| team.plan.agents().len() > 1),
    }
}

/// 1 for a right answer. The simulated world fails no call, so that an outcome is unknown only where programs cannot be run:
/// there no team is right, as a row of an evaluation would say.
fn right(outcome: &Trial) -> f64 {
    f64::from(u8::from(outcome.right.unwrap_or(false)))
}

/// The figures of runs that go through the items in turn, gathered by item.
fn by_item(figures: &[f64], items: usize) -> Vec<RunCluster> {
    (0..items.min(figures.len())).map(|item| figures.iter().copied().skip(item).step_by(items).collect()).collect()
}

#[cfg(test)]
mod tests;
