//! Moves the write-ahead log into the file, on a thread and a connection of its own: moving flushes the disk, which takes
//! milliseconds, and a run that waits for a commit must not wait for that.

use super::StoreError;
use rusqlite::Connection;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Bytes written between two moves.
const EVERY: usize = 4 << 20;

pub struct Checkpointer {
    // `Option` only so that drop can close the channel before it joins the thread.
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    written: usize,
}

impl Checkpointer {
    pub fn start(connection: Connection) -> Result<Self, StoreError> {
        let (wake, woken) = sync_channel(1);
        let thread =
            std::thread::Builder::new().name("checkpoint".into()).spawn(move || move_log(&connection, &woken))?;
        Ok(Checkpointer { wake: Some(wake), thread: Some(thread), written: 0 })
    }

    /// Notes that so many bytes were written.
    pub fn note(&mut self, bytes: usize) {
        self.written += bytes;
        if self.written >= EVERY
            && let Some(wake) = &self.wake
        {
            self.written = 0;
            // Full means that it is about to move the log anyway.
            let _ = wake.try_send(());
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so; nothing is left to do for it here.
            let _ = thread.join();
        }
    }
}

fn move_log(connection: &Connection, woken: &Receiver<()>) {
    while woken.recv().is_ok() {
        // What cannot be moved now is moved the next time, or when the store is closed.
        let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    }
}
