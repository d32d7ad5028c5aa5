//! `lemon schema`

use crate::args::{Cli, SchemaArgs};
use crate::fault::Fault;
use crate::print_json;

pub fn schema(cli: &Cli, args: &SchemaArgs) -> Result<u8, Fault> {
    let language = cli.config(&args.endpoints)?.language()?;
    print_json(&lemon_spec::json_schema(&language))
}
