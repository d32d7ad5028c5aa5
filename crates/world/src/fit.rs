//! Fits a world to recorded outcomes. In order: difficulty from features, each capacity's curve, the spread of residuals,
//! favourite wrong answers, revision, and the salt under which the recorded items' residuals come out closest.

mod real;
mod solve;

pub use real::fit_real;
pub(crate) use real::{RecordedSet, SETS, reader_names, recorded_sets, solo};

use crate::draws;
use crate::features::{COUNT, Difficulty, features};
use crate::outcomes::{self, Debate, Observed, OutcomesError};
use crate::preset::{FamilyFit, Fitted, LEVELS, LevelFit, Revision};
use crate::skill::{TaskFamily, needs};
use lemon_num::{logistic, logit, mean_of};
use lemon_task::{SetName, Source, load};
use solve::{Equation, Normal, minimise, regress};
use std::collections::BTreeMap;
use std::path::Path;

/// Accuracies over all items, as published with the record, which itself holds every second item: GSM8K, MMLU.
const ALL_GSM8K: [f64; 3] = [0.466, 0.796, 0.860];
const ALL_MMLU: [f64; 3] = [0.350, 0.550, 0.645];
/// Knowledge is on record as bare letters; replies with their reasons are taken to be this long.
const KNOWING_CHARACTERS: [f64; 3] = [380.0, 420.0, 450.0];
/// Programs are on record as passed or not.
const CODING_CHARACTERS: [f64; 3] = [700.0, 750.0, 800.0];
/// Log-scale spread of lengths where none is on record.
const SPREAD: f64 = 0.35;
/// The widest spread of residuals looked at, in log-odds: beyond it, items are as good as certain.
const WIDEST: f64 = 6.0;
/// The spread of a capacity's own residuals where one sample an item cannot tell: about the least of the other record.
const OWN: f64 = 1.0;

/// Fits everything to the record under `data/outcomes`, with the tasks it is about beside it.
///
/// # Errors
/// The record or the tasks cannot be read.
pub fn fit(data: &Path) -> Result<Fitted, OutcomesError> {
    let debates = outcomes::debates(data)?;
    let questions = |set| -> Result<Vec<String>, OutcomesError> {
        let set = load(&Source::Folder(data.to_owned()), set, "test")?;
        Ok(set.items.into_iter().map(|item| item.task.question).collect())
    };
    let mut knowing = Record::new(TaskFamily::Knowing, outcomes::mmlu(data)?);
    knowing.all = Some((questions(SetName::Mmlu)?, ALL_MMLU.to_vec()));
    let knowing = knowing.fit(60, &debates, "mmlu");
    let mut reckoning = Record::new(TaskFamily::Reckoning, outcomes::gsm8k(data)?);
    reckoning.all = Some((questions(SetName::Gsm8k)?, ALL_GSM8K.to_vec()));
    let mut reckoning = reckoning.fit(250_000, &debates, "gsm");
    measure_lengths(&mut reckoning, data)?;
    let coding = Record::new(TaskFamily::Coding, outcomes::humaneval(data)?).fit(400, &debates, "gsm");
    // No debate about programs is on record.
    let coding = FamilyFit { revision: reckoning.revision, ..coding };
    Ok(Fitted { reckoning, knowing, coding, sets: BTreeMap::new() })
}

/// The record of one kind of task.
pub(crate) struct Record {
    family: TaskFamily,
    /// The capacities, weakest first.
    names: Vec<String>,
    pub(crate) items: Vec<Observed>,
    fields: Vec<Option<&'static str>>,
    /// Wrong answers that an item has beside the favourite.
    pub(crate) others: f64,
    /// All questions of the set with their accuracies, where more than the record is known.
    all: Option<(Vec<String>, Vec<f64>)>,
}

impl Record {
    fn new(family: TaskFamily, items: Vec<Observed>) -> Self {
        Record::with_levels(family, items, LEVELS.map(str::to_owned).to_vec())
    }

    pub(crate) fn with_levels(family: TaskFamily, items: Vec<Observed>, names: Vec<String>) -> Self {
        let field = |item: &Observed| {
            (family == TaskFamily::Knowing)
                .then(|| needs(family, &item.question, item.subject.as_deref()).first().map(|skill| skill.name))
                .flatten()
        };
        let fields = items.iter().map(field).collect();
        let others = if family == TaskFamily::Knowing { 2.0 } else { 7.0 };
        Record { family, names, items, fields, others, all: None }
    }

    fn fit(&self, salts: u64, debates: &[Debate], dataset: &str) -> FamilyFit {
        let difficulty = self.difficulty();
        let d: Vec<f64> = self.items.iter().map(|item| difficulty.of(&item.question)).collect();
        let spreads = self.spreads(&d);
        let favourites = self.favourites();
        let levels = (0..self.names.len()).map(|at| {
            let (shared, spread) = spreads[at];
            let own = (spread * spread - shared * shared).max(0.0).sqrt();
            let curve = self.curve(at, &d, spread);
            LevelFit { shared: round(shared), own: round(own), favourite: round(favourites[at]), ..curve }
        });
        let revision = revision(debates, dataset);
        let readers = BTreeMap::new();
        let mut fit = FamilyFit { salt: 0, difficulty, revision, levels: levels.collect(), readers };
        fit.salt = self.best_salt(&fit, &d, salts);
        let made: Vec<Vec<f64>> = self.chances(&fit, fit.salt, &d);
        let left = mean((0..self.names.len()).map(|level| left_after_misses(made.iter().map(|made| made[level]))));
        fit.revision.second_look = round((right_after_all_wrong(debates, dataset) / left.max(1e-6)).min(1.0));
        fit
    }

    /// Difficulty: what the features take off the log-odds, all capacities together, capacities and fields apart.
    fn difficulty(&self) -> Difficulty {
        let rows: Vec<[f64; COUNT]> = self.items.iter().map(|item| features(&item.question)).collect();
        let column = |at: usize| rows.iter().map(move |row| row[at]);
        let means: Vec<f64> = (0..COUNT).map(|at| mean(column(at))).collect();
        // A feature that no item has, or every item, must not divide by what rounding leaves of 0.
        let deviation = |at: usize| mean(column(at).map(|x| (x - means[at]).powi(2))).sqrt().max(1e-3);
        let deviations: Vec<f64> = (0..COUNT).map(deviation).collect();
        let fields = self.field_names();
        let mut equations = Vec::new();
        for ((item, row), field) in self.items.iter().zip(&rows).zip(&self.fields) {
            for level in 0..self.names.len() {
                let Some(target) = item.share(level) else { continue };
                let mut equation = vec![0.0; self.names.len()];
                equation[level] = 1.0;
                equation.extend(fields.iter().map(|name| f64::from(u8::from(Some(*name) == *field))));
                let standard = |at: usize| ((row[at] - means[at]) / deviations[at]).clamp(-3.0, 3.0);
                equation.extend((0..COUNT).map(|at| -standard(at)));
                equations.push(Equation { row: equation, target, weight: 1.0 });
            }
        }
        let solution = regress(&equations, 0.0, 2.0, self.names.len());
        let weight = solution[self.names.len() + fields.len()..].iter().map(|w| round(*w)).collect();
        let rounded = |list: Vec<f64>| list.into_iter().map(|x| (x * 1e4).round() / 1e4).collect();
        Difficulty { mean: rounded(means), deviation: rounded(deviations), weight }
    }

    /// A capacity's log-odds as a curve of difficulty, given the spread of the residuals around it.
    fn curve(&self, level: usize, d: &[f64], spread: f64) -> LevelFit {
        let fields = self.field_names();
        let equation = |((item, d), field): ((&Observed, &f64), &Option<&'static str>)| {
            let mut row = vec![1.0, -d, -d.max(0.0)];
            row.extend(fields.iter().map(|name| f64::from(u8::from(Some(*name) == *field))));
            Some(Equation { row, target: item.share(level)?, weight: 1.0 })
        };
        let equations: Vec<Equation> = self.items.iter().zip(d).zip(&self.fields).filter_map(equation).collect();
        let solution = regress(&equations, spread, 1.0, 3);
        let (characters, chars_spread) = match self.family {
            TaskFamily::Coding => (CODING_CHARACTERS[level.min(2)], SPREAD),
            _ => (KNOWING_CHARACTERS[level.min(2)], SPREAD),
        };
        LevelFit {
            name: self.names[level].clone(),
            accuracy: round(mean(self.items.iter().filter_map(|item| item.share(level)))),
            level: round(solution[0]),
            slope: round(solution[1]),
            bend: round(solution[2]),
            fields: fields.iter().zip(&solution[3..]).map(|(name, x)| ((*name).to_owned(), round(*x))).collect(),
            characters,
            spread: chars_spread,
            ..LevelFit::default()
        }
    }

    /// By capacity: the spread of the residuals that all capacities share, and of all residuals. Two samples of one capacity that are
    /// both right measure the second; samples of two capacities, the first. One sample an item says nothing about what a capacity
    /// has of its own, which then is [`OWN`].
    fn spreads(&self, d: &[f64]) -> Vec<(f64, f64)> {
        let whole: Vec<Option<f64>> = (0..self.names.len()).map(|level| self.whole_spread(level, d)).collect();
        let mut shared: Vec<f64> = whole.iter().map(|spread| 0.7 * spread.unwrap_or(2.0)).collect();
        for _ in 0..4 {
            for level in 0..self.names.len() {
                shared[level] = minimise(0.0, whole[level].unwrap_or(WIDEST), |candidate| {
                    let mut trial = shared.clone();
                    trial[level] = candidate;
                    let spreads: Vec<f64> =
                        trial.iter().zip(&whole).map(|(s, whole)| whole.unwrap_or(s.hypot(OWN))).collect();
                    // Single samples measure it poorly: pulled gently to a middling spread.
                    let pull = if whole[level].is_some() { 0.0 } else { 5e-6 * (candidate - 2.0).powi(2) };
                    self.joint_misfit(d, &trial, &spreads, level) + pull
                });
            }
        }
        shared.iter().zip(whole).map(|(shared, whole)| (*shared, whole.unwrap_or(shared.hypot(OWN)))).collect()
    }

    fn whole_spread(&self, level: usize, d: &[f64]) -> Option<f64> {
        let pairs = |item: &Observed| {
            let (right, samples) = (f64::from(item.levels[level].right), f64::from(item.levels[level].samples));
            (samples > 1.0).then(|| right * (right - 1.0) / (samples * (samples - 1.0)))
        };
        let seen: Vec<f64> = self.items.iter().filter_map(pairs).collect();
        if seen.is_empty() {
            return None;
        }
        let normal = Normal::new(31);
        let observed = mean(seen.into_iter());
        Some(minimise(0.0, WIDEST, |spread| {
            let curve = self.curve(level, d, spread);
            let both = self.bare_odds(&curve, d).map(|x| normal.mean(|z| logistic(x + spread * z).powi(2)));
            (mean(both) - observed).powi(2)
        }))
    }

    /// How far the joint successes of this capacity with the others are from the record.
    fn joint_misfit(&self, d: &[f64], shared: &[f64], spreads: &[f64], level: usize) -> f64 {
        let normal = Normal::new(15);
        let odds = |at: usize| -> Vec<f64> { self.bare_odds(&self.curve(at, d, spreads[at]), d).collect() };
        let own = odds(level);
        // The mean of a logistic over a normal residual, to a good approximation.
        let smooth = |x: f64, at: usize| {
            let own = (spreads[at].powi(2) - shared[at].powi(2)).max(0.0);
            logistic(x / (1.0 + std::f64::consts::PI * own / 8.0).sqrt())
        };
        let misfit = |other: usize| {
            let observed = self.items.iter().filter_map(|item| Some(item.share(level)? * item.share(other)?));
            let both = own.iter().zip(odds(other)).map(|(a, b)| {
                normal.mean(|z| smooth(a + shared[level] * z, level) * smooth(b + shared[other] * z, other))
            });
            (mean(both) - mean(observed)).powi(2)
        };
        (0..self.names.len()).filter(|other| *other != level).map(misfit).sum()
    }

    /// Log-odds without residuals.
    fn bare_odds<'a>(&'a self, curve: &'a LevelFit, d: &'a [f64]) -> impl Iterator<Item = f64> + 'a {
        d.iter().zip(&self.fields).map(|(d, field)| {
            let field = field.and_then(|field| curve.fields.get(field)).copied().unwrap_or(0.0);
            curve.at(*d) + field
        })
    }

    /// How often wrong answers are the same one. With a favourite of probability f among k, two agree with probability
    /// f·f + (1 − f)²/(k − 1).
    fn favourites(&self) -> Vec<f64> {
        let others = self.others;
        let agree = |a: usize, b: usize| {
            let (mut same, mut all) = (0.0, 0.0);
            for item in &self.items {
                for (at, one) in item.wrong[a].iter().enumerate() {
                    for other in item.wrong[b].iter().enumerate().filter(|(i, _)| a != b || *i > at).map(|(_, w)| w) {
                        same += f64::from(u8::from(one == other));
                        all += 1.0;
                    }
                }
            }
            (all > 0.0).then_some(same / all)
        };
        let levels = self.names.len();
        let agreed: Vec<Vec<Option<f64>>> = (0..levels).map(|a| (0..levels).map(|b| agree(a, b)).collect()).collect();
        let mut found = vec![0.5; levels];
        for _ in 0..20 {
            for level in 0..self.names.len() {
                found[level] = minimise(1.0 / (others + 1.0), 1.0, |f| {
                    let misfit = |other: usize| {
                        let g = if other == level { f } else { found[other] };
                        Some((f * g + (1.0 - f) * (1.0 - g) / others - agreed[level][other]?).powi(2))
                    };
                    // Where one capacity was sampled often, that says it; else the capacities among each other.
                    let among = || (0..levels).filter(|other| *other != level).filter_map(misfit).sum::<f64>();
                    misfit(level).unwrap_or_else(|| among() + 0.02 * (f - 0.5).powi(2))
                });
            }
            if self.items.iter().all(|item| item.levels.first().is_some_and(|tally| tally.samples > 1)) {
                break;
            }
        }
        found
    }

    /// The salt under which the residuals of the recorded items come out closest to the record: overall, in thirds of
    /// difficulty, and jointly. It changes nothing about other items but their noise.
    fn best_salt(&self, fit: &FamilyFit, d: &[f64], salts: u64) -> u64 {
        let thirds = thirds(d);
        let all: Option<(Vec<f64>, &Vec<String>)> = self
            .all
            .as_ref()
            .map(|(questions, _)| (questions.iter().map(|question| fit.difficulty.of(question)).collect(), questions));
        let worst = |salt: u64, best: f64| -> f64 {
            let made = self.chances(fit, salt, d);
            let mut misfits = Vec::new();
            for level in 0..self.names.len() {
                for third in &thirds {
                    let seen = mean(third.iter().filter_map(|at| self.items[*at].share(level)));
                    misfits.push((mean(third.iter().map(|at| made[*at][level])) - seen) / 0.018);
                }
                for other in (0..self.names.len()).filter(|other| *other != level) {
                    let seen = conditional(self.items.iter().filter_map(|i| Some((i.share(level)?, i.share(other)?))));
                    let ours = conditional(made.iter().map(|made| (made[level], made[other])));
                    misfits.push((ours - seen) / 0.04);
                }
                let seen = mean(self.items.iter().filter_map(|item| item.share(level)));
                misfits.push((mean(made.iter().map(|made| made[level])) - seen) / 0.018);
            }
            let worst_of = |misfits: &[f64]| misfits.iter().map(|misfit| misfit.abs()).fold(0.0, f64::max);
            if worst_of(&misfits) >= best {
                return best;
            }
            // Questions of knowledge beyond the record would need their fields; there are so many that noise is small.
            if let (Some((d, questions)), Some((_, targets)), TaskFamily::Reckoning) = (&all, &self.all, self.family) {
                let made: Vec<Vec<f64>> =
                    questions.iter().zip(d).map(|(q, d)| chances(fit, salt, q, *d, None)).collect();
                for (level, target) in targets.iter().enumerate() {
                    misfits.push((mean(made.iter().map(|made| made[level])) - target) / 0.018);
                }
            }
            worst_of(&misfits)
        };
        let better = |(best, found): (f64, u64), salt: u64| {
            let misfit = worst(salt, best);
            if misfit < best { (misfit, salt) } else { (best, found) }
        };
        (0..salts).fold((f64::INFINITY, 0), better).1
    }

    /// By item and capacity: the probability of a right answer under this salt.
    fn chances(&self, fit: &FamilyFit, salt: u64, d: &[f64]) -> Vec<Vec<f64>> {
        let items = self.items.iter().zip(d).zip(&self.fields);
        items.map(|((item, d), field)| chances(fit, salt, &item.question, *d, *field)).collect()
    }

    fn field_names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.fields.iter().flatten().copied().collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// By capacity: the probability that one agent is right alone, under this salt.
fn chances(fit: &FamilyFit, salt: u64, question: &str, d: f64, field: Option<&str>) -> Vec<f64> {
    let mut draws = draws::draws(salt, &[question, "residual"]);
    let shared = draws.normal();
    let chance = |level: &LevelFit| {
        let field = field.and_then(|field| level.fields.get(field)).copied().unwrap_or(0.0);
        logistic(level.at(d) + field + level.shared * shared + level.own * draws.normal())
    };
    fit.levels.iter().map(chance).collect()
}

/// The mean probability of a right answer on items that an agent and two peers have just missed.
pub(crate) fn left_after_misses(chances: impl Iterator<Item = f64>) -> f64 {
    let (right, missed) = chances.fold((0.0, 0.0), |(right, missed), chance| {
        let miss = (1.0 - chance).powi(3);
        (right + chance * miss, missed + miss)
    });
    if missed > 0.0 { right / missed } else { 0.0 }
}

/// How often an agent was right in the second round after it and (nearly) all its peers were wrong in the first.
fn right_after_all_wrong(debates: &[Debate], dataset: &str) -> f64 {
    let cell = |d: &&Debate| d.dataset == dataset && d.own_round1_correct == 0 && d.share_of_peers_correct == "<1/3";
    let (cases, right) = debates
        .iter()
        .filter(cell)
        .fold((0.0, 0.0), |(cases, right), debate| (cases + debate.cases, right + debate.round2_correct));
    if cases > 0.0 { right / cases } else { 0.0 }
}

/// How often the second is right where the first is wrong.
pub(crate) fn conditional(pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (both, wrong) = pairs.fold((0.0, 0.0), |(both, wrong), (a, b)| (both + (1.0 - a) * b, wrong + 1.0 - a));
    if wrong > 0.0 { both / wrong } else { 0.0 }
}

/// The positions of the easiest third, the middle one and the hardest.
pub(crate) fn thirds(difficulty: &[f64]) -> [Vec<usize>; 3] {
    let mut order: Vec<usize> = (0..difficulty.len()).collect();
    order.sort_by(|a, b| difficulty[*a].total_cmp(&difficulty[*b]));
    let cut = |part: usize| order.len() * part / 3;
    [0, 1, 2].map(|part| order[cut(part)..cut(part + 1)].to_vec())
}

/// The middle of a band of shares, as far as the record tells.
pub(crate) fn middle_share(band: &str) -> Option<f64> {
    match band {
        "<1/3" => Some(0.08),
        "<2/3" => Some(0.5),
        ">=2/3" => Some(0.93),
        _ => None,
    }
}

/// Support as an agent feels it that reads this many answers of which this share is right: few weigh less than many.
pub(crate) fn support(share: f64, read: f64) -> f64 {
    (2.0 * share - 1.0) * read / (read + 1.0)
}

/// The log-odds of a debating model's accuracy, by dataset, model and size of the debate.
pub(crate) fn abilities(debates: &[Debate]) -> BTreeMap<(String, String, u32), f64> {
    let mut counts: BTreeMap<(String, String, u32), (f64, f64)> = BTreeMap::new();
    for debate in debates {
        let key = (debate.dataset.clone(), debate.model.clone(), debate.n_agents);
        let (right, all) = counts.entry(key).or_default();
        *right += debate.cases * f64::from(debate.own_round1_correct);
        *all += debate.cases;
    }
    counts.into_iter().map(|(key, (right, all))| (key, logit((right / all).clamp(0.03, 0.97)))).collect()
}

fn revision(debates: &[Debate], dataset: &str) -> Revision {
    let abilities = abilities(debates);
    let equation = |debate: &Debate| {
        let share = middle_share(&debate.share_of_peers_correct)?;
        let ability = *abilities.get(&(debate.dataset.clone(), debate.model.clone(), debate.n_agents))?;
        let own = f64::from(debate.own_round1_correct);
        let support = support(share, f64::from(debate.n_agents.saturating_sub(1)));
        let row = vec![1.0, own, support, own * support, ability];
        Some(Equation { row, target: debate.round2_correct / debate.cases, weight: debate.cases })
    };
    let equations: Vec<_> = debates.iter().filter(|d| d.dataset == dataset).filter_map(equation).collect();
    let solution: Vec<f64> = regress(&equations, 0.0, 0.05, 0).into_iter().map(round).collect();
    match solution[..] {
        [constant, own, support, own_support, ability] => {
            Revision { constant, own, support, own_support, ability, second_look: 0.0 }
        }
        _ => Revision::default(),
    }
}

/// Lengths of recorded replies: the mean, and the spread of the logarithm.
fn measure_lengths(fit: &mut FamilyFit, data: &Path) -> Result<(), OutcomesError> {
    let mut lengths: [Vec<f64>; 3] = Default::default();
    for reply in outcomes::replies(data, SetName::Gsm8k)?.into_values().flatten() {
        lengths[reply.level].push(reply.text.len().max(1) as f64);
    }
    for (level, lengths) in fit.levels.iter_mut().zip(lengths) {
        let logs: Vec<f64> = lengths.iter().map(|length| length.ln()).collect();
        let middle = mean(logs.iter().copied());
        level.characters = mean(lengths.into_iter()).round();
        level.spread = round(mean(logs.into_iter().map(|log| (log - middle).powi(2))).sqrt());
    }
    Ok(())
}

/// The mean; 0 without values.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    mean_of(values).unwrap_or(0.0)
}

/// Three decimals are more than the record can tell apart.
fn round(x: f64) -> f64 {
    (x * 1e3).round() / 1e3
}
