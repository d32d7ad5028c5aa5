//! Packs the weights of the bundled models for the binary. A build for tests reads them from `models/` instead: its programs are
//! many, and the weights would be in most of them.
//!
//! The weights are 16-bit floats. Of each, the exponent takes few values and compresses well, sign and mantissa not at all. So the
//! exponents are deflated apart, and the other bits are kept as they are: a third is saved, and unpacking takes some hundredths of
//! a second. `src/bundled/planes.rs` unpacks them.

use miniz_oxide::deflate::core::{
    CompressionStrategy, CompressorOxide, TDEFLFlush, TDEFLStatus, compress, create_comp_flags_from_zip_params,
};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

const MODELS: [&str; 5] =
    ["orchestrator", "orchestrator-for-words", "workers/small", "workers/medium", "workers/large"];

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo::rustc-check-cfg=cfg(embedded_weights)");
    let embedded = env::var("PROFILE")? == "release";
    if embedded {
        println!("cargo::rustc-cfg=embedded_weights");
    }
    // A build for tests packs the smallest model, which shows that packing can be undone.
    let models = if embedded { &MODELS[..] } else { &MODELS[2..3] };
    for model in models {
        let weights = Path::new("../../models").join(model).join("model.safetensors");
        println!("cargo::rerun-if-changed={}", weights.display());
        let bytes = fs::read(&weights).map_err(|error| format!("{}: {error}", weights.display()))?;
        fs::write(out.join(format!("{}.planes", model.replace('/', "-"))), pack(&bytes)?)?;
    }
    println!("cargo::rerun-if-changed=build.rs");
    Ok(())
}

/// The length, the length of the deflated exponents, those, and the other bits. Lengths are little-endian `u64`.
fn pack(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let (words, last) = bytes.as_chunks::<2>();
    let words = || words.iter().map(|word| u16::from_le_bytes(*word));
    let exponents = deflated(&words().map(|word| (word >> 7) as u8).collect::<Vec<u8>>())?;
    let mut packed = Vec::with_capacity(16 + exponents.len() + bytes.len().div_ceil(2));
    packed.extend((bytes.len() as u64).to_le_bytes());
    packed.extend((exponents.len() as u64).to_le_bytes());
    packed.extend(exponents);
    packed.extend(words().map(|word| (word >> 8) as u8 & 0x80 | word as u8 & 0x7f));
    packed.extend(last);
    Ok(packed)
}

/// Deflated by the frequency of bytes alone: exponents do not repeat in runs, and what looks for runs packs them worse.
fn deflated(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let flags = create_comp_flags_from_zip_params(9, 15, CompressionStrategy::HuffmanOnly.into());
    let mut packed = vec![0; bytes.len() + bytes.len() / 8 + 1024];
    let (status, _, length) = compress(&mut CompressorOxide::new(flags), bytes, &mut packed, TDEFLFlush::Finish);
    packed.truncate(length);
    match status {
        TDEFLStatus::Done => Ok(packed),
        status => Err(format!("exponents cannot be deflated: {status:?}")),
    }
}
