//! Weight matrices packed into panels of sixteen outputs, in f32, in int8 or as a GGUF file has them.
//!
//! A register holds one number of each of sixteen outputs, so a product needs no sum across lanes, and a panel is read from
//! start to end. The product of an input row depends on that row alone, to the last bit.

use super::amx::Tiles;
use super::elementwise::{self, multiversion};
use super::int8::{self, Bytes, GROUP};
use super::stored::{InputBlock, StoredPanels, round_32};
use lemon_model::{PolicyError, TensorRows};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Outputs of a panel.
pub(crate) const LANES: usize = 16;
/// Rows that are multiplied at a time.
pub(crate) const TILE: usize = 8;

/// How the weights of a served model are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightForm {
    /// Four bytes each, as they were trained.
    F32,
    /// One byte each, with a scale for every 64 along an output. The inputs of products are quantised alike.
    Int8,
    /// As in the file, where that is a GGUF file with quantised tensors; other tensors as [`Self::Int8`]. The inputs of
    /// products are quantised with a factor for every 32.
    #[default]
    Stored,
}

/// How the inputs of a product are quantised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// One factor for each 64.
    Of64,
    /// One factor for each 32.
    Of32,
}

impl Rounding {
    pub(crate) const ALL: [Rounding; 2] = [Rounding::Of64, Rounding::Of32];

    /// How many quads, factors and offsets a row of so many inputs has.
    pub(crate) fn sizes(self, ins: usize) -> (usize, usize, usize) {
        match self {
            Rounding::Of64 => (ins.div_ceil(GROUP) * LANES, ins.div_ceil(GROUP), ins.div_ceil(GROUP)),
            Rounding::Of32 => (ins / 4, ins / 32 * InputBlock::FACTORS, ins / 32 * InputBlock::OFFSETS),
        }
    }

    /// Quantises a row.
    pub(crate) fn round(self, row: &[f32], quads: &mut [i32], factors: &mut [f32], offsets: &mut [i32]) {
        match self {
            Rounding::Of64 => int8::round(row, quads, factors, offsets),
            Rounding::Of32 => round_32(row, quads, factors, offsets),
        }
    }
}

/// A packed matrix (outs, ins).
pub(crate) struct Panels {
    pub(crate) outs: usize,
    pub(crate) ins: usize,
    numbers: Numbers,
}

enum Numbers {
    /// (panel, in): sixteen outputs.
    F32(Vec<Floats>),
    /// (panel, group, four ins): sixteen outputs of four ins each; and (panel, group): sixteen factors.
    Int8(Vec<Bytes>, Vec<Floats>),
    /// As in a GGUF file.
    Stored(StoredPanels),
}

/// One number of each output of a panel; one cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Floats(pub(crate) [f32; LANES]);

/// The input rows of a product: in f32, and quantised if the matrix is.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) rows: usize,
    /// (rows, ins)
    pub(crate) plain: &'a [f32],
    /// By [`Rounding`].
    pub(crate) rounded: [Rounded<'a>; 2],
}

/// Rows quantised to 8 bits; only for matrices that need it.
#[derive(Clone, Copy)]
pub(crate) struct Rounded<'a> {
    /// (rows, groups, numbers of a group / 4): four numbers in each.
    pub(crate) quads: &'a [i32],
    /// (rows, groups), some for each group.
    pub(crate) factors: &'a [f32],
    /// (rows, groups), some for each group.
    pub(crate) offsets: &'a [i32],
}

impl Panels {
    /// Packs the rows of some matrices, one matrix under another; rows are outputs. Each thread reads the rows of one panel at
    /// a time, so that no matrix is in memory unpacked if its file can be read by rows.
    pub(crate) fn pack(parts: &[TensorRows<'_>], form: WeightForm) -> Result<Panels, PolicyError> {
        if form == WeightForm::Stored
            && let Some(stored) = StoredPanels::pack(parts)?
        {
            let (outs, ins) = stored.shape();
            return Ok(Panels { outs, ins, numbers: Numbers::Stored(stored) });
        }
        let ins = parts.first().map_or(0, TensorRows::width);
        let outs = parts.iter().map(TensorRows::count).sum();
        Self::pack_rows(outs, ins, form, |mut row, mut values| {
            for part in parts {
                let count = part.count().saturating_sub(row).min(values.len() / ins.max(1));
                let (here, rest) = values.split_at_mut(count * ins);
                part.read(row.min(part.count()), here)?;
                (row, values) = (row.saturating_sub(part.count()), rest);
            }
            Ok(())
        })
    }

    /// Packs a matrix. `read` fills a buffer with its rows from one on.
    fn pack_rows<E: Send>(
        outs: usize,
        ins: usize,
        form: WeightForm,
        read: impl Fn(usize, &mut [f32]) -> Result<(), E> + Sync,
    ) -> Result<Panels, E> {
        let panels = outs.div_ceil(LANES);
        // Each thread has one buffer for the rows of a panel.
        let fill = |rows: &mut Vec<f32>, panel: usize| {
            rows.resize(LANES.min(outs - panel * LANES) * ins, 0.0);
            read(panel * LANES, rows)
        };
        let numbers = match form {
            WeightForm::F32 => {
                let mut lines = vec![Floats([0.0; LANES]); panels * ins];
                let parts = lines.par_chunks_mut(ins.max(1));
                parts.enumerate().try_for_each_init(Vec::new, |rows, (panel, lines)| {
                    fill(rows, panel)?;
                    for (lane, row) in rows.chunks(ins).enumerate() {
                        for (line, value) in lines.iter_mut().zip(row) {
                            line.0[lane] = *value;
                        }
                    }
                    Ok(())
                })?;
                Numbers::F32(lines)
            }
            WeightForm::Int8 | WeightForm::Stored => {
                let groups = ins.div_ceil(GROUP);
                let mut bytes = vec![Bytes::ZERO; panels * groups * LANES];
                let mut factors = vec![Floats([0.0; LANES]); panels * groups];
                let parts = bytes.par_chunks_mut((groups * LANES).max(1)).zip(factors.par_chunks_mut(groups.max(1)));
                parts.enumerate().try_for_each_init(Vec::new, |rows, (panel, (bytes, factors))| {
                    fill(rows, panel)?;
                    for (lane, row) in rows.chunks(ins).enumerate() {
                        int8::pack(row, lane, bytes, factors);
                    }
                    Ok(())
                })?;
                Numbers::Int8(bytes, factors)
            }
        };
        Ok(Panels { outs, ins, numbers })
    }

    /// The number of panels.
    pub(crate) fn count(&self) -> usize {
        self.outs.div_ceil(LANES)
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        match &self.numbers {
            Numbers::F32(lines) => size_of_val(lines.as_slice()),
            Numbers::Int8(bytes, factors) => size_of_val(bytes.as_slice()) + size_of_val(factors.as_slice()),
            Numbers::Stored(panels) => panels.bytes(),
        }
    }

    /// A hash of all weights.
    pub(crate) fn fingerprint(&self) -> u64 {
        let floats = |lines: &[Floats]| hash(lines.iter().flat_map(|line| line.0).map(|it| u64::from(it.to_bits())));
        let parts: Vec<u64> = match &self.numbers {
            Numbers::F32(lines) => lines.par_chunks(4_096).map(floats).collect(),
            Numbers::Int8(bytes, factors) => {
                let words = |lines: &[Bytes]| hash(lines.iter().flat_map(Bytes::words));
                bytes.par_chunks(4_096).map(words).chain(factors.par_chunks(4_096).map(floats)).collect()
            }
            Numbers::Stored(panels) => panels.hashes(),
        };
        hash(parts.into_iter().chain([self.outs as u64, self.ins as u64]))
    }

    /// How inputs have to be quantised, if at all.
    pub(crate) fn rounding(&self) -> Option<Rounding> {
        match &self.numbers {
            Numbers::F32(_) => None,
            Numbers::Int8(..) => Some(Rounding::Of64),
            Numbers::Stored(_) => Some(Rounding::Of32),
        }
    }

    /// The weights of one output. Panics if there is no such output.
    pub(crate) fn row(&self, out: usize, row: &mut [f32]) {
        let (panel, lane) = (out / LANES, out % LANES);
        match &self.numbers {
            Numbers::F32(lines) => {
                for (value, line) in row.iter_mut().zip(&lines[panel * self.ins..]) {
                    *value = line.0[lane];
                }
            }
            Numbers::Int8(bytes, factors) => {
                let groups = self.ins.div_ceil(GROUP);
                int8::unpack(&bytes[panel * groups * LANES..], &factors[panel * groups..], lane, row);
            }
            Numbers::Stored(panels) => panels.row(out, row),
        }
    }

    /// Multiplies rows with the outputs of some panels. `put` gets each row, each panel and its sixteen products; products
    /// beyond the last output are zero.
    pub(crate) fn multiply(
        &self,
        input: Input<'_>,
        panels: Range<usize>,
        mut put: impl FnMut(usize, usize, &[f32; LANES]),
    ) {
        let mut products = [[0f32; LANES]; TILE];
        match &self.numbers {
            Numbers::F32(lines) => {
                for panel in panels {
                    let lines = &lines[panel * self.ins..(panel + 1) * self.ins];
                    in_tiles(0..input.rows, |rows| {
                        f32_tile(lines, &input.plain[rows.start * self.ins..rows.end * self.ins], &mut products);
                        rows.zip(&products).for_each(|(row, products)| put(row, panel, products));
                    });
                }
            }
            Numbers::Stored(stored) => {
                stored.multiply(input.rows, input.rounded[Rounding::Of32 as usize], panels, put);
            }
            Numbers::Int8(bytes, factors) => {
                let (groups, rounded) = (self.ins.div_ceil(GROUP), input.rounded[Rounding::Of64 as usize]);
                if let Some(tiles) = Tiles::take(input.rows) {
                    return tiles.multiply((bytes, factors, groups), (input.rows, rounded), panels, put);
                }
                for panel in panels {
                    let bytes = &bytes[panel * groups * LANES..(panel + 1) * groups * LANES];
                    let factors = &factors[panel * groups..(panel + 1) * groups];
                    in_tiles(0..input.rows, |rows| {
                        int8::tile(bytes, factors, rounded.rows(rows.clone(), groups), &mut products);
                        rows.zip(&products).for_each(|(row, products)| put(row, panel, products));
                    });
                }
            }
        }
    }
}

/// Cuts rows into tiles of eight, four, two or one. No result depends on the cut.
#[inline(always)]
pub(super) fn in_tiles(rows: Range<usize>, mut work: impl FnMut(Range<usize>)) {
    let mut start = rows.start;
    while start < rows.end {
        let end = start + TILE.min(1 << (rows.end - start).ilog2());
        work(start..end);
        start = end;
    }
}

/// A hash of numbers in order. It tells models apart and is not cryptographic.
pub(crate) fn hash(numbers: impl Iterator<Item = u64>) -> u64 {
    let mix = |sum: u64, number: u64| (sum ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    numbers.fold(0x243f_6a88_85a3_08d3, mix)
}

impl<'a> Rounded<'a> {
    /// A range of rows.
    pub(super) fn rows(self, rows: Range<usize>, groups: usize) -> Rounded<'a> {
        let (start, end) = (rows.start * groups, rows.end * groups);
        Rounded {
            quads: &self.quads[start * LANES..end * LANES],
            factors: &self.factors[start..end],
            offsets: &self.offsets[start..end],
        }
    }
}

multiversion! {
    /// Up to eight rows of x with one panel.
    fn f32_tile(lines: &[Floats], x: &[f32], products: &mut [[f32; LANES]; TILE]) {
        let rows = x.chunks(4 * lines.len().max(1)).zip(products.chunks_mut(4));
        for (x, products) in rows {
            match products {
                [a, b, c, d] if x.len() == 4 * lines.len() => [*a, *b, *c, *d] = four_rows(lines, x),
                products => {
                    for (product, x) in products.iter_mut().zip(x.chunks(lines.len().max(1))) {
                        *product = one_row(lines, x);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn one_row(lines: &[Floats], x: &[f32]) -> [f32; LANES] {
    let mut sum = [0f32; LANES];
    for (line, x) in lines.iter().zip(x) {
        sum = elementwise::add_scaled(sum, *x, &line.0);
    }
    sum
}

/// Each sum is a variable of its own, because compilers keep variables in registers and long arrays in memory.
#[inline(always)]
fn four_rows(lines: &[Floats], x: &[f32]) -> [[f32; LANES]; 4] {
    let (first, second) = x.split_at(2 * lines.len());
    let ((x0, x1), (x2, x3)) = (first.split_at(lines.len()), second.split_at(lines.len()));
    let (mut a, mut b, mut c, mut d) = ([0f32; LANES], [0f32; LANES], [0f32; LANES], [0f32; LANES]);
    for ((line, (x0, x1)), (x2, x3)) in lines.iter().zip(x0.iter().zip(x1)).zip(x2.iter().zip(x3)) {
        a = elementwise::add_scaled(a, *x0, &line.0);
        b = elementwise::add_scaled(b, *x1, &line.0);
        c = elementwise::add_scaled(c, *x2, &line.0);
        d = elementwise::add_scaled(d, *x3, &line.0);
    }
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_num::Random;

    fn packed(w: &[f32], ins: usize, form: WeightForm) -> Panels {
        let read = |row: usize, values: &mut [f32]| {
            values.copy_from_slice(&w[row * ins..][..values.len()]);
            Ok::<_, std::convert::Infallible>(())
        };
        Panels::pack_rows(w.len() / ins, ins, form, read).unwrap()
    }

    /// The products of rows with all outputs of a matrix.
    fn products(matrix: &Panels, x: &[f32]) -> Vec<f32> {
        let (outs, ins) = (matrix.outs, matrix.ins);
        let rows = x.len() / ins;
        let groups = ins.div_ceil(GROUP);
        let (mut quads, mut factors, mut offsets) =
            (vec![0; rows * groups * LANES], vec![0.0; rows * groups], vec![0; rows * groups]);
        for row in 0..rows {
            let part = row * groups..(row + 1) * groups;
            let quads = &mut quads[part.start * LANES..part.end * LANES];
            int8::round(&x[row * ins..][..ins], quads, &mut factors[part.clone()], &mut offsets[part]);
        }
        let rounded = [Rounded { quads: &quads, factors: &factors, offsets: &offsets }; 2];
        let mut y = vec![f32::NAN; rows * outs];
        matrix.multiply(Input { rows, plain: x, rounded }, 0..matrix.count(), |row, panel, products| {
            for (lane, product) in products.iter().enumerate() {
                match y.get_mut(row * outs + panel * LANES + lane).filter(|_| panel * LANES + lane < outs) {
                    Some(y) => *y = *product,
                    None => assert_eq!(*product, 0.0),
                }
            }
        });
        y
    }

    fn check(rows: usize, outs: usize, ins: usize, form: WeightForm) {
        let (w, x) = (Random::new(1).normals(outs * ins, 1.0), Random::new(2).normals(rows * ins, 1.0));
        let matrix = packed(&w, ins, form);
        assert_eq!((matrix.outs, matrix.ins, matrix.count()), (outs, ins, outs.div_ceil(LANES)));
        let y = products(&matrix, &x);
        let allowed = if form == WeightForm::F32 { 1e-5 } else { 0.04 } * (ins as f32).sqrt();
        let mut weights = vec![0f32; ins];
        for out in 0..outs {
            matrix.row(out, &mut weights);
            for (found, exact) in weights.iter().zip(&w[out * ins..]) {
                assert!((found - exact).abs() <= if form == WeightForm::F32 { 0.0 } else { 0.02 });
            }
            for row in 0..rows {
                let pairs = x[row * ins..][..ins].iter().zip(&w[out * ins..]);
                let exact = pairs.map(|(x, w)| f64::from(*x) * f64::from(*w)).sum::<f64>() as f32;
                let found = y[row * outs + out];
                assert!((found - exact).abs() < allowed, "{rows}×{outs}×{ins} at {row}, {out}: {found}, not {exact}");
            }
        }
    }

    #[test]
    fn packed_matrices_multiply() {
        for (rows, outs, ins) in [(1, 1, 1), (1, 17, 64), (3, 16, 65), (8, 40, 200), (15, 5, 96), (23, 33, 320)] {
            check(rows, outs, ins, WeightForm::F32);
            check(rows, outs, ins, WeightForm::Int8);
        }
    }

    #[test]
    fn a_row_gets_the_same_products_whatever_is_beside_it() {
        for form in [WeightForm::F32, WeightForm::Int8] {
            for (rows, outs, ins) in [(16, 16, 64), (17, 40, 96), (31, 33, 320), (32, 16, 300), (67, 20, 600)] {
                let (w, mut x) = (Random::new(5).normals(outs * ins, 1.0), Random::new(6).normals(rows * ins, 1.0));
                x[3] = 80.0;
                x[ins * (rows - 1)] = -3e5;
                let matrix = packed(&w, ins, form);
                let bits = |y: Vec<f32>| y.into_iter().map(f32::to_bits).collect::<Vec<u32>>();
                let alone = x.chunks(ins).flat_map(|row| bits(products(&matrix, row))).collect::<Vec<_>>();
                assert_eq!(bits(products(&matrix, &x)), alone, "{rows}×{outs}×{ins}, {form:?}");
            }
        }
    }
}
