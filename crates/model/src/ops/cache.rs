//! Putting the keys and values of new positions into a cache, in place.

use candle_core::{CpuStorage, InplaceOp2, Layout, Result, Tensor};

/// Writes the rows of `rows` (KV, R, D) into `cache` (KV, N, D), row r at `slots[r]`.
pub(crate) fn write_rows(cache: &Tensor, rows: &Tensor, slots: &[u32]) -> Result<()> {
    let (kv_heads, count, dim) = rows.dims3()?;
    if count != slots.len() || slots.iter().any(|slot| *slot as usize >= cache.dims()[1]) {
        candle_core::bail!("{count} rows for {} places of a cache", slots.len());
    }
    if cache.device().is_cpu() {
        return cache.inplace_op2(rows, &WriteRows { slots: slots.to_vec() });
    }
    let places = Tensor::from_slice(slots, (1, count, 1), cache.device())?;
    cache.scatter_set(&places.broadcast_as((kv_heads, count, dim))?.contiguous()?, rows, 1)
}

struct WriteRows {
    slots: Vec<u32>,
}

impl InplaceOp2 for WriteRows {
    fn name(&self) -> &'static str {
        "write-rows"
    }

    fn cpu_fwd(&self, cache: &mut CpuStorage, cache_at: &Layout, rows: &CpuStorage, rows_at: &Layout) -> Result<()> {
        let (_, places, dim) = cache_at.shape().dims3()?;
        let (CpuStorage::F32(cache), CpuStorage::F32(rows)) = (cache, rows) else {
            candle_core::bail!("f32 is needed on the CPU")
        };
        let (Some((start, _)), Some((from, _))) = (cache_at.contiguous_offsets(), rows_at.contiguous_offsets()) else {
            candle_core::bail!("a contiguous tensor is needed")
        };
        let rows = rows.get(from..).unwrap_or_default().chunks(dim.max(1));
        let heads = rows_at.dims().first().copied().unwrap_or(0);
        let targets = (0..heads).flat_map(|head| self.slots.iter().map(move |slot| head * places + *slot as usize));
        for (row, target) in rows.zip(targets) {
            if let Some(place) = cache.get_mut(start + target * dim..start + (target + 1) * dim) {
                place.copy_from_slice(row);
            }
        }
        Ok(())
    }
}
