//! The header of a GGUF file: metadata, and where the tensors are.
//!
//! The file is untrusted. Every count and length is compared with the bytes that are left before anything is read or
//! allocated; texts and lists stay in the file until they are asked for.

use super::blocks::BlockType;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{BufReader, Read};
use std::ops::Range;

/// Entries of metadata and tensors at most; the largest published models have a few thousand.
const MOST_ENTRIES: u64 = 1 << 16;
/// The longest name of a key or a tensor, in bytes.
const MOST_NAME_BYTES: u64 = 1 << 10;
/// How deep lists may stand in lists.
const MOST_DEPTH: usize = 4;
const DEFAULT_ALIGNMENT: u64 = 32;

/// What the header says.
pub(super) struct Header {
    pub(super) metadata: HashMap<String, Value>,
    pub(super) tensors: HashMap<String, Stored>,
}

/// A value of the metadata.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Integer(i128),
    Float(f64),
    Bool(bool),
    /// Where its bytes are.
    Text(Range<u64>),
    List(List),
}

/// A list that has not been read yet.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct List {
    /// The type of its items.
    pub(super) kind: u32,
    pub(super) count: u64,
    /// Where its items are.
    pub(super) bytes: Range<u64>,
}

/// A tensor in the file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stored {
    /// The outermost side first, as everywhere else in this crate; the file has it the other way round.
    pub(super) shape: Vec<u64>,
    /// The number of its type; [`BlockType::of`] knows those that can be read.
    pub(super) kind: u32,
    /// Where it begins, counted from the start of the file.
    pub(super) start: u64,
}

impl Stored {
    /// How many bytes it has; `None` for an unknown type or absurd sides.
    fn bytes(&self) -> Option<u64> {
        let (values, bytes) = BlockType::of(self.kind)?.block();
        let count = self.shape.iter().try_fold(1u64, |product, side| product.checked_mul(*side))?;
        let width = self.shape.last()?;
        width.is_multiple_of(values as u64).then_some(())?;
        (count / values as u64).checked_mul(bytes as u64)
    }
}

/// Types of metadata values.
pub(super) mod kinds {
    pub(crate) const TEXT: u32 = 8;
    pub(crate) const LIST: u32 = 9;
}

/// The bytes of a number or a truth value; `None` for other types.
pub(super) fn scalar_bytes(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

/// A number or a truth value of this type.
pub(super) fn scalar(kind: u32, bytes: &[u8]) -> Option<Value> {
    let mut word = [0u8; 8];
    word.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let word = u64::from_le_bytes(word);
    Some(match kind {
        0 | 2 | 4 | 10 => Value::Integer(i128::from(word)),
        1 => Value::Integer(i128::from(word as i8)),
        3 => Value::Integer(i128::from(word as i16)),
        5 => Value::Integer(i128::from(word as i32)),
        11 => Value::Integer(i128::from(word as i64)),
        // The shortest decimal: 1e-6, where the nearest f64 to the f32 is 9.999999974752427e-7. Every f32 has one that parses.
        6 => Value::Float(f32::from_bits(word as u32).to_string().parse().ok()?),
        7 => Value::Bool(word != 0),
        12 => Value::Float(f64::from_bits(word)),
        _ => return None,
    })
}

/// Reads a header.
///
/// # Errors
/// What was expected, what was found, and where.
pub(super) fn read(file: &File, size: u64) -> Result<Header, String> {
    let mut reader = Reader { file: BufReader::with_capacity(1 << 16, file), at: 0, size };
    let magic = reader.array::<4>("the magic number")?;
    if magic != *b"GGUF" {
        let found = magic.escape_ascii();
        return Err(format!(
            "expected a GGUF file, which begins with `GGUF`, found `{found}` at its start; hint: it may be an incomplete \
             download, a Git LFS pointer or a model in another format"
        ));
    }
    let version = reader.u32("the version")?;
    match version {
        2 | 3 => {}
        _ if matches!(version.swap_bytes(), 1..=3) => {
            return Err("expected a little-endian GGUF file, found a big-endian one; hint: convert it".to_owned());
        }
        _ => return Err(format!("expected GGUF version 2 or 3, found {version}; hint: convert the model again")),
    }
    let tensors = reader.count("tensors", MOST_ENTRIES)?;
    let entries = reader.count("metadata entries", MOST_ENTRIES)?;
    let mut header = Header { metadata: HashMap::new(), tensors: HashMap::new() };
    for _ in 0..entries {
        let key = reader.name("the key of a metadata entry")?;
        let kind = reader.u32("the type of a metadata value")?;
        let value = reader.value(kind, &key)?;
        match header.metadata.entry(key) {
            Entry::Vacant(place) => place.insert(value),
            Entry::Occupied(place) => return Err(format!("the metadata key `{}` is there twice", place.key())),
        };
    }
    for _ in 0..tensors {
        let name = reader.name("the name of a tensor")?;
        let stored = reader.tensor(&name)?;
        match header.tensors.entry(name) {
            Entry::Vacant(place) => place.insert(stored),
            Entry::Occupied(place) => return Err(format!("the tensor `{}` is there twice", place.key())),
        };
    }
    place_tensors(&mut header, reader.at, size)?;
    Ok(header)
}

/// Counts the starts of tensors from the start of the file, and checks that all lie inside, without overlap in sum.
fn place_tensors(header: &mut Header, end: u64, size: u64) -> Result<(), String> {
    let alignment = match header.metadata.get("general.alignment") {
        None => DEFAULT_ALIGNMENT,
        Some(Value::Integer(said)) => u64::try_from(*said)
            .ok()
            .filter(|it| it.is_power_of_two() && (8..=1 << 16).contains(it))
            .ok_or_else(|| format!("`general.alignment` has to be a power of two from 8 to 65536, found {said}"))?,
        Some(_) => return Err("`general.alignment` has to be a whole number".to_owned()),
    };
    let data = end.next_multiple_of(alignment);
    let mut total = 0u64;
    for (name, stored) in &mut header.tensors {
        if !stored.start.is_multiple_of(alignment) {
            let start = stored.start;
            return Err(format!("the tensor `{name}` begins at byte {start}, which is no multiple of {alignment}"));
        }
        stored.start = stored.start.saturating_add(data);
        if BlockType::of(stored.kind).is_none() {
            continue; // It is refused when it is asked for.
        }
        let bytes =
            stored.bytes().ok_or_else(|| format!("the tensor `{name}` has impossible sides: {:?}", stored.shape))?;
        if stored.start.checked_add(bytes).is_none_or(|end| end > size) {
            return Err(format!(
                "the tensor `{name}` has {bytes} bytes from byte {} on, the file ends at {size}: it is cut short or \
                 damaged; hint: download it again",
                stored.start
            ));
        }
        total = total.saturating_add(bytes);
    }
    if total > size {
        return Err(format!("its tensors have {total} bytes together, the file {size}: they overlap"));
    }
    Ok(())
}

/// Reads forward, never beyond the end.
struct Reader<'f> {
    file: BufReader<&'f File>,
    at: u64,
    size: u64,
}

impl Reader<'_> {
    /// Refuses to go on where fewer bytes are left.
    fn need(&self, bytes: u64, what: &str) -> Result<(), String> {
        let left = self.size.saturating_sub(self.at);
        match bytes > left {
            true => Err(format!(
                "expected {bytes} bytes for {what} at byte {}, found {left}: it is cut short or damaged; hint: download \
                 it again",
                self.at
            )),
            false => Ok(()),
        }
    }

    fn fill(&mut self, bytes: &mut [u8], what: &str) -> Result<(), String> {
        self.need(bytes.len() as u64, what)?;
        self.file.read_exact(bytes).map_err(|error| format!("{what} at byte {} cannot be read: {error}", self.at))?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn skip(&mut self, bytes: u64, what: &str) -> Result<Range<u64>, String> {
        self.need(bytes, what)?;
        let step = i64::try_from(bytes).map_err(|_| format!("{what} has {bytes} bytes"))?;
        self.file.seek_relative(step).map_err(|error| format!("{what} cannot be passed over: {error}"))?;
        let start = self.at;
        self.at += bytes;
        Ok(start..self.at)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], String> {
        let mut bytes = [0u8; N];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    fn u32(&mut self, what: &str) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    fn u64(&mut self, what: &str) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    fn count(&mut self, what: &str, most: u64) -> Result<u64, String> {
        let at = self.at;
        let count = self.u64(what)?;
        match count > most {
            true => Err(format!("expected at most {most} {what}, found {count} at byte {at}: the header is damaged")),
            false => Ok(count),
        }
    }

    fn name(&mut self, what: &str) -> Result<String, String> {
        let at = self.at;
        let length = self.count(&format!("bytes in {what}"), MOST_NAME_BYTES)?;
        let mut bytes = vec![0u8; length as usize]; // At most MOST_NAME_BYTES.
        self.fill(&mut bytes, what)?;
        String::from_utf8(bytes).map_err(|_| format!("{what} at byte {at} is not UTF-8"))
    }

    fn value(&mut self, kind: u32, key: &str) -> Result<Value, String> {
        if let Some(bytes) = scalar_bytes(kind) {
            let mut word = [0u8; 8];
            let word = &mut word[..bytes as usize]; // At most 8.
            self.fill(word, key)?;
            return scalar(kind, word).ok_or_else(|| format!("the value of `{key}` is no number"));
        }
        match kind {
            kinds::TEXT => {
                let length = self.u64(key)?;
                Ok(Value::Text(self.skip(length, key)?))
            }
            kinds::LIST => Ok(Value::List(self.list(key, 1)?)),
            _ => Err(format!("expected a value type from 0 to 12 for `{key}`, found {kind} before byte {}", self.at)),
        }
    }

    fn list(&mut self, key: &str, depth: usize) -> Result<List, String> {
        let (kind, count) = (self.u32(key)?, self.u64(key)?);
        let start = self.at;
        if let Some(bytes) = scalar_bytes(kind) {
            let bytes = count.checked_mul(bytes).ok_or_else(|| format!("`{key}` has {count} items"))?;
            return Ok(List { kind, count, bytes: self.skip(bytes, key)? });
        }
        // The length of each item takes 8 bytes.
        self.need(count.saturating_mul(8), key)?;
        match kind {
            kinds::TEXT => {
                for _ in 0..count {
                    let length = self.u64(key)?;
                    self.skip(length, key)?;
                }
            }
            kinds::LIST if depth < MOST_DEPTH => {
                for _ in 0..count {
                    self.list(key, depth + 1)?;
                }
            }
            kinds::LIST => return Err(format!("`{key}` has lists in lists, more than {MOST_DEPTH} deep")),
            _ => {
                return Err(format!(
                    "expected an item type from 0 to 12 for `{key}`, found {kind} before byte {start}"
                ));
            }
        }
        Ok(List { kind, count, bytes: start..self.at })
    }

    fn tensor(&mut self, name: &str) -> Result<Stored, String> {
        let sides = self.u32(name)?;
        if !(1..=4).contains(&sides) {
            return Err(format!("expected the tensor `{name}` to have 1 to 4 sides, found {sides}"));
        }
        let mut shape = Vec::new();
        for _ in 0..sides {
            shape.push(self.u64(name)?);
        }
        shape.reverse();
        Ok(Stored { shape, kind: self.u32(name)?, start: self.u64(name)? })
    }
}
