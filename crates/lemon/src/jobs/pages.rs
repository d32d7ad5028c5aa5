//! The pages beside the store: one for each run, and the list of the newest.

use crate::error::Error;
use lemon_exec::store::{RunRow, Store};
use lemon_trace::{StopReason, Trace};
use lemon_view::run::{IndexRow, html_linked, index};
use lemon_workers::Tell;
use std::path::{Path, PathBuf};

/// The list of runs, in the folder of their pages.
const LIST: &str = "index.html";

/// Runs in the list.
const MOST_LISTED: usize = 200;

/// Writes the page of a run, and the list of runs anew. A list that cannot be written costs a warning, not the page.
///
/// # Errors
/// The page cannot be written.
pub fn write(store: &Store, trace: &Trace, warn: Tell) -> Result<PathBuf, Error> {
    let folder = store.path().with_file_name("pages");
    let path = put_page(&folder, &trace.header.run_id, &html_linked(trace, LIST, "All runs"))?;
    if let Err(error) = write_list(store, trace, &folder) {
        warn(&format!("warning: the list of runs is not up to date: {error}"));
    }
    Ok(path)
}

/// Writes the page of a run into a folder, which is made if need be.
///
/// # Errors
/// It cannot be written, or the run's id can be no file name.
pub fn put_page(folder: &Path, run_id: &str, page: &str) -> Result<PathBuf, Error> {
    if !is_plain(run_id) {
        return Err(Error::input(format!("the run's id {run_id:?} cannot be the name of a file")));
    }
    std::fs::create_dir_all(folder).map_err(|error| Error::input(format!("{}: {error}", folder.display())))?;
    let path = folder.join(page_of(run_id));
    put(&path, page)?;
    Ok(path)
}

fn write_list(store: &Store, latest: &Trace, folder: &Path) -> Result<(), Error> {
    let rows: Vec<IndexRow> = store.single_runs(MOST_LISTED)?.into_iter().map(|run| row(run, latest, folder)).collect();
    put(&folder.join(LIST), &index(&rows))
}

fn row(run: RunRow, latest: &Trace, folder: &Path) -> IndexRow {
    let page = page_of(&run.run_id);
    let has_page = is_plain(&run.run_id) && folder.join(&page).is_file();
    let end = match (&run.stop_reason, run.running) {
        (Some(reason), _) => reason.as_str(),
        (None, true) => "running",
        (None, false) => "interrupted",
    };
    let row = IndexRow {
        end: end.to_owned(),
        page: has_page.then_some(page),
        run_id: run.run_id,
        question: run.question,
        answer: run.answer,
        tokens: run.tokens,
        started_at_ms: run.started_at_ms,
    };
    if row.run_id != latest.header.run_id {
        return row;
    }
    // What has just happened is known better here than in the store, which may still be writing.
    let summary = latest.summary();
    IndexRow {
        answer: summary.answer,
        tokens: Some(summary.tokens.total),
        end: summary.stop_reason.map_or(row.end, |reason: StopReason| reason.as_str().to_owned()),
        ..row
    }
}

fn page_of(run_id: &str) -> String {
    format!("{run_id}.html")
}

/// Whether a run's id can be the name of a file here and nowhere else: a store may come from anywhere.
fn is_plain(run_id: &str) -> bool {
    let is_letter = |char: char| char.is_ascii_alphanumeric() || "-_.".contains(char);
    !run_id.is_empty()
        && run_id.len() <= 100
        && !run_id.starts_with('.')
        && run_id.chars().all(is_letter)
        && run_id != "index"
}

/// Written beside its place first: a cut-off write leaves the old page, and a link in its place is replaced, not followed.
fn put(path: &Path, content: &str) -> Result<(), Error> {
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let written = std::fs::write(&new, content).and_then(|()| std::fs::rename(&new, path));
    written.map_err(|error| Error::input(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_are_no_file_names_get_no_page() {
        let check = |id: &str, expected: bool| assert_eq!(is_plain(id), expected, "{id:?}");
        check("r-sdb32vcv", true);
        check("run.1_a", true);
        for id in ["", "../r-1", "a/b", "a\\b", ".hidden", "index", "r-\n1", "r-é", &"r".repeat(101)] {
            check(id, false);
        }
    }
}
