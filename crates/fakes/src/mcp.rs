//! A fake MCP server: it lists one honest tool, `echo`, and one tool for every way to reply badly.
//!
//! It speaks streamable HTTP on [`FakeMcp::url`], and the line protocol of standard input and output through the command
//! [`FakeMcp::command`], a shell that relays lines to it. What is sent is decided by pure code in `hostile`.

mod hostile;

use crate::server::Server;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::{StreamExt, stream};
use hostile::{Step, answer};
use serde_json::Value;
use std::future::pending;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

pub use hostile::HOSTILE_TOOLS;

/// A fake MCP server on loopback; dropping it ends it.
#[derive(Debug)]
pub struct FakeMcp {
    seen: Arc<Seen>,
    http: Server,
    lines: SocketAddr,
}

/// What clients asked for.
#[derive(Debug, Default)]
struct Seen(Mutex<Vec<Value>>);

impl Seen {
    fn note(&self, request: &Value) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
    }
}

impl FakeMcp {
    /// Starts it.
    ///
    /// # Errors
    /// No port can be bound, or there are no threads to be had.
    pub fn start() -> io::Result<Self> {
        let seen = Arc::new(Seen::default());
        let router = Router::new().route("/mcp", post(over_http)).with_state(seen.clone());
        let http = Server::start(0, router)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let lines = listener.local_addr()?;
        let also = seen.clone();
        thread::Builder::new().name("lemon-fake-mcp".to_owned()).spawn(move || listen(&listener, &also))?;
        Ok(FakeMcp { seen, http, lines })
    }

    /// Its address for streamable HTTP.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.http.address())
    }

    /// A program that speaks the protocol on standard input and output. It needs `bash` and `cat`.
    pub fn command(&self) -> Vec<String> {
        let port = self.lines.port();
        let relay = format!("exec 3<>/dev/tcp/127.0.0.1/{port} 4<&0; cat <&4 >&3 & cat <&3");
        ["bash", "-c", &relay].map(str::to_owned).to_vec()
    }

    /// Every message that came in, in order.
    pub fn seen(&self) -> Vec<Value> {
        self.seen.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The texts that a tool was called with, in order.
    pub fn texts(&self, tool: &str) -> Vec<String> {
        let calls = self.seen().into_iter().filter(|it| it["method"] == "tools/call" && it["params"]["name"] == tool);
        calls.map(|call| call["params"]["arguments"]["text"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The calls of tools that came in: their names, in order.
    pub fn calls(&self) -> Vec<String> {
        let calls = self.seen().into_iter().filter(|message| message["method"] == "tools/call");
        calls.map(|call| call["params"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

impl Drop for FakeMcp {
    fn drop(&mut self) {
        // The thread that accepts ends with a connection that says so. Where none can be made, it is gone already.
        if let Ok(mut last) = TcpStream::connect(self.lines) {
            let _ = last.write_all(END);
        }
    }
}

/// What ends the thread that accepts.
const END: &[u8] = b"end of the fake\n";

fn listen(listener: &TcpListener, seen: &Arc<Seen>) {
    for connection in listener.incoming().flatten() {
        let mut first = [0; END.len()];
        if connection.peek(&mut first).is_ok_and(|read| first[..read] == *END) {
            return;
        }
        let seen = seen.clone();
        thread::spawn(move || over_lines(&connection, &seen));
    }
}

/// Replies to every line. An error is a client that has gone.
fn over_lines(connection: &TcpStream, seen: &Seen) -> io::Result<()> {
    let mut out = connection;
    for line in BufReader::new(connection).lines() {
        let Ok(request) = serde_json::from_str::<Value>(&line?) else { continue };
        seen.note(&request);
        for step in answer(&request) {
            match step {
                Step::Bytes(bytes) => out.write_all(&bytes)?,
                Step::Forever(bytes, pause) => loop {
                    out.write_all(&bytes)?;
                    thread::sleep(pause);
                },
                Step::Pause(time) => thread::sleep(time),
                Step::Wait => {}
                Step::Close => return Ok(()),
            }
        }
    }
    Ok(())
}

async fn over_http(State(seen): State<Arc<Seen>>, body: Bytes) -> Response {
    let Ok(request) = serde_json::from_slice::<Value>(&body) else { return StatusCode::BAD_REQUEST.into_response() };
    seen.note(&request);
    let steps = answer(&request);
    if steps.is_empty() {
        return StatusCode::ACCEPTED.into_response();
    }
    let pieces = stream::iter(steps).flat_map(|step| match step {
        Step::Bytes(bytes) => stream::iter([io::Result::Ok(bytes)]).boxed(),
        Step::Forever(bytes, pause) => stream::repeat(bytes).then(move |bytes| after(pause, bytes)).boxed(),
        Step::Pause(time) => stream::once(after(time, Vec::new())).boxed(),
        Step::Wait => stream::once(pending()).boxed(),
        Step::Close => stream::iter([Err(io::Error::other("closed on purpose"))]).boxed(),
    });
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(pieces)).into_response()
}

async fn after(pause: Duration, bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    tokio::time::sleep(pause).await;
    Ok(bytes)
}
