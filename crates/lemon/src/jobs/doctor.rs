//! Does each endpoint answer? One small call tells, and a second one whether it obeys a schema.

use lemon_exec::Worker;
use lemon_exec::worker::{ChatMessage, FailedCost, OpenAi, Request, mask_url};
use lemon_model::DeviceChoice;
use lemon_trace::FailureKind;
use lemon_workers::{Capacity, WorkersError, endpoint, load_model, open_ai};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The place of a model that has no endpoint.
pub const IN_THIS_PROCESS: &str = "in this process";
/// The longest wait for one reply.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was found of one capacity. The field names are an interface. `None`: it was not found out.
#[derive(Debug, Serialize)]
pub struct EndpointCheck {
    pub capacity: String,
    /// The address, without what is secret in it.
    pub base_url: String,
    /// The model.
    pub model: String,
    /// Whether anything answers at the address.
    pub reachable: Option<bool>,
    /// Whether the key is accepted.
    pub key_works: Option<bool>,
    /// Whether the model replied, or was loaded.
    pub replies: bool,
    /// Whether replies carry the tokens they cost.
    pub returns_usage: Option<bool>,
    /// Whether replies obey a schema.
    pub structured_output: Option<bool>,
    /// The time of the first reply.
    pub seconds: f64,
    /// What computes a model of this process.
    pub device: Option<String>,
    /// What is wrong.
    pub fact: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Asks the endpoint of a capacity, or loads its model.
pub async fn check_endpoint(name: &str, capacity: &Capacity, device: DeviceChoice) -> EndpointCheck {
    let mut found = EndpointCheck {
        capacity: name.to_owned(),
        base_url: mask_url(&capacity.base_url),
        model: capacity.model.clone(),
        reachable: None,
        key_works: None,
        replies: false,
        returns_usage: None,
        structured_output: None,
        seconds: 0.0,
        device: None,
        fact: None,
        hint: None,
    };
    if let Some(local) = &capacity.local {
        let began = Instant::now();
        let (base_url, model) = (IN_THIS_PROCESS.to_owned(), local.clone());
        found = match load_model(name, local, device) {
            Ok(loaded) => EndpointCheck { replies: true, device: Some(loaded.engine.device().to_owned()), ..found },
            Err(error) => EndpointCheck { fact: Some(error.fact), hint: error.hint, ..found },
        };
        return EndpointCheck { base_url, model, seconds: began.elapsed().as_secs_f64(), ..found };
    }
    let worker = match worker(name, capacity) {
        Ok(worker) => worker,
        Err(error) => return EndpointCheck { fact: Some(error.fact), hint: error.hint, ..found },
    };
    let began = Instant::now();
    let plain = worker.ask(&request(name, "Reply with one word: ready.", None)).await;
    found.seconds = began.elapsed().as_secs_f64();
    let (usage, failure) = match plain {
        Ok(reply) => (Some(reply.usage), None),
        // A reply cut off at its limit is a reply, even where it had no text yet.
        Err(error) if error.failure.kind == FailureKind::Truncated => match error.cost {
            FailedCost::Known(usage) => (Some(usage), None),
            _ => (None, Some(error.failure)),
        },
        Err(error) => (None, Some(error.failure)),
    };
    found.replies = failure.is_none();
    found.returns_usage = usage.map(|usage| !usage.counted);
    if let Some(failure) = failure {
        found.reachable = Some(failure.kind != FailureKind::Unreachable);
        found.key_works = (failure.kind == FailureKind::Unauthorized).then_some(false);
        found.hint = advice(failure.kind, capacity);
        found.fact = Some(failure.message);
        return found;
    }
    found.reachable = Some(true);
    found.key_works = capacity.api_key_env.as_ref().map(|_| true);
    let schema = json!({
        "type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false
    });
    // The words do not ask for JSON: a reply that is JSON all the same was made so by the endpoint.
    let structured = worker.ask(&request(name, "Say hello.", Some(Arc::new(schema)))).await;
    let obeys = |text: &str| serde_json::from_str::<Value>(text).is_ok_and(|value| value["ok"].is_boolean());
    found.structured_output = match structured {
        Ok(reply) => Some(obeys(&reply.text)),
        Err(error) => (error.failure.kind == FailureKind::SchemaRefused).then_some(false),
    };
    if found.returns_usage == Some(false) {
        found.hint = Some("LEMON counts the tokens itself; its counts are close, not exact".into());
    }
    found
}

fn worker(name: &str, capacity: &Capacity) -> Result<OpenAi, WorkersError> {
    let mut endpoint = endpoint(name, capacity)?;
    endpoint.timeout = endpoint.timeout.min(PATIENCE);
    endpoint.total_timeout = endpoint.total_timeout.min(PATIENCE);
    open_ai(vec![endpoint])
}

fn request(name: &str, words: &str, schema: Option<Arc<Value>>) -> Request {
    Request {
        agent: "doctor".into(),
        level: 0,
        capacity: name.to_owned(),
        messages: vec![ChatMessage::user(words)],
        max_tokens: 64,
        temperature: None,
        seed: 0,
        schema,
        tools: None,
        agent_prompt: None,
        progress: None,
    }
}

fn advice(kind: FailureKind, capacity: &Capacity) -> Option<String> {
    Some(match (kind, &capacity.api_key_env) {
        (FailureKind::Unreachable, _) => "is the server running, and is base_url right, with its /v1?".to_owned(),
        (FailureKind::Unauthorized, None) => "set api_key_env to the variable that holds the key".to_owned(),
        (FailureKind::Unauthorized, Some(variable)) => format!("the key in {variable} is refused"),
        (FailureKind::Refused, _) => format!("does the endpoint serve a model called `{}`?", capacity.model),
        (FailureKind::Loading, _) => "wait until the model is loaded; `lemon run` waits for it by itself".to_owned(),
        (FailureKind::Timeout, _) => "is the model still being loaded? try again in a moment".to_owned(),
        _ => return None,
    })
}
