//! Where a part of the isolation is missing, nothing is run, and the error names the part. And what runs without it.

use std::{
    collections::BTreeMap,
    os::unix::process::CommandExt,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::common::{alone, assert_nothing_left, doubling, limits, sandbox, what_is_left};
use lemon_sandbox::{Containment, ProgramFailure::*, Sandbox, SandboxError, SandboxLimits};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Makes a system call fail, in a thread of its own, and asks for a sandbox there.
fn check_without(call: libc::c_long, flags: i32, expected: &str) {
    let error = thread::spawn(move || {
        let rules = match flags {
            0 => vec![],
            flags => {
                let flags = flags as u64;
                let condition = SeccompCondition::new(0, Qword, MaskedEq(flags), flags).unwrap();
                vec![SeccompRule::new(vec![condition]).unwrap()]
            }
        };
        let errno = SeccompAction::Errno(libc::EPERM as u32);
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let filter = SeccompFilter::new(BTreeMap::from([(call, rules)]), SeccompAction::Allow, errno, arch).unwrap();
        let filter: BpfProgram = filter.try_into().unwrap();
        seccompiler::apply_filter(&filter).unwrap();
        Sandbox::new(Containment::Isolated).unwrap_err()
    });
    let error = error.join().unwrap();
    assert!(matches!(&error, SandboxError::Unavailable { what, .. } if what == expected), "{expected}: {error:?}");
}

#[test]
fn each_missing_part_is_named() {
    if sandbox().is_none() {
        return;
    }
    let _alone = alone();
    let cases = [
        (libc::SYS_clone, libc::CLONE_NEWUSER, "a user namespace"),
        (libc::SYS_clone, libc::CLONE_NEWPID, "a pid namespace"),
        (libc::SYS_clone, libc::CLONE_NEWNET, "a network namespace"),
        (libc::SYS_clone, libc::CLONE_NEWNS, "a mount namespace"),
        (libc::SYS_clone, libc::CLONE_NEWIPC, "an IPC namespace"),
        (libc::SYS_clone, libc::CLONE_NEWUTS, "a UTS namespace"),
        (libc::SYS_mount, 0, "a mount namespace"),
        (libc::SYS_pivot_root, 0, "a mount namespace"),
        (libc::SYS_umount2, 0, "a mount namespace"),
        (libc::SYS_mount_setattr, 0, "a mount namespace"),
        (libc::SYS_sethostname, 0, "a UTS namespace"),
        (libc::SYS_capset, 0, "giving up privileges"),
        (libc::SYS_landlock_create_ruleset, 0, "Landlock"),
        (libc::SYS_landlock_add_rule, 0, "Landlock"),
        (libc::SYS_landlock_restrict_self, 0, "Landlock"),
        (libc::SYS_seccomp, 0, "seccomp"),
        (libc::SYS_prlimit64, 0, "resource limits"),
        (libc::SYS_close_range, 0, "control of open files"),
    ];
    for (call, flags, expected) in cases {
        check_without(call, flags, expected);
        assert_nothing_left();
    }
}

#[test]
fn works_for_ordinary_users_too() {
    // SAFETY: cannot fail.
    #[allow(unsafe_code)]
    let root = unsafe { libc::geteuid() } == 0;
    if !root || sandbox().is_none() {
        eprintln!("skipped: this is for root to try; all other tests run as an ordinary user already");
        return;
    }
    let _alone = alone();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "refusal::as_an_ordinary_user", "--ignored", "--nocapture"]).env("PATH", "/usr/bin:/bin");
    let output = match command.env("HOME", "/nonexistent").current_dir("/").uid(65534).gid(65534).output() {
        Ok(output) => output,
        Err(error) => return eprintln!("skipped: an unprivileged user cannot run this test program: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    eprintln!("{said}");
}

#[test]
#[ignore = "started by works_for_ordinary_users_too"]
fn as_an_ordinary_user() {
    crate::common::check("def f(x): return 2 * x\n", None);
    crate::common::check_before_answer("while True: pass", Some(Timeout));
    crate::common::check_before_answer("open('/etc/passwd')", Some(Exception));
    crate::common::check_before_answer("import socket; socket.socket()", Some(ForbiddenCall));
    crate::common::check_before_answer("os.mkdir('/box/x')", Some(Exception));
    let bomb = "import os, time\ndef f(x):\n    try:\n        while True:\n            if os.fork() == 0: time.sleep(1000)\n    except BlockingIOError: return 2 * x\n";
    let several = SandboxLimits { processes: 4, ..limits() };
    if let Some(verdict) = crate::common::run(&doubling(bomb), &several) {
        assert!(verdict.passed(), "{verdict:?}");
        eprintln!("contained as an ordinary user");
    }
}

#[test]
fn a_killed_parent_leaves_nothing_behind() {
    if sandbox().is_none() {
        return;
    }
    let _alone = alone();
    let this = std::env::current_exe().unwrap();
    let mut parent =
        Command::new(this).args(["--exact", "refusal::as_a_parent_to_be_killed", "--ignored"]).spawn().unwrap();
    let label = format!("lemon-sandbox:{}:", parent.id());
    // Its second run is the one that never ends; the first was the proof of containment.
    let running = || crate::common::command_lines().iter().any(|line| line.contains(&label) && line.contains("worker"));
    let mut seen = 0;
    while seen < 20 {
        seen = if running() { seen + 1 } else { 0 };
        thread::sleep(Duration::from_millis(20));
    }
    parent.kill().unwrap();
    parent.wait().unwrap();
    // The kernel kills at once, but the dying takes a moment; without it they would run on for a minute, and fail.
    while crate::common::command_lines().iter().any(|line| line.contains(&label)) {
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
#[ignore = "started by a_killed_parent_leaves_nothing_behind"]
fn as_a_parent_to_be_killed() {
    let forever = SandboxLimits { wall: Duration::from_secs(60), cpu_s: 60, ..limits() };
    sandbox().unwrap().run_python(&doubling("import time\ntime.sleep(3600)\n"), &forever).unwrap();
    panic!("it was not killed");
}

#[test]
fn without_a_sandbox_there_are_still_limits() {
    let _alone = alone();
    let Ok(sandbox) = Sandbox::new(Containment::UnsafeNoSandbox) else { return eprintln!("skipped: no Python") };
    let ordinary = SandboxLimits { cpu_s: 1, ..limits() };
    let short = SandboxLimits { wall: Duration::from_secs(3), ..ordinary.clone() };
    let cases = [
        ("def f(x): return 2 * x\n", None),
        ("def f(x): return x\n", Some(AssertionFailed)),
        ("import os\ndef f(x): os._exit(0)\n", Some(EarlyExit)),
        ("while True: pass\n", Some(Timeout)),
        ("import time\ntime.sleep(100)\n", Some(Timeout)),
        ("def f(x): return [0] * (1 << 40)\n", Some(MemoryLimit)),
        ("while True: print('x' * 100000)\n", Some(OutputLimit)),
        ("import os\ndef f(x): return 2 * x if not os.environ and os.getsid(0) == os.getpid() else 0\n", None),
        ("import os\nos.kill(os.getpid(), 9)\n", Some(Crashed)),
        // Children of the same group go with it, even when the program itself has gone.
        ("import os, time\nif os.fork() == 0: time.sleep(1000)\ndef f(x): return 2 * x\n", None),
        ("import os, time\nif os.fork() == 0:\n    os.close(4); time.sleep(1000)\nos._exit(0)\n", Some(EarlyExit)),
    ];
    for (code, expected) in cases {
        let limits = if code.contains("sleep(100)") { &short } else { &ordinary };
        let verdict = sandbox.run_python(&doubling(code), limits).unwrap();
        assert_eq!(verdict.failure(), expected, "{code}\n{verdict:?}");
        // Orphans are for the system to reap: give it a moment.
        let began = Instant::now();
        while !what_is_left().is_empty() && began.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_millis(5));
        }
        assert_nothing_left();
    }
}
