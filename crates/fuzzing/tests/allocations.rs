//! A GGUF file that is damaged in any one place is refused without a large allocation, or it is read.
// A test that cannot go on has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use lemon_fuzzing::load_gguf;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::path::Path;

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What reading a file of this size may allocate, all allocations added up, whatever its header claims.
const MOST_BYTES: usize = 16 << 20;

/// The bytes of its tensors, which stand at the end.
const DATA_BYTES: usize = 8_200;

/// The seed: a whole model of fourteen thousand bytes, half of which is the header.
fn seed() -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/gguf/qwen2.gguf")).unwrap()
}

/// Reads a file with this content; what came of it, and the bytes allocated meanwhile.
fn load(path: &Path, bytes: &[u8]) -> Option<String> {
    std::fs::write(path, bytes).unwrap();
    let region = Region::new(COUNTING);
    let fact = load_gguf(path).err().map(|error| error.to_string());
    let stats = region.change();
    let allocated = stats.bytes_allocated + usize::try_from(stats.bytes_reallocated.max(0)).unwrap();
    assert!(allocated <= MOST_BYTES, "{allocated} bytes were allocated: {fact:?}");
    fact
}

/// One test: others beside it would be counted, too.
#[test]
fn damaged_files_cost_little() {
    let folder = tempfile::tempdir().unwrap();
    let (path, seed) = (folder.path().join("model.gguf"), seed());
    assert_eq!(load(&path, &seed), None);
    let data = seed.len() - DATA_BYTES;
    for length in (0..data).chain((data..seed.len()).step_by(97)) {
        let fact =
            load(&path, &seed[..length]).unwrap_or_else(|| panic!("{length} bytes of {} are a model", seed.len()));
        let says_where = fact.contains("expected") || fact.contains("cut short");
        assert!(fact.contains(&path.display().to_string()) && says_where, "{length} bytes: {fact}");
    }
    // Lengths, counts, types, sizes: whatever stands at any place of the header, an absurd number stands there instead.
    let absurd: [&[u8]; 5] =
        [&u64::MAX.to_le_bytes(), &(1u64 << 40).to_le_bytes(), &(1u64 << 31).to_le_bytes(), &[0xff; 4], &[0; 8]];
    let mut refused = 0;
    let places = || (0..data).step_by(3);
    for (number, at) in places().enumerate() {
        let mut bytes = seed.clone();
        let with = absurd[number % absurd.len()];
        bytes[at..at + with.len()].copy_from_slice(with);
        refused += usize::from(load(&path, &bytes).is_some());
    }
    assert!(refused > places().count() / 4, "{refused} of {}", places().count());
}
