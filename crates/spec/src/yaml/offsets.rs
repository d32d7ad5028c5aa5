//! From character positions, which the YAML events carry, to byte positions.

/// Byte positions of the characters of one text.
pub(super) struct Offsets {
    /// Where each character starts; `None` if every character is one byte.
    starts: Option<Vec<usize>>,
    bytes: usize,
}

impl Offsets {
    pub(super) fn of(text: &str) -> Offsets {
        let starts = (!text.is_ascii()).then(|| text.char_indices().map(|(start, _)| start).collect());
        Offsets { starts, bytes: text.len() }
    }

    /// The byte at which character number `index` starts. The scanner may count a little beyond the end of the text.
    pub(super) fn byte(&self, index: usize) -> usize {
        match &self.starts {
            None => index.min(self.bytes),
            Some(starts) => starts.get(index).copied().unwrap_or(self.bytes),
        }
    }
}
