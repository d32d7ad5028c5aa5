//! Where the files of a model are: a folder on disk, a single GGUF file, or the program itself.

use crate::PolicyError;
use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Files that are part of the program, by name.
pub type Packed = &'static [(&'static str, &'static [u8])];

/// Where the files of a model are.
#[derive(Debug, Clone, Copy)]
pub enum ModelFiles<'a> {
    /// In a folder, or all in one GGUF file.
    Disk(&'a Path),
    /// In the program.
    Packed(Packed),
}

impl<'a> ModelFiles<'a> {
    /// The GGUF file, if the model is one file and not a folder: a path that ends in `.gguf`, or any plain file.
    pub fn gguf(&self) -> Option<&'a Path> {
        let ModelFiles::Disk(path) = *self else { return None };
        let named = path.extension().is_some_and(|it| it.eq_ignore_ascii_case("gguf"));
        (path.is_file() || named && !path.is_dir()).then_some(path)
    }

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
        match bytes {
            Some(bytes) => Ok(Parts { path, source: Source::Program(bytes), size: bytes.len() as u64 }),
            None => Parts::of(&path),
        }
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
    source: Source,
    pub(crate) size: u64,
}

enum Source {
    /// The contents, if the file is part of the program.
    Program(&'static [u8]),
    Disk(File),
}

impl Parts {
    /// Opens a file on disk. A device or a pipe is refused.
    pub(crate) fn of(path: &Path) -> Result<Parts, PolicyError> {
        let at = |source| PolicyError::File { path: path.to_owned(), source };
        if !std::fs::metadata(path).map_err(at)?.is_file() {
            return Err(at(std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is no plain file")));
        }
        let file = File::open(path).map_err(at)?;
        let size = file.metadata().map_err(at)?.len();
        Ok(Parts { path: path.to_owned(), source: Source::Disk(file), size })
    }

    /// The file on disk. Reading it forward moves its position, on which [`Self::read`] does not depend.
    pub(crate) fn file(&self) -> Result<&File, PolicyError> {
        match &self.source {
            Source::Disk(file) => Ok(file),
            Source::Program(_) => Err(self.cut()),
        }
    }

    /// So many bytes from a place on, which have to be inside.
    pub(crate) fn read(&self, start: u64, length: usize) -> Result<Vec<u8>, PolicyError> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.size) {
            return Err(self.cut());
        }
        let mut part = vec![0u8; length];
        self.read_into(start, &mut part)?;
        Ok(part)
    }

    /// Fills a buffer from a place on. Several threads may read at once.
    pub(crate) fn read_into(&self, start: u64, part: &mut [u8]) -> Result<(), PolicyError> {
        match &self.source {
            Source::Disk(file) => {
                read_at(file, start, part).map_err(|source| PolicyError::File { path: self.path.clone(), source })
            }
            Source::Program(bytes) => {
                let start = usize::try_from(start).map_err(|_| self.cut())?;
                let found = bytes.get(start..).and_then(|rest| rest.get(..part.len()));
                part.copy_from_slice(found.ok_or_else(|| self.cut())?);
                Ok(())
            }
        }
    }

    fn cut(&self) -> PolicyError {
        PolicyError::File { path: self.path.clone(), source: std::io::ErrorKind::UnexpectedEof.into() }
    }
}

#[cfg(unix)]
fn read_at(file: &File, start: u64, part: &mut [u8]) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, part, start)
}

#[cfg(windows)]
fn read_at(file: &File, mut start: u64, mut part: &mut [u8]) -> std::io::Result<()> {
    while !part.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, part, start)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => {
                part = &mut part[count..];
                start += count as u64;
            }
        }
    }
    Ok(())
}
