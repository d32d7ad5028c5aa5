//! `lemon schema`

use crate::args::{Cli, SchemaArgs};
use crate::fault::Fault;
use crate::{println, to_json};

pub fn schema(cli: &Cli, args: &SchemaArgs) -> Result<u8, Fault> {
    let language = cli.config(&args.endpoints)?.language()?;
    println(&to_json(&lemon_spec::json_schema(&language)))
}
