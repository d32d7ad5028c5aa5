//! Pairs of tasks and teams from a teacher, for a model to learn from.

use super::{Notices, valid_team};
use crate::error::Error;
use lemon_policy::pair::{self, Pair, canonical_ids};
use lemon_rollout::{Case, Grader, RolloutEnv};
use lemon_sandbox::Containment;
use lemon_sft::teach::broad::BroadSettings;
use lemon_sft::teach::endpoint::EndpointTeacherSettings;
use lemon_sft::teach::rules::RulesSettings;
use lemon_sft::teach::search::TeamSearchSettings;
use lemon_sft::teach::{SearchProgress, TeachContext, broad, endpoint, rules, search};
use lemon_task::{SetName, Source, compose, load};
use lemon_train::build::{self, SPLITS};
use lemon_train::recipe::Prices;
use lemon_workers::{Config, Resolved, Simulation, WorkerFiles, WorkerKind, WorkerSet};
use lemon_world::Preset;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The tasks of lessons, and the workers of the teams that are tried.
pub struct TeachRequest {
    /// The task sets; empty: all that there are.
    pub sets: Vec<SetName>,
    /// The folder of published sets; `None`: composed tasks.
    pub data: Option<PathBuf>,
    /// Tasks of each set.
    pub count: usize,
    /// In place of sets: so many word problems.
    pub problems: Option<usize>,
    /// Only problems of so many steps.
    pub problem_steps: Option<usize>,
    /// The kind of workers.
    pub workers: WorkerKind,
    /// The simulated world.
    pub world: Preset,
    pub seed: u64,
    /// How programs are contained.
    pub containment: Containment,
}

/// A teacher and its settings.
pub enum LessonTeacher {
    /// Rules written by hand, and so many everyday tasks besides.
    Rules(RulesSettings, usize),
    /// Teams that do best where they are tried. A given team, by its name for messages, takes the place of the search.
    Search(Box<TeamSearchSettings>, Option<(String, String)>),
    /// A strong model; each team is run so many times.
    Endpoint(u32),
    /// Teams drawn at random.
    Broad(BroadSettings),
}

/// What was made. The field names of the JSON form are an interface.
#[derive(Debug, Default, Serialize)]
pub struct TaughtPairs {
    /// The pairs, each once.
    #[serde(skip)]
    pub pairs: Vec<Pair>,
    /// Tasks that were taught.
    pub tasks: usize,
    /// How many pairs there are.
    #[serde(rename = "pairs")]
    pub count: usize,
    /// The mean reward of the pairs that were run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reward: Option<f64>,
    /// Their mean success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success: Option<f64>,
    /// Their mean tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<f64>,
    /// Of an endpoint: texts that were no teams, by what was wrong first.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, usize>,
    /// Of an endpoint: tasks for which it wrote nothing.
    pub silent: usize,
}

/// TaughtPairs that can be made.
pub struct TeachJob<'a> {
    config: &'a Config,
    /// The tasks.
    pub cases: Vec<Case>,
    env: RolloutEnv,
    world: String,
    seed: u64,
    notices: Notices,
}

impl<'a> TeachJob<'a> {
    /// Reads the tasks and makes the workers.
    ///
    /// # Errors
    /// The tasks cannot be read, or the workers cannot be used.
    pub async fn prepare(config: &'a Config, request: &TeachRequest, notices: Notices) -> Result<Self, Error> {
        let cases = request.cases()?;
        let WorkerSet { backend, resolved, settings } = request.workers(config, &cases, notices).await?;
        let grader = Grader::for_items(cases.iter().map(|case| &case.item), request.containment)?;
        let mut env = RolloutEnv::new(backend, resolved.language, settings, grader);
        if request.workers.is_in_process() {
            env.weights = Prices::in_process().weights();
        }
        let world = match request.workers {
            kind if kind == WorkerKind::SIM => request.world.as_str(),
            kind => kind.name(),
        };
        Ok(TeachJob { config, cases, env, world: world.to_owned(), seed: request.seed, notices })
    }

    /// Lets the teacher write teams for the tasks. `watch` receives the progress of a search.
    ///
    /// # Errors
    /// The team of a search is not valid, nothing was written, or the store or the sandbox failed.
    pub async fn teach(
        &self,
        teacher: LessonTeacher,
        cancel: &CancellationToken,
        watch: &dyn Fn(&SearchProgress),
    ) -> Result<TaughtPairs, Error> {
        let language = &self.env.language;
        let world = Some(self.world.clone());
        let context =
            TeachContext { env: &self.env, cases: &self.cases, world, seed: self.seed, cancel, watch: Some(watch) };
        let mut lessons = TaughtPairs::default();
        lessons.pairs = match teacher {
            LessonTeacher::Rules(settings, everyday) => {
                let mut pairs = rules::teach(&context, &settings).await?;
                pairs.extend(rules::everyday(everyday, language, self.seed));
                pairs
            }
            LessonTeacher::Search(mut settings, team) => {
                if let Some((name, text)) = team {
                    // With the ids and the order of references that models learn.
                    settings.team = Some(canonical_ids(valid_team(&text, &name, language)?.spec()));
                }
                search::teach(&context, &settings).await?
            }
            LessonTeacher::Endpoint(runs) => self.ask_endpoint(&context, runs, &mut lessons).await?,
            LessonTeacher::Broad(settings) => broad::teach(&context, &settings).await?,
        };
        lessons.pairs = pair::dedupe(lessons.pairs);
        lessons.describe(self.cases.len());
        Ok(lessons)
    }

    async fn ask_endpoint(
        &self,
        context: &TeachContext<'_>,
        runs: u32,
        lessons: &mut TaughtPairs,
    ) -> Result<Vec<Pair>, Error> {
        let mut resolved = Resolved::new(self.config, Some(WorkerKind::ENDPOINTS), &[], self.notices.tell).await?;
        resolved.language = self.env.language.clone();
        let (backend, _) = resolved.backend(&WorkerFiles::default())?;
        let level = self.env.language.capacities.len().saturating_sub(1);
        let structured = self.config.orchestrator.structured.unwrap_or(true);
        let settings = EndpointTeacherSettings { level, structured, runs, ..Default::default() };
        let asked = endpoint::teach(context, &backend, &settings).await?;
        if let (Some(failure), true) = (&asked.failure, asked.pairs.is_empty()) {
            return Err(Error::input(format!("no team was written: {}", failure.message))
                .with_hint("`lemon doctor` says what is wrong with an endpoint"));
        }
        lessons.refused = asked.refused.iter().map(|(code, count)| (code.as_str().to_owned(), *count)).collect();
        lessons.silent = asked.silent;
        Ok(asked.pairs)
    }
}

impl TeachRequest {
    /// The workers of the teams that are tried.
    async fn workers(&self, config: &Config, cases: &[Case], notices: Notices) -> Result<WorkerSet, Error> {
        if self.workers == WorkerKind::RECORDED {
            return Err(Error::input("recorded replies answer one agent, not a team")
                .with_hint("use --workers sim, local or bundled"));
        }
        let questions: Vec<&str> = cases.iter().map(|case| case.item.task.question.as_str()).collect();
        let items = cases.iter().map(|case| &case.item).collect();
        let simulation = || Ok(Simulation { preset: self.world, items, ..Simulation::default() });
        let mut set = WorkerSet::new(config, self.workers, &questions, None, simulation, notices.tell).await?;
        if !self.workers.asks_models() {
            // TaughtPairs name the capacities and roles of this installation.
            set.resolved.language = Arc::new(config.language()?);
        }
        Ok(set)
    }

    /// The tasks: composed ones, or the first of the split of each set that teachers use.
    fn cases(&self) -> Result<Vec<Case>, Error> {
        let data = self.data.as_deref();
        let all = || match data {
            // The variant of HumanEval asks the same tasks once more.
            None => SetName::PUBLIC.into_iter().filter(|set| *set != SetName::HumanEvalPy).collect(),
            Some(_) => SPLITS.map(|(set, _)| set).to_vec(),
        };
        let (sets, mut cases) = match self.problems {
            Some(count) => (Vec::new(), build::problems(count, 0, self.problem_steps, data)?.train),
            None => (if self.sets.is_empty() { all() } else { self.sets.clone() }, Vec::new()),
        };
        for set in sets {
            let (items, origin) = match data {
                None => (compose(set, self.count, self.seed), "own"),
                Some(folder) => {
                    let Some((_, split)) = SPLITS.iter().find(|(known, _)| *known == set) else {
                        let fact = format!("{} has only a test split, which is for measuring", set.as_str());
                        return Err(
                            Error::input(fact).with_hint("leave it out, or leave --data out for tasks of our own")
                        );
                    };
                    let loaded = load(&Source::Folder(folder.to_owned()), set, split)?;
                    (loaded.items.into_iter().take(self.count).collect(), *split)
                }
            };
            let name: Arc<str> = format!("{}/{origin}", set.as_str()).into();
            cases.extend(items.into_iter().map(|item| Case { set: name.clone(), item }));
        }
        if cases.is_empty() {
            return Err(Error::input("there are no tasks").with_hint("name sets with --set, and how many with --count"));
        }
        Ok(cases)
    }
}

impl TaughtPairs {
    fn describe(&mut self, tasks: usize) {
        let mean = |of: fn(&Pair) -> Option<f64>| {
            let values: Vec<f64> = self.pairs.iter().filter_map(of).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        (self.reward, self.success, self.tokens) =
            (mean(|pair| pair.reward), mean(|pair| pair.success), mean(|pair| pair.tokens));
        (self.tasks, self.count) = (tasks, self.pairs.len());
    }

    /// The means and what was refused, in words.
    pub fn in_words(&self) -> String {
        let mut text = format!("{} pairs for {} tasks", self.count, self.tasks);
        if let (Some(reward), Some(success), Some(tokens)) = (self.reward, self.success, self.tokens) {
            text += &format!(": reward {reward:.3}, {:.1} % right, {tokens:.0} tokens a run", 100.0 * success);
        }
        for (code, count) in &self.refused {
            text += &format!("\n{count} texts were no teams: {code}");
        }
        if self.silent > 0 {
            text += &format!("\n{} tasks got no text at all", self.silent);
        }
        text
    }
}
