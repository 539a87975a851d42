//! Pages of keys and values: batches that may not be stored in parallel, and layers of different shapes.

use redline_kernels::op::attention::{AttentionShape, attention};
use redline_kernels::op::kv::{
    AttentionMask, ConvInputs, KvFormat, KvPages, KvShape, MAX_HEAD_DIM, PAGE_TOKENS, PageShape, Segment,
};
use redline_kernels::{Exec, Rows, RowsMut};

use crate::linear::on_one_thread;
use crate::values::{Random, everywhere, same};

const SMALL: KvShape = KvShape { format: KvFormat::F32, kv_heads: 1, head_dim: 8 };

fn pages(count: usize) -> KvPages {
    let mut kv = KvPages::new(&PageShape::from(&[SMALL][..]), count);
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
    pages(2).of_batch(&[segment(&[0, 1], 64, 0, 3), segment(&[0, 1], 70, 3, 2)]);
}

#[test]
#[should_panic(expected = "page 2 is written twice in one batch")]
fn a_segment_may_not_write_a_page_twice() {
    pages(3).of_batch(&[segment(&[0, 2, 1, 2], 64, 0, 3 * PAGE_TOKENS)]);
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
        assert_eq!(kv.of_batch(&segments).segments().len(), segments.len());
    }
}

/// Both read page 0, which neither writes.
#[test]
fn micro_batches_write_and_read_their_own_pages() {
    let mut kv = pages(4);
    let [one, two] = [[0, 1], [0, 2]];
    let batches = [[segment(&one, 64, 0, 3)], [segment(&two, 64, 0, 3)]];
    for _ in 0..2 {
        let found = kv.of_micro_batches(batches.iter().map(|it| &it[..])).expect("separate pages");
        assert_eq!(found.iter().map(|it| it.segments().len()).collect::<Vec<_>>(), [1, 1]);
    }
    // Two rows of one page; and a page that one writes and the other reads.
    for (start, pages) in [(70, [0, 1]), (64, [1, 3])] {
        let batches = [[segment(&one, 64, 0, 3)], [segment(&pages, start, 0, 3)]];
        assert!(kv.of_micro_batches(batches.iter().map(|it| &it[..])).is_none(), "{pages:?}");
        let batches = [&batches[1][..], &batches[0][..]];
        assert!(kv.of_micro_batches(batches).is_none(), "{pages:?}");
    }
}

#[test]
#[should_panic(expected = "pages that another micro-batch writes")]
fn a_micro_batch_may_not_attend_to_the_pages_of_another() {
    let mut kv = pages(2);
    let shape = kv.shape(0);
    let batches = [[segment(&[0], 0, 0, 3)], [segment(&[1], 0, 0, 3)]];
    let width = shape.kv_heads * shape.head_dim;
    let (q, mut out) = (vec![0.0; 3 * width], vec![0.0; 3 * width]);
    let attention = AttentionShape {
        heads: shape.kv_heads,
        scale: 1.0,
        window: None,
        softcap: None,
        bias: None,
        sinks: None,
    };
    let found = kv.of_micro_batches(batches.iter().map(|it| &it[..])).expect("separate pages");
    on_one_thread(|exec| {
        let mut to = RowsMut::new(&mut out, 3, width, width);
        found[0].attention(
            exec,
            (0, attention),
            &batches[1],
            Rows::new(&q, 3, width, width),
            &mut to,
            &mut [],
        );
    });
}

#[test]
#[should_panic(expected = "segments follow each other without overlap")]
fn segments_may_not_overlap() {
    pages(2).of_batch(&[segment(&[0], 0, 0, 3), segment(&[1], 0, 2, 3)]);
}

#[test]
#[should_panic(expected = "rows of the batch")]
fn rows_that_pass_the_largest_number_are_refused() {
    pages(1).of_batch(&[segment(&[0], 0, 5, usize::MAX - 2)]);
}

#[test]
#[should_panic(expected = "positions of a sequence")]
fn positions_that_pass_the_largest_number_are_refused() {
    pages(1).of_batch(&[segment(&[0], usize::MAX - 2, 0, 5)]);
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
        let rows = |values| Rows::new(values, TOKENS, width, width);
        kv.of_batch(&segments).store(exec, layer, rows(&self.k), rows(&self.v));
    }

    fn attend(&self, exec: Exec<'_>, kv: &KvPages, layer: usize, table: &[u32]) -> Vec<f32> {
        let width = self.heads * self.shape.head_dim;
        let shape = AttentionShape {
            heads: self.heads,
            scale: 0.3,
            window: None,
            softcap: None,
            bias: None,
            sinks: None,
        };
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
    let bytes: usize = shapes.iter().map(|shape| PageShape::from(&[*shape][..]).bytes()).sum();
    assert_eq!(PageShape::from(&shapes[..]).bytes(), bytes);
    everywhere(|exec, name| {
        let mut kv = KvPages::new(&PageShape::from(&shapes[..]), 10);
        let mut table: Vec<u32> = (0..TOKENS.div_ceil(PAGE_TOKENS)).map(|_| kv.grow().unwrap()).collect();
        table.reverse();
        for (index, layer) in layers.iter().enumerate() {
            layer.store(exec, &mut kv, index, &table);
        }
        for (index, layer) in layers.iter().enumerate() {
            let mut own = KvPages::new(&PageShape::from(&[layer.shape][..]), 10);
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
    KvPages::new(&PageShape::from(&[KvShape { format: KvFormat::W4, kv_heads: 1, head_dim: 24 }][..]), 1);
}

#[test]
#[should_panic(expected = "rows see a key")]
fn rows_that_see_nothing_are_refused() {
    let canvas = Segment { attention: AttentionMask::Bidirectional(0), ..segment(&[0], 0, 0, 3) };
    pages(1).of_batch(&[canvas]);
}

#[test]
#[should_panic(expected = "pages for every row and key")]
fn rows_beyond_the_pages_are_refused() {
    let keys = AttentionMask::Bidirectional(1);
    pages(2).of_batch(&[Segment { attention: keys, ..segment(&[0], 0, 0, PAGE_TOKENS + 1) }]);
}

#[test]
#[should_panic(expected = "pages for every row and key")]
fn keys_beyond_the_pages_are_refused() {
    let keys = AttentionMask::Bidirectional(PAGE_TOKENS + 1);
    pages(2).of_batch(&[Segment { attention: keys, ..segment(&[0], 0, 0, 3) }]);
}

#[test]
fn a_page_that_is_just_full_is_enough() {
    let keys = AttentionMask::Bidirectional(PAGE_TOKENS);
    pages(1).of_batch(&[Segment { attention: keys, ..segment(&[0], 0, 0, PAGE_TOKENS) }]);
}

#[test]
fn a_token_takes_the_bytes_of_its_format() {
    let token = |format, head_dim| {
        PageShape::from(&[KvShape { format, kv_heads: 1, head_dim }][..]).bytes() / PAGE_TOKENS
    };
    let bytes = |format| token(format, 64);
    assert_eq!(
        KvFormat::ALL.iter().map(|&format| bytes(format)).collect::<Vec<_>>(),
        [512, 256, 256, 136, 72]
    );
    // Dimensions are padded: keys to the step, or to 32 for integers; values to sixteen.
    let formats = KvFormat::ALL.iter().filter(|format| format.holds(17));
    let padded = formats.map(|&format| token(format, 17));
    assert_eq!(padded.collect::<Vec<_>>(), [4 * 17 + 4 * 32, 2 * 18 + 2 * 32, 2 * 17 + 2 * 32, 32 + 32 + 8]);
    assert_eq!([8, 16, 32, 128].map(|dim| token(KvFormat::W4, dim)), [36, 36, 36, 144]);
}

#[test]
fn names_of_formats_are_read_back() {
    for &format in KvFormat::ALL {
        assert_eq!(KvFormat::parse(format.name()), Some(format));
    }
    assert_eq!(KvFormat::parse("w3"), None);
}

#[test]
fn a_format_that_rotates_heads_holds_powers_of_two() {
    let held = |format: KvFormat| (1..=512).filter(move |&dim| format.holds(dim));
    assert_eq!(held(KvFormat::W4).collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 64, 128, 256]);
    assert_eq!(held(KvFormat::W8).count(), MAX_HEAD_DIM);
}

const SHAPE: KvShape = KvShape { format: KvFormat::Bf16, kv_heads: 1, head_dim: 16 };

#[test]
fn memory_grows_in_slabs_and_stays_below_the_limit() {
    const LARGEST: usize = 16 << 20;
    let mut kv = KvPages::new(&PageShape::from(&[SHAPE][..]), 101);
    let page = kv.page_bytes();
    for count in 1..=101 {
        assert_eq!(kv.grow().unwrap() as usize, count - 1);
        let memory = kv.slab_bytes().sum::<usize>() / page;
        assert!((count..=(count - 1) + (count / 2).max(1)).contains(&memory), "{memory} for {count}");
    }
    assert_eq!(kv.slab_bytes().sum::<usize>(), 101 * page);
    assert!(kv.slab_bytes().count() < 15, "{} slabs", kv.slab_bytes().count());
    // A slab is limited, but always holds a page.
    let large = KvShape { head_dim: MAX_HEAD_DIM, kv_heads: 90, ..SHAPE };
    let mut kv = KvPages::new(&PageShape::from(&[large; 3][..]), usize::MAX);
    assert!(kv.page_bytes() > LARGEST);
    for count in 1..5 {
        kv.grow().unwrap();
        assert_eq!(kv.slab_bytes().count(), count);
    }
    let mut kv = KvPages::new(&PageShape::from(&[SHAPE; 300][..]), usize::MAX);
    let page = kv.page_bytes();
    while kv.len() * page < 5 * LARGEST {
        kv.grow().unwrap();
    }
    assert!(kv.slab_bytes().all(|bytes| bytes <= LARGEST));
    assert_eq!(kv.slab_bytes().last(), Some(LARGEST / page * page));
}

/// The words of a page.
fn words(kv: &KvPages, page: u32) -> Vec<u32> {
    let mut bytes = Vec::new();
    kv.export(page, &mut bytes);
    bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn the_first_tokens_of_a_page_are_copied_and_no_strip_after_them() {
    for &format in KvFormat::ALL {
        for tokens in [0, 1, 3, 16, 29, PAGE_TOKENS] {
            let dims = [16, if format.holds(33) { 33 } else { 64 }];
            let shapes = dims.map(|head_dim| KvShape { format, kv_heads: 2, head_dim });
            let mut kv = KvPages::new(&PageShape::from(&shapes[..]), 2);
            let (from, to) = (kv.grow().unwrap(), kv.grow().unwrap());
            for (layer, shape) in shapes.into_iter().enumerate() {
                let width = 2 * shape.head_dim;
                let x: Vec<f32> =
                    (0..tokens).flat_map(|slot| (0..width).map(move |d| (1 + d + slot) as f32)).collect();
                let x = Rows::new(&x, tokens, width, width);
                let pages = [from];
                let segments = [segment(&pages, 0, 0, tokens)];
                on_one_thread(|exec| {
                    kv.of_batch(&segments).store(exec, layer, x, x);
                });
            }
            // All that was written is copied, and the rest of both pages is zero.
            kv.copy(from, to, tokens);
            assert_eq!(words(&kv, from), words(&kv, to), "{tokens} tokens of {format:?}");
            assert_eq!(words(&kv, to).iter().all(|&word| word == 0), tokens == 0);
            kv.poison(from, 0);
            let before = words(&kv, to);
            kv.copy(from, to, tokens);
            let copied = words(&kv, to).iter().zip(&before).filter(|(a, b)| a != b).count();
            assert!(copied <= before.len() * tokens.next_multiple_of(16) / PAGE_TOKENS);
        }
    }
}

#[test]
fn all_words_of_a_page_are_copied_and_cleared() {
    let inputs = vec![ConvInputs { channels: 8, rows: 2, slots: 3 }];
    let mut kv = KvPages::new(&PageShape { keys: vec![SHAPE], inputs, ..PageShape::default() }, 2);
    let (from, to) = (kv.grow().unwrap(), kv.grow().unwrap());
    let bytes: Vec<u8> = (1..=kv.page_bytes() as u32 / 4).flat_map(u32::to_le_bytes).collect();
    kv.import(from, &bytes);
    kv.copy_words(from, to);
    assert!(words(&kv, to).into_iter().eq(1..=kv.page_bytes() as u32 / 4));
    kv.clear(from);
    assert!(words(&kv, from).iter().all(|&word| word == 0) && words(&kv, to)[0] == 1);
}

#[test]
fn pages_are_apart_and_are_copied_within_and_between_slabs() {
    let mut kv = KvPages::new(&PageShape::from(&[SHAPE][..]), 40);
    for page in 0..40u32 {
        let before = kv.slab_bytes().count();
        kv.grow().unwrap();
        // The last two pages lie in one slab, the first one in another.
        assert!(page != 39 || (before > 1 && kv.slab_bytes().count() == before));
        assert!(words(&kv, page).iter().all(|&word| word == 0));
        let bytes = page.to_le_bytes().repeat(kv.page_bytes() / 4);
        kv.import(page, &bytes);
    }
    kv.copy(38, 39, PAGE_TOKENS);
    kv.copy(0, 37, PAGE_TOKENS);
    kv.copy(36, 1, PAGE_TOKENS);
    kv.copy(5, 5, PAGE_TOKENS);
    for page in 0..40 {
        let expected = match page {
            39 => 38,
            37 => 0,
            1 => 36,
            _ => page,
        };
        assert!(words(&kv, page).iter().all(|&word| word == expected), "page {page}");
    }
}
