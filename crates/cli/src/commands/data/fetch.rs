//! `lemon data fetch`: the public task sets, from their sources into a folder.

use super::MOST_NAMED;
use super::progress;
use crate::args::FetchArgs;
use crate::commands::run::wait_for_signal;
use crate::fault::Fault;
use crate::{print, print_json, runtime};
use indicatif::HumanBytes;
use lemon_task::{SetName, SourceFile};
use lemon_workers::task_sets::{self, FetchRequest, FetchStatus, FileResult};
use serde_json::json;
use std::collections::BTreeSet;
use tokio_util::sync::CancellationToken;

pub fn fetch(args: &FetchArgs) -> Result<u8, Fault> {
    let FetchArgs { dir, sets, from, sources, force, json: _ } = args;
    let request = FetchRequest {
        dir: dir.clone(),
        sets: sets.clone(),
        from: from.clone(),
        sources: sources.clone(),
        force: *force,
    };
    let runtime = runtime()?;
    let cancel = CancellationToken::new();
    let cancelled = cancel.clone();
    runtime.spawn(async move {
        wait_for_signal().await;
        cancelled.cancel();
    });
    let results = runtime.block_on(task_sets::fetch(&request, announce, progress::start, &cancel))?;
    report(args, &results)
}

/// What will be here, and under which license.
fn announce(files: &[SourceFile]) {
    for set in SetName::PUBLIC {
        let files: Vec<_> = files.iter().filter(|file| file.set == set).collect();
        if files.is_empty() {
            continue;
        }
        let licenses: BTreeSet<&str> = files.iter().map(|file| file.license.as_str()).collect();
        let licenses: Vec<&str> = licenses.into_iter().collect();
        let bytes = HumanBytes(files.iter().map(|file| file.bytes).sum());
        eprintln!("{set}: {} files, {bytes}, license: {}", files.len(), licenses.join(", "));
    }
}

fn report(args: &FetchArgs, results: &[FileResult]) -> Result<u8, Fault> {
    let failed: Vec<_> = results.iter().filter_map(failure).collect();
    let sound = failed.is_empty();
    if args.json {
        // A path need not be UTF-8, which JSON must be.
        print_json(&json!({ "dir": args.dir.to_string_lossy(), "files": results, "sound": sound }))?;
    } else {
        print(&results.iter().map(line).collect::<String>())?;
    }
    let kept = results.iter().filter(|result| matches!(result.end, FetchStatus::Kept)).count();
    eprintln!("{}: {} fetched, {kept} kept", args.dir.display(), results.len() - kept - failed.len());
    if sound { Ok(0) } else { Err(summary(&failed, results.len())) }
}

fn line(result: &FileResult) -> String {
    let FileResult { file, end } = result;
    let (status, remark) = match end {
        FetchStatus::Fetched => ("fetched", &file.license),
        FetchStatus::Kept => ("kept", &file.license),
        FetchStatus::Failed { error, .. } => ("failed", error),
    };
    format!("{status}\t{}\t{}\t{}\t{remark}\n", file.path, file.bytes, file.sha256)
}

/// Which files are missing, why, and what can be done.
fn summary(failed: &[Failed<'_>], all: usize) -> Fault {
    let mut fact = format!("{} of {all} files could not be fetched:", failed.len());
    failed.iter().take(MOST_NAMED).for_each(|Failed { path, error, .. }| fact += &format!("\n  {path}: {error}"));
    if failed.len() > MOST_NAMED {
        fact += &format!("\n  … and {} more", failed.len() - MOST_NAMED);
    }
    let refused = failed.iter().filter(|failed| failed.refused).count();
    let hint = match refused {
        0 => "the same command continues from here; --from URL asks a mirror",
        _ if refused == failed.len() => "move the files that are there away, or replace them with --force",
        _ => "the same command continues from here; --force replaces files that differ",
    };
    Fault::new(fact).hint(hint).code(1)
}

/// A file that could not be fetched.
struct Failed<'a> {
    path: &'a str,
    error: &'a str,
    refused: bool,
}

fn failure(result: &FileResult) -> Option<Failed<'_>> {
    match &result.end {
        FetchStatus::Failed { error, refused } => Some(Failed { path: &result.file.path, error, refused: *refused }),
        FetchStatus::Fetched | FetchStatus::Kept => None,
    }
}
