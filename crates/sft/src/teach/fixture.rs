//! What tests of teachers need: tasks, a simulated world, and a runner of teams.

use super::TeachContext;
use lemon_policy::pair::Pair;
use lemon_rollout::{Case, Grader, RolloutEnv};
use lemon_spec::Language;
use lemon_task::{SetName, compose};
use lemon_world::{Preset, World};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Composed tasks and their world. Programs are not run: there they count as wrong.
pub struct Fixture {
    pub env: RolloutEnv,
    pub cases: Vec<Case>,
    pub cancel: CancellationToken,
}

impl Fixture {
    pub fn new(sets: &[SetName], count: usize) -> Self {
        let composed = |set: &SetName| {
            let name: Arc<str> = format!("composed/{set}").into();
            compose(*set, count, 21).into_iter().map(move |item| Case { set: name.clone(), item })
        };
        let cases: Vec<Case> = sets.iter().flat_map(composed).collect();
        let world = World::new(Preset::Calibrated, cases.iter().map(|case| &case.item));
        let env =
            RolloutEnv::new(world.backend(), Arc::new(Language::default()), Default::default(), Grader::new(None));
        Fixture { env, cases, cancel: CancellationToken::new() }
    }

    pub fn context(&self, seed: u64) -> TeachContext<'_> {
        let world = Some("calibrated".to_owned());
        TeachContext { env: &self.env, cases: &self.cases, world, seed, cancel: &self.cancel, watch: None }
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
    lemon_policy::pair::write(pairs, &mut bytes).unwrap();
    assert_eq!(lemon_policy::pair::read(&bytes[..], &language).unwrap(), pairs);
}
