//! Runs the programs that agents write: in the sandbox, a few at a time, each once.

use crate::error::WorkersError;
use async_trait::async_trait;
use lemon_exec::{CodeError, CodeJob, CodeRun, CodeRunner};
use lemon_sandbox::{
    Containment, ProgramFailure, Sandbox, SandboxLimits, SandboxVerdict, ScriptEnd, ScriptOutput, TestedProgram,
};
use lemon_trace::FailureKind;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Programs whose ends are kept: the same program again is not run again. With more, the memory starts anew.
const MOST_KEPT: usize = 4_096;
/// What may be done about a machine that cannot contain programs.
const HINT: &str = "`style = \"program\"` and `by: test` run code that models write; docs/sandbox.md says what that needs. \
     `unsafe_no_sandbox = true` in [run] runs it uncontained, on your own responsibility";

/// A sandbox that is made and proved when it is first needed.
pub struct SandboxRunner {
    containment: Containment,
    sandbox: Arc<Made>,
    /// Programs at a time: each has a process of its own.
    gate: Arc<Semaphore>,
    // A std mutex: held for a look-up and never across an await.
    known: Mutex<HashMap<CodeJob, CodeRun>>,
}

impl SandboxRunner {
    /// A runner that contains programs like this.
    pub fn new(containment: Containment) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        SandboxRunner {
            containment,
            sandbox: Arc::default(),
            gate: Arc::new(Semaphore::new(cores.max(2))),
            known: Mutex::default(),
        }
    }

    /// The error of a command that needs code to be run where it cannot be.
    pub fn unavailable(error: &CodeError) -> WorkersError {
        WorkersError::new(&error.message).hint(HINT)
    }
}

/// The sandbox, made by the first that needs it.
type Made = OnceLock<Result<Arc<Sandbox>, String>>;

fn made(sandbox: &Made, containment: Containment) -> Result<Arc<Sandbox>, String> {
    sandbox.get_or_init(|| Sandbox::new(containment).map(Arc::new).map_err(|error| error.to_string())).clone()
}

#[async_trait]
impl CodeRunner for SandboxRunner {
    fn ready(&self) -> Result<(), CodeError> {
        let unreachable = |message| CodeError { kind: FailureKind::Unreachable, message };
        made(&self.sandbox, self.containment).map(drop).map_err(unreachable)
    }

    async fn run(&self, job: &CodeJob) -> Result<CodeRun, CodeError> {
        if let Some(run) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(job) {
            return Ok(run.clone());
        }
        let failed = |message: String| CodeError { kind: FailureKind::Unreachable, message };
        let permit = self.gate.clone().acquire_owned().await.map_err(|error| failed(error.to_string()))?;
        let (work, sandbox, containment) = (job.clone(), self.sandbox.clone(), self.containment);
        let ran = tokio::task::spawn_blocking(move || {
            // Making the sandbox takes a moment, too.
            let ran =
                made(&sandbox, containment).and_then(|sandbox| run(&sandbox, &work).map_err(|error| error.to_string()));
            // The next program starts when this one has ended, even if the caller is gone.
            drop(permit);
            ran
        });
        let run = ran.await.map_err(|error| failed(error.to_string()))?.map_err(failed)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_KEPT {
            known.clear();
        }
        known.insert(job.clone(), run.clone());
        Ok(run)
    }
}

fn run(sandbox: &Sandbox, job: &CodeJob) -> Result<CodeRun, lemon_sandbox::SandboxError> {
    let limits =
        SandboxLimits { wall: Duration::from_secs(10), cpu_s: 5, output_bytes: 64 << 10, ..SandboxLimits::default() };
    Ok(match job {
        CodeJob::Script { code } => printed(sandbox.run_script(code, &limits)?, &limits),
        CodeJob::Check { code, entry_point, prompt, test } => {
            let program = TestedProgram {
                prompt_and_code: code.clone(),
                test: test.clone(),
                entry_point: entry_point.clone(),
                prompt: prompt.clone(),
            };
            match sandbox.run_python(&program, &limits)? {
                SandboxVerdict::Passed => CodeRun { ok: true, printed: String::new(), error: None },
                // The judge alone can say that an assertion of the test failed.
                SandboxVerdict::Failed { kind: ProgramFailure::AssertionFailed, detail, .. } => {
                    CodeRun { ok: false, printed: detail, error: None }
                }
                SandboxVerdict::Failed { detail, .. } => {
                    CodeRun { ok: false, printed: String::new(), error: Some(detail) }
                }
            }
        }
    })
}

fn printed(output: ScriptOutput, limits: &SandboxLimits) -> CodeRun {
    let ScriptOutput { end, stdout, stderr } = output;
    // The exception stands on the last line.
    let last = || stderr.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned);
    let error = match end {
        ScriptEnd::Exited(0) => None,
        ScriptEnd::Exited(status) => Some(last().unwrap_or_else(|| format!("the program ended with status {status}"))),
        ScriptEnd::Timeout => Some(format!("the program took longer than {} s", limits.wall.as_secs())),
        ScriptEnd::OutputLimit => Some(format!("the program printed more than {} bytes", limits.output_bytes)),
        ScriptEnd::ForbiddenCall => Some("the program did something that the sandbox forbids".to_owned()),
        ScriptEnd::Killed(signal) => Some(format!("signal {signal} killed the program")),
    };
    CodeRun { ok: error.is_none(), printed: stdout, error }
}
