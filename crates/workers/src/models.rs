//! Models on this machine: checkpoints in the cache of the Hugging Face hub, put there by `lemon models pull` or by another
//! program, and what Ollama and LM Studio have.

pub mod cache;
pub mod catalogue;
pub(crate) mod fingerprint;
mod lm_studio;
mod ollama;

use crate::bundled;
use crate::discover::makes_embeddings;
use crate::error::{WorkersError, WorkersErrorKind};
use cache::Cache;
use catalogue::CatalogueEntry;
use lemon_model::{CheckedGguf, ModelConfig, check_gguf};
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
/// What the names of models in the cache of the hub begin with.
pub const HUB_PREFIX: &str = "hf:";

/// A model on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FoundModel {
    /// What `local = …` and `--model` take: `hf:OWNER/NAME`, `hf:OWNER/NAME/FILE.gguf`, `ollama:NAME:TAG`,
    /// `lmstudio:PUBLISHER/MODEL/FILE.gguf`, `bundled:NAME`.
    pub name: String,
    /// The commit, or the digest of the file, where the program that has it states one.
    pub revision: String,
    /// Bytes of all files.
    pub bytes: u64,
    /// How many numbers the model consists of, if it is one that can be run here.
    pub parameters: Option<u128>,
    /// Where its files are: a folder, or a GGUF file.
    #[serde(serialize_with = "lossy")]
    pub folder: PathBuf,
    /// Whether everything is there.
    pub complete: bool,
    /// Why it cannot be run.
    pub fault: Option<String>,
    /// Whether it is known how conversations with it are written.
    #[serde(skip)]
    pub can_chat: bool,
}

/// Parameters above which a reply of a model in this process takes minutes, and the model fills the memory of most machines.
const MOST_PARAMETERS: u128 = 4_000_000_000;

/// Everything on this machine but for the bundled models. What cannot be read is not there.
pub fn found() -> Vec<FoundModel> {
    // Without a folder for checkpoints there are none.
    let in_cache = Cache::from_env().map(|cache| cached(&cache)).unwrap_or_default();
    in_cache.into_iter().chain(ollama::listed()).chain(lm_studio::listed()).collect()
}

/// The models that can be asked here, the one with the most parameters first; of equal ones the smaller file.
pub fn usable() -> Vec<FoundModel> {
    let is_usable = |model: &FoundModel| model.fault.is_none() && model.can_chat && !makes_embeddings(&model.name);
    let is_fast = |model: &FoundModel| model.parameters.is_some_and(|count| count <= MOST_PARAMETERS);
    let mut usable: Vec<FoundModel> = found().into_iter().filter(|model| is_usable(model) && is_fast(model)).collect();
    let order = |model: &FoundModel| (std::cmp::Reverse(model.parameters), model.bytes, model.name.clone());
    usable.sort_by_cached_key(order);
    // Another snapshot of the same repository is no other model; nor is the same file under two names.
    let (mut names, mut files) = (HashSet::new(), HashSet::new());
    usable.retain(|model| {
        let name = model.name.split('@').next().unwrap_or_default().to_owned();
        let file = fs::canonicalize(&model.folder).unwrap_or_else(|_| model.folder.clone());
        files.insert(file) && names.insert(name)
    });
    usable
}

/// Whether a text names a model, where the path of one could stand.
pub fn is_name(local: &str) -> bool {
    bundled::name(local).is_some() || own_name(local).is_some()
}

/// Where the model of a name is; `None` for a path, and for a bundled model.
///
/// # Errors
/// There is no such model.
pub fn locate(local: &str) -> Option<Result<PathBuf, WorkersError>> {
    if let Some(name) = local.strip_prefix(ollama::PREFIX) {
        return Some(ollama::locate(name));
    }
    if let Some(name) = local.strip_prefix(lm_studio::PREFIX) {
        return Some(lm_studio::locate(name));
    }
    local.strip_prefix(HUB_PREFIX).map(locate_cached)
}

/// A name without what says which program has the model; `None` for a path, and for a bundled model.
pub(crate) fn own_name(local: &str) -> Option<&str> {
    [HUB_PREFIX, ollama::PREFIX, lm_studio::PREFIX].iter().find_map(|prefix| local.strip_prefix(prefix))
}

fn locate_cached(name: &str) -> Result<PathBuf, WorkersError> {
    let error = |fact: String, hint: String| {
        WorkersError::new(format!("{HUB_PREFIX}{name}: {fact}")).hint(hint).kind(WorkersErrorKind::Model)
    };
    let reference = Reference::parse(name).map_err(|fact| error(fact, "`lemon models list` shows names".into()))?;
    let cache = cache()?;
    let place = cache.repository(&reference.name).find_snapshot(&reference.revision);
    let place = place.map(|folder| reference.file.iter().fold(folder, |folder, file| folder.join(file)));
    place.filter(|place| if reference.file.is_some() { place.is_file() } else { place.is_dir() }).ok_or_else(|| {
        let fact = format!("there is no such model in {}", cache.path().display());
        error(fact, format!("`lemon models pull {name}` fetches it; `lemon models list` shows what is there"))
    })
}

/// The cache: in `HF_HUB_CACHE`, in `HF_HOME`, or in the user's folder.
///
/// # Errors
/// The user has no folder.
pub fn cache() -> Result<Cache, WorkersError> {
    Cache::from_env().ok_or_else(|| {
        WorkersError::new("there is no folder for checkpoints: neither HF_HOME nor HOME is set")
            .hint("name one: export HF_HOME=…")
    })
}

/// Everything in the cache, by name. What cannot be read is not there.
pub fn cached(cache: &Cache) -> Vec<FoundModel> {
    let repositories =
        entries(cache.path()).into_iter().filter_map(|repository| Some((repository_name(&repository)?, repository)));
    let snapshots = repositories.flat_map(|(name, repository)| {
        let by_default = cache.repository(&name).find_snapshot(DEFAULT_REVISION);
        entries(&repository.join("snapshots")).into_iter().flat_map(move |folder| {
            let revision = match by_default.as_ref() == Some(&folder) {
                true => String::new(),
                false => format!("@{}", file_name(&folder)),
            };
            inspect(&name, &revision, folder)
        })
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

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The models of a snapshot: each GGUF file, and the whole where there are other files to make one of.
fn inspect(name: &str, revision: &str, folder: PathBuf) -> Vec<FoundModel> {
    let files: Vec<PathBuf> = entries(&folder).into_iter().filter(|path| is_gguf(path)).collect();
    let of_file = |path: &PathBuf| {
        let shown = format!("{HUB_PREFIX}{name}/{}{revision}", file_name(path));
        FoundModel { revision: file_name(&folder), ..inspect_gguf(shown, path.clone()) }
    };
    let mut found: Vec<FoundModel> = files.iter().map(of_file).collect();
    if found.is_empty() || folder.join(CONFIG).exists() {
        found.push(inspect_folder(format!("{HUB_PREFIX}{name}{revision}"), folder));
    }
    found
}

fn inspect_folder(name: String, folder: PathBuf) -> FoundModel {
    // A link that leads nowhere has no size; what is missing is said below.
    let bytes = entries(&folder).iter().filter_map(|file| fs::metadata(file).ok()).map(|file| file.len()).sum();
    let missing = missing(&folder);
    let config = read_config(&folder);
    let fault = match (&missing, &config) {
        (Some(missing), _) => Some(format!("{missing} is missing")),
        (None, Err(fact)) => Some(format!("{CONFIG}: {fact}")),
        (None, Ok(_)) => None,
    };
    let parameters = config.ok().map(|config| config.parameters());
    let (revision, complete) = (file_name(&folder), missing.is_none());
    FoundModel { name, revision, bytes, parameters, folder, complete, fault, can_chat: true }
}

/// Whether a path ends as GGUF files do.
pub(crate) fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case("gguf"))
}

/// A GGUF file, by what its header says.
fn inspect_gguf(name: String, path: PathBuf) -> FoundModel {
    let bytes = fs::metadata(&path).map_or(0, |file| file.len());
    let revision = "-".to_owned();
    match check_gguf(&path) {
        Ok(CheckedGguf { config, has_template }) => {
            let parameters = Some(config.parameters());
            let folder = path;
            FoundModel {
                name,
                revision,
                bytes,
                parameters,
                folder,
                complete: true,
                fault: None,
                can_chat: has_template,
            }
        }
        Err(error) => {
            let fact = error.to_string();
            let fact = fact.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&fact).to_owned();
            let (folder, fault) = (path, Some(fact));
            FoundModel { name, revision, bytes, parameters: None, folder, complete: false, fault, can_chat: false }
        }
    }
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

/// What is in a folder, in the order of names. One that is not there, or cannot be read, holds no model that could be used.
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

/// The revision that is taken where none is named.
const DEFAULT_REVISION: &str = "main";

/// Which checkpoint or file on the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// `OWNER/NAME`.
    pub name: String,
    /// A branch, tag or commit.
    pub revision: String,
    /// The GGUF file, if not the whole checkpoint is meant.
    pub file: Option<String>,
    /// What the catalogue says of the file.
    pub expected: Option<&'static CatalogueEntry>,
}

impl Reference {
    /// Reads `OWNER/NAME[/FILE.gguf][@REVISION]`.
    fn parse(text: &str) -> Result<Self, String> {
        let (path, revision) = text.split_once('@').unwrap_or((text, DEFAULT_REVISION));
        let (name, file) = match path.split('/').collect::<Vec<_>>().as_slice() {
            [owner, name] if is_plain(owner) && is_plain(name) => (format!("{owner}/{name}"), None),
            [owner, name, file] if [owner, name, file].into_iter().all(|part| is_plain(part)) => {
                (format!("{owner}/{name}"), Some((*file).to_owned()))
            }
            _ => (String::new(), None),
        };
        let is_file = file.as_ref().is_none_or(|file| is_gguf(Path::new(file)));
        // A pair of dashes would be taken for the slash when the cache is read.
        if name.is_empty() || name.contains("--") || !is_file {
            return Err("it must be OWNER/NAME or OWNER/NAME/FILE.gguf, as on the hub, for instance \
                        Qwen/Qwen2.5-0.5B-Instruct"
                .into());
        }
        if !revision.split('/').all(is_plain) {
            return Err("after the @ a branch, a tag or a commit must follow".into());
        }
        Ok(Reference { name, revision: revision.to_owned(), file, expected: None })
    }
}

impl FromStr for Reference {
    type Err = String;

    /// Reads what [`Reference`] displays, or a name of the catalogue.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(entry) = catalogue::find(text) {
            return Ok(entry.reference());
        }
        Reference::parse(text).map_err(|fact| match text.contains('/') {
            true => fact,
            false => format!("{fact}; or one of the catalogue: {}", catalogue::names()),
        })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(file) = &self.file {
            write!(f, "/{file}")?;
        }
        match self.revision.as_str() {
            DEFAULT_REVISION => Ok(()),
            revision => write!(f, "@{revision}"),
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
        check("a/b/c.gguf", Some(("a/b", "main")));
        check("a/b/c.GGUF@v1", Some(("a/b", "v1")));
        for bad in [
            "",
            "gpt2",
            "a/b/c",
            "a/b/c/d.gguf",
            "a/b/.gguf",
            "a/b/../x.gguf",
            "a/..gguf/x.gguf",
            "/b",
            "a/",
            "../b",
            "a/..",
            "a/b@",
            "a/b@../x",
            "a/b@/x",
            "a/b@x//y",
            "a/b c",
        ] {
            check(bad, None);
        }
        for bad in ["a/b?x", "a/b#x", "a/b%2f", "a--b/c", "a/b\u{e9}", "a/b\n", "-a/b", "a/b@x@y"] {
            check(bad, None);
        }
    }

    #[test]
    fn a_name_of_the_catalogue_is_a_reference_with_a_checksum() {
        for entry in catalogue::CATALOGUE {
            let read: Reference = entry.name.parse().unwrap();
            assert_eq!(
                (read.to_string(), read.expected),
                (format!("{}/{}", entry.repository, entry.file), Some(entry))
            );
        }
        let error = "qwen2.5".parse::<Reference>().unwrap_err();
        assert!(error.contains("qwen2.5-coder-1.5b"), "{error}");
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
