//! Training, scoring and sampling on an NVIDIA GPU, with the kernels of `lemon-gpu`.
//!
//! The parameters of the policy on the CPU are those it was made with until [`Learner::read_back`] brings them up to date.

pub(crate) mod learner;
mod write;

pub(crate) use learner::Learner;

use crate::PolicyError;
use crate::config::ModelConfig;
use crate::gpu_tensors as tensors;
use crate::language::DeviceChoice;
use crate::parameters::Learning;
use lemon_gpu::{Device, GpuError};
use std::sync::Arc;

/// The narrowest model that `auto` trains on a GPU: smaller ones learn as fast on the CPU, and with the same numbers everywhere.
const AUTO_HIDDEN: usize = 512;

pub(crate) fn failed(error: GpuError) -> PolicyError {
    match error {
        GpuError::Shape(_) | GpuError::Request(_) => PolicyError::Request(error.to_string()),
        other => PolicyError::Device(other.to_string()),
    }
}

/// The GPU that a policy is trained on. A policy that only writes and scores stays on the CPU unless a GPU is demanded.
///
/// # Errors
/// A GPU is demanded, and there is none that can be used.
pub(crate) fn open(
    choice: DeviceChoice,
    config: &ModelConfig,
    learning: Learning,
) -> Result<Option<Arc<Device>>, PolicyError> {
    // A build with the tensor library's own kernels uses those.
    if cfg!(feature = "cuda") {
        return Ok(None);
    }
    match choice {
        DeviceChoice::Cpu => Ok(None),
        DeviceChoice::Auto => {
            let worth_it = config.hidden >= AUTO_HIDDEN && learning != Learning::Nothing;
            let fits = worth_it && tensors::shape(config).check().is_ok() && learner::can_train(config);
            Ok(if fits { Device::open().ok() } else { None })
        }
        DeviceChoice::Cuda => Device::open().map(Some).map_err(failed),
    }
}
