//! Where a file holds a tensor of the specification: under another name, as a part of a larger tensor, or with its rows in another order.

use crate::spec::Slice;

/// The place of a tensor in a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// The name in the file.
    pub(crate) name: String,
    /// The shape in the specification.
    pub(crate) shape: Vec<usize>,
    /// The part of the tensor in the file; `None`: all of it.
    pub(crate) slice: Option<Slice>,
    /// The number of values of a head whose rows are stored in pairs that are rotated together.
    pub(crate) pairs: Option<usize>,
    /// Number of first rows of the specification that the file leaves out; they are zero. Only a table that is read as values, in the order
    /// of the file, can lack some.
    pub(crate) left_out: usize,
}

impl Place {
    /// The shape of the tensor in the file.
    pub(crate) fn file_shape(&self) -> Vec<usize> {
        let mut shape = self.slice.map_or_else(|| self.shape.clone(), |slice| slice.shape(&self.shape));
        if let Some(rows) = shape.first_mut() {
            *rows = rows.saturating_sub(self.left_out);
        }
        shape
    }

    /// Length of a row. A vector is one row, or in pairs one column.
    pub(crate) fn columns(&self) -> usize {
        match (&self.shape[..], self.pairs) {
            ([_], Some(_)) => 1,
            (shape, _) => shape.last().copied().unwrap_or(1),
        }
    }

    /// The row of the tensor in the file, counted over all that are stacked there, that holds row `row`; outputs are rows.
    pub(crate) fn row(&self, row: usize) -> usize {
        assert!(self.left_out == 0, "`{}` has rows that the file leaves out", self.name);
        let row = self.pairs.map_or(row, |head_dim| paired_row(row, head_dim));
        let (lane, step) = self.slice.map_or((0, 1), |slice| slice.alternating);
        self.first_row() + lane + row * step
    }

    /// The number of rows of the tensor in the file before the first one of this part and of those that alternate with it.
    fn first_row(&self) -> usize {
        let Some(Slice { stacked, rows, alternating: (_, step), .. }) = self.slice else { return 0 };
        let own = self.shape.first().copied().unwrap_or(1) * step;
        let (first, all) = rows.unwrap_or((0, own));
        stacked.map_or(0, |(index, _)| index * all) + first
    }

    /// The distance in the file between rows that follow each other.
    pub(crate) fn row_step(&self) -> usize {
        self.slice.map_or(1, |slice| slice.alternating.1)
    }

    /// Whether rows that follow each other do so in the file, or are [`Self::row_step`] apart.
    pub(crate) fn keeps_order(&self) -> bool {
        self.pairs.is_none()
    }

    /// Reads elements `first..first + out.len()`, row-major; `read` reads a range of elements of the tensor in the file.
    pub(crate) fn read<E>(
        &self,
        first: usize,
        out: &mut [f32],
        mut read: impl FnMut(usize, &mut [f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let elements: usize = self.shape.iter().product();
        let columns = self.columns().max(1);
        let (lane, step) = self.slice.map_or((0, 1), |slice| slice.alternating);
        // Values of a row, of which a vector has as many as it has elements.
        let of_row = elements / self.shape.first().copied().unwrap_or(1).max(1);
        let before = self.first_row() * of_row;
        if step == 1 && self.keeps_order() {
            let left_out = self.left_out * columns;
            let (zeros, stored) = out.split_at_mut(left_out.saturating_sub(first).min(out.len()));
            zeros.fill(0.0);
            return match stored {
                [] => Ok(()),
                stored => read(before + first + zeros.len() - left_out, stored),
            };
        }
        assert!(self.left_out == 0, "`{}` has rows that the file leaves out", self.name);
        // The outputs of a vector are its columns.
        let outputs_are_rows =
            self.pairs.is_some() || self.shape.len() > 1 && self.slice.is_some_and(|slice| slice.axis == 0);
        let (mut done, mut wide) = (0, Vec::new());
        while done < out.len() {
            let (row, skipped) = ((first + done) / columns, (first + done) % columns);
            let part = (columns - skipped).min(out.len() - done);
            let to = &mut out[done..done + part];
            if outputs_are_rows {
                read(self.row(row) * columns + skipped, to)?;
            } else {
                wide.resize((part - 1) * step + 1, 0.0);
                read(before + (row * columns + skipped) * step + lane, &mut wide)?;
                to.iter_mut().zip(wide.iter().step_by(step)).for_each(|(to, from)| *to = *from);
            }
            done += part;
        }
        Ok(())
    }
}

/// The place of a row of a head whose rows are stored in pairs: row i beside row `i + head_dim / 2`.
fn paired_row(row: usize, head_dim: usize) -> usize {
    let (head, i) = (row / head_dim, row % head_dim);
    let half = head_dim / 2;
    head * head_dim + 2 * (i % half) + i / half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_lies_beside_the_one_that_is_rotated_with_it() {
        let rows =
            |count: usize, head_dim| (0..count).map(|row| paired_row(row, head_dim)).collect::<Vec<_>>();
        assert_eq!(rows(8, 4), [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(rows(6, 6), [0, 2, 4, 1, 3, 5]);
    }

    /// Elements of a part of a tensor whose elements are their own indices, from `first` on.
    fn read(shape: &[usize], axis: usize, first: usize, count: usize) -> Vec<usize> {
        // The second of two experts, and the second of two projections.
        let slice = Some(Slice { stacked: Some((1, 2)), rows: None, alternating: (1, 2), axis });
        let place = Place { shape: shape.to_vec(), slice, ..Place::default() };
        let whole: usize = place.file_shape().iter().product();
        let mut out = vec![0.0; count];
        let taken = place.read(first, &mut out, |at, to| {
            assert!(at + to.len() <= whole, "{at} and {} of {whole}", to.len());
            to.iter_mut().zip(at..).for_each(|(to, at)| *to = at as f32);
            Ok::<_, ()>(())
        });
        taken.unwrap();
        out.into_iter().map(|x| x as usize).collect()
    }

    #[test]
    fn the_outputs_of_a_part_alternate_with_those_of_another() {
        // [2, 4, 3]: rows 5 and 7 of three.
        assert_eq!(read(&[2, 3], 0, 0, 6), [15, 16, 17, 21, 22, 23]);
        // [2, 3, 4]: columns 1 and 3 of the rows of four from 3 on.
        assert_eq!(read(&[3, 2], 1, 0, 6), [13, 15, 17, 19, 21, 23]);
        // [2, 8]
        assert_eq!(read(&[4], 0, 0, 4), [9, 11, 13, 15]);
        for (shape, axis) in [(&[2usize, 3][..], 0), (&[3, 2], 1), (&[4], 0)] {
            let whole = read(shape, axis, 0, shape.iter().product());
            for first in 0..whole.len() {
                for end in first..=whole.len() {
                    assert_eq!(read(shape, axis, first, end - first), whole[first..end], "{shape:?}");
                }
            }
        }
    }

    #[test]
    fn the_rows_of_a_part_follow_those_of_others() {
        let read = |stacked, shape: &[usize]| {
            let slice = Some(Slice { stacked, rows: Some((3, 5)), alternating: (0, 1), axis: 0 });
            let place = Place { shape: shape.to_vec(), slice, ..Place::default() };
            let mut out = vec![0.0; shape.iter().product()];
            let taken = place.read(0, &mut out, |at, to| {
                to.iter_mut().zip(at..).for_each(|(to, at)| *to = at as f32);
                Ok::<_, ()>(())
            });
            taken.unwrap();
            (place.file_shape(), place.row(1), out.into_iter().map(|x| x as usize).collect::<Vec<_>>())
        };
        assert_eq!(read(None, &[2, 3]), (vec![5, 3], 4, vec![9, 10, 11, 12, 13, 14]));
        assert_eq!(read(Some((1, 4)), &[2, 3]), (vec![4, 5, 3], 9, vec![24, 25, 26, 27, 28, 29]));
        assert_eq!(read(None, &[2]).2, [3, 4]);
    }

    #[test]
    fn rows_that_are_left_out_are_zero() {
        let place = Place { shape: vec![5, 3], left_out: 2, ..Place::default() };
        assert_eq!(place.file_shape(), [3, 3]);
        let read = |first: usize, count: usize| {
            let mut out = vec![-1.0; count];
            let taken = place.read(first, &mut out, |at, to| {
                assert!(!to.is_empty() && at + to.len() <= 9, "{at} and {}", to.len());
                to.iter_mut().zip(at + 1..).for_each(|(to, at)| *to = at as f32);
                Ok::<_, ()>(())
            });
            taken.unwrap();
            out.into_iter().map(|x| x as i32).collect::<Vec<_>>()
        };
        let whole = read(0, 15);
        assert_eq!(whole, [0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        for first in 0..15 {
            for end in first + 1..=15 {
                assert_eq!(read(first, end - first), whole[first..end]);
            }
        }
    }
}
