//! Grades replies, programs included: those run in a sandbox.

use crate::places::GradingPlaces;
use lemon_sandbox::{Containment, Sandbox, SandboxError, SandboxLimits};
use lemon_task::{Item, Key, Program, Verdict, grade};
use serde::{Deserialize, Serialize};

/// Grades replies.
pub struct Grader {
    sandbox: Option<Sandbox>,
    places: GradingPlaces,
}

/// A reply, graded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Graded {
    /// Whether it is right.
    pub right: bool,
    /// Whether it is by the rule of the public repositories.
    pub legacy: bool,
    /// The answer found in it.
    pub extracted: Option<String>,
    /// Why it is not right.
    pub reason: Option<String>,
}

impl Grader {
    /// A grader; without a sandbox, programs count as wrong.
    pub fn new(sandbox: Option<Sandbox>) -> Self {
        Grader { sandbox, places: GradingPlaces::new(std::thread::available_parallelism().map_or(2, usize::from)) }
    }

    /// A grader for these items, with a sandbox if one of them needs it.
    ///
    /// # Errors
    /// There is no sandbox here that contains programs as far as was asked for.
    pub fn for_items<'a>(
        items: impl IntoIterator<Item = &'a Item>,
        containment: Containment,
    ) -> Result<Self, SandboxError> {
        let sandbox = if Self::needs_sandbox(items) { Some(Sandbox::new(containment)?) } else { None };
        Ok(Grader::new(sandbox))
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
        let wrong = || difference(item, grade.extracted.as_deref());
        let reason = self.decide(grade.verdict, || Program::new(item, reply), wrong)?;
        let legacy = self.decide(grade.legacy, || Program::legacy(item, reply), String::new)?.is_none();
        Ok(Graded { right: reason.is_none(), legacy, extracted: grade.extracted, reason })
    }

    /// Whether an agent's answer is right, where that can be told without running code.
    pub fn quick(item: &Item, answer: &str) -> Option<bool> {
        match grade(item, answer).verdict {
            Verdict::Right => Some(true),
            Verdict::Wrong => Some(false),
            Verdict::MustRun => None,
        }
    }

    /// Why a reply is not right; `None` if it is.
    fn decide(
        &self,
        verdict: Verdict,
        program: impl FnOnce() -> Option<Program>,
        wrong: impl FnOnce() -> String,
    ) -> Result<Option<String>, SandboxError> {
        match (verdict, &self.sandbox) {
            (Verdict::Right, _) => Ok(None),
            (Verdict::Wrong, _) => Ok(Some(wrong())),
            (Verdict::MustRun, None) => Ok(Some("programs are not run here".to_owned())),
            (Verdict::MustRun, Some(sandbox)) => {
                let Some(program) = program() else { return Ok(Some(wrong())) };
                let _place = self.places.take();
                run(sandbox, program)
            }
        }
    }
}

/// What was expected, and what the reply says instead.
fn difference(item: &Item, found: Option<&str>) -> String {
    let expected = match item.key() {
        Key::Number(number) => number,
        // There are at most as many options as letters, or the reader would have refused the item.
        Key::Choice { answer, .. } => char::from(b'A'.saturating_add(u8::try_from(answer).unwrap_or(25))).to_string(),
        Key::Text(text) => format!("{text:?}"),
        Key::Code { entry_point, .. } => format!("a program with `{entry_point}`"),
    };
    match found {
        Some(found) => format!("expected {expected}, found {found:?}"),
        None => format!("expected {expected}, found no answer in the reply"),
    }
}

fn run(sandbox: &Sandbox, program: Program) -> Result<Option<String>, SandboxError> {
    let Program { entry_point, code, test, prompt } = program;
    let program = lemon_sandbox::TestedProgram { prompt_and_code: code, test, entry_point, prompt };
    Ok(match sandbox.run_python(&program, &SandboxLimits::default())? {
        lemon_sandbox::SandboxVerdict::Passed => None,
        lemon_sandbox::SandboxVerdict::Failed { detail, .. } => Some(detail),
    })
}
