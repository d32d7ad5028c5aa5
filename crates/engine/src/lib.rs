//! Serves a language model to many callers, on the CPU or on a GPU.
//!
//! `prompt → queue → batch → steps → completion`. One thread, the scheduler, owns the model. In each step every sequence in
//! the batch advances by one token, and prompts are read in chunks beside them. A sequence that ends frees its place for the
//! next request in the queue. Keys and values lie in blocks; sequences with the same prefix share them.
//!
//! **On the CPU, the same request gets the same completion**, to the bit, whatever else is computed or shared beside it: every
//! row of every operation depends on that row alone. On a GPU, products of other numbers of rows are rounded differently.

mod api;
mod backend;
mod batch_runner;
mod engine;
mod gpu;
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
