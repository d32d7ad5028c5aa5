//! Trainings: the list, and the page of one, whose curves grow while it runs.

use super::evaluations::{roots, told};
use super::folders::{holding, named};
use super::{NoPage, Page, fields::Fields, look};
use crate::refusal::Refusal;
use crate::state::AppState;
use axum::extract::{Path, State};
use lemon::train::metrics::{BeforeAfter, StepMetrics, Timing};
use lemon::train::page::page_of;
use lemon_view::app::{ListedTraining, Section, trainings};
use lemon_view::training::{TrainingReport, compare as side_by_side, hosted};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The files of a training.
const METRICS: &str = "metrics.jsonl";
const TIMING: &str = "timing.jsonl";
const RECIPE: &str = "recipe.toml";
const SUMMARY: &str = "summary.json";
/// The folder of a warm start, which has a record of another form: seen where the training itself has none yet.
const WARM: &str = "warm";
/// A training whose record has grown within this time is taken to be under way.
const LIVE: Duration = Duration::from_secs(180);
/// Trainings in the list.
const MOST_LISTED: usize = 200;

pub async fn list(State(app): State<Arc<AppState>>) -> Result<Page, NoPage> {
    let work = move || {
        let roots = roots(&app);
        let mut found: Vec<(Option<SystemTime>, ListedTraining)> = holding(&roots, METRICS)
            .into_iter()
            .filter(|found| !found.path.ends_with(WARM))
            .take(MOST_LISTED)
            .map(|found| listed(found.name, &found.path))
            .collect();
        found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.name.cmp(&b.1.name)));
        let found: Vec<ListedTraining> = found.into_iter().map(|(_, listed)| listed).collect();
        Ok(Page(trainings(&told(&roots), &found)))
    };
    look(work).await.map_err(NoPage::at(Section::Trainings))
}

fn listed(name: String, folder: &FilePath) -> (Option<SystemTime>, ListedTraining) {
    // A file whose time is not known has no date on the page.
    let changed = std::fs::metadata(folder.join(METRICS)).and_then(|about| about.modified()).ok();
    let age = changed.and_then(|time| SystemTime::now().duration_since(time).ok());
    let since = changed.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    let mut listed = ListedTraining {
        name,
        changed: since.map_or_else(String::new, |since| lemon_trace::text::date(since.as_millis() as u64)),
        is_live: age.is_some_and(|age| age < LIVE) && !folder.join(SUMMARY).exists(),
        ..ListedTraining::default()
    };
    match lines::<StepMetrics>(&folder.join(METRICS)) {
        Err(refusal) => listed.fault = Some(refusal.fact),
        Ok(steps) => {
            let mut held_out = steps.iter().filter_map(|step| step.held_out);
            let first = held_out.next();
            let last = held_out.next_back().or(first);
            listed.steps = (steps.iter().map(|step| step.step).max().unwrap_or(0), None);
            listed.success = first.zip(last).map(|(first, last)| [first.success, last.success]);
            listed.tokens = first.zip(last).map(|(first, last)| [first.tokens, last.tokens]);
        }
    }
    (changed, listed)
}

/// What the page reads of a summary.
#[derive(Deserialize)]
struct Summary {
    #[serde(default)]
    teams: Vec<BeforeAfter>,
}

pub async fn page(State(app): State<Arc<AppState>>, Path(name): Path<String>) -> Result<Page, NoPage> {
    let work = move || Ok(Page(hosted(&report(&app, &name)?)));
    look(work).await.map_err(NoPage::at(Section::Trainings))
}

pub async fn compare(State(app): State<Arc<AppState>>, fields: Fields) -> Result<Page, NoPage> {
    let names: Vec<String> = fields.all("t").map(str::to_owned).collect();
    let work = move || {
        let [a, b] = names.as_slice() else {
            let fact = format!("expected two trainings to compare, found {}", names.len());
            return Err(Refusal::bad(fact).hint("choose two in the list of trainings"));
        };
        Ok(Page(side_by_side([a, b], [&report(&app, a)?, &report(&app, b)?])))
    };
    look(work).await.map_err(NoPage::at(Section::Trainings))
}

/// What is on record of a training.
fn report(app: &AppState, name: &str) -> Result<TrainingReport, Refusal> {
    let folder = named(&roots(app), METRICS, name);
    let folder = folder.ok_or_else(|| Refusal::not_found(format!("there is no training `{name}`")))?;
    let steps = lines::<StepMetrics>(&folder.join(METRICS))?;
    let timings = match folder.join(TIMING).exists() {
        true => lines::<Timing>(&folder.join(TIMING))?,
        false => Vec::new(),
    };
    let recipe = optional(&folder.join(RECIPE))?.unwrap_or_else(|| "It is written when the training ends.".to_owned());
    // Teams are compared when the training ends.
    let teams = match optional(&folder.join(SUMMARY))? {
        None => Vec::new(),
        Some(text) => {
            let failed = |error| Refusal::internal(format!("{}: {error}", folder.join(SUMMARY).display()));
            serde_json::from_str::<Summary>(&text).map_err(failed)?.teams
        }
    };
    Ok(page_of(&format!("Training {name}"), &recipe, &steps, &timings, &teams))
}

fn optional(path: &FilePath) -> Result<Option<String>, Refusal> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Refusal::internal(format!("{}: {error}", path.display()))),
    }
}

/// One value a line. The last line may be half written: the training goes on.
fn lines<T: DeserializeOwned>(path: &FilePath) -> Result<Vec<T>, Refusal> {
    let text =
        std::fs::read_to_string(path).map_err(|error| Refusal::internal(format!("{}: {error}", path.display())))?;
    let mut values = Vec::new();
    let mut rest = text.lines().enumerate().peekable();
    while let Some((number, line)) = rest.next() {
        match serde_json::from_str(line) {
            Ok(value) => values.push(value),
            Err(_) if rest.peek().is_none() && !text.ends_with('\n') => {}
            Err(error) => {
                return Err(Refusal::internal(format!("{}, line {}: {error}", path.display(), number + 1)));
            }
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_being_written_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(METRICS);
        let check = |text: &str, expected: Option<usize>| {
            std::fs::write(&path, text).unwrap();
            assert_eq!(lines::<Timing>(&path).ok().map(|lines| lines.len()), expected, "{text:?}");
        };
        let line = serde_json::to_string(&Timing::default()).unwrap();
        check("", Some(0));
        check(&format!("{line}\n{line}\n"), Some(2));
        check(&format!("{line}\n{{\"step\""), Some(1));
        check(&format!("{{\"step\"\n{line}\n"), None);
        check(&format!("{line}\n{{\"step\"\n"), None);
    }
}
