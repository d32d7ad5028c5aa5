//! Packs what the binary contains of the bundled models. A build for tests reads it from `models/` instead: its programs are
//! many, and the weights would be in most of them.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

#[path = "src/bundled/pack.rs"]
mod pack;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/bundled/pack.rs");
    println!("cargo::rustc-check-cfg=cfg(embedded_models)");
    if env::var("PROFILE")? != "release" {
        return Ok(());
    }
    println!("cargo::rustc-cfg=embedded_models");
    for name in ["orchestrator", "orchestrator-for-words"] {
        write(&format!("{name}/model.safetensors"), pack::exact)?;
        write(&format!("{name}/tokenizer.json"), |text| Ok(pack::text(text)))?;
    }
    for name in ["small", "medium", "large"] {
        write(&format!("workers/{name}/model.safetensors"), pack::rounded)?;
        write(&format!("workers/{name}/tokenizer.json"), |text| Ok(pack::text(text)))?;
    }
    write("critics/qwen2.5-coder-1.5b.json", |text| Ok(pack::text(text)))
}

/// Packs a file of `models/`.
fn write(name: &str, pack: impl Fn(&[u8]) -> Result<Vec<u8>, String>) -> Result<(), Box<dyn Error>> {
    let path = Path::new("../../models").join(name);
    println!("cargo::rerun-if-changed={}", path.display());
    let of_file = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let bytes = fs::read(&path).map_err(|error| of_file(&error))?;
    let packed = pack(&bytes).map_err(|error| of_file(&error))?;
    let out = PathBuf::from(env::var("OUT_DIR")?).join(format!("{name}.packed"));
    out.parent().map_or(Ok(()), fs::create_dir_all)?;
    Ok(fs::write(out, packed)?)
}
