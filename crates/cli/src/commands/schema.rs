//! `lemon schema`

use crate::args::{Cli, SchemaArgs};
use crate::config::Config;
use crate::fault::Fault;
use crate::{println, setup, to_json};

pub fn schema(cli: &Cli, args: &SchemaArgs) -> Result<u8, Fault> {
    let config = Config::load(cli.config.as_deref())?;
    let language = setup::language(&config, &args.endpoints)?;
    println(&to_json(&lemon_spec::json_schema(&language)))
}
