//! Any OpenAI-compatible chat endpoint: vLLM, SGLang, Ollama, llama.cpp, a cloud.

use super::sse::SseReader;
use super::{AskError, ChatMessage, FailedCost, Reply, Request, Usage, Worker};
use crate::tokens;
use async_trait::async_trait;
use lemon_trace::FailureKind;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Response, StatusCode, Url};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::error::Error;
use std::iter::successors;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// A reply longer than this is refused rather than held in memory.
const MAX_REPLY_BYTES: usize = 16 * 1024 * 1024;
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

/// Where one level of model is served.
#[derive(Clone)]
pub struct Endpoint {
    /// The address up to `/v1`.
    pub base_url: String,
    /// The model's name there.
    pub model: String,
    /// The secret, where one is needed.
    pub api_key: Option<ApiKey>,
    /// How long one call may take.
    pub timeout: Duration,
    /// Whether to ask for the reply piece by piece. A reply sent whole is read all the same.
    pub stream: bool,
    /// Whether to send a seed.
    pub send_seed: bool,
}

/// A worker for each level, over HTTP.
pub struct OpenAi {
    client: reqwest::Client,
    levels: Vec<EndpointState>,
}

struct EndpointState {
    endpoint: Endpoint,
    /// Where its chat completions are.
    url: Url,
    headers: HeaderMap,
    /// Set once the endpoint refuses a request because of its schema, so that later calls do not try again.
    refuses_schema: AtomicBool,
}

impl OpenAi {
    /// A worker for these endpoints, one per level of model.
    ///
    /// # Errors
    /// The reason why no HTTP client can be had, or a key that cannot stand in a header.
    pub fn new(endpoints: Vec<Endpoint>) -> Result<Self, String> {
        let client = http_client()?;
        let levels = endpoints.into_iter().map(EndpointState::new).collect::<Result<_, _>>()?;
        Ok(OpenAi { client, levels })
    }

    async fn post(&self, state: &EndpointState, body: Vec<u8>) -> Result<Response, AskError> {
        let sent = self.client.post(state.url.clone()).headers(state.headers.clone()).body(body).send().await;
        // Only where no connection came about is it certain that no model was at work.
        sent.map_err(|error| {
            // No more than the origin: a path or a user may be nobody's business.
            let message = format!("{}, at {}", http_error(&error), state.url.origin().ascii_serialization());
            match error.is_connect() {
                true => AskError::free(FailureKind::Unreachable, message),
                false => AskError::unknown_cost(FailureKind::Unreachable, message),
            }
        })
    }

    async fn ask_once(&self, request: &Request, state: &EndpointState, schema: bool) -> Result<Reply, AskError> {
        let response = self.post(state, body(request, &state.endpoint, schema)).await?;
        if !response.status().is_success() {
            return Err(refusal(response).await);
        }
        let streamed =
            response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        if streamed {
            return read_stream(response, request).await?.into_reply(request);
        }
        let completion = read_whole(response).await?;
        request.progress.iter().for_each(|progress| progress.tell(&completion.text));
        completion.into_reply(request)
    }
}

#[async_trait]
impl Worker for OpenAi {
    async fn ask(&self, request: &Request) -> Result<Reply, AskError> {
        let Some(state) = self.levels.get(request.level) else {
            return Err(AskError::free(FailureKind::Refused, format!("no endpoint serves `{}`", request.capacity)));
        };
        let schema = request.schema.is_some() && !state.refuses_schema.load(Ordering::Relaxed);
        let call = self.ask_once(request, state, schema);
        let timeout = state.endpoint.timeout;
        let result = tokio::time::timeout(timeout, call).await.unwrap_or_else(|_| {
            let message = format!("no complete reply within {} s", timeout.as_secs_f64());
            Err(AskError::unknown_cost(FailureKind::Timeout, message))
        });
        result.map_err(|error| state.presentable(state.without_schema(error, schema)))
    }
}

impl EndpointState {
    fn new(endpoint: Endpoint) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(ApiKey(secret)) = &endpoint.api_key {
            let mut value = HeaderValue::from_str(&format!("Bearer {secret}")).map_err(|_| {
                format!("the API key for {} has characters that no header can carry", endpoint.base_url)
            })?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let url = format!("{}/chat/completions", endpoint.base_url.trim_end_matches('/'));
        let url = Url::parse(&url).map_err(|error| format!("{} is no address: {error}", endpoint.base_url))?;
        Ok(EndpointState { endpoint, url, headers, refuses_schema: AtomicBool::new(false) })
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

    /// An error fit to be put on record: without the key, which some endpoints quote, and not too long. In this order,
    /// because half a key would not be found any more.
    fn presentable(&self, mut error: AskError) -> AskError {
        if let Some(ApiKey(secret)) = self.endpoint.api_key.as_ref().filter(|key| !key.0.is_empty()) {
            for text in std::iter::once(&mut error.failure.message).chain(&mut error.partial) {
                *text = text.replace(secret, "***");
            }
        }
        if let Some((cut, _)) = error.failure.message.char_indices().nth(MAX_ERROR_CHARS) {
            error.failure.message.truncate(cut);
        }
        error
    }
}

/// The HTTP client everything here shares.
///
/// # Errors
/// The reason why none can be had.
pub fn http_client() -> Result<reqwest::Client, String> {
    // Fails only if a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || {
        reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .tcp_nodelay(true)
            // A redirected request would carry its key to somebody else.
            .redirect(reqwest::redirect::Policy::none())
            // Trying again is the driver's to decide: every request counts.
            .retry(reqwest::retry::never())
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
    messages: &'a [ChatMessage],
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
        messages: &request.messages,
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

/// What an endpoint's reply says, whole or collected piece by piece.
#[derive(Debug, Default)]
struct Completion {
    text: String,
    finish_reason: Option<String>,
    usage: Option<Value>,
    model: Option<String>,
    tool_calls: bool,
}

#[derive(Deserialize)]
struct ChatBody {
    #[serde(default)]
    choices: Vec<ChatChoice>,
    #[serde(default)]
    usage: Option<Value>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct ChatChoice {
    #[serde(alias = "delta", default)]
    message: ChatText,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize, Default)]
struct ChatText {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    tool_calls: Option<Value>,
}

impl Completion {
    fn add(&mut self, body: ChatBody) -> Result<(), AskError> {
        if let Some(error) = body.error {
            let message = format!("the endpoint reported an error in its reply: {}", error_message(&error));
            return Err(AskError::unknown_cost(FailureKind::ServerError, message));
        }
        if let Some(choice) = body.choices.into_iter().next() {
            self.text.push_str(choice.message.content.as_deref().unwrap_or_default());
            self.tool_calls |=
                choice.message.tool_calls.is_some_and(|calls| calls.as_array().is_none_or(|c| !c.is_empty()));
            self.finish_reason = choice.finish_reason.or(self.finish_reason.take());
        }
        self.usage = body.usage.filter(|usage| !usage.is_null()).or(self.usage.take());
        self.model = body.model.or(self.model.take());
        Ok(())
    }

    fn into_reply(self, request: &Request) -> Result<Reply, AskError> {
        let usage = self.usage(request);
        let fail = |kind, message: &str, text: String| AskError {
            cost: FailedCost::Known(usage),
            partial: (!text.is_empty()).then_some(text),
            ..AskError::free(kind, message)
        };
        if self.finish_reason.as_deref() == Some("length") {
            let message = format!("the reply was cut off at {} tokens", request.max_tokens);
            return Err(fail(FailureKind::Truncated, &message, self.text));
        }
        if self.text.trim().is_empty() {
            let (kind, message) = match self.tool_calls {
                true => (FailureKind::Malformed, "the reply calls tools that were not offered and has no text"),
                false => (FailureKind::Empty, "the reply has no text"),
            };
            return Err(fail(kind, message, self.text));
        }
        Ok(Reply { text: self.text, usage, model: self.model, simulated_s: None, confidence: None })
    }

    /// The endpoint's own count where it is possible, ours where it is missing or cannot be true: a prompt has no more
    /// tokens than bytes and template, a reply no more than it was allowed unless its text shows it.
    fn usage(&self, request: &Request) -> Usage {
        let reported = |key| self.usage.as_ref()?.get(key)?.as_u64();
        let prompt_bytes: usize = request.messages.iter().map(|message| message.content.len() + 64).sum();
        let most_in = prompt_bytes as u64 + 1024;
        let most_out = request.max_tokens.max(self.text.len() as u64);
        match (reported("prompt_tokens"), reported("completion_tokens")) {
            (Some(tokens_in), Some(tokens_out))
                if (1..=most_in).contains(&tokens_in)
                    && tokens_out <= most_out
                    && (tokens_out > 0 || self.text.is_empty()) =>
            {
                Usage { tokens_in, tokens_out, counted: false }
            }
            _ => counted(request, &self.text),
        }
    }
}

/// Usage counted here, within what the call was allowed.
fn counted(request: &Request, text: &str) -> Usage {
    Usage {
        tokens_in: tokens::count_conversation(&request.messages).min(tokens::at_most(&request.messages)),
        tokens_out: tokens::count(text).min(request.max_tokens),
        counted: true,
    }
}

async fn read_whole(response: Response) -> Result<Completion, AskError> {
    let mut bytes = Vec::new();
    let mut body = Body { response, read: 0 };
    while let Some(chunk) = body.chunk().await? {
        bytes.extend_from_slice(&chunk);
    }
    let parsed: ChatBody = serde_json::from_slice(&bytes).map_err(|error| {
        let kind = if error.is_eof() { FailureKind::CutShort } else { FailureKind::Malformed };
        AskError::unknown_cost(kind, format!("the reply is not a chat completion: {error}"))
    })?;
    if parsed.choices.is_empty() && parsed.error.is_none() {
        return Err(AskError::unknown_cost(FailureKind::Malformed, "the reply has no choices"));
    }
    let mut completion = Completion::default();
    completion.add(parsed)?;
    Ok(completion)
}

async fn read_stream(response: Response, request: &Request) -> Result<Completion, AskError> {
    let mut body = Body { response, read: 0 };
    let mut events = SseReader::default();
    let mut completion = Completion::default();
    loop {
        let chunk = match body.chunk().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break,
            Err(error) => return Err(with_partial(error, request, completion)),
        };
        events.push(&chunk);
        while let Some(data) = events.next_data() {
            if data == b"[DONE]" {
                return Ok(completion);
            }
            let told = completion.text.len();
            if let Err(error) = read_event(data, &mut completion) {
                return Err(with_partial(error, request, completion));
            }
            if let (Some(progress), Some(piece)) = (&request.progress, completion.text.get(told..)) {
                progress.tell(piece);
            }
        }
    }
    match events.rest() {
        Some(b"[DONE]") => return Ok(completion),
        Some(data) if completion.finish_reason.is_none() => {
            // A last event without its line end; one that does not parse is a cut reply, reported below.
            let _ = read_event(data, &mut completion);
        }
        _ => {}
    }
    if completion.finish_reason.is_none() {
        let error = AskError::unknown_cost(FailureKind::CutShort, "the stream ended before the reply did");
        return Err(with_partial(error, request, completion));
    }
    Ok(completion)
}

fn read_event(data: &[u8], completion: &mut Completion) -> Result<(), AskError> {
    let parsed: ChatBody = serde_json::from_slice(data).map_err(|error| {
        AskError::unknown_cost(FailureKind::Malformed, format!("a piece of the stream is not JSON: {error}"))
    })?;
    completion.add(parsed)
}

/// A stream that broke off: what came of it is known, and so is what it cost.
fn with_partial(error: AskError, request: &Request, completion: Completion) -> AskError {
    let cost = FailedCost::Known(counted(request, &completion.text));
    AskError { cost, partial: (!completion.text.is_empty()).then_some(completion.text), ..error }
}

/// A response body of bounded size.
struct Body {
    response: Response,
    read: usize,
}

impl Body {
    async fn chunk(&mut self) -> Result<Option<impl AsRef<[u8]> + std::ops::Deref<Target = [u8]>>, AskError> {
        let chunk = self.response.chunk().await.map_err(|error| {
            AskError::unknown_cost(FailureKind::CutShort, format!("the reply broke off: {}", http_error(&error)))
        })?;
        self.read += chunk.as_ref().map_or(0, |chunk| chunk.len());
        if self.read > MAX_REPLY_BYTES {
            let message = format!("the reply is longer than {} MiB", MAX_REPLY_BYTES >> 20);
            return Err(AskError::unknown_cost(FailureKind::Malformed, message));
        }
        Ok(chunk)
    }
}

/// What a status other than success means.
async fn refusal(response: Response) -> AskError {
    let status = response.status();
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| parse_retry_after(value.to_str().ok()?));
    let mut body = Body { response, read: 0 };
    let mut text = Vec::new();
    while let Ok(Some(chunk)) = body.chunk().await {
        text.extend_from_slice(&chunk);
        if text.len() > 64 * 1024 {
            break;
        }
    }
    let text = String::from_utf8_lossy(&text);
    let said = match serde_json::from_str::<Value>(&text) {
        Ok(value) => error_message(value.get("error").unwrap_or(&value)),
        Err(_) => text.trim().to_owned(),
    };
    let kind = match status {
        StatusCode::TOO_MANY_REQUESTS => FailureKind::RateLimited,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => FailureKind::Unauthorized,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY => FailureKind::ServerError,
        status if status.is_server_error() => FailureKind::ServerError,
        _ => FailureKind::Refused,
    };
    let said = if said.is_empty() { said } else { format!(": {said}") };
    AskError { retry_after, ..AskError::free(kind, format!("HTTP {}{said}", status.as_u16())) }
}

fn error_message(error: &Value) -> String {
    let message = error.get("message").and_then(Value::as_str).or(error.as_str());
    message.map_or_else(|| error.to_string(), str::to_owned)
}

/// Seconds or an HTTP date.
fn parse_retry_after(value: &str) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    httpdate::parse_http_date(value).ok()?.duration_since(SystemTime::now()).ok()
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
        text.push_str(" (this machine trusts nobody who vouches for it; SSL_CERT_FILE names whom to trust)");
    }
    text
}
