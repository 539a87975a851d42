//! Rotations are computed by the first pass that reaches a position, not when a request arrives.

use redline_kernels::op::kv::KvFormat;
use redline_kernels::{Format, Simd};

use crate::reference::{Bench, goldens, open, reference};

#[test]
fn a_pass_computes_at_most_as_many_positions_as_it_has_rows() {
    let mut rotating = 0;
    for dir in goldens() {
        let prompt = reference(&dir).prompt;
        let mut bench = Bench::new(open(&dir, Some(Format::F32)), KvFormat::F32, Simd::best(), 1);
        bench.model.reserve_positions(1 << 17).unwrap();
        assert_eq!(bench.model.computed_positions(), 0, "a request of 128k tokens that only arrived");
        let (first, second) = (bench.sequence(), bench.sequence());
        bench.pass(&[(first, &prompt[..9])]);
        if bench.model.computed_positions() == 0 {
            // Learned positions.
            continue;
        }
        rotating += 1;
        assert_eq!(bench.model.computed_positions(), 9);
        bench.pass(&[(first, &prompt[9..10]), (second, &prompt[..4])]);
        assert_eq!(bench.model.computed_positions(), 10);
        bench.pass(&[(second, &prompt[4..8])]);
        assert_eq!(bench.model.computed_positions(), 10, "the second sequence is behind the first");
    }
    assert!(rotating > 0);
}
