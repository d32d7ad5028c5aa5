//! Compares the arms of a study: the results of each, and paired differences from a reference arm.
//!
//! The unit is the run. Runs of two arms with the same study, regime and seed saw the same tasks in the same order and are
//! a pair; an interval is Student's over seeds, and p comes from flipping the signs of the pairs' differences.

use super::curve::{at_equal_steps, mean_curve, token_ratio};
use super::regime;
use super::row::StudyRow;
use lemon_credit::economy::FamilyReport;
use lemon_credit::estimate::Paired;
use lemon_num::seed_of;
use lemon_num::stats::{RunCluster, difference_interval, holm, permutation};
use lemon_spec::edit::Family;
use lemon_train::metrics::Means;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

pub use super::curve::CurvePoint;

/// The corrected p below which a difference is called significant.
pub const SIGNIFICANT: f64 = 0.05;

/// Compares the arms of each study and regime with each of its reference arms. Of rows for the same run the last counts.
pub fn compare(rows: &[StudyRow], references: &[&str]) -> Vec<Comparison> {
    let mut groups: BTreeMap<(&str, &str), Runs> = BTreeMap::new();
    for row in rows {
        let arms = groups.entry((&row.study, &row.regime)).or_default();
        arms.entry(&row.arm).or_default().insert(row.seed, row);
    }
    let mut comparisons: Vec<Comparison> =
        groups.into_iter().map(|((study, regime), runs)| Comparison::new(study, regime, &runs, references)).collect();
    comparisons
        .sort_by(|left, right| left.study.cmp(&right.study).then_with(|| regime::order(&left.regime, &right.regime)));
    comparisons
}

/// The runs of a study and regime, by arm and seed.
type Runs<'a> = BTreeMap<&'a str, BTreeMap<u64, &'a StudyRow>>;

/// One study in one regime.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    pub study: String,
    pub regime: String,
    /// What each arm came to.
    pub arms: Vec<ArmSummary>,
    /// The other arms against each reference.
    pub against: Vec<Against>,
}

/// What an arm came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArmSummary {
    /// Its name.
    pub arm: String,
    /// Runs, each with a seed of its own.
    pub seeds: usize,
    /// Reward after training.
    pub reward: Estimate,
    /// The same with teams drawn at the temperature of the rollouts.
    pub sampled: Estimate,
    /// The share of right answers after training.
    pub success: Estimate,
    /// Tokens of a run after training.
    pub tokens: Estimate,
    /// Agents of a run after training.
    pub agents: Estimate,
    /// The share of runs that asked for a second round, after training.
    pub review: Estimate,
    /// Steps taken.
    pub steps: Estimate,
    /// Worker tokens spent on training.
    pub worker_tokens: Estimate,
    /// The share of them that went to credit, over all runs. `None` where none were spent.
    pub credit_share: Option<f64>,
    /// The mean curve of reward against worker tokens.
    pub curve: Vec<CurvePoint>,
    /// The counterfactuals, by family.
    pub families: BTreeMap<Family, FamilySummary>,
}

/// The arms against one of reference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Against {
    /// The arm of reference.
    pub reference: String,
    /// All other arms. What corrects their p counts all of them.
    pub arms: Vec<ArmDifference>,
}

/// One arm against the reference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArmDifference {
    pub arm: String,
    /// Seeds that both have.
    pub pairs: usize,
    /// Seeds that only one of them has: left out.
    pub unpaired: usize,
    /// Reward, less that of the reference.
    pub reward: Difference,
    /// The 95 % interval of the difference in reward by redrawing seeds, each with all its tasks. `None` without task by task
    /// figures.
    pub bootstrap: Option<[f64; 2]>,
    /// The same for the share of right answers.
    pub success: Difference,
    /// The same for tokens of a run.
    pub tokens: Difference,
    /// Worker tokens until the reference's final reward, less 0.01. `None` where the curves do not say.
    pub token_ratio: Option<TokenRatio>,
    /// The difference in reward at equal steps instead of equal worker tokens. `None`: no step was evaluated in all runs.
    pub equal_steps: Option<EqualSteps>,
}

/// A mean over seeds, with its 95 % interval by Student's t.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Estimate {
    /// Seeds behind it.
    pub n: u64,
    /// The mean. `None`: not measured.
    pub mean: Option<f64>,
    /// Its interval. `None` for fewer than two seeds.
    pub interval: Option<[f64; 2]>,
}

/// A mean of paired differences.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Difference {
    /// The mean and its 95 % interval by Student's t.
    pub estimate: Estimate,
    /// Two-sided, by flipping signs. `None` without a pair.
    pub p: Option<f64>,
    /// The same after Holm's correction for all arms against this reference.
    pub holm: Option<f64>,
}

/// Worker tokens that an arm needs, as a multiple of what the reference needs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TokenRatio {
    /// On the mean curves. `None`: it never gets there.
    pub ratio: Option<f64>,
    /// 95 % of redraws of the seeds; an end that is `None`: never. Rough, and not there at all for fewer than five pairs.
    pub interval: Option<[Option<f64>; 2]>,
}

/// A difference at equal steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EqualSteps {
    /// The last step at which all runs of both arms were evaluated.
    pub step: u64,
    /// The difference in reward there.
    pub reward: Difference,
}

/// The counterfactuals of a family: sums over runs, and means over runs.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct FamilySummary {
    /// Counterfactuals that cost nothing, in all runs.
    pub free: u64,
    /// Those that were purchased.
    pub purchased: u64,
    /// Those that told too little.
    pub declined: u64,
    /// Those that the cap did not allow.
    pub capped: u64,
    /// Worker tokens of a run.
    pub tokens: Estimate,
    /// What one was worth against a rollout for the same tokens.
    pub worth: Estimate,
    /// The mean difference.
    pub mean: Estimate,
    /// The variance of differences.
    pub variance: Estimate,
    /// The share of differences that are exactly zero.
    pub zeros: Estimate,
}

/// The smallest p that flipping the signs of so many differences can give.
pub fn least_p(pairs: usize) -> f64 {
    // The exact test goes up to 16; beyond, one in 10,000 is the least that draws can show.
    if pairs <= 16 { 0.5_f64.powi(pairs as i32 - 1).min(1.0) } else { 1e-4 }
}

impl Comparison {
    fn new(study: &str, regime: &str, runs: &Runs, references: &[&str]) -> Comparison {
        let mut arms: Vec<(&str, Vec<&StudyRow>)> =
            runs.iter().map(|(arm, runs)| (*arm, runs.values().copied().collect())).collect();
        arms.sort_by(|(left, _), (right, _)| regime::arm_order(left, right));
        let against = references.iter().filter(|reference| runs.contains_key(*reference)).map(|reference| {
            let others = arms.iter().map(|(arm, _)| *arm).filter(|arm| arm != reference);
            let mut arm_differences: Vec<ArmDifference> =
                others.map(|arm| ArmDifference::new(&[study, regime], runs, arm, reference)).collect();
            correct(&mut arm_differences);
            Against { reference: (*reference).to_owned(), arms: arm_differences }
        });
        Comparison {
            study: study.to_owned(),
            regime: regime.to_owned(),
            against: against.collect(),
            arms: arms.iter().map(|(arm, runs)| ArmSummary::new(arm, runs)).collect(),
        }
    }

    /// What an arm came to.
    pub fn arm(&self, arm: &str) -> Option<&ArmSummary> {
        self.arms.iter().find(|summary| summary.arm == arm)
    }

    /// The arms against this reference.
    pub fn against(&self, reference: &str) -> Option<&Against> {
        self.against.iter().find(|against| against.reference == reference)
    }
}

impl ArmSummary {
    fn new(arm: &str, runs: &[&StudyRow]) -> ArmSummary {
        let over = |value: fn(&StudyRow) -> f64| runs.iter().map(|run| value(run)).collect::<Estimate>();
        let (rollouts, credit) = runs.iter().fold((0.0, 0.0), |(rollouts, credit), run| {
            (rollouts + run.rollout_tokens as f64, credit + run.credit_tokens as f64)
        });
        let families: BTreeSet<Family> = runs.iter().flat_map(|run| run.families.keys().copied()).collect();
        ArmSummary {
            arm: arm.to_owned(),
            seeds: runs.len(),
            reward: over(|run| run.after.reward),
            sampled: runs.iter().filter_map(|run| run.evaluations.get(1)).map(|it| it.means.reward).collect(),
            success: over(|run| run.after.success),
            tokens: over(|run| run.after.tokens),
            agents: over(|run| run.after.agents),
            review: over(|run| run.after.review),
            steps: over(|run| run.steps as f64),
            worker_tokens: over(|run| run.rollout_tokens as f64 + run.credit_tokens as f64),
            credit_share: (rollouts + credit > 0.0).then(|| credit / (rollouts + credit)),
            curve: mean_curve(runs),
            families: families.into_iter().map(|family| (family, FamilySummary::new(family, runs))).collect(),
        }
    }
}

impl FamilySummary {
    fn new(family: Family, runs: &[&StudyRow]) -> FamilySummary {
        let reports: Vec<&FamilyReport> = runs.iter().filter_map(|run| run.families.get(&family)).collect();
        let sum =
            |count: fn(&FamilyReport) -> u64| reports.iter().map(|report| count(report)).fold(0, u64::saturating_add);
        let over = |value: fn(&FamilyReport) -> Option<f64>| {
            reports.iter().filter_map(|report| value(report)).collect::<Estimate>()
        };
        FamilySummary {
            free: sum(|report| report.free),
            purchased: sum(|report| report.purchased),
            declined: sum(|report| report.declined),
            capped: sum(|report| report.capped),
            tokens: over(|report| Some(report.tokens as f64)),
            worth: over(|report| report.worth),
            mean: over(|report| report.mean),
            variance: over(|report| report.variance),
            zeros: over(|report| report.zeros),
        }
    }
}

impl ArmDifference {
    fn new(place: &[&str; 2], runs: &Runs, arm: &str, reference: &str) -> ArmDifference {
        let none = BTreeMap::new();
        let (own, other) = (runs.get(arm).unwrap_or(&none), runs.get(reference).unwrap_or(&none));
        let pairs: Vec<(&StudyRow, &StudyRow)> =
            own.iter().filter_map(|(seed, run)| Some((*run, *other.get(seed)?))).collect();
        let seeds: BTreeSet<&u64> = own.keys().chain(other.keys()).collect();
        // The same draws whichever of the two is the reference.
        let (first, second) = (arm.min(reference), arm.max(reference));
        let draws = |measure: &str| seed_of(&[place[0], place[1], first, second, measure]);
        let difference = |measure: &str, value: fn(&Means) -> f64| {
            let each = pairs.iter().map(|(run, other)| value(&run.after) - value(&other.after)).collect();
            Difference::new(each, draws(measure))
        };
        let equal_steps = at_equal_steps(&pairs)
            .map(|(step, each)| EqualSteps { step, reward: Difference::new(each, draws("equal steps")) });
        ArmDifference {
            arm: arm.to_owned(),
            pairs: pairs.len(),
            unpaired: seeds.len() - pairs.len(),
            reward: difference("reward", |means| means.reward),
            bootstrap: bootstrap(&pairs, draws("bootstrap")),
            success: difference("success", |means| means.success),
            tokens: difference("tokens", |means| means.tokens),
            token_ratio: token_ratio(&pairs, draws("token ratio")),
            equal_steps,
        }
    }
}

/// Seeds are drawn anew, each with the differences of all its tasks. Tasks are drawn for each seed, so that this resamples both.
fn bootstrap(pairs: &[(&StudyRow, &StudyRow)], seed: u64) -> Option<[f64; 2]> {
    let of_pair = |(run, other): &(&StudyRow, &StudyRow)| -> Option<RunCluster> {
        let (own, others) = (&run.evaluations.first()?.items, &other.evaluations.first()?.items);
        let both = own.iter().zip(others).filter_map(|(own, other)| Some((*own)? - (*other)?));
        (own.len() == others.len()).then(|| both.collect())
    };
    let clusters: Option<Vec<RunCluster>> = pairs.iter().map(of_pair).collect();
    clusters.filter(|clusters| clusters.len() > 1).map(|clusters| difference_interval(&clusters, None, seed))
}

impl Difference {
    fn new(mut differences: Vec<f64>, seed: u64) -> Difference {
        differences.retain(|difference| difference.is_finite());
        let p = (!differences.is_empty()).then(|| permutation(&differences, seed));
        Difference { estimate: differences.into_iter().collect(), p, holm: None }
    }

    /// Whether it is, after correction.
    pub fn is_significant(&self) -> bool {
        self.holm.is_some_and(|p| p < SIGNIFICANT)
    }

    /// The sign of the difference where its interval does not reach zero.
    pub fn clear_sign(&self) -> Option<f64> {
        let [low, high] = self.estimate.interval?;
        (low > 0.0 || high < 0.0).then(|| low.signum())
    }
}

impl FromIterator<f64> for Estimate {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Estimate {
        let mut seeds = Paired::default();
        values.into_iter().for_each(|value| seeds.push(value));
        Estimate { n: seeds.n(), mean: seeds.mean(), interval: seeds.interval() }
    }
}

/// Corrects every measure for the number of arms.
fn correct(arm_differences: &mut [ArmDifference]) {
    let measures: [fn(&mut ArmDifference) -> Option<&mut Difference>; 4] = [
        |arm_difference| Some(&mut arm_difference.reward),
        |arm_difference| Some(&mut arm_difference.success),
        |arm_difference| Some(&mut arm_difference.tokens),
        |arm_difference| arm_difference.equal_steps.as_mut().map(|equal| &mut equal.reward),
    ];
    for measure in measures {
        let mut tested: Vec<&mut Difference> =
            arm_differences.iter_mut().filter_map(measure).filter(|difference| difference.p.is_some()).collect();
        let p: Vec<f64> = tested.iter().filter_map(|difference| difference.p).collect();
        tested.iter_mut().zip(holm(&p)).for_each(|(difference, p)| difference.holm = Some(p));
    }
}

#[cfg(test)]
mod tests;
