//! A model that samples takes over what another one learned.

use super::Model;
use crate::device::Arg;
use crate::error::GpuError;
use crate::kernels::NUMBER_THREADS;
use crate::train::Trainer;

impl Model {
    /// Takes over the weights of a model in training: all, or the adapters, merged in. Keys and values that were computed before
    /// belong to the old weights.
    ///
    /// # Errors
    /// It is a model of another shape, or the device failed.
    pub fn follow(&mut self, trainer: &Trainer) -> Result<(), GpuError> {
        self.device.bind()?;
        if *trainer.shape() != self.shape {
            return Err(GpuError::Request("a model of another shape cannot be followed".to_owned()));
        }
        if trainer.has_adapters() && self.base.is_none() {
            let weights = self.weights.memory();
            let base = self.device.take(weights.bytes(), "the weights without adapters")?;
            self.device.copy_within(base.at(0), weights.at(0), weights.bytes())?;
            self.base = Some(base);
        }
        for (tensor, from) in trainer.values() {
            let Some((byte, count, is_matrix)) = self.weights.place(tensor) else { continue };
            let to = self.weights.memory().at(byte);
            if is_matrix {
                let args = [Arg::At(to), Arg::At(from), Arg::U64(count as u64)];
                self.device.launch(&self.kernels.round_to, (4_096, 1), NUMBER_THREADS, 0, &args)?;
            } else {
                self.device.copy_within(to, from, 4 * count)?;
            }
            self.weights.mark_written(tensor);
        }
        for merge in trainer.merges() {
            let (Some((byte, ..)), Some(base)) = (self.weights.place(merge.tensor), &self.base) else { continue };
            let start = byte + 2 * merge.first_row * merge.width;
            let args = [
                Arg::At(self.weights.memory().at(start)),
                Arg::At(base.at(start)),
                Arg::At(merge.second),
                Arg::At(merge.first),
                Arg::U32(merge.width as u32),
                Arg::U32(merge.rank as u32),
                Arg::F32(merge.scale),
            ];
            self.device.launch(&self.kernels.merge_adapter, (merge.rows, 1), NUMBER_THREADS, 0, &args)?;
        }
        self.device.wait()
    }
}
