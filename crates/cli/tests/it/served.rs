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
        begin_at(&self.address, method, path, headers, body).unwrap()
    }

    /// The number of its process.
    pub fn process(&self) -> u32 {
        self.child.as_ref().unwrap().id()
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

/// Sends a request to a server that may be gone, and reads nothing yet.
pub fn begin_at(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        text.push_str(&format!("Host: {address}\r\n"));
    }
    headers.iter().for_each(|(name, value)| text.push_str(&format!("{name}: {value}\r\n")));
    stream.write_all(format!("{text}\r\n{body}").as_bytes())?;
    Ok(stream)
}

/// Reads a response to its end.
#[track_caller]
pub fn read(mut stream: TcpStream) -> Response {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    parsed(&bytes).unwrap_or_else(|| panic!("no whole response: {}", String::from_utf8_lossy(&bytes)))
}

/// Reads a response to its end; `None`: it broke off.
pub fn try_read(mut stream: TcpStream) -> Option<Response> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).ok()?;
    parsed(&bytes)
}

fn parsed(bytes: &[u8]) -> Option<Response> {
    let end = bytes.windows(4).position(|part| part == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let headers: Vec<(String, String)> = lines.map(header).collect::<Option<_>>()?;
    let body = &bytes[end + 4..];
    let value = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let body = match (value("transfer-encoding"), value("content-length")) {
        (Some("chunked"), _) => unchunked(body)?,
        (_, Some(length)) if length.parse() != Ok(body.len()) => return None,
        _ => body.to_vec(),
    };
    Some(Response { status, headers, body: String::from_utf8(body).ok()? })
}

/// `None`: the last piece, which is empty, is missing.
fn unchunked(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = bytes.windows(2).position(|part| part == b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).ok()?, 16).ok()?;
        if length == 0 {
            return Some(body);
        }
        let from = end + 2;
        body.extend(bytes.get(from..from + length)?);
        bytes = bytes.get(from + length + 2..)?;
    }
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
