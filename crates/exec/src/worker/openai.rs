//! Any OpenAI-compatible chat endpoint: vLLM, SGLang, Ollama, llama.cpp, a cloud.

mod completion;
mod read;
mod tool_calls;

use super::redact::{Secrets, mask_url};
use super::{AskError, Reply, Request, Worker};
use crate::tool::RequestedCall;
use async_trait::async_trait;
use completion::{Bounds, Completion};
use lemon_trace::FailureKind;
pub use read::streamed_text;
use read::{read_stream, read_whole, refusal};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Response, Url};
use serde::Serialize;
use serde_json::{Value, json};
use std::error::Error;
use std::iter::successors;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tool_calls::WireMessages;

/// How much of an endpoint's error message is kept.
const MAX_ERROR_CHARS: usize = 300;

/// The secret of an endpoint. It has no `Debug`, so that no log can show it.
#[derive(Clone)]
pub struct ApiKey(String);

impl ApiKey {
    /// Takes a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        ApiKey(secret.into())
    }
}

/// Where one capacity is served.
#[derive(Clone)]
pub struct Endpoint {
    /// The address up to `/v1`.
    pub base_url: String,
    /// The model's name there.
    pub model: String,
    /// The secret, where one is needed.
    pub api_key: Option<ApiKey>,
    /// How long nothing may come of a reply that is sent piece by piece; how long a reply that is sent whole may take.
    pub timeout: Duration,
    /// How long a reply that is sent piece by piece may take in all.
    pub total_timeout: Duration,
    /// Whether to ask for the reply piece by piece. A reply sent whole is read all the same.
    pub stream: bool,
    /// Whether to send a seed.
    pub send_seed: bool,
}

/// A worker for each capacity, over HTTP.
pub struct OpenAi {
    client: reqwest::Client,
    levels: Vec<EndpointState>,
    /// The keys of all capacities: an endpoint may get to know those of others.
    secrets: Secrets,
}

struct EndpointState {
    endpoint: Endpoint,
    /// Where its chat completions are.
    url: Url,
    headers: HeaderMap,
    /// Set once the endpoint refuses a request because of its schema, so that later calls do not try again.
    refuses_schema: AtomicBool,
    /// Set once the endpoint refuses a request because of its temperature: some models have one of their own.
    refuses_temperature: AtomicBool,
    /// Set once the endpoint refuses a request because of its tools: its model is then told of them in plain text.
    refuses_tools: AtomicBool,
}

impl OpenAi {
    /// A worker for these endpoints, one per capacity. Nothing it returns has their keys or passwords in it.
    ///
    /// # Errors
    /// The reason why no HTTP client can be had, or a key that cannot stand in a header.
    pub fn new(endpoints: Vec<Endpoint>) -> Result<Self, String> {
        let mut secrets = Secrets::default();
        for endpoint in &endpoints {
            endpoint.api_key.iter().for_each(|ApiKey(secret)| secrets.add(secret));
            secrets.add_url(&endpoint.base_url);
        }
        let client = http_client()?;
        let levels = endpoints.into_iter().map(EndpointState::new).collect::<Result<_, _>>()?;
        Ok(OpenAi { client, levels, secrets })
    }

    /// Hides another secret in whatever comes from outside: one that these endpoints are not told, but may know.
    #[must_use]
    pub fn hiding(mut self, secret: &str) -> Self {
        self.secrets.add(secret);
        self
    }

    async fn post(&self, state: &EndpointState, body: Vec<u8>) -> Result<Response, AskError> {
        let sent = self.client.post(state.url.clone()).headers(state.headers.clone()).body(body).send();
        let timeout = state.endpoint.timeout;
        let sent = tokio::time::timeout(timeout, sent).await.map_err(|_| {
            let message = format!("no reply began within {} s", timeout.as_secs_f64());
            AskError::unknown_cost(FailureKind::Timeout, message)
        })?;
        // Only where no connection came about is it certain that no model was at work.
        sent.map_err(|error| {
            // No more than the origin: a path or a user name may be private.
            let message = format!("{}, at {}", http_error(&error), state.url.origin().ascii_serialization());
            match error.is_connect() {
                true => AskError::free(FailureKind::Unreachable, message),
                false => AskError::unknown_cost(FailureKind::Unreachable, message),
            }
        })
    }

    async fn ask_once(&self, request: &Request, state: &EndpointState, schema: bool) -> Result<Reply, AskError> {
        let timeout = state.endpoint.timeout;
        let at_once = tokio::time::Instant::now().checked_add(timeout);
        let response = self.post(state, body(request, &state.endpoint, schema)).await?;
        let refused = !response.status().is_success();
        let streamed =
            response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let bounds = Bounds::of(request.max_tokens);
        let read = async {
            match (refused, streamed) {
                (true, _) => Err(refusal(response).await),
                (false, true) => read_stream(response, request, &self.secrets, &bounds, timeout).await,
                (false, false) => read_whole(response, &bounds).await.map(|completion| (completion, 0)),
            }
        };
        let (completion, told) = match at_once.filter(|_| refused || !streamed) {
            None => read.await?,
            Some(deadline) => tokio::time::timeout_at(deadline, read).await.unwrap_or_else(|_| {
                let message = format!("no complete reply within {} s", timeout.as_secs_f64());
                Err(AskError::unknown_cost(FailureKind::Timeout, message))
            })?,
        };
        self.presentable(completion, told, request)
    }

    /// A reply without secrets; the request's progress receives the rest of it.
    fn presentable(&self, completion: Completion, told: usize, request: &Request) -> Result<Reply, AskError> {
        if let (Some(progress), Some(rest)) = (&request.progress, completion.text.get(told..)) {
            progress.tell(&self.secrets.hide(rest.to_owned()));
        }
        let reply = completion.into_reply(request)?;
        let model = reply.model.map(|model| self.secrets.hide_in_error(&model));
        let hidden = |call: RequestedCall| RequestedCall {
            id: String::new(),
            tool: self.secrets.hide(call.tool),
            arguments: self.secrets.hide(call.arguments),
        };
        let tool_calls = reply.tool_calls.into_iter().map(hidden).collect();
        Ok(Reply { text: self.secrets.hide(reply.text), model, tool_calls, ..reply })
    }

    /// An error fit to be put on record: without secrets, which some endpoints quote, and not too long. In this order,
    /// because half a key would not be found any more.
    fn presentable_error(&self, mut error: AskError) -> AskError {
        error.failure.message = self.secrets.hide_in_error(&error.failure.message);
        error.partial = error.partial.map(|text| self.secrets.hide(text));
        if let Some((cut, _)) = error.failure.message.char_indices().nth(MAX_ERROR_CHARS) {
            error.failure.message.truncate(cut);
        }
        error
    }
}

#[async_trait]
impl Worker for OpenAi {
    async fn ask(&self, request: &Request) -> Result<Reply, AskError> {
        let Some(state) = self.levels.get(request.level) else {
            return Err(AskError::free(FailureKind::Refused, format!("no endpoint serves `{}`", request.capacity)));
        };
        let schema = request.schema.is_some() && !state.refuses_schema.load(Ordering::Relaxed);
        let mut sent = request.clone();
        sent.temperature = request.temperature.filter(|_| !state.refuses_temperature.load(Ordering::Relaxed));
        let call = self.ask_once(&sent, state, schema);
        let total = state.endpoint.total_timeout.max(state.endpoint.timeout);
        let result = tokio::time::timeout(total, call).await.unwrap_or_else(|_| {
            let message = format!("no complete reply within {} s in all", total.as_secs_f64());
            Err(AskError::unknown_cost(FailureKind::Timeout, message))
        });
        result.map_err(|error| {
            let error = state.without_temperature(error, sent.temperature.is_some());
            let error = state.without_tools(error, sent.speaks_of_tools());
            self.presentable_error(state.without_schema(error, schema))
        })
    }

    fn calls_tools(&self, level: usize) -> bool {
        self.levels.get(level).is_some_and(|state| !state.refuses_tools.load(Ordering::Relaxed))
    }
}

impl EndpointState {
    fn new(endpoint: Endpoint) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let shown = || mask_url(&endpoint.base_url);
        if let Some(ApiKey(secret)) = &endpoint.api_key {
            let mut value = HeaderValue::from_str(&format!("Bearer {secret}"))
                .map_err(|_| format!("the API key for {} has characters that no header can carry", shown()))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let url = format!("{}/chat/completions", endpoint.base_url.trim_end_matches('/'));
        let url = Url::parse(&url).map_err(|error| format!("{} is no address: {error}", shown()))?;
        Ok(EndpointState {
            endpoint,
            url,
            headers,
            refuses_schema: AtomicBool::new(false),
            refuses_temperature: AtomicBool::new(false),
            refuses_tools: AtomicBool::new(false),
        })
    }

    /// A request refused for its temperature may be taken without one.
    fn without_temperature(&self, mut error: AskError, sent: bool) -> AskError {
        let named = error.failure.message.to_ascii_lowercase().contains("temperature");
        if sent && named && error.failure.kind == FailureKind::Refused {
            self.refuses_temperature.store(true, Ordering::Relaxed);
            error.failure.kind = FailureKind::SchemaRefused;
            error.retry_after = Some(Duration::ZERO);
        }
        error
    }

    /// A request refused for its tools may be taken with the tools in plain text, as the next attempt has them.
    fn without_tools(&self, mut error: AskError, sent: bool) -> AskError {
        let said = error.failure.message.to_ascii_lowercase();
        let named = ["tool", "function", "jinja", "template"].iter().any(|word| said.contains(word));
        let refused = matches!(error.failure.kind, FailureKind::Refused | FailureKind::ServerError);
        if sent && named && refused && !self.refuses_tools.swap(true, Ordering::Relaxed) {
            error.failure.kind = FailureKind::SchemaRefused;
            error.retry_after = Some(Duration::ZERO);
        }
        error
    }

    /// A request refused with a schema may be taken without one. The next attempt has none: it is the driver's to make,
    /// because every request counts as a call.
    fn without_schema(&self, mut error: AskError, schema: bool) -> AskError {
        if schema && error.failure.kind == FailureKind::Refused {
            self.refuses_schema.store(true, Ordering::Relaxed);
            error.failure.kind = FailureKind::SchemaRefused;
            error.retry_after = Some(Duration::ZERO);
        }
        error
    }
}

/// The HTTP client everything here shares.
///
/// # Errors
/// The reason why none can be had.
pub fn http_client() -> Result<reqwest::Client, String> {
    http_client_with(|builder| builder)
}

/// The same with other settings besides.
///
/// # Errors
/// The reason why none can be had.
pub fn http_client_with(
    change: impl Fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
) -> Result<reqwest::Client, String> {
    // Fails only if a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || {
        let builder = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .tcp_nodelay(true)
            // A redirected request would carry its key to another server.
            .redirect(reqwest::redirect::Policy::none())
            // Trying again is the driver's to decide: every request counts.
            .retry(reqwest::retry::never());
        change(builder)
    };
    // A bare machine has no certificates to trust. It can still ask a server without encryption, such as its own.
    builder()
        .build()
        .or_else(|_| builder().tls_certs_only([]).build())
        .map_err(|error| format!("no HTTP client: {}", http_error(&error)))
}

/// The body of a request, written straight from what it is made of.
#[derive(Serialize)]
struct ChatRequest<'a> {
    model: &'a str,
    messages: WireMessages<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Value>,
    max_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<Value>,
}

fn body(request: &Request, endpoint: &Endpoint, schema: bool) -> Vec<u8> {
    let schema = request.schema.as_ref().filter(|_| schema);
    let body = ChatRequest {
        model: &endpoint.model,
        messages: WireMessages::of(request),
        tools: request.tools.as_deref().map(tool_calls::offered),
        max_tokens: request.max_tokens,
        stream: endpoint.stream.then_some(true),
        stream_options: endpoint.stream.then(|| json!({"include_usage": true})),
        temperature: request.temperature,
        seed: endpoint.send_seed.then_some(request.seed),
        response_format: schema.map(|schema| {
            let named = json!({"name": "team", "strict": true, "schema": schema});
            json!({"type": "json_schema", "json_schema": named})
        }),
    };
    // Plain values always serialise; an empty body would be refused by the endpoint.
    serde_json::to_vec(&body).unwrap_or_default()
}

/// An HTTP error by its causes, without the address, which its reader knows.
pub fn http_error(error: &reqwest::Error) -> String {
    let first: &dyn Error = error;
    let causes = successors(Some(first), |&error| error.source()).map(ToString::to_string);
    let is_known = |text: &String| text.starts_with("error sending request") || text.starts_with("client error");
    let mut text = causes.filter(|text| !is_known(text)).collect::<Vec<_>>().join(": ");
    if text.is_empty() {
        text = error.to_string();
    }
    if text.contains("UnknownIssuer") {
        text.push_str(" (this machine trusts no authority that signed its certificate; hint: SSL_CERT_FILE names a file of trusted ones)");
    }
    text
}
