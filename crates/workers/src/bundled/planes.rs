//! Unpacks weights that the build script packed: the upper bytes of 16-bit floats deflated, the lower ones as they are.

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
    let (upper, lower) = rest.split_at_checked(deflated).ok_or("the upper bytes are cut off")?;
    if lower.len() != length.div_ceil(2) {
        return Err(format!("expected {} lower bytes, found {}", length.div_ceil(2), lower.len()));
    }
    let mut bytes = vec![0; length];
    bytes.iter_mut().step_by(2).zip(lower).for_each(|(byte, lower)| *byte = *lower);
    let mut inflated = Vec::with_capacity(length / 2);
    ZlibDecoder::new(upper).take(length as u64).read_to_end(&mut inflated).map_err(|error| error.to_string())?;
    if inflated.len() != length / 2 {
        return Err(format!("expected {} upper bytes, found {}", length / 2, inflated.len()));
    }
    bytes.iter_mut().skip(1).step_by(2).zip(inflated).for_each(|(byte, upper)| *byte = upper);
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
