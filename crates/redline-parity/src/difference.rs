//! The difference between the rows of an activation and those of the reference, accumulated row by row.

/// The position of a value in an activation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValuePosition {
    /// The row, which is a token of the step.
    pub row: usize,
    /// The column.
    pub column: usize,
}

/// Sums over all rows so far, in f64. References are finite; the model's own values may not be.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ActivationDifference {
    /// Number of rows so far.
    pub rows: usize,
    /// The largest absolute error; infinite if a value is not finite.
    pub max_error: f64,
    /// The position of the largest error.
    pub max_place: ValuePosition,
    /// Number of own values that are infinite or NaN.
    pub non_finite: usize,
    squared_error: f64,
    squared_own: f64,
    squared_reference: f64,
    product: f64,
}

impl ActivationDifference {
    /// Adds a row.
    pub fn add(&mut self, own: &[f32], reference: &[f32]) {
        for (column, (&own, &reference)) in own.iter().zip(reference).enumerate() {
            let (own, reference) = (f64::from(own), f64::from(reference));
            let error = (own - reference).abs();
            // A value that is not finite counts as the largest error; the first such value is reported.
            let error = if own.is_finite() { error } else { f64::INFINITY };
            self.non_finite += usize::from(!own.is_finite());
            if error > self.max_error {
                (self.max_error, self.max_place) = (error, ValuePosition { row: self.rows, column });
            }
            self.squared_error += error * error;
            self.squared_own += own * own;
            self.squared_reference += reference * reference;
            self.product += own * reference;
        }
        self.rows += 1;
    }

    /// Squared error over squared reference. 0 if both are 0; infinite if only the reference is 0 or a value is not finite.
    pub fn nmse(&self) -> f64 {
        if self.squared_error == 0.0 { 0.0 } else { self.squared_error / self.squared_reference }
    }

    /// Cosine similarity of both; `None` if one is 0 or not finite.
    pub fn cosine(&self) -> Option<f64> {
        let lengths = (self.squared_own * self.squared_reference).sqrt();
        Some(self.product / lengths).filter(|cosine| cosine.is_finite()).map(|cosine| cosine.clamp(-1.0, 1.0))
    }
}

/// The most probable tokens of both sides over the rows so far; ties go to the lower id.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TopChoice {
    /// Number of rows.
    pub rows: usize,
    /// Rows in which both sides have the same most probable token.
    pub agree: usize,
    /// The row in which the reference has the smallest margin.
    pub closest: Option<RowChoice>,
    /// The first row in which the two sides choose different tokens.
    pub first_other: Option<RowChoice>,
}

/// The choices in one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowChoice {
    /// The row.
    pub row: usize,
    /// The reference's most probable token.
    pub reference: usize,
    /// The margin of its logit over the second largest.
    pub reference_margin: f64,
    /// The model's most probable token.
    pub own: usize,
    /// The margin of its logit over the second largest.
    pub own_margin: f64,
}

impl TopChoice {
    /// Adds a row of logits.
    pub fn add(&mut self, own: &[f32], reference: &[f32]) {
        let ((own, own_margin), (reference, reference_margin)) = (top(own), top(reference));
        let choice = RowChoice { row: self.rows, reference, reference_margin, own, own_margin };
        self.rows += 1;
        self.agree += usize::from(own == reference);
        if own != reference {
            self.first_other.get_or_insert(choice);
        }
        if self.closest.is_none_or(|closest| reference_margin < closest.reference_margin) {
            self.closest = Some(choice);
        }
    }
}

/// The index of the largest value and its margin over the second largest; the margin is 0 if there is no second
/// value.
fn top(values: &[f32]) -> (usize, f64) {
    let largest = |best: usize, index| if values[index] > values[best] { index } else { best };
    let best = (0..values.len()).reduce(largest).unwrap_or(0);
    let others = values.iter().enumerate().filter(|(index, _)| *index != best);
    let second = others.map(|(_, value)| *value).fold(f32::NEG_INFINITY, f32::max);
    let margin = values.get(best).map_or(0.0, |value| f64::from(*value) - f64::from(second));
    (best, if margin.is_finite() { margin } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(rows: &[(&[f32], &[f32])]) -> ActivationDifference {
        let mut difference = ActivationDifference::default();
        for (own, reference) in rows {
            difference.add(own, reference);
        }
        difference
    }

    #[test]
    fn figures_by_hand() {
        let equal: (&[f32], &[f32]) = (&[3.0, 4.0], &[3.0, 4.0]);
        let d = difference(&[equal]);
        assert_eq!((d.nmse(), d.cosine(), d.max_error), (0.0, Some(1.0), 0.0));
        // Errors 3 and 1 over 25 + 25; 25 + 20 over the root of 50 * 50.
        let d = difference(&[equal, (&[0.0, 5.0], &[3.0, 4.0])]);
        assert_eq!((d.nmse(), d.cosine()), (0.2, Some(0.9)));
        assert_eq!((d.max_error, d.max_place), (3.0, ValuePosition { row: 1, column: 0 }));
    }

    #[test]
    fn zeros_and_what_is_no_number() {
        let d = difference(&[(&[0.0], &[0.0])]);
        assert_eq!((d.nmse(), d.cosine()), (0.0, None));
        assert_eq!(difference(&[(&[0.0], &[0.0]), (&[1.0], &[0.0])]).nmse(), f64::INFINITY);
        let d = difference(&[(&[1.0, f32::NAN, f32::INFINITY], &[1.0, 2.0, 3.0])]);
        assert_eq!((d.nmse(), d.cosine(), d.non_finite), (f64::INFINITY, None, 2));
        assert_eq!((d.max_error, d.max_place.column), (f64::INFINITY, 1));
    }

    #[test]
    fn the_closest_row_and_the_first_that_differs_are_named() {
        let mut top = TopChoice::default();
        top.add(&[1.0, 4.0, 2.0], &[1.0, 3.0, 2.0]);
        top.add(&[1.0, 0.5, 0.0], &[1.0, 1.25, 0.0]);
        top.add(&[1.0, 0.0, 3.0], &[9.0, 0.0, 3.0]);
        // Of equally close rows the first counts.
        top.add(&[1.25, 0.0, 0.0], &[1.25, 1.0, 0.0]);
        let expected = RowChoice { row: 1, reference: 1, reference_margin: 0.25, own: 0, own_margin: 0.5 };
        let expected = (4, 2, Some(expected), Some(expected));
        assert_eq!((top.rows, top.agree, top.first_other, top.closest), expected);
        assert_eq!((super::top(&[2.0, 2.0]), super::top(&[2.0])), ((0, 0.0), (0, 0.0)));
    }
}
