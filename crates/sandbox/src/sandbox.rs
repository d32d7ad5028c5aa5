use std::path::Path;

use crate::{SandboxError, SandboxLimits, SandboxVerdict, TestedProgram, python::Interpreter};

/// How programs are kept from doing harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Containment {
    /// Everything described in the [crate documentation](crate), or nothing is run. Linux only.
    #[default]
    Isolated,
    /// Limits on resources and time, and nothing else: the program can read and write whatever you can, talk to the
    /// network, and cheat. For machines where isolation is impossible and programs that are trusted.
    UnsafeNoSandbox,
}

impl Containment {
    /// Isolation, unless the user asked for none.
    pub fn unless(unsafe_no_sandbox: bool) -> Self {
        if unsafe_no_sandbox { Containment::UnsafeNoSandbox } else { Containment::Isolated }
    }
}

/// Runs programs. Cheap to share between threads; runs are independent of each other.
#[derive(Debug)]
pub struct Sandbox {
    #[cfg_attr(not(unix), expect(dead_code, reason = "nothing can be run there"))]
    backend: Backend,
}

#[derive(Debug)]
pub(crate) enum Backend {
    #[cfg(target_os = "linux")]
    Isolated(crate::linux::Isolation),
    #[cfg_attr(not(unix), expect(dead_code, reason = "nothing can be run there"))]
    Bare(Interpreter),
}

impl Sandbox {
    /// A sandbox around the `python3` on the search path.
    ///
    /// # Errors
    /// Unless a first program was run here and found itself contained, an error that names the missing part.
    pub fn new(policy: Containment) -> Result<Self, SandboxError> {
        Self::with_python(policy, Path::new("python3"))
    }

    /// The same around another interpreter. A shim or virtual environment is resolved to the program behind it.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_python(policy: Containment, python: &Path) -> Result<Self, SandboxError> {
        match policy {
            Containment::UnsafeNoSandbox => Ok(Self { backend: Backend::Bare(Interpreter::find(python)?) }),
            #[cfg(target_os = "linux")]
            Containment::Isolated => {
                let isolation = crate::linux::Isolation::new(&Interpreter::find(python)?)?;
                let sandbox = Self { backend: Backend::Isolated(isolation) };
                sandbox.prove_containment()?;
                Ok(sandbox)
            }
            #[cfg(not(target_os = "linux"))]
            Containment::Isolated => Err(SandboxError::Unavailable {
                what: "Linux".into(),
                hint: "the namespaces, Landlock and seccomp that isolate a program exist only there".into(),
            }),
        }
    }

    /// Runs a program against its test. Blocks until the verdict, no longer than [`SandboxLimits::wall`] and a moment; from
    /// asynchronous code, call it on a thread for blocking work.
    ///
    /// # Errors
    /// Only for reasons that lie with this machine. Whatever the program does is a [`SandboxVerdict`].
    #[cfg(unix)]
    pub fn run_python(&self, program: &TestedProgram, limits: &SandboxLimits) -> Result<SandboxVerdict, SandboxError> {
        crate::run::run(&self.backend, program, limits)
    }

    /// Runs a program for what it prints. Blocks as [`run_python`](Self::run_python) does.
    ///
    /// # Errors
    /// Only for reasons that lie with this machine.
    #[cfg(unix)]
    pub fn run_script(&self, source: &str, limits: &SandboxLimits) -> Result<crate::ScriptOutput, SandboxError> {
        crate::script::run(&self.backend, source, limits)
    }

    /// Not possible on this system.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(unix))]
    pub fn run_python(&self, _: &TestedProgram, _: &SandboxLimits) -> Result<SandboxVerdict, SandboxError> {
        Err(SandboxError::Unavailable {
            what: "Unix".into(),
            hint: "processes cannot be limited on this system".into(),
        })
    }

    /// Runs a program that tries the walls. What the kernel promised but does not keep is found here, not later.
    #[cfg(target_os = "linux")]
    fn prove_containment(&self) -> Result<(), SandboxError> {
        let program = TestedProgram {
            prompt_and_code: include_str!("py/contained.py").into(),
            test: "def check(candidate):\n    open_walls = candidate()\n    assert not open_walls, open_walls\n".into(),
            entry_point: "open_walls".into(),
            prompt: String::new(),
        };
        // Generous: the machine may be busy, and this must not fail for that.
        let limits = SandboxLimits { wall: std::time::Duration::from_secs(30), ..SandboxLimits::default() };
        match self.run_python(&program, &limits)? {
            SandboxVerdict::Passed => Ok(()),
            SandboxVerdict::Failed { kind, detail, stderr } => Err(SandboxError::Unavailable {
                what: "containment".into(),
                hint: format!("the first program run to prove it failed: {kind:?} {detail} {stderr}"),
            }),
        }
    }
}
