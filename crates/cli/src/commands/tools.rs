//! `lemon tools`: what agents may call, tried by hand.

use crate::args::{Cli, Endpoints, ToolsCommand};
use crate::fault::{Fault, USAGE};
use crate::{one_line, print, print_json, println, runtime};
use lemon_exec::OfferedTool;
use lemon_tools::{ToolCheck, ToolError, ToolErrorKind, ToolSet};
use serde_json::{Value, json};

pub fn tools(cli: &Cli, command: &ToolsCommand) -> Result<u8, Fault> {
    let tools = cli.config(&Endpoints::default())?.tool_set()?;
    runtime()?.block_on(async {
        let done = match command {
            ToolsCommand::List { json } => list(&tools, *json).await,
            ToolsCommand::Call { name, arguments, json } => call(&tools, name, arguments.as_deref(), *json).await,
            ToolsCommand::Doctor { json } => doctor(&tools, *json).await,
        };
        tools.close().await;
        done
    })
}

const NONE: &str = "no tool is configured; add [tools.calculator] or [tools.python] to lemon.toml, see docs/tools.md";

async fn list(tools: &ToolSet, json: bool) -> Result<u8, Fault> {
    let list = tools.list().await;
    if json {
        let faults: Vec<_> = list.faults.iter().map(|(name, error)| fault_json(name, error)).collect();
        print_json(&json!({ "tools": list.tools, "faults": faults }))?;
    } else {
        print(&list.tools.iter().map(describe).collect::<String>())?;
        list.faults.iter().for_each(|(_, error)| tell(error));
        if tools.is_empty() {
            eprintln!("{NONE}");
        }
    }
    Ok(u8::from(!list.faults.is_empty()))
}

async fn call(tools: &ToolSet, name: &str, arguments: Option<&str>, json: bool) -> Result<u8, Fault> {
    let arguments = match arguments.map(serde_json::from_str::<Value>) {
        None => Value::Null,
        Some(Ok(arguments)) => arguments,
        Some(Err(error)) => {
            return Err(Fault::new(format!("the arguments are not JSON: {error}"))
                .hint(format!("for example: lemon tools call {} '{{\"key\": \"value\"}}'", one_line(name))));
        }
    };
    match tools.call(name, &arguments).await {
        Ok(result) if json => print_json(&result),
        Ok(result) => println(result.text.trim_end()),
        Err(error) if json => {
            print_json(&json!({ "error": fault_json(name, &error) }))?;
            Ok(code(&error))
        }
        Err(error) => {
            tell(&error);
            Ok(code(&error))
        }
    }
}

async fn doctor(tools: &ToolSet, json: bool) -> Result<u8, Fault> {
    let checks = tools.check().await;
    let healthy = checks.iter().all(|check| check.faults.is_empty());
    if json {
        let check = |ToolCheck { name, took, tools, faults }: &ToolCheck| {
            let names: Vec<_> = tools.iter().map(|tool| &tool.name).collect();
            let faults: Vec<_> = faults.iter().map(|error| fault_json(name, error)).collect();
            let (works, seconds) = (faults.is_empty(), took.as_secs_f64());
            json!({ "name": name, "works": works, "seconds": seconds, "tools": names, "faults": faults })
        };
        print_json(&json!({ "healthy": healthy, "checks": checks.iter().map(check).collect::<Vec<_>>() }))?;
        return Ok(u8::from(!healthy));
    }
    if tools.is_empty() {
        eprintln!("{NONE}");
    }
    for ToolCheck { name, took, tools, faults } in &checks {
        let works = if faults.is_empty() { console::style("yes").green() } else { console::style("no").red() };
        let mut text = format!("{}\n  works  {works} ({:.2} s)\n", console::style(name).bold(), took.as_secs_f64());
        if !tools.is_empty() {
            let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
            text += &format!("  tools  {}\n", names.join(", "));
        }
        for error in faults {
            text += &format!("  {}: {}\n", console::style("error").red(), one_line(&error.message));
            if let Some(hint) = &error.hint {
                text += &format!("  {}: {}\n", console::style("hint").cyan(), one_line(hint));
            }
        }
        print(&text)?;
    }
    Ok(u8::from(!healthy))
}

fn describe(tool: &OfferedTool) -> String {
    let marks = [(tool.read_only, "read-only"), (tool.idempotent, "idempotent"), (tool.approve, "needs approval")];
    let marks: Vec<_> = marks.into_iter().filter(|(is, _)| *is).map(|(_, mark)| mark.to_owned()).collect();
    let price = (tool.price > 0.0).then(|| format!("${} a call", tool.price));
    let marks = marks.into_iter().chain(price).collect::<Vec<_>>().join(", ");
    let marks = if marks.is_empty() { marks } else { format!("  ({marks})") };
    let mut text = format!("{}{marks}\n", console::style(one_line(&tool.name)).bold());
    if !tool.description.is_empty() {
        text += &format!("  {}\n", one_line(&tool.description));
    }
    let required = |name: &str| {
        tool.schema["required"].as_array().is_some_and(|names| names.iter().any(|it| it.as_str() == Some(name)))
    };
    for (name, schema) in tool.schema["properties"].as_object().into_iter().flatten() {
        let kind = schema["type"].as_str().unwrap_or("any");
        let optional = if required(name) { "" } else { ", optional" };
        text += &format!("  {}: {}{optional}\n", one_line(name), one_line(kind));
    }
    text
}

fn tell(error: &ToolError) {
    eprintln!("error: {}", error.message);
    if let Some(hint) = &error.hint {
        eprintln!("hint: {hint}");
    }
}

fn fault_json(name: &str, error: &ToolError) -> Value {
    json!({ "tool": name, "kind": error.kind, "message": error.message, "hint": error.hint })
}

/// Names and arguments that cannot be used are the caller's fault; the rest is the tool's.
fn code(error: &ToolError) -> u8 {
    match error.kind {
        ToolErrorKind::UnknownTool | ToolErrorKind::InvalidArguments | ToolErrorKind::Configuration => USAGE,
        _ => 1,
    }
}
