//! `cargo xtask mcp`: our MCP client against published servers, and published clients against our server.

use anyhow::Result;
use std::process::Command;

/// How to install what the tests use, and the variables that name it.
const INSTALL: &str = "\
install the published programs outside the repository, and name the places:

  npm install --prefix DIR @modelcontextprotocol/server-everything @modelcontextprotocol/server-filesystem \\
      @modelcontextprotocol/conformance @modelcontextprotocol/inspector
  python3 -m venv VENV && VENV/bin/pip install 'mcp<2' mcp-server-sqlite
  LEMON_MCP_NPM=DIR LEMON_MCP_PYTHON=VENV cargo xtask mcp
";

/// Runs the tests that need them. Each says "skipped" where its program is not named.
pub fn check() -> Result<()> {
    if ["LEMON_MCP_NPM", "LEMON_MCP_PYTHON"].iter().any(|name| std::env::var_os(name).is_none()) {
        eprint!("{INSTALL}");
    }
    for (package, filter) in [("lemon-tools", "real::"), ("lemon-cli", "mcp::")] {
        let mut command = Command::new("cargo");
        command.args(["test", "-p", package, "--test", "it", "--", "--nocapture", "--test-threads", "2", filter]);
        crate::run(command)?;
    }
    Ok(())
}
