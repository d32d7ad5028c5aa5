//! Reading what an endpoint sends: whole bodies, streams and refusals, in bounds of size and time.

use super::completion::{Bounds, ChatBody, Completion, error_message, too_long};
use super::http_error;
use crate::worker::redact::Secrets;
use crate::worker::sse::SseReader;
use crate::worker::{AskError, Request};
use lemon_trace::FailureKind;
use reqwest::header::RETRY_AFTER;
use reqwest::{Response, StatusCode};
use serde_json::Value;
use std::time::{Duration, SystemTime};

/// The payload that ends a stream.
const DONE: &[u8] = b"[DONE]";
/// How much of a refusal is read.
const MOST_OF_REFUSAL: usize = 64 * 1024;

pub(super) async fn read_whole(response: Response, bounds: &Bounds) -> Result<Completion, AskError> {
    let mut bytes = Vec::new();
    let mut body = Body { response, left: bounds.held, most: bounds.held, silence: Duration::MAX };
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
    completion.add(parsed, bounds)?;
    Ok(completion)
}

/// Reads a stream to its end, and says how many bytes of its text were told already. `silence`: how long nothing may come.
pub(super) async fn read_stream(
    response: Response,
    request: &Request,
    secrets: &Secrets,
    bounds: &Bounds,
    silence: Duration,
) -> Result<(Completion, usize), AskError> {
    let mut body = Body { response, left: bounds.wire, most: bounds.wire, silence };
    let mut stream = Stream::new(bounds);
    let mut teller = Teller { request, secrets, told: 0 };
    loop {
        let chunk = match body.chunk().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break,
            // The reply has ended; only what it cost is still to come.
            Err(_) if stream.completion.finish_reason.is_some() => {
                stream.completion.broke_off = true;
                return Ok((stream.completion, teller.told));
            }
            Err(error) => return Err(with_partial(error, stream.completion)),
        };
        match stream.push(&chunk, |text| teller.tell(text)) {
            Ok(false) => {}
            Ok(true) => return Ok((stream.completion, teller.told)),
            Err(error) => return Err(with_partial(error, stream.completion)),
        }
    }
    match stream.close() {
        Ok(()) => Ok((stream.completion, teller.told)),
        Err(error) => Err(with_partial(error, stream.completion)),
    }
}

/// The text of a streamed reply from the pieces in which its bytes arrived: what an endpoint's stream says, without the
/// endpoint.
///
/// # Errors
/// The bytes are no complete stream; [`AskError::partial`] holds the text before the fault.
pub fn streamed_text<'p>(pieces: impl IntoIterator<Item = &'p [u8]>, max_tokens: u64) -> Result<String, AskError> {
    let bounds = Bounds::of(max_tokens);
    let mut stream = Stream::new(&bounds);
    for piece in pieces {
        match stream.push(piece, |_| ()) {
            Ok(false) => {}
            Ok(true) => return Ok(stream.completion.text),
            Err(error) => return Err(with_partial(error, stream.completion)),
        }
    }
    match stream.close() {
        Ok(()) => Ok(stream.completion.text),
        Err(error) => Err(with_partial(error, stream.completion)),
    }
}

/// A streamed reply as it grows. It does no IO.
struct Stream<'b> {
    events: SseReader,
    completion: Completion,
    bounds: &'b Bounds,
}

impl<'b> Stream<'b> {
    fn new(bounds: &'b Bounds) -> Self {
        Stream { events: SseReader::default(), completion: Completion::default(), bounds }
    }

    /// Reads bytes as they came and passes the text so far on after each event. `true`: the endpoint ended the stream.
    fn push(&mut self, bytes: &[u8], mut tell: impl FnMut(&str)) -> Result<bool, AskError> {
        self.events.push(bytes);
        while let Some(data) = self.events.next_data() {
            if data == DONE {
                return Ok(true);
            }
            read_event(data, &mut self.completion, self.bounds)?;
            tell(&self.completion.text);
        }
        if self.events.held() > self.bounds.held {
            return Err(too_long(self.bounds.held, "one event"));
        }
        Ok(false)
    }

    /// Reads what is left when the connection has ended: a last event without its line end.
    fn close(&mut self) -> Result<(), AskError> {
        let last = self.events.rest().filter(|_| self.completion.finish_reason.is_none());
        match last.map(|data| (data == DONE, serde_json::from_slice::<ChatBody>(data))) {
            Some((true, _)) => return Ok(()),
            Some((false, Ok(body))) => self.completion.add(body, self.bounds)?,
            // An event that does not parse is a reply cut short, which is reported below.
            Some((false, Err(_))) | None => {}
        }
        match self.completion.finish_reason {
            Some(_) => Ok(()),
            None => Err(AskError::unknown_cost(FailureKind::CutShort, "the stream ended before the reply did")),
        }
    }
}

fn read_event(data: &[u8], completion: &mut Completion, bounds: &Bounds) -> Result<(), AskError> {
    let parsed: ChatBody = serde_json::from_slice(data).map_err(|error| {
        AskError::unknown_cost(FailureKind::Malformed, format!("a piece of the stream is not JSON: {error}"))
    })?;
    completion.add(parsed, bounds)
}

/// A stream that broke off: what came of it is kept. Its cost is unknown: a server may have written more than arrived, and
/// may write on.
fn with_partial(error: AskError, completion: Completion) -> AskError {
    AskError { partial: (!completion.text.is_empty()).then_some(completion.text), ..error }
}

/// Passes the text of a stream on to the request's progress, without secrets.
struct Teller<'a> {
    request: &'a Request,
    secrets: &'a Secrets,
    /// Bytes of the text that were told.
    told: usize,
}

impl Teller<'_> {
    /// Tells what is new in a text and is certain to be no part of a secret.
    fn tell(&mut self, text: &str) {
        let Some(progress) = &self.request.progress else { return };
        let Some(new) = text.get(self.told..).filter(|new| !new.is_empty()) else { return };
        let (decided, shown) = self.secrets.hide_so_far(new);
        progress.tell(&shown);
        self.told += decided;
    }
}

/// A response body of bounded size.
struct Body {
    response: Response,
    /// Bytes that may still come.
    left: usize,
    most: usize,
    /// How long nothing may come.
    silence: Duration,
}

impl Body {
    async fn chunk(&mut self) -> Result<Option<impl AsRef<[u8]> + std::ops::Deref<Target = [u8]>>, AskError> {
        let chunk = tokio::time::timeout(self.silence, self.response.chunk()).await.map_err(|_| {
            let message = format!("nothing more came for {} s", self.silence.as_secs_f64());
            AskError::unknown_cost(FailureKind::Timeout, message)
        })?;
        let chunk = chunk.map_err(|error| {
            AskError::unknown_cost(FailureKind::CutShort, format!("the reply broke off: {}", http_error(&error)))
        })?;
        let length = chunk.as_ref().map_or(0, |chunk| chunk.len());
        self.left = self.left.checked_sub(length).ok_or_else(|| too_long(self.most, "data"))?;
        Ok(chunk)
    }
}

/// What a status other than success means.
pub(super) async fn refusal(response: Response) -> AskError {
    let status = response.status();
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| parse_retry_after(value.to_str().ok()?));
    let mut body = Body { response, left: usize::MAX, most: usize::MAX, silence: Duration::MAX };
    let mut text = Vec::new();
    while let Ok(Some(chunk)) = body.chunk().await {
        text.extend_from_slice(&chunk);
        if text.len() > MOST_OF_REFUSAL {
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
        StatusCode::SERVICE_UNAVAILABLE if said.to_lowercase().contains("loading") => {
            let message = format!("the server is loading its model (HTTP 503: {said})");
            return AskError { retry_after, ..AskError::free(FailureKind::Loading, message) };
        }
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY => FailureKind::ServerError,
        status if status.is_server_error() => FailureKind::ServerError,
        _ => FailureKind::Refused,
    };
    let said = if said.is_empty() { said } else { format!(": {said}") };
    AskError { retry_after, ..AskError::free(kind, format!("HTTP {}{said}", status.as_u16())) }
}

/// Seconds or an HTTP date.
fn parse_retry_after(value: &str) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    httpdate::parse_http_date(value).ok()?.duration_since(SystemTime::now()).ok()
}
