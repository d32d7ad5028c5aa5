//! Task sets: what is read, what is skipped, and what a folder holds.

use std::path::Path;

use serde::Serialize;

pub use crate::read::RecordFault;
use crate::{
    Item, SetName, Source, TaskError,
    read::{self, RawFile},
    record, split,
};

/// The items of one split of a set, and what was skipped on the way.
#[derive(Clone, Debug)]
pub struct TaskSet {
    /// The set.
    pub name: SetName,
    /// The name of the split.
    pub split: String,
    /// The items, in the order of the split.
    pub items: Vec<Item>,
    /// The records skipped in the files read.
    pub faults: Vec<RecordFault>,
    /// The files read.
    pub files: Vec<FileInfo>,
}

impl TaskSet {
    /// The item whose record is at this position of the official file; see [`Item::position`].
    pub fn at(&self, position: usize) -> Option<&Item> {
        let near = self.items.get(position).filter(|item| item.position == position);
        near.or_else(|| self.items.iter().find(|item| item.position == position))
    }
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileInfo {
    /// The file, relative to the folder.
    pub path: String,
    /// How many records are readable.
    pub records: usize,
    /// The SHA-256 checksum of the file as it lies there, compressed or not.
    pub sha256: String,
    /// How many records were skipped.
    pub faults: usize,
}

/// What a folder holds of one set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SetReport {
    pub set: SetName,
    /// How many records are readable, over all its official splits.
    pub records: usize,
    pub files: Vec<FileInfo>,
    /// The records skipped.
    pub faults: Vec<RecordFault>,
    /// What could not be read at all: a missing or damaged file.
    pub problems: Vec<String>,
}

/// Loads a split of a set.
pub fn load(source: &Source, set: SetName, split: &str) -> Result<TaskSet, TaskError> {
    let split = split::find(set, split)?;
    let read = read_official(source, set, split.of)?;
    let (records, mut slots) = (read.items(), read.slots);
    // Positions are below the number of slots they are asked for.
    let items: Vec<Item> = split.positions(slots.len()).into_iter().filter_map(|at| slots[at].take()).collect();
    if items.is_empty() {
        return Err(TaskError::EmptySplit { set, split: split.name, records });
    }
    Ok(TaskSet { name: set, split: split.name.to_owned(), items, faults: read.faults, files: read.files })
}

/// Loads a file of the user's own: `{question, answer}` or multiple choice, one object to a line (or a JSON list).
///
/// Options come as `options` or `choices`, the answer as `answer` or `correct`: a letter, the text of an option, or
/// its index from 0. `id` and `subject` are optional. An answer that is no number is compared as text.
pub fn load_jsonl(path: impl AsRef<Path>) -> Result<TaskSet, TaskError> {
    let path = path.as_ref();
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(custom(&Source::Folder(folder).read(&name)?))
}

/// The same from the bytes of such a file; `name` is its name in faults.
pub fn read_jsonl(name: &str, bytes: &[u8]) -> TaskSet {
    custom(&RawFile { path: name.to_owned(), sha256: read::sha256(bytes), bytes: bytes.to_vec() })
}

fn custom(file: &RawFile) -> TaskSet {
    let mut read = Reading::default();
    read.json_file(SetName::Custom, file);
    TaskSet {
        name: SetName::Custom,
        split: "all".to_owned(),
        items: read.slots.into_iter().flatten().collect(),
        faults: read.faults,
        files: read.files,
    }
}

/// Reads everything in a folder and says what is there.
pub fn check(folder: impl AsRef<Path>) -> Vec<SetReport> {
    let source = Source::Folder(folder.as_ref().to_owned());
    SetName::PUBLIC.into_iter().map(|set| check_set(&source, set)).collect()
}

fn check_set(source: &Source, set: SetName) -> SetReport {
    let mut report = SetReport { set, records: 0, files: Vec::new(), faults: Vec::new(), problems: Vec::new() };
    for split in split::official(set) {
        match read_official(source, set, split) {
            Ok(read) => {
                report.records += read.items();
                report.files.extend(read.files);
                report.faults.extend(read.faults);
            }
            Err(error) => report.problems.push(error.to_string()),
        }
    }
    report
}

fn read_official(source: &Source, set: SetName, split: &str) -> Result<Reading, TaskError> {
    let mut read = Reading::default();
    if set == SetName::Mmlu {
        let folder = format!("mmlu/{split}");
        let ending = format!("_{split}.csv");
        for name in source.list(&folder)? {
            if let Some(subject) = name.strip_suffix(&ending) {
                read.mmlu_file(subject, &source.read(&format!("{folder}/{name}"))?);
            }
        }
        if read.files.is_empty() {
            return Err(source.missing(&format!("{folder}/*{ending}")));
        }
    } else {
        read.json_file(set, &source.read(&path(source, set, split))?);
    }
    Ok(read)
}

fn path(source: &Source, set: SetName, split: &str) -> String {
    match set {
        SetName::Svamp => "svamp/SVAMP.json".to_owned(),
        SetName::MultiArith => "multiarith/MultiArith.json".to_owned(),
        SetName::HumanEvalPy => "humaneval/humaneval-py.jsonl".to_owned(),
        // Published compressed; an unpacked copy serves as well.
        SetName::HumanEval => {
            let packed = "humaneval/HumanEval.jsonl.gz";
            let unpacked = "humaneval/HumanEval.jsonl";
            if source.has(unpacked) && !source.has(packed) { unpacked } else { packed }.to_owned()
        }
        SetName::Gsm8k | SetName::Aqua | SetName::Mmlu | SetName::Custom => format!("{set}/{split}.jsonl"),
    }
}

/// What reading gives: a slot for every record, empty for a broken one, so that positions hold.
#[derive(Default)]
struct Reading {
    slots: Vec<Option<Item>>,
    faults: Vec<RecordFault>,
    files: Vec<FileInfo>,
}

impl Reading {
    fn items(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    fn json_file(&mut self, set: SetName, file: &RawFile) {
        let records = read::json_records(&file.bytes).into_iter();
        self.file(file, records.map(|raw| (raw.line, move |position| record::from_json(set, position, raw.content))));
    }

    fn mmlu_file(&mut self, subject: &str, file: &RawFile) {
        let records = read::csv_records(&file.bytes).into_iter();
        self.file(file, records.map(|raw| (raw.line, move |at| record::from_mmlu_row(subject, at, raw.content?))));
    }

    fn file<R>(&mut self, file: &RawFile, records: impl Iterator<Item = (usize, R)>)
    where
        R: FnOnce(usize) -> Result<Item, String>,
    {
        let (items, faults) = (self.items(), self.faults.len());
        for (line, read) in records {
            let item = read(self.slots.len());
            let item = item.map_err(|reason| self.faults.push(RecordFault { file: file.path.clone(), line, reason }));
            self.slots.push(item.ok());
        }
        self.files.push(FileInfo {
            path: file.path.clone(),
            records: self.items() - items,
            sha256: file.sha256.clone(),
            faults: self.faults.len() - faults,
        });
    }
}
