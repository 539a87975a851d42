//! Start and end of each layer and operation of a pass, recorded in memory that is reserved beforehand.

use std::sync::Arc;

use redline_kernels::op::linear::Variant;
use redline_kernels::{Format, Matrix, Stopwatch};
use redline_system::threads::{UNLABELLED, WorkSpan};

use crate::plan::Site;

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operation {
    /// Its name: that of its file in redline-kernels, if it has one; `linear_grouped` for the layers of several experts.
    pub name: &'static str,
    /// The site of a linear layer.
    pub site: Option<Site>,
    /// Number of rows.
    pub m: usize,
    /// Number of values in a row of the result.
    pub n: usize,
    /// Number of values that each result sums over: inputs of a linear layer, keys of attention.
    pub k: Option<usize>,
    /// Format of weights.
    pub format: Option<Format>,
    /// The variant of a linear layer.
    pub variant: Option<Variant>,
}

impl Operation {
    /// An operation on `m` rows of `n` values.
    pub(crate) fn of(name: &'static str, m: usize, n: usize) -> Self {
        Self { name, site: None, m, n, k: None, format: None, variant: None }
    }

    /// A linear layer on `m` rows.
    pub(crate) fn linear(site: Site, m: usize, matrix: &Matrix, variant: Variant) -> Self {
        Self {
            site: Some(site),
            k: Some(matrix.cols()),
            format: Some(matrix.format()),
            variant: Some(variant),
            ..Self::of("linear", m, matrix.rows())
        }
    }
}

/// A part of a pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The layer it belongs to.
    pub layer: Option<usize>,
    /// The operation; `None`: the whole layer.
    pub operation: Option<Operation>,
    /// Start, in nanoseconds.
    pub start: u64,
    /// End, in nanoseconds.
    pub end: u64,
}

/// The spans of one pass.
#[derive(Debug)]
pub struct Profile {
    stopwatch: Arc<Stopwatch>,
    start: u64,
    end: u64,
    spans: Vec<Span>,
    dropped: u64,
}

/// A span that has begun; `None` if there was no room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpanStart(Option<usize>);

impl Profile {
    /// Reserves room for `room` spans. The stopwatch is the team's.
    pub fn new(stopwatch: Arc<Stopwatch>, room: usize) -> Self {
        Self { stopwatch, start: 0, end: 0, spans: Vec::with_capacity(room), dropped: 0 }
    }

    /// Clears the previous pass and begins a new one.
    pub fn begin_pass(&mut self) {
        self.stopwatch.clear();
        self.spans.clear();
        (self.dropped, self.end) = (0, 0);
        self.start = self.stopwatch.now();
    }

    /// Ends the pass.
    pub fn end_pass(&mut self) {
        self.end = self.stopwatch.now();
    }

    /// Start and end of the pass, in nanoseconds.
    pub fn pass(&self) -> (u64, u64) {
        (self.start, self.end)
    }

    /// Layers and operations in the order in which they began.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Number of team members.
    pub fn members(&self) -> usize {
        self.stopwatch.members()
    }

    /// The work items of a team member; labels are indices of [`Profile::spans`].
    pub fn works(&self, member: usize) -> impl Iterator<Item = WorkSpan> {
        self.stopwatch.works(member)
    }

    /// Number of spans and work items that found no room.
    pub fn dropped(&self) -> u64 {
        self.dropped + self.stopwatch.dropped()
    }

    /// Begins a span: of an operation, or of a whole layer.
    pub(crate) fn begin(&mut self, layer: Option<usize>, operation: Option<Operation>) -> SpanStart {
        let index = self.spans.len();
        if index == self.spans.capacity() {
            self.dropped += 1;
            return SpanStart(None);
        }
        let start = self.stopwatch.now();
        self.spans.push(Span { layer, operation, start, end: start });
        if operation.is_some() {
            self.stopwatch.set_label(u32::try_from(index).unwrap_or(UNLABELLED));
        }
        SpanStart(Some(index))
    }

    /// Ends a span.
    pub(crate) fn end(&mut self, begun: SpanStart) {
        self.stopwatch.set_label(UNLABELLED);
        let now = self.stopwatch.now();
        if let Some(span) = begun.0.and_then(|index| self.spans.get_mut(index)) {
            span.end = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn what_finds_no_room_is_counted_and_a_pass_begins_anew() {
        let next = AtomicU64::new(0);
        let stopwatch =
            Arc::new(Stopwatch::new(Arc::new(move || next.fetch_add(1, Ordering::Relaxed)), 1, 1));
        let mut profile = Profile::new(stopwatch, 2);
        let room = profile.spans.capacity();
        for pass in 0..2 {
            profile.begin_pass();
            let layer = profile.begin(Some(0), None);
            for _ in 0..room + 3 {
                let operation = profile.begin(Some(0), Some(Operation::of("add", 2, 8)));
                profile.end(operation);
            }
            profile.end(layer);
            profile.end_pass();
            assert_eq!((profile.spans().len(), profile.dropped()), (room, 4), "pass {pass}");
            let (start, end) = profile.pass();
            let [layer, operation] = [profile.spans()[0], profile.spans()[1]];
            assert!(start < layer.start && layer.start < operation.start && operation.start < operation.end);
            assert!(operation.end < layer.end && layer.end < end);
        }
    }
}
