//! Items with recorded replies, divided into those to train on and those held out.

use crate::error::WorkersError;
use lemon_task::{Item, SetName, Source, load};
use lemon_world::{Recordings, is_to_fit};
use std::collections::BTreeSet;
use std::path::Path;

/// Recorded items, each with its set and split.
#[derive(Debug, Default)]
pub struct RecordedItems {
    /// To train and tune on: whole splits that are for that, and every second item, by hash, of the others.
    pub train: Vec<(String, Item)>,
    /// The other items of the splits that are for tests.
    pub held_out: Vec<(String, Item)>,
}

/// The recorded items of these sets. The splits `train` and `dev` are to train on; of the other splits, half of the items.
///
/// # Errors
/// A set cannot be read.
pub fn recorded_items(data: &Path, sets: &[SetName], recordings: &Recordings) -> Result<RecordedItems, WorkersError> {
    let mut found = RecordedItems::default();
    for set in sets {
        let prefix = format!("{set}/");
        let names = recordings.items();
        let splits: BTreeSet<&str> =
            names.iter().filter_map(|(_, item)| item.name.strip_prefix(&prefix)?.split('/').next()).collect();
        for split in splits {
            let tasks = load(&Source::Folder(data.to_owned()), *set, split).map_err(WorkersError::new)?;
            for item in tasks.items.into_iter().filter(|item| recordings.knows(&item.task.question)) {
                let train = matches!(split, "train" | "dev") || is_to_fit(&format!("{set}/{split}/{}", item.task.id));
                let part = if train { &mut found.train } else { &mut found.held_out };
                part.push((format!("{set}/{split}"), item));
            }
        }
    }
    Ok(found)
}
