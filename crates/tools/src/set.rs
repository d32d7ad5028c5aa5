//! The tools of a configuration, as a run sees them.

use crate::calculator::{self, calculate};
use crate::clean::clean;
use crate::config::{PYTHON, ToolConfig, ToolsConfig, check};
use crate::error::{ToolError, ToolErrorKind};
use crate::mcp::Server;
use crate::python::{self, Python};
use futures::future::join_all;
use lemon_exec::OfferedTool;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of the arguments of a call at most, as JSON text.
const MOST_ARGUMENTS: usize = 256 << 10;

/// The tools of a configuration. Servers are started when they are first needed, and end with the set.
pub struct ToolSet {
    tools: Vec<(String, ToolConfig, Source)>,
}

enum Source {
    Calculator,
    Python(Python),
    Server(Box<Server>),
}

/// The tools that can be called, and those that cannot.
#[derive(Debug, Default)]
pub struct ToolList {
    /// By name, in the order of the configuration.
    pub tools: Vec<OfferedTool>,
    /// What cannot be called, and why.
    pub faults: Vec<(String, ToolError)>,
}

/// What a check of one table found.
#[derive(Debug)]
pub struct ToolCheck {
    /// The name of the table.
    pub name: String,
    /// How long it took: for a server, until it had started.
    pub took: Duration,
    /// The tools that can be called.
    pub tools: Vec<OfferedTool>,
    /// What cannot be used.
    pub faults: Vec<ToolError>,
}

/// What a tool replied.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolResult {
    /// Its text, cleaned and bounded. It is untrusted all the same.
    pub text: String,
    /// Whether it was longer.
    pub cut: bool,
    /// How long the call took.
    pub seconds: f64,
}

impl ToolSet {
    /// The tools of a configuration. Nothing is started yet. `folder` is that of the configuration.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub fn new(config: &ToolsConfig, folder: &Path) -> Result<Self, ToolError> {
        check(config)?;
        let source = |name: &String, tool: &ToolConfig| match &tool.mcp {
            Some(mcp) => Source::Server(Box::new(Server::new(name, tool, mcp, folder.to_owned()))),
            None if name == PYTHON => Source::Python(Python::default()),
            None => Source::Calculator,
        };
        let tools = config.iter().map(|(name, tool)| (name.clone(), tool.clone(), source(name, tool))).collect();
        Ok(ToolSet { tools })
    }

    /// Whether no tool is configured.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Every tool that can be called. Servers are started for it; one that fails is a fault of the list.
    pub async fn list(&self) -> ToolList {
        let lists = join_all(self.tools.iter().map(|(name, config, source)| list(name, config, source))).await;
        let mut all = ToolList::default();
        for ToolList { tools, faults } in lists {
            all.tools.extend(tools);
            all.faults.extend(faults);
        }
        all
    }

    /// What is known of one tool. Its server, and no other, is started for it.
    ///
    /// # Errors
    /// There is no such tool, or its server cannot be reached.
    pub async fn info(&self, name: &str) -> Result<OfferedTool, ToolError> {
        let table = name.split_once('.').map_or(name, |(table, _)| table);
        let Some((table, config, source)) = self.tools.iter().find(|(known, _, _)| known == table) else {
            return Err(unknown(name, self.tools.iter().map(|(known, _, _)| known.clone())));
        };
        let ToolList { tools, faults } = list(table, config, source).await;
        let names: Vec<String> = tools.iter().map(|tool| tool.name.clone()).collect();
        if let Some(tool) = tools.into_iter().find(|tool| tool.name == name) {
            return Ok(tool);
        }
        let fault = faults.into_iter().find(|(of, _)| of == name || of == table);
        Err(fault.map_or_else(|| unknown(name, names.into_iter()), |(_, error)| error))
    }

    /// Checks every table. Built-in tools are tried, servers are started.
    pub async fn check(&self) -> Vec<ToolCheck> {
        let check = async |(name, config, source): &(String, ToolConfig, Source)| {
            let began = Instant::now();
            let mut found = list(name, config, source).await;
            if let Source::Python(python) = source
                && let Err(error) = python.probe().await
            {
                found.faults.push((name.clone(), error));
                found.tools.clear();
            }
            let faults = found.faults.into_iter().map(|(_, error)| error).collect();
            ToolCheck { name: name.clone(), took: began.elapsed(), tools: found.tools, faults }
        };
        join_all(self.tools.iter().map(check)).await
    }

    /// Makes one call. It ends within the tool's timeout and a moment, whatever the tool does.
    ///
    /// # Errors
    /// The tool gave no result. [`ToolErrorKind::effect`] says whether it may have run.
    pub async fn call(&self, name: &str, arguments: &Value) -> Result<ToolResult, ToolError> {
        let began = Instant::now();
        let (table, tool) = name.split_once('.').map_or((name, None), |(table, tool)| (table, Some(tool)));
        let found = self
            .tools
            .iter()
            .find(|(known, _, source)| known == table && tool.is_some() == matches!(source, Source::Server(_)));
        let Some((_, config, source)) = found else {
            let names = self.tools.iter().map(|(known, _, source)| match source {
                Source::Server(_) => format!("{known}.{}", tool.unwrap_or("TOOL")),
                _ => known.clone(),
            });
            return Err(unknown(name, names));
        };
        let arguments = object(arguments)?;
        let most = config.max_result_bytes;
        let answer = match source {
            Source::Calculator => {
                let expression = only_text(&arguments, "expression")?;
                calculate(&expression).map_err(|fact| ToolError::new(ToolErrorKind::Failed, fact))
            }
            Source::Python(python) => {
                let code = only_text(&arguments, "code")?;
                python.run(code, config.timeout(), most).await
            }
            Source::Server(server) => server.call(tool.unwrap_or_default(), arguments).await,
        };
        match answer {
            Ok(text) => {
                let (text, cut) = bounded(&text, most);
                Ok(ToolResult { text, cut, seconds: began.elapsed().as_secs_f64() })
            }
            Err(error) => Err(ToolError { message: bounded(&error.message, most).0, ..error }),
        }
    }

    /// Ends every server that was started. Dropping the set does so too, without waiting.
    pub async fn close(&self) {
        let servers = self.tools.iter().filter_map(|(_, _, source)| match source {
            Source::Server(server) => Some(server.close()),
            _ => None,
        });
        join_all(servers).await;
    }
}

async fn list(name: &str, config: &ToolConfig, source: &Source) -> ToolList {
    let info = |name: String, description: &str, schema: Value| OfferedTool {
        name,
        description: description.to_owned(),
        schema,
        price: config.price,
        idempotent: config.is_idempotent(),
        read_only: config.is_read_only(),
        approve: config.approve,
    };
    let one = |description, key, about| ToolList {
        tools: vec![info(name.to_owned(), description, text_schema(key, about))],
        faults: Vec::new(),
    };
    match source {
        Source::Calculator => one(calculator::DESCRIPTION, "expression", "For example: (12.50 * 4 - 3) / 2"),
        Source::Python(_) => one(python::DESCRIPTION, "code", "A Python program"),
        Source::Server(server) => match server.connection().await {
            Err(error) => ToolList { tools: Vec::new(), faults: vec![(name.to_owned(), error)] },
            Ok(connection) => {
                let tools = connection.tools.iter();
                let tools =
                    tools.map(|tool| info(format!("{name}.{}", tool.name), &tool.description, tool.schema.clone()));
                let refused = connection.refused.iter().map(|(tool, fact)| {
                    let name = format!("{name}.{tool}");
                    let fact = format!("the tool `{name}` cannot be called: {fact}");
                    (name, ToolError::new(ToolErrorKind::Protocol, fact))
                });
                ToolList { tools: tools.collect(), faults: refused.collect() }
            }
        },
    }
}

fn text_schema(key: &str, about: &str) -> Value {
    json!({
        "type": "object",
        "properties": { key: { "type": "string", "description": about } },
        "required": [key],
        "additionalProperties": false,
    })
}

/// The arguments of a call; none are an empty object.
fn object(arguments: &Value) -> Result<Map<String, Value>, ToolError> {
    let fault = |fact: String| Err(ToolError::new(ToolErrorKind::InvalidArguments, fact));
    match arguments {
        Value::Null => Ok(Map::new()),
        Value::Object(arguments) => match Value::Object(arguments.clone()).to_string().len() {
            bytes if bytes > MOST_ARGUMENTS => {
                fault(format!("the arguments have {bytes} bytes, at most {MOST_ARGUMENTS} are sent"))
            }
            _ => Ok(arguments.clone()),
        },
        other => fault(format!("expected a JSON object of arguments, found {}", kind(other))),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The one argument of a built-in tool.
fn only_text(arguments: &Map<String, Value>, key: &str) -> Result<String, ToolError> {
    let fault = |fact: String| Err(ToolError::new(ToolErrorKind::InvalidArguments, fact));
    if let Some(other) = arguments.keys().find(|name| *name != key) {
        return fault(format!("unknown argument `{}`; expected `{key}`", crate::clean_line(other, 100)));
    }
    match arguments.get(key) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => fault(format!("`{key}` must be a string, found {}", kind(other))),
        None => fault(format!("`{key}` is missing")),
    }
}

/// A text of at most `most` bytes, with a note where it was cut.
fn bounded(text: &str, most: usize) -> (String, bool) {
    let (whole, cut) = clean(text, most);
    if !cut {
        return (whole, false);
    }
    let note = format!("\n[cut: the result has {} bytes]", text.len());
    let (mut begin, _) = clean(text, most.saturating_sub(note.len()));
    if most > note.len() {
        begin += &note;
    }
    (begin, true)
}

/// The error for a name that is none of these.
pub(crate) fn unknown(name: &str, names: impl Iterator<Item = String>) -> ToolError {
    let names: Vec<String> = names.collect();
    let shown = crate::clean_line(name, 100);
    let error = ToolError::new(ToolErrorKind::UnknownTool, format!("unknown tool `{shown}`"));
    let near = names.iter().map(|known| (strsim::damerau_levenshtein(known, name), known)).min();
    match near {
        Some((distance, known)) if distance <= 3 && name.len() < 200 => error.hint(format!("did you mean `{known}`?")),
        Some(_) => error.hint(format!("the tools are {}", names.join(", "))),
        None => error.hint("no tool is configured: add [tools.python] or [tools.calculator] to lemon.toml"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> ToolSet {
        ToolSet::new(&toml::from_str(text).unwrap(), Path::new("")).unwrap()
    }

    async fn check(set: &ToolSet, name: &str, arguments: Value, expected: Result<&str, (ToolErrorKind, &str)>) {
        let found = set.call(name, &arguments).await;
        match (&found, expected) {
            (Ok(result), Ok(text)) => assert_eq!(result.text, text),
            (Err(error), Err((kind, text))) => {
                assert_eq!(error.kind, kind, "{error}");
                assert!(error.message.contains(text), "{error} should contain {text}");
            }
            _ => panic!("{name} {arguments}: {found:?}, expected {expected:?}"),
        }
    }

    #[tokio::test]
    async fn the_calculator_is_called_with_one_text() {
        use ToolErrorKind::*;
        let set = set("[calculator]\n");
        check(&set, "calculator", json!({"expression": "0.1 + 0.2"}), Ok("0.3 (3/10)")).await;
        check(&set, "calculator", json!({"expression": "1/0"}), Err((Failed, "division by zero"))).await;
        check(&set, "calculator", json!({}), Err((InvalidArguments, "`expression` is missing"))).await;
        check(&set, "calculator", Value::Null, Err((InvalidArguments, "`expression` is missing"))).await;
        check(
            &set,
            "calculator",
            json!({"expression": 3}),
            Err((InvalidArguments, "must be a string, found a number")),
        )
        .await;
        check(&set, "calculator", json!({"exp": "3"}), Err((InvalidArguments, "unknown argument `exp`"))).await;
        check(&set, "calculator", json!([1]), Err((InvalidArguments, "found a list"))).await;
        let long = json!({"expression": "1".repeat(300_000)});
        check(&set, "calculator", long, Err((InvalidArguments, "at most 262144 are sent"))).await;
    }

    #[tokio::test]
    async fn unknown_names_get_a_hint() {
        let set = set("[calculator]\n[docs]\nmcp = { command = ['x'] }\n");
        let hint = async |name: &str| set.call(name, &json!({})).await.unwrap_err().hint.unwrap();
        assert_eq!(hint("calculater").await, "did you mean `calculator`?");
        assert_eq!(hint("doc.search").await, "did you mean `docs.search`?");
        assert_eq!(hint("docs").await, "the tools are calculator, docs.TOOL");
        assert_eq!(hint("calculator.add").await, "the tools are calculator, docs.add");
        let none = super::tests::set("");
        assert!(none.is_empty());
        assert!(none.call("python", &json!({})).await.unwrap_err().hint.unwrap().contains("[tools.python]"));
    }

    #[tokio::test]
    async fn long_results_are_cut_with_a_note() {
        let set = set("[calculator]\nmax_result_bytes = 60\n");
        let result = set.call("calculator", &json!({"expression": "7^200"})).await.unwrap();
        assert!(result.cut && result.text.len() <= 60, "{result:?}");
        assert!(result.text.ends_with("\n[cut: the result has 170 bytes]"), "{result:?}");
    }
}
