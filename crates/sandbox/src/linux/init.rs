//! What the new process does between clone and exec.
//!
//! It is a copy of one thread of a process that may have many, so a lock that another thread held is held forever here:
//! nothing in this module allocates, panics, or calls anything of the C library beyond thin wrappers of system calls.
//! Where the C library's wrapper does more (it tells all threads of a change of user), the bare call is made.
//!
//! The first process of the namespaces builds the file system, gives up its rights, starts the program as its child and
//! waits for it. Its end is the end of all.

use std::{ffi::CStr, mem, ptr};

use libc::{c_char, c_int, c_long};
use seccompiler::BpfProgram;

use super::{
    landlock::{self, Access},
    layout::{Entry, OLD_ROOT},
};
use crate::{
    bare::{Rlimit, set_rlimits},
    fds,
};

/// All that the process needs, prepared while allocating was still possible.
pub(super) struct Plan<'a> {
    /// What the program inherits, then where to report, then the leash.
    pub fds: &'a [c_int],
    /// How many of them the program inherits.
    pub inherited: usize,
    /// Whether we were started by root, and are still root until told otherwise.
    pub as_root: bool,
    pub mounts: [&'a [Entry]; 2],
    pub rules: &'a [(std::ffi::CString, Access)],
    /// Version of the Landlock interface.
    pub landlock: u32,
    pub filters: &'a [BpfProgram; 2],
    pub rlimits: [Rlimit; 7],
    pub executable: &'a CStr,
    /// Pointers to strings that live as long, ended by a null.
    pub argv: &'a [*const c_char],
}

/// The user and group that a program runs as.
pub(super) const UNPRIVILEGED: u32 = 65534;

/// A step that can fail, by which the error is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Step {
    Descriptors,
    IdMap,
    Mounts,
    Interpreter,
    Hostname,
    Session,
    Credentials,
    Process,
    Rlimits,
    Landlock,
    Seccomp,
    Exec,
}

impl Step {
    const ALL: [(Self, &str); 12] = [
        (Self::Descriptors, "control of open files"),
        (Self::IdMap, "a user namespace"),
        (Self::Mounts, "a mount namespace"),
        (Self::Interpreter, "the interpreter's files in a mount namespace"),
        (Self::Hostname, "a UTS namespace"),
        (Self::Session, "a session"),
        (Self::Credentials, "giving up privileges"),
        (Self::Process, "a process in a pid namespace"),
        (Self::Rlimits, "resource limits"),
        (Self::Landlock, "Landlock"),
        (Self::Seccomp, "seccomp"),
        (Self::Exec, "the interpreter"),
    ];

    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(step, _)| *step == self).map_or("isolation", |(_, name)| name)
    }
}

/// A step that failed, and the system's error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fail {
    pub step: Step,
    pub errno: i32,
}

impl Fail {
    pub fn errno() -> i32 {
        // SAFETY: the C library's error number of this thread is always there.
        unsafe { *libc::__errno_location() }
    }
}

/// Names the step at which a call failed.
trait At<T> {
    fn at(self, step: Step) -> Result<T, Fail>;
}

impl<T> At<T> for Result<T, i32> {
    fn at(self, step: Step) -> Result<T, Fail> {
        self.map_err(|errno| Fail { step, errno })
    }
}

impl At<c_long> for c_int {
    fn at(self, step: Step) -> Result<c_long, Fail> {
        c_long::from(self).at(step)
    }
}

impl At<c_long> for c_long {
    fn at(self, step: Step) -> Result<c_long, Fail> {
        if self == -1 { Err(Fail { step, errno: Fail::errno() }) } else { Ok(self) }
    }
}

/// Bytes of a report.
pub(super) const REPORT: usize = 8;

/// What is told through the report pipe: the wait status of the program, or why it was never started.
pub(super) struct Report;

impl Report {
    /// None until all of it is there.
    pub fn read(bytes: &[u8]) -> Option<Result<i32, Fail>> {
        let (&tag, rest) = bytes.first_chunk::<REPORT>()?.split_first_chunk::<4>()?;
        let (tag, value) = (i32::from_ne_bytes(tag), i32::from_ne_bytes(*rest.first_chunk()?));
        let failed = Step::ALL.iter().find(|(step, _)| *step as i32 == tag);
        Some(failed.map_or(Ok(value), |(step, _)| Err(Fail { step: *step, errno: value })))
    }

    fn write(fd: c_int, report: Result<i32, Fail>) {
        let (tag, value) = match report {
            Ok(status) => (-1, status),
            Err(Fail { step, errno }) => (step as i32, errno),
        };
        let ([a, b, c, d], [e, f, g, h]) = (tag.to_ne_bytes(), value.to_ne_bytes());
        let bytes = [a, b, c, d, e, f, g, h];
        // SAFETY: the array lives. So short a write to a pipe is whole, or the reader is gone.
        unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
    }
}

/// The life of the first process. Never returns: its end takes the program and all its descendants along.
pub(super) fn run(plan: &Plan<'_>) -> ! {
    let report = plan.inherited as c_int;
    let status = prepare(plan, report + 1).and_then(|()| start(plan, report)).and_then(|program| {
        // Ends of pipes that are held here would keep their readers waiting.
        // SAFETY: concerns descriptors only.
        unsafe { libc::syscall(libc::SYS_close_range, 0, report - 1, 0) };
        wait_for(program)
    });
    Report::write(report, status);
    // SAFETY: ends the process, with nothing of the copied one's to be cleaned up.
    unsafe { libc::_exit(0) }
}

/// Up to where only the program is missing.
fn prepare(plan: &Plan<'_>, leash: c_int) -> Result<(), Fail> {
    fds::install(plan.fds).at(Step::Descriptors)?;
    let past_last = plan.fds.len() as c_int;
    // SAFETY: from here to the end of the function, arguments are numbers or pointers to constants that live.
    unsafe {
        libc::syscall(libc::SYS_close_range, past_last, c_int::MAX, 0).at(Step::Descriptors)?;
        for fd in [leash - 1, leash] {
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC).at(Step::Descriptors)?;
        }
        die_with_parent()?;
        // Our ids mean nothing before the parent has mapped them; then it says so.
        let mut word = 0u8;
        if libc::read(leash, (&raw mut word).cast(), 1) != 1 {
            return Err(Fail { step: Step::IdMap, errno: libc::ESRCH });
        }
        build_root(plan)?;
        libc::sethostname(c"sandbox".as_ptr(), 7).at(Step::Hostname)?;
        libc::setsid().at(Step::Session)?;
        give_up_privileges(plan.as_root)?;
        // A change of user has undone it.
        die_with_parent()?;
        let mut poll = libc::pollfd { fd: leash, events: libc::POLLIN, revents: 0 };
        if libc::poll(&mut poll, 1, 0) != 0 {
            return Err(Fail { step: Step::Process, errno: libc::ESRCH });
        }
    }
    Ok(())
}

fn die_with_parent() -> Result<(), Fail> {
    // SAFETY: concerns no memory.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) }.at(Step::Process).map(|_| ())
}

/// A root file system in memory, with nothing in it but what the plan says.
fn build_root(plan: &Plan<'_>) -> Result<(), Fail> {
    let (nothing, memory) = (ptr::null::<c_char>(), c"tmpfs".as_ptr());
    let hidden = libc::MS_NOSUID | libc::MS_NODEV;
    // SAFETY: strings end with a NUL and live; null pointers are where `mount` ignores the argument.
    unsafe {
        // What is mounted here must not show outside.
        libc::mount(nothing, c"/".as_ptr(), nothing, libc::MS_REC | libc::MS_PRIVATE, ptr::null()).at(Step::Mounts)?;
        libc::mount(memory, c"/tmp".as_ptr(), memory, hidden, c"mode=755".as_ptr().cast()).at(Step::Mounts)?;
        libc::chdir(c"/tmp".as_ptr()).at(Step::Mounts)?;
        libc::umask(0o022);
        // OLD_ROOT, before the new root is one.
        libc::mkdir(c"old".as_ptr(), 0o700).at(Step::Mounts)?;
        libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c"old".as_ptr()).at(Step::Mounts)?;
        libc::chdir(c"/".as_ptr()).at(Step::Mounts)?;
        for entry in plan.mounts.into_iter().flatten() {
            place(entry)?;
        }
        libc::umount2(OLD_ROOT.as_ptr(), libc::MNT_DETACH).at(Step::Mounts)?;
        libc::rmdir(OLD_ROOT.as_ptr()).at(Step::Mounts)?;
    }
    seal(c"/", RDONLY | NOSUID | NODEV, 0)
}

fn place(entry: &Entry) -> Result<(), Fail> {
    let nothing = ptr::null::<c_char>();
    // SAFETY: strings end with a NUL and live; null pointers are where `mount` ignores the argument.
    unsafe {
        match entry {
            Entry::Directory(at) => existing(libc::mkdir(at.as_ptr(), 0o755)),
            Entry::Link { at, to } => existing(libc::symlink(to.as_ptr(), at.as_ptr())),
            Entry::File { at, content } => write_file(at, content),
            Entry::Scratch { at, options } => {
                let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
                let memory = c"tmpfs".as_ptr();
                libc::mount(memory, at.as_ptr(), memory, flags, options.as_ptr().cast()).at(Step::Mounts)?;
                Ok(())
            }
            Entry::Outside { from, at, is_dir } => {
                if *is_dir {
                    existing(libc::mkdir(at.as_ptr(), 0o755))?;
                } else {
                    write_file(at, &[])?;
                }
                let bind = libc::MS_BIND | libc::MS_REC;
                libc::mount(from.as_ptr(), at.as_ptr(), nothing, bind, ptr::null()).at(Step::Interpreter)?;
                // A device is one of the files; it must stay usable.
                let flags = if *is_dir { RDONLY | NOSUID | NODEV } else { RDONLY | NOSUID };
                seal(at, flags, libc::AT_RECURSIVE)
            }
        }
    }
}

fn existing(result: c_int) -> Result<(), Fail> {
    match result.at(Step::Mounts) {
        Err(Fail { errno: libc::EEXIST, .. }) | Ok(_) => Ok(()),
        Err(fail) => Err(fail),
    }
}

fn write_file(at: &CStr, content: &[u8]) -> Result<(), Fail> {
    let mut rest = content;
    // SAFETY: the path ends with a NUL; what is written is within the slice; the descriptor is ours.
    unsafe {
        let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC | libc::O_CLOEXEC;
        let fd = libc::open(at.as_ptr(), flags, 0o644).at(Step::Mounts)? as c_int;
        while !rest.is_empty() {
            let written = libc::write(fd, rest.as_ptr().cast(), rest.len()) as c_long;
            rest = rest.get(written.at(Step::Mounts)? as usize..).unwrap_or_default();
        }
        libc::close(fd);
    }
    Ok(())
}

const RDONLY: u64 = 1;
const NOSUID: u64 = 2;
const NODEV: u64 = 4;

#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Adds to a mount's restrictions. Unlike a remount, it need not repeat those that are there.
fn seal(at: &CStr, set: u64, flags: c_int) -> Result<(), Fail> {
    let attributes = MountAttributes { set, clear: 0, propagation: 0, user_namespace: 0 };
    let size = mem::size_of::<MountAttributes>();
    // SAFETY: the path ends with a NUL, and the structure is of the size given.
    unsafe { libc::syscall(libc::SYS_mount_setattr, libc::AT_FDCWD, at.as_ptr(), flags, &attributes, size) }
        .at(Step::Mounts)?;
    Ok(())
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

fn give_up_privileges(as_root: bool) -> Result<(), Fail> {
    const VERSION_3: u32 = 0x2008_0522;
    let (header, none) = (CapabilityHeader { version: VERSION_3, pid: 0 }, [0u32; 6]);
    // SAFETY: numbers, a null list of length 0, and structures as the kernel knows them: two sets of three words.
    unsafe {
        if as_root {
            libc::syscall(libc::SYS_setgroups, 0, NONE).at(Step::Credentials)?;
            libc::syscall(libc::SYS_setresgid, UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED).at(Step::Credentials)?;
            libc::syscall(libc::SYS_setresuid, UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED).at(Step::Credentials)?;
        }
        libc::syscall(libc::SYS_capset, &header, none.as_ptr()).at(Step::Credentials)?;
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).at(Step::Credentials)?;
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0).at(Step::Credentials)?;
    }
    Ok(())
}

const NONE: *const u8 = ptr::null();

/// Starts the program; its number.
fn start(plan: &Plan<'_>, report: c_int) -> Result<c_int, Fail> {
    // SAFETY: a fork in a process with one thread.
    let program = unsafe { libc::syscall(libc::SYS_clone, c_long::from(libc::SIGCHLD), NONE, NONE, NONE, NONE) }
        .at(Step::Process)?;
    if program != 0 {
        return Ok(program as c_int);
    }
    let Err(fail) = become_program(plan);
    Report::write(report, Err(fail));
    // SAFETY: ends the process.
    unsafe { libc::_exit(127) }
}

fn become_program(plan: &Plan<'_>) -> Result<std::convert::Infallible, Fail> {
    set_rlimits(&plan.rlimits).at(Step::Rlimits)?;
    landlock::restrict(plan.landlock, plan.rules.iter().map(|(path, access)| (path.as_c_str(), *access)))
        .at(Step::Landlock)?;
    // SAFETY: strings and arrays end as `execve` expects and live; the empty set is made by `sigemptyset`.
    unsafe {
        libc::chdir(c"/tmp".as_ptr()).at(Step::Mounts)?;
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL); // fails for those that cannot be caught anyway
        }
        let mut none: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut());
        for filter in plan.filters {
            seccompiler::apply_filter(filter).map_err(|_| Fail::errno()).at(Step::Seccomp)?;
        }
        let no_environment = [ptr::null::<c_char>()];
        libc::execve(plan.executable.as_ptr(), plan.argv.as_ptr(), no_environment.as_ptr()).at(Step::Exec)?;
    }
    // Not reached: execve returns only to say that it failed.
    Err(Fail { step: Step::Exec, errno: 0 })
}

/// Waits for the program, and meanwhile for whatever orphans become ours.
fn wait_for(program: c_int) -> Result<i32, Fail> {
    loop {
        let mut status = 0;
        // SAFETY: the status lives; no usage is asked for.
        let ended = unsafe { libc::syscall(libc::SYS_wait4, -1, &raw mut status, libc::__WALL, NONE) };
        match ended.at(Step::Process) {
            Ok(pid) if pid as c_int == program => return Ok(status),
            Ok(_) | Err(Fail { errno: libc::EINTR, .. }) => {}
            Err(fail) => return Err(fail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fds::{Pipe, Stream};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_report_comes_through() {
        let cases = [Ok(0), Ok(256), Ok(9), Err(Fail { step: Step::Landlock, errno: 38 })];
        for report in cases {
            let pipe = Pipe::new().unwrap();
            Report::write(pipe.write.as_raw_fd(), report);
            let mut stream = Stream::new(pipe.read, REPORT as u64).unwrap();
            stream.take();
            assert_eq!(Report::read(&stream.kept), Some(report));
        }
        assert_eq!(Report::read(&[0; REPORT - 1]), None);
    }
}
