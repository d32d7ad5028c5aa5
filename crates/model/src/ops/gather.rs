//! Picking rows of a table: the embedding, and the positions that carry a loss. The library's own gradient goes through all
//! ids for every column, one after another; here each row of the table sums what belongs to it.

use super::elements;
use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CudaStorage, CustomOp1, CustomOp2, Layout, Result, Shape, Tensor, bail};
use std::sync::Arc;

/// The rows `ids` of a table (N, D): (R, D).
pub(crate) fn gather_rows(table: &Tensor, ids: &[u32]) -> Result<Tensor> {
    let (rows, _) = table.dims2()?;
    if let Some(id) = ids.iter().find(|id| **id as usize >= rows) {
        bail!("row {id} of a table of {rows}");
    }
    let on_device = Tensor::from_slice(ids, ids.len(), table.device())?;
    table.contiguous()?.apply_op1(GatherRows { ids: ids.into(), on_device })
}

struct GatherRows {
    ids: Arc<[u32]>,
    on_device: Tensor,
}

impl CustomOp1 for GatherRows {
    fn name(&self) -> &'static str {
        "gather-rows"
    }

    fn cpu_fwd(&self, table: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (_, width) = layout.shape().dims2()?;
        let table = elements::<f32>(table, layout)?;
        let rows = self.ids.iter().flat_map(|id| &table[*id as usize * width..(*id as usize + 1) * width]);
        Ok((CpuStorage::F32(rows.copied().collect()), Shape::from((self.ids.len(), width))))
    }

    fn cuda_fwd(&self, table: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let (_, width) = layout.shape().dims2()?;
        let (ids, ids_layout) = self.on_device.storage_and_layout();
        let candle_core::Storage::Cuda(ids) = &*ids else { bail!("the ids are not on the GPU") };
        Ok((table.index_select(ids, layout, ids_layout, 0)?, Shape::from((self.ids.len(), width))))
    }

    fn bwd(&self, table: &Tensor, _: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        let sums = SumRows { rows: table.dim(0)?, lists: Lists::of(&self.ids, table.dim(0)?) };
        let lists = Tensor::from_slice(&sums.lists.flat, sums.lists.flat.len(), grad.device())?;
        grad.contiguous()?.apply_op2_no_bwd(&lists, &sums).map(Some)
    }
}

/// Which places of a gradient belong to which row.
struct Lists {
    /// Rows that have any.
    count: usize,
    /// Those rows, then where each one's list begins (and the last one ends), then the lists.
    flat: Vec<u32>,
}

impl Lists {
    /// Of ids below `rows`.
    fn of(ids: &[u32], rows: usize) -> Lists {
        // Places are counted in u32, as the ids themselves are: a batch has far fewer.
        let mut ends = vec![0u32; rows];
        for id in ids {
            ends[*id as usize] += 1;
        }
        let (mut named, mut starts, mut total) = (Vec::new(), Vec::new(), 0);
        for (row, end) in ends.iter_mut().enumerate() {
            if *end > 0 {
                named.push(row as u32);
                starts.push(total);
            }
            total += std::mem::replace(end, total);
        }
        starts.push(total);
        // Each place goes to the end of what its row has so far, so that they stay in order.
        let mut order = vec![0u32; ids.len()];
        for (place, id) in ids.iter().enumerate() {
            let end = &mut ends[*id as usize];
            order[*end as usize] = place as u32;
            *end += 1;
        }
        Lists { count: named.len(), flat: [named, starts, order].concat() }
    }

    /// Each row with the places that belong to it.
    fn each(&self) -> impl Iterator<Item = (usize, &[u32])> {
        let (rows, rest) = self.flat.split_at(self.count);
        let (starts, order) = rest.split_at(self.count + 1);
        let bounds = starts.windows(2).map(|bounds| (bounds[0] as usize, bounds[1] as usize));
        rows.iter().zip(bounds).map(move |(row, (start, end))| (*row as usize, &order[start..end]))
    }
}

/// The sums of the rows of a gradient that belong to the same row of a table; zeros elsewhere.
struct SumRows {
    rows: usize,
    lists: Lists,
}

impl CustomOp2 for SumRows {
    fn name(&self) -> &'static str {
        "sum-rows"
    }

    fn cpu_fwd(&self, grad: &CpuStorage, layout: &Layout, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        let (_, width) = layout.shape().dims2()?;
        let grad = elements::<f32>(grad, layout)?;
        let mut sums = vec![0f32; self.rows * width];
        for (row, places) in self.lists.each() {
            let sum = &mut sums[row * width..(row + 1) * width];
            for place in places {
                for (sum, grad) in sum.iter_mut().zip(&grad[*place as usize * width..]) {
                    *sum += grad;
                }
            }
        }
        Ok((CpuStorage::F32(sums), Shape::from((self.rows, width))))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        grad: &CudaStorage,
        layout: &Layout,
        lists: &CudaStorage,
        lists_layout: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        use super::cuda::{Arg, Launch, size};
        use candle_core::{DType, backend::BackendDevice};
        let (_, width) = layout.shape().dims2()?;
        let (device, dtype, shape) = (&grad.device, grad.dtype(), Shape::from((self.rows, width)));
        let sums = device.zeros_impl(&shape, dtype)?;
        // Frequent tokens have long lists: groups of threads divide them, as many as have shared memory for a sum each.
        const ROOM: usize = 8_192;
        let across = width.div_ceil(16 / dtype.size_in_bytes()).next_multiple_of(32).clamp(32, 256);
        let lists_are_long = self.lists.flat.len() > 8 * self.lists.count;
        let teams = if lists_are_long { (1_024 / across).min(ROOM / width.max(1)).max(1) } else { 1 };
        let args = [
            Arg::read((grad, layout), dtype)?,
            Arg::read((lists, lists_layout), DType::U32)?,
            Arg::Write(&sums),
            Arg::U32(size(self.lists.count)?),
            Arg::U32(size(width)?),
            Arg::U32(size(across)?),
        ];
        let launch = Launch {
            grid: (size(self.lists.count)?, 1),
            threads: size(across * teams)?,
            shared_bytes: size(teams * width * 4)?,
        };
        launch.run("sum_rows", dtype, device, &args)?;
        Ok((sums, shape))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, Var};

    #[test]
    fn rows_and_their_gradients_are_those_of_index_select() {
        let values: Vec<f32> = (0..60).map(|it| it as f32 * 0.5).collect();
        let table = Var::from_tensor(&Tensor::from_vec(values, (12, 5), &Device::Cpu).unwrap()).unwrap();
        for ids in [vec![3u32], vec![0, 11, 0, 4, 4, 4, 7], (0..12).rev().collect::<Vec<u32>>()] {
            let expected = table.index_select(&Tensor::new(ids.clone(), &Device::Cpu).unwrap(), 0).unwrap();
            let found = gather_rows(&table, &ids).unwrap();
            let gradient = |rows: &Tensor| {
                let store = (rows.sqr().unwrap() * 3.0).unwrap().sum_all().unwrap().backward().unwrap();
                store.get(&table).unwrap().to_vec2::<f32>().unwrap()
            };
            assert_eq!(found.to_vec2::<f32>().unwrap(), expected.to_vec2::<f32>().unwrap());
            assert_eq!(gradient(&found), gradient(&expected));
        }
        assert!(gather_rows(&table, &[12]).is_err());
    }
}
