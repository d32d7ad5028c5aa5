//! A world in which one topology is best, for tests: a learner that learns anything finds it.

use crate::cards::Domain;
use crate::graph::SpecFrame;
use crate::trials::{LearnerTask, RunScore, Scorer, Trials};
use async_trait::async_trait;
use lemon_num::{Random, seed_of};
use lemon_rollout::RolloutError;
use lemon_spec::{Language, Spec};

/// Scores a team by its text alone: right with the probability that `chance` gives it.
pub struct Planted<F>(pub F);

#[async_trait]
impl<F: Fn(usize, &Spec) -> f64 + Send + Sync> Scorer for Planted<F> {
    async fn score(&self, task: usize, spec: &Spec, seed: u64) -> Result<Option<RunScore>, RolloutError> {
        let mut random = Random::new(seed_of(&["planted", &task.to_string(), &seed.to_string()]));
        let right = random.chance((self.0)(task, spec));
        let tokens = 100 * spec.agents.len() as u64;
        let reward = f64::from(u8::from(right)) - 0.001 * tokens as f64;
        Ok(Some(RunScore {
            right: Some(right),
            reward: Some(reward),
            tokens,
            cost: tokens as f64,
            answer: String::new(),
        }))
    }
}

/// Forty tasks of a domain.
pub fn tasks(domain: Domain) -> Vec<LearnerTask> {
    let task = |at: usize| LearnerTask {
        question: format!("Question {at}: how many are left of {at} times three?"),
        domain,
        gold: at.to_string(),
    };
    (0..40).map(task).collect()
}

/// Trials in such a world.
pub fn trials<'a>(scorer: &'a dyn Scorer, tasks: &'a [LearnerTask], seed: u64) -> Trials<'a> {
    Trials::new(scorer, tasks, SpecFrame::new(&Language::default(), Some("small")), seed)
}

/// Whether the agent with this title reads the one with that.
pub fn reads(spec: &Spec, reader: &str, read: &str) -> bool {
    let id = |title: &str| spec.agents.iter().find(|agent| agent.role.as_deref() == Some(title)).map(|agent| &agent.id);
    let reader = spec.agents.iter().find(|agent| agent.role.as_deref() == Some(reader));
    reader.zip(id(read)).is_some_and(|(reader, read)| reader.after.contains(read))
}
