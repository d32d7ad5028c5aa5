//! Published training problems with other numbers.
//!
//! A record becomes a [`Template`]: its text with holes for the numbers, and its calculation over them. Records that this cannot
//! be done with safely (fractions, percents, more than five steps, a calculation that does not check out) are left out and counted.

mod equation;
mod gsm8k;
mod mawps;
mod template;

pub use template::Template;

use crate::leak::{Dropped, Leaks, clusters};
use lemon_task::{SetName, Source, TaskError, load};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// What was read.
#[derive(Debug, Clone)]
pub struct Published {
    /// What problems can be made of.
    pub templates: Vec<Template>,
    /// Records that were read.
    pub records: usize,
    /// Records that were dropped because they are, or nearly are, test questions.
    pub dropped: Dropped,
    /// Records that no template can be made of.
    pub unusable: usize,
}

/// Why data could not be read.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The test questions cannot be read.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// A file is missing or unreadable.
    #[error("{path} cannot be read: {source}", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file has another format than expected.
    #[error("{path}, record {record}: {message}", path = .path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The record, from 1.
        record: usize,
        /// What is wrong.
        message: String,
    },
}

/// A record of any source: its text, and the template where one can be made.
pub(crate) struct Record {
    pub text: String,
    pub template: Option<Template>,
}

/// Reads the training files of GSM8K (`gsm8k/train.jsonl`) and of MAWPS and ASDiv (`svamp/mawps-asdiv-a_svamp_train.csv`) from a data
/// folder, without what the tests would leak into.
///
/// Look-alike records share a name, so that they lie on the same side of the split.
pub fn read_published(folder: &Path, leaks: &Leaks) -> Result<Published, DataError> {
    let mut records = gsm8k::read(&folder.join("gsm8k/train.jsonl"))?;
    records.extend(mawps::read(&folder.join("svamp/mawps-asdiv-a_svamp_train.csv"))?);
    let count = records.len();
    let (kept, dropped) = leaks.filter(records, |record| &record.text);
    let unusable = kept.iter().filter(|record| record.template.is_none()).count();
    let usable: Vec<Record> = kept.into_iter().filter(|record| record.template.is_some()).collect();
    let texts: Vec<&str> = usable.iter().map(|record| record.text.as_str()).collect();
    let groups = clusters(&texts);
    let named =
        |(record, group): (Record, usize)| record.template.map(|template| template.named(format!("published:{group}")));
    let templates = usable.into_iter().zip(groups).filter_map(named).collect();
    Ok(Published { templates, records: count, dropped, unusable })
}

/// The test questions that nothing may leak: MultiArith, SVAMP and the test part of GSM8K, from a data folder.
pub fn test_questions(folder: &Path) -> Result<Vec<String>, TaskError> {
    let source = Source::Folder(folder.to_owned());
    let mut questions = Vec::new();
    for set in [SetName::MultiArith, SetName::Svamp, SetName::Gsm8k] {
        questions.extend(load(&source, set, "test")?.items.into_iter().map(|item| item.task.question));
    }
    Ok(questions)
}

fn text(path: &Path) -> Result<String, DataError> {
    std::fs::read_to_string(path).map_err(|source| DataError::File { path: path.to_owned(), source })
}

fn json<'a, T: Deserialize<'a>>(path: &Path, text: &'a str, record: usize) -> Result<T, DataError> {
    let fault =
        |error: serde_json::Error| DataError::Record { path: path.to_owned(), record, message: error.to_string() };
    serde_json::from_str(text).map_err(fault)
}

#[cfg(test)]
#[path = "published_tests.rs"]
mod tests;
