//! Packs the weights of the bundled models for the binary. A build for tests reads them from `models/` instead: its programs are
//! many, and the weights would be in most of them.
//!
//! The weights are 16-bit floats. Of each, the upper byte (sign and exponent) takes few values and compresses well, the lower
//! one not at all. So the upper bytes are deflated apart, and the lower ones are kept as they are: three tenths are saved, and
//! unpacking takes some hundredths of a second. `src/bundled/planes.rs` unpacks them.

use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::error::Error;
use std::io::Write;
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
    let (models, level) =
        if embedded { (&MODELS[..], Compression::best()) } else { (&MODELS[2..3], Compression::fast()) };
    for model in models {
        let weights = Path::new("../../models").join(model).join("model.safetensors");
        println!("cargo::rerun-if-changed={}", weights.display());
        let bytes = fs::read(&weights).map_err(|error| format!("{}: {error}", weights.display()))?;
        fs::write(out.join(format!("{}.planes", model.replace('/', "-"))), pack(&bytes, level)?)?;
    }
    println!("cargo::rerun-if-changed=build.rs");
    Ok(())
}

/// The length, the length of the deflated upper bytes, those, and the lower bytes. Lengths are little-endian `u64`.
fn pack(bytes: &[u8], level: Compression) -> Result<Vec<u8>, std::io::Error> {
    let upper: Vec<u8> = bytes.iter().skip(1).step_by(2).copied().collect();
    let mut encoder = ZlibEncoder::new(Vec::new(), level);
    encoder.write_all(&upper)?;
    let upper = encoder.finish()?;
    let mut packed = Vec::with_capacity(16 + upper.len() + bytes.len().div_ceil(2));
    packed.extend((bytes.len() as u64).to_le_bytes());
    packed.extend((upper.len() as u64).to_le_bytes());
    packed.extend(upper);
    packed.extend(bytes.iter().step_by(2));
    Ok(packed)
}
