//! One command, one file, one function.

pub mod ablate;
pub mod baseline;
pub mod bench;
pub mod cluster;
pub mod compare;
pub mod credit;
pub mod critic;
pub mod data;
pub mod doctor;
pub mod edits;
pub mod eval;
pub mod grade;
pub mod init;
pub mod keys;
pub mod mcp;
pub mod models;
pub mod plan;
pub mod policy;
pub mod pretrain;
pub mod run;
pub mod schema;
pub mod serve;
pub mod sft;
mod tasks;
pub mod teach;
pub mod tools;
pub mod trace;
pub mod train;
mod training_folder;
pub mod validate;
pub mod world;

use crate::fault::{Fault, read_file};
use std::io::Read;
use std::path::Path;

/// A file of the user's, or standard input for `-`.
fn read_input(path: &Path) -> Result<String, Fault> {
    if path != Path::new("-") {
        return read_file(path);
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Fault::new(format!("standard input cannot be read: {error}")))?;
    Ok(text)
}
