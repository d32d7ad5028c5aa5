//! What a download reports while it goes.

/// Receives the progress of downloads.
pub trait DownloadProgress: Sync {
    /// Bytes came.
    fn received(&self, bytes: u64);

    /// Bytes that were reported came in vain: the attempt failed.
    fn lost(&self, bytes: u64);

    /// A file is here, or given up: how it ended.
    fn file_done(&self, path: &str, end: &str);

    /// Something that a person should know.
    fn note(&self, text: &str);

    /// All files have ended.
    fn finish(&self);
}

/// Begins to report the progress of so many files with so many bytes in all.
pub type StartProgress = fn(usize, u64) -> Box<dyn DownloadProgress>;

/// The bytes of one attempt. Unless it is told to keep them, they came in vain.
pub(crate) struct Attempt<'a> {
    progress: &'a dyn DownloadProgress,
    bytes: u64,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(progress: &'a dyn DownloadProgress) -> Self {
        Attempt { progress, bytes: 0 }
    }

    pub(crate) fn receive(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.progress.received(bytes);
    }

    pub(crate) fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.progress.lost(self.bytes);
    }
}
