//! `lemon init`

use crate::args::InitArgs;
use crate::fault::Fault;
use crate::tell;
use lemon_workers::discover::{self, Server, ServerModels};
use lemon_workers::{FILE_NAME, TEMPLATE};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// The capacities in it, weakest first.
const LEVELS: [&str; 3] = ["small", "medium", "large"];

pub fn init(args: &InitArgs) -> Result<u8, Fault> {
    let exists = || Fault::new(format!("{FILE_NAME} exists already")).hint("--force overwrites it");
    if !args.force && Path::new(FILE_NAME).exists() {
        return Err(exists());
    }
    let servers = crate::runtime()?.block_on(discover::running_servers(&discover::ports()?, tell(false)))?;
    let mut options = OpenOptions::new();
    match args.force {
        true => options.create(true).write(true).truncate(true),
        false => options.create_new(true).write(true),
    };
    let written = options.open(FILE_NAME).and_then(|mut file| file.write_all(configuration(&servers).as_bytes()));
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => exists(),
        _ => Fault::new(format!("{FILE_NAME}: {error}")),
    })?;
    for server in &servers {
        eprintln!("found {} at {}: {}", server.kind, server.base_url, server.models.join(", "));
    }
    match servers.iter().any(|server| server.levels().is_some()) {
        true => eprintln!("wrote {FILE_NAME} with what was found; `lemon doctor` checks it"),
        false => eprintln!("wrote {FILE_NAME}: set base_url and model in it, then `lemon doctor`"),
    }
    Ok(0)
}

/// The template, with the first server that can chat in the place of the one it names.
fn configuration(servers: &[Server]) -> String {
    let Some((server, levels)) = servers.iter().find_map(|server| Some((server, server.levels()?))) else {
        return TEMPLATE.to_owned();
    };
    let ServerModels { small, medium, large } = levels;
    let models = [small, medium, large];
    let mut text = String::new();
    let mut level = None;
    for line in TEMPLATE.lines() {
        if let Some(name) = line.strip_prefix("[capacity.") {
            level = LEVELS.iter().position(|level| name.trim_end_matches(']') == *level);
            if level == Some(0) {
                text += &comment(server, servers, &models);
            }
        } else if line.starts_with('[') {
            level = None;
        }
        let model = level.and_then(|level| models.get(level));
        match (line.split_once(" = "), model) {
            (Some(("base_url", _)), Some(_)) => text += &format!("base_url = {}\n", quoted(&server.base_url)),
            (Some(("model", _)), Some(model)) => text += &format!("model = {}\n", quoted(model)),
            _ => text += &format!("{line}\n"),
        }
    }
    text
}

/// What was found, as a comment of the file.
fn comment(server: &Server, servers: &[Server], models: &[String; 3]) -> String {
    let mut text = format!("# {} at {} serves these; found by `lemon init`.\n", server.kind, server.base_url);
    if models.iter().all(|model| *model == models[0]) {
        text += "# One model serves every capacity. A stronger or a cheaper one in some of them lets teams choose.\n";
    }
    let used = |served: &&String| models.contains(served);
    for other in servers {
        let unused: Vec<&str> = match other == server {
            true => other.models.iter().filter(|model| !used(model)).map(String::as_str).collect(),
            false => other.models.iter().map(String::as_str).collect(),
        };
        if !unused.is_empty() {
            text += &format!("# Also at {}: {}\n", other.base_url, unused.join(", "));
        }
    }
    text
}

/// A text as TOML writes it.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
