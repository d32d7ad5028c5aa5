//! What tests of teachers need: tasks, a world of them, and somebody to run teams.

use super::Lessons;
use crate::pair::Pair;
use crate::trial::Trials;
use lemon_eval::{Case, Grader};
use lemon_spec::Language;
use lemon_task::{SetName, compose};
use lemon_world::{Preset, World};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Composed tasks and their world. Programs are not run: there they count as wrong.
pub struct School {
    pub trials: Trials,
    pub cases: Vec<Case>,
    pub cancel: CancellationToken,
}

impl School {
    pub fn new(sets: &[SetName], count: usize) -> Self {
        let composed = |set: &SetName| {
            let name: Arc<str> = format!("composed/{set}").into();
            compose(*set, count, 21).into_iter().map(move |item| Case { set: name.clone(), item })
        };
        let cases: Vec<Case> = sets.iter().flat_map(composed).collect();
        let world = World::new(Preset::Calibrated, cases.iter().map(|case| &case.item));
        let trials = Trials::new(world.backend(), Arc::new(Language::default()), Default::default(), Grader::new(None));
        School { trials, cases, cancel: CancellationToken::new() }
    }

    pub fn lessons(&self, seed: u64) -> Lessons<'_> {
        let world = Some("calibrated".to_owned());
        Lessons { trials: &self.trials, cases: &self.cases, world, seed, cancel: &self.cancel, watch: None }
    }
}

/// Every pair can be learned from, and is read back as it is written.
#[track_caller]
pub fn check_pairs(pairs: &[Pair]) {
    let language = Language::default();
    for pair in pairs {
        assert_eq!(pair.fault(&language), None, "{}", pair.spec);
    }
    let mut bytes = Vec::new();
    crate::pair::write(pairs, &mut bytes).unwrap();
    assert_eq!(crate::pair::read(&bytes[..], &language).unwrap(), pairs);
}
