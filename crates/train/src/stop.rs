//! Does a trained policy go on where another round pays? Compares its own decision with never, always, and as often by chance.

use crate::TrainError;
use crate::episode::{Episode, EpisodeRunner};
use crate::evaluate::means;
use crate::metrics::Means;
use crate::recipe::Recipe;
use crate::signal::critic::CriticReader;
use lemon_exec::ReplyCache;
use lemon_policy::{PromptEncoder, TrainablePolicy};
use lemon_rollout::{Case, RolloutEnv};
use lemon_sft::teach::draw;
use lemon_spec::{Next, render, validate};
use std::sync::Arc;

/// What decides whether a run goes on after the first round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopRule {
    /// The policy itself.
    Trained,
    /// The run always stops.
    Never,
    /// There is always a second round.
    Always,
    /// Chance, as often as the policy does.
    Random,
}

impl StopRule {
    /// All of them.
    pub const ALL: [StopRule; 4] = [StopRule::Trained, StopRule::Never, StopRule::Always, StopRule::Random];

    /// Its name among the arms.
    pub fn as_str(self) -> &'static str {
        match self {
            StopRule::Trained => "trained",
            StopRule::Never => "never",
            StopRule::Always => "always",
            StopRule::Random => "random",
        }
    }
}

/// Bands of estimated difficulty: thirds of the tasks.
const BANDS: [&str; 3] = ["easy", "middle", "hard"];

/// Runs the tasks with every rule. Returns the arm, the regime and the means of each row: over all tasks, and by difficulty.
/// `hardness` is the estimated difficulty of each case.
///
/// # Errors
/// The policy or a run failed.
pub async fn stop_rows(
    env: &Arc<RolloutEnv>,
    (policy, encoder): (&dyn TrainablePolicy, &dyn PromptEncoder),
    (cases, hardness): (&Arc<Vec<Case>>, &[f64]),
    recipe: &Recipe,
) -> Result<Vec<(&'static str, String, Means)>, TrainError> {
    let (rounds, width) = (recipe.rollouts.rounds, recipe.rollouts.width);
    let runner = EpisodeRunner { env, encoder, cases, rounds, width, reader: CriticReader::default() };
    let mut first = Vec::new();
    for seed in 0..recipe.eval.final_seeds.max(1) {
        for case in 0..cases.len() {
            let noise_seed = draw(recipe.seed, &["stop", &seed.to_string(), &case.to_string()]);
            first.push(Episode::new(case, noise_seed, 0, Arc::new(ReplyCache::default())));
        }
    }
    runner.first_rounds(policy, &mut first, 0.0)?;
    let asks = |episode: &Episode| episode.rounds.first().and_then(|it| it.plan.as_ref()).map(|it| it.next());
    let wanted: Vec<bool> = first.iter().map(|episode| asks(episode) == Some(Next::Review)).collect();
    let rate = wanted.iter().filter(|wanted| **wanted).count() as f64 / wanted.len().max(1) as f64;
    let borders = thirds(hardness);
    let mut rows = Vec::new();
    for chooser in StopRule::ALL {
        let mut episodes = first.clone();
        for (at, episode) in episodes.iter_mut().enumerate() {
            let chance = draw(recipe.seed, &["by chance", &at.to_string()]) as f64 / u64::MAX as f64;
            let goes_on = match chooser {
                StopRule::Trained => wanted[at], // One for each episode.
                StopRule::Never => false,
                StopRule::Always => true,
                StopRule::Random => chance < rate,
            };
            decide(&runner, episode, goes_on);
        }
        runner.run_written(&mut episodes).await?;
        runner.play(policy, &mut episodes, 0.0).await?;
        let mut add = |regime: String, after: Means| rows.push((chooser.as_str(), regime, after));
        add("difficulty=all".to_owned(), means(&episodes));
        for (band, name) in BANDS.iter().enumerate() {
            let in_band =
                |episode: &&Episode| hardness.get(episode.case).is_some_and(|it| band_of(*it, borders) == band);
            let own: Vec<Episode> = episodes.iter().filter(in_band).cloned().collect();
            add(format!("difficulty={name}"), means(&own));
        }
    }
    Ok(rows)
}

/// Puts another `next` into the first round.
fn decide(runner: &EpisodeRunner<'_>, episode: &mut Episode, goes_on: bool) {
    let Some(first) = episode.rounds.first_mut() else { return };
    let Some(plan) = &first.plan else { return };
    let mut spec = plan.spec().clone();
    spec.next = if goes_on { Next::Review } else { Next::Stop };
    let text = render(&spec).text;
    // Where the language allows no other `next`, the episode ends as the policy wrote it, and counts so in every comparison.
    if let Ok(plan) = validate(&text, runner.language()) {
        first.sample.text = text;
        first.plan = Some(plan);
    }
}

/// The two values that part them into three equal bands.
fn thirds(values: &[f64]) -> [f64; 2] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: usize| sorted.get(sorted.len() * share / 3).copied().unwrap_or(0.0);
    [at(1), at(2)]
}

fn band_of(value: f64, borders: [f64; 2]) -> usize {
    borders.iter().filter(|border| value >= **border).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_are_thirds() {
        let values: Vec<f64> = (0..9).map(f64::from).collect();
        let borders = thirds(&values);
        let counts = values.iter().fold([0; 3], |mut counts, value| {
            counts[band_of(*value, borders)] += 1;
            counts
        });
        assert_eq!(counts, [3, 3, 3]);
        assert_eq!(band_of(1.0, thirds(&[])), 2);
    }
}
