//! Runs teams on cases: tasks whose answers are known.

use crate::builder::{Lemon, Noise, simulated};
use crate::error::Error;
use lemon_credit::choose::ChoiceRule;
use lemon_eval::{Evaluation, Evaluator, Method, MethodRun, SetUp, TeamSource, Work};
use lemon_exec::orchestrator::{Fixed, Orchestrator};
use lemon_exec::{fresh_id, unix_ms};
use lemon_profile::{Counterfactuals, Profile, ProfileWork, SpendingLimits};
use lemon_rollout::{Case, Grader, Rollout, RolloutEnv, RolloutError, RolloutRequest};
use lemon_sandbox::{Containment, Sandbox};
use lemon_spec::Plan;
use lemon_task::{SetName, Source, TaskSet, load, load_jsonl};
use lemon_workers::PolicySource;
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The cases of a task set: of the bundled sample, or of a folder with the published files.
///
/// # Errors
/// The set cannot be read, or a record of it. [`lemon_task::load`] leaves broken records out instead.
pub fn cases(source: &Source, set: SetName, split: &str) -> Result<Vec<Case>, Error> {
    all_of(load(source, set, split)?, format!("{set}/{split}"))
}

/// The cases of a file of your own with one JSON object a line: `{"question": "…", "answer": "…"}`.
///
/// # Errors
/// The file cannot be read, or a record of it.
pub fn cases_of_file(path: impl AsRef<Path>) -> Result<Vec<Case>, Error> {
    let name = path.as_ref().display().to_string();
    all_of(load_jsonl(path)?, name)
}

fn all_of(set: TaskSet, name: String) -> Result<Vec<Case>, Error> {
    if let Some(first) = set.faults.first() {
        return Err(Error::Records {
            set: set.name,
            count: set.faults.len(),
            file: first.file.clone(),
            line: first.line,
            reason: first.reason.clone(),
        });
    }
    let name: Arc<str> = name.into();
    Ok(set.items.into_iter().map(|item| Case { set: name.clone(), item }).collect())
}

impl Lemon {
    /// Runs a team on a case, grades its answer and measures its reward.
    ///
    /// # Errors
    /// The workers cannot be used, or the store or the sandbox failed.
    pub async fn rollout(&self, team: &Plan, case: &Case) -> Result<Rollout, Error> {
        let env = self.env(std::slice::from_ref(case)).await?;
        Ok(env.rollout(RolloutRequest::of_plan(case, team, self.seed)).await?)
    }

    /// What runs and scores teams on these cases, for uses that this crate has no method for.
    ///
    /// # Errors
    /// The workers cannot be used, or there is no sandbox for cases that need one.
    pub async fn env(&self, cases: &[Case]) -> Result<RolloutEnv, Error> {
        self.env_with(cases, Noise::Fresh).await
    }

    pub(crate) async fn env_with(&self, cases: &[Case], noise: Noise) -> Result<RolloutEnv, Error> {
        let items = || cases.iter().map(|case| &case.item);
        let backend = match self.world {
            None => self.workers.backend.clone(),
            Some(preset) => {
                simulated(&self.workers.resolved.config, preset, items().collect(), noise, |_| {}).await?.backend
            }
        };
        let sandbox = match Grader::needs_sandbox(items()) {
            true => Some(Sandbox::new(Containment::Isolated)?),
            false => None,
        };
        let (language, settings) = (self.workers.resolved.language.clone(), self.workers.settings.clone());
        let mut env = RolloutEnv::new(backend, language, settings, Grader::new(sandbox));
        env.store = self.store.clone();
        env.rewards = self.rewards.clone();
        env.weights = self.weights.clone();
        Ok(env)
    }

    /// A method by its name, with its number where it takes one: `cot`, `sc-cot:10`, `policy`. [`lemon_eval::METHODS`] lists
    /// them.
    ///
    /// # Errors
    /// There is no such method, its orchestrator cannot be made, or it learns first, which `lemon_baselines::RivalTrainer` does.
    pub fn method(&self, name: &str) -> Result<MethodRun, Error> {
        let method: Method = name.parse()?;
        method.check(&self.workers.resolved.language.efforts)?;
        let writer: Arc<dyn Orchestrator> = match method.source() {
            None => return Ok(MethodRun::by_rule(method)),
            Some(TeamSource::Prompted) => self.workers.resolved.prompted()?,
            Some(TeamSource::Policy) => Arc::new(self.workers.resolved.writer(&PolicySource::default())?),
            Some(TeamSource::Critic) => self.workers.resolved.critic(None, None)?,
            Some(TeamSource::File | TeamSource::Trained(_)) => {
                return Err(RolloutError::NoTeam(method.name()).into());
            }
        };
        Ok(MethodRun::written_by(method, writer))
    }

    /// A team as the method `file`: the same team for every case.
    ///
    /// # Errors
    /// The registry of methods has no `file`.
    pub fn team_method(&self, team: &Plan) -> Result<MethodRun, Error> {
        let writer = Arc::new(Fixed { text: team.source().to_owned(), reviewer: None });
        Ok(MethodRun::written_by("file".parse()?, writer))
    }

    /// Runs every method on every case. [`lemon_eval::Report::new`] compares them, with intervals and paired tests.
    ///
    /// # Errors
    /// The workers cannot be used, or the store or the sandbox failed.
    pub async fn evaluate(&self, methods: &[MethodRun], cases: &[Case]) -> Result<Evaluation, Error> {
        let env = self.env(cases).await?;
        let mut sets: Vec<String> = cases.iter().map(|case| case.set.to_string()).collect();
        sets.dedup();
        let set_up = SetUp {
            eval_id: format!("e-{}", fresh_id()),
            started_at_ms: unix_ms(),
            sets,
            items: cases.len(),
            clusters: None,
            methods: methods.iter().map(|method| method.method.name()).collect(),
            capacity: None,
            workers: env.backend.name.clone(),
            seeds: self.seeds(),
        };
        if let Some(store) = &env.store {
            store.begin_batch(&set_up.eval_id, set_up.started_at_ms, String::new(), Vec::new()).wait().await?;
        }
        let work = Arc::new(Work {
            eval_id: set_up.eval_id.clone(),
            cases: Arc::new(cases.to_vec()),
            methods: methods.to_vec(),
            seeds: set_up.seeds.clone(),
            capacity: None,
            width: self.width(),
        });
        let mut rows = Vec::with_capacity(work.runs());
        let evaluator = Arc::new(Evaluator::new(env, self.workers.priced()));
        evaluator.evaluate(&work, &CancellationToken::new(), |row| rows.push(row)).await?;
        Ok(Evaluation::new(set_up, Vec::new(), rows))
    }

    /// Measures what each decision of a team is worth on these cases: runs the team, and the team with one decision edited.
    /// `limits` bounds what all of these runs spend together. Within limits, the edits that tell most for a token run first.
    ///
    /// # Errors
    /// The workers cannot be used, or the sandbox failed.
    pub async fn profile(&self, team: &Plan, cases: &[Case], limits: SpendingLimits) -> Result<Profile, Error> {
        self.profile_with(team, cases, limits, &CancellationToken::new(), |_, _| {}).await
    }

    /// As [`Self::profile`]. `progress` hears how many runs are done, of how many; `cancel` ends it early with what there is.
    ///
    /// # Errors
    /// As [`Self::profile`].
    pub async fn profile_with(
        &self,
        team: &Plan,
        cases: &[Case],
        limits: SpendingLimits,
        cancel: &CancellationToken,
        progress: impl FnMut(usize, usize),
    ) -> Result<Profile, Error> {
        let env = self.env_with(cases, Noise::Shared).await?;
        let seeds = self.seeds();
        let work = ProfileWork {
            families: &[],
            plan: team,
            cases,
            seeds: &seeds,
            width: self.width(),
            budget: limits,
            policy: ChoiceRule::Information { floor: 0.02 },
        };
        let runs = Counterfactuals { env: &env, reviewer: None };
        Ok(lemon_profile::profile(&runs, &work, cancel, progress).await?)
    }

    fn seeds(&self) -> Vec<u64> {
        (0..self.repeats).map(|number| self.seed.wrapping_add(number)).collect()
    }

    /// Runs at a time.
    fn width(&self) -> usize {
        if self.workers.resolved.kind.costs_money() { 8 } else { 64 }
    }
}
