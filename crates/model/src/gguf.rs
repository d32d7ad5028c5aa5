//! GGUF: a model in one file, with the metadata, the vocabulary and the weights, the latter mostly quantised.
//!
//! Nothing is loaded whole: the header is read once, lists and tensors when they are asked for, tensors some rows at a time.
//! The file is read at positions and not mapped, so that a file that shrinks meanwhile is an error and not a signal.

mod blocks;
mod header;
mod shape;

use crate::PolicyError;
use crate::config::ModelConfig;
use crate::files::Parts;
pub use blocks::BlockType;
use header::{Header, List, Value};
use rayon::prelude::*;
use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

/// The longest text or list of the metadata that is read, in bytes.
const MOST_BYTES: u64 = 256 << 20;
/// Rows that a thread reads at once.
const ROWS_AT_ONCE: usize = 64;

/// A GGUF file whose header has been read.
pub(crate) struct Gguf {
    parts: Parts,
    header: Header,
}

impl Gguf {
    /// Reads the header.
    pub(crate) fn open(path: &Path) -> Result<Gguf, PolicyError> {
        let parts = Parts::of(path)?;
        let header = header::read(parts.file()?, parts.size)
            .map_err(|fact| PolicyError::Malformed { path: path.to_owned(), fact })?;
        let gguf = Gguf { parts, header };
        match gguf.integer("split.count")? {
            Some(count @ 2..) => Err(gguf.malformed(format!(
                "expected a whole model, found one of {count} parts; hint: join them with `llama-gguf-split --merge`"
            ))),
            _ => Ok(gguf),
        }
    }

    /// The shape of the model.
    pub(crate) fn config(&self) -> Result<ModelConfig, PolicyError> {
        shape::config(self)
    }

    /// An error that names this file.
    pub(crate) fn malformed(&self, fact: String) -> PolicyError {
        PolicyError::Malformed { path: self.parts.path.clone(), fact }
    }

    fn value<T>(
        &self,
        key: &str,
        expected: &str,
        take: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, PolicyError> {
        let Some(value) = self.header.metadata.get(key) else { return Ok(None) };
        let found = match value {
            Value::Integer(it) => it.to_string(),
            Value::Float(it) => it.to_string(),
            Value::Bool(it) => it.to_string(),
            Value::Text(_) => "a text".to_owned(),
            Value::List(list) => format!("a list of {}", list.count),
        };
        let taken =
            take(value).ok_or_else(|| self.malformed(format!("expected `{key}` to be {expected}, found {found}")));
        taken.map(Some)
    }

    /// A whole number of the metadata.
    pub(crate) fn integer(&self, key: &str) -> Result<Option<u64>, PolicyError> {
        self.value(key, "a whole number of at least 0", |value| match value {
            Value::Integer(it) => u64::try_from(*it).ok(),
            _ => None,
        })
    }

    fn float(&self, key: &str) -> Result<Option<f64>, PolicyError> {
        self.value(key, "a number", |value| match value {
            Value::Float(it) if it.is_finite() => Some(*it),
            Value::Integer(it) => Some(*it as f64),
            _ => None,
        })
    }

    /// A truth value of the metadata.
    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, PolicyError> {
        self.value(key, "true or false", |value| match value {
            Value::Bool(it) => Some(*it),
            _ => None,
        })
    }

    /// A text of the metadata.
    pub(crate) fn text(&self, key: &str) -> Result<Option<String>, PolicyError> {
        let range = self.value(key, "a text", |value| match value {
            Value::Text(range) => Some(range.clone()),
            _ => None,
        })?;
        range.map(|range| self.utf8(key, self.bytes(key, range)?)).transpose()
    }

    /// A list of at most so many texts.
    pub(crate) fn texts(&self, key: &str, most: usize) -> Result<Option<Vec<String>>, PolicyError> {
        let Some(list) = self.list(key, most)? else { return Ok(None) };
        if list.kind != header::kinds::TEXT {
            return Err(
                self.malformed(format!("expected `{key}` to be a list of texts, found items of type {}", list.kind))
            );
        }
        let bytes = self.bytes(key, list.bytes)?;
        let (mut rest, mut texts) = (bytes.as_slice(), Vec::new());
        while let Some((length, after)) = rest.split_first_chunk::<8>() {
            let length = usize::try_from(u64::from_le_bytes(*length)).ok();
            let split = length.and_then(|length| after.split_at_checked(length));
            // The header has been over these lengths; the file has changed since if they no longer fit.
            let (text, after) = split.ok_or_else(|| self.malformed(format!("`{key}` changed while it was read")))?;
            texts.push(self.utf8(key, text.to_vec())?);
            rest = after;
        }
        Ok(Some(texts))
    }

    /// A list of at most so many whole numbers.
    pub(crate) fn integers(&self, key: &str, most: usize) -> Result<Option<Vec<i64>>, PolicyError> {
        let Some(list) = self.list(key, most)? else { return Ok(None) };
        let wrong =
            || self.malformed(format!("expected `{key}` to be whole numbers, found items of type {}", list.kind));
        let width = header::scalar_bytes(list.kind).ok_or_else(wrong)? as usize; // At most 8.
        let integer = |bytes: &[u8]| match header::scalar(list.kind, bytes) {
            Some(Value::Integer(it)) => i64::try_from(it).ok(),
            _ => None,
        };
        let bytes = self.bytes(key, list.bytes.clone())?;
        bytes.chunks_exact(width).map(integer).collect::<Option<Vec<i64>>>().map(Some).ok_or_else(wrong)
    }

    fn list(&self, key: &str, most: usize) -> Result<Option<List>, PolicyError> {
        self.value(key, &format!("a list of at most {most} items"), |value| match value {
            Value::List(list) if list.count <= most as u64 => Some(list.clone()),
            _ => None,
        })
    }

    fn bytes(&self, key: &str, range: Range<u64>) -> Result<Vec<u8>, PolicyError> {
        let length = range.end.saturating_sub(range.start);
        if length > MOST_BYTES {
            return Err(self.malformed(format!("expected `{key}` to have at most {MOST_BYTES} bytes, found {length}")));
        }
        self.parts.read(range.start, length as usize) // At most MOST_BYTES.
    }

    fn utf8(&self, key: &str, bytes: Vec<u8>) -> Result<String, PolicyError> {
        String::from_utf8(bytes).map_err(|_| self.malformed(format!("expected `{key}` to be UTF-8, found other bytes")))
    }

    /// A token by its role; an error if the vocabulary has no such token.
    pub(crate) fn token(&self, role: &str) -> Result<Option<u32>, PolicyError> {
        let key = format!("tokenizer.ggml.{role}_token_id");
        let Some(token) = self.integer(&key)? else { return Ok(None) };
        let tokens = match self.header.metadata.get("tokenizer.ggml.tokens") {
            Some(Value::List(list)) => list.count,
            _ => 0,
        };
        match u32::try_from(token).ok().filter(|_| token < tokens) {
            Some(token) => Ok(Some(token)),
            None => Err(self.malformed(format!("expected `{key}` to be one of {tokens} tokens, found {token}"))),
        }
    }

    /// The tokens that the metadata says end a text, a turn or a message, each once.
    pub(crate) fn ends(&self) -> Result<Vec<u32>, PolicyError> {
        let mut ends = Vec::new();
        for role in ["eos", "eot", "eom"] {
            ends.extend(self.token(role)?.filter(|end| !ends.contains(end)));
        }
        Ok(ends)
    }

    /// Checks that the file has every tensor of such a model in its shape and a readable format, and no other: a tensor that
    /// is not understood would make the model another one.
    pub(crate) fn check(&self, config: &ModelConfig) -> Result<(), PolicyError> {
        let mut known = HashSet::from([shape::ROPE_FACTORS.to_owned()]);
        for (name, shape) in config.tensor_shapes() {
            self.matrix(config, &name, &shape)?;
            known.extend(shape::stored_name(&name));
        }
        match self.header.tensors.keys().filter(|name| !known.contains(*name)).min() {
            Some(name) => Err(self.malformed(format!(
                "expected the tensors of a {} model, found `{name}` as well; hint: this variant of the architecture \
                 cannot be computed here",
                config.family.as_str()
            ))),
            None => Ok(()),
        }
    }

    /// A tensor by its name on the Hugging Face hub; it has to have this shape.
    pub(crate) fn matrix(&self, config: &ModelConfig, name: &str, shape: &[usize]) -> Result<Matrix<'_>, PolicyError> {
        let stored_name = shape::stored_name(name).unwrap_or_else(|| name.to_owned());
        let Some(stored) = self.header.tensors.get(&stored_name) else {
            return Err(self.malformed(format!("expected a tensor `{stored_name}`, found none")));
        };
        if !stored.shape.iter().copied().eq(shape.iter().map(|side| *side as u64)) {
            let fact =
                format!("expected the tensor `{stored_name}` to have the shape {shape:?}, found {:?}", stored.shape);
            return Err(self.malformed(fact));
        }
        let Some(kind) = BlockType::of(stored.kind) else {
            return Err(self.malformed(format!(
                "expected the tensor `{stored_name}` to be one of {}, found {}; hint: choose another quantisation, such as \
                 Q4_K_M or Q8_0",
                blocks::KNOWN,
                blocks::unknown_name(stored.kind)
            )));
        };
        let swapped = config.swaps_gguf_rows() && (name.contains(".q_proj.") || name.contains(".k_proj."));
        let (rows, width) = match shape {
            [rows, width] => (*rows, *width),
            _ if swapped => (shape.iter().product(), 1),
            _ => (1, shape.iter().product()),
        };
        if !width.is_multiple_of(kind.block().0) {
            return Err(
                self.malformed(format!("expected the tensor `{stored_name}` to have plain numbers, found {kind:?}"))
            );
        }
        Ok(Matrix { gguf: self, kind, start: stored.start, rows, width, head: swapped.then_some(config.head_dim) })
    }
}

/// A tensor of a file, read some rows at a time.
pub(crate) struct Matrix<'g> {
    gguf: &'g Gguf,
    pub(crate) kind: BlockType,
    start: u64,
    pub(crate) rows: usize,
    pub(crate) width: usize,
    /// Llama's queries and keys are stored with the two halves of each head of this width interleaved.
    head: Option<usize>,
}

impl Matrix<'_> {
    /// Reads rows from the `first` on, as many as `values` has room for.
    pub(crate) fn read(&self, first: usize, values: &mut [f32]) -> Result<(), PolicyError> {
        let mut bytes = vec![0u8; values.len() / self.width.max(1) * self.kind.row_bytes(self.width)];
        self.read_blocks(first, &mut bytes)?;
        self.kind.decode(&bytes, values);
        Ok(())
    }

    /// Reads rows from the `first` on as they are stored, as many as `bytes` has room for.
    pub(crate) fn read_blocks(&self, first: usize, bytes: &mut [u8]) -> Result<(), PolicyError> {
        let bytes_of_row = self.kind.row_bytes(self.width);
        let at = |row: usize| self.start + row as u64 * bytes_of_row as u64; // Inside the file, as the header's check says.
        match self.head {
            None => self.gguf.parts.read_into(at(first), bytes),
            Some(head) => (first..)
                .zip(bytes.chunks_exact_mut(bytes_of_row.max(1)))
                .try_for_each(|(row, bytes)| self.gguf.parts.read_into(at(interleaved(row, head)), bytes)),
        }
    }

    /// All rows.
    pub(crate) fn all(&self) -> Result<Vec<f32>, PolicyError> {
        let mut values = vec![0f32; self.rows * self.width];
        let parts = values.par_chunks_mut((ROWS_AT_ONCE * self.width).max(1)).enumerate();
        parts.try_for_each(|(part, values)| self.read(part * ROWS_AT_ONCE, values))?;
        Ok(values)
    }
}

/// Where a row of Llama's queries or keys is stored: number j of the first half of a head is followed by number j of the
/// second.
fn interleaved(row: usize, head: usize) -> usize {
    let (within, half) = (row % head, head / 2);
    row - within + 2 * (within % half) + within / half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_heads_are_taken_apart() {
        let rows: Vec<usize> = (0..12).map(|row| interleaved(row, 6)).collect();
        assert_eq!(rows, [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]);
    }
}
