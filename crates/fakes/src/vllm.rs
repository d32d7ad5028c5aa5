//! A fake of a vLLM server, with the fields and refusals of vLLM 0.27.1: completions of tokens under a grammar, and adapters that are
//! loaded and unloaded by name. Behind it is no model and no grammar: it replies with texts and log-probabilities that it was given.

use crate::server::Server;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path as UrlPath, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How the fake behaves.
#[derive(Debug, Clone)]
pub struct VllmWorld {
    /// The model that it serves.
    pub model: String,
    /// Adapters that another program has loaded.
    pub others: Vec<String>,
    /// Grammars that allow one text alone, and the tokens of that text.
    pub forced: Vec<(String, Vec<u32>)>,
    /// What it samples otherwise, with the log-probability of each token: the text with the number of the seed, counted round.
    pub texts: Vec<(Vec<u32>, Vec<f32>)>,
    /// Whether it holds texts to grammars.
    pub holds: bool,
    /// Whether log-probabilities are those after the grammar cut tokens off.
    pub cut: bool,
    /// Whether adapters may be loaded while it runs.
    pub adapters: bool,
    /// The key that clients have to show.
    pub key: Option<String>,
}

impl Default for VllmWorld {
    fn default() -> Self {
        VllmWorld {
            model: "tiny".to_owned(),
            others: Vec::new(),
            forced: Vec::new(),
            texts: vec![(vec![1, 2, 3], vec![-1.0; 3])],
            holds: true,
            cut: true,
            adapters: true,
            key: None,
        }
    }
}

/// A fake server on loopback; dropping it ends it.
pub struct FakeVllm {
    shared: Arc<Shared>,
    server: Server,
}

struct Shared {
    world: VllmWorld,
    // A std mutex and not Tokio's, because no lock is held across an await.
    state: Mutex<Changing>,
}

#[derive(Default)]
struct Changing {
    /// The weights of each adapter, as text.
    adapters: BTreeMap<String, String>,
    calls: Vec<(String, Value)>,
}

impl FakeVllm {
    /// Starts one.
    ///
    /// # Errors
    /// The port cannot be bound, or there are no threads to be had.
    pub fn start(world: VllmWorld) -> io::Result<Self> {
        let shared = Arc::new(Shared { world, state: Mutex::default() });
        let router = Router::new()
            .route("/v1/models", get(models))
            .route("/v1/{call}", post(take))
            .layer(axum::extract::DefaultBodyLimit::disable())
            .with_state(shared.clone());
        Ok(FakeVllm { shared, server: Server::start(0, router)? })
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.server.address())
    }

    /// The requests so far of one kind, in the order they came in.
    pub fn calls(&self, call: &str) -> Vec<Value> {
        let of_call = |(name, body): &(String, Value)| (name == call).then(|| body.clone());
        self.shared.state().calls.iter().filter_map(of_call).collect()
    }

    /// The adapters that are loaded, by name, and their weights as text.
    pub fn adapters(&self) -> BTreeMap<String, String> {
        self.shared.state().adapters.clone()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, Changing> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        let shown =
            headers.get("authorization").and_then(|key| key.to_str().ok()).and_then(|key| key.strip_prefix("Bearer "));
        self.world.key.is_none() || shown == self.world.key.as_deref()
    }

    fn complete(&self, body: &Value) -> Response {
        let model = body["model"].as_str().unwrap_or_default();
        let is_other = self.world.others.iter().any(|other| other == model);
        if model != self.world.model && !is_other && !self.state().adapters.contains_key(model) {
            return refusal(404, &format!("The model `{model}` does not exist."));
        }
        let asked = body.pointer("/structured_outputs/grammar").and_then(Value::as_str);
        let forced = self.world.forced.iter().find(|(grammar, _)| Some(grammar.as_str()) == asked);
        let number = body["seed"].as_u64().unwrap_or(0) % self.world.texts.len().max(1) as u64;
        let drawn = self.world.texts.get(number as usize).cloned().unwrap_or_default();
        let (mut tokens, mut logprobs) = match forced.filter(|_| self.world.holds) {
            Some((_, tokens)) => (tokens.clone(), vec![if self.world.cut { 0.0 } else { -4.25 }; tokens.len()]),
            None => drawn,
        };
        let most = body["max_tokens"].as_u64().unwrap_or(16) as usize;
        tokens.truncate(most);
        logprobs.truncate(most);
        let names: Vec<String> = tokens.iter().map(|token| format!("token_id:{token}")).collect();
        let logprobs = json!({"text_offset": [], "token_logprobs": logprobs, "tokens": names, "top_logprobs": []});
        let token_ids = if body["return_token_ids"] == json!(true) { json!(tokens) } else { Value::Null };
        let logprobs = if body["logprobs"].is_u64() { logprobs } else { Value::Null };
        let choice =
            json!({"index": 0, "text": "", "logprobs": logprobs, "finish_reason": "stop", "token_ids": token_ids});
        Json(json!({"object": "text_completion", "model": model, "choices": [choice]})).into_response()
    }

    fn load(&self, body: &Value) -> Response {
        let (Some(name), Some(path)) = (body["lora_name"].as_str(), body["lora_path"].as_str()) else {
            return refusal(400, "Both 'lora_name' and 'lora_path' must be provided.");
        };
        if self.state().adapters.contains_key(name) && body["load_inplace"] != json!(true) {
            return refusal(400, &format!("The lora adapter '{name}' has already been loaded."));
        }
        let weights = fs::read_to_string(Path::new(path).join("adapter_model.safetensors"));
        let Some(weights) = weights.ok().filter(|_| Path::new(path).join("adapter_config.json").exists()) else {
            return refusal(404, &format!("Loading lora {name} failed: No adapter found for {path}"));
        };
        self.state().adapters.insert(name.to_owned(), weights);
        format!("Success: LoRA adapter '{name}' added successfully.").into_response()
    }

    fn unload(&self, body: &Value) -> Response {
        let name = body["lora_name"].as_str().unwrap_or_default();
        match self.state().adapters.remove(name) {
            Some(_) => format!("Success: LoRA adapter '{name}' removed successfully.").into_response(),
            None => refusal(404, &format!("The lora adapter '{name}' cannot be found.")),
        }
    }
}

async fn models(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    shared.state().calls.push(("models".to_owned(), Value::Null));
    if !shared.admits(&headers) {
        return refusal(401, "Unauthorized");
    }
    Json(json!({"object": "list", "data": [{"id": shared.world.model, "object": "model"}]})).into_response()
}

async fn take(
    State(shared): State<Arc<Shared>>,
    UrlPath(call): UrlPath<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Ok(body) = serde_json::from_slice::<Value>(&body) else { return refusal(422, "the body is not JSON") };
    shared.state().calls.push((call.clone(), body.clone()));
    if !shared.admits(&headers) {
        return refusal(401, "Unauthorized");
    }
    match call.as_str() {
        "completions" => shared.complete(&body),
        "load_lora_adapter" if shared.world.adapters => shared.load(&body),
        "unload_lora_adapter" if shared.world.adapters => shared.unload(&body),
        _ => (StatusCode::NOT_FOUND, Json(json!({"detail": "Not Found"}))).into_response(),
    }
}

fn refusal(status: u16, message: &str) -> Response {
    let code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (code, Json(json!({"error": {"message": message, "type": "Refused", "param": null, "code": status}})))
        .into_response()
}
