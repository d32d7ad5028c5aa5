//! An MCP server behind an address: the SDK's streamable HTTP transport on a client that bounds what it reads.

use super::meter::Meter;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, StatusCode};
use reqwest::{RequestBuilder, Response};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse};
use sse_stream::{Error as SseError, Sse, SseStream};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

const SESSION: &str = "Mcp-Session-Id";
const LAST_EVENT: &str = "Last-Event-Id";
const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";

/// Sends messages. It follows no redirects, so a token goes to the configured address alone.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    client: reqwest::Client,
    meter: Arc<Meter>,
}

type HttpError = StreamableHttpError<io::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

impl Http {
    pub fn new(meter: Arc<Meter>) -> Result<Self, String> {
        // Another part of this process may have installed the same one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build();
        Ok(Http { client: client.map_err(|error| error.to_string())?, meter })
    }

    fn prepare(
        request: RequestBuilder,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> RequestBuilder {
        let request = match session {
            Some(session) => request.header(SESSION, &*session),
            None => request,
        };
        let request = match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        headers.into_iter().fold(request, |request, (name, value)| request.header(name, value))
    }

    async fn send(request: RequestBuilder) -> Result<Response, HttpError> {
        // An address may hold secrets.
        request.send().await.map_err(|error| HttpError::Client(io::Error::other(error.without_url())))
    }

    /// The next bytes of a reply, counted.
    async fn chunk(&self, response: &mut Response) -> io::Result<Option<Bytes>> {
        let chunk = response.chunk().await.map_err(|error| io::Error::other(error.without_url()))?;
        match &chunk {
            Some(bytes) if !self.meter.count(bytes.len() as u64) => {
                Err(io::Error::other("the server sent more than it may"))
            }
            _ => Ok(chunk),
        }
    }

    async fn body(&self, mut response: Response) -> io::Result<String> {
        let mut body = Vec::new();
        while let Some(bytes) = self.chunk(&mut response).await? {
            body.extend_from_slice(&bytes);
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    fn events(&self, response: Response) -> BoxStream<'static, Result<Sse, SseError>> {
        let next = |(http, mut response): (Http, Response)| async move {
            let chunk = http.chunk(&mut response).await.transpose()?;
            Some((chunk, (http, response)))
        };
        let bytes = stream::unfold((self.clone(), response), next);
        SseStream::from_bytes_stream(bytes).boxed()
    }
}

fn has_type(response: &Response, kind: &str) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|found| found.as_bytes().starts_with(kind.as_bytes()))
}

fn unexpected(fact: String) -> HttpError {
    HttpError::UnexpectedServerResponse(Cow::Owned(crate::clean_line(&fact, 300)))
}

impl StreamableHttpClient for Http {
    type Error = io::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let in_session = session.is_some();
        let request = self.client.post(&*uri).header(ACCEPT, format!("{EVENTS}, {JSON}")).header(CONTENT_TYPE, JSON);
        let request = Self::prepare(request, session, token, headers).body(serde_json::to_vec(&message)?);
        let response = Self::send(request).await?;
        let status = response.status();
        match status {
            StatusCode::ACCEPTED | StatusCode::NO_CONTENT => return Ok(StreamableHttpPostResponse::Accepted),
            StatusCode::NOT_FOUND if in_session => return Err(HttpError::SessionExpired),
            _ => {}
        }
        let session = response.headers().get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
        if !status.is_success() {
            let body = self.body(response).await?;
            return match serde_json::from_str::<ServerJsonRpcMessage>(&body) {
                Ok(message @ JsonRpcMessage::Error(_)) => Ok(StreamableHttpPostResponse::Json(message, session)),
                _ => Err(unexpected(format!("HTTP {status} {body}"))),
            };
        }
        if has_type(&response, EVENTS) {
            return Ok(StreamableHttpPostResponse::Sse(self.events(response), session));
        }
        let is_request = matches!(message, ClientJsonRpcMessage::Request(_));
        let body = self.body(response).await?;
        match serde_json::from_str::<ServerJsonRpcMessage>(&body) {
            Ok(message) => Ok(StreamableHttpPostResponse::Json(message, session)),
            // Only a request needs a reply.
            Err(_) if !is_request => Ok(StreamableHttpPostResponse::Accepted),
            Err(error) => Err(unexpected(format!("expected a JSON-RPC message, found {error}: {body}"))),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<(), HttpError> {
        let response = Self::send(Self::prepare(self.client.delete(&*uri), Some(session), token, headers)).await?;
        let status = response.status();
        match status.is_success() || status == StatusCode::METHOD_NOT_ALLOWED {
            true => Ok(()),
            false => Err(unexpected(format!("HTTP {status} to the end of a session"))),
        }
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpError> {
        let mut request = self.client.get(&*uri).header(ACCEPT, EVENTS);
        if let Some(last_event) = last_event {
            request = request.header(LAST_EVENT, last_event);
        }
        let response = Self::send(Self::prepare(request, session, token, headers)).await?;
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => Err(HttpError::ServerDoesNotSupportSse),
            status if !status.is_success() => Err(unexpected(format!("HTTP {status} to a request for events"))),
            _ if has_type(&response, EVENTS) => Ok(self.events(response)),
            _ => Err(HttpError::UnexpectedContentType(None)),
        }
    }
}
