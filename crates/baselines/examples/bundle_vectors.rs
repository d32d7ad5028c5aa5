//! Makes the vectors that ship: `cargo run -p lemon-baselines --example bundle_vectors -- MINILM DATA FILE`.
//!
//! `MINILM` is the folder of all-MiniLM-L6-v2, `DATA` that of the task sets, `FILE` is `crates/baselines/src/encoder/vectors.bin`. Hashes and
//! vectors are written, and no text: those of the items that methods learn from, and of the first items that are scored.

use lemon_baselines::{MiniLm, encoded_texts, packed};
use lemon_task::SetName::{Aqua, Gsm8k, HumanEval, HumanEvalPy, Mmlu, MultiArith, Svamp};
use lemon_task::{SetName, Source, load};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

/// Items of a split at most.
const FIRST: usize = 100;

const SPLITS: [(SetName, &str, usize); 13] = [
    (Gsm8k, "paper-train", FIRST),
    (Gsm8k, "arg-designer", FIRST),
    (Aqua, "paper-train", FIRST),
    (Aqua, "arg-designer", FIRST),
    (MultiArith, "paper-train", FIRST),
    (MultiArith, "arg-designer", FIRST),
    (Svamp, "paper-train", FIRST),
    (Svamp, "arg-designer", FIRST),
    // The first 40 are learned from.
    (HumanEval, "test", 40 + FIRST),
    (HumanEvalPy, "paper-train", FIRST),
    (HumanEvalPy, "arg-designer", FIRST),
    (Mmlu, "paper-train", FIRST),
    (Mmlu, "val-153", FIRST),
];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, data, file] = arguments.as_slice() else {
        println!("usage: bundle_vectors MINILM DATA FILE");
        return Ok(());
    };
    let model = MiniLm::load(Path::new(model))?;
    let mut texts = encoded_texts();
    for (set, split, most) in SPLITS {
        let tasks = load(&Source::Folder(data.into()), set, split)?;
        texts.extend(tasks.items.into_iter().take(most).map(|item| item.task.question));
    }
    // Each once, in the order of their hashes, which tells nothing of the sets.
    let mut records = BTreeMap::new();
    for text in texts {
        let record = packed(&text, &model.encode(&text)?);
        records.insert(record.get(..8).map(<[u8]>::to_vec), record);
    }
    std::fs::write(file, records.values().flatten().copied().collect::<Vec<u8>>())?;
    println!("{} vectors", records.len());
    Ok(())
}
