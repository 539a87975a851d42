//! The bits are the same for any tier, threads, chunks, batch or cache.

use redline_kernels::{Format, Simd};
use redline_models::adapter::Adapters;

use crate::reference::{Bench, bits, goldens, kv, open, reference};

#[test]
fn tiers_and_threads_give_the_same_bits() {
    for dir in goldens() {
        let prompt = reference(&dir).prompt;
        for &format in Format::ALL {
            let mut first: Option<Vec<u32>> = None;
            for simd in Simd::variants() {
                for threads in [1, 2, 3] {
                    let mut bench = Bench::new(open(&dir, Some(format)), kv(format), simd, threads);
                    let sequence = bench.sequence();
                    let got = bits(&bench.pass(&[(sequence, &prompt)]));
                    let same = *first.get_or_insert_with(|| got.clone()) == got;
                    assert!(same, "{} {} {} {threads} threads", dir.display(), format, simd.name());
                }
            }
        }
    }
}

#[test]
fn chunks_and_single_tokens_give_the_same_bits() {
    for dir in goldens() {
        let prompt = reference(&dir).prompt;
        for &format in Format::ALL {
            let mut bench = Bench::new(open(&dir, Some(format)), kv(format), Simd::best(), 2);
            let whole = bench.sequence();
            let want = bits(&bench.pass(&[(whole, &prompt)]));
            for size in [1, 2, 7, 16, 40] {
                let sequence = bench.sequence();
                let mut got = Vec::new();
                for piece in prompt.chunks(size) {
                    got.extend(bits(&bench.pass(&[(sequence, piece)])));
                }
                assert!(got == want, "{} {} in pieces of {size}", dir.display(), format);
            }
        }
    }
}

/// Rows that nobody wants are left out as early as a model allows.
#[test]
fn some_rows_have_the_bits_of_all() {
    for dir in goldens() {
        let prompt = reference(&dir).prompt;
        for &format in Format::ALL {
            let mut bench = Bench::new(open(&dir, Some(format)), kv(format), Simd::best(), 2);
            let whole = bench.sequence();
            let want = bench.pass(&[(whole, &prompt)]);
            let (first, second) = (bench.sequence(), bench.sequence());
            let parts = [(first, &prompt[..20], Adapters::default()), (second, &prompt, Adapters::default())];
            let rows = [3, 19, 20, 20 + 17, 20 + 18, 20 + prompt.len() - 1];
            let got = bench.wanted_pass(&parts, &rows);
            let expected = rows.map(|row| want[row.checked_sub(20).unwrap_or(row)].clone());
            assert!(bits(&got) == bits(&expected), "{} {format}", dir.display());
            // A piece of which no row is wanted, and the rest.
            let third = bench.sequence();
            assert!(bench.wanted_pass(&[(third, &prompt[..25], Adapters::default())], &[]).is_empty());
            let got = bench.wanted_pass(&[(third, &prompt[25..], Adapters::default())], &[2]);
            assert!(bits(&got) == bits(&want[27..28]), "{} {format}", dir.display());
        }
    }
}

#[test]
fn neighbours_in_a_batch_and_shared_prefixes_do_not_show() {
    for dir in goldens() {
        let prompt = reference(&dir).prompt;
        for &format in Format::ALL {
            let mut bench = Bench::new(open(&dir, Some(format)), kv(format), Simd::best(), 2);
            let alone = bench.sequence();
            let want = bench.pass(&[(alone, &prompt)]);
            let (others, shared) = (bench.sequence(), bench.sequence());
            bench.pass(&[(shared, &prompt[..13])]);
            // Where a convolution has passed, nothing continues.
            let early = bench.continuable(shared, 5);
            let (left, right) = (bench.fork(shared, 13), bench.fork(shared, early));
            let reversed: Vec<u32> = prompt.iter().rev().copied().collect();
            let got = bench.pass(&[
                (others, &reversed[..9]),
                (left, &prompt[13..]),
                (right, &prompt[early..30]),
                (shared, &[1]),
            ]);
            assert!(bits(&got[9..9 + prompt.len() - 13]) == bits(&want[13..]), "{}", dir.display());
            let after = 9 + prompt.len() - 13;
            assert!(bits(&got[after..after + 30 - early]) == bits(&want[early..30]), "{}", dir.display());
        }
    }
}

/// As drafts: some of them are right, the others are taken back.
#[test]
fn tokens_that_were_taken_back_do_not_show() {
    let mut tested = 0;
    for dir in goldens() {
        let prompt = reference(&dir).prompt;
        for &format in Format::ALL {
            let mut bench = Bench::new(open(&dir, Some(format)), kv(format), Simd::best(), 2);
            let alone = bench.sequence();
            let want = bench.pass(&[(alone, &prompt)]);
            let sequence = bench.sequence();
            let mut got = bench.pass(&[(sequence, &prompt[..13])]);
            let mut stored = 13;
            while stored < prompt.len() {
                let right = (1 + stored % 4).min(prompt.len() - stored);
                let wrong = [&prompt[stored..stored + right], &[1, 0, 2][..stored % 3]].concat();
                let rows = bench.pass(&[(sequence, &wrong)]);
                got.extend_from_slice(&rows[..right]);
                stored += right;
                if !bench.take_back(sequence, stored) {
                    break;
                }
            }
            assert!(bits(&got) == bits(&want[..stored]), "{} {format}", dir.display());
            tested += usize::from(stored == prompt.len());
        }
    }
    assert!(tested > 20, "{tested}");
}
