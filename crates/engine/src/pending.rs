//! Waiting for a reply, in a thread or in a future.

use super::crew::lock;
use super::queue::Queue;
use super::{Reply, ServeError};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// A reply that is being waited for: a future, or [`Self::wait`] for it. Dropping it takes the request back.
pub struct Ticket {
    slot: Arc<Slot>,
    queue: Arc<Queue>,
    number: u64,
}

/// The other end of a ticket: dropped without a reply, it says that there will be none.
pub(super) struct Promise {
    slot: Arc<Slot>,
}

#[derive(Default)]
struct Slot {
    outcome: Mutex<Outcome>,
    there: Condvar,
    /// Nobody waits any more, or there is an outcome.
    over: AtomicBool,
}

#[derive(Default)]
struct Outcome {
    reply: Option<Result<Reply, ServeError>>,
    waker: Option<Waker>,
}

impl Ticket {
    /// The ticket of a request with this number in a queue, and the promise to keep.
    pub(super) fn new(queue: Arc<Queue>, number: u64) -> (Ticket, Promise) {
        let slot = Arc::new(Slot::default());
        (Ticket { slot: slot.clone(), queue, number }, Promise { slot })
    }

    /// Waits for the reply.
    ///
    /// # Errors
    /// Why there is none.
    pub fn wait(self) -> Result<Reply, ServeError> {
        let mut outcome = lock(&self.slot.outcome);
        loop {
            if let Some(reply) = outcome.reply.take() {
                return reply;
            }
            outcome = self.slot.there.wait(outcome).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Future for Ticket {
    type Output = Result<Reply, ServeError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut outcome = lock(&self.slot.outcome);
        match outcome.reply.take() {
            Some(reply) => Poll::Ready(reply),
            None => {
                outcome.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.slot.over.swap(true, Ordering::AcqRel) {
            self.queue.remove(self.number);
        }
    }
}

impl Promise {
    /// Whether nobody waits any more.
    pub(super) fn is_over(&self) -> bool {
        self.slot.over.load(Ordering::Acquire)
    }

    pub(super) fn keep(self, reply: Result<Reply, ServeError>) {
        self.slot.settle(reply);
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.slot.settle(Err(ServeError::Closed));
    }
}

impl Slot {
    /// The first outcome counts.
    fn settle(&self, reply: Result<Reply, ServeError>) {
        if self.over.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut outcome = lock(&self.outcome);
        outcome.reply = Some(reply);
        let waker = outcome.waker.take();
        drop(outcome);
        self.there.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
