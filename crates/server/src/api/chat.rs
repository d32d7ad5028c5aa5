//! `POST /v1/chat/completions`.

use super::follow::{Answered, Follow, Piece, outcome};
use super::question::AnswerFormat;
use super::serve::{self, Asked};
use super::types::{ChatBody, ChatCompletion, Choice, ErrorBody, StopWord, UsageBody};
use super::wish::{Wish, not_asked, said, text_of};
use crate::guard::Caller;
use crate::refusal::Refusal;
use crate::state::AppState;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use lemon_exec::unix_ms;
use serde_json::{Value, json};
use std::sync::Arc;

const ROUTE: &str = "/v1/chat/completions";

/// Answers the last message of a conversation with a team.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "openai", request_body = ChatBody,
    responses(
        (status = 200, description = "The answer; with `stream`, server-sent events with pieces of it", content(
            (ChatCompletion = "application/json"), (serde_json::Value = "text/event-stream"))),
        (status = 400, description = "The request cannot be honoured", body = ErrorBody),
        (status = 401, description = "A key is needed, or not known", body = ErrorBody),
        (status = 404, description = "There is no such model", body = ErrorBody),
        (status = 408, description = "The body took too long", body = ErrorBody),
        (status = 409, description = "A person has to allow a call of a tool", body = ErrorBody),
        (status = 413, description = "The request is too long", body = ErrorBody),
        (status = 429, description = "A rate or the budget of a key is used up", body = ErrorBody),
        (status = 422, description = "The answer is not in the format that was asked for", body = ErrorBody),
        (status = 500, description = "The store failed", body = ErrorBody),
        (status = 502, description = "No agent answered", body = ErrorBody),
        (status = 503, description = "The server is closing, or the run was cancelled", body = ErrorBody),
        (status = 504, description = "The time of the run was up", body = ErrorBody),
    )
)]
pub async fn complete(
    State(app): State<Arc<AppState>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let response = match answer(&app, caller, &headers, body).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(),
    };
    app.metrics.request(ROUTE, response.status().as_u16());
    response
}

async fn answer(
    app: &Arc<AppState>,
    caller: Caller,
    headers: &HeaderMap,
    body: serve::Received,
) -> Result<Response, Refusal> {
    let request: ChatBody = serve::read(body)?;
    let wish = Arc::new(wish(&request)?);
    let run = app.start(wish.order(app, caller)?).await?;
    let asked = Asked::new(headers, &request.model);
    if request.stream == Some(true) {
        let follow = Follow::new(app.clone(), &run, wish);
        let with_usage = request.stream_options.as_ref().is_some_and(|it| it.include_usage == Some(true));
        return Ok(serve::stream(follow, asked.clone(), Chunks { asked, with_usage, begun: false }));
    }
    serve::until_gone(&run).await;
    let outcome = outcome(app, &run, &wish)?;
    let whole = ChatCompletion {
        id: format!("chatcmpl-{}", run.id()),
        object: "chat.completion".to_owned(),
        created: asked.created,
        model: asked.model.clone(),
        choices: vec![Choice::new(outcome.content.clone(), finish_reason(&outcome))],
        usage: UsageBody::of(&outcome),
        lemon: outcome.lemon(&asked.base),
    };
    Ok(serve::whole(&outcome, &asked, &whole))
}

fn wish(request: &ChatBody) -> Result<Wish, Refusal> {
    let ChatBody { tools, functions, logprobs, top_logprobs, logit_bias, audio, .. } = request;
    let others = [
        ("tools", tools),
        ("functions", functions),
        ("logprobs", logprobs),
        ("top_logprobs", top_logprobs),
        ("logit_bias", logit_bias),
        ("audio", audio),
    ];
    for (param, value) in others {
        not_asked(param, value.as_ref())?;
    }
    if let Some(n) = request.n.filter(|n| *n != 1) {
        return Err(Refusal::field("n", format!("expected 1, found {n}")).hint("a team gives one answer"));
    }
    let mut messages = Vec::with_capacity(request.messages.len());
    for (number, message) in request.messages.iter().enumerate() {
        let content =
            text_of(message.content.as_ref().unwrap_or(&Value::Null), &format!("messages[{number}].content"))?;
        messages.push(said(&message.role, content, &format!("messages[{number}].role"))?);
    }
    let max_tokens = request.max_completion_tokens.or(request.max_tokens);
    if max_tokens == Some(0) {
        return Err(Refusal::field("max_tokens", "expected a number of at least 1, found 0"));
    }
    Ok(Wish {
        model: request.model.clone(),
        messages,
        max_tokens,
        temperature: request.temperature,
        seed: request.seed,
        stop: match &request.stop {
            None => Vec::new(),
            Some(StopWord::One(stop)) => vec![stop.clone()],
            Some(StopWord::Many(stops)) => stops.clone(),
        },
        user: request.user.clone(),
        metadata: request.metadata.clone(),
        format: AnswerFormat::read(request.response_format.as_ref(), "response_format")?,
        lemon: request.lemon.clone().unwrap_or_default(),
    })
}

fn finish_reason(outcome: &Answered) -> &'static str {
    if outcome.truncated { "length" } else { "stop" }
}

/// Words pieces as chunks of a stream.
struct Chunks {
    asked: Asked,
    with_usage: bool,
    begun: bool,
}

impl Chunks {
    fn chunk(&self, run_id: &str, delta: Value, finish: Option<&str>) -> Value {
        json!({
            "id": format!("chatcmpl-{run_id}"),
            "object": "chat.completion.chunk",
            "created": self.asked.created,
            "model": self.asked.model,
            "choices": [{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish }],
        })
    }
}

impl serve::Words for Chunks {
    fn of(&mut self, run_id: &str, piece: &Piece) -> String {
        let mut delta = match std::mem::replace(&mut self.begun, true) {
            false => json!({ "role": "assistant" }),
            true => json!({}),
        };
        match piece {
            Piece::Progress(line) => {
                delta["reasoning_content"] = json!(format!("{line}\n"));
                serve::data(&self.chunk(run_id, delta, None))
            }
            Piece::Text(text) => {
                delta["content"] = json!(text);
                serve::data(&self.chunk(run_id, delta, None))
            }
            Piece::Done(outcome) => {
                let mut last = self.chunk(run_id, delta, Some(finish_reason(outcome)));
                last["lemon"] = outcome.lemon(&self.asked.base);
                let mut text = serve::data(&last);
                if self.with_usage {
                    let mut usage = self.chunk(run_id, json!({}), None);
                    usage["choices"] = json!([]);
                    usage["usage"] = json!(UsageBody::of(outcome));
                    text.push_str(&serve::data(&usage));
                }
                text + "data: [DONE]\n\n"
            }
            Piece::Failed(refusal) => serve::data(&refusal.body()) + "data: [DONE]\n\n",
        }
    }
}

impl Asked {
    /// What a response says of its request.
    pub fn new(headers: &HeaderMap, model: &str) -> Self {
        Asked { base: serve::base(headers), created: unix_ms() / 1000, model: model.to_owned() }
    }
}
