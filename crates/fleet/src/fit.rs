//! Least squares: IOPS as a quadratic function of CPU use, as `Get-FleetPolynomialFit -Order 2` and `Show-FleetCpuSweep` give it.

/// `a[0] + a[1] x + a[2] x^2`, and how well it fits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    pub a: [f64; 3],
    /// Coefficient of determination: 1 is a perfect fit.
    pub r_squared: f64,
}

impl Fit {
    /// Fits points (x, y); `None` with fewer than three different x.
    pub fn quadratic(points: &[(f64, f64)]) -> Option<Self> {
        let mut xs: Vec<f64> = points.iter().map(|point| point.0).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        if xs.len() < 3 || points.iter().any(|(x, y)| !x.is_finite() || !y.is_finite()) {
            return None;
        }
        // Around the middle of x the sums of powers stay small, and the solution exact.
        let middle = xs.iter().sum::<f64>() / xs.len() as f64;
        let mut sums = [0.0; 5];
        let mut moments = [0.0; 3];
        for (x, y) in points {
            let mut power = 1.0;
            for (degree, sum) in sums.iter_mut().enumerate() {
                *sum += power;
                if let Some(moment) = moments.get_mut(degree) {
                    *moment += power * y;
                }
                power *= x - middle;
            }
        }
        let b = solve(
            [[sums[0], sums[1], sums[2]], [sums[1], sums[2], sums[3]], [sums[2], sums[3], sums[4]]],
            moments,
        )?;
        let a = [b[0] - b[1] * middle + b[2] * middle * middle, b[1] - 2.0 * b[2] * middle, b[2]];
        let mean = points.iter().map(|point| point.1).sum::<f64>() / points.len() as f64;
        let unfitted = Self { a, r_squared: 0.0 };
        let residual: f64 = points.iter().map(|(x, y)| (y - unfitted.at(*x)).powi(2)).sum();
        let spread: f64 = points.iter().map(|(_, y)| (y - mean).powi(2)).sum();
        let r_squared = if spread > 0.0 { 1.0 - residual / spread } else { 1.0 };
        Some(Self { a, r_squared })
    }

    pub fn at(&self, x: f64) -> f64 {
        self.a[0] + self.a[1] * x + self.a[2] * x * x
    }

    /// The x at which nothing is done: CPU use without load. `None` if the curve meets zero nowhere at or right of 0.
    pub fn background(&self) -> Option<f64> {
        let [c, b, a] = self.a;
        if a.abs() < 1e-12 {
            let root = -c / b;
            return (root >= 0.0 && root.is_finite()).then_some(root);
        }
        let discriminant = b * b - 4.0 * a * c;
        if discriminant < 0.0 {
            return None;
        }
        let roots = [(-b - discriminant.sqrt()) / (2.0 * a), (-b + discriminant.sqrt()) / (2.0 * a)];
        // The curve rises at the root that is meant.
        roots.into_iter().find(|root| *root >= 0.0 && b + 2.0 * a * root >= 0.0)
    }
}

/// Solves three equations by elimination with pivots; `None` if they do not determine the unknowns.
fn solve(mut rows: [[f64; 3]; 3], mut right: [f64; 3]) -> Option<[f64; 3]> {
    for column in 0..3 {
        let pivot = (column..3).max_by(|a, b| rows[*a][column].abs().total_cmp(&rows[*b][column].abs()))?;
        if rows[pivot][column].abs() < 1e-12 {
            return None;
        }
        rows.swap(column, pivot);
        right.swap(column, pivot);
        for row in column + 1..3 {
            let factor = rows[row][column] / rows[column][column];
            let above = rows[column];
            for (value, from) in rows[row].iter_mut().zip(above) {
                *value -= factor * from;
            }
            right[row] -= factor * right[column];
        }
    }
    let mut solution = [0.0; 3];
    for row in (0..3).rev() {
        let known: f64 = (row + 1..3).map(|column| rows[row][column] * solution[column]).sum();
        solution[row] = (right[row] - known) / rows[row][row];
    }
    Some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(curve: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        [5.0, 12.0, 25.0, 40.0, 61.0, 88.0].map(|x| (x, curve(x))).to_vec()
    }

    #[test]
    fn a_quadratic_is_found_again() {
        let fit = Fit::quadratic(&points(|x| -2000.0 + 1200.0 * x - 4.0 * x * x)).unwrap();
        for (found, meant) in fit.a.into_iter().zip([-2000.0, 1200.0, -4.0]) {
            assert!((found - meant).abs() < 1e-6, "{fit:?}");
        }
        assert!((fit.r_squared - 1.0).abs() < 1e-9);
        let background = fit.background().unwrap();
        assert!(fit.at(background).abs() < 1e-3 && (1.6..1.7).contains(&background), "{background}");
    }

    #[test]
    fn the_published_line_of_vmfleet_is_a_quadratic_without_a_square() {
        // "11676 CPU + 2727.8": IOPS at no CPU, so no background use.
        let fit = Fit::quadratic(&points(|x| 11_676.0 * x + 2727.8)).unwrap();
        assert!((fit.a[1] - 11_676.0).abs() < 1e-3 && fit.a[2].abs() < 1e-6, "{fit:?}");
        assert_eq!(fit.background(), None);
    }

    #[test]
    fn noise_lowers_the_goodness_of_fit_and_moves_the_curve_little() {
        let mut noisy = points(|x| 1000.0 * x - 3.0 * x * x);
        for (number, point) in noisy.iter_mut().enumerate() {
            point.1 *= if number % 2 == 0 { 1.02 } else { 0.98 };
        }
        let fit = Fit::quadratic(&noisy).unwrap();
        assert!(fit.r_squared > 0.99 && fit.r_squared < 1.0, "{fit:?}");
        assert!((fit.at(50.0) - 42_500.0).abs() < 2000.0, "{fit:?}");
    }

    #[test]
    fn too_few_points_have_no_fit() {
        assert_eq!(Fit::quadratic(&[(1.0, 1.0), (2.0, 2.0), (2.0, 3.0)]), None);
        assert_eq!(Fit::quadratic(&[]), None);
        assert_eq!(Fit::quadratic(&[(1.0, f64::NAN), (2.0, 2.0), (3.0, 3.0)]), None);
    }
}
