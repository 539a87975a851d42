//! Vocabularies padded to the size of a real model.

use crate::fixtures;
use redline_tokenizer::{Tokenizer, TokenizerError, padded};

#[test]
fn text_and_its_ids_stay_the_same() {
    for name in ["byte_level.json", "llama.json"] {
        let small = std::fs::read(fixtures::path(name)).unwrap();
        let large = padded(&small, 5000).unwrap();
        let (before, after) =
            (Tokenizer::from_bytes(name, &small).unwrap(), Tokenizer::from_bytes(name, &large).unwrap());
        assert_eq!(after.vocab_size(), 5000);
        for text in ["The river, the <s> and the <|mask|>!", "你好 😀", "<|unused_0|><think>redline</think>"]
        {
            let ids = before.encode(text, true).unwrap();
            assert_eq!(after.encode(text, true).unwrap(), ids);
            assert_eq!(after.decode(&ids, true).unwrap(), before.decode(&ids, true).unwrap());
        }
        let first = before.vocab_size() as u32;
        assert_eq!(after.token(first).unwrap(), "<|unused_0|>");
        assert_eq!(after.token_text(first).unwrap(), "<|unused_0|>");
        assert!((0..5000).all(|id| after.token(id).is_some()));

        let library = tokenizers::Tokenizer::from_bytes(&large).unwrap();
        assert_eq!(library.get_vocab_size(true), 5000);
        let id_in_library = |id| library.token_to_id(&after.token(id).unwrap());
        assert!((0..5000).all(|id| id_in_library(id) == Some(id)));
    }
}

#[test]
fn the_same_size_is_the_same_vocabulary_and_padding_twice_is_padding_once() {
    let small = std::fs::read(fixtures::path("byte_level.json")).unwrap();
    let same = padded(&small, 706).unwrap();
    assert_eq!(Tokenizer::from_bytes("same", &same).unwrap().vocab_size(), 706);
    let once = padded(&small, 1000).unwrap();
    let twice = padded(&padded(&small, 800).unwrap(), 1000).unwrap();
    assert_eq!(once, twice);
}

#[test]
fn cannot_shrink_or_grow_without_bound() {
    let small = std::fs::read(fixtures::path("byte_level.json")).unwrap();
    let error = padded(&small, 705).unwrap_err();
    assert!(matches!(error, TokenizerError::CannotShrink { has: 706, size: 705 }), "{error:?}");
    assert!(error.hint().unwrap().contains("706"));
    assert!(matches!(padded(&small, usize::MAX).unwrap_err(), TokenizerError::IdTooLarge { .. }));
    let error = padded(&small, (1 << 24) + 1).unwrap_err();
    assert!(
        matches!(error, TokenizerError::IdTooLarge { id: 0x100_0000, limit: 0xff_ffff, .. }),
        "{error:?}"
    );
    assert!(padded(b"{}", 100).is_err());
}

#[test]
fn an_id_without_a_token_below_the_highest_gets_one_too() {
    let mut value = fixtures::json("llama.json");
    value["added_tokens"].as_array_mut().unwrap().pop();
    value["model"]["vocab"].as_object_mut().unwrap().insert("far".to_owned(), 802.into());
    let large = padded(value.to_string().as_bytes(), 805).unwrap();
    let tokenizer = Tokenizer::from_bytes("padded", &large).unwrap();
    let tokens: Vec<String> = (800..805).filter_map(|id| tokenizer.token(id)).collect();
    assert_eq!(tokens, ["<|unused_0|>", "<|unused_1|>", "far", "<|unused_2|>", "<|unused_3|>"]);
}
