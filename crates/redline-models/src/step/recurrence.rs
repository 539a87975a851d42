//! The operations of recurrences and of gates on the outputs of a mixer.

use redline_kernels::op::activation::{OutputGate, gate_output};
use redline_kernels::op::conv::Taps;
use redline_kernels::op::delta::{DeltaShape, delta_gates};
use redline_kernels::op::heads::split_heads;
use redline_kernels::op::mamba2::{Mamba2Shape, steps_and_decays};
use redline_kernels::op::norm::{l2_norm_heads, rms_norm_heads};
use redline_kernels::{Rows, RowsMut};

use super::{Act, Step};
use crate::element::norm::Norm;
use crate::profile::Operation;

impl Step<'_> {
    /// Convolves rows in place before SiLU, with the last inputs in the states of their sequences.
    pub fn convolve_silu(&mut self, x: Act, taps: Taps<'_>) {
        let (exec, slot) = (self.exec, self.cache_slot());
        let timed = self.begin(|| Operation::of("conv", x.rows, x.width));
        let mut to = RowsMut::new(&mut self.arena.values[x.range()], x.rows, x.width, x.stride);
        self.kv.convolve_silu(exec, slot, taps, &mut to);
        self.end(timed);
    }

    /// Divides each of `heads` heads by its length, in place, and multiplies it by `factor`.
    pub fn l2_norm_heads(&mut self, x: Act, (heads, width): (usize, usize), eps: f32, factor: f32) {
        let exec = self.exec;
        let timed = self.begin(|| Operation::of("norm_heads", x.rows, x.width));
        l2_norm_heads(exec, &mut self.write(x), (0, heads, width), eps, factor);
        self.end(timed);
    }

    /// Turns b and a of every head into strength and decay, in place.
    pub fn delta_gates(&mut self, x: Act, decay: &[f32], bias: &[f32]) {
        let exec = self.exec;
        let timed = self.begin(|| Operation::of("delta_gates", x.rows, x.width));
        delta_gates(exec, &mut self.write(x), decay, bias);
        self.end(timed);
    }

    /// The outputs of the delta rule, whose rows are added to the states of their sequences. Queries, keys and values begin at the first
    /// of these columns, strengths and decays at the second.
    pub fn delta_rule(&mut self, shape: DeltaShape, x: Act, (qkv, gates): (usize, usize)) -> Act {
        let y = self.alloc(x.rows, shape.values());
        let slot = self.cache_slot();
        let timed = self.begin(|| Operation::of("delta_rule", y.rows, y.width));
        let values = &mut *self.arena.values;
        let [from, to] = values.get_disjoint_mut([x.range(), y.range()]).expect("activations do not overlap");
        let columns = |first: usize, width| Rows::new(&from[first..], x.rows, width, x.stride);
        let qkv = columns(qkv, 2 * shape.keys() + shape.values());
        let gates = columns(gates, 2 * shape.value_heads);
        let mut to = RowsMut::new(to, y.rows, y.width, y.stride);
        self.kv.delta_rule(self.exec, (slot, shape), qkv, gates, &mut to);
        self.end(timed);
        y
    }

    /// Steps and decays of every head, within the limits of a step.
    pub fn steps_and_decays(&mut self, x: Act, (decay, bias): (&[f32], &[f32]), limits: (f32, f32)) -> Act {
        let y = self.alloc(x.rows, 2 * x.width);
        let timed = self.begin(|| Operation::of("steps_and_decays", x.rows, x.width));
        let (from, mut to) = Self::input_and_output(self.arena.values, x, y);
        steps_and_decays(self.exec, from, (decay, bias), limits, &mut to);
        self.end(timed);
        y
    }

    /// The outputs of Mamba-2, whose rows are added to the states of their sequences.
    pub fn mamba2(&mut self, shape: Mamba2Shape, xbc: Act, steps: Act, skip: &[f32]) -> Act {
        let y = self.alloc(xbc.rows, shape.values());
        let slot = self.cache_slot();
        let timed = self.begin(|| Operation::of("mamba2", y.rows, y.width));
        let values = &mut *self.arena.values;
        let ranges = [xbc.range(), steps.range(), y.range()];
        let [xbc_values, step_values, to] =
            values.get_disjoint_mut(ranges).expect("activations do not overlap");
        let rows = |values, act: Act| Rows::new(values, act.rows, act.width, act.stride);
        let (xbc, steps) = (rows(&*xbc_values, xbc), rows(&*step_values, steps));
        let mut to = RowsMut::new(to, y.rows, y.width, y.stride);
        self.kv.mamba2(self.exec, (slot, shape), xbc, steps, skip, &mut to);
        self.end(timed);
        y
    }

    /// The norm of each of `groups` parts of a row, in place, with weights of its own.
    pub fn norm_groups(&mut self, x: Act, groups: usize, norm: &Norm) {
        let (exec, width) = (self.exec, x.width / groups);
        let timed = self.begin(|| Operation::of("norm_groups", x.rows, x.width));
        for (group, weight) in norm.weight.chunks(width).enumerate() {
            rms_norm_heads(exec, &mut self.write(x), group * width, 1, weight, norm.eps);
        }
        self.end(timed);
    }

    /// Multiplies `x` by what `function` makes of its gates, in place.
    pub fn gate_output(&mut self, function: OutputGate, gate: Act, x: Act) {
        let timed = self.begin(|| Operation::of("gate", x.rows, x.width));
        let (from, mut to) = Self::input_and_output(self.arena.values, gate, x);
        gate_output(self.exec, function, from, &mut to);
        self.end(timed);
    }

    /// The first halves of all heads of a row, then their second halves, each `width` values wide.
    pub fn split_heads(&mut self, x: Act, width: usize) -> Act {
        let y = self.alloc(x.rows, x.width);
        let timed = self.begin(|| Operation::of("split_heads", x.rows, x.width));
        let (from, mut to) = Self::input_and_output(self.arena.values, x, y);
        split_heads(self.exec, from, width, &mut to);
        self.end(timed);
        y
    }
}
