//! The folder that a training keeps everything in.

use crate::fault::Fault;
use lemon_policy::{KeepError, check_folder, damage};
use std::path::Path;

/// Refuses a folder that is none of a training, before anything is written there, and says what is damaged in one that is.
///
/// # Errors
/// It holds something else, or cannot be read.
pub fn open(folder: &Path) -> Result<(), Fault> {
    check_folder(folder).map_err(|error| fault(&error, &error))?;
    // The warm start of a training has a folder of its own.
    for folder in [folder.to_owned(), folder.join("warm")] {
        for fact in damage(&folder).map_err(|error| fault(&error, &error))? {
            eprintln!("{fact}");
        }
    }
    Ok(())
}

/// An error of a training, with what to do about it if its folder is to blame.
pub fn fault(error: &dyn std::fmt::Display, folder: &KeepError) -> Fault {
    Fault { hint: folder.hint().map(str::to_owned), ..Fault::new(error) }
}
