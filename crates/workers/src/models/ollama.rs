//! Ollama's store: `manifests/HOST/NAMESPACE/MODEL/TAG` lists the parts of a model, `blobs/sha256-DIGITS` are the parts.
//!
//! A manifest is untrusted: a digest becomes part of a path only as sixty-four hexadecimal digits, a part counts only if it
//! is a plain file of the length that the manifest states, and no text is longer than a limit.

use super::{FoundModel, entries, inspect_gguf, is_plain};
use crate::error::{WorkersError, WorkersErrorKind};
use serde::Deserialize;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// What the names of its models begin with here.
pub const PREFIX: &str = "ollama:";

/// The registry, the owner and the tag that a name need not say.
const HOST: &str = "registry.ollama.ai";
const NAMESPACE: &str = "library";
const TAG: &str = "latest";

/// Where the Linux installer has the store of its service.
const SERVICE_STORE: &str = "/usr/share/ollama/.ollama/models";
/// The longest manifest, in bytes.
const MOST_MANIFEST: u64 = 1 << 20;
/// Manifests at most.
const MOST_MODELS: usize = 10_000;

/// A part that holds all weights, in GGUF.
const WEIGHTS: &str = "application/vnd.ollama.image.model";
/// Weights that are added to others.
const ADAPTER: &str = "application/vnd.ollama.image.adapter";

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Layer {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
}

/// A model by its name in the store.
#[derive(Debug, PartialEq, Eq)]
struct Name {
    parts: [String; 4],
}

impl Name {
    /// Reads `[[HOST/]NAMESPACE/]MODEL[:TAG]`; `None` where a part could be no file name of the store.
    fn parse(text: &str) -> Option<Name> {
        let (path, tag) = match text.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, tag),
            _ => (text, TAG),
        };
        let (host, namespace, model) = match path.split('/').collect::<Vec<_>>().as_slice() {
            [model] => (HOST, NAMESPACE, *model),
            [namespace, model] => (HOST, *namespace, *model),
            [host, namespace, model] => (*host, *namespace, *model),
            _ => return None,
        };
        let is_host = host.split(':').count() <= 2 && host.split(':').all(is_plain);
        let name = Name { parts: [host, namespace, model, tag].map(str::to_owned) };
        (is_host && [namespace, model, tag].into_iter().all(|part| !part.is_empty() && is_plain(part))).then_some(name)
    }

    /// As Ollama shows it: without what is the default.
    fn shown(&self) -> String {
        let [host, namespace, model, tag] = &self.parts;
        match (host.as_str(), namespace.as_str()) {
            (HOST, NAMESPACE) => format!("{model}:{tag}"),
            (HOST, _) => format!("{namespace}/{model}:{tag}"),
            _ => format!("{host}/{namespace}/{model}:{tag}"),
        }
    }

    fn manifest(&self, store: &Path) -> PathBuf {
        self.parts.iter().fold(store.join("manifests"), |path, part| path.join(part))
    }
}

/// The stores: what `OLLAMA_MODELS` names, or the user's and the service's.
fn stores() -> Vec<PathBuf> {
    match std::env::var_os("OLLAMA_MODELS").filter(|folder| !folder.is_empty()) {
        Some(folder) => vec![PathBuf::from(folder)],
        None => {
            let own = std::env::home_dir().map(|home| home.join(".ollama").join("models"));
            own.into_iter().chain([PathBuf::from(SERVICE_STORE)]).collect()
        }
    }
}

/// Its models, by name. One whose manifest makes no sense has a fault.
pub(super) fn listed() -> Vec<FoundModel> {
    stores().iter().flat_map(|store| listed_in(store)).collect()
}

fn listed_in(store: &Path) -> Vec<FoundModel> {
    let below = |folders: Vec<PathBuf>| folders.iter().flat_map(|folder| entries(folder)).take(MOST_MODELS).collect();
    // Host, namespace, model, tag: as deep as names are, and no deeper, so that links in a circle end.
    let manifests: Vec<PathBuf> = (0..4).fold(vec![store.join("manifests")], |folders, _| below(folders));
    manifests.iter().filter_map(|manifest| listed_as(store, manifest)).collect()
}

/// A manifest as a line of the list; `None` for a file whose path is no name.
fn listed_as(store: &Path, manifest: &Path) -> Option<FoundModel> {
    let parts = manifest.strip_prefix(store.join("manifests")).ok()?.iter().map(|part| part.to_str());
    let parts: Vec<&str> = parts.collect::<Option<_>>()?;
    let [host, namespace, model, tag] = parts.as_slice() else { return None };
    let name = Name::parse(&format!("{host}/{namespace}/{model}:{tag}"))?;
    let shown = format!("{PREFIX}{}", name.shown());
    Some(match weights(store, manifest) {
        Ok((path, digits)) => FoundModel { revision: digits, ..inspect_gguf(shown, path) },
        Err(fact) => FoundModel {
            name: shown,
            revision: "-".to_owned(),
            bytes: 0,
            parameters: None,
            folder: manifest.to_owned(),
            complete: false,
            fault: Some(fact),
            can_chat: false,
        },
    })
}

/// The file with the weights of a model.
///
/// # Errors
/// There is no such model, or its manifest makes no sense.
pub(super) fn locate(name: &str) -> Result<PathBuf, WorkersError> {
    let error = |fact: String, hint: &str| {
        let fact = format!("{PREFIX}{name}: {fact}");
        WorkersError::new(fact).hint(hint.to_owned()).kind(WorkersErrorKind::Model)
    };
    let Some(parsed) = Name::parse(name) else {
        return Err(error("it is no name of a model".into(), "it is [OWNER/]NAME[:TAG], as `ollama list` shows it"));
    };
    let stores = stores();
    let Some(store) = stores.iter().find(|store| parsed.manifest(store).is_file()) else {
        let places = stores.iter().map(|store| store.display().to_string()).collect::<Vec<_>>().join(" and ");
        let hint =
            "`lemon models list` shows what is there; `ollama pull` fetches more; OLLAMA_MODELS names another folder";
        return Err(error(format!("there is no such model in {places}"), hint));
    };
    let found = weights(store, &parsed.manifest(store));
    found.map(|(path, _)| path).map_err(|fact| error(fact, "`ollama pull` fetches the model again"))
}

/// The file with the weights that a manifest names, and the digits of its digest.
fn weights(store: &Path, manifest: &Path) -> Result<(PathBuf, String), String> {
    let named = |fact: String| format!("{}: {fact}", manifest.display());
    let Manifest { layers } = read(manifest).map_err(&named)?;
    let of_type = |kind: &str| layers.iter().find(|layer| layer.media_type.split(';').next() == Some(kind));
    if of_type(ADAPTER).is_some() {
        return Err(named("it has an adapter, which cannot be applied here".into()));
    }
    let layer = of_type(WEIGHTS).ok_or_else(|| named(format!("expected a layer `{WEIGHTS}`, found none")))?;
    let digits = layer.digest.strip_prefix("sha256:").filter(|digits| is_sha256(digits)).ok_or_else(|| {
        let found: String = layer.digest.chars().take(80).collect();
        named(format!("expected a digest `sha256:` with 64 hexadecimal digits, found {found:?}"))
    })?;
    let path = store.join("blobs").join(format!("sha256-{}", digits.to_ascii_lowercase()));
    let found = fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    if !found.is_file() {
        return Err(format!("{}: it is no plain file", path.display()));
    }
    if found.len() != layer.size {
        let (length, size) = (found.len(), layer.size);
        return Err(format!("{}: expected {size} bytes, as the manifest says, found {length}", path.display()));
    }
    Ok((path, digits.to_ascii_lowercase()))
}

fn is_sha256(digits: &str) -> bool {
    digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn read(path: &Path) -> Result<Manifest, String> {
    // A device or a pipe might never end.
    let found = fs::metadata(path).map_err(|error| error.to_string())?;
    if !found.is_file() {
        return Err("it is no plain file".to_owned());
    }
    let mut text = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(MOST_MANIFEST + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > MOST_MANIFEST {
        return Err(format!("expected a manifest of at most {MOST_MANIFEST} bytes, found more"));
    }
    serde_json::from_slice(&text).map_err(|error| format!("it is no manifest: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use tempfile::TempDir;

    #[test]
    fn names() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(Name::parse(text).map(|name| name.shown()).as_deref(), expected, "{text}");
        };
        check("qwen2.5-coder:1.5b", Some("qwen2.5-coder:1.5b"));
        check("llama3.2", Some("llama3.2:latest"));
        check("owner/name:q4", Some("owner/name:q4"));
        check("hf.co/Owner/Name-GGUF:Q4_K_M", Some("hf.co/Owner/Name-GGUF:Q4_K_M"));
        check("localhost:5000/owner/name", Some("localhost:5000/owner/name:latest"));
        check("registry.ollama.ai/library/x:y", Some("x:y"));
        for bad in ["", ":", "x:", ":x", "..", "../x", "x/..", "/x", "x/", "a/b/c/d", "x y", "x\0", "x\n", "a:b:c", "é"]
        {
            check(bad, None);
        }
    }

    const DIGITS: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn store(manifest: impl AsRef<[u8]>, blob: Option<&[u8]>) -> TempDir {
        let store = tempfile::tempdir().unwrap();
        let tag = store.path().join("manifests/registry.ollama.ai/library/m/1b");
        fs::create_dir_all(tag.parent().unwrap()).unwrap();
        fs::create_dir_all(store.path().join("blobs")).unwrap();
        fs::write(&tag, manifest).unwrap();
        if let Some(blob) = blob {
            fs::write(store.path().join(format!("blobs/sha256-{DIGITS}")), blob).unwrap();
        }
        store
    }

    fn manifest(kind: &str, digest: &str, size: u64) -> String {
        json!({"schemaVersion": 2, "layers": [
            {"mediaType": "application/vnd.ollama.image.license", "digest": format!("sha256:{DIGITS}"), "size": 1},
            {"mediaType": kind, "digest": digest, "size": size},
        ]})
        .to_string()
    }

    fn fault(store: &TempDir) -> String {
        let listed = listed_in(store.path());
        let [model] = listed.as_slice() else { panic!("{listed:?}") };
        assert_eq!((model.name.as_str(), model.can_chat), ("ollama:m:1b", false));
        model.fault.clone().unwrap()
    }

    #[test]
    fn hostile_manifests_are_refused_and_lead_nowhere() {
        let good = format!("sha256:{DIGITS}");
        let check = |manifest: &str, blob: Option<&[u8]>, words: &str| {
            let fault = fault(&store(manifest, blob));
            assert!(fault.contains(words), "{words}: {fault}");
        };
        check("", None, "it is no manifest");
        check("[]", None, "expected a layer");
        check(&"[".repeat(100_000), None, "it is no manifest");
        check(&" ".repeat(2 << 20), None, "expected a manifest of at most 1048576 bytes");
        check("{}", None, "expected a layer `application/vnd.ollama.image.model`, found none");
        check(&manifest("application/vnd.ollama.image.tensor", &good, 1), None, "expected a layer");
        check(&manifest(ADAPTER, &good, 1), Some(b"x"), "it has an adapter");
        for digest in [
            "",
            "sha256:",
            "sha256:../../../../etc/passwd",
            "../../../../etc/passwd",
            &format!("sha256:../{}", &DIGITS[3..]),
            &format!("sha256:{DIGITS}0"),
            &format!("sha256:{}\u{e9}", &DIGITS[2..]),
            &format!("md5:{DIGITS}"),
            "sha256:\u{1b}[2J",
        ] {
            let words = "expected a digest `sha256:` with 64 hexadecimal digits";
            check(&manifest(WEIGHTS, digest, 1), Some(b"x"), words);
        }
        check(&manifest(WEIGHTS, &good, 1), None, "No such file");
        check(&manifest(WEIGHTS, &good, u64::MAX), Some(b"x"), "expected 18446744073709551615 bytes");
        check(&manifest(WEIGHTS, &good, 1), Some(b"x"), "expected 4 bytes for the magic number");
        check(&manifest(WEIGHTS, &good, 9), Some(b"<!DOCTYPE"), "begins with `GGUF`");
        let bytes = json!({"layers": [{"mediaType": WEIGHTS, "digest": good, "size": -1}]});
        check(&bytes.to_string(), Some(b"x"), "it is no manifest");
        let number = Value::from(7).to_string();
        check(&number, None, "it is no manifest");
    }

    #[cfg(unix)]
    #[test]
    fn links_in_a_circle_and_pipes_are_refused() {
        let link = |from: &Path, to: &Path| std::os::unix::fs::symlink(to, from).unwrap();
        let empty = store(manifest(WEIGHTS, &format!("sha256:{DIGITS}"), 1), None);
        let blob = empty.path().join(format!("blobs/sha256-{DIGITS}"));
        link(&blob, &blob);
        assert!(fault(&empty).contains("symbolic links"), "{}", fault(&empty));
        fs::remove_file(&blob).unwrap();
        link(&blob, Path::new("/dev/zero"));
        assert!(fault(&empty).contains("it is no plain file"));
        let tag = empty.path().join("manifests/registry.ollama.ai/library/m/1b");
        fs::remove_file(&tag).unwrap();
        link(&tag, Path::new("/dev/zero"));
        assert!(fault(&empty).contains("it is no plain file"));
        // A folder that holds itself.
        let library = empty.path().join("manifests/registry.ollama.ai/library");
        link(&library.join("again"), &library);
        assert!(listed_in(empty.path()).len() <= 3);
    }
}
