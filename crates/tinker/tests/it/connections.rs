//! No connection is used twice: after a status 500 a server may reset the one it failed on.

use crate::common::*;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn a_connection_is_not_used_again() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let used = Arc::new(AtomicUsize::new(0));
    let counted = used.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) > 0 {
                head.push(byte[0]);
            }
            // It offers to keep the connection, and closes it without a word.
            let body = r#"{"supported_models":[{"model_name":"tiny"}]}"#;
            let get = head.starts_with(b"GET");
            let (status, body) = if get { ("200 OK", body) } else { ("500 Internal Server Error", "broken") };
            let length = body.len();
            write!(stream, "HTTP/1.1 {status}\r\nconnection: keep-alive\r\ncontent-length: {length}\r\n\r\n{body}")
                .unwrap();
        }
    });
    let folder = files();
    let (fact, _) = fault(open_at(&start(&url, folder.path())).map(drop));
    // A session may be asked for thrice; each time the server's own words came through.
    assert_eq!(fact, "the Tinker server refused `create_session` with status 500: broken");
    assert_eq!(used.load(Ordering::SeqCst), 4);
}
