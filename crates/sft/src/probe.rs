//! The probe of a policy: are its teams valid, and what do they earn?

use crate::sft::Probe;
use futures::stream::{self, StreamExt, TryStreamExt};
use lemon_exec::Settings;
use lemon_model::{Policy, PolicyError, SampleRequest, SampleSettings};
use lemon_policy::{LanguagePromptEncoder, MOST_TOKENS};
use lemon_rollout::{Case, Earned, Grader, RolloutEnv, RolloutError};
use lemon_spec::{Language, validate};
use lemon_task::{SetName, compose};
use lemon_world::{Preset, World};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The seed of a prober's tasks: not that of any lesson.
const SEED: u64 = 0x0070_726f_6265;
/// Runs at a time.
const WIDTH: usize = 16;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The policy failed.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A run failed.
    #[error(transparent)]
    Eval(#[from] RolloutError),
}

/// Tries what a policy writes on composed tasks in the simulated world.
pub struct Prober {
    env: RolloutEnv,
    cases: Vec<Case>,
}

impl Prober {
    /// A prober with so many tasks, of several sets. `None`: no task.
    pub fn new(count: usize, language: Arc<Language>) -> Option<Self> {
        // Programs would have to be run to be graded: the other sets tell enough.
        let sets = [SetName::Gsm8k, SetName::Svamp, SetName::MultiArith, SetName::Aqua, SetName::Mmlu];
        let of_set = |(at, set): (usize, &SetName)| {
            let share = count / sets.len() + usize::from(at < count % sets.len());
            let items = compose(*set, share, SEED);
            items.into_iter().map(|item| Case { set: set.as_str().into(), item }).collect::<Vec<_>>()
        };
        let cases: Vec<Case> = sets.iter().enumerate().flat_map(of_set).collect();
        if cases.is_empty() {
            return None;
        }
        let backend = World::new(Preset::Calibrated, cases.iter().map(|case| &case.item)).backend();
        let settings = Settings { reuse: false, ..Settings::default() };
        Some(Prober { env: RolloutEnv::new(backend, language, settings, Grader::new(None)), cases })
    }

    /// Probes a policy on these tasks.
    ///
    /// # Errors
    /// As [`probe`].
    pub async fn probe(&self, policy: &dyn Policy, encoder: &LanguagePromptEncoder) -> Result<Probe, ProbeError> {
        probe(policy, encoder, &self.env, &self.cases, 1, &CancellationToken::new()).await
    }
}

/// Has the policy write two teams for each case: one at temperature 1 without the grammar, to measure validity, and one at
/// temperature 0 under the grammar, to measure what it earns.
///
/// # Errors
/// The policy, the sandbox or the store failed.
pub async fn probe(
    policy: &dyn Policy,
    encoder: &LanguagePromptEncoder,
    env: &RolloutEnv,
    cases: &[Case],
    seed: u64,
    cancel: &CancellationToken,
) -> Result<Probe, ProbeError> {
    let requests = |constrained: bool| -> Result<Vec<SampleRequest>, PolicyError> {
        let request = |(at, case): (usize, &Case)| {
            encoder.request(&encoder.first(&case.item.task.question, seed.wrapping_add(at as u64)), constrained)
        };
        cases.iter().enumerate().map(request).collect()
    };
    let settings = |temperature: f32| SampleSettings { temperature, top_p: 1.0, most_tokens: MOST_TOKENS };
    let free = policy.sample(&requests(false)?, &settings(1.0))?;
    let valid = free.iter().filter(|sample| validate(&sample.text, encoder.language()).is_ok()).count();
    let best = policy.sample(&requests(true)?, &settings(0.0))?;
    let run = |(case, text): (&'_ Case, &'_ str)| {
        let (case, text) = (case.clone(), text.to_owned());
        async move { env.run(&case, &text, seed, cancel).await }
    };
    let runs = cases.iter().zip(best.iter().map(|sample| sample.text.as_str())).map(run);
    let earned: Vec<Option<Earned>> = stream::iter(runs).buffered(WIDTH).try_collect().await?;
    let earned: Vec<Earned> = earned.into_iter().flatten().collect();
    let mean = |of: fn(&Earned) -> f64| earned.iter().map(of).sum::<f64>() / earned.len().max(1) as f64;
    Ok(Probe {
        valid: valid as f64 / free.len().max(1) as f64,
        reward: mean(|it| it.reward),
        success: mean(|it| it.success),
        tokens: mean(|it| it.tokens),
    })
}
