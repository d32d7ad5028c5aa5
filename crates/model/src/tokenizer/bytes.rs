//! The bytes that each token stands for.

use serde_json::Value;
use tokenizers::Tokenizer as Whole;

/// The bytes of every token of a vocabulary.
pub(crate) struct Spelling {
    /// By number; none for special tokens and for numbers that are not used.
    bytes: Vec<Box<[u8]>>,
    /// Whether a token was added to the vocabulary that the model was made with.
    added: Vec<bool>,
    /// The token of each single byte.
    single: Box<[Option<u32>; 256]>,
}

/// How a vocabulary writes bytes.
enum Alphabet {
    /// A character for each byte, as GPT-2 does.
    Characters,
    /// Text, with `▁` for a space and `<0xNN>` for a byte that is no text, as SentencePiece does.
    Fallback,
}

impl Spelling {
    /// Reads it off a tokenizer.
    ///
    /// # Errors
    /// Why the tokens are not made of bytes.
    pub(super) fn of(whole: &Whole) -> Result<Spelling, String> {
        let alphabet = Alphabet::of(whole)?;
        let words = whole.get_vocab(true);
        let count = words.values().max().map_or(0, |last| *last as usize + 1);
        // Numbers with gaps as large as the vocabulary itself are a mistake, and cost memory.
        if count > words.len().saturating_mul(2).saturating_add(65_536) {
            return Err(format!("{} tokens have numbers up to {count}", words.len()));
        }
        let mut spelling =
            Spelling { bytes: vec![Box::default(); count], added: vec![false; count], single: Box::new([None; 256]) };
        let characters = characters();
        for (word, token) in &words {
            let bytes = match alphabet {
                Alphabet::Characters => bytes_of_characters(word, &characters),
                Alphabet::Fallback => bytes_of_text(word),
            };
            spelling.set(*token, bytes);
        }
        for (token, added) in super::added(whole) {
            let bytes = if added.special { Vec::new() } else { added.content.into_bytes() };
            spelling.set(token, bytes);
            if let Some(flag) = spelling.added.get_mut(token as usize) {
                *flag = true;
            }
        }
        spelling.find_single();
        Ok(spelling)
    }

    fn set(&mut self, token: u32, bytes: Vec<u8>) {
        if let Some(place) = self.bytes.get_mut(token as usize) {
            *place = bytes.into();
        }
    }

    fn find_single(&mut self) {
        for (token, bytes) in (0_u32..).zip(&self.bytes) {
            if let ([byte], false) = (&**bytes, self.is_added(token)) {
                // There are 256 places, one for each byte. The last of several counts: `a` comes after `<0x61>`.
                self.single[usize::from(*byte)] = Some(token);
            }
        }
    }

    /// The bytes of a token.
    pub(crate) fn bytes(&self, token: u32) -> &[u8] {
        self.bytes.get(token as usize).map_or(&[], |bytes| bytes)
    }

    /// How many tokens there are.
    pub(crate) fn tokens(&self) -> usize {
        self.bytes.len()
    }

    /// Whether a token was added to the vocabulary that the model was made with; special tokens are.
    pub(crate) fn is_added(&self, token: u32) -> bool {
        self.added.get(token as usize).copied().unwrap_or_default()
    }

    /// The token of one byte alone.
    pub(crate) fn single(&self, byte: u8) -> Option<u32> {
        self.single[usize::from(byte)]
    }

    /// One token for each byte. A byte that the vocabulary does not have is left out.
    pub(crate) fn spell(&self, text: &[u8]) -> Vec<u32> {
        text.iter().filter_map(|byte| self.single(*byte)).collect()
    }
}

impl Alphabet {
    fn of(whole: &Whole) -> Result<Alphabet, String> {
        let unreadable = |error: serde_json::Error| format!("its steps cannot be read: {error}");
        let decoder = serde_json::to_value(whole.get_decoder()).map_err(unreadable)?;
        let splitter = serde_json::to_value(whole.get_pre_tokenizer()).map_err(unreadable)?;
        if has_step(&decoder, "ByteLevel") || has_step(&splitter, "ByteLevel") {
            Ok(Alphabet::Characters)
        } else if has_step(&decoder, "ByteFallback") || has_step(&decoder, "Metaspace") {
            Ok(Alphabet::Fallback)
        } else {
            Err("its tokens are not made of bytes; byte-level vocabularies and those with byte fallback are".to_owned())
        }
    }
}

/// Whether a step of this type is part of a component of `tokenizer.json`.
fn has_step(component: &Value, kind: &str) -> bool {
    match component {
        Value::Object(fields) => {
            fields.get("type").is_some_and(|it| it == kind) || fields.values().any(|field| has_step(field, kind))
        }
        Value::Array(items) => items.iter().any(|item| has_step(item, kind)),
        _ => false,
    }
}

/// The byte of each character of GPT-2's alphabet, by the character's code. Bytes that are visible in Latin-1 stand for
/// themselves; the others follow from U+0100 on, in order.
fn characters() -> Vec<Option<u8>> {
    let visible = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let shown = (0..=255).map(|byte| visible(byte).then_some(byte));
    shown.chain((0..=255).filter(|byte| !visible(*byte)).map(Some)).collect()
}

fn bytes_of_characters(word: &str, characters: &[Option<u8>]) -> Vec<u8> {
    let byte = |character: char| characters.get(character as usize).copied().flatten();
    // A word with any other character is not in the alphabet: it can only have been added as it stands.
    word.chars().map(byte).collect::<Option<Vec<u8>>>().unwrap_or_else(|| word.as_bytes().to_vec())
}

fn bytes_of_text(word: &str) -> Vec<u8> {
    let hexadecimal =
        word.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>')).filter(|digits| digits.len() == 2);
    match hexadecimal.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
        Some(byte) => vec![byte],
        None => word.replace('▁', " ").into_bytes(),
    }
}
