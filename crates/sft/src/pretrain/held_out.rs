//! Held-out evaluation of a worker: problems of situations that it was not trained on.

use super::answer::answer;
use super::lesson_stream::{LessonTokens, Sources};
use lemon_model::{LanguagePolicy, Policy, PolicyError, Sequence, Tokenizer};
use lemon_problems::{Lesson, LessonForm, Problem, ProblemPart, SourceWeights, prompt, read_answer};
use serde::{Deserialize, Serialize};

/// The seed of the problems: all runs are evaluated on the same ones.
pub(super) const SEED: u64 = 0xe7a3;
/// Half are published ones, where there are any: they are closer to what users write. Bare arithmetic is left out.
pub(super) const WEIGHTS: SourceWeights =
    SourceWeights { situations: 50, stories: 26, facts: 14, drills: 0, published: 90 };

/// Problems of [`ProblemPart::Dev`], always the same.
pub struct HeldOutProblems {
    problems: Vec<Problem>,
    lessons: Vec<LessonTokens>,
}

/// The evaluation of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PretrainEval {
    /// The mean loss of a token of the right solutions.
    pub loss: f64,
    /// The share of problems it solves, with the likeliest token each time.
    pub right: f64,
    /// Of generated ones.
    pub own: f64,
    /// Of published ones, where there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<f64>,
    /// Mean tokens of a reply.
    pub tokens: f64,
}

impl HeldOutProblems {
    /// So many problems.
    pub fn new(sources: &Sources, count: usize, tokenizer: &Tokenizer) -> Self {
        let mut generator = sources.generator(SEED, ProblemPart::Dev).with_weights(WEIGHTS);
        let problems: Vec<Problem> = (0..count.max(1)).map(|_| generator.problem()).collect();
        let lesson = |problem| LessonTokens::new(&Lesson::from_replies(problem, LessonForm::Solve, &[]), 0, tokenizer);
        HeldOutProblems { lessons: problems.iter().map(lesson).collect(), problems }
    }

    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    pub(super) fn lessons(&self) -> &[LessonTokens] {
        &self.lessons
    }

    /// Evaluates a worker.
    ///
    /// # Errors
    /// The device fails.
    pub fn evaluate(&self, policy: &LanguagePolicy) -> Result<PretrainEval, PolicyError> {
        let most = policy.config().positions;
        let short = self.lessons.iter().filter(|lesson| lesson.tokens.len() <= most);
        let sequences: Vec<Sequence> = short.map(LessonTokens::sequence).collect();
        let scores = policy.score(&sequences, 1.0)?;
        let count = scores.iter().map(Vec::len).sum::<usize>();
        let loss = -scores.iter().flatten().map(|score| f64::from(*score)).sum::<f64>() / count.max(1) as f64;

        let prompts: Vec<String> =
            self.problems.iter().map(|it| prompt(LessonForm::Solve, &it.question, &[])).collect();
        let replies = answer(policy, &prompts, 0.0, 0)?;
        let right = self.problems.iter().zip(&replies).map(|(problem, reply)| {
            (problem.situation.starts_with("published:"), read_answer(&reply.text) == Some(problem.answer))
        });
        let right: Vec<(bool, bool)> = right.collect();
        let share = |published: bool| {
            let some: Vec<bool> = right.iter().filter(|it| it.0 == published).map(|it| it.1).collect();
            (!some.is_empty()).then(|| some.iter().filter(|it| **it).count() as f64 / some.len() as f64)
        };
        let tokens = replies.iter().map(|reply| reply.tokens.len()).sum::<usize>();
        Ok(PretrainEval {
            loss,
            right: right.iter().filter(|it| it.1).count() as f64 / right.len() as f64, // There is one at least.
            own: share(false).unwrap_or_default(),
            published: share(true),
            tokens: tokens as f64 / replies.len() as f64,
        })
    }
}
