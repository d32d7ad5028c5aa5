//! Fetching a whole checkpoint: what describes it first, the weights last.

use super::{Hub, Listing, PullStatus, RemoteFile};
use crate::error::{WorkersError, WorkersErrorKind};
use crate::files::read_file;
use crate::models::{CONFIG, INDEX, Reference, TOKENIZER, WEIGHTS, read_config, shards};
use crate::progress::{Attempt, StartProgress};
use serde::Serialize;
use std::path::PathBuf;

/// Taken along where they are there: the chat template, and the tokens that end a reply.
const OPTIONAL: [&str; 3] = ["tokenizer_config.json", "generation_config.json", "chat_template.jinja"];

/// A checkpoint that is here.
#[derive(Debug, Clone)]
pub struct PulledCheckpoint {
    /// The commit.
    pub revision: String,
    /// Where its files are.
    pub folder: PathBuf,
    /// Bytes of all files.
    pub bytes: u64,
    /// The files.
    pub files: Vec<PulledFile>,
}

/// A file of a checkpoint, and what became of it.
#[derive(Debug, Clone, Serialize)]
pub struct PulledFile {
    /// Its name.
    pub name: String,
    /// Its length, where the hub states it.
    pub bytes: Option<u64>,
    /// Whether it was fetched or here already.
    pub status: PullStatus,
}

/// Fetches a checkpoint from the hub, or from a mirror at `endpoint`, into the cache. What is here and right is kept.
///
/// # Errors
/// The hub cannot be reached, the checkpoint cannot be run here, or a file is not what the hub says it is.
pub fn pull(
    reference: &Reference,
    endpoint: Option<&str>,
    start: StartProgress,
) -> Result<PulledCheckpoint, WorkersError> {
    let hub = Hub::new(reference, endpoint)?;
    let listing = hub.list(&*start(0, 0))?;
    let pull = Pull { reference, hub, listing, start };
    let described = pull.describe()?;
    let files = pull.files(&described)?;
    let ends = pull.settle(&files)?;
    pull.hub.name(&pull.listing.commit)?;
    let file = |((file, _), end): (&(&RemoteFile, _), &PullStatus)| PulledFile {
        name: file.name.clone(),
        bytes: file.bytes,
        status: *end,
    };
    Ok(PulledCheckpoint {
        revision: pull.listing.commit.digits().to_owned(),
        folder: pull.hub.folder(&pull.listing.commit),
        bytes: files.iter().filter_map(|(file, _)| file.bytes).sum(),
        files: files.iter().zip(&ends).map(file).collect(),
    })
}

/// A checkpoint on its way here.
struct Pull<'a> {
    reference: &'a Reference,
    hub: Hub,
    listing: Listing,
    start: StartProgress,
}

/// The files that say what the others are, and what became of them.
type Described<'a> = Vec<(&'a RemoteFile, PullStatus)>;

impl Pull<'_> {
    /// Fetches what says whether the rest can be used, before gigabytes of it are fetched in vain.
    fn describe(&self) -> Result<Described<'_>, WorkersError> {
        let Pull { reference, hub, listing, .. } = self;
        let progress = (self.start)(0, 0);
        let mut described = Vec::new();
        let mut settle = |name| {
            let file = self.need(name)?;
            described.push((file, hub.settle(&listing.commit, file, &*progress)?));
            Ok::<_, WorkersError>(())
        };
        settle(CONFIG)?;
        read_config(&hub.folder(&listing.commit)).map_err(|fact| {
            let fact = format!("{reference} cannot be run here: {CONFIG}: {fact}");
            WorkersError::new(fact)
                .hint("models of the forms of Qwen2, Qwen3 and Llama can")
                .kind(WorkersErrorKind::Download)
        })?;
        self.need(TOKENIZER)?;
        if listing.file(WEIGHTS).is_none() {
            if listing.file(INDEX).is_none() {
                let fact = format!("{reference} has no weights in safetensors");
                let hint = "look for a conversion of it, or for the original";
                return Err(WorkersError::new(fact).hint(hint).kind(WorkersErrorKind::Download));
            }
            settle(INDEX)?;
        }
        Ok(described)
    }

    /// All files, those that were fetched already first.
    fn files<'a>(
        &'a self,
        described: &Described<'a>,
    ) -> Result<Vec<(&'a RemoteFile, Option<PullStatus>)>, WorkersError> {
        let mut files: Vec<_> = described.iter().map(|(file, end)| (*file, Some(*end))).collect();
        let weights: Vec<String> = match self.listing.file(WEIGHTS) {
            Some(_) => vec![WEIGHTS.to_owned()],
            None => {
                let index = read_file(&self.hub.folder(&self.listing.commit).join(INDEX))?;
                let shards = shards(index.as_bytes());
                shards.map_err(|fact| WorkersError::new(fact).kind(WorkersErrorKind::Download))?.into_iter().collect()
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
    fn settle(&self, files: &[(&RemoteFile, Option<PullStatus>)]) -> Result<Vec<PullStatus>, WorkersError> {
        let rest = files.iter().filter(|(_, end)| end.is_none());
        let progress = (self.start)(rest.clone().count(), rest.filter_map(|(file, _)| file.bytes).sum());
        let settle = |(file, end): &(&RemoteFile, Option<PullStatus>)| match end {
            Some(end) => Ok(*end),
            None => {
                let ended = self.hub.settle(&self.listing.commit, file, &*progress);
                if let Ok(PullStatus::Kept) = ended {
                    let mut count = Attempt::new(&*progress);
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

    fn need(&self, name: &str) -> Result<&RemoteFile, WorkersError> {
        self.listing.file(name).ok_or_else(|| {
            let fact = format!("{} has no {name}", self.reference);
            let hint = "it is no checkpoint in the form of the library transformers";
            WorkersError::new(fact).hint(hint).kind(WorkersErrorKind::Download)
        })
    }
}
