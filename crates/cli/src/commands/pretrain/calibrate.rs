//! `lemon pretrain calibrate`: finds out how likely a model's solutions are right.

use super::sources;
use crate::args::pretrain::CalibrateArgs;
use crate::fault::Fault;
use crate::{println, to_json};
use lemon_engine::{Completion, CompletionRequest, EngineSettings};
use lemon_problems::{Doubts, LessonForm, Problem, doubts, prompt, read_answer};
use lemon_sft::pretrain::HeldOutProblems;
use lemon_workers::{CARD, Calibration, Card, LocalModel};
use serde_json::json;

/// Replies that are waited for together: fewer than an engine's queue takes.
const AT_ONCE: usize = 128;
/// Tokens a reply may have.
const MOST_TOKENS: usize = 128;

pub fn calibrate(args: &CalibrateArgs) -> Result<u8, Fault> {
    let (sources, _) = sources(args.data.as_deref())?;
    let model = LocalModel::load(&args.model, EngineSettings::default()).map_err(Fault::new)?;
    let exam = HeldOutProblems::new(&sources, args.problems, model.engine.tokenizer());
    let problems = exam.problems();
    let bare = |form: LessonForm| problems.iter().map(|problem| prompt(form, &problem.question, &[])).collect();
    let plans = replies(&model, bare(LessonForm::Plan))?;
    let planned =
        problems.iter().zip(&plans).map(|(it, plan)| prompt(LessonForm::Solve, &it.question, &[plan.text.as_str()]));
    // In a team it solves by itself, or by another agent's plan: it is asked both ways.
    let (alone, by_plan) = (replies(&model, bare(LessonForm::Solve))?, replies(&model, planned.collect())?);
    let solved: Vec<(f64, Doubts, bool)> =
        [alone, by_plan].iter().flat_map(|all| problems.iter().zip(all).map(judged)).collect();
    let calibration = Calibration::fit(&solved);
    let card = Card { calibration: Some(calibration), ..Card::read(&args.model).map_err(Fault::new)? };
    card.write(&args.model).map_err(Fault::new)?;

    let probability = |(likelihood, doubts, _): &(f64, Doubts, bool)| calibration.probability(*likelihood, *doubts);
    let before = brier(&solved, |(likelihood, ..)| *likelihood);
    let after = brier(&solved, probability);
    let right = solved.iter().filter(|(.., right)| *right).count() as f64 / solved.len().max(1) as f64;
    if args.json {
        let said = json!({"solutions": solved.len(), "right": right, "brier_before": before, "brier": after, "calibration": calibration});
        return println(&to_json(&said));
    }
    println(&format!(
        "{}: of {} solutions {:.1} % are right; how far it is off, squared: {before:.3} before, {after:.3} now",
        args.model.join(CARD).display(),
        solved.len(),
        100.0 * right,
    ))
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
fn replies(model: &LocalModel, prompts: Vec<String>) -> Result<Vec<Completion>, Fault> {
    let mut replies = Vec::with_capacity(prompts.len());
    for some in prompts.chunks(AT_ONCE) {
        let ask = |prompt: &String| {
            let tokens = model.engine.tokenizer().encode_plain(prompt);
            model
                .engine
                .try_submit(CompletionRequest { temperature: 0.0, ..CompletionRequest::new(tokens, MOST_TOKENS) })
        };
        let tickets = some.iter().map(ask).collect::<Result<Vec<_>, _>>().map_err(Fault::new)?;
        for ticket in tickets {
            replies.push(ticket.wait().map_err(Fault::new)?);
        }
    }
    Ok(replies)
}
