//! The file system a program sees.

use std::{
    collections::BTreeSet,
    ffi::{CStr, CString, OsStr},
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::{c_path, landlock::Access};
use crate::SandboxError;

/// Where a program finds its files.
pub(super) const BOX: &str = "/box";

/// Where, while the new root is set up, the old one is.
pub(super) const OLD_ROOT: &CStr = c"/old";

/// One thing to put into the new root. Each path is as the program will see it.
#[derive(Debug)]
pub(super) enum Entry {
    /// A directory, unless it is there.
    Directory(CString),
    /// A link, as outside.
    Link { at: CString, to: CString },
    /// A directory or file from outside, read-only.
    Outside { from: CString, at: CString, is_dir: bool },
    /// A file with this content.
    File { at: CString, content: Vec<u8> },
    /// An empty directory in memory, with options for its file system.
    Scratch { at: CString, options: CString },
}

/// What all programs see, and what they may do there.
#[derive(Debug)]
pub(super) struct Layout {
    pub shared: Vec<Entry>,
    pub rules: Vec<(CString, Access)>,
}

/// Where the dynamic loader looks for itself and for libraries.
const LOADER: [&str; 5] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache"];

impl Layout {
    pub fn new(needs: &[PathBuf]) -> Result<Self, SandboxError> {
        let mut layout = Self { shared: Vec::new(), rules: Vec::new() };
        let (links, paths) = exposed(needs).map_err(SandboxError::io("look at the interpreter's files"))?;
        for (at, to) in links {
            layout.parents(&at)?;
            layout.shared.push(Entry::Link { at: c_path(&at)?, to: c_path(&to)? });
        }
        for path in paths {
            let access = if path.is_dir() { Access::ReadTree } else { Access::ReadFile };
            layout.expose(&path, access)?;
        }
        layout.expose(Path::new("/dev/null"), Access::Device)?;
        layout.shared.push(Entry::Directory(c_path(Path::new(BOX))?));
        layout.rules.push((c_path(Path::new(BOX))?, Access::ReadTree));
        layout.rules.push((c_path(Path::new("/tmp"))?, Access::Scratch));
        Ok(layout)
    }

    fn expose(&mut self, path: &Path, access: Access) -> Result<(), SandboxError> {
        self.parents(path)?;
        let from = Path::new(OsStr::from_bytes(OLD_ROOT.to_bytes())).join(path.strip_prefix("/").unwrap_or(path));
        let (from, at) = (c_path(&from)?, c_path(path)?);
        self.shared.push(Entry::Outside { from, at: at.clone(), is_dir: access == Access::ReadTree });
        self.rules.push((at, access));
        Ok(())
    }

    fn parents(&mut self, path: &Path) -> Result<(), SandboxError> {
        let mut parents: Vec<_> = path.ancestors().skip(1).filter(|parent| *parent != Path::new("/")).collect();
        parents.reverse();
        for parent in parents {
            self.shared.push(Entry::Directory(c_path(parent)?));
        }
        Ok(())
    }
}

/// What one program alone has: its files, and a directory to write to.
pub(super) fn own(files: &[(&str, &str)], file_bytes: u64) -> Result<Vec<Entry>, SandboxError> {
    let tmp = c_path(Path::new("/tmp"))?;
    // Zero would mean no limit.
    let options = format!("mode=1777,nr_inodes=1024,size={}", file_bytes.max(4096));
    let mut entries =
        vec![Entry::Directory(tmp.clone()), Entry::Scratch { at: tmp, options: c_path(Path::new(&options))? }];
    for (name, content) in files {
        entries.push(Entry::File { at: c_path(&Path::new(BOX).join(name))?, content: content.as_bytes().to_vec() });
    }
    Ok(entries)
}

/// A link and what it points to.
type Link = (PathBuf, PathBuf);

/// The links and the real files and directories to show. What lies within another is left out, and so is what would
/// show a home directory: an interpreter that needs it will not start, rather than give it away.
fn exposed(needs: &[PathBuf]) -> io::Result<(Vec<Link>, Vec<PathBuf>)> {
    let home = std::env::home_dir();
    let mut links = Vec::new();
    let mut real = BTreeSet::new();
    let loader = LOADER.iter().map(PathBuf::from).filter(|path| path.exists());
    for path in loader.chain(needs.iter().cloned()) {
        if path.is_symlink() {
            links.push((path.clone(), fs::read_link(&path)?));
        }
        let path = path.canonicalize()?;
        let shows_home = home.as_ref().is_some_and(|home| home.starts_with(&path));
        if path != Path::new("/") && !shows_home {
            real.insert(path);
        }
    }
    // In order, a directory comes before what lies in it.
    let mut paths: Vec<PathBuf> = Vec::new();
    for path in real {
        if !paths.iter().any(|parent| path.starts_with(parent)) {
            paths.push(path);
        }
    }
    Ok((links, paths))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_what_is_needed_and_nothing_above_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("lib/inner")).unwrap();
        fs::write(root.join("python"), "").unwrap();
        let needs = [root.join("lib/inner"), root.join("lib"), root.join("python"), PathBuf::from("/")];
        let (_, paths) = exposed(&needs).unwrap();
        let ours: Vec<_> = paths.iter().filter(|path| path.starts_with(&root)).collect();
        assert_eq!(ours, [&root.join("lib"), &root.join("python")]);
        assert!(!paths.contains(&PathBuf::from("/")));
        let home = std::env::home_dir().unwrap();
        let (_, paths) = exposed(std::slice::from_ref(&home)).unwrap();
        assert!(!paths.contains(&home));
    }

    #[test]
    fn an_unlimited_scratch_directory_cannot_be_asked_for() {
        let entries = own(&[], 0).unwrap();
        let [_, Entry::Scratch { options, .. }] = entries.as_slice() else { panic!("{entries:?}") };
        assert!(options.to_str().unwrap().ends_with("size=4096"));
    }
}
