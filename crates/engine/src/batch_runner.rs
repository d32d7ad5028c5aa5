//! Runs the batches of a step on the threads of a pool.

use crate::kv_cache::KvCache;
use crate::network::{Batch, Network};
use crate::scratch::Scratch;
use crate::thread_pool::{ParallelStep, WorkerThread};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

/// The model and the memory of its steps.
pub(crate) struct BatchRunner {
    pub(crate) network: Network,
    cache: KvCache,
    /// One for each batch of a step.
    pub(crate) scratch: Vec<Scratch>,
    /// What a step computes. All threads compute a single batch together; of several batches, each thread takes whole ones.
    /// There are as many as scratch buffers, and some may be empty. The scheduler writes them between steps.
    pub(crate) batches: RwLock<Vec<Batch>>,
    /// The next batch that a thread takes.
    pub(crate) next: AtomicUsize,
}

impl BatchRunner {
    /// Allocates memory for steps of so many rows and samples and a cache of so many blocks, for a pool of so many threads.
    /// `None`: there is not enough memory.
    pub(crate) fn new(
        network: Network,
        rows: usize,
        samples: usize,
        blocks: usize,
        threads: usize,
    ) -> Option<BatchRunner> {
        let count = if network.is_small() { threads.max(1) } else { 1 };
        Some(BatchRunner {
            cache: KvCache::new(&network, blocks)?,
            scratch: (0..count).map(|_| Scratch::new(&network, rows, samples)).collect::<Option<_>>()?,
            batches: RwLock::new((0..count).map(|_| Batch::default()).collect()),
            next: AtomicUsize::new(0),
            network,
        })
    }

    /// The logits of one batch.
    #[cfg(test)]
    pub(crate) fn logits_of(&mut self, batch: Batch) -> Vec<Vec<f32>> {
        let (count, vocabulary) = (batch.samples.len(), self.network.config.vocabulary);
        *self.batches.get_mut().unwrap() = vec![batch];
        let thread = WorkerThread::alone();
        self.run_on(&thread);
        assert_eq!(thread.phases(), self.network.phases(), "a step has the phases it says");
        (0..count).map(|sample| self.scratch[0].logits_of(sample, vocabulary)).collect()
    }
}

impl ParallelStep for BatchRunner {
    fn run_on(&self, thread: &WorkerThread<'_>) {
        let batches = self.batches.read().unwrap_or_else(PoisonError::into_inner);
        let busy = batches.iter().filter(|batch| !batch.rows.is_empty()).count();
        // A single batch is the first one.
        if let (1, Some(batch), Some(scratch)) = (busy, batches.first(), self.scratch.first()) {
            return self.network.step(thread, batch, scratch, &self.cache);
        }
        loop {
            let at = self.next.fetch_add(1, Ordering::AcqRel);
            let (Some(batch), Some(scratch)) = (batches.get(at), self.scratch.get(at)) else { return };
            if !batch.rows.is_empty() {
                self.network.step(&WorkerThread::alone(), batch, scratch, &self.cache);
            }
        }
    }
}
