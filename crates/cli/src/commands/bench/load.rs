//! The load of `lemon bench api`: clients that each keep one connection and ask one question after another.
//!
//! Load and server share the processors, and a client that decodes, pools and redirects takes as long as the server does. So these
//! speak HTTP/1.1 and nothing more.

use crate::fault::Fault;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use reqwest::Url;
use std::fmt::Display;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// Where questions go.
pub struct LoadTarget {
    host: String,
    path: String,
    model: String,
}

impl LoadTarget {
    /// The chat completions below a base URL, for a model of this name.
    ///
    /// # Errors
    /// It is no `http://` address.
    pub fn new(base: &str, model: &str) -> Result<Self, Fault> {
        let expected =
            |found: String| Fault::new(format!("expected an address like http://127.0.0.1:8137/v1, {found}"));
        let url = Url::parse(base).map_err(|error| expected(format!("found {base}: {error}")))?;
        match (url.scheme(), url.host_str()) {
            ("http", Some(host)) => Ok(LoadTarget {
                host: format!("{host}:{}", url.port_or_known_default().unwrap_or(80)),
                path: format!("{}/chat/completions", url.path().trim_end_matches('/')),
                model: model.to_owned(),
            }),
            _ => Err(expected(format!("found {base}"))),
        }
    }

    /// The seconds that each of `requests` took, of which `width` are under way at a time. The first of each client are spread
    /// over a time: clients that begin at one moment would be answered at one moment, and begin again at one.
    ///
    /// # Errors
    /// One of them failed.
    pub async fn ask(&self, requests: usize, width: usize, spread: Duration) -> Result<Vec<f64>, Fault> {
        let (run, next) = (lemon_exec::fresh_id(), AtomicUsize::new(0));
        let client = async |number: usize| {
            let mut times = Vec::with_capacity(requests / width + 1);
            let mut line = self.connect().await?;
            tokio::time::sleep(spread.mul_f64(number as f64 / width as f64)).await;
            loop {
                let question = next.fetch_add(1, Ordering::Relaxed);
                if question >= requests {
                    return Ok::<_, Fault>(times);
                }
                let began = Instant::now();
                // Every question differs, so that no reply is reused.
                self.ask_one(&mut line, &format!("Question {question} of {run}: what is the answer?")).await?;
                times.push(began.elapsed().as_secs_f64());
            }
        };
        Ok(futures::future::try_join_all((0..width).map(client)).await?.concat())
    }

    async fn connect(&self) -> Result<SendRequest<String>, Fault> {
        let stream = TcpStream::connect(&self.host).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let (line, connection) = handshake(TokioIo::new(stream)).await.map_err(failed)?;
        // What breaks a connection off, its requests say.
        tokio::spawn(connection);
        Ok(line)
    }

    async fn ask_one(&self, line: &mut SendRequest<String>, question: &str) -> Result<(), Fault> {
        let LoadTarget { host, path, model } = self;
        let body =
            format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"{question}"}}],"stream":false}}"#);
        let request = Request::post(path)
            .header("host", host)
            .header("content-type", "application/json")
            .header("authorization", "Bearer sk-none")
            .body(body)
            .map_err(failed)?;
        line.ready().await.map_err(failed)?;
        let response = line.send_request(request).await.map_err(failed)?;
        let status = response.status();
        let body = read(response.into_body()).await?;
        match status {
            StatusCode::OK => Ok(()),
            _ => Err(failed(format!("{status} {}", String::from_utf8_lossy(&body)))),
        }
    }
}

async fn read(mut body: Incoming) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        if let Ok(data) = frame.map_err(failed)?.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes)
}

/// A request that failed.
pub fn failed(why: impl Display) -> Fault {
    Fault::new(format!("a request failed, and the measurement is void: {why}")).code(1)
}
