//! The kernels: CUDA C++ that is compiled at run time for a model and a GPU.

#![allow(unsafe_code)]

use crate::device::Device;
use crate::error::GpuError;
use crate::shape::ModelShape;
use cudarc::driver::CudaFunction;
use cudarc::nvrtc::result as nvrtc;
use cudarc::nvrtc::sys as nvrtc_sys;
use std::ffi::{CString, c_char};

/// All kernels, in one translation unit.
const SOURCE: &str = concat!(
    include_str!("kernels/ptx.cu"),
    "\n",
    include_str!("kernels/common.cu"),
    "\n",
    include_str!("kernels/elementwise.cu"),
    "\n",
    include_str!("kernels/attention.cu"),
    "\n",
    include_str!("kernels/draw.cu"),
);

/// The form of the factors of products, and of keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Numbers {
    /// Three bits more than bf16. Intermediate results of the models that were looked at stay below a fortieth of its range; what
    /// would leave it is held back.
    #[default]
    F16,
    /// The range of f32, for any model, and for gradients.
    Bf16,
}

/// Positions that one block of `attend_decode` attends to.
pub(crate) const SPLIT: usize = 512;
/// Queries of one block of `attend_prompt`.
pub(crate) const PROMPT_QUERIES: usize = 128;
/// Threads of a block: of the kernels for rows, of those for numbers, and of the others.
pub(crate) const ROW_THREADS: u32 = 128;
pub(crate) const NUMBER_THREADS: u32 = 256;
pub(crate) const DECODE_THREADS: u32 = 128;
pub(crate) const PROMPT_THREADS: u32 = 256;
pub(crate) const DRAW_THREADS: u32 = 512;

/// The compiled kernels.
pub(crate) struct Kernels {
    pub(crate) embed: CudaFunction,
    pub(crate) rms_norm: CudaFunction,
    pub(crate) add_bias: CudaFunction,
    pub(crate) rope_store: CudaFunction,
    pub(crate) attend_decode: CudaFunction,
    pub(crate) attend_prompt: CudaFunction,
    pub(crate) swiglu: CudaFunction,
    pub(crate) draw: CudaFunction,
    pub(crate) round_to: CudaFunction,
    pub(crate) fill_random: CudaFunction,
    pub(crate) merge_adapter: CudaFunction,
}

impl Kernels {
    /// Compiles the kernels for a model and loads them.
    pub(crate) fn new(device: &Device, shape: &ModelShape, numbers: Numbers) -> Result<Kernels, GpuError> {
        let module = device.load(compile(SOURCE, shape, device.info().capability, numbers)?)?;
        let kernel = |name| module.load_function(name);
        let kernels = Kernels {
            embed: kernel("embed")?,
            rms_norm: kernel("rms_norm")?,
            add_bias: kernel("add_bias")?,
            rope_store: kernel("rope_store")?,
            attend_decode: kernel("attend_decode")?,
            attend_prompt: kernel("attend_prompt")?,
            swiglu: kernel("swiglu")?,
            draw: kernel("draw")?,
            round_to: kernel("round_to")?,
            fill_random: kernel("fill_random")?,
            merge_adapter: kernel("merge_adapter")?,
        };
        device.allow_shared(&kernels.attend_prompt, prompt_shared(shape))?;
        Ok(kernels)
    }
}

/// Bytes of shared memory of a block of `attend_prompt`: two stages of four pages of keys and values.
pub(crate) fn prompt_shared(shape: &ModelShape) -> usize {
    2 * 4 * 2 * 16 * shape.head_dim * 2
}

/// Compiles kernels to machine code for one kind of GPU.
pub(crate) fn compile(
    source: &str,
    shape: &ModelShape,
    capability: (i32, i32),
    numbers: Numbers,
) -> Result<Vec<u8>, GpuError> {
    let refused = |error: nvrtc::NvrtcError| GpuError::Compile(error.to_string());
    let source = CString::new(source).map_err(|error| GpuError::Compile(error.to_string()))?;
    let options = [
        format!("--gpu-architecture=sm_{}{}", capability.0, capability.1),
        "--std=c++17".to_owned(),
        format!("-DDIM={}", shape.head_dim),
        format!("-DGROUP={}", shape.group()),
        format!("-DKV_HEADS={}", shape.kv_heads),
        format!("-DHIDDEN={}", shape.hidden),
        format!("-DHALF={}", u32::from(numbers == Numbers::F16)),
        format!("-DQK_NORM={}", u32::from(shape.qk_norm)),
    ];
    let program = nvrtc::create_program(&source, Some(c"lemon.cu")).map_err(refused)?;
    // SAFETY: the program was just created and is destroyed once, at the end; the buffers have the sizes that were told.
    unsafe {
        let compiled = nvrtc::compile_program(program, &options);
        let result = match compiled {
            Err(error) => {
                // Where there is no log, the error stands alone.
                let log = nvrtc::get_program_log(program).unwrap_or_default();
                let log: Vec<u8> = log.into_iter().map(|byte| byte as u8).take_while(|byte| *byte != 0).collect();
                Err(GpuError::Compile(format!("{error}: {}", String::from_utf8_lossy(&log))))
            }
            Ok(()) => (|| {
                let mut size = 0;
                nvrtc_sys::nvrtcGetCUBINSize(program, &mut size).result()?;
                let mut cubin = vec![0u8; size];
                nvrtc_sys::nvrtcGetCUBIN(program, cubin.as_mut_ptr().cast::<c_char>()).result()?;
                Ok(cubin)
            })()
            .map_err(refused),
        };
        nvrtc::destroy_program(program).map_err(refused)?;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::frequencies;

    /// Every kernel compiles for every kind of shape and GPU, where the compiler is installed. It needs no GPU.
    #[test]
    fn kernels_compile() {
        // SAFETY: it loads a library by its name.
        if !unsafe { nvrtc_sys::is_culib_present() } {
            println!("skipped: expected the library libnvrtc, found none");
            return;
        }
        let shape = |heads, kv_heads, head_dim, qk_norm| ModelShape {
            heads,
            kv_heads,
            head_dim,
            qk_norm,
            frequencies: frequencies(1e4, head_dim),
            ..ModelShape::smol_135m()
        };
        let shapes = [
            ModelShape::qwen_1_5b(),
            ModelShape::smol_135m(),
            shape(16, 8, 128, true),
            shape(14, 2, 64, false),
            shape(32, 2, 48, false),
            shape(4, 4, 16, false),
        ];
        for shape in shapes {
            for capability in [(8, 0), (9, 0)].into_iter().skip(usize::from(shape.head_dim != 64)) {
                assert_eq!(shape.check(), Ok(()));
                for (source, numbers) in
                    [(SOURCE, Numbers::F16), (SOURCE, Numbers::Bf16), (crate::train::SOURCE, Numbers::Bf16)]
                {
                    let cubin = compile(source, &shape, capability, numbers).unwrap_or_else(|error| panic!("{error}"));
                    assert!(cubin.starts_with(b"\x7fELF"), "{} bytes", cubin.len());
                }
            }
        }
    }

    #[test]
    fn constants_are_those_of_the_kernels() {
        for line in
            ["#define SPLIT 512", "#define DECODE_WARPS 4", "#define PROMPT_WARPS 8", "#define DRAW_THREADS 512"]
        {
            assert!(SOURCE.contains(line), "{line}");
        }
        assert!(SOURCE.contains("#define PROMPT_COLUMNS 2") && PROMPT_QUERIES == 8 * 2 * 8 && SPLIT == 512);
        assert!(SOURCE.contains("#define STAGE_PAGES 4") && prompt_shared(&ModelShape::qwen_1_5b()) == 65_536);
    }
}
