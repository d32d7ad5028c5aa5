//! The products of some rows with a unit of a panel: which kernel, and the one for any processor.

use super::super::int8::Bytes;
use super::super::panels::LANES;
use super::super::simd_level::{SimdLevel, simd_level};
use super::blocks::unpack;
use super::{Half, InputBlocks, Inputs, Kind, UNIT_LINES, Unit};
use half::f16;
use std::sync::OnceLock;

/// Adds the products of a unit with one, two, four or eight rows to sums.
pub(super) type Tile = fn(&Unit<'_>, &Inputs<'_>, &mut [[f32; LANES]]);
/// Computes the products of a panel with one, two or four rows; false if it cannot.
pub(super) type Few = fn(Kind, &[Bytes], &[Half], &Inputs<'_>, &mut [[f32; LANES]]) -> bool;

/// The numbers of a unit as bytes: line q has four inputs of each output, from input 4q on.
pub(super) type Unpack = fn(Kind, &[Bytes], &mut [Bytes; UNIT_LINES]);

/// The kernels for a processor.
#[derive(Clone, Copy)]
pub(super) struct Kernels {
    pub(super) tile: Tile,
    pub(super) few: Few,
    pub(super) unpack: Unpack,
    /// Rows from which unpacking into memory pays, as measured with weights that are in no cache.
    pub(super) many: fn(Kind) -> usize,
}

/// The kernels for this processor.
pub(super) fn kernels() -> Kernels {
    static KERNELS: OnceLock<Kernels> = OnceLock::new();
    *KERNELS.get_or_init(|| kernels_for(simd_level()))
}

/// The kernels for these instructions, which the processor must have.
pub(super) fn kernels_for(level: SimdLevel) -> Kernels {
    let none: Few = |_, _, _, _, _| false;
    match level {
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx512Vnni => Kernels {
            tile: super::tiles_vnni::tile,
            few: super::fused_vnni::panel,
            unpack: super::fused_vnni::unpack,
            many: |kind| if kind == Kind::Q4K { usize::MAX } else { 8 },
        },
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx512 | SimdLevel::Avx2 => Kernels {
            tile: super::tiles_avx2::tile,
            few: super::fused_avx2::panel,
            unpack: super::fused_avx2::unpack,
            many: |kind| if kind == Kind::Q4K { 6 } else { 0 },
        },
        _ => Kernels { tile: anywhere, few: none, unpack, many: |_| 0 },
    }
}

impl Kind {
    /// The half lines of a unit's block: (scales, minima, factor of scales, factor of minima) of formats with large blocks.
    pub(super) fn half_of_factor(self) -> usize {
        match self {
            Kind::Q4K | Kind::Q5K | Kind::Q6K => 8,
            Kind::Q4Centred | Kind::Q4Min | Kind::Q8Centred | Kind::Q5Min => 0,
        }
    }

    /// What is subtracted from each number.
    pub(super) fn centre(self) -> i32 {
        match self {
            Kind::Q4K | Kind::Q5K | Kind::Q4Min | Kind::Q5Min => 0,
            Kind::Q6K => 32,
            Kind::Q4Centred => 8,
            Kind::Q8Centred => 128,
        }
    }
}

impl Half {
    /// A 16-bit float of an output.
    fn float(&self, lane: usize) -> f32 {
        f16::from_le_bytes(self.0[lane]).to_f32()
    }
}

/// The scale of group `group` of an output in a large block.
fn scale(kind: Kind, scales: &[Half], group: usize, lane: usize) -> i32 {
    let byte = scales[group / 2].0[lane][group % 2];
    if kind == Kind::Q6K { i32::from(byte as i8) } else { i32::from(byte) }
}

/// The weights of one output in a unit.
pub(super) fn weights(unit: &Unit<'_>, lane: usize, row: &mut [f32]) {
    let Unit { kind, lines, scales, .. } = *unit;
    let number = |at: usize| i32::from(lines[at / 4].0[4 * lane + at % 4]) - kind.centre();
    let halves = kind.size().1;
    for (at, weight) in row.iter_mut().enumerate() {
        let scales = &scales[at / kind.block() * halves..][..halves];
        let (factor, number) = (scales[kind.half_of_factor()].float(lane), number(at) as f32);
        *weight = match kind {
            Kind::Q4K | Kind::Q5K => {
                let least = f32::from(scales[4 + at / 64].0[lane][at / 32 % 2]);
                number * (factor * scale(kind, scales, at / 32, lane) as f32) - scales[9].float(lane) * least
            }
            Kind::Q6K => number * (factor * scale(kind, scales, at / 16, lane) as f32),
            Kind::Q4Centred | Kind::Q8Centred => number * factor,
            Kind::Q4Min | Kind::Q5Min => number * factor + scales[1].float(lane),
        };
    }
}

/// On any processor.
fn anywhere(unit: &Unit<'_>, x: &Inputs<'_>, products: &mut [[f32; LANES]]) {
    for (row, products) in products.iter_mut().enumerate().take(x.rows) {
        let [x] = x.small(row, unit.blocks * unit.kind.block() / 32);
        match unit.kind {
            Kind::Q4K | Kind::Q5K | Kind::Q6K => large_block(unit, x, products),
            Kind::Q4Centred | Kind::Q4Min | Kind::Q8Centred | Kind::Q5Min => small_blocks(unit, x, products),
        }
    }
}

/// The sums of some lines with four inputs each.
fn sums(lines: &[Bytes], quads: &[i32]) -> [i32; LANES] {
    let mut sums = [0i32; LANES];
    for (line, four) in lines.iter().zip(quads) {
        let four = four.to_le_bytes().map(|it| i32::from(it as i8));
        for (sum, weights) in sums.iter_mut().zip(line.0.as_chunks::<4>().0) {
            *sum += weights.iter().zip(four).map(|(weight, it)| i32::from(*weight) * it).sum::<i32>();
        }
    }
    sums
}

fn large_block(unit: &Unit<'_>, x: InputBlocks<'_>, products: &mut [f32; LANES]) {
    let (kind, scales) = (unit.kind, unit.scales);
    let mut totals = [0f32; LANES];
    let mut least = [0f32; LANES];
    if kind == Kind::Q6K {
        for [half, side, part] in super::ORDER_OF_16 {
            let (block, line) = (4 * half + part, 32 * half + 8 * part + 4 * side);
            let sums = sums(&unit.lines[line..line + 4], &x.quads[block][4 * side..]);
            for (lane, total) in totals.iter_mut().enumerate() {
                let whole = scale(kind, scales, 2 * block + side, lane) * (sums[lane] + x.offsets[block][3 + side]);
                *total = (whole as f32).mul_add(x.factors[block][0], *total);
            }
        }
    } else {
        for block in 0..8 {
            let sums = sums(&unit.lines[8 * block..8 * block + 8], &x.quads[block]);
            let [factor, of_sum] = x.factors[block];
            for lane in 0..LANES {
                let whole = scale(kind, scales, block, lane) * sums[lane];
                totals[lane] = (whole as f32).mul_add(factor, totals[lane]);
                let minimum = f32::from(scales[4 + block / 2].0[lane][block % 2]);
                least[lane] = minimum.mul_add(of_sum, least[lane]);
            }
        }
    }
    for (lane, product) in products.iter_mut().enumerate() {
        *product = totals[lane].mul_add(scales[8].float(lane), *product);
        if kind != Kind::Q6K {
            *product = (-least[lane]).mul_add(scales[9].float(lane), *product);
        }
    }
}

fn small_blocks(unit: &Unit<'_>, x: InputBlocks<'_>, products: &mut [f32; LANES]) {
    let kind = unit.kind;
    let has_least = matches!(kind, Kind::Q4Min | Kind::Q5Min);
    for block in 0..unit.blocks {
        let sums = sums(&unit.lines[block * 8..(block + 1) * 8], &x.quads[block]);
        let scales = &unit.scales[block * kind.size().1..];
        let [factor, of_sum] = x.factors[block];
        for (lane, product) in products.iter_mut().enumerate() {
            let whole = (sums[lane] - kind.centre() * x.offsets[block][0]) as f32;
            *product = whole.mul_add(scales[0].float(lane) * factor, *product);
            if has_least {
                *product = scales[1].float(lane).mul_add(of_sum, *product);
            }
        }
    }
}
