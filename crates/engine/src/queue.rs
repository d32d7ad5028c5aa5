//! The queue in front of the scheduler: bounded, and fair between callers.

use crate::api::{CompletionRequest, EngineError, OnText};
use crate::pending::{CompletionSender, PendingCompletion};
use crate::thread_pool::lock;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Requests that wait.
pub(crate) struct RequestQueue {
    lines: Mutex<Lines>,
    more: Condvar,
    most: usize,
}

#[derive(Default)]
struct Lines {
    /// The requests of each caller. The first caller is served next and then goes to the end.
    callers: VecDeque<(u64, VecDeque<Job>)>,
    waiting: usize,
    last_number: u64,
    closed: bool,
    /// Why, if something failed.
    cause: Option<EngineError>,
}

/// A request and where its completion goes.
pub(crate) struct Job {
    number: u64,
    pub(crate) request: CompletionRequest,
    pub(crate) sender: CompletionSender,
    /// Receives each piece of the text.
    pub(crate) on_text: Option<OnText>,
}

/// The result of [`RequestQueue::pop`].
pub(crate) enum Next {
    /// The next request.
    Job(Box<Job>),
    /// No request waits.
    Empty,
    /// The queue is closed.
    Closed,
}

impl RequestQueue {
    pub(crate) fn new(most: usize) -> RequestQueue {
        RequestQueue { lines: Mutex::default(), more: Condvar::new(), most }
    }

    /// Adds a request.
    ///
    /// # Errors
    /// The queue is full or closed.
    pub(crate) fn push(
        self: &Arc<Self>,
        request: CompletionRequest,
        on_text: Option<OnText>,
    ) -> Result<PendingCompletion, EngineError> {
        let mut lines = lock(&self.lines);
        if lines.closed {
            return Err(lines.cause.clone().unwrap_or(EngineError::Closed));
        }
        if lines.waiting >= self.most {
            return Err(EngineError::QueueFull { waiting: lines.waiting });
        }
        lines.last_number += 1;
        lines.waiting += 1;
        let (number, caller) = (lines.last_number, request.caller);
        let (pending, sender) = PendingCompletion::new(Arc::clone(self), number);
        let job = Job { number, request, sender, on_text };
        match lines.callers.iter_mut().find(|(known, _)| *known == caller) {
            Some((_, jobs)) => jobs.push_back(job),
            None => lines.callers.push_back((caller, VecDeque::from([job]))),
        }
        drop(lines);
        self.more.notify_one();
        Ok(pending)
    }

    /// The next request; blocks for one if `wait`.
    pub(crate) fn pop(&self, wait: bool) -> Next {
        let mut lines = lock(&self.lines);
        loop {
            if lines.closed {
                return Next::Closed;
            }
            if let Some((caller, mut jobs)) = lines.callers.pop_front() {
                let job = jobs.pop_front();
                if !jobs.is_empty() {
                    lines.callers.push_back((caller, jobs));
                }
                if let Some(job) = job {
                    lines.waiting -= 1;
                    return Next::Job(Box::new(job));
                }
            } else if !wait {
                return Next::Empty;
            } else {
                lines = self.more.wait(lines).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Removes a request if it still waits.
    pub(crate) fn remove(&self, number: u64) {
        let mut lines = lock(&self.lines);
        let mut gone = None;
        for (_, jobs) in &mut lines.callers {
            if let Some(at) = jobs.iter().position(|job| job.number == number) {
                gone = jobs.remove(at);
            }
        }
        if gone.is_some() {
            lines.waiting -= 1;
            lines.callers.retain(|(_, jobs)| !jobs.is_empty());
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.lines).closed
    }

    pub(crate) fn waiting(&self) -> usize {
        lock(&self.lines).waiting
    }

    /// Refuses further requests and ends those that wait, all with this error.
    pub(crate) fn close_because(&self, error: &EngineError) {
        let mut lines = lock(&self.lines);
        lines.cause.get_or_insert_with(|| error.clone());
        let left = std::mem::take(&mut lines.callers);
        drop(lines);
        for job in left.into_iter().flat_map(|(_, jobs)| jobs) {
            job.sender.send(Err(error.clone()));
        }
        self.close();
    }

    /// Refuses further requests and ends those that wait.
    pub(crate) fn close(&self) {
        let mut lines = lock(&self.lines);
        lines.closed = true;
        lines.waiting = 0;
        // Senders are dropped without the lock: a waker they call may need it.
        let left = std::mem::take(&mut lines.callers);
        drop(lines);
        drop(left);
        self.more.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(queue: &Arc<RequestQueue>, caller: u64, prompt: u32) -> Result<PendingCompletion, EngineError> {
        queue.push(CompletionRequest { caller, ..CompletionRequest::new(vec![prompt], 1) }, None)
    }

    fn served(queue: &RequestQueue) -> Vec<u32> {
        let next = || match queue.pop(false) {
            Next::Job(job) => Some(job.request.prompt[0]),
            Next::Empty | Next::Closed => None,
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn callers_take_turns() {
        let queue = Arc::new(RequestQueue::new(100));
        let asked = [(1, 10), (1, 11), (1, 12), (2, 20), (1, 13), (3, 30), (2, 21)];
        let _pending: Vec<PendingCompletion> =
            asked.iter().map(|(caller, prompt)| ask(&queue, *caller, *prompt).unwrap()).collect();
        assert_eq!(served(&queue), [10, 20, 30, 11, 21, 12, 13]);
    }

    #[test]
    fn a_full_queue_refuses_and_a_dropped_request_makes_room() {
        let queue = Arc::new(RequestQueue::new(2));
        let (first, _second) = (ask(&queue, 1, 1).unwrap(), ask(&queue, 1, 2).unwrap());
        assert_eq!(ask(&queue, 2, 3).err(), Some(EngineError::QueueFull { waiting: 2 }));
        drop(first);
        assert_eq!(queue.waiting(), 1);
        let _third = ask(&queue, 2, 3).unwrap();
        assert_eq!(served(&queue), [2, 3]);
    }

    #[test]
    fn a_closed_queue_ends_all_requests() {
        let queue = Arc::new(RequestQueue::new(2));
        let pending = ask(&queue, 1, 1).unwrap();
        queue.close();
        assert_eq!(pending.wait(), Err(EngineError::Closed));
        assert_eq!(ask(&queue, 1, 1).err(), Some(EngineError::Closed));
        assert!(matches!(queue.pop(true), Next::Closed));
    }

    #[test]
    fn a_failed_device_is_told_to_all() {
        let queue = Arc::new(RequestQueue::new(2));
        let pending = ask(&queue, 1, 1).unwrap();
        let failed = EngineError::Device("the GPU failed".to_owned());
        queue.close_because(&failed);
        assert_eq!(pending.wait(), Err(failed.clone()));
        queue.close();
        assert_eq!(ask(&queue, 1, 1).err(), Some(failed));
        assert!(matches!(queue.pop(true), Next::Closed));
    }
}
