//! `lemon init`

use crate::args::InitArgs;
use crate::config::FILE_NAME;
use crate::fault::Fault;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};

/// What a new configuration says.
pub const TEMPLATE: &str = include_str!("../lemon.toml");

pub fn init(args: &InitArgs) -> Result<u8, Fault> {
    let mut options = OpenOptions::new();
    match args.force {
        true => options.create(true).write(true).truncate(true),
        false => options.create_new(true).write(true),
    };
    let written = options.open(FILE_NAME).and_then(|mut file| file.write_all(TEMPLATE.as_bytes()));
    match written {
        Ok(()) => {
            eprintln!("wrote {FILE_NAME}: set base_url and model in it, then `lemon doctor`");
            Ok(0)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Err(Fault::new(format!("{FILE_NAME} is there already")).hint("--force overwrites it"))
        }
        Err(error) => Err(Fault::new(format!("{FILE_NAME}: {error}"))),
    }
}
