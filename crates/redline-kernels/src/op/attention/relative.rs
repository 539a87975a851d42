//! Numbers that are added to logits, from what queries and keys make of their distance (disentangled attention, He et al. 2021).

use redline_simd::{Isa, Kernel};

use super::bias::DistanceTable;
use crate::op::kv::{Segment, assert_segments, rows_of};
use crate::threads::Disjoint;
use crate::{Exec, Rows, RowsMut};

/// Minimum number of rows of a team member.
const MIN_ROWS: usize = 4;

/// `out[i][j] = (queries[i][b] + keys[j][b]) * scale` of one head, where j is a key of the sequence of row i, and b the bucket of its
/// distance: `buckets` has those of one head. `queries` and `keys` are `[rows, buckets]`, of all rows of the sequences, which are whole
/// and follow each other; `out` is `[rows, width]`, of which the keys that a row sees are written.
pub fn relative_bias(
    exec: Exec<'_>,
    buckets: &DistanceTable<u32>,
    segments: &[Segment<'_>],
    [queries, keys]: [Rows<'_>; 2],
    scale: f32,
    out: &mut RowsMut<'_>,
) {
    assert_segments(segments);
    let rows = rows_of(segments);
    assert!(queries.rows >= rows && keys.rows >= rows && out.rows >= rows, "{rows} rows of the sequences");
    assert!(queries.width == keys.width, "buckets of queries and keys: {} and {}", queries.width, keys.width);
    let mut end = 0;
    for segment in segments {
        assert!(segment.first_row == end, "row {} after row {end}", segment.first_row);
        end += segment.rows;
        let (start, rows, keys) = (segment.start, segment.rows, segment.keys());
        assert!(start == 0 && keys <= rows, "{keys} keys of {rows} rows from {start} on");
        assert!(rows <= buckets.context(), "{rows} rows, but buckets of {}", buckets.context());
        assert!(keys <= out.width, "{keys} keys, but room for {}", out.width);
    }
    let most = segments.iter().map(|segment| segment.rows).max().unwrap_or(0);
    let used = if most > 0 { &buckets.of(0, most - 1, 0)[..2 * most - 1] } else { &[][..] };
    let largest = used.iter().max();
    assert!(
        most == 0 || largest.is_some_and(|b| (*b as usize) < keys.width),
        "bucket {largest:?} of {}",
        keys.width
    );
    let (stride, to) = (out.stride, Disjoint::new(out.data));
    exec.team.split(rows, 1, MIN_ROWS, |part| {
        for row in part {
            let segment = &segments[segments.partition_point(|it| it.first_row + it.rows <= row)];
            let (first, count) = (segment.first_row, segment.keys());
            let buckets = &buckets.of(0, row - first, 0)[..count];
            // SAFETY: each row is written by the one member that owns it, and holds the keys of its sequence.
            let out = unsafe { std::slice::from_raw_parts_mut(to.get().add(row * stride), count) };
            let keys = keys.some(first..first + count);
            exec.simd.run(BiasRow { buckets, query: queries.row(row), keys, scale, out });
        }
    });
}

/// One row. Its buckets, of which `out` has as many and `keys` as many rows, lie within `query` and the rows of `keys`.
struct BiasRow<'a> {
    buckets: &'a [u32],
    query: &'a [f32],
    keys: Rows<'a>,
    scale: f32,
    out: &'a mut [f32],
}

impl Kernel for BiasRow<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        let keys = self.keys.data.as_ptr();
        for (j, (out, bucket)) in self.out.iter_mut().zip(self.buckets).enumerate() {
            let bucket = *bucket as usize;
            // SAFETY: the bucket and the row lie within both by contract.
            let (query, key) =
                unsafe { (*self.query.get_unchecked(bucket), *keys.add(j * self.keys.stride + bucket)) };
            *out = (query + key) * self.scale;
        }
    }
}
