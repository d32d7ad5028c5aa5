//! `cargo xtask real`: what can be checked with published models only.

use crate::{cargo, run};
use anyhow::{Context, Result};
use std::env;
use std::path::{Path, PathBuf};

/// The variable that names the folder with the models.
const VARIABLE: &str = "LEMON_REAL_MODELS";
/// What writes the reference of a model.
const WRITER: &str = "python3 crates/model/tests/llama_cpp.py";

/// The tests that read the folder: package, target, and the part of it that needs models.
const TESTS: [(&str, &[&str], &str); 2] =
    [("lemon-model", &["--test", "it"], "gguf_real::"), ("lemon-engine", &["--lib"], "tests::real::")];

/// Runs the tests that need models, or says why not.
pub fn check() -> Result<()> {
    let found = match env::var_os(VARIABLE) {
        None => Err(format!("{VARIABLE} is not set; it names a folder with GGUF files")),
        Some(folder) => models(Path::new(&folder))?,
    };
    match found {
        Err(reason) => println!("skipped: {reason}"),
        Ok(models) => {
            for (model, has_reference) in &models {
                match has_reference {
                    true => println!("{}", model.display()),
                    false => println!("skipped: {0} has no reference; `{WRITER} {0}` writes it", model.display()),
                }
            }
            if models.iter().any(|(_, has_reference)| *has_reference) {
                TESTS.iter().try_for_each(test)?;
            }
        }
    }
    Ok(())
}

/// The models of a folder, and whether each has something to be compared with; or why there are none.
fn models(folder: &Path) -> Result<Result<Vec<(PathBuf, bool)>, String>> {
    if !folder.is_dir() {
        return Ok(Err(format!("{VARIABLE} is {}, which is no folder", folder.display())));
    }
    let mut models = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "gguf") {
            let has_reference = path.with_extension("reference.json").is_file();
            models.push((path, has_reference));
        }
    }
    models.sort();
    match models.is_empty() {
        true => Ok(Err(format!("{} has no GGUF file", folder.display()))),
        false => Ok(Ok(models)),
    }
}

/// Not `--release`: what computes is optimised in tests too, and built already where the suite was run.
fn test((package, target, part): &(&str, &[&str], &str)) -> Result<()> {
    let before = ["test", "-p", *package];
    let after = ["--", "--nocapture", "--test-threads", "1", *part];
    run(cargo(&[&before[..], *target, &after[..]].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_without_models_are_skipped_with_a_reason() {
        let folder = env::temp_dir().join(format!("lemon-xtask-real-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        assert!(models(&folder.join("none")).unwrap().unwrap_err().contains("which is no folder"));
        assert!(models(&folder).unwrap().unwrap_err().contains("has no GGUF file"));
        for name in ["b.gguf", "a.gguf", "a.reference.json", "c.txt"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let found = models(&folder).unwrap().unwrap();
        assert_eq!(found, [(folder.join("a.gguf"), true), (folder.join("b.gguf"), false)]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
