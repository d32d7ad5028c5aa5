//! One run: a worker, a judge, two pipes between them, and us watching both.

use std::{
    fs::File,
    os::fd::AsFd,
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use crate::{
    ProgramFailure, SandboxError, SandboxLimits, SandboxVerdict, TestedProgram,
    fds::{Pipe, Stream, wait},
    process::{End, Launch, Process},
    sandbox::Backend,
};

/// Bytes of a verdict that are read; more than a judge writes.
const VERDICT: u64 = 1 << 16;

/// Judges a program. Both processes are gone when this returns, however it does.
pub(crate) fn run(
    backend: &Backend,
    program: &TestedProgram,
    limits: &SandboxLimits,
) -> Result<SandboxVerdict, SandboxError> {
    let mut run = Run::start(backend, program, limits)?;
    let verdict = run.judge()?;
    Ok(match verdict {
        Ok(()) => SandboxVerdict::Passed,
        Err((kind, detail)) => SandboxVerdict::Failed {
            kind,
            detail: printable(detail.as_bytes()),
            stderr: printable(&run.worker.stderr.kept),
        },
    })
}

/// What an administrator sees at the end of a command line of this run.
pub(crate) fn label() -> String {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    format!("lemon-sandbox:{}:{}", process::id(), RUNS.fetch_add(1, Ordering::Relaxed))
}

struct Run<'a> {
    limits: &'a SandboxLimits,
    started: Instant,
    worker: Watched,
    judge: Watched,
    verdict: Stream,
}

/// A process with what it prints.
struct Watched {
    process: Process,
    stdout: Stream,
    stderr: Stream,
}

/// Why a program failed.
type Failure = (ProgramFailure, String);

impl<'a> Run<'a> {
    fn start(backend: &Backend, program: &TestedProgram, limits: &'a SandboxLimits) -> Result<Self, SandboxError> {
        let label = label();
        let started = Instant::now();
        let io = SandboxError::io("open a pipe to the program");
        let (requests, replies, verdict) =
            (Pipe::new().map_err(&io)?, Pipe::new().map_err(&io)?, Pipe::new().map_err(&io)?);
        let start = |files: &[(&str, &str)], channels: &[_]| Watched::start(backend, files, channels, &label, limits);
        let judge = start(
            &[
                ("judge.py", concat!(include_str!("py/codec.py"), include_str!("py/judge.py"))),
                ("prompt.py", &program.prompt),
                ("test.py", &program.test),
                ("entry", &program.entry_point),
            ],
            &[replies.read.as_fd(), requests.write.as_fd(), verdict.write.as_fd()],
        )?;
        let worker = start(
            &[
                ("worker.py", concat!(include_str!("py/codec.py"), include_str!("py/worker.py"))),
                ("program.py", &program.prompt_and_code),
            ],
            &[requests.read.as_fd(), replies.write.as_fd()],
        )?;
        // Our copies of the channels close here, so that each process sees when the other is gone.
        Ok(Self { limits, started, worker, judge, verdict: Stream::new(verdict.read, VERDICT).map_err(&io)? })
    }

    fn judge(&mut self) -> Result<Result<(), Failure>, SandboxError> {
        loop {
            let judge_ended = self.judge.process.ended()?;
            let worker_ended = self.worker.process.ended()?;
            self.take_output();
            if [&self.worker, &self.judge].iter().any(|watched| watched.printed() > self.limits.output_bytes) {
                let detail = format!("more than {} bytes of output", self.limits.output_bytes);
                return Ok(Err((ProgramFailure::OutputLimit, detail)));
            }
            if !self.verdict.open || judge_ended.is_some() {
                match (read_verdict(&self.verdict.kept), worker_ended) {
                    (Some(Told::Passed), _) => return Ok(Ok(())),
                    (Some(Told::Failed(kind, detail)), _) => return Ok(Err((kind, detail))),
                    (Some(Told::WorkerGone), Some(end)) => return Ok(Err(self.early_end(end))),
                    // It closed its channel, and is about to end, or else to be timed out.
                    (Some(Told::WorkerGone), None) => {}
                    (None, _) if self.verdict.open => {} // about to be read
                    (None, _) => return Ok(Err(self.no_verdict(judge_ended))),
                }
            }
            let left = self.limits.wall.saturating_sub(self.started.elapsed());
            if left.is_zero() {
                return Ok(Err((ProgramFailure::Timeout, format!("no verdict after {:?}", self.limits.wall))));
            }
            self.wait(left);
        }
    }

    fn streams(&mut self) -> [&mut Stream; 5] {
        let Self { worker, judge, verdict, .. } = self;
        [&mut worker.stdout, &mut worker.stderr, &mut judge.stdout, &mut judge.stderr, verdict]
    }

    fn take_output(&mut self) {
        self.streams().into_iter().filter(|stream| stream.open).for_each(Stream::take);
    }

    /// Until something happens, or it is time to look whether a process ended that cannot tell us.
    fn wait(&mut self, left: Duration) {
        let ends = [self.worker.process.end_fd(), self.judge.process.end_fd()];
        let told = ends.iter().all(Option::is_some);
        let most = if told { left } else { left.min(Duration::from_millis(5)) };
        // Rounded up, so that the last wait does not become a row of empty ones.
        let timeout_ms = i32::try_from(most.as_millis()).unwrap_or(i32::MAX).saturating_add(1);
        let open: Vec<_> = self.streams().iter().filter(|stream| stream.open).map(|stream| stream.fd()).collect();
        wait(open.into_iter().chain(ends.into_iter().flatten()), timeout_ms);
    }

    /// The worker ended before the test did.
    fn early_end(&self, end: End) -> Failure {
        let out_of_time = self.started.elapsed() >= Duration::from_secs(self.limits.cpu_s);
        match end {
            End::Exited(code) => (
                ProgramFailure::EarlyExit,
                format!("the program ended its process, with status {code}, before the test did"),
            ),
            End::Signalled(libc::SIGSYS) => {
                (ProgramFailure::ForbiddenCall, "the program made a system call that is not allowed".into())
            }
            End::Signalled(signal) if signal == libc::SIGXCPU || (signal == libc::SIGKILL && out_of_time) => {
                (ProgramFailure::Timeout, format!("more than {} s of CPU time", self.limits.cpu_s))
            }
            End::Signalled(signal) => (ProgramFailure::Crashed, format!("killed by signal {signal}")),
        }
    }

    /// The judge ended without a word: the test, or what it had to do with the program's values, was too much for it.
    fn no_verdict(&self, end: Option<End>) -> Failure {
        match end {
            Some(End::Signalled(libc::SIGXCPU)) => {
                (ProgramFailure::Timeout, format!("more than {} s of CPU time in the test", self.limits.cpu_s))
            }
            _ => {
                let said = printable(&self.judge.stderr.kept);
                (ProgramFailure::TestFault, format!("the test ended without a verdict ({end:?}) {said}"))
            }
        }
    }
}

impl Watched {
    fn start(
        backend: &Backend,
        files: &[(&str, &str)],
        channels: &[std::os::fd::BorrowedFd<'_>],
        label: &str,
        limits: &SandboxLimits,
    ) -> Result<Self, SandboxError> {
        let io = SandboxError::io("open a pipe to the program");
        let nothing = File::open("/dev/null").map_err(&io)?;
        let (stdout, stderr) = (Pipe::new().map_err(&io)?, Pipe::new().map_err(&io)?);
        let standard = [nothing.as_fd(), stdout.write.as_fd(), stderr.write.as_fd()];
        let fds = [&standard, channels].concat();
        let process = Process::start(backend, &Launch { files, fds: &fds, label, limits })?;
        Ok(Self {
            process,
            stdout: Stream::new(stdout.read, 0).map_err(&io)?,
            stderr: Stream::new(stderr.read, limits.output_bytes).map_err(&io)?,
        })
    }

    fn printed(&self) -> u64 {
        self.stdout.total.saturating_add(self.stderr.total)
    }
}

/// What a judge says.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Passed,
    Failed(ProgramFailure, String),
    /// How the worker ended says the rest.
    WorkerGone,
}

fn read_verdict(bytes: &[u8]) -> Option<Told> {
    let text = String::from_utf8_lossy(bytes);
    let (kind, detail) = text.split_once('\n')?;
    let failed = |kind| Told::Failed(kind, detail.to_owned());
    Some(match kind {
        "passed" => Told::Passed,
        "gone" => Told::WorkerGone,
        "assertion" => failed(ProgramFailure::AssertionFailed),
        "exception" => failed(ProgramFailure::Exception),
        "syntax" => failed(ProgramFailure::SyntaxError),
        "memory" => failed(ProgramFailure::MemoryLimit),
        "exit" => failed(ProgramFailure::EarlyExit),
        "reply" => failed(ProgramFailure::ForgedReply),
        "test" => failed(ProgramFailure::TestFault),
        _ => return None,
    })
}

/// Text from a program, safe to show: a terminal must not obey it.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let shown = |char: char| if char.is_control() && char != '\n' && char != '\t' { '\u{fffd}' } else { char };
    String::from_utf8_lossy(bytes).chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_read() {
        let failed = |kind, detail: &str| Some(Told::Failed(kind, detail.to_owned()));
        let cases = [
            ("passed\n", Some(Told::Passed)),
            ("passed", None),
            ("", None),
            ("Passed\n", None),
            ("gone\n", Some(Told::WorkerGone)),
            ("assertion\na\nb", failed(ProgramFailure::AssertionFailed, "a\nb")),
            ("syntax\npassed\n", failed(ProgramFailure::SyntaxError, "passed\n")),
        ];
        for (text, told) in cases {
            assert_eq!(read_verdict(text.as_bytes()), told, "{text:?}");
        }
    }

    #[test]
    fn text_is_made_printable() {
        assert_eq!(
            printable(b"a\tb\n\x1b[2Jc\r\x00\xff\xc2\x9b"),
            "a\tb\n\u{fffd}[2Jc\u{fffd}\u{fffd}\u{fffd}\u{fffd}"
        );
    }
}
