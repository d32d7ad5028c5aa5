//! One line of a file of recorded calls.

use super::RecordedCall;
use super::kinds::{CallKind, Read, Sees, solving};
use crate::outcomes::{OutcomesError, read, unpack};
use serde::Deserialize;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A line. Fields that it does not know are left out: a recorder may add what it likes.
#[derive(Deserialize)]
pub(super) struct Line<'a> {
    #[serde(borrow, default)]
    pub item: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub question: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub model: Cow<'a, str>,
    #[serde(borrow, default)]
    pub kind: Option<Cow<'a, str>>,
    #[serde(default)]
    level: Option<String>,
    #[serde(default)]
    code_levels: Vec<String>,
    #[serde(default)]
    bases: Option<Vec<String>>,
    #[serde(default)]
    reads: Vec<Read>,
    #[serde(default)]
    sees: Sees,
    #[serde(default)]
    sample: u32,
    #[serde(default)]
    temperature: f64,
    #[serde(default)]
    tokens_in: Option<u64>,
    #[serde(default)]
    tokens_out: Option<u64>,
    #[serde(default = "yes")]
    finished: bool,
    #[serde(default)]
    correct: Option<bool>,
    #[serde(default)]
    logprob: Option<f64>,
    #[serde(borrow)]
    reply: Cow<'a, str>,
    /// What the program of the reply printed: absent where none was run, `null` where it printed nothing.
    #[serde(default, borrow, deserialize_with = "present")]
    printed: Option<Option<Cow<'a, str>>>,
}

fn yes() -> bool {
    true
}

/// Tells a field that is `null` from one that is not there.
fn present<'de: 'a, 'a, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Option<Cow<'a, str>>>, D::Error> {
    Option::<String>::deserialize(from).map(|text| Some(text.map(Cow::Owned)))
}

impl Line<'_> {
    /// What the call is, where the line says so itself.
    pub fn own_kind(&self) -> Option<CallKind> {
        Some(CallKind {
            model: self.model.to_string(),
            kind: self.kind.as_deref().unwrap_or_default().to_owned(),
            level: self.level.clone()?,
            code_levels: self.code_levels.clone(),
            bases: self.bases.clone().unwrap_or_else(solving),
            reads: self.reads.clone(),
            sees: self.sees,
        })
    }

    /// The call, without its level and what it reads, which are known once the levels are.
    pub fn call(&self, kind: &CallKind) -> Result<RecordedCall, String> {
        let (text, silent) = match &self.printed {
            None => (self.reply.trim().to_owned(), false),
            Some(printed) => match printed.as_deref().map(str::trim).filter(|printed| !printed.is_empty()) {
                Some(printed) => (format!("{}\n\nAnswer: {printed}", self.reply.trim()), false),
                None => (self.reply.trim().to_owned(), true),
            },
        };
        if text.is_empty() {
            return Err("expected a `reply`, found an empty one".to_owned());
        }
        if !self.temperature.is_finite() || self.temperature < 0.0 {
            return Err(format!("`temperature` must be at least 0, got {}", self.temperature));
        }
        Ok(RecordedCall {
            level: 0,
            bases: kind.bases.clone().into(),
            reads: Arc::default(),
            sees_answers: kind.sees == Sees::Answer,
            sample: self.sample,
            temperature: self.temperature,
            model: self.model.as_ref().into(),
            text: text.into(),
            tokens: self.tokens_in.zip(self.tokens_out),
            truncated: !self.finished,
            silent,
            correct: self.correct,
            log_probability: self.logprob.filter(|value| value.is_finite()),
        })
    }
}

/// The files of a folder that may hold recorded calls, in the order of their names.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>, OutcomesError> {
    let fault = |error: std::io::Error| OutcomesError::File { path: folder.into(), reason: error.to_string() };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fault)? {
        let path = entry.map_err(fault)?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.ends_with(".jsonl") || name.ends_with(".jsonl.gz") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Whether the first line of a file is a recorded call; other files may lie beside the recordings.
pub(super) fn is_call(line: &str) -> Result<bool, serde_json::Error> {
    let first: serde_json::Value = serde_json::from_str(line)?;
    let names_task = first["item"].is_string() || first["question"].is_string();
    Ok(names_task && first["reply"].is_string() && first["model"].is_string())
}

/// What a file holds, unpacked where it is packed.
pub(super) fn text(path: &Path) -> Result<String, OutcomesError> {
    match path.extension().is_some_and(|extension| extension == "gz") {
        true => unpack(path),
        false => read(path),
    }
}
