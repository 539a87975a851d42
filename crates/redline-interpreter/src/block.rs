//! The forward pass of every block, over all rows of a text.

use std::ops::Range;

use redline_kernels::op::activation::Gating;
use redline_kernels::op::delta::DeltaShape;
use redline_kernels::op::experts::Weighting;
use redline_kernels::op::mamba2::Mamba2Shape;
use redline_models::block::attention::{Attention, KeyValues};
use redline_models::block::delta_net::{DeltaNet, LENGTH_EPS};
use redline_models::block::experts::{Experts, SharedExpert};
use redline_models::block::ffn::Ffn;
use redline_models::block::layer::{Layer, Norms};
use redline_models::block::layer_end::PerLayerInputGate;
use redline_models::block::mamba2::Mamba2;
use redline_models::block::mixer::Mixer;
use redline_models::block::mlp::Mlp;
use redline_models::block::parallel::Parallel;
use redline_models::block::short_conv::ShortConv;
use redline_models::spec::{Mask, Residual, RotarySpec, RotatedPairs};
use redline_reference::elementwise::{clamped_swiglu, gelu_new, rotate, sigmoid, silu};
use redline_reference::{attention, conv, delta, experts, mamba2};

use crate::element::{Literal, Norm, activated};
use crate::{Row, Text, add};

/// One layer.
pub(crate) fn layer(
    layer: &Layer<Literal>,
    rows: &[Row],
    own_inputs: &[&[f32]],
    kept: &mut Vec<KeysAndValues>,
    text: Text<'_>,
) -> Vec<Row> {
    let inputs: Vec<Row> = rows.iter().map(|row| normed(layer.mixer_norms.before.as_ref(), row)).collect();
    let mixed = match &layer.mixer {
        Mixer::Attention(attention) => attend(attention, &inputs, kept, text),
        Mixer::ShortConv(conv) => convolve(conv, &inputs),
        Mixer::DeltaNet(net) => recur(net, &inputs),
        Mixer::Mamba2(mamba) => scan(mamba, &inputs),
        Mixer::Parallel(both) => attend_and_scan(both, &inputs, kept, text),
        Mixer::None => Vec::new(),
    };
    let Residual { mixer_scale, mlp_scale, is_parallel } = layer.residual;
    let rows = rows.iter().zip(&inputs).enumerate().map(|(i, (row, input))| {
        let row = summed(&layer.mixer_norms, row, mixed.get(i), mixer_scale);
        let input = if is_parallel { input } else { &normed(layer.mlp_norms.before.as_ref(), &row) };
        summed(&layer.mlp_norms, &row, feed_forward(&layer.mlp, input).as_ref(), mlp_scale)
    });
    let rows: Vec<Row> = rows.collect();
    let Some(end) = &layer.end else { return rows };
    let ended = rows.into_iter().enumerate().map(|(i, mut row)| {
        if let Some(PerLayerInputGate { gate, output, norm }) = &end.input {
            let gates = gate.apply(&row);
            let gated: Row = gates.iter().zip(own_inputs[i]).map(|(gate, x)| x * gelu_new(*gate)).collect();
            add(&mut row, &norm.apply(&output.apply(&gated)), 1.0);
        }
        for x in &mut row {
            *x *= end.scale[0];
        }
        row
    });
    ended.collect()
}

/// The keys and the values of a layer, of each head and token.
pub(crate) type KeysAndValues = [Vec<Vec<attention::Stored>>; 2];

fn normed(norm: Option<&Norm>, row: &Row) -> Row {
    norm.map_or(row.clone(), |norm| norm.apply(row))
}

/// `sum(x + scale * after(output))`, or `x` without an output.
fn summed(norms: &Norms<Literal>, x: &Row, output: Option<&Row>, scale: f32) -> Row {
    let Some(output) = output else { return x.clone() };
    let mut sum = x.clone();
    add(&mut sum, &normed(norms.after.as_ref(), output), scale);
    normed(norms.sum.as_ref(), &sum)
}

/// `output(softmax(q k^T) v)`
fn attend(
    layer: &Attention<Literal>,
    rows: &[Row],
    kept: &mut Vec<KeysAndValues>,
    text: Text<'_>,
) -> Vec<Row> {
    let &Attention { heads, kv_heads, head_dim, scale, softcap, .. } = layer;
    let rotation = layer.rotation.map(|rotation| &text.rotations[rotation]);
    // Keys and values of each head and token.
    let (mut keys, mut values) = (vec![Vec::new(); kv_heads], vec![Vec::new(); kv_heads]);
    let (mut queries, mut gates) = (Vec::new(), Vec::new());
    let mut unstored = Vec::new();
    for (position, row) in (0u32..).zip(rows) {
        let mut q = layer.qkv.apply(row);
        let mut k = q.split_off(if layer.gated { 2 } else { 1 } * heads * head_dim);
        if layer.gated {
            // The query of a head, then its gate.
            let (of_queries, of_gates): (Vec<_>, Vec<_>) =
                q.chunks(2 * head_dim).map(|pair| pair.split_at(head_dim)).unzip();
            gates.push(of_gates.concat());
            q = of_queries.concat();
        }
        let mut v = match layer.source {
            KeyValues::Projected => k.split_off(kv_heads * head_dim),
            KeyValues::OneProjection => k.clone(),
            KeyValues::OfLayer(_) => Row::new(),
        };
        let norm = |q: &mut Row, k: &mut Row| {
            for (norm, x) in [(&layer.query_norm, q), (&layer.key_norm, k)] {
                *x = norm.as_ref().map_or(x.clone(), |norm| norm.apply_to_parts(x));
            }
        };
        if !layer.norms_after_rotation {
            norm(&mut q, &mut k);
        }
        if let Some(RotarySpec { inverse_frequencies, pairs, factor, query_growth, .. }) = rotation {
            for head in q.chunks_mut(head_dim).chain(k.chunks_mut(head_dim)) {
                rotate(head, position, inverse_frequencies, *factor, *pairs == RotatedPairs::Neighbours);
            }
            if let Some(growth) = query_growth {
                let periods = (f64::from(position) / growth.context).floor();
                let factor = (1.0 + growth.beta * libm::log1p(periods)) as f32;
                for q in &mut q {
                    *q *= factor;
                }
            }
        }
        if layer.norms_after_rotation {
            norm(&mut q, &mut k);
        }
        v = layer.value_norm.as_ref().map_or(v.clone(), |norm| norm.apply_to_parts(&v));
        for (head, (k, v)) in k.chunks(head_dim).zip(v.chunks(head_dim)).enumerate() {
            keys[head].push(text.kv.store(k));
            values[head].push(text.kv.store(v));
        }
        queries.push(q);
        unstored.push(k);
    }
    let index = match layer.source {
        KeyValues::OfLayer(index) => index,
        KeyValues::Projected | KeyValues::OneProjection => {
            kept.push([keys, values]);
            kept.len() - 1
        }
    };
    let [keys, values] = &kept[index];
    let of_head = |position: usize, (head, q): (usize, &[f32])| {
        let sink = layer.sinks.as_ref().map(|sinks| sinks[head]);
        let kv_head = head / (heads / kv_heads);
        let seen = seen(position, rows.len(), layer.window, text.mask);
        let bias = added(layer, text, (position, head), q, &unstored);
        let bias = bias.as_deref();
        let attention = attention::AttentionHead { format: text.kv, scale, softcap, bias, sink };
        attention.row(q, &keys[kv_head], &values[kv_head], seen)
    };
    let outputs = queries.iter().enumerate().map(|(position, q)| {
        let heads = q.chunks(head_dim).enumerate();
        let mut output = heads.flat_map(|head| of_head(position, head)).collect::<Row>();
        if let Some(gates) = gates.get(position) {
            output.iter_mut().zip(gates).for_each(|(x, gate)| *x *= sigmoid(*gate));
        }
        layer.output.apply(&output)
    });
    outputs.collect()
}

/// What is added to the logits of all keys for a query.
fn added(
    layer: &Attention<Literal>,
    text: Text<'_>,
    (position, head): (usize, usize),
    q: &[f32],
    keys: &[Row],
) -> Option<Row> {
    let distances = text.distances?;
    let &Attention { heads, kv_heads, head_dim, scale, .. } = layer;
    let first = head / (heads / kv_heads) * head_dim;
    let keys: Vec<&[f32]> = keys.iter().map(|k| &k[first..first + head_dim]).collect();
    Some(distances.of(text.layer, (head, heads), (position, q), &keys, scale))
}

/// The keys that a row sees.
fn seen(position: usize, tokens: usize, window: Option<usize>, mask: Mask) -> Range<usize> {
    let first = window.map_or(0, |window| (position + 1).saturating_sub(window));
    match mask {
        Mask::Causal => first..position + 1,
        Mask::Bidirectional => first..window.map_or(tokens, |window| tokens.min(position + window)),
    }
}

/// `output(c * conv(b * x))`
fn convolve(layer: &ShortConv<Literal>, rows: &[Row]) -> Vec<Row> {
    let inputs: Vec<Row> = rows.iter().map(|row| layer.input.apply(row)).collect();
    let convolved =
        conv::convolved(&inputs, layer.channels, &layer.weights, layer.bias.as_deref(), layer.after);
    convolved.iter().map(|row| layer.output.apply(row)).collect()
}

/// `output(norm(o) * silu(z))`, where `o` is what the delta rule makes of the rows.
fn recur(layer: &DeltaNet<Literal>, rows: &[Row]) -> Vec<Row> {
    let DeltaShape { key_heads, value_heads, key_dim, value_dim, is_interleaved } = layer.shape;
    let (keys, channels) = (layer.shape.keys(), layer.channels());
    let (mut qkv, mut zs, mut gates) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let mut x = layer.input.apply(row);
        let mut z = x.split_off(channels);
        let (b, a) = z[layer.shape.values()..].split_at(value_heads);
        let both = (0..value_heads).map(|head| {
            delta::strength_and_decay(b[head], a[head], layer.decay[head], layer.decay_bias[head])
        });
        let (strengths, decays): (Row, Row) = both.unzip();
        gates.push([strengths, decays].concat());
        z.truncate(layer.shape.values());
        zs.push(z);
        qkv.push(x);
    }
    let mut qkv = conv::convolved_silu(&qkv, &layer.weights, None);
    for row in &mut qkv {
        for (head, x) in row[..2 * keys].chunks_mut(key_dim).enumerate() {
            let factor = if head < key_heads { layer.query_scale() } else { 1.0 };
            x.copy_from_slice(&delta::l2_norm(x, LENGTH_EPS, factor));
        }
    }
    let heads = delta::DeltaHeads { key_heads, value_heads, key_dim, value_dim, is_interleaved };
    let outputs = delta::outputs(heads, &qkv, &gates);
    let outputs = outputs.iter().zip(zs).map(|(o, z)| {
        let normed = layer.norm.apply_to_parts(o);
        layer.output.apply(&normed.iter().zip(z).map(|(o, z)| o * silu(z)).collect::<Row>())
    });
    outputs.collect()
}

/// The weighted sum of what attention and Mamba-2 make of the rows.
fn attend_and_scan(
    layer: &Parallel<Literal>,
    rows: &[Row],
    kept: &mut Vec<KeysAndValues>,
    text: Text<'_>,
) -> Vec<Row> {
    let attended = attend(&layer.attention, rows, kept, text);
    let sums = scan(&layer.recurrence, rows).into_iter().zip(attended).map(|(mut sum, attended)| {
        for y in &mut sum {
            *y *= layer.recurrence_scale;
        }
        add(&mut sum, &attended, layer.attention_scale);
        sum
    });
    sums.collect()
}

/// `output(norm(y * silu(z)))`, where `y` is what Mamba-2 makes of the rows.
fn scan(layer: &Mamba2<Literal>, rows: &[Row]) -> Vec<Row> {
    let Mamba2Shape { heads, head_dim, groups, state_dim } = layer.shape;
    let (mut zs, mut xbc, mut steps) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let mut z = layer.input.apply(row);
        let shared = groups * state_dim;
        let mut from = z.iter_mut();
        for (width, scale) in
            [heads * head_dim, heads * head_dim, shared, shared, heads].into_iter().zip(layer.scales)
        {
            from.by_ref().take(width).for_each(|x| *x *= scale);
        }
        let mut x = z.split_off(layer.shape.values());
        let dt = x.split_off(layer.shape.channels());
        let both = dt.iter().zip(layer.decay.iter().zip(&layer.step_bias));
        let both = both.map(|(dt, (decay, bias))| mamba2::step_and_decay(*dt, *decay, *bias, layer.limits));
        let (of_row, decays): (Row, Row) = both.unzip();
        steps.push([of_row, decays].concat());
        zs.push(z);
        xbc.push(x);
    }
    let xbc = conv::convolved_silu(&xbc, &layer.weights, layer.bias.as_deref());
    let of = mamba2::Mamba2Heads { heads, head_dim, groups, state_dim };
    let outputs = mamba2::outputs(of, &xbc, &steps, &layer.skip);
    let outputs = outputs.iter().zip(zs).map(|(y, z)| {
        let gated = |y: &Row| y.iter().zip(&z).map(|(y, z)| y * silu(*z)).collect::<Row>();
        layer.output.apply(&match &layer.norm {
            Some(norm) if layer.gates_normed => gated(&norm.apply_to_groups(y, groups)),
            Some(norm) => norm.apply_to_groups(&gated(y), groups),
            None => gated(y),
        })
    });
    outputs.collect()
}

fn feed_forward(layer: &Ffn<Literal>, x: &Row) -> Option<Row> {
    match layer {
        Ffn::Dense(layer) => Some(mlp(layer, x)),
        Ffn::Experts(layer) => Some(mixture(layer, x, x)),
        Ffn::Both(both) => {
            let [before, after] = &both.norms;
            let dense = after.apply(&mlp(&both.mlp, &before.apply(x)));
            let [before, after] = &both.experts_norms;
            let mixed = mixture(&both.experts, &before.apply(x), &both.router_norm.apply(x));
            Some(dense.iter().zip(after.apply(&mixed)).map(|(a, b)| a + b).collect())
        }
        Ffn::None => None,
    }
}

/// `down(f(gate(x)) * up(x))`
fn mlp(layer: &Mlp<Literal>, x: &Row) -> Row {
    let mut hidden = layer.up.apply(x);
    if let Some(gating) = layer.gate {
        let up = hidden.split_off(hidden.len() / 2);
        let gated = hidden.into_iter().zip(up).map(|(gate, up)| match gating {
            Gating::Function(function) => activated(function, gate) * up,
            Gating::ScaledSilu(factor) => silu(factor * gate) * up,
            Gating::Clamped { alpha, limit } => clamped_swiglu(gate, up, alpha, limit),
        });
        hidden = gated.collect();
    }
    layer.down.apply(&hidden)
}

/// The weighted sum of the outputs of the chosen experts, and of the shared one; the router reads `routed`.
fn mixture(layer: &Experts<Literal>, x: &Row, routed: &Row) -> Row {
    let mut sum = vec![0f32; x.len()];
    let logits = layer.router.apply(routed);
    let chosen = match &layer.weighting {
        Weighting::Softmax { normalise, factors } => {
            experts::chosen(&logits, layer.top_k, *normalise, factors.as_deref())
        }
        Weighting::Sigmoid { correction, epsilon, scale } => {
            experts::chosen_by_sigmoid(&logits, layer.top_k, correction.as_deref(), *epsilon, *scale)
        }
    };
    for (expert, weight) in chosen {
        experts::add_weighted(&mut sum, &mlp(&layer.experts[expert], x), weight);
    }
    if let Some(SharedExpert { gate, mlp: shared }) = &layer.shared {
        let weight = gate.as_ref().map_or(1.0, |gate| sigmoid(gate.apply(x)[0]));
        experts::add_weighted(&mut sum, &mlp(shared, x), weight);
    }
    sum
}
