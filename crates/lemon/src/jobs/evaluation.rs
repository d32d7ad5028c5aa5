//! An evaluation by request: the tasks are read, the workers made, methods that learn trained, and every run is graded.

use super::Notices;
use super::cluster::WorkerCluster;
use super::kept_trainings::kept_tokens;
use super::proposals::ProposalModel;
use super::request::{EvalRequest, RequestedCases};
use super::rivals::{Rivals, learns};
use crate::error::Error;
use lemon_eval::{
    CHOSEN, Evaluation, Evaluator, Method, MethodRun, Row, SetUp, TeamSource, Training, Work, mark_clusters,
};
use lemon_exec::Orchestrator;
use lemon_exec::orchestrator::Fixed;
use lemon_exec::store::Store;
use lemon_rollout::{Case, Grader, RolloutEnv};
use lemon_sandbox::Containment;
use lemon_spec::validate;
use lemon_workers::{Config, PolicySource, Resolved, SandboxRunner, WorkerSet};
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// An evaluation that can begin.
pub struct EvalJob {
    /// Its name.
    pub eval_id: String,
    /// What was asked for.
    pub request: EvalRequest,
    /// The methods.
    pub methods: Vec<Method>,
    /// The tasks.
    pub cases: Arc<Vec<Case>>,
    /// What runs and grades them.
    pub evaluator: Arc<Evaluator>,
    /// Where the runs are kept.
    pub store: Arc<Store>,
    /// The workers' configuration.
    pub resolved: Resolved,
    /// The model that proposes workflows, where a method asks one.
    pub(super) proposals: Option<ProposalModel>,
    pub(super) notices: Notices,
}

impl EvalJob {
    /// Reads the tasks, makes the workers and checks the methods. `store` is called last, so that an evaluation that cannot
    /// begin leaves no store behind. `end` is cancelled when the shared budget is met.
    ///
    /// # Errors
    /// The request cannot be carried out.
    pub async fn prepare(
        config: &Config,
        request: EvalRequest,
        eval_id: String,
        containment: Containment,
        notices: Notices,
        end: &CancellationToken,
        store: impl FnOnce() -> Result<Arc<Store>, Error>,
    ) -> Result<Self, Error> {
        let mut methods = request.methods()?;
        let requested = request.cases(notices)?;
        let set = request.workers(config, &requested, notices).await?;
        let RequestedCases { cases, .. } = requested;
        let proposals = ProposalModel::find(config, &methods, &set, &request, notices).await?;
        let priced = set.priced();
        let WorkerSet { mut backend, resolved, mut settings } = set;
        let language = &resolved.language;
        settings.shared = request.together.shared(resolved.capacities(), end)?;
        if let Some(capacity) = &request.capacity
            && !language.capacities.contains(capacity)
        {
            let expected = language.capacities.join(", ");
            return Err(Error::input(format!("unknown capacity `{capacity}`; expected one of {expected}")));
        }
        for capacity in methods.iter().filter_map(Method::capacity).filter(|name| *name != CHOSEN) {
            if !language.capacities.iter().any(|known| known == capacity) {
                let expected = language.capacities.join(", ");
                return Err(Error::input(format!(
                    "unknown capacity `{capacity}`; expected {CHOSEN} or one of {expected}"
                )));
            }
        }
        if request.names_all() {
            // Those that these workers can run.
            methods.retain(|method| method.check(&language.efforts).is_ok());
        }
        methods.iter().try_for_each(|method| method.check(&language.efforts)).map_err(Error::input)?;
        if methods.iter().any(|method| method.source() == Some(TeamSource::File)) {
            // A team that is none would be rejected again in every run.
            validate(request.team()?, language)?;
        }
        let grader = Grader::for_items(cases.iter().map(|case| &case.item), containment)?;
        if grader.runs_programs() {
            // What grades programs can also compare them (`by: test`).
            backend.code = Some(Arc::new(SandboxRunner::new(containment)));
        }
        let store = store()?;
        let mut env = RolloutEnv::new(backend, language.clone(), settings, grader);
        env.store = Some(store.clone());
        let evaluator = Arc::new(Evaluator::new(env, priced));
        let cases = Arc::new(cases);
        Ok(EvalJob { eval_id, request, methods, cases, evaluator, store, resolved, proposals, notices })
    }

    /// Whether a method learns before the first run.
    pub fn learns(&self) -> bool {
        self.methods.iter().any(learns)
    }

    /// Enters into the shared budget what an evaluation on record has spent: its runs, and what its methods learned with. For an
    /// evaluation whose spending no file knows.
    ///
    /// # Errors
    /// The store failed, or a training that is kept cannot be read.
    pub fn enter_spent(&self) -> Result<(), Error> {
        let Some(shared) = &self.evaluator.env.settings.shared else { return Ok(()) };
        let runs = self.methods.len() * self.request.seeds.len() * self.cases.len();
        self.evaluator.enter_spent(&self.eval_id, runs)?;
        if let Some(folder) = &self.request.trained {
            shared.enter(kept_tokens(folder, self.request.baselines.as_deref())?, 0.0);
        }
        Ok(())
    }

    /// Keeps in a file what is spent of the shared budget, if there is one: what other machines spend is not in the store before
    /// their runs end. Returns whether the file knows already what was spent before.
    ///
    /// # Errors
    /// The file cannot be read, or the evaluation runs already.
    pub fn keep_spending(&mut self, file: &Path, end: &CancellationToken) -> Result<bool, Error> {
        let settings = match Arc::get_mut(&mut self.evaluator) {
            Some(evaluator) => &mut evaluator.env.settings,
            None => return Err(Error::input("the evaluation runs already")),
        };
        let is_known = file.exists();
        let (_, shared) = self.request.together.kept_in(file, self.resolved.capacities(), end)?;
        settings.shared = shared;
        Ok(is_known && settings.shared.is_some())
    }

    /// Gives the runs to a cluster.
    ///
    /// # Errors
    /// Other machines could not make the same workers, or the cluster cannot be used.
    pub async fn on_cluster(&mut self, config: &Config, cluster: &WorkerCluster) -> Result<(), Error> {
        let recipe = self.request.recipe(config, &self.resolved, &self.cases)?;
        // It is this job's alone until it runs.
        let Some(evaluator) = Arc::get_mut(&mut self.evaluator) else { return Ok(()) };
        cluster.take(&mut evaluator.env, recipe, &self.cases).await
    }

    /// Puts a new evaluation on record, so that it can be resumed.
    ///
    /// # Errors
    /// The store failed.
    pub async fn begin(&self) -> Result<(), Error> {
        let meta = serde_json::to_string(&self.request).map_err(Error::input)?;
        Ok(self.store.begin_batch(&self.eval_id, self.request.started_at_ms, meta, Vec::new()).wait().await?)
    }

    /// The runs to make, `width` at a time. Methods that learn, learn now. `None`: `cancel` ended them before they had learned.
    ///
    /// # Errors
    /// A method cannot be made, or the store or the sandbox failed while it learned.
    pub async fn work(
        &self,
        width: Option<usize>,
        cancel: &CancellationToken,
    ) -> Result<Option<(Arc<Work>, Vec<Training>)>, Error> {
        let Some((methods, training)) = self.method_runs(cancel).await? else { return Ok(None) };
        let default_width = match self.evaluator.env.settings.shared {
            // Within a budget one item at a time: many runs at once would all be half done when it ends.
            Some(_) => self.methods.len(),
            None => self.request.default_width()?,
        };
        let work = Work {
            eval_id: self.eval_id.clone(),
            methods,
            seeds: self.request.seeds.clone(),
            capacity: self.request.capacity.clone(),
            width: width.unwrap_or(default_width),
            cases: self.cases.clone(),
        };
        Ok(Some((Arc::new(work), training)))
    }

    /// Makes the runs. `on_row` sees each as it ends; those that `cancel` prevents are missing.
    ///
    /// # Errors
    /// The store or the sandbox failed, or the tasks have changed.
    pub async fn run(
        &self,
        work: &Arc<Work>,
        cancel: &CancellationToken,
        mut on_row: impl FnMut(&Row),
    ) -> Result<Vec<Row>, Error> {
        let mut rows = Vec::with_capacity(work.runs());
        let result = self.evaluator.evaluate(work, cancel, |row| {
            on_row(&row);
            rows.push(row);
        });
        result.await?;
        Ok(rows)
    }

    /// The runs with what is needed to repeat them.
    pub fn evaluation(&self, training: Vec<Training>, mut rows: Vec<Row>) -> Evaluation {
        let request = &self.request;
        let set_up = SetUp {
            eval_id: self.eval_id.clone(),
            started_at_ms: request.started_at_ms,
            sets: request.set_names(),
            items: self.cases.len(),
            clusters: request.clusters.then(|| mark_clusters(&mut rows, &self.cases)),
            methods: self.methods.iter().map(Method::name).collect(),
            capacity: request.capacity.clone(),
            workers: self.evaluator.env.backend.name.clone(),
            seeds: request.seeds.clone(),
        };
        Evaluation::new(set_up, training, rows)
    }

    /// The methods with the orchestrators of their teams; those that learn, learn now.
    async fn method_runs(&self, cancel: &CancellationToken) -> Result<Option<(Vec<MethodRun>, Vec<Training>)>, Error> {
        let (mut methods, mut training) = (Vec::new(), Vec::new());
        let mut rivals = match self.learns() {
            true => Some(Rivals::new(self, self.notices, cancel).await?),
            false => None,
        };
        for method in &self.methods {
            if let Some(rivals) = rivals.as_mut().filter(|_| learns(method)) {
                let Some((run, learned)) = rivals.run(method).await? else { return Ok(None) };
                methods.push(run);
                training.extend(learned);
                continue;
            }
            let writer = match method.source() {
                None => None,
                Some(TeamSource::File) => Some(fixed(self.request.team()?.to_owned())),
                Some(TeamSource::Prompted) => Some(self.resolved.prompted()?),
                Some(TeamSource::Policy) => Some(self.policy()?),
                Some(TeamSource::Critic) => {
                    Some(self.resolved.critic(self.request.critic.as_deref(), self.request.price)?)
                }
                Some(TeamSource::Trained(_)) => return Err(Error::input(format!("`{}` learns first", method.name()))),
            };
            methods.push(match writer {
                None => MethodRun::by_rule(method.clone()),
                Some(writer) => MethodRun::written_by(method.clone(), writer),
            });
        }
        Ok(Some((methods, training)))
    }

    /// The policy, with all its teams written ahead: many at a time is far quicker than one by one.
    fn policy(&self) -> Result<Arc<dyn Orchestrator>, Error> {
        let source = PolicySource { folder: self.request.policy.clone(), ..PolicySource::default() };
        let writer = self.resolved.writer(&source)?;
        let questions: Vec<&str> = self.cases.iter().map(|case| case.item.task.question.as_str()).collect();
        (self.notices.tell)(&format!("the policy writes {} teams", questions.len()));
        writer.write_ahead(&questions).map_err(Error::input)?;
        Ok(Arc::new(writer))
    }
}

fn fixed(text: String) -> Arc<dyn Orchestrator> {
    Arc::new(Fixed { text, reviewer: None })
}
