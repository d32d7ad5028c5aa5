//! Pairs as a model reads them, and which of them it is validated with.

use crate::sft::TokenizedPair;
use lemon_model::PolicyError;
use lemon_policy::pair::Pair;
use lemon_policy::{LanguagePromptEncoder, write_context};

/// One question in so many is kept to validate with.
const VALIDATION: u64 = 20;

/// Whether a pair is for validation. Questions, not pairs, are kept apart: two pairs of one question would tell of each other.
pub fn is_for_validation(pair: &Pair) -> bool {
    lemon_num::fnv1a(pair.task.question.bytes()).is_multiple_of(VALIDATION)
}

/// The pairs as tokens. A team that the grammar does not have is left out: the policy could not write it.
///
/// # Errors
/// A prompt or a grammar cannot be made.
pub fn tokenize<'a>(
    encoder: &LanguagePromptEncoder,
    pairs: impl IntoIterator<Item = &'a Pair>,
) -> Result<Vec<TokenizedPair>, PolicyError> {
    let mut lessons = Vec::new();
    for pair in pairs {
        let context = write_context(pair, encoder.language());
        let earlier: Vec<String> = context.results.iter().map(|result| result.agent.to_owned()).collect();
        let tokens = match encoder.grammar(&earlier)?.encode(&pair.spec) {
            Ok(tokens) => tokens,
            Err(PolicyError::NotInGrammar { .. }) => continue,
            Err(error) => return Err(error),
        };
        lessons.push(TokenizedPair { prompt: encoder.prompt(&context)?, tokens });
    }
    Ok(lessons)
}
