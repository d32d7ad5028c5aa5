//! Singular values of small square matrices, by rows.

/// Sweeps over all pairs of columns. Five are enough for ten columns; more change nothing.
const SWEEPS: usize = 30;
const TINY: f64 = 1e-12;

/// `U · diag(s) · Vᵀ`, with the largest singular value first.
#[derive(Debug, Clone, PartialEq)]
pub struct Svd {
    size: usize,
    /// Columns are left singular vectors; those of singular values of 0 are 0.
    pub u: Vec<f64>,
    /// The singular values.
    pub s: Vec<f64>,
    /// Columns are right singular vectors.
    pub v: Vec<f64>,
}

impl Svd {
    /// By one-sided Jacobi rotations: columns are turned in pairs until all are orthogonal.
    pub fn of(matrix: &[f64], size: usize) -> Svd {
        let mut columns: Vec<Vec<f64>> = (0..size).map(|c| (0..size).map(|r| matrix[r * size + c]).collect()).collect();
        let mut turns: Vec<Vec<f64>> =
            (0..size).map(|c| (0..size).map(|r| f64::from(u8::from(r == c))).collect()).collect();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        for _ in 0..SWEEPS {
            let mut turned = false;
            for (p, q) in (0..size).flat_map(|p| (p + 1..size).map(move |q| (p, q))) {
                let (pp, qq, pq) =
                    (dot(&columns[p], &columns[p]), dot(&columns[q], &columns[q]), dot(&columns[p], &columns[q]));
                if pq.abs() <= TINY * (pp * qq).sqrt() || pq == 0.0 {
                    continue;
                }
                turned = true;
                let ratio = (qq - pp) / (2.0 * pq);
                let tangent = if ratio >= 0.0 { 1.0 } else { -1.0 } / (ratio.abs() + (1.0 + ratio * ratio).sqrt());
                let cosine = 1.0 / (1.0 + tangent * tangent).sqrt();
                for pair in [&mut columns, &mut turns] {
                    let (low, high) = pair.split_at_mut(q);
                    // `p` is below `q`, the first of `high`.
                    for (a, b) in low[p].iter_mut().zip(&mut high[0]) {
                        (*a, *b) = (cosine * (*a - tangent * *b), cosine * (*b + tangent * *a));
                    }
                }
            }
            if !turned {
                break;
            }
        }
        let lengths: Vec<f64> = columns.iter().map(|column| dot(column, column).sqrt()).collect();
        let mut order: Vec<usize> = (0..size).collect();
        order.sort_by(|a, b| lengths[*b].total_cmp(&lengths[*a]));
        let (mut u, mut v) = (vec![0.0; size * size], vec![0.0; size * size]);
        for (place, column) in order.iter().enumerate() {
            for row in 0..size {
                let length = lengths[*column];
                u[row * size + place] = if length > TINY { columns[*column][row] / length } else { 0.0 };
                v[row * size + place] = turns[*column][row];
            }
        }
        Svd { size, u, s: order.iter().map(|column| lengths[*column]).collect(), v }
    }

    /// `U Vᵀ`: the derivative of the sum of singular values.
    pub fn polar(&self) -> Vec<f64> {
        self.with(|_| 1.0)
    }

    /// The matrix with other singular values.
    pub fn with(&self, change: impl Fn(f64) -> f64) -> Vec<f64> {
        let n = self.size;
        let entry =
            |at: usize| (0..n).map(|k| self.u[at / n * n + k] * change(self.s[k]) * self.v[at % n * n + k]).sum();
        (0..n * n).map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_factors_give_the_matrix_back(size in 1_usize..7, numbers in prop::collection::vec(-2.0_f64..2.0, 36)) {
            let matrix = &numbers[..size * size];
            let svd = Svd::of(matrix, size);
            for (found, expected) in svd.with(|s| s).iter().zip(matrix) {
                prop_assert!((found - expected).abs() < 1e-9);
            }
            prop_assert!(svd.s.windows(2).all(|pair| pair[0] >= pair[1]));
            let squares: f64 = matrix.iter().map(|x| x * x).sum();
            prop_assert!((svd.s.iter().map(|s| s * s).sum::<f64>() - squares).abs() < 1e-9);
            for (a, b) in (0..size).flat_map(|a| (0..size).map(move |b| (a, b))) {
                let dot: f64 = (0..size).map(|row| svd.v[row * size + a] * svd.v[row * size + b]).sum();
                prop_assert!((dot - f64::from(u8::from(a == b))).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn the_polar_factor_is_the_slope_of_the_sum_of_singular_values() {
        let matrix = [0.3, 0.5, 0.2, 0.9];
        let sum = |matrix: &[f64]| Svd::of(matrix, 2).s.iter().sum::<f64>();
        for (at, slope) in Svd::of(&matrix, 2).polar().iter().enumerate() {
            let moved = |by: f64| {
                let mut matrix = matrix;
                matrix[at] += by;
                sum(&matrix)
            };
            assert!(((moved(1e-6) - moved(-1e-6)) / 2e-6 - slope).abs() < 1e-6);
        }
    }
}
