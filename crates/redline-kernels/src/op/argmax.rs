//! The position of the largest value of a row. Exact in any order.

/// Number of values compared at a time.
const CHUNK: usize = 256;

/// The lowest index of the largest value; `None` if any value is NaN or the largest is infinite. It is inlined into kernels, so
/// that it is compiled with the instructions of their tier.
#[inline(always)]
pub fn argmax(row: &[f32]) -> Option<u32> {
    let (mut best, mut index, mut nan) = (f32::NEG_INFINITY, 0, false);
    for (c, chunk) in row.chunks(CHUNK).enumerate() {
        let (max, with_nan) = largest(chunk);
        nan |= with_nan;
        if max > best
            && let Some(at) = chunk.iter().position(|&x| x == max)
        {
            (best, index) = (max, (c * CHUNK + at) as u32);
        }
    }
    (!nan && best.is_finite()).then_some(index)
}

/// The largest value, and whether any is NaN; written so that the compiler uses vectors.
#[inline(always)]
fn largest(values: &[f32]) -> (f32, bool) {
    const LANES: usize = 16;
    let (mut max, mut nan) = ([f32::NEG_INFINITY; LANES], [false; LANES]);
    let (rows, rest) = values.as_chunks::<LANES>();
    for row in rows {
        for i in 0..LANES {
            max[i] = if row[i] > max[i] { row[i] } else { max[i] };
            nan[i] |= row[i].is_nan();
        }
    }
    for (i, &x) in rest.iter().enumerate() {
        max[i] = if x > max[i] { x } else { max[i] };
        nan[i] |= x.is_nan();
    }
    let first = |a: f32, b: f32| if b > a { b } else { a };
    (max.into_iter().fold(f32::NEG_INFINITY, first), nan.contains(&true))
}
