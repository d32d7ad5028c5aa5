//! A world against the record it was fitted to: accuracy overall and in thirds of difficulty, joint successes, revision.

mod real;

pub use real::check_real;

use crate::fit::{abilities, conditional, left_after_misses, mean, middle_share, support, thirds};
use crate::outcomes::{self, Debate, Observed, OutcomesError};
use crate::preset::{Fitted, LEVELS, Preset};
use crate::sim::World;
use crate::skill::TaskFamily;
use lemon_num::{logistic, logit};
use lemon_task::{SetName, Source, load};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// How a world compares to its record.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// Every figure compared.
    pub figures: Vec<Figure>,
}

/// One figure of the record and of the world.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    pub set: &'static str,
    /// What is compared: `accuracy`, `accuracy, easiest third`, `large right where small is wrong`, …
    pub what: String,
    /// The capacity, for accuracies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<&'static str>,
    /// On record.
    pub record: f64,
    /// In the world: the mean over its draws.
    pub world: f64,
    /// How far they may be apart; `None` where too little is on record to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// Items or cases behind the record.
    pub cases: usize,
    /// The standard error of the record, where it matters: no world can be expected to come closer than that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
}

impl Figure {
    /// Whether the world keeps within the bound.
    pub fn holds(&self) -> bool {
        self.bound.is_none_or(|bound| (self.world - self.record).abs() <= bound)
    }

    /// Whether it keeps within the bound, or misses it by no more than the record's own error allows: two standard errors.
    pub fn is_compatible(&self) -> bool {
        let slack = 2.0 * self.error.unwrap_or(0.0);
        self.bound.is_none_or(|bound| (self.world - self.record).abs() <= bound + slack)
    }
}

impl Check {
    /// Whether every figure keeps within its bound.
    pub fn holds(&self) -> bool {
        self.figures.iter().all(Figure::holds)
    }
}

/// Compares a world with the record under `data/outcomes`.
///
/// # Errors
/// The record or the tasks it is about cannot be read.
pub fn check(fitted: &Fitted, data: &Path) -> Result<Check, OutcomesError> {
    let mut figures = Vec::new();
    // By set: the mean probability of a right answer where three have just missed.
    let mut left = Vec::new();
    let records = [
        (SetName::Gsm8k, outcomes::gsm8k(data)?),
        (SetName::Mmlu, outcomes::mmlu(data)?),
        (SetName::HumanEval, outcomes::humaneval(data)?),
    ];
    for (set, record) in records {
        let items = load(&Source::Folder(data.to_owned()), set, "test")?.items;
        let world = World::with_figures(fitted.clone(), Preset::Calibrated, &items);
        // Too few programs are on record for thirds to mean much.
        let bounds = if set == SetName::HumanEval { [None; 3] } else { [Some(0.02), Some(0.02), Some(0.04)] };
        compare(set.as_str(), &world, &record, bounds, &mut figures);
        let solo =
            |level: usize| record.iter().filter_map(|item| world.solo(&item.question, level)).collect::<Vec<_>>();
        left.push(mean((0..LEVELS.len()).map(|level| left_after_misses(solo(level).into_iter()))));
    }
    let debates = outcomes::debates(data)?;
    revision("gsm8k", "gsm", fitted, (TaskFamily::Reckoning, left[0]), &debates, &mut figures);
    revision("mmlu", "mmlu", fitted, (TaskFamily::Knowing, left[1]), &debates, &mut figures);
    Ok(Check { figures })
}

/// Bounds: overall, thirds, joint.
fn compare(
    set: &'static str,
    world: &World,
    record: &[Observed],
    [overall, third, joint]: [Option<f64>; 3],
    figures: &mut Vec<Figure>,
) {
    let items: Vec<(&Observed, f64)> =
        record.iter().filter_map(|item| Some((item, world.difficulty(&item.question)?))).collect();
    let difficulty: Vec<f64> = items.iter().map(|(_, difficulty)| *difficulty).collect();
    let made = |at: usize, level: usize| world.solo(&items[at].0.question, level).unwrap_or(0.0);
    let seen = |at: usize, level: usize| items[at].0.share(level).unwrap_or(0.0);
    for (level, name) in LEVELS.into_iter().enumerate() {
        let mut figure = |what: &str, among: &[usize], bound| {
            figures.push(Figure {
                set,
                what: what.to_owned(),
                level: Some(name),
                record: mean(among.iter().map(|at| seen(*at, level))),
                world: mean(among.iter().map(|at| made(*at, level))),
                bound,
                cases: among.len(),
                error: None,
            });
        };
        figure("accuracy", &(0..items.len()).collect::<Vec<_>>(), overall);
        let names = ["accuracy, easiest third", "accuracy, middle third", "accuracy, hardest third"];
        names.into_iter().zip(thirds(&difficulty)).for_each(|(name, among)| figure(name, &among, third));
    }
    for (a, b) in [(0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)] {
        figures.push(Figure {
            set,
            what: format!("{} right where {} is wrong", LEVELS[b], LEVELS[a]),
            level: None,
            record: conditional((0..items.len()).map(|at| (seen(at, a), seen(at, b)))),
            world: conditional((0..items.len()).map(|at| (made(at, a), made(at, b)))),
            bound: joint,
            cases: items.len(),
            error: None,
        });
    }
}

/// The cells of the debate record, pooled over models as they are there.
fn revision(
    set: &'static str,
    dataset: &str,
    fitted: &Fitted,
    (family, left): (TaskFamily, f64),
    debates: &[Debate],
    figures: &mut Vec<Figure>,
) {
    let abilities = abilities(debates);
    let revision = fitted.family(family).revision;
    let mut cells: BTreeMap<(u8, String), (f64, f64, f64)> = BTreeMap::new();
    for debate in debates.iter().filter(|debate| debate.dataset == dataset) {
        let key = (debate.dataset.clone(), debate.model.clone(), debate.n_agents);
        let (Some(share), Some(ability)) = (middle_share(&debate.share_of_peers_correct), abilities.get(&key)) else {
            continue;
        };
        let own = f64::from(debate.own_round1_correct);
        let support = support(share, f64::from(debate.n_agents.saturating_sub(1)));
        let none_right = own == 0.0 && debate.share_of_peers_correct == "<1/3";
        let chance = match none_right {
            true => revision.second_look * left,
            false => logistic(revision.log_odds(own, support, *ability)),
        };
        let cell = cells.entry((debate.own_round1_correct, debate.share_of_peers_correct.clone())).or_default();
        *cell = (cell.0 + debate.cases, cell.1 + debate.round2_correct, cell.2 + debate.cases * chance);
    }
    for ((own, share), (cases, right, expected)) in cells {
        let own = if own == 1 { "right" } else { "wrong" };
        let p = (right / cases).clamp(0.02, 0.98);
        figures.push(Figure {
            set,
            what: format!("right after a debate, {own} before, share of peers right {share}"),
            level: None,
            record: right / cases,
            world: expected / cases,
            // The record's own sampling error, twice, and a little for the form of the curve.
            bound: Some(0.03 + 2.0 * (p * (1.0 - p) / cases).sqrt()),
            cases: cases as usize,
            error: None,
        });
    }
}

impl crate::preset::Revision {
    /// The log-odds of being right after reading.
    pub fn log_odds(&self, own_right: f64, support: f64, ability: f64) -> f64 {
        let crossed = self.own_support * own_right * support;
        self.constant + self.own * own_right + self.support * support + crossed + self.ability * ability
    }
}

/// The log-odds of a capacity's accuracy on record.
pub(crate) fn ability(accuracy: f64) -> f64 {
    logit(accuracy.clamp(0.03, 0.97))
}
