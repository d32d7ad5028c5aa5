//! `lemon data`: what a folder of task sets holds, and where it comes from.

mod fetch;
pub mod progress;

use crate::args::DataCommand;
use crate::fault::Fault;
use crate::{print, print_json};
use lemon_task::{SetReport, check};
use serde_json::json;
use std::path::Path;

/// How many skipped records of one set, or missing files, are named; the rest is counted.
const MOST_NAMED: usize = 10;

pub fn data(command: &DataCommand) -> Result<u8, Fault> {
    match command {
        DataCommand::Check { dir, json } => check_folder(dir, *json),
        DataCommand::Fetch(args) => fetch::fetch(args),
    }
}

fn check_folder(dir: &Path, json: bool) -> Result<u8, Fault> {
    if !dir.is_dir() {
        return Err(Fault::new(format!("{} is no folder", dir.display())));
    }
    let reports = check(dir);
    // A set that is not there is no fault of those that are; a folder without any set is.
    let sound =
        reports.iter().any(|report| report.records > 0) && reports.iter().all(|report| report.faults.is_empty());
    if json {
        print_json(&json!({ "sound": sound, "sets": reports }))?;
    } else {
        reports.iter().try_for_each(|report| print(&describe(report)).map(drop))?;
    }
    Ok(u8::from(!sound))
}

fn describe(report: &SetReport) -> String {
    let SetReport { set, records, files, faults, problems } = report;
    let mut text = format!("{set}: {records} records in {} files, {} skipped\n", files.len(), faults.len());
    // MMLU has a file for each subject and split; a checksum for each would hide everything else.
    if files.len() <= 8 {
        for file in files {
            text += &format!("  {}  {} records  sha256 {}\n", file.path, file.records, file.sha256);
        }
    }
    for fault in faults.iter().take(MOST_NAMED) {
        text += &format!("  {}, line {}: {}\n", fault.file, fault.line, fault.reason);
    }
    if faults.len() > MOST_NAMED {
        text += &format!("  … and {} more\n", faults.len() - MOST_NAMED);
    }
    problems.iter().for_each(|problem| text += &format!("  {problem}\n"));
    text
}
