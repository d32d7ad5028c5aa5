//! Packs the situations for the binary: a text of this kind takes a third of its bytes.

use miniz_oxide::deflate::compress_to_vec_zlib;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    for name in ["market", "nature", "school", "world"] {
        let path = Path::new("situations").join(format!("{name}.txt"));
        println!("cargo::rerun-if-changed={}", path.display());
        let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        fs::write(out.join(name), compress_to_vec_zlib(&text, 10))?;
    }
    Ok(())
}
