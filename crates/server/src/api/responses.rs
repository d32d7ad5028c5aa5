//! `POST /v1/responses`: text in, text out.

use super::follow::{Answered, Piece};
use super::question::AnswerFormat;
use super::serve::{self, Asked};
use super::types::{ResponseBody, ResponsesRequest};
use super::wish::{Wish, not_asked, said, text_of};
use crate::guard::Caller;
use crate::refusal::Refusal;
use crate::state::AppState;
use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use lemon_exec::worker::ChatMessage;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Answers a text or the last message of a conversation with a team.
#[utoipa::path(
    post, path = "/v1/responses", tag = "openai", request_body = ResponsesRequest,
    responses(
        (status = 200, description = "The answer; with `stream`, server-sent events with pieces of it", content(
            (ResponseBody = "application/json"), (serde_json::Value = "text/event-stream"))),
        Refusal,
    )
)]
pub async fn respond(
    State(app): State<Arc<AppState>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: serve::Received,
) -> Response {
    serve::answer::<ResponsesRequest>(&app, caller, &headers, body).await
}

impl serve::AnswerRequest for ResponsesRequest {
    const ROUTE: &'static str = "/v1/responses";
    type Words = ResponseFrame;

    fn model(&self) -> &str {
        &self.model
    }

    fn is_stream(&self) -> bool {
        self.stream == Some(true)
    }

    fn wish(&self) -> Result<Wish, Refusal> {
        let ResponsesRequest { tools, previous_response_id, conversation, background, .. } = self;
        let others = [
            ("tools", tools),
            ("previous_response_id", previous_response_id),
            ("conversation", conversation),
            ("background", background),
        ];
        for (param, value) in others {
            not_asked(param, value.as_ref())?;
        }
        let mut messages: Vec<ChatMessage> = self.instructions.iter().map(ChatMessage::system).collect();
        match &self.input {
            Value::String(text) => messages.push(ChatMessage::user(text)),
            Value::Array(items) => {
                for (number, item) in items.iter().enumerate() {
                    if !matches!(item["type"].as_str(), None | Some("message")) {
                        let fact = "expected messages, found an item of another type";
                        return Err(Refusal::field(format!("input[{number}].type"), fact).code("unsupported_value"));
                    }
                    let content = text_of(&item["content"], &format!("input[{number}].content"))?;
                    let role = item["role"].as_str().unwrap_or_default();
                    messages.push(said(role, content, &format!("input[{number}].role"))?);
                }
            }
            _ => return Err(Refusal::field("input", "expected a text or a list of messages")),
        }
        if self.max_output_tokens == Some(0) {
            return Err(Refusal::field("max_output_tokens", "expected a number of at least 1, found 0"));
        }
        Ok(Wish {
            model: self.model.clone(),
            messages,
            max_tokens: self.max_output_tokens,
            temperature: self.temperature,
            seed: self.seed,
            stop: Vec::new(),
            user: self.user.clone(),
            metadata: self.metadata.clone(),
            format: AnswerFormat::read(self.text.as_ref().and_then(|text| text.get("format")), "text.format")?,
            lemon: self.lemon.clone().unwrap_or_default(),
        })
    }

    fn words(self, asked: Asked) -> ResponseFrame {
        ResponseFrame { asked, request: Box::new(self), number: 0 }
    }
}

/// Words a response and the events of one.
pub struct ResponseFrame {
    asked: Asked,
    request: Box<ResponsesRequest>,
    /// The number of the next event.
    number: u64,
}

impl ResponseFrame {
    fn body(&self, run_id: &str, outcome: Option<&Answered>) -> ResponseBody {
        let truncated = outcome.is_some_and(|outcome| outcome.truncated);
        let status = match outcome {
            None => "in_progress",
            Some(_) if truncated => "incomplete",
            Some(_) => "completed",
        };
        let usage = |outcome: &Answered| {
            let (input, output) = outcome.usage;
            json!({
                "input_tokens": input,
                "input_tokens_details": { "cached_tokens": 0 },
                "output_tokens": output,
                "output_tokens_details": { "reasoning_tokens": 0 },
                "total_tokens": input + output,
            })
        };
        ResponseBody {
            id: format!("resp_{run_id}"),
            object: "response".to_owned(),
            created_at: self.asked.created,
            status: status.to_owned(),
            model: self.asked.model.clone(),
            output: outcome.map_or(json!([]), |outcome| json!([message(run_id, status, Some(&outcome.content))])),
            usage: outcome.map_or(Value::Null, usage),
            error: Value::Null,
            incomplete_details: if truncated { json!({ "reason": "max_output_tokens" }) } else { Value::Null },
            instructions: self.request.instructions.clone(),
            metadata: self.request.metadata.clone().unwrap_or_else(|| json!({})),
            parallel_tool_calls: false,
            tool_choice: "none".to_owned(),
            tools: json!([]),
            temperature: self.request.temperature,
            lemon: outcome.map_or(Value::Null, |outcome| outcome.lemon(&self.asked.base)),
        }
    }

    /// A named event with its number.
    fn event(&mut self, name: &str, mut value: Value) -> String {
        value["type"] = json!(name);
        value["sequence_number"] = json!(self.number);
        self.number += 1;
        format!("event: {name}\ndata: {value}\n\n")
    }

    fn of_part(&mut self, name: &str, run_id: &str, key: &str, value: Value) -> String {
        let mut event = json!({ "item_id": item(run_id), "output_index": 0, "content_index": 0 });
        event[key] = value;
        if name.starts_with("response.output_text") {
            event["logprobs"] = json!([]);
        }
        self.event(name, event)
    }
}

impl serve::Words for ResponseFrame {
    fn whole(&self, run_id: &str, outcome: &Answered) -> impl Serialize {
        self.body(run_id, Some(outcome))
    }

    fn first(&mut self, run_id: &str) -> String {
        let body = json!(self.body(run_id, None));
        let mut text = self.event("response.created", json!({ "response": body }));
        text += &self.event("response.in_progress", json!({ "response": body }));
        let item = message(run_id, "in_progress", None);
        text += &self.event("response.output_item.added", json!({ "output_index": 0, "item": item }));
        text + &self.of_part("response.content_part.added", run_id, "part", part(""))
    }

    fn of(&mut self, run_id: &str, piece: &Piece) -> String {
        match piece {
            // The protocol has no event for it that clients without tools would take.
            Piece::Progress(line) => format!(": {}\n\n", line.replace(['\n', '\r'], " ")),
            Piece::Text(text) => self.of_part("response.output_text.delta", run_id, "delta", json!(text)),
            Piece::Done(outcome) => {
                let body = self.body(run_id, Some(outcome));
                let whole = message(run_id, &body.status, Some(&outcome.content));
                let mut text = self.of_part("response.output_text.done", run_id, "text", json!(outcome.content));
                text += &self.of_part("response.content_part.done", run_id, "part", part(&outcome.content));
                text += &self.event("response.output_item.done", json!({ "output_index": 0, "item": whole }));
                let name = if outcome.truncated { "response.incomplete" } else { "response.completed" };
                text + &self.event(name, json!({ "response": body }))
            }
            Piece::Failed(refusal) => {
                let mut body = json!(self.body(run_id, None));
                body["status"] = json!("failed");
                let code = refusal.code.unwrap_or("server_error");
                body["error"] = json!({ "code": code, "message": refusal.body()["error"]["message"] });
                self.event("response.failed", json!({ "response": body }))
            }
        }
    }
}

fn item(run_id: &str) -> String {
    format!("msg_{run_id}")
}

fn part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

fn message(run_id: &str, status: &str, text: Option<&str>) -> Value {
    let content: Vec<Value> = text.map(part).into_iter().collect();
    json!({ "id": item(run_id), "type": "message", "status": status, "role": "assistant", "content": content })
}
