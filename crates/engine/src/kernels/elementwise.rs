//! Loops over plain slices, compiled once for each register width; the processor's features decide at run time which one
//! runs. They multiply and add separately, never fused, so that all widths give the same bits.

use lemon_model::simd;

/// Defines a function whose body is compiled for AVX-512, for AVX2 and for any processor.
macro_rules! multiversion {
    ($(#[$about:meta])* $vis:vis fn $name:ident($($arg:ident: $kind:ty),* $(,)?) $(-> $out:ty)? $body:block) => {
        $(#[$about])*
        // Calling a function that was compiled for wider registers is unsafe; the processor is asked first.
        #[allow(unsafe_code)]
        $vis fn $name($($arg: $kind),*) $(-> $out)? {
            #[inline(always)]
            fn anywhere($($arg: $kind),*) $(-> $out)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
                fn with_avx512($($arg: $kind),*) $(-> $out)? {
                    anywhere($($arg),*)
                }
                #[target_feature(enable = "avx2")]
                fn with_avx2($($arg: $kind),*) $(-> $out)? {
                    anywhere($($arg),*)
                }
                use $crate::kernels::simd_level::{SimdLevel, simd_level};
                match simd_level() {
                    // SAFETY: the processor has been asked.
                    SimdLevel::Avx512Vnni | SimdLevel::Avx512 => return unsafe { with_avx512($($arg),*) },
                    // SAFETY: as above.
                    SimdLevel::Avx2 => return unsafe { with_avx2($($arg),*) },
                    SimdLevel::Portable => {}
                }
            }
            anywhere($($arg),*)
        }
    };
}
pub(crate) use multiversion;

/// The largest absolute value; NaN if there is one. Without the sign bit, numbers are ordered as their bits are, and NaN is
/// above them all.
#[inline(always)]
pub(crate) fn largest_magnitude(values: &[f32]) -> f32 {
    let (chunks, rest) = values.as_chunks::<16>();
    let mut lanes = [0u32; 16];
    for chunk in chunks {
        for (most, value) in lanes.iter_mut().zip(chunk) {
            *most = (*most).max(value.abs().to_bits());
        }
    }
    let rest = rest.iter().map(|value| value.abs().to_bits());
    f32::from_bits(lanes.into_iter().fold(rest.fold(0, u32::max), u32::max))
}

/// A number as it is stored: f32, or bf16 as the upper half of one.
pub(crate) trait Element: Copy {
    fn new(value: f32) -> Self;
    fn value(self) -> f32;
}

impl Element for f32 {
    #[inline(always)]
    fn new(value: f32) -> f32 {
        value
    }

    #[inline(always)]
    fn value(self) -> f32 {
        self
    }
}

impl Element for u16 {
    fn new(value: f32) -> u16 {
        half::bf16::from_f32(value).to_bits()
    }

    #[inline(always)]
    fn value(self) -> f32 {
        f32::from_bits(u32::from(self) << 16)
    }
}

/// `sum + x · values`, for one register.
#[inline(always)]
pub(crate) fn add_scaled<E: Element>(sum: [f32; 16], x: f32, values: &[E; 16]) -> [f32; 16] {
    std::array::from_fn(|lane| sum[lane] + x * values[lane].value())
}

multiversion! {
    /// `y = x / rms(x) · weight`.
    pub(crate) fn norm_row(x: &[f32], weight: &[f32], epsilon: f32, y: &mut [f32]) {
        let inverse = 1.0 / (simd::sum(x, |x| x * x) / x.len() as f32 + epsilon).sqrt();
        for ((y, x), weight) in y.iter_mut().zip(x).zip(weight) {
            *y = x * inverse * weight;
        }
    }
}

multiversion! {
    /// The same in place.
    pub(crate) fn norm_in_place(x: &mut [f32], weight: &[f32], epsilon: f32) {
        let inverse = 1.0 / (simd::sum(x, |x| x * x) / x.len() as f32 + epsilon).sqrt();
        for (x, weight) in x.iter_mut().zip(weight) {
            *x = *x * inverse * weight;
        }
    }
}

multiversion! {
    /// Applies the rotary embedding to a head in place: dimension `i` of the first half pairs with dimension `i` of the second.
    pub(crate) fn rotate(head: &mut [f32], cos: &[f32], sin: &[f32]) {
        let (first, second) = head.split_at_mut(cos.len());
        for ((a, b), (cos, sin)) in first.iter_mut().zip(second).zip(cos.iter().zip(sin)) {
            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
        }
    }
}

multiversion! {
    /// `gate = silu(gate) · up`.
    pub(crate) fn gate_in_place(gate: &mut [f32], up: &[f32]) {
        for (gate, up) in gate.iter_mut().zip(up) {
            *gate = *gate / (1.0 + simd::exp(-*gate)) * up;
        }
    }
}

multiversion! {
    /// The largest value; NaN is ignored.
    pub(crate) fn largest(values: &[f32]) -> f32 {
        simd::largest(values)
    }
}

multiversion! {
    /// `Σ exp((value − most) · inverse)`.
    pub(crate) fn sum_of_exps(values: &[f32], most: f32, inverse: f32) -> f32 {
        simd::sum(values, |value| simd::exp((value - most) * inverse))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_say_what_their_formulas_say() {
        let x: Vec<f32> = (0..50).map(|at| (at as f32 * 0.7).sin() * 3.0).collect();
        let weight: Vec<f32> = (0..50).map(|at| 0.5 + at as f32 / 50.0).collect();
        let close = |found: f32, exact: f64| assert!((f64::from(found) - exact).abs() < 1e-5, "{found}, not {exact}");

        let mut y = vec![0f32; 50];
        norm_row(&x, &weight, 1e-6, &mut y);
        let square: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / 50.0;
        for at in 0..50 {
            close(y[at], f64::from(x[at]) / (square + 1e-6).sqrt() * f64::from(weight[at]));
        }
        let mut same = x.clone();
        norm_in_place(&mut same, &weight, 1e-6);
        assert_eq!(same, y);

        let mut gate = x.clone();
        gate_in_place(&mut gate, &weight);
        for at in 0..50 {
            let x = f64::from(x[at]);
            close(gate[at], x / (1.0 + (-x).exp()) * f64::from(weight[at]));
        }

        let mut head = vec![3.0, 0.0, 4.0, 1.0];
        rotate(&mut head, &[0.0, 1.0], &[1.0, 0.0]);
        assert_eq!(head, [-4.0, 0.0, 3.0, 1.0]);

        assert_eq!(largest_magnitude(&x), x.iter().map(|x| x.abs()).fold(0.0, f32::max));
        for at in [0, 20, 49] {
            let mut x = x.clone();
            x[at] = -f32::NAN;
            assert!(largest_magnitude(&x).is_nan());
        }

        let most = largest(&x);
        assert_eq!(Some(most), x.iter().copied().max_by(f32::total_cmp));
        close(sum_of_exps(&x, most, 0.5), x.iter().map(|x| (f64::from(x - most) * 0.5).exp()).sum());
    }
}
