//! Grammar-constrained decoding: which tokens may come next.
//!
//! Where a grammar leaves no choice, tokens are forced: they are not sampled and carry no credit. They are the tokens that the
//! tokenizer makes of the text that must follow, up to the first one that could continue into something free; llguidance
//! finds them (`compute_ff_tokens`). They depend on the tokens before and on nothing else (no clock, no cache, no model), so
//! the same tokens always force the same ones.

mod mask;
mod vocabulary;

pub use mask::Mask;
pub(crate) use vocabulary::Vocabulary;

use crate::{PolicyError, Tokenizer};
use llguidance::Matcher;
use llguidance::api::TopLevelGrammar;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A grammar over a vocabulary: cheap to clone.
#[derive(Clone)]
pub struct Grammar {
    inner: Arc<Inner>,
}

struct Inner {
    lark: String,
    /// At the start of the text. Clones share a cache of the grammar's states behind a lock.
    start: Matcher,
    /// The same with caches of their own: what is computed in one does not wait for the others.
    lanes: OnceLock<Vec<Matcher>>,
    vocabulary: Arc<Vocabulary>,
    tokenizer: Tokenizer,
}

/// The state of a grammar along a text.
#[derive(Clone)]
pub struct Walk {
    matcher: Matcher,
    end: u32,
    /// How many tokens have been written.
    written: usize,
    /// The choice that was offered and not yet taken.
    choice: Option<Mask>,
    ended: bool,
}

/// A grammar that holds from where a certain text is written.
#[derive(Debug, Clone, PartialEq)]
pub struct Constraint {
    /// The text.
    pub after: String,
    /// What must follow it.
    pub grammar: Grammar,
}

/// What comes next in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextTokens {
    /// These tokens; returning them advances the text. The end token may be the last of them.
    Forced(Vec<u32>),
    /// One of several tokens: pass the chosen one to [`Walk::take`].
    Choose(Mask),
    /// Nothing: the end token is written.
    End,
}

impl Grammar {
    /// Reads a grammar in Lark's notation, as llguidance has it.
    ///
    /// # Errors
    /// A grammar that cannot be read or has no text; a vocabulary in which text cannot be spelt.
    pub fn new(lark: &str, tokenizer: &Tokenizer) -> Result<Grammar, PolicyError> {
        let vocabulary = tokenizer.for_grammars()?;
        let parser = vocabulary.factory().create_parser(TopLevelGrammar::from_lark(lark.to_owned())).map_err(fault)?;
        let start = Matcher::new(Ok(parser));
        let grammar = Grammar {
            inner: Arc::new(Inner {
                lark: lark.to_owned(),
                start,
                lanes: OnceLock::new(),
                vocabulary,
                tokenizer: tokenizer.clone(),
            }),
        };
        // A grammar without any text shows at its first token.
        match grammar.walk().next() {
            Ok(_) => Ok(grammar),
            Err(PolicyError::Grammar(fact)) => Err(PolicyError::Grammar(format!("nothing can be written ({fact})"))),
            Err(other) => Err(other),
        }
    }

    /// The grammar in Lark's notation.
    pub fn lark(&self) -> &str {
        &self.inner.lark
    }

    /// The tokenizer of its vocabulary.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.inner.tokenizer
    }

    /// The state before the first token.
    pub fn walk(&self) -> Walk {
        self.walk_from(&self.inner.start)
    }

    /// The same for one of many texts that are walked at a time: numbers that follow one another do not wait for each other.
    pub fn walk_of(&self, number: usize) -> Walk {
        let lanes = self
            .inner
            .lanes
            .get_or_init(|| (1..rayon::current_num_threads()).map(|_| self.inner.start.deep_clone()).collect());
        let lane = (number % (lanes.len() + 1)).checked_sub(1).and_then(|lane| lanes.get(lane));
        self.walk_from(lane.unwrap_or(&self.inner.start))
    }

    fn walk_from(&self, start: &Matcher) -> Walk {
        let (matcher, end) = (start.clone(), self.inner.tokenizer.end());
        Walk { matcher, end, written: 0, choice: None, ended: false }
    }

    /// The state of [`Self::walk_of`] after a text; `None` if the grammar does not allow it.
    pub fn walk_after(&self, number: usize, text: &[u8]) -> Option<Walk> {
        let mut walk = self.walk_of(number);
        for token in self.inner.vocabulary.spell(text) {
            walk.matcher.consume_token(token).ok()?;
        }
        Some(walk)
    }

    /// The tokens that each token of a text was chosen from; `None` where it was forced. The text may be incomplete.
    ///
    /// # Errors
    /// The first token that the grammar does not allow, or not there: where tokens are forced, others with the same letters
    /// are wrong too.
    pub fn choices(&self, tokens: &[u32]) -> Result<Vec<Option<Mask>>, PolicyError> {
        let mut walk = self.walk();
        let mut choices = Vec::with_capacity(tokens.len());
        while let Some(token) = tokens.get(choices.len()) {
            match walk.next()? {
                NextTokens::Choose(mask) => {
                    walk.take(*token)?;
                    choices.push(Some(mask));
                }
                NextTokens::Forced(forced) => {
                    let rest = tokens.get(choices.len()..).unwrap_or_default();
                    let same = forced.iter().zip(rest).take_while(|(forced, token)| forced == token).count();
                    choices.extend(std::iter::repeat_n(None, same));
                    if same < forced.len().min(rest.len()) {
                        return Err(PolicyError::NotInGrammar { at: choices.len() });
                    }
                }
                NextTokens::End => return Err(PolicyError::NotInGrammar { at: choices.len() }),
            }
        }
        Ok(choices)
    }

    /// The tokens by which this grammar writes a text, the one that ends it included: those that are forced, and at every
    /// choice the longest that fits. That never leads into a dead end: masks hold just the tokens after which the text can go
    /// on, and every character of ASCII has a token to go on with.
    ///
    /// # Errors
    /// The position of the first token for which nothing fits.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, PolicyError> {
        self.encode_like(text, &[])
    }

    /// The same, but with the tokens of another text as far as both are the same: what two texts share should be written by
    /// the same tokens, or their probabilities could not be compared.
    ///
    /// # Errors
    /// As [`Grammar::encode`].
    pub fn encode_like(&self, text: &str, like: &[u32]) -> Result<Vec<u32>, PolicyError> {
        let mut walk = self.walk();
        let mut tokens: Vec<u32> = Vec::new();
        let mut rest = text.as_bytes();
        let mut alike = true;
        loop {
            let run = match walk.next()? {
                NextTokens::Forced(forced) => forced,
                NextTokens::Choose(mask) => {
                    let fits = |token: &u32| {
                        *token != walk.end
                            && mask.allows(*token)
                            && rest.starts_with(self.inner.tokenizer.bytes(*token))
                    };
                    let same = like.get(tokens.len()).copied().filter(|token| alike && fits(token));
                    alike = same.is_some();
                    let longest = || self.inner.vocabulary.longest_prefix(rest, &mask);
                    let end = Some(walk.end).filter(|end| rest.is_empty() && mask.allows(*end));
                    let token = same.or_else(longest).or(end).ok_or(PolicyError::NotInGrammar { at: tokens.len() })?;
                    walk.take(token)?;
                    vec![token]
                }
                NextTokens::End => return Ok(tokens),
            };
            for token in run {
                let after = rest.strip_prefix(self.inner.tokenizer.bytes(token));
                let after = after.filter(|after| token != walk.end || after.is_empty());
                rest = after.ok_or(PolicyError::NotInGrammar { at: tokens.len() })?;
                tokens.push(token);
            }
        }
    }
}

/// The same grammar: made once.
impl PartialEq for Grammar {
    fn eq(&self, other: &Grammar) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl fmt::Debug for Grammar {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Grammar").field("tokenizer", &self.inner.tokenizer).finish_non_exhaustive()
    }
}

impl Walk {
    /// What comes next. Asked again before a choice is taken, it offers the same choice.
    ///
    /// # Errors
    /// A grammar too large to be walked.
    #[expect(clippy::should_implement_trait, reason = "it is no iterator: a choice has to be taken in between")]
    pub fn next(&mut self) -> Result<NextTokens, PolicyError> {
        let mut forced = Vec::new();
        while self.choice.is_none() && !self.ended {
            self.advance(&mut forced)?;
        }
        self.written += forced.len();
        Ok(match &self.choice {
            _ if !forced.is_empty() => NextTokens::Forced(forced),
            Some(mask) => NextTokens::Choose(mask.clone()),
            None => NextTokens::End,
        })
    }

    /// Writes one of the tokens that [`Walk::next`] offered.
    ///
    /// # Errors
    /// A token that was not offered.
    pub fn take(&mut self, token: u32) -> Result<(), PolicyError> {
        if !self.choice.as_ref().is_some_and(|mask| mask.allows(token)) {
            return Err(PolicyError::NotInGrammar { at: self.written });
        }
        self.choice = None;
        self.written += 1;
        self.write(token)
    }

    /// Writes what is forced, or finds the choice or the end that comes next.
    fn advance(&mut self, forced: &mut Vec<u32>) -> Result<(), PolicyError> {
        if self.matcher.is_stopped() {
            if !self.matcher.stop_reason().is_ok() {
                return Err(fault(self.matcher.get_error().unwrap_or_else(|| self.matcher.stop_reason().to_string())));
            }
            // The matcher stops where nothing can follow; the text still has to be ended.
            self.ended = true;
            forced.push(self.end);
            return Ok(());
        }
        let run = self.matcher.compute_ff_tokens();
        if !run.is_empty() {
            self.matcher.consume_tokens(&run).map_err(fault)?;
            forced.extend(run);
            return Ok(());
        }
        let mask = Mask::from(self.matcher.compute_mask().map_err(fault)?);
        match mask.only() {
            None => self.choice = Some(mask),
            Some(token) => {
                forced.push(token);
                self.write(token)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, token: u32) -> Result<(), PolicyError> {
        self.ended = token == self.end;
        self.matcher.consume_token(token).map_err(fault)
    }
}

impl fmt::Debug for Walk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Walk")
            .field("written", &self.written)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

fn fault(error: impl fmt::Display) -> PolicyError {
    // Where llguidance would tell its state, were it allowed to, it says so in a last line.
    PolicyError::Grammar(error.to_string().replace("<non-verbose/>", "").trim_end().to_owned())
}
