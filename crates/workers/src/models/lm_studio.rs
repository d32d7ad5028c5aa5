//! LM Studio's folder: `PUBLISHER/MODEL/FILE.gguf`.

use super::{FoundModel, entries, inspect_gguf, is_gguf};
use crate::error::{WorkersError, WorkersErrorKind};
use std::path::{Component, Path, PathBuf};

/// What the names of its models begin with here.
pub const PREFIX: &str = "lmstudio:";

/// Folders in a publisher's folder, and files in theirs, at most.
const MOST_FILES: usize = 10_000;

/// Where it keeps models, in the user's folder: now, and in its older versions.
fn folders() -> Vec<PathBuf> {
    let Some(home) = std::env::home_dir() else { return Vec::new() };
    vec![home.join(".lmstudio").join("models"), home.join(".cache").join("lm-studio").join("models")]
}

/// Its GGUF files, by name.
pub(super) fn listed() -> Vec<FoundModel> {
    folders().iter().flat_map(|folder| listed_in(folder)).collect()
}

fn listed_in(folder: &Path) -> Vec<FoundModel> {
    let below = |folders: Vec<PathBuf>| folders.iter().flat_map(|folder| entries(folder)).take(MOST_FILES).collect();
    // Publisher, model, file: links in a circle end.
    let files: Vec<PathBuf> = (0..3).fold(vec![folder.to_owned()], |folders, _| below(folders));
    let named = |path: PathBuf| {
        let name = path.strip_prefix(folder).ok()?.to_str()?.replace('\\', "/");
        // A part that reads pictures belongs to another file.
        let is_model = is_gguf(&path) && !path.file_name()?.to_str()?.starts_with("mmproj");
        let is_shown = !name.chars().any(char::is_control);
        (is_model && is_shown).then(|| inspect_gguf(format!("{PREFIX}{name}"), path))
    };
    files.into_iter().filter_map(named).collect()
}

/// The file of a model.
///
/// # Errors
/// There is none of this name.
pub(super) fn locate(name: &str) -> Result<PathBuf, WorkersError> {
    let error = |fact: String, hint: &str| {
        let fact = format!("{PREFIX}{name}: {fact}");
        WorkersError::new(fact).hint(hint.to_owned()).kind(WorkersErrorKind::Model)
    };
    let parts = Path::new(name).components();
    if parts.clone().count() != 3 || !parts.clone().all(|part| matches!(part, Component::Normal(_))) {
        let hint = "it is PUBLISHER/MODEL/FILE.gguf, as `lemon models list` shows it";
        return Err(error("it is no name of a model".into(), hint));
    }
    let folders = folders();
    folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file()).ok_or_else(|| {
        let places = folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(" and ");
        error(format!("there is no such file in {places}"), "`lemon models list` shows what is there")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere_else() {
        for bad in ["", "x", "x.gguf", "../../x.gguf", "/a/b/c.gguf", "a/../c.gguf", "a/b/c/d.gguf"] {
            assert!(locate(bad).unwrap_err().fact.contains("no name of a model"), "{bad}");
        }
        assert!(locate("no/such/model.gguf").unwrap_err().fact.contains("there is no such file"));
    }

    #[test]
    fn files_are_listed_with_their_faults() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["pub/model/m-q4.gguf", "pub/model/mmproj-m.gguf", "pub/model/readme.md", "pub/m.gguf"] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "GGUF").unwrap();
        }
        let listed = listed_in(folder.path());
        let [model] = listed.as_slice() else { panic!("{listed:?}") };
        assert_eq!((model.name.as_str(), model.complete), ("lmstudio:pub/model/m-q4.gguf", false));
        assert!(model.fault.as_ref().unwrap().contains("cut short"), "{model:?}");
    }
}
