//! Server-sent events: bytes in, `data:` payloads out, however the network cuts them.

/// Collects bytes and gives back whole payloads.
#[derive(Debug, Default)]
pub struct SseReader {
    buffer: Vec<u8>,
    /// Where the next unread line begins.
    at: usize,
    /// Up to where no line end was found, so that a long line is not searched again with every piece of it.
    searched: usize,
}

impl SseReader {
    /// Adds bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.at);
        self.searched = self.searched.saturating_sub(self.at);
        self.at = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole `data:` payload, if its line has ended. Chat endpoints write one line per event.
    pub fn next_data(&mut self) -> Option<&[u8]> {
        loop {
            let unsearched = self.buffer.get(self.searched..)?;
            let Some(length) = unsearched.iter().position(|byte| *byte == b'\n') else {
                self.searched = self.buffer.len();
                return None;
            };
            let (start, end) = (self.at, self.searched + length);
            (self.at, self.searched) = (end + 1, end + 1);
            // The slice is re-taken from the buffer because of the borrow; the range was just found in it.
            if data_of(self.buffer.get(start..end)?).is_some() {
                return data_of(self.buffer.get(start..end)?);
            }
        }
    }

    /// Bytes that wait for the end of their line.
    pub fn held(&self) -> usize {
        self.buffer.len().saturating_sub(self.at)
    }

    /// What is left when the connection has ended: a last line without its end.
    pub fn rest(&self) -> Option<&[u8]> {
        data_of(self.buffer.get(self.at..)?)
    }
}

fn data_of(line: &[u8]) -> Option<&[u8]> {
    Some(line.strip_prefix(b"data:")?.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(chunks: &[&[u8]]) -> Vec<String> {
        let mut reader = SseReader::default();
        let mut found = Vec::new();
        for chunk in chunks {
            reader.push(chunk);
            while let Some(data) = reader.next_data() {
                found.push(String::from_utf8_lossy(data).into_owned());
            }
        }
        found
    }

    #[test]
    fn payloads_are_whole_lines() {
        assert_eq!(read(&[b": hi\n\ndata: {\"a\":1}\r\n\r\ndata:[DONE]\n\nda"]), ["{\"a\":1}", "[DONE]"]);
        assert_eq!(read(&[b"event: x\nid: 3\n"]), [""; 0]);
    }

    proptest! {
        #[test]
        fn how_the_network_cuts_does_not_matter(cuts in prop::collection::vec(1usize..9, 0..20)) {
            let whole: &[u8] = b"data: one\n\ndata: two\r\n\r\n: note\ndata: three\n\n";
            let mut rest = whole;
            let mut chunks = Vec::new();
            for cut in cuts {
                let (head, tail) = rest.split_at(cut.min(rest.len()));
                chunks.push(head);
                rest = tail;
            }
            chunks.push(rest);
            prop_assert_eq!(read(&chunks), ["one", "two", "three"]);
        }
    }
}
