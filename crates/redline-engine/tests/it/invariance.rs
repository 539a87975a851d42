//! The bits do not depend on threads, devices, tiers, concurrent requests and order, in either format.

use redline_engine::{Engine, ScoreRequest};
use redline_kernels::Format;

use crate::models::{bits, demo_dir, options, pledge, scores, text, ways};

fn items() -> ScoreRequest {
    let words = [
        "",
        " to",
        " of the LORD",
        " for",
        " and he said",
        " to",
        "\u{1f600}",
        " in the beginning God created",
    ];
    ScoreRequest { items: words.map(text).to_vec(), ..pledge() }
}

#[test]
fn scores_are_the_same_bits_on_every_tier_and_thread_count() {
    for &format in Format::ALL {
        for softmax in [false, true] {
            let mut first = None;
            for way in ways(format) {
                let name = format!("{} {:?} {} threads as {}", format.name(), way.tier, way.threads, way.tp);
                let engine = Engine::load(way).unwrap();
                let got = bits(&scores(&engine.score(ScoreRequest { softmax, ..items() }).unwrap()));
                assert_eq!(first.get_or_insert_with(|| got.clone()), &got, "{name}");
            }
        }
    }
}

#[test]
fn items_alone_together_and_in_any_order_score_alike() {
    for &format in Format::ALL {
        let engine =
            Engine::load(redline_engine::Options { format: Some(format), ..options(&demo_dir()) }).unwrap();
        let request = items();
        let together = bits(&scores(&engine.score(request.clone()).unwrap()));
        for (item, row) in request.items.iter().zip(&together) {
            let alone = ScoreRequest { items: vec![item.clone()], ..request.clone() };
            assert_eq!(&bits(&scores(&engine.score(alone).unwrap()))[0], row);
        }
        for shift in 1..request.items.len() {
            let mut turned = request.clone();
            turned.items.rotate_left(shift);
            let mut rows = bits(&scores(&engine.score(turned).unwrap()));
            rows.rotate_right(shift);
            assert_eq!(rows, together);
        }
    }
}
