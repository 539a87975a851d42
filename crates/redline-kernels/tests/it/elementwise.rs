//! Norms, gates, rotation, addition, scaling, soft caps, the exponential function.

use redline_kernels::op::activation::{ActivationFunction, Gating, gate};
use redline_kernels::op::add::add;
use redline_kernels::op::exp::exp_in_place;
use redline_kernels::op::linear::{Epilogue, Variant, linear};
use redline_kernels::op::norm::{layer_norm, layer_norm_in_place, rms_norm, rms_norm_heads};
use redline_kernels::op::rope::{RopeTable, RotatedPairs, rope};
use redline_kernels::op::scale::scale;
use redline_kernels::op::softcap::softcap;
use redline_kernels::{Exec, Format, Matrix, Rows, RowsMut, Simd, Team};
use redline_reference::elementwise as reference;

use crate::values::{Random, everywhere, same};

const WIDTHS: [usize; 7] = [1, 8, 15, 16, 17, 40, 131];

#[test]
fn rms_norm_follows_its_order_everywhere() {
    for width in WIDTHS {
        let mut random = Random(width as u64);
        let (x, w) = (random.awkward(9 * width), random.values(width));
        let want: Vec<f32> = x.chunks(width).flat_map(|row| reference::rms_norm(row, &w, 1e-5)).collect();
        everywhere(|exec, name| {
            let mut y = vec![f32::NAN; 9 * width];
            let mut out = RowsMut::new(&mut y, 9, width, width);
            rms_norm(exec, Rows::new(&x, 9, width, width), &w, 1e-5, &mut out);
            assert!(same(&y, &want), "width {width} on {name}");
            let mut heads = x.clone();
            rms_norm_heads(exec, &mut RowsMut::new(&mut heads, 3, 3 * width, 3 * width), 0, 3, &w, 1e-5);
            assert!(same(&heads, &want), "heads of {width} on {name}");
        });
    }
}

#[test]
fn layer_norm_follows_its_order_everywhere() {
    for width in WIDTHS {
        let mut random = Random(width as u64);
        let (x, w, b) = (random.values(9 * width), random.values(width), random.values(width));
        let want: Vec<f32> =
            x.chunks(width).flat_map(|row| reference::layer_norm(row, &w, &b, 1e-5)).collect();
        everywhere(|exec, name| {
            let mut y = vec![f32::NAN; 9 * width];
            let mut out = RowsMut::new(&mut y, 9, width, width);
            layer_norm(exec, Rows::new(&x, 9, width, width), &w, &b, 1e-5, &mut out);
            assert!(same(&y, &want), "width {width} on {name}");
            let mut y = x.clone();
            layer_norm_in_place(exec, &mut RowsMut::new(&mut y, 9, width, width), &w, &b, 1e-5);
            assert!(same(&y, &want), "width {width} in place on {name}");
        });
    }
}

/// The output of `f` must be the same everywhere and within `tolerance` of `truth` (relative, or absolute below 1).
fn close(truth: &[f64], tolerance: f64, mut f: impl FnMut(Exec<'_>) -> Vec<f32>) {
    let mut first: Option<Vec<f32>> = None;
    everywhere(|exec, name| {
        let got = f(exec);
        assert!(same(first.get_or_insert_with(|| got.clone()), &got), "{name}");
        for (i, (got, want)) in got.iter().zip(truth).enumerate() {
            let error = (f64::from(*got) - want).abs() / want.abs().max(1.0);
            assert!(error <= tolerance, "{i}: {got} instead of {want} on {name}");
        }
    });
}

/// Arguments at and between the limits of the exponential function.
fn gate_values() -> Vec<f32> {
    let mut values: Vec<f32> = (-4000..4000).map(|i| i as f32 * 0.025_1).collect();
    values.extend([0.0, -0.0, 1e-30, -1e-30, 87.0, -87.0, 87.1, 88.0, -88.0, 88.7, 1000.0, -1000.0, 1e-41]);
    values
}

#[test]
fn gates_follow_their_order_everywhere() {
    let gates = gate_values();
    let n = gates.len();
    let up = Random(6).values(n);
    let x = [gates.clone(), up.clone()].concat();
    let silu: Vec<f32> = gates.iter().zip(&up).map(|(g, u)| reference::silu(*g) * u).collect();
    let gelu: Vec<f32> = gates.iter().map(|x| reference::gelu_new(*x)).collect();
    let gated: Vec<f32> = gelu.iter().zip(&up).map(|(g, u)| g * u).collect();
    let mut one = Matrix::zeroed(Format::F32, 1, 1).unwrap();
    let team = Team::new(1).unwrap();
    one.set_rows(Exec { simd: Simd::best(), team: &team }, 0, &[1.0]);
    everywhere(|exec, name| {
        let mut y = vec![f32::NAN; n];
        gate(
            exec,
            Gating::Function(ActivationFunction::Silu),
            Rows::new(&x, 1, 2 * n, 2 * n),
            &mut RowsMut::new(&mut y, 1, n, n),
        );
        assert!(same(&y, &silu), "silu on {name}");
        let mut y = vec![f32::NAN; n];
        gate(
            exec,
            Gating::Function(ActivationFunction::GeluNew),
            Rows::new(&x, 1, 2 * n, 2 * n),
            &mut RowsMut::new(&mut y, 1, n, n),
        );
        assert!(same(&y, &gated), "gelu gate on {name}");
        let epilogue = Epilogue { activation: ActivationFunction::GeluNew, ..Epilogue::default() };
        let mut y = vec![f32::NAN; n * 16];
        let mut out = RowsMut::new(&mut y, n, 1, 16);
        linear(exec, &one, Rows::new(&gates, n, 1, 1), &mut out, epilogue, Variant::Blocked, &mut []);
        // The layer adds its product to +0.
        let y: Vec<f32> = y.chunks(16).map(|row| row[0]).collect();
        let different = y.iter().zip(&gelu).position(|(y, want)| y != want);
        assert_eq!(different.map(|i| (gates[i], y[i], gelu[i])), None, "gelu on {name}");
    });
}

/// A factor is multiplied before SiLU, in one rounding.
#[test]
fn scaled_gates_follow_their_order_everywhere() {
    let gates = gate_values();
    let n = gates.len();
    let up: Vec<f32> = (0..n).map(|i| (i * 37 % n) as f32 / n as f32 - 0.5).collect();
    let want: Vec<f32> = gates.iter().zip(&up).map(|(g, u)| reference::silu(0.7 * g) * u).collect();
    let x = [gates.clone(), up.clone()].concat();
    everywhere(|exec, name| {
        let mut y = vec![f32::NAN; n];
        let (rows, mut to) = (Rows::new(&x, 1, 2 * n, 2 * n), RowsMut::new(&mut y, 1, n, n));
        gate(exec, Gating::ScaledSilu(0.7), rows, &mut to);
        assert!(same(&y, &want), "{name}");
    });
}

/// Clamped SwiGLU, in its order and beside its definition in f64; NaNs stay.
#[test]
fn clamped_gates_follow_their_order_everywhere() {
    let gates = gate_values();
    let n = gates.len();
    let mut up: Vec<f32> = (0..n).map(|i| ((i * 37 % n) as f32 / n as f32 - 0.5) * 30.0).collect();
    up[3] = f32::NAN;
    let (alpha, limit) = (1.702f32, 7.0f32);
    let clamped = |g: f32, u: f32| reference::clamped_swiglu(g, u, alpha, limit);
    let want: Vec<f32> = gates.iter().zip(&up).map(|(g, u)| clamped(*g, *u)).collect();
    let x = [gates.clone(), up.clone()].concat();
    everywhere(|exec, name| {
        let mut y = vec![f32::NAN; n];
        let (rows, mut to) = (Rows::new(&x, 1, 2 * n, 2 * n), RowsMut::new(&mut y, 1, n, n));
        gate(exec, Gating::Clamped { alpha, limit }, rows, &mut to);
        assert!(same(&y, &want), "{name}");
    });
    assert!(want[3].is_nan() && clamped(f32::NAN, 1.0).is_nan());
    for ((g, u), want) in gates.iter().zip(&up).zip(&want).filter(|((_, u), _)| !u.is_nan()) {
        let (g, u) = (f64::from(*g).min(7.0), f64::from(*u).clamp(-7.0, 7.0));
        let truth = (u + 1.0) * g / (1.0 + (-1.702 * g).exp());
        let error = (f64::from(*want) - truth).abs();
        assert!(error <= 1e-5 * truth.abs().max(1e-3), "{g} and {u}: {want} instead of {truth}");
    }
}

#[test]
fn exact_gelu_tanh_and_relu_follow_their_order_everywhere() {
    let x = gate_values();
    let n = x.len();
    let one = [x.clone(), vec![1.0; n]].concat();
    let each = |function: fn(f32) -> f32| x.iter().map(|x| function(*x)).collect::<Vec<f32>>();
    let cases = [
        (ActivationFunction::Gelu, each(reference::gelu)),
        (ActivationFunction::Tanh, each(reference::tanh)),
        (ActivationFunction::Relu, each(reference::relu)),
        (ActivationFunction::SquaredRelu, each(reference::squared_relu)),
    ];
    let exact = |function, x: &f32| {
        let x = f64::from(*x);
        match function {
            ActivationFunction::Tanh => libm::tanh(x),
            ActivationFunction::Relu => x.max(0.0),
            ActivationFunction::SquaredRelu => x.max(0.0).powi(2),
            _ => 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
        }
    };
    for (function, want) in &cases {
        let truth: Vec<f64> = x.iter().map(|x| exact(*function, x)).collect();
        close(&truth, 4e-7, |exec| {
            let mut y = vec![f32::NAN; n];
            gate(
                exec,
                Gating::Function(*function),
                Rows::new(&one, 1, 2 * n, 2 * n),
                &mut RowsMut::new(&mut y, 1, n, n),
            );
            let different = y.iter().zip(want).position(|(y, want)| y != want);
            assert_eq!(different.map(|i| (x[i], y[i], want[i])), None, "{function:?}");
            y
        });
    }
}

/// The error bounds of `op/activation.rs`, and that the tail is of one sign and ends.
#[test]
fn exact_gelu_is_accurate() {
    let x: Vec<f32> = (-80_000..80_000).map(|i| i as f32 * 1e-4).collect();
    let n = x.len();
    let one = [x.clone(), vec![1.0; n]].concat();
    let mut y = vec![f32::NAN; n];
    let team = Team::new(1).unwrap();
    let exec = Exec { simd: Simd::best(), team: &team };
    let (gating, mut to) = (Gating::Function(ActivationFunction::Gelu), RowsMut::new(&mut y, 1, n, n));
    gate(exec, gating, Rows::new(&one, 1, 2 * n, 2 * n), &mut to);
    for (&x, &y) in x.iter().zip(&y) {
        let magnitude = f64::from(x.abs());
        let truth = 0.5 * f64::from(x) * libm::erfc(-f64::from(x) * std::f64::consts::FRAC_1_SQRT_2);
        let most = if magnitude > 1.0 { 1.6e-7 * magnitude } else { 2.7e-7 };
        let error = (f64::from(y) - truth).abs();
        assert!(error <= most.min(2.7e-7), "gelu({x}) is {y}, not {truth}");
        assert!(x > -3.0 || (y <= 0.0 && error <= 3e-8), "gelu({x}) is {y}, not {truth}");
        assert!(x > -6.25 || y == 0.0, "gelu({x}) is {y}");
    }
}

#[test]
fn gates_are_accurate_and_alike() {
    let mut gates: Vec<f32> = (-400..400).map(|i| i as f32 * 0.25).collect();
    gates.extend([0.0, -0.0, 1e-30, -1e-30, 88.7, -88.7, 1000.0, -1000.0, 1e-41]);
    let n = gates.len();
    let up = Random(5).values(n);
    let x = [gates.clone(), up.clone()].concat();
    let truth: Vec<f64> = gates
        .iter()
        .zip(&up)
        .map(|(&g, &u)| f64::from(g) / (1.0 + libm::exp(-f64::from(g))) * f64::from(u))
        .collect();
    close(&truth, 1e-6, |exec| {
        let mut y = vec![f32::NAN; n];
        gate(
            exec,
            Gating::Function(ActivationFunction::Silu),
            Rows::new(&x, 1, 2 * n, 2 * n),
            &mut RowsMut::new(&mut y, 1, n, n),
        );
        y
    });
    // GELU through a linear layer that is the identity.
    let truth: Vec<f64> = gates
        .iter()
        .map(|&x| {
            let x = f64::from(x);
            0.5 * x * (1.0 + libm::tanh((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)))
        })
        .collect();
    let mut one = Matrix::zeroed(Format::F32, 1, 1).unwrap();
    let team = Team::new(1).unwrap();
    one.set_rows(Exec { simd: Simd::best(), team: &team }, 0, &[1.0]);
    close(&truth, 1e-6, |exec| {
        let mut y = vec![f32::NAN; n * 16];
        let epilogue = Epilogue { activation: ActivationFunction::GeluNew, ..Epilogue::default() };
        linear(
            exec,
            &one,
            Rows::new(&gates, n, 1, 1),
            &mut RowsMut::new(&mut y, n, 1, 16),
            epilogue,
            Variant::Blocked,
            &mut [],
        );
        y.chunks(16).map(|row| row[0]).collect()
    });
}

#[test]
fn rope_rotates_by_position_times_frequency() {
    for half in [4usize, 16, 20] {
        let frequencies: Vec<f64> = (0..half).map(|i| 1000f64.powf(-(i as f64) / half as f64)).collect();
        let mut table = RopeTable::new(frequencies.clone());
        table.reserve(10).unwrap();
        table.compute(10);
        table.reserve(3000).unwrap();
        table.compute(3000);
        let positions: Vec<u32> = (0..20).map(|i| i * 149).collect();
        let x = Random(half as u64).values(20 * 4 * half);
        let mut truth = Vec::new();
        for (r, row) in x.chunks(4 * half).enumerate() {
            for head in row.chunks(2 * half) {
                let turn = |i: usize| libm::sincos(f64::from(positions[r]) * frequencies[i]);
                let (a, b) = (|i: usize| f64::from(head[i]), |i: usize| f64::from(head[i + half]));
                truth.extend((0..half).map(|i| a(i) * turn(i).1 - b(i) * turn(i).0));
                truth.extend((0..half).map(|i| b(i) * turn(i).1 + a(i) * turn(i).0));
            }
        }
        close(&truth, 3e-7, |exec| {
            let mut y = x.clone();
            rope(exec, &table, &positions, &mut RowsMut::new(&mut y, 20, 4 * half, 4 * half), 0, 2);
            y
        });
    }
}

/// A table that grew position by position rotates like one that was made at once, and computes no value twice.
#[test]
fn a_rope_table_computes_only_what_it_is_asked_for() {
    let frequencies: Vec<f64> = (0..4).map(|i| 1000f64.powf(-f64::from(i) / 4.0)).collect();
    let (mut grown, mut whole) = (RopeTable::new(frequencies.clone()), RopeTable::new(frequencies));
    whole.reserve(2100).unwrap();
    assert_eq!((whole.computed(), whole.reserved()), (0, 4096));
    whole.compute(2100);
    for positions in [1, 2, 255, 256, 257, 511, 512, 513, 1000, 2048, 2049, 2100] {
        grown.reserve(positions).unwrap();
        grown.compute(positions);
        assert_eq!(grown.computed(), positions);
        grown.compute(1);
        assert_eq!(grown.computed(), positions, "nothing is forgotten");
    }
    let positions: Vec<u32> = (0..2100).collect();
    let x = Random(3).values(2100 * 8);
    everywhere(|exec, name| {
        let turned = |table| {
            let mut y = x.clone();
            rope(exec, table, &positions, &mut RowsMut::new(&mut y, 2100, 8, 8), 0, 1);
            y
        };
        assert!(same(&turned(&grown), &turned(&whole)), "{name}");
    });
}

#[test]
#[should_panic(expected = "10 positions")]
fn positions_without_values_are_not_used() {
    let mut table = RopeTable::new(vec![1.0; 4]);
    table.reserve(100).unwrap();
    table.compute(10);
    let team = Team::new(1).unwrap();
    let mut y = vec![0.0; 8];
    let exec = Exec { simd: Simd::best(), team: &team };
    rope(exec, &table, &[10], &mut RowsMut::new(&mut y, 1, 8, 8), 0, 1);
}

#[test]
fn rope_follows_its_order_everywhere() {
    for half in [4usize, 16, 20] {
        let frequencies: Vec<f64> = (0..half).map(|i| 1000f64.powf(-(i as f64) / half as f64)).collect();
        let mut table = RopeTable::new(frequencies.clone());
        for positions in [11, 3000] {
            table.reserve(positions).unwrap();
            table.compute(positions);
        }
        let positions: Vec<u32> = (0..20).map(|i| i * 149).collect();
        let x = Random(half as u64).values(20 * 4 * half);
        let mut want = x.clone();
        for (r, row) in want.chunks_mut(4 * half).enumerate() {
            for head in row.chunks_mut(2 * half) {
                reference::rotate(head, positions[r], &frequencies, 1.0, false);
            }
        }
        everywhere(|exec, name| {
            let mut y = x.clone();
            rope(exec, &table, &positions, &mut RowsMut::new(&mut y, 20, 4 * half, 4 * half), 0, 2);
            assert!(same(&y, &want), "{half} on {name}");
        });
    }
}

#[test]
fn adding_rounds_once() {
    let (x, a) = (Random(1).awkward(20 * 37), Random(2).awkward(20 * 37));
    let want: Vec<f32> = x.iter().zip(&a).map(|(x, a)| x + a).collect();
    everywhere(|exec, name| {
        let mut y = x.clone();
        add(exec, &mut RowsMut::new(&mut y, 20, 37, 37), Rows::new(&a, 20, 37, 37), 1.0);
        assert!(same(&y, &want), "{name}");
    });
}

#[test]
fn adding_with_a_factor_rounds_once() {
    let (x, a) = (Random(3).awkward(20 * 37), Random(4).awkward(20 * 37));
    let want: Vec<f32> = x.iter().zip(&a).map(|(x, a)| a.mul_add(0.22, *x)).collect();
    everywhere(|exec, name| {
        let mut y = x.clone();
        add(exec, &mut RowsMut::new(&mut y, 20, 37, 37), Rows::new(&a, 20, 37, 37), 0.22);
        assert!(same(&y, &want), "{name}");
    });
}

#[test]
fn scaling_rounds_once_and_has_a_factor_for_each_row() {
    let x = Random(5).awkward(20 * 37);
    let factor = |r: usize| if r % 3 == 0 { 1.0 } else { 1.0 + 0.3 * r as f32 };
    let want: Vec<f32> = x.iter().enumerate().map(|(i, x)| x * factor(i / 37)).collect();
    everywhere(|exec, name| {
        let mut y = x.clone();
        scale(exec, &mut RowsMut::new(&mut y, 20, 37, 37), factor);
        assert!(same(&y, &want), "{name}");
    });
}

#[test]
fn soft_caps_follow_their_order_everywhere() {
    let x = gate_values();
    for cap in [50f32, 30.0, 0.7] {
        let want: Vec<f32> = x.iter().map(|x| reference::soft_capped(*x, cap)).collect();
        everywhere(|exec, name| {
            let mut y = x.clone();
            let n = x.len();
            softcap(exec, &mut RowsMut::new(&mut y, 1, n, n), cap);
            assert!(same(&y, &want), "cap {cap} on {name}");
        });
        let truth: Vec<f64> =
            x.iter().map(|x| f64::from(cap) * libm::tanh(f64::from(*x) / f64::from(cap))).collect();
        for (i, (got, want)) in want.iter().zip(&truth).enumerate() {
            assert!((f64::from(*got) - want).abs() <= 3e-7 * f64::from(cap), "{}: {got}, {want}", x[i]);
        }
    }
    let team = Team::new(1).unwrap();
    let mut y = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    softcap(Exec { simd: Simd::best(), team: &team }, &mut RowsMut::new(&mut y, 1, 3, 3), 2.0);
    assert!(y[0].is_nan() && y[1..] == [2.0, -2.0], "{y:?}");
}

/// A rotation of the first dimensions of each head, with a factor, leaves the other dimensions as they are, whichever turn together.
#[test]
fn a_partial_rotation_covers_the_first_dimensions() {
    for (half, head_dim) in [(6, 20), (5, 13), (8, 16), (16, 32), (19, 40)] {
        for pairs in [RotatedPairs::Halves, RotatedPairs::Neighbours] {
            partial_rotation(half, head_dim, pairs);
        }
    }
}

fn partial_rotation(half: usize, head_dim: usize, pairs: RotatedPairs) {
    let factor = 1.189;
    let frequencies: Vec<f64> = (0..half).map(|i| 1000f64.powf(-(i as f64) / half as f64)).collect();
    let mut table = RopeTable::partial(frequencies.clone(), head_dim, factor, pairs);
    table.reserve(3000).unwrap();
    table.compute(3000);
    let positions: Vec<u32> = (0..20).map(|i| i * 149).collect();
    let x = Random(9).values(20 * 3 * head_dim);
    let mut want = x.clone();
    for (r, row) in want.chunks_mut(3 * head_dim).enumerate() {
        // The first of the three heads lies before the column at which the rotation begins.
        for head in row.chunks_mut(head_dim).skip(1) {
            reference::rotate(head, positions[r], &frequencies, factor, pairs == RotatedPairs::Neighbours);
        }
    }
    everywhere(|exec, name| {
        let mut y = x.clone();
        let width = 3 * head_dim;
        rope(exec, &table, &positions, &mut RowsMut::new(&mut y, 20, width, width), head_dim, 2);
        assert!(same(&y, &want), "{half} of {head_dim}, {pairs:?} on {name}");
    });
}

#[test]
fn exp_is_accurate_and_alike_on_every_variant() {
    let mut x = -87.5f32;
    let mut inputs = vec![0.0, -0.0, 1.0, -87.0, -87.1, 88.0, 100.0, f32::NEG_INFINITY, f32::INFINITY, 1e-40];
    while x < 88.0 {
        inputs.push(x);
        x += 0.0137;
    }
    let mut reference: Option<Vec<u32>> = None;
    for simd in Simd::variants() {
        let mut values = inputs.clone();
        exp_in_place(simd, &mut values);
        assert_eq!(values[0], 1.0);
        assert_eq!(values[1], 1.0);
        assert_eq!(values[7].to_bits(), 0, "exp(-inf) is +0");
        for (&x, &y) in inputs.iter().zip(&values) {
            if (-87.0..=88.0).contains(&x) {
                let truth = libm::exp(f64::from(x));
                let ulp = f64::from(f32::from_bits((truth as f32).to_bits() + 1)) - f64::from(truth as f32);
                assert!((f64::from(y) - truth).abs() <= 2.0 * ulp, "exp({x}) = {y}, not {truth}");
            }
        }
        let bits: Vec<u32> = values.iter().map(|v| v.to_bits()).collect();
        assert_eq!(reference.get_or_insert_with(|| bits.clone()), &bits, "{}", simd.name());
        let mut nan = [f32::NAN];
        exp_in_place(simd, &mut nan);
        assert!(nan[0].is_nan());
    }
}
