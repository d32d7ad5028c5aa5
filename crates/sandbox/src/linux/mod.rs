//! A process in namespaces of its own.
//!
//! [`Isolation`] is what all runs have in common, made once; [`Jail`] is one process. Everything the new process needs
//! is laid out in a [`Plan`] before it is cloned: see [`init`] for what it then does.
#![allow(unsafe_code)] // system calls that no standard library function makes; each says why it is sound

mod init;
mod landlock;
mod layout;
mod seccomp;

use std::{
    ffi::CString,
    fs::{self, File},
    io::{self, Write},
    mem,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    ptr,
};

use seccompiler::BpfProgram;

use self::{
    init::{Fail, Plan, Step},
    layout::Layout,
};
use crate::{
    SandboxError,
    bare::rlimits,
    fds::{Pipe, Stream},
    process::{End, Launch},
    python::{FLAGS, Interpreter},
};

/// What every isolated process is made of.
#[derive(Debug)]
pub(crate) struct Isolation {
    executable: CString,
    layout: Layout,
    landlock: u32,
    /// One process at a time, or more.
    filters: [[BpfProgram; 2]; 2],
}

impl Isolation {
    /// Looks at what can be told beforehand; the rest shows when the first process is started.
    pub fn new(interpreter: &Interpreter) -> Result<Self, SandboxError> {
        let landlock = landlock::version().map_err(|errno| unavailable(Step::Landlock, errno))?;
        let filters = |may_fork| {
            seccomp::filters(may_fork)
                .map_err(|error| SandboxError::Unavailable { what: "seccomp".into(), hint: error.to_string() })
        };
        Ok(Self {
            executable: c_path(&interpreter.executable)?,
            layout: Layout::new(&interpreter.needs()?)?,
            landlock,
            filters: [filters(false)?, filters(true)?],
        })
    }

    pub fn start(&self, launch: &Launch<'_>) -> Result<Jail, SandboxError> {
        let io = SandboxError::io("open a pipe to the program");
        let (status, leash) = (Pipe::new().map_err(&io)?, Pipe::new().map_err(&io)?);
        let arguments = self.arguments(launch)?;
        let argv: Vec<_> = arguments.iter().map(|arg| arg.as_ptr()).chain([ptr::null()]).collect();
        let fds: Vec<RawFd> = launch.fds.iter().map(AsRawFd::as_raw_fd).collect();
        let own = layout::own(launch.files, launch.limits.file_bytes)?;
        let [one, many] = &self.filters;
        let plan = Plan {
            inherited: fds.len(),
            fds: &[fds.as_slice(), &[status.write.as_raw_fd(), leash.read.as_raw_fd()]].concat(),
            as_root: is_root(),
            mounts: [&self.layout.shared, &own],
            rules: &self.layout.rules,
            landlock: self.landlock,
            filters: if launch.limits.processes > 1 { many } else { one },
            rlimits: rlimits(launch.limits),
            executable: &self.executable,
            argv: &argv,
        };
        let (pid, pidfd) = clone(&plan)?;
        let status = Stream::new(status.read, init::REPORT as u64).map_err(&io)?;
        let mut jail = Jail { pidfd, status, leash: leash.write };
        // From here on, leaving early drops the jail, and that ends the process.
        if let Err(error) = map_ids(pid) {
            // A process that failed before is no longer there to be mapped, but has said why.
            jail.ended()?;
            return Err(unavailable(Step::IdMap, error.raw_os_error().unwrap_or(0)));
        }
        File::from(jail.leash.try_clone().map_err(&io)?).write_all(&[1]).map_err(&io)?;
        Ok(jail)
    }

    fn arguments(&self, launch: &Launch<'_>) -> Result<Vec<CString>, SandboxError> {
        let script = launch.files.first().map(|(name, _)| format!("{}/{name}", layout::BOX)).unwrap_or_default();
        let rest = FLAGS.into_iter().chain([script.as_str(), layout::BOX, launch.label]);
        [Ok(self.executable.clone())].into_iter().chain(rest.map(|arg| c_path(Path::new(arg)))).collect()
    }
}

/// The first process of the namespaces, and through it all others there.
pub(crate) struct Jail {
    pidfd: OwnedFd,
    status: Stream,
    /// Its other end sees when we are gone. Also how the process is told to begin.
    leash: OwnedFd,
}

impl Jail {
    pub fn ended(&mut self) -> Result<Option<End>, SandboxError> {
        if self.status.open {
            self.status.take();
        }
        match init::Report::read(&self.status.kept) {
            Some(Ok(status)) if libc::WIFSIGNALED(status) => Ok(Some(End::Signalled(libc::WTERMSIG(status)))),
            Some(Ok(status)) => Ok(Some(End::Exited(libc::WEXITSTATUS(status)))),
            Some(Err(Fail { step, errno })) => Err(unavailable(step, errno)),
            // It was killed before it could say anything, though not by us.
            None if !self.status.open => Ok(Some(End::Signalled(libc::SIGKILL))),
            None => Ok(None),
        }
    }

    pub fn end_fd(&self) -> Option<RawFd> {
        (self.status.open && self.status.kept.is_empty()).then(|| self.status.fd())
    }
}

impl Drop for Jail {
    fn drop(&mut self) {
        let pidfd = self.pidfd.as_raw_fd();
        // SAFETY: the descriptor is ours; a null `siginfo` is allowed, and an all-zero one valid. When the first
        // process of a pid namespace is killed the kernel kills the others, and lets us wait for it only when they are
        // gone.
        unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, pidfd, libc::SIGKILL, ptr::null::<libc::siginfo_t>(), 0);
            let mut info: libc::siginfo_t = mem::zeroed();
            while libc::waitid(libc::P_PIDFD, pidfd as libc::id_t, &mut info, libc::WEXITED | libc::__WALL) == -1
                && Fail::errno() == libc::EINTR
            {}
        }
    }
}

const NAMESPACES: [(i32, &str); 6] = [
    (libc::CLONE_NEWUSER, "a user namespace"),
    (libc::CLONE_NEWPID, "a pid namespace"),
    (libc::CLONE_NEWNET, "a network namespace"),
    (libc::CLONE_NEWNS, "a mount namespace"),
    (libc::CLONE_NEWIPC, "an IPC namespace"),
    (libc::CLONE_NEWUTS, "a UTS namespace"),
];

/// Starts a process that follows the plan; its number and a descriptor for it.
fn clone(plan: &Plan<'_>) -> Result<(i32, OwnedFd), SandboxError> {
    let flags = NAMESPACES.iter().fold(libc::CLONE_PIDFD, |flags, (flag, _)| flags | flag);
    let mut pidfd: RawFd = -1;
    // Our own signal handlers must not run in the new process; it starts with all signals blocked.
    // SAFETY: both sets live, and all-zero ones are valid.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { mem::zeroed() };
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    // SAFETY: without CLONE_VM this is a fork: the child goes on with a copy of this stack. It runs only `init::run`,
    // which never returns and neither allocates nor takes a lock. No exit signal: no thread that waits for children of
    // another kind reaps this one.
    let pid = unsafe { raw_clone(flags, &mut pidfd) };
    if pid == 0 {
        init::run(plan);
    }
    let errno = Fail::errno();
    // SAFETY: the set is the one that was stored above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut()) };
    if pid < 0 {
        return Err(missing_namespace(errno));
    }
    // SAFETY: the kernel has just stored a new descriptor there, that no other code knows.
    Ok((pid as i32, unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

/// The bare system call, without what the C library does around a fork.
///
/// # Safety
/// As fork in a threaded process: the child may only do what is safe in a signal handler.
unsafe fn raw_clone(flags: i32, pidfd: *mut RawFd) -> libc::c_long {
    // SAFETY: up to the caller; no stack is given, so that no CLONE_VM may be among the flags. The last two arguments,
    // whose order differs between machines, are unused.
    unsafe {
        libc::syscall(
            libc::SYS_clone,
            libc::c_long::from(flags),
            ptr::null::<u8>(),
            pidfd,
            ptr::null::<u8>(),
            ptr::null::<u8>(),
        )
    }
}

/// Finds out which of the namespaces it is that cannot be had.
fn missing_namespace(errno: i32) -> SandboxError {
    let possible = |flag: i32| {
        let mut pidfd: RawFd = -1;
        // SAFETY: the child does nothing but end.
        match unsafe { raw_clone(libc::CLONE_NEWUSER | flag | libc::CLONE_PIDFD, &mut pidfd) } {
            0 => unsafe { libc::_exit(0) },
            pid if pid > 0 => {
                // SAFETY: a new descriptor, known only here. Dropping the jail waits for the child.
                let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
                let waited = Pipe::new()
                    .and_then(|pipe| Ok(Jail { pidfd, status: Stream::new(pipe.read, 0)?, leash: pipe.write }));
                drop(waited);
                true
            }
            _ => false,
        }
    };
    let what = NAMESPACES.iter().find(|(flag, _)| !possible(*flag)).map_or("new namespaces", |(_, name)| name);
    SandboxError::Unavailable { what: what.into(), hint: hint(errno, Step::IdMap) }
}

/// Who the namespace's users are outside. As root, two: root to set everything up, and an unprivileged user to run the program, so
/// that it counts as an ordinary user, to whom the limit on processes applies. Otherwise, ourselves under another name.
fn map_ids(pid: i32) -> io::Result<()> {
    let unprivileged = init::UNPRIVILEGED;
    // SAFETY: these two cannot fail.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let (users, groups) = if is_root() {
        let both = format!("0 0 1\n{unprivileged} {unprivileged} 1\n");
        (both.clone(), both)
    } else {
        fs::write(format!("/proc/{pid}/setgroups"), "deny")?;
        (format!("{unprivileged} {uid} 1\n"), format!("{unprivileged} {gid} 1\n"))
    };
    fs::write(format!("/proc/{pid}/uid_map"), users)?;
    fs::write(format!("/proc/{pid}/gid_map"), groups)
}

fn is_root() -> bool {
    // SAFETY: cannot fail.
    unsafe { libc::geteuid() == 0 }
}

fn unavailable(step: Step, errno: i32) -> SandboxError {
    SandboxError::Unavailable { what: step.name().into(), hint: hint(errno, step) }
}

fn hint(errno: i32, step: Step) -> String {
    let error = io::Error::from_raw_os_error(errno);
    let advice = match step {
        Step::Landlock => "Linux 5.13 or later with landlock among its security modules is needed",
        Step::Seccomp => "a kernel with CONFIG_SECCOMP_FILTER is needed",
        Step::Exec => "the interpreter cannot be started inside",
        _ => {
            "see the settings user.max_user_namespaces, kernel.unprivileged_userns_clone and \
             kernel.apparmor_restrict_unprivileged_userns; a container may need to be allowed to create namespaces"
        }
    };
    format!("{error}; {advice}")
}

fn c_path(path: &Path) -> Result<CString, SandboxError> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|error| SandboxError::Io { doing: "use a path with a NUL in it", source: error.into() })
}
