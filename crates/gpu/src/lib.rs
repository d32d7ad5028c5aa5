//! Language models on NVIDIA GPUs.
//!
//! Nothing of CUDA is needed to build this crate. At run time it loads the driver, cuBLASLt and NVRTC, and compiles its kernels
//! for the model and the GPU at hand. [`Model`] computes batches of rows of many sequences: prompts and tokens that are being
//! written, side by side, over keys and values in pages. Tokens are drawn on the device. Steps in which every sequence advances
//! by one token are CUDA graphs.

mod batch;
mod check;
mod device;
mod error;
mod graph;
mod host;
mod kernels;
mod model;
mod products;
mod scratch;
mod shape;
mod timing;
mod train;
mod weights;

pub use batch::{Batch, OF_DRAW, PAGE, PositionRow, Sampling};
pub use check::{CheckRow, check};
pub use device::{Device, DeviceInfo};
pub use error::GpuError;
pub use host::HostModel;
pub use kernels::Numbers;
pub use model::{Drawn, Model, ModelSettings, Pending};
pub use shape::{ModelShape, Part, Tensor};
pub use train::{
    AdamStep, AdapterMatrix, ChosenToken, Kept, Scored, TrainBatch, TrainGroup, TrainLearning, TrainSettings,
    TrainText, Trainer, check_training,
};
