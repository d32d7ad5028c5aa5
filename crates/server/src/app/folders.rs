//! Folders of results: evaluations and trainings, wherever they lie below the folders that the server was given.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// How deep below a folder results are looked for.
const DEEPEST: usize = 4;
/// Folders that are looked into.
const MOST_FOLDERS: usize = 5_000;

/// A folder with results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundFolder {
    /// How an address names it: the name of the folder, and a number where others have the same.
    pub name: String,
    /// Where it lies.
    pub path: PathBuf,
}

/// The folders below these that hold a file of this name, in the order of their paths.
pub fn holding(roots: &[PathBuf], file: &str) -> Vec<FoundFolder> {
    let mut paths = BTreeSet::new();
    let mut looked = 0;
    for root in roots {
        look(root, file, 0, &mut looked, &mut paths);
    }
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let named = paths.into_iter().map(|path| {
        let name = plain(&path);
        let count = seen.entry(name.clone()).or_default();
        *count += 1;
        let name = if *count > 1 { format!("{name}~{count}") } else { name };
        FoundFolder { name, path }
    });
    named.collect()
}

/// The folder that an address names.
pub fn named(roots: &[PathBuf], file: &str, name: &str) -> Option<PathBuf> {
    holding(roots, file).into_iter().find(|found| found.name == name).map(|found| found.path)
}

fn look(folder: &Path, file: &str, depth: usize, looked: &mut usize, paths: &mut BTreeSet<PathBuf>) {
    *looked += 1;
    if *looked > MOST_FOLDERS {
        return;
    }
    if folder.join(file).is_file() {
        paths.insert(folder.to_owned());
        // What lies below belongs to it.
        return;
    }
    if depth >= DEEPEST {
        return;
    }
    // A folder that is not there, or cannot be read, has no results to show.
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    // Links are not followed: they could lead in a circle.
    let mut folders: Vec<PathBuf> =
        entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect();
    folders.sort();
    for folder in folders {
        look(&folder, file, depth + 1, looked, paths);
    }
}

/// The name of a folder, of letters that an address can have.
fn plain(path: &Path) -> String {
    let name = path.file_name().map_or_else(|| "here".into(), |name| name.to_string_lossy());
    let plain = |char: char| if char.is_ascii_alphanumeric() || "-_.".contains(char) { char } else { '_' };
    name.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_found_and_named_once() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["a/one", "b/one", "b/two words", "b/one/below", "c/d/e/f/deep"] {
            std::fs::create_dir_all(folder.path().join(path)).unwrap();
        }
        for path in ["a/one", "b/one", "b/two words", "b/one/below", "c/d/e/f/deep"] {
            std::fs::write(folder.path().join(path).join("report.json"), "{}").unwrap();
        }
        let roots = [folder.path().to_owned(), folder.path().join("absent")];
        let names: Vec<String> = holding(&roots, "report.json").into_iter().map(|found| found.name).collect();
        assert_eq!(names, ["one", "one~2", "two_words"]);
        assert_eq!(named(&roots, "report.json", "one~2"), Some(folder.path().join("b/one")));
        assert_eq!(named(&roots, "report.json", "../one"), None);
    }
}
