//! Checkpoints in the cache of the Hugging Face hub, put there by `lemon models pull` or by another program.

pub mod cache;

use crate::discover::makes_embeddings;
use crate::error::WorkersError;
use cache::Cache;
use lemon_model::ModelConfig;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What a checkpoint says about itself.
pub const CONFIG: &str = "config.json";
/// Its vocabulary.
pub const TOKENIZER: &str = "tokenizer.json";
/// Its weights in one file.
pub const WEIGHTS: &str = "model.safetensors";
/// Which file has which weights, where there are several.
pub const INDEX: &str = "model.safetensors.index.json";

/// A checkpoint that workers can be made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pulled {
    /// `OWNER/NAME`.
    pub name: String,
    /// Where its files are.
    #[serde(serialize_with = "lossy")]
    pub folder: PathBuf,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Parameters above which a reply of a model in this process takes minutes, and the model fills the memory of most machines.
const MOST_PARAMETERS: u128 = 4_000_000_000;

/// The checkpoints that are complete and of a kind that can be asked here, largest first.
pub fn pulled() -> Vec<Pulled> {
    // Without a folder for checkpoints there are none.
    let found = cache().map(|cache| cached(&cache)).unwrap_or_default();
    let mut pulled: Vec<Pulled> = found
        .into_iter()
        .filter(|found| found.fault.is_none() && !makes_embeddings(&found.name))
        .filter(|found| found.parameters.is_some_and(|count| count <= MOST_PARAMETERS))
        .map(|Cached { name, folder, bytes, .. }| Pulled { name, folder, bytes })
        .collect();
    pulled.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    // Another snapshot of the same repository is no other model.
    let mut known = HashSet::new();
    pulled.retain(|model| known.insert(model.name.clone()));
    pulled
}

/// The cache: in `HF_HOME`, or in the user's folder.
///
/// # Errors
/// The user has no folder.
pub fn cache() -> Result<Cache, WorkersError> {
    Cache::from_env().ok_or_else(|| {
        WorkersError::new("there is no folder for checkpoints: neither HF_HOME nor HOME is set")
            .hint("name one: export HF_HOME=…")
    })
}

/// A snapshot of a repository in the cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cached {
    /// `OWNER/NAME`.
    pub name: String,
    /// The commit.
    pub revision: String,
    /// Bytes of all files.
    pub bytes: u64,
    /// How many numbers the model consists of, if it is one that can be run here.
    pub parameters: Option<u128>,
    /// Where its files are.
    #[serde(serialize_with = "lossy")]
    pub folder: PathBuf,
    /// Whether everything is there.
    pub complete: bool,
    /// Why it cannot be run.
    pub fault: Option<String>,
}

/// Everything in the cache, by name. What cannot be read is not there.
pub fn cached(cache: &Cache) -> Vec<Cached> {
    let repositories =
        entries(cache.path()).into_iter().filter_map(|repository| Some((repository_name(&repository)?, repository)));
    let snapshots = repositories.flat_map(|(name, repository)| {
        entries(&repository.join("snapshots")).into_iter().map(move |folder| inspect(name.clone(), folder))
    });
    snapshots.collect()
}

/// `OWNER/NAME` of a snapshot in the cache.
pub fn name_of(snapshot: &Path) -> Option<String> {
    let snapshots = snapshot.parent().filter(|folder| folder.ends_with("snapshots"))?;
    repository_name(snapshots.parent()?)
}

fn repository_name(folder: &Path) -> Option<String> {
    // The first pair of dashes stands for the slash.
    Some(folder.file_name()?.to_str()?.strip_prefix("models--")?.replacen("--", "/", 1))
}

fn inspect(name: String, folder: PathBuf) -> Cached {
    let revision = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let bytes = entries(&folder).iter().filter_map(|file| fs::metadata(file).ok()).map(|file| file.len()).sum();
    let missing = missing(&folder);
    let config = read_config(&folder);
    let fault = match (&missing, &config) {
        (Some(missing), _) => Some(format!("{missing} is missing")),
        (None, Err(fact)) => Some(format!("{CONFIG}: {fact}")),
        (None, Ok(_)) => None,
    };
    let parameters = config.ok().map(|config| config.parameters());
    Cached { name, revision, bytes, parameters, folder, complete: missing.is_none(), fault }
}

/// The first file that a checkpoint needs and does not have.
pub(crate) fn missing(folder: &Path) -> Option<String> {
    let absent = |name: &String| !folder.join(name).is_file();
    let needed = [CONFIG, TOKENIZER].map(str::to_owned);
    if let Some(missing) = needed.into_iter().find(absent) {
        return Some(missing);
    }
    match fs::read(folder.join(INDEX)) {
        _ if folder.join(WEIGHTS).is_file() => None,
        Err(_) => Some(WEIGHTS.to_owned()),
        // Without any shard the index is as good as missing.
        Ok(index) => match shards(&index) {
            Ok(shards) => shards.into_iter().find(absent),
            Err(_) => Some(INDEX.to_owned()),
        },
    }
}

/// Reads what a checkpoint says about itself.
///
/// # Errors
/// Why it cannot be run here.
pub fn read_config(folder: &Path) -> Result<ModelConfig, String> {
    let text = fs::read_to_string(folder.join(CONFIG)).map_err(|error| error.to_string())?;
    ModelConfig::parse(&text)
}

/// The files that an index of weights names.
///
/// # Errors
/// It is no index, or names a file that lies elsewhere.
pub fn shards(index: &[u8]) -> Result<BTreeSet<String>, String> {
    let index: Value = serde_json::from_slice(index).map_err(|error| format!("{INDEX} is not JSON: {error}"))?;
    let map = index.get("weight_map").and_then(Value::as_object).filter(|map| !map.is_empty());
    let files = map.ok_or_else(|| format!("{INDEX} has no `weight_map`"))?.values();
    let name = |file: &Value| match file.as_str() {
        // It becomes part of a path and of an address.
        Some(name) if is_plain(name) => Ok(name.to_owned()),
        _ => Err(format!("{INDEX} names {file}, which is no file of this kind")),
    };
    files.map(name).collect()
}

/// A path need not be UTF-8, which JSON must be.
fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// What is in a folder, in the order of names.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).into_iter().flatten().flatten().map(|it| it.path()).collect();
    entries.sort();
    entries
}

/// Whether a text is a name that means the same in a path, in an address and on a screen.
pub fn is_plain(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    text.len() <= 200 && text.bytes().all(allowed) && text.starts_with(|first: char| first.is_ascii_alphanumeric())
}

/// Which checkpoint on the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// `OWNER/NAME`.
    pub name: String,
    /// A branch, tag or commit.
    pub revision: String,
}

impl FromStr for Reference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, revision) = text.split_once('@').unwrap_or((text, "main"));
        let plain_name = name.split_once('/').is_some_and(|(owner, name)| is_plain(owner) && is_plain(name));
        // A pair of dashes would be taken for the slash when the cache is read.
        if !plain_name || name.contains("--") {
            return Err("it must be OWNER/NAME, as on the hub, for instance Qwen/Qwen2.5-0.5B-Instruct".into());
        }
        if !revision.split('/').all(is_plain) {
            return Err("after the @ a branch, a tag or a commit must follow".into());
        }
        Ok(Reference { name: name.to_owned(), revision: revision.to_owned() })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.revision.as_str() {
            "main" => f.write_str(&self.name),
            revision => write!(f, "{}@{revision}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references() {
        let check = |text: &str, expected: Option<(&str, &str)>| {
            let read = text.parse::<Reference>().ok();
            assert_eq!(read.as_ref().map(|it| (it.name.as_str(), it.revision.as_str())), expected, "{text}");
            if let Some(read) = read {
                assert_eq!(read.to_string().parse(), Ok(read));
            }
        };
        check("Qwen/Qwen2.5-0.5B-Instruct", Some(("Qwen/Qwen2.5-0.5B-Instruct", "main")));
        check("a/b@v1.0", Some(("a/b", "v1.0")));
        check("a/b@refs/pr/1", Some(("a/b", "refs/pr/1")));
        for bad in ["", "gpt2", "a/b/c", "/b", "a/", "../b", "a/..", "a/b@", "a/b@../x", "a/b@/x", "a/b@x//y", "a/b c"]
        {
            check(bad, None);
        }
        for bad in ["a/b?x", "a/b#x", "a/b%2f", "a--b/c", "a/b\u{e9}", "a/b\n", "-a/b", "a/b@x@y"] {
            check(bad, None);
        }
    }

    #[test]
    fn shards_are_files_beside_the_index() {
        let check = |index: &str, expected: Result<&[&str], &str>| match (shards(index.as_bytes()), expected) {
            (Ok(found), Ok(expected)) => assert!(found.iter().eq(expected), "{index}: {found:?}"),
            (Err(fact), Err(words)) => assert!(fact.contains(words), "{index}: {fact}"),
            (found, _) => panic!("{index}: {found:?}"),
        };
        let two = r#"{"weight_map": {"x": "2.safetensors", "y": "1.safetensors", "z": "2.safetensors"}}"#;
        check(two, Ok(&["1.safetensors", "2.safetensors"]));
        check("", Err("is not JSON"));
        check("[]", Err("has no `weight_map`"));
        check(r#"{"weight_map": {}}"#, Err("has no `weight_map`"));
        check(r#"{"weight_map": {"x": "../secret"}}"#, Err("no file of this kind"));
        check(r#"{"weight_map": {"x": "/etc/passwd"}}"#, Err("no file of this kind"));
        check(r#"{"weight_map": {"x": 7}}"#, Err("names 7"));
    }
}
