//! Unpacks weights that the build script packed: the exponents of 16-bit floats deflated, the other bits as they are.

use flate2::read::ZlibDecoder;
use std::io::Read;

/// The length of the unpacked bytes.
///
/// # Errors
/// There is no length.
pub fn unpacked_len(packed: &[u8]) -> Result<usize, String> {
    let (head, _) = packed.split_first_chunk::<8>().ok_or("the length is missing")?;
    usize::try_from(u64::from_le_bytes(*head)).map_err(|error| error.to_string())
}

/// The bytes as they were.
///
/// # Errors
/// The build script did not write this.
pub fn unpack(packed: &[u8]) -> Result<Vec<u8>, String> {
    let length = unpacked_len(packed)?;
    let (head, rest) = packed.get(8..).and_then(|rest| rest.split_first_chunk::<8>()).ok_or("a length is missing")?;
    let deflated = usize::try_from(u64::from_le_bytes(*head)).map_err(|error| error.to_string())?;
    let (exponents, others) = rest.split_at_checked(deflated).ok_or("the exponents are cut off")?;
    if others.len() != length.div_ceil(2) {
        return Err(format!("expected {} bytes of other bits, found {}", length.div_ceil(2), others.len()));
    }
    let mut inflated = Vec::with_capacity(length / 2);
    ZlibDecoder::new(exponents).take(length as u64).read_to_end(&mut inflated).map_err(|error| error.to_string())?;
    if inflated.len() != length / 2 {
        return Err(format!("expected {} exponents, found {}", length / 2, inflated.len()));
    }
    let word = |(exponent, other): (&u8, &u8)| {
        let (exponent, other) = (u16::from(*exponent), u16::from(*other));
        ((other & 0x80) << 8 | exponent << 7 | other & 0x7f).to_le_bytes()
    };
    let mut bytes = Vec::with_capacity(length);
    bytes.extend(inflated.iter().zip(others).flat_map(word));
    bytes.extend(others.get(length / 2..).into_iter().flatten());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_unpacked_as_they_were() {
        let packed = include_bytes!(concat!(env!("OUT_DIR"), "/workers-small.planes"));
        let weights = include_bytes!("../../../../models/workers/small/model.safetensors");
        assert_eq!(unpacked_len(packed), Ok(weights.len()));
        assert!(unpack(packed).unwrap() == weights);
        for cut in [0, 7, 15, 16, 100, packed.len() - 1] {
            assert!(unpack(&packed[..cut]).is_err(), "{cut}");
        }
    }
}
