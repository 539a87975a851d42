//! How a batch runs through the layers: on all threads together, or cut into parts, each of which one thread runs from the embedding to
//! the end.
//!
//! Together, threads divide every operation, and wait for each other after it. That is best for few rows and for large layers, whose
//! weights are then read once for all rows. Parts need no waiting, and their activations stay in the caches of one core; but every part
//! reads all weights. Batches of encoders are cut if they have rows enough and the weights of a layer are small (`docs/performance.md` has
//! the measurements, and says why decoders are not cut). No row notices.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use redline_kernels::op::kv::{AttentionMask, PartPages, Segment};
use redline_kernels::{Exec, Team};

use crate::adapter::resident::{AdapterRows, of_wanted};
use crate::block::linear::Linear;
use crate::kv::{KvCache, PageTables};
use crate::model::{Batch, BatchPart, Model};
use crate::plan::Plan;
use crate::step::{Act, Arena, ArenaPart, Step, StepInput, Wanted, Watchers, padded};

/// Maximum bytes of the weights of a layer in batches that are cut.
const MOST_LAYER_BYTES: usize = 16 << 20;
/// Minimum number of rows of a part, on average.
const LEAST_ROWS: usize = 48;
/// The number of rows whose computation takes as long as what reading all weights adds to it.
const READING_ROWS: f64 = 2.0;
/// How much more than its share of the rows a thread may run, as a fraction of it.
const IMBALANCE: f64 = 0.1;

/// A part of a batch: consecutive sequences, or all of them.
struct Part<'a> {
    /// Its rows in the batch.
    rows: Range<usize>,
    /// Its segments, the rows counted from its first one, as everywhere below.
    segments: Vec<Segment<'a>>,
    adapters: Vec<AdapterRows<'a>>,
    wanted: Vec<usize>,
    wanted_segments: Vec<Segment<'a>>,
    wanted_adapters: Vec<AdapterRows<'a>>,
}

impl<'a> Part<'a> {
    /// The sequences `parts` of a batch, from row `first_row` on. `wanted` are rows of the batch, of which the part takes its own.
    fn new(
        parts: &'a [BatchPart],
        tables: PageTables<'a>,
        first_row: usize,
        wanted: &[usize],
        has_window: bool,
    ) -> Self {
        let mut segments = Vec::with_capacity(parts.len());
        let mut adapters = Vec::new();
        let mut end = 0;
        for part in parts {
            let BatchPart { sequence, start, tokens: rows, attention, adapters: uses } = part;
            let (start, rows, attention) = (*start, *rows, *attention);
            segments.push(Segment { pages: tables.of(*sequence), start, first_row: end, rows, attention });
            if !uses.is_empty() {
                adapters.push(AdapterRows { rows: end..end + rows, uses });
            }
            end += rows;
        }
        let rows = first_row..first_row + end;
        let own =
            wanted.partition_point(|row| *row < rows.start)..wanted.partition_point(|row| *row < rows.end);
        let wanted: Vec<usize> = wanted[own].iter().map(|row| row - first_row).collect();
        let wanted_segments = narrowed(&segments, &wanted, has_window);
        let wanted_adapters = of_wanted(&adapters, &wanted);
        Self { rows, segments, adapters, wanted, wanted_segments, wanted_adapters }
    }

    /// The input of the part's pass.
    fn input<'b>(
        &'b self,
        batch: &'b Batch,
        places: &'b [u32],
        kv: PartPages<'b>,
        plan: Option<&'b Plan>,
        watchers: Watchers<'b>,
    ) -> StepInput<'b> {
        let rows = self.rows.clone();
        StepInput {
            tokens: &batch.tokens()[rows.clone()],
            positions: &batch.positions[rows.clone()],
            places: &places[rows.clone()],
            types: &batch.types[rows],
            wanted: Wanted {
                rows: &self.wanted,
                segments: &self.wanted_segments,
                adapters: &self.wanted_adapters,
            },
            adapters: &self.adapters,
            kv,
            plan,
            watchers,
        }
    }
}

impl Model {
    /// Runs a batch, passes the last residual stream of the rows `wanted` (ascending) to `read` together with the pass, and
    /// records the tokens as stored. If the pass is watched, all rows run to the end, and the residual stream holds all of
    /// them. Room must be reserved before ([`KvCache::reserve`], [`Model::reserve_positions`], the arena).
    pub fn run<T>(
        &mut self,
        exec: Exec<'_>,
        arena: &mut Arena,
        kv: &mut KvCache,
        (batch, wanted): (&Batch, &[usize]),
        plan: Option<&Plan>,
        watchers: Watchers<'_>,
        read: impl FnOnce(&Self, Act, &mut Step<'_>) -> T,
    ) -> T {
        // Earlier positions of a sequence were computed when they ran, so at most the rows of this pass are new.
        if let Some(last) = batch.positions.iter().max() {
            for rotation in &mut self.rotations {
                rotation.table.compute(*last as usize + 1);
            }
        }
        let model = &*self;
        let has_window = model.decoder.layers.last().is_some_and(|it| it.attention.shape.window.is_some());
        let places = model.spec.padding().map(|padding| batch.places(padding));
        let places = places.as_deref().unwrap_or(&batch.positions);
        let (pages, tables) = kv.split();
        let part = |parts, first_row| Part::new(parts, tables, first_row, wanted, has_window);

        let mut first_row = 0;
        let cuts =
            if watchers.is_empty() { model.cuts(exec.team, arena, batch, wanted.len()) } else { Vec::new() };
        let cuts = cuts.into_iter().map(|range| {
            let part = part(&batch.parts()[range], first_row);
            first_row = part.rows.end;
            part
        });
        let parts: Vec<Part<'_>> = cuts.collect();
        let apart = !parts.is_empty()
            && pages
                .of_parts(parts.iter().map(|part| &part.segments[..]))
                .is_some_and(|pages| model.run_parts(exec, arena, (batch, places, plan), &parts, pages));

        let whole = part(batch.parts(), 0);
        let input = whole.input(batch, places, pages.of_batch(&whole.segments), plan, watchers);
        let mut step = Step::new(exec, arena.whole(), &model.rotations, input);
        let x = if apart { step.left_by_parts(model.facts.hidden) } else { model.decoder.forward(&mut step) };
        let out = read(model, x, &mut step);
        for part in batch.parts() {
            kv.store(part.sequence, part.start + part.tokens);
        }
        out
    }

    /// Where to cut a batch: ranges of its sequences; none if it is better not cut.
    fn cuts(&self, team: &Team, arena: &mut Arena, batch: &Batch, wanted: usize) -> Vec<Range<usize>> {
        let bytes = self.decoder.layers.first().map_or(0, |it| it.linears().map(Linear::bytes).sum());
        let may_be = !self.facts.objective.predicts() && bytes <= MOST_LAYER_BYTES;
        if !may_be || team.size() == 1 || team.devices() > 1 {
            return Vec::new();
        }
        let rows: Vec<usize> = batch.parts().iter().map(|part| part.tokens).collect();
        let mut fits = |rows| self.divide(arena, team.size(), wanted, rows).is_some();
        cut(&rows, team.size(), &mut fits)
    }

    /// Divides the arena: values for the residual streams of the wanted rows, and for each thread what parts of up to `rows` rows need.
    /// `None` if it does not hold that.
    fn divide<'a>(
        &self,
        arena: &'a mut Arena,
        threads: usize,
        wanted: usize,
        rows: usize,
    ) -> Option<(&'a mut [f32], Vec<ArenaPart<'a>>)> {
        let size = self.footprint.part_size(rows);
        let mut arena = arena.whole();
        let results = arena.values.split_off_mut(..wanted * padded(self.facts.hidden))?;
        Some((results, (0..threads).map(|_| arena.take(size)).collect::<Option<_>>()?))
    }

    /// Runs the parts of a batch, each on one thread, and leaves the residual streams of the wanted rows at the start of the arena.
    /// Returns false, having done nothing, if it does not hold what all threads need.
    fn run_parts(
        &self,
        exec: Exec<'_>,
        arena: &mut Arena,
        (batch, places, plan): (&Batch, &[u32], Option<&Plan>),
        parts: &[Part<'_>],
        pages: Vec<PartPages<'_>>,
    ) -> bool {
        let stride = padded(self.facts.hidden);
        let most = parts.iter().map(|part| part.rows.len()).max().unwrap_or(0);
        let wanted = parts.iter().map(|part| part.wanted.len()).sum();
        let Some((mut results, arenas)) = self.divide(arena, exec.team.size(), wanted, most) else {
            return false;
        };
        let arenas: Vec<_> = arenas.into_iter().map(Mutex::new).collect();
        let work = parts.iter().zip(pages).map(|(part, pages)| {
            let results = results.split_off_mut(..part.wanted.len() * stride).unwrap_or_default();
            (part.rows.len(), Mutex::new(Some((part, pages, results))))
        });
        let mut work: Vec<_> = work.collect();
        // The largest first: the last ones then end at almost the same time.
        work.sort_by_key(|(rows, _)| Reverse(*rows));
        let (simd, next) = (exec.simd, AtomicUsize::new(0));
        exec.team.run(|thread| {
            let mut arena = arenas[thread].lock().unwrap_or_else(PoisonError::into_inner);
            let team = Team::single();
            while let Some((_, part)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                let part = part.lock().unwrap_or_else(PoisonError::into_inner).take();
                let Some((part, pages, results)) = part else { continue };
                let input = part.input(batch, places, pages, plan, Watchers::default());
                let mut step = Step::new(Exec { simd, team: &team }, arena.borrow(), &self.rotations, input);
                let x = self.decoder.forward(&mut step);
                let x = step.read(x);
                for (row, to) in results.chunks_exact_mut(stride).enumerate() {
                    to[..x.width()].copy_from_slice(x.row(row));
                }
            }
        });
        true
    }
}

/// Where to cut a batch of sequences of so many rows for `members` threads: ranges of sequences, in the order of the batch; none if
/// threads would have too little work, or too different amounts of it. `fits` says whether parts of up to so many rows have the memory
/// that they need.
fn cut(rows: &[usize], members: usize, mut fits: impl FnMut(usize) -> bool) -> Vec<Range<usize>> {
    let all: usize = rows.iter().sum();
    let most = rows.len().min(all / LEAST_ROWS);
    let rows_of = |part: &Range<usize>| rows[part.clone()].iter().sum::<usize>();
    let divided = (members..=most).step_by(members.max(1)).map(|count| in_parts(rows, count));
    let fitting = divided.filter(|parts| fits(parts.iter().map(rows_of).max().unwrap_or(0)));
    let candidates = fitting.map(|parts| {
        // Every part reads all weights.
        let time =
            longest(rows, &parts, members) as f64 * (1.0 + READING_ROWS * parts.len() as f64 / all as f64);
        (parts, time)
    });
    let best = candidates.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(parts, _)| parts);
    let most = all as f64 / members as f64 * (1.0 + IMBALANCE);
    best.filter(|parts| longest(rows, parts, members) as f64 <= most).unwrap_or_default()
}

/// The largest number of rows that a thread runs, if each takes the largest part that is left when it is done with another.
fn longest(rows: &[usize], parts: &[Range<usize>], members: usize) -> usize {
    let mut sizes: Vec<usize> = parts.iter().map(|part| rows[part.clone()].iter().sum()).collect();
    sizes.sort_unstable_by_key(|size| Reverse(*size));
    let mut loads = vec![0; members];
    for size in sizes {
        if let Some(least) = loads.iter_mut().min() {
            *least += size;
        }
    }
    loads.into_iter().max().unwrap_or(0)
}

/// At most `count` ranges of sequences of almost equal size: cut i lies where it is nearest to i parts of all rows.
fn in_parts(rows: &[usize], count: usize) -> Vec<Range<usize>> {
    let all: usize = rows.iter().sum();
    let mut parts: Vec<Range<usize>> = Vec::with_capacity(count);
    let (mut first, mut before) = (0, 0);
    for (i, rows) in rows.iter().enumerate() {
        let after = before + rows;
        let next = all * (parts.len() + 1) / count;
        // The sequence belongs to the next part if the cut before it is nearer.
        if first < i && next.abs_diff(before) < next.abs_diff(after) {
            parts.push(first..i);
            first = i;
        }
        before = after;
    }
    parts.push(first..rows.len());
    parts
}

/// Segments for the rows `wanted` (ascending) only, with row numbers counted among them, for a layer with or without a window.
fn narrowed<'a>(segments: &[Segment<'a>], wanted: &[usize], has_window: bool) -> Vec<Segment<'a>> {
    let mut all: Vec<Segment<'a>> = Vec::new();
    let mut rest = wanted;
    let mut first_row = 0;
    for segment in segments {
        let count = rest.partition_point(|row| *row < segment.first_row + segment.rows);
        let (own, later) = rest.split_at(count);
        rest = later;
        let runs: Vec<&[usize]> = match segment.attention {
            // What these rows see does not depend on their positions.
            AttentionMask::Bidirectional(_) if !has_window => own.chunks(own.len().max(1)).collect(),
            _ => own.chunk_by(|a, b| a + 1 == *b).collect(),
        };
        for run in runs {
            let rows = run.len();
            let start = match segment.attention {
                AttentionMask::Bidirectional(keys) if !has_window => keys - rows,
                _ => segment.start + run[0] - segment.first_row,
            };
            all.push(Segment { start, first_row, rows, ..*segment });
            first_row += rows;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts of any size fit.
    fn fit(_: usize) -> bool {
        true
    }

    #[test]
    fn parts_are_of_almost_equal_size() {
        assert_eq!(in_parts(&[50; 10], 2), [0..5, 5..10]);
        assert_eq!(in_parts(&[50; 10], 4), [0..3, 3..5, 5..8, 8..10]);
        assert_eq!(in_parts(&[100, 10, 10, 100], 2), [0..2, 2..4]);
        assert_eq!(in_parts(&[7, 500], 2), [0..1, 1..2]);
        assert_eq!(in_parts(&[500, 7], 2), [0..1, 1..2]);
        assert_eq!(in_parts(&[1, 1, 500, 1], 4), [0..2, 2..3, 3..4]);
    }

    #[test]
    fn threads_have_almost_equal_shares() {
        assert_eq!(cut(&[128; 4], 2, fit), [0..2, 2..4]);
        assert_eq!(cut(&[128; 4], 2, |rows| rows < 200), [0..1, 1..2, 2..3, 3..4]);
        assert_eq!(cut(&[50; 10], 2, fit), [0..5, 5..10]);
        assert_eq!(cut(&[50; 4], 4, fit), [0..1, 1..2, 2..3, 3..4]);
        // Two parts would be of 250 and 170 rows.
        let rows = [90, 90, 70, 40, 80, 50];
        assert_eq!(longest(&rows, &[0..1, 1..2, 2..4, 4..6], 2), 220);
        assert_eq!(cut(&rows, 2, fit), [0..1, 1..2, 2..3, 3..4, 4..5, 5..6]);
        for members in 1..9 {
            let rows: Vec<usize> = (0..60).map(|i| 20 + i * 37 % 90).collect();
            let parts = cut(&rows, members, fit);
            assert!(parts.iter().cloned().flatten().eq(0..rows.len()), "{parts:?}");
            assert!(parts.len() >= members && parts.iter().all(|part| !part.is_empty()), "{parts:?}");
        }
    }

    #[test]
    fn a_batch_that_cannot_be_divided_well_is_not_cut() {
        for (rows, members) in
            [(&[1; 64][..], 2), (&[500], 2), (&[400, 112], 2), (&[128; 3], 2), (&[128; 4], 16), (&[], 2)]
        {
            assert!(cut(rows, members, fit).is_empty(), "{rows:?}");
        }
    }
}
