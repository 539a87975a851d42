//! Digests of the demo model's scores, which every machine and every tier must reproduce.

use redline_engine::{Engine, ScoreRequest};
use redline_kernels::Format;

use crate::models::{bits, pledge, scores, text, ways};

/// FNV-1a over the bits of all scores.
fn digest(format: Format) -> Vec<u64> {
    let items = ["", " to", " of the LORD", " and he said unto them", " hacker"].map(text).to_vec();
    ways(format)
        .into_iter()
        .map(|way| {
            let engine = Engine::load(way).unwrap();
            let mut h = 0xcbf2_9ce4_8422_2325u64;
            for softmax in [false, true] {
                let outcome =
                    engine.score(ScoreRequest { softmax, items: items.clone(), ..pledge() }).unwrap();
                for byte in bits(&scores(&outcome)).concat().iter().flat_map(|b| b.to_le_bytes()) {
                    h = (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
                }
            }
            h
        })
        .collect()
}

#[test]
fn demo_scores_are_the_committed_ones() {
    let committed = [
        (Format::F32, 0x81a0_ba15_e222_be7c_u64),
        (Format::Bf16, 0xc57c_d7df_d894_7cfa),
        (Format::parse("w8").unwrap(), 0x613b_850d_375f_77f3),
        (Format::parse("w4").unwrap(), 0x659c_f1ba_7e0f_613a),
    ];
    assert_eq!(committed.len(), Format::ALL.len(), "every format has a digest");
    for (format, want) in committed {
        for got in digest(format) {
            assert_eq!(got, want, "{}: {got:#018x}", format.name());
        }
    }
}
