//! Which system calls a program may make.
//!
//! Two filters, of whose answers the kernel takes the stricter. The first kills at what no honest program does. The
//! second allows what Python needs; everything else does not exist (ENOSYS), so that libraries fall back to what does.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// The filters, in the order to be installed.
pub(super) fn filters(may_fork: bool) -> Result<[BpfProgram; 2], BackendError> {
    Ok([
        filter(killed(may_fork)?, SeccompAction::KillProcess, SeccompAction::Allow)?,
        filter(allowed(may_fork)?, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))?,
    ])
}

/// Calls, each with the rules of which one must hold; none means always.
type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

fn filter(rules: Rules, matched: SeccompAction, other: SeccompAction) -> Result<BpfProgram, BackendError> {
    SeccompFilter::new(rules, other, matched, std::env::consts::ARCH.try_into()?)?.try_into()
}

fn killed(may_fork: bool) -> Result<Rules, BackendError> {
    let mut rules = always(KILLED);
    // The program is the first child of its namespace's init; it may signal itself and no other process.
    for call in [libc::SYS_kill, libc::SYS_tgkill] {
        rules.insert(call, vec![when(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, PROGRAM_PID)?]);
    }
    if !may_fork {
        let no_thread = SeccompCmpOp::MaskedEq(libc::CLONE_THREAD as u64);
        rules.insert(libc::SYS_clone, vec![when(0, SeccompCmpArgLen::Qword, no_thread, 0)?]);
        rules.extend(always(FORKING));
    }
    Ok(rules)
}

fn allowed(may_fork: bool) -> Result<Rules, BackendError> {
    let mut rules = always(ALLOWED);
    rules.extend(always(ALLOWED_ON_ARCH));
    if may_fork {
        rules.extend(always(FORKING));
    }
    let one_of = |argument, values: &[u64]| -> Result<Vec<SeccompRule>, BackendError> {
        values.iter().map(|&value| when(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)).collect()
    };
    // Without any flag for a new namespace. clone3, whose flags a filter cannot see, does not exist.
    let no_namespace = SeccompCmpOp::MaskedEq(NAMESPACES as u64);
    rules.insert(libc::SYS_clone, vec![when(0, SeccompCmpArgLen::Qword, no_namespace, 0)?]);
    rules.insert(libc::SYS_prlimit64, one_of(0, &[0])?);
    rules.insert(libc::SYS_prctl, one_of(0, &[libc::PR_SET_NAME as u64, libc::PR_GET_NAME as u64])?);
    let harmless: [libc::Ioctl; 5] = [libc::TCGETS, libc::TIOCGWINSZ, libc::FIONREAD, libc::FIOCLEX, libc::FIONBIO];
    rules.insert(libc::SYS_ioctl, one_of(1, &harmless.map(|request| u64::from(request as u32)))?);
    Ok(rules)
}

fn always(calls: &[c_long]) -> Rules {
    calls.iter().map(|&call| (call, vec![])).collect()
}

fn when(argument: u8, size: SeccompCmpArgLen, op: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(argument, size, op, value)?])
}

/// The number of the program's process in its namespace.
const PROGRAM_PID: u64 = 2;

const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

#[rustfmt::skip]
const KILLED: &[c_long] = &[
    // Network.
    libc::SYS_socket, libc::SYS_socketpair, libc::SYS_connect, libc::SYS_bind, libc::SYS_listen, libc::SYS_accept,
    libc::SYS_accept4,
    // Other processes.
    libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_process_madvise,
    libc::SYS_kcmp, libc::SYS_pidfd_getfd, libc::SYS_pidfd_send_signal, libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo, libc::SYS_tkill,
    // Namespaces and mounts.
    libc::SYS_unshare, libc::SYS_setns, libc::SYS_mount, libc::SYS_umount2, libc::SYS_pivot_root, libc::SYS_chroot,
    libc::SYS_fsopen, libc::SYS_fsconfig, libc::SYS_fsmount, libc::SYS_fspick, libc::SYS_open_tree,
    libc::SYS_move_mount, libc::SYS_mount_setattr, libc::SYS_name_to_handle_at, libc::SYS_open_by_handle_at,
    // The kernel and the machine.
    libc::SYS_bpf, libc::SYS_perf_event_open, libc::SYS_userfaultfd, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register, libc::SYS_add_key, libc::SYS_request_key, libc::SYS_keyctl, libc::SYS_init_module,
    libc::SYS_finit_module, libc::SYS_delete_module, libc::SYS_kexec_load, libc::SYS_reboot, libc::SYS_swapon,
    libc::SYS_swapoff, libc::SYS_syslog, libc::SYS_acct, libc::SYS_quotactl, libc::SYS_fanotify_init,
    libc::SYS_settimeofday, libc::SYS_clock_settime, libc::SYS_adjtimex, libc::SYS_clock_adjtime, libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

#[rustfmt::skip]
const ALLOWED: &[c_long] = &[
    // Files: which ones is for the mounts and Landlock to say.
    libc::SYS_openat, libc::SYS_close, libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev,
    libc::SYS_pread64, libc::SYS_pwrite64, libc::SYS_lseek, libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx,
    libc::SYS_statfs, libc::SYS_fstatfs, libc::SYS_faccessat, libc::SYS_faccessat2, libc::SYS_readlinkat,
    libc::SYS_getdents64, libc::SYS_getcwd, libc::SYS_chdir, libc::SYS_fchdir, libc::SYS_mkdirat, libc::SYS_unlinkat,
    libc::SYS_renameat2, libc::SYS_symlinkat, libc::SYS_linkat, libc::SYS_fchmod, libc::SYS_fchmodat,
    libc::SYS_truncate, libc::SYS_ftruncate, libc::SYS_utimensat, libc::SYS_fsync, libc::SYS_fdatasync,
    libc::SYS_copy_file_range, libc::SYS_sendfile, libc::SYS_umask, libc::SYS_flock,
    // Descriptors.
    libc::SYS_dup, libc::SYS_dup3, libc::SYS_fcntl, libc::SYS_pipe2, libc::SYS_ppoll, libc::SYS_pselect6,
    libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait, libc::SYS_eventfd2, libc::SYS_close_range,
    // Memory.
    libc::SYS_brk, libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_mprotect, libc::SYS_madvise,
    // Threads.
    libc::SYS_futex, libc::SYS_set_robust_list, libc::SYS_get_robust_list, libc::SYS_set_tid_address, libc::SYS_rseq,
    libc::SYS_membarrier, libc::SYS_sched_yield, libc::SYS_sched_getaffinity, libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    // Its own process; signals are bound to it by the other filter.
    libc::SYS_execve, libc::SYS_exit, libc::SYS_exit_group, libc::SYS_wait4, libc::SYS_waitid, libc::SYS_kill,
    libc::SYS_tgkill, libc::SYS_getpid, libc::SYS_getppid, libc::SYS_gettid, libc::SYS_getpgid, libc::SYS_getsid,
    libc::SYS_getuid, libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getegid, libc::SYS_getresuid, libc::SYS_getresgid,
    libc::SYS_getgroups, libc::SYS_getpriority, libc::SYS_getrusage, libc::SYS_times, libc::SYS_uname,
    libc::SYS_sysinfo, libc::SYS_getrandom,
    libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend, libc::SYS_rt_sigtimedwait, libc::SYS_sigaltstack, libc::SYS_restart_syscall,
    // Time.
    libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_clock_nanosleep, libc::SYS_nanosleep,
    libc::SYS_gettimeofday, libc::SYS_getitimer, libc::SYS_setitimer,
];

/// Older forms of the same, which newer machines do without.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const ALLOWED_ON_ARCH: &[c_long] = &[
    libc::SYS_open, libc::SYS_creat, libc::SYS_stat, libc::SYS_lstat, libc::SYS_access, libc::SYS_readlink,
    libc::SYS_getdents, libc::SYS_mkdir, libc::SYS_rmdir, libc::SYS_unlink, libc::SYS_rename, libc::SYS_renameat,
    libc::SYS_symlink, libc::SYS_link, libc::SYS_chmod, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat,
    libc::SYS_dup2, libc::SYS_pipe, libc::SYS_poll, libc::SYS_select, libc::SYS_epoll_create, libc::SYS_epoll_wait,
    libc::SYS_eventfd, libc::SYS_getpgrp, libc::SYS_getrlimit, libc::SYS_time, libc::SYS_alarm, libc::SYS_pause,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_ON_ARCH: &[c_long] = &[];

#[cfg(target_arch = "x86_64")]
const FORKING: &[c_long] = &[libc::SYS_fork, libc::SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
const FORKING: &[c_long] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_both_allowed_and_killed_without_a_condition() {
        for may_fork in [false, true] {
            let (killed, allowed) = (killed(may_fork).unwrap(), allowed(may_fork).unwrap());
            let both: Vec<_> =
                killed.iter().filter(|(call, rules)| rules.is_empty() && allowed.contains_key(call)).collect();
            assert!(both.is_empty(), "{both:?}");
            assert!(!allowed.contains_key(&libc::SYS_clone3) && !allowed.contains_key(&libc::SYS_memfd_create));
            filters(may_fork).unwrap();
        }
    }
}
