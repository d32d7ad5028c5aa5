//! The tools of a configuration.

use crate::config::Config;
use crate::error::WorkersError;
use lemon_tools::{ToolError, ToolSet};
use std::path::Path;

impl Config {
    /// The tools that agents may call. Nothing is started yet.
    ///
    /// # Errors
    /// A table cannot be used.
    pub fn tool_set(&self) -> Result<ToolSet, WorkersError> {
        Ok(ToolSet::new(&self.tools, &self.folder)?)
    }

    /// Checks the tables `[tools.NAME]` of the file at `path`.
    pub(crate) fn check_tools(&self, path: &Path) -> Result<(), WorkersError> {
        let place = path.display();
        lemon_tools::check(&self.tools)
            .map_err(|error| WorkersError { fact: format!("{place}: {error}"), ..error.into() })?;
        let is_key = |name: &String| self.capacity.iter().any(|(_, it)| it.api_key_env.as_ref() == Some(name));
        for (name, tool) in &self.tools {
            let passed = tool.mcp.iter().flat_map(|mcp| mcp.pass_env.iter().chain(&mcp.token_env));
            if let Some(key) = passed.into_iter().find(|name| is_key(name)) {
                let fact = format!("tools.{name}.mcp hands {key} to a server, and it holds the key of a capacity");
                return Err(WorkersError::new(format!("{place}: {fact}"))
                    .hint("give the server a key of its own, in another variable"));
            }
        }
        Ok(())
    }
}

impl From<ToolError> for WorkersError {
    fn from(error: ToolError) -> Self {
        WorkersError { hint: error.hint, ..WorkersError::new(error.message) }
    }
}
