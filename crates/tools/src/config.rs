//! `[tools.NAME]`: which tools there are, and what each may do.

use crate::error::{ToolError, ToolErrorKind};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The tools of a configuration, by name.
pub type ToolsConfig = BTreeMap<String, ToolConfig>;

/// The tools that need no server. A table of one of these names needs no keys.
pub const BUILT_IN: [&str; 2] = [CALCULATOR, PYTHON];
pub(crate) const CALCULATOR: &str = "calculator";
pub(crate) const PYTHON: &str = "python";

/// One table `[tools.NAME]`. A table with `mcp` offers the tools of a server as `NAME.TOOL`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolConfig {
    /// The MCP server; absent for the tools in [`BUILT_IN`].
    pub mcp: Option<McpConfig>,
    /// The tools of the server that may be called; all of them where absent.
    pub allow: Option<Vec<String>>,
    /// Seconds one call may take.
    pub timeout_s: f64,
    /// Bytes of a result that an agent gets to read at most. A longer text is cut.
    pub max_result_bytes: usize,
    /// US dollars one call costs.
    pub price: f64,
    /// Whether the same call may be made again after a crash, and its result be reused. The built-in tools are.
    pub idempotent: Option<bool>,
    /// Whether a call changes nothing. The built-in tools are.
    pub read_only: Option<bool>,
    /// Whether a person must approve every call.
    pub approve: bool,
}

impl Default for ToolConfig {
    fn default() -> Self {
        ToolConfig {
            mcp: None,
            allow: None,
            timeout_s: 30.0,
            max_result_bytes: 32 << 10,
            price: 0.0,
            idempotent: None,
            read_only: None,
            approve: false,
        }
    }
}

/// How an MCP server is reached: a program that LEMON starts, or an address.
#[derive(Debug, Clone, PartialEq, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct McpConfig {
    /// A program and its arguments. It speaks the protocol on standard input and output.
    pub command: Vec<String>,
    /// The address of a server that speaks streamable HTTP.
    pub url: Option<String>,
    /// With `command`: environment variables to set. The server inherits `PATH`, `HOME`, the locale and nothing else.
    pub env: BTreeMap<String, String>,
    /// With `command`: names of environment variables that the server inherits besides.
    pub pass_env: Vec<String>,
    /// With `command`: the folder it starts in, relative to the configuration.
    pub folder: Option<PathBuf>,
    /// With `url`: the environment variable that holds a bearer token.
    pub token_env: Option<String>,
    /// Seconds the server may take to start; 60 where absent, for programs that are downloaded first.
    pub start_timeout_s: Option<f64>,
}

impl ToolConfig {
    /// How long one call may take.
    pub fn timeout(&self) -> Duration {
        // `check` holds it to positive, finite and below `MOST_SECONDS`.
        Duration::try_from_secs_f64(self.timeout_s).unwrap_or(Duration::MAX)
    }

    /// Whether the same call may be made again.
    pub fn is_idempotent(&self) -> bool {
        self.idempotent.unwrap_or(self.mcp.is_none())
    }

    /// Whether a call changes nothing.
    pub fn is_read_only(&self) -> bool {
        self.read_only.unwrap_or(self.mcp.is_none())
    }
}

impl McpConfig {
    pub(crate) fn start_timeout(&self) -> Duration {
        Duration::try_from_secs_f64(self.start_timeout_s.unwrap_or(60.0)).unwrap_or(Duration::MAX)
    }
}

/// A day: no call waits longer.
const MOST_SECONDS: f64 = 86_400.0;
/// The largest result that can be asked for.
const MOST_BYTES: usize = 16 << 20;

/// Checks a table of tools.
///
/// # Errors
/// The first thing that cannot be used, with its place: `tools.docs.timeout_s must be …`.
pub fn check(tools: &ToolsConfig) -> Result<(), ToolError> {
    tools.iter().try_for_each(|(name, tool)| check_tool(name, tool))
}

fn check_tool(name: &str, tool: &ToolConfig) -> Result<(), ToolError> {
    let fault = |key: &str, fact: String| {
        let place = if key.is_empty() { format!("tools.{name}") } else { format!("tools.{name}.{key}") };
        Err(ToolError::new(ToolErrorKind::Configuration, format!("{place} {fact}")))
    };
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    if name.is_empty() || name.len() > 32 || !name.chars().all(plain) {
        return fault("", "must be named with 1 to 32 of a-z, 0-9, `_` and `-`".to_owned());
    }
    let seconds = |value: f64| value > 0.0 && value <= MOST_SECONDS;
    if !seconds(tool.timeout_s) {
        return fault("timeout_s", format!("must be above 0 and at most {MOST_SECONDS}, got {}", tool.timeout_s));
    }
    if !(1..=MOST_BYTES).contains(&tool.max_result_bytes) {
        return fault("max_result_bytes", format!("must be 1 to {MOST_BYTES}, got {}", tool.max_result_bytes));
    }
    if !(tool.price >= 0.0 && tool.price.is_finite()) {
        return fault("price", format!("must be at least 0, got {}", tool.price));
    }
    let built_in = BUILT_IN.contains(&name);
    let Some(mcp) = &tool.mcp else {
        if !built_in {
            let fact =
                format!("needs `mcp`: only {} are built in", BUILT_IN.map(|name| format!("`{name}`")).join(" and "));
            return fault("", fact).map_err(|error| {
                error.hint(format!(
                    "add `mcp = {{ command = [\"PROGRAM\"] }}` or `mcp = {{ url = \"http://…\" }}` to [tools.{name}]"
                ))
            });
        }
        if tool.allow.is_some() {
            return fault("allow", "is for MCP servers: a built-in tool has no tools of its own".to_owned());
        }
        return Ok(());
    };
    if built_in {
        return fault("mcp", format!("cannot be set: `{name}` is built in"))
            .map_err(|it| it.hint("name the server otherwise"));
    }
    match (mcp.command.first(), &mcp.url) {
        (Some(program), None) if !program.is_empty() => {
            if mcp.token_env.is_some() {
                return fault("mcp.token_env", "is for `url`; a program gets variables with `pass_env`".to_owned());
            }
        }
        (None, Some(url)) => {
            if !url.starts_with("http://") && !url.starts_with("https://") {
                return fault("mcp.url", "must begin with http:// or https://".to_owned());
            }
            if !mcp.env.is_empty() || !mcp.pass_env.is_empty() || mcp.folder.is_some() {
                return fault("mcp", "`env`, `pass_env` and `folder` are for `command`, not for `url`".to_owned());
            }
        }
        _ => return fault("mcp", "needs either `command = [\"PROGRAM\", …]` or `url = \"http://…\"`".to_owned()),
    }
    if let Some(start) = mcp.start_timeout_s.filter(|start| !seconds(*start)) {
        return fault("mcp.start_timeout_s", format!("must be above 0 and at most {MOST_SECONDS}, got {start}"));
    }
    if tool.allow.as_ref().is_some_and(Vec::is_empty) {
        return fault("allow", "must name at least one tool; leave it out to allow all".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ToolsConfig, String> {
        let tools: ToolsConfig = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        check(&tools).map_err(|error| error.to_string())?;
        Ok(tools)
    }

    #[test]
    fn built_in_tools_need_no_keys_and_change_nothing() {
        let tools = read("[python]\n[calculator]\nprice = 0.5\n").unwrap();
        assert!(tools.values().all(|tool| tool.is_idempotent() && tool.is_read_only() && !tool.approve));
        assert_eq!(tools["calculator"].price, 0.5);
        assert_eq!(tools["python"].timeout(), Duration::from_secs(30));
    }

    #[test]
    fn servers_are_not_trusted_to_be_harmless() {
        let tools = read("[docs]\nmcp = { command = ['a', 'b'] }\nallow = ['search']\n").unwrap();
        assert!(!tools["docs"].is_idempotent() && !tools["docs"].is_read_only());
        let tools = read("[docs]\nmcp = { url = 'https://a' }\nidempotent = true\nread_only = true\n").unwrap();
        assert!(tools["docs"].is_idempotent() && tools["docs"].is_read_only());
    }

    #[test]
    fn what_cannot_be_used_is_named_with_its_place() {
        let check = |text: &str, expected: &str| {
            let fault = read(text).unwrap_err();
            assert!(fault.contains(expected), "{text}: {fault}");
        };
        check("[docs]\n", "tools.docs needs `mcp`: only `calculator` and `python` are built in");
        check("[Docs]\nmcp = { url = 'http://a' }", "must be named with 1 to 32 of a-z");
        check("[docs]\nmcp = {}", "tools.docs.mcp needs either `command");
        check("[docs]\nmcp = { command = ['a'], url = 'http://a' }", "tools.docs.mcp needs either");
        check("[docs]\nmcp = { command = [''] }", "tools.docs.mcp needs either");
        check("[docs]\nmcp = { url = 'ftp://a' }", "tools.docs.mcp.url must begin with http");
        check("[docs]\nmcp = { url = 'http://a', pass_env = ['A'] }", "are for `command`");
        check("[docs]\nmcp = { command = ['a'], token_env = 'A' }", "tools.docs.mcp.token_env is for `url`");
        check("[docs]\nmcp = { command = ['a'] }\nallow = []", "tools.docs.allow must name at least one");
        check("[docs]\nmcp = { command = ['a'], start_timeout_s = 0 }", "start_timeout_s must be above 0");
        check("[python]\nmcp = { command = ['a'] }", "tools.python.mcp cannot be set");
        check("[python]\nallow = ['a']", "tools.python.allow is for MCP servers");
        check("[python]\ntimeout_s = 0", "tools.python.timeout_s must be above 0 and at most 86400, got 0");
        check("[python]\ntimeout_s = nan", "got NaN");
        check("[python]\nmax_result_bytes = 0", "tools.python.max_result_bytes must be 1 to");
        check("[python]\nprice = -1", "tools.python.price must be at least 0, got -1");
        check("[python]\nprise = 1", "unknown field `prise`");
    }
}
