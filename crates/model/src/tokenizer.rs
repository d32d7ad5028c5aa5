//! Text to tokens and back, exactly: every token has known bytes, and untrusted text never becomes a special token.

mod bytes;
mod files;
mod gguf;
mod guard;
mod jinja;
mod template;
mod tools;
mod train;

pub use gguf::{CheckedGguf, check_gguf};
pub use tools::{CallForm, ChatCall, ChatTool, Turn};

use crate::PolicyError;
use crate::files::ModelFiles;
use crate::grammar::Vocabulary;
use bytes::Spelling;
use files::Files;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use template::{Piece, Shown, Template};
use tokenizers::{AddedToken, Tokenizer as Whole};

/// The vocabulary of a model: cheap to clone.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

/// A turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The author of a message.
    pub role: Role,
    /// The text. It is untrusted and never becomes a special token.
    pub content: String,
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The system prompt.
    System,
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// Its name in templates.
    fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
        }
    }
}

struct Inner {
    /// With its added tokens: for trusted text.
    trusting: Whole,
    /// Without them: for untrusted text.
    plain: Arc<Plain>,
    ends: Vec<u32>,
    pad: u32,
    template: Option<Template>,
    files: Files,
    /// What grammars need of a vocabulary; large, so made when the first grammar asks for it and shared by all.
    vocabulary: OnceLock<Result<Arc<Vocabulary>, String>>,
    /// How the model writes calls of tools, found when it is first asked for.
    call_form: OnceLock<Option<CallForm>>,
}

/// A tokenizer that knows no added tokens, and the bytes of each of its tokens.
pub(crate) struct Plain {
    whole: Whole,
    spelling: Spelling,
}

impl Tokenizer {
    /// Reads `tokenizer.json` of a model's folder, and from the files beside it which tokens end a text and how a
    /// conversation is written; or all of that from a GGUF file.
    ///
    /// # Errors
    /// A file that cannot be read or is malformed; a vocabulary whose tokens are not made of bytes.
    pub fn load(folder: &Path) -> Result<Tokenizer, PolicyError> {
        Tokenizer::read(ModelFiles::Disk(folder))
    }

    /// As [`Self::load`], from a folder or from the program.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn read(folder: ModelFiles<'_>) -> Result<Tokenizer, PolicyError> {
        if let Some(path) = folder.gguf() {
            return Self::guarded(path, || gguf::read(path));
        }
        let path = folder.path(files::TOKENIZER);
        let text = folder.need(files::TOKENIZER)?;
        guard::check(&text).map_err(|fact| files::malformed(&path, fact))?;
        let files = Files::load(folder)?;
        Self::guarded(&path, || Ok((Whole::from_bytes(text).map_err(|error| files::malformed(&path, error))?, files)))
    }

    /// Makes a tokenizer of what libraries read from an untrusted file.
    fn guarded(
        path: &Path,
        read: impl FnOnce() -> Result<(Whole, Files), PolicyError> + Send,
    ) -> Result<Tokenizer, PolicyError> {
        let made = guard::on_own_stack(|| {
            let (whole, files) = read()?;
            let tokenizer = Tokenizer::new(whole, files, path)?;
            // A tokenizer that fails on ordinary text is refused here and not at the first request.
            PROBES
                .into_iter()
                .try_for_each(|text| tokenizer.probe(text))
                .map_err(|fact| files::malformed(path, fact))?;
            Ok(tokenizer)
        });
        made.unwrap_or_else(|fact| Err(files::malformed(path, fact)))
    }

    /// A vocabulary of at most so many tokens for these texts: byte pairs, with single digits, and lines of YAML in few
    /// tokens. The first of `specials` ends texts. The same texts give the same vocabulary.
    ///
    /// # Errors
    /// No special token, or a vocabulary too small for all bytes and the special tokens.
    pub fn train(
        texts: impl Iterator<Item = String> + Send,
        vocabulary: usize,
        specials: &[&str],
    ) -> Result<Tokenizer, PolicyError> {
        let end = *specials.first().ok_or_else(|| PolicyError::Request("no token ends the texts".to_owned()))?;
        let whole = train::train(texts, vocabulary, specials)?;
        let missing = || PolicyError::Request(format!("the vocabulary has no token `{end}` to end texts with"));
        let end_id = whole.token_to_id(end).ok_or_else(missing)?;
        Tokenizer::new(whole, Files::made(end, end_id), Path::new(files::TOKENIZER))
    }

    /// The same with another way to write conversations: a Jinja template like those of the `transformers` library.
    ///
    /// # Errors
    /// A template that cannot be read.
    pub fn with_template(&self, template: &str) -> Result<Tokenizer, PolicyError> {
        let files = self.inner.files.with_template(template);
        Tokenizer::new(self.inner.trusting.clone(), files, Path::new(files::TOKENIZER))
    }

    fn new(mut trusting: Whole, files: Files, path: &Path) -> Result<Tokenizer, PolicyError> {
        // A file may ask to cut or fill every text.
        trusting.with_padding(None);
        trusting.with_truncation(None).map_err(|error| files::malformed(path, error))?;
        let spelling = Spelling::of(&trusting).map_err(|fact| files::malformed(path, fact))?;
        let ends = files.ends(&trusting, spelling.tokens())?;
        let pad = files.pad(&trusting).filter(|pad| (*pad as usize) < spelling.tokens());
        let inner = Inner {
            plain: Arc::new(Plain {
                whole: without_added(&trusting).map_err(|e| files::malformed(path, e))?,
                spelling,
            }),
            pad: pad.or(ends.first().copied()).unwrap_or_default(), // `Files::ends` returns at least one token.
            ends,
            template: files.template()?,
            trusting,
            files,
            vocabulary: OnceLock::new(),
            call_form: OnceLock::new(),
        };
        Ok(Tokenizer { inner: Arc::new(inner) })
    }

    /// Writes the files that [`Tokenizer::load`] reads (and the `transformers` library) into a folder.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), PolicyError> {
        let path = folder.join(files::TOKENIZER);
        let text = self.inner.trusting.to_string(true).map_err(|error| files::malformed(&path, error))?;
        files::write(&path, &text)?;
        self.inner.files.save(folder)
    }

    /// Whether a text can be encoded without a panic.
    fn probe(&self, text: &str) -> Result<(), String> {
        let whole = [&self.inner.trusting, &self.inner.plain.whole];
        // What it merely cannot encode is spelled byte by byte.
        let encoded =
            whole.into_iter().try_for_each(|whole| guard::caught(|| whole.encode_fast(text, false)).map(drop));
        encoded.map_err(|fact| format!("it cannot encode {text:?}: {fact}"))
    }

    /// The tokens of a trusted text, in which special tokens may be written out. None is added. Text on which the vocabulary's
    /// own rules fail is spelled byte by byte.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        encode(&self.inner.trusting, text).unwrap_or_else(|_| self.encode_plain(text))
    }

    /// The tokens of an untrusted text: never a special or other added one.
    pub fn encode_plain(&self, text: &str) -> Vec<u32> {
        self.inner.plain.encode(text)
    }

    /// The bytes a token stands for; none for a special token, or for one that is not in the vocabulary.
    pub fn bytes(&self, token: u32) -> &[u8] {
        self.inner.plain.spelling.bytes(token)
    }

    /// The text of some tokens; what is not UTF-8 is replaced.
    pub fn decode(&self, tokens: &[u32]) -> String {
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| self.bytes(*token)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// How many tokens there are: every token is a number below. A model may have more rows than that.
    pub fn vocabulary(&self) -> usize {
        self.inner.plain.spelling.tokens()
    }

    /// The token that ends a text.
    pub fn end(&self) -> u32 {
        // Never the default: `Files::ends` returns at least one token.
        self.inner.ends.first().copied().unwrap_or_default()
    }

    /// All tokens that end a text, [`Tokenizer::end`] first.
    pub fn ends(&self) -> &[u32] {
        &self.inner.ends
    }

    /// The token that fills the rest of a row.
    pub fn pad(&self) -> u32 {
        self.inner.pad
    }

    /// The tokens of a conversation whose next turn is the model's. The template writes what stands around the messages;
    /// it never sees what they say, so that nothing in them can pose as a turn.
    ///
    /// # Errors
    /// What the template says against these messages.
    pub fn prompt(&self, messages: &[Message]) -> Result<Vec<u32>, PolicyError> {
        let Some(template) = &self.inner.template else {
            let contents: Vec<&str> = messages.iter().map(|message| message.content.as_str()).collect();
            return Ok(self.encode_plain(&(contents.join("\n") + "\n")));
        };
        self.written(template, &Shown::messages(messages))
    }

    /// The tokens of what a template writes.
    fn written(&self, template: &Template, shown: &Shown<'_>) -> Result<Vec<u32>, PolicyError> {
        let mut tokens = Vec::new();
        for piece in template.pieces(shown)? {
            match piece {
                Piece::Frame(text) => tokens.extend(self.encode(&text)),
                Piece::Content(text) => tokens.extend(self.encode_plain(text)),
            }
        }
        Ok(tokens)
    }

    /// What grammars need of this vocabulary, made once.
    pub(crate) fn for_grammars(&self) -> Result<Arc<Vocabulary>, PolicyError> {
        let made = self.inner.vocabulary.get_or_init(|| {
            Vocabulary::new(Arc::clone(&self.inner.plain), self.end())
                .map(Arc::new)
                .map_err(|error| format!("{error:#}"))
        });
        made.clone().map_err(PolicyError::Grammar)
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tokenizer").field("vocabulary", &self.vocabulary()).finish_non_exhaustive()
    }
}

impl Plain {
    /// The tokens of a text, none of them added.
    pub(crate) fn encode(&self, text: &str) -> Vec<u32> {
        match encode(&self.whole, text) {
            Ok(tokens) if !tokens.iter().any(|token| self.spelling.is_added(*token)) => return tokens,
            _ => {}
        }
        // The rules of an odd vocabulary fail, or its merges lead to one of its own special tokens.
        self.spelling.spell(text.as_bytes())
    }

    /// The bytes of each token that text can be made of: added ones have none here.
    pub(crate) fn spelling(&self) -> &Spelling {
        &self.spelling
    }
}

/// Texts that every vocabulary has to encode.
const PROBES: [&str; 5] = [
    "",
    " ",
    "Hello, world! 1 + 2 = 3\n\n\tif x: y()",
    "Größe naïve – Ελλάδα 漢字 العربية 👩‍🔬 e\u{301}",
    "\0\u{feff}\u{fffd}",
];

/// The tokens of a text.
fn encode(whole: &Whole, text: &str) -> Result<Vec<u32>, String> {
    let encoding = guard::caught(|| whole.encode_fast(text, false))?.map_err(|error| error.to_string())?;
    Ok(encoding.get_ids().to_vec())
}

/// The same vocabulary and rules, but no added tokens to be found in a text.
fn without_added(whole: &Whole) -> tokenizers::Result<Whole> {
    let mut plain = Whole::new(whole.get_model().clone());
    plain.with_normalizer(whole.get_normalizer().cloned())?;
    plain.with_pre_tokenizer(whole.get_pre_tokenizer().cloned());
    Ok(plain)
}

/// The added tokens of a vocabulary by number.
fn added(whole: &Whole) -> impl Iterator<Item = (u32, AddedToken)> {
    whole.get_added_tokens_decoder().into_iter()
}
