//! The folder of an evaluation: all its rows, and the report in four forms.

use super::items::ItemDetail;
use super::{csv, html_with_items, json, markdown};
use crate::{Evaluation, Report};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// All rows of an evaluation, in its folder.
pub const ROWS: &str = "eval.json";

/// Writes everything. Each file is written beside its place first: a cut-off write leaves the old one.
///
/// # Errors
/// The folder cannot be written.
pub fn write(folder: &Path, evaluation: &Evaluation, report: &Report, details: &[ItemDetail]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    // Written piece by piece: the rows of a large evaluation are as large again as text.
    let new = folder.join(format!("{ROWS}.new"));
    let mut file = BufWriter::new(File::create(&new)?);
    serde_json::to_writer(&mut file, evaluation)?;
    file.flush()?;
    drop(file);
    fs::rename(&new, folder.join(ROWS))?;
    // One after the other, so that only one of them is in memory at a time.
    let put = |name: &str, content: String| {
        let new = folder.join(format!("{name}.new"));
        fs::write(&new, content).and_then(|()| fs::rename(&new, folder.join(name)))
    };
    put("report.json", json(report))?;
    put("report.md", markdown(report))?;
    put("report.csv", csv(evaluation))?;
    put("report.html", html_with_items(report, evaluation, details))
}
