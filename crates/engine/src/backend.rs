//! Where the steps of a model are computed: by the threads of a pool, or on a GPU.

use crate::api::{EngineError, EngineSettings};
use crate::batch_runner::BatchRunner;
use crate::gpu::{GpuFacts, GpuRunner};
use crate::network::Batch;
use crate::sampling::SampledToken;
use crate::thread_pool::{ParallelStep, ThreadPool, lock};
use lemon_model::ModelConfig;
use std::sync::{Arc, PoisonError};

/// Rows from which a separate batch is worth its overhead.
const MIN_BATCH_ROWS: usize = 4;

/// What computes the steps. The scheduler owns it.
pub(crate) enum Backend {
    Cpu {
        runner: Arc<BatchRunner>,
        step: Arc<dyn ParallelStep>,
    },
    Gpu {
        runner: Box<GpuRunner>,
        batch: Batch,
    },
    /// A fake for tests: a device that fails.
    #[cfg(test)]
    Broken {
        batch: Batch,
    },
}

/// What the engine tells about its model.
pub(crate) enum ServedModel {
    Cpu(Arc<BatchRunner>),
    Gpu(GpuFacts),
}

/// The tokens sampled in a step: for each batch, those of its sequences in order.
pub(crate) type Sampled = Vec<Vec<Option<SampledToken>>>;

impl Backend {
    pub(crate) fn cpu(runner: Arc<BatchRunner>) -> Backend {
        Backend::Cpu { step: runner.clone(), runner }
    }

    /// Fills the batches of a step of so many rows: `fill` gets all of them, empty, and how many are worth using.
    pub(crate) fn fill(&mut self, rows: usize, fill: impl FnOnce(&mut [Batch], usize)) {
        match self {
            Backend::Cpu { runner, .. } => {
                let mut batches = runner.batches.write().unwrap_or_else(PoisonError::into_inner);
                batches.iter_mut().for_each(Batch::clear);
                let shared = runner.network.is_worth_sharing(rows);
                let used = if shared { batches.len().min(rows / MIN_BATCH_ROWS).max(1) } else { 1 };
                fill(&mut batches, used);
            }
            #[cfg(test)]
            Backend::Broken { batch } => fill(std::slice::from_mut(batch), 1),
            Backend::Gpu { batch, .. } => {
                batch.clear();
                fill(std::slice::from_mut(batch), 1);
            }
        }
    }

    /// Computes the batches that were filled, of so many rows together.
    pub(crate) fn run(
        &mut self,
        rows: usize,
        settings: &EngineSettings,
        sampled: &mut Sampled,
    ) -> Result<(), EngineError> {
        match self {
            Backend::Cpu { runner, step } => {
                runner.next.store(0, std::sync::atomic::Ordering::Release);
                if runner.network.is_worth_sharing(rows) {
                    settings.threads.run(step);
                } else {
                    ThreadPool::run_on_caller(&**step);
                }
                sampled.resize(runner.scratch.len(), Vec::new());
                for (sampled, scratch) in sampled.iter_mut().zip(&runner.scratch) {
                    sampled.clone_from(&lock(&scratch.sampled));
                }
                Ok(())
            }
            #[cfg(test)]
            Backend::Broken { .. } => Err(EngineError::Device("the GPU failed".to_owned())),
            Backend::Gpu { runner, batch } => {
                sampled.resize(1, Vec::new());
                sampled[0].clear();
                runner.step(batch, &mut sampled[0]).map_err(|error| EngineError::Device(error.to_string()))
            }
        }
    }
}

impl ServedModel {
    pub(crate) fn config(&self) -> &ModelConfig {
        match self {
            ServedModel::Cpu(runner) => &runner.network.config,
            ServedModel::Gpu(facts) => &facts.config,
        }
    }

    pub(crate) fn bytes_read(&self) -> usize {
        match self {
            ServedModel::Cpu(runner) => runner.network.bytes_read(),
            ServedModel::Gpu(facts) => facts.weight_bytes,
        }
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        match self {
            ServedModel::Cpu(runner) => runner.network.fingerprint(),
            ServedModel::Gpu(facts) => facts.fingerprint,
        }
    }
}
