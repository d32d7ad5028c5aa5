//! `trace export --send`: to a collector, over HTTP, as protobuf.

use crate::common::{Folder, PATIENCE, endpoint};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

/// What a collector was sent: the first line, the headers, the body.
struct Sent {
    request: String,
    headers: Vec<String>,
    body: Vec<u8>,
}

/// Takes one request and answers with this status. Gives its address, and what it was sent.
fn collector(status: &'static str) -> (String, Receiver<Sent>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, sent) = channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if line.trim().is_empty() {
                break;
            }
            lines.push(line.trim().to_lowercase());
        }
        let length = lines.iter().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 5\r\nConnection: close\r\n\r\nwords").unwrap();
        let headers = lines.split_off(1);
        sender.send(Sent { request: lines.remove(0), headers, body }).unwrap();
    });
    (address, sent)
}

fn folder() -> Folder {
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "");
    folder.lemon(&["run", "What is 2 + 2?", "--spec", "pair.yaml", "-q"]).ok();
    folder
}

fn attribute<'a>(span: &'a Span, key: &str) -> Option<&'a Value> {
    span.attributes.iter().find(|pair| pair.key == key)?.value.as_ref()?.value.as_ref()
}

#[test]
fn spans_arrive() {
    let folder = folder();
    let (address, sent) = collector("200 OK");
    let variables = [("OTEL_EXPORTER_OTLP_HEADERS", "x-team=yellow, x-key = secret=1")];
    let ran = folder.lemon_with(&variables, &["trace", "export", "--format", "otlp", "--send", &address]).ok();
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.starts_with("sent r-"), "{}", ran.stderr);
    let Sent { request, headers, body } = sent.recv_timeout(PATIENCE).unwrap();
    assert_eq!(request, "post /v1/traces http/1.1");
    for header in ["content-type: application/x-protobuf", "x-team: yellow", "x-key: secret=1"] {
        assert!(headers.iter().any(|found| found == header), "no {header} in {headers:?}");
    }
    let request = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
    let spans = &request.resource_spans[0].scope_spans[0].spans;
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    for name in ["invoke_workflow lemon", "invoke_agent one", "invoke_agent two", "chat fake"] {
        assert!(names.contains(&name), "no {name} in {names:?}");
    }
    let find = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let (one, two) = (find("invoke_agent one"), find("invoke_agent two"));
    assert!(two.links.iter().any(|link| link.span_id == one.span_id), "two has read one");
    assert!(one.links.is_empty());
    let tokens =
        |span: &Span| match ["input", "output"].map(|way| attribute(span, &format!("gen_ai.usage.{way}_tokens"))) {
            [Some(Value::IntValue(tokens_in)), Some(Value::IntValue(tokens_out))] => (tokens_in + tokens_out) as u64,
            _ => 0,
        };
    let total: u64 = spans.iter().map(tokens).sum();
    assert_eq!(folder.runs()[0]["tokens"], total);
}

#[test]
fn addresses() {
    let folder = folder();
    for tail in ["/", "/v1/traces", "/v1/traces/"] {
        let (address, sent) = collector("200 OK");
        folder.lemon(&["trace", "export", "--format", "otlp", "--send", &format!("{address}{tail}")]).ok();
        assert_eq!(sent.recv_timeout(PATIENCE).unwrap().request, "post /v1/traces http/1.1");
    }
}

#[test]
fn a_collector_that_fails() {
    let (address, _sent) = collector("500 Internal Server Error");
    let ran = folder().lemon(&["trace", "export", "--format", "otlp", "--send", &address]).code(1);
    ran.complains(&["/v1/traces answered 500", "words"]);
}

#[test]
fn no_collector() {
    let folder = folder();
    let check = |url: &str, words: &[&str]| {
        folder.lemon(&["trace", "export", "--format", "otlp", "--send", url]).code(1).complains(words);
    };
    check("http://127.0.0.1:1", &["http://127.0.0.1:1/v1/traces cannot be reached", "refused", "hint: "]);
    check("localhost", &["localhost/v1/traces cannot be reached"]);
    let other = ["trace", "export", "--format", "svg", "--send", "http://127.0.0.1:1"];
    folder.lemon(&other).code(2).complains(&["only the format otlp can be sent"]);
}
