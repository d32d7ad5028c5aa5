//! Packs what is bundled, for the binary. The build script includes this file; [`super::unpack`] reads what it writes.
//!
//! Weights are 16-bit floats. Of each, the exponent takes few values and compresses well, sign and mantissa not at all. So the
//! exponents are deflated apart, and the other bits are kept as they are: a third is saved, and unpacking takes some hundredths of
//! a second.
//!
//! Workers are served with 8-bit weights, so that more need not be kept of them: see [`rounded`].

use miniz_oxide::deflate::compress_to_vec_zlib;
use miniz_oxide::deflate::core::{
    CompressionStrategy, CompressorOxide, TDEFLFlush, TDEFLStatus, compress, create_comp_flags_from_zip_params,
};

/// Weights that the engine rounds together: `GROUP` of `lemon_engine`'s int8 products.
const GROUP: usize = 64;

/// A text. The length of the text, a little-endian `u64`, and its deflated bytes.
pub fn text(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes()[..], &compress_to_vec_zlib(bytes, 10)].concat()
}

/// Weights to the last bit. Their length, the length of the deflated exponents, those, and the other bits. Lengths are
/// little-endian `u64`.
pub fn exact(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let (words, last) = bytes.as_chunks::<2>();
    let words = || words.iter().map(|word| u16::from_le_bytes(*word));
    let exponents: Vec<u8> = words().map(exponent).collect();
    let others: Vec<u8> = words().map(other_bits).chain(last.iter().copied()).collect();
    let head = (bytes.len() as u64).to_le_bytes();
    joined(&head, &exponents, &others)
}

/// Weights as the engine rounds them: of each 64 along a row of a matrix the largest magnitude, and every weight as a multiple
/// of a 127th of it. Unpacked, each weight is the 16-bit float nearest to that multiple, and the engine rounds it to the same
/// multiple again. So a served model is the same to the last bit as one from the file, which the tests show.
///
/// The length of the weights; the number of parts, and of each part its rows and its width (no rows: bytes that are kept as they
/// are); the length of what is deflated, all `u64`; that, which is the multiples and then the exponents of the magnitudes; the
/// bytes that are kept, and the other bits of the magnitudes.
pub fn rounded(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let parts = parts(bytes)?;
    let (mut multiples, mut largest, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    let mut rest = bytes;
    for (rows, width) in &parts {
        let length = if *rows == 0 { *width } else { 2 * rows * width };
        let (part, after) = rest.split_at_checked(length).ok_or("a tensor is cut off")?;
        rest = after;
        if *rows == 0 {
            kept.extend_from_slice(part);
            continue;
        }
        let words: Vec<u16> = part.as_chunks::<2>().0.iter().map(|word| u16::from_le_bytes(*word)).collect();
        for group in words.chunks_exact(*width).flat_map(|row| row.chunks(GROUP)) {
            let most = group.iter().map(|word| word & 0x7fff).max().unwrap_or_default();
            multiples.extend(round(group, most)?.iter().map(|multiple| *multiple as u8));
            largest.push(most);
        }
    }
    let sizes = parts.iter().flat_map(|(rows, width)| [*rows as u64, *width as u64]);
    let head: Vec<u8> =
        [bytes.len() as u64, parts.len() as u64].into_iter().chain(sizes).flat_map(u64::to_le_bytes).collect();
    multiples.extend(largest.iter().copied().map(exponent));
    kept.extend(largest.iter().copied().map(other_bits));
    joined(&head, &multiples, &kept)
}

fn joined(head: &[u8], to_deflate: &[u8], kept: &[u8]) -> Result<Vec<u8>, String> {
    let deflated = deflated(to_deflate)?;
    Ok([head, &(deflated.len() as u64).to_le_bytes(), &deflated, kept].concat())
}

fn exponent(word: u16) -> u8 {
    (word >> 7) as u8
}

fn other_bits(word: u16) -> u8 {
    (word >> 8) as u8 & 0x80 | word as u8 & 0x7f
}

/// The multiples of a group, as the engine computes them.
fn round(group: &[u16], most: u16) -> Result<Vec<i8>, String> {
    // Adding this rounds to a whole number, ties to even.
    const ROUND: f32 = 12_582_912.0;
    let float = |word: u16| f32::from_bits(u32::from(word) << 16);
    if most == 0 {
        return Ok(vec![0; group.len()]);
    }
    let inverse = 127.0 / float(most);
    if !float(most).is_normal() || !inverse.is_finite() {
        return Err(format!("expected weights that can be rounded, found {}", float(most)));
    }
    Ok(group.iter().map(|word| (float(*word) * inverse + ROUND - ROUND) as i8).collect())
}

/// The tensors of a file in the safetensors format, in its order: the header, and what is not a matrix of 16-bit floats, are parts
/// without rows.
fn parts(bytes: &[u8]) -> Result<Vec<(usize, usize)>, String> {
    let (head, rest) = bytes.split_first_chunk::<8>().ok_or("the length of the header is missing")?;
    let length = usize::try_from(u64::from_le_bytes(*head)).map_err(|error| error.to_string())?;
    let header = rest.get(..length).ok_or("the header is cut off")?;
    let header = std::str::from_utf8(header).map_err(|error| error.to_string())?;
    let mut tensors = Vec::new();
    for tensor in header.split("\"dtype\":\"").skip(1) {
        let list = |name: &str| -> Result<Vec<usize>, String> {
            let (_, list) = tensor.split_once(&format!("\"{name}\":[")).ok_or(format!("a tensor has no {name}"))?;
            let (list, _) = list.split_once(']').ok_or(format!("{name} of a tensor has no end"))?;
            list.split(',').map(|number| number.parse().map_err(|error| format!("{name}: {error}"))).collect()
        };
        let (shape, at) = (list("shape")?, list("data_offsets")?);
        match (shape.as_slice(), at.as_slice()) {
            ([rows, width], [start, end]) if tensor.starts_with("BF16\"") && 2 * rows * width == end - start => {
                tensors.push((*start, *rows, *width));
            }
            (_, [start, end]) => tensors.push((*start, 0, end - start)),
            _ => return Err(format!("expected where a tensor begins and ends, found {at:?}")),
        }
    }
    tensors.sort_unstable();
    Ok([(0, 8 + length)].into_iter().chain(tensors.into_iter().map(|(_, rows, width)| (rows, width))).collect())
}

/// Deflated by the frequency of bytes alone: exponents do not repeat in runs, and what looks for runs packs them worse.
fn deflated(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let flags = create_comp_flags_from_zip_params(9, 15, CompressionStrategy::HuffmanOnly.into());
    let mut packed = vec![0; bytes.len() + bytes.len() / 8 + 1024];
    let (status, _, length) = compress(&mut CompressorOxide::new(flags), bytes, &mut packed, TDEFLFlush::Finish);
    packed.truncate(length);
    match status {
        TDEFLStatus::Done => Ok(packed),
        status => Err(format!("weights cannot be deflated: {status:?}")),
    }
}
