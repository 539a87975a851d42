//! Short convolutions of every channel: between two gates (LFM2, Liquid AI 2025), or before SiLU (as in recurrences).
//!
//! Between gates, a row holds `b | c | x`, as many values each as there are channels. The input of the convolution is `u = b * x`. The
//! order, for a channel with taps `w[0]` to `w[n - 1]` at position p: `acc = +0; for j in 0..n: acc = fma(w[j], u[p - n + 1 + j], acc)`,
//! where inputs before position 0 are +0; then `acc + bias` if there is one; then `c * acc`. The inputs of earlier passes are f32, as they
//! were. So the bits do not depend on how a sequence is divided into passes. Before SiLU, the input is the row itself, and `silu` of the
//! sum is the output; the last inputs are in the state of the sequence. In an encoder, `m` of the taps are for later rows, in the same
//! order: inputs `u[p + m - n + 1 + j]`, +0 outside the sequence.

use std::ops::Range;

use redline_simd::{Isa, Kernel, LANES};

use super::activation::silu;
use super::kv::{BLOCK_CHANNELS, PassPages, Segment};
use crate::threads::Disjoint;
use crate::{Exec, Rows, RowsMut};

/// Maximum number of taps.
pub const MAX_TAPS: usize = 8;
/// Number of channels that a thread takes at a time.
const CHANNELS: usize = 4 * LANES;
/// Minimum number of outputs that several threads share.
const MIN_SHARED_OUTPUTS: usize = 1 << 14;

/// The weights of a convolution.
#[derive(Clone, Copy, Debug)]
pub struct Taps<'a> {
    /// `[taps, channels]`, the oldest first.
    pub weights: &'a [f32],
    /// `[channels]`
    pub bias: Option<&'a [f32]>,
    /// Number of channels.
    pub channels: usize,
}

impl Taps<'_> {
    /// Number of taps.
    fn count(&self) -> usize {
        self.weights.len() / self.channels.max(1)
    }

    /// Asserts that they fit `channels` channels of which `inputs` earlier inputs are kept.
    fn check(&self, channels: usize, inputs: usize) {
        assert!(
            (1..=MAX_TAPS).contains(&self.count()) && self.weights.len() == self.count() * self.channels,
            "at most {MAX_TAPS} taps of every channel"
        );
        assert!(channels == self.channels && inputs + 1 == self.count(), "inputs of every earlier tap");
        assert!(self.bias.is_none_or(|bias| bias.len() == channels), "a bias of every channel");
    }

    /// The weights and biases of `n` channels from `at` on.
    ///
    /// # Safety
    /// There are so many channels, and [`Taps::check`] passed.
    #[inline(always)]
    unsafe fn of<S: Isa>(&self, s: S, at: usize, n: usize) -> ChannelTaps<S> {
        let mut weights = [s.splat(0.0); MAX_TAPS];
        // SAFETY: the caller's promise: `n` channels of every tap and of the bias.
        unsafe {
            for (j, weight) in weights.iter_mut().enumerate().take(self.count()) {
                *weight = s.load_partial(self.weights.as_ptr().add(j * self.channels + at), n);
            }
            let bias = self.bias.map(|bias| s.load_partial(bias.as_ptr().add(at), n));
            ChannelTaps { count: self.count(), weights, bias }
        }
    }
}

/// The weights of some channels.
struct ChannelTaps<S: Isa> {
    count: usize,
    weights: [S::F; MAX_TAPS],
    bias: Option<S::F>,
}

impl<S: Isa> ChannelTaps<S> {
    /// The sum over the inputs under the taps, the oldest first, with the bias.
    #[inline(always)]
    fn sum(&self, s: S, inputs: &[S::F; MAX_TAPS]) -> S::F {
        let mut acc = s.splat(0.0);
        for (weight, input) in self.weights.iter().zip(inputs).take(self.count) {
            acc = s.fma(*weight, *input, acc);
        }
        self.bias.map_or(acc, |bias| s.add(acc, bias))
    }
}

impl PassPages<'_> {
    /// Convolves all rows of the batch, and stores the inputs that later rows need. `layer` counts the layers that keep inputs. A row
    /// of `bcx` is `[3 * channels]`, one of `out` is `[channels]`.
    ///
    /// # Panics
    /// If the shapes do not fit each other and those of the layer.
    pub fn convolve(
        &mut self,
        exec: Exec<'_>,
        layer: usize,
        taps: Taps<'_>,
        bcx: Rows<'_>,
        out: &mut RowsMut<'_>,
    ) {
        let shape = self.read(self.segments()).input_shape(layer);
        taps.check(shape.channels, shape.rows);
        assert!(shape.slots >= shape.rows, "slots for the inputs");
        self.convolve_all(exec, (Some(layer), 0), taps, bcx, out);
    }

    /// Convolves all rows of whole sequences, where `after` taps are for later rows. Nothing is stored. Rows are as in
    /// [`PassPages::convolve`].
    ///
    /// # Panics
    /// If the shapes do not fit each other, or a sequence is not whole.
    pub fn convolve_whole(
        &self,
        exec: Exec<'_>,
        after: usize,
        taps: Taps<'_>,
        bcx: Rows<'_>,
        out: &mut RowsMut<'_>,
    ) {
        taps.check(taps.channels, taps.count().saturating_sub(1));
        assert!(after < taps.count(), "{after} of {} taps for later rows", taps.count());
        for segment in self.segments() {
            let (start, rows, keys) = (segment.start, segment.rows, segment.keys());
            assert!(start == 0 && keys <= rows, "{rows} rows from {start} on, {keys} keys");
        }
        self.convolve_all(exec, (None, after), taps, bcx, out);
    }

    fn convolve_all(
        &self,
        exec: Exec<'_>,
        (layer, after): (Option<usize>, usize),
        taps: Taps<'_>,
        bcx: Rows<'_>,
        out: &mut RowsMut<'_>,
    ) {
        let (segments, channels) = (self.segments(), taps.channels);
        assert!(
            bcx.width == 3 * channels && out.width == channels && bcx.rows == out.rows,
            "gates and inputs of every channel"
        );
        let rows = super::kv::rows_of(segments);
        assert!(rows <= bcx.rows, "rows of the batch");
        let blocks = channels.div_ceil(CHANNELS);
        let least = if rows * channels < MIN_SHARED_OUTPUTS { usize::MAX } else { 1 };
        let (to, stride) = (Disjoint::new(out.data), out.stride);
        exec.team.split(segments.len() * blocks, 1, least, |work| {
            for item in work {
                let (segment, first) = (&segments[item / blocks], item % blocks * CHANNELS);
                let channels = first..(first + CHANNELS).min(channels);
                exec.simd.run(Convolved {
                    pages: self,
                    layer,
                    after,
                    segment,
                    taps,
                    bcx,
                    to,
                    stride,
                    channels,
                });
            }
        });
    }
}

impl PassPages<'_> {
    /// Convolves all rows of the batch in place, and applies SiLU. `layer` counts the layers that are recurrences, whose state has the last
    /// inputs. A row of `x` is `[channels]`.
    ///
    /// # Panics
    /// If the shapes do not fit each other and those of the layer.
    pub fn convolve_silu(&mut self, exec: Exec<'_>, layer: usize, taps: Taps<'_>, x: &mut RowsMut<'_>) {
        let (segments, channels) = (self.segments(), taps.channels);
        let shape = self.state_shape(layer);
        taps.check(shape.channels, shape.inputs);
        assert!(x.width == channels, "inputs of every channel");
        let rows = super::kv::rows_of(segments);
        assert!(rows <= x.rows, "rows of the batch");
        let blocks = channels.div_ceil(BLOCK_CHANNELS);
        let least = if rows * channels < MIN_SHARED_OUTPUTS { usize::MAX } else { 1 };
        let (to, stride) = (Disjoint::new(x.data), x.stride);
        let pages = &*self;
        exec.team.split(segments.len() * blocks, 1, least, |work| {
            for item in work {
                let (index, block) = (item / blocks, item % blocks);
                let segment = &segments[index];
                if segment.rows > 0 {
                    let state = pages.state_inputs(layer, index, block);
                    let (first_row, rows) = (segment.first_row, segment.rows);
                    exec.simd.run(ConvolvedSilu { state, taps, x: to.get(), stride, block, first_row, rows });
                }
            }
        });
    }
}

/// A block of channels of a segment, in place.
struct ConvolvedSilu<'a> {
    /// `[inputs][BLOCK_CHANNELS]`
    state: *mut f32,
    taps: Taps<'a>,
    x: *mut f32,
    stride: usize,
    block: usize,
    first_row: usize,
    rows: usize,
}

impl Kernel for ConvolvedSilu<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { state, taps, x, stride, block, first_row, rows } = self;
        let (earlier, width) = (taps.count() - 1, taps.channels);
        let first = block * BLOCK_CHANNELS;
        for at in (first..(first + BLOCK_CHANNELS).min(width)).step_by(LANES) {
            let n = (width - at).min(LANES);
            // SAFETY: channels `at..at + n` of the taps, of the bias and of a row, all of `width` channels, and all lanes of a block of
            // inputs. This call alone reads and writes the values and inputs of these channels.
            unsafe {
                let taps = taps.of(s, at, n);
                // The inputs of the rows before, the oldest first.
                let kept = |j: usize| state.add(j * BLOCK_CHANNELS + at - first);
                let mut inputs = [s.splat(0.0); MAX_TAPS];
                for (j, input) in inputs.iter_mut().enumerate().take(earlier) {
                    *input = s.load(kept(j));
                }
                for row in first_row..first_row + rows {
                    let x = x.add(row * stride + at);
                    inputs[earlier] = s.load_partial(x, n);
                    s.store_partial(x, silu(s, taps.sum(s, &inputs)), n);
                    inputs.copy_within(1.., 0);
                }
                for (j, input) in inputs.iter().enumerate().take(earlier) {
                    s.store(kept(j), *input);
                }
            }
        }
    }
}

/// Some channels of a segment.
struct Convolved<'a> {
    pages: &'a PassPages<'a>,
    /// The layer of the pages that keeps inputs of rows outside this pass; `None`: the segment is a whole sequence.
    layer: Option<usize>,
    /// Number of taps for later rows.
    after: usize,
    segment: &'a Segment<'a>,
    taps: Taps<'a>,
    bcx: Rows<'a>,
    to: Disjoint<f32>,
    stride: usize,
    channels: Range<usize>,
}

impl Kernel for Convolved<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { pages, layer, after, segment, taps, bcx, to, stride, channels } = self;
        let (earlier, width) = (taps.count() - 1, taps.channels);
        let end = segment.start + segment.rows;
        for at in channels.clone().step_by(LANES) {
            let n = (channels.end - at).min(LANES);
            // SAFETY: channels `at..at + n` of the taps, of the bias, of a row, of an input and of an output, all of `width` channels. The
            // inputs of these channels are read and written by this call only, and before they are written.
            unsafe {
                let load = |from: *const f32| s.load_partial(from.add(at), n);
                let taps = taps.of(s, at, n);
                let row = |r: usize| bcx.row(segment.first_row + r).as_ptr();
                // The inputs of the rows before, the oldest first.
                let mut inputs = [s.splat(0.0); MAX_TAPS];
                for (j, input) in inputs.iter_mut().enumerate().take(earlier) {
                    if let (Some(layer), Some(position)) = (layer, (segment.start + j).checked_sub(earlier)) {
                        *input = load(pages.input(layer, segment, position));
                    }
                }
                for newest in 0..segment.rows + after {
                    inputs[earlier] = s.splat(0.0);
                    if newest < segment.rows {
                        let row = row(newest);
                        inputs[earlier] = s.mul(load(row), load(row.add(2 * width)));
                    }
                    if let Some(r) = newest.checked_sub(after) {
                        let y = to.get().add((segment.first_row + r) * stride + at);
                        s.store_partial(y, s.mul(load(row(r).add(width)), taps.sum(s, &inputs)), n);
                    }
                    let position = segment.start + newest;
                    if let Some(layer) = layer
                        && pages.keeps_input(layer, position, end)
                    {
                        s.store_partial(pages.input(layer, segment, position).add(at), inputs[earlier], n);
                    }
                    inputs.copy_within(1.., 0);
                }
            }
        }
    }
}
