//! What a specification may say here: the roles, the capacities and the limits of this installation.

use crate::RoleLibrary;
use serde::{Deserialize, Serialize};

/// The context a text is validated in.
#[derive(Debug, Clone)]
pub struct Language {
    /// The base roles an agent may inherit from.
    pub roles: RoleLibrary,
    /// The capacities, weakest first.
    pub capacities: Vec<String>,
    /// The bounds on what a text may ask for.
    pub limits: Limits,
}

impl Default for Language {
    fn default() -> Self {
        Language {
            roles: RoleLibrary::builtin(),
            capacities: ["small", "medium", "large"].map(String::from).to_vec(),
            limits: Limits::default(),
        }
    }
}

/// The bounds on a specification: safe for a text that a model wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Agents in one specification.
    pub agents: usize,
    /// Agents on the longest path.
    pub depth: usize,
    /// References in one agent's `after`, and in `answer.from`.
    pub parents: usize,
    /// Characters of an id.
    pub id_chars: usize,
    /// Characters of a role.
    pub role_chars: usize,
    /// Characters of a duty.
    pub duty_chars: usize,
    /// Bytes of the whole text.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            agents: 64,
            depth: 16,
            parents: 16,
            id_chars: 48,
            role_chars: 120,
            duty_chars: 2_000,
            bytes: 256 * 1024,
        }
    }
}
