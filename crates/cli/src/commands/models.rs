//! `lemon models`: models from the Hugging Face hub, and those that are here.

use super::data::progress;
use crate::args::models::{ModelsCommand, PullArgs};
use crate::fault::Fault;
use crate::{print, print_json, println};
use indicatif::HumanBytes;
use lemon_workers::bundled;
use lemon_workers::hub::{self, PullStatus, PulledCheckpoint};
use lemon_workers::models::catalogue::{CATALOGUE, CatalogueEntry};
use lemon_workers::models::{FoundModel, found};
use serde_json::json;

pub fn models(command: &ModelsCommand) -> Result<u8, Fault> {
    match command {
        ModelsCommand::Pull(args) => pull(args),
        ModelsCommand::List { json } => list(*json),
        ModelsCommand::Catalogue { json } => catalogue(*json),
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
    let (name, file) = (&args.checkpoint.name, &args.checkpoint.file);
    print_json(&json!({
        "name": name, "file": file, "revision": revision, "folder": folder, "bytes": bytes, "files": files
    }))
}

fn list(json: bool) -> Result<u8, Fault> {
    let found = found();
    if found.is_empty() && !json {
        eprintln!("no model but the bundled ones is here; `lemon models pull qwen2.5-coder-1.5b` fetches one");
    }
    let found: Vec<FoundModel> = found.into_iter().chain(bundled::listed()).collect();
    match json {
        true => print_json(&found),
        false => print(&found.iter().map(line).collect::<String>()),
    }
}

fn catalogue(json: bool) -> Result<u8, Fault> {
    if json {
        return print_json(&CATALOGUE);
    }
    let line = |entry: &CatalogueEntry| {
        let CatalogueEntry { name, repository, file, bytes, sha256, licence, about } = entry;
        format!("{name}\t{}\t{licence}\t{about}\t{repository}/{file}\t{sha256}\n", HumanBytes(*bytes))
    };
    print(&CATALOGUE.iter().map(line).collect::<String>())
}

fn line(found: &FoundModel) -> String {
    let FoundModel { name, revision, bytes, parameters, folder, fault, .. } = found;
    let revision = revision.get(..12).unwrap_or(revision);
    let parameters = parameters.map_or("-".into(), |count| match count as f64 {
        some if some >= 1e9 => format!("{:.1} B", some / 1e9),
        some => format!("{:.3} M", some / 1e6),
    });
    let state = fault.as_deref().unwrap_or("complete");
    format!("{name}\t{revision}\t{}\t{parameters}\t{state}\t{}\n", HumanBytes(*bytes), folder.display())
}
