//! The checksums by which the hub names the contents of files.

use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// A checksum that the hub states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sum {
    /// Of a large file.
    Sha256(String),
    /// Of a file that lies in the repository itself: git's name of the blob.
    Git(String),
}

impl Sum {
    /// Reads the digits of a checksum; which one it is, their number says.
    pub fn parse(digits: &str) -> Option<Self> {
        let digits = digits.to_ascii_lowercase();
        match digits.len() {
            _ if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => None,
            64 => Some(Sum::Sha256(digits)),
            40 => Some(Sum::Git(digits)),
            _ => None,
        }
    }

    pub fn digits(&self) -> &str {
        match self {
            Sum::Sha256(digits) | Sum::Git(digits) => digits,
        }
    }

    /// The same checksum of a file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of_file(&self, path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut file = BufReader::with_capacity(1 << 20, file);
        match self {
            Sum::Sha256(_) => {
                let mut digest = Sha256::new();
                read_all(&mut file, |piece| digest.update(piece))?;
                Ok(Sum::Sha256(hex(&digest.finalize())))
            }
            Sum::Git(_) => {
                let mut digest = Sha1::default();
                digest.update(format!("blob {length}\0").as_bytes());
                read_all(&mut file, |piece| digest.update(piece))?;
                Ok(Sum::Git(hex(&digest.finish())))
            }
        }
    }
}

fn read_all(file: &mut impl Read, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(()),
            length => take(buffer.get(..length).unwrap_or_default()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-1, for git's names only: it tells damage, not malice. (FIPS 180-4, 6.1)
struct Sha1 {
    state: [u32; 5],
    block: [u8; 64],
    /// Bytes so far; the last of them, less than a block, are in `block`.
    length: u64,
}

impl Default for Sha1 {
    fn default() -> Self {
        let state = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476, 0xC3D2_E1F0];
        Sha1 { state, block: [0; 64], length: 0 }
    }
}

impl Sha1 {
    fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            // Below 64, the length of the block.
            self.block[(self.length % 64) as usize] = *byte;
            self.length += 1;
            if self.length.is_multiple_of(64) {
                self.compress();
            }
        }
    }

    fn finish(mut self) -> Vec<u8> {
        let bits = self.length.wrapping_mul(8);
        self.update(&[0x80]);
        while self.length % 64 != 56 {
            self.update(&[0]);
        }
        self.update(&bits.to_be_bytes());
        self.state.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    fn compress(&mut self) {
        // Every index into `words` is a loop's, and below 80.
        let mut words = [0_u32; 80];
        for (word, bytes) in words.iter_mut().zip(self.block.chunks_exact(4)) {
            *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
        }
        for t in 16..80 {
            words[t] = (words[t - 3] ^ words[t - 8] ^ words[t - 14] ^ words[t - 16]).rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = self.state;
        for (t, word) in words.into_iter().enumerate() {
            let (f, k) = match t {
                0..20 => ((b & c) | (!b & d), 0x5A82_7999),
                20..40 => (b ^ c ^ d, 0x6ED9_EBA1),
                40..60 => ((b & c) | (b & d) | (c & d), 0x8F1B_BCDC),
                _ => (b ^ c ^ d, 0xCA62_C1D6_u32),
            };
            let next = a.rotate_left(5).wrapping_add(f).wrapping_add(e).wrapping_add(k).wrapping_add(word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
        }
        for (state, value) in self.state.iter_mut().zip([a, b, c, d, e]) {
            *state = state.wrapping_add(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected digits are those of `sha256sum` and `git hash-object`.
    #[test]
    fn sums_of_files() {
        let folder = tempfile::tempdir().unwrap();
        let check = |content: &[u8], sha256: &str, git: &str| {
            let path = folder.path().join("file");
            std::fs::write(&path, content).unwrap();
            for digits in [sha256, git] {
                let stated = Sum::parse(digits).unwrap();
                assert_eq!(stated.of_file(&path).unwrap(), stated, "{} bytes", content.len());
            }
        };
        check(
            b"",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
        );
        check(
            b"abc",
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f",
        );
        check(
            &[b'x'; 46],
            "404e0d6b65bc5eac7177b4e67f32a7815d5fdbf593e3010f103ccc3c97b0ebd3",
            "1d98a4e287acc725ef6f635b729014f7d49148da",
        );
        check(
            &[b'x'; 47],
            "b35f3728761a26a57ec3e6e948981ae70cdd24c8769c4d647aa333422a9c61ca",
            "719ddd7888a02660234770b651274214ff7df239",
        );
        check(
            &[b'x'; 55],
            "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072",
            "e329c5109ce10a7367561757d2f5a053c528f11e",
        );
        check(
            &[b'x'; 64],
            "7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c",
            "2036367ceafc6ad317a509db8f6b9c2773f731e0",
        );
        check(
            &[b'x'; 119],
            "000b48d4edf0fa7bee3c6236ecd2785baa5db4eeb8bb54341b029e0d9fa5fb0c",
            "476be27639daf140e142c5f18280c33563ade72b",
        );
        check(
            &[b'x'; 200_000],
            "91e3faafd322bcdf160f3f0ce886acb092b9b9e2a1e8526b40f21a8898a8700b",
            "a213aa40f11f7af2a9c9e973df599278413060bb",
        );
        assert_eq!(Sum::parse(&"a".repeat(41)), None);
        assert_eq!(Sum::parse(&"g".repeat(40)), None);
        assert_eq!(Sum::parse(""), None);
        assert_eq!(Sum::parse(&"AB".repeat(20)), Some(Sum::Git("ab".repeat(20))));
    }
}
