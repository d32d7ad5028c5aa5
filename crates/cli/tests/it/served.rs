//! A server process for tests, and a small HTTP client without any manners.

use crate::common::{Folder, PATIENCE, finish, send_signal, signal};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// A `lemon serve` that is running. Dropping it kills it.
pub struct Served {
    child: Option<Child>,
    pub address: String,
    /// What it says on standard error.
    pub said: Receiver<String>,
}

/// A response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Served {
    /// Starts a server on a free port.
    #[track_caller]
    pub fn start(folder: &Folder, args: &[&str]) -> Self {
        Served::start_with(folder, &[], args)
    }

    #[track_caller]
    pub fn start_with(folder: &Folder, variables: &[(&str, &str)], args: &[&str]) -> Self {
        let mut command = folder.command(&["serve", "--addr", "127.0.0.1:0"]);
        command.args(args).envs(variables.iter().copied()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, said) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut served = Served { child: Some(child), address: String::new(), said };
        let mut before = Vec::new();
        while served.address.is_empty() {
            let line = served.said.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("it said only {before:?}"));
            if let Some((_, rest)) = line.split_once("serving at http://") {
                served.address = rest.split('/').next().unwrap().to_owned();
            }
            before.push(line);
        }
        served
    }

    pub fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], "")
    }

    pub fn post(&self, path: &str, body: &Value) -> Response {
        self.send("POST", path, &[("content-type", "application/json")], &body.to_string())
    }

    /// Asks the model `lemon`, or another one that `more` names.
    pub fn chat(&self, question: &str, more: Value) -> Response {
        self.post("/v1/chat/completions", &chat(question, more))
    }

    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        read(self.begin(method, path, headers, body))
    }

    /// Sends a request, and reads nothing yet.
    pub fn begin(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            text.push_str(&format!("Host: {}\r\n", self.address));
        }
        headers.iter().for_each(|(name, value)| text.push_str(&format!("{name}: {value}\r\n")));
        stream.write_all(format!("{text}\r\n{body}").as_bytes()).unwrap();
        stream
    }

    /// The value of a counter.
    pub fn counter(&self, name: &str) -> f64 {
        let text = self.get("/metrics").body;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    /// Kills it, as a crash would.
    pub fn kill(mut self) {
        let mut child = self.child.take().unwrap();
        signal(&child, "KILL");
        child.wait().unwrap();
    }

    /// Tells it to end.
    pub fn tell_to_end(&self) {
        signal(self.child.as_ref().unwrap(), "TERM");
    }

    /// Tells it to end, and waits until it has. Gives the exit code.
    pub fn end(self) -> Option<i32> {
        self.tell_to_end();
        self.wait()
    }

    /// Waits until it has ended. Gives the exit code.
    pub fn wait(mut self) -> Option<i32> {
        finish(&["serve"], self.child.take().unwrap()).code
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            send_signal("KILL", &child.id().to_string());
            child.wait().unwrap();
        }
    }
}

/// A request for a chat completion.
pub fn chat(question: &str, more: Value) -> Value {
    let mut body = json!({"model": "lemon", "messages": [{"role": "user", "content": question}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Reads a response to its end.
pub fn read(mut stream: TcpStream) -> Response {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|part| part == b"\r\n\r\n").unwrap_or_else(|| panic!("no headers: {bytes:?}"));
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let header =
        |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned())).unwrap();
    let headers: Vec<(String, String)> = lines.map(header).collect();
    let body = &bytes[end + 4..];
    let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let body = if chunked { unchunked(body) } else { body.to_vec() };
    Response { status, headers, body: String::from_utf8(body).unwrap() }
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|part| part == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        let from = end + 2;
        body.extend(&bytes[from..from + length]);
        if length == 0 {
            break;
        }
        bytes = &bytes[from + length + 2..];
    }
    body
}

impl Response {
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.status, 200, "{}", self.body);
        self
    }

    /// That it is an error object of OpenAI's protocol with this status and code.
    #[track_caller]
    pub fn refused(&self, status: u16, code: Option<&str>) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        let error = self.json()["error"].clone();
        assert_eq!(error["code"].as_str(), code, "{error}");
        assert!(error["message"].is_string() && error["type"].is_string(), "{error}");
        error
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The answer of a chat completion.
    #[track_caller]
    pub fn answer(self) -> String {
        self.ok().json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    }

    /// The data of server-sent events, without `[DONE]`, which must be the last.
    #[track_caller]
    pub fn events(&self) -> Vec<Value> {
        let mut lines: Vec<&str> = self.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(lines.pop(), Some("[DONE]"), "{}", self.body);
        lines.into_iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// The texts of this field of the chunks of a stream, joined.
pub fn joined(events: &[Value], field: &str) -> String {
    events.iter().filter_map(|event| event["choices"][0]["delta"][field].as_str()).collect()
}
