use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A program and the test it must pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestedProgram {
    /// The untrusted source, whole: for HumanEval the prompt followed by the completion.
    pub prompt_and_code: String,
    /// Source that defines `check(candidate)`, which returns if all is well and raises if not.
    pub test: String,
    /// The function handed to `check`. The test may also call it by this name.
    pub entry_point: String,
    /// The task's own prompt, if the test uses helper functions defined there; may be empty. It is executed with the
    /// test, away from the program, so that a program cannot pass by redefining the helpers.
    #[serde(default)]
    pub prompt: String,
}

/// What one run may use. They hold for the program and, separately, for its test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxLimits {
    /// Wall-clock time from start to verdict.
    pub wall: Duration,
    /// CPU seconds.
    pub cpu_s: u64,
    /// Address space of one process.
    pub memory_bytes: u64,
    /// Standard output and standard error together; more ends the run.
    pub output_bytes: u64,
    /// Processes at one time. With 1, the default, creating another is forbidden altogether, and only then does
    /// `memory_bytes` bound the run. The system counts threads too, so 16 more tasks are allowed: threads with 1,
    /// threads or processes with more.
    pub processes: u32,
    /// Size of one file, and of all files together.
    pub file_bytes: u64,
}

impl Default for SandboxLimits {
    fn default() -> Self {
        Self {
            wall: Duration::from_secs(10),
            cpu_s: 10,
            memory_bytes: 512 << 20,
            output_bytes: 1 << 20,
            processes: 1,
            file_bytes: 16 << 20,
        }
    }
}

/// Whether the program passed its test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum SandboxVerdict {
    /// `check` returned, having called the program.
    Passed,
    /// Anything else.
    Failed {
        /// What went wrong.
        kind: ProgramFailure,
        /// The same for people. It may quote the program; control characters are replaced.
        detail: String,
        /// What the program wrote to standard error, up to [`SandboxLimits::output_bytes`]; control characters are replaced.
        stderr: String,
    },
}

impl SandboxVerdict {
    /// Whether the program passed.
    pub fn passed(&self) -> bool {
        matches!(self, Self::Passed)
    }

    /// What went wrong, if anything.
    pub fn failure(&self) -> Option<ProgramFailure> {
        match self {
            Self::Passed => None,
            Self::Failed { kind, .. } => Some(*kind),
        }
    }
}

/// What went wrong. What counts is that it failed: a program that fails can choose how it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProgramFailure {
    /// An assertion of the test did not hold.
    AssertionFailed,
    /// The program raised an exception, or returned something the test could not handle.
    Exception,
    /// The program is not Python.
    SyntaxError,
    /// It reached its wall-clock or CPU limit.
    Timeout,
    /// It ran out of memory.
    MemoryLimit,
    /// It wrote more than it may.
    OutputLimit,
    /// Its process was killed by a signal.
    Crashed,
    /// It ended its process, or tried to, instead of returning.
    EarlyExit,
    /// It made a system call that no honest program makes.
    ForbiddenCall,
    /// It wrote to the channel for results what is no result.
    ForgedReply,
    /// The test is at fault: it cannot be run, or never calls the program.
    TestFault,
}
