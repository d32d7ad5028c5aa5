//! A vocabulary as llguidance wants it: a trie of the bytes of its tokens.

use super::Mask;
use crate::tokenizer::Plain;
use llguidance::ParserFactory;
use llguidance::toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use std::collections::HashSet;
use std::sync::Arc;

/// What all grammars over a vocabulary share.
pub(crate) struct Vocabulary {
    factory: ParserFactory,
    plain: Arc<Plain>,
}

/// Words, with a space before them and without. Where prose may go on, a mask has all such tokens at once; llguidance then
/// looks them up and walks the trie for the rest alone. Any grammar works with these; those gain whose prose has just these
/// characters, as that of specifications has.
const WORDS: [&str; 2] =
    [r"[A-Za-z0-9,.;?!'()%+=*/_-]{1,12}", r" [A-Za-z0-9,.;?!'()%+=*/_-][A-Za-z0-9,.;?!'()%+=*/_-]{0,11}"];

impl Vocabulary {
    /// Builds the trie.
    ///
    /// # Errors
    /// Why texts cannot be written in this vocabulary.
    pub(crate) fn new(plain: Arc<Plain>, end: u32) -> Result<Vocabulary, String> {
        if let Some(byte) =
            std::iter::once(b'\n').chain(b' '..=b'~').find(|byte| plain.spelling().single(*byte).is_none())
        {
            return Err(format!("the vocabulary has no token for {:?} alone", char::from(byte)));
        }
        let trie = trie(&plain, end)?;
        let environment: TokEnv = Arc::new(Environment { plain: plain.clone(), trie });
        let capabilities = InferenceCapabilities { ff_tokens: true, ..InferenceCapabilities::default() };
        let mut factory = ParserFactory::new(&environment, capabilities, &WORDS.map(String::from))
            .map_err(|error| error.to_string())?;
        factory.quiet().limits_mut().verbose_errors = false;
        Ok(Vocabulary { factory, plain })
    }

    pub(super) fn factory(&self) -> &ParserFactory {
        &self.factory
    }

    /// One token for each byte of a text.
    pub(super) fn spell(&self, text: &[u8]) -> Vec<u32> {
        self.plain.spelling().spell(text)
    }

    /// The longest token that a text begins with, of those that are allowed.
    pub(super) fn longest_prefix(&self, text: &[u8], allowed: &Mask) -> Option<u32> {
        self.factory.tok_env().tok_trie().all_prefixes(text).into_iter().rev().find(|token| allowed.allows(*token))
    }
}

fn trie(plain: &Plain, end: u32) -> Result<TokTrie, String> {
    // The trie panics beyond these numbers of nodes and bytes per token.
    const MOST_BYTES: usize = 4_000_000;
    const LONGEST: usize = 512;
    let spelling = plain.spelling();
    let mut seen = HashSet::new();
    let mut words = vec![Vec::new(); spelling.tokens()];
    for (token, word) in words.iter_mut().enumerate().rev() {
        let token = token as u32; // Tokens are numbered in 32 bits.
        let bytes = spelling.bytes(token);
        // 0xff is in no text, and llguidance marks special tokens by it.
        let usable = !spelling.is_added(token) && bytes.len() <= LONGEST && bytes.first() != Some(&0xff);
        // Of tokens that look the same the last is used: `a` comes after `<0x61>`, which stands in for it.
        if usable && seen.insert(bytes) {
            *word = bytes.to_vec();
        }
    }
    if words.iter().map(Vec::len).sum::<usize>() > MOST_BYTES {
        return Err(format!("the vocabulary has more than {MOST_BYTES} bytes"));
    }
    Ok(TokTrie::from(&TokRxInfo::new(words.len() as u32, end), &words))
}

struct Environment {
    plain: Arc<Plain>,
    trie: TokTrie,
}

impl TokenizerEnv for Environment {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| {
            let tokens = self.plain.encode(text);
            // Some tokenizers put a space before every text, or write a character in another way.
            let exact = tokens.iter().flat_map(|token| self.trie.token(*token)).eq(text.as_bytes());
            if exact { tokens } else { self.trie.greedy_tokenize(text.as_bytes()) }
        })
    }
}
