//! `lemon models`: checkpoints from the Hugging Face hub, and the models that are here.

use super::data::progress;
use crate::args::models::{ModelsCommand, PullArgs};
use crate::fault::Fault;
use crate::{print, println, to_json};
use indicatif::HumanBytes;
use lemon_workers::bundled;
use lemon_workers::hub::{self, PullStatus, PulledCheckpoint};
use lemon_workers::models::{Cached, cache, cached};
use serde_json::json;

pub fn models(command: &ModelsCommand) -> Result<u8, Fault> {
    match command {
        ModelsCommand::Pull(args) => pull(args),
        ModelsCommand::List { json } => list(*json),
    }
}

fn pull(args: &PullArgs) -> Result<u8, Fault> {
    let pulled = hub::pull(&args.checkpoint, args.endpoint.as_deref(), progress::start)?;
    let PulledCheckpoint { revision, folder, bytes, files } = pulled;
    let fetched = files.iter().filter(|file| file.status == PullStatus::Fetched).count();
    eprintln!("{}: {}, {fetched} files fetched, {} kept", args.checkpoint, HumanBytes(bytes), files.len() - fetched);
    // A path need not be UTF-8, which JSON must be.
    let folder = folder.to_string_lossy();
    if !args.json {
        return println(&folder);
    }
    let name = &args.checkpoint.name;
    println(&to_json(&json!({
        "name": name, "revision": revision, "folder": folder, "bytes": bytes, "files": files
    })))
}

fn list(json: bool) -> Result<u8, Fault> {
    let cache = cache()?;
    let pulled = cached(&cache);
    if pulled.is_empty() && !json {
        eprintln!("no checkpoint in {}; `lemon models pull OWNER/NAME` fetches one", cache.path().display());
    }
    let found: Vec<Cached> = pulled.into_iter().chain(bundled::listed()).collect();
    match json {
        true => println(&to_json(&found)),
        false => print(&found.iter().map(line).collect::<String>()),
    }
}

fn line(found: &Cached) -> String {
    let Cached { name, revision, bytes, parameters, folder, fault, .. } = found;
    let revision = revision.get(..12).unwrap_or(revision);
    let parameters = parameters.map_or("-".into(), |count| match count as f64 {
        some if some >= 1e9 => format!("{:.1} B", some / 1e9),
        some => format!("{:.3} M", some / 1e6),
    });
    let state = fault.as_deref().unwrap_or("complete");
    format!("{name}\t{revision}\t{}\t{parameters}\t{state}\t{}\n", HumanBytes(*bytes), folder.display())
}
