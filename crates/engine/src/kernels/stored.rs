//! Panels that keep the bits of a GGUF file: integers of 4 to 8 bits in blocks, with the scales of the file.
//!
//! Packing moves numbers and changes none. A product unpacks 256 inputs of a panel at a time into bytes, which stay in the
//! first cache, and multiplies all rows with them. Inputs are quantised with one factor for each 32. Sums of 16 or 32 products
//! are exact integers; these are added in one order with fused multiply-adds. So every kernel, on every processor, gives the
//! same bits.

// Half lines of zeros are numbers.
#![allow(unsafe_code)]

mod blocks;
#[cfg(target_arch = "x86_64")]
mod fused_avx2;
#[cfg(target_arch = "x86_64")]
mod fused_vnni;
mod rounding;
mod tiles;
#[cfg(target_arch = "x86_64")]
mod tiles_avx2;
#[cfg(target_arch = "x86_64")]
mod tiles_vnni;

pub(super) use rounding::round_32;

use super::int8::Bytes;
use super::panels::{LANES, Rounded, hash, in_tiles};
use crate::shared_buffer::{Number, ZeroedBuffer};
use lemon_model::{BlockType, PolicyError, TensorRows};
use rayon::prelude::*;
use std::ops::Range;

/// Inputs that are unpacked at a time, and the lines of bytes they fill.
const UNIT: usize = 256;
const UNIT_LINES: usize = UNIT / 4;
/// Rows that are multiplied with a unit while it is in the first cache.
const ROWS_AT_ONCE: usize = 64;
/// Rows that the kernels for few rows take at a time.
const FEW: usize = 4;

/// The order in which groups of 16 are added, where they have scales: half of the block, half of each 32, and which 32 of four.
/// The packed numbers of four 32s lie together.
const ORDER_OF_16: [[usize; 3]; 16] = {
    let (mut order, mut at) = ([[0; 3]; 16], 0);
    while at < 16 {
        order[at] = [at / 8, at / 4 % 2, at % 4];
        at += 1;
    }
    order
};

/// Half a cache line of scales: two bytes for each output of a panel.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct Half(pub(super) [[u8; 2]; LANES]);

// SAFETY: all bits zero are zeros.
unsafe impl Number for Half {}

/// How numbers lie in a panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Blocks of 256 with scales and minima for each 32.
    Q4K,
    /// The same with a fifth bit.
    Q5K,
    /// Blocks of 256 with a scale for each 16, around 32.
    Q6K,
    /// Blocks of 32: 4 bits around 8.
    Q4Centred,
    /// Blocks of 32: 4 bits and a minimum.
    Q4Min,
    /// Blocks of 32: bytes around 128. Numbers of 5 bits around 16 are stored like this too, with the same values.
    Q8Centred,
    /// Blocks of 32: numbers below 32 in bytes, and a minimum.
    Q5Min,
}

impl Kind {
    /// `None`: the format has plain numbers.
    fn of(stored: BlockType) -> Option<Kind> {
        Some(match stored {
            BlockType::Q4K => Kind::Q4K,
            BlockType::Q5K => Kind::Q5K,
            BlockType::Q6K => Kind::Q6K,
            BlockType::Q4_0 => Kind::Q4Centred,
            BlockType::Q4_1 => Kind::Q4Min,
            BlockType::Q5_0 | BlockType::Q8_0 => Kind::Q8Centred,
            BlockType::Q5_1 => Kind::Q5Min,
            BlockType::F32 | BlockType::F16 | BlockType::Bf16 => return None,
        })
    }

    /// Inputs of a block.
    fn block(self) -> usize {
        match self {
            Kind::Q4K | Kind::Q5K | Kind::Q6K => 256,
            Kind::Q4Centred | Kind::Q4Min | Kind::Q8Centred | Kind::Q5Min => 32,
        }
    }

    /// Lines of numbers, and half lines of scales, for a block of a panel.
    fn size(self) -> (usize, usize) {
        match self {
            Kind::Q4K => (32, 10),
            Kind::Q5K => (40, 10),
            Kind::Q6K => (48, 9),
            Kind::Q4Centred => (4, 1),
            Kind::Q4Min => (4, 2),
            Kind::Q8Centred => (8, 1),
            Kind::Q5Min => (8, 2),
        }
    }
}

/// A packed matrix (outs, ins).
pub(super) struct StoredPanels {
    kind: Kind,
    outs: usize,
    ins: usize,
    /// (panel, block, line)
    lines: ZeroedBuffer<Bytes>,
    /// (panel, block, half)
    scales: ZeroedBuffer<Half>,
}

/// 256 inputs of a panel, or fewer at the end of a row.
struct Unit<'a> {
    kind: Kind,
    lines: &'a [Bytes; UNIT_LINES],
    scales: &'a [Half],
    blocks: usize,
}

impl StoredPanels {
    /// Packs the rows of matrices that are stored alike, one under another. `None`: they are not, or have plain numbers.
    pub(super) fn pack(parts: &[TensorRows<'_>]) -> Result<Option<StoredPanels>, PolicyError> {
        let stored = parts.first().and_then(TensorRows::stored);
        let Some((stored, kind)) = stored.and_then(|stored| Some((stored, Kind::of(stored)?))) else {
            return Ok(None);
        };
        if parts.iter().any(|part| part.stored() != Some(stored)) {
            return Ok(None);
        }
        let ins = parts.first().map_or(0, TensorRows::width);
        let outs = parts.iter().map(TensorRows::count).sum();
        let of_row = stored.row_bytes(ins).max(1);
        Self::pack_rows(stored, kind, (outs, ins), |mut row, mut bytes| {
            for part in parts {
                let count = part.count().saturating_sub(row).min(bytes.len() / of_row);
                let (here, rest) = bytes.split_at_mut(count * of_row);
                part.read_stored(row.min(part.count()), here)?;
                (row, bytes) = (row.saturating_sub(part.count()), rest);
            }
            Ok(())
        })
        .map(Some)
    }

    /// Packs a matrix. `read` fills a buffer with its rows from one on.
    fn pack_rows(
        stored: BlockType,
        kind: Kind,
        (outs, ins): (usize, usize),
        read: impl Fn(usize, &mut [u8]) -> Result<(), PolicyError> + Sync,
    ) -> Result<StoredPanels, PolicyError> {
        let (panels, blocks, (lines_of, halves_of)) = (outs.div_ceil(LANES), ins / kind.block(), kind.size());
        let (mut lines, mut scales) = (zeros(panels * blocks * lines_of)?, zeros(panels * blocks * halves_of)?);
        let of_row = stored.row_bytes(ins);
        let parts = lines.par_chunks_mut((blocks * lines_of).max(1));
        let parts = parts.zip(scales.par_chunks_mut((blocks * halves_of).max(1)));
        parts.enumerate().try_for_each_init(Vec::new, |rows, (panel, (lines, scales))| {
            rows.resize(LANES.min(outs - panel * LANES) * of_row, 0u8);
            read(panel * LANES, rows)?;
            for (lane, row) in rows.chunks(of_row).enumerate() {
                blocks::pack_row(stored, row, lane, lines, scales);
            }
            Ok::<(), PolicyError>(())
        })?;
        Ok(StoredPanels { kind, outs, ins, lines, scales })
    }

    /// Outputs and inputs.
    pub(super) fn shape(&self) -> (usize, usize) {
        (self.outs, self.ins)
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.lines) + size_of_val(&*self.scales)
    }

    /// Hashes of parts of it.
    pub(super) fn hashes(&self) -> Vec<u64> {
        let words = |lines: &[Bytes]| hash(lines.iter().flat_map(Bytes::words));
        let halves = |scales: &[Half]| {
            let pairs = scales.iter().flat_map(|half| half.0.as_chunks::<4>().0);
            hash(pairs.map(|four| u64::from_le_bytes(std::array::from_fn(|at| four[at / 2][at % 2]))))
        };
        self.lines.par_chunks(4_096).map(words).chain(self.scales.par_chunks(4_096).map(halves)).collect()
    }

    /// The weights of one output. Panics if there is no such output.
    pub(super) fn row(&self, out: usize, row: &mut [f32]) {
        let (panel, lane) = (out / LANES, out % LANES);
        let mut lines = [Bytes::ZERO; UNIT_LINES];
        for (at, row) in row.chunks_mut(UNIT).enumerate() {
            tiles::weights(&self.unit(blocks::unpack, panel, at, &mut lines), lane, row);
        }
    }

    /// Unpacks a unit of a panel.
    fn unit<'a>(
        &'a self,
        unpack: tiles::Unpack,
        panel: usize,
        at: usize,
        lines: &'a mut [Bytes; UNIT_LINES],
    ) -> Unit<'a> {
        let all = self.ins / self.kind.block();
        let of_unit = UNIT / self.kind.block();
        let blocks = panel * all + at * of_unit..panel * all + ((at + 1) * of_unit).min(all);
        let (lines_of, halves_of) = self.kind.size();
        let packed = &self.lines[blocks.start * lines_of..blocks.end * lines_of];
        unpack(self.kind, packed, lines);
        let scales = &self.scales[blocks.start * halves_of..blocks.end * halves_of];
        Unit { kind: self.kind, lines, scales, blocks: blocks.len() }
    }

    /// As [`super::panels::Panels::multiply`].
    pub(super) fn multiply(
        &self,
        rows: usize,
        x: Rounded<'_>,
        panels: Range<usize>,
        put: impl FnMut(usize, usize, &[f32; LANES]),
    ) {
        self.multiply_with(tiles::kernels(), rows, x, panels, put);
    }

    fn multiply_with(
        &self,
        kernels: tiles::Kernels,
        rows: usize,
        x: Rounded<'_>,
        panels: Range<usize>,
        mut put: impl FnMut(usize, usize, &[f32; LANES]),
    ) {
        if rows < (kernels.many)(self.kind) && self.multiply_few(kernels.few, rows, x, panels.clone(), &mut put) {
            return;
        }
        let units = self.ins.div_ceil(UNIT);
        let (blocks, apart) = (InputBlocks::new(x), self.ins / 32);
        let mut lines = [Bytes::ZERO; UNIT_LINES];
        let mut products = [[0f32; LANES]; ROWS_AT_ONCE];
        // One panel after another: weights are fetched ahead, which works best in one stream.
        for panel in panels {
            for start in (0..rows).step_by(ROWS_AT_ONCE) {
                let end = (start + ROWS_AT_ONCE).min(rows);
                let products = &mut products[..end - start];
                products.fill([0.0; LANES]);
                for at in 0..units {
                    let unit = self.unit(kernels.unpack, panel, at, &mut lines);
                    in_tiles(0..end - start, |tile| {
                        let first = (start + tile.start) * apart + at * (UNIT / 32);
                        let x = Inputs { blocks, rows: tile.len(), first, apart };
                        (kernels.tile)(&unit, &x, &mut products[tile]);
                    });
                }
                (start..end).zip(&*products).for_each(|(row, products)| put(row, panel, products));
            }
        }
    }

    /// Multiplies few rows, whole panels at a time; false if there is no kernel for that.
    fn multiply_few(
        &self,
        few: tiles::Few,
        rows: usize,
        x: Rounded<'_>,
        panels: Range<usize>,
        put: &mut impl FnMut(usize, usize, &[f32; LANES]),
    ) -> bool {
        let blocks = self.ins / self.kind.block();
        let (lines_of, halves_of) = self.kind.size();
        let all = InputBlocks::new(x);
        let mut products = [[0f32; LANES]; FEW];
        for panel in panels {
            let lines = &self.lines[panel * blocks * lines_of..(panel + 1) * blocks * lines_of];
            let scales = &self.scales[panel * blocks * halves_of..(panel + 1) * blocks * halves_of];
            let mut start = 0;
            while start < rows {
                let end = start + FEW.min(1 << (rows - start).ilog2());
                let x = Inputs { blocks: all, rows: end - start, first: start * self.ins / 32, apart: self.ins / 32 };
                let products = &mut products[..end - start];
                if !few(self.kind, lines, scales, &x, products) {
                    return false;
                }
                (start..end).zip(products).for_each(|(row, products)| put(row, panel, products));
                start = end;
            }
        }
        true
    }
}

fn zeros<T: Number>(count: usize) -> Result<ZeroedBuffer<T>, PolicyError> {
    let none = || PolicyError::Request("there is no memory for the weights".to_owned());
    ZeroedBuffer::new(count).ok_or_else(none)
}

/// What there is for 32 inputs of a row.
pub(super) struct InputBlock;

impl InputBlock {
    /// The factor, and the factor times the sum of the numbers.
    pub(super) const FACTORS: usize = 2;
    /// The sum of the numbers. For the first 16 and for the others: -32 times the sums of the first two and of the last two of
    /// each four, in 16 bits each. The same for all 16 together.
    pub(super) const OFFSETS: usize = 5;
}

/// Quantised rows, 32 inputs after another.
#[derive(Clone, Copy)]
struct InputBlocks<'a> {
    quads: &'a [[i32; 8]],
    factors: &'a [[f32; InputBlock::FACTORS]],
    offsets: &'a [[i32; InputBlock::OFFSETS]],
}

impl<'a> InputBlocks<'a> {
    fn new(x: Rounded<'a>) -> InputBlocks<'a> {
        InputBlocks { quads: x.quads.as_chunks().0, factors: x.factors.as_chunks().0, offsets: x.offsets.as_chunks().0 }
    }

    /// So many blocks from one on.
    #[inline(always)]
    fn some(self, first: usize, count: usize) -> InputBlocks<'a> {
        InputBlocks {
            quads: &self.quads[first..first + count],
            factors: &self.factors[first..first + count],
            offsets: &self.offsets[first..first + count],
        }
    }
}

/// What a tile of rows has: the blocks of its first row begin at `first`, those of the next rows follow at a distance.
struct Inputs<'a> {
    blocks: InputBlocks<'a>,
    rows: usize,
    first: usize,
    apart: usize,
}

impl<'a> Inputs<'a> {
    /// The first blocks of some rows from one on.
    #[inline(always)]
    fn small<const ROWS: usize>(&self, row: usize, count: usize) -> [InputBlocks<'a>; ROWS] {
        let mut all = [self.blocks.some(self.first + row * self.apart, count); ROWS];
        for (at, blocks) in all.iter_mut().enumerate().skip(1) {
            *blocks = self.blocks.some(self.first + (row + at) * self.apart, count);
        }
        all
    }

    /// 256 inputs of some rows from one on; `block` counts blocks of 256.
    #[inline(always)]
    fn large<const ROWS: usize>(&self, row: usize, block: usize) -> LargeBlocks<'a, ROWS> {
        let quads = self.blocks.quads.as_chunks().0;
        let factors = self.blocks.factors.as_chunks().0;
        let offsets = self.blocks.offsets.as_chunks().0;
        let place = |row: usize| (self.first + row * self.apart) / 8 + block;
        let first = place(row);
        let mut blocks = LargeBlocks {
            quads: [&quads[first]; ROWS],
            factors: [&factors[first]; ROWS],
            offsets: [&offsets[first]; ROWS],
        };
        for at in 1..ROWS {
            let place = place(row + at);
            blocks.quads[at] = &quads[place];
            blocks.factors[at] = &factors[place];
            blocks.offsets[at] = &offsets[place];
        }
        blocks
    }
}

/// 256 inputs of some rows. The lengths are known, so that kernels need no checks.
struct LargeBlocks<'a, const ROWS: usize> {
    quads: [&'a [[i32; 8]; 8]; ROWS],
    factors: [&'a [[f32; InputBlock::FACTORS]; 8]; ROWS],
    offsets: [&'a [[i32; InputBlock::OFFSETS]; 8]; ROWS],
}

#[cfg(test)]
mod tests;
