//! Where the time of a step goes.

use crate::device::Device;
use crate::error::GpuError;
use cudarc::driver::CudaEvent;
use std::collections::BTreeMap;

/// Marks after each operation of a step.
pub(crate) struct Clock {
    marks: Vec<(&'static str, CudaEvent)>,
}

impl Clock {
    pub(crate) fn start(device: &Device) -> Result<Clock, GpuError> {
        Ok(Clock { marks: vec![("", device.mark()?)] })
    }

    /// Ends an operation.
    pub(crate) fn lap(&mut self, device: &Device, name: &'static str) -> Result<(), GpuError> {
        self.marks.push((name, device.mark()?));
        Ok(())
    }

    /// Milliseconds by operation.
    pub(crate) fn totals(&self) -> Result<BTreeMap<&'static str, f32>, GpuError> {
        let mut totals = BTreeMap::new();
        for pair in self.marks.windows(2) {
            if let [(_, start), (name, end)] = pair {
                end.synchronize()?;
                *totals.entry(*name).or_insert(0.0) += start.elapsed_ms(end)?;
            }
        }
        Ok(totals)
    }
}
