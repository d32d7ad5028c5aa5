//! Scores of workers on published test questions: alone, checking each other, and choosing among the replies of all.

use super::answer::{WorkerReply, answer, confidence};
use lemon_model::{LanguagePolicy, PolicyError};
use lemon_num::stats::{RunCluster, mean, mean_interval};
use lemon_problems::{LessonForm, clusters, prompt, read_answer};
use lemon_task::{Key, SetName, Source, TaskError, load};
use serde::Serialize;
use std::collections::BTreeMap;

/// A question with its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreQuestion {
    pub text: String,
    /// The answer. `None`: it is no whole number, which these workers never say.
    pub answer: Option<i64>,
}

/// The test questions of a set, at most so many.
///
/// # Errors
/// They cannot be read.
pub fn questions(source: &Source, set: SetName, limit: usize) -> Result<Vec<ScoreQuestion>, TaskError> {
    let items = load(source, set, "test")?.items;
    let question = |item: &lemon_task::Item| {
        let answer = match item.key() {
            Key::Number(number) => number.parse::<f64>().ok().filter(|it| it.fract() == 0.0).map(|it| it as i64),
            _ => None,
        };
        ScoreQuestion { text: item.task.question.clone(), answer }
    };
    Ok(items.iter().take(limit).map(question).collect())
}

/// What workers came to on a set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SetScore {
    pub set: String,
    pub questions: usize,
    /// Clusters of similar questions; intervals resample these.
    pub clusters: usize,
    /// Questions that at least one worker solves.
    pub any: Rate,
    /// By worker.
    pub workers: Vec<WorkerScore>,
}

/// What a worker came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerScore {
    pub name: String,
    /// Solving step by step.
    pub solve: Rate,
    /// Mean tokens of a solution.
    pub tokens: f64,
    /// Saying the answer only.
    pub brief: Rate,
    /// Checking the solutions of each other worker.
    pub checks: Vec<CheckScore>,
    /// Choosing among the solutions of all workers.
    pub choose: Rate,
    /// The share of right solutions by quarters of confidence, the least sure first.
    pub by_confidence: [f64; 4],
}

/// What a worker came to that checked the solutions of another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckScore {
    /// Whose.
    pub of: String,
    /// What is right after the check.
    pub rate: Rate,
    /// Wrong ones that it made right.
    pub fixed: usize,
    /// Of so many.
    pub wrong: usize,
    /// Right ones that it made wrong.
    pub broke: usize,
    /// Of so many.
    pub right: usize,
}

/// A share with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rate {
    pub share: f64,
    /// The interval's ends.
    pub interval: [f64; 2],
}

/// Asks named workers a set of questions, with the likeliest token each time.
///
/// # Errors
/// The device fails.
pub fn score(
    workers: &[(String, LanguagePolicy)],
    set: &str,
    questions: &[ScoreQuestion],
) -> Result<SetScore, PolicyError> {
    let paper = Paper::new(questions);
    let solved =
        workers.iter().map(|(_, worker)| paper.ask(worker, LessonForm::Solve, &[])).collect::<Result<Vec<_>, _>>()?;
    let any = (0..questions.len()).map(|at| solved.iter().any(|answers| answers.right[at])).collect::<Vec<_>>();
    let mut scores = Vec::new();
    for (number, (name, worker)) in workers.iter().enumerate() {
        let own = &solved[number]; // One for each worker.
        let others = workers.iter().zip(&solved).enumerate().filter(|(other, _)| *other != number);
        let checks = others.map(|(_, ((of, _), given))| {
            let checked = paper.ask(worker, LessonForm::Check, &[given])?;
            let count = |before: bool, after: bool| {
                given.right.iter().zip(&checked.right).filter(|it| *it == (&before, &after)).count()
            };
            let (fixed, broke) = (count(false, true), count(true, false));
            let (wrong, right) = (fixed + count(false, false), broke + count(true, true));
            Ok(CheckScore { of: of.clone(), rate: paper.rate(&checked.right), fixed, wrong, broke, right })
        });
        let checks = checks.collect::<Result<Vec<_>, PolicyError>>()?;
        scores.push(WorkerScore {
            name: name.clone(),
            solve: paper.rate(&own.right),
            tokens: own.replies.iter().map(|it| it.tokens.len()).sum::<usize>() as f64 / questions.len().max(1) as f64,
            brief: paper.rate(&paper.ask(worker, LessonForm::Brief, &[])?.right),
            checks,
            choose: paper.rate(&paper.ask(worker, LessonForm::Choose, &solved.iter().collect::<Vec<_>>())?.right),
            by_confidence: by_confidence(&confidence(worker, &own.prompts, &own.replies)?, &own.right),
        });
    }
    let clusters = paper.clusters.iter().max().map_or(0, |last| last + 1);
    Ok(SetScore { set: set.to_owned(), questions: questions.len(), clusters, any: paper.rate(&any), workers: scores })
}

/// Questions, and their clusters of similar ones.
struct Paper<'q> {
    questions: &'q [ScoreQuestion],
    clusters: Vec<usize>,
}

/// The replies of a worker to all of them.
struct Answers {
    prompts: Vec<String>,
    replies: Vec<WorkerReply>,
    right: Vec<bool>,
}

impl<'q> Paper<'q> {
    fn new(questions: &'q [ScoreQuestion]) -> Self {
        let texts: Vec<&str> = questions.iter().map(|question| question.text.as_str()).collect();
        Paper { questions, clusters: clusters(&texts) }
    }

    /// Asks all questions, together with what others said to each.
    fn ask(&self, worker: &LanguagePolicy, form: LessonForm, read: &[&Answers]) -> Result<Answers, PolicyError> {
        let prompts = self.questions.iter().enumerate().map(|(at, question)| {
            // Every worker answered every question.
            let readings: Vec<&str> = read.iter().map(|answers| answers.replies[at].text.as_str()).collect();
            prompt(form, &question.text, &readings)
        });
        let prompts: Vec<String> = prompts.collect();
        let replies = answer(worker, &prompts, 0.0, 0)?;
        let is_right = |(question, reply): (&ScoreQuestion, &WorkerReply)| {
            question.answer.is_some() && read_answer(&reply.text) == question.answer
        };
        let right = self.questions.iter().zip(&replies).map(is_right).collect();
        Ok(Answers { prompts, replies, right })
    }

    fn rate(&self, right: &[bool]) -> Rate {
        let mut by_cluster: BTreeMap<usize, RunCluster> = BTreeMap::new();
        for (cluster, right) in self.clusters.iter().zip(right) {
            let cluster = by_cluster.entry(*cluster).or_default();
            cluster.sum += f64::from(u8::from(*right));
            cluster.runs += 1;
        }
        let clusters: Vec<RunCluster> = by_cluster.into_values().collect();
        Rate { share: mean(&clusters), interval: mean_interval(&clusters, Some([0.0, 1.0]), 0) }
    }
}

/// The share of right ones in each quarter, the least sure first.
pub(super) fn by_confidence(sure: &[f64], right: &[bool]) -> [f64; 4] {
    let mut order: Vec<(f64, bool)> = sure.iter().copied().zip(right.iter().copied()).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0)); // Stable: of equals the first.
    std::array::from_fn(|quarter| {
        let part = &order[order.len() * quarter / 4..order.len() * (quarter + 1) / 4];
        part.iter().filter(|it| it.1).count() as f64 / part.len().max(1) as f64
    })
}

/// Tables to read, in Markdown.
pub fn markdown(scores: &[SetScore]) -> String {
    let mut text = String::new();
    let percent = |share: f64| format!("{:.1}", 100.0 * share);
    let rate = |rate: &Rate| {
        let [low, high] = rate.interval.map(|end| format!("{:.0}", 100.0 * end));
        format!("{} [{low}-{high}]", percent(rate.share))
    };
    for score in scores {
        let SetScore { set, questions, clusters, any, .. } = score;
        let any = rate(any);
        text.push_str(&format!(
            "## {set}: {questions} questions in {clusters} clusters; at least one worker is right: {any}\n\n"
        ));
        text.push_str("| worker | solve | tokens | brief | choose | right by quarter of confidence |\n");
        text.push_str("|---|---|---|---|---|---|\n");
        for it in &score.workers {
            let (solve, brief, choose) = (rate(&it.solve), rate(&it.brief), rate(&it.choose));
            let quarters = it.by_confidence.map(percent).join(" / ");
            text.push_str(&format!("| {} | {solve} | {:.1} | {brief} | {choose} | {quarters} |\n", it.name, it.tokens));
        }
        text.push_str("\n| checker | of | right after | fixed | broke |\n|---|---|---|---|---|\n");
        for it in &score.workers {
            for CheckScore { of, rate: after, fixed, wrong, broke, right } in &it.checks {
                let after = rate(after);
                text.push_str(&format!("| {} | {of} | {after} | {fixed} of {wrong} | {broke} of {right} |\n", it.name));
            }
        }
        text.push('\n');
    }
    text
}
