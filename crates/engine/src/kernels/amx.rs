//! Int8 products with Intel AMX tiles: one instruction multiplies sixteen rows with a group of a panel.
//!
//! A group of a panel and sixteen quantised rows lie in memory in the layout that tiles are loaded from. The sums are exact
//! integers, and groups are added as in `int8.rs`: the bits are the same.

// Only assembly reaches the tile registers: the intrinsics for them are not stable yet.
#![allow(unsafe_code)]

use super::int8::Bytes;
use super::panels::{Floats, LANES, Rounded};
use std::marker::PhantomData;
use std::ops::Range;

/// The tile registers of this thread, configured until this value is dropped.
#[cfg_attr(not(all(target_arch = "x86_64", target_os = "linux")), allow(dead_code))]
pub(super) struct Tiles {
    /// The registers belong to one thread: the value can be neither sent nor shared.
    _here: PhantomData<*const ()>,
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod linux {
    use super::super::simd_level::{SimdLevel, simd_level};
    use super::*;
    use std::arch::asm;
    use std::arch::x86_64::*;
    use std::mem::MaybeUninit;
    use std::sync::OnceLock;

    /// Rows of a tile; products of fewer rows use the other kernels.
    const ROWS: usize = 16;

    /// The tile configuration: each of the eight tiles has sixteen rows of 64 bytes.
    #[repr(C, align(64))]
    struct Shape {
        palette: u8,
        first_row: u8,
        reserved: [u8; 14],
        bytes: [u16; 16],
        rows: [u8; 16],
    }

    static SHAPE: Shape = {
        let (mut bytes, mut rows) = ([0; 16], [0; 16]);
        let mut tile = 0;
        while tile < 8 {
            (bytes[tile], rows[tile]) = (64, ROWS as u8);
            tile += 1;
        }
        Shape { palette: 1, first_row: 0, reserved: [0; 14], bytes, rows }
    };

    /// Groups at a time: their sums are in separate tiles and do not wait for each other.
    const GROUPS: usize = 4;

    /// The sums of sixteen rows with one group of a panel.
    #[derive(Clone, Copy)]
    #[repr(C, align(64))]
    struct Sums([[i32; LANES]; ROWS]);

    impl Tiles {
        /// Configures the tiles; `None` if the processor has none or there are too few rows.
        pub(in super::super) fn take(rows: usize) -> Option<Tiles> {
            static ALLOWED: OnceLock<bool> = OnceLock::new();
            (rows >= ROWS && *ALLOWED.get_or_init(ask)).then(|| {
                // SAFETY: there are tiles, and the system lets this process use them.
                unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const SHAPE, options(nostack, preserves_flags)) };
                Tiles { _here: PhantomData }
            })
        }

        /// As [`super::super::panels::Panels::multiply`].
        pub(in super::super) fn multiply(
            &self,
            (lines, factors, groups): (&[Bytes], &[Floats], usize),
            (rows, x): (usize, Rounded<'_>),
            panels: Range<usize>,
            mut put: impl FnMut(usize, usize, &[f32; LANES]),
        ) {
            let (mut sums, mut products) = ([MaybeUninit::uninit(); GROUPS], [[0f32; LANES]; ROWS]);
            for panel in panels {
                let part = panel * groups..(panel + 1) * groups;
                let (lines, factors) = (&lines[part.start * LANES..part.end * LANES], &factors[part]);
                for new in (0..rows).step_by(ROWS) {
                    // The last sixteen rows may overlap the tile before; products that are known are not put again.
                    let first = new.min(rows - ROWS);
                    let x = x.rows(first..first + ROWS, groups);
                    for start in (0..groups).step_by(GROUPS) {
                        let some = start..(start + GROUPS).min(groups);
                        // SAFETY: `ask` has checked for tiles and AVX-512.
                        unsafe {
                            sum(lines, x, some.clone(), &mut sums);
                            add(factors, x, some, &sums, &mut products);
                        }
                    }
                    (new..first + ROWS).for_each(|row| put(row, panel, &products[row - first]));
                }
            }
        }
    }

    impl Drop for Tiles {
        fn drop(&mut self) {
            // SAFETY: there are tiles. Releasing their state spares the system from saving it.
            unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
        }
    }

    /// Whether the processor has tiles for bytes, and the system lets this process use them.
    fn ask() -> bool {
        const TILES_AND_BYTES: u32 = 1 << 24 | 1 << 25;
        const ASK_FOR_STATE: libc::c_ulong = 0x1023;
        const STATE_OF_TILES: libc::c_ulong = 18;
        if simd_level() < SimdLevel::Avx512 || __cpuid_count(7, 0).edx & TILES_AND_BYTES != TILES_AND_BYTES {
            return false;
        }
        // SAFETY: a system call that writes no memory.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ASK_FOR_STATE, STATE_OF_TILES) == 0 }
    }

    /// Sums one group.
    macro_rules! sum_group {
        ($sums:tt, $rows:tt, $weights:tt, $x:expr, $stride:expr, $lines:expr, $to:expr) => {
            asm!(
                concat!("tilezero ", $sums),
                concat!("tileloadd ", $rows, ", [{x} + {stride}]"),
                concat!("tileloadd ", $weights, ", [{lines} + {line}]"),
                concat!("tdpbsud ", $sums, ", ", $rows, ", ", $weights),
                concat!("tilestored [{to} + {line}], ", $sums),
                x = in(reg) $x,
                stride = in(reg) $stride,
                lines = in(reg) $lines,
                to = in(reg) $to,
                line = in(reg) size_of::<Bytes>(),
                out($sums) _,
                out($rows) _,
                out($weights) _,
                options(nostack, preserves_flags),
            )
        };
    }

    /// The sums of some groups, four at most.
    ///
    /// # Safety
    /// The tiles of this thread have their shape.
    unsafe fn sum(lines: &[Bytes], x: Rounded<'_>, groups: Range<usize>, sums: &mut [MaybeUninit<Sums>; GROUPS]) {
        assert!(groups.end * LANES <= lines.len() && x.quads.len() == ROWS * lines.len());
        let stride = size_of_val(x.quads) / ROWS;
        for (at, (group, sums)) in groups.zip(sums).enumerate() {
            let (x, lines) = (x.quads[group * LANES..].as_ptr(), lines[group * LANES..].as_ptr());
            let to = sums.as_mut_ptr();
            // SAFETY: by the lengths asserted above there are sixteen rows of 64 bytes at this distance from each other and
            // sixteen lines; and there is room for sixteen times sixteen sums.
            unsafe {
                match at {
                    0 => sum_group!("tmm0", "tmm4", "tmm6", x, stride, lines, to),
                    1 => sum_group!("tmm1", "tmm5", "tmm7", x, stride, lines, to),
                    2 => sum_group!("tmm2", "tmm4", "tmm6", x, stride, lines, to),
                    _ => sum_group!("tmm3", "tmm5", "tmm7", x, stride, lines, to),
                }
            }
        }
    }

    /// Adds the sums of some groups to the products of their rows; the first ones begin them.
    ///
    /// # Safety
    /// The sums of these groups were written.
    #[target_feature(enable = "avx512f")]
    unsafe fn add(
        factors: &[Floats],
        x: Rounded<'_>,
        groups: Range<usize>,
        sums: &[MaybeUninit<Sums>; GROUPS],
        products: &mut [[f32; LANES]; ROWS],
    ) {
        let all = factors.len();
        for (row, products) in products.iter_mut().enumerate() {
            let (scales, offsets) = (&x.factors[row * all..(row + 1) * all], &x.offsets[row * all..(row + 1) * all]);
            // SAFETY: rows of products and of sums have sixteen numbers, and so has a line of factors; sums and lines are
            // aligned.
            unsafe {
                let begun = groups.start > 0;
                let mut product = if begun { _mm512_loadu_ps(products.as_ptr()) } else { _mm512_setzero_ps() };
                for (group, sums) in groups.clone().zip(sums) {
                    let whole = _mm512_load_si512(sums.assume_init_ref().0[row].as_ptr().cast());
                    let whole = _mm512_add_epi32(whole, _mm512_set1_epi32(offsets[group]));
                    let factors = _mm512_load_ps(factors[group].0.as_ptr());
                    let factor = _mm512_mul_ps(factors, _mm512_set1_ps(scales[group]));
                    product = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), factor, product);
                }
                _mm512_storeu_ps(products.as_mut_ptr(), product);
            }
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
impl Tiles {
    pub(super) fn take(_: usize) -> Option<Tiles> {
        None
    }

    pub(super) fn multiply(
        &self,
        _: (&[Bytes], &[Floats], usize),
        _: (usize, Rounded<'_>),
        _: Range<usize>,
        _: impl FnMut(usize, usize, &[f32; LANES]),
    ) {
    }
}
