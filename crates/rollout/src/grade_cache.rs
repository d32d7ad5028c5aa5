//! Programs that were run already: workers write the same few again and again.

use crate::case::Case;
use crate::grader::{Graded, Grader};
use lemon_sandbox::SandboxError;
use lemon_task::Program;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Whether a program is right, by the case and the code.
#[derive(Debug, Default)]
pub(crate) struct GradeCache {
    right: Mutex<HashMap<String, bool>>,
    /// By run: how its answer was graded where it was made.
    elsewhere: Mutex<HashMap<String, Graded>>,
}

impl GradeCache {
    /// Enters how the answer of a run was graded where it was made.
    pub fn enter(&self, run_id: &str, graded: Graded) {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).insert(run_id.to_owned(), graded);
    }

    /// How the answer of a run was graded where it was made.
    pub fn of_run(&self, run_id: &str) -> Option<Graded> {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).get(run_id).cloned()
    }

    /// Whether an answer is right; a program is run once.
    pub fn is_right(&self, grader: &Grader, case: &Case, answer: &str) -> Result<bool, SandboxError> {
        if let Some(right) = Grader::quick(&case.item, answer) {
            return Ok(right);
        }
        // By its code and not by the whole reply, which talks around the same few programs.
        let Some(program) = Program::new(&case.item, answer) else { return Ok(false) };
        let key = format!("{}/{}\n{}", case.set, case.item.position, program.code);
        let known = || self.right.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known().get(&key).copied();
        if let Some(right) = before {
            return Ok(right);
        }
        let right = grader.grade(&case.item, answer)?.right;
        known().insert(key, right);
        Ok(right)
    }
}
