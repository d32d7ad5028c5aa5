//! Where the public task sets come from, and whether a file is the one it should be.

use std::collections::HashSet;

use serde::{Deserialize, Deserializer, Serialize, de};
use sha2::{Digest, Sha256};

use crate::{
    SetName,
    read::{MAX_BYTES, hex},
};

/// A file of a public task set: its place in the layout, its source, and what it must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// The set it belongs to.
    #[serde(deserialize_with = "public_set")]
    pub set: SetName,
    /// The file, relative to the folder of task sets.
    pub path: String,
    /// Where it can be had.
    pub url: String,
    /// Its SHA-256 checksum, in lower-case hexadecimal digits.
    pub sha256: String,
    /// Its length.
    pub bytes: u64,
    /// The license stated at the source.
    pub license: String,
}

/// Every file that [`check`](crate::check()) reads, as it was published: the address names a commit, not a branch.
pub fn sources() -> Vec<SourceFile> {
    // The table is part of this program, and a test counts its files.
    let mmlu = MMLU_FILES.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (sha256, bytes, path) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
        Some(MMLU.file(SetName::Mmlu, &format!("mmlu/{path}"), &format!("MMLU/data/{path}"), bytes, sha256))
    });
    mmlu.chain(other_files()).collect()
}

/// Reads a table of the user's own: a JSON list of [`SourceFile`]s.
///
/// # Errors
/// It is no such list, or a file in it has no place in a folder, no address or no checksum.
pub fn parse_sources(text: &str) -> Result<Vec<SourceFile>, SourcesError> {
    let mut files: Vec<SourceFile> = serde_json::from_str(text)?;
    let mut paths = HashSet::new();
    for file in &mut files {
        file.sha256.make_ascii_lowercase();
        let fault = file.fault().or_else(|| (!paths.insert(&file.path)).then_some("it is listed twice"));
        if let Some(fault) = fault {
            return Err(SourcesError::File { path: file.path.clone(), fault });
        }
    }
    Ok(files)
}

/// Why a table of sources cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourcesError {
    /// It does not have the form of one.
    #[error("not a list of {{set, path, url, sha256, bytes, license}}: {0}")]
    Form(#[from] serde_json::Error),
    /// A file in it cannot be fetched.
    #[error("`{path}`: {fault}")]
    File {
        /// The file, as the table calls it.
        path: String,
        /// What is wrong.
        fault: &'static str,
    },
}

impl SourceFile {
    /// The address at a mirror: `mirror` in the place of scheme and host.
    pub fn url_at(&self, mirror: &str) -> String {
        let behind_scheme = self.url.split_once("://").map_or(self.url.as_str(), |(_, rest)| rest);
        let path = behind_scheme.split_once('/').map_or("", |(_, path)| path);
        format!("{}/{path}", mirror.trim_end_matches('/'))
    }

    /// Begins to check a content.
    pub fn verifier(&self) -> Verifier<'_> {
        Verifier { file: self, hasher: Sha256::new(), found: 0 }
    }

    fn fault(&self) -> Option<&'static str> {
        // By rule and not by the system's own reading of paths, so that a table means the same everywhere.
        let plain = |name: &str| {
            !name.is_empty() && !name.starts_with('.') && !name.contains(|c: char| r#"\:*?"<>|"#.contains(c) || c < ' ')
        };
        if !self.path.split('/').all(plain) {
            return Some("the path must be relative, of plain names that do not begin with a dot");
        }
        if !self.url.starts_with("http://") && !self.url.starts_with("https://") {
            return Some("the url must begin with http:// or https://");
        }
        if self.bytes > MAX_BYTES {
            return Some("no file of a task set has more than 1024 MiB");
        }
        let is_checksum = self.sha256.len() == 64 && self.sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
        (!is_checksum).then_some("the sha256 must have 64 hexadecimal digits")
    }
}

/// Takes a content in piece by piece and says whether it is that of the file.
pub struct Verifier<'a> {
    file: &'a SourceFile,
    hasher: Sha256,
    found: u64,
}

impl Verifier<'_> {
    /// Takes in the next piece.
    ///
    /// # Errors
    /// The content is too long: there is no need to see the rest.
    pub fn add(&mut self, piece: &[u8]) -> Result<(), Mismatch> {
        self.found = self.found.saturating_add(piece.len() as u64);
        if self.found > self.file.bytes {
            return Err(Mismatch::Long { expected: self.file.bytes });
        }
        self.hasher.update(piece);
        Ok(())
    }

    /// Says whether what came is the file.
    ///
    /// # Errors
    /// It is not.
    pub fn finish(self) -> Result<(), Mismatch> {
        if self.found != self.file.bytes {
            return Err(Mismatch::Length { found: self.found, expected: self.file.bytes });
        }
        let found = hex(&self.hasher.finalize());
        match found == self.file.sha256 {
            true => Ok(()),
            false => Err(Mismatch::Checksum { found, expected: self.file.sha256.clone() }),
        }
    }
}

/// How a content differs from that of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// It goes on where it should end.
    #[error("longer than {expected} bytes")]
    Long {
        /// The length of the file.
        expected: u64,
    },
    /// It has another length, and ended.
    #[error("{found} bytes instead of {expected}")]
    Length {
        /// What came.
        found: u64,
        /// The length of the file.
        expected: u64,
    },
    /// It has the length and is something else.
    #[error("sha256 {found} instead of {expected}")]
    Checksum {
        /// What came.
        found: String,
        /// That of the file.
        expected: String,
    },
}

fn public_set<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SetName, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

/// A repository at a commit.
struct Repository {
    name: &'static str,
    commit: &'static str,
    license: &'static str,
}

const MMLU: Repository = Repository {
    name: "lu-wang-dl/chain-of-thought-hub",
    commit: "d52bae89527daca8a354f97561438f12725df780",
    license: "MIT",
};
const GSM8K: Repository =
    Repository { name: "openai/grade-school-math", commit: "3101c7d5072418e28b9008a6636bde82a006892c", license: "MIT" };
const AQUA: Repository = Repository {
    name: "google-deepmind/AQuA",
    commit: "26b64ed1f22208c6742f47df547dfd65088ec30d",
    license: "Apache-2.0",
};
const MULTIARITH: Repository = Repository {
    name: "kojima-takeshi188/zero_shot_cot",
    commit: "5ef330fcdeec0cd26aee27943504f91f8ec1c33c",
    license: "none stated",
};
const SVAMP: Repository =
    Repository { name: "arkilpatel/SVAMP", commit: "689d7ccac74b9983a2ac7cc3b264f441b99e7c53", license: "MIT" };
const HUMANEVAL: Repository =
    Repository { name: "openai/human-eval", commit: "6d43fb980f9fee3c892a914eda09951f772ad10d", license: "MIT" };
const HUMANEVAL_PY: Repository = Repository {
    name: "yanweiyue/GDesigner",
    commit: "a6efcfa3b40bb4d9cbf46f883a95d62020bd8251",
    license: "none stated",
};

/// A file a line: checksum, bytes, path.
const MMLU_FILES: &str = include_str!("mmlu_files.txt");

#[rustfmt::skip]
fn other_files() -> [SourceFile; 8] {
    use SetName::*;
    [
        GSM8K.file(Gsm8k, "gsm8k/train.jsonl", "grade_school_math/data/train.jsonl", 4_166_206, "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465"),
        GSM8K.file(Gsm8k, "gsm8k/test.jsonl", "grade_school_math/data/test.jsonl", 749_738, "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14"),
        // One JSON object a line, whatever the name there says.
        AQUA.file(Aqua, "aqua/dev.jsonl", "dev.json", 132_008, "4a52301d8a49ae0b286f8e697f9c5da1b109b247b825b47b4c6de34312dceec5"),
        AQUA.file(Aqua, "aqua/test.jsonl", "test.json", 130_192, "de41581881ef95c5588c44ddc701c77fd480839241dd422a0d181262af24520c"),
        MULTIARITH.file(MultiArith, "multiarith/MultiArith.json", "dataset/MultiArith/MultiArith.json", 254_012, "dc9db1b6cc68b1ecc2dec830d15aaf8c9a0932aa31d5ffce88ef3628179d36f4"),
        SVAMP.file(Svamp, "svamp/SVAMP.json", "SVAMP.json", 339_970, "5be77703a6d891ae476d7c082787ad361392aa02453b132516cdd5f4e7934e3e"),
        HUMANEVAL.file(HumanEval, "humaneval/HumanEval.jsonl.gz", "data/HumanEval.jsonl.gz", 44_877, "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef"),
        HUMANEVAL_PY.file(HumanEvalPy, "humaneval/humaneval-py.jsonl", "datasets/humaneval/humaneval-py.jsonl", 205_649, "74a24f601800a3f94d3d9014fdc8c2a149b36806e2847eb251615dab16c60004"),
    ]
}

impl Repository {
    fn file(&self, set: SetName, path: &str, path_there: &str, bytes: u64, sha256: &str) -> SourceFile {
        let Repository { name, commit, license } = self;
        SourceFile {
            set,
            path: path.to_owned(),
            url: format!("https://raw.githubusercontent.com/{name}/{commit}/{path_there}"),
            sha256: sha256.to_owned(),
            bytes,
            license: (*license).to_owned(),
        }
    }
}
