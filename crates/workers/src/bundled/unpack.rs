//! Unpacks what [`super::pack`] packed.

use flate2::read::ZlibDecoder;
use std::io::Read;

/// Weights that share a largest magnitude, as in the packing.
const GROUP: usize = 64;

/// The length of the unpacked bytes.
///
/// # Errors
/// There is no length.
pub fn length(packed: &[u8]) -> Result<usize, String> {
    number(&mut { packed })
}

/// A text.
///
/// # Errors
/// The build script did not write this.
pub fn text(mut packed: &[u8]) -> Result<Vec<u8>, String> {
    let length = number(&mut packed)?;
    inflate(packed, length)
}

/// Weights that were packed to the last bit.
///
/// # Errors
/// The build script did not write this.
pub fn exact(mut packed: &[u8]) -> Result<Vec<u8>, String> {
    let length = number(&mut packed)?;
    let (exponents, others) = inflated(&mut packed, length / 2)?;
    if others.len() != length.div_ceil(2) {
        return Err(format!("expected {} bytes of other bits, found {}", length.div_ceil(2), others.len()));
    }
    let mut bytes = Vec::with_capacity(length);
    bytes.extend(exponents.iter().zip(others).flat_map(|(exponent, other)| word(*exponent, *other).to_le_bytes()));
    bytes.extend(others.get(length / 2..).into_iter().flatten());
    Ok(bytes)
}

/// Weights that were packed as the engine rounds them: each is the 16-bit float nearest to its multiple, except that the largest
/// of 64 is what it was.
///
/// # Errors
/// The build script did not write this.
pub fn rounded(mut packed: &[u8]) -> Result<Vec<u8>, String> {
    let length = number(&mut packed)?;
    let parts = number(&mut packed)?;
    if parts > packed.len() / 16 {
        return Err(format!("expected {parts} parts, found {} bytes", packed.len()));
    }
    let parts: Vec<(usize, usize)> =
        (0..parts).map(|_| Ok((number(&mut packed)?, number(&mut packed)?))).collect::<Result<_, String>>()?;
    let count = |rows: usize, width: usize| Some((rows.checked_mul(width)?, rows.checked_mul(width.div_ceil(GROUP))?));
    let (mut weights, mut groups) = (0usize, 0usize);
    for (rows, width) in &parts {
        let more = count(*rows, *width).and_then(|(a, b)| Some((weights.checked_add(a)?, groups.checked_add(b)?)));
        (weights, groups) = more.filter(|(weights, _)| *weights <= length / 2).ok_or("a matrix is too large")?;
    }
    let (codes, rest) = inflated(&mut packed, weights + groups)?;
    let (mut multiples, exponents) = codes.split_at(weights);
    let (mut kept, others) = rest.split_at_checked(rest.len().wrapping_sub(groups)).ok_or("magnitudes are cut off")?;
    let mut largest = exponents.iter().zip(others).map(|(exponent, other)| word(*exponent, *other));
    let mut bytes = Vec::with_capacity(length);
    for (rows, width) in parts {
        if rows == 0 {
            let (part, after) = kept.split_at_checked(width).ok_or("a tensor is cut off")?;
            kept = after;
            bytes.extend_from_slice(part);
            continue;
        }
        let (matrix, after) = multiples.split_at(rows * width);
        multiples = after;
        for (group, most) in matrix.chunks(width.max(1)).flat_map(|row| row.chunks(GROUP)).zip(&mut largest) {
            let begin = bytes.len();
            bytes.resize(begin + 2 * group.len(), 0);
            let (_, places) = bytes.split_at_mut(begin);
            write(group, most, places.as_chunks_mut::<2>().0);
        }
    }
    match bytes.len() == length {
        true => Ok(bytes),
        false => Err(format!("expected {length} bytes of weights, found {}", bytes.len())),
    }
}

/// Writes the 16-bit floats nearest to so many 127ths of the largest magnitude. 127 of them are that magnitude again: the product
/// is exact, and so is the quotient.
fn write(multiples: &[u8], most: u16, places: &mut [[u8; 2]]) {
    let largest = f32::from_bits(u32::from(most) << 16);
    for (multiple, place) in multiples.iter().zip(places) {
        let bits = (f32::from(*multiple as i8) * largest / 127.0).to_bits();
        *place = (((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16).to_le_bytes();
    }
}

/// A 16-bit float of its exponent and its other bits.
fn word(exponent: u8, other: u8) -> u16 {
    let (exponent, other) = (u16::from(exponent), u16::from(other));
    (other & 0x80) << 8 | exponent << 7 | other & 0x7f
}

fn number(packed: &mut &[u8]) -> Result<usize, String> {
    let (number, rest) = packed.split_first_chunk::<8>().ok_or("a length is missing")?;
    *packed = rest;
    usize::try_from(u64::from_le_bytes(*number)).map_err(|error| error.to_string())
}

/// The deflated bytes, after their length, and what follows them.
fn inflated<'a>(packed: &mut &'a [u8], length: usize) -> Result<(Vec<u8>, &'a [u8]), String> {
    let deflated = number(packed)?;
    let (deflated, rest) = packed.split_at_checked(deflated).ok_or("what is deflated is cut off")?;
    Ok((inflate(deflated, length)?, rest))
}

fn inflate(deflated: &[u8], length: usize) -> Result<Vec<u8>, String> {
    let mut inflated = Vec::new();
    ZlibDecoder::new(deflated)
        .take((length as u64).saturating_add(1))
        .read_to_end(&mut inflated)
        .map_err(|error| error.to_string())?;
    match inflated.len() == length {
        true => Ok(inflated),
        false => Err(format!("expected {length} inflated bytes, found {}", inflated.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LocalModel, WEIGHTS, pack};
    use super::*;

    fn file(name: &str) -> Vec<u8> {
        std::fs::read(format!("{}/../../models/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    #[test]
    fn texts_and_orchestrators_are_unpacked_as_they_were() {
        for name in ["workers/small/tokenizer.json", "critics/qwen2.5-coder-1.5b.json"] {
            let file = file(name);
            let packed = pack::text(&file);
            assert_eq!(length(&packed), Ok(file.len()));
            assert!(text(&packed).unwrap() == file && packed.len() < file.len() / 3, "{name}: {}", packed.len());
        }
        for name in ["orchestrator", "orchestrator-for-words"] {
            let file = file(&format!("{name}/model.safetensors"));
            let packed = pack::exact(&file).unwrap();
            assert_eq!(length(&packed), Ok(file.len()));
            assert!(exact(&packed).unwrap() == file && packed.len() < file.len() * 7 / 10, "{name}: {}", packed.len());
        }
    }

    #[test]
    fn workers_are_served_as_from_their_files() {
        for name in ["small", "medium", "large"] {
            let before = file(&format!("workers/{name}/model.safetensors"));
            let packed = pack::rounded(&before).unwrap();
            assert_eq!(length(&packed), Ok(before.len()));
            assert!(packed.len() < before.len() * 51 / 100, "{name}: {} of {}", packed.len(), before.len());
            let after = rounded(&packed).unwrap();
            assert!(after != before, "nothing was rounded");
            let identity = |weights: Vec<u8>| {
                let weights: &'static [u8] = weights.leak();
                let files = super::super::find(name).unwrap().files().unwrap().iter();
                let files = files.map(|(file, bytes)| (*file, if *file == WEIGHTS { weights } else { *bytes }));
                let files: &'static [_] = files.collect::<Vec<_>>().leak();
                let settings = lemon_engine::EngineSettings::default();
                // It has a hash of every number that is computed with.
                LocalModel::load_packed(name, files, settings).unwrap().identity()
            };
            assert_eq!(identity(after), identity(before), "{name}");
        }
    }

    #[test]
    fn damage_is_an_error() {
        let weights = file("workers/small/model.safetensors");
        let texts = file("workers/small/config.json");
        let check = |packed: &[u8], unpack: fn(&[u8]) -> Result<Vec<u8>, String>| {
            for cut in [0, 7, 15, 16, 100, 5_000, packed.len() - 1] {
                assert!(unpack(&packed[..cut.min(packed.len() - 1)]).is_err(), "{cut} of {}", packed.len());
            }
            assert!(unpack(&[&[255; 24], packed].concat()).is_err());
        };
        check(&pack::exact(&weights).unwrap(), exact);
        check(&pack::rounded(&weights).unwrap(), rounded);
        check(&pack::text(&texts), text);
        for cut in [0, 7, 100, weights.len() - 1] {
            assert!(pack::rounded(&weights[..cut]).is_err(), "{cut}");
        }
    }
}
