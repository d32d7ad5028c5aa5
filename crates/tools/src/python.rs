//! The built-in tool `python`: a program runs in the sandbox, and what it prints is the result.

use crate::error::{ToolError, ToolErrorKind};
use lemon_sandbox::{Containment, Sandbox, SandboxLimits, ScriptEnd, ScriptOutput};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What the tool says of itself.
pub(crate) const DESCRIPTION: &str = "Runs a Python 3 program and returns what it prints, and the value of its last line \
     where that is an expression. Only the standard library is there. No network, no files that last, nothing kept from one \
     call to the next.";

/// The sandbox, made and proved once, when it is first needed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Python {
    sandbox: Arc<OnceLock<Result<Sandbox, String>>>,
}

impl Python {
    /// Runs a program for at most `wall`; of what it prints, `most` bytes are kept and more ends it.
    pub async fn run(&self, code: String, wall: Duration, most: usize) -> Result<String, ToolError> {
        let unavailable = |reason: String| {
            ToolError::new(ToolErrorKind::Unavailable, reason)
                .hint("`lemon tools doctor` says what is missing; docs/sandbox.md lists the requirements")
        };
        let sandbox = self.sandbox.clone();
        let run = move || {
            let sandbox =
                sandbox.get_or_init(|| Sandbox::new(Containment::Isolated).map_err(|error| error.to_string()));
            let sandbox = sandbox.as_ref().map_err(Clone::clone)?;
            let limits = SandboxLimits {
                wall,
                cpu_s: wall.as_secs().saturating_add(1),
                output_bytes: u64::try_from(most).unwrap_or(u64::MAX),
                ..SandboxLimits::default()
            };
            sandbox.run_script(&code, &limits).map_err(|error| error.to_string())
        };
        let output = tokio::task::spawn_blocking(run).await.map_err(|error| unavailable(error.to_string()))?;
        told(output.map_err(unavailable)?, wall, most)
    }

    /// Whether programs can be run here.
    pub async fn probe(&self) -> Result<(), ToolError> {
        self.run("pass".to_owned(), Duration::from_secs(30), 1 << 10).await.map(|_| ())
    }
}

fn told(output: ScriptOutput, wall: Duration, most: usize) -> Result<String, ToolError> {
    let ScriptOutput { end, stdout, stderr } = output;
    let failed = |fact: String| {
        let parts = [fact.as_str(), stderr.trim_end(), stdout.trim_end()];
        let said = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n");
        Err(ToolError::new(ToolErrorKind::Failed, said))
    };
    match end {
        ScriptEnd::Exited(0) if stdout.trim().is_empty() => {
            Ok("(the program ended without printing anything; print the result)".to_owned())
        }
        ScriptEnd::Exited(0) => Ok(stdout),
        ScriptEnd::Exited(1) => failed(String::new()),
        ScriptEnd::Exited(status) => failed(format!("the program ended with status {status}")),
        ScriptEnd::Timeout => failed(format!("the program took longer than {} s", wall.as_secs_f64())),
        ScriptEnd::OutputLimit => failed(format!("the program printed more than {most} bytes")),
        ScriptEnd::ForbiddenCall => failed("the program did something that the sandbox forbids".to_owned()),
        ScriptEnd::Killed(signal) => failed(format!("signal {signal} killed the program")),
    }
}
