//! The teachers: they write the teams that a model is fine-tuned on.
//!
//! | teacher | what it knows | what it is good for |
//! |---|---|---|
//! | [`rules`] | the question | a beginning: clear decisions, no runs needed |
//! | [`search`] | the simulated world | teams that earn most there, by kind of task |
//! | [`endpoint`] | what a strong model knows | duties for this very task |
//! | [`broad`] | nothing | validity and breadth, before reinforcement learning finds what pays |
//!
//! The first three decide by the question alone: a decision that depends on anything else could not be learned from pairs. The last
//! samples at random: a model learns from it how often each kind of team is written.

pub mod broad;
pub mod endpoint;
#[cfg(test)]
pub(crate) mod fixture;
pub mod rules;
pub mod search;
#[cfg(test)]
mod tests;
mod words;

pub use words::{BRIEF, REWORDED, WORKED, worded};

use lemon_policy::pair::{Pair, TaskText, Teacher, Told};
use lemon_rollout::{Case, Earned, RolloutEnv, RolloutError};
use tokio_util::sync::CancellationToken;

/// Runs at a time.
const WIDTH: usize = 16;

/// What a teacher works with.
pub struct TeachContext<'a> {
    /// Runs the teams and computes their rewards.
    pub env: &'a RolloutEnv,
    /// The tasks.
    pub cases: &'a [Case],
    /// The name of the simulated world, if the workers are simulated.
    pub world: Option<String>,
    /// The seed of every random choice.
    pub seed: u64,
    /// Cancels everything.
    pub cancel: &'a CancellationToken,
    /// Receives the progress of a search.
    pub watch: Option<&'a dyn Fn(&SearchProgress)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchProgress {
    /// Teams tried.
    pub teams: usize,
    /// Teams that will be tried at most.
    pub of: usize,
    /// What the best of them earned so far on the cluster of tasks that is searched now.
    pub best: Earned,
}

impl TeachContext<'_> {
    /// Runs a team so many times, each with a seed of its own, and makes a pair of it. The pair has no figures where the reward is not
    /// known. `None`: cancelled.
    async fn pair(&self, case: &Case, spec: String, teacher: Teacher, runs: u32) -> Result<Option<Pair>, RolloutError> {
        let seeds: Vec<u64> = (0..runs).map(|run| draw(self.seed, &["lesson", &run.to_string()])).collect();
        let earned = self.env.mean(case, &spec, &seeds, self.cancel).await?;
        if self.cancel.is_cancelled() {
            return Ok(None);
        }
        let runs = if earned.is_some() { runs } else { 0 };
        Ok(Some(self.written(case, spec, teacher, earned, runs)))
    }

    /// A pair for a first round.
    fn written(&self, case: &Case, spec: String, teacher: Teacher, earned: Option<Earned>, runs: u32) -> Pair {
        Pair {
            task: task_text(case),
            round: 1,
            results: Vec::<Told>::new(),
            spec,
            teacher,
            reward: earned.map(|earned| earned.reward),
            success: earned.map(|earned| earned.success),
            tokens: earned.map(|earned| earned.tokens),
            world: self.world.clone(),
            seed: self.seed,
            runs,
        }
    }
}

/// The task as a pair holds it.
fn task_text(case: &Case) -> TaskText {
    let task = &case.item.task;
    TaskText { set: case.set.to_string(), id: task.id.clone(), question: task.question.clone() }
}

/// A seed that depends on another seed and these words alone. The words are part of every result: with others, old runs could not
/// be repeated.
pub use lemon_num::mixed_seed as draw;

/// One of these, by a number that was drawn.
fn pick<T: Copy>(from: &[T], drawn: u64) -> Option<T> {
    let count = u64::try_from(from.len()).ok().filter(|count| *count > 0)?;
    from.get(usize::try_from(drawn % count).ok()?).copied()
}
