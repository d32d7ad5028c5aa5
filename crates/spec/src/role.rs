//! The library of base roles: built in, and from a folder of the user's.

use crate::diagnostic::{Code, Diagnostic, Faults, list, quote};
use crate::parse::fields;
use crate::yaml::{self, Node, Value};
use crate::{Agent, Share, Span};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A base role that agents inherit from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseRole {
    /// The name `base` refers to.
    pub name: String,
    /// Who an agent of this role is, where its `role` is left out.
    pub title: String,
    /// What it must do, where its `duty` is left out.
    pub duty: String,
    /// The standing instructions of the role, for the system message. Empty only for [`PLAIN`].
    pub prompt: String,
    /// What it sees at most of the agents it reads, where the task has a short answer. [`Share::Answer`]: the answers
    /// alone, so that a mistake in their working cannot mislead it.
    pub reads: Share,
    /// Whether its reply may be the answer. It is then told in which form the task wants it.
    pub answers: bool,
}

/// The base role of one plain call: without an own role or duty, the model is sent the question and nothing else.
pub const PLAIN: &str = "plain";

/// Base roles by name.
#[derive(Debug, Clone)]
pub struct RoleLibrary {
    roles: Vec<Arc<BaseRole>>,
}

/// A role file that cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{place}: {fact}")]
pub struct RoleError {
    /// File, line and column.
    pub place: String,
    /// What is wrong.
    pub fact: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// The roles that ship with LEMON, in the order they are listed.
const BUILTIN: [(&str, &str); 10] = [
    ("solver", include_str!("../roles/solver.yaml")),
    ("planner", include_str!("../roles/planner.yaml")),
    ("decomposer", include_str!("../roles/decomposer.yaml")),
    ("expert", include_str!("../roles/expert.yaml")),
    ("programmer", include_str!("../roles/programmer.yaml")),
    ("tester", include_str!("../roles/tester.yaml")),
    ("critic", include_str!("../roles/critic.yaml")),
    ("verifier", include_str!("../roles/verifier.yaml")),
    ("summariser", include_str!("../roles/summariser.yaml")),
    ("judge", include_str!("../roles/judge.yaml")),
];

/// A role file longer than this is a mistake.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// The texts that every role has.
const KEYS: [&str; 3] = ["title", "duty", "prompt"];
/// All keys of a role file.
const ALL_KEYS: [&str; 5] = ["title", "duty", "prompt", "reads", "answers"];

impl RoleLibrary {
    /// The roles that ship with LEMON.
    pub fn builtin() -> Self {
        // A test reads every one of them, so that none is left out here.
        let read = BUILTIN.iter().filter_map(|(name, text)| read_role(name, text).ok());
        RoleLibrary { roles: read.chain([plain()]).map(Arc::new).collect() }
    }

    /// The same library without the role called `name`.
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        RoleLibrary { roles: self.roles.iter().filter(|role| role.name != name).cloned().collect() }
    }

    /// A library without any roles.
    pub fn empty() -> Self {
        RoleLibrary { roles: Vec::new() }
    }

    /// Adds one role; one of the same name is replaced.
    pub fn insert(&mut self, role: BaseRole) {
        let role = Arc::new(role);
        match self.roles.iter_mut().find(|known| known.name == role.name) {
            Some(known) => *known = role,
            None => self.roles.push(role),
        }
    }

    /// Adds every `NAME.yaml` (`title`, `duty`, `prompt`) of a folder; a name already known is replaced.
    ///
    /// # Errors
    /// All faults of all files; nothing is added then.
    pub fn add_folder(&mut self, folder: &Path) -> Result<(), Vec<RoleError>> {
        let mut roles = Vec::new();
        let mut errors = Vec::new();
        for path in role_files(folder).map_err(|error| vec![error])? {
            match read_file(&path) {
                Ok(role) => roles.push(role),
                Err(faults) => errors.extend(faults),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        for role in roles {
            self.insert(role);
        }
        Ok(())
    }

    /// The role called `name`.
    pub fn get(&self, name: &str) -> Option<&Arc<BaseRole>> {
        self.roles.iter().find(|role| role.name == name)
    }

    /// All roles, in a stable order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<BaseRole>> + Clone {
        self.roles.iter()
    }
}

fn plain() -> BaseRole {
    BaseRole {
        name: PLAIN.to_owned(),
        title: "Assistant".to_owned(),
        duty: "Answer the question.".to_owned(),
        prompt: String::new(),
        reads: Share::Reply,
        answers: true,
    }
}

/// The role files of a folder, sorted by name so that faults come in the same order everywhere.
fn role_files(folder: &Path) -> Result<Vec<PathBuf>, RoleError> {
    let unreadable = |error: std::io::Error| RoleError {
        place: folder.display().to_string(),
        fact: format!("the folder of roles cannot be read: {error}"),
        hint: Some("check the path and its permissions".to_owned()),
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read_file(path: &Path) -> Result<BaseRole, Vec<RoleError>> {
    let place = path.display().to_string();
    let fault = |fact: String, hint: &str| vec![RoleError { place: place.clone(), fact, hint: Some(hint.to_owned()) }];
    let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if !Agent::is_well_formed_id(name) {
        let fact = format!("{} is not a name for a role", quote(name));
        return Err(fault(fact, "name the file with a letter, then letters, digits, `_` or `-`"));
    }
    if std::fs::metadata(path).is_ok_and(|file| file.len() > MAX_FILE_BYTES) {
        return Err(fault(format!("the file is longer than {MAX_FILE_BYTES} bytes"), "shorten the prompt"));
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| fault(format!("the file cannot be read: {error}"), "it has to be UTF-8 text"))?;
    read_role(name, &text).map_err(|faults| {
        let placed = |fault: Diagnostic| RoleError {
            place: format!("{place}:{}:{}", fault.line, fault.column),
            fact: fault.message,
            hint: fault.hint,
        };
        faults.into_iter().map(placed).collect()
    })
}

/// Reads the text of a role file.
fn read_role(name: &str, text: &str) -> Result<BaseRole, Vec<Diagnostic>> {
    const MAX_VALUES: usize = 64;
    let mut faults = Faults::default();
    let document = yaml::read(text, MAX_VALUES, &mut faults);
    let entries = match document.root {
        Some(Node { value: Value::Map(entries), .. }) => entries,
        _ if document.cut => return Err(faults.finish(text)),
        _ => {
            let hint = format!("write the keys {}", list(KEYS));
            faults.error(Code::WrongType, Span::default(), "a role has to be a mapping", Some(hint));
            return Err(faults.finish(text));
        }
    };
    let [title, duty, prompt, reads, answers] =
        fields(&entries, ALL_KEYS, &mut faults).map(|entry| entry.map(|entry| &entry.value));
    let reads = word_field(reads, "reads", &[("reply", Share::Reply), ("answer", Share::Answer)], &mut faults);
    let answers = word_field(answers, "answers", &[("true", true), ("false", false)], &mut faults);
    let mut text_of = |node: Option<&Node>, key: &str| text_field(node, key, document.cut, &mut faults);
    let (title, duty, prompt) = (text_of(title, "title"), text_of(duty, "duty"), text_of(prompt, "prompt"));
    if faults.any_error() {
        return Err(faults.finish(text));
    }
    let (reads, answers) = (reads.unwrap_or_default(), answers.unwrap_or(true));
    Ok(BaseRole { name: name.to_owned(), title, duty, prompt, reads, answers })
}

/// The value of an optional field that takes one of a few words.
fn word_field<T: Copy>(node: Option<&Node>, key: &str, words: &[(&str, T)], faults: &mut Faults) -> Option<T> {
    let node = node?;
    if let Value::Text(text) = &node.value
        && let Some((_, value)) = words.iter().find(|(word, _)| *word == text.trim())
    {
        return Some(*value);
    }
    if !matches!(node.value, Value::Refused) {
        let hint = format!("write one of {}", list(words.iter().map(|(word, _)| *word)));
        faults.error(Code::WrongType, node.span, format!("`{key}` has an unknown value"), Some(hint));
    }
    None
}

/// The text of a field; an empty one if it is at fault.
fn text_field(node: Option<&Node>, key: &str, cut: bool, faults: &mut Faults) -> String {
    let (span, fact) = match node {
        Some(Node { value: Value::Text(text), .. }) if !text.trim().is_empty() => return text.trim().to_owned(),
        Some(Node { value: Value::Refused, .. }) => return String::new(),
        None if cut => return String::new(),
        Some(Node { value: Value::List(_) | Value::Map(_), span, .. }) => (*span, format!("`{key}` has to be a text")),
        Some(node) => (node.span, format!("`{key}` is empty")),
        None => (Span::default(), format!("the role has no `{key}`")),
    };
    faults.error(Code::MissingField, span, fact, Some(format!("a role has the texts {}", list(KEYS))));
    String::new()
}
