//! The arithmetic of serving on plain slices: matrix products in f32 and int8, attention, elementwise loops, sampling noise.
//!
//! Every kernel gives the same bits on every processor, with any number of threads, and for any number of rows beside.

mod amx;
pub(crate) mod elementwise;
pub(crate) mod gumbel;
pub(crate) mod int8;
pub(crate) mod paged_attention;
pub(crate) mod panels;
pub(crate) mod simd_level;
pub(crate) mod stack;
mod stored;
