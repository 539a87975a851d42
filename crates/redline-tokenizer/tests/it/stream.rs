//! Streaming: text is emitted as early as possible and no earlier, and equals the result of `decode`.

use crate::fixtures;
use proptest::prelude::*;
use redline_tokenizer::Tokenizer;
use std::sync::LazyLock;

static ALL: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
    let mut all: Vec<_> = fixtures::decoder_variations().iter().map(fixtures::load).collect();
    all.push(Tokenizer::from_dir(&fixtures::path("gpt2")).unwrap());
    all
});

fn byte_level() -> &'static Tokenizer {
    &ALL[0]
}

fn llama() -> Tokenizer {
    Tokenizer::from_file(&fixtures::path("llama.json")).unwrap()
}

fn ids() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(prop_oneof![0..260_u32, 0..703_u32], 0..60)
}

proptest! {
    #[test]
    fn pushes_and_finish_are_the_decoded_text(ids in ids()) {
        for tokenizer in ALL.iter() {
            let mut stream = tokenizer.stream();
            // Twice: the stream begins anew after `finish`.
            for _ in 0..2 {
                let mut text: String = ids.iter().map(|id| stream.push(*id).unwrap()).collect();
                text.push_str(&stream.finish());
                prop_assert_eq!(text, tokenizer.decode(&ids, true).unwrap(), "{:?}", tokenizer);
            }
        }
    }

    #[test]
    fn byte_level_holds_back_no_more_than_an_open_character(ids in ids()) {
        let mut stream = byte_level().stream();
        let mut text = String::new();
        for (i, id) in ids.iter().enumerate() {
            text.push_str(&stream.push(*id).unwrap());
            let all = byte_level().decode(&ids[..=i], true).unwrap();
            prop_assert!(all == text || all == format!("{text}\u{fffd}"), "{:?} of {:?}", text, all);
        }
    }

    #[test]
    fn text_never_shows_half_a_character(text in "(\\PC|😀|👩‍👩‍👧‍👦|é|ก){0,12}") {
        prop_assume!(!text.contains('\u{fffd}'));
        for tokenizer in [byte_level(), &llama()] {
            let mut stream = tokenizer.stream();
            for id in tokenizer.encode(&text, true).unwrap() {
                let piece = stream.push(id).unwrap();
                prop_assert!(!piece.contains('\u{fffd}'), "{:?} of {:?}", piece, text);
            }
        }
    }
}

#[test]
fn a_character_in_bytes_comes_out_whole() {
    let tokenizer = byte_level();
    let ids = tokenizer.encode("👍🏽!", false).unwrap();
    let mut stream = tokenizer.stream();
    let pieces: Vec<_> = ids.iter().map(|id| stream.push(*id).unwrap()).collect();
    assert_eq!(pieces.concat(), "👍🏽!");
    assert!(
        pieces.iter().any(String::is_empty),
        "the fixture has this character in several tokens: {pieces:?}"
    );
    assert_eq!(stream.finish(), "");
}

#[test]
fn an_open_character_is_replaced_only_at_the_end() {
    let tokenizer = byte_level();
    let first_byte = tokenizer.id("ð").unwrap();
    let mut stream = tokenizer.stream();
    assert_eq!(stream.push(first_byte).unwrap(), "");
    assert_eq!(stream.finish(), "\u{fffd}");
}

#[test]
fn a_run_of_byte_tokens_waits_for_its_end() {
    let tokenizer = llama();
    let id = |token: &str| tokenizer.id(token).unwrap();
    let mut stream = tokenizer.stream();
    let mut push = |token: &str| stream.push(id(token)).unwrap();
    assert_eq!(push("a"), "a");
    assert_eq!(push("<0xC3>"), "");
    assert_eq!(push("<0xA9>"), "");
    assert_eq!(push("b"), "éb");
    // The first bad byte invalidates the whole run, as in the reference; from there on nothing is held back.
    assert_eq!(push("<0x41>"), "");
    assert_eq!(push("<0xFF>"), "\u{fffd}\u{fffd}");
    assert_eq!(push("<0x42>"), "\u{fffd}");
    assert_eq!(push("<0x0A>"), "\u{fffd}");
    assert_eq!(push("c"), "c");
    assert_eq!(push("<0x42>"), "");
    assert_eq!(stream.finish(), "B");
}

#[test]
fn the_leading_space_is_stripped_once() {
    let tokenizer = llama();
    let mut stream = tokenizer.stream();
    let ids = tokenizer.encode("the the", true).unwrap();
    let pieces: Vec<_> = ids.iter().map(|id| stream.push(*id).unwrap()).collect();
    assert_eq!(pieces.concat(), "the the");
    assert_eq!(pieces[0], "", "BOS is special");
}

#[test]
fn an_unknown_id_changes_nothing() {
    let tokenizer = byte_level();
    let mut stream = tokenizer.stream();
    let bytes: Vec<_> = ["ð", "Ł", "ĺ", "Ģ"].iter().map(|token| tokenizer.id(token).unwrap()).collect();
    for (i, id) in bytes.iter().enumerate() {
        assert!(stream.push(9999).is_err());
        assert_eq!(stream.push(*id).unwrap(), if i == 3 { "😀" } else { "" });
    }
}
