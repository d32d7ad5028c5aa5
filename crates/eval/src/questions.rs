//! Questions whose answers a program can check: a number, a pattern, a least number of words, JSON, the tests of a function,
//! or the gold answer of a task set.

use lemon_exec::Form;
use lemon_rollout::Grader;
use lemon_sandbox::{Sandbox, SandboxError, SandboxLimits, TestedProgram};
use lemon_task::{Item, SetName, Source, TaskError, load};
use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Why questions cannot be read or checked.
#[derive(Debug, thiserror::Error)]
pub enum QuestionError {
    /// A line is no question.
    #[error("{}, line {line}: {source}", file.display())]
    Line {
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Where it fails to be one.
        source: serde_json::Error,
    },
    /// A check is none.
    #[error("{}, line {line}: {source}", file.display())]
    Check {
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        source: Box<QuestionError>,
    },
    /// A pattern that cannot be read.
    #[error("`{pattern}` is not a pattern: {source}")]
    Pattern {
        pattern: String,
        /// Why.
        source: regex::Error,
    },
    /// A key of an expected object has no pattern.
    #[error("`{key}` of a check: expected a pattern, found {found}")]
    Key {
        key: String,
        /// What it has.
        found: Value,
    },
    /// A task set cannot be read.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// A program could not be run.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

impl QuestionError {
    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            QuestionError::Line { .. } => Some(
                r#"one JSON object a line: {"id": "q1", "question": "…", "check": {"kind": "number", "value": 42}}"#,
            ),
            _ => None,
        }
    }
}

/// A question and how its answer is checked.
pub struct CheckedQuestion {
    /// Its name.
    pub id: String,
    /// The set or file it is of.
    pub set: String,
    /// What is asked.
    pub text: String,
    /// The form of its answer.
    pub form: Form,
    check: Check,
}

enum Check {
    Open(OpenCheck),
    Item(Box<Item>),
}

/// The check of an open question, as the file writes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum OpenCheck {
    /// The last number, or one that is marked as the answer.
    Number { value: f64 },
    /// A pattern that occurs.
    Regex { pattern: String },
    /// So many words, with these among them.
    Text {
        min_words: usize,
        #[serde(default)]
        contains: Vec<String>,
    },
    /// An object whose values match patterns.
    Json { keys: Map<String, Value> },
    /// An array of exactly these values.
    JsonArray { value: Value },
    /// Expressions that hold of the function.
    Python { entry: String, tests: Vec<String> },
}

#[derive(Deserialize)]
struct Line {
    id: String,
    question: String,
    check: OpenCheck,
}

/// The questions of a file of JSON lines with this text.
///
/// # Errors
/// A line is no question.
pub fn of_file(path: &Path, text: &str) -> Result<Vec<CheckedQuestion>, QuestionError> {
    let name = path.file_stem().map_or_else(|| "questions".into(), |stem| stem.to_string_lossy().into_owned());
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let question = |(at, line): (usize, &str)| {
        let (file, number) = (path.to_owned(), at + 1);
        let Line { id, question, check } = serde_json::from_str(line).map_err(|source| QuestionError::Line {
            file: file.clone(),
            line: number,
            source,
        })?;
        if let OpenCheck::Regex { pattern } = &check {
            compile(pattern).map_err(|source| QuestionError::Check { file, line: number, source: Box::new(source) })?;
        }
        Ok(CheckedQuestion {
            form: Form::of(&question),
            id,
            set: name.clone(),
            text: question,
            check: Check::Open(check),
        })
    };
    lines.map(question).collect()
}

/// The items of a task set, at most so many, spread evenly.
///
/// # Errors
/// There is no such set, or it cannot be read.
pub fn of_set(
    name: &str,
    data: Option<&Path>,
    split: &str,
    limit: Option<usize>,
) -> Result<Vec<CheckedQuestion>, QuestionError> {
    let set: SetName = name.parse()?;
    let source = data.map_or(Source::Sample, |folder| Source::Folder(folder.to_owned()));
    let items = load(&source, set, split)?.items;
    let (all, wanted) = (items.len(), limit.unwrap_or(items.len()).max(1));
    let chosen =
        items.into_iter().enumerate().filter(|(at, _)| at * wanted / all != (at + 1) * wanted / all || wanted >= all);
    let question = |(_, item): (usize, Item)| CheckedQuestion {
        id: item.task.id.clone(),
        set: name.to_owned(),
        text: item.task.question.clone(),
        form: Form::of(&item.task.question),
        check: Check::Item(Box::new(item)),
    };
    Ok(chosen.map(question).collect())
}

impl CheckedQuestion {
    /// Whether code has to be run to check it.
    pub fn needs_sandbox(&self) -> bool {
        match &self.check {
            Check::Open(check) => matches!(check, OpenCheck::Python { .. }),
            Check::Item(item) => Grader::needs_sandbox([&**item]),
        }
    }

    /// Whether what a person reads passes.
    ///
    /// # Errors
    /// The sandbox failed.
    pub fn passes(&self, response: &str, grader: &Grader, sandbox: Option<&Sandbox>) -> Result<bool, QuestionError> {
        match &self.check {
            Check::Item(item) => Ok(grader.grade(item, response)?.right),
            Check::Open(check) => check.passes(response, sandbox),
        }
    }
}

impl OpenCheck {
    fn passes(&self, text: &str, sandbox: Option<&Sandbox>) -> Result<bool, QuestionError> {
        Ok(match self {
            OpenCheck::Number { value } => states_number(text, *value)?,
            OpenCheck::Regex { pattern } => compile(pattern)?.is_match(text),
            OpenCheck::Text { min_words, contains } => {
                let lower = text.to_lowercase();
                text.split_whitespace().count() >= *min_words
                    && contains.iter().all(|word| lower.contains(&word.to_lowercase()))
            }
            OpenCheck::Json { keys } => match json_in(text) {
                Some(Value::Object(object)) => matches_keys(&object, keys)?,
                _ => false,
            },
            OpenCheck::JsonArray { value } => json_in(text).is_some_and(|found| found == *value),
            OpenCheck::Python { entry, tests } => match sandbox {
                Some(sandbox) => holds(sandbox, text, entry, tests)?,
                None => false,
            },
        })
    }
}

fn compile(pattern: &str) -> Result<Regex, QuestionError> {
    Regex::new(pattern).map_err(|source| QuestionError::Pattern { pattern: pattern.to_owned(), source })
}

/// Numbers in running text.
const NUMBER: &str = r"-?\d[\d,]*\.?\d*";
/// Numbers behind a word that announces a result.
const MARKED: &str = r"(?i)(?:answer|total|left|=|is|costs?|are)\D{0,25}?(-?\d[\d,]*\.?\d*)";

/// Whether the last number is this one, or one of the last two that are announced as a result.
fn states_number(text: &str, value: f64) -> Result<bool, QuestionError> {
    let is_value = |number: &str| {
        number.replace(',', "").trim_end_matches('.').parse::<f64>().is_ok_and(|it| (it - value).abs() < 1e-6)
    };
    let (number, marked) = (compile(NUMBER)?, compile(MARKED)?);
    let last = number.find_iter(text).last().is_some_and(|found| is_value(found.as_str()));
    let announced: Vec<_> = marked.captures_iter(text).filter_map(|found| found.get(1)).collect();
    Ok(last || announced.iter().rev().take(2).any(|found| is_value(found.as_str())))
}

/// The JSON value from the first bracket of a text to the last.
fn json_in(text: &str) -> Option<Value> {
    let (start, end) = (text.find(['[', '{'])?, text.rfind([']', '}'])?);
    serde_json::from_str(text.get(start..=end)?).ok()
}

fn matches_keys(object: &Map<String, Value>, keys: &Map<String, Value>) -> Result<bool, QuestionError> {
    for (key, pattern) in keys {
        let shown = match object.get(key) {
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => String::new(),
        };
        let pattern =
            pattern.as_str().ok_or_else(|| QuestionError::Key { key: key.clone(), found: pattern.clone() })?;
        if !compile(pattern)?.is_match(&shown) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the expressions hold of the function that a reply defines.
fn holds(sandbox: &Sandbox, reply: &str, entry: &str, tests: &[String]) -> Result<bool, QuestionError> {
    let mut test = format!("def check(candidate):\n    {entry} = candidate\n");
    tests.iter().for_each(|expression| test.push_str(&format!("    assert {expression}\n")));
    let program =
        TestedProgram { prompt_and_code: code_in(reply), test, entry_point: entry.to_owned(), prompt: String::new() };
    Ok(sandbox.run_python(&program, &SandboxLimits::default())?.passed())
}

/// The fenced blocks of Python in a reply, or all of it.
fn code_in(reply: &str) -> String {
    let mut blocks: Vec<String> = Vec::new();
    // The block that is open: whether it is Python, and its lines.
    let mut open: Option<(bool, String)> = None;
    for line in reply.lines() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(language), None) => open = Some((matches!(language.trim(), "" | "python" | "py"), String::new())),
            (Some(_), Some((python, block))) => {
                blocks.extend(python.then(|| std::mem::take(block)));
                open = None;
            }
            (None, Some((_, block))) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, None) => {}
        }
    }
    // A block that is never closed goes on to the end.
    blocks.extend(open.filter(|(python, _)| *python).map(|(_, block)| block));
    if blocks.is_empty() { reply.to_owned() } else { blocks.join("\n\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(check: &str, reply: &str, passes: bool) {
        let check: OpenCheck = serde_json::from_str(check).unwrap();
        assert_eq!(check.passes(reply, None).unwrap(), passes, "{reply}");
    }

    #[test]
    fn replies_are_checked_by_kind() {
        check(r#"{"kind": "number", "value": 750}"#, "You need 750 g of flour.", true);
        check(r#"{"kind": "number", "value": 750}"#, "The total is 750 g for 10 people.", true);
        check(r#"{"kind": "number", "value": 1200}"#, "It costs 1,200.", true);
        check(r#"{"kind": "number", "value": 750}"#, "300 / 4 * 10 = 740", false);
        check(r#"{"kind": "regex", "pattern": "(?i)lima"}"#, "It is Lima.", true);
        check(r#"{"kind": "text", "min_words": 3, "contains": ["light"]}"#, "Light is scattered.", true);
        check(r#"{"kind": "text", "min_words": 9}"#, "Too short.", false);
        check(r#"{"kind": "json", "keys": {"city": "(?i)oslo"}}"#, "```json\n{\"city\": \"Oslo\"}\n```", true);
        check(r#"{"kind": "json", "keys": {"city": "(?i)oslo"}}"#, "city: Oslo", false);
        check(r#"{"kind": "json_array", "value": [1, 2]}"#, "Here: [1, 2]", true);
        check(r#"{"kind": "json_array", "value": [1, 2]}"#, "[2, 1]", false);
    }

    #[test]
    fn code_is_found_in_fences() {
        assert_eq!(code_in("Here:\n```python\nx = 1\n```\nand\n```\ny = 2\n```"), "x = 1\n\n\ny = 2\n");
        assert_eq!(code_in("x = 1"), "x = 1");
        assert_eq!(code_in("```text\nno code\n```\n```py\nz = 3\n"), "z = 3\n");
    }

    #[test]
    fn a_line_that_is_no_question_is_named() {
        let error = |text: &str| of_file("open.jsonl".as_ref(), text).err().unwrap().to_string();
        let good = r#"{"id": "a", "question": "hi", "check": {"kind": "text", "min_words": 1}}"#;
        let second = error(&format!("{good}\n{{\"id\": \"b\"}}\n"));
        assert!(second.starts_with("open.jsonl, line 2: "), "{second}");
        let pattern = error(r#"{"id": "a", "question": "hi", "check": {"kind": "regex", "pattern": "("}}"#);
        assert!(pattern.contains("is not a pattern"), "{pattern}");
    }
}
