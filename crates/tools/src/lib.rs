//! Which tools may agents call? Sandboxed Python, an exact calculator, and the tools of MCP servers.
//!
//! A [`ToolSet`] is made of the `[tools]` tables of a configuration. It lists tools with their schemas and makes calls. A call
//! ends within its timeout; its result is text that is bounded and cleaned. Everything that a tool or a server does wrong is a
//! [`ToolError`] of one call: a server that hangs, floods, dies or sends what its schema does not allow is replaced by a new
//! connection at the next call.
//!
//! ```
//! use lemon_tools::{ToolSet, ToolsConfig};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config: ToolsConfig = toml::from_str("[calculator]\ntimeout_s = 5\n")?;
//! let tools = ToolSet::new(&config, std::path::Path::new(""))?;
//! let result = tools.call("calculator", &json!({"expression": "1/3 + 1/6"})).await?;
//! assert_eq!(result.text, "0.5 (1/2)");
//! # Ok(())
//! # }
//! ```
//!
//! # Who is trusted with what
//!
//! The configuration is trusted: it names programs to start and addresses to call. Servers are not trusted with more than that
//! calls to them are made. They inherit no environment variable but a few that name no secret, run in a process group of their
//! own that is killed at the end, and get no access to the model (no sampling), to questions for the user (no elicitation), or
//! to folders (no roots). A program that the configuration starts runs as the same user, though: it is not in the sandbox.

mod calculator;
mod clean;
mod config;
mod error;
mod mcp;
mod python;
mod schema;
mod set;

pub use calculator::calculate;
pub use clean::{clean, clean_line};
pub use config::{BUILT_IN, McpConfig, ToolConfig, ToolsConfig, check};
pub use error::{CallEffect, ToolError, ToolErrorKind};
pub use set::{ToolCheck, ToolList, ToolResult, ToolSet};
