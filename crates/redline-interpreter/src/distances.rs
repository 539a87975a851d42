//! What is added to the logits of attention by distances.

use redline_models::block::layer::Layer;
use redline_models::block::mixer::Mixer;
use redline_models::spec::{DistanceSpec, LEARNED_BUCKETS, RelativeSpec};
use redline_reference::linear::{Inputs, OutputWeights, WeightFormat};

use crate::element::{Builder, Linear, Literal};
use crate::{InterpreterError, Row};

/// What is added to logits.
pub(crate) enum Distances {
    /// `[buckets, heads]`
    Learned(Row),
    /// The distance times a factor.
    Slopes,
    /// Products with projected embeddings.
    Relative {
        /// Of each layer and head, for each bucket: what queries and keys are multiplied with.
        layers: Vec<Vec<[Vec<OutputWeights>; 2]>>,
        buckets_per_side: usize,
        max_distance: Option<usize>,
    },
}

impl Distances {
    pub(crate) fn read(
        builder: Builder<'_>,
        spec: &DistanceSpec,
        layers: &[Layer<Literal>],
    ) -> Result<Self, InterpreterError> {
        let relative = match spec {
            DistanceSpec::Learned { name, heads } => {
                let count = LEARNED_BUCKETS * heads;
                return Ok(Self::Learned(builder.loader.values(&format!("{name}.weight"), count)?));
            }
            DistanceSpec::Slopes { .. } => return Ok(Self::Slopes),
            DistanceSpec::Relative(relative) => relative,
        };
        let &RelativeSpec { hidden, buckets_per_side, max_distance, .. } = relative;
        let values =
            builder.loader.values(&format!("{}.weight", relative.name), 2 * buckets_per_side * hidden)?;
        let norm = relative.norm.as_ref().map(|norm| builder.read_norm(norm)).transpose()?;
        let embeddings =
            values.chunks(hidden).map(|row| norm.as_ref().map_or(row.to_vec(), |it| it.apply(row)));
        let embeddings: Vec<Row> = embeddings.collect();
        let layers = layers.iter().map(|layer| match &layer.mixer {
            Mixer::Attention(attention) => projected(&attention.qkv, &embeddings, attention.heads),
            _ => Vec::new(),
        });
        Ok(Self::Relative { layers: layers.collect(), buckets_per_side, max_distance })
    }

    /// The numbers of a head of a layer for a query at a position, of all keys.
    pub(crate) fn of(
        &self,
        layer: usize,
        (head, heads): (usize, usize),
        (position, query): (usize, &[f32]),
        keys: &[&[f32]],
        scale: f32,
    ) -> Row {
        let number = |key: usize| match self {
            Self::Learned(table) => table[learned(position, key) * heads + head],
            Self::Slopes => slope(head, heads) * position.abs_diff(key) as f32,
            Self::Relative { layers, buckets_per_side, max_distance } => {
                let [of_queries, of_keys] = &layers[layer][head];
                let bucket = bucket(position, key, *buckets_per_side, *max_distance);
                (of_queries[bucket].dot(&Inputs::new(query)) + of_keys[bucket].dot(&Inputs::new(keys[key])))
                    * scale
            }
        };
        (0..keys.len()).map(number).collect()
    }
}

/// Keys and queries of embeddings, by heads.
fn projected(qkv: &Linear, embeddings: &[Row], heads: usize) -> Vec<[Vec<OutputWeights>; 2]> {
    let projected: Vec<Row> = embeddings.iter().map(|embedding| qkv.apply(embedding)).collect();
    let format = match qkv.format() {
        WeightFormat::W8(_) | WeightFormat::W4(_) => WeightFormat::W8(128),
        floats => floats,
    };
    let hidden = projected[0].len() / 3;
    let dim = hidden / heads;
    let columns = |first: usize| {
        projected.iter().map(|row| OutputWeights::new(format, &row[first..first + dim])).collect()
    };
    (0..heads).map(|head| [columns(hidden + head * dim), columns(head * dim)]).collect()
}

/// The bucket of the distance of a key from its query: each of the first eight on either side, then eight that end where a distance
/// reaches `8 * 16^(n / 8)`.
fn learned(query: usize, key: usize) -> usize {
    let distance = query.abs_diff(key);
    let reached = (1..8).filter(|n| distance as f64 >= 8.0 * 16f64.powf(f64::from(*n) / 8.0)).count();
    let side = if key > query { 16 } else { 0 };
    side + if distance < 8 { distance } else { 8 + reached }
}

/// The factor of head h of n = 2^k: `-2^(-8 (h + 1) / n)`. Heads beyond the largest power of two take every second one of twice as
/// many.
fn slope(head: usize, heads: usize) -> f32 {
    let power = (0..=heads).rev().find(|count| count.is_power_of_two()).unwrap_or(1);
    let list = |count: usize| (1..=count).map(move |i| 0.5f64.powf(8.0 * i as f64 / count as f64));
    let all: Vec<f64> = list(power).chain(list(2 * power).step_by(2)).collect();
    -all[head] as f32
}

/// The bucket of a key, first those of keys after the query, then those before it: one for each distance, or from half of them on,
/// those that end where a distance reaches `half * (max_distance / half)^(n / (half - 1))`.
fn bucket(query: usize, key: usize, buckets_per_side: usize, max_distance: Option<usize>) -> usize {
    let (distance, half) = (query.abs_diff(key), buckets_per_side / 2);
    let number = match max_distance {
        Some(max_distance) if distance > half => {
            let ratio = max_distance as f64 / half as f64;
            let end = |n: usize| half as f64 * ratio.powf(n as f64 / (half - 1) as f64);
            let passed = (1..half - 1).filter(|n| distance as f64 > end(*n)).count();
            half + 1 + passed + usize::from(distance > max_distance)
        }
        _ => distance,
    };
    if key > query {
        buckets_per_side - number.min(buckets_per_side)
    } else {
        (buckets_per_side + number).min(2 * buckets_per_side - 1)
    }
}
