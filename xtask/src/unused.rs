//! Dependencies that no code of their crate names: each one makes every build wait for it.

use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The dependencies that crates of the workspace declare and do not name.
///
/// # Errors
/// A file cannot be read.
pub fn faults(metadata: &Value) -> Result<Vec<String>> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut faults = Vec::new();
    for package in list(&metadata["packages"]) {
        let name = package["name"].as_str().unwrap_or_default();
        let manifest = package["manifest_path"].as_str().context("cargo metadata names no manifest")?;
        let folder = Path::new(manifest).parent().unwrap_or(Path::new("."));
        let (mut ships, mut all) = (String::new(), String::new());
        read(&folder.join("src"), &mut ships)?;
        for part in ["build.rs", "tests", "benches", "examples"] {
            read(&folder.join(part), &mut all)?;
        }
        for target in list(&package["targets"]) {
            // Examples lie outside of the folder of their crate.
            read(Path::new(target["src_path"].as_str().unwrap_or_default()), &mut all)?;
        }
        all += &ships;
        for dependency in list(&package["dependencies"]) {
            let called = dependency["rename"].as_str().or(dependency["name"].as_str()).unwrap_or_default();
            let text = if dependency["kind"].is_null() { &ships } else { &all };
            if !is_named(text, &called.replace('-', "_")) {
                faults.push(format!("{name}: does not use its dependency {called}"));
            }
        }
    }
    Ok(faults)
}

/// Adds the Rust files under a path; nothing where there is none.
fn read(path: &Path, text: &mut String) -> Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path).with_context(|| path.display().to_string())? {
            read(&entry?.path(), text)?;
        }
    } else if path.is_file() && path.extension().is_some_and(|end| end == "rs") {
        text.push_str(&fs::read_to_string(path).with_context(|| path.display().to_string())?);
        text.push('\n');
    }
    Ok(())
}

/// Whether a word stands in a text.
fn is_named(text: &str, word: &str) -> bool {
    let is_part = |char: Option<char>| char.is_some_and(|char| char == '_' || char.is_alphanumeric());
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (text.get(..at), text.get(at + word.len()..));
        !is_part(before.and_then(|it| it.chars().next_back())) && !is_part(after.and_then(|it| it.chars().next()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(name: &str, kind: Value, expected: &[&str]) {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let package = json!({
            "name": "this", "manifest_path": manifest, "targets": [{"src_path": concat!(env!("CARGO_MANIFEST_DIR"), "/src/main.rs")}],
            "dependencies": [{"name": name, "rename": null, "kind": kind}],
        });
        assert_eq!(faults(&json!({"packages": [package]})).unwrap(), expected, "{name} {kind}");
    }

    #[test]
    fn dependencies_without_a_use_are_found() {
        check("serde-json", Value::Null, &[]);
        check("serde_json", json!("dev"), &[]);
        // In two parts, so that this file does not name it.
        let unknown = concat!("not", "-named");
        check(unknown, Value::Null, &["this: does not use its dependency not-named"]);
        check(unknown, json!("dev"), &["this: does not use its dependency not-named"]);
        assert!(is_named("use one::two;", "two") && !is_named("use one::twofold, is_two", "two"));
    }
}
