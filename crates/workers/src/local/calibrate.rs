//! Finds out how likely a model's solutions are right, and writes that to its card.

use super::{Calibration, Card, LocalError, LocalModel};
use lemon_engine::{Completion, CompletionRequest, EngineError, EngineSettings};
use lemon_problems::{Doubts, LessonForm, Problem, doubts, prompt, read_answer};
use serde::Serialize;
use std::path::Path;

/// Replies that are waited for together: fewer than an engine's queue takes.
const AT_ONCE: usize = 128;
/// Tokens a reply may have.
const MOST_TOKENS: usize = 128;

/// What a calibration was fitted to, and what it is worth. The field names are an interface.
#[derive(Debug, Serialize)]
pub struct Calibrated {
    /// Solutions it was fitted to.
    pub solutions: usize,
    /// The share of them that are right.
    pub right: f64,
    /// The mean square of what a probability lacks to the truth, where the likelihood is taken for the probability.
    pub brier_before: f64,
    /// The same with the calibration.
    pub brier: f64,
    pub calibration: Calibration,
}

/// Why a model could not be calibrated.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// It cannot be loaded, or its card cannot be read or written.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// It did not reply.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Asks the model in this folder these problems, fits a calibration to its solutions and writes it to the model's card.
///
/// # Errors
/// The model cannot be loaded or does not reply, or its card cannot be written.
pub fn calibrate(folder: &Path, problems: &[Problem]) -> Result<Calibrated, CalibrateError> {
    let model = LocalModel::load(folder, EngineSettings::default())?;
    let bare = |form: LessonForm| problems.iter().map(|problem| prompt(form, &problem.question, &[])).collect();
    let plans = replies(&model, bare(LessonForm::Plan))?;
    let planned =
        problems.iter().zip(&plans).map(|(it, plan)| prompt(LessonForm::Solve, &it.question, &[plan.text.as_str()]));
    // In a team it solves by itself, or by another agent's plan: it is asked both ways.
    let (alone, by_plan) = (replies(&model, bare(LessonForm::Solve))?, replies(&model, planned.collect())?);
    let solved: Vec<(f64, Doubts, bool)> =
        [alone, by_plan].iter().flat_map(|all| problems.iter().zip(all).map(judged)).collect();
    let calibration = Calibration::fit(&solved);
    let card = Card { calibration: Some(calibration), ..Card::read(folder)? };
    card.write(folder)?;
    let probability = |(likelihood, doubts, _): &(f64, Doubts, bool)| calibration.probability(*likelihood, *doubts);
    Ok(Calibrated {
        solutions: solved.len(),
        right: solved.iter().filter(|(.., right)| *right).count() as f64 / solved.len().max(1) as f64,
        brier_before: brier(&solved, |(likelihood, ..)| *likelihood),
        brier: brier(&solved, probability),
        calibration,
    })
}

/// How sure the model was, what is doubtful about its reply, and whether it was right.
fn judged((problem, reply): (&Problem, &Completion)) -> (f64, Doubts, bool) {
    let right = read_answer(&reply.text) == Some(problem.answer);
    (reply.confidence(), doubts(&problem.question, &reply.text), right)
}

/// The mean square of what a probability lacks to the truth.
fn brier(solved: &[(f64, Doubts, bool)], probability: impl Fn(&(f64, Doubts, bool)) -> f64) -> f64 {
    let off = |it: &(f64, Doubts, bool)| (probability(it) - f64::from(u8::from(it.2))).powi(2);
    solved.iter().map(off).sum::<f64>() / solved.len().max(1) as f64
}

/// What the model says to each prompt, with the likeliest token each time.
fn replies(model: &LocalModel, prompts: Vec<String>) -> Result<Vec<Completion>, EngineError> {
    let mut replies = Vec::with_capacity(prompts.len());
    for some in prompts.chunks(AT_ONCE) {
        let ask = |prompt: &String| {
            let tokens = model.engine.tokenizer().encode_plain(prompt);
            model
                .engine
                .try_submit(CompletionRequest { temperature: 0.0, ..CompletionRequest::new(tokens, MOST_TOKENS) })
        };
        let tickets = some.iter().map(ask).collect::<Result<Vec<_>, _>>()?;
        for ticket in tickets {
            replies.push(ticket.wait()?);
        }
    }
    Ok(replies)
}
