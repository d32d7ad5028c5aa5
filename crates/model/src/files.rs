//! Where the files of a model are: a folder on disk, or the program itself.

use crate::PolicyError;
use std::borrow::Cow;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Files that are part of the program, by name.
pub type Packed = &'static [(&'static str, &'static [u8])];

/// Where the files of a model are.
#[derive(Debug, Clone, Copy)]
pub enum ModelFiles<'a> {
    /// In a folder.
    Disk(&'a Path),
    /// In the program.
    Packed(Packed),
}

impl ModelFiles<'_> {
    /// The name of a file in errors.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        match self {
            ModelFiles::Disk(folder) => folder.join(name),
            ModelFiles::Packed(_) => Path::new("(in the program)").join(name),
        }
    }

    /// A whole file; `None` if it is not there.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Cow<'static, [u8]>>, PolicyError> {
        match self {
            ModelFiles::Packed(files) => Ok(packed(files, name).map(Cow::Borrowed)),
            ModelFiles::Disk(folder) => match read_plain(&folder.join(name)) {
                Ok(bytes) => Ok(Some(Cow::Owned(bytes))),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(source) => Err(PolicyError::File { path: self.path(name), source }),
            },
        }
    }

    /// A whole file; an error if it is missing.
    pub(crate) fn need(&self, name: &str) -> Result<Cow<'static, [u8]>, PolicyError> {
        self.read(name)?.ok_or_else(|| {
            let source = std::io::Error::new(std::io::ErrorKind::NotFound, "No such file or directory");
            PolicyError::File { path: self.path(name), source }
        })
    }

    /// A file to read parts of.
    pub(crate) fn open(&self, name: &str) -> Result<Parts, PolicyError> {
        let path = self.path(name);
        let bytes = match self {
            ModelFiles::Packed(files) => packed(files, name),
            ModelFiles::Disk(_) => None,
        };
        let size = match bytes {
            Some(bytes) => bytes.len() as u64,
            None => std::fs::metadata(&path).map_err(|source| PolicyError::File { path: path.clone(), source })?.len(),
        };
        Ok(Parts { path, bytes, size })
    }
}

/// The longest file that is read whole, in bytes.
const MOST_BYTES: u64 = 1 << 30;

/// A whole file. A device or a pipe might never end.
fn read_plain(path: &Path) -> std::io::Result<Vec<u8>> {
    let refused = |fact: String| Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, fact));
    let found = std::fs::metadata(path)?;
    if !found.is_file() {
        return refused("it is no plain file".to_owned());
    }
    if found.len() > MOST_BYTES {
        return refused(format!("it has {} bytes; at most {MOST_BYTES} are read", found.len()));
    }
    std::fs::read(path)
}

fn packed(files: Packed, name: &str) -> Option<&'static [u8]> {
    files.iter().find(|(known, _)| *known == name).map(|(_, bytes)| *bytes)
}

/// A file that is read in parts: one may be far larger than the memory.
pub(crate) struct Parts {
    pub(crate) path: PathBuf,
    /// The contents, if the file is part of the program.
    bytes: Option<&'static [u8]>,
    pub(crate) size: u64,
}

impl Parts {
    /// So many bytes from a place on, which have to be inside.
    pub(crate) fn read(&self, start: u64, length: usize) -> Result<Vec<u8>, PolicyError> {
        let at = |source| PolicyError::File { path: self.path.clone(), source };
        let cut = || at(std::io::ErrorKind::UnexpectedEof.into());
        if start.checked_add(length as u64).is_none_or(|end| end > self.size) {
            return Err(cut());
        }
        if let Some(bytes) = self.bytes {
            let start = usize::try_from(start).map_err(|_| cut())?;
            return bytes.get(start..start + length).map(<[u8]>::to_vec).ok_or_else(cut);
        }
        let mut part = vec![0u8; length];
        let mut file = File::open(&self.path).map_err(at)?;
        file.seek(SeekFrom::Start(start)).map_err(at)?;
        file.read_exact(&mut part).map_err(at)?;
        Ok(part)
    }
}
