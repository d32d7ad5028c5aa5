//! How a run is carried out.

use crate::ledger::Budget;
use crate::shared::SharedBudget;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How a run is carried out, with any workers.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The limits.
    pub budget: Budget,
    /// Calls of one run at a time.
    pub max_parallel: usize,
    /// Rounds at most; `next: review` in the last one is as good as `stop`.
    pub max_rounds: u32,
    /// What becomes of the children of an agent that failed.
    pub on_parent_failure: OnParentFailure,
    /// When and how a failed call is tried again.
    pub retry: Retry,
    /// Completion tokens below which a call is not worth making: a budget with less left is met.
    pub least_reply_tokens: u64,
    /// Whether replies already on record answer the same call again.
    pub reuse: bool,
    /// Calls of tools that one agent makes at most.
    pub tool_calls: u32,
    /// What a person decided about calls that wait for it, by `AGENT/CALL`: whether the call may be made.
    pub decisions: BTreeMap<String, bool>,
    /// What these runs and others may spend together.
    pub shared: Option<Arc<SharedBudget>>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            budget: Budget::default(),
            max_parallel: 64,
            max_rounds: 3,
            on_parent_failure: OnParentFailure::Run,
            retry: Retry::default(),
            least_reply_tokens: 64,
            reuse: true,
            tool_calls: 8,
            decisions: BTreeMap::new(),
            shared: None,
        }
    }
}

/// What becomes of the children of an agent that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnParentFailure {
    /// They run with what they have, and are told who failed.
    #[default]
    Run,
    /// They are skipped.
    Skip,
}

/// Seconds at most that a server is waited for while it loads its model.
const LONGEST_LOADING_S: f64 = 300.0;
/// Seconds at most until it is asked again.
const LONGEST_LOADING_WAIT_S: f64 = 5.0;

/// When and how a failed call is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    /// Attempts in all.
    pub attempts: u32,
    /// Seconds before the second attempt; doubled for each further one.
    pub first_wait_s: f64,
    /// Seconds at most between two attempts. An endpoint that asks for more is given up on.
    pub longest_wait_s: f64,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { attempts: 4, first_wait_s: 0.5, longest_wait_s: 60.0 }
    }
}

impl Retry {
    /// How long to wait after attempt number `attempt` failed, or `None` to give up. `draw` spreads the waits of agents that
    /// failed together.
    pub fn wait(&self, attempt: u32, retry_after: Option<Duration>, draw: u64) -> Option<Duration> {
        if attempt >= self.attempts {
            return None;
        }
        if let Some(asked) = retry_after {
            return (asked.as_secs_f64() <= self.longest_wait_s).then_some(asked);
        }
        let doubled = self.first_wait_s * 2f64.powi(attempt.saturating_sub(1).min(30) as i32);
        let fraction = draw as f64 / u64::MAX as f64;
        Duration::try_from_secs_f64(doubled.min(self.longest_wait_s) * (0.5 + 0.5 * fraction)).ok()
    }

    /// How long to wait for a server that loads its model, after so many seconds of waiting; `None` to give up.
    pub fn wait_for_model(&self, waited_s: f64) -> Option<Duration> {
        // As long as before, so that the waits double, and a model that is there is soon noticed.
        let wait = waited_s.max(self.first_wait_s).min(LONGEST_LOADING_WAIT_S).min(self.longest_wait_s);
        let wait = Duration::try_from_secs_f64(wait).ok()?;
        (waited_s < LONGEST_LOADING_S).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_model_that_loads_is_waited_for_five_minutes() {
        let (mut waited, mut asked) = (0.0, 0);
        while let Some(wait) = Retry::default().wait_for_model(waited) {
            assert!((0.5..=5.0).contains(&wait.as_secs_f64()));
            waited += wait.as_secs_f64();
            asked += 1;
        }
        assert!((300.0..=305.0).contains(&waited) && asked < 80, "{asked} times, {waited} s");
    }

    proptest! {
        #[test]
        fn waits_are_bounded_and_end(attempt in 1u32..50, asked in prop::option::of(0u64..200), draw: u64) {
            let retry = Retry::default();
            match retry.wait(attempt, asked.map(Duration::from_secs), draw) {
                Some(wait) => {
                    prop_assert!(attempt < retry.attempts);
                    prop_assert!(wait.as_secs_f64() <= retry.longest_wait_s);
                    prop_assert!(asked.is_none_or(|asked| wait >= Duration::from_secs(asked)));
                }
                None => prop_assert!(attempt >= retry.attempts || asked.is_some_and(|s| s as f64 > retry.longest_wait_s)),
            }
        }
    }
}
