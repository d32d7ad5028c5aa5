//! The queue before a model: bounded, and fair between callers.

use super::crew::lock;
use super::ticket::{Promise, Ticket};
use super::{Request, ServeError, Tell};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Requests that wait.
pub(super) struct Queue {
    lines: Mutex<Lines>,
    more: Condvar,
    most: usize,
}

#[derive(Default)]
struct Lines {
    /// The requests of each caller. The first caller is served next, and goes to the end with what it has left.
    callers: VecDeque<(u64, VecDeque<Job>)>,
    waiting: usize,
    last_number: u64,
    closed: bool,
}

/// A request, and to whom its reply goes.
pub(super) struct Job {
    number: u64,
    pub(super) request: Request,
    pub(super) promise: Promise,
    /// Is told each piece of the reply.
    pub(super) tell: Option<Tell>,
}

/// What a queue has to give.
pub(super) enum Next {
    /// A request.
    Job(Box<Job>),
    /// None now.
    Empty,
    /// No more ever.
    Closed,
}

impl Queue {
    pub(super) fn new(most: usize) -> Queue {
        Queue { lines: Mutex::default(), more: Condvar::new(), most }
    }

    /// Takes a request in, where there is room.
    pub(super) fn push(self: &Arc<Self>, request: Request, tell: Option<Tell>) -> Result<Ticket, ServeError> {
        let mut lines = lock(&self.lines);
        if lines.closed {
            return Err(ServeError::Closed);
        }
        if lines.waiting >= self.most {
            return Err(ServeError::QueueFull { waiting: lines.waiting });
        }
        lines.last_number += 1;
        lines.waiting += 1;
        let (number, caller) = (lines.last_number, request.caller);
        let (ticket, promise) = Ticket::new(Arc::clone(self), number);
        let job = Job { number, request, promise, tell };
        match lines.callers.iter_mut().find(|(known, _)| *known == caller) {
            Some((_, jobs)) => jobs.push_back(job),
            None => lines.callers.push_back((caller, VecDeque::from([job]))),
        }
        drop(lines);
        self.more.notify_one();
        Ok(ticket)
    }

    /// The next request; waits for one if asked to.
    pub(super) fn pop(&self, wait: bool) -> Next {
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

    /// Takes a request back, if it still waits.
    pub(super) fn remove(&self, number: u64) {
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

    pub(super) fn is_closed(&self) -> bool {
        lock(&self.lines).closed
    }

    pub(super) fn waiting(&self) -> usize {
        lock(&self.lines).waiting
    }

    /// Takes nothing in any more, and lets go of those who wait.
    pub(super) fn close(&self) {
        let mut lines = lock(&self.lines);
        lines.closed = true;
        lines.waiting = 0;
        // Their promises are broken without the lock: whoever is woken may want it.
        let left = std::mem::take(&mut lines.callers);
        drop(lines);
        drop(left);
        self.more.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(queue: &Arc<Queue>, caller: u64, prompt: u32) -> Result<Ticket, ServeError> {
        queue.push(Request { caller, ..Request::new(vec![prompt], 1) }, None)
    }

    fn served(queue: &Queue) -> Vec<u32> {
        let next = || match queue.pop(false) {
            Next::Job(job) => Some(job.request.prompt[0]),
            Next::Empty | Next::Closed => None,
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn callers_take_turns() {
        let queue = Arc::new(Queue::new(100));
        let asked = [(1, 10), (1, 11), (1, 12), (2, 20), (1, 13), (3, 30), (2, 21)];
        let _tickets: Vec<Ticket> =
            asked.iter().map(|(caller, prompt)| ask(&queue, *caller, *prompt).unwrap()).collect();
        assert_eq!(served(&queue), [10, 20, 30, 11, 21, 12, 13]);
    }

    #[test]
    fn a_full_queue_refuses_and_a_dropped_ticket_makes_room() {
        let queue = Arc::new(Queue::new(2));
        let (first, _second) = (ask(&queue, 1, 1).unwrap(), ask(&queue, 1, 2).unwrap());
        assert_eq!(ask(&queue, 2, 3).err(), Some(ServeError::QueueFull { waiting: 2 }));
        drop(first);
        assert_eq!(queue.waiting(), 1);
        let _third = ask(&queue, 2, 3).unwrap();
        assert_eq!(served(&queue), [2, 3]);
    }

    #[test]
    fn a_closed_queue_lets_everybody_go() {
        let queue = Arc::new(Queue::new(2));
        let ticket = ask(&queue, 1, 1).unwrap();
        queue.close();
        assert_eq!(ticket.wait(), Err(ServeError::Closed));
        assert_eq!(ask(&queue, 1, 1).err(), Some(ServeError::Closed));
        assert!(matches!(queue.pop(true), Next::Closed));
    }
}
