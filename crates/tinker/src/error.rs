//! What can go wrong with a server, and what to do about it.

use lemon_model::PolicyError;
use std::fmt;

/// Whom a request goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerName {
    /// The server that keeps the model and trains it.
    Tinker,
    /// The endpoint that samples texts, where that is another one.
    Sampler,
}

impl fmt::Display for ServerName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            ServerName::Tinker => "Tinker server",
            ServerName::Sampler => "sampler",
        })
    }
}

/// What failed.
#[derive(Debug, thiserror::Error)]
pub enum TinkerError {
    /// The address cannot be used.
    #[error("the address of the {server}, `{url}`, cannot be used: {fact}")]
    Address {
        /// Whose.
        server: ServerName,
        /// The address, without a password.
        url: String,
        /// Why.
        fact: String,
    },
    /// No server answers.
    #[error("no {server} answers at {origin}: {fact}")]
    Unreachable {
        /// Which.
        server: ServerName,
        /// Where.
        origin: String,
        /// Why.
        fact: String,
    },
    /// The server has another model.
    #[error("the Tinker server serves {served}; the recipe names `{wanted}`")]
    OtherModel {
        /// What it serves.
        served: String,
        /// What is wanted.
        wanted: String,
    },
    /// The server refused a request.
    #[error("the {server} refused `{call}` with status {status}: {detail}")]
    Refused {
        /// Which.
        server: ServerName,
        /// The operation.
        call: &'static str,
        /// The status of HTTP.
        status: u16,
        /// What the server says.
        detail: String,
    },
    /// The server began an operation, and it failed.
    #[error("`{call}` failed on the Tinker server: {detail}")]
    Failed {
        /// The operation.
        call: &'static str,
        /// What the server says.
        detail: String,
    },
    /// The connection broke, and the operation must not be done twice.
    #[error("the connection broke during `{call}`, and the server may have done it: {fact}")]
    Unclear {
        /// The operation.
        call: &'static str,
        /// How it broke.
        fact: String,
    },
    /// An operation takes too long.
    #[error("`{call}` was not done within {seconds} s")]
    Late {
        /// The operation.
        call: &'static str,
        /// How long it was waited for.
        seconds: u64,
    },
    /// A reply is not what the protocol says.
    #[error("the {server}'s reply to `{call}` is not as expected: {fact}")]
    Malformed {
        /// Which.
        server: ServerName,
        /// The operation.
        call: &'static str,
        /// What is different.
        fact: String,
    },
    /// The server forgot the session, and its models with it.
    #[error("the session on the Tinker server has ended: {0}")]
    Ended(String),
    /// It cannot be seen whether the server sums or averages.
    #[error("it cannot be measured whether the Tinker server sums or averages a loss: {0}")]
    Unmeasured(String),
    /// A step failed after it was begun: what the server holds is not what was meant.
    #[error("an earlier step failed, and what the server holds of it is not known")]
    Broken,
    /// Data that the server would misread or never answer.
    #[error("{0}")]
    Data(String),
    /// The sampler does something else than it has to.
    #[error("the sampler cannot be used: {fact}")]
    Unfit {
        /// What it does.
        fact: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// The weights of the server do not reach the sampler.
    #[error("the adapter `{name}` cannot be handed to the sampler: {fact}")]
    Adapter {
        /// The server's name of it.
        name: String,
        /// Why.
        fact: String,
    },
}

const RESUME: &str = "the last checkpoint stands; the same command with --resume goes on from it";

impl TinkerError {
    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Address { server: ServerName::Sampler, .. }
            | Self::Unreachable { server: ServerName::Sampler, .. } => {
                Some("`url` under [start.sampler] in the recipe is http://HOST:PORT/v1 of a vLLM server that runs")
            }
            Self::Refused { server: ServerName::Sampler, status: 401 | 403, .. } => {
                Some("`api_key_env` under [start.sampler] in the recipe names the variable that holds its key")
            }
            Self::Refused { server: ServerName::Sampler, call, .. } => of_sampler(call),
            Self::Address { .. } => {
                Some("write it as http://HOST:PORT, as `url` under [start] in the recipe or in TINKER_BASE_URL")
            }
            Self::Unreachable { .. } => {
                Some("start the server, or correct `url` under [start] in the recipe (TINKER_BASE_URL replaces it)")
            }
            Self::OtherModel { .. } => {
                Some("correct `base_model` under [start] in the recipe, or start the server with it")
            }
            Self::Refused { status: 401 | 403, .. } => Some("TINKER_API_KEY holds the key of the server"),
            Self::Refused { detail, .. } | Self::Failed { detail, .. } => of_detail(detail),
            Self::Unclear { .. } | Self::Ended(_) | Self::Broken => Some(RESUME),
            Self::Late { .. } => Some("`timeout_s` under [start] in the recipe is how long an operation may take"),
            Self::Unmeasured(_) => Some("say it with `reduction = \"sum\"` or \"mean\" under [start] in the recipe"),
            Self::Unfit { hint, .. } => Some(hint),
            Self::Adapter { .. } => Some(
                "`adapters` under [start.sampler] in the recipe is a folder that the sampler reads too; without it, the Tinker \
                 server has to hand its weights on by itself",
            ),
            Self::Malformed { .. } | Self::Data(_) => None,
        }
    }
}

/// What helps where a sampler refuses something.
fn of_sampler(call: &str) -> Option<&'static str> {
    match call {
        crate::sampler::COMPLETE => Some(
            "its structured outputs have to be those of llguidance: start it with --structured-outputs-config.backend guidance",
        ),
        crate::sampler::LOAD => Some(
            "start vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, --enable-lora and --max-lora-rank; `adapters_there` under \
             [start.sampler] is where it finds the folder of `adapters`",
        ),
        _ => None,
    }
}

/// What helps, by what SkyRL says.
fn of_detail(detail: &str) -> Option<&'static str> {
    if detail.contains("Maximum number of LoRA adapters") {
        return Some(
            "adapters of trainings that were killed are freed after five minutes; `max_lora_adapters` of the server \
             is how many there are",
        );
    }
    if detail.contains("LoRA rank") || detail.contains("Rank mismatch") {
        return Some("`lora` in the recipe is the rank; `max_lora_rank` of the server is the highest");
    }
    if detail.contains("not loaded") || detail.contains("Model not found") || detail.contains("Future not found") {
        return Some(RESUME);
    }
    if detail.contains("Checkpoint not found") {
        return Some("start the server with the folder and the database it had: the weights are there");
    }
    None
}

impl From<TinkerError> for PolicyError {
    fn from(error: TinkerError) -> Self {
        PolicyError::Service { fact: error.to_string(), hint: error.hint() }
    }
}
