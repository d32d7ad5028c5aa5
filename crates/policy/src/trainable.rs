//! What training needs of a policy, and of the encoder between rounds, texts and its tokens.

use lemon_exec::orchestrator::WriteContext;
use lemon_model::{LanguagePolicy, OptimiserSettings, Policy, PolicyError, SampleRequest, ValueText};
use std::path::Path;

/// A policy whose weights and optimiser state can be saved and loaded, so that training can be resumed.
pub trait TrainablePolicy: Policy {
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

    /// For a policy whose texts are drawn from another distribution than the one that it scores and learns, because a grammar cuts
    /// tokens off: the most that a token may count for the quotient of its two probabilities. `None`: they are the same, but for
    /// rounding.
    fn most_ratio(&self) -> Option<f32> {
        None
    }

    /// The hidden states of the model at positions of a text behind a prompt; `None`: it has none.
    ///
    /// # Errors
    /// The text cannot be read, or its device keeps no states.
    fn states(&self, prompt: &[u32], text: &ValueText) -> Result<Option<Vec<Vec<f32>>>, PolicyError> {
        let _ = (prompt, text);
        Ok(None)
    }

    /// Whether the log-probabilities of sampling are, to the bit, those of scoring. If not, texts are scored before the first update.
    fn scores_as_it_writes(&self) -> bool;
}

/// Turns rounds into requests and texts into tokens.
pub trait PromptEncoder: Send + Sync {
    /// The request for one round.
    ///
    /// # Errors
    /// The round cannot be encoded.
    fn request(&self, context: &WriteContext<'_>) -> Result<SampleRequest, PolicyError>;

    /// The tokens by which the policy would write a text in answer to a request. As far as the text agrees with that of the tokens
    /// `like`, its tokens are the same. `None`: the policy cannot write it.
    fn encode(&self, request: &SampleRequest, text: &str, like: &[u32]) -> Option<Encoded>;
}

/// A text as tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The tokens, the one that ends the text included.
    pub tokens: Vec<u32>,
    /// The byte of the text at which each ends.
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

    fn states(&self, prompt: &[u32], text: &ValueText) -> Result<Option<Vec<Vec<f32>>>, PolicyError> {
        LanguagePolicy::states(self, prompt, text).map(Some)
    }

    fn scores_as_it_writes(&self) -> bool {
        // On a GPU the order of summation depends on the batch size.
        self.device() == "cpu"
    }
}
