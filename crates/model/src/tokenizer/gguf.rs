//! A tokenizer from the metadata of a GGUF file: byte pairs, with one of four rules for what is never merged.

use super::files::{Files, malformed};
use crate::PolicyError;
use crate::config::ModelConfig;
use crate::gguf::Gguf;
use serde_json::json;
use std::path::Path;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, PreTokenizerWrapper, SplitDelimiterBehavior, Tokenizer as Whole};

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";
const RULES: &str = "tokenizer.ggml.pre";
const TEMPLATE: &str = "tokenizer.chat_template";

/// Merges for each token at most; Llama 3 has a little more than two.
const MOST_MERGES: usize = 8;
/// Bytes of all special tokens together at most.
const MOST_SPECIAL_BYTES: usize = 1 << 20;

/// Tokens that end a text or a turn wherever they exist, whatever else the metadata says.
const ENDS: [&str; 5] = ["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|end|>"];

/// Contractions, and a word with one sign before it.
const WORDS: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+";
/// Signs with the space before them, ends of lines, other spaces.
const SIGNS: &str = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// What a token is, by its number in the file.
#[derive(Clone, Copy, PartialEq)]
enum TokenType {
    Normal,
    /// Unknown or control: stands for no text.
    Special,
    /// Stands for its own text, which is always found whole.
    Added,
    Unused,
}

impl TokenType {
    fn of(number: i64) -> TokenType {
        match number {
            2 | 3 => TokenType::Special,
            4 => TokenType::Added,
            5 => TokenType::Unused,
            _ => TokenType::Normal,
        }
    }
}

/// Checks everything about a file that its header shows: the shape, every tensor's place and format, the kind of tokenizer.
/// Neither weights nor the vocabulary are read.
///
/// # Errors
/// What a model of this program cannot be made of.
pub fn check_gguf(path: &Path) -> Result<CheckedGguf, PolicyError> {
    let gguf = Gguf::open(path)?;
    let config = gguf.config()?;
    gguf.check(&config)?;
    pieces(&rules(&gguf)?).map_err(|fact| gguf.malformed(fact))?;
    Ok(CheckedGguf { config, has_template: gguf.text(TEMPLATE)?.is_some() })
}

/// What the header of a sound file says.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedGguf {
    /// The shape of the model.
    pub config: ModelConfig,
    /// Whether it says how conversations are written: a model without is not meant to be talked to.
    pub has_template: bool,
}

/// The name of the rules for what is never merged.
fn rules(gguf: &Gguf) -> Result<String, PolicyError> {
    let missing = |key: &str| gguf.malformed(format!("expected `{key}`, found none"));
    match gguf.text("tokenizer.ggml.model")?.ok_or_else(|| missing("tokenizer.ggml.model"))?.as_str() {
        "gpt2" => gguf.text(RULES)?.ok_or_else(|| missing(RULES)),
        other => {
            let other: String = other.chars().take(40).collect();
            let fact =
                format!("expected a byte-pair tokenizer (`gpt2`), found `{other}`; hint: use the model's folder");
            Err(gguf.malformed(fact))
        }
    }
}

/// Makes the vocabulary, and the settings that `tokenizer_config.json` has elsewhere.
pub(super) fn read(path: &Path) -> Result<(Whole, Files), PolicyError> {
    let gguf = Gguf::open(path)?;
    let config = gguf.config()?;
    let missing = |key: &str| gguf.malformed(format!("expected `{key}`, found none"));
    let rules = rules(&gguf)?;
    let tokens = gguf.texts(TOKENS, config.vocabulary)?.ok_or_else(|| missing(TOKENS))?;
    let types = gguf.integers(TYPES, config.vocabulary)?.unwrap_or_else(|| vec![1; tokens.len()]);
    if types.len() != tokens.len() {
        let fact = format!("expected a type for each of {} tokens in `{TYPES}`, found {}", tokens.len(), types.len());
        return Err(gguf.malformed(fact));
    }
    let types: Vec<TokenType> = types.into_iter().map(TokenType::of).zip(&tokens).map(as_used).collect();
    let merges = gguf.texts(MERGES, tokens.len() * MOST_MERGES)?.ok_or_else(|| missing(MERGES))?;
    let settings = files(&gguf, path, &tokens, &types)?;
    let whole = vocabulary(&rules, tokens, &types, &merges).map_err(|fact| gguf.malformed(fact))?;
    Ok((whole, settings))
}

/// A token that ends texts is a special one, also where its type says otherwise.
fn as_used((kind, text): (TokenType, &String)) -> TokenType {
    if ENDS.contains(&text.as_str()) { TokenType::Special } else { kind }
}

fn vocabulary(rules: &str, tokens: Vec<String>, types: &[TokenType], merges: &[String]) -> Result<Whole, String> {
    let mut added = Vec::new();
    let mut words = Vocab::default();
    let mut special_bytes = 0usize;
    for ((number, text), kind) in (0u32..).zip(tokens).zip(types) {
        if text.is_empty() || *kind == TokenType::Unused {
            continue;
        }
        if matches!(kind, TokenType::Special | TokenType::Added) {
            special_bytes += text.len();
            added.push(AddedToken::from(text.as_str(), *kind == TokenType::Special).normalized(false));
        }
        words.insert(text, number);
    }
    if special_bytes > MOST_SPECIAL_BYTES {
        return Err(format!("expected at most {MOST_SPECIAL_BYTES} bytes of special tokens, found {special_bytes}"));
    }
    let mut pairs = Vec::with_capacity(merges.len());
    for (number, merge) in merges.iter().enumerate() {
        let Some((left, right)) = merge.split_once(' ') else {
            return Err(format!("expected two tokens in merge {number} of `{MERGES}`, found {merge:?}"));
        };
        let joined = [left, right].concat();
        if let Some(word) = [left, right, &joined].into_iter().find(|word| !words.contains_key(*word)) {
            return Err(format!("merge {number} of `{MERGES}` is {merge:?}, and {word:?} is no token"));
        }
        pairs.push((left.to_owned(), right.to_owned()));
    }
    // Llama 3 takes a piece that is a token as it is, whether merges lead to it or not.
    let model = BPE::builder().vocab_and_merges(words, pairs).ignore_merges(is_llama_3(rules)).build();
    let mut whole = Whole::new(model.map_err(|error| error.to_string())?);
    whole.with_pre_tokenizer(Some(pieces(rules)?));
    whole.with_decoder(Some(ByteLevel::new(false, false, false)));
    whole.add_tokens(added).map_err(|error| error.to_string())?;
    Ok(whole)
}

fn is_llama_3(rules: &str) -> bool {
    matches!(rules, "llama-bpe" | "llama3" | "llama-v3")
}

/// What is never merged with what stands beside it.
fn pieces(rules: &str) -> Result<PreTokenizerWrapper, String> {
    let by_words = |digits: &str| -> Result<PreTokenizerWrapper, String> {
        let pattern = SplitPattern::Regex([WORDS, digits, SIGNS].join("|"));
        let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(|error| error.to_string())?;
        Ok(Sequence::new(vec![split.into(), ByteLevel::new(false, false, false).into()]).into())
    };
    let gpt_2 = ByteLevel::new(false, false, true);
    match rules {
        _ if is_llama_3(rules) => by_words(r"\p{N}{1,3}"),
        "qwen2" | "deepseek-r1-qwen" => by_words(r"\p{N}"),
        "smollm" => Ok(Sequence::new(vec![Digits::new(true).into(), gpt_2.into()]).into()),
        "gpt-2" => Ok(gpt_2.into()),
        other => {
            let other: String = other.chars().take(40).collect();
            Err(format!(
                "expected `{RULES}` to be llama-bpe, qwen2, smollm or gpt-2, found `{other}`; hint: use the model's folder"
            ))
        }
    }
}

/// The settings beside the vocabulary.
fn files(gguf: &Gguf, path: &Path, tokens: &[String], types: &[TokenType]) -> Result<Files, PolicyError> {
    let word = |id: Option<u32>| id.and_then(|id| tokens.get(id as usize));
    let (begin, pad) = (gguf.token("bos")?, gguf.token("padding")?);
    let mut ends: Vec<u32> = Vec::new();
    let named = (0u32..).zip(tokens.iter().zip(types));
    let named = named.filter(|(_, (text, kind))| **kind == TokenType::Special && ENDS.contains(&text.as_str()));
    let said = gguf.ends()?;
    for end in said.into_iter().chain(named.map(|(id, _)| id)) {
        if !ends.contains(&end) {
            ends.push(end);
        }
    }
    if ends.is_empty() {
        return Err(malformed(path, "expected `tokenizer.ggml.eos_token_id`, found none: no token ends a text"));
    }
    let settings = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": word(begin),
        "eos_token": word(ends.first().copied()),
        "pad_token": word(pad),
        "add_bos_token": gguf.flag("tokenizer.ggml.add_bos_token")?.unwrap_or(false),
        "chat_template": gguf.text(TEMPLATE)?,
        "clean_up_tokenization_spaces": false,
    });
    let generation = json!({"bos_token_id": begin, "eos_token_id": ends, "pad_token_id": pad});
    Ok(Files::given(path, settings, generation))
}
