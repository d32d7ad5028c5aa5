//! The device: memory, copies, launches, events. The other modules pass numbers and addresses; what the compiler cannot check
//! about them is said here with `unsafe`.

#![allow(unsafe_code)]

use crate::error::GpuError;
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUdevice_attribute, CUevent_flags, CUfunction_attribute_enum, CUresult};
use cudarc::driver::{CudaContext, CudaFunction, CudaModule, CudaStream};
use cudarc::nvrtc::Ptx;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The oldest driver, as `cuDriverGetVersion` numbers it, that has all functions that are called.
const OLDEST_DRIVER: i32 = 12_080;

/// A GPU and the stream on which everything runs in order.
pub struct Device {
    context: Arc<CudaContext>,
    pub(crate) stream: Arc<CudaStream>,
    info: DeviceInfo,
    overlap: AtomicBool,
}

/// What a GPU is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    pub name: String,
    /// Its compute capability.
    pub capability: (i32, i32),
    /// Its multiprocessors.
    pub processors: usize,
    /// Its memory in bytes.
    pub memory: usize,
}

/// What a kernel is handed, in the order of its parameters.
#[derive(Clone, Copy)]
pub(crate) enum Arg {
    /// An address on the device.
    At(u64),
    U32(u32),
    U64(u64),
    F32(f32),
}

/// Memory on the device.
pub(crate) struct Memory {
    address: u64,
    bytes: usize,
    device: Arc<Device>,
}

/// Memory of the host that the device copies from and to.
pub(crate) struct Pinned {
    address: *mut u8,
    bytes: usize,
    device: Arc<Device>,
}

// SAFETY: the memory belongs to this value alone.
unsafe impl Send for Pinned {}
// SAFETY: shared references only read.
unsafe impl Sync for Pinned {}

impl Device {
    /// Opens the first GPU.
    ///
    /// # Errors
    /// There is no driver, no library, no GPU, or it is too old.
    pub fn open() -> Result<Arc<Device>, GpuError> {
        let missing = |library, hint| Err(GpuError::Missing { library, hint });
        // SAFETY: these load a library by its name and ask its version.
        unsafe {
            if !sys::is_culib_present() {
                return missing("libcuda", "install the NVIDIA driver, or use the CPU");
            }
            let hint =
                "install the CUDA runtime libraries of version 12.8 or later and put their folder into LD_LIBRARY_PATH";
            if !cudarc::cublaslt::sys::is_culib_present() {
                return missing("libcublasLt", hint);
            }
            if !cudarc::nvrtc::sys::is_culib_present() {
                return missing("libnvrtc", hint);
            }
            let mut version = 0;
            sys::cuDriverGetVersion(&mut version).result()?;
            if version < OLDEST_DRIVER {
                return Err(GpuError::OldDriver { found: format!("{}.{}", version / 1_000, version % 1_000 / 10) });
            }
        }
        let context = CudaContext::new(0)?;
        // SAFETY: everything runs on one stream, so events need not order anything.
        unsafe { context.disable_event_tracking() };
        let (major, minor) = context.compute_capability()?;
        let info = DeviceInfo {
            name: context.name()?,
            capability: (major, minor),
            processors: context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1)
                as usize,
            memory: context.total_mem()?,
        };
        if major < 8 {
            return Err(GpuError::OldDevice { name: info.name, found: format!("{major}.{minor}") });
        }
        let stream = context.new_stream()?;
        Ok(Arc::new(Device { context, stream, info, overlap: AtomicBool::new(true) }))
    }

    /// What it is.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Whether a kernel may be started while the one before it ends, where the GPU can: it may by default. For measurements.
    pub fn set_overlap(&self, overlap: bool) {
        self.overlap.store(overlap, Ordering::Relaxed);
    }

    /// Free memory in bytes.
    ///
    /// # Errors
    /// The device is lost.
    pub fn free_memory(&self) -> Result<usize, GpuError> {
        Ok(self.context.mem_get_info()?.0)
    }

    /// Makes this device the one of the calling thread. Every public function that uses the device begins with it.
    pub(crate) fn bind(&self) -> Result<(), GpuError> {
        Ok(self.context.bind_to_thread()?)
    }

    /// Takes memory; `what` it is for is told if there is not enough.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize, what: &'static str) -> Result<Memory, GpuError> {
        let bytes = bytes.max(256);
        // SAFETY: the memory is written before it is read.
        match unsafe { result::malloc_sync(bytes) } {
            Ok(address) => Ok(Memory { address, bytes, device: self.clone() }),
            Err(error) if error.0 == CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                let free = self.free_memory()?;
                Err(GpuError::OutOfMemory { what, needed: bytes.div_ceil(1 << 20), free: free >> 20 })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Takes memory of the host.
    pub(crate) fn take_pinned(self: &Arc<Self>, bytes: usize) -> Result<Pinned, GpuError> {
        let bytes = bytes.max(256);
        // SAFETY: it is filled with zeros before a slice of it is made.
        unsafe {
            let address = result::malloc_host(bytes, 0)?.cast::<u8>();
            address.write_bytes(0, bytes);
            Ok(Pinned { address, bytes, device: self.clone() })
        }
    }

    /// Loads a compiled module.
    pub(crate) fn load(&self, cubin: Vec<u8>) -> Result<Arc<CudaModule>, GpuError> {
        Ok(self.context.load_module(Ptx::from_binary(cubin))?)
    }

    /// Lets a kernel use more shared memory than it may by default.
    pub(crate) fn allow_shared(&self, kernel: &CudaFunction, bytes: usize) -> Result<(), GpuError> {
        let name = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        Ok(kernel.set_attribute(name, bytes as i32)?) // At most 227 KiB.
    }

    /// Queues a kernel. Nothing is launched for an empty grid.
    pub(crate) fn launch(
        &self,
        kernel: &CudaFunction,
        grid: (usize, usize),
        threads: u32,
        shared: usize,
        args: &[Arg],
    ) -> Result<(), GpuError> {
        if grid.0 == 0 || grid.1 == 0 {
            return Ok(());
        }
        if grid.0 > i32::MAX as usize || grid.1 > u16::MAX as usize {
            return Err(GpuError::Request(format!("a grid of {} x {} is too large", grid.0, grid.1)));
        }
        let pointer = |arg: &Arg| -> *mut c_void {
            let pointer: *const c_void = match arg {
                Arg::At(value) | Arg::U64(value) => std::ptr::from_ref(value).cast(),
                Arg::U32(value) => std::ptr::from_ref(value).cast(),
                Arg::F32(value) => std::ptr::from_ref(value).cast(),
            };
            pointer.cast_mut()
        };
        let mut pointers: Vec<*mut c_void> = args.iter().map(pointer).collect();
        let grid = (grid.0 as u32, grid.1 as u32);
        // Kernels wait themselves for the end of the one before, where the GPU has an instruction for it.
        let overlap = u32::from(self.info.capability.0 >= 9 && self.overlap.load(Ordering::Relaxed));
        let mut early = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: grid.0,
            gridDimY: grid.1,
            gridDimZ: 1,
            blockDimX: threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shared as u32,
            hStream: self.stream.cu_stream(),
            attrs: &mut early,
            numAttrs: overlap,
        };
        // SAFETY: callers pass what the kernel takes; arguments and attributes are copied by the call.
        unsafe {
            let arguments = pointers.as_mut_ptr();
            sys::cuLaunchKernelEx(&config, kernel.cu_function(), arguments, std::ptr::null_mut()).result()?;
        }
        Ok(())
    }

    /// Queues a copy of the first bytes of pinned memory to the device.
    pub(crate) fn copy_in(&self, to: u64, from: &Pinned, bytes: usize) -> Result<(), GpuError> {
        // SAFETY: callers keep the memory unchanged until the stream is past the copy.
        unsafe { result::memcpy_htod_async(to, &from.bytes()[..bytes], self.stream.cu_stream())? };
        Ok(())
    }

    /// Queues a copy from the device to pinned memory.
    pub(crate) fn copy_out(&self, to: &mut Pinned, from: u64, bytes: usize) -> Result<(), GpuError> {
        let stream = self.stream.cu_stream();
        // SAFETY: callers read the memory after the stream is past the copy.
        unsafe { result::memcpy_dtoh_async(&mut to.bytes_mut()[..bytes], from, stream)? };
        Ok(())
    }

    /// Copies numbers to the device, and waits for it.
    pub(crate) fn write<T: Copy>(&self, to: u64, values: &[T]) -> Result<(), GpuError> {
        // SAFETY: `to` is inside an allocation with room for the values; the wait keeps them alive long enough.
        unsafe { result::memcpy_htod_async(to, values, self.stream.cu_stream())? };
        self.wait()
    }

    /// Copies numbers from the device, and waits for it.
    pub(crate) fn read<T: Copy>(&self, values: &mut [T], from: u64) -> Result<(), GpuError> {
        // SAFETY: as for `write`.
        unsafe { result::memcpy_dtoh_async(values, from, self.stream.cu_stream())? };
        self.wait()
    }

    /// Queues filling memory with zeros.
    pub(crate) fn clear(&self, memory: &Memory) -> Result<(), GpuError> {
        // SAFETY: the whole allocation.
        unsafe { result::memset_d8_async(memory.address, 0, memory.bytes, self.stream.cu_stream())? };
        Ok(())
    }

    /// Queues a copy from one place on the device to another.
    pub(crate) fn copy_within(&self, to: u64, from: u64, bytes: usize) -> Result<(), GpuError> {
        // SAFETY: callers name parts of allocations.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream.cu_stream())? };
        Ok(())
    }

    /// Queues filling a part of memory with zeros.
    pub(crate) fn clear_bytes(&self, at: u64, bytes: usize) -> Result<(), GpuError> {
        // SAFETY: callers name a part of an allocation.
        unsafe { result::memset_d8_async(at, 0, bytes, self.stream.cu_stream())? };
        Ok(())
    }

    /// Waits until everything queued is done.
    pub(crate) fn wait(&self) -> Result<(), GpuError> {
        Ok(self.stream.synchronize()?)
    }

    /// Records a point in the stream.
    pub(crate) fn mark(&self) -> Result<cudarc::driver::CudaEvent, GpuError> {
        Ok(self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?)
    }
}

impl Memory {
    /// The address of a byte.
    pub(crate) fn at(&self, byte: usize) -> u64 {
        debug_assert!(byte <= self.bytes);
        self.address + byte as u64
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this value alone has the address; the driver waits for kernels that use it.
        let freed = self.device.bind().and_then(|()| Ok(unsafe { result::free_sync(self.address) }?));
        // On a lost device nothing can be freed, and the process is told by the next call.
        drop(freed);
    }
}

impl Pinned {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the memory has this length and was initialised.
        unsafe { std::slice::from_raw_parts(self.address, self.bytes) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this value alone has it.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let bound = self.device.bind();
        // SAFETY: this value alone has the address. Copies from it have ended: their owner waits for them.
        let freed = bound.and_then(|()| Ok(unsafe { result::free_host(self.address.cast()) }?));
        // As above.
        drop(freed);
    }
}
