//! Memory that several threads write at once, each in its own range.

// Safe Rust cannot lend ranges of one buffer to threads that choose them at run time; each function says why it is safe.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::Range;

/// A buffer of numbers that the threads of a pool fill together. It starts at a cache line, because registers as wide as a
/// line load slowly across two.
pub(crate) struct SharedBuffer<T: Number> {
    values: *mut [T],
    /// The start of the allocation.
    start: *mut u8,
    layout: Layout,
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// A number type that a buffer can hold.
///
/// # Safety
/// All bits zero must be a valid value: memory starts like that.
pub(crate) unsafe trait Number: Copy + Send + Sync {
    /// Fails to compile for what needs more than a line.
    const FITS_A_LINE: () = assert!(align_of::<Self>() <= LINE);
}
// SAFETY: all bits zero is 0.
unsafe impl Number for f32 {}
// SAFETY: as above.
unsafe impl Number for i32 {}
// SAFETY: as above.
unsafe impl Number for u16 {}
// SAFETY: as above.
#[cfg(test)]
unsafe impl Number for u64 {}

// SAFETY: the buffer owns its memory. The callers of its unsafe functions ensure that no two threads race for a range.
unsafe impl<T: Number> Send for SharedBuffer<T> {}
// SAFETY: as above.
unsafe impl<T: Number> Sync for SharedBuffer<T> {}

impl<T: Number> SharedBuffer<T> {
    /// A buffer of `count` zeros; `None` if there is no memory for them.
    pub(crate) fn new(count: usize) -> Option<Self> {
        let () = T::FITS_A_LINE;
        // One line more than needed, to align the start by hand. Asked for a larger alignment, the allocator would write the
        // zeros itself; this way the system provides zero pages and gives memory only to those that are used.
        let bytes = count.checked_mul(size_of::<T>())?.checked_add(LINE)?;
        let layout = Layout::array::<u8>(bytes).ok()?; // Fails only for sizes beyond any memory: `None`, as documented.
        // SAFETY: the layout has a size.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            return None;
        }
        // SAFETY: the next line begins less than a line further, and there is a line more than needed.
        let values = unsafe { start.add(start.align_offset(LINE)) };
        Some(SharedBuffer { values: std::ptr::slice_from_raw_parts_mut(values.cast(), count), start, layout })
    }

    /// A range to read.
    ///
    /// # Safety
    /// No thread writes into it until the phase is over.
    pub(crate) unsafe fn range(&self, range: Range<usize>) -> &[T] {
        assert!(range.start <= range.end && range.end <= self.values.len());
        // SAFETY: inside, as just asserted; the rest is the caller's duty.
        unsafe { std::slice::from_raw_parts(self.values.cast::<T>().add(range.start), range.len()) }
    }

    /// The whole buffer, to read.
    ///
    /// # Safety
    /// No thread writes into any of it until the phase is over.
    pub(crate) unsafe fn all(&self) -> &[T] {
        // SAFETY: the caller's duty.
        unsafe { self.range(0..self.values.len()) }
    }

    /// A range to write.
    ///
    /// # Safety
    /// No other thread touches it until the phase is over, and this thread has no other reference to it.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn range_mut(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.values.len());
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.values.cast::<T>().add(range.start), range.len()) }
    }
}

impl<T: Number> Drop for SharedBuffer<T> {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and the buffer is its only owner.
        unsafe { dealloc(self.start, self.layout) };
    }
}

/// A buffer that begins as zeros and is written by its owner alone. Other than a vector of a type that is no plain number, it
/// costs no time before it is used: the system provides the zeros, in large pages where it can.
pub(crate) struct ZeroedBuffer<T: Number>(SharedBuffer<T>);

impl<T: Number> ZeroedBuffer<T> {
    /// So many zeros; `None` if there is no memory for them.
    pub(crate) fn new(count: usize) -> Option<Self> {
        let buffer = SharedBuffer::new(count)?;
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        ask_for_large_pages(buffer.start, buffer.layout.size());
        Some(ZeroedBuffer(buffer))
    }
}

/// Asks the system for large pages inside a range of memory: reading weights takes fewer look-ups of addresses.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn ask_for_large_pages(start: *mut u8, bytes: usize) {
    const PAGE: usize = 4_096;
    const WORTH: usize = 4 << 20;
    let before = start.align_offset(PAGE);
    if bytes >= WORTH + before {
        // SAFETY: the range lies inside the allocation. It is advice: contents stay, and a refusal changes nothing.
        unsafe { libc::madvise(start.add(before).cast(), (bytes - before) / PAGE * PAGE, libc::MADV_HUGEPAGE) };
    }
}

impl<T: Number> std::ops::Deref for ZeroedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: only `deref_mut` writes, for which the buffer is borrowed exclusively.
        unsafe { self.0.all() }
    }
}

impl<T: Number> std::ops::DerefMut for ZeroedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: the buffer is borrowed exclusively.
        unsafe { self.0.range_mut(0..self.0.values.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_begin_at_a_line_and_take_memory_when_used() {
        for count in [0, 1, 1_000] {
            let buffer = SharedBuffer::<u16>::new(count).unwrap();
            // SAFETY: no other thread has it.
            let all = unsafe { buffer.all() };
            assert!(all.as_ptr().addr().is_multiple_of(LINE) && all.len() == count && all.iter().all(|it| *it == 0));
        }
        assert!(
            SharedBuffer::<u64>::new(usize::MAX / 4).is_none() && SharedBuffer::<u64>::new(usize::MAX / 8).is_none()
        );
        #[cfg(target_os = "linux")]
        {
            let pages = || -> usize {
                let text = std::fs::read_to_string("/proc/self/statm").unwrap();
                text.split(' ').nth(1).unwrap().parse().unwrap()
            };
            let before = pages();
            let _large = SharedBuffer::<u64>::new(1 << 27); // A gibibyte.
            assert!(pages().saturating_sub(before) < 1 << 17, "half of it is in memory");
        }
    }
}
