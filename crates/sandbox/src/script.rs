//! One program, run for what it prints: no test, no judge.

use std::{
    fs::File,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use crate::{
    SandboxError, SandboxLimits,
    fds::{Pipe, Stream, wait},
    process::{End, Launch, Process},
    run::{label, printable},
    sandbox::Backend,
};

/// What a program printed, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptOutput {
    /// How it ended.
    pub end: ScriptEnd,
    /// Standard output, up to [`SandboxLimits::output_bytes`]; control characters are replaced.
    pub stdout: String,
    /// Standard error, likewise. It ends with the exception, if there was one.
    pub stderr: String,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptEnd {
    /// By itself, with this status: 0 is success, 1 an exception.
    Exited(i32),
    /// It reached its wall-clock or CPU limit.
    Timeout,
    /// It printed more than it may.
    OutputLimit,
    /// It made a system call that no honest program makes.
    ForbiddenCall,
    /// This signal killed it.
    Killed(i32),
}

/// Runs a program. Its process is gone when this returns, however it does.
pub(crate) fn run(backend: &Backend, source: &str, limits: &SandboxLimits) -> Result<ScriptOutput, SandboxError> {
    let started = Instant::now();
    let io = SandboxError::io("open a pipe to the program");
    let nothing = File::open("/dev/null").map_err(&io)?;
    let (stdout, stderr) = (Pipe::new().map_err(&io)?, Pipe::new().map_err(&io)?);
    let fds = [nothing.as_fd(), stdout.write.as_fd(), stderr.write.as_fd()];
    let files = [("script.py", include_str!("py/script.py")), ("program.py", source)];
    let mut process = Process::start(backend, &Launch { files: &files, fds: &fds, label: &label(), limits })?;
    // Our copies of the writing ends close, so that the streams end with the program.
    drop((stdout.write, stderr.write));
    let stream = |read| Stream::new(read, limits.output_bytes).map_err(&io);
    let mut streams = [stream(stdout.read)?, stream(stderr.read)?];
    let end = loop {
        let ended = process.ended()?;
        streams.iter_mut().filter(|stream| stream.open).for_each(Stream::take);
        if streams.iter().map(|stream| stream.total).fold(0, u64::saturating_add) > limits.output_bytes {
            break ScriptEnd::OutputLimit;
        }
        // What it printed last may still be in the pipes. A process that it left behind may hold them open: it is not waited for.
        if let Some(end) = ended
            && streams.iter_mut().all(|stream| !stream.open || is_drained(stream))
        {
            break told(end, started.elapsed() >= Duration::from_secs(limits.cpu_s));
        }
        let left = limits.wall.saturating_sub(started.elapsed());
        if left.is_zero() {
            break ScriptEnd::Timeout;
        }
        let most =
            if ended.is_some() || process.end_fd().is_none() { left.min(Duration::from_millis(5)) } else { left };
        // Rounded up, so that the last wait does not become a row of empty ones.
        let timeout_ms = i32::try_from(most.as_millis()).unwrap_or(i32::MAX).saturating_add(1);
        let open = streams.iter().filter(|stream| stream.open).map(Stream::fd);
        wait(open.chain(process.end_fd().filter(|_| ended.is_none())), timeout_ms);
    };
    let [stdout, stderr] = streams.map(|stream| printable(&stream.kept));
    Ok(ScriptOutput { end, stdout, stderr })
}

/// Whether nothing more is in the pipe at this moment.
fn is_drained(stream: &mut Stream) -> bool {
    let before = stream.total;
    stream.take();
    stream.total == before
}

fn told(end: End, out_of_time: bool) -> ScriptEnd {
    match end {
        End::Exited(status) => ScriptEnd::Exited(status),
        End::Signalled(libc::SIGSYS) => ScriptEnd::ForbiddenCall,
        End::Signalled(signal) if signal == libc::SIGXCPU || signal == libc::SIGKILL && out_of_time => {
            ScriptEnd::Timeout
        }
        End::Signalled(signal) => ScriptEnd::Killed(signal),
    }
}
