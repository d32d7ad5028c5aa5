//! CUDA graphs: a step is recorded once and then started with a single call.

#![allow(unsafe_code)]

use crate::device::Device;
use crate::error::GpuError;
use cudarc::driver::CudaGraph;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};

/// A recorded step.
pub(crate) struct Graph(CudaGraph);

// SAFETY: a graph is used by one thread at a time: its owner is.
unsafe impl Send for Graph {}

impl Graph {
    /// Records what `queue` puts into the stream; nothing of it runs.
    pub(crate) fn record(device: &Device, queue: impl FnOnce() -> Result<(), GpuError>) -> Result<Graph, GpuError> {
        device.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        let queued = queue();
        // Recording ends even if something could not be queued.
        let graph = device.stream.end_capture(CUgraphInstantiate_flags(0));
        queued?;
        match graph? {
            Some(graph) => Ok(Graph(graph)),
            None => Err(GpuError::Driver("nothing was recorded for a graph".to_owned())),
        }
    }

    /// Queues the whole step.
    pub(crate) fn launch(&self) -> Result<(), GpuError> {
        Ok(self.0.launch()?)
    }
}
