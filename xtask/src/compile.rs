//! The one build of the test command. Clippy's driver compiles our crates in it: that costs about as much as compiling them, while
//! `cargo clippy` would read all 400 dependencies and our crates a second time, only to check them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A cargo command in which a warning in our crates is an error. Every step that compiles uses it, so that each crate is compiled
/// once.
pub fn checked(arguments: &[&str]) -> Command {
    let mut command = crate::cargo(arguments);
    command.env("RUSTC_WORKSPACE_WRAPPER", driver());
    // What `cargo clippy -- -D warnings` passes on. Arguments end with this text.
    command.env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    command
}

/// The driver beside cargo, or else the one that the shell would find.
fn driver() -> PathBuf {
    let beside = env::var_os("CARGO").map(|cargo| Path::new(&cargo).with_file_name("clippy-driver"));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| "clippy-driver".into())
}
