//! Recorded calls of real models: what `--workers replay` serves.
//!
//! The files are found by what is in them: every `.jsonl` or `.jsonl.gz` of a folder whose lines have a `reply` and name an
//! item or a question. `docs/world.md` describes the format. None of the files is part of the project.

mod kinds;
mod line;

use crate::outcomes::{self, OutcomesError};
use kinds::solving;
use kinds::{CallKind, Kinds};
use lemon_num::hashed_seed;
use lemon_spec::{BaseRole, Style};
use lemon_task::{SetName, Source, load};
use line::Line;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

/// The capacities of the published record of three models.
const LADDER: [&str; 3] = crate::preset::LEVELS;

/// Recorded calls, by question.
#[derive(Debug, Default)]
pub struct Recordings {
    /// The capacities, weakest first.
    levels: Vec<String>,
    styles: Vec<Option<Style>>,
    items: HashMap<Arc<str>, RecordedItem>,
    roles: Vec<BaseRole>,
    unknown: BTreeMap<String, usize>,
    longest: u64,
}

/// What is on record of one question.
#[derive(Debug, Default)]
pub struct RecordedItem {
    /// Its name, `set/split/id`; empty where the record names the question alone.
    pub name: Arc<str>,
    /// The calls, by level and sample.
    pub calls: Vec<RecordedCall>,
}

/// One recorded call.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedCall {
    /// Its capacity: a position in [`Recordings::levels`].
    pub level: usize,
    /// The base roles that it serves.
    pub bases: Arc<[String]>,
    /// The calls it read: their capacities and samples. Empty for a first-layer call.
    pub reads: Arc<[(usize, u32)]>,
    /// Whether it saw no more of them than their answers.
    pub sees_answers: bool,
    /// Which sample of the same call it is.
    pub sample: u32,
    /// The temperature it was sampled at; 0 is greedy.
    pub temperature: f64,
    /// The model that replied.
    pub model: Arc<str>,
    /// The reply. That of a program that was run ends with what it printed.
    pub text: Arc<str>,
    /// Prompt and completion tokens, where they are on record.
    pub tokens: Option<(u64, u64)>,
    /// It was cut off.
    pub truncated: bool,
    /// It is a program that was run and printed nothing: there is no answer.
    pub silent: bool,
    /// Whether it was right, where the record says.
    pub correct: Option<bool>,
    /// The mean log-probability of its tokens, where the record says.
    pub log_probability: Option<f64>,
}

impl Recordings {
    /// The recorded calls about these sets under `data/outcomes`. `levels` names the capacities that are served; empty: those
    /// that `kinds.toml` serves by default, or those of the published record where there are no others.
    ///
    /// # Errors
    /// A file cannot be read; the error names its line. Nothing is on record, or not these levels.
    pub fn read(data: &Path, sets: &[SetName], levels: &[String]) -> Result<Self, OutcomesError> {
        let folder = data.join("outcomes");
        let fault = |reason: String| OutcomesError::File { path: folder.clone(), reason };
        let kinds = Kinds::of_folder(&folder)?;
        let mut reader =
            Reader { data, sets, kinds: &kinds, places: HashMap::new(), found: Vec::new(), unknown: BTreeMap::new() };
        if !levels.iter().any(|level| LADDER.contains(&level.as_str())) {
            for path in line::files(&folder)? {
                reader.read(&path)?;
            }
        }
        let Reader { found, unknown, .. } = reader;
        let names: BTreeSet<&String> = found.iter().map(|call| &call.kind.level).collect();
        let names: Vec<String> = names.into_iter().cloned().collect();
        let known = names.join(", ");
        let served = kinds.order(names, levels);
        if served.is_empty() && (levels.is_empty() || levels.iter().any(|level| LADDER.contains(&level.as_str()))) {
            return Recordings::ladder(data, sets);
        }
        if let Some(missing) = levels.iter().find(|level| !served.contains(level)) {
            return Err(fault(format!("no recording has the level `{missing}`; expected some of {known}")));
        }
        let styles = served.iter().map(|level| kinds.style(level)).collect();
        let mut recordings =
            Recordings { levels: served, styles, roles: kinds.roles().collect(), unknown, ..Recordings::default() };
        found.into_iter().for_each(|call| recordings.add(call));
        recordings.sort();
        Ok(recordings)
    }

    /// The published record of three models: GSM8K and MMLU.
    fn ladder(data: &Path, sets: &[SetName]) -> Result<Self, OutcomesError> {
        let mut recordings = Recordings { levels: LADDER.map(str::to_owned).to_vec(), ..Recordings::default() };
        let bases: Arc<[String]> = solving().into();
        for set in sets {
            for (question, replies) in outcomes::replies(data, *set)? {
                let calls = replies.into_iter().enumerate().map(|(at, reply)| RecordedCall {
                    level: reply.level,
                    bases: bases.clone(),
                    reads: Arc::default(),
                    sees_answers: false,
                    sample: u32::try_from(at).unwrap_or(u32::MAX),
                    temperature: 0.0,
                    model: reply.model.into(),
                    text: reply.text.into(),
                    tokens: None,
                    truncated: false,
                    silent: false,
                    correct: None,
                    log_probability: None,
                });
                recordings.items.entry(question.into()).or_default().calls.extend(calls);
            }
        }
        recordings.sort();
        Ok(recordings)
    }

    /// Recorded calls of one's own: each with the question it is about.
    pub fn new(levels: Vec<String>, calls: impl IntoIterator<Item = (String, RecordedCall)>) -> Self {
        let mut recordings = Recordings { levels, ..Recordings::default() };
        for (question, call) in calls {
            recordings.insert(question.trim().into(), Arc::default(), call);
        }
        recordings.sort();
        recordings
    }

    fn add(&mut self, Found { kind, question, name, is_code, call }: Found) {
        let place = |level: &String| self.levels.iter().position(|known| known == level);
        let reads: Option<Arc<[(usize, u32)]>> =
            kind.reads.iter().map(|read| Some((place(&read.level)?, read.sample))).collect();
        let also = kind.code_levels.iter().filter(|_| is_code);
        let levels: Vec<usize> = std::iter::once(&kind.level).chain(also).filter_map(place).collect();
        // What reads a level that is not served is never asked for.
        let Some(reads) = reads else { return };
        for level in levels {
            self.insert(question.clone(), name.clone(), RecordedCall { level, reads: reads.clone(), ..call.clone() });
        }
    }

    fn insert(&mut self, question: Arc<str>, name: Arc<str>, call: RecordedCall) {
        self.longest = self.longest.max(call.tokens.map_or(0, |(_, out)| out));
        let item = self.items.entry(question).or_default();
        if item.name.is_empty() {
            item.name = name;
        }
        // A question that stands twice in a set is served with the first of its records.
        let is_same = |known: &RecordedCall| {
            (known.level, known.sample, &known.reads, &known.bases, known.sees_answers)
                == (call.level, call.sample, &call.reads, &call.bases, call.sees_answers)
        };
        if !item.calls.iter().any(is_same) {
            item.calls.push(call);
        }
    }

    /// Files may come in any order; a seed must not depend on it.
    fn sort(&mut self) {
        for item in self.items.values_mut() {
            item.calls.sort_by(|a, b| {
                let key = |call: &RecordedCall| (call.level, call.reads.clone(), call.bases.clone(), call.sample);
                key(a).cmp(&key(b))
            });
        }
    }

    /// The capacities, weakest first.
    pub fn levels(&self) -> &[String] {
        &self.levels
    }

    /// How agents of each capacity reply, where it is known.
    pub fn styles(&self) -> &[Option<Style>] {
        &self.styles
    }

    /// The base roles of recorded calls that the project does not have itself.
    pub fn roles(&self) -> &[BaseRole] {
        &self.roles
    }

    /// Kinds of calls that the table does not have, as `model/kind`, and how many lines have each. They are not served.
    pub fn unknown(&self) -> &BTreeMap<String, usize> {
        &self.unknown
    }

    /// The longest reply, in tokens.
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// Whether something is on record about a question.
    pub fn knows(&self, question: &str) -> bool {
        self.items.contains_key(question.trim())
    }

    /// What is on record about a question.
    pub fn get(&self, question: &str) -> Option<&RecordedItem> {
        self.items.get(question.trim())
    }

    /// All questions with what is on record about each, in the order of their names.
    pub fn items(&self) -> Vec<(&str, &RecordedItem)> {
        let mut items: Vec<(&str, &RecordedItem)> =
            self.items.iter().map(|(question, item)| (&**question, item)).collect();
        items.sort_by_key(|(question, item)| (item.name.clone(), *question));
        items
    }
}

/// A call that was read, before the levels that are served are known.
struct Found {
    kind: Arc<CallKind>,
    question: Arc<str>,
    name: Arc<str>,
    is_code: bool,
    call: RecordedCall,
}

/// Reads files of recorded calls.
struct Reader<'a> {
    data: &'a Path,
    sets: &'a [SetName],
    kinds: &'a Kinds,
    /// By set and split: the questions by id.
    places: HashMap<(SetName, String), HashMap<String, Arc<str>>>,
    found: Vec<Found>,
    unknown: BTreeMap<String, usize>,
}

impl Reader<'_> {
    fn read(&mut self, path: &Path) -> Result<(), OutcomesError> {
        let text = line::text(path)?;
        let mut shapes: HashMap<(String, String), Arc<CallKind>> = HashMap::new();
        let mut is_first = true;
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let fault = |reason: String| OutcomesError::File {
                path: path.to_owned(),
                reason: format!("line {}: {reason}", at + 1),
            };
            if std::mem::take(&mut is_first) && !line::is_call(line).map_err(|error| fault(error.to_string()))? {
                return Ok(());
            }
            let line: Line<'_> = serde_json::from_str(line).map_err(|error| fault(error.to_string()))?;
            let Some((question, name, is_code)) = self.question(&line).map_err(fault)? else { continue };
            let own = line.own_kind();
            let key = (line.model.to_string(), line.kind.as_deref().unwrap_or_default().to_owned());
            let kind = match (own, shapes.get(&key)) {
                (Some(own), _) => Arc::new(own),
                (None, Some(known)) => known.clone(),
                (None, None) => match self.kinds.find(&key.0, &key.1) {
                    Some(kind) => shapes.entry(key).or_insert_with(|| Arc::new(kind.clone())).clone(),
                    None => {
                        *self.unknown.entry(format!("{}/{}", key.0, key.1)).or_default() += 1;
                        continue;
                    }
                },
            };
            let call = line.call(&kind).map_err(fault)?;
            self.found.push(Found { kind, question, name, is_code, call });
        }
        Ok(())
    }

    /// The question a line is about, its name, and whether it asks for a program; `None` for a set that is not asked for.
    #[allow(clippy::type_complexity)]
    fn question(&mut self, line: &Line<'_>) -> Result<Option<(Arc<str>, Arc<str>, bool)>, String> {
        let Some(name) = line.item.as_deref() else {
            let question = line.question.as_deref().ok_or("expected `item` or `question`, found neither")?;
            return Ok(Some((question.trim().into(), Arc::default(), false)));
        };
        let mut parts = name.splitn(3, '/');
        let (Some(set), Some(split), Some(id)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(format!("expected an `item` of the form set/split/id, found `{name}`"));
        };
        let set: SetName = set.parse().map_err(|error| format!("`item` {name}: {error}"))?;
        if !self.sets.contains(&set) {
            return Ok(None);
        }
        let questions = match self.places.entry((set, split.to_owned())) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                let tasks =
                    load(&Source::Folder(self.data.to_owned()), set, split).map_err(|error| error.to_string())?;
                let entry = |item: lemon_task::Item| (item.task.id.clone(), item.task.question.trim().into());
                place.insert(tasks.items.into_iter().map(entry).collect())
            }
        };
        let question = questions.get(id).cloned().ok_or_else(|| format!("{set}/{split} has no item `{id}`"))?;
        Ok(Some((question, name.into(), matches!(set, SetName::HumanEval | SetName::HumanEvalPy))))
    }
}

/// Whether a recorded item (`set/split/id`) belongs to the half that is fitted to and trained on; the other half is for checks
/// and tests. It depends on the name alone, so that every program agrees.
pub fn is_to_fit(name: &str) -> bool {
    hashed_seed(0, &["half", name]).is_multiple_of(2)
}
