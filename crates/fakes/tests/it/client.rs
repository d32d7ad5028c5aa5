//! A client that follows no protocol but HTTP, and tells how an exchange ended.

use lemon_fakes::FakeEndpoint;
use reqwest::{Client, Response, header};
use serde_json::{Value, json};
use std::sync::LazyLock;
use std::time::Duration;
use tokio::time::timeout;

/// After this long without a byte an exchange counts as silent. Only exchanges that hang reach it; it is long enough
/// for a busy machine.
const SILENCE: Duration = Duration::from_secs(5);

/// What came back.
#[derive(Debug, PartialEq)]
pub struct Exchange {
    /// The status, or 0 where no reply began.
    pub status: u16,
    pub content_type: String,
    pub retry_after: Option<String>,
    pub body: String,
    pub ended: Ended,
}

#[derive(Debug, PartialEq)]
pub enum Ended {
    /// In good order.
    Whole,
    /// The connection broke.
    Broken,
    /// Nothing more came.
    Silent,
}

/// A new client for every test, as each has its own runtime.
pub fn client() -> Client {
    static PROVIDER: LazyLock<()> = LazyLock::new(|| {
        rustls::crypto::ring::default_provider().install_default().expect("nothing else installs one");
    });
    LazyLock::force(&PROVIDER);
    Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap()
}

/// A chat request with this one message; `stream` asks for token counts unless `extra` says otherwise.
pub fn request(message: &str, extra: Value) -> Value {
    let mut body = json!({"model": "fake", "messages": [{"role": "user", "content": message}]});
    if extra["stream"] == true {
        body["stream_options"] = json!({"include_usage": true});
    }
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

pub async fn post(endpoint: &FakeEndpoint, body: &Value) -> Exchange {
    post_with(&client(), endpoint, body.to_string(), None).await
}

pub async fn post_with(client: &Client, endpoint: &FakeEndpoint, body: String, key: Option<&str>) -> Exchange {
    let mut request = client.post(format!("{}/chat/completions", endpoint.base_url())).body(body);
    if let Some(key) = key {
        request = request.bearer_auth(key);
    }
    let nothing = |ended| Exchange { status: 0, content_type: "".into(), retry_after: None, body: "".into(), ended };
    match timeout(SILENCE, request.send()).await {
        Ok(Ok(response)) => read(response).await,
        Ok(Err(_)) => nothing(Ended::Broken),
        Err(_) => nothing(Ended::Silent),
    }
}

async fn read(mut response: Response) -> Exchange {
    let header = |name| Some(response.headers().get(name)?.to_str().unwrap().to_owned());
    let (content_type, retry_after) = (header(header::CONTENT_TYPE).unwrap_or_default(), header(header::RETRY_AFTER));
    let mut bytes = Vec::new();
    let ended = loop {
        match timeout(SILENCE, response.chunk()).await {
            Ok(Ok(Some(more))) => bytes.extend_from_slice(&more),
            Ok(Ok(None)) => break Ended::Whole,
            Ok(Err(_)) => break Ended::Broken,
            Err(_) => break Ended::Silent,
        }
    };
    let body = String::from_utf8(bytes).unwrap();
    Exchange { status: response.status().as_u16(), content_type, retry_after, body, ended }
}
