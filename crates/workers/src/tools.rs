//! The tools of a configuration.

use crate::config::Config;
use crate::error::WorkersError;
use async_trait::async_trait;
use lemon_exec::{OfferedTool, ToolRun, ToolRunner};
use lemon_tools::{ToolConfig, ToolError, ToolSet};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

impl Config {
    /// The tools that agents may call. Nothing is started yet.
    ///
    /// # Errors
    /// A table cannot be used.
    pub fn tool_set(&self) -> Result<ToolSet, WorkersError> {
        Ok(ToolSet::new(&self.tools, &self.folder)?)
    }

    /// The names of the tools that specifications may give to agents: the built-in ones that have a table, and those of
    /// servers that `allow` names. No server is started for it, so a specification means the same whatever a server says.
    pub fn agent_tools(&self) -> Vec<String> {
        let names = |(name, tool): (&String, &ToolConfig)| match (&tool.mcp, &tool.allow) {
            (None, _) => vec![name.clone()],
            (Some(_), allow) => allow.iter().flatten().map(|tool| format!("{name}.{tool}")).collect(),
        };
        self.tools.iter().flat_map(names).collect()
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

/// Who lets a tool run that may change something.
#[derive(Clone, Default)]
pub enum Consent {
    /// No person was asked: such tools do not run.
    #[default]
    Withheld,
    /// They all run.
    Given,
    /// A person is asked once for each tool. The function may block.
    Ask(Arc<dyn Fn(&OfferedTool) -> bool + Send + Sync>),
}

impl fmt::Debug for Consent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Consent::Withheld => "Withheld",
            Consent::Given => "Given",
            Consent::Ask(_) => "Ask(..)",
        })
    }
}

/// Results of idempotent calls that are kept. With more, the memory starts anew.
const MOST_KEPT: usize = 4_096;

/// The configured tools, as runs call them.
pub struct AgentTools {
    set: ToolSet,
    consent: Consent,
    /// What a person said, by tool. Held while the person is asked: agents that want to know the same wait.
    said: tokio::sync::Mutex<HashMap<String, bool>>,
    // A std mutex: held for a look-up and never across an await.
    known: Mutex<HashMap<(String, String), ToolRun>>,
}

impl AgentTools {
    /// These tools. Nothing is started yet.
    pub fn new(set: ToolSet, consent: Consent) -> Self {
        AgentTools { set, consent, said: Default::default(), known: Mutex::default() }
    }
}

#[async_trait]
impl ToolRunner for AgentTools {
    async fn offered(&self, names: &[String]) -> Vec<Result<OfferedTool, String>> {
        let offer = async |name: &String| self.set.info(name).await.map_err(|error| told(&error));
        futures::future::join_all(names.iter().map(offer)).await
    }

    async fn permit(&self, tool: &OfferedTool) -> Result<(), String> {
        let ask = match &self.consent {
            Consent::Given => return Ok(()),
            Consent::Withheld => {
                return Err(format!(
                    "`{}` may change something, and no person allowed it to run; hint: --allow-tools, or read_only = true",
                    tool.name
                ));
            }
            Consent::Ask(ask) => ask.clone(),
        };
        let mut said = self.said.lock().await;
        let allowed = match said.get(&tool.name) {
            Some(allowed) => *allowed,
            None => {
                let asked = tool.clone();
                let allowed = tokio::task::spawn_blocking(move || ask(&asked)).await.map_err(|it| it.to_string())?;
                said.insert(tool.name.clone(), allowed);
                allowed
            }
        };
        if allowed { Ok(()) } else { Err(format!("a person did not allow `{}` to run", tool.name)) }
    }

    async fn call(&self, tool: &OfferedTool, arguments: &Value) -> ToolRun {
        let key = tool.idempotent.then(|| (tool.name.clone(), arguments.to_string()));
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(run) = key.as_ref().and_then(|key| known().get(key).cloned()) {
            return ToolRun { known: true, ..run };
        }
        let run = match self.set.call(&tool.name, arguments).await {
            Ok(result) => ToolRun { ok: true, text: result.text, known: false },
            Err(error) => ToolRun::failed(told(&error)),
        };
        // A failure may be one of the moment.
        if let Some(key) = key.filter(|_| run.ok) {
            let mut known = known();
            if known.len() >= MOST_KEPT {
                known.clear();
            }
            known.insert(key, run.clone());
        }
        run
    }
}

/// An error for a model: its kind, the fact, the hint.
fn told(error: &ToolError) -> String {
    let hint = error.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
    format!("{}: {error}{hint}", error.kind.name())
}

impl From<ToolError> for WorkersError {
    fn from(error: ToolError) -> Self {
        WorkersError { hint: error.hint, ..WorkersError::new(error.message) }
    }
}
