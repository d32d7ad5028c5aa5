//! What a server prints, line by line, with bytes that are not UTF-8 replaced: a message with one bad byte stays a message.

use super::meter::Meter;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// Reads whole lines. A server that sends more than its meter allows, with or without line ends, gets an error.
pub(crate) struct Lines<R> {
    reader: R,
    meter: Arc<Meter>,
    /// Of a line whose end was not read yet.
    pending: Vec<u8>,
    /// Whole lines, and how far they were handed on.
    whole: (Vec<u8>, usize),
}

impl<R> Lines<R> {
    pub fn new(reader: R, meter: Arc<Meter>) -> Self {
        Lines { reader, meter, pending: Vec::new(), whole: (Vec::new(), 0) }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Lines<R> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            let (lines, at) = &mut this.whole;
            if *at < lines.len() {
                let count = out.remaining().min(lines.len() - *at);
                out.put_slice(&lines[*at..*at + count]);
                *at += count;
                return Poll::Ready(Ok(()));
            }
            let mut chunk = [0; 8 << 10];
            let mut chunk = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut this.reader).poll_read(context, &mut chunk))?;
            let read = chunk.filled();
            if read.is_empty() {
                // The rest is a line without an end, which is no message.
                return Poll::Ready(Ok(()));
            }
            if !this.meter.count(read.len() as u64) {
                return Poll::Ready(Err(io::Error::other("the server sent more than it may")));
            }
            let end = read.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let (ends_line, begins_line) = read.split_at(end);
            if end > 0 {
                this.pending.extend_from_slice(ends_line);
                let lines = std::mem::take(&mut this.pending);
                this.whole = (String::from_utf8_lossy(&lines).into_owned().into_bytes(), 0);
            }
            this.pending.extend_from_slice(begins_line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn bad_bytes_are_replaced_and_lines_stay_whole() {
        let source: &[u8] = b"{\"a\": \"\xff\xc3(\"}\n\xe2\x82\xac\nno end";
        let mut text = String::new();
        Lines::new(source, Meter::new(1)).read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "{\"a\": \"\u{fffd}\u{fffd}(\"}\n€\n");
    }

    #[tokio::test]
    async fn a_flood_ends_with_an_error() {
        let meter = Meter::new(1);
        let mut kept = Vec::new();
        let fault = Lines::new(tokio::io::repeat(b'x'), meter.clone()).read_to_end(&mut kept).await.unwrap_err();
        assert_eq!(fault.to_string(), "the server sent more than it may");
        assert!(kept.is_empty() && meter.is_spent());
    }
}
