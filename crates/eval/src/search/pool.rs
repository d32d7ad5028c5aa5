//! The teams tried so far, and how the best of them are found.

use super::mutate::mutant;
use super::seeds::seed_teams;
use super::{Best, right};
use crate::trial::{self, Trial, fixed};
use futures::stream::{self, StreamExt, TryStreamExt};
use lemon_exec::orchestrator::Orchestrator;
use lemon_num::{Random, seed_of};
use lemon_rollout::{Case, RolloutEnv, RolloutError};
use lemon_spec::{Plan, render, validate};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Runs after which a third of the teams is kept each time, before they run on all items.
const RUNGS: [usize; 2] = [40, 120];
/// One in so many is kept.
const KEPT: usize = 3;
/// Teams that are changed in a generation, and teams that come of it.
const PARENTS: usize = 8;
const BROOD: usize = 24;
/// Teams that the best are chosen from, and how often they run each item.
const FINALISTS: usize = 12;
const REPEATS: usize = 3;
/// Runs at a time.
const WIDTH: usize = 16;
/// Changes drawn before giving up on finding a new team.
const MOST_DRAWS: usize = 50;

pub struct Pool<'a> {
    pub env: &'a RolloutEnv,
    pub cancel: &'a CancellationToken,
    pub cases: Vec<&'a Case>,
    /// Whether programs are asked for.
    pub code: bool,
    pub price: f64,
    /// What the seeds of the runs are made from.
    pub seeds: String,
    pub candidates: Vec<TeamCandidate>,
}

/// A team that is tried.
#[derive(Clone)]
pub struct TeamCandidate {
    pub plan: Plan,
    pub text: String,
    team: Arc<dyn Orchestrator>,
    /// Its runs, through the items in turn, then again with the next seed.
    pub outcomes: Vec<Trial>,
}

impl TeamCandidate {
    fn new(plan: Plan) -> Self {
        let text = render(plan.spec()).text;
        TeamCandidate { plan, team: fixed(text.clone()), text, outcomes: Vec::new() }
    }

    fn is_alone(&self) -> bool {
        self.plan.agents().len() == 1
    }

    /// The mean value of its runs at a price.
    fn value(&self, price: f64) -> f64 {
        self.outcomes.iter().map(|outcome| value(outcome, price)).sum::<f64>() / self.outcomes.len().max(1) as f64
    }
}

/// What a run is worth: a right answer less the price of its tokens.
pub fn value(outcome: &Trial, price: f64) -> f64 {
    right(outcome) - price * outcome.weighted as f64 / 1000.0
}

impl Pool<'_> {
    /// Tries so many teams. `false`: cancelled.
    pub async fn grow(
        &mut self,
        teams: usize,
        random: &mut Random,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<bool, RolloutError> {
        let mut brood = self.seed_teams();
        // Single agents come first, and teams are compared with them.
        brood.truncate(teams.max(self.env.language.capacities.len()));
        let mut known: HashSet<String> = brood.iter().map(|team| team.text.clone()).collect();
        while !brood.is_empty() {
            if !self.halve(&mut brood).await? {
                return Ok(false);
            }
            self.candidates.append(&mut brood);
            progress(known.len().min(teams), teams);
            brood = self.brood(BROOD.min(teams.saturating_sub(known.len())), &mut known, random);
        }
        let mut finalists: Vec<TeamCandidate> = self.best(&self.candidates, FINALISTS).into_iter().cloned().collect();
        for finalist in &mut finalists {
            if !self.measure(finalist, REPEATS * self.cases.len()).await? {
                return Ok(false);
            }
        }
        self.candidates = finalists;
        Ok(true)
    }

    fn seed_teams(&self) -> Vec<TeamCandidate> {
        let texts = seed_teams(&self.env.language, self.code).into_iter().map(|spec| render(&spec).text);
        // A language with tight limits rules some of them out.
        texts.filter_map(|text| validate(&text, &self.env.language).ok()).map(TeamCandidate::new).collect()
    }

    /// Up to so many new teams, each a change of one of the best.
    fn brood(&self, size: usize, known: &mut HashSet<String>, random: &mut Random) -> Vec<TeamCandidate> {
        let parents = self.best(&self.candidates, PARENTS);
        let mut brood = Vec::new();
        for _ in 0..size {
            let mut draws = (0..MOST_DRAWS).filter_map(|_| {
                let parent = parents.get(random.below(parents.len()))?;
                mutant(&parent.plan, &self.env.language, self.code, random).map(TeamCandidate::new)
            });
            brood.extend(draws.find(|team| known.insert(team.text.clone())));
        }
        brood
    }

    /// Measures teams on more and more runs, and gives up those that do worse. `false`: cancelled.
    async fn halve(&self, teams: &mut Vec<TeamCandidate>) -> Result<bool, RolloutError> {
        let mut left = std::mem::take(teams);
        for runs in RUNGS.into_iter().chain([self.cases.len()]) {
            for team in &mut left {
                if !self.measure(team, runs.min(self.cases.len())).await? {
                    return Ok(false);
                }
            }
            if runs < self.cases.len() {
                left = self.best(&left, left.len().div_ceil(KEPT)).into_iter().cloned().collect();
            }
        }
        *teams = left;
        Ok(true)
    }

    /// Runs a team until it has so many outcomes. `false`: cancelled.
    pub async fn measure(&self, team: &mut TeamCandidate, runs: usize) -> Result<bool, RolloutError> {
        let items = self.cases.len().max(1);
        let writer = &team.team;
        let run = |at: usize| async move {
            let Some(case) = self.cases.get(at % items) else { return Ok(None) };
            let seed = seed_of(&[&self.seeds, &(at / items).to_string()]);
            trial::run(self.env, case, writer, seed, self.cancel).await
        };
        let wanted = team.outcomes.len()..runs;
        let outcomes: Vec<Option<Trial>> = stream::iter(wanted).map(run).buffered(WIDTH).try_collect().await?;
        let complete = outcomes.iter().all(Option::is_some);
        team.outcomes.extend(outcomes.into_iter().flatten());
        Ok(complete)
    }

    /// So many of the teams, the best by value and the best by accuracy in turns; and all that are one agent, which the
    /// others are compared with.
    fn best<'t>(&self, teams: &'t [TeamCandidate], count: usize) -> Vec<&'t TeamCandidate> {
        let (mut by_value, mut by_accuracy): (Vec<&TeamCandidate>, Vec<&TeamCandidate>) =
            (teams.iter().collect(), teams.iter().collect());
        by_value.sort_by(|a, b| self.compare(a, b, self.price));
        by_accuracy.sort_by(|a, b| self.compare(a, b, 0.0));
        let alone = by_value.iter().filter(|team| team.is_alone()).copied();
        let in_turns = by_value.iter().zip(&by_accuracy).flat_map(|(a, b)| [*a, *b]);
        let mut best: Vec<&TeamCandidate> = Vec::new();
        for team in in_turns {
            if best.len() < count && best.iter().all(|known| known.text != team.text) {
                best.push(team);
            }
        }
        let missing: Vec<&TeamCandidate> =
            alone.filter(|team| best.iter().all(|known| known.text != team.text)).collect();
        best.extend(missing);
        best
    }

    /// The better team first; of equals the cheaper, then the one whose text comes first.
    fn compare(&self, a: &TeamCandidate, b: &TeamCandidate, price: f64) -> Ordering {
        let cost = |team: &TeamCandidate| -> u64 { team.outcomes.iter().map(|outcome| outcome.weighted).sum() };
        b.value(price).total_cmp(&a.value(price)).then(cost(a).cmp(&cost(b))).then_with(|| a.text.cmp(&b.text))
    }

    /// The best team by value, the best by accuracy, and the best single agent of each capacity.
    pub fn chosen(&self) -> Vec<(Best, TeamCandidate)> {
        let first = |price: f64, wanted: &dyn Fn(&&TeamCandidate) -> bool| {
            self.candidates.iter().filter(wanted).min_by(|a, b| self.compare(a, b, price)).cloned()
        };
        let mut chosen = vec![(Best::Value, first(self.price, &|_| true)), (Best::Accuracy, first(0.0, &|_| true))];
        for level in &self.env.language.capacities {
            let is_it = |team: &&TeamCandidate| {
                team.is_alone() && team.plan.agents().iter().all(|agent| agent.capacity == *level)
            };
            chosen.push((Best::Alone(level.clone()), first(self.price, &is_it)));
        }
        chosen.into_iter().filter_map(|(best, team)| Some((best, team?))).collect()
    }
}
