//! A process with limits on its resources, and no isolation.
#![allow(unsafe_code)] // what the child does between fork and exec: async-signal-safe system calls only

use std::{
    fs, io, mem,
    os::{
        fd::{AsRawFd, RawFd},
        unix::process::CommandExt,
    },
    process::{Child, Command},
};

use tempfile::TempDir;

use crate::{
    SandboxError, SandboxLimits,
    fds::{check, install},
    process::{End, Launch},
    python::{FLAGS, Interpreter},
};

/// The process, and the directory it was started in, which goes with it.
pub(crate) struct Bare {
    child: Child,
    _box: TempDir,
}

impl Bare {
    pub fn start(interpreter: &Interpreter, launch: &Launch<'_>) -> Result<Self, SandboxError> {
        let dir = tempfile::Builder::new()
            .prefix(&format!("lemon-sandbox-{}-", std::process::id()))
            .tempdir()
            .map_err(SandboxError::io("create a directory for the program"))?;
        for (name, content) in launch.files {
            fs::write(dir.path().join(name), content).map_err(SandboxError::io("write the program"))?;
        }
        let script = launch.files.first().map(|(name, _)| dir.path().join(name)).unwrap_or_default();
        let mut command = Command::new(&interpreter.executable);
        command.args(FLAGS).arg(script).arg(dir.path()).arg(launch.label);
        command.env_clear().current_dir(dir.path());
        let fds: Vec<RawFd> = launch.fds.iter().map(AsRawFd::as_raw_fd).collect();
        let limits = rlimits(launch.limits);
        // SAFETY: the closure makes system calls on data prepared before; it does not allocate. The numbers it takes
        // are in use by then, by ourselves or by these descriptors, so not by the pipe on which `spawn` awaits an
        // error.
        unsafe {
            command.pre_exec(move || {
                check(libc::setsid()).and_then(|_| install(&fds)).map_err(io::Error::from_raw_os_error)?;
                set_rlimits(&limits).map_err(io::Error::from_raw_os_error)
            });
        }
        let child = command.spawn().map_err(SandboxError::io("start the interpreter"))?;
        Ok(Self { child, _box: dir })
    }

    pub fn ended(&mut self) -> Result<Option<End>, SandboxError> {
        // Only looked at, not waited for: its number must stay its own until the group was killed.
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: an all-zero `siginfo_t` is valid, and a live one is handed over.
        let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
        check(unsafe { libc::waitid(libc::P_PID, self.child.id(), &mut info, flags) })
            .map_err(io::Error::from_raw_os_error)
            .map_err(SandboxError::io("wait for the program"))?;
        // SAFETY: these fields are set for an ended child, and are zero where there is none.
        let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
        Ok(match (pid, info.si_code) {
            (0, _) => None,
            (_, libc::CLD_EXITED) => Some(End::Exited(status)),
            _ => Some(End::Signalled(status)),
        })
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        if let Ok(group) = i32::try_from(self.child.id()) {
            // SAFETY: concerns no memory. It is the group that the child made for itself; a failure means it is empty.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
        // Fails only for a child that was waited for already.
        let _ = self.child.wait();
    }
}

/// A limit on a resource: soft and hard value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rlimit {
    resource: Resource,
    soft: u64,
    hard: u64,
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
type Resource = libc::c_int;

/// Tasks besides [`SandboxLimits::processes`]: a solution may use a few threads.
const SPARE_TASKS: u64 = 16;

pub(crate) fn rlimits(limits: &SandboxLimits) -> [Rlimit; 7] {
    let at_most = |resource, value| Rlimit { resource, soft: value, hard: value };
    [
        at_most(libc::RLIMIT_AS, limits.memory_bytes),
        // The soft limit says what happened (SIGXCPU), the hard one ends a program that ignores it.
        Rlimit { resource: libc::RLIMIT_CPU, soft: limits.cpu_s.max(1), hard: limits.cpu_s.max(1).saturating_add(1) },
        at_most(libc::RLIMIT_NPROC, u64::from(limits.processes).saturating_add(SPARE_TASKS)),
        at_most(libc::RLIMIT_FSIZE, limits.file_bytes),
        at_most(libc::RLIMIT_NOFILE, 64),
        at_most(libc::RLIMIT_CORE, 0),
        at_most(libc::RLIMIT_STACK, 8 << 20),
    ]
}

/// In a child: sets the limits, never above what it already has. Neither allocates nor panics.
pub(crate) fn set_rlimits(limits: &[Rlimit]) -> Result<(), i32> {
    for limit in limits {
        let mut value = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: both calls are given a live `rlimit`.
        check(unsafe { libc::getrlimit(limit.resource, &mut value) })?;
        value.rlim_max = value.rlim_max.min(limit.hard as libc::rlim_t);
        value.rlim_cur = value.rlim_max.min(limit.soft as libc::rlim_t);
        check(unsafe { libc::setrlimit(limit.resource, &value) })?;
    }
    Ok(())
}
