//! `POST /v1/chat/completions`.

use super::follow::{Answered, Piece};
use super::question::AnswerFormat;
use super::serve::{self, Asked};
use super::types::{ChatBody, ChatCompletion, Choice, StopWord, UsageBody};
use super::wish::{Wish, not_asked, said, text_of};
use crate::guard::Caller;
use crate::refusal::Refusal;
use crate::state::AppState;
use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Answers the last message of a conversation with a team.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "openai", request_body = ChatBody,
    responses(
        (status = 200, description = "The answer; with `stream`, server-sent events with pieces of it", content(
            (ChatCompletion = "application/json"), (serde_json::Value = "text/event-stream"))),
        Refusal,
    )
)]
pub async fn complete(
    State(app): State<Arc<AppState>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: serve::Received,
) -> Response {
    serve::answer::<ChatBody>(&app, caller, &headers, body).await
}

impl serve::AnswerRequest for ChatBody {
    const ROUTE: &'static str = "/v1/chat/completions";
    type Words = Chunks;

    fn model(&self) -> &str {
        &self.model
    }

    fn is_stream(&self) -> bool {
        self.stream == Some(true)
    }

    fn wish(&self) -> Result<Wish, Refusal> {
        let ChatBody { tools, functions, logprobs, top_logprobs, logit_bias, audio, .. } = self;
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
        if let Some(n) = self.n.filter(|n| *n != 1) {
            return Err(Refusal::field("n", format!("expected 1, found {n}")).hint("a team gives one answer"));
        }
        let mut messages = Vec::with_capacity(self.messages.len());
        for (number, message) in self.messages.iter().enumerate() {
            let content =
                text_of(message.content.as_ref().unwrap_or(&Value::Null), &format!("messages[{number}].content"))?;
            messages.push(said(&message.role, content, &format!("messages[{number}].role"))?);
        }
        let max_tokens = self.max_completion_tokens.or(self.max_tokens);
        if max_tokens == Some(0) {
            return Err(Refusal::field("max_tokens", "expected a number of at least 1, found 0"));
        }
        Ok(Wish {
            model: self.model.clone(),
            messages,
            max_tokens,
            temperature: self.temperature,
            seed: self.seed,
            stop: match &self.stop {
                None => Vec::new(),
                Some(StopWord::One(stop)) => vec![stop.clone()],
                Some(StopWord::Many(stops)) => stops.clone(),
            },
            user: self.user.clone(),
            metadata: self.metadata.clone(),
            format: AnswerFormat::read(self.response_format.as_ref(), "response_format")?,
            lemon: self.lemon.clone().unwrap_or_default(),
        })
    }

    fn words(self, asked: Asked) -> Chunks {
        let with_usage = self.stream_options.is_some_and(|it| it.include_usage == Some(true));
        Chunks { asked, with_usage, begun: false }
    }
}

fn finish_reason(outcome: &Answered) -> &'static str {
    if outcome.truncated { "length" } else { "stop" }
}

/// Words a completion and the chunks of one.
pub struct Chunks {
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
    fn whole(&self, run_id: &str, outcome: &Answered) -> impl Serialize {
        ChatCompletion {
            id: format!("chatcmpl-{run_id}"),
            object: "chat.completion".to_owned(),
            created: self.asked.created,
            model: self.asked.model.clone(),
            choices: vec![Choice::new(outcome.content.clone(), finish_reason(outcome))],
            usage: UsageBody::of(outcome),
            lemon: outcome.lemon(&self.asked.base),
        }
    }

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
