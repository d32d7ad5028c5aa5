//! `cargo xtask clients`: published clients, and axe-core, against `lemon serve`.

use anyhow::Result;
use std::process::Command;

/// How to install what the tests use, and the variables that name it.
const INSTALL: &str = "\
install the published programs outside the repository, and name the places:

  npm install --prefix DIR openai promptfoo axe-core
  python3 -m venv VENV && VENV/bin/pip install openai langchain-openai schemathesis
  LEMON_CLIENTS_NPM=DIR LEMON_CLIENTS_PYTHON=VENV cargo xtask clients
";

/// Runs the tests that need them. Each says "skipped" where its program is not named.
pub fn check() -> Result<()> {
    if ["LEMON_CLIENTS_NPM", "LEMON_CLIENTS_PYTHON"].iter().any(|name| std::env::var_os(name).is_none()) {
        eprint!("{INSTALL}");
    }
    let mut command = Command::new("cargo");
    command.args(["test", "-p", "lemon-cli", "--test", "it", "--", "--nocapture", "--test-threads", "2"]);
    command.args(["serve_clients::", "app::a_screen_reader_finds_its_way"]);
    crate::run(command)
}
