//! Pages of keys and values: batches that may not be stored in parallel, and layers of different shapes.

use redline_kernels::op::attention::{AttentionShape, attention};
use redline_kernels::op::kv::{AttentionMask, KvFormat, KvPages, KvShape, PAGE_TOKENS, Segment, page_bytes};
use redline_kernels::{Exec, Rows, RowsMut};

use crate::values::{Random, everywhere, same};

const SMALL: KvShape = KvShape { format: KvFormat::F32, kv_heads: 1, head_dim: 8 };

fn pages(count: usize) -> KvPages {
    let mut kv = KvPages::new(&[SMALL], count);
    for _ in 0..count {
        kv.grow().unwrap();
    }
    kv
}

fn segment(pages: &[u32], start: usize, first_row: usize, rows: usize) -> Segment<'_> {
    Segment { pages, start, first_row, rows, attention: AttentionMask::Causal }
}

#[test]
#[should_panic(expected = "page 1 is written twice in one batch")]
fn two_segments_may_not_write_the_same_page() {
    pages(2).check(&[segment(&[0, 1], 64, 0, 3), segment(&[0, 1], 70, 3, 2)]);
}

#[test]
#[should_panic(expected = "page 2 is written twice in one batch")]
fn a_segment_may_not_write_a_page_twice() {
    pages(3).check(&[segment(&[0, 2, 1, 2], 64, 0, 3 * PAGE_TOKENS)]);
}

#[test]
fn pages_that_are_only_read_may_be_shared() {
    let mut kv = pages(4);
    let segments = [
        // All segments read page 0; page 1 is also listed after the rows that are written.
        segment(&[0, 1, 1], 64, 0, PAGE_TOKENS),
        segment(&[0, 2], 64, 64, 1),
        // No rows: nothing is written.
        segment(&[1, 2], 64, 65, 0),
        segment(&[0, 3], 64, 65, 1),
    ];
    for _ in 0..3 {
        assert_eq!(kv.check(&segments).get().len(), segments.len());
    }
}

#[test]
#[should_panic(expected = "segments follow each other without overlap")]
fn segments_may_not_overlap() {
    pages(2).check(&[segment(&[0], 0, 0, 3), segment(&[1], 0, 2, 3)]);
}

#[test]
#[should_panic(expected = "rows of the batch")]
fn rows_that_pass_the_largest_number_are_refused() {
    pages(1).check(&[segment(&[0], 0, 5, usize::MAX - 2)]);
}

#[test]
#[should_panic(expected = "positions of a sequence")]
fn positions_that_pass_the_largest_number_are_refused() {
    pages(1).check(&[segment(&[0], usize::MAX - 2, 0, 5)]);
}

#[test]
#[should_panic(expected = "layer 1 of 1")]
fn a_layer_that_is_not_there_is_refused() {
    pages(1).shape(1);
}

/// A layer, with its keys, values and queries.
struct Layer {
    shape: KvShape,
    heads: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

const TOKENS: usize = 150;

impl Layer {
    fn new(format: KvFormat, heads: usize, kv_heads: usize, head_dim: usize) -> Self {
        let mut random = Random((heads * kv_heads * head_dim) as u64);
        let mut values = |heads: usize| random.values(TOKENS * heads * head_dim);
        let (q, k, v) = (values(heads), values(kv_heads), values(kv_heads));
        Self { shape: KvShape { format, kv_heads, head_dim }, heads, q, k, v }
    }

    fn store(&self, exec: Exec<'_>, kv: &mut KvPages, layer: usize, table: &[u32]) {
        let width = self.shape.kv_heads * self.shape.head_dim;
        let segments = [segment(table, 0, 0, TOKENS)];
        let checked = kv.check(&segments);
        let rows = |values| Rows::new(values, TOKENS, width, width);
        kv.store(exec, layer, checked, rows(&self.k), rows(&self.v));
    }

    fn attend(&self, exec: Exec<'_>, kv: &KvPages, layer: usize, table: &[u32]) -> Vec<f32> {
        let width = self.heads * self.shape.head_dim;
        let shape =
            AttentionShape { heads: self.heads, scale: 0.3, window: None, softcap: None, sinks: None };
        let mut out = vec![f32::NAN; TOKENS * width];
        let q = Rows::new(&self.q, TOKENS, width, width);
        let mut to = RowsMut::new(&mut out, TOKENS, width, width);
        attention(exec, shape, kv, layer, &[segment(table, 0, 0, TOKENS)], q, &mut to, &mut []);
        out
    }
}

/// Layers with different heads, dimensions and formats each read what they stored, as if they had the pages to themselves.
#[test]
fn layers_of_different_shapes_keep_apart() {
    let layers = [
        Layer::new(KvFormat::F32, 4, 2, 12),
        Layer::new(KvFormat::Bf16, 4, 1, 24),
        Layer::new(KvFormat::F32, 3, 3, 8),
        Layer::new(KvFormat::Bf16, 2, 2, 17),
        Layer::new(KvFormat::W4, 4, 2, 64),
        Layer::new(KvFormat::W8, 2, 1, 20),
        Layer::new(KvFormat::W4, 2, 2, 8),
    ];
    let shapes: Vec<KvShape> = layers.iter().map(|layer| layer.shape).collect();
    let bytes: usize = shapes.iter().map(|shape| page_bytes(&[*shape])).sum();
    assert_eq!(page_bytes(&shapes), bytes);
    everywhere(|exec, name| {
        let mut kv = KvPages::new(&shapes, 10);
        let mut table: Vec<u32> = (0..TOKENS.div_ceil(PAGE_TOKENS)).map(|_| kv.grow().unwrap()).collect();
        table.reverse();
        for (index, layer) in layers.iter().enumerate() {
            layer.store(exec, &mut kv, index, &table);
        }
        for (index, layer) in layers.iter().enumerate() {
            let mut own = KvPages::new(&[layer.shape], 10);
            let pages: Vec<u32> = table.iter().map(|_| own.grow().unwrap()).collect();
            layer.store(exec, &mut own, 0, &pages);
            let alone = layer.attend(exec, &own, 0, &pages);
            assert!(alone.iter().all(|x| x.is_finite()));
            assert!(same(&layer.attend(exec, &kv, index, &table), &alone), "layer {index} on {name}");
        }
    });
}

#[test]
#[should_panic(expected = "a head of 24 values in w4")]
fn heads_that_a_format_does_not_hold_are_refused() {
    KvPages::new(&[KvShape { format: KvFormat::W4, kv_heads: 1, head_dim: 24 }], 1);
}

#[test]
#[should_panic(expected = "rows up to 3 see 2 keys")]
fn rows_that_do_not_see_themselves_are_refused() {
    let canvas = Segment { attention: AttentionMask::Bidirectional(2), ..segment(&[0], 0, 0, 3) };
    pages(1).check(&[canvas]);
}

#[test]
#[should_panic(expected = "pages for every key")]
fn keys_beyond_the_pages_are_refused() {
    let keys = AttentionMask::Bidirectional(PAGE_TOKENS + 1);
    pages(2).check(&[Segment { attention: keys, ..segment(&[0], 0, 0, 3) }]);
}

#[test]
fn a_page_that_is_just_full_is_enough() {
    let keys = AttentionMask::Bidirectional(PAGE_TOKENS);
    pages(1).check(&[Segment { attention: keys, ..segment(&[0], 0, 0, PAGE_TOKENS) }]);
}
