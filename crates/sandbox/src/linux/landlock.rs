//! Landlock: the same as the mounts say, said again where the mounts do not matter.
//!
//! Called directly, since the rules are made in the child, where nothing may allocate: the files they are about are on
//! mounts that exist only there.

use std::{ffi::CStr, mem, ptr};

use super::init::Fail;

/// What may be done beneath a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// A directory to read and execute from.
    ReadTree,
    /// A file to read and execute.
    ReadFile,
    /// A device to read and write.
    Device,
    /// A directory to do anything ordinary in, except execute.
    Scratch,
}

/// The version of the kernel's interface; an error number where there is none.
pub(super) fn version() -> Result<u32, i32> {
    const VERSION: u32 = 1;
    // SAFETY: with this flag, no attributes are read.
    let version =
        call(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0usize, VERSION) })?;
    u32::try_from(version).map_err(|_| libc::EOPNOTSUPP)
}

/// From here on, this thread and what comes of it may do nothing with files but what `rules` say, and connect to
/// nothing.
pub(super) fn restrict<'a>(version: u32, rules: impl Iterator<Item = (&'a CStr, Access)>) -> Result<(), i32> {
    let handled = handled(version);
    // Older kernels know a shorter structure.
    let size = match version {
        0..4 => mem::offset_of!(Ruleset, network),
        4..6 => mem::offset_of!(Ruleset, scope),
        _ => mem::size_of::<Ruleset>(),
    };
    let attributes = Ruleset { files: handled, network: NETWORK, scope: SCOPE };
    // SAFETY: the structure lives, and is at least `size` bytes long.
    let ruleset = call(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &attributes, size, 0) })?;
    for (path, access) in rules {
        // SAFETY: the path ends with a NUL, and the structure lives.
        let beneath = call(unsafe { libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC) }.into())?;
        let rule = PathBeneath { allowed: access.bits() & handled, parent: beneath as i32 };
        call(unsafe { libc::syscall(libc::SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &rule, 0) })?;
        // SAFETY: it is ours, and not used again.
        unsafe { libc::close(beneath as i32) };
    }
    // SAFETY: concerns no memory.
    call(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) })?;
    unsafe { libc::close(ruleset as i32) };
    Ok(())
}

fn call(result: libc::c_long) -> Result<libc::c_long, i32> {
    if result == -1 { Err(Fail::errno()) } else { Ok(result) }
}

#[repr(C)]
struct Ruleset {
    files: u64,
    network: u64,
    scope: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

const RULE_PATH_BENEATH: u32 = 1;
/// Binding and connecting TCP, from version 4 on.
const NETWORK: u64 = 0b11;
/// Reaching abstract sockets and signalling processes outside, from version 6 on.
const SCOPE: u64 = 0b11;

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE: u64 = 1 << 4 | 1 << 5;
const MAKE_DIR: u64 = 1 << 7;
const MAKE_REG: u64 = 1 << 8;
const MAKE_SYM: u64 = 1 << 12;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;

impl Access {
    fn bits(self) -> u64 {
        match self {
            Self::ReadTree => EXECUTE | READ_FILE | READ_DIR,
            Self::ReadFile => EXECUTE | READ_FILE,
            Self::Device => READ_FILE | WRITE_FILE,
            Self::Scratch => {
                READ_FILE | WRITE_FILE | READ_DIR | REMOVE | MAKE_DIR | MAKE_REG | MAKE_SYM | REFER | TRUNCATE
            }
        }
    }
}

/// Every right this version can take away: 13 at first, then REFER, TRUNCATE and (version 5) IOCTL_DEV.
fn handled(version: u32) -> u64 {
    let rights = match version {
        0 | 1 => 13,
        2 => 14,
        3 | 4 => 15,
        _ => 16,
    };
    (1 << rights) - 1
}
