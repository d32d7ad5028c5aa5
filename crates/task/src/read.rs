//! From a folder or the sample to bytes, and from bytes to the raw records in them.

use std::{
    fs,
    io::{self, Read},
    path::PathBuf,
};

use flate2::read::GzDecoder;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::{SetName, sample};

/// Where task sets are read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A folder laid out as `gsm8k/test.jsonl`, `mmlu/val/*.csv` and so on.
    Folder(PathBuf),
    /// The sample that ships with this crate: the same layout, items of our own.
    Sample,
}

/// Why a task set could not be read at all. A broken record is no such reason: it is skipped and reported.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// No set has this name.
    #[error("unknown task set `{name}`; expected one of {known}")]
    UnknownSet {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The set has no split of this name.
    #[error("unknown split `{split}` of {set}; expected one of {known}")]
    UnknownSplit {
        set: SetName,
        /// The split asked for.
        split: String,
        /// The splits there are.
        known: String,
    },
    /// The split begins behind the last record there is.
    #[error("the split `{split}` of {set} selects nothing of the {records} records here")]
    EmptySplit {
        set: SetName,
        split: &'static str,
        /// The readable records of the file behind it.
        records: usize,
    },
    /// A file or folder is missing or unreadable.
    #[error("cannot read {path}: {error}")]
    Unreadable {
        /// The file or folder.
        path: String,
        /// What the system says.
        error: io::Error,
    },
    /// A compressed file is truncated or damaged.
    #[error("{path} is not a complete gzip file: {error}")]
    Gzip {
        /// The file.
        path: String,
        /// What the decoder says.
        error: io::Error,
    },
    /// A file is larger than any task set.
    #[error("{path} holds more than {} MiB", MAX_BYTES >> 20)]
    TooLarge {
        /// The file.
        path: String,
    },
}

/// Bounds the memory that a small compressed file can claim.
pub(crate) const MAX_BYTES: u64 = 1 << 30;

/// A file's unpacked content, and the checksum of the file as it lies there.
pub(crate) struct RawFile {
    pub path: String,
    pub sha256: String,
    pub bytes: Vec<u8>,
}

/// A record before it is understood, with the line it begins on, counted from 1.
#[derive(Debug, PartialEq)]
pub(crate) struct RawRecord<T> {
    pub line: usize,
    pub content: T,
}

/// A record that was skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordFault {
    /// The file, relative to the folder.
    pub file: String,
    /// The line the record begins on, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl Source {
    /// Reads a file of the layout, unpacking it if its name ends in `.gz`.
    pub(crate) fn read(&self, path: &str) -> Result<RawFile, TaskError> {
        let bytes = match self {
            Source::Folder(folder) => read_bounded(&folder.join(path)).map_err(|error| self.unreadable(path, error))?,
            Source::Sample => sample::file(path).ok_or_else(|| self.missing(path))?.to_vec(),
        };
        if bytes.len() as u64 > MAX_BYTES {
            return Err(TaskError::TooLarge { path: self.describe(path) });
        }
        let sha256 = sha256(&bytes);
        let bytes = if path.ends_with(".gz") { self.unpack(path, &bytes)? } else { bytes };
        Ok(RawFile { path: path.to_owned(), sha256, bytes })
    }

    /// The names of the files of a folder of the layout, sorted by name.
    pub(crate) fn list(&self, folder: &str) -> Result<Vec<String>, TaskError> {
        let mut names = match self {
            Source::Folder(root) => {
                let entries = fs::read_dir(root.join(folder)).and_then(Iterator::collect);
                let entries: Vec<fs::DirEntry> = entries.map_err(|error| self.unreadable(folder, error))?;
                // A name that is no UTF-8 is none of the layout's.
                entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect()
            }
            Source::Sample => sample::names(folder),
        };
        names.sort_unstable();
        Ok(names)
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        match self {
            Source::Folder(folder) => folder.join(path).is_file(),
            Source::Sample => sample::file(path).is_some(),
        }
    }

    pub(crate) fn missing(&self, path: &str) -> TaskError {
        self.unreadable(path, io::ErrorKind::NotFound.into())
    }

    fn unreadable(&self, path: &str, error: io::Error) -> TaskError {
        TaskError::Unreadable { path: self.describe(path), error }
    }

    fn describe(&self, path: &str) -> String {
        match self {
            Source::Folder(folder) => folder.join(path).display().to_string(),
            Source::Sample => format!("{path} of the sample"),
        }
    }

    fn unpack(&self, path: &str, packed: &[u8]) -> Result<Vec<u8>, TaskError> {
        let mut bytes = Vec::new();
        match GzDecoder::new(packed).take(MAX_BYTES + 1).read_to_end(&mut bytes) {
            Err(error) => Err(TaskError::Gzip { path: self.describe(path), error }),
            Ok(_) if bytes.len() as u64 > MAX_BYTES => Err(TaskError::TooLarge { path: self.describe(path) }),
            Ok(_) => Ok(bytes),
        }
    }
}

/// Stops one byte behind the bound, so that a huge file does not fill the memory. A device may never end, and a pipe may never
/// begin.
fn read_bounded(path: &std::path::Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The checksum of a file, in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The records of a JSON list or of a file with one JSON object to a line. Both are told apart by the first
/// character, because some public files of the second kind carry the name of the first.
pub(crate) fn json_records(bytes: &[u8]) -> Vec<RawRecord<&[u8]>> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    match bytes.iter().position(|byte| !byte.is_ascii_whitespace()) {
        Some(start) if bytes[start] == b'[' => list_elements(bytes, start + 1),
        _ => lines(bytes),
    }
}

fn lines(bytes: &[u8]) -> Vec<RawRecord<&[u8]>> {
    let numbered = bytes.split(|byte| *byte == b'\n').enumerate();
    let records = numbered.map(|(index, line)| RawRecord { line: index + 1, content: line.trim_ascii() });
    records.filter(|record| !record.content.is_empty()).collect()
}

/// Cuts a list at its top-level commas without reading the elements, so that one broken element costs only itself
/// and every element has a line number.
fn list_elements(bytes: &[u8], start: usize) -> Vec<RawRecord<&[u8]>> {
    let mut records = Vec::new();
    let mut line = 1 + line_breaks(&bytes[..start]);
    let mut rest = &bytes[start..];
    while !rest.is_empty() {
        let (element, after) = rest.split_at(element_length(rest));
        let content = element.trim_ascii_start();
        let blank = element.len() - content.len();
        if !content.is_empty() {
            records.push(RawRecord { line: line + line_breaks(&element[..blank]), content: content.trim_ascii_end() });
        }
        line += line_breaks(element);
        // The comma or bracket that ended the element is no part of the next one.
        rest = after.get(1..).unwrap_or_default();
    }
    records
}

/// How far an element reaches: to a comma or closing bracket that is neither in a string nor inside a bracket of its
/// own.
fn element_length(bytes: &[u8]) -> usize {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for (index, byte) in bytes.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b',' | b']' if depth == 0 => return index,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    bytes.len()
}

fn line_breaks(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

/// The rows of a CSV file without a header; a row that is no CSV or no UTF-8 is an error of its own.
pub(crate) fn csv_records(bytes: &[u8]) -> Vec<RawRecord<Result<Vec<String>, String>>> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(bytes);
    let mut records = Vec::new();
    let mut row = csv::ByteRecord::new();
    let (mut line, mut counted) = (1, 0);
    // Reading bytes from memory with rows of any length cannot fail, so the end is the only way out.
    while reader.read_byte_record(&mut row).unwrap_or(false) {
        // The reader's own line number stands before the line breaks it is about to skip.
        let at = row.position().map_or(counted, |position| position.byte() as usize).clamp(counted, bytes.len());
        let blank = bytes[at..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        line += line_breaks(&bytes[counted..at + blank]);
        counted = at + blank;
        let fields = row.iter().map(|field| String::from_utf8(field.to_vec()));
        let content = fields.collect::<Result<_, _>>().map_err(|_| NOT_UTF8.to_owned());
        records.push(RawRecord { line, content });
    }
    records
}

pub(crate) const NOT_UTF8: &str = "not UTF-8";

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(usize, &str)]) {
        let records = json_records(text.as_bytes());
        let found: Vec<_> = records.iter().map(|r| (r.line, std::str::from_utf8(r.content).unwrap())).collect();
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn cuts_lines_and_lists() {
        check("", &[]);
        check("\n\n", &[]);
        check("{}\n{}", &[(1, "{}"), (2, "{}")]);
        check("{}\r\n\r\n{\"a\":1}\r\n", &[(1, "{}"), (3, "{\"a\":1}")]);
        check("\u{feff}{}\n", &[(1, "{}")]);
        check("[]", &[]);
        check("[1, 2]", &[(1, "1"), (1, "2")]);
        check(
            "\u{feff} [\n {\"a\": [1, 2]},\n\n {\"b\": \"],\\\"\"}\n]\n",
            &[(2, "{\"a\": [1, 2]}"), (4, "{\"b\": \"],\\\"\"}")],
        );
        check("[{\"a\": }, {}]", &[(1, "{\"a\": }"), (1, "{}")]);
        check("[{}, {\"a\": 1", &[(1, "{}"), (1, "{\"a\": 1")]);
    }

    #[test]
    fn reads_csv_rows() {
        let rows = csv_records(b"\xef\xbb\xbfq,\"a\nb\",c\r\n\r\n\"x\"\"y\",\xff\n");
        assert_eq!(rows[0].content, Ok(vec!["q".to_owned(), "a\nb".to_owned(), "c".to_owned()]));
        assert_eq!(rows[0].line, 1);
        assert_eq!(rows[1].content, Err(NOT_UTF8.to_owned()));
        assert_eq!(rows[1].line, 4);
    }
}
