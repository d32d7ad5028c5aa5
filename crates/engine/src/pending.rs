//! Waiting for a completion: in a thread or as a future.

use crate::api::{Completion, EngineError};
use crate::queue::RequestQueue;
use crate::thread_pool::lock;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// A completion that is not there yet: a future, or [`Self::wait`] for it. Dropping it cancels the request.
pub struct PendingCompletion {
    slot: Arc<Slot>,
    queue: Arc<RequestQueue>,
    number: u64,
}

/// The sending end of a [`PendingCompletion`]. Dropped without a completion, it sends [`EngineError::Closed`].
pub(crate) struct CompletionSender {
    slot: Arc<Slot>,
}

#[derive(Default)]
struct Slot {
    outcome: Mutex<Outcome>,
    arrived: Condvar,
    /// The receiver was dropped, or an outcome was sent.
    over: AtomicBool,
}

#[derive(Default)]
struct Outcome {
    result: Option<Result<Completion, EngineError>>,
    waker: Option<Waker>,
}

impl PendingCompletion {
    /// Both ends for the request with this number in a queue.
    pub(crate) fn new(queue: Arc<RequestQueue>, number: u64) -> (PendingCompletion, CompletionSender) {
        let slot = Arc::new(Slot::default());
        (PendingCompletion { slot: slot.clone(), queue, number }, CompletionSender { slot })
    }

    /// Blocks until the completion is there.
    ///
    /// # Errors
    /// Why there is none.
    pub fn wait(self) -> Result<Completion, EngineError> {
        let mut outcome = lock(&self.slot.outcome);
        loop {
            if let Some(result) = outcome.result.take() {
                return result;
            }
            outcome = self.slot.arrived.wait(outcome).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Future for PendingCompletion {
    type Output = Result<Completion, EngineError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut outcome = lock(&self.slot.outcome);
        match outcome.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                outcome.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for PendingCompletion {
    fn drop(&mut self) {
        if !self.slot.over.swap(true, Ordering::AcqRel) {
            self.queue.remove(self.number);
        }
    }
}

impl CompletionSender {
    /// Whether the receiver was dropped.
    pub(crate) fn is_over(&self) -> bool {
        self.slot.over.load(Ordering::Acquire)
    }

    pub(crate) fn send(self, result: Result<Completion, EngineError>) {
        self.slot.settle(result);
    }
}

impl Drop for CompletionSender {
    fn drop(&mut self) {
        self.slot.settle(Err(EngineError::Closed));
    }
}

impl Slot {
    /// The first outcome counts.
    fn settle(&self, result: Result<Completion, EngineError>) {
        if self.over.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut outcome = lock(&self.outcome);
        outcome.result = Some(result);
        let waker = outcome.waker.take();
        drop(outcome);
        self.arrived.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
