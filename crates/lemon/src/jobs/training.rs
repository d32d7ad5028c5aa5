//! Training by a recipe with any kind of workers, within a budget over all its processes.

use super::cluster::WorkerCluster;
use super::{Notices, SPENDING};
use crate::error::Error;
use lemon_exec::store::Store;
use lemon_exec::{Backend, Forecast, LIKELY_REPLY, SharedBudget};
use lemon_model::DeviceChoice;
use lemon_rollout::{Case, Grader, RolloutEnv};
use lemon_sandbox::Containment;
use lemon_spec::{Language, validate};
use lemon_task::{Item, SetName};
use lemon_train::Trained;
use lemon_train::build::{self, Tasks};
use lemon_train::by_recipe::{RecipeTraining, RecipeTrainingError, TrainProgress};
use lemon_train::recipe::Recipe;
use lemon_workers::{
    Capacity, Config, OnMiss, Resolved, SharedLimits, Simulation, WorkerKind, WorkerRecipe, WorkerSet, bundled,
    recorded_items, recordings,
};
use lemon_world::{Recordings, SamplePool};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What trains, and with which workers.
pub struct TrainRequest {
    pub recipe: Recipe,
    /// Where everything is kept.
    pub folder: PathBuf,
    /// The kind of workers.
    pub workers: WorkerKind,
    /// The folder of published task sets.
    pub data: Option<PathBuf>,
    /// The recorded levels that are served; empty: those served by default.
    pub levels: Vec<String>,
    /// Which of several recorded samples are served.
    pub samples: SamplePool,
    /// What becomes of a call that is not on record.
    pub on_miss: OnMiss,
    /// What all runs may spend together.
    pub together: SharedLimits,
    /// Where the model computes.
    pub device: DeviceChoice,
}

/// The tasks of a training, and the recorded calls about them where the workers serve those.
pub struct TrainTasks {
    pub tasks: Tasks,
    recordings: Option<Arc<Recordings>>,
}

/// A training that can begin.
pub struct TrainJob<'a> {
    request: &'a TrainRequest,
    training: RecipeTraining<'a>,
    limits: SharedLimits,
    resolved: Resolved,
    /// The budget that the runs share, if there is one.
    pub shared: Option<Arc<SharedBudget>>,
}

/// All recorded items of these sets, divided into those to train on and those held out.
///
/// # Errors
/// A set cannot be read, or no folder is named.
pub fn recorded_cases(data: Option<&Path>, sets: &[SetName], recordings: &Recordings) -> Result<Tasks, Error> {
    let data =
        data.ok_or_else(|| Error::input("recorded replies are read from a folder").with_hint("--data names it"))?;
    let parts = recorded_items(data, sets, recordings)?;
    let cases = |items: Vec<(String, Item)>| -> Vec<Case> {
        items.into_iter().map(|(set, item)| Case { set: set.into(), item }).collect()
    };
    Ok(Tasks { train: cases(parts.train), held_out: cases(parts.held_out) })
}

impl TrainRequest {
    /// Reads the tasks.
    ///
    /// # Errors
    /// A set or the record cannot be read.
    pub fn tasks(&self, notices: Notices) -> Result<TrainTasks, Error> {
        if self.workers != WorkerKind::RECORDED {
            return Ok(TrainTasks { tasks: build::tasks(&self.recipe.tasks, self.data.as_deref())?, recordings: None });
        }
        let sets = &self.recipe.tasks.sets;
        let recordings = recordings(self.data.as_deref(), sets, &self.levels, notices.tell)?;
        Ok(TrainTasks { tasks: self.recorded_tasks(&recordings)?, recordings: Some(recordings) })
    }

    /// The recorded items of the sets of the recipe, divided into those to train on and those held out.
    fn recorded_tasks(&self, recordings: &Recordings) -> Result<Tasks, Error> {
        let settings = &self.recipe.tasks;
        let all = recorded_cases(self.data.as_deref(), &settings.sets, recordings)?;
        let spread = |cases: Vec<Case>, most: usize| {
            // Spread over the whole: sets stand one after the other.
            let every = (cases.len() / most.max(1)).max(1);
            cases.into_iter().step_by(every).take(most).collect()
        };
        let sets = settings.sets.len();
        Ok(Tasks {
            train: spread(all.train, settings.train * sets),
            held_out: spread(all.held_out, settings.held_out * sets),
        })
    }

    /// The workers, and how runs are carried out with them.
    async fn workers(&self, config: &Config, tasks: &TrainTasks, notices: Notices) -> Result<WorkerSet, Error> {
        let cases = || all_cases(&tasks.tasks);
        let questions: Vec<&str> = cases().map(|case| case.item.task.question.as_str()).collect();
        let simulation = || Ok(self.simulation(&tasks.tasks, tasks.recordings.clone()));
        Ok(WorkerSet::new(config, self.workers, &questions, None, simulation, notices.tell).await?)
    }

    fn simulation<'a>(&self, tasks: &'a Tasks, recordings: Option<Arc<Recordings>>) -> Simulation<'a> {
        Simulation {
            preset: self.recipe.tasks.world,
            choices: None,
            items: all_cases(tasks).map(|case| &case.item).collect(),
            shared_noise: self.recipe.tasks.keep_noise,
            strict: false,
            recordings,
            pool: self.samples,
            on_miss: self.on_miss,
        }
    }
}

impl<'a> TrainJob<'a> {
    /// Makes the workers. Where replies are paid for, `store` is opened, so that those of a step that is taken again come from
    /// there. `cancel` ends the training; it is cancelled when the shared budget is met.
    ///
    /// # Errors
    /// The workers cannot be used, or the folder says something else of what was spent.
    pub async fn prepare(
        config: &Config,
        request: &'a TrainRequest,
        tasks: TrainTasks,
        notices: Notices,
        cancel: &CancellationToken,
        store: impl FnOnce() -> Result<Arc<Store>, Error>,
    ) -> Result<Self, Error> {
        let WorkerSet { backend, resolved, mut settings } = request.workers(config, &tasks, notices).await?;
        let TrainTasks { tasks, .. } = tasks;
        let file = request.folder.join(SPENDING);
        let (limits, shared) = request.together.kept_in(&file, resolved.capacities(), cancel)?;
        settings.shared = shared.clone();
        let grader = Grader::for_items(all_cases(&tasks).map(|case| &case.item), Containment::Isolated)?;
        let language = resolved.language.clone();
        let mut env = build::rollout_env(backend, language, grader, settings, cancel.clone());
        if request.workers.costs_money() {
            env.store = Some(store()?);
        }
        let training = RecipeTraining {
            recipe: &request.recipe,
            tasks,
            env,
            taught_in_env: request.workers.asks_models(),
            bundled: packed_orchestrator(resolved.capacities())?,
            device: request.device,
            folder: &request.folder,
        };
        Ok(TrainJob { request, training, limits, shared, resolved })
    }

    /// Gives the runs to a cluster.
    ///
    /// # Errors
    /// Other machines could not make the same workers, or the cluster cannot be used.
    pub async fn on_cluster(&mut self, config: &Config, cluster: &WorkerCluster) -> Result<(), Error> {
        let RecipeTraining { tasks, env, .. } = &mut self.training;
        let simulation = || Ok(self.request.simulation(tasks, None));
        let recipe = WorkerRecipe::new(config, &self.resolved, None, simulation)?;
        let cases: Vec<Case> = all_cases(tasks).cloned().collect();
        cluster.take(env, recipe, &cases).await
    }

    /// What training is likely to spend, where it spends anything.
    pub fn outlook(&self) -> Option<String> {
        let RecipeTraining { recipe, tasks, env, .. } = &self.training;
        let costs = self.request.workers.costs_money();
        costs.then(|| outlook(recipe, tasks, env, &self.limits))
    }

    /// Trains. `watch` sees every step and returns whether to go on.
    ///
    /// # Errors
    /// Training failed; what is in the folder stays valid.
    pub async fn train(self, watch: impl FnMut(TrainProgress<'_>) -> bool) -> Result<Trained, RecipeTrainingError> {
        self.training.train(watch).await
    }
}

fn all_cases(tasks: &Tasks) -> impl Iterator<Item = &Case> {
    tasks.train.iter().chain(&tasks.held_out)
}

/// The weights of the bundled orchestrator for these capacities.
fn packed_orchestrator(levels: &[(String, Capacity)]) -> Result<lemon_model::Packed, Error> {
    Ok(bundled::orchestrator(levels).files()?)
}

/// What training is likely to spend. The teams are not known yet: teams of two agents are assumed.
fn outlook(recipe: &Recipe, tasks: &Tasks, env: &RolloutEnv, limits: &SharedLimits) -> String {
    let Recipe { steps, rollouts, eval, .. } = recipe;
    let evaluations = (eval.first_seeds + eval.final_seeds).max(2)
        + steps.checked_div(eval.every).unwrap_or(0).saturating_mul(eval.seeds.max(1));
    let rolled_out = steps.saturating_mul((rollouts.tasks.max(1) * rollouts.group.max(1)) as u64);
    let runs = rolled_out.saturating_add(evaluations.saturating_mul(tasks.held_out.len() as u64));
    // A case without an estimate is left out of the mean.
    let likely = |case: &Case| likely_of_two(case, &env.language, &env.backend);
    let sample: Vec<u64> = tasks.train.iter().take(50).filter_map(likely).collect();
    let each = sample.iter().sum::<u64>() / sample.len().max(1) as u64;
    format!(
        "estimate: about {} tokens ({runs} runs × {each}, teams of two agents and replies of {LIKELY_REPLY} tokens); \
         there is no other bound than the budget: {}",
        runs.saturating_mul(each),
        limits.in_words()
    )
}

/// What a team of two agents is likely to spend on a case. `None`: this language has no such team.
fn likely_of_two(case: &Case, language: &Language, backend: &Backend) -> Option<u64> {
    let (weak, strong) = (language.capacities.first()?, language.capacities.last()?);
    let team = format!(
        "agents:\n  - {{id: a, base: solver, capacity: {weak}}}\n  - {{id: b, base: critic, capacity: {strong}, after: [a]}}\n"
    );
    let judge = language.roles.get("judge")?.clone();
    match validate(&team, language) {
        Ok(plan) => Some(Forecast::new(&plan, &case.item.task.question, &backend.levels, judge).likely()),
        Err(_) => None,
    }
}

/// A training folder that may be begun, or gone on with.
///
/// # Errors
/// It holds a training already and `resume` was not asked for, or the other way round.
pub fn check_begun(folder: &Path, resume: bool) -> Result<(), Error> {
    match (folder.join("run.json").exists(), resume) {
        (true, false) => Err(Error::input(format!("{} holds a training already", folder.display()))
            .with_hint("--resume goes on with it; --out DIR begins another")),
        (false, true) if !folder.join("warm").exists() => {
            Err(Error::input(format!("{} holds no training", folder.display()))
                .with_hint("leave --resume out to begin one"))
        }
        _ => Ok(()),
    }
}
