//! Which vector instructions the kernels use. All of them give the same bits.

use std::fmt;
use std::sync::OnceLock;

/// A set of vector instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SimdLevel {
    /// What the compiler may use on every processor of this architecture.
    Portable,
    /// AVX2 with fused multiply-adds.
    Avx2,
    /// AVX-512 without the instructions for int8 products.
    Avx512,
    /// AVX-512 with them.
    Avx512Vnni,
}

impl fmt::Display for SimdLevel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            SimdLevel::Portable => "portable",
            SimdLevel::Avx2 => "AVX2",
            SimdLevel::Avx512 => "AVX-512",
            SimdLevel::Avx512Vnni => "AVX-512 VNNI",
        })
    }
}

/// The best instructions of this processor, or fewer where the environment variable `LEMON_SIMD` asks for `avx2` or
/// `portable`. It is read once.
pub fn simd_level() -> SimdLevel {
    static LEVEL: OnceLock<SimdLevel> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        let most = match std::env::var("LEMON_SIMD").as_deref() {
            Ok("portable") => SimdLevel::Portable,
            Ok("avx2") => SimdLevel::Avx2,
            // Any other value changes nothing: the variable is for measurements.
            Ok(_) | Err(_) => SimdLevel::Avx512Vnni,
        };
        detected().min(most)
    })
}

#[cfg(target_arch = "x86_64")]
fn detected() -> SimdLevel {
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
    match (avx512 && avx2, avx2) {
        (true, _) if is_x86_feature_detected!("avx512vnni") => SimdLevel::Avx512Vnni,
        (true, _) => SimdLevel::Avx512,
        (false, true) => SimdLevel::Avx2,
        (false, false) => SimdLevel::Portable,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detected() -> SimdLevel {
    SimdLevel::Portable
}
