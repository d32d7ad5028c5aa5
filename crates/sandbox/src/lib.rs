//! Runs an untrusted Python program against a test and says, honestly, whether it passed.
//!
//! ```no_run
//! use lemon_sandbox::{Containment, Sandbox, SandboxLimits, TestedProgram};
//!
//! let sandbox = Sandbox::new(Containment::Isolated)?; // refuses here if this machine cannot isolate
//! let program = TestedProgram {
//!     prompt_and_code: "def add(a, b):\n    return a + b\n".into(),
//!     test: "def check(candidate):\n    assert candidate(1, 2) == 3\n".into(),
//!     entry_point: "add".into(),
//!     prompt: String::new(),
//! };
//! let verdict = sandbox.run_python(&program, &SandboxLimits::default())?;
//! assert!(verdict.passed());
//! # Ok::<(), lemon_sandbox::SandboxError>(())
//! ```
//!
//! # Who is trusted with what
//!
//! The program is hostile: it wants to harm the machine, to learn its secrets, or to pass without solving the task. The
//! test and the prompt are trusted to mean what they say, but not with the machine: they come from downloaded files,
//! and run in a sandbox of their own.
//!
//! # The verdict
//!
//! A program that shares an interpreter with its test can always pass: it can end the process, print what a passing run
//! prints, rebind `AssertionError`, walk the frames to the test and replace it, or return an object that equals
//! everything. No token hidden in that interpreter stays hidden from it. So the two never meet. Two processes are
//! started, each in namespaces of its own, joined by two pipes:
//!
//! - the **worker** executes the program and answers calls to its functions;
//! - the **judge** executes the test. Its `candidate` is a stand-in that sends the arguments to the worker and gets a
//!   plain value back, as tagged JSON that can name values but no code. Assertions compare the judge's own built-in
//!   values. Its verdict goes to us through a pipe that exists in no other process.
//!
//! The worker can therefore lie only about values, and the one lie that passes is the right answer. Ending the process
//! early, by whatever means, is a failure. So is a test that never calls the program. Helper functions that a test uses
//! besides the entry point (three tasks of HumanEval do) are taken from [`TestedProgram::prompt`], not from the program,
//! which could have redefined them.
//!
//! What follows from this, and differs from running both in one interpreter:
//!
//! - An object whose `__eq__` says yes to everything passes elsewhere and fails here. Subclasses of the built-in types
//!   arrive as the built-in type, iterators as iterators over the same items, functions as functions that can be
//!   called; instances of the program's own classes equal nothing. A test that wants to look into those cannot be
//!   judged.
//! - Arguments are copies. Lists, dictionaries and sets that the program changed are changed in the test too, but the
//!   identity of what is nested in them is lost.
//! - The test cannot hand a function of its own to the program: [`ProgramFailure::TestFault`].
//! - Only the standard library can be imported.
//!
//! # The containment
//!
//! Each of the two processes has its own user, pid, network, mount, IPC and UTS namespaces; a root file system in
//! memory with the interpreter and its libraries mounted read-only, an empty `/tmp` of limited size, `/dev/null`, and
//! nothing else, not even `/proc`; no capabilities and no way to gain any; Landlock rules that repeat what the mounts
//! say, in case those can be got round; an allow-list of system calls; limits on memory, CPU time, tasks and files; no
//! environment, no open file but its pipes, a session of its own, nothing on standard input. Its parent inside the
//! namespace is a process that does nothing but wait, whose end makes the kernel kill everything in the namespace. It
//! ends when the program does, when the wall-clock limit is reached, or when we die. Nothing is written to the
//! machine's disk, so there is nothing to clean up.
//!
//! What no honest solution does (opening a socket, tracing or signalling another process, mounting, creating a process
//! where [`SandboxLimits::processes`] is 1) kills the program at once: [`ProgramFailure::ForbiddenCall`]. Anything else that is
//! not allowed is an error the program sees. A program that tries, say, to read a file outside, catches the error, and
//! then returns the right answer has been contained and has solved the task: it passes.
//!
//! The waiting parent is a copy of our own process and keeps a copy of its memory, as any fork does; what our process
//! writes meanwhile is held twice, and a large process takes longer to copy. The program cannot read it: the copy may
//! not be traced or dumped, and there is no `/proc` and no system call to do it with.
//!
//! # What it does not protect against
//!
//! - Faults of the kernel in the system calls that remain, and of the processor (side channels).
//! - Learning the processor and kernel version, the time, and the contents of the system's library directories.
//! - Using its limits to the full: a run may take its CPU seconds and its memory, twice over (worker and judge), and
//!   for each process where [`SandboxLimits::processes`] is raised.
//! - A test whose inputs give its answers away, or with few enough of them to be answered from memory. A program that
//!   tells its inputs apart and answers each rightly has, to the test, solved the task.
//! - [`Containment::UnsafeNoSandbox`]. There the verdict is reached in the same way, but a program that runs as the same
//!   user outside any namespace can reach the judge, and everything else that is yours.
//!
//! # Dependencies
//!
//! The code between clone and exec runs in a copy of one thread of what may be a threaded process, and must not
//! allocate. That rules out libraries made for comfort there, Landlock's among them; the three Landlock calls are made
//! directly, as are the others, through `libc`. `seccompiler` builds the filter beforehand.

mod error;
mod program;
mod python;

#[cfg(unix)]
mod bare;
#[cfg(unix)]
mod fds;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(unix)]
mod process;
#[cfg(unix)]
mod run;
mod sandbox;
#[cfg(unix)]
mod script;

pub use error::SandboxError;
pub use program::{ProgramFailure, SandboxLimits, SandboxVerdict, TestedProgram};
pub use sandbox::{Containment, Sandbox};
#[cfg(unix)]
pub use script::{ScriptEnd, ScriptOutput};
