//! Products of training with cuBLASLt: rows of 16-bit numbers, transposed or not, as parts of wider rows, added to what is there or not.

#![allow(unsafe_code)]

use crate::device::{Device, Memory};
use crate::error::GpuError;
use cudarc::cublaslt::result;
use cudarc::cublaslt::sys::{self, cublasLtMatmulDescAttributes_t, cublasLtMatmulPreferenceAttributes_t};
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::sync::Arc;

const WORKSPACE: usize = 64 << 20;
/// Algorithms that are timed at most, how often, and from how many multiplications on.
const CANDIDATES: usize = 8;
const ROUNDS: usize = 3;
const WORTH_TIMING: usize = 1 << 28;
const F32: sys::cudaDataType = sys::cudaDataType_t::CUDA_R_32F;
const BF16: sys::cudaDataType = sys::cudaDataType_t::CUDA_R_16BF;

/// A factor: where it begins, and from row to row how many numbers further.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Factor {
    pub(crate) at: u64,
    pub(crate) stride: usize,
    pub(crate) transposed: bool,
}

/// m × n sums of k products.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gemm {
    pub(crate) sizes: [usize; 3],
    pub(crate) left: Factor,
    pub(crate) right: Factor,
    pub(crate) to: u64,
    pub(crate) stride: usize,
    /// Results are f32, otherwise bf16.
    pub(crate) in_f32: bool,
    /// What results are added to: of the same form.
    pub(crate) plus: Option<u64>,
    pub(crate) scale: f32,
}

/// All that an algorithm depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    sizes: [usize; 3],
    strides: [usize; 3],
    transposed: [bool; 2],
    in_f32: bool,
    adds: bool,
    /// Alignments in bytes, at most 256.
    alignments: [u32; 3],
}

struct Plan {
    left: sys::cublasLtMatrixLayout_t,
    right: sys::cublasLtMatrixLayout_t,
    to: sys::cublasLtMatrixLayout_t,
    algorithm: sys::cublasLtMatmulAlgo_t,
}

/// cuBLASLt and the plans made so far.
pub(crate) struct Gemms {
    device: Arc<Device>,
    handle: sys::cublasLtHandle_t,
    /// By which factors are transposed.
    operations: [sys::cublasLtMatmulDesc_t; 4],
    workspace: Memory,
    plans: HashMap<Key, Plan>,
    timed: HashMap<Key, sys::cublasLtMatmulAlgo_t>,
    /// Memory that timing may overwrite, and its size.
    spare: (u64, usize),
}

// SAFETY: the handles are used by one thread at a time: every use needs the only reference.
unsafe impl Send for Gemms {}

impl Gemms {
    pub(crate) fn new(device: &Arc<Device>, spare: (u64, usize)) -> Result<Gemms, GpuError> {
        let workspace = device.take(WORKSPACE, "the workspace of products")?;
        let handle = result::create_handle()?;
        let operation = |transposed: usize| -> Result<sys::cublasLtMatmulDesc_t, GpuError> {
            let operation = result::create_matmul_desc(sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, F32)?;
            let attributes = [
                cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA,
                cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSB,
            ];
            for (at, attribute) in attributes.into_iter().enumerate() {
                let value = (transposed >> at & 1) as i32;
                // SAFETY: the attributes are an i32.
                unsafe {
                    let value = std::ptr::from_ref(&value).cast();
                    result::set_matmul_desc_attribute(operation, attribute, value, size_of::<i32>())?;
                }
            }
            Ok(operation)
        };
        let operations = [operation(0)?, operation(1)?, operation(2)?, operation(3)?];
        let (plans, timed) = (HashMap::new(), HashMap::new());
        Ok(Gemms { device: device.clone(), handle, operations, workspace, plans, timed, spare })
    }

    /// Queues a product. `rows` is the number of rows of the pass: products that differ in it alone share an algorithm.
    pub(crate) fn run(&mut self, gemm: &Gemm, rows: usize) -> Result<(), GpuError> {
        if gemm.sizes.contains(&0) {
            return Ok(());
        }
        let key = gemm.key();
        if !self.plans.contains_key(&key) {
            let mut plan = Plan::new(gemm)?;
            let rounded =
                Key { sizes: key.sizes.map(|size| if size == rows { size.next_power_of_two() } else { size }), ..key };
            if !self.timed.contains_key(&rounded) {
                let fastest = self.fastest(gemm, &plan, &key)?;
                self.timed.insert(rounded, fastest);
            }
            plan.algorithm = match self.timed.get(&rounded) {
                Some(algorithm) if self.accepts(&key, &plan, algorithm) => *algorithm,
                _ => self.candidates(&key, &plan)?[0],
            };
            self.plans.insert(key, plan);
        }
        match self.plans.get(&key) {
            Some(plan) => Ok(self.queue(gemm, plan, &plan.algorithm, gemm.to)?),
            None => Ok(()),
        }
    }

    fn operation(&self, key: &Key) -> sys::cublasLtMatmulDesc_t {
        // For cuBLASLt, which counts in columns, the factors change places.
        self.operations[usize::from(key.transposed[1]) + 2 * usize::from(key.transposed[0])]
    }

    fn queue(
        &self,
        gemm: &Gemm,
        plan: &Plan,
        algorithm: &sys::cublasLtMatmulAlgo_t,
        to: u64,
    ) -> Result<(), result::CublasError> {
        let beta = if gemm.plus.is_some() { 1.0f32 } else { 0.0 };
        // SAFETY: layouts and operands are as the product says; the workspace has its size.
        unsafe {
            result::matmul(
                self.handle,
                self.operation(&gemm.key()),
                std::ptr::from_ref(&gemm.scale).cast(),
                std::ptr::from_ref(&beta).cast(),
                gemm.right.at as *const _,
                plan.left,
                gemm.left.at as *const _,
                plan.right,
                gemm.plus.unwrap_or(to) as *const _,
                plan.to,
                to as *mut _,
                plan.to,
                algorithm,
                self.workspace.at(0) as *mut _,
                WORKSPACE,
                self.device.stream.cu_stream().cast(),
            )
        }
    }

    fn accepts(&self, key: &Key, plan: &Plan, algorithm: &sys::cublasLtMatmulAlgo_t) -> bool {
        let mut found = MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::zeroed();
        // SAFETY: all handles are valid; the result has room.
        unsafe {
            let operation = self.operation(key);
            let (to, found_at) = (plan.to, found.as_mut_ptr());
            let checked = sys::cublasLtMatmulAlgoCheck(
                self.handle,
                operation,
                plan.left,
                plan.right,
                to,
                to,
                algorithm,
                found_at,
            );
            checked.result().is_ok() && found.assume_init().workspaceSize <= WORKSPACE
        }
    }

    /// Algorithms, the likely fastest first: at least one.
    fn candidates(&self, key: &Key, plan: &Plan) -> Result<Vec<sys::cublasLtMatmulAlgo_t>, GpuError> {
        use cublasLtMatmulPreferenceAttributes_t as Attribute;
        let preference = result::create_matmul_pref()?;
        let mut found = [MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::zeroed(); CANDIDATES];
        let mut count = 0;
        let [left, right, to] = key.alignments;
        let alignments = [
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, right),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, left),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, to),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, to),
        ];
        // SAFETY: all handles are valid; there is room for as many results as are asked for; the preference is destroyed once.
        let algorithms: Vec<_> = unsafe {
            let workspace = std::ptr::from_ref(&WORKSPACE).cast();
            let attribute = Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
            let mut set = result::set_matmul_pref_attribute(preference, attribute, workspace, size_of::<usize>());
            for (attribute, alignment) in &alignments {
                let value = std::ptr::from_ref(alignment).cast();
                let next = || result::set_matmul_pref_attribute(preference, *attribute, value, size_of::<u32>());
                set = set.and_then(|()| next());
            }
            let asked = set.and_then(|()| {
                sys::cublasLtMatmulAlgoGetHeuristic(
                    self.handle,
                    self.operation(key),
                    plan.left,
                    plan.right,
                    plan.to,
                    plan.to,
                    preference,
                    CANDIDATES as i32,
                    found.as_mut_ptr().cast(),
                    &mut count,
                )
                .result()
            });
            result::destroy_matmul_pref(preference)?;
            asked?;
            let found = found.iter().take(count.max(0) as usize).map(|it| it.assume_init());
            found.filter(|it| it.state.result().is_ok()).map(|it| it.algo).collect()
        };
        match algorithms.is_empty() {
            true => Err(GpuError::Driver(format!("cuBLASLt knows no algorithm for a product: {key:?}"))),
            false => Ok(algorithms),
        }
    }

    /// The fastest algorithm, timed on the operands at hand. Results that would be added to themselves go to spare memory.
    fn fastest(&self, gemm: &Gemm, plan: &Plan, key: &Key) -> Result<sys::cublasLtMatmulAlgo_t, GpuError> {
        let candidates = self.candidates(key, plan)?;
        let first = candidates[0];
        let [rows, columns, depth] = gemm.sizes;
        let in_place = gemm.plus == Some(gemm.to);
        let bytes = rows * gemm.stride * if gemm.in_f32 { 4 } else { 2 };
        if rows * columns * depth < WORTH_TIMING || candidates.len() == 1 || in_place && bytes > self.spare.1 {
            return Ok(first);
        }
        let to = if in_place { self.spare.0 } else { gemm.to };
        let time = |algorithm: &_, rounds: usize| -> Result<Option<f32>, GpuError> {
            let start = self.device.mark()?;
            for _ in 0..rounds {
                // An algorithm that turns out not to run is no candidate.
                if self.queue(gemm, plan, algorithm, to).is_err() {
                    return Ok(None);
                }
            }
            let end = self.device.mark()?;
            end.synchronize()?;
            Ok(Some(start.elapsed_ms(&end)?))
        };
        let mut best = (f32::INFINITY, first);
        for algorithm in candidates {
            if time(&algorithm, 1)?.is_none() {
                continue;
            }
            if let Some(took) = time(&algorithm, ROUNDS)?.filter(|took| *took < best.0) {
                best = (took, algorithm);
            }
        }
        Ok(best.1)
    }
}

impl Gemm {
    fn key(&self) -> Key {
        let aligned = |at: u64| 1u32 << at.trailing_zeros().clamp(4, 8);
        let to = aligned(self.to).min(self.plus.map_or(256, aligned));
        Key {
            sizes: self.sizes,
            strides: [self.left.stride, self.right.stride, self.stride],
            transposed: [self.left.transposed, self.right.transposed],
            in_f32: self.in_f32,
            adds: self.plus.is_some(),
            alignments: [aligned(self.left.at), aligned(self.right.at), to],
        }
    }
}

impl Plan {
    fn new(gemm: &Gemm) -> Result<Plan, GpuError> {
        let [m, n, k] = gemm.sizes;
        let layout = |kind, width: usize, count: usize, stride: usize| {
            result::create_matrix_layout(kind, width as u64, count as u64, stride as i64) // Strides fit in i64.
        };
        let factor = |factor: &Factor, rows: usize, columns: usize| {
            let (rows, columns) = if factor.transposed { (columns, rows) } else { (rows, columns) };
            layout(BF16, columns, rows, factor.stride)
        };
        Ok(Plan {
            left: factor(&gemm.right, k, n)?,
            right: factor(&gemm.left, m, k)?,
            to: layout(if gemm.in_f32 { F32 } else { BF16 }, n, m, gemm.stride)?,
            // SAFETY: plain words; it is replaced before it is used.
            algorithm: unsafe { MaybeUninit::zeroed().assume_init() },
        })
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        for layout in [self.left, self.right, self.to] {
            // SAFETY: created with the plan, destroyed here only. A failure leaves a few bytes behind.
            let _freed: Result<(), _> = unsafe { result::destroy_matrix_layout(layout) };
        }
    }
}

impl Drop for Gemms {
    fn drop(&mut self) {
        self.plans.clear();
        for operation in self.operations {
            // SAFETY: created with this value, destroyed here only. A failure leaves a few bytes behind.
            let _freed: Result<(), _> = unsafe { result::destroy_matmul_desc(operation) };
        }
        // SAFETY: as above.
        let _freed: Result<(), _> = unsafe { result::destroy_handle(self.handle) };
    }
}
