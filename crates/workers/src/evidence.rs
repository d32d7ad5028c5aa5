//! Measurements of teams against one plain call, on the models of this installation. The guard reads them.
//!
//! `lemon bench answers` writes it beside the store; `lemon run` reads it. A team counts as helpful for a form of task only
//! if it was right where the plain call was wrong clearly more often than the other way round, on enough questions.

use crate::config::Capacity;
use crate::error::{WorkersError, WorkersErrorKind};
use crate::files::read_file;
use crate::models::fingerprint::fingerprint;
use crate::resolve::Resolved;
use crate::started::without_secret;
use crate::{bundled, models};
use lemon_eval::{Ask, Method};
use lemon_exec::Form;
use lemon_num::stats::sign_test;
use lemon_spec::Language;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The file, beside the store.
const FILE_NAME: &str = "evidence.json";
/// Fewer questions than this prove nothing.
const LEAST_ITEMS: u64 = 30;
/// The chance that a method that does not help would look as good: at most this.
const MOST_CHANCE: f64 = 0.05;
/// A team that costs more than so many plain calls is not used, however good it is.
const MOST_TIMES_PLAIN: f64 = 4.0;

/// One method against one plain call, on questions of one form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The model that answered, for people: the strongest capacity's.
    pub model: String,
    /// What tells that model from others, as [`identity`] has it. Older files do not say: such entries count for no model.
    #[serde(default)]
    pub identity: String,
    /// The form of the questions.
    pub form: Form,
    /// The method, as `lemon eval` names it: a rule that writes the same team for every task.
    pub method: String,
    /// Questions.
    pub items: u64,
    /// Questions that the method answered right and the plain call wrong.
    pub wins: u64,
    /// Questions that the method answered wrong and the plain call right.
    pub losses: u64,
    /// Tokens of the method.
    pub tokens: u64,
    /// Tokens of the plain calls.
    pub plain_tokens: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Evidence {
    entries: Vec<Entry>,
}

impl Entry {
    /// Whether it shows that the method helps, at a price that can be justified.
    fn helps(&self) -> bool {
        let cost = self.tokens as f64 / self.plain_tokens.max(1) as f64;
        self.items >= LEAST_ITEMS && cost <= MOST_TIMES_PLAIN && sign_test(self.wins, self.losses) <= MOST_CHANCE
    }

    fn gain(&self) -> f64 {
        (self.wins as f64 - self.losses as f64) / self.items.max(1) as f64
    }
}

/// Where the evidence of an installation is.
pub fn path(store: &Path) -> PathBuf {
    store.with_file_name(FILE_NAME)
}

/// Adds entries to those beside this store; those of the same model, form and method are replaced.
///
/// # Errors
/// The file cannot be read or written.
pub fn add(store: &Path, entries: &[Entry]) -> Result<PathBuf, WorkersError> {
    let path = path(store);
    let mut known = read(&path)?;
    for entry in entries {
        let key = |entry: &Entry| (entry.identity.clone(), entry.form, entry.method.clone());
        let same = |other: &Entry| key(other) == key(entry);
        known.entries.retain(|other| !same(other));
        known.entries.push(entry.clone());
    }
    let text = serde_json::to_string_pretty(&known).map_err(WorkersError::new)?;
    let fault = |error: std::io::Error| WorkersError::new(format!("{}: {error}", path.display()));
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(fault)?;
    }
    let draft = path.with_extension("json.new");
    std::fs::write(&draft, text + "\n").and_then(|()| std::fs::rename(&draft, &path)).map_err(fault)?;
    Ok(path)
}

fn read(path: &Path) -> Result<Evidence, WorkersError> {
    if !path.exists() {
        return Ok(Evidence::default());
    }
    serde_json::from_str(&read_file(path)?).map_err(|error| {
        WorkersError::new(format!("{} cannot be read as evidence: {error}", path.display()))
            .hint("move it away; `lemon bench answers` measures again")
    })
}

/// The name of the strongest capacity's model.
pub fn model(levels: &[(String, Capacity)]) -> Option<String> {
    levels.last().map(|(_, capacity)| capacity.model_name().to_owned())
}

/// What tells the strongest capacity's model from others: its endpoint and its name there, or a checksum of its files.
///
/// # Errors
/// There is no such model on this machine, or its files cannot be read.
pub fn identity(levels: &[(String, Capacity)]) -> Result<Option<String>, WorkersError> {
    let Some((name, capacity)) = levels.last() else { return Ok(None) };
    let Some(local) = &capacity.local else {
        let (address, _) = without_secret(&capacity.base_url);
        return Ok(Some(format!("{address} {}", capacity.model)));
    };
    if let Some(bundled) = bundled::name(local) {
        return Ok(Some(format!("{}{bundled} {}", bundled::PREFIX, env!("CARGO_PKG_VERSION"))));
    }
    let path = models::locate(local).unwrap_or_else(|| Ok(PathBuf::from(local)));
    let path = path.map_err(|error| error.of_capacity(name))?;
    let unreadable = |error: std::io::Error| {
        WorkersError::new(format!("{}: {error}", path.display())).kind(WorkersErrorKind::Model).of_capacity(name)
    };
    fingerprint(&path).map(Some).map_err(unreadable)
}

/// For each form the team of the method that helps most.
pub(crate) fn proven(resolved: &Resolved) -> BTreeMap<Form, String> {
    let Resolved { config, language, tell, .. } = resolved;
    let known = match read(&path(&config.store_path(None))) {
        Ok(known) => known,
        Err(error) => {
            // A run needs no evidence: without it, one plain call answers.
            tell(&format!("warning: {error}"));
            return BTreeMap::new();
        }
    };
    let own = match known.entries.is_empty() {
        true => return BTreeMap::new(),
        false => identity(&config.capacity),
    };
    let own = match own {
        Ok(own) => own.unwrap_or_default(),
        // The run itself reports a model that is not there.
        Err(_) => return BTreeMap::new(),
    };
    let mut best: BTreeMap<Form, &Entry> = BTreeMap::new();
    for entry in known.entries.iter().filter(|entry| !own.is_empty() && entry.identity == own && entry.helps()) {
        let better = best.get(&entry.form).is_none_or(|other| entry.gain() > other.gain());
        if better {
            best.insert(entry.form, entry);
        }
    }
    let team = |entry: &Entry| {
        let method: Method = match entry.method.parse() {
            Ok(method) => method,
            Err(error) => {
                tell(&format!("warning: the evidence names an unknown method: {error}"));
                return None;
            }
        };
        let capacity = language.capacities.last().map(String::as_str);
        let Language { capacities, efforts, .. } = &**language;
        let ask = Ask { capacities, efforts, capacity, code: entry.form == Form::Code, seed: 0 };
        // The guard runs teams of one round: what a second one would need is not in its text.
        let one_round = method.second_spec(&ask).is_none() && method.check(efforts).is_ok();
        method.spec(&ask).filter(|_| one_round)
    };
    best.into_iter().filter_map(|(form, entry)| Some((form, team(entry)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clear_and_affordable_gains_help() {
        let entry = |items, wins, losses, tokens| Entry {
            model: "m".into(),
            identity: "http://a m".into(),
            form: Form::Number,
            method: "sc-cot:3".into(),
            items,
            wins,
            losses,
            tokens,
            plain_tokens: 100,
        };
        assert!(entry(100, 12, 2, 300).helps());
        assert!(!entry(20, 12, 2, 300).helps(), "too few questions");
        assert!(!entry(100, 6, 4, 300).helps(), "may be chance");
        assert!(!entry(100, 2, 12, 300).helps(), "it hurts");
        assert!(!entry(100, 12, 2, 900).helps(), "too expensive");
    }

    #[test]
    fn entries_are_kept_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("lemon.db");
        let entry_of = |endpoint: &str, wins| Entry {
            model: "m".into(),
            identity: format!("{endpoint} m"),
            form: Form::Choice,
            method: "sc-cot:3".into(),
            items: 50,
            wins,
            losses: 0,
            tokens: 1,
            plain_tokens: 1,
        };
        let entry = |wins| entry_of("http://a", wins);
        add(&store, &[entry(3)]).unwrap();
        add(&store, &[entry(9)]).unwrap();
        assert_eq!(read(&path(&store)).unwrap().entries, [entry(9)]);
        // The same name elsewhere is another model.
        add(&store, &[entry_of("http://b", 1)]).unwrap();
        assert_eq!(read(&path(&store)).unwrap().entries, [entry(9), entry_of("http://b", 1)]);
        let old = r#"{"entries": [{"model": "m", "form": "number", "method": "sc-cot:3", "items": 50, "wins": 40, "losses": 0,
            "tokens": 1, "plain_tokens": 1}]}"#;
        std::fs::write(path(&store), old).unwrap();
        assert_eq!(read(&path(&store)).unwrap().entries[0].identity, "");
        std::fs::write(path(&store), "{").unwrap();
        assert!(read(&path(&store)).unwrap_err().fact.contains("cannot be read as evidence"));
    }

    #[test]
    fn a_model_is_known_by_its_endpoint_or_its_file() {
        let of = |capacity: Capacity| identity(&[("large".to_owned(), capacity)]);
        let at = |url: &str| of(Capacity::new(url, "m", None)).unwrap().unwrap();
        assert_eq!(at("https://ann:secret@host/v1?key=x"), "https://host/v1 m");
        assert_ne!(at("http://a/v1"), at("http://b/v1"));
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            of(Capacity::local(&path.to_string_lossy())).unwrap().unwrap()
        };
        assert_eq!(file("a.gguf", "1"), file("b.gguf", "1"));
        assert_ne!(file("a.gguf", "1"), file("a.gguf", "2"));
        assert!(of(Capacity::local("bundled:small")).unwrap().unwrap().starts_with("bundled:small "));
        let error = of(Capacity::local(&folder.path().join("none.gguf").to_string_lossy())).unwrap_err();
        assert!(error.fact.contains("none.gguf"), "{error:?}");
        assert_eq!(identity(&[]).unwrap(), None);
    }
}
