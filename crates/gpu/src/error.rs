//! What can go wrong on a GPU.

use cudarc::cublaslt::result::CublasError;
use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;

/// Why a GPU cannot be used, or no longer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// The driver, or a library, is not installed.
    #[error("expected the library `{library}`, found none. hint: {hint}")]
    Missing {
        /// The name of the library.
        library: &'static str,
        /// Where it comes from.
        hint: &'static str,
    },
    /// There is a driver and no GPU.
    #[error("expected an NVIDIA GPU, found none. hint: `nvidia-smi -L` lists them; or use the CPU")]
    NoDevice,
    /// The driver supports only an earlier CUDA.
    #[error("expected a driver for CUDA 12.8 or later, found one for {found}. hint: update the NVIDIA driver")]
    OldDriver {
        /// The CUDA version that the driver supports.
        found: String,
    },
    /// The GPU lacks tensor cores for bf16.
    #[error("expected a GPU of compute capability 8.0 or later, found {name} with {found}. hint: use the CPU")]
    OldDevice {
        /// The name of the GPU.
        name: String,
        /// Its compute capability.
        found: String,
    },
    /// The kernels do not support the shape of the model.
    #[error("the GPU kernels cannot run this model: {0}. hint: use the CPU")]
    Shape(String),
    /// The GPU has not enough free memory.
    #[error(
        "expected {needed} MiB of free GPU memory for {what}, found {free} MiB. hint: a smaller cache or width needs less; \
         other processes on this GPU may hold the rest"
    )]
    OutOfMemory {
        /// What it is for.
        what: &'static str,
        /// MiB that are needed.
        needed: usize,
        /// MiB that are free.
        free: usize,
    },
    /// A request does not fit what the model was made for.
    #[error("{0}")]
    Request(String),
    /// The kernels do not compile.
    #[error("the GPU kernels do not compile: {0}")]
    Compile(String),
    /// The device failed or was lost. Nothing can be computed on it in this process any more.
    #[error("the GPU failed: {0}. hint: restart the process; `nvidia-smi` shows the state of the device")]
    Lost(String),
    /// A call of the driver failed.
    #[error("a call of the GPU driver failed: {0}")]
    Driver(String),
}

impl From<DriverError> for GpuError {
    fn from(error: DriverError) -> GpuError {
        let said = error.to_string();
        match error.0 {
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT => GpuError::Lost(said),
            CUresult::CUDA_ERROR_NO_DEVICE => GpuError::NoDevice,
            _ => GpuError::Driver(said),
        }
    }
}

impl From<CublasError> for GpuError {
    fn from(error: CublasError) -> GpuError {
        GpuError::Driver(format!("cuBLASLt: {error}"))
    }
}
