//! Recorded outcomes of real models: what a world is fitted to, and the replies that `replay` serves.
//!
//! The files are read from a folder; none of them is part of the project.

use flate2::read::GzDecoder;
use lemon_task::{SetName, Source, TaskError, load};
use serde::Deserialize;
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::preset::LEVELS;

/// What is on record about one item.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    pub question: String,
    /// The subject, where it has one.
    pub subject: Option<String>,
    /// By capacity: how many of how many samples were right.
    pub levels: Vec<Tally>,
    /// By capacity: the wrong answers given.
    pub wrong: Vec<Vec<String>>,
}

/// How many of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Right ones.
    pub right: u32,
    /// All.
    pub samples: u32,
}

/// One cell of the debate record.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Debate {
    /// `gsm` or `mmlu`.
    pub dataset: String,
    /// The model.
    pub model: String,
    /// Agents in the debate.
    pub n_agents: u32,
    /// Whether the agent was right in the first round.
    pub own_round1_correct: u8,
    /// The share of its peers that were: `<1/3`, `<2/3`, `>=2/3`.
    pub share_of_peers_correct: String,
    /// How often this occurred.
    pub cases: f64,
    /// How often the agent was right in the second round.
    pub round2_correct: f64,
}

/// A recorded reply to an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedReply {
    /// The position of the capacity, weakest first.
    pub level: usize,
    /// The model.
    pub model: String,
    /// The reply.
    pub text: String,
}

/// A record that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OutcomesError {
    /// A file is missing or damaged.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The tasks it is about cannot be read.
    #[error(transparent)]
    Task(#[from] TaskError),
}

#[derive(Deserialize)]
struct Gsm8kRow {
    item: usize,
    capacity: String,
    model: String,
    correct: bool,
    reply: String,
}

#[derive(Deserialize)]
struct MmluRow {
    subject: String,
    row: usize,
    gold: String,
    capacity: String,
    model: String,
    n_samples: u32,
    n_correct: u32,
    answers: String,
}

/// GSM8K test: one reply an item and capacity.
///
/// # Errors
/// The record or the set cannot be read.
pub fn gsm8k(data: &Path) -> Result<Vec<Observed>, OutcomesError> {
    let set = load(&Source::Folder(data.to_owned()), SetName::Gsm8k, "test")?;
    let mut by_item: HashMap<usize, Observed> = HashMap::new();
    for row in gsm8k_rows(data)? {
        let (Some(item), Some(level)) = (set.at(row.item), level(&row.capacity)) else { continue };
        let observed = by_item.entry(row.item).or_insert_with(|| Observed::new(&item.task.question, None));
        observed.add(level, u32::from(row.correct), 1);
        if !row.correct {
            let grade = lemon_task::grade(item, &row.reply);
            observed.wrong[level].extend(grade.extracted);
        }
    }
    Ok(in_order(by_item))
}

/// MMLU test: ten letters an item, capacity and seed.
///
/// # Errors
/// The record or the set cannot be read.
pub fn mmlu(data: &Path) -> Result<Vec<Observed>, OutcomesError> {
    let places = mmlu_places(data)?;
    let mut by_item: HashMap<usize, Observed> = HashMap::new();
    for row in mmlu_rows(data)? {
        let place = places.get(&(row.subject.clone(), row.row));
        let (Some((position, question)), Some(level)) = (place, level(&row.capacity)) else { continue };
        let observed = by_item.entry(*position).or_insert_with(|| Observed::new(question, Some(row.subject.clone())));
        observed.add(level, row.n_correct, row.n_samples);
        let wrong = row.answers.chars().map(String::from).filter(|letter| *letter != row.gold);
        observed.wrong[level].extend(wrong);
    }
    Ok(in_order(by_item))
}

/// HumanEval: the pass rate over ten runs of three models.
///
/// # Errors
/// The record or the set cannot be read.
pub fn humaneval(data: &Path) -> Result<Vec<Observed>, OutcomesError> {
    let set = load(&Source::Folder(data.to_owned()), SetName::HumanEval, "test")?;
    let path = data.join("outcomes/humaneval_10runs.csv");
    let rows: Vec<(usize, f64, f64, f64)> = csv_rows(&path, &read(&path)?)?;
    let observe = |(task, small, medium, large): (usize, f64, f64, f64)| {
        let mut observed = Observed::new(&set.at(task)?.task.question, None);
        let rates = [small, medium, large];
        rates.iter().enumerate().for_each(|(level, rate)| observed.add(level, (rate * 10.0).round() as u32, 10));
        Some(observed)
    };
    Ok(rows.into_iter().filter_map(observe).collect())
}

/// How agents revised after seeing their peers.
///
/// # Errors
/// The record cannot be read.
pub fn debates(data: &Path) -> Result<Vec<Debate>, OutcomesError> {
    let path = data.join("outcomes/debate_revision.csv");
    csv_rows(&path, &read(&path)?)
}

/// The replies to each question of a set, as `replay` serves them. MMLU's record has letters only: each becomes the shortest
/// reply that states it.
///
/// # Errors
/// The record or the set cannot be read; only GSM8K and MMLU have one.
pub fn replies(data: &Path, set: SetName) -> Result<HashMap<String, Vec<RecordedReply>>, OutcomesError> {
    let mut replies: HashMap<String, Vec<RecordedReply>> = HashMap::new();
    match set {
        SetName::Gsm8k => {
            let tasks = load(&Source::Folder(data.to_owned()), SetName::Gsm8k, "test")?;
            for row in gsm8k_rows(data)? {
                let (Some(item), Some(level)) = (tasks.at(row.item), level(&row.capacity)) else { continue };
                let reply = RecordedReply { level, model: row.model, text: row.reply };
                replies.entry(item.task.question.trim().to_owned()).or_default().push(reply);
            }
        }
        SetName::Mmlu => {
            let places = mmlu_places(data)?;
            for row in mmlu_rows(data)? {
                let place = places.get(&(row.subject.clone(), row.row));
                let (Some((_, question)), Some(level)) = (place, level(&row.capacity)) else { continue };
                let reply =
                    |letter: char| RecordedReply { level, model: row.model.clone(), text: format!("Answer: {letter}") };
                let letters = row.answers.chars().filter(char::is_ascii_uppercase);
                replies.entry(question.trim().to_owned()).or_default().extend(letters.map(reply));
            }
        }
        _ => {
            let path = data.join("outcomes");
            return Err(OutcomesError::File { path, reason: format!("there is no record of {set}") });
        }
    }
    Ok(replies)
}

impl Observed {
    fn new(question: &str, subject: Option<String>) -> Self {
        Observed::with_levels(question, subject, LEVELS.len())
    }

    /// An item of which nothing is known yet, with so many capacities.
    pub(crate) fn with_levels(question: &str, subject: Option<String>, levels: usize) -> Self {
        Observed {
            question: question.to_owned(),
            subject,
            levels: vec![Tally::default(); levels],
            wrong: vec![Vec::new(); levels],
        }
    }

    pub(crate) fn add(&mut self, level: usize, right: u32, samples: u32) {
        if let Some(tally) = self.levels.get_mut(level) {
            tally.right += right;
            tally.samples += samples;
        }
    }

    /// The share of right samples at a capacity.
    pub fn share(&self, level: usize) -> Option<f64> {
        let tally = self.levels.get(level)?;
        (tally.samples > 0).then(|| f64::from(tally.right) / f64::from(tally.samples))
    }
}

fn level(capacity: &str) -> Option<usize> {
    LEVELS.iter().position(|name| *name == capacity)
}

fn in_order(by_item: HashMap<usize, Observed>) -> Vec<Observed> {
    let mut items: Vec<_> = by_item.into_iter().collect();
    items.sort_by_key(|(position, _)| *position);
    items.into_iter().map(|(_, observed)| observed).collect()
}

/// By subject and row: where an item of MMLU's test stands in the whole, and its question.
type Places = HashMap<(String, usize), (usize, String)>;

fn mmlu_places(data: &Path) -> Result<Places, OutcomesError> {
    let set = load(&Source::Folder(data.to_owned()), SetName::Mmlu, "test")?;
    let mut rows: HashMap<String, usize> = HashMap::new();
    let mut places = HashMap::new();
    for item in &set.items {
        let subject = item.task.subject.clone().unwrap_or_default();
        let row = rows.entry(subject.clone()).or_default();
        places.insert((subject, *row), (item.position, item.task.question.clone()));
        *row += 1;
    }
    Ok(places)
}

fn gsm8k_rows(data: &Path) -> Result<Vec<Gsm8kRow>, OutcomesError> {
    let path = data.join("outcomes/gsm8k_ladder.jsonl.gz");
    let text = unpack(&path)?;
    let parse = |(at, line): (usize, &str)| {
        let fault = |error| OutcomesError::File { path: path.clone(), reason: format!("line {}: {error}", at + 1) };
        serde_json::from_str(line).map_err(fault)
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(parse).collect()
}

fn mmlu_rows(data: &Path) -> Result<Vec<MmluRow>, OutcomesError> {
    let path = data.join("outcomes/mmlu_ladder.csv.gz");
    csv_rows(&path, &unpack(&path)?)
}

fn csv_rows<T: for<'de> Deserialize<'de>>(path: &Path, text: &str) -> Result<Vec<T>, OutcomesError> {
    let fault = |error: csv::Error| OutcomesError::File { path: path.to_owned(), reason: error.to_string() };
    csv::Reader::from_reader(text.as_bytes()).deserialize().map(|row| row.map_err(fault)).collect()
}

pub(crate) fn read(path: &Path) -> Result<String, OutcomesError> {
    std::fs::read_to_string(path).map_err(|error| OutcomesError::File { path: path.into(), reason: error.to_string() })
}

pub(crate) fn unpack(path: &Path) -> Result<String, OutcomesError> {
    let fault = |error: std::io::Error| OutcomesError::File { path: path.into(), reason: error.to_string() };
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).map_err(fault)?).read_to_string(&mut text).map_err(fault)?;
    Ok(text)
}
