//! Grades replies, programs included: those run in a sandbox.

use lemon_sandbox::{Limits, Sandbox, SandboxError};
use lemon_task::{Item, Key, Program, Verdict, grade};

/// Grades replies.
pub struct Grader {
    sandbox: Option<Sandbox>,
}

/// A reply, graded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graded {
    /// Whether it is right.
    pub right: bool,
    /// Whether it is by the rule of the public repositories.
    pub legacy: bool,
    /// The answer found in it.
    pub extracted: Option<String>,
}

impl Grader {
    /// A grader; without a sandbox, programs count as wrong.
    pub fn new(sandbox: Option<Sandbox>) -> Self {
        Grader { sandbox }
    }

    /// Whether it can run programs.
    pub fn runs_programs(&self) -> bool {
        self.sandbox.is_some()
    }

    /// Whether any of these items needs code to be run.
    pub fn needs_sandbox<'a>(items: impl IntoIterator<Item = &'a Item>) -> bool {
        items.into_iter().any(|item| matches!(item.key(), Key::Code { .. }))
    }

    /// Grades a reply. Programs take a moment: call it where blocking is fine.
    ///
    /// # Errors
    /// The sandbox failed.
    pub fn grade(&self, item: &Item, reply: &str) -> Result<Graded, SandboxError> {
        let grade = grade(item, reply);
        let right = self.decide(grade.verdict, || Program::new(item, reply))?;
        let legacy = self.decide(grade.legacy, || Program::legacy(item, reply))?;
        Ok(Graded { right, legacy, extracted: grade.extracted })
    }

    /// Whether an agent's answer is right, where that can be told without running code.
    pub fn quick(item: &Item, answer: &str) -> Option<bool> {
        match grade(item, answer).verdict {
            Verdict::Right => Some(true),
            Verdict::Wrong => Some(false),
            Verdict::MustRun => None,
        }
    }

    fn decide(&self, verdict: Verdict, program: impl FnOnce() -> Option<Program>) -> Result<bool, SandboxError> {
        match (verdict, &self.sandbox) {
            (Verdict::Right, _) => Ok(true),
            (Verdict::Wrong, _) | (Verdict::MustRun, None) => Ok(false),
            (Verdict::MustRun, Some(sandbox)) => program().map_or(Ok(false), |program| run(sandbox, program)),
        }
    }
}

fn run(sandbox: &Sandbox, program: Program) -> Result<bool, SandboxError> {
    let Program { entry_point, code, test, prompt } = program;
    let program = lemon_sandbox::Program { prompt_and_code: code, test, entry_point, prompt };
    Ok(sandbox.run_python(&program, &Limits::default())?.passed())
}
