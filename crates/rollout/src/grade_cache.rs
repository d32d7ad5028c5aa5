//! Programs that were run already: workers write the same few again and again.

use crate::case::Case;
use crate::grader::Grader;
use lemon_sandbox::SandboxError;
use lemon_task::Program;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Whether a program is right, by the case and the code.
#[derive(Debug, Default)]
pub(crate) struct GradeCache {
    right: Mutex<HashMap<String, bool>>,
}

impl GradeCache {
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
