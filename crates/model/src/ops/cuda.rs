//! Compiles `common.cu`, `kernels.cu` and `packed.cu` at run time and launches what is in it.

// The compiler cannot check that what a kernel is handed is what it expects: that is said with `unsafe`, in this file only.
#![allow(unsafe_code)]

use candle_core::backend::{BackendDevice, BackendStorage};
use candle_core::cuda_backend::cudarc::driver::{
    CudaSlice, CudaStream, DevicePtr, LaunchConfig, PushKernelArg, SyncOnDrop,
};
use candle_core::cuda_backend::cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts};
use candle_core::cuda_backend::{CudaStorageSlice, WrapErr};
use candle_core::{CudaDevice, CudaStorage, DType, Layout, Result, Shape, bail};
use std::sync::OnceLock;

/// All kernels, in one translation unit.
const SOURCE: &str =
    concat!(include_str!("common.cu"), "\n", include_str!("kernels.cu"), "\n", include_str!("packed.cu"));

/// Has the device keep the memory that tensors give back, as every step needs the same again: by default it goes back to the
/// system whenever a thread waits for the device. And stops it from recording an event for every use of every tensor: those
/// order several streams, and there is one here.
pub(crate) fn keep_memory(device: &CudaDevice) -> Result<()> {
    use candle_core::cuda_backend::cudarc::driver::sys;
    let context = device.cuda_stream().context().clone();
    let mut pool = std::ptr::null_mut();
    let mut everything = u64::MAX;
    let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: the context names a device that exists; the pool is the one the driver gave; the attribute is a u64. Everything
    // here runs on the one stream of this device.
    unsafe {
        sys::cuDeviceGetDefaultMemPool(&mut pool, context.cu_device()).result().w()?;
        sys::cuMemPoolSetAttribute(pool, threshold, (&raw mut everything).cast()).result().w()?;
        device.disable_event_tracking();
    }
    Ok(())
}

/// A tensor as an operation gets it.
pub(super) type Operand<'a> = (&'a CudaStorage, &'a Layout);

/// What a kernel is handed, in the order of its parameters.
#[derive(Clone, Copy)]
pub(super) enum Arg<'a> {
    /// The first element of a contiguous tensor, made with [`Arg::read`].
    Read(&'a CudaStorage, usize),
    /// The first element of a result, or of what an earlier kernel left.
    Write(&'a CudaStorage),
    /// A tensor that is not there.
    Null,
    U32(u32),
    U64(u64),
    F32(f32),
}

impl<'a> Arg<'a> {
    /// A tensor that the kernel takes for a contiguous one of this type.
    pub(super) fn read((storage, layout): Operand<'a>, dtype: DType) -> Result<Self> {
        if storage.dtype() != dtype || !layout.is_contiguous() {
            bail!("a contiguous tensor of {dtype:?} was expected, not one of {:?}: {layout:?}", storage.dtype());
        }
        Ok(Arg::Read(storage, layout.start_offset()))
    }
}

/// How many threads run a kernel.
pub(super) struct Launch {
    /// Blocks, along two axes.
    pub(super) grid: (u32, u32),
    /// In each block.
    pub(super) threads: u32,
    /// Memory of each block, besides what the kernel declares.
    pub(super) shared_bytes: u32,
}

impl Launch {
    /// A block for each row of this width, with as many threads as have something to load.
    pub(super) fn rows(rows: usize, width: usize, dtype: DType) -> Result<Self> {
        let loads = width.div_ceil(elements_per_load(dtype));
        Ok(Launch {
            grid: (size(rows)?, 1),
            threads: size(loads.next_multiple_of(32).clamp(32, 256))?,
            shared_bytes: 0,
        })
    }

    /// A thread for each load of 16 bytes; kernels go on in strides where that is not enough.
    pub(super) fn elements(count: usize, dtype: DType) -> Result<Self> {
        const MOST_BLOCKS: usize = 1 << 20;
        let blocks = count.div_ceil(256 * elements_per_load(dtype)).min(MOST_BLOCKS);
        Ok(Launch { grid: (size(blocks)?, 1), threads: 256, shared_bytes: 0 })
    }

    /// Runs the kernel `name` in its version for `dtype`.
    pub(super) fn run(&self, name: &str, dtype: DType, device: &CudaDevice, args: &[Arg<'_>]) -> Result<()> {
        if self.grid.0 == 0 || self.grid.1 == 0 {
            return Ok(());
        }
        let suffix = match dtype {
            DType::F32 => "f32",
            DType::BF16 => "bf16",
            other => bail!("{name} works on f32 and bf16, not on {other:?}"),
        };
        let kernel = device.get_or_load_custom_func(&format!("{name}_{suffix}"), "lemon_model", ptx(device)?)?;
        let stream = device.cuda_stream();
        // The guards tell other streams when the tensors are free again, so they outlive the launch.
        let mut guards = Vec::with_capacity(args.len());
        let addresses = args.iter().map(|arg| address(arg, &stream, &mut guards)).collect::<Result<Vec<u64>>>()?;
        let mut builder = kernel.builder();
        for (arg, address) in args.iter().zip(&addresses) {
            match arg {
                Arg::Read(..) | Arg::Write(..) | Arg::Null => builder.arg(address),
                Arg::U32(value) => builder.arg(value),
                Arg::U64(value) => builder.arg(value),
                Arg::F32(value) => builder.arg(value),
            };
        }
        let config = LaunchConfig {
            grid_dim: (self.grid.0, self.grid.1, 1),
            block_dim: (self.threads, 1, 1),
            shared_mem_bytes: self.shared_bytes,
        };
        // SAFETY: callers hand each kernel the parameters that it declares, of the types checked by
        // `Arg::read`, with the sizes of these very tensors; kernels read and write nothing beyond those sizes.
        unsafe { builder.launch(config) }.w()?;
        Ok(())
    }
}

/// Memory for a result that a kernel writes in full.
pub(super) fn output(device: &CudaDevice, count: usize, dtype: DType) -> Result<CudaStorage> {
    // SAFETY: no kernel reads it before the kernel has written it. The driver refuses to give no memory at all.
    unsafe { device.alloc_uninit(&Shape::from(count.max(1)), dtype) }
}

/// A size as kernels take it.
pub(super) fn size(size: usize) -> Result<u32> {
    match i32::try_from(size) {
        Ok(size) => Ok(size.unsigned_abs()),
        Err(_) => bail!("{size} is too much for one launch"),
    }
}

/// How many elements the kernels load at once, in 16 bytes.
fn elements_per_load(dtype: DType) -> usize {
    16 / dtype.size_in_bytes()
}

/// Where an argument begins on the device; 0 for what is no tensor.
fn address<'a>(arg: &Arg<'a>, stream: &'a CudaStream, guards: &mut Vec<SyncOnDrop<'a>>) -> Result<u64> {
    let (storage, offset) = match arg {
        Arg::Read(storage, offset) => (*storage, *offset),
        Arg::Write(storage) => (*storage, 0),
        _ => return Ok(0),
    };
    fn start<'a, T>(slice: &'a CudaSlice<T>, stream: &'a CudaStream) -> (u64, SyncOnDrop<'a>) {
        slice.device_ptr(stream)
    }
    let (start, guard) = match &storage.slice {
        CudaStorageSlice::F32(slice) => start(slice, stream),
        CudaStorageSlice::BF16(slice) => start(slice, stream),
        CudaStorageSlice::U32(slice) => start(slice, stream),
        _ => bail!("no kernel works on {:?}", storage.dtype()),
    };
    guards.push(guard);
    Ok(start + (offset * storage.dtype().size_in_bytes()) as u64)
}

/// The kernels, compiled once for the first device asked for.
fn ptx(device: &CudaDevice) -> Result<&'static str> {
    static PTX: OnceLock<std::result::Result<String, String>> = OnceLock::new();
    let compiled = PTX.get_or_init(|| {
        let capability = device.cuda_stream().context().compute_capability().map_err(|error| error.to_string())?;
        let options = CompileOptions {
            options: vec![format!("--gpu-architecture=compute_{}{}", capability.0, capability.1), "--std=c++17".into()],
            ..CompileOptions::default()
        };
        let ptx = compile_ptx_with_opts(SOURCE, options).map_err(|error| error.to_string())?;
        Ok(ptx.to_src())
    });
    match compiled {
        Ok(ptx) => Ok(ptx),
        Err(fact) => bail!("the CUDA kernels do not compile: {fact}"),
    }
}
