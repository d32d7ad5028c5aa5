//! Builds the documentation where its examples are tested. `cargo doc` would read all dependencies once more; `cargo test --doc`
//! finds them compiled. So cargo is given this program as its `rustdoc`, which calls the real one twice.

use anyhow::{Context, Result, ensure};
use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Set where this program stands in for `rustdoc`: the folder of the pages.
pub const FOLDER: &str = "LEMON_XTASK_DOCS";

/// The documentation of every library has no warnings, and its examples pass.
pub fn check() -> Result<()> {
    let mut command = crate::in_tests(crate::compile::checked(&["test", "--workspace", "--doc"]));
    let this = env::current_exe().context("the path of this program")?;
    command.env("RUSTDOC", this).env(FOLDER, crate::target()?.join("doc"));
    crate::run(command)
}

/// What cargo asks of `rustdoc`, and before it, if that is to test the examples of a crate, the pages of the crate.
pub fn rustdoc(folder: &Path) -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let done = both(&arguments, folder);
    done.map_or_else(
        |error| {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn both(arguments: &[OsString], folder: &Path) -> Result<()> {
    let pages = pages(arguments).map(|arguments| {
        let mut command = program();
        command.args(arguments).arg("-Dwarnings").arg("--out-dir").arg(folder);
        command.spawn().context("rustdoc cannot be started")
    });
    let tests = program().args(arguments).status().context("rustdoc cannot be started");
    if let Some(pages) = pages {
        ensure!(pages?.wait()?.success(), "rustdoc failed");
    }
    ensure!(tests?.success(), "the examples failed");
    Ok(())
}

/// The arguments that make pages of what these test; nothing for those that test nothing.
fn pages(arguments: &[OsString]) -> Option<Vec<OsString>> {
    if !arguments.iter().any(|argument| argument == "--test") {
        return None;
    }
    let mut pages = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let text = argument.to_str().unwrap_or_default();
        match text {
            "--test" | "--no-run" => {}
            "--test-run-directory" | "--test-args" => {
                rest.next();
            }
            _ if text.starts_with("--test-") => {}
            _ => pages.push(argument.clone()),
        }
    }
    Some(pages)
}

/// The `rustdoc` beside cargo, or else the one that the shell would find.
fn program() -> Command {
    let beside = env::var_os("CARGO").map(|cargo| Path::new(&cargo).with_file_name("rustdoc"));
    Command::new(beside.filter(|path| path.is_file()).unwrap_or_else(|| "rustdoc".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_made_of_what_is_tested_alone() {
        let check = |arguments: &[&str], expected: Option<&[&str]>| {
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            let expected = expected.map(|list| list.iter().map(OsString::from).collect::<Vec<_>>());
            assert_eq!(pages(&arguments), expected, "{arguments:?}");
        };
        let tests =
            ["--crate-name", "x", "--test", "src/lib.rs", "--test-run-directory", "x", "--test-args", "y", "-L", "z"];
        check(&tests, Some(&["--crate-name", "x", "src/lib.rs", "-L", "z"]));
        check(&["--test", "--test-runtool=x", "--no-run"], Some(&[]));
        check(&["-vV"], None);
    }
}
