//! Published methods that learn to design teams, trained or read from a folder, and the choice of a capacity on training tasks.

use super::Notices;
use super::evaluation::EvalJob;
use super::kept_trainings::{Choice, folder_of};
use super::request::EvalRequest;
use crate::error::Error;
use futures::future::try_join_all;
use lemon_baselines::{Encoder, RivalTrainer, TrainedRival, TrainedTeams, reads_vectors};
use lemon_eval::{CHOSEN, CaseWriters, Method, MethodRun, PublishedMethod, TeamSource, Training};
use lemon_exec::Orchestrator;
use lemon_num::seed_of;
use lemon_rollout::{Case, RolloutRequest};
use lemon_spec::Language;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

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

/// Whether a model proposes teams while a method learns.
pub(super) fn asks_a_model(method: &Method) -> bool {
    method.source() == Some(TeamSource::Trained(PublishedMethod::AFlow))
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
        let env = &job.evaluator.env;
        trainer.expander = job.proposals.as_ref().map(|model| model.expander(&env.settings, env.store.clone(), cancel));
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

    /// A method, ready to be scored, with what it learned for each seed of the evaluation. `None`: ended before it had learned.
    pub(super) async fn run(&mut self, method: &Method) -> Result<Option<(MethodRun, Vec<Training>)>, Error> {
        let (seeds, mut training) = (self.job.request.seeds.clone(), Vec::new());
        let language = self.job.evaluator.env.language.clone();
        if method.capacity() != Some(CHOSEN) {
            self.learn_together(method).await?;
            let mut by_seed = BTreeMap::new();
            for seed in seeds {
                let Some(trained) = self.trained(method, seed).await? else { return Ok(None) };
                training.push(trained.report(self.job.cases.first(), &self.encoder, None));
                by_seed.insert(seed, trained);
            }
            let teams = TrainedTeams { by_seed, encoder: self.encoder.clone() };
            return Ok(Some((MethodRun::trained(method.clone(), Arc::new(teams)), training)));
        }
        for fixed in language.capacities.iter().filter_map(|capacity| method.at(capacity)) {
            self.learn_together(&fixed).await?;
        }
        let mut by_seed = BTreeMap::new();
        for seed in seeds {
            let Some((run, account)) = self.chosen(method, &language, seed).await? else { return Ok(None) };
            training.push(account);
            by_seed.insert(seed, run);
        }
        Ok(Some((MethodRun::trained(method.clone(), Arc::new(ChosenTeams { by_seed, language })), training)))
    }

    /// What a method learned with a seed: with this evaluation before, as it was trained before, or now. `None`: ended before it had
    /// learned.
    async fn trained(&mut self, method: &Method, seed: u64) -> Result<Option<Arc<TrainedRival>>, Error> {
        if let Some(known) = self.known.get(&(method.name(), seed)) {
            return Ok(Some(known.clone()));
        }
        let trained = match self.folder_with(method, seed) {
            Some(folder) => Some(TrainedRival::load(&folder, &self.encoder)?),
            None => self.learn(method, seed).await?,
        };
        trained.map(|trained| self.keep(method, seed, trained)).transpose()
    }

    /// Has AFlow learn with all seeds at a time, unless a budget would end all of them half done: its model writes a proposal for each
    /// in little more time than for one.
    async fn learn_together(&mut self, method: &Method) -> Result<(), Error> {
        let job = self.job;
        if !asks_a_model(method) || job.evaluator.env.settings.shared.is_some() {
            return Ok(());
        }
        let is_new =
            |seed: &u64| !self.known.contains_key(&(method.name(), *seed)) && self.folder_with(method, *seed).is_none();
        let seeds: Vec<u64> = job.request.seeds.iter().copied().filter(is_new).collect();
        let learned = try_join_all(seeds.iter().map(|seed| self.learn(method, *seed))).await?;
        for (seed, trained) in seeds.into_iter().zip(learned) {
            if let Some(trained) = trained {
                self.keep(method, seed, trained)?;
            }
        }
        Ok(())
    }

    /// Where what a method learned with a seed lies: with this evaluation, or as it was trained before.
    fn folder_with(&self, method: &Method, seed: u64) -> Option<PathBuf> {
        let folders = [&self.job.request.trained, &self.job.request.baselines];
        let mut folders = folders.into_iter().flatten().map(|folder| folder_of(folder, method, seed));
        folders.find(|folder| TrainedRival::is_kept(folder))
    }

    /// Trains a method now. `None`: ended before its end; what it has then is what it began with, or half of a training, and neither
    /// is the method.
    async fn learn(&self, method: &Method, seed: u64) -> Result<Option<TrainedRival>, Error> {
        let request = &self.job.request;
        if self.cancel.is_cancelled() {
            return Ok(None);
        }
        if !request.may_learn_now()? {
            let given = request.baselines.as_deref().unwrap_or(Path::new("")).display();
            return Err(Error::input(format!("{given} has no `{}` of seed {seed}", method.name()))
                .with_hint("to learn it now, bound what it spends: --budget-tokens N"));
        }
        (self.notices.tell)(&format!("{} learns on {} items, seed {seed}", method.name(), self.cases.len()));
        let capacity = method.capacity().or(request.capacity.as_deref());
        let trained = self.trainer.train(method, capacity, &self.cases, seed).await?;
        Ok((!self.cancel.is_cancelled()).then_some(trained))
    }

    /// Keeps what a method learned, here and with the evaluation: what was trained elsewhere too, since it may change there.
    fn keep(&mut self, method: &Method, seed: u64, trained: TrainedRival) -> Result<Arc<TrainedRival>, Error> {
        if let Some(folder) = self.job.request.trained.as_ref().map(|folder| folder_of(folder, method, seed))
            && !TrainedRival::is_kept(&folder)
        {
            trained.save(&folder)?;
        }
        let trained = Arc::new(trained);
        self.known.insert((method.name(), seed), trained.clone());
        Ok(trained)
    }

    /// The method at the capacity whose teams have the highest reward on the training tasks. Its account has all that was tried.
    /// `None`: ended before the choice.
    async fn chosen(
        &mut self,
        method: &Method,
        language: &Arc<Language>,
        seed: u64,
    ) -> Result<Option<(MethodRun, Training)>, Error> {
        let kept = self.job.request.trained.as_ref().map(|folder| folder_of(folder, method, seed));
        if let Some(before) = kept.as_deref().map(Choice::read).transpose()?.flatten() {
            return self.chosen_before(method, before.account, seed).await;
        }
        let mut account = Training { method: method.name(), seed, items: self.cases.len(), ..Training::default() };
        let mut best: Option<(f64, MethodRun, Training)> = None;
        let mut tried_tokens = 0;
        for capacity in &language.capacities {
            let Some(fixed) = method.at(capacity) else { continue };
            let run = match method.source() {
                None => MethodRun::by_rule(fixed),
                Some(_) => {
                    let Some(trained) = self.trained(&fixed, seed).await? else { return Ok(None) };
                    let report = trained.report(self.job.cases.first(), &self.encoder, Some(capacity));
                    account.runs += report.runs;
                    account.tokens += report.tokens;
                    account.optimiser_tokens += report.optimiser_tokens;
                    account.seconds += report.seconds;
                    account.encoder.clone_from(&report.encoder);
                    account.spec.clone_from(&report.spec);
                    self.with_one(fixed, trained, seed)
                }
            };
            let (reward, runs, tokens) = self.reward(&run, language, seed).await?;
            if self.cancel.is_cancelled() {
                return Ok(None);
            }
            account.runs += runs;
            account.tokens += tokens;
            tried_tokens += tokens;
            if best.as_ref().is_none_or(|(most, ..)| reward > *most) {
                let found = Training { chosen: Some(capacity.clone()), ..account.clone() };
                best = Some((reward, run, found));
            }
        }
        let Some((_, run, found)) = best else {
            return Err(Error::input(format!("`{}` has no capacity to choose from", method.name())));
        };
        let account = Training { chosen: found.chosen, spec: found.spec, ..account };
        let choice = Choice { account, tried_tokens };
        if let Some(folder) = kept {
            choice.write(&folder)?;
        }
        Ok(Some((run, choice.account)))
    }

    /// The choice that this evaluation made before.
    async fn chosen_before(
        &mut self,
        method: &Method,
        account: Training,
        seed: u64,
    ) -> Result<Option<(MethodRun, Training)>, Error> {
        let fixed = account.chosen.as_deref().and_then(|capacity| method.at(capacity));
        let Some(fixed) = fixed else {
            return Err(Error::input(format!("what was chosen for `{}` names no capacity of it", method.name())));
        };
        if fixed.source().is_none() {
            return Ok(Some((MethodRun::by_rule(fixed), account)));
        }
        let trained = self.trained(&fixed, seed).await?;
        Ok(trained.map(|trained| (self.with_one(fixed, trained, seed), account)))
    }

    /// A method with what it learned with one seed.
    fn with_one(&self, method: Method, trained: Arc<TrainedRival>, seed: u64) -> MethodRun {
        let teams = TrainedTeams { by_seed: [(seed, trained)].into(), encoder: self.encoder.clone() };
        MethodRun::trained(method, Arc::new(teams))
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

impl EvalJob {
    /// Trains the methods that learn, writes each into a folder of its own, and gives the folders with the accounts.
    ///
    /// # Errors
    /// A method does not learn, or its training or a file failed.
    pub async fn train_baselines(&self, out: &Path, cancel: &CancellationToken) -> Result<SavedTrainings, Error> {
        let mut rivals = Rivals::new(self, self.notices, cancel).await?;
        let mut made = Vec::new();
        for method in &self.methods {
            rivals.learn_together(method).await?;
            for seed in &self.request.seeds {
                let Some(trained) = rivals.trained(method, *seed).await? else {
                    let missing = self.methods.len() * self.request.seeds.len() - made.len();
                    return Ok(SavedTrainings { made, missing });
                };
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
