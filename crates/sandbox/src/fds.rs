//! Pipes to our processes, and their place in them.
#![allow(unsafe_code)] // the few calls the standard library has no safe form of

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsRawFd, OwnedFd, RawFd},
};

/// A pipe none of whose ends survives an exec.
pub(crate) struct Pipe {
    pub read: OwnedFd,
    pub write: OwnedFd,
}

impl Pipe {
    pub fn new() -> io::Result<Self> {
        let (read, write) = io::pipe()?;
        Ok(Self { read: read.into(), write: write.into() })
    }
}

/// Reading end of a pipe: keeps the first `keep` bytes and counts the rest.
pub(crate) struct Stream {
    file: File,
    keep: usize,
    pub kept: Vec<u8>,
    pub total: u64,
    pub open: bool,
}

impl Stream {
    pub fn new(fd: OwnedFd, keep: u64) -> io::Result<Self> {
        // SAFETY: the descriptor is ours and open; these flags concern no memory.
        let result = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        if result == -1 {
            return Err(io::Error::last_os_error());
        }
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        Ok(Self { file: fd.into(), keep, kept: Vec::new(), total: 0, open: true })
    }

    /// Takes one helping of what is there. A writer that never pauses must not keep us from looking at the clock.
    pub fn take(&mut self) {
        let mut buffer = [0; 1 << 16];
        match self.file.read(&mut buffer) {
            Ok(0) => self.open = false,
            Ok(count) => {
                self.total = self.total.saturating_add(count as u64);
                let room = self.keep.saturating_sub(self.kept.len());
                self.kept.extend(buffer.iter().take(count.min(room)));
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => self.open = false,
        }
    }

    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// Waits until one of the descriptors can be read or the time is over.
pub(crate) fn wait(fds: impl Iterator<Item = RawFd>, timeout_ms: i32) {
    let mut polled: Vec<_> = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: the pointer and the length are those of a live vector. A failure (a signal) is the same as a timeout
    // here: the caller looks at everything again.
    unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout_ms) };
}

/// The most descriptors a process of ours is given.
pub(crate) const MOST: usize = 8;

/// In a child: moves `fds` to the numbers from 0 on, inherited by what is executed. Neither allocates nor panics.
/// Whatever has those numbers is overwritten, and what else is open stays so.
pub(crate) fn install(fds: &[RawFd]) -> Result<(), i32> {
    // First out of the way of the numbers to be taken, so that none is overwritten before it was moved.
    let mut aside = [-1; MOST];
    for (&fd, aside) in fds.iter().zip(&mut aside) {
        // SAFETY: concerns descriptors only, as the call below.
        *aside = check(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, MOST as RawFd) })?;
    }
    for ((_, aside), number) in fds.iter().zip(aside).zip(0..) {
        check(unsafe { libc::dup2(aside, number) })?;
    }
    Ok(())
}

/// A system call's result, or the error number.
pub(crate) fn check(result: i32) -> Result<i32, i32> {
    if result == -1 { Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_stream_keeps_its_share_and_counts_the_rest() {
        let pipe = Pipe::new().unwrap();
        let mut stream = Stream::new(pipe.read, 3).unwrap();
        stream.take();
        assert_eq!((stream.total, stream.open), (0, true), "nothing there yet, and no blocking");
        let mut writer = File::from(pipe.write);
        writer.write_all(b"hello").unwrap();
        stream.take();
        assert_eq!((stream.kept.as_slice(), stream.total), (b"hel".as_slice(), 5));
        drop(writer);
        stream.take();
        assert!(!stream.open);
    }
}
