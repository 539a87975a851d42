//! Digests of the residual stream of chosen rows after chosen layers, by which two machines find where they differ.

use std::ops::Range;
use std::sync::OnceLock;

use redline_kernels::{Rows, Team};
use redline_weights::Sha256Digest;

/// Minimum number of rows that several threads share: a digest of a row takes microseconds, and so does waking a thread.
const MIN_SHARED_ROWS: usize = 4;

/// SHA-256 digests of rows of the residual stream: of the bytes of their values, as little-endian f32. Layers that run on the wanted rows
/// only have no digests of others.
#[derive(Debug, Default)]
pub struct RowDigests {
    /// Ascending.
    layers: Vec<usize>,
    /// Rows of the batch, ascending.
    rows: Vec<usize>,
    /// `[layers, rows]`
    digests: Vec<OnceLock<Sha256Digest>>,
}

impl RowDigests {
    /// Room for the digests of these rows of a batch after these layers, counted from 0; both ascending.
    pub fn new(layers: Vec<usize>, rows: Vec<usize>) -> Self {
        let digests = (0..layers.len() * rows.len()).map(|_| OnceLock::new()).collect();
        Self { layers, rows, digests }
    }

    /// The digest of a row after a layer; `None` if it was not asked for, or not computed.
    pub fn of(&self, layer: usize, row: usize) -> Option<Sha256Digest> {
        let layer = self.layers.binary_search(&layer).ok()?;
        let row = self.rows.binary_search(&row).ok()?;
        self.digests[layer * self.rows.len() + row].get().copied()
    }

    /// Computes the digest of a row of the batch after a layer, if there is room for it.
    pub fn set(&self, layer: usize, row: usize, values: &[f32]) {
        if let (Ok(layer), Ok(row)) = (self.layers.binary_search(&layer), self.rows.binary_search(&row)) {
            let _ = self.digests[layer * self.rows.len() + row].set(Sha256Digest::of_values(values));
        }
    }

    /// Computes the digests after a layer. `x` holds all rows of the batch, or those of `only`, ascending.
    pub(crate) fn observe(&self, team: &Team, layer: usize, x: Rows<'_>, only: Option<&[usize]>) {
        let Ok(index) = self.layers.binary_search(&layer) else { return };
        let count = self.rows.len();
        team.split(count, 1, MIN_SHARED_ROWS, |rows| {
            for i in rows {
                let row = self.rows[i];
                let Some(row) = only.map_or(Some(row), |only| only.binary_search(&row).ok()) else {
                    continue;
                };
                let _ = self.digests[index * count + i].set(Sha256Digest::of_values(x.row(row)));
            }
        });
    }

    /// Room for those of its rows that a part of the batch has, counted from the first row of the part.
    pub(crate) fn part(&self, part: Range<usize>) -> Self {
        let rows = self.rows[self.within(&part)].iter().map(|row| row - part.start).collect();
        Self::new(self.layers.clone(), rows)
    }

    /// Takes the digests of a part of the batch.
    pub(crate) fn take(&self, of_part: &Self, part: Range<usize>) {
        let within = self.within(&part);
        for layer in 0..self.layers.len() {
            let to = &self.digests[layer * self.rows.len()..][within.clone()];
            let from = of_part.digests.get(layer * of_part.rows.len()..).unwrap_or_default();
            for (to, from) in to.iter().zip(from) {
                if let Some(digest) = from.get() {
                    let _ = to.set(*digest);
                }
            }
        }
    }

    /// Which of its rows a part of the batch has.
    fn within(&self, part: &Range<usize>) -> Range<usize> {
        let before = |end: usize| self.rows.partition_point(|row| *row < end);
        before(part.start)..before(part.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_batch_give_the_digests_of_the_whole() {
        let team = Team::single(None);
        let values: Vec<f32> = (0..7 * 3).map(|i| i as f32).collect();
        let x = Rows::new(&values, 7, 3, 3);
        let asked = || RowDigests::new(vec![2, 5], vec![0, 3, 4, 6]);
        let (whole, parts) = (asked(), asked());
        for layer in 0..7 {
            whole.observe(&team, layer, x, None);
        }
        for range in [0..3, 3..4, 4..4, 4..7] {
            let part = parts.part(range.clone());
            for layer in [1, 2, 5] {
                part.observe(&team, layer, x.some(range.clone()), None);
            }
            parts.take(&part, range);
        }
        for (layer, row) in (0..7).flat_map(|layer| (0..7).map(move |row| (layer, row))) {
            let asked = [2, 5].contains(&layer) && [0, 3, 4, 6].contains(&row);
            assert_eq!(
                whole.of(layer, row),
                asked.then(|| Sha256Digest::of_values(x.row(row))),
                "layer {layer}, row {row}"
            );
            assert_eq!(parts.of(layer, row), whole.of(layer, row), "layer {layer}, row {row}");
        }
    }

    #[test]
    fn a_layer_that_runs_on_some_rows_has_no_digest_of_others() {
        let team = Team::single(None);
        let values = [1.0f32, 2.0];
        let digests = RowDigests::new(vec![0], vec![2, 3, 5]);
        digests.observe(&team, 0, Rows::new(&values, 2, 1, 1), Some(&[3, 5]));
        assert_eq!(digests.of(0, 2), None);
        assert_eq!(digests.of(0, 3), Some(Sha256Digest::of_values(&[1.0])));
        assert_eq!(digests.of(0, 5), Some(Sha256Digest::of_values(&[2.0])));
    }
}
