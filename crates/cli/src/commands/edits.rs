//! `lemon edits`

use crate::args::{Cli, EditsArgs};
use crate::fault::Fault;
use crate::{one_line, print, print_json};
use lemon_spec::diagnostic::explain;
use lemon_spec::edit::{Edit, Edited, apply, edits as all_edits};
use lemon_spec::{Plan, Span};
use serde_json::{Value, json};

pub fn edits(cli: &Cli, args: &EditsArgs) -> Result<u8, Fault> {
    let language = cli.config(&args.endpoints)?.language()?;
    let text = super::read_input(&args.file)?;
    let plan = match lemon_spec::validate(&text, &language) {
        Ok(plan) => plan,
        Err(rejection) => {
            if args.json {
                print_json(&json!({ "edits": [], "diagnostics": rejection.diagnostics }))?;
            }
            let name = args.file.display().to_string();
            eprintln!("{}", explain(&rejection.diagnostics, &text, &name, console::colors_enabled_stderr()).trim_end());
            return Ok(1);
        }
    };
    let applied = all_edits(&plan, &language)
        .into_iter()
        .map(|edit| match apply(&plan, &edit, &language) {
            Ok(edited) => Ok((edit, edited)),
            Err(error) => Err(Fault::new(format!("{} does not apply: {error}", edit.describe()))),
        })
        .collect::<Result<Vec<_>, _>>()?;
    if args.json {
        let rows: Vec<Value> = applied.iter().map(|(edit, edited)| row(&plan, edit, edited)).collect();
        return print_json(&json!({ "edits": rows }));
    }
    for (edit, edited) in &applied {
        let direction = if edit.forward { "→" } else { "←" };
        let family = format!("{:?}", edit.family).to_lowercase();
        print(&format!("{family:<10} {direction} {}\n", edit.describe()))?;
        let before = edited.before.map_or("", |span| span.of(plan.source()));
        let after = edited.after.of(edited.plan.source());
        if edited.withhold.is_none() {
            print(&format!("             - {}\n             + {}\n", shortened(before), shortened(after)))?;
        }
    }
    eprintln!("{} edits", applied.len());
    Ok(0)
}

fn row(plan: &Plan, edit: &Edit, edited: &Edited) -> Value {
    let place = |span: Span, text: &str| json!({ "start": span.start, "end": span.end, "text": span.of(text) });
    // An edit of plain fields always serialises.
    let mut row = serde_json::to_value(edit).unwrap_or_default();
    row["description"] = json!(edit.describe());
    row["before"] = edited.before.map_or(Value::Null, |span| place(span, plan.source()));
    row["after"] = place(edited.after, edited.plan.source());
    row["withhold"] = json!(edited.withhold);
    row["spec"] = json!(edited.plan.source());
    row
}

fn shortened(text: &str) -> String {
    let line = one_line(text);
    let short: String = line.chars().take(88).collect();
    match short.len() < line.len() {
        true => short + "…",
        false if short.is_empty() => "(nothing)".into(),
        false => short,
    }
}
