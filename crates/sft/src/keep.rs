//! What a run of training leaves in its folder after each step: metrics, checkpoints, and the best model.

use lemon_model::{LanguagePolicy, Precision};
use lemon_policy::checkpoint::{Checkpoints, KeepError, METRICS};
use serde::Serialize;
use std::path::Path;

/// Records the metrics of a step. If the model was evaluated, a checkpoint is saved, and the model too if it is the best so far.
///
/// # Errors
/// The folder cannot be used, or the model cannot be saved.
pub(crate) fn step<S: Serialize, M: Serialize>(
    checkpoints: &Checkpoints,
    policy: &LanguagePolicy,
    best: &Path,
    (step, state, metrics): (u64, &S, &M),
    [is_eval, is_best]: [bool; 2],
) -> Result<(), KeepError> {
    if is_best {
        policy.save(best, Precision::F32)?;
    }
    checkpoints.record(METRICS, metrics)?;
    if is_eval {
        checkpoints.save(step, state, |folder| policy.save_state(folder))?;
    }
    Ok(())
}

/// The evaluations since the best, and whether they are too many. A patience of 0 has no end.
pub(crate) fn patience(is_better: bool, since_best: u64, patience: u64) -> (u64, bool) {
    let since_best = if is_better { 0 } else { since_best + 1 };
    (since_best, !is_better && patience > 0 && since_best >= patience)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends_after_so_many_evaluations_without_a_better_one() {
        let check = |is_better, since, most, expected| assert_eq!(patience(is_better, since, most), expected);
        check(true, 5, 2, (0, false));
        check(false, 0, 2, (1, false));
        check(false, 1, 2, (2, true));
        check(false, 9, 0, (10, false));
        check(false, 0, 1, (1, true));
    }
}
