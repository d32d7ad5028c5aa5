//! `lemon models`: checkpoints from the Hugging Face hub, and the models that are here.

mod hub;
mod sum;
mod transport;

use crate::args::models::{ModelsCommand, PullArgs};
use crate::commands::data::progress::Progress;
use crate::fault::{Fault, read_file};
use crate::models::{CONFIG, Cached, INDEX, TOKENIZER, WEIGHTS, cache, cached, read_config, shards};
use crate::{in_the_box, print, println, to_json};
use hub::{End, Hub, Listing, RemoteFile};
use indicatif::HumanBytes;
use serde_json::json;

/// Taken along where they are there: the chat template, and the tokens that end a reply.
const OPTIONAL: [&str; 3] = ["tokenizer_config.json", "generation_config.json", "chat_template.jinja"];

pub fn models(command: &ModelsCommand) -> Result<u8, Fault> {
    match command {
        ModelsCommand::Pull(args) => pull(args),
        ModelsCommand::List { json } => list(*json),
    }
}

fn pull(args: &PullArgs) -> Result<u8, Fault> {
    let hub = Hub::new(&args.checkpoint, args.endpoint.as_deref())?;
    let listing = hub.list()?;
    let pull = Pull { args, hub, listing };
    let described = pull.describe()?;
    let files = pull.files(&described)?;
    let ends = pull.settle(&files)?;
    pull.hub.name(&pull.listing.commit)?;
    pull.report(&files, &ends)
}

/// A checkpoint on its way here.
struct Pull<'a> {
    args: &'a PullArgs,
    hub: Hub,
    listing: Listing,
}

/// The files that say what the others are, and what became of them.
type Described<'a> = Vec<(&'a RemoteFile, End)>;

impl Pull<'_> {
    /// Fetches what says whether the rest can be used, before gigabytes of it are fetched in vain.
    fn describe(&self) -> Result<Described<'_>, Fault> {
        let Pull { args, hub, listing } = self;
        let progress = Progress::start(0, 0);
        let mut described = Vec::new();
        let mut settle = |name| {
            let file = self.need(name)?;
            described.push((file, hub.settle(&listing.commit, file, &progress)?));
            Ok::<_, Fault>(())
        };
        settle(CONFIG)?;
        read_config(&hub.folder(&listing.commit)).map_err(|fact| {
            let fact = format!("{} cannot be run here: {CONFIG}: {fact}", args.checkpoint);
            Fault::new(fact).hint("models of the forms of Qwen2, Qwen3 and Llama can").code(1)
        })?;
        self.need(TOKENIZER)?;
        if listing.file(WEIGHTS).is_none() {
            if listing.file(INDEX).is_none() {
                let fact = format!("{} has no weights in safetensors", args.checkpoint);
                return Err(Fault::new(fact).hint("look for a conversion of it, or for the original").code(1));
            }
            settle(INDEX)?;
        }
        Ok(described)
    }

    /// All files, those that were fetched already first.
    fn files<'a>(&'a self, described: &Described<'a>) -> Result<Vec<(&'a RemoteFile, Option<End>)>, Fault> {
        let mut files: Vec<_> = described.iter().map(|(file, end)| (*file, Some(*end))).collect();
        let weights: Vec<String> = match self.listing.file(WEIGHTS) {
            Some(_) => vec![WEIGHTS.to_owned()],
            None => {
                let index = read_file(&self.hub.folder(&self.listing.commit).join(INDEX))?;
                shards(index.as_bytes()).map_err(|fact| Fault::new(fact).code(1))?.into_iter().collect()
            }
        };
        files.push((self.need(TOKENIZER)?, None));
        files.extend(OPTIONAL.iter().filter_map(|name| self.listing.file(name)).map(|file| (file, None)));
        for name in &weights {
            files.push((self.need(name)?, None));
        }
        Ok(files)
    }

    /// Sees to it that all of them are here.
    fn settle(&self, files: &[(&RemoteFile, Option<End>)]) -> Result<Vec<End>, Fault> {
        let rest = files.iter().filter(|(_, end)| end.is_none());
        let progress = Progress::start(rest.clone().count(), rest.filter_map(|(file, _)| file.bytes).sum());
        let settle = |(file, end): &(&RemoteFile, Option<End>)| match end {
            Some(end) => Ok(*end),
            None => {
                let ended = self.hub.settle(&self.listing.commit, file, &progress);
                if let Ok(End::Kept) = ended {
                    let mut count = progress.attempt();
                    count.receive(file.bytes.unwrap_or_default());
                    count.keep();
                }
                progress.file_done(&file.name, ended.as_ref().map_or("failed", |end| end.name()));
                ended
            }
        };
        let ends = files.iter().map(settle).collect();
        progress.finish();
        ends
    }

    fn report(&self, files: &[(&RemoteFile, Option<End>)], ends: &[End]) -> Result<u8, Fault> {
        let Pull { args, hub, listing } = self;
        let folder = hub.folder(&listing.commit);
        let bytes: u64 = files.iter().filter_map(|(file, _)| file.bytes).sum();
        let fetched = ends.iter().filter(|end| **end == End::Fetched).count();
        eprintln!("{}: {}, {fetched} files fetched, {} kept", args.checkpoint, HumanBytes(bytes), ends.len() - fetched);
        if !args.json {
            return println(&folder.to_string_lossy());
        }
        let file = |((file, _), end): (&(&RemoteFile, _), &End)| json!({"name": file.name, "bytes": file.bytes, "status": end});
        let files: Vec<_> = files.iter().zip(ends).map(file).collect();
        println(&to_json(&json!({
            "name": args.checkpoint.name,
            "revision": listing.commit.digits(),
            // A path need not be UTF-8, which JSON must be.
            "folder": folder.to_string_lossy(),
            "bytes": bytes,
            "files": files,
        })))
    }

    fn need(&self, name: &str) -> Result<&RemoteFile, Fault> {
        self.listing.file(name).ok_or_else(|| {
            let fact = format!("{} has no {name}", self.args.checkpoint);
            Fault::new(fact).hint("it is no checkpoint in the form of the library transformers").code(1)
        })
    }
}

fn list(json: bool) -> Result<u8, Fault> {
    let cache = cache()?;
    let pulled = cached(&cache);
    if pulled.is_empty() && !json {
        eprintln!("no checkpoint in {}; `lemon models pull OWNER/NAME` fetches one", cache.path().display());
    }
    let found: Vec<Cached> = pulled.into_iter().chain(in_the_box::listed()).collect();
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
