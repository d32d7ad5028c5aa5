//! What other workers really answered: checking and choosing are learned from it.

use super::PretrainError;
use super::answer::answer;
use super::lesson_stream::Sources;
use lemon_model::LanguagePolicy;
use lemon_num::Random;
use lemon_policy::checkpoint::{KeepError, replace, to_json};
use lemon_problems::{Lesson, LessonForm, Noise, Problem, ProblemPart, prompt, read_answer};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The seed of the problems: none of those that lessons are made from.
const SEED: u64 = 0x04e9_11e5;
const TEMPERATURE: f32 = 0.7;
/// Replies of each worker to each problem.
const SAMPLES: usize = 2;
/// Most replies that one has to choose among.
const MOST_READ: usize = 5;
/// The share of problems without a right reply that become choices. Finding the answer alone is worth learning, but a choice is
/// seldom about that.
const HOPELESS_SHARE: f64 = 0.25;

/// Problems of [`ProblemPart::Review`], with what workers answered who had not learned from that part.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerReplies {
    answered: Vec<Answered>,
}

#[derive(Debug, Clone, PartialEq)]
struct Answered {
    problem: Problem,
    replies: Vec<String>,
    /// Whether one of them is right.
    solved: bool,
}

/// A line of the file that keeps them.
#[derive(Serialize, Deserialize)]
struct Line {
    question: String,
    replies: Vec<String>,
}

impl PeerReplies {
    /// Reads what a file keeps, or has the workers answer so many problems and keeps that.
    ///
    /// # Errors
    /// The file is of another run, or cannot be written; a worker fails.
    pub fn obtain(
        file: &Path,
        sources: &Sources,
        count: usize,
        workers: impl IntoIterator<Item = Result<LanguagePolicy, PretrainError>>,
    ) -> Result<Self, PretrainError> {
        let mut generator = sources.generator(SEED, ProblemPart::Review);
        let problems: Vec<Problem> = (0..count).map(|_| generator.problem()).collect();
        let lines = match std::fs::read_to_string(file) {
            Ok(text) => read(&text, &problems).map_err(|fact| KeepError::OtherRun {
                path: file.to_owned(),
                fact: format!("{fact}; take another folder"),
            })?,
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(KeepError::File { path: file.to_owned(), source }.into());
            }
            Err(_) => {
                let replies = draw(&problems, workers)?;
                let line = |(problem, replies): (&Problem, &Vec<String>)| {
                    to_json(&Line { question: problem.question.clone(), replies: replies.clone() })
                        .map(|line| line + "\n")
                };
                let text = problems.iter().zip(&replies).map(line).collect::<Result<String, KeepError>>()?;
                if let Some(folder) = file.parent() {
                    std::fs::create_dir_all(folder)
                        .map_err(|source| KeepError::File { path: folder.to_owned(), source })?;
                }
                replace(file, text.as_bytes())?;
                replies
            }
        };
        Ok(PeerReplies::new(problems.into_iter().zip(lines)))
    }

    /// Problems with replies that are known.
    pub fn new(answered: impl IntoIterator<Item = (Problem, Vec<String>)>) -> Self {
        let answered = answered.into_iter().filter(|(_, replies)| !replies.is_empty()).map(|(problem, replies)| {
            let solved = replies.iter().any(|reply| read_answer(reply) == Some(problem.answer));
            Answered { problem, replies, solved }
        });
        PeerReplies { answered: answered.collect() }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.answered.is_empty()
    }

    /// The share of problems with a right reply, and the share of right replies.
    pub fn shares(&self) -> (f64, f64) {
        let solved = self.answered.iter().filter(|it| it.solved).count() as f64 / self.answered.len().max(1) as f64;
        let all = self.answered.iter().flat_map(|it| it.replies.iter().map(|reply| (reply, it.problem.answer)));
        let (right, count) = all.fold((0usize, 0usize), |(right, count), (reply, answer)| {
            (right + usize::from(read_answer(reply) == Some(answer)), count + 1)
        });
        (solved, right as f64 / count.max(1) as f64)
    }

    /// A lesson on one of them, and its situation: one reply to check, or two to five to choose among.
    pub(super) fn lesson(&self, form: LessonForm, noise: Noise, random: &mut Random) -> (Lesson, String) {
        // There is one at least: a course takes no others. Most are taken at the first draw.
        let mut drawn = &self.answered[random.below(self.answered.len())];
        while form == LessonForm::Choose && !drawn.solved && !random.chance(HOPELESS_SHARE) {
            drawn = &self.answered[random.below(self.answered.len())];
        }
        let mut replies: Vec<&str> = drawn.replies.iter().map(String::as_str).collect();
        random.shuffle(&mut replies);
        replies.truncate(if form == LessonForm::Choose { 2 + random.below(MOST_READ - 1) } else { 1 });
        let problem = Problem { question: noise.apply(&drawn.problem.question, random), ..drawn.problem.clone() };
        (Lesson::from_replies(&problem, form, &replies), problem.situation)
    }
}

/// The replies that a file keeps, if they are to these problems.
fn read(text: &str, problems: &[Problem]) -> Result<Vec<Vec<String>>, String> {
    let lines: Vec<Line> = text
        .lines()
        .enumerate()
        .map(|(at, line)| serde_json::from_str(line).map_err(|error| format!("line {}: {error}", at + 1)))
        .collect::<Result<_, _>>()?;
    let same = lines.iter().map(|line| &line.question).eq(problems.iter().map(|problem| &problem.question));
    if !same {
        return Err("the replies are to other problems".to_owned());
    }
    Ok(lines.into_iter().map(|line| line.replies).collect())
}

/// Has each worker answer each problem.
fn draw(
    problems: &[Problem],
    workers: impl IntoIterator<Item = Result<LanguagePolicy, PretrainError>>,
) -> Result<Vec<Vec<String>>, PretrainError> {
    let prompts: Vec<String> =
        problems.iter().map(|problem| prompt(LessonForm::Solve, &problem.question, &[])).collect();
    let mut all = vec![Vec::new(); problems.len()];
    for worker in workers {
        let worker = worker?;
        for sample in 0..SAMPLES {
            let seed = SEED.wrapping_add((sample * prompts.len()) as u64);
            for (replies, reply) in all.iter_mut().zip(answer(&worker, &prompts, TEMPERATURE, seed)?) {
                replies.push(reply.text);
            }
        }
    }
    Ok(all)
}
