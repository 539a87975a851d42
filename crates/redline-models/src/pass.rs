//! How a batch runs through the layers: on all threads together, or cut into micro-batches, each of which one thread runs from the
//! embedding to the last layer.
//!
//! Together, threads divide every operation, and wait for each other after it. That is best for few rows and for large layers, whose
//! weights are then read once for all rows. Micro-batches need no waiting, and their activations stay in the caches of one core; but each
//! of them reads all weights. So batches of encoders are cut if they have enough rows and the weights of a layer are small
//! (`docs/performance.md` has the measurements, and says why decoders are not cut). Results have the same bits.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use redline_kernels::op::kv::{AttentionMask, PassPages, Segment};
use redline_kernels::{Exec, Team};

use crate::adapter_rows::{AdapterRows, of_wanted};
use crate::kv::{KvCache, PageTables};
use crate::model::{Batch, BatchPart, Model};
use crate::plan::Plan;
use crate::row_digests::RowDigests;
use crate::step::{Act, Arena, ArenaPart, Step, StepInput, StepModel, Wanted, Watchers, padded};

/// Minimum number of rows of a micro-batch, on average.
const MIN_ROWS: usize = 48;
/// The cost of reading all weights once more, in rows.
const READING_ROWS: f64 = 2.0;
/// The share of the largest micro-batch that counts as time: its thread may be late, and nobody can take its work over.
const RISK: f64 = 0.1;
/// Maximum excess of a thread's rows over an equal share, as a fraction of that.
const IMBALANCE: f64 = 0.1;

/// Consecutive sequences of a batch.
struct MicroBatch<'a> {
    /// Its rows in the batch.
    rows: Range<usize>,
    /// Its segments, the rows counted from its first one, as everywhere below.
    segments: Vec<Segment<'a>>,
    adapters: Vec<AdapterRows<'a>>,
    wanted: Vec<usize>,
    wanted_positions: Vec<u32>,
    wanted_segments: Vec<Segment<'a>>,
    wanted_adapters: Vec<AdapterRows<'a>>,
}

impl<'a> MicroBatch<'a> {
    /// The sequences `parts` of a batch, from row `first_row` on. `wanted` are rows of the batch, of which it takes its own, and
    /// `positions` those of all rows.
    fn new(
        parts: &'a [BatchPart],
        positions: &[u32],
        tables: PageTables<'a>,
        first_row: usize,
        wanted: &[usize],
        depends_on_positions: bool,
    ) -> Self {
        let mut segments = Vec::with_capacity(parts.len());
        let mut adapters = Vec::new();
        let mut end = 0;
        for part in parts {
            let BatchPart { sequence, start, tokens: rows, drafts: _, attention, adapters: uses } = part;
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
        let wanted_positions = wanted[own.clone()].iter().map(|row| positions[*row]).collect();
        let wanted: Vec<usize> = wanted[own].iter().map(|row| row - first_row).collect();
        let wanted_segments = narrowed(&segments, &wanted, depends_on_positions);
        let wanted_adapters = of_wanted(&adapters, &wanted);
        Self { rows, segments, adapters, wanted, wanted_positions, wanted_segments, wanted_adapters }
    }

    /// The input of its pass.
    fn input<'b>(
        &'b self,
        batch: &'b Batch,
        places: &'b [u32],
        kv: PassPages<'b>,
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
                positions: &self.wanted_positions,
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
    /// records the tokens as stored. Room must be reserved before ([`KvCache::reserve`], [`Model::reserve_positions`], the arena).
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
        let narrowed = &model.spec.layers[model.decoder.narrowed_at..];
        let mut attentions = narrowed.iter().filter_map(|layer| layer.attention());
        let depends = model.distances.is_some() || attentions.any(|attention| attention.window.is_some());
        let places = model.spec.padding().map(|padding| batch.places(padding));
        let places = places.as_deref().unwrap_or(&batch.positions);
        let (pages, tables) = kv.split();
        let of =
            |parts, first_row| MicroBatch::new(parts, &batch.positions, tables, first_row, wanted, depends);

        let mut first_row = 0;
        let can_cut = !watchers.watch_whole() && model.can_cut(exec.team);
        let cuts = if can_cut { model.cuts(exec.team, arena, batch, wanted.len()) } else { Vec::new() };
        let micro_batches = cuts.into_iter().map(|range| {
            let micro_batch = of(&batch.parts()[range], first_row);
            first_row = micro_batch.rows.end;
            micro_batch
        });
        let micro_batches: Vec<MicroBatch<'_>> = micro_batches.collect();
        let separate = pages.of_micro_batches(micro_batches.iter().map(|it| &it.segments[..]));
        let separate = separate.filter(|pages| !pages.is_empty());
        let was_cut = separate.is_some();
        if let Some(pages) = separate {
            model.run_micro_batches(exec, arena, (batch, places), &micro_batches, pages, watchers.digests);
        }

        let whole = of(batch.parts(), 0);
        let states: Vec<&[u32]> = batch.parts().iter().map(|part| tables.state_of(part.sequence)).collect();
        let pages = pages.of_batch_with_states(&whole.segments, &states);
        let input = whole.input(batch, places, pages, plan, watchers);
        let mut step = Step::new(exec, arena.whole(), model.of_steps(), input);
        let x = if was_cut {
            step.results_of_micro_batches(model.facts.hidden)
        } else {
            model.decoder.forward(&mut step)
        };
        let out = read(model, x, &mut step);
        for part in batch.parts() {
            kv.store_with_drafts(part.sequence, part.start + part.tokens, part.drafts);
        }
        out
    }

    fn of_steps(&self) -> StepModel<'_> {
        let Self { rotations, distances, cache_slots, .. } = self;
        StepModel { rotations, distances: distances.as_ref(), cache_slots }
    }

    /// Whether batches may be cut at all. Logical devices divide every operation.
    fn can_cut(&self, team: &Team) -> bool {
        team.size() > 1 && team.devices() == 1 && self.footprint.cuts_batches()
    }

    /// Where to cut a batch: ranges of its sequences; none if it is better not cut.
    fn cuts(&self, team: &Team, arena: &mut Arena, batch: &Batch, wanted: usize) -> Vec<Range<usize>> {
        let rows: Vec<usize> = batch.parts().iter().map(|part| part.tokens).collect();
        cut(&rows, team.size(), |rows| self.divide(arena, team.size(), wanted, rows).is_some())
    }

    /// Divides the arena: values for the residual streams of the wanted rows, and for each thread what micro-batches of up to `rows` rows
    /// need.
    /// `None` if it does not hold that.
    fn divide<'a>(
        &self,
        arena: &'a mut Arena,
        threads: usize,
        wanted: usize,
        rows: usize,
    ) -> Option<(&'a mut [f32], Vec<ArenaPart<'a>>)> {
        let size = self.footprint.micro_batch_size(rows);
        let mut arena = arena.whole();
        let results = arena.values.split_off_mut(..wanted * padded(self.facts.hidden))?;
        Some((results, (0..threads).map(|_| arena.take(size)).collect::<Option<_>>()?))
    }

    /// Runs micro-batches, each on one thread, and leaves the residual streams of the wanted rows at the start of the arena, which holds
    /// what they need.
    fn run_micro_batches(
        &self,
        exec: Exec<'_>,
        arena: &mut Arena,
        (batch, places): (&Batch, &[u32]),
        micro_batches: &[MicroBatch<'_>],
        pages: Vec<PassPages<'_>>,
        digests: Option<&RowDigests>,
    ) {
        let stride = padded(self.facts.hidden);
        let most = micro_batches.iter().map(|it| it.rows.len()).max().unwrap_or(0);
        let wanted = micro_batches.iter().map(|it| it.wanted.len()).sum();
        let (mut results, arenas) =
            self.divide(arena, exec.team.size(), wanted, most).expect("the memory of which `cuts` made sure");
        let arenas: Vec<_> = arenas.into_iter().map(Mutex::new).collect();
        let work = micro_batches.iter().zip(pages).map(|(it, pages)| {
            let results =
                results.split_off_mut(..it.wanted.len() * stride).expect("room for all wanted rows");
            (it.rows.len(), Mutex::new(Some((it, pages, results))))
        });
        let mut work: Vec<_> = work.collect();
        // The largest first: the last ones then end at almost the same time.
        work.sort_by_key(|(rows, _)| Reverse(*rows));
        let (simd, next, progress) = (exec.simd, AtomicUsize::new(0), exec.team.progress());
        exec.team.run_long(|thread| {
            let mut arena = arenas[thread].lock().unwrap_or_else(PoisonError::into_inner);
            let team = Team::single(progress.clone());
            while let Some((_, it)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                let it = it.lock().unwrap_or_else(PoisonError::into_inner).take();
                let Some((it, pages, results)) = it else { continue };
                // Plans are measured with all threads.
                let own = digests.map(|digests| digests.part(it.rows.clone()));
                let watchers = Watchers { digests: own.as_ref(), ..Watchers::default() };
                let input = it.input(batch, places, pages, None, watchers);
                let exec = Exec { simd, team: &team };
                let mut step = Step::new(exec, arena.reborrow(), self.of_steps(), input);
                let x = self.decoder.forward(&mut step);
                let x = step.read(x);
                for (row, to) in results.chunks_exact_mut(stride).enumerate() {
                    to[..x.width()].copy_from_slice(x.row(row));
                }
                if let (Some(digests), Some(own)) = (digests, own) {
                    digests.take(&own, it.rows.clone());
                }
            }
        });
    }
}

/// Where to cut a batch of sequences of so many rows for `members` threads: ranges of sequences, in the order of the batch; none if
/// threads would have too little work, or too different amounts of it. `fits` says whether micro-batches of up to so many rows have the
/// memory that they need.
fn cut(rows: &[usize], members: usize, mut fits: impl FnMut(usize) -> bool) -> Vec<Range<usize>> {
    let all: usize = rows.iter().sum();
    let most = rows.len().min(all / MIN_ROWS);
    let share = all as f64 / members as f64;
    let candidates = (members..=most).step_by(members.max(1)).filter_map(|count| {
        let ranges = in_ranges(rows, count);
        let sizes: Vec<usize> = ranges.iter().map(|range| rows[range.clone()].iter().sum()).collect();
        let (longest, largest) = (longest(&sizes, members) as f64, sizes.iter().max().copied()?);
        let works =
            sizes.iter().all(|size| *size > 0) && longest <= share * (1.0 + IMBALANCE) && fits(largest);
        let reading = READING_ROWS * ranges.len() as f64 / members as f64;
        works.then_some((ranges, longest + reading + RISK * largest as f64))
    });
    candidates.min_by(|(_, a), (_, b)| a.total_cmp(b)).map_or_else(Vec::new, |(ranges, _)| ranges)
}

/// The largest number of rows that a thread runs, if each takes the largest micro-batch that is left when it is done with another.
fn longest(sizes: &[usize], members: usize) -> usize {
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable_by_key(|size| Reverse(*size));
    let mut loads = vec![0; members];
    for size in sizes {
        if let Some(least) = loads.iter_mut().min() {
            *least += size;
        }
    }
    loads.into_iter().max().unwrap_or(0)
}

/// At most `count` ranges of sequences of almost equal size: cut i lies where it is nearest to i equal shares of all rows.
fn in_ranges(rows: &[usize], count: usize) -> Vec<Range<usize>> {
    let all: usize = rows.iter().sum();
    let mut ranges: Vec<Range<usize>> = Vec::with_capacity(count);
    let (mut first, mut before) = (0, 0);
    for (i, rows) in rows.iter().enumerate() {
        let after = before + rows;
        let next = all * (ranges.len() + 1) / count;
        // The sequence belongs to the next range if the cut before it is nearer.
        if first < i && next.abs_diff(before) < next.abs_diff(after) {
            ranges.push(first..i);
            first = i;
        }
        before = after;
    }
    ranges.push(first..rows.len());
    ranges
}

/// Segments for the rows `wanted` (ascending) only, with row numbers counted among them, for a layer in which what a row sees depends on
/// its position or not: with a window, or numbers for distances, it does.
fn narrowed<'a>(segments: &[Segment<'a>], wanted: &[usize], depends: bool) -> Vec<Segment<'a>> {
    let mut all: Vec<Segment<'a>> = Vec::new();
    let mut rest = wanted;
    let mut first_row = 0;
    for segment in segments {
        let count = rest.partition_point(|row| *row < segment.first_row + segment.rows);
        let (own, later) = rest.split_at(count);
        rest = later;
        let runs: Vec<&[usize]> = match segment.attention {
            AttentionMask::Bidirectional(_) if !depends => own.chunks(own.len().max(1)).collect(),
            _ => own.chunk_by(|a, b| a + 1 == *b).collect(),
        };
        for run in runs {
            let rows = run.len();
            let start = match segment.attention {
                AttentionMask::Bidirectional(_) if !depends => 0,
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

    /// Micro-batches of any size fit.
    fn fit(_: usize) -> bool {
        true
    }

    #[test]
    fn ranges_are_of_almost_equal_size() {
        assert_eq!(in_ranges(&[50; 10], 2), [0..5, 5..10]);
        assert_eq!(in_ranges(&[50; 10], 4), [0..3, 3..5, 5..8, 8..10]);
        assert_eq!(in_ranges(&[100, 10, 10, 100], 2), [0..2, 2..4]);
        assert_eq!(in_ranges(&[7, 500], 2), [0..1, 1..2]);
        assert_eq!(in_ranges(&[500, 7], 2), [0..1, 1..2]);
        assert_eq!(in_ranges(&[1, 1, 500, 1], 4), [0..2, 2..3, 3..4]);
    }

    #[test]
    fn threads_have_almost_equal_shares() {
        assert_eq!(longest(&[90, 90, 110, 130], 2), 220);
        // More than one for each thread: a late thread holds little.
        assert_eq!(cut(&[128; 4], 2, fit), [0..1, 1..2, 2..3, 3..4]);
        assert_eq!(cut(&[50; 4], 4, fit), [0..1, 1..2, 2..3, 3..4]);
        // Two would be of 250 and 170 rows.
        let rows = [90, 90, 70, 40, 80, 50];
        assert_eq!(cut(&rows, 2, fit), [0..1, 1..2, 2..3, 3..4, 4..5, 5..6]);
        // The only ones that fit.
        assert_eq!(cut(&[50; 16], 2, |largest| largest <= 100).len(), 8);
        assert!(cut(&[50; 16], 2, |_| false).is_empty());
        for members in 1..9 {
            let rows: Vec<usize> = (0..60).map(|i| 20 + i * 37 % 90).collect();
            let ranges = cut(&rows, members, fit);
            assert!(ranges.iter().cloned().flatten().eq(0..rows.len()), "{ranges:?}");
            assert!(ranges.len() >= members && ranges.iter().all(|range| !range.is_empty()), "{ranges:?}");
        }
    }

    #[test]
    fn a_batch_that_cannot_be_divided_well_is_not_cut() {
        for (rows, members) in [
            (&[1; 64][..], 2),
            (&[500], 2),
            (&[400, 112], 2),
            (&[128; 3], 2),
            (&[128; 4], 16),
            (&[0, 100, 100, 0], 4),
            (&[], 2),
        ] {
            assert!(cut(rows, members, fit).is_empty(), "{rows:?}");
        }
    }
}
