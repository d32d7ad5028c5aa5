//! Trains a byte-pair vocabulary.

use crate::PolicyError;
use std::collections::HashSet;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper};
use tokenizers::{SplitDelimiterBehavior, Tokenizer as Whole, TokenizerBuilder};

/// What is never merged with what stands beside it, first match first: the start of a line with its indentation and its
/// key (`\n    capacity:`), a word with the space before it, a digit, signs with the space before them, the start of any
/// other line, other spaces. Without look-around, so that matching takes linear time.
const PIECES: &str = r"\n *(?:- )?\p{L}+:| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\n *|[^\S\n]+";

/// Trains byte pairs on texts.
pub(super) fn train(
    texts: impl Iterator<Item = String> + Send,
    vocabulary: usize,
    specials: &[&str],
) -> Result<Whole, PolicyError> {
    let least = 256 + specials.len();
    if vocabulary < least {
        return Err(PolicyError::Request(format!(
            "{vocabulary} tokens are asked for; bytes and specials take {least}"
        )));
    }
    let special = |word: &&str| AddedToken::from(*word, true).normalized(false);
    let mut trainer = BpeTrainer::builder()
        .vocab_size(vocabulary)
        .min_frequency(2)
        .show_progress(false)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect::<HashSet<char>>())
        .special_tokens(specials.iter().map(special).collect())
        .build();
    let trained = untrained().and_then(|mut whole| {
        whole.train(&mut trainer, texts)?;
        // From the form with one model to the form with any.
        Whole::from_bytes(whole.to_string(false)?)
    });
    trained.map_err(|error| PolicyError::Request(format!("the vocabulary cannot be trained: {error}")))
}

type Untrained =
    tokenizers::TokenizerImpl<BPE, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;

fn untrained() -> tokenizers::Result<Untrained> {
    let pieces = Split::new(SplitPattern::Regex(PIECES.to_owned()), SplitDelimiterBehavior::Isolated, false)?;
    let bytes = ByteLevel::new(false, false, false);
    let steps = Sequence::new(vec![pieces.into(), bytes.into()]);
    TokenizerBuilder::new()
        .with_model(BPE::default())
        .with_normalizer(None)
        .with_pre_tokenizer(Some(steps.into()))
        .with_post_processor(None)
        .with_decoder(Some(bytes.into()))
        .build()
}
