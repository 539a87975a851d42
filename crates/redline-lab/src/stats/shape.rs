//! Statistics of the order and the tails of samples.

use super::{Samples, percentile_of};

impl Samples {
    /// Numbers of values beyond Tukey's fences, mild and severe: further than 1.5 and 3 times the interquartile range from the
    /// quartiles. `None` below four values.
    pub fn outliers(&self) -> Option<(usize, usize)> {
        if self.n() < 4 {
            return None;
        }
        let sorted = &self.sorted;
        let (low, high) = (percentile_of(sorted, 25.0)?, percentile_of(sorted, 75.0)?);
        let beyond = |times: f64| {
            let reach = times * (high - low);
            sorted.iter().filter(|&&v| v < low - reach || v > high + reach).count()
        };
        let severe = beyond(3.0);
        Some((beyond(1.5) - severe, severe))
    }

    /// The autocorrelation at lag 1, over all processes. `None` if values do not vary or no process has three.
    pub fn autocorrelation(&self) -> Option<f64> {
        let (mut products, mut squares) = (0.0, 0.0);
        for process in self.processes().filter(|p| p.len() > 2) {
            let mean = process.iter().sum::<f64>() / process.len() as f64;
            products += process.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum::<f64>();
            squares += process.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>();
        }
        Some(products / squares).filter(|r| r.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use crate::stats::{Direction, Samples};

    #[test]
    fn tails_and_order() {
        let samples = |v: &[f64]| Samples::new("x", Direction::Info, v.to_vec()).unwrap();
        // Quartiles 2 and 4: fences -1 and 7, -4 and 10.
        assert_eq!(samples(&[1.0, 2.0, 3.0, 4.0, 8.0]).outliers(), Some((1, 0)));
        assert_eq!(samples(&[1.0, 2.0, 3.0, 4.0, 11.0]).outliers(), Some((0, 1)));
        assert_eq!(samples(&[1.0, 2.0, 3.0]).outliers(), None);
        // Deviations 1, -1, 1, -1: three products of -1 over four squares.
        assert_eq!(samples(&[2.0, 0.0, 2.0, 0.0]).autocorrelation(), Some(-0.75));
        assert_eq!(samples(&[1.0, 1.0, 1.0]).autocorrelation(), None);
        assert_eq!(samples(&[1.0, 2.0]).autocorrelation(), None);
    }

    #[test]
    fn outliers_lie_beyond_the_fences_on_either_side() {
        let outliers = |v: &[f64]| Samples::new("x", Direction::Info, v.to_vec()).unwrap().outliers();
        // Quartiles -4 and -2: fences -7 and 1, -10 and 4.
        assert_eq!(outliers(&[-8.0, -4.0, -3.0, -2.0, -1.0]), Some((1, 0)));
        assert_eq!(outliers(&[-11.0, -4.0, -3.0, -2.0, -1.0]), Some((0, 1)));
        // A value on a fence is inside.
        assert_eq!(outliers(&[-7.0, -4.0, -3.0, -2.0, -1.0]), Some((0, 0)));
        assert_eq!(outliers(&[1.0, 2.0, 3.0, 4.0, 7.0]), Some((0, 0)));
        assert_eq!(outliers(&[1.0, 2.0, 3.0, 4.0, 10.0]), Some((1, 0)));
        assert_eq!(outliers(&[5.0; 4]), Some((0, 0)), "four equal values");
    }

    #[test]
    fn neighbours_are_compared_with_the_mean_of_their_process() {
        let of = |processes: &[Vec<f64>]| {
            Samples::by_process("x", Direction::Info, processes).unwrap().autocorrelation()
        };
        // Deviations -2, -1 and 3: products 2 and -3 over squares 4, 1 and 9.
        assert_eq!(of(&[vec![1.0, 2.0, 6.0]]), Some(-1.0 / 14.0));
        // Another process is as far from its own mean; two values alone say nothing.
        assert_eq!(of(&[vec![1.0, 2.0, 6.0], vec![5.0, 9.0], vec![11.0, 12.0, 16.0]]), Some(-1.0 / 14.0));
    }
}
