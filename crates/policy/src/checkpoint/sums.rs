//! Checksums over the files of a checkpoint, so that a damaged one is not taken for a whole one.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// The file that holds them.
const SUMS: &str = "sums.json";

/// Writes the checksums of everything in a folder.
pub(crate) fn write(folder: &Path) -> io::Result<()> {
    let sums = of_folder(folder)?;
    fs::write(folder.join(SUMS), serde_json::to_string_pretty(&sums)?)
}

/// What is wrong with the files of a folder, if something is. Files that were put there later are of no matter.
pub(crate) fn damage(folder: &Path) -> Option<String> {
    let stated = match fs::read(folder.join(SUMS)) {
        Err(error) => return Some(format!("{SUMS}: {error}")),
        Ok(text) => match serde_json::from_slice::<BTreeMap<String, String>>(&text) {
            Err(error) => return Some(format!("{SUMS} is damaged: {error}")),
            Ok(stated) => stated,
        },
    };
    let found = match of_folder(folder) {
        Err(error) => return Some(error.to_string()),
        Ok(found) => found,
    };
    let differs = |(name, sum): (&String, &String)| match found.get(name) {
        None => Some(format!("{name} is missing")),
        Some(other) => (other != sum).then(|| format!("{name} is not what was written")),
    };
    // Without any file it would be sound whatever is there.
    if stated.is_empty() { Some(format!("{SUMS} names no file")) } else { stated.iter().find_map(differs) }
}

fn of_folder(folder: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut sums = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == SUMS || !entry.file_type()?.is_file() {
            continue;
        }
        let mut hasher = blake3::Hasher::new();
        io::copy(&mut fs::File::open(entry.path())?, &mut hasher)?;
        sums.insert(name, hasher.finalize().to_hex().to_string());
    }
    Ok(sums)
}
