//! Serves a language model to many callers on the CPU.
//!
//! `prompt → queue → batch → steps → completion`. One thread, the scheduler, owns the model. In each step every sequence in
//! the batch advances by one token, and prompts are read in chunks beside them. A sequence that ends frees its place for the
//! next request in the queue. Keys and values lie in blocks; sequences with the same prefix share them.
//!
//! **The same request gets the same completion**, to the bit, whatever else is computed or shared beside it: every row of
//! every operation depends on that row alone.

mod api;
mod batch_runner;
mod engine;
mod kernels;
mod kv_cache;
mod network;
mod pending;
mod prefix_cache;
mod queue;
mod sampling;
mod scheduler;
mod scratch;
mod sequence;
mod shared_buffer;
#[cfg(test)]
mod tests;
mod thread_pool;

pub use api::{
    Completion, CompletionRequest, CompletionUsage, EngineError, EngineSettings, EngineStatus, FinishReason, OnText,
};
pub use engine::Engine;
pub use kernels::panels::WeightForm;
pub use kernels::simd_level::{SimdLevel, simd_level};
pub use pending::PendingCompletion;
pub use thread_pool::ThreadPool;
