//! The report of a study: tables, figures, and the runs behind them as CSV.

mod csv;
mod findings;
mod tables;
#[cfg(test)]
mod tests;

use super::compare::{Against, Comparison, compare};
use super::figures::{curves, economy, forest, grid_of_arms, grid_of_axes, map, stops};
use super::regime::axes;
use super::row::{Stamp, StudyRow};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The reference arms, where a study has them: plain GRPO with shared noise and without; the full method, to measure its parts; and
/// the rules that a trained stop decision is compared with. The best fixed teams show the regret.
pub const REFERENCES: [&str; 8] = [PLAIN[0], PLAIN[1], FULL, ONE_AGENT, FIXED_TEAM, "never", "random", "always"];

/// The arms that train nothing.
const ONE_AGENT: &str = "one-agent";
const FIXED_TEAM: &str = "fixed-team";

/// The arms without counterfactuals.
const PLAIN: [&str; 2] = ["plain-shared", "plain"];

/// The arm whose credit is shown first.
const FULL: &str = "full";

/// The study of stopping, which has a figure of its own.
const STOP: &str = "stop";

/// Up to so many regimes each has figures of its own; beyond, there is the map.
const FEW_REGIMES: usize = 4;

/// Lines that a reader can follow.
const MOST_CURVES: usize = 6;

/// Whether rows of different builds or devices may stand in one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MixedRows {
    /// They may not: the difference could be that of the builds.
    Refuse,
    /// They may.
    Allow,
}

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file cannot be written.
    #[error(transparent)]
    File(#[from] io::Error),
    /// Rows of one study differ in what they were made with.
    #[error("expected rows of one {what}, got {}", found.join(", "))]
    Mixed {
        /// What they differ in.
        what: &'static str,
        /// The values.
        found: Vec<String>,
    },
}

/// Writes `tables.md`, `rows.csv` and the figures that `tables.md` shows into a folder, and says what it wrote. `command` is
/// what makes them, for those who want to make them again. The same rows give the same bytes.
///
/// # Errors
/// A file cannot be written, or rows differ in build or device and `pool` does not allow that.
pub fn write(folder: &Path, rows: &[StudyRow], command: &str, pool: MixedRows) -> Result<Vec<PathBuf>, ReportError> {
    if pool == MixedRows::Refuse {
        check_stamps(rows)?;
    }
    fs::create_dir_all(folder)?;
    let mut comparisons = compare(rows, &REFERENCES);
    // Where only plain arms stand beside the full method, it was compared with them from their side.
    let says_more = |against: &Against| {
        against.reference != FULL
            || against.arms.iter().any(|arm_difference| !PLAIN.contains(&arm_difference.arm.as_str()))
    };
    comparisons.iter_mut().for_each(|comparison| comparison.against.retain(says_more));
    let figures = Figures::new(&comparisons);
    let mut files = vec![
        ("tables.md".to_owned(), tables::tables(&comparisons, &figures, rows.len(), command)),
        ("rows.csv".to_owned(), csv::csv(rows)),
    ];
    files.extend(figures.all.into_iter().map(|figure| (figure.file, figure.svg)));
    let mut written = Vec::with_capacity(files.len());
    for (name, content) in files {
        let path = folder.join(name);
        fs::write(&path, content)?;
        written.push(path);
    }
    Ok(written)
}

/// A part of a stamp that rows must share.
type NamedPart = (&'static str, fn(&Stamp) -> &String);

/// Whether all rows of each study were made by one build on one kind of device. Rows without a stamp are of an unknown one.
fn check_stamps(rows: &[StudyRow]) -> Result<(), ReportError> {
    let of: [NamedPart; 2] = [("commit", |stamp| &stamp.commit), ("device", |stamp| &stamp.device)];
    for study in rows.iter().map(|row| &row.study).collect::<BTreeSet<_>>() {
        for (what, value) in of {
            let own = rows.iter().filter(|row| row.study == *study);
            let values = own.map(|row| row.stamp.as_ref().map_or("unknown", |stamp| value(stamp).as_str()));
            let found: BTreeSet<&str> = values.collect();
            if found.len() > 1 {
                return Err(ReportError::Mixed { what, found: found.into_iter().map(str::to_owned).collect() });
            }
        }
    }
    Ok(())
}

/// The figures of all studies.
struct Figures {
    all: Vec<Figure>,
}

/// A figure and the place in the tables that it belongs to.
struct Figure {
    study: String,
    /// `None`: it shows all regimes of the study.
    regime: Option<String>,
    /// What it shows, for those who do not see it.
    about: String,
    file: String,
    svg: String,
}

impl Figures {
    fn new(comparisons: &[Comparison]) -> Figures {
        let mut figures = Figures { all: Vec::new() };
        for regimes in comparisons.chunk_by(|left, right| left.study == right.study) {
            let regimes: Vec<&Comparison> = regimes.iter().collect();
            figures.draw(&regimes);
        }
        figures
    }

    fn of<'a>(&'a self, study: &'a str, regime: Option<&'a str>) -> impl Iterator<Item = &'a Figure> {
        self.all.iter().filter(move |figure| figure.study == study && figure.regime.as_deref() == regime)
    }

    /// Draws what one study needs.
    fn draw(&mut self, regimes: &[&Comparison]) {
        let Some(study) = regimes.first().map(|comparison| comparison.study.as_str()) else { return };
        if study == STOP {
            self.add(study, None, "review", "Reviews, reward, success and tokens by difficulty", stops(regimes));
            return;
        }
        if regimes.len() > 1 {
            self.draw_maps(study, regimes);
        }
        if regimes.len() <= FEW_REGIMES {
            regimes.iter().for_each(|comparison| self.draw_regime(comparison));
        }
    }

    fn draw_maps(&mut self, study: &str, regimes: &[&Comparison]) {
        for reference in map_references(regimes) {
            let about = format!("Differences from {reference} by regime");
            self.add(study, None, &format!("regimes-{reference}"), &about, map(&grid_of_arms(regimes, reference)));
            let has_full = regimes.iter().any(|comparison| comparison.arm(FULL).is_some());
            let Some((down, across)) = two_axes(regimes).filter(|_| has_full) else { continue };
            let grid = grid_of_axes(regimes, reference, FULL, &down, &across);
            let about = format!("Differences of {FULL} from {reference} by {down} and {across}");
            self.add(study, None, &format!("axes-{reference}"), &about, map(&grid));
        }
    }

    fn draw_regime(&mut self, comparison: &Comparison) {
        let (study, regime) = (comparison.study.as_str(), Some(comparison.regime.as_str()));
        let chosen = chosen_curves(comparison);
        if !chosen.is_empty() {
            self.add(study, regime, "curves", "Reward against worker tokens", curves(comparison, &chosen));
        }
        for against in comparison.against.iter().filter(|against| !against.arms.is_empty()) {
            let reference = &against.reference;
            let about = format!("Differences in reward from {reference}");
            self.add(study, regime, &format!("forest-{reference}"), &about, forest(comparison, reference));
        }
        if let Some(arm) = credited(comparison) {
            self.add(study, regime, "economy", "What counterfactuals told and cost", economy(comparison, arm));
        }
    }

    /// Adds a figure under a name that is safe in a file system and that no other has.
    fn add(&mut self, study: &str, regime: Option<&str>, kind: &str, about: &str, svg: String) {
        let parts = [study, kind, regime.unwrap_or_default()].map(slug);
        let stem = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
        let names =
            (1..).map(|number| if number == 1 { format!("{stem}.svg") } else { format!("{stem}-{number}.svg") });
        let is_free = |name: &String| self.all.iter().all(|figure| figure.file != *name);
        // There are fewer figures than numbers.
        let Some(file) = names.into_iter().find(is_free) else { return };
        let (study, regime) = (study.to_owned(), regime.map(str::to_owned));
        self.all.push(Figure { study, regime, about: about.to_owned(), file, svg });
    }
}

/// The references of a map. What the full method is compared with, it is not compared with again from the other side.
fn map_references<'a>(regimes: &'a [&Comparison]) -> impl Iterator<Item = &'static str> + 'a {
    let has_others = |comparison: &&Comparison, reference: &str| {
        comparison.against(reference).is_some_and(|against| !against.arms.is_empty())
    };
    let references = REFERENCES.into_iter().filter(|reference| *reference != FULL);
    references.filter(move |reference| regimes.iter().any(|comparison| has_others(comparison, reference)))
}

/// The arm whose credit is shown: `full`, or the first that had any.
fn credited(comparison: &Comparison) -> Option<&str> {
    let arms = || comparison.arms.iter().filter(|arm| !arm.families.is_empty()).map(|arm| arm.arm.as_str());
    arms().find(|arm| *arm == FULL).or_else(|| arms().next())
}

/// The arms whose curves are shown: those that differ in more than a part that was left out, then the rest.
fn chosen_curves(comparison: &Comparison) -> Vec<&str> {
    let arms = comparison.arms.iter().filter(|arm| !arm.curve.is_empty()).map(|arm| arm.arm.as_str());
    let (parts, whole): (Vec<&str>, Vec<&str>) = arms.partition(|arm| arm.starts_with("no-"));
    whole.into_iter().chain(parts).take(MOST_CURVES).collect()
}

/// The two axes that regimes differ in, where it is two and every regime has both.
fn two_axes(regimes: &[&Comparison]) -> Option<(String, String)> {
    let names: BTreeSet<&str> =
        regimes.iter().flat_map(|comparison| axes(&comparison.regime)).map(|(name, _)| name).collect();
    let value = |comparison: &Comparison, axis: &str| {
        axes(&comparison.regime).into_iter().find(|(name, _)| *name == axis).map(|(_, value)| value.to_owned())
    };
    let values = |axis: &str| regimes.iter().map(|comparison| value(comparison, axis)).collect::<BTreeSet<_>>();
    let varied: Vec<&str> = names.into_iter().filter(|axis| values(axis).len() > 1).collect();
    match varied.as_slice() {
        [down, across] if !values(down).contains(&None) && !values(across).contains(&None) => {
            Some(((*down).to_owned(), (*across).to_owned()))
        }
        _ => None,
    }
}

/// A name as part of a file's name: lower case letters and digits, joined by hyphens.
fn slug(name: &str) -> String {
    let words = name.split(|char: char| !char.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-").chars().take(60).collect()
}
