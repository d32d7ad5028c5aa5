//! Runs on other machines: what a coordinator sends of its environment, and how a worker process makes the same.

use crate::error::Error;
use async_trait::async_trait;
use lemon_cluster::{Access, Blobs, BuildEnv, Coordinator, CoordinatorOptions, Link, NodeEnv, Priority, Status};
use lemon_exec::SharedBudget;
use lemon_rollout::{Case, Grader, RolloutEnv};
use lemon_sandbox::Containment;
use lemon_study::run::{RemoteWorlds, WorldOfTasks};
use lemon_task::{Key, SealedItem};
use lemon_workers::{SandboxRunner, Simulation, Tell, WorkerRecipe, WorkerSet};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::{Handle, Runtime};

/// Runs at a time for each slot of a worker, so that none waits for the coordinator.
const RUNS_PER_SLOT: usize = 2;
/// Runs at a time at least: more workers may come.
const LEAST_WIDTH: usize = 64;

/// A cluster that a command gives its runs to.
pub struct WorkerCluster {
    /// A thread of its own: workers are answered while a policy computes.
    thread: OwnThread,
    link: Link,
    priority: Priority,
    coordinators: std::sync::Mutex<Vec<Coordinator>>,
}

/// How a worker makes the environment of a coordinator.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EnvRecipe {
    workers: WorkerRecipe,
    /// The tasks whose answers are programs: the worker grades those.
    programs: Vec<Program>,
    /// The models that the workers need, by capacity.
    models: Vec<SentModel>,
    /// What the coordinator has made of it. A worker that makes something else refuses.
    fingerprint: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Program {
    set: String,
    item: SealedItem,
}

/// A model as files, each by the hash of its content.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SentModel {
    capacity: String,
    /// Whether it is a folder; else it is its only file.
    folder: bool,
    files: Vec<(String, String)>,
}

impl WorkerCluster {
    /// Connects to a cluster.
    ///
    /// # Errors
    /// The server cannot be used.
    pub async fn connect(address: &str, project: &str, priority: Priority) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| Error::input(format!("no runtime: {error}")))?;
        let access = Access::from_environment(address, project)?;
        let thread = OwnThread(Some(runtime));
        let link = thread.run(async move { Link::connect(&access).await }).await??;
        Ok(WorkerCluster { thread, link, priority, coordinators: std::sync::Mutex::default() })
    }

    /// Runs at a time that keep the workers busy that are there now.
    ///
    /// # Errors
    /// The server cannot be used.
    pub async fn width(&self) -> Result<usize, Error> {
        let slots = Status::read(&self.link).await?.slots();
        Ok((slots * RUNS_PER_SLOT).max(LEAST_WIDTH))
    }

    /// Gives the runs of an environment to the cluster.
    ///
    /// # Errors
    /// A model cannot be read, or the server cannot be used.
    pub async fn take(&self, env: &mut RolloutEnv, workers: WorkerRecipe, cases: &[Case]) -> Result<(), Error> {
        let coordinator = self.coordinator(env.settings.shared.clone()).await?;
        let mut models = Vec::new();
        for (capacity, path) in workers.model_paths() {
            models.push(send_model(coordinator.blobs(), capacity, &path).await?);
        }
        let is_program = |case: &&Case| matches!(case.item.key(), Key::Code { .. });
        let program = |case: &Case| Program { set: case.set.to_string(), item: case.item.sealed() };
        let programs = cases.iter().filter(is_program).map(program).collect();
        let recipe = EnvRecipe { workers, programs, fingerprint: fingerprint(env, models.is_empty()), models };
        let recipe = serde_json::to_vec(&recipe).map_err(Error::input)?;
        env.remote = Some(Arc::new(self.thread.run(async move { coordinator.runs(&recipe).await }).await??));
        Ok(())
    }

    /// A coordinator for simulated worlds: each of their environments is taken as it is made.
    ///
    /// # Errors
    /// The server cannot be used.
    pub async fn worlds(&self) -> Result<ClusterWorlds, Error> {
        Ok(ClusterWorlds { coordinator: self.coordinator(None).await?, runtime: self.thread.handle()? })
    }

    async fn coordinator(&self, budget: Option<Arc<SharedBudget>>) -> Result<Coordinator, Error> {
        let (link, options) = (self.link.clone(), CoordinatorOptions { priority: self.priority, budget });
        let coordinator = self.thread.run(async move { Coordinator::begin(&link, options).await }).await??;
        self.coordinators().push(coordinator.clone());
        Ok(coordinator)
    }

    /// Forgets what is queued. Returns what no worker could make, one line for each task.
    ///
    /// # Errors
    /// The server cannot be used.
    pub async fn close(&self) -> Result<Vec<String>, Error> {
        let coordinators = std::mem::take(&mut *self.coordinators());
        let mut dead = Vec::new();
        for coordinator in coordinators {
            let line =
                |job: lemon_cluster::DeadJob| format!("{}, tried {} times: {}", job.task_id, job.tries, job.error);
            dead.extend(coordinator.dead().into_iter().map(line));
            coordinator.close().await?;
        }
        Ok(dead)
    }

    fn coordinators(&self) -> std::sync::MutexGuard<'_, Vec<Coordinator>> {
        self.coordinators.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Gives the runs of simulated worlds to a cluster.
pub struct ClusterWorlds {
    coordinator: Coordinator,
    runtime: Handle,
}

impl RemoteWorlds for ClusterWorlds {
    fn take(&self, env: &mut RolloutEnv, world: &WorldOfTasks<'_>) -> Result<(), String> {
        let WorldOfTasks { tasks, settings, choices } = world;
        let workers = WorkerRecipe::of_world(Simulation {
            preset: settings.world,
            choices: *choices,
            items: tasks.train.iter().chain(&tasks.held_out).map(|case| &case.item).collect(),
            shared_noise: settings.keep_noise,
            ..Simulation::default()
        });
        let fingerprint = fingerprint(env, true);
        let recipe = EnvRecipe { workers, programs: Vec::new(), models: Vec::new(), fingerprint };
        let recipe = serde_json::to_vec(&recipe).map_err(|error| error.to_string())?;
        // A thread of a study, which waits for nothing else.
        let runs = self.runtime.block_on(self.coordinator.runs(&recipe)).map_err(|error| error.to_string())?;
        env.remote = Some(Arc::new(runs));
        Ok(())
    }
}

/// The thread that talks to the server. `Option` only so that drop can take it.
struct OwnThread(Option<Runtime>);

impl OwnThread {
    /// Does something there, where what it starts goes on.
    async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T, Error> {
        match &self.0 {
            Some(runtime) => runtime.spawn(work).await.map_err(Error::input),
            None => Ok(work.await),
        }
    }

    fn handle(&self) -> Result<Handle, Error> {
        let runtime = self.0.as_ref().ok_or_else(|| Error::input("the cluster is left already"))?;
        Ok(runtime.handle().clone())
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        // A runtime cannot be waited for inside of another.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Makes the environments of coordinators in a worker process.
pub struct EnvBuilder {
    /// How programs are contained.
    pub containment: Containment,
    /// Where models are kept that were fetched.
    pub cache: PathBuf,
    /// What a person should know.
    pub tell: Tell,
}

#[async_trait]
impl BuildEnv for EnvBuilder {
    async fn build(&self, recipe: &[u8], blobs: &Blobs) -> Result<NodeEnv, String> {
        let EnvRecipe { mut workers, programs, models, fingerprint: expected } =
            serde_json::from_slice(recipe).map_err(|error| format!("the environment is not understood: {error}"))?;
        let models_are_here = models.is_empty();
        for model in models {
            let path = self.fetch_model(blobs, &model).await?;
            workers = workers.with_model(&model.capacity, &path);
        }
        let WorkerSet { mut backend, resolved, settings } =
            workers.build(self.tell).await.map_err(|error| error.to_string())?;
        let case = |program: Program| Case { set: program.set.into(), item: program.item.into() };
        let cases: Vec<Case> = programs.into_iter().map(case).collect();
        let grader = Grader::for_items(cases.iter().map(|case| &case.item), self.containment);
        let grader = grader.map_err(|error| error.to_string())?;
        if grader.runs_programs() {
            backend.code = Some(Arc::new(SandboxRunner::new(self.containment)));
        }
        let env = RolloutEnv::new(backend, resolved.language.clone(), settings, grader);
        let found = fingerprint(&env, models_are_here);
        if found != expected {
            return Err(format!(
                "this worker makes other agents of the same recipe ({found}, expected {expected}): are its models the same?"
            ));
        }
        let cases: HashMap<String, Case> = cases.into_iter().map(|case| (case.task_id(), case)).collect();
        Ok(NodeEnv { env, cases })
    }
}

impl EnvBuilder {
    /// The path of a model on this machine: its files are fetched where they are missing.
    async fn fetch_model(&self, blobs: &Blobs, model: &SentModel) -> Result<PathBuf, String> {
        let all: Vec<String> = model.files.iter().map(|(name, hash)| format!("{name} {hash}")).collect();
        let folder = self.cache.join(seed_name(&all));
        for (name, hash) in &model.files {
            let is_plain = Path::new(name).components().count() == 1 && !name.starts_with('.');
            let path = folder.join(name);
            if !is_plain {
                return Err(format!("`{name}` is no name of a file"));
            }
            if !path.exists() {
                std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
                blobs.get_file(hash, &path).await.map_err(|error| error.to_string())?;
            }
        }
        match model.files.first() {
            Some((name, _)) if !model.folder => Ok(folder.join(name)),
            _ => Ok(folder),
        }
    }
}

/// A name for what is made of these files.
fn seed_name(files: &[String]) -> String {
    let parts: Vec<&str> = files.iter().map(String::as_str).collect();
    format!("{:016x}", lemon_num::seed_of(&parts))
}

async fn send_model(blobs: &Blobs, capacity: String, path: &Path) -> Result<SentModel, Error> {
    let failed = |error: std::io::Error| Error::input(format!("{}: {error}", path.display()));
    let folder = path.is_dir();
    let mut paths = vec![path.to_owned()];
    if folder {
        let entries = std::fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(failed)?;
        paths = entries.into_iter().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        paths.sort();
    }
    let mut files = Vec::new();
    for path in paths {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        files.push((name, blobs.put_file(&path).await?));
    }
    Ok(SentModel { capacity, folder, files })
}

/// What determines the results of an environment, but for the tasks and the settings, which every job brings along.
/// Models that were sent are known by their content, and have another path here.
fn fingerprint(env: &RolloutEnv, with_models: bool) -> String {
    let level = |level: &lemon_exec::Level| {
        let lemon_exec::Level { name, identity, price, max_tokens, temperature, style, .. } = level;
        let identity = if with_models { identity.as_str() } else { "" };
        format!("{name} {identity} {price:?} {max_tokens} {temperature:?} {style:?}")
    };
    let levels: Vec<String> = env.backend.levels.iter().map(level).collect();
    let language = format!("{:?}", env.language);
    format!("{:016x}", lemon_num::seed_of(&[&env.backend.name, &levels.join("\n"), &language]))
}
