//! Why a request is not served: a fact, a hint, and how OpenAI's protocol calls it.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use lemon_exec::store::StoreError;
use lemon_workers::WorkersError;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Display;
use utoipa::IntoResponses;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};

/// How a request for an answer may fail, for the description of the API.
const FAILURES: [(StatusCode, &str); 12] = [
    (StatusCode::BAD_REQUEST, "The request cannot be honoured"),
    (StatusCode::UNAUTHORIZED, "A key is needed, or not known"),
    (StatusCode::NOT_FOUND, "There is no such model"),
    (StatusCode::REQUEST_TIMEOUT, "The body took too long"),
    (StatusCode::CONFLICT, "A person has to allow a call of a tool"),
    (StatusCode::PAYLOAD_TOO_LARGE, "The request is too long"),
    (StatusCode::UNPROCESSABLE_ENTITY, "The answer is not in the format that was asked for"),
    (StatusCode::TOO_MANY_REQUESTS, "A rate or the budget of a key is used up"),
    (StatusCode::INTERNAL_SERVER_ERROR, "The store failed"),
    (StatusCode::BAD_GATEWAY, "No agent answered"),
    (StatusCode::SERVICE_UNAVAILABLE, "The server is closing, or the run was cancelled"),
    (StatusCode::GATEWAY_TIMEOUT, "The time of the run was up"),
];

/// A request that is not served. Texts are boxed, so that results stay small. As a response it is an error object of OpenAI's protocol.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// The HTTP status.
    pub status: StatusCode,
    /// What OpenAI's protocol calls the kind: `invalid_request_error`.
    pub kind: &'static str,
    /// A name for programs: `insufficient_quota`.
    pub code: Option<&'static str>,
    /// The field of the request that is at fault.
    pub param: Option<Box<str>>,
    /// What was expected, what was found.
    pub fact: String,
    /// What to do about it.
    pub hint: Option<Box<str>>,
    /// Seconds after which to ask again.
    pub retry_after: Option<u32>,
    /// The run that was made all the same.
    pub run_id: Option<Box<str>>,
}

impl Refusal {
    /// A refusal with this status.
    pub fn new(status: StatusCode, kind: &'static str, fact: impl Display) -> Self {
        let fact = fact.to_string();
        Refusal { status, kind, code: None, param: None, fact, hint: None, retry_after: None, run_id: None }
    }

    /// The request is at fault.
    pub fn bad(fact: impl Display) -> Self {
        Refusal::new(StatusCode::BAD_REQUEST, "invalid_request_error", fact)
    }

    /// A field of the request is at fault.
    pub fn field(param: impl Into<Box<str>>, fact: impl Display) -> Self {
        Refusal { param: Some(param.into()), ..Refusal::bad(fact) }
    }

    /// There is no such thing.
    pub fn not_found(fact: impl Display) -> Self {
        Refusal::new(StatusCode::NOT_FOUND, "invalid_request_error", fact).code("not_found")
    }

    /// The server is at fault.
    pub fn internal(fact: impl Display) -> Self {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", fact)
    }

    /// Names it for programs.
    #[must_use]
    pub fn code(self, code: &'static str) -> Self {
        Refusal { code: Some(code), ..self }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(self, hint: impl Display) -> Self {
        Refusal { hint: Some(hint.to_string().into()), ..self }
    }

    /// Says when to ask again.
    #[must_use]
    pub fn retry_after(self, seconds: u32) -> Self {
        Refusal { retry_after: Some(seconds), ..self }
    }

    /// Names the run that was made all the same.
    #[must_use]
    pub fn of_run(self, run_id: &str) -> Self {
        Refusal { run_id: Some(run_id.into()), ..self }
    }

    /// The error object.
    pub fn body(&self) -> Value {
        let message = match &self.hint {
            Some(hint) => format!("{} (hint: {hint})", self.fact),
            None => self.fact.clone(),
        };
        let mut error = json!({ "message": message, "type": self.kind, "param": self.param, "code": self.code });
        if let Some(run_id) = &self.run_id {
            error["lemon"] = json!({ "run_id": run_id });
        }
        json!({ "error": error })
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        } else {
            // OpenAI's clients repeat requests of their own accord: a team that failed is not run again unasked.
            headers.insert("x-should-retry", HeaderValue::from_static("false"));
        }
        if let Some(Ok(value)) = self.run_id.as_deref().map(HeaderValue::from_str) {
            headers.insert("x-lemon-run-id", value);
        }
        response
    }
}

impl IntoResponses for Refusal {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let body = || ContentBuilder::new().schema(Some(Ref::from_schema_name("ErrorBody"))).build();
        let response =
            |text: &str| ResponseBuilder::new().description(text).content("application/json", body()).build();
        FAILURES.iter().map(|(status, text)| (status.as_str().to_owned(), response(text).into())).collect()
    }
}

impl From<WorkersError> for Refusal {
    fn from(error: WorkersError) -> Self {
        let refusal = Refusal::bad(&error.fact);
        match error.hint {
            Some(hint) => refusal.hint(hint),
            None => refusal,
        }
    }
}

impl From<lemon::Error> for Refusal {
    fn from(error: lemon::Error) -> Self {
        let refusal = Refusal::bad(&error);
        match error.hint() {
            Some(hint) => refusal.hint(hint),
            None => refusal,
        }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoSuchRun(_) => Refusal::not_found(error),
            StoreError::Ambiguous { .. } => Refusal::bad(error),
            error => Refusal::internal(error),
        }
    }
}
