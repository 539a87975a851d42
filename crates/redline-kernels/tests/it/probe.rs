//! The measuring functions do the work that they report.

use redline_kernels::op::probe::{multiply_add, read};
use redline_kernels::{Arithmetic, Exec, Simd, Team, Tier};

use crate::values::{Random, everywhere};

#[test]
fn every_word_is_read_once_whatever_the_streams() {
    let mut random = Random(3);
    let words: Vec<u32> = random.values(10_000).iter().map(|v| v.to_bits()).collect();
    for len in [0, 1, 127, 128, 129, 1024, 4099, 10_000] {
        let data = &words[..len];
        let expected = data.iter().fold(0u32, |a, &b| a.wrapping_add(b));
        everywhere(|exec, place| {
            for streams in [1, 2, 3, 4, 7, 1000] {
                assert_eq!(read(exec, data, streams), expected, "{len} words, {streams} streams, {place}");
            }
        });
    }
}

#[test]
fn operations_are_counted_for_every_member() {
    for &tier in Tier::ALL {
        let Ok(simd) = Simd::new(tier) else { continue };
        for &arithmetic in Arithmetic::ALL {
            let count = |threads, rounds| {
                let team = Team::new(threads).unwrap();
                multiply_add(Exec { simd, team: &team }, arithmetic, rounds)
            };
            let one = count(1, 10);
            assert!(one >= 10.0 * 6.0 * 16.0 * 2.0);
            assert_eq!((count(1, 30), count(2, 10)), (3.0 * one, 2.0 * one));
        }
    }
}

#[test]
fn a_step_counts_the_products_of_its_arithmetic() {
    let team = Team::new(1).unwrap();
    for simd in Simd::variants().into_iter().filter(|simd| simd.tiles().is_none()) {
        let count = |arithmetic| multiply_add(Exec { simd, team: &team }, arithmetic, 3);
        let one = count(Arithmetic::F32);
        // Twice sixteen lanes for each of six or twelve sums, three times.
        assert!([3.0 * 6.0 * 32.0, 3.0 * 12.0 * 32.0].contains(&one), "{one} on {}", simd.name());
        let others = (count(Arithmetic::Bf16), count(Arithmetic::Int8));
        assert_eq!(others, (2.0 * one, 32.0 * one), "{}", simd.name());
    }
}
