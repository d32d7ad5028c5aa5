//! How does a model learn that is too large for this machine? A policy whose model lives behind the Tinker API, as SkyRL serves it.
//!
//! `requests → tokens over HTTP → samples, log-probabilities`, and `examples → weighted data → gradient → optimiser step`. A
//! [`TinkerPolicy`] is a [`lemon_policy::TrainablePolicy`]: training does not know where its model is.
//!
//! What the protocol leaves to the client, and where it is kept:
//!
//! 1. A model has one place for its adapter, and sampling older weights puts them there. So texts are sampled with the current
//!    weights alone: every step makes the sampler of the step before unusable (`policy`).
//! 2. A session without a sign of life for 300 s loses its models: a task of its own sends one every ten seconds (`session`).
//! 3. Empty data is never answered, tokens that the model lacks end in a bare status 500, and lists that are too short are filled
//!    with zeros: all are refused before they are sent (`batch`).
//! 4. Some servers sum the loss over tokens, others average it. Advantages are scaled so that the gradient is that of the sum,
//!    which the caller wants. Which of the two a server does is measured at the start (`remote`).
//! 5. Connections are not used again, because a server may reset them after a status 500 (`client`).
//! 6. A step that may or may not have been taken is never sent again: training goes on from its last checkpoint (`client`).
//! 7. Texts may be sampled elsewhere, held to a grammar ([`SamplerStart`]): then each token was drawn from a distribution that the
//!    grammar cut, and the sampler must say its probability by that one. It is asked to prove it (`sampler`).
//! 8. A gradient that was left by another client stays in its place and would become part of the first step: it is cleared (`remote`).

mod adapter;
mod batch;
mod client;
mod error;
mod policy;
mod remote;
mod sampler;
mod session;
mod settings;
mod wire;

pub use client::{Patience, TinkerKey};
pub use error::{ServerName, TinkerError};
pub use policy::TinkerPolicy;
pub use settings::{Reduction, SamplerStart, TinkerStart};
