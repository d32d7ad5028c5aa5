//! What the tests share.

use std::{
    fs,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use lemon_sandbox::{Containment, ProgramFailure, Sandbox, SandboxError, SandboxLimits, SandboxVerdict, TestedProgram};

/// The sandbox, or nothing where the machine cannot isolate; then the tests say so and check nothing.
pub fn sandbox() -> Option<&'static Sandbox> {
    static SANDBOX: OnceLock<Option<Sandbox>> = OnceLock::new();
    SANDBOX
        .get_or_init(|| match Sandbox::new(Containment::Isolated) {
            Ok(sandbox) => Some(sandbox),
            Err(error @ (SandboxError::Unavailable { .. } | SandboxError::Python { .. })) => {
                // A machine that is meant to isolate must not skip silently.
                assert!(std::env::var_os("LEMON_REQUIRE_SANDBOX").is_none(), "{error}");
                eprintln!("skipped: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        })
        .as_ref()
}

/// Short limits, for programs that run into them.
pub fn limits() -> SandboxLimits {
    SandboxLimits { wall: Duration::from_secs(20), cpu_s: 2, memory_bytes: 256 << 20, ..SandboxLimits::default() }
}

/// A program with a function `f` that should double its argument.
pub fn doubling(code: &str) -> TestedProgram {
    TestedProgram {
        prompt_and_code: code.into(),
        test: "def check(candidate):\n    assert True\n    assert candidate(1) == 2\n    assert candidate(21) == 42\n"
            .into(),
        entry_point: "f".into(),
        prompt: "def f(x):\n    \"\"\"Twice x.\"\"\"\n".into(),
    }
}

/// While it is held, no other test of this program runs anything.
pub fn alone() -> MutexGuard<'static, ()> {
    // Making the sandbox runs programs too.
    sandbox();
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a program while nothing else runs, and sees that nothing is left of it.
pub fn run(program: &TestedProgram, limits: &SandboxLimits) -> Option<SandboxVerdict> {
    let sandbox = sandbox()?;
    let _alone = alone();
    let verdict = sandbox.run_python(program, limits).unwrap();
    assert_nothing_left();
    Some(verdict)
}

/// Runs `code` and compares how it fails, or None for a pass.
pub fn check(code: &str, expected: Option<ProgramFailure>) {
    if let Some(verdict) = run(&doubling(code), &limits()) {
        assert_eq!(verdict.failure(), expected, "{code}\n{verdict:?}");
    }
}

/// Runs `code`, which must not pass; how it fails may depend on the version of Python.
pub fn check_fails(code: &str) {
    if let Some(verdict) = run(&doubling(code), &limits()) {
        assert!(!verdict.passed(), "{code}\n{verdict:?}");
    }
}

/// As `check`, for a body that tries something before it returns the right answer.
pub fn check_before_answer(body: &str, expected: Option<ProgramFailure>) {
    let body: String = body.lines().map(|line| format!("    {line}\n")).collect();
    check(&format!("import os, sys\ndef f(x):\n{body}    return 2 * x\n"), expected);
}

/// No process of ours is alive, and no directory of ours is left.
pub fn assert_nothing_left() {
    assert_eq!(what_is_left(), Vec::<String>::new());
}

/// Our processes that are alive, and our directories.
pub fn what_is_left() -> Vec<String> {
    let label = format!("lemon-sandbox:{}:", std::process::id());
    let mut left: Vec<String> = command_lines().into_iter().filter(|command| command.contains(&label)).collect();
    // The first process of a namespace shows our own command line; it would be our child.
    for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        left.extend(children.split_whitespace().map(|child| format!("the child {child}")));
    }
    let directories = fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    let names = directories.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let ours = format!("lemon-sandbox-{}-", std::process::id());
    left.extend(names.filter(|name| name.starts_with(&ours)));
    left
}

/// Of all processes.
pub fn command_lines() -> Vec<String> {
    let commands = fs::read_dir("/proc").unwrap().flatten().map(|entry| fs::read(entry.path().join("cmdline")));
    commands.flatten().map(|command| String::from_utf8_lossy(&command).into_owned()).collect()
}
