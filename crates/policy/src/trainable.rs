//! Who can be trained: somebody who writes teams, and the desk at which briefs become requests and texts become tokens.

use crate::writer::LanguagePromptEncoder;
use lemon_exec::orchestrator::WriteContext;
use lemon_model::{LanguagePolicy, OptimiserSettings, Policy, PolicyError, Request};
use std::path::Path;

/// A policy that keeps its weights and its optimiser's state in a folder, so that training can be taken up again.
pub trait TrainablePolicy: Policy {
    /// Says how weights are moved.
    fn set_optimiser(&mut self, settings: OptimiserSettings);

    /// Writes everything that the next step depends on.
    ///
    /// # Errors
    /// The folder cannot be written.
    fn save_state(&self, folder: &Path) -> Result<(), PolicyError>;

    /// Reads it back.
    ///
    /// # Errors
    /// The folder cannot be read, or holds another policy.
    fn load_state(&mut self, folder: &Path) -> Result<(), PolicyError>;

    /// Whether what it says of a text when it writes it is, to the bit, what it says when it scores it. Else texts have to be
    /// scored before the first update.
    fn scores_as_it_writes(&self) -> bool;
}

/// Turns briefs into requests and texts into tokens.
pub trait PromptEncoder: Send + Sync {
    /// The request for one round.
    ///
    /// # Errors
    /// The brief cannot be told.
    fn request(&self, brief: &WriteContext<'_>) -> Result<Request, PolicyError>;

    /// The tokens by which the policy would write a text in answer to a request. Where it begins as the text of the tokens
    /// `like` does, its tokens are those. `None`: the policy cannot write it.
    fn encode(&self, request: &Request, text: &str, like: &[u32]) -> Option<Encoded>;
}

/// A text as tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The tokens, the one that ends the text included.
    pub tokens: Vec<u32>,
    /// Where in the text (in bytes) each ends.
    pub ends: Vec<usize>,
}

impl TrainablePolicy for LanguagePolicy {
    fn set_optimiser(&mut self, settings: OptimiserSettings) {
        LanguagePolicy::set_optimiser(self, settings);
    }

    fn save_state(&self, folder: &Path) -> Result<(), PolicyError> {
        LanguagePolicy::save_state(self, folder)
    }

    fn load_state(&mut self, folder: &Path) -> Result<(), PolicyError> {
        LanguagePolicy::load_state(self, folder)
    }

    fn scores_as_it_writes(&self) -> bool {
        // On a GPU products take their sums in an order that depends on their size.
        self.device() == "cpu"
    }
}

impl PromptEncoder for LanguagePromptEncoder {
    fn request(&self, brief: &WriteContext<'_>) -> Result<Request, PolicyError> {
        LanguagePromptEncoder::request(self, brief, true)
    }

    fn encode(&self, request: &Request, text: &str, like: &[u32]) -> Option<Encoded> {
        let tokens = request.grammar.as_ref()?.encode_like(text, like).ok()?;
        let end = self.tokenizer().end();
        let length = |token: &u32| if *token == end { 0 } else { self.tokenizer().bytes(*token).len() };
        let ends = tokens.iter().scan(0, |at, token| {
            *at += length(token);
            Some(*at)
        });
        Some(Encoded { ends: ends.collect(), tokens })
    }
}
