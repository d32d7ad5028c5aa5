//! What no file of the project may be.

use crate::pages;
use crate::words::{PublicNames, retired};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

const MOST_BYTES: u64 = 1024 * 1024;
/// Weights of models are large by nature.
const MOST_MODEL_BYTES: u64 = 32 * MOST_BYTES;
const MOST_LINES: usize = 600;
const MOST_README_LINES: usize = 200;
// In two parts, so that this file may say them.
const UNDONE: [&str; 3] = [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("dbg", "!(")];

/// Everything wrong with these files, whose paths are relative to the root.
///
/// # Errors
/// A file cannot be read.
pub fn faults<'a>(root: &Path, files: impl Iterator<Item = &'a str>) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let mut names = PublicNames::default();
    for file in files {
        let path = root.join(file);
        // A file that was deleted and not yet committed, and a link, have nothing to check.
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_file() {
            let is_text = [".rs", ".md", ".toml"].iter().any(|end| file.ends_with(end));
            let text = is_text.then(|| fs::read_to_string(&path)).transpose().with_context(|| file.to_owned())?;
            let source = text.as_deref().filter(|_| file.ends_with(".rs"));
            faults.extend(file_faults(file, metadata.len(), source));
            faults.extend(text.iter().flat_map(|text| retired(file, text)));
            let page = text.as_deref().filter(|_| file.ends_with(".md"));
            faults.extend(page.into_iter().flat_map(|page| pages::faults(root, file, page)));
            source.into_iter().for_each(|source| names.read(file, source));
            faults.extend(text.filter(|_| file == "README.md").and_then(|text| readme_fault(&text)));
        }
    }
    faults.extend(names.faults());
    Ok(faults)
}

fn readme_fault(text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines >= MOST_README_LINES).then(|| format!("README.md: {lines} lines; fewer than {MOST_README_LINES}"))
}

fn file_faults(file: &str, bytes: u64, source: Option<&str>) -> Vec<String> {
    let mut faults = Vec::new();
    let is_model = file.starts_with("models/") && file.ends_with(".safetensors");
    let most = if is_model { MOST_MODEL_BYTES } else { MOST_BYTES };
    if bytes > most {
        faults.push(format!("{file}: {bytes} bytes; at most {most}"));
    }
    let Some(source) = source else { return faults };
    let lines = source.lines().count();
    if lines > MOST_LINES {
        faults.push(format!("{file}: {lines} lines; at most {MOST_LINES}"));
    }
    for (number, line) in source.lines().enumerate() {
        let undone = UNDONE.into_iter().filter(|word| line.contains(word));
        faults.extend(undone.map(|word| format!("{file}:{}: {word}…)", number + 1)));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: u64, source: Option<&str>, expected: &[&str]) {
        assert_eq!(file_faults("a", bytes, source), expected);
    }

    #[test]
    fn files_are_small_and_finished() {
        check(MOST_BYTES, None, &[]);
        check(MOST_BYTES + 1, None, &["a: 1048577 bytes; at most 1048576"]);
        assert_eq!(file_faults("models/a.safetensors", MOST_MODEL_BYTES, None), [""; 0]);
        assert_eq!(file_faults("models/a.safetensors", MOST_MODEL_BYTES + 1, None).len(), 1);
        assert_eq!(file_faults("models/a.bin", MOST_BYTES + 1, None).len(), 1);
        check(9, Some(&"\n".repeat(600)), &[]);
        check(9, Some(&"\n".repeat(601)), &["a: 601 lines; at most 600"]);
        check(9, Some("fn done() {}\n// nothing to do!"), &[]);
        for word in UNDONE {
            check(9, Some(&format!("fn begun() {{\n    {word})\n}}")), &[&format!("a:2: {word}…)")]);
        }
    }

    #[test]
    fn the_readme_is_short() {
        assert_eq!(readme_fault(&"\n".repeat(199)), None);
        assert_eq!(readme_fault(&"\n".repeat(200)), Some("README.md: 200 lines; fewer than 200".to_owned()));
    }

    #[test]
    fn files_are_found_under_the_root() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(faults(here, ["src/tidy.rs", "src/gone.rs", "src"].into_iter()).unwrap(), [""; 0]);
    }
}
