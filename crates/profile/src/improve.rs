//! A better team, one accepted change at a time, and then the proof on tasks it never saw.

use crate::budget::SpendingLimits;
use crate::counterfactual::{Counterfactuals, nominal_tokens};
use crate::profile::{Effect, ProfileWork, profile};
use lemon_credit::choose::ChoiceRule;
use lemon_credit::estimate::ClusteredPaired;
use lemon_rollout::{Case, RolloutError};
use lemon_spec::Plan;
use lemon_spec::edit::{Change, Family, apply};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

/// Changes tried at most.
const MOST_STEPS: usize = 12;
/// A change may seem to lose this much success on the tasks it is chosen by, and no more.
const MOST_SEEMING_LOSS: f64 = 0.01;
/// A change must save this share of the cost, or gain success beyond doubt.
const LEAST_SAVING: f64 = 0.01;
/// What a thousand tokens of the weakest capacity are worth in success, to choose between changes.
const PRICE: f64 = 0.01;

/// What became of a team.
#[derive(Debug, Clone, Serialize)]
pub struct Improvement {
    /// The improved team, as text.
    pub spec: String,
    /// The changes that were kept, in the order they were made.
    pub steps: Vec<ImproveStep>,
    /// Changes that did not hold on the held-out tasks and were taken back.
    pub taken_back: Vec<ImproveStep>,
    /// The original on the held-out tasks: success, tokens, cost.
    pub before: [f64; 3],
    /// The improved team on the same.
    pub after: [f64; 3],
    /// Its success less the original's, on the held-out tasks.
    pub change: Option<f64>,
    /// The 95 % interval of that.
    pub interval: Option<[f64; 2]>,
    /// Held-out tasks.
    pub held_out: usize,
    /// Tokens spent.
    pub spent: u64,
}

/// One change.
#[derive(Debug, Clone, Serialize)]
pub struct ImproveStep {
    /// What it was.
    pub change: String,
    /// What it was seen to do on the tasks it was chosen by, one at a time: success.
    pub success: f64,
    /// … with its standard error.
    pub standard_error: Option<f64>,
    /// … and mean tokens.
    pub tokens: f64,
    /// … and cost, in tokens of the weakest capacity.
    pub cost: f64,
    /// On the held-out tasks: success of the team up to this change less that of the original.
    pub held_out_change: Option<f64>,
    /// The 95 % interval of that.
    pub held_out_interval: Option<[f64; 2]>,
}

/// Improves a team on some tasks and confirms it on others.
///
/// # Errors
/// A program could not be graded.
pub async fn improve(
    runs: &Counterfactuals<'_>,
    plan: &Plan,
    cases: (&[Case], &[Case]),
    seeds: &[u64],
    width: usize,
    cancel: &CancellationToken,
    mut progress: impl FnMut(&ImproveStep),
) -> Result<Improvement, RolloutError> {
    let (chosen_by, held_out) = cases;
    let mut teams = vec![plan.clone()];
    let mut steps: Vec<ImproveStep> = Vec::new();
    let mut spent = 0;
    while steps.len() < MOST_STEPS && !cancel.is_cancelled() {
        let Some(team) = teams.last() else { break };
        let policy = ChoiceRule::Information { floor: 0.0 };
        let work = ProfileWork {
            plan: team,
            cases: chosen_by,
            seeds,
            families: &[],
            width,
            budget: SpendingLimits::default(),
            policy,
        };
        let found = profile(runs, &work, cancel, |_, _| {}).await?;
        spent += found.reuse.tokens;
        let Some(best) = best(&found.effects, found.baseline.cost) else { break };
        // What was measured could be applied, so the search ends here only if the language changed under it.
        let Ok(edited) = apply(team, &best.edit, &runs.env.language) else { break };
        let step = ImproveStep {
            change: best.change.clone(),
            success: -best.effect.unwrap_or(0.0),
            standard_error: best.standard_error,
            tokens: -best.tokens.unwrap_or(0.0),
            cost: -best.cost.unwrap_or(0.0),
            held_out_change: None,
            held_out_interval: None,
        };
        progress(&step);
        steps.push(step);
        teams.push(edited.plan);
    }
    confirm(runs, &teams, steps, held_out, seeds, (width, spent), cancel).await
}

/// The change to make: of those that save something and do not seem to lose, or gain for certain, the one worth most.
fn best(effects: &[Effect], cost: f64) -> Option<&Effect> {
    let worth = |effect: &Effect| {
        // What is withheld is no change of the text; one reference more is an edit for training.
        let change = &effect.edit.change;
        if effect.edit.family == Family::Message || matches!(change, Change::AddReference { .. } | Change::Review) {
            return None;
        }
        let (worth, saved, interval) = (effect.effect?, effect.cost?, effect.interval?);
        let (success, surely_lost, surely_gained) = (-worth, interval[0] > 0.0, interval[1] < 0.0);
        let saves = saved >= LEAST_SAVING * cost && success >= -MOST_SEEMING_LOSS && !surely_lost;
        (saves || surely_gained).then_some(success + PRICE * saved / 1000.0)
    };
    let scored = effects.iter().filter_map(|effect| Some((worth(effect)?, effect)));
    scored.filter(|(worth, _)| *worth > 0.0).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, effect)| effect)
}

/// A run on a held-out task.
struct HeldOut {
    case: usize,
    /// Success, tokens, cost; `None`: unknown.
    score: Option<[f64; 3]>,
}

/// Runs every team of the way on the held-out tasks and goes back to the last one that is not worse than the original.
async fn confirm(
    runs: &Counterfactuals<'_>,
    teams: &[Plan],
    mut steps: Vec<ImproveStep>,
    held_out: &[Case],
    seeds: &[u64],
    (width, mut spent): (usize, u64),
    cancel: &CancellationToken,
) -> Result<Improvement, RolloutError> {
    use futures::stream::{self, StreamExt};
    let mut scores: Vec<Vec<HeldOut>> = Vec::new();
    for team in teams {
        let places = held_out.iter().enumerate().flat_map(|(case, _)| seeds.iter().map(move |seed| (case, *seed)));
        let one = |(case, seed): (usize, u64)| async move {
            let run = runs.base(&held_out[case], team, seed, cancel).await?; // `case` counts them
            let score = run.outcome.score();
            let score = score.map(|score| [score.success(), nominal_tokens(&run, score), score.cost]);
            Ok::<_, RolloutError>((HeldOut { case, score }, run.summary.tokens.total))
        };
        let mut ends = stream::iter(places).map(one).buffered(width.max(1));
        let mut own = Vec::new();
        while let Some(end) = ends.next().await {
            let (run, tokens) = end?;
            spent += tokens;
            own.push(run);
        }
        scores.push(own);
    }
    let empty = Vec::new();
    let first = scores.first().unwrap_or(&empty);
    let mut changes = Vec::new();
    for own in &scores {
        let mut change = ClusteredPaired::default();
        for (own, first) in own.iter().zip(first) {
            if let (Some(after), Some(before)) = (own.score, first.score) {
                change.push(own.case, after[0] - before[0]);
            }
        }
        changes.push((change.mean(), change.over_tasks().interval_within(1.0)));
    }
    for (step, (mean, interval)) in steps.iter_mut().zip(changes.iter().skip(1)) {
        (step.held_out_change, step.held_out_interval) = (*mean, *interval);
    }
    // Not worse: the interval does not lie below zero, and what is seen is no loss beyond the tolerance.
    let holds = |at: &usize| {
        let (mean, interval) = changes.get(*at).copied().unwrap_or_default();
        *at == 0 || mean.is_some_and(|mean| mean >= -MOST_SEEMING_LOSS) && interval.is_some_and(|[_, high]| high >= 0.0)
    };
    let kept = (0..teams.len()).rev().find(holds).unwrap_or(0);
    let taken_back = steps.split_off(kept);
    let mean = |own: Option<&Vec<HeldOut>>| {
        let known: Vec<[f64; 3]> = own.into_iter().flatten().filter_map(|run| run.score).collect();
        [0, 1, 2].map(|at| known.iter().map(|score| score[at]).sum::<f64>() / known.len().max(1) as f64)
    };
    let (change, interval) = changes.get(kept).copied().unwrap_or_default();
    Ok(Improvement {
        spec: teams.get(kept).map(|team| team.source().to_owned()).unwrap_or_default(),
        steps,
        taken_back,
        before: mean(scores.first()),
        after: mean(scores.get(kept)),
        change,
        interval,
        held_out: held_out.len(),
        spent,
    })
}
