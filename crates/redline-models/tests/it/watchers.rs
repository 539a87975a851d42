//! Observers of a pass see all of it and change nothing.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redline_kernels::op::kv::KvFormat;
use redline_kernels::{Format, Simd, Stopwatch};
use redline_models::activation::{Activation, ActivationId, ActivationName};
use redline_models::plan::Site;
use redline_models::profile::{Profile, Span};
use redline_models::step::Watchers;
use redline_models::trace::Observations;

use crate::reference::{Bench, bits, golden_root, goldens, open, reference};

const THREADS: usize = 2;

fn bench(dir: &Path, format: Format) -> Bench {
    Bench::new(open(dir, Some(format)), KvFormat::F32, Simd::best(), THREADS)
}

#[test]
fn every_activation_is_shown_once_in_the_order_that_the_model_names() {
    for dir in goldens() {
        let prompt = reference(&dir).prompt;
        let mut plain = bench(&dir, Format::Bf16);
        let sequence = plain.sequence();
        let expected = plain.pass(&[(sequence, &prompt)]);
        let mut watched = bench(&dir, Format::Bf16);
        let sequence = watched.sequence();
        let seen: RefCell<Vec<(ActivationId, usize)>> = RefCell::default();
        let logits: RefCell<Vec<Vec<f32>>> = RefCell::default();
        let see = |activation: Activation<'_>| {
            let Activation { id, values } = activation;
            assert_eq!(values.rows(), prompt.len(), "{id}");
            seen.borrow_mut().push((id, values.width()));
            if id.name == ActivationName::Logits {
                logits.borrow_mut().extend((0..values.rows()).map(|r| values.row(r).to_vec()));
            }
        };
        let watchers = Watchers { activations: Some(&see), ..Watchers::default() };
        let got = watched.watched_pass(&[(sequence, &prompt)], watchers);
        assert_eq!(bits(&got), bits(&expected), "{}", dir.display());
        assert_eq!(bits(&logits.borrow()), bits(&expected), "{}", dir.display());
        assert_eq!(*seen.borrow(), watched.model.activations(), "{}", dir.display());
    }
}

#[test]
fn names_are_in_the_order_of_a_pass_and_differ() {
    let names: Vec<&str> = ActivationName::ALL.iter().map(|name| name.name()).collect();
    assert!(ActivationName::ALL.is_sorted());
    assert!((1..names.len()).all(|at| !names[..at].contains(&names[at])), "{names:?}");
    let id = ActivationId { layer: Some(3), name: ActivationName::QueryRope };
    assert_eq!(id.to_string(), "layers.3.query_rope");
    assert_eq!(ActivationId { layer: None, name: ActivationName::Logits }.to_string(), "logits");
}

/// Number of operations of a layer whose feed-forward part is no mixture of experts.
///
/// Rotary decoders have two rotations and a gate more; head norms add two, as do norms of outputs besides those of inputs, and
/// queries that grow one.
fn operations(architecture: &str, dir: &Path, layer: usize) -> usize {
    match architecture {
        "GPT2LMHeadModel" => 10,
        // Two linear layers and a convolution instead of attention.
        "Lfm2ForCausalLM" | "Lfm2MoeForCausalLM" if layer != 1 => 10,
        "Qwen3ForCausalLM"
        | "Olmo2ForCausalLM"
        | "Olmo3ForCausalLM"
        | "Gemma2ForCausalLM"
        | "HunYuanDenseV1ForCausalLM"
        | "Glm4ForCausalLM"
        | "Lfm2ForCausalLM"
        | "Lfm2MoeForCausalLM"
        | "Qwen3MoeForCausalLM" => 15,
        // A recurrence instead of attention, which parts queries from gates and applies these.
        "Qwen3_5ForCausalLM" | "Qwen3_5MoeForCausalLM" | "Qwen3NextForCausalLM" if layer != 1 => 16,
        "Gemma3ForCausalLM" | "Qwen3_5ForCausalLM" | "Qwen3_5MoeForCausalLM" | "Qwen3NextForCausalLM" => 17,
        "Ministral3ForCausalLM" => 14,
        // The second of three layers does not rotate.
        "SmolLM3ForCausalLM" if layer == 1 => 11,
        // The fourth of the layers of one checkpoint does not.
        "Exaone4ForCausalLM" => {
            if layer == 3 {
                13
            } else {
                15
            }
        }
        // Norms before and after, of heads and values; two linear layers of an input of the layer's own, with gate, norm and
        // addition; a factor. The last two layers of one checkpoint take keys and values of others; the last of the other
        // has one projection for both.
        "Gemma4ForCausalLM" => match (dir.ends_with("gemma4-a"), layer) {
            (true, ..2) => 24,
            (true, _) | (false, 2) => 20,
            (false, _) => 19,
        },
        // One norm for both parts.
        "CohereForCausalLM" => 12,
        "Cohere2ForCausalLM" => {
            if dir.ends_with("cohere2-a") && layer == 3 || dir.ends_with("cohere2-b") && layer == 1 {
                10
            } else {
                12
            }
        }
        // A recurrence instead of attention.
        "BambaForCausalLM" if layer != 1 => 14,
        // One part in each layer; experts without gates beside one of every row.
        "NemotronHForCausalLM" => match kinds_of_nemotron_h(dir)[layer] {
            'M' => 9,
            '*' => 6,
            '-' => 4,
            _ => 7,
        },
        // Both mixers and their sum; factors on five parts of a projection and a norm in one checkpoint, on two parts in the other.
        "FalconH1ForCausalLM" => {
            if dir.ends_with("falcon-h1-a") {
                27
            } else {
                23
            }
        }
        "GraniteMoeHybridForCausalLM"
            if layer != 1 && (dir.ends_with("granite4h-a") || dir.ends_with("granite4h-c")) =>
        {
            14
        }
        "GraniteMoeHybridForCausalLM" if dir.ends_with("granite4h-b") && layer == 0 => 14,
        // Some checkpoints rotate nothing.
        "GraniteMoeHybridForCausalLM"
            if ["granite4-a", "granite4h-a", "granite4h-c"].iter().any(|name| dir.ends_with(name)) =>
        {
            11
        }
        _ => 13,
    }
}

/// A letter for each layer, as in published configurations.
fn kinds_of_nemotron_h(dir: &Path) -> Vec<char> {
    let kinds = [("nemotron-h-a", "ME*M-E"), ("nemotron-h-b", "MEM*E"), ("nemotron-h-c", "M-*-")];
    kinds.iter().find(|(name, _)| dir.ends_with(name)).unwrap().1.chars().collect()
}

#[test]
fn a_profile_holds_every_operation_and_changes_no_bit() {
    for dir in goldens() {
        let prompt = reference(&dir).prompt;
        let mut plain = bench(&dir, Format::F32);
        let sequence = plain.sequence();
        let expected = plain.pass(&[(sequence, &prompt)]);
        let mut watched = bench(&dir, Format::F32);
        let next = AtomicU64::new(0);
        let clock = Arc::new(move || next.fetch_add(1, Ordering::Relaxed));
        let stopwatch = Arc::new(Stopwatch::new(clock, THREADS, 1000));
        watched.set_stopwatch(stopwatch.clone());
        let mut profile = Profile::new(stopwatch, 200);
        let mut observations = Observations::of_layers(watched.model.layers());
        let sequence = watched.sequence();
        profile.begin_pass();
        let watchers = Watchers {
            profile: Some(&mut profile),
            observations: Some(&mut observations),
            ..Watchers::default()
        };
        let got = watched.watched_pass(&[(sequence, &prompt)], watchers);
        profile.end_pass();
        assert_eq!(bits(&got), bits(&expected), "{}", dir.display());
        assert_eq!((profile.dropped(), observations.all().len()), (0, watched.model.layers() + 1));
        let architecture = watched.model.facts().architecture;
        for layer in 0..watched.model.layers() {
            let of_layer = operations(architecture, &dir, layer);
            let of_it = profile.spans().iter().copied().filter(|span| span.layer == Some(layer));
            let (layers, operations): (Vec<Span>, Vec<Span>) =
                of_it.partition(|span| span.operation.is_none());
            // Instead of the feed-forward part with its gate, a router with its choice; five for each expert, if it has not all rows;
            // and six for one that has, or four without a gate of its own. Those of Nemotron-H have no gates at all.
            let named =
                |name| operations.iter().filter(|o| o.operation.is_some_and(|o| o.name == name)).count();
            let of_layer = match (named("experts"), architecture) {
                (0, _) => of_layer,
                (_, "Qwen2MoeForCausalLM" | "Qwen3_5MoeForCausalLM" | "Qwen3NextForCausalLM") => {
                    of_layer + 5 + 5 * named("gather")
                }
                (_, "GraniteMoeHybridForCausalLM") => of_layer + 3 + 5 * named("gather"),
                // Beside the feed-forward part, with four norms and an addition.
                (_, "Gemma4ForCausalLM") => of_layer + 7 + 5 * named("gather"),
                (_, "NemotronHForCausalLM") => of_layer + 4 * named("gather"),
                _ => of_layer - 1 + 5 * named("gather"),
            };
            assert_eq!((layers.len(), operations.len()), (1, of_layer), "{architecture}");
            assert!(operations.iter().all(|o| layers[0].start < o.start && o.end < layers[0].end));
            assert!(operations.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
        for member in 0..THREADS {
            // Members other than the leader may arrive too late for any work.
            assert!(member > 0 || profile.works(member).count() > 0);
            for work in profile.works(member) {
                let span = profile.spans()[work.label as usize];
                assert!(span.start < work.start && work.end < span.end, "{work:?} of {span:?}");
            }
        }
    }
}

/// Of a prompt, layers after the last one that stores keys and values of its own run for the wanted rows only, or not at all.
#[test]
fn rows_that_nobody_wants_end_early() {
    for (rows, last) in [(&[9][..], 3), (&[], 1)] {
        let mut watched = bench(&golden_root().join("gemma4-a"), Format::F32);
        let next = AtomicU64::new(0);
        let clock = Arc::new(move || next.fetch_add(1, Ordering::Relaxed));
        let stopwatch = Arc::new(Stopwatch::new(clock, THREADS, 1000));
        watched.set_stopwatch(stopwatch.clone());
        let mut profile = Profile::new(stopwatch, 200);
        let sequence = watched.sequence();
        profile.begin_pass();
        let watchers = Watchers { profile: Some(&mut profile), ..Watchers::default() };
        watched.watched_rows(&[(sequence, &[5; 10])], rows, watchers);
        profile.end_pass();
        let of_layer = |layer| {
            let spans = profile.spans().iter().filter(move |span| span.layer == Some(layer));
            spans.filter_map(|span| span.operation).collect::<Vec<_>>()
        };
        let gathers = |layer| of_layer(layer).iter().filter(|it| it.name == "gather").count();
        assert_eq!([0, 1, 2, 3].map(gathers), [0, 1, 0, 0]);
        assert!(of_layer(0).iter().all(|operation| operation.m == 10));
        let of_later = (2..4).flat_map(of_layer).collect::<Vec<_>>();
        assert!(of_later.iter().all(|operation| operation.m == rows.len()));
        assert_eq!(profile.spans().iter().filter_map(|span| span.layer).max(), Some(last));
    }
}

#[test]
fn operations_have_the_sizes_of_their_weights() {
    // Hidden width 100, five heads of 20 over one of keys and values, inner width 60, 131 tokens.
    let dir = golden_root().join("llama-b");
    let prompt = reference(&dir).prompt;
    let mut watched = bench(&dir, Format::F32);
    let next = AtomicU64::new(0);
    let clock = Arc::new(move || next.fetch_add(1, Ordering::Relaxed));
    let mut profile = Profile::new(Arc::new(Stopwatch::new(clock, THREADS, 1000)), 200);
    let sequence = watched.sequence();
    // The whole prompt, then one token that attends to it.
    for (tokens, keys) in [(&prompt[..], prompt.len()), (&prompt[..1], prompt.len() + 1)] {
        profile.begin_pass();
        let watchers = Watchers { profile: Some(&mut profile), ..Watchers::default() };
        watched.watched_pass(&[(sequence, tokens)], watchers);
        profile.end_pass();
        let of = |layer: Option<usize>| -> Vec<_> {
            let spans = profile.spans().iter().filter(|span| span.layer == layer);
            let operations: Vec<_> = spans.filter_map(|span| span.operation).collect();
            assert!(operations.iter().all(|operation| operation.m == tokens.len()));
            operations
                .iter()
                .map(|operation| (operation.name, operation.site, operation.n, operation.k))
                .collect()
        };
        let linear = |site: Site, n: usize, k: usize| ("linear", Some(site), n, Some(k));
        let plain = |name: &'static str, n: usize| (name, None, n, None);
        let layer = [
            plain("norm", 100),
            linear(Site::Qkv, 140, 100),
            plain("rope", 100),
            plain("rope", 20),
            plain("kv_store", 40),
            ("attention", None, 100, Some(keys)),
            linear(Site::Output, 100, 100),
            plain("add", 100),
            plain("norm", 100),
            linear(Site::Up, 120, 100),
            plain("gate", 60),
            linear(Site::Down, 100, 60),
            plain("add", 100),
        ];
        assert_eq!((of(Some(0)), of(Some(1))), (layer.to_vec(), layer.to_vec()));
        let outside = [plain("embedding", 100), plain("norm", 100), linear(Site::Head, 131, 100)];
        assert_eq!(of(None), outside);
    }
}
