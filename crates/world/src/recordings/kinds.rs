//! What each kind of recorded call is: its capacity, its base roles, what it reads. A table that users extend.

use crate::outcomes::OutcomesError;
use lemon_spec::{BaseRole, Share, Style};
use serde::Deserialize;
use std::path::Path;

/// The base roles whose replies a plain record of a model serves.
const SOLVING: [&str; 3] = ["solver", "expert", "programmer"];

/// The table.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kinds {
    #[serde(default)]
    level: Vec<LevelEntry>,
    #[serde(default)]
    role: Vec<RoleEntry>,
    #[serde(default)]
    kind: Vec<CallKind>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct LevelEntry {
    name: String,
    /// Served only where it is asked for.
    #[serde(default)]
    extra: bool,
    /// How its agents reply.
    #[serde(default)]
    style: Option<Style>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RoleEntry {
    name: String,
    title: String,
    duty: String,
    #[serde(default)]
    reads: Sees,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallKind {
    pub model: String,
    pub kind: String,
    pub level: String,
    /// Other levels that it serves on tasks that ask for a program.
    #[serde(default)]
    pub code_levels: Vec<String>,
    /// The base roles that it serves.
    #[serde(default = "solving")]
    pub bases: Vec<String>,
    #[serde(default)]
    pub reads: Vec<Read>,
    #[serde(default)]
    pub sees: Sees,
}

/// A recorded call that another one read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Read {
    pub level: String,
    pub sample: u32,
}

/// How much of a reply its reader saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sees {
    /// All of it.
    #[default]
    Reply,
    /// The answer alone.
    Answer,
}

pub(crate) fn solving() -> Vec<String> {
    SOLVING.map(str::to_owned).to_vec()
}

impl Kinds {
    /// The table of a folder, `kinds.toml`, before our own.
    pub fn of_folder(folder: &Path) -> Result<Self, OutcomesError> {
        let path = folder.join("kinds.toml");
        let fault = |reason: String| OutcomesError::File { path: path.clone(), reason };
        let mut own = match std::fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).map_err(|error| fault(error.to_string()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Kinds::default(),
            Err(error) => return Err(fault(error.to_string())),
        };
        // The file is ours and a test reads it; an unreadable one would leave every kind unknown, which is reported.
        let shipped: Kinds = toml::from_str(include_str!("kinds.toml")).unwrap_or_default();
        own.level.extend(shipped.level);
        own.role.extend(shipped.role);
        own.kind.extend(shipped.kind);
        Ok(own)
    }

    /// What calls of this kind are.
    pub fn find(&self, model: &str, kind: &str) -> Option<&CallKind> {
        self.kind.iter().find(|entry| entry.model == model && entry.kind == kind)
    }

    /// These levels in the order of the table, weakest first; those it does not know come last. Without `wanted`, those that
    /// are served by default.
    pub fn order(&self, found: Vec<String>, wanted: &[String]) -> Vec<String> {
        let entry = |name: &String| self.level.iter().position(|level| level.name == *name);
        let extra = |name: &String| entry(name).and_then(|at| self.level.get(at)).is_some_and(|level| level.extra);
        let is_wanted = |name: &String| if wanted.is_empty() { !extra(name) } else { wanted.contains(name) };
        let mut levels: Vec<String> = found.into_iter().filter(is_wanted).collect();
        levels.sort_by_key(|name| (entry(name).unwrap_or(usize::MAX), name.clone()));
        levels.dedup();
        levels
    }

    /// How agents of a level reply, where the table says.
    pub fn style(&self, level: &str) -> Option<Style> {
        self.level.iter().find(|entry| entry.name == level)?.style
    }

    /// The base roles of the table, for the language of specifications.
    pub fn roles(&self) -> impl Iterator<Item = BaseRole> {
        self.role.iter().map(|role| BaseRole {
            name: role.name.clone(),
            title: role.title.clone(),
            duty: role.duty.clone(),
            prompt: role.duty.clone(),
            reads: match role.reads {
                Sees::Reply => Share::Reply,
                Sees::Answer => Share::Answer,
            },
            answers: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_table_can_be_read_and_names_its_own_levels_and_roles_only() {
        let kinds: Kinds = toml::from_str(include_str!("kinds.toml")).unwrap();
        assert!(kinds.kind.len() > 10);
        let builtin = lemon_spec::Language::default().roles;
        for call @ CallKind { kind, .. } in &kinds.kind {
            let named = call.reads.iter().map(|read| &read.level).chain([&call.level]).chain(&call.code_levels);
            for level in named {
                assert!(kinds.level.iter().any(|entry| entry.name == *level), "{kind}: {level}");
            }
            for base in &call.bases {
                let own = kinds.role.iter().any(|role| role.name == *base);
                assert!(own || builtin.get(base).is_some(), "{kind}: {base}");
            }
        }
    }

    #[test]
    fn levels_come_in_the_order_of_the_table() {
        let kinds: Kinds = toml::from_str(include_str!("kinds.toml")).unwrap();
        let all = || ["reasoned", "own", "letter", "smol", "brief"].map(String::from).to_vec();
        assert_eq!(kinds.order(all(), &[]), ["smol", "brief", "reasoned", "own"]);
        let wanted = ["reasoned".to_owned(), "letter".to_owned()];
        assert_eq!(kinds.order(all(), &wanted), ["letter", "reasoned"]);
    }
}
