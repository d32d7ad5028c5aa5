//! A profile: every edit of a team, run on many tasks, as effects with their errors.

mod estimate;
mod pairs;
mod summarise;

use crate::budget::{Cost, SpendingLimits, TokenBudget};
use crate::counterfactual::{Counterfactuals, Measurement};
use futures::stream::{self, StreamExt};
use lemon_credit::advice::Recommendation;
use lemon_credit::choose::{Account, ChoiceRule, Chooser, CounterfactualOption};
use lemon_credit::unit::Unit;
use lemon_rollout::{Case, RolloutError, UnknownReason};
use lemon_spec::Plan;
use lemon_spec::edit::{Edit, Family};
use pairs::{Bases, Pair, applicable, bases, candidates, pair};
use serde::Serialize;
use std::collections::BTreeMap;
use summarise::summarise;
use tokio_util::sync::CancellationToken;

pub use estimate::estimate;

pub struct ProfileWork<'a> {
    /// The team.
    pub plan: &'a Plan,
    /// The tasks.
    pub cases: &'a [Case],
    /// The seeds: every task is run with each.
    pub seeds: &'a [u64],
    /// The families of edits that are run; all where it is empty.
    pub families: &'a [Family],
    /// Runs at a time.
    pub width: usize,
    /// What to spend at most, over everything.
    pub budget: SpendingLimits,
    /// The sampler, where not everything can be run.
    pub policy: ChoiceRule,
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
    /// Everything that could be run was run. `false`: the budget or the user ended it first.
    pub complete: bool,
    /// Runs whose outcome is unknown: missing data, part of no figure.
    #[serde(skip)]
    pub unknown: Vec<UnknownReason>,
}

/// The team as it is.
#[derive(Debug, Clone, Serialize)]
pub struct Baseline {
    pub runs: usize,
    /// The share of right answers.
    pub success: f64,
    /// Its 95 % interval, by tasks.
    pub interval: [f64; 2],
    /// Mean tokens of a run.
    pub tokens: f64,
    /// Mean cost of a run, in tokens of the weakest capacity.
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
    /// The same in tokens of the weakest capacity.
    pub cost: Option<f64>,
    /// Difference in reward.
    pub reward: Option<f64>,
    /// The part of the effect that is there though no agent downstream changed; absent where a judge decides.
    pub direct: Option<f64>,
    /// Agents downstream whose reply changed, in the mean.
    pub descendants_changed: Option<f64>,
    /// How often the answer changed.
    pub answer_changed: Option<f64>,
    /// The share of pairs without any difference in success.
    pub zeros: Option<f64>,
    /// Tokens spent to learn this.
    pub spent: u64,
    /// The share of calls that the base answered.
    pub reused: Option<f64>,
    /// What to do.
    pub verdict: Recommendation,
    /// The same in words.
    pub advice: String,
    #[serde(skip)]
    pub edit: Edit,
}

/// How far the changes of a family spread.
#[derive(Debug, Clone, Serialize)]
pub struct CascadeRow {
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
    /// The part of it that is there though no agent downstream changed.
    pub direct: Option<f64>,
    /// The rest.
    pub downstream: Option<f64>,
}

/// What counterfactuals did not have to run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Reuse {
    /// Calls made.
    pub calls: usize,
    /// Calls that the base answered.
    pub calls_reused: usize,
    /// Tokens spent, base runs included.
    pub tokens: u64,
    pub tokens_saved: u64,
}

impl Reuse {
    /// The share of the counterfactuals' calls that were not made.
    pub fn share(&self) -> Option<f64> {
        let all = self.calls + self.calls_reused;
        (all > 0).then(|| self.calls_reused as f64 / all as f64)
    }
}

/// Profiles a team.
///
/// Without a budget every edit is run on every task. With one, the base runs come first and then those counterfactuals that
/// tell most per token, until the budget has no room for another.
///
/// # Errors
/// A program could not be graded.
pub async fn profile(
    runs: &Counterfactuals<'_>,
    work: &ProfileWork<'_>,
    cancel: &CancellationToken,
    mut progress: impl FnMut(usize, usize),
) -> Result<Profile, RolloutError> {
    let edits = applicable(work, &runs.env.language, runs.reviewer.is_some());
    // Half of the budget at most goes into base runs, so that something is left to change; one run there has to be.
    let one_run = work.cases.first().map_or(Cost::default(), |case| runs.most(case, work.plan));
    let Bases { bases, mut unknown, spent } =
        bases(runs, work, &TokenBudget::new(work.budget.half(one_run)), cancel).await?;
    let left = work.budget.less(spent);
    let budget = TokenBudget::new(left);
    let candidates = candidates(work.plan, &edits, &bases);
    let (all, all_bases) = (candidates.len(), bases.len() + unknown.len());
    let cap = left.tokens.unwrap_or(u64::MAX);
    let mut chooser = Chooser::new(work.policy, cap, candidates, work.seeds.first().copied().unwrap_or(0));
    let (mut pairs, mut lost): (Vec<Pair>, u64) = (Vec::new(), 0);
    loop {
        let batch: Vec<CounterfactualOption> =
            std::iter::from_fn(|| chooser.propose()).take(8 * work.width.max(1)).collect();
        if batch.is_empty() || cancel.is_cancelled() {
            break;
        }
        let one = |candidate: CounterfactualOption| {
            let (bases, edits, budget) = (&bases, &edits, &budget);
            async move { (candidate, pair(runs, bases, edits, &candidate, budget, cancel).await) }
        };
        let mut ends = stream::iter(batch).map(one).buffer_unordered(work.width.max(1));
        while let Some((candidate, measured)) = ends.next().await {
            let Some(measured) = measured? else {
                chooser.record(&candidate, None, 0);
                progress(pairs.len(), all);
                continue;
            };
            let tokens = measured.cost().tokens;
            match measured {
                Measurement::Known(found) => {
                    chooser.record(&candidate, Some(found.success), tokens);
                    pairs.push(Pair { edit: candidate.edit, task: candidate.task, found });
                }
                Measurement::Unknown { reason, .. } => {
                    chooser.record(&candidate, None, tokens);
                    lost += tokens;
                    unknown.push(reason);
                }
            }
            progress(pairs.len(), all);
        }
    }
    // Runs end in any order; the same pairs give the same profile.
    pairs.sort_by_key(|pair| (pair.edit, pair.task));
    let (runs_wanted, measured) = (work.cases.len() * work.seeds.len(), pairs.len() + unknown.len());
    let complete = all_bases == runs_wanted && measured == all + (all_bases - bases.len());
    let found = summarise(&edits, &bases, &pairs, spent.tokens + lost);
    Ok(Profile { accounts: chooser.accounts().clone(), complete, unknown, ..found })
}
