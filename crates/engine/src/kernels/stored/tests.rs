use super::super::panels::Rounding;
use super::super::simd_level::{SimdLevel, simd_level};
use super::*;
use half::f16;
use lemon_num::Random;
use proptest::prelude::*;

const FORMATS: [BlockType; 8] = [
    BlockType::Q4_0,
    BlockType::Q4_1,
    BlockType::Q5_0,
    BlockType::Q5_1,
    BlockType::Q8_0,
    BlockType::Q4K,
    BlockType::Q5K,
    BlockType::Q6K,
];

/// Random rows: any bytes are numbers, as long as the 16-bit floats among them are.
fn rows(stored: BlockType, outs: usize, ins: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes: Vec<u8> = (0..outs * stored.row_bytes(ins)).map(|_| random.next_u64() as u8).collect();
    let floats: &[usize] = match stored {
        BlockType::Q4_0 | BlockType::Q5_0 | BlockType::Q8_0 => &[0],
        BlockType::Q6K => &[208],
        _ => &[0, 2],
    };
    for block in bytes.chunks_mut(stored.block().1) {
        for at in floats {
            let float = f16::from_f32(random.normals(1, 0.02)[0]);
            block[*at..at + 2].copy_from_slice(&float.to_le_bytes());
        }
    }
    bytes
}

fn packed(stored: BlockType, bytes: &[u8], outs: usize, ins: usize) -> StoredPanels {
    let of_row = stored.row_bytes(ins);
    let read = |row: usize, part: &mut [u8]| {
        part.copy_from_slice(&bytes[row * of_row..][..part.len()]);
        Ok(())
    };
    StoredPanels::pack_rows(stored, Kind::of(stored).unwrap(), (outs, ins), read).unwrap()
}

struct Quantised {
    quads: Vec<i32>,
    factors: Vec<f32>,
    offsets: Vec<i32>,
}

fn quantised(matrix: &StoredPanels, x: &[f32]) -> Quantised {
    let rounding = Rounding::Of32;
    let (quads, factors, offsets) = rounding.sizes(matrix.ins);
    let rows = x.len() / matrix.ins;
    let mut all = Quantised {
        quads: vec![7; rows * quads],
        factors: vec![7.0; rows * factors],
        offsets: vec![7; rows * offsets],
    };
    for (row, x) in x.chunks(matrix.ins).enumerate() {
        rounding.round(
            x,
            &mut all.quads[row * quads..][..quads],
            &mut all.factors[row * factors..][..factors],
            &mut all.offsets[row * offsets..][..offsets],
        );
    }
    all
}

/// The inputs as the product sees them.
fn seen(all: &Quantised) -> Vec<f32> {
    let numbers = all.quads.iter().flat_map(|quad| quad.to_le_bytes()).map(|byte| f32::from(byte as i8));
    numbers.enumerate().map(|(at, number)| number * all.factors[at / 32 * InputBlock::FACTORS]).collect()
}

fn products(kernel: tiles::Kernels, matrix: &StoredPanels, x: &[f32]) -> Vec<f32> {
    let (all, rows) = (quantised(matrix, x), x.len() / matrix.ins);
    let rounded = Rounded { quads: &all.quads, factors: &all.factors, offsets: &all.offsets };
    let mut y = vec![f32::NAN; rows * matrix.outs];
    matrix.multiply_with(kernel, rows, rounded, 0..matrix.outs.div_ceil(LANES), |row, panel, products| {
        for (lane, product) in products.iter().enumerate() {
            let out = panel * LANES + lane;
            if out < matrix.outs {
                y[row * matrix.outs + out] = *product;
            } else {
                assert_eq!(*product, 0.0);
            }
        }
    });
    y
}

fn kernels() -> Vec<(SimdLevel, tiles::Kernels)> {
    [SimdLevel::Portable, SimdLevel::Avx2, SimdLevel::Avx512Vnni]
        .into_iter()
        .filter(|level| *level <= simd_level())
        .map(|level| (level, tiles::kernels_for(level)))
        .collect()
}

#[test]
fn rows_come_back_as_the_file_has_them() {
    for stored in FORMATS {
        let (outs, ins) = (37, 512);
        let bytes = rows(stored, outs, ins, 5);
        let mut expected = vec![0f32; outs * ins];
        stored.decode(&bytes, &mut expected);
        let matrix = packed(stored, &bytes, outs, ins);
        let mut row = vec![f32::NAN; ins];
        for out in 0..outs {
            matrix.row(out, &mut row);
            assert_eq!(row, expected[out * ins..][..ins], "{stored:?}, output {out}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn products_are_those_of_the_decoded_weights_on_every_processor_and_beside_any_rows(
        format in 0..FORMATS.len(),
        outs in 1usize..90,
        blocks in 1usize..10,
        count in 1usize..80,
        seed in any::<u64>(),
    ) {
        let stored = FORMATS[format];
        let ins = blocks * stored.block().0;
        let bytes = rows(stored, outs, ins, seed);
        let mut weights = vec![0f32; outs * ins];
        stored.decode(&bytes, &mut weights);
        let matrix = packed(stored, &bytes, outs, ins);
        let mut x = Random::new(seed ^ 1).normals(count * ins, 1.0);
        x[0] = 30.0;
        let seen = seen(&quantised(&matrix, &x));
        let expected = products(tiles::kernels_for(SimdLevel::Portable), &matrix, &x);
        for row in 0..count {
            for out in 0..outs {
                let pairs = seen[row * ins..][..ins].iter().zip(&weights[out * ins..]);
                let exact: f64 = pairs.clone().map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
                let size: f64 = pairs.map(|(x, w)| (f64::from(*x) * f64::from(*w)).abs()).sum();
                let found = f64::from(expected[row * outs + out]);
                // Minima are subtracted for whole groups, so that terms larger than the products cancel.
                prop_assert!((found - exact).abs() <= 2e-6 * size + 1e-4, "{stored:?}: {found}, not {exact} of {size}");
            }
        }
        let bits = |y: &[f32]| y.iter().map(|it| it.to_bits()).collect::<Vec<u32>>();
        for (level, kernel) in kernels() {
            prop_assert_eq!(bits(&products(kernel, &matrix, &x)), bits(&expected), "{:?} with {}", stored, level);
            let alone: Vec<f32> = x.chunks(ins).flat_map(|row| products(kernel, &matrix, row)).collect();
            prop_assert_eq!(bits(&alone), bits(&expected), "{:?} with {}, row by row", stored, level);
        }
    }
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    for stored in FORMATS {
        let (outs, ins) = (16, 512);
        for fill in [0u8, 0x80, 0x7f, 0xff] {
            let mut bytes = vec![fill; outs * stored.row_bytes(ins)];
            for block in bytes.chunks_mut(stored.block().1) {
                let one = f16::ONE.to_le_bytes();
                let at = if stored == BlockType::Q6K { 208 } else { 0 };
                block[at..at + 2].copy_from_slice(&one);
                if matches!(stored, BlockType::Q4_1 | BlockType::Q5_1 | BlockType::Q4K | BlockType::Q5K) {
                    block[2..4].copy_from_slice(&one);
                }
            }
            let matrix = packed(stored, &bytes, outs, ins);
            let mut weights = vec![0f32; outs * ins];
            stored.decode(&bytes, &mut weights);
            for sign in [1.0, -1.0] {
                let exact: f64 = weights[..ins].iter().map(|weight| f64::from(sign * *weight)).sum();
                for (level, kernel) in kernels() {
                    for found in products(kernel, &matrix, &vec![sign; ins]) {
                        let off = (f64::from(found) - exact).abs();
                        assert!(
                            off <= 1e-4 * exact.abs().max(1.0),
                            "{stored:?} of {fill} with {level}: {found}, not {exact}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn what_is_no_number_shows_in_every_product() {
    for stored in FORMATS {
        let (outs, ins) = (32, 512);
        let mut bytes = rows(stored, outs, ins, 3);
        let clean = packed(stored, &bytes, outs, ins);
        let at = 3 * stored.row_bytes(ins) + if stored == BlockType::Q6K { 208 } else { 0 };
        bytes[at..at + 2].copy_from_slice(&f16::NAN.to_le_bytes());
        let damaged = packed(stored, &bytes, outs, ins);
        for (level, kernel) in kernels() {
            let found = products(kernel, &damaged, &vec![1.0; ins]);
            let wrong: Vec<usize> = (0..outs).filter(|out| !found[*out].is_finite()).collect();
            assert_eq!(wrong, [3], "{stored:?} with {level}");
            let mut x = vec![1.0; ins];
            x[300] = f32::NAN;
            let found = products(kernel, &clean, &x);
            assert!(found.iter().all(|it| !it.is_finite()), "{stored:?} with {level}");
        }
    }
}
