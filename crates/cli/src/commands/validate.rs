//! `lemon validate`

use crate::args::{Cli, ValidateArgs};
use crate::fault::Fault;
use crate::{print, print_json, println};
use lemon_spec::diagnostic::explain;
use serde_json::json;

pub fn validate(cli: &Cli, args: &ValidateArgs) -> Result<u8, Fault> {
    let language = cli.config(&args.endpoints)?.language()?;
    let text = super::read_input(&args.file)?;
    let result = lemon_spec::validate(&text, &language);
    let valid = result.is_ok();
    let diagnostics = match &result {
        Ok(plan) => plan.warnings(),
        Err(rejection) => rejection.diagnostics.as_slice(),
    };
    if args.json {
        print_json(&json!({ "valid": valid, "diagnostics": diagnostics }))?;
    } else {
        let name = args.file.display().to_string();
        let color = console::colors_enabled();
        let explained = explain(diagnostics, &text, &name, color);
        if !explained.is_empty() {
            println(explained.trim_end())?;
        }
        if let Ok(plan) = &result {
            let depth = plan.agents().iter().map(|agent| agent.depth).max().unwrap_or(0);
            let agents = plan.agents().len();
            print(&format!("{name}: valid, {agents} agent{}, depth {depth}\n", if agents == 1 { "" } else { "s" }))?;
        }
    }
    Ok(u8::from(!valid))
}
