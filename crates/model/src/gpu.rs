//! Training, scoring and sampling on an NVIDIA GPU, with the kernels of `lemon-gpu`.
//!
//! The parameters of the policy on the CPU are those it was made with until [`Learner::read_back`] brings them up to date.

pub(crate) mod learner;
mod write;

pub(crate) use learner::Learner;

use crate::PolicyError;
use crate::language::DeviceChoice;
use lemon_gpu::{Device, GpuError};
use std::sync::Arc;

pub(crate) fn failed(error: GpuError) -> PolicyError {
    match error {
        GpuError::Shape(_) | GpuError::Request(_) => PolicyError::Request(error.to_string()),
        other => PolicyError::Device(other.to_string()),
    }
}

/// The GPU that a policy learns and writes on, where one is demanded. `auto` stays on the CPU: its numbers are the same everywhere.
///
/// # Errors
/// A GPU is demanded, and there is none that can be used.
pub(crate) fn open(choice: DeviceChoice) -> Result<Option<Arc<Device>>, PolicyError> {
    match choice {
        // A build with the tensor library's own kernels uses those.
        DeviceChoice::Cuda if !cfg!(feature = "cuda") => Device::open().map(Some).map_err(failed),
        DeviceChoice::Cuda | DeviceChoice::Cpu | DeviceChoice::Auto => Ok(None),
    }
}
