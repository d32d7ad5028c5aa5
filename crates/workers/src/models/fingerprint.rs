//! What tells the files of one model from those of another, in a few milliseconds.

use super::entries;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Bytes that are read at a place.
const BLOCK: u64 = 1 << 16;
/// Places of a file that are read, spread evenly from its first byte to its last.
const BLOCKS: u64 = 64;

/// A checksum of a GGUF file, or of the files of a folder that have a say in replies. Of a long file it covers the length and
/// blocks at fixed places: other weights differ nearly everywhere, so that this tells models apart; it does not prove that no
/// byte was changed.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn fingerprint(path: &Path) -> io::Result<String> {
    let mut digest = Sha256::new();
    for (name, file) in files(path) {
        add(&mut digest, &name, &file)?;
    }
    let digits: String = digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("sampled-sha256 {digits}"))
}

/// The files with the names they have within the model.
fn files(path: &Path) -> Vec<(String, PathBuf)> {
    if !path.is_dir() {
        return vec![(String::new(), path.to_owned())];
    }
    let has_a_say = |path: &PathBuf| {
        path.extension().is_some_and(|end| ["safetensors", "json", "jinja"].iter().any(|it| end == *it))
    };
    entries(path).into_iter().filter(has_a_say).map(|path| (super::file_name(&path), path)).collect()
}

fn add(digest: &mut Sha256, name: &str, path: &Path) -> io::Result<()> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file"));
    }
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    // The lengths keep one name and content from reading like another pair.
    digest.update((name.len() as u64).to_le_bytes());
    digest.update(name);
    digest.update(length.to_le_bytes());
    let mut block = Vec::new();
    for place in 0..BLOCKS.min(length.div_ceil(BLOCK)) {
        let start = match length > BLOCK * BLOCKS {
            true => ((u128::from(length - BLOCK) * u128::from(place)) / u128::from(BLOCKS - 1)) as u64, // Below the length.
            false => place * BLOCK,
        };
        block.clear();
        file.seek(SeekFrom::Start(start))?;
        (&mut file).take(BLOCK).read_to_end(&mut block)?;
        digest.update(&block);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_apart_by_content_and_not_by_path() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            fingerprint(&path).unwrap()
        };
        let long = vec![7u8; (BLOCK * BLOCKS) as usize + 12_345];
        let one = write("a.gguf", &long);
        assert_eq!(one, write("b.gguf", &long));
        let changed = |at: usize| {
            let mut bytes = long.clone();
            bytes[at] = 8;
            write("c.gguf", &bytes)
        };
        assert_ne!(one, changed(0));
        assert_ne!(one, changed(long.len() - 1));
        assert_ne!(one, write("d.gguf", &long[1..]));
        let short = vec![7u8; 3 * BLOCK as usize];
        let every: Vec<String> = [0, 1, 2]
            .map(|block| {
                let mut bytes = short.clone();
                bytes[block * BLOCK as usize + 99] = 8;
                write("e.gguf", &bytes)
            })
            .into();
        assert!(every.iter().all(|other| *other != write("e.gguf", &short)) && every[0] != every[1]);
        assert!(write("empty.gguf", b"") != write("e.gguf", b"\0"));
    }

    #[test]
    fn a_folder_counts_by_the_files_that_have_a_say() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("config.json", "{}");
        write("model.safetensors", "1");
        let one = fingerprint(folder.path()).unwrap();
        write("README.md", "x");
        assert_eq!(fingerprint(folder.path()).unwrap(), one);
        write("model.safetensors", "2");
        assert_ne!(fingerprint(folder.path()).unwrap(), one);
        assert!(fingerprint(&folder.path().join("none")).is_err());
    }
}
