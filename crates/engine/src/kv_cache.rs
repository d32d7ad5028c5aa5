//! The keys and values of all sequences, in blocks.

use crate::kernels::paged_attention::BLOCK;
use crate::network::Network;
use crate::scratch::table;
use crate::shared_buffer::{Number, SharedBuffer};
use lemon_model::ModelConfig;

/// The keys and values of each layer: (blocks, key heads, D, 16) and (blocks, key heads, 16, D).
///
/// The thread that computes a row writes its keys and values. They are read for rows of the same sequence, by the same thread
/// or in a later phase of the step, and for other sequences only in later steps.
pub(crate) enum KvCache {
    /// Unrounded.
    F32(Vec<Pair<f32>>),
    /// In bf16, with 8-bit weights: large batches are bound by the time to read keys and values.
    Bf16(Vec<Pair<u16>>),
}

/// The keys and the values of a layer.
pub(crate) type Pair<E> = (SharedBuffer<E>, SharedBuffer<E>);

impl KvCache {
    /// A cache of so many blocks; the system gives memory only to those that are used. `None`: there is not enough memory.
    pub(crate) fn new(network: &Network, blocks: usize) -> Option<KvCache> {
        let config = &network.config;
        Some(if network.is_quantised() {
            KvCache::Bf16(pairs(config, blocks)?)
        } else {
            KvCache::F32(pairs(config, blocks)?)
        })
    }
}

/// Keys and values of all layers.
fn pairs<E: Number>(config: &ModelConfig, blocks: usize) -> Option<Vec<Pair<E>>> {
    let width = BLOCK * config.kv_heads * config.head_dim;
    (0..config.layers).map(|_| Some((table(blocks, width)?, table(blocks, width)?))).collect()
}
