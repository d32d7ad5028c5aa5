//! Fetching a whole checkpoint, what describes it first and the weights last; or one GGUF file.

use super::{Hub, Listing, PullStatus, RemoteFile, Stated, Sum, shown};
use crate::error::{WorkersError, WorkersErrorKind};
use crate::files::read_file;
use crate::models::catalogue::CatalogueEntry;
use crate::models::{CONFIG, INDEX, Reference, TOKENIZER, WEIGHTS, is_gguf, is_plain, read_config, shards};
use crate::progress::{Attempt, StartProgress};
use lemon_model::check_gguf;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Taken along where they are there: the chat template, and the tokens that end a reply.
const OPTIONAL: [&str; 3] = ["tokenizer_config.json", "generation_config.json", "chat_template.jinja"];

/// A checkpoint that is here.
#[derive(Debug, Clone)]
pub struct PulledCheckpoint {
    /// The commit.
    pub revision: String,
    /// Where its files are: a folder, or the GGUF file.
    pub folder: PathBuf,
    /// Bytes of all files.
    pub bytes: u64,
    pub files: Vec<PulledFile>,
}

/// A file of a checkpoint, and what became of it.
#[derive(Debug, Clone, Serialize)]
pub struct PulledFile {
    pub name: String,
    /// Its length, where the hub states it.
    pub bytes: Option<u64>,
    /// Whether it was fetched or here already.
    pub status: PullStatus,
}

/// Fetches a checkpoint or a GGUF file from the hub, or from a mirror at `endpoint`, into the cache. What is here and right
/// is kept.
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
    let one;
    let files = match &reference.file {
        Some(name) => {
            one = pull.gguf(name)?;
            vec![(&one, None)]
        }
        None => pull.files(&pull.describe()?)?,
    };
    let ends = pull.settle(&files)?;
    pull.hub.name(&pull.listing.commit)?;
    let folder = pull.hub.folder(&pull.listing.commit);
    let folder = reference.file.iter().fold(folder, |folder, name| folder.join(name));
    if reference.file.is_some() {
        check_gguf(&folder).map_err(|error| {
            let fact = format!("{reference} was fetched and cannot be run here: {error}");
            WorkersError::new(fact).kind(WorkersErrorKind::Download)
        })?;
    }
    let file = |((file, _), end): (&(&RemoteFile, _), &PullStatus)| PulledFile {
        name: file.name.clone(),
        bytes: file.bytes,
        status: *end,
    };
    Ok(PulledCheckpoint {
        revision: pull.listing.commit.digits().to_owned(),
        folder,
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
                let hint = self.gguf_hint("look for a conversion of it, or for the original");
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
            let hint = self.gguf_hint("it is no checkpoint in the form of the library transformers");
            WorkersError::new(fact).hint(hint).kind(WorkersErrorKind::Download)
        })
    }

    /// The names of the GGUF files, for one to be chosen; `otherwise` where there are none.
    fn gguf_hint(&self, otherwise: &str) -> String {
        const MOST: usize = 20;
        let files = self.listing.files.iter().map(|file| file.name.as_str());
        let files: Vec<&str> = files.filter(|name| is_plain(name) && is_gguf(Path::new(name))).take(MOST).collect();
        match files.is_empty() {
            true => otherwise.to_owned(),
            false => format!("name one of its files, {}/FILE: {}", self.reference.name, files.join(", ")),
        }
    }

    /// The one file that is asked for, with the checksum of the catalogue where it has one.
    fn gguf(&self, name: &str) -> Result<RemoteFile, WorkersError> {
        let refused = |fact: String| WorkersError::new(fact).kind(WorkersErrorKind::Download);
        let Some(file) = self.listing.file(name) else {
            let hint = self.gguf_hint("there is no GGUF file in it; without /FILE the whole checkpoint is fetched");
            return Err(refused(format!("{} has no {name}", self.reference.name)).hint(hint));
        };
        if let Some((part, parts)) = part_of_several(name) {
            let fact = format!("{} is part {part} of {parts}; a model in several files cannot be run here", file.name);
            return Err(refused(fact).hint("choose a quantisation that is one file"));
        }
        match self.listing.architecture.as_deref() {
            Some(other) if !ARCHITECTURES.contains(&other) => {
                let fact = format!("{} cannot be run here: its architecture is {}", self.reference, shown(other));
                return Err(refused(fact).hint(format!("{} can", ARCHITECTURES.join(", "))));
            }
            _ => {}
        }
        match self.reference.expected {
            Some(entry) => expected(file, entry).map_err(refused),
            None => Ok(file.clone()),
        }
    }
}

/// The architectures that can be run.
const ARCHITECTURES: [&str; 3] = ["llama", "qwen2", "qwen3"];

/// The file as the catalogue has it; an error where the hub says that it has another one.
fn expected(file: &RemoteFile, entry: &CatalogueEntry) -> Result<RemoteFile, String> {
    let sum = Sum::parse(entry.sha256).ok_or_else(|| format!("the catalogue has no checksum of {}", entry.name))?;
    let other = |found: String| {
        let CatalogueEntry { file, sha256, bytes, .. } = entry;
        Err(format!("the hub has another {file} than the catalogue: {found}; expected {bytes} bytes with {sha256}"))
    };
    match (&file.sum, file.bytes) {
        (Stated::Sum(stated), _) if *stated != sum => other(format!("its checksum is {}", stated.digits())),
        (Stated::Nonsense(text), _) => other(format!("its checksum is {}", shown(text))),
        (_, Some(bytes)) if bytes != entry.bytes => other(format!("it has {bytes} bytes")),
        _ => Ok(RemoteFile { name: file.name.clone(), bytes: Some(entry.bytes), sum: Stated::Sum(sum) }),
    }
}

/// Reads the end of `NAME-00001-of-00003.gguf`.
fn part_of_several(name: &str) -> Option<(u32, u32)> {
    let (rest, count) = name.rsplit_once('.')?.0.rsplit_once("-of-")?;
    let part = rest.rsplit_once('-')?.1.parse().ok()?;
    Some((part, count.parse().ok()?)).filter(|(_, count)| *count > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::catalogue::CATALOGUE;

    #[test]
    fn parts_of_models() {
        assert_eq!(part_of_several("m-00001-of-00003.gguf"), Some((1, 3)));
        for whole in ["m.gguf", "m-00001-of-00001.gguf", "one-of-two.gguf", "m-1-of-x.gguf", ""] {
            assert_eq!(part_of_several(whole), None, "{whole}");
        }
    }

    #[test]
    fn another_file_than_the_catalogues_is_refused() {
        let entry = &CATALOGUE[0];
        let file = |sum, bytes| RemoteFile { name: entry.file.to_owned(), bytes, sum };
        let right = || Stated::Sum(Sum::parse(entry.sha256).unwrap());
        for ok in [file(right(), Some(entry.bytes)), file(right(), None), file(Stated::Nothing, None)] {
            let found = expected(&ok, entry).unwrap();
            assert_eq!(found.bytes, Some(entry.bytes));
            assert!(matches!(found.sum, Stated::Sum(sum) if sum.digits() == entry.sha256));
        }
        let check = |file, words: &str| {
            let fact = expected(&file, entry).err().unwrap();
            assert!(fact.contains(words) && fact.contains(entry.sha256), "{fact}");
        };
        check(file(Stated::Sum(Sum::parse(&"a".repeat(64)).unwrap()), Some(entry.bytes)), "its checksum is aaaa");
        check(file(Stated::Sum(Sum::parse(&"a".repeat(40)).unwrap()), Some(entry.bytes)), "its checksum is aaaa");
        check(file(Stated::Nonsense("\u{1b}[2J".into()), None), "`\\u{1b}[2J`");
        check(file(Stated::Nothing, Some(5)), "it has 5 bytes");
    }
}
