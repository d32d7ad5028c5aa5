//! A head on the orchestrator's own model: what a team, or the beginning of one, is worth for a task.
//!
//! `task → prompt; team so far → tokens → hidden state of the last one → probability of success, and tokens`. It is fitted by regression
//! on outcomes of teams ([`HeadTask`]), the model with it. A part of the tasks is held out: it calibrates the probabilities. A
//! Laplace approximation over the last layer says how sure they are. One head serves every price of a token.

mod calibration;

use crate::checkpoint::sums;
use crate::encoder::{LanguagePromptEncoder, write_context};
use crate::pair::{Pair, Told};
use calibration::{covariance, cross_entropy, platt, variance, with_one};
use lemon_exec::orchestrator::WriteContext;
use lemon_model::{
    Learning, PolicyError, StepSettings, ValueExample, ValueModel, ValueReading, ValueTarget, ValueText,
};
use lemon_num::{Random, fnv1a, logistic, mean_of, mixed_seed};
use lemon_spec::{Language, Shape};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

const FILE: &str = "head.json";
const FORMAT: &str = "lemon-head";
const VERSION: u32 = 1;
/// No head's file is longer.
const MOST_BYTES: u64 = 256 << 20;
/// Tasks that the curvature is taken from; more change little.
const CURVATURE_TASKS: usize = 1_000;
/// The longest logarithm of tokens: no team costs more than e²⁰.
const MOST_LOG_TOKENS: f64 = 20.0;

/// What came of a team.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TeamOutcome {
    /// The share of runs with a right answer.
    pub success: f64,
    /// Mean tokens.
    pub tokens: f64,
}

/// The text of a team in pieces, and what the team that ends behind each piece came to.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadRow {
    pub pieces: Vec<String>,
    /// One for each piece.
    pub outcomes: Vec<TeamOutcome>,
}

/// A task with teams whose outcomes are known.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadTask {
    /// Decides whether it is held out.
    pub name: String,
    /// What [`TeamHead::prompt`] makes of it.
    pub prompt: Vec<u32>,
    pub rows: Vec<HeadRow>,
}

/// How a head is fitted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeadSettings {
    /// Passes over the tasks; each draws one row of every task.
    pub epochs: usize,
    /// Tasks in a step.
    pub batch: usize,
    /// The highest learning rate: it rises for a twentieth of the steps and falls to a tenth.
    pub learning_rate: f64,
    /// The share of tasks that calibrate and teach nothing.
    pub held_out: f64,
    /// Decides the order of the tasks, which rows are drawn, and which tasks are held out.
    pub seed: u64,
}

impl Default for HeadSettings {
    fn default() -> Self {
        HeadSettings { epochs: 4, batch: 16, learning_rate: 5e-4, held_out: 0.15, seed: 1 }
    }
}

/// What a head says of a team.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct HeadEstimate {
    /// The probability that its answer is right.
    pub success: f64,
    /// The standard error of that probability.
    pub error: f64,
    /// What it costs.
    pub tokens: f64,
}

impl HeadEstimate {
    /// The reward that is expected under a price of 1,000 tokens; a right answer is 1.
    pub fn reward(&self, price: f64) -> f64 {
        self.success - price * self.tokens / 1000.0
    }
}

/// What a fit came to, on the tasks held out.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadReport {
    /// Tasks that taught.
    pub tasks: usize,
    /// Tasks held out.
    pub held_out: usize,
    /// Mean cross-entropy of success, calibrated.
    pub log_loss: f64,
    /// The same of one probability for every task and team.
    pub log_loss_of_mean: f64,
    /// Mean squared error of the logarithm of tokens.
    pub cost_error: f64,
}

/// All of a head but the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    format: String,
    version: u32,
    /// Mean and spread of the logarithm of tokens.
    cost: [f64; 2],
    /// Mean tokens over what the logarithm alone predicts.
    smear: f64,
    /// What the log-odds are multiplied by, and what is added then.
    calibration: [f64; 2],
    /// The covariance of the last layer's weights, the constant last: the lower triangle by rows.
    covariance: Vec<f32>,
    report: HeadReport,
    /// Hashes of the prompts that it was fitted or calibrated to, in order: none of them is a test of it.
    fitted: Vec<u32>,
}

/// A head with its model.
pub struct TeamHead {
    model: ValueModel,
    encoder: LanguagePromptEncoder,
    about: About,
}

/// One row of a task, in tokens.
struct Coded<'a> {
    prompt: &'a [u32],
    text: ValueText,
    outcomes: &'a [TeamOutcome],
}

impl TeamHead {
    /// A head that knows nothing, on a model that reads tasks as an orchestrator with this language does.
    pub fn new(model: ValueModel, language: Arc<Language>) -> TeamHead {
        let positions = model.config().positions;
        let encoder = LanguagePromptEncoder::new(model.tokenizer().clone(), language, Shape::default(), positions);
        let (cost, calibration) = ([0.0, 1.0], [1.0, 0.0]);
        let covariance = covariance(model.config().hidden + 1, &[]);
        let report = HeadReport::default();
        let about = About {
            format: FORMAT.into(),
            version: VERSION,
            cost,
            smear: 1.0,
            calibration,
            covariance,
            report,
            fitted: Vec::new(),
        };
        TeamHead { model, encoder, about }
    }

    /// What the fit came to.
    pub fn report(&self) -> &HeadReport {
        &self.about.report
    }

    /// Whether it was fitted or calibrated to a task.
    pub fn was_fitted_to(&self, prompt: &[u32]) -> bool {
        self.about.fitted.binary_search(&fingerprint(prompt)).is_ok()
    }

    /// The tokens of a task, as the orchestrator reads it.
    ///
    /// # Errors
    /// The model's chat template cannot be used.
    pub fn prompt(&self, context: &WriteContext<'_>) -> Result<Vec<u32>, PolicyError> {
        self.encoder.prompt(context)
    }

    /// The same for the first round of a question.
    ///
    /// # Errors
    /// As [`Self::prompt`].
    pub fn prompt_of(&self, question: &str) -> Result<Vec<u32>, PolicyError> {
        self.encoder.prompt(&self.encoder.first(question, 0))
    }

    /// Teams that were run, as tasks to learn from. Pairs without figures are left out.
    ///
    /// # Errors
    /// As [`Self::prompt`].
    pub fn tasks_of(&self, pairs: &[Pair]) -> Result<Vec<HeadTask>, PolicyError> {
        let mut tasks: Vec<HeadTask> = Vec::new();
        let mut places: HashMap<(&str, u32, &[Told]), usize> = HashMap::new();
        for pair in pairs {
            let (Some(success), Some(tokens)) = (pair.success, pair.tokens) else { continue };
            let key = (pair.task.question.as_str(), pair.round, pair.results.as_slice());
            let place = match places.get(&key) {
                Some(place) => *place,
                None => {
                    let prompt = self.prompt(&write_context(pair, self.encoder.language()))?;
                    let name = format!("{} {}", pair.task.set, pair.task.id);
                    tasks.push(HeadTask { name, prompt, rows: Vec::new() });
                    places.insert(key, tasks.len() - 1);
                    tasks.len() - 1
                }
            };
            let row = HeadRow { pieces: vec![pair.spec.clone()], outcomes: vec![TeamOutcome { success, tokens }] };
            if let Some(task) = tasks.get_mut(place) {
                task.rows.push(row);
            }
        }
        Ok(tasks)
    }

    fn coded(&self, pieces: &[String]) -> ValueText {
        let (mut tokens, mut at) = (Vec::new(), Vec::with_capacity(pieces.len()));
        for piece in pieces {
            tokens.extend(self.model.tokenizer().encode_plain(piece));
            at.push(tokens.len());
        }
        ValueText { tokens, at }
    }

    fn row<'a>(&self, task: &'a HeadTask, random: &mut Random) -> Option<Coded<'a>> {
        let row = random.pick(&task.rows)?;
        let text = self.coded(&row.pieces);
        Some(Coded { prompt: &task.prompt, text, outcomes: &row.outcomes })
    }

    /// Fits head and model. `say` gets a line for each pass.
    ///
    /// # Errors
    /// There are too few tasks, a setting is out of range, or a text cannot be read.
    pub fn fit(
        &mut self,
        tasks: &[HeadTask],
        settings: &HeadSettings,
        say: &mut dyn FnMut(&str),
    ) -> Result<(), PolicyError> {
        let refused = |fact: String| Err(PolicyError::Request(fact));
        if settings.batch == 0 || !(0.0..=0.9).contains(&settings.held_out) {
            let (batch, share) = (settings.batch, settings.held_out);
            return refused(format!(
                "expected a batch above 0 and a held-out share of 0 to 0.9, got {batch} and {share}"
            ));
        }
        let draw = |task: &&HeadTask| mixed_seed(settings.seed, &["held out", &task.name]) as f64 / u64::MAX as f64;
        let tasks = tasks.iter().filter(|task| !task.rows.is_empty());
        let (held, taught): (Vec<&HeadTask>, Vec<&HeadTask>) = tasks.partition(|task| draw(task) < settings.held_out);
        if taught.len() < 2 || (held.len() < 2 && settings.held_out > 0.0) {
            return refused(format!(
                "expected at least two tasks to learn from and two held out, found {} and {}",
                taught.len(),
                held.len()
            ));
        }
        let logs = taught.iter().flat_map(|task| &task.rows).flat_map(|row| &row.outcomes).map(|it| log(it.tokens));
        let mean = mean_of(logs.clone()).unwrap_or_default();
        let spread = mean_of(logs.map(|log| (log - mean).powi(2))).unwrap_or_default().sqrt();
        self.about.cost = [mean, if spread > 1e-6 { spread } else { 1.0 }];
        self.learn(&taught, &held, settings, say)?;
        // Those that calibrate: the held-out ones; without any, those that taught.
        let judged = if held.is_empty() { &taught } else { &held };
        self.calibrate(judged, settings.seed)?;
        self.about.covariance = self.curvature(&taught, settings.seed)?;
        (self.about.report.tasks, self.about.report.held_out) = (taught.len(), held.len());
        self.about.fitted = taught.iter().chain(&held).map(|task| fingerprint(&task.prompt)).collect();
        self.about.fitted.sort_unstable();
        Ok(())
    }

    fn learn(
        &mut self,
        taught: &[&HeadTask],
        held: &[&HeadTask],
        settings: &HeadSettings,
        say: &mut dyn FnMut(&str),
    ) -> Result<(), PolicyError> {
        let mut random = Random::named(settings.seed, "head");
        let steps = (settings.epochs * taught.len().div_ceil(settings.batch)).max(1) as f64;
        let mut step = 0.0;
        for epoch in 1..=settings.epochs {
            let mut order = taught.to_vec();
            random.shuffle(&mut order);
            let mut sum = 0.0;
            for tasks in order.chunks(settings.batch) {
                let rows: Vec<Coded<'_>> = tasks.iter().filter_map(|task| self.row(task, &mut random)).collect();
                let examples: Vec<ValueExample> = rows.iter().map(|row| self.example(row, rows.len())).collect();
                step += 1.0;
                let rate = f64::min(step / (0.05 * steps), 1.0 - 0.9 * step / steps);
                let learning_rate = settings.learning_rate * rate;
                let settings = StepSettings { learning_rate, temperature: 1.0, clip_norm: 1.0, micro_batch: 0 };
                let report = self.model.update(&examples, &settings)?;
                if report.skipped {
                    let fact = "the loss of the head is no number: lower the learning rate".to_owned();
                    return Err(PolicyError::Request(fact));
                }
                sum += report.loss * tasks.len() as f64;
            }
            let judged = if held.is_empty() { taught } else { held };
            self.calibrate(judged, settings.seed)?;
            let (loss, HeadReport { log_loss, log_loss_of_mean, cost_error, .. }) =
                (sum / taught.len() as f64, self.about.report);
            say(&format!(
                "pass {epoch} of {}: loss {loss:.4}; held out: log-loss {log_loss:.4} (of the mean {log_loss_of_mean:.4}), \
                 squared error of ln tokens {cost_error:.4}",
                settings.epochs
            ));
        }
        Ok(())
    }

    fn example(&self, row: &Coded<'_>, rows: usize) -> ValueExample {
        // Every task counts once, however many positions are read.
        let weight = 1.0 / (rows * row.outcomes.len()).max(1) as f64;
        let [mean, spread] = self.about.cost;
        let target =
            |it: &TeamOutcome| ValueTarget { success: it.success, cost: (log(it.tokens) - mean) / spread, weight };
        let targets = row.outcomes.iter().map(target).collect();
        ValueExample { prompt: row.prompt.to_vec(), text: row.text.clone(), targets }
    }

    /// Readings of one row of each task, each with its outcome and what it counts.
    fn readings(&self, tasks: &[&HeadTask], seed: u64) -> Result<Vec<(ValueReading, TeamOutcome, f64)>, PolicyError> {
        let mut found = Vec::new();
        for task in tasks {
            let Some(row) = self.row(task, &mut Random::named(seed, &task.name)) else { continue };
            let weight = 1.0 / row.outcomes.len().max(1) as f64;
            let readings = self.model.read(row.prompt, std::slice::from_ref(&row.text))?.into_iter().flatten();
            found.extend(readings.zip(row.outcomes).map(|(reading, outcome)| (reading, *outcome, weight)));
        }
        Ok(found)
    }

    /// Scale and offset of the log-odds, and what mean tokens are over those that the logarithm predicts.
    fn calibrate(&mut self, tasks: &[&HeadTask], seed: u64) -> Result<(), PolicyError> {
        let readings = self.readings(tasks, seed)?;
        let rows: Vec<(f64, f64, f64)> =
            readings.iter().map(|(it, out, weight)| (it.logit, out.success, *weight)).collect();
        let [scale, offset] = platt(&rows);
        self.about.calibration = [scale, offset];
        let [mean, spread] = self.about.cost;
        let (mut real, mut said, mut total, mut off, mut entropy, mut right) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
        for (reading, outcome, weight) in &readings {
            let predicted = (mean + spread * reading.cost).min(MOST_LOG_TOKENS);
            real += weight * outcome.tokens;
            said += weight * predicted.exp();
            total += weight;
            off += weight * (predicted - log(outcome.tokens)).powi(2);
            entropy += weight * cross_entropy(logistic(scale * reading.logit + offset), outcome.success);
            right += weight * outcome.success;
        }
        let total = f64::max(total, 1e-12);
        self.about.smear = if said > 0.0 && real > 0.0 { real / said } else { 1.0 };
        let share = right / total;
        let mean_entropy =
            readings.iter().map(|(_, out, weight)| weight * cross_entropy(share, out.success)).sum::<f64>();
        let report = &mut self.about.report;
        (report.log_loss, report.log_loss_of_mean) = (entropy / total, mean_entropy / total);
        report.cost_error = off / total;
        Ok(())
    }

    /// The covariance of the last layer's weights, by the curvature of the loss.
    fn curvature(&self, tasks: &[&HeadTask], seed: u64) -> Result<Vec<f32>, PolicyError> {
        let some = &tasks[..tasks.len().min(CURVATURE_TASKS)];
        let more = tasks.len() as f64 / some.len().max(1) as f64;
        let rows: Vec<(Vec<f64>, f64)> = self
            .readings(some, seed)?
            .into_iter()
            .map(|(reading, _, weight)| {
                let p = self.probability(reading.logit);
                (with_one(&reading.state), more * weight * p * (1.0 - p))
            })
            .collect();
        Ok(covariance(self.model.config().hidden + 1, &rows))
    }

    fn probability(&self, logit: f64) -> f64 {
        let [scale, offset] = self.about.calibration;
        logistic(scale * logit + offset)
    }

    fn worth(&self, reading: &ValueReading) -> HeadEstimate {
        let success = self.probability(reading.logit);
        let state = with_one(&reading.state);
        let variance = variance(&self.about.covariance, &state);
        let error = success * (1.0 - success) * self.about.calibration[0].abs() * variance.sqrt();
        let [mean, spread] = self.about.cost;
        let tokens = (mean + spread * reading.cost).min(MOST_LOG_TOKENS).exp() * self.about.smear;
        HeadEstimate { success, error, tokens }
    }

    /// What the team that ends behind each piece of each text is worth for a task.
    ///
    /// # Errors
    /// A text is too long for the model.
    pub fn estimates(&self, prompt: &[u32], texts: &[Vec<String>]) -> Result<Vec<Vec<HeadEstimate>>, PolicyError> {
        let coded: Vec<ValueText> = texts.iter().map(|pieces| self.coded(pieces)).collect();
        let readings = self.model.read(prompt, &coded)?;
        Ok(readings.iter().map(|of_text| of_text.iter().map(|reading| self.worth(reading)).collect()).collect())
    }

    /// The place of the team with the highest reward under a price of 1,000 tokens, the first of equals, with its worth. `None`: there is
    /// no team.
    ///
    /// # Errors
    /// As [`Self::estimates`].
    pub fn choose(
        &self,
        prompt: &[u32],
        teams: &[String],
        price: f64,
    ) -> Result<Option<(usize, HeadEstimate)>, PolicyError> {
        let texts: Vec<Vec<String>> = teams.iter().map(|team| vec![team.clone()]).collect();
        let worths: Vec<HeadEstimate> = self.estimates(prompt, &texts)?.into_iter().flatten().collect();
        // `max_by` takes the last of equals.
        let best = worths.into_iter().enumerate().rev().max_by(|a, b| a.1.reward(price).total_cmp(&b.1.reward(price)));
        Ok(best)
    }

    /// Writes model and head into a folder, with checksums.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), PolicyError> {
        let at = |source: std::io::Error| PolicyError::File { path: folder.to_owned(), source };
        self.model.save(folder)?;
        let text = serde_json::to_string(&self.about).map_err(|error| at(error.into()))?;
        std::fs::write(folder.join(FILE), text).map_err(at)?;
        sums::write(folder).map_err(at)
    }

    /// Reads what [`Self::save`] wrote.
    ///
    /// # Errors
    /// A file is missing or damaged, or of another version.
    pub fn load(folder: &Path, language: Arc<Language>) -> Result<TeamHead, PolicyError> {
        let path = folder.join(FILE);
        let malformed = |fact: String| PolicyError::Malformed { path: path.clone(), fact };
        let bytes = std::fs::metadata(&path).map_err(|source| PolicyError::File { path: path.clone(), source })?.len();
        if bytes > MOST_BYTES {
            return Err(malformed(format!("expected at most {MOST_BYTES} bytes, found {bytes}")));
        }
        if let Some(fact) = sums::damage(folder) {
            return Err(malformed(format!("the folder of the head is damaged: {fact}")));
        }
        let text = std::fs::read(&path).map_err(|source| PolicyError::File { path: path.clone(), source })?;
        let about: About =
            serde_json::from_slice(&text).map_err(|error| malformed(format!("expected a head: {error}")))?;
        if about.format != FORMAT || about.version != VERSION {
            let found = format!("`{}` version {}", about.format, about.version);
            return Err(malformed(format!("expected `{FORMAT}` version {VERSION}, found {found}")));
        }
        let head = TeamHead::new(ValueModel::load(folder, Learning::Nothing)?, language);
        let (expected, found) = (head.about.covariance.len(), about.covariance.len());
        if expected != found {
            return Err(malformed(format!("covariance: expected {expected} numbers, found {found}")));
        }
        let finite = about.cost.iter().chain(&about.calibration).all(|it| it.is_finite());
        let covariance_is_finite = about.covariance.iter().all(|it| it.is_finite());
        if !about.fitted.is_sorted() {
            return Err(malformed("fitted: expected hashes in order".to_owned()));
        }
        let positive = about.cost[1] > 0.0 && about.smear > 0.0 && about.smear.is_finite();
        if !(finite && covariance_is_finite && positive) {
            return Err(malformed("expected finite numbers, and a spread and a smear above 0".to_owned()));
        }
        Ok(TeamHead { about, ..head })
    }
}

fn fingerprint(prompt: &[u32]) -> u32 {
    // The lower half of the hash.
    (fnv1a(prompt.iter().copied()) & u64::from(u32::MAX)) as u32
}

fn log(tokens: f64) -> f64 {
    tokens.max(1.0).ln()
}

#[cfg(test)]
mod tests;
