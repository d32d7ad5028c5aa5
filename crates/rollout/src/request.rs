//! What to run.

use crate::case::Case;
use crate::team::Team;
use lemon_exec::{Budget, ReplyCache};
use lemon_spec::Plan;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// One rollout: a case, a team, a seed, and how to run it.
#[derive(Clone)]
pub struct RolloutRequest<'a> {
    /// The task.
    pub case: &'a Case,
    /// Who writes the team.
    pub team: Team,
    /// The noise seed of the workers.
    pub seed: u64,
    /// How to run it.
    pub options: RunOptions<'a>,
}

/// How one team is run. The default keeps nothing and asks the workers.
#[derive(Clone, Default)]
pub struct RunOptions<'a> {
    /// Replies that this run shares with others: a call in it is not made again.
    pub cache: Option<Arc<ReplyCache>>,
    /// Who answers what the cache does not hold.
    pub replies: Replies,
    /// Where the trace is kept.
    pub record: Record,
    /// A budget of its own, in the place of the settings'.
    pub budget: Option<Budget>,
    /// A message that is not delivered: sender and reader.
    pub withhold: Option<(String, String)>,
    /// Ends this run early; without one, the token of the environment does.
    pub cancel: Option<&'a CancellationToken>,
}

/// Who answers what the reply cache does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replies {
    #[default]
    Workers,
    /// Nothing: the call fails, and the outcome of the run is unknown. Such a run is never recorded.
    CacheOnly,
}

/// Where the trace of a run is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Record {
    /// Nowhere: the caller keeps what it needs.
    #[default]
    Nowhere,
    /// In the store, if the environment has one, under a name with this prefix: `r`, or `t` for runs of training.
    Store(&'static str),
    /// In the store at a position of a batch. A run that is on record there is read or resumed.
    Batch(String, usize),
}

impl<'a> RolloutRequest<'a> {
    /// A rollout that keeps nothing and asks the workers.
    pub fn new(case: &'a Case, team: impl Into<Team>, seed: u64) -> Self {
        RolloutRequest { case, team: team.into(), seed, options: RunOptions::default() }
    }

    /// A rollout of a plan, with a reply cache of its own, so that counterfactuals of it can follow.
    pub fn of_plan(case: &'a Case, plan: &Plan, seed: u64) -> Self {
        let options = RunOptions { cache: Some(Arc::default()), ..RunOptions::default() };
        let team = Team::Plan { plan: Arc::new(plan.clone()), reviewer: None };
        RolloutRequest { case, team, seed, options }
    }

    /// The same, ended early by this token.
    #[must_use]
    pub fn cancelled_by(mut self, cancel: &'a CancellationToken) -> Self {
        self.options.cancel = Some(cancel);
        self
    }
}
