//! Counts what a server sends. A server that floods is cut off, however it cuts its messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes besides the result that one call may make a server send: frames, notifications, lists of tools.
const OVERHEAD: u64 = 1 << 20;

/// What one server has sent since a call last began or ended, and how much that may be.
#[derive(Debug)]
pub(crate) struct Meter {
    per_call: u64,
    used: AtomicU64,
    calls: AtomicU64,
}

/// A call that is under way.
pub(crate) struct Metered(Arc<Meter>);

impl Meter {
    /// For results of at most so many bytes.
    pub fn new(max_result_bytes: usize) -> Arc<Self> {
        // A byte of a text may take six in JSON.
        let per_call = (max_result_bytes as u64).saturating_mul(6).saturating_add(OVERHEAD);
        Arc::new(Meter { per_call, used: AtomicU64::new(0), calls: AtomicU64::new(0) })
    }

    /// Begins a call: what was sent before does not count against it.
    pub fn begin(self: &Arc<Self>) -> Metered {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.used.store(0, Ordering::Relaxed);
        Metered(self.clone())
    }

    /// Counts some bytes; whether the server may still send.
    pub fn count(&self, bytes: u64) -> bool {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        used <= self.most()
    }

    /// Whether the server was cut off.
    pub fn is_spent(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.most()
    }

    fn most(&self) -> u64 {
        self.per_call.saturating_mul(self.calls.load(Ordering::Relaxed).max(1))
    }

    /// What one call may make the server send.
    pub fn per_call(&self) -> u64 {
        self.per_call
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        // A server that was cut off stays so.
        if !self.0.is_spent() {
            self.0.used.store(0, Ordering::Relaxed);
        }
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_its_own_allowance() {
        let meter = Meter::new(0);
        let first = meter.begin();
        assert!(meter.count(OVERHEAD));
        assert!(!meter.count(1));
        let second = meter.begin();
        assert!(meter.count(2 * OVERHEAD));
        assert!(!meter.count(1));
        drop((first, second));
        assert!(meter.is_spent(), "a server that was cut off stays so");
    }
}
