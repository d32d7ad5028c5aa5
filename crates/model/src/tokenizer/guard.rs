//! The files of a checkpoint are untrusted, and the libraries that read them may panic, recurse deeply or let a text grow
//! without end. They run here: input is checked first, the work has its own stack, and any panic becomes an error.

use serde::Deserialize;
use serde_json::Value;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// Enough for the deepest values that the readers of JSON and of templates admit.
const STACK: usize = 64 << 20;
/// The longest `tokenizer.json` that is read, in bytes. The largest vocabularies take a seventh of it.
pub(super) const MOST_BYTES: usize = 256 << 20;
/// How many times as long a normalizer may make a text.
const MOST_GROWTH: u64 = 256;
/// The longest text, in bytes, that a normalizer may put before another or in the place of a character.
const MOST_ADDED: usize = 256;

/// Does work on a thread with a large stack.
///
/// # Errors
/// What it panicked with, or that there is no thread to be had.
pub(super) fn on_own_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("guarded".to_owned()).stack_size(STACK).spawn_scoped(scope, work);
        thread.map_err(|error| format!("no thread: {error}"))?.join().map_err(|panic| said(&*panic))
    })
}

/// Does work that may panic. What it touches must be sound after a panic: the tokenizers' only state is a cache that is skipped
/// when its lock is poisoned.
///
/// # Errors
/// What it panicked with.
pub(super) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| said(&*panic))
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    let text: String = text.unwrap_or("no reason given").chars().take(200).collect();
    format!("it panicked: {}", text.escape_debug())
}

/// What is checked of `tokenizer.json` before a tokenizer is made of it.
#[derive(Deserialize)]
struct Parts {
    #[serde(default)]
    normalizer: Value,
}

/// Checks that a tokenizer cannot make a text grow without end.
///
/// # Errors
/// Why it can, or that it is no JSON.
pub(super) fn check(text: &[u8]) -> Result<(), String> {
    if text.len() > MOST_BYTES {
        return Err(format!("it has {} bytes; at most {MOST_BYTES} are read", text.len()));
    }
    let parts: Parts = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let growth = growth(&parts.normalizer)?;
    match growth > MOST_GROWTH {
        true => {
            Err(format!("its normalizer makes a text up to {growth} times as long; at most {MOST_GROWTH} make sense"))
        }
        false => Ok(()),
    }
}

/// How many times as long a normalizer may make a text: the product over all its steps, wherever they stand.
fn growth(step: &Value) -> Result<u64, String> {
    // As deep as the reader of JSON admits.
    let inner = match step {
        Value::Array(items) => items.iter().try_fold(1, |product: u64, item| Ok(product.saturating_mul(growth(item)?))),
        Value::Object(fields) => {
            fields.values().try_fold(1, |product: u64, item| Ok::<_, String>(product.saturating_mul(growth(item)?)))
        }
        _ => Ok(1),
    }?;
    let text = |name: &str| step.get(name).and_then(Value::as_str);
    if text("prepend").is_some_and(|added| added.len() > MOST_ADDED) {
        return Err(format!("its normalizer puts more than {MOST_ADDED} bytes before a text"));
    }
    if let Some(map) = text("precompiled_charsmap")
        && longest_part(map) > MOST_ADDED
    {
        return Err(format!("its normalizer puts more than {MOST_ADDED} bytes in the place of a character"));
    }
    let (Some(content), Some(pattern)) = (text("content"), step.get("pattern")) else { return Ok(inner) };
    let content = content.len() as u64;
    let own = match pattern.get("String").and_then(Value::as_str).map(|pattern| pattern.len() as u64) {
        Some(0) => return Err("its normalizer replaces an empty text".to_owned()),
        Some(length) => content.div_ceil(length),
        // An expression may match nothing, before every character.
        None => content.saturating_add(1),
    };
    Ok(inner.saturating_mul(own.max(1)))
}

/// The longest part between zeros of the bytes behind this base64: the texts that characters are replaced by.
fn longest_part(base64: &str) -> usize {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u8> = base64.bytes().filter_map(digit).collect();
    let bytes: Vec<u8> = digits
        .chunks(4)
        .flat_map(|group| {
            let joined = group.iter().fold(0_u32, |joined, digit| joined << 6 | u32::from(*digit));
            let joined = joined << (6 * (4 - group.len()));
            let [_, bytes @ ..] = joined.to_be_bytes();
            bytes.into_iter().take(group.len().saturating_sub(1))
        })
        .collect();
    // First the length of a table, then the table, then the texts.
    let table = match bytes.first_chunk::<4>() {
        Some(length) => u32::from_le_bytes(*length) as usize,
        None => 0,
    };
    let texts = bytes.get(table.saturating_add(4)..).unwrap_or_default();
    texts.split(|byte| *byte == 0).map(<[u8]>::len).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn how_much_a_text_may_grow() {
        let check = |normalizer: Value, expected: Result<u64, &str>| {
            let found = growth(&normalizer);
            assert_eq!(found.as_ref().map_err(String::as_str), expected.as_ref().map_err(|it| *it), "{normalizer}");
        };
        let replace =
            |pattern: Value, content: &str| json!({"type": "Replace", "pattern": pattern, "content": content});
        check(Value::Null, Ok(1));
        check(json!({"type": "NFC"}), Ok(1));
        check(replace(json!({"String": " "}), "▁"), Ok(3));
        check(replace(json!({"String": "ab"}), "a"), Ok(1));
        check(replace(json!({"Regex": "x*"}), "ab"), Ok(3));
        check(replace(json!({"String": ""}), "ab"), Err("its normalizer replaces an empty text"));
        let double = replace(json!({"String": "a"}), "aa");
        check(json!({"type": "Sequence", "normalizers": vec![double.clone(); 5]}), Ok(32));
        check(json!({"type": "Sequence", "normalizers": vec![double; 80]}), Ok(u64::MAX));
        let long = json!({"type": "Prepend", "prepend": "a".repeat(257)});
        check(long, Err("its normalizer puts more than 256 bytes before a text"));
    }

    #[test]
    fn the_texts_of_a_precompiled_map() {
        // Four bytes of length (0), then `abc`, a zero, and `de`: AAAAAGFiYwBkZQ==
        assert_eq!(longest_part("AAAAAGFiYwBkZQ=="), 3);
        assert_eq!(longest_part(""), 0);
        assert_eq!(longest_part("!!!"), 0);
    }

    #[test]
    fn panics_become_errors() {
        assert_eq!(caught(|| 1), Ok(1));
        assert_eq!(on_own_stack(|| 2), Ok(2));
        let panicked = Err::<(), _>("it panicked: so be it".to_owned());
        assert_eq!(caught(|| panic!("so be it")), panicked);
        assert_eq!(on_own_stack(|| panic!("so be it")), panicked);
    }
}
