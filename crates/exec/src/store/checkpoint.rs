//! Moves the write-ahead log into the file, on a thread and a connection of its own: moving flushes the disk, which takes
//! milliseconds, and a run that waits for a commit must not wait for that.
//!
//! The log begins anew only where a move has reached its end, which a writer that never pauses prevents. So when a long log has
//! been moved, the writer pauses once, for a second move: that of what was written during the first.

use super::StoreError;
use rusqlite::Connection;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Bytes written between two moves: each flushes the disk, and meanwhile commits may wait for the file system.
const EVERY: usize = 32 << 20;
/// Pages of the log, of 4 KiB, from which the writer waits for a move.
const LONG: i64 = 65_536;

/// A move to make, and who waits for it.
type Move = Option<SyncSender<()>>;

pub struct Checkpointer {
    // `Option` only so that drop can close the channel before it joins the thread.
    wake: Option<SyncSender<Move>>,
    thread: Option<JoinHandle<()>>,
    written: usize,
    every: usize,
    /// The log is long, and nearly all of it has just been moved.
    pause: Arc<AtomicBool>,
}

impl Checkpointer {
    pub fn start(connection: Connection) -> Result<Self, StoreError> {
        Checkpointer::with_lengths(connection, EVERY, LONG)
    }

    fn with_lengths(connection: Connection, every: usize, long: i64) -> Result<Self, StoreError> {
        let (wake, woken) = sync_channel(1);
        let pause = Arc::new(AtomicBool::new(false));
        let of_thread = pause.clone();
        let work = move || move_log(&connection, &woken, &of_thread, long);
        let thread = std::thread::Builder::new().name("checkpoint".into()).spawn(work)?;
        Ok(Checkpointer { wake: Some(wake), thread: Some(thread), written: 0, every, pause })
    }

    /// Notes that so many bytes were written. Called by the one thread that writes, between two commits.
    pub fn note(&mut self, bytes: usize) {
        self.written += bytes;
        let Some(wake) = &self.wake else { return };
        if self.pause.swap(false, Ordering::Relaxed) {
            let (moved, end) = sync_channel(1);
            if wake.send(Some(moved)).is_ok() {
                // An error means that the thread is gone; the log is then moved when the store is closed.
                let _ = end.recv();
            }
        } else if self.written >= self.every {
            self.written = 0;
            // Full means that it is about to move the log anyway.
            let _ = wake.try_send(None);
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

fn move_log(connection: &Connection, woken: &Receiver<Move>, pause: &AtomicBool, long: i64) {
    while let Ok(waits) = woken.recv() {
        let pages = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, i64>(1));
        match waits {
            // Who no longer waits need not be told.
            Some(waits) => drop(waits.send(())),
            // What cannot be moved now is moved the next time, or when the store is closed.
            None => pause.store(pages.is_ok_and(|pages| pages >= long), Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest that the log becomes while 40 MiB are written without a pause.
    fn longest_log(every: usize, long: i64) -> u64 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let writer = Connection::open(&path).unwrap();
        writer
            .execute_batch("PRAGMA wal_autocheckpoint = 0; PRAGMA journal_mode = WAL; CREATE TABLE t (x BLOB)")
            .unwrap();
        let mut checkpointer = Checkpointer::with_lengths(Connection::open(&path).unwrap(), every, long).unwrap();
        let (blob, mut longest) = (vec![7u8; 64 << 10], 0);
        for _ in 0..640 {
            writer.execute("INSERT INTO t VALUES (?1)", [&blob]).unwrap();
            checkpointer.note(blob.len());
            longest = longest.max(std::fs::metadata(folder.path().join("a.db-wal")).unwrap().len());
        }
        longest
    }

    #[test]
    fn a_writer_that_never_pauses_leaves_a_short_log() {
        let longest = longest_log(4 << 20, 256);
        // What is written between two moves, twice, and what the log may have before.
        assert!(longest < 12 << 20, "{longest}");
    }
}
