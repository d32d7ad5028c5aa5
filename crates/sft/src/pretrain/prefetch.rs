//! Blocks of lessons that several threads generate ahead of time and one thread takes in order.

use super::lesson_stream::{BLOCK, LessonStream, LessonTokens};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

/// Blocks that a thread has ready before it waits.
const READY: usize = 4;

/// The lessons of a stream from some number on. With n threads, each generates every n-th block and sends it through a queue of its
/// own. This keeps the order, and bounds the number of blocks in memory.
pub struct Prefetcher {
    queues: Vec<Receiver<Vec<LessonTokens>>>,
    /// The queue that has the next block.
    next: usize,
    /// Lessons of the block that was taken last.
    taken: VecDeque<LessonTokens>,
}

impl Prefetcher {
    /// Starts with lesson number `first`.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn new(stream: Arc<LessonStream>, first: u64, threads: usize) -> std::io::Result<Self> {
        let (block, skipped) = (first / BLOCK as u64, first % BLOCK as u64);
        let threads = threads.max(1);
        let mut queues = Vec::with_capacity(threads);
        for thread in 0..threads {
            let (sender, queue) = sync_channel(READY);
            let stream = stream.clone();
            let mut blocks = (block + thread as u64..).step_by(threads);
            // Ends when the receiver is dropped.
            let work = move || while blocks.next().is_some_and(|block| sender.send(stream.block(block)).is_ok()) {};
            std::thread::Builder::new().name(format!("lessons-{thread}")).spawn(work)?;
            queues.push(queue);
        }
        let mut prefetcher = Prefetcher { queues, next: 0, taken: VecDeque::new() };
        for _ in 0..skipped {
            prefetcher.next();
        }
        Ok(prefetcher)
    }
}

impl Iterator for Prefetcher {
    type Item = LessonTokens;

    /// `None` only if a thread died.
    fn next(&mut self) -> Option<LessonTokens> {
        while self.taken.is_empty() {
            self.taken = self.queues.get(self.next)?.recv().ok()?.into();
            self.next = (self.next + 1) % self.queues.len();
        }
        self.taken.pop_front()
    }
}
