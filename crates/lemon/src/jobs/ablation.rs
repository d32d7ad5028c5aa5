//! Ways to train, compared: a study, its regimes, arms and seeds, and the workers of all its runs.

use super::Notices;
use super::cluster::WorkerCluster;
use super::training::recorded_cases;
use crate::error::Error;
use lemon_model::DeviceChoice;
use lemon_rollout::{Grader, RolloutEnv};
use lemon_spec::Language;
use lemon_study::arms::{ARMS, Arm};
use lemon_study::named;
use lemon_study::row::StudyRow;
use lemon_study::run::{Regime, Study, StudyWorkers, run};
use lemon_task::SetName;
use lemon_train::recipe::Recipe;
use lemon_workers::{
    Config, OnMiss, Resolved, RunLimits, Simulation, WorkerFiles, WorkerKind, WorkerRecipe, WorkerSet, bundled,
    recordings,
};
use lemon_world::{Preset, SamplePool};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Which study, what of it, and with which workers.
pub struct AblationRequest {
    /// The name of the study.
    pub study: String,
    /// The arms to compare; empty: those of the study.
    pub arms: Vec<String>,
    /// The recipe that all arms change; `None`: the study's own.
    pub recipe: Option<Recipe>,
    /// Only the regimes whose names contain this.
    pub only: Option<String>,
    /// A key of the recipe and its values: `update.learning_rate=0.1,0.3`.
    pub sweep: Option<String>,
    /// How many seeds; `None`: as many as the study has.
    pub seeds: Option<u64>,
    /// The first seed, where their number is given.
    pub first_seed: u64,
    /// The folder of published task sets; `None`: composed tasks.
    pub data: Option<PathBuf>,
    /// The kind of workers.
    pub workers: WorkerKind,
    /// The recorded levels that are served; empty: those served by default.
    pub levels: Vec<String>,
    /// Which of several recorded samples are served.
    pub samples: SamplePool,
    /// What becomes of a call that is not on record.
    pub on_miss: OnMiss,
}

/// Where the runs of a study are kept, and how they are made.
pub struct StudyRuns<'a> {
    /// The file of runs; those that it holds are not made again.
    pub rows: &'a Path,
    /// Where the model computes.
    pub device: DeviceChoice,
    /// Runs at a time.
    pub threads: usize,
}

/// A study that can begin.
pub struct AblationJob {
    study: Study,
}

impl AblationJob {
    /// Makes the workers of [`AblationRequest::study`].
    ///
    /// # Errors
    /// The workers cannot be used.
    pub async fn prepare(
        config: &Config,
        request: &AblationRequest,
        mut study: Study,
        cluster: Option<&WorkerCluster>,
        notices: Notices,
    ) -> Result<Self, Error> {
        study.workers = request.workers(config, &study, cluster, notices).await?;
        match (cluster, &study.workers) {
            (Some(cluster), None) => study.remote_worlds = Some(Arc::new(cluster.worlds().await?)),
            (Some(_), Some(workers)) if workers.remote.is_none() => {
                return Err(Error::input("recorded replies are not served on a cluster")
                    .with_hint("they cost nothing: leave --cluster out"));
            }
            _ => {}
        }
        Ok(AblationJob { study })
    }

    /// Makes the runs that are not in the file yet. `watch` sees each run that ends, how many ended and how many there are.
    ///
    /// # Errors
    /// A run failed, or a file cannot be written; the runs in the file stay valid.
    pub fn run(
        &self,
        runs: &StudyRuns<'_>,
        cancel: &CancellationToken,
        watch: impl Fn(&StudyRow, usize, usize) + Sync,
    ) -> Result<Vec<StudyRow>, Error> {
        let StudyRuns { rows, device, threads } = *runs;
        let scratch = rows.with_extension("runs");
        if let Some(folder) = rows.parent() {
            std::fs::create_dir_all(folder).map_err(|error| Error::input(format!("{}: {error}", folder.display())))?;
        }
        let bundled = bundled::orchestrator(&[]).files()?;
        let rows = run(&self.study, bundled, device, (rows, &scratch), threads, cancel, watch)?;
        // What runs leave behind is made again from their seeds. A folder that cannot be removed only takes room.
        let _ = std::fs::remove_dir_all(&scratch);
        Ok(rows)
    }
}

impl AblationRequest {
    /// The study without its workers.
    ///
    /// # Errors
    /// There is no such study, or it has no such arm, regime or key.
    pub fn study(&self) -> Result<Study, Error> {
        let mut study = named(&self.study, self.data.as_deref()).ok_or_else(|| {
            Error::input(format!("there is no study `{}`", self.study))
                .with_hint("the studies are demo, table, map, language, stop and estimators")
        })?;
        study.commit = build_name();
        if !self.arms.is_empty() {
            study.arms = self.arms.iter().map(|name| arm(name)).collect::<Result<_, _>>()?;
        }
        if let Some(recipe) = &self.recipe {
            let hint = "leave `--recipe` out, or use the study `table` with `--sweep KEY=VALUE,…`";
            study.use_recipe(recipe.clone()).map_err(|error| Error::input(error).with_hint(hint))?;
        }
        if let Some(text) = &self.only {
            let names: Vec<String> = study.regimes.iter().map(|regime| regime.name.clone()).collect();
            study.regimes.retain(|regime| regime.name.contains(text));
            if study.regimes.is_empty() {
                let fact = format!("no regime of the study `{}` has a name with `{text}`", self.study);
                return Err(Error::input(fact).with_hint(format!("its regimes are {}", names.join("; "))));
            }
        }
        if let Some(sweep) = &self.sweep {
            study.regimes = swept(&study.regimes, sweep)?;
        }
        if let Some(count) = self.seeds {
            study.seeds = (0..count).map(|seed| self.first_seed + seed).collect();
        }
        Ok(study)
    }

    /// The workers; `None`: the simulated world of each regime.
    async fn workers(
        &self,
        config: &Config,
        study: &Study,
        cluster: Option<&WorkerCluster>,
        notices: Notices,
    ) -> Result<Option<StudyWorkers>, Error> {
        if self.workers == WorkerKind::RECORDED {
            return self.recorded(config, &sets(study), notices).await.map(Some);
        }
        if !self.workers.asks_models() {
            return Ok(None);
        }
        let resolved = Resolved::new(config, Some(self.workers), &[], notices.tell).await?;
        let (found, expected) = (&resolved.language.capacities, Language::default().capacities);
        if *found != expected {
            let fact = format!("a study needs the capacities {}, got {}", expected.join(", "), found.join(", "));
            return Err(Error::input(fact).with_hint("rename them in lemon.toml"));
        }
        let (backend, _) = resolved.backend(&WorkerFiles::default())?;
        let (settings, language) = (resolved.settings(&RunLimits::default())?, resolved.language.clone());
        let mut remote = None;
        if let Some(cluster) = cluster {
            let recipe = WorkerRecipe::new(config, &resolved, None, || Ok(Simulation::default()))?;
            let mut env = RolloutEnv::new(backend.clone(), language.clone(), settings.clone(), Grader::new(None));
            cluster.take(&mut env, recipe, &[]).await?;
            remote = env.remote;
        }
        Ok(Some(StudyWorkers { backend, settings, language, tasks: None, remote }))
    }

    /// Recorded replies: the tasks of every seed are drawn from those on record.
    async fn recorded(&self, config: &Config, sets: &[SetName], notices: Notices) -> Result<StudyWorkers, Error> {
        let recordings = recordings(self.data.as_deref(), sets, &self.levels, notices.tell)?;
        let tasks = recorded_cases(self.data.as_deref(), sets, &recordings)?;
        let simulation = || {
            Ok(Simulation {
                preset: Preset::Real,
                items: tasks.train.iter().chain(&tasks.held_out).map(|case| &case.item).collect(),
                recordings: Some(recordings.clone()),
                pool: self.samples,
                on_miss: self.on_miss,
                ..Simulation::default()
            })
        };
        let set = WorkerSet::new(config, self.workers, &[], None, simulation, notices.tell).await?;
        let WorkerSet { backend, resolved, settings } = set;
        Ok(StudyWorkers { backend, settings, language: resolved.language.clone(), tasks: Some(tasks), remote: None })
    }
}

/// The task sets of a study, each once.
fn sets(study: &Study) -> Vec<SetName> {
    let mut sets = Vec::new();
    for set in study.regimes.iter().flat_map(|regime| &regime.recipe.tasks.sets) {
        if !sets.contains(set) {
            sets.push(*set);
        }
    }
    sets
}

fn arm(name: &str) -> Result<Arm, Error> {
    Arm::named(name).ok_or_else(|| {
        let known: Vec<&str> = ARMS.iter().map(|arm| arm.name).collect();
        Error::input(format!("there is no arm `{name}`")).with_hint(format!("the arms are {}", known.join(", ")))
    })
}

/// The commit, where the build knows it (`LEMON_COMMIT`), else a hash of the program.
fn build_name() -> String {
    if let Some(commit) = option_env!("LEMON_COMMIT") {
        return commit.to_owned();
    }
    let program = std::env::current_exe().and_then(std::fs::read);
    // A program that cannot be read is an unknown build, and the report says so.
    program.map_or_else(|_| "unknown".to_owned(), |bytes| format!("build-{:016x}", lemon_num::fnv1a(bytes)))
}

/// Each regime with each of the values of a key of its recipe.
fn swept(regimes: &[Regime], sweep: &str) -> Result<Vec<Regime>, Error> {
    let expected = || {
        Error::input(format!("expected KEY=VALUE,…, got `{sweep}`")).with_hint("--sweep update.learning_rate=0.1,0.3")
    };
    let (key, values) = sweep.split_once('=').ok_or_else(expected)?;
    let mut all = Vec::new();
    for regime in regimes {
        for value in values.split(',') {
            let mut table = toml::Table::try_from(&regime.recipe).map_err(Error::input)?;
            set(&mut table, key, value).ok_or_else(expected)?;
            let recipe = table.try_into().map_err(|error| Error::input(format!("{key} = {value}: {error}")))?;
            let name = format!("{} {key}={value}", regime.name).trim().to_owned();
            all.push(Regime { name, recipe, choices: regime.choices });
        }
    }
    Ok(all)
}

/// Sets a key of a table by its path.
fn set(table: &mut toml::Table, key: &str, value: &str) -> Option<()> {
    // One value of TOML: a number, a word in quotes, or a word without.
    let value = value.parse::<toml::Value>().unwrap_or_else(|_| toml::Value::String(value.to_owned()));
    match key.split_once('.') {
        None => {
            table.insert(key.to_owned(), value);
        }
        Some((part, rest)) => {
            let part = table.entry(part).or_insert_with(|| toml::Table::new().into()).as_table_mut()?;
            return set(part, rest, &value.to_string());
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(change: impl FnOnce(&mut AblationRequest)) -> AblationRequest {
        let mut request = AblationRequest {
            study: "demo".to_owned(),
            arms: Vec::new(),
            recipe: None,
            only: None,
            sweep: None,
            seeds: None,
            first_seed: 1,
            data: None,
            workers: WorkerKind::SIM,
            levels: Vec::new(),
            samples: SamplePool::default(),
            on_miss: OnMiss::Fail,
        };
        change(&mut request);
        request
    }

    #[test]
    fn a_request_selects_arms_seeds_and_values() {
        let study = request(|it| {
            it.arms = vec!["plain".to_owned(), "bought".to_owned()];
            (it.seeds, it.first_seed) = (Some(2), 7);
            it.sweep = Some("update.learning_rate=0.25,0.5".to_owned());
        });
        let study = study.study().unwrap();
        assert_eq!(study.arms.iter().map(|arm| arm.name).collect::<Vec<_>>(), ["plain", "purchased"]);
        assert_eq!(study.seeds, [7, 8]);
        let names: Vec<&str> = study.regimes.iter().map(|regime| regime.name.as_str()).collect();
        assert_eq!(names, ["update.learning_rate=0.25", "update.learning_rate=0.5"]);
        assert_eq!(study.regimes[1].recipe.update.learning_rate, 0.5);
    }

    #[test]
    fn a_request_that_fits_no_study_is_refused() {
        let check = |change: fn(&mut AblationRequest), fact: &str| {
            let error = request(change).study().err().unwrap();
            assert_eq!(error.to_string(), fact);
            assert!(error.hint().is_some(), "{fact}");
        };
        check(|it| it.study = "none".to_owned(), "there is no study `none`");
        check(|it| it.arms = vec!["none".to_owned()], "there is no arm `none`");
        check(|it| it.only = Some("none".to_owned()), "no regime of the study `demo` has a name with `none`");
        check(|it| it.sweep = Some("steps".to_owned()), "expected KEY=VALUE,…, got `steps`");
    }
}
