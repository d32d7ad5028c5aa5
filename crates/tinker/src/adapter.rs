//! The adapter of a model, from the archive of a Tinker server to a folder that a sampler reads.

use crate::TinkerError;
use flate2::read::GzDecoder;
use std::fs;
use std::io;
use std::path::Path;

/// What an adapter consists of, as PEFT and vLLM read it.
const FILES: [&str; 2] = ["adapter_config.json", "adapter_model.safetensors"];
/// Larger files are not unpacked.
const MOST_BYTES: u64 = 8 << 30;

/// Unpacks an adapter into a folder of its own. Everything else in the archive stays there.
pub(crate) fn unpack(name: &str, archive: &[u8], folder: &Path) -> Result<(), TinkerError> {
    let failed = |fact: String| TinkerError::Adapter { name: name.to_owned(), fact };
    let unwritten = |error: io::Error| failed(format!("{}: {error}", folder.display()));
    let unread = |error: io::Error| failed(format!("its archive cannot be read: {error}"));
    fs::create_dir_all(folder).map_err(unwritten)?;
    let mut found = Vec::new();
    let mut archive = tar::Archive::new(GzDecoder::new(archive));
    for entry in archive.entries().map_err(unread)? {
        let mut entry = entry.map_err(unread)?;
        // By its last name: where an archive wants its files to be is of no interest.
        let path = entry.path().map_err(unread)?.into_owned();
        let file = FILES.iter().find(|file| path.file_name().is_some_and(|name| name == **file));
        let Some(file) = file.filter(|_| entry.header().entry_type().is_file()) else { continue };
        if entry.size() > MOST_BYTES {
            return Err(failed(format!("`{file}` has {} bytes", entry.size())));
        }
        let mut written = fs::File::create(folder.join(file)).map_err(unwritten)?;
        io::copy(&mut entry, &mut written).map_err(unread)?;
        found.push(*file);
    }
    match FILES.iter().find(|file| !found.contains(*file)) {
        None => Ok(()),
        // SkyRL's FSDP and Megatron backends save whole models.
        Some(missing) => Err(failed(format!("its archive has no `{missing}`: it is not that of an adapter"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for (name, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            // Not `set_path`, which refuses names that leave the folder.
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            archive.append(&header, *content).unwrap();
        }
        archive.into_inner().unwrap().finish().unwrap()
    }

    #[test]
    fn an_adapter_is_unpacked_and_nothing_else() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("lemon-1");
        let files: [(&str, &[u8]); 4] = [
            ("../adapter_config.json", b"{}"),
            ("./deep/adapter_model.safetensors", b"weights"),
            ("../../escaped", b"no"),
            ("README.md", b"no"),
        ];
        unpack("tinker://m/a", &archive(&files), &folder).unwrap();
        let mut names: Vec<_> = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, FILES);
        assert_eq!(fs::read(folder.join(FILES[1])).unwrap(), b"weights");
        assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_adapter_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        let refused = |bytes: &[u8]| unpack("tinker://m/a", bytes, outer.path()).unwrap_err().to_string();
        let whole = archive(&[("config.json", b"{}"), ("model.safetensors", b"15 GB")]);
        assert!(
            refused(&whole).ends_with("has no `adapter_config.json`: it is not that of an adapter"),
            "{}",
            refused(&whole)
        );
        assert!(refused(b"<html>").contains("cannot be read"));
        let good = archive(&[("adapter_config.json", b"{}"), ("adapter_model.safetensors", &[7; 4096])]);
        assert!(refused(&good[..good.len() / 2]).contains("its archive cannot be read"));
    }
}
