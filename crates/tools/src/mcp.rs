//! One MCP server: connected when it is first needed, replaced by a new connection after a failure.

mod content;
mod http;
mod lines;
mod meter;
mod process;

use crate::clean_line;
use crate::config::{McpConfig, ToolConfig};
use crate::error::{ToolError, ToolErrorKind};
use crate::schema;
use jsonschema::Validator;
use lines::Lines;
use meter::Meter;
use process::ServerProcess;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig, Implementation,
    PaginatedRequestParams, Tool,
};
use rmcp::service::{Peer, RoleClient, RunningService, ServiceError, serve_client};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransport, StreamableHttpClientTransportConfig};
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// Tools of one server at most, and pages of its list.
const MOST_TOOLS: usize = 256;
const MOST_PAGES: usize = 32;
/// Bytes of a description at most.
const DESCRIPTION: usize = 1 << 10;

/// A server of the configuration.
pub(crate) struct Server {
    name: String,
    config: ToolConfig,
    mcp: McpConfig,
    folder: PathBuf,
    state: Mutex<State>,
    /// How often connecting has failed. Those that waited for a failed attempt share its error.
    failures: AtomicU64,
}

#[derive(Default)]
struct State {
    connection: Option<Arc<Connection>>,
    last_failure: Option<ToolError>,
}

/// A live connection. It ends, and the server with it, when the last call on it does.
pub(crate) struct Connection {
    service: RunningService<RoleClient, ClientConfig>,
    process: Option<Mutex<ServerProcess>>,
    meter: Arc<Meter>,
    /// The tools that may be called.
    pub tools: Vec<ServerTool>,
    /// Tools that cannot be offered, and why.
    pub refused: Vec<(String, String)>,
}

pub(crate) struct ServerTool {
    pub name: String,
    pub description: String,
    pub schema: Value,
    arguments: Validator,
    result: Option<Validator>,
}

impl Server {
    pub fn new(name: &str, config: &ToolConfig, mcp: &McpConfig, folder: PathBuf) -> Self {
        Server {
            name: name.to_owned(),
            config: config.clone(),
            mcp: mcp.clone(),
            folder,
            state: Mutex::default(),
            failures: AtomicU64::new(0),
        }
    }

    /// The connection; a new one where there is none.
    pub async fn connection(&self) -> Result<Arc<Connection>, ToolError> {
        let before = self.failures.load(Ordering::Acquire);
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.connection
            && !connection.service.is_closed()
        {
            return Ok(connection.clone());
        }
        if let Some(failure) = &state.last_failure
            && self.failures.load(Ordering::Acquire) != before
        {
            return Err(failure.clone());
        }
        state.connection = None;
        match self.connect().await {
            Ok(connection) => {
                let connection = Arc::new(connection);
                state.connection = Some(connection.clone());
                Ok(connection)
            }
            Err(failure) => {
                state.last_failure = Some(failure.clone());
                self.failures.fetch_add(1, Ordering::Release);
                Err(failure)
            }
        }
    }

    /// Makes one call. A failure of the connection retires it, so that the next call gets a new one.
    pub async fn call(&self, tool: &str, arguments: Map<String, Value>) -> Result<String, ToolError> {
        let connection = self.connection().await?;
        let tool =
            connection.tools.iter().find(|known| known.name == tool).ok_or_else(|| self.unknown(&connection, tool))?;
        let faults = schema::faults(&tool.arguments, &Value::Object(arguments.clone()));
        if !faults.is_empty() {
            return Err(ToolError::new(ToolErrorKind::InvalidArguments, faults.join("; ")));
        }
        let parameters = CallToolRequestParams::new(tool.name.clone()).with_arguments(arguments);
        let metered = connection.meter.begin();
        let limit = self.config.timeout();
        let answer = timeout(limit, connection.service.peer().call_tool_once(parameters)).await;
        drop(metered);
        let (kind, fact) = match answer {
            Ok(Ok(CallToolResponse::Complete(result))) => return told(tool, &result),
            Ok(Ok(_)) => {
                let fact = "the server asks for input or a task, which LEMON does not offer";
                return Err(ToolError::new(ToolErrorKind::Protocol, fact));
            }
            // A reply of the server: the connection is well.
            Ok(Err(ServiceError::McpError(error))) => {
                return Err(ToolError::new(ToolErrorKind::Failed, clean_line(&error.message, 500)));
            }
            Ok(Err(ServiceError::UnexpectedResponse)) => {
                return Err(ToolError::new(ToolErrorKind::Protocol, "the server's reply is no result of a tool"));
            }
            _ if connection.meter.is_spent() => {
                (ToolErrorKind::TooLarge, format!("the server sent more than {} bytes", connection.meter.per_call()))
            }
            Err(_) => (ToolErrorKind::Timeout, format!("no result after {} s", limit.as_secs_f64())),
            Ok(Err(ServiceError::TransportClosed)) => (ToolErrorKind::Died, "the connection ended".to_owned()),
            Ok(Err(error)) => (ToolErrorKind::Died, clean_line(&error.to_string(), 500)),
        };
        let ended = self.retire(&connection).await;
        let ended = if ended.is_empty() { ended } else { format!(": {ended}") };
        Err(ToolError::new(kind, format!("{fact}{ended}")))
    }

    /// Ends the connection, if there is one.
    pub async fn close(&self) {
        if let Some(connection) = self.state.lock().await.connection.take()
            && let Some(process) = &connection.process
        {
            process.lock().await.end().await;
        }
    }

    /// Lets no more calls on the connection, and says how its server ended.
    async fn retire(&self, connection: &Arc<Connection>) -> String {
        let mut state = self.state.lock().await;
        if state.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            state.connection = None;
        }
        drop(state);
        // Other calls may still wait for this server, unless it is gone anyway. The last of them ends it.
        match &connection.process {
            Some(process) if connection.service.is_closed() => process.lock().await.end().await,
            _ => String::new(),
        }
    }

    async fn connect(&self) -> Result<Connection, ToolError> {
        let limit = self.mcp.start_timeout();
        let meter = Meter::new(self.config.max_result_bytes);
        let unavailable = |fact: String| {
            let name = &self.name;
            ToolError::new(ToolErrorKind::Unavailable, format!("the MCP server `{name}` cannot be used: {fact}"))
                .hint(format!("`lemon tools doctor` checks it; see [tools.{name}] in the configuration"))
        };
        let client =
            ClientConfig::new(ClientCapabilities::default(), Implementation::new("lemon", env!("CARGO_PKG_VERSION")));
        let mut process = None;
        let started = match &self.mcp.url {
            None => {
                let (started, output, input) = ServerProcess::start(&self.mcp, &self.folder).map_err(unavailable)?;
                let process = process.insert(started);
                // The meter bounds a line.
                let transport = AsyncRwTransport::new_client(Lines::new(output, meter.clone()), input)
                    .with_max_line_length(usize::MAX);
                let ready = timeout(limit, serve_client(client, transport));
                tokio::select! {
                    ready = ready => ready.map(|ready| ready.map_err(|error| error.to_string())),
                    () = process.exited() => Ok(Err("it ended before it was ready".to_owned())),
                }
            }
            Some(url) => {
                let http = http::Http::new(meter.clone()).map_err(unavailable)?;
                let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
                let mut retry = ExponentialBackoff::default();
                retry.max_times = Some(3);
                config.retry_config = Arc::new(retry);
                if let Some(variable) = &self.mcp.token_env {
                    let token = std::env::var(variable);
                    let token = token.map_err(|error| unavailable(format!("`token_env` names {variable}: {error}")))?;
                    config = config.auth_header(token);
                }
                let transport = StreamableHttpClientTransport::with_client(http, config);
                let ready = timeout(limit, serve_client(client, transport)).await;
                ready.map(|ready| ready.map_err(|error| error.to_string()))
            }
        };
        let ready = match started {
            Err(_) => Err(format!("it did not start within {} s", limit.as_secs_f64())),
            Ok(Err(_)) if meter.is_spent() => Err(format!("it sent more than {} bytes", meter.per_call())),
            Ok(Err(error)) => Err(clean_line(&error, 500)),
            Ok(Ok(service)) => match timeout(limit, list(service.peer())).await {
                Err(_) => Err(format!("it did not list its tools within {} s", limit.as_secs_f64())),
                Ok(Err(_)) if meter.is_spent() => Err(format!("it sent more than {} bytes", meter.per_call())),
                Ok(Err(fact)) => Err(fact),
                Ok(Ok(listed)) => Ok((service, listed)),
            },
        };
        match ready {
            Ok((service, listed)) => {
                let (tools, refused) = self.offered(listed);
                Ok(Connection { service, process: process.map(Mutex::new), meter, tools, refused })
            }
            Err(fact) => {
                let ended = match &mut process {
                    Some(process) => process.end().await,
                    None => String::new(),
                };
                let parts = [fact, ended].into_iter().filter(|part| !part.is_empty());
                Err(unavailable(parts.collect::<Vec<_>>().join("; ")))
            }
        }
    }

    /// The tools that may be called, and why others may not.
    fn offered(&self, listed: Vec<Tool>) -> (Vec<ServerTool>, Vec<(String, String)>) {
        let (mut tools, mut refused): (Vec<ServerTool>, Vec<_>) = Default::default();
        let allowed = |name: &str| self.config.allow.as_ref().is_none_or(|allow| allow.iter().any(|it| it == name));
        for tool in listed.into_iter().filter(|tool| allowed(&tool.name)) {
            let name = clean_line(&tool.name, 128);
            let twice = tools.iter().any(|known| known.name == name);
            match ServerTool::new(tool) {
                Ok(_) if twice => refused.push((name, "another tool has the same name".to_owned())),
                Ok(tool) => tools.push(tool),
                Err(fact) => refused.push((name, fact)),
            }
        }
        for name in self.config.allow.iter().flatten() {
            if !tools.iter().any(|tool| tool.name == *name) && !refused.iter().any(|(refused, _)| refused == name) {
                refused.push((name.clone(), "`allow` names it, and the server has no such tool".to_owned()));
            }
        }
        (tools, refused)
    }

    fn unknown(&self, connection: &Connection, tool: &str) -> ToolError {
        let name = format!("{}.{tool}", self.name);
        if let Some((_, fact)) = connection.refused.iter().find(|(refused, _)| refused == tool) {
            return ToolError::new(ToolErrorKind::UnknownTool, format!("the tool `{name}` cannot be called: {fact}"));
        }
        let names = connection.tools.iter().map(|known| format!("{}.{}", self.name, known.name));
        crate::set::unknown(&name, names)
    }
}

/// All pages of the list, within bounds.
async fn list(peer: &Peer<RoleClient>) -> Result<Vec<Tool>, String> {
    let mut tools = Vec::new();
    let mut page = PaginatedRequestParams::default();
    for _ in 0..MOST_PAGES {
        let listed = peer.list_tools(Some(page.clone())).await;
        let listed =
            listed.map_err(|error| format!("it does not list its tools: {}", clean_line(&error.to_string(), 500)))?;
        tools.extend(listed.tools);
        if tools.len() > MOST_TOOLS {
            return Err(format!("it lists more than {MOST_TOOLS} tools"));
        }
        match listed.next_cursor {
            Some(cursor) => page = page.with_cursor(Some(cursor)),
            None => return Ok(tools),
        }
    }
    Err(format!("its list of tools has more than {MOST_PAGES} pages"))
}

impl ServerTool {
    fn new(tool: Tool) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
        if tool.name.is_empty() || tool.name.len() > 64 || !tool.name.chars().all(plain) {
            return Err("a name must have 1 to 64 of A-Z, a-z, 0-9, `_`, `-`, `.` and `/`".to_owned());
        }
        let schema = tool.schema_as_json_value();
        let arguments = schema::compile(&schema).map_err(|fact| format!("its schema cannot be used: {fact}"))?;
        let result = tool.output_schema.map(|schema| schema::compile(&Value::Object((*schema).clone())));
        let result = result.transpose().map_err(|fact| format!("its output schema cannot be used: {fact}"))?;
        let description = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default();
        let (description, _) = crate::clean(description, DESCRIPTION);
        Ok(ServerTool { name: tool.name.into_owned(), description, schema, arguments, result })
    }
}

/// What a finished call says.
fn told(tool: &ServerTool, result: &CallToolResult) -> Result<String, ToolError> {
    let text = content::text(result);
    if result.is_error == Some(true) {
        return Err(ToolError::new(ToolErrorKind::Failed, text));
    }
    if let (Some(schema), Some(value)) = (&tool.result, &result.structured_content) {
        let faults = schema::faults(schema, value);
        if !faults.is_empty() {
            let fact = format!("the result does not match the tool's own schema: {}", faults.join("; "));
            return Err(ToolError::new(ToolErrorKind::Protocol, fact));
        }
    }
    Ok(text)
}
