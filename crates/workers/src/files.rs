//! Files that a user names.

use crate::error::WorkersError;
use std::path::Path;

/// Refuses a folder, a device or a pipe: the first cannot be read, the others may never end.
///
/// # Errors
/// Nothing is there, or it is no plain file.
pub fn need_plain_file(path: &Path) -> Result<(), WorkersError> {
    let found = std::fs::metadata(path).map_err(|error| WorkersError::new(format!("{}: {error}", path.display())))?;
    let kind = match found.file_type() {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "a folder",
        _ => "a device or a pipe",
    };
    let hint = "name a file; write the output of a program into one first";
    Err(WorkersError::new(format!("{} is {kind}; a plain file was expected", path.display())).hint(hint))
}

/// Reads a text file. A byte order mark at its beginning, as some editors write it, is no part of the text.
///
/// # Errors
/// It is no plain file, cannot be read, or is not UTF-8.
pub fn read_file(path: &Path) -> Result<String, WorkersError> {
    need_plain_file(path)?;
    let bytes = std::fs::read(path).map_err(|error| WorkersError::new(format!("{}: {error}", path.display())))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        WorkersError::new(format!(
            "{} is not UTF-8: byte {} is wrong",
            path.display(),
            error.utf8_error().valid_up_to()
        ))
    })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}
