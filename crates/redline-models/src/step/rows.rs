//! Some rows of activations.

use super::{Act, Operation, Step, Wanted};

impl Step<'_> {
    /// Moves the wanted rows of activations, of which no two share memory, to the front, in place. Later operations run on these only.
    pub fn narrow<const N: usize>(&mut self, acts: [Act; N]) -> [Act; N] {
        let Wanted { rows, positions, segments, adapters } = self.wanted;
        if acts.iter().all(|act| act.rows == rows.len()) {
            return acts;
        }
        let width = acts.iter().map(|act| act.width).sum();
        let timed = self.begin(|| Operation::of("gather", rows.len(), width));
        if let Some(inputs) = &mut self.layer_inputs {
            inputs.rows.rows = rows.len();
        }
        let inputs = self.layer_inputs.map(|inputs| inputs.rows);
        for act in acts.into_iter().chain(inputs) {
            for (i, &row) in rows.iter().enumerate() {
                let from = act.start + row * act.stride;
                self.arena.values.copy_within(from..from + act.width, act.start + i * act.stride);
            }
        }
        self.end(timed);
        self.positions = positions;
        self.segments = segments;
        self.adapters = adapters;
        acts.map(|act| Act { rows: rows.len(), ..act })
    }

    /// The given rows of `x`, in that order: a view of `x` if they are consecutive, otherwise a copy.
    pub fn gather(&mut self, x: Act, rows: &[usize]) -> Act {
        if let Some(first) =
            rows.first().filter(|first| rows.iter().copied().eq(**first..**first + rows.len()))
        {
            assert!(first + rows.len() <= x.rows, "rows {first} to {} of {}", first + rows.len(), x.rows);
            return Act { start: x.start + first * x.stride, rows: rows.len(), ..x };
        }
        self.copy_rows("gather", x, rows.iter().copied())
    }

    /// A copy.
    pub fn copy(&mut self, x: Act) -> Act {
        self.copy_rows("copy", x, 0..x.rows)
    }

    fn copy_rows(&mut self, name: &'static str, x: Act, rows: impl ExactSizeIterator<Item = usize>) -> Act {
        let y = self.alloc(rows.len(), x.width);
        let timed = self.begin(|| Operation::of(name, y.rows, y.width));
        let (from, mut to) = Self::input_and_output(self.arena.values, x, y);
        for (i, row) in rows.enumerate() {
            to.row(i).copy_from_slice(from.row(row));
        }
        self.end(timed);
        y
    }
}
