//! Programs that want out, or want to use up the machine.

use std::{fs, time::Duration};

use crate::common::{alone, check, check_before_answer, check_fails, doubling, limits, run, sandbox};
use lemon_sandbox::{ProgramFailure::*, SandboxLimits};

#[test]
fn resources_are_limited() {
    check("while True:\n    pass\n", Some(Timeout));
    check_before_answer("while True: pass", Some(Timeout));
    check_fails("def f(x): return 10 ** 10 ** 9\n");
    check_fails("def f(x): return str(7 ** 4000000)\n");
    check_before_answer(
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        Some(Timeout),
    );
    check_before_answer("[0] * (1 << 40)", Some(MemoryLimit));
    check_before_answer("held = []\nwhile True: held.append(bytearray(1 << 20))", Some(MemoryLimit));
    check_before_answer("held = 'x'\nwhile True: held += held", Some(MemoryLimit));
    check_before_answer("f(x)", Some(Exception));
    check_fails("import sys\nsys.setrecursionlimit(1 << 30)\ndef f(x): return f(x)\n");
    check_fails(
        "import sys\nsys.setrecursionlimit(1 << 30)\nclass A:\n    __repr__ = lambda self: repr(self)\ndef f(x): return repr(A())\n",
    );
    check_fails("def f(x): return eval('(' * 100000)\n");
    check("def f(x): return (i for i in iter(int, 1))\n", Some(AssertionFailed));
    check("def f(x):\n    x = []\n    x.append(x)\n    return x\n", Some(Exception));
    check_before_answer("return 'x' * (9 << 20)", Some(Exception));
}

#[test]
fn output_is_limited() {
    let ten_gigabytes = "chunk = 'x' * (1 << 20)\nfor _ in range(10 << 10): {}";
    check_before_answer(&ten_gigabytes.replace("{}", "print(chunk)"), Some(OutputLimit));
    check_before_answer(&ten_gigabytes.replace("{}", "print(chunk, file=sys.stderr)"), Some(OutputLimit));
    check_before_answer(&ten_gigabytes.replace("{}", "os.write(1, chunk.encode())"), Some(OutputLimit));
    // A little under the limit is fine.
    check_before_answer("os.write(1, b'x' * (500 << 10))", None);
}

#[test]
fn time_is_limited_even_for_the_deaf() {
    let deaf = "import signal, time\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: time.sleep(1000)\n";
    let short = SandboxLimits { wall: Duration::from_millis(700), ..limits() };
    for code in [
        deaf,
        "import threading\nthreading.Event().wait()\n",
        "import os\nos.close(4)\nos.close(3)\nwhile True: pass\n",
    ] {
        let Some(verdict) = run(&doubling(code), &short) else { return };
        assert_eq!(verdict.failure(), Some(Timeout), "{code}");
    }
}

#[test]
fn processes_are_limited() {
    check_before_answer("while True: os.fork()", Some(ForbiddenCall));
    check_before_answer("try:\n    while True: os.fork()\nexcept OSError: pass", Some(ForbiddenCall));
    check_before_answer("os.system('true')", Some(ForbiddenCall));
    check_before_answer("import subprocess; subprocess.run(['true'])", Some(ForbiddenCall));
    check_before_answer(
        "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=[99]).start()",
        Some(Exception),
    );
    check_before_answer(
        "import threading\nt = [threading.Thread(target=print) for _ in range(8)]\n[i.start() for i in t]\n[i.join() for i in t]",
        None,
    );

    let several = SandboxLimits { processes: 4, ..limits() };
    // Left to themselves, deaf to signals and holding the pipes: they go when the program goes.
    let orphans = "import os, time, signal\nfor _ in range(3):\n    if os.fork() == 0:\n        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n        if os.fork() == 0: time.sleep(1000)\n        time.sleep(1000)\n";
    let cases = [
        (format!("{orphans}def f(x): return 2 * x\n"), None),
        (format!("{orphans}os._exit(0)\n"), Some(EarlyExit)),
        ("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n".into(), Some(Timeout)),
        ("import os, time\ndef f(x):\n    n = 0\n    try:\n        while True:\n            if os.fork() == 0: time.sleep(1000)\n            n += 1\n    except BlockingIOError: return 2 * x if n < 25 else n\n".into(), None),
    ];
    for (code, expected) in cases {
        let Some(verdict) = run(&doubling(&code), &several) else { return };
        assert_eq!(verdict.failure(), expected, "{code}\n{verdict:?}");
    }
}

#[test]
fn nothing_outside_can_be_read() {
    let home = std::env::home_dir().unwrap();
    let home = home.display();
    for path in [
        "/etc/shadow",
        "/etc/passwd",
        "/etc/hostname",
        "/proc/self/environ",
        "/proc/1/environ",
        "/proc/self/mem",
        "/dev/sda",
        "/dev/mem",
        "/sys/kernel/notes",
        "/old/etc/passwd",
    ] {
        check_before_answer(&format!("open('{path}', 'rb').read(1)"), Some(Exception));
    }
    for path in [
        "/",
        "/root",
        "/home",
        "/etc",
        "/proc",
        "/proc/self/fd",
        "/proc/1/root",
        "/sys",
        "/dev",
        "/dev/shm",
        "/old",
        "/var",
        "/usr",
        "..",
    ] {
        check_before_answer(&format!("os.listdir('{path}')"), Some(Exception));
    }
    check_before_answer(&format!("os.listdir('{home}')"), Some(Exception));
    check_fails("import os\ndef f(x):\n    os.listdir(os.path.expanduser('~'))\n    return 2 * x\n");
    check_before_answer(&format!("open('{home}/.bashrc')"), Some(Exception));
    check_before_answer(&format!("open('{}')", std::env::current_exe().unwrap().display()), Some(Exception));
    // By way of links made inside.
    for target in
        ["/etc/shadow", "/proc/1/root/etc/shadow", "/proc/self/root/etc/passwd", "../../../../etc/passwd", "/"]
    {
        check_before_answer(
            &format!(
                "os.symlink('{target}', '/tmp/link')\nopen('/tmp/link/etc/passwd' if '{target}' == '/' else '/tmp/link')"
            ),
            Some(Exception),
        );
    }
    check_before_answer("os.chroot('.')", Some(ForbiddenCall));
    check_before_answer("assert not os.environ and os.environb == {}", None);
    check_before_answer("assert sys.stdin.read() == ''", None);
    check_before_answer("import socket; assert socket.gethostname() == 'sandbox'", None);
    check_before_answer(
        "open_fds = []\nfor n in range(64):\n    try: os.fstat(n); open_fds.append(n)\n    except OSError: pass\nassert open_fds == [0, 1, 2, 3, 4], open_fds",
        None,
    );
}

#[test]
fn nothing_outside_can_be_written() {
    let outside = tempfile::tempdir().unwrap();
    let mark = outside.path().join("mark");
    fs::write(&mark, "untouched").unwrap();
    let (dir, mark_path) = (outside.path().display(), mark.display());
    check_before_answer(&format!("open('{dir}/new', 'w')"), Some(Exception));
    check_before_answer(&format!("open('{mark_path}', 'w')"), Some(Exception));
    for path in ["/x", "/etc/x", "/usr/lib/x", "/box/x", "/dev/x", "/lib/x", "/proc/x", "/root/x"] {
        check_before_answer(&format!("open('{path}', 'w')"), Some(Exception));
        check_before_answer(&format!("os.mkdir('{path}')"), Some(Exception));
    }
    for call in [
        "os.chmod('/usr/lib', 0o777)",
        "os.chown('/tmp', 0, 0)",
        "os.chmod('/', 0o777)",
        "os.unlink('/box/program.py')",
        "os.rename('/tmp', '/tnp')",
        "os.utime('/usr/lib')",
        "os.mknod('/tmp/dev', 0o060666, 0x800)",
        "os.mkfifo('/tmp/fifo')",
        "os.link(sys.executable, '/tmp/python')",
        "os.setuid(0)",
        "os.setgid(0)",
        "os.setgroups([0])",
        "os.setxattr('/tmp', 'user.x', b'1')",
        "os.nice(-5)",
        "os.sched_setaffinity(0, [0])",
        "os.memfd_create('x')",
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    ] {
        check_before_answer(call, Some(Exception));
    }
    // What the program writes to /tmp stays in its own /tmp, is not executed, and is limited.
    check_before_answer(
        "open('/tmp/lemon-was-here', 'w').write('x' * 1000)\nassert os.listdir('/tmp') == ['lemon-was-here'] or x > 1\nimport tempfile; tempfile.TemporaryFile().write(b'x')",
        None,
    );
    assert!(
        !std::env::temp_dir().join("lemon-was-here").exists() && !std::path::Path::new("/tmp/lemon-was-here").exists()
    );
    check_before_answer(
        "open('/tmp/a', 'w').write('#!/usr/bin/python3\\n')\nos.chmod('/tmp/a', 0o777)\nos.execv('/tmp/a', ['a'])",
        Some(Exception),
    );
    check_before_answer("with open('/tmp/a', 'wb') as a:\n    while True: a.write(bytes(1 << 20))", Some(Exception));
    check_before_answer(
        "for n in range(64):\n    with open('/tmp/%d' % n, 'wb') as a: a.write(bytes(4 << 20))",
        Some(Exception),
    );
    check_before_answer("for n in range(5000): open('/tmp/%d' % n, 'w').close()", Some(Exception));
    check_before_answer("held = [open('/dev/null') for _ in range(100)]", Some(Exception));
    check_before_answer("open('/dev/null', 'w').write('x')", None);
    assert_eq!(fs::read_to_string(mark).unwrap(), "untouched");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn hostile_system_calls_kill() {
    for socket in [
        "socket.socket()",
        "socket.socket(socket.AF_UNIX)",
        "socket.socketpair()",
        "socket.create_connection(('127.0.0.1', 80))",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
    ] {
        check_before_answer(&format!("import socket\ntry: {socket}\nexcept OSError: pass"), Some(ForbiddenCall));
    }
    // The same by number, since Python has no names for most. x86-64 and ARM number them differently.
    #[cfg(target_arch = "x86_64")]
    for (name, number) in [
        ("socket", 41),
        ("ptrace", 101),
        ("mount", 165),
        ("umount2", 166),
        ("unshare", 272),
        ("setns", 308),
        ("bpf", 321),
        ("keyctl", 250),
        ("kexec_load", 246),
        ("io_uring_setup", 425),
        ("userfaultfd", 323),
        ("perf_event_open", 298),
        ("process_vm_readv", 310),
        ("process_vm_writev", 311),
        ("open_by_handle_at", 304),
        ("pivot_root", 155),
        ("init_module", 175),
        ("reboot", 169),
        ("pidfd_send_signal", 424),
        ("fork", 57),
        ("vfork", 58),
        ("open_tree", 428),
        ("tkill", 200),
    ] {
        let code = format!("import ctypes\nctypes.CDLL(None).syscall({number}, 0, 0, 0, 0, 0)");
        check_before_answer(&code, Some(ForbiddenCall));
        eprintln!("{name} kills");
    }
    // And those that simply are not there: clone3, seccomp, x32's getpid, memfd_create, personality.
    #[cfg(target_arch = "x86_64")]
    for number in [435, 317, 0x4000_0027, 319, 135] {
        let code = format!(
            "import ctypes\nc = ctypes.CDLL(None, use_errno=True)\nassert c.syscall({number}, 0, 0, 0, 0, 0) == -1 and ctypes.get_errno() == 38"
        );
        check_before_answer(&code, None);
    }
    // 32-bit system calls, by which a filter on 64-bit ones might be got round: int 0x80 asking for getpid.
    #[cfg(target_arch = "x86_64")]
    check_before_answer(
        "import ctypes, mmap\nm = mmap.mmap(-1, 4096, prot=7)\nm.write(bytes.fromhex('b814000000cd80c3'))\nctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()",
        Some(ForbiddenCall),
    );
}

#[test]
fn runs_beside_each_other_do_not_disturb_each_other() {
    let Some(sandbox) = sandbox() else { return };
    let _alone = alone();
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..4)
            .map(|n| {
                scope.spawn(move || {
                    (0..4).all(|_| {
                        let code = if n % 2 == 0 { "def f(x): return 2 * x\n" } else { "def f(x): return x\n" };
                        sandbox.run_python(&doubling(code), &limits()).unwrap().passed() == (n % 2 == 0)
                    })
                })
            })
            .collect();
        assert!(runs.into_iter().all(|run| run.join().unwrap()));
    });
}
