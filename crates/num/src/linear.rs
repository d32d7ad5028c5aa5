//! Small numerics: a linear solver, the logistic function, a mean.

/// Solves `matrix · x = right` by Gauss–Jordan elimination with pivots.
///
/// Where the system is singular, the coordinates that it leaves open are 0.
pub fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let n = right.len();
    for column in 0..n {
        let pivot = (column..n).max_by(|a, b| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs()));
        let pivot = pivot.unwrap_or(column);
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        let divisor = matrix[column][column];
        if divisor.abs() < 1e-300 {
            continue;
        }
        let (row, value) = (matrix[column].clone(), right[column]);
        for other in (0..n).filter(|other| *other != column) {
            let factor = matrix[other][column] / divisor;
            if factor != 0.0 {
                matrix[other].iter_mut().zip(&row).for_each(|(a, b)| *a -= factor * b);
                right[other] -= factor * value;
            }
        }
    }
    (0..n).map(|at| right[at] / matrix[at][at]).map(|x| if x.is_finite() { x } else { 0.0 }).collect()
}

/// The inverse of a symmetric matrix that is positive definite, of which the lower triangle is read: by Cholesky's
/// decomposition, in the cube of its size.
pub fn inverse(matrix: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let n = matrix.len();
    // L, where L · Lᵀ is the matrix, and its inverse M: the inverse of the matrix is Mᵀ · M.
    let mut lower = vec![vec![0.0; n]; n];
    let mut inverse = vec![vec![0.0; n]; n];
    for row in 0..n {
        for column in 0..=row {
            let sum: f64 = lower[row].iter().zip(&lower[column]).take(column).map(|(a, b)| a * b).sum();
            let rest = matrix[row][column] - sum;
            // Rounding may leave a pivot at 0 where the matrix is nearly singular.
            lower[row][column] = if row == column { rest.max(1e-300).sqrt() } else { rest / lower[column][column] };
        }
        let pivot = lower[row][row];
        let mut of_row = vec![0.0; n];
        for (factor, before) in lower[row].iter().zip(&inverse).take(row) {
            of_row.iter_mut().zip(before).take(row).for_each(|(sum, value)| *sum -= factor * value);
        }
        of_row.iter_mut().for_each(|sum| *sum /= pivot);
        of_row[row] = 1.0 / pivot;
        inverse[row] = of_row;
    }
    let mut product = vec![vec![0.0; n]; n];
    for (at, row) in inverse.iter().enumerate() {
        for left in 0..=at {
            let factor = row[left];
            product[left].iter_mut().zip(row).take(at + 1).for_each(|(sum, value)| *sum += factor * value);
        }
    }
    product
}

/// The logistic function, `1 / (1 + e⁻ˣ)`.
pub fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The log-odds of a probability: the inverse of [`logistic`].
pub fn logit(p: f64) -> f64 {
    (p / (1.0 - p)).ln()
}

/// The mean; `None` of no values.
pub fn mean_of(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.into_iter().fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then(|| sum / count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn times(matrix: &[Vec<f64>], x: &[f64]) -> Vec<f64> {
        matrix.iter().map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
    }

    #[test]
    fn equations_are_solved() {
        let entry = |row: usize, column: usize| if row == column { 7.0 } else { 1.0 / (1 + row + column) as f64 };
        let matrix: Vec<Vec<f64>> = (0..6).map(|row| (0..6).map(|column| entry(row, column)).collect()).collect();
        let expected = [1.0, -2.0, 3.0, 0.5, 0.0, 4.0];
        let right = times(&matrix, &expected);
        for (found, expected) in solve(matrix, right).into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found}, not {expected}");
        }
    }

    #[test]
    fn a_pivot_of_zero_is_exchanged_and_open_coordinates_are_zero() {
        assert_eq!(solve(vec![vec![0.0, 2.0], vec![4.0, 0.0]], vec![6.0, 4.0]), [1.0, 3.0]);
        assert_eq!(solve(vec![vec![2.0, 0.0], vec![0.0, 0.0]], vec![6.0, 0.0]), [3.0, 0.0]);
        assert_eq!(solve(Vec::new(), Vec::new()), [0.0; 0]);
    }

    #[test]
    fn a_positive_definite_matrix_is_inverted() {
        let entry = |row: usize, column: usize| if row == column { 3.0 } else { 1.0 / (1 + row + column) as f64 };
        let matrix: Vec<Vec<f64>> = (0..7).map(|row| (0..7).map(|column| entry(row, column)).collect()).collect();
        let found = inverse(&matrix);
        for (at, row) in found.iter().enumerate() {
            for (other, value) in times(&matrix, row).into_iter().enumerate() {
                let expected = f64::from(u8::from(at == other));
                assert!((value - expected).abs() < 1e-12, "{at}, {other}: {value}");
            }
        }
        assert_eq!(inverse(&[vec![4.0]]), [[0.25]]);
        assert!(inverse(&[]).is_empty());
    }

    #[test]
    fn the_mean_of_nothing_is_absent() {
        assert_eq!((mean_of([]), mean_of([1.0, 2.0, 6.0])), (None, Some(3.0)));
    }

    #[test]
    fn the_ends_of_the_logistic_are_reached() {
        assert_eq!((logistic(-1e9), logistic(0.0), logistic(1e9)), (0.0, 0.5, 1.0));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// A solution solves its equations, whenever the matrix is far from singular.
        #[test]
        fn what_is_found_solves((matrix, right) in (1..7_usize).prop_flat_map(|n| {
            let row = prop::collection::vec(-1.0..1.0, n);
            (prop::collection::vec(row, n), prop::collection::vec(-9.0..9.0, n))
        })) {
            let mut matrix: Vec<Vec<f64>> = matrix;
            let n = right.len();
            // The diagonal dominates.
            (0..n).for_each(|at| matrix[at][at] += n as f64);
            let found = solve(matrix.clone(), right.clone());
            for (got, wanted) in times(&matrix, &found).into_iter().zip(right) {
                prop_assert!((got - wanted).abs() < 1e-9, "{got} is not {wanted}");
            }
        }

        #[test]
        fn logit_inverts_logistic(p in 0.001..0.999) {
            prop_assert!((logistic(logit(p)) - p).abs() < 1e-12);
        }
    }
}
