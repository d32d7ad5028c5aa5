//! Published methods that learn to design teams, trained or read from a folder, and the choice of a capacity on training tasks.

use super::Notices;
use super::evaluation::EvalJob;
use super::request::EvalRequest;
use crate::error::Error;
use async_trait::async_trait;
use lemon_baselines::aflow::Expander;
use lemon_baselines::{BaselineError, Encoder, RivalTrainer, TrainedRival, TrainedTeams, reads_vectors};
use lemon_eval::{CHOSEN, CaseWriters, Method, MethodRun, PublishedMethod, TeamSource, Training};
use lemon_exec::Orchestrator;
use lemon_exec::worker::{Backend, ChatMessage, Request};
use lemon_num::seed_of;
use lemon_rollout::{Case, RolloutRequest};
use lemon_spec::Language;
use lemon_trace::ORCHESTRATOR;
use lemon_workers::{Config, Resolved, WorkerFiles};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Completion tokens of a proposed workflow at most.
const MOST_PROPOSED: u64 = 1_500;
const TEMPERATURE: f64 = 0.7;

/// Trains the methods of an evaluation.
pub(super) struct Rivals<'a> {
    job: &'a EvalJob,
    trainer: RivalTrainer<'a>,
    encoder: Arc<Encoder>,
    /// What methods learn from.
    cases: Vec<Case>,
    /// By method with its capacity, and seed.
    known: HashMap<(String, u64), Arc<TrainedRival>>,
    notices: Notices,
    cancel: &'a CancellationToken,
}

/// Whether a method learns here, or has its capacity chosen.
pub(super) fn learns(method: &Method) -> bool {
    matches!(method.source(), Some(TeamSource::Trained(_))) || method.capacity() == Some(CHOSEN)
}

/// The encoder of a request: the model in its folder; without one the vectors that ship if they are those of all these
/// questions, and hashed words if not.
fn encoder(request: &EvalRequest, questions: &[String], notices: Notices, is_read: bool) -> Result<Encoder, Error> {
    if let Some(folder) = &request.encoder {
        return Encoder::minilm(folder, request.vectors.as_deref()).map_err(|error| {
            Error::input(error)
                .with_hint("--encoder names a folder with model.safetensors and tokenizer.json of all-MiniLM-L6-v2")
        });
    }
    let bundled = Encoder::bundled();
    let unknown = questions.iter().filter(|question| !bundled.knows(question)).count();
    if unknown == 0 {
        return Ok(bundled);
    }
    if is_read {
        (notices.warn)(&format!(
            "warning: no vector ships for {unknown} of {} questions: methods read hashed words; --encoder DIR names a model",
            questions.len()
        ));
    }
    Ok(Encoder::hashed())
}

impl<'a> Rivals<'a> {
    pub(super) async fn new(job: &'a EvalJob, notices: Notices, cancel: &'a CancellationToken) -> Result<Self, Error> {
        let request = &job.request;
        let cases = request.training_cases()?;
        let questions: Vec<String> =
            cases.iter().chain(job.cases.iter()).map(|case| case.item.task.question.clone()).collect();
        let is_read =
            |method: &Method| matches!(method.source(), Some(TeamSource::Trained(rival)) if reads_vectors(rival));
        let is_read = job.methods.iter().any(is_read);
        let encoder = Arc::new(encoder(request, &questions, notices, is_read)?);
        let mut trainer = RivalTrainer::new(&job.evaluator.env, encoder.clone(), cancel);
        trainer.limit = request.training_tokens;
        trainer.expander = job.expander.clone();
        if request.encoder.is_some() && is_read {
            // At once and in turn: later, many runs would ask for a vector each.
            (notices.tell)(&format!("{} encodes {} questions", encoder.name(), questions.len()));
            let of = encoder.clone();
            let encoded =
                tokio::task::spawn_blocking(move || questions.iter().try_for_each(|text| of.encode(text).map(drop)));
            encoded.await.map_err(|error| Error::input(format!("encoding broke off: {error}")))??;
        }
        Ok(Rivals { job, trainer, encoder, cases, known: HashMap::new(), notices, cancel })
    }

    /// A method, ready to be scored, with what it learned for each seed of the evaluation.
    pub(super) async fn run(&mut self, method: &Method) -> Result<(MethodRun, Vec<Training>), Error> {
        let (seeds, mut training) = (self.job.request.seeds.clone(), Vec::new());
        if method.capacity() != Some(CHOSEN) {
            let mut by_seed = BTreeMap::new();
            for seed in seeds {
                let trained = self.trained(method, seed).await?;
                training.push(trained.report(self.job.cases.first(), &self.encoder, None));
                by_seed.insert(seed, trained);
            }
            let teams = TrainedTeams { by_seed, encoder: self.encoder.clone() };
            return Ok((MethodRun::trained(method.clone(), Arc::new(teams)), training));
        }
        let language = self.job.evaluator.env.language.clone();
        let mut by_seed = BTreeMap::new();
        for seed in seeds {
            let (run, mut account) = self.chosen(method, &language, seed).await?;
            account.method = method.name();
            training.push(account);
            by_seed.insert(seed, run);
        }
        Ok((MethodRun::trained(method.clone(), Arc::new(ChosenTeams { by_seed, language })), training))
    }

    /// What a method learned with a seed: from its folder, or now.
    async fn trained(&mut self, method: &Method, seed: u64) -> Result<Arc<TrainedRival>, Error> {
        let key = (method.name(), seed);
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let request = &self.job.request;
        let folder = request.baselines.as_ref().map(|folder| folder_of(folder, method, seed));
        let trained = match folder.filter(|folder| folder.exists()) {
            Some(folder) => TrainedRival::load(&folder, &self.encoder)?,
            None => {
                (self.notices.tell)(&format!("{} learns on {} items, seed {seed}", method.name(), self.cases.len()));
                let capacity = method.capacity().or(request.capacity.as_deref());
                self.trainer.train(method, capacity, &self.cases, seed).await?
            }
        };
        let trained = Arc::new(trained);
        self.known.insert(key, trained.clone());
        Ok(trained)
    }

    /// The method at the capacity whose teams have the highest reward on the training tasks. Its account has all that was tried.
    async fn chosen(
        &mut self,
        method: &Method,
        language: &Arc<Language>,
        seed: u64,
    ) -> Result<(MethodRun, Training), Error> {
        let mut account = Training { seed, items: self.cases.len(), ..Training::default() };
        let mut best: Option<(f64, MethodRun, Training)> = None;
        for capacity in &language.capacities {
            let Some(fixed) = method.at(capacity) else { continue };
            let run = match method.source() {
                None => MethodRun::by_rule(fixed),
                Some(_) => {
                    let trained = self.trained(&fixed, seed).await?;
                    let report = trained.report(self.job.cases.first(), &self.encoder, Some(capacity));
                    account.runs += report.runs;
                    account.tokens += report.tokens;
                    account.optimiser_tokens += report.optimiser_tokens;
                    account.seconds += report.seconds;
                    account.encoder.clone_from(&report.encoder);
                    account.spec.clone_from(&report.spec);
                    let teams = TrainedTeams { by_seed: [(seed, trained)].into(), encoder: self.encoder.clone() };
                    MethodRun::trained(fixed, Arc::new(teams))
                }
            };
            let (reward, runs, tokens) = self.reward(&run, language, seed).await?;
            account.runs += runs;
            account.tokens += tokens;
            if best.as_ref().is_none_or(|(most, ..)| reward > *most) {
                let found = Training { chosen: Some(capacity.clone()), ..account.clone() };
                best = Some((reward, run, found));
            }
        }
        let Some((_, run, found)) = best else {
            return Err(Error::input(format!("`{}` has no capacity to choose from", method.name())));
        };
        Ok((run, Training { chosen: found.chosen, spec: found.spec, ..account }))
    }

    /// The mean reward on the training tasks, the runs and their tokens.
    async fn reward(&self, run: &MethodRun, language: &Language, seed: u64) -> Result<(f64, u64, u64), Error> {
        let env = &self.job.evaluator.env;
        let noise = seed_of(&["choose", &seed.to_string()]);
        let (mut sum, mut known, mut runs, mut tokens) = (0.0, 0, 0, 0);
        for case in &self.cases {
            let writer = run.orchestrator(case, language, None, seed)?;
            let rollout = env.rollout(RolloutRequest::new(case, writer, noise).cancelled_by(self.cancel)).await?;
            if rollout.is_cancelled() {
                break;
            }
            runs += 1;
            tokens += rollout.summary.tokens.total;
            if let Some(reward) = rollout.outcome.score().and_then(|score| score.reward) {
                sum += reward;
                known += 1;
            }
        }
        Ok((if known > 0 { sum / f64::from(known) } else { f64::NEG_INFINITY }, runs, tokens))
    }
}

/// Where a method that was trained with a seed is kept.
fn folder_of(folder: &Path, method: &Method, seed: u64) -> PathBuf {
    folder.join(method.name()).join(format!("seed-{seed}"))
}

impl EvalJob {
    /// Trains the methods that learn, writes each into a folder of its own, and gives the folders with the accounts.
    ///
    /// # Errors
    /// A method does not learn, or its training or a file failed.
    pub async fn train_baselines(&self, out: &Path, cancel: &CancellationToken) -> Result<SavedTrainings, Error> {
        let mut rivals = Rivals::new(self, self.notices, cancel).await?;
        let mut made = Vec::new();
        for method in &self.methods {
            for seed in &self.request.seeds {
                let trained = rivals.trained(method, *seed).await?;
                if cancel.is_cancelled() {
                    // What it has is what it began with, or half of a training: neither is the method.
                    let missing = self.methods.len() * self.request.seeds.len() - made.len();
                    return Ok(SavedTrainings { made, missing });
                }
                let folder = folder_of(out, method, *seed);
                trained.save(&folder)?;
                made.push((folder, trained.report(self.cases.first(), &rivals.encoder, None)));
            }
        }
        Ok(SavedTrainings { made, missing: 0 })
    }
}

/// What trainings left in a folder.
pub struct SavedTrainings {
    /// The folder of each, and its account.
    pub made: Vec<(PathBuf, Training)>,
    /// Those that did not end: they were interrupted, or the budget was used up.
    pub missing: usize,
}

/// A method at the capacity that was chosen for each seed.
struct ChosenTeams {
    by_seed: BTreeMap<u64, MethodRun>,
    language: Arc<Language>,
}

impl CaseWriters for ChosenTeams {
    fn writer(&self, case: &Case, seed: u64) -> Option<Arc<dyn Orchestrator>> {
        let run = self.by_seed.get(&seed).or_else(|| self.by_seed.values().next())?;
        // What has no team for a case has none here either; the run says so.
        run.orchestrator(case, &self.language, None, seed).ok()
    }
}

/// The model that proposes workflows for AFlow: the strongest of the configured capacities.
pub(super) async fn expander(
    config: &Config,
    methods: &[Method],
    notices: Notices,
) -> Result<Option<Arc<dyn Expander>>, Error> {
    let is_asked = |method: &Method| method.source() == Some(TeamSource::Trained(PublishedMethod::AFlow));
    if !methods.iter().any(is_asked) {
        return Ok(None);
    }
    let missing = || {
        Error::input("the method `aflow` needs a model that proposes workflows")
            .with_hint("name one with --base-url and --model, or --model FILE.gguf; `aflow-random` needs none")
    };
    if config.capacity.is_empty() {
        return Err(missing());
    }
    let resolved = Resolved::new(config, None, &[], notices.tell).await?;
    let (backend, _) = resolved.backend(&WorkerFiles::default())?;
    let level = backend.levels.len().checked_sub(1).ok_or_else(missing)?;
    Ok(Some(Arc::new(ModelExpander { backend, level })))
}

struct ModelExpander {
    backend: Backend,
    level: usize,
}

#[async_trait]
impl Expander for ModelExpander {
    async fn expand(&self, prompt: &str, seed: u64) -> Result<(String, u64), BaselineError> {
        let failed =
            |reason: String| BaselineError::Unfit(format!("the model that proposes workflows failed: {reason}"));
        let level = self.backend.levels.get(self.level).ok_or_else(|| failed("it has no capacity".to_owned()))?;
        let request = Request {
            agent: ORCHESTRATOR.to_owned(),
            level: self.level,
            capacity: level.name.clone(),
            messages: vec![ChatMessage::user(prompt)],
            max_tokens: MOST_PROPOSED,
            temperature: Some(TEMPERATURE),
            seed,
            schema: None,
            tools: None,
            agent_prompt: None,
            progress: None,
        };
        // A closed semaphore admits every call: no permit is needed.
        let _turn = level.gate.acquire().await.ok();
        let reply = self.backend.worker.ask(&request).await.map_err(|error| failed(error.failure.message))?;
        Ok((reply.text, reply.usage.tokens_in + reply.usage.tokens_out))
    }
}
