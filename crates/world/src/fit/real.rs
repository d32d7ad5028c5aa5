//! Fits the preset `real-1.5b` to half of the recorded items, set by set: several samples an item measure the spread of its
//! residuals within a level and between levels; readers are counted.

use super::solve::Normal;
use super::{Record, chances, mean, round};
use crate::outcomes::{Observed, OutcomesError};
use crate::preset::{FamilyFit, Fitted, LevelFit, REAL_LEVELS, ReaderFit};
use crate::recordings::{RecordedCall, RecordedItem, Recordings, is_to_fit};
use crate::skill::{TaskFamily, needs};
use lemon_exec::Form;
use lemon_exec::answer::{ballot, extract_or_all};
use lemon_task::{Item, Key, SetName, Source, grade, load};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The sets on record.
pub(crate) const SETS: [SetName; 6] =
    [SetName::Gsm8k, SetName::Svamp, SetName::MultiArith, SetName::Aqua, SetName::Mmlu, SetName::HumanEval];
/// Salts that are tried: they change the noise of single items and nothing else.
const SALTS: u64 = 2000;
/// Tokens of a program that answers a question of knowledge: none is on record.
const PROGRAM_TOKENS: f64 = 60.0;

/// A set on record: its items by question.
pub(crate) struct RecordedSet<'a> {
    pub set: SetName,
    pub items: Vec<(Item, &'a RecordedItem)>,
}

/// The recorded items of every set.
///
/// # Errors
/// A set cannot be read.
pub(crate) fn recorded_sets<'a>(
    data: &Path,
    recordings: &'a Recordings,
) -> Result<Vec<RecordedSet<'a>>, OutcomesError> {
    let mut sets = Vec::new();
    for set in SETS {
        let prefix = format!("{set}/");
        let all = recordings.items();
        let splits: BTreeSet<&str> =
            all.iter().filter_map(|(_, item)| item.name.strip_prefix(&prefix)?.split('/').next()).collect();
        let mut items: Vec<(Item, &RecordedItem)> = Vec::new();
        for split in splits {
            for item in load(&Source::Folder(data.to_owned()), set, split)?.items {
                let record = recordings.get(&item.task.question);
                let own = format!("{set}/{split}/{}", item.task.id);
                items.extend(record.filter(|record| *record.name == own).map(|record| (item, record)));
            }
        }
        sets.push(RecordedSet { set, items });
    }
    Ok(sets)
}

/// Fits everything to the half of the recorded items for which [`is_to_fit`] holds.
///
/// # Errors
/// The record or the tasks cannot be read.
pub fn fit_real(data: &Path) -> Result<Fitted, OutcomesError> {
    let names = REAL_LEVELS.map(str::to_owned);
    let recordings = Recordings::read(data, &SETS, &names)?;
    let mut fits: BTreeMap<&'static str, FamilyFit> = BTreeMap::new();
    for recorded in recorded_sets(data, &recordings)? {
        fits.insert(recorded.set.as_str(), fit_set(&recorded));
    }
    share_readers(&mut fits);
    let mut take = |set: SetName| fits.remove(set.as_str()).unwrap_or_else(|| Fitted::empty().reckoning);
    let (reckoning, knowing, coding) = (take(SetName::Gsm8k), take(SetName::Mmlu), take(SetName::HumanEval));
    let sets = fits.into_iter().map(|(name, fit)| (name.to_owned(), fit)).collect();
    Ok(Fitted { reckoning, knowing, coding, sets })
}

/// Readers that see answers alone are on record for GSM8K only; the other sets with short answers take those.
fn share_readers(fits: &mut BTreeMap<&'static str, FamilyFit>) {
    let known = fits.get(SetName::Gsm8k.as_str()).map(|fit| fit.readers.clone()).unwrap_or_default();
    let answers = known.into_iter().filter(|(name, _)| name.ends_with("/answer"));
    for (name, reader) in answers {
        for (_, fit) in fits.iter_mut().filter(|(set, _)| **set != SetName::HumanEval.as_str()) {
            fit.readers.entry(name.clone()).or_insert_with(|| reader.clone());
        }
    }
}

fn fit_set(recorded: &RecordedSet<'_>) -> FamilyFit {
    let RecordedSet { set, items } = recorded;
    let to_fit: Vec<&(Item, &RecordedItem)> = items.iter().filter(|(_, record)| is_to_fit(&record.name)).collect();
    let family = items.first().map_or(TaskFamily::Reckoning, |(item, _)| TaskFamily::of(item));
    // Programs are written the same way at every effort of the larger model: what is on record once is fitted once.
    let fitted: Vec<usize> = (0..REAL_LEVELS.len())
        .filter(|level| *set != SetName::HumanEval || matches!(REAL_LEVELS[*level], "smol" | "reasoned"))
        .filter(|level| to_fit.iter().any(|(_, record)| solo(record, *level).next().is_some()))
        .collect();
    let names = fitted.iter().map(|level| REAL_LEVELS[*level].to_owned()).collect();
    let observed = to_fit.iter().map(|(item, record)| observe(item, record, &fitted)).collect();
    let mut record = Record::with_levels(family, observed, names);
    if *set == SetName::Aqua {
        record.others = 3.0;
    }
    let difficulty = record.difficulty();
    let d: Vec<f64> = record.items.iter().map(|item| difficulty.of(&item.question)).collect();
    let (spreads, favourites) = (record.spreads(&d), record.favourites());
    let mut levels = Vec::new();
    for (at, level) in fitted.iter().enumerate() {
        let (shared, spread) = spreads[at];
        let own = (spread * spread - shared * shared).max(0.0).sqrt();
        let figures = LevelFit {
            shared: round(shared),
            own: round(own),
            favourite: round(favourites[at]),
            ..record.curve(at, &d, spread)
        };
        let calls = to_fit.iter().flat_map(|(item, record)| solo(record, *level).map(move |call| (item, call)));
        levels.push(with_lengths(figures, calls.collect()));
    }
    let revision = Fitted::shipped().family(family).revision;
    let (levels, readers) = (every_level(levels, *set), readers(&to_fit));
    let mut fit = FamilyFit { salt: 0, difficulty, revision, levels, readers };
    fit.salt = best_salt(&record, &fit, &d, items);
    fit
}

/// The calls of single agents at a level.
pub(crate) fn solo(record: &RecordedItem, level: usize) -> impl Iterator<Item = &RecordedCall> {
    let solves = |base: &String| matches!(base.as_str(), "solver" | "programmer");
    record
        .calls
        .iter()
        .filter(move |call| call.level == level && call.reads.is_empty() && call.bases.iter().any(solves))
}

fn observe(item: &Item, record: &RecordedItem, levels: &[usize]) -> Observed {
    let mut observed = Observed::with_levels(&item.task.question, item.task.subject.clone(), levels.len());
    for (at, level) in levels.iter().enumerate() {
        for call in solo(record, *level) {
            let right = call.correct.unwrap_or(false);
            observed.add(at, u32::from(right), 1);
            if !right && !call.truncated && !call.silent {
                observed.wrong[at].extend(grade(item, &extract_or_all(&call.text)).extracted);
            }
        }
    }
    observed
}

fn with_lengths(figures: LevelFit, calls: Vec<(&Item, &RecordedCall)>) -> LevelFit {
    let tokens: Vec<f64> = calls.iter().filter_map(|(_, call)| Some(call.tokens?.1.max(1) as f64)).collect();
    let logs: Vec<f64> = tokens.iter().map(|tokens| tokens.ln()).collect();
    let middle = mean(logs.iter().copied());
    let wrong = calls.iter().filter(|(_, call)| call.correct == Some(false));
    let tokens = mean(tokens.into_iter());
    LevelFit {
        tokens: round(tokens),
        characters: (4.0 * tokens).round(),
        spread: round(mean(logs.into_iter().map(|log| (log - middle).powi(2))).sqrt()),
        cut: round(mean(wrong.map(|(item, call)| f64::from(u8::from(states_nothing(item, call)))))),
        ..figures
    }
}

/// Whether a wrong reply states no answer that a vote could count with others: it was cut off, or its program printed nothing, or
/// a number that is none of the options.
fn states_nothing(item: &Item, call: &RecordedCall) -> bool {
    let names_option = match item.key() {
        Key::Choice { options, .. } if REAL_LEVELS.get(call.level) == Some(&"program") => {
            let options: Vec<(char, String)> = ('A'..='Z').zip(options.iter().cloned()).collect();
            ballot(&extract_or_all(&call.text), Form::Choice, &options).len() == 1
        }
        _ => true,
    };
    call.truncated || call.silent || !names_option
}

/// All levels: those without a record of their own take that of another.
fn every_level(found: Vec<LevelFit>, set: SetName) -> Vec<LevelFit> {
    let find = |name: &str| found.iter().find(|level| level.name == name).cloned();
    let level = |name: &&str| {
        let own = find(name);
        let named = |level: LevelFit| LevelFit { name: (*name).to_owned(), ..level };
        match set {
            SetName::HumanEval => own.or_else(|| find("reasoned").map(named)),
            // Questions of knowledge were not put to programs: they are taken to answer as briefly asked models do.
            _ => own.or_else(|| find("brief").map(|brief| LevelFit { tokens: PROGRAM_TOKENS, ..named(brief) })),
        }
    };
    let mut levels: Vec<LevelFit> = REAL_LEVELS.iter().filter_map(level).collect();
    if set == SetName::HumanEval {
        // One record serves three levels: what an item has of its own, it has at all of them.
        for level in levels.iter_mut().filter(|level| level.name != "smol") {
            (level.shared, level.own) = (round(level.shared.hypot(level.own)), 0.0);
        }
    }
    levels
}

/// By base role: how often it is right after so many right readings.
fn readers(items: &[&(Item, &RecordedItem)]) -> BTreeMap<String, ReaderFit> {
    let mut seen: BTreeMap<String, Vec<(usize, usize, bool, f64)>> = BTreeMap::new();
    for (_, record) in items {
        let exact = record
            .calls
            .iter()
            .any(|call| !call.reads.is_empty() && !call.sees_answers && call.bases.iter().any(|base| base == "critic"));
        for call in record.calls.iter().filter(|call| !call.reads.is_empty()) {
            let Some(names) = reader_names(call, exact) else { continue };
            let (right, all) = right_readings(record, call);
            let tokens = call.tokens.map_or(0.0, |(_, out)| out as f64);
            for name in names {
                seen.entry(name).or_default().push((right, all, call.correct.unwrap_or(false), tokens));
            }
        }
    }
    let fit = |cases: Vec<(usize, usize, bool, f64)>| {
        let read = cases.iter().map(|(_, all, ..)| *all).max().unwrap_or(0);
        let share = |right: bool| f64::from(u8::from(right));
        let overall = mean(cases.iter().map(|(_, _, right, _)| share(*right)));
        let at = |count: usize| {
            let here: Vec<f64> = cases.iter().filter(|(right, ..)| *right == count).map(|case| share(case.2)).collect();
            // One case of the mean besides, for cells with few.
            round((here.iter().sum::<f64>() + overall) / (here.len() as f64 + 1.0))
        };
        ReaderFit { right: (0..=read).map(at).collect(), tokens: round(mean(cases.iter().map(|case| case.3))) }
    };
    seen.into_iter().map(|(name, cases)| (name, fit(cases))).collect()
}

/// The names under which a recorded reader of the larger model's replies is kept.
pub(crate) fn reader_names(call: &RecordedCall, exact: bool) -> Option<Vec<String>> {
    let reasoned = REAL_LEVELS.len() - 1;
    if call.level != reasoned || call.reads.iter().any(|(level, _)| *level != reasoned) {
        return None;
    }
    let name = |base: &String| match (base.as_str(), call.sees_answers) {
        ("solver" | "expert" | "programmer", false) => Some(base.clone()),
        ("critic" | "judge", true) => Some(format!("{base}/answer")),
        ("critic", false) => Some(base.clone()),
        // Recorded with the prompts of the first recording, and the only record of whole replies but for programs.
        ("critic-whole", false) => (!exact).then(|| "critic".to_owned()),
        ("judge-whole", false) => Some("judge".to_owned()),
        _ => None,
    };
    let names: Vec<String> = call.bases.iter().filter_map(name).collect();
    (!names.is_empty()).then_some(names)
}

/// How many of the calls that a reader read were right, and how many there were.
pub(crate) fn right_readings(record: &RecordedItem, call: &RecordedCall) -> (usize, usize) {
    let right = |(level, sample): &&(usize, u32)| {
        solo(record, *level).any(|source| source.sample == *sample && source.correct == Some(true))
    };
    (call.reads.iter().filter(right).count(), call.reads.len())
}

/// The salt under which the world comes closest to the record on the items that are fitted to, and to what the figures predict on
/// all items: the outcomes of the other items play no part.
fn best_salt(record: &Record, fit: &FamilyFit, d: &[f64], all: &[(Item, &RecordedItem)]) -> u64 {
    let normal = Normal::new(31);
    let place = |item: &Item| {
        let knows = TaskFamily::of(item) == TaskFamily::Knowing;
        let field = knows.then(|| needs(TaskFamily::Knowing, &item.task.question, item.task.subject.as_deref()));
        (
            item.task.question.clone(),
            fit.difficulty.of(&item.task.question),
            field.and_then(|it| it.first().map(|skill| skill.name)),
        )
    };
    let places: Vec<(String, f64, Option<&'static str>)> = all.iter().map(|(item, _)| place(item)).collect();
    let expected: Vec<f64> = fit
        .levels
        .iter()
        .map(|level| {
            let spread = level.shared.hypot(level.own);
            mean(places.iter().map(|(_, d, field)| {
                let field = field.and_then(|field| level.fields.get(field)).copied().unwrap_or(0.0);
                normal.logistic(level.at(*d) + field, spread).0
            }))
        })
        .collect();
    // By level: what was seen, where it was recorded.
    let seen = |level: &LevelFit| {
        let at = record.names.iter().position(|name| *name == level.name)?;
        Some(mean(record.items.iter().filter_map(|item| item.share(at))))
    };
    let seen: Vec<Option<f64>> = fit.levels.iter().map(seen).collect();
    let misfit = |salt: u64| {
        let here = record.chances(fit, salt, d);
        let everywhere: Vec<Vec<f64>> =
            places.iter().map(|(question, d, field)| chances(fit, salt, question, *d, *field)).collect();
        let of = |level: usize| {
            let near = seen[level].map_or(0.0, |seen| mean(here.iter().map(|made| made[level])) - seen);
            let far = mean(everywhere.iter().map(|made| made[level])) - expected[level];
            near.abs().max(far.abs())
        };
        (0..fit.levels.len()).map(of).fold(0.0, f64::max)
    };
    let better = |(best, found): (f64, u64), salt: u64| {
        let misfit = misfit(salt);
        if misfit < best { (misfit, salt) } else { (best, found) }
    };
    (0..SALTS).fold((f64::INFINITY, 0), better).1
}
