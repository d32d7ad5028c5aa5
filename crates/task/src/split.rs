//! Which records belong to a split: one table.

use std::ops::Range;

use serde::Serialize;

use crate::{SetName, TaskError, shuffle::permutation};

/// A named selection of the records of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Split {
    /// The set it belongs to.
    pub set: SetName,
    /// The name of the split.
    pub name: &'static str,
    /// The official split whose file holds the records.
    pub of: &'static str,
    #[serde(skip)]
    pick: Pick,
    /// What it is, in one line.
    pub about: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pick {
    All,
    /// Positions in the order of the file.
    Range(Range<usize>),
    /// Positions in the order of numpy's `default_rng(888)`.
    Shuffled(Range<usize>),
}

const REST: usize = usize::MAX;

/// The splits: the official ones, and the items the multi-agent papers score, by the name of the repository.
///
/// Those repositories tune on the first items of the official test file (`paper-train`) and score the rest. Counts
/// follow from their published code with its default arguments. Three caveats: ARG-Designer shuffles AQuA without a
/// seed, so which 40 of its 254 items it tuned on cannot be known and the split of that name only has its size; its
/// runners for SVAMP and MultiArith are not public, so those two splits assume the same scheme; MasRouter's
/// unseeded splits of GSM8K and HumanEval are left out.
#[rustfmt::skip]
const SPLITS: &[Split] = {
    use Pick::{All, Range, Shuffled};
    use SetName::*;
    &[
        row(Mmlu, "dev", "dev", All, "official: five questions per subject, 285"),
        row(Mmlu, "val", "val", All, "official: 1,531 questions"),
        row(Mmlu, "test", "test", All, "official: 14,042 questions"),
        row(Mmlu, "paper-train", "dev", Shuffled(0..40), "ARG-Designer: the first 40 of dev, shuffled with seed 888"),
        row(Mmlu, "val-153", "val", Shuffled(0..153), "GPTSwarm, AgentPrune, G-Designer, ARG-Designer: the first 153 of val, shuffled with seed 888"),
        row(Mmlu, "masrouter", "test", Shuffled(272..1280), "MasRouter: 1,008 of test, batches 17 to 79 of 16, shuffled with seed 888"),
        row(Gsm8k, "train", "train", All, "official: 7,473 problems"),
        row(Gsm8k, "test", "test", All, "official: 1,319 problems"),
        row(Gsm8k, "paper-train", "test", Range(0..40), "G-Designer, AgentPrune, ARG-Designer: the first 40 of test, used up for tuning"),
        row(Gsm8k, "arg-designer", "test", Range(40..REST), "ARG-Designer: test without the first 40, 1,279"),
        row(Gsm8k, "g-designer", "test", Range(40..1316), "G-Designer: the full batches of four after the first ten, 1,276"),
        row(Gsm8k, "agentprune", "test", Range(40..1316), "AgentPrune: the same 1,276 as g-designer"),
        row(Aqua, "dev", "dev", All, "official: 254 questions"),
        row(Aqua, "test", "test", All, "official: 254 questions"),
        row(Aqua, "paper-train", "test", Range(0..40), "a stand-in for ARG-Designer's unseeded 40 of test: the first 40"),
        row(Aqua, "arg-designer", "test", Range(40..REST), "a stand-in for ARG-Designer's unseeded rest of test: all but the first 40, 214"),
        row(MultiArith, "test", "test", All, "official: 600 problems"),
        row(MultiArith, "paper-train", "test", Range(0..40), "assumed for ARG-Designer: the first 40"),
        row(MultiArith, "arg-designer", "test", Range(40..REST), "assumed for ARG-Designer: all but the first 40, 560"),
        row(Svamp, "test", "test", All, "official: 1,000 problems"),
        row(Svamp, "paper-train", "test", Range(0..40), "assumed for ARG-Designer: the first 40"),
        row(Svamp, "arg-designer", "test", Range(40..REST), "assumed for ARG-Designer: all but the first 40, 960"),
        row(HumanEval, "test", "test", All, "official: 164 problems"),
        row(HumanEvalPy, "test", "test", All, "the whole variant, 161 problems; GPTSwarm scores these"),
        row(HumanEvalPy, "paper-train", "test", Range(0..40), "G-Designer, AgentPrune, ARG-Designer: the first 40, used up for tuning"),
        row(HumanEvalPy, "arg-designer", "test", Range(40..REST), "ARG-Designer: all but the first 40, 121"),
        row(HumanEvalPy, "g-designer", "test", Range(40..160), "G-Designer: the full batches of four after the first ten, 120"),
        row(HumanEvalPy, "agentprune", "test", Range(40..160), "AgentPrune: the same 120 as g-designer"),
    ]
};

const fn row(set: SetName, name: &'static str, of: &'static str, pick: Pick, about: &'static str) -> Split {
    Split { set, name, of, pick, about }
}

/// The splits of a set, the official ones first.
pub fn splits(set: SetName) -> impl Iterator<Item = &'static Split> {
    SPLITS.iter().filter(move |split| split.set == set)
}

/// The official splits of a set: those with a file of their own.
pub(crate) fn official(set: SetName) -> impl Iterator<Item = &'static str> {
    splits(set).filter(|split| split.pick == Pick::All).map(|split| split.name)
}

pub(crate) fn find(set: SetName, name: &str) -> Result<&'static Split, TaskError> {
    splits(set).find(|split| split.name == name).ok_or_else(|| TaskError::UnknownSplit {
        set,
        split: name.to_owned(),
        known: splits(set).map(|split| split.name).collect::<Vec<_>>().join(", "),
    })
}

impl Split {
    /// The positions it selects out of `records`, in its order; a file with fewer gives fewer.
    pub(crate) fn positions(&self, records: usize) -> Vec<usize> {
        let within = |range: &Range<usize>| range.start.min(records)..range.end.min(records);
        match &self.pick {
            Pick::All => (0..records).collect(),
            Pick::Range(range) => within(range).collect(),
            Pick::Shuffled(range) => permutation(888, records).drain(within(range)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(set: SetName, name: &str, records: usize, expected: usize) {
        let positions = find(set, name).unwrap().positions(records);
        assert_eq!(positions.len(), expected, "{set} {name}");
        assert!(positions.iter().all(|position| *position < records));
    }

    #[test]
    fn counts_are_those_of_the_papers() {
        check(SetName::Mmlu, "val-153", 1531, 153);
        check(SetName::Mmlu, "paper-train", 285, 40);
        check(SetName::Mmlu, "masrouter", 14042, 1008);
        check(SetName::Gsm8k, "arg-designer", 1319, 1279);
        check(SetName::Gsm8k, "g-designer", 1319, 1276);
        check(SetName::Gsm8k, "agentprune", 1319, 1276);
        check(SetName::Gsm8k, "paper-train", 1319, 40);
        check(SetName::Aqua, "arg-designer", 254, 214);
        check(SetName::MultiArith, "arg-designer", 600, 560);
        check(SetName::Svamp, "arg-designer", 1000, 960);
        check(SetName::HumanEvalPy, "arg-designer", 161, 121);
        check(SetName::HumanEvalPy, "g-designer", 161, 120);
    }

    #[test]
    fn a_short_file_gives_fewer() {
        check(SetName::Gsm8k, "paper-train", 12, 12);
        check(SetName::Gsm8k, "arg-designer", 12, 0);
        check(SetName::Mmlu, "val-153", 0, 0);
        check(SetName::Mmlu, "masrouter", 3, 0);
    }

    #[test]
    fn names_are_unique_and_every_public_set_has_a_test() {
        for set in SetName::PUBLIC {
            let mut names: Vec<_> = splits(set).map(|split| split.name).collect();
            assert!(names.contains(&"test"));
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count);
        }
    }

    #[test]
    fn an_unknown_split_names_the_known_ones() {
        let error = find(SetName::Aqua, "train").unwrap_err().to_string();
        assert_eq!(error, "unknown split `train` of aqua; expected one of dev, test, paper-train, arg-designer");
    }
}
