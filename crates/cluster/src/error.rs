//! What makes a cluster unusable.

/// A cluster that cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClusterError {
    /// The server cannot be reached, or refuses the credentials.
    #[error("NATS at {address} cannot be used: {reason}")]
    Connect {
        /// Its address, without credentials.
        address: String,
        /// Why.
        reason: String,
    },
    /// The server has no JetStream, or does not let this client use it.
    #[error("JetStream cannot be used: {0}")]
    JetStream(String),
    /// An object is missing, or is not what its name says.
    #[error("object {name}: {reason}")]
    Object {
        /// The hash that it goes by.
        name: String,
        /// Why.
        reason: String,
    },
    /// A name that cannot be part of a subject.
    #[error("`{0}` is no project name: it may hold letters, digits, `-` and `_`")]
    Project(String),
    /// A time that is none.
    #[error("LEMON_WORKER_SILENCE: expected 1 to 3600 seconds, found `{0}`")]
    Silence(String),
    /// The coordinator of a job is gone.
    #[error("the coordinator is gone")]
    NoCoordinator,
}

impl ClusterError {
    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            ClusterError::Connect { .. } => Some("is it running, and are LEMON_NATS_CREDS and LEMON_NATS_CA right?"),
            ClusterError::JetStream(_) => Some("start the server with JetStream: nats-server -js"),
            ClusterError::Project(_)
            | ClusterError::Object { .. }
            | ClusterError::Silence(_)
            | ClusterError::NoCoordinator => None,
        }
    }
}

/// A failure of JetStream, whatever kind it is.
pub(crate) fn jetstream(error: impl std::fmt::Display) -> ClusterError {
    ClusterError::JetStream(error.to_string())
}
