//! Matrix products with cuBLASLt. For each product and number of rows, several algorithms are timed once, on the weights of all
//! layers, and the fastest is kept.

#![allow(unsafe_code)]

use crate::device::{Device, Memory};
use crate::error::GpuError;
use crate::kernels::Numbers;
use cudarc::cublaslt::result;
use cudarc::cublaslt::sys::{self, cublasLtMatmulDescAttributes_t, cublasLtMatmulPreferenceAttributes_t};
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::sync::Arc;

const WORKSPACE: usize = 64 << 20;
/// Algorithms that are timed at most.
const CANDIDATES: usize = 12;
/// How long a candidate is timed, about.
const TIMED_MS: f32 = 1.0;

/// The products of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Product {
    Qkv,
    O,
    GateUp,
    Down,
    Head,
}

/// What a product takes and gives: rows of `ins` numbers of 16 bits become rows of `outs`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) ins: usize,
    pub(crate) outs: usize,
    /// Results are f32, otherwise as the factors.
    pub(crate) in_f32: bool,
    /// Results are added to what is there.
    pub(crate) adds: bool,
}

/// The operands of a product.
#[derive(Clone, Copy)]
pub(crate) struct Operands {
    pub(crate) x: u64,
    pub(crate) weight: u64,
    pub(crate) y: u64,
}

/// Everything that is known about one product with one number of rows.
struct Plan {
    x: sys::cublasLtMatrixLayout_t,
    weight: sys::cublasLtMatrixLayout_t,
    y: sys::cublasLtMatrixLayout_t,
    algorithm: sys::cublasLtMatmulAlgo_t,
}

/// cuBLASLt and the plans made so far.
pub(crate) struct Products {
    device: Arc<Device>,
    handle: sys::cublasLtHandle_t,
    operation: sys::cublasLtMatmulDesc_t,
    workspace: Memory,
    plans: HashMap<(Product, usize), Plan>,
    /// The fastest algorithm for a product and a number of rows that is a power of two.
    tuned: HashMap<(Product, usize), sys::cublasLtMatmulAlgo_t>,
    tuning: bool,
    numbers: Numbers,
}

// SAFETY: the handles are used by one thread at a time: every use needs the only reference.
unsafe impl Send for Products {}

/// The number of rows that a step is padded to.
pub(crate) fn bucket(rows: usize) -> usize {
    let step = match rows {
        0..=8 => return rows.max(1).next_power_of_two(),
        9..=64 => 16,
        65..=256 => 32,
        257..=512 => 64,
        513..=1_024 => 128,
        _ => rows.next_power_of_two() / 8,
    };
    rows.next_multiple_of(step)
}

/// The number of rows whose algorithm is used for these, where steps have at most `most` rows.
fn timed_rows(rows: usize, most: usize) -> usize {
    let largest = most.next_power_of_two() / if most.is_power_of_two() { 1 } else { 2 };
    rows.next_power_of_two().min(largest.max(1))
}

impl Products {
    pub(crate) fn new(device: &Arc<Device>, tuning: bool, numbers: Numbers) -> Result<Products, GpuError> {
        let workspace = device.take(WORKSPACE, "the workspace of products")?;
        let handle = result::create_handle()?;
        let operation = result::create_matmul_desc(sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, F32)?;
        // Weights lie row by row: for cuBLASLt, which counts in columns, they are transposed (CUBLAS_OP_T).
        let transposed: i32 = 1;
        // SAFETY: the attribute is an i32.
        unsafe {
            result::set_matmul_desc_attribute(
                operation,
                cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA,
                std::ptr::from_ref(&transposed).cast(),
                size_of::<i32>(),
            )?;
        }
        let (plans, tuned) = (HashMap::new(), HashMap::new());
        Ok(Products { device: device.clone(), handle, operation, workspace, plans, tuned, tuning, numbers })
    }

    /// Whether a product can be queued without timing anything first.
    pub(crate) fn is_ready(&self, product: Product, rows: usize) -> bool {
        self.plans.contains_key(&(product, rows))
    }

    /// Times the candidates for all numbers of rows, so that no later step has to wait for it. What the operands hold is lost.
    pub(crate) fn tune(
        &mut self,
        product: Product,
        form: Form,
        most_rows: usize,
        operands: &[Operands],
    ) -> Result<(), GpuError> {
        for rows in std::iter::successors(Some(1), |rows| Some(2 * rows)).take_while(|rows| *rows <= most_rows) {
            self.prepare(product, form, rows, most_rows, operands)?;
        }
        Ok(())
    }

    /// Makes the plan of a product, timing candidates on these operands if that was not done. What they hold is lost.
    pub(crate) fn prepare(
        &mut self,
        product: Product,
        form: Form,
        rows: usize,
        most_rows: usize,
        operands: &[Operands],
    ) -> Result<(), GpuError> {
        if self.is_ready(product, rows) {
            return Ok(());
        }
        let timed = timed_rows(rows, most_rows);
        if !self.tuned.contains_key(&(product, timed)) {
            let algorithm = self.fastest(form, timed, operands)?;
            self.tuned.insert((product, timed), algorithm);
        }
        let mut plan = Plan::new(self.numbers, form, rows)?;
        match self.tuned.get(&(product, timed)) {
            Some(algorithm) if timed == rows || self.accepts(&plan, algorithm) => plan.algorithm = *algorithm,
            _ => plan.algorithm = self.candidates(&plan)?[0],
        }
        self.plans.insert((product, rows), plan);
        Ok(())
    }

    /// Queues a product that was prepared.
    pub(crate) fn run(&self, product: Product, form: Form, rows: usize, operands: Operands) -> Result<(), GpuError> {
        let plan = self.plans.get(&(product, rows));
        let plan = plan.ok_or_else(|| GpuError::Request(format!("no plan for {product:?} of {rows} rows")))?;
        Ok(self.queue(plan, form, operands, &plan.algorithm)?)
    }

    fn queue(
        &self,
        plan: &Plan,
        form: Form,
        operands: Operands,
        algorithm: &sys::cublasLtMatmulAlgo_t,
    ) -> Result<(), result::CublasError> {
        let (one, beta) = (1.0f32, if form.adds { 1.0f32 } else { 0.0 });
        // SAFETY: layouts and operands are as the form says; the workspace has its size.
        unsafe {
            result::matmul(
                self.handle,
                self.operation,
                std::ptr::from_ref(&one).cast(),
                std::ptr::from_ref(&beta).cast(),
                operands.weight as *const _,
                plan.weight,
                operands.x as *const _,
                plan.x,
                operands.y as *const _,
                plan.y,
                operands.y as *mut _,
                plan.y,
                algorithm,
                self.workspace.at(0) as *mut _,
                WORKSPACE,
                self.device.stream.cu_stream().cast(),
            )
        }
    }

    /// Whether an algorithm can run a plan for another number of rows.
    fn accepts(&self, plan: &Plan, algorithm: &sys::cublasLtMatmulAlgo_t) -> bool {
        let mut found = MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::zeroed();
        // SAFETY: all handles are valid; the result has room.
        unsafe {
            let checked = sys::cublasLtMatmulAlgoCheck(
                self.handle,
                self.operation,
                plan.weight,
                plan.x,
                plan.y,
                plan.y,
                algorithm,
                found.as_mut_ptr(),
            );
            checked.result().is_ok() && found.assume_init().workspaceSize <= WORKSPACE
        }
    }

    /// Algorithms for a plan, the likely fastest first: at least one.
    fn candidates(&self, plan: &Plan) -> Result<Vec<sys::cublasLtMatmulAlgo_t>, GpuError> {
        let preference = result::create_matmul_pref()?;
        let mut found = [MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::zeroed(); CANDIDATES];
        let mut count = 0;
        // SAFETY: all handles are valid; there is room for as many results as are asked for; the preference is destroyed once.
        let algorithms: Vec<_> = unsafe {
            let attribute = cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
            let workspace = std::ptr::from_ref(&WORKSPACE).cast();
            let set = result::set_matmul_pref_attribute(preference, attribute, workspace, size_of::<usize>());
            let asked = set.and_then(|()| {
                sys::cublasLtMatmulAlgoGetHeuristic(
                    self.handle,
                    self.operation,
                    plan.weight,
                    plan.x,
                    plan.y,
                    plan.y,
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
            true => Err(GpuError::Driver("cuBLASLt knows no algorithm for a product".to_owned())),
            false => Ok(algorithms),
        }
    }

    /// The fastest algorithm, timed on all operands in turn, as a step runs it: no weights are in the cache.
    fn fastest(&self, form: Form, rows: usize, operands: &[Operands]) -> Result<sys::cublasLtMatmulAlgo_t, GpuError> {
        let plan = Plan::new(self.numbers, form, rows)?;
        let candidates = self.candidates(&plan)?;
        let first = candidates[0];
        if !self.tuning || candidates.len() == 1 {
            return Ok(first);
        }
        let time = |algorithm: &_, rounds: usize| -> Result<Option<f32>, GpuError> {
            let start = self.device.mark()?;
            for operands in operands.iter().cycle().take(rounds) {
                // An algorithm that turns out not to run is no candidate.
                if self.queue(&plan, form, *operands, algorithm).is_err() {
                    return Ok(None);
                }
            }
            let end = self.device.mark()?;
            end.synchronize()?;
            Ok(Some(start.elapsed_ms(&end)? / rounds as f32))
        };
        // The first is also the warm-up.
        time(&first, operands.len().min(3))?;
        let Some(expected) = time(&first, operands.len().min(3))? else { return Ok(first) };
        let rounds = ((TIMED_MS / expected.max(1e-3)) as usize).clamp(2, 2 * operands.len().max(1));
        let mut best = (f32::INFINITY, first);
        for algorithm in candidates {
            if time(&algorithm, 1)?.is_none() {
                continue;
            }
            if let Some(took) = time(&algorithm, rounds)?.filter(|took| *took < best.0) {
                best = (took, algorithm);
            }
        }
        Ok(best.1)
    }
}

const F32: sys::cudaDataType = sys::cudaDataType_t::CUDA_R_32F;

impl Plan {
    fn new(numbers: Numbers, form: Form, rows: usize) -> Result<Plan, GpuError> {
        let half = match numbers {
            Numbers::F16 => sys::cudaDataType_t::CUDA_R_16F,
            Numbers::Bf16 => sys::cudaDataType_t::CUDA_R_16BF,
        };
        let layout = |kind, width: usize, count: usize| {
            result::create_matrix_layout(kind, width as u64, count as u64, width as i64) // Widths fit in i64.
        };
        let y = if form.in_f32 { F32 } else { half };
        Ok(Plan {
            x: layout(half, form.ins, rows)?,
            weight: layout(half, form.ins, form.outs)?,
            y: layout(y, form.outs, rows)?,
            // SAFETY: plain words; it is replaced before it is used.
            algorithm: unsafe { MaybeUninit::zeroed().assume_init() },
        })
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        for layout in [self.x, self.weight, self.y] {
            // SAFETY: created with the plan, destroyed here only. A failure leaves a few bytes behind.
            let _freed: Result<(), _> = unsafe { result::destroy_matrix_layout(layout) };
        }
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        self.plans.clear();
        // SAFETY: created with this value, destroyed here only. A failure leaves a few bytes behind.
        let _freed = unsafe { (result::destroy_matmul_desc(self.operation), result::destroy_handle(self.handle)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_their_rows_and_waste_little() {
        for rows in 1..20_000 {
            let found = bucket(rows);
            assert!(found >= rows && bucket(found) == found, "{rows}: {found}");
            assert!(rows <= 64 || found <= rows + rows / 4 + 32, "{rows}: {found}");
        }
        for (rows, most, timed) in [(1, 9_216, 1), (300, 9_216, 512), (9_000, 9_216, 8_192), (40, 40, 32), (3, 4, 4)] {
            assert_eq!(timed_rows(rows, most), timed, "{rows} of {most}");
        }
        assert_eq!(
            [1, 3, 9, 60, 100, 300, 600, 1_030, 9_000].map(bucket),
            [1, 4, 16, 64, 128, 320, 640, 1_280, 10_240]
        );
    }
}
