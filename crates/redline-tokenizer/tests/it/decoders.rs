//! Compares decoding with the reference library, on ids that no text would produce.

use crate::fixtures;
use proptest::prelude::*;
use redline_tokenizer::Tokenizer;
use std::sync::LazyLock;

type Pair = (String, Tokenizer, tokenizers::Tokenizer);

static PAIRS: LazyLock<Vec<Pair>> = LazyLock::new(|| {
    let pair = |value: &serde_json::Value| {
        (value["decoder"].to_string(), fixtures::load(value), fixtures::library(value))
    };
    fixtures::decoder_variations().iter().map(pair).collect()
});

/// Ids of both fixtures (the smaller has 706), low ones more often, because they are the single bytes.
fn ids() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(prop_oneof![0..260_u32, 0..706_u32], 0..40)
}

proptest! {
    #[test]
    fn decoding_is_the_librarys(ids in ids(), skip in any::<bool>()) {
        for (name, ours, library) in PAIRS.iter() {
            prop_assert_eq!(ours.decode(&ids, skip).unwrap(), library.decode(&ids, skip).unwrap(), "{}", name);
        }
    }

    #[test]
    fn encoding_is_the_librarys(text in "(\\PC|[ \\n<>|▁'s0-9]|red ?line|<s>|<think>){0,30}") {
        for (name, ours, library) in PAIRS.iter().step_by(12) {
            let expected = library.encode_fast(text.as_str(), true).unwrap();
            prop_assert_eq!(ours.encode(&text, true).unwrap(), expected.get_ids(), "{}", name);
        }
    }
}

#[test]
fn strips_both_ends_of_the_whole_text() {
    let mut value = fixtures::json("llama.json");
    value["decoder"]["decoders"][3]["stop"] = 2.into();
    let tokenizer = fixtures::load(&value);
    let mark = tokenizer.id("▁").unwrap();
    let letter = tokenizer.id("a").unwrap();
    let decode = |ids: &[u32]| tokenizer.decode(ids, true).unwrap();
    assert_eq!(decode(&[mark, mark, letter, mark, letter, mark, mark, mark]), " a a ");
    assert_eq!(decode(&[mark, letter, mark]), "a");
    // The library panics if a token is shorter than the number of characters to strip.
    assert_eq!(decode(&[mark]), "");
    assert_eq!(decode(&[mark, mark, mark, mark]), " ");
    let mut stream = tokenizer.stream();
    let pushed: Vec<_> = [letter, mark, mark, mark, letter].map(|id| stream.push(id).unwrap()).into();
    assert_eq!(pushed, ["a", "", "", " ", "  a"]);
}

#[test]
fn a_strip_before_tokens_are_joined_strips_both_ends_of_each() {
    let mut value = fixtures::json("llama.json");
    let replace = value["decoder"]["decoders"][0].clone();
    for (content, start, stop) in [("e", 0, 1), ("e", 1, 1), (" ", 1, 1), ("t", 1, 0), ("h", 0, 2)] {
        let strip = serde_json::json!({ "type": "Strip", "content": content, "start": start, "stop": stop });
        value["decoder"] = serde_json::json!({ "type": "Sequence", "decoders": [replace, strip] });
        let (ours, library) = (fixtures::load(&value), fixtures::library(&value));
        let ids: Vec<u32> = ["▁the", "the", "th"].iter().map(|token| ours.id(token).unwrap()).collect();
        let expected = library.decode(&ids, true).unwrap();
        assert_eq!(ours.decode(&ids, true).unwrap(), expected, "{content:?}, {start} and {stop}");
        if (content, start) == ("e", 0) {
            assert_eq!(expected, " ththth");
        }
    }
}

/// A token with a character that is in no byte's place stands for its own UTF-8.
#[test]
fn a_token_with_characters_of_no_byte_leaves_the_bytes_before_it() {
    let mut value = fixtures::json("byte_level.json");
    let mut spaced = value["added_tokens"][3].clone();
    (spaced["id"], spaced["content"]) = (706.into(), "so it is".into());
    value["added_tokens"].as_array_mut().unwrap().push(spaced);
    let (ours, library) = (fixtures::load(&value), fixtures::library(&value));
    let open = ours.id("ð").unwrap();
    for ids in [&[open, 706][..], &[open, open, 706, open], &[706, 706]] {
        assert_eq!(ours.decode(ids, true).unwrap(), library.decode(ids, true).unwrap(), "{ids:?}");
    }
    let mut stream = ours.stream();
    assert_eq!(stream.push(open).unwrap(), "");
    assert_eq!(stream.push(706).unwrap(), "\u{fffd}so it is");
}

/// Older files say `add_prefix_space` instead of `prepend_scheme`.
#[test]
fn the_first_mark_is_a_space_unless_one_was_put_there() {
    let mut value = fixtures::json("llama.json");
    for (key, setting, text) in [
        ("add_prefix_space", serde_json::json!(false), " the"),
        ("add_prefix_space", serde_json::json!(true), "the"),
        ("prepend_scheme", serde_json::json!("never"), " the"),
        ("str_rep", serde_json::json!("▁"), "the"),
    ] {
        value["decoder"] = serde_json::json!({ "type": "Metaspace", "replacement": "▁", key: setting });
        let tokenizer = fixtures::load(&value);
        let the = tokenizer.id("▁the").unwrap();
        assert_eq!(tokenizer.decode(&[the], true).unwrap(), text, "{}", value["decoder"]);
    }
}

#[test]
fn a_character_left_open_comes_after_the_spaces_that_were_held_back() {
    let mut value = fixtures::json("byte_level.json");
    let strip = serde_json::json!({ "type": "Strip", "content": " ", "start": 0, "stop": 1 });
    value["decoder"] =
        serde_json::json!({ "type": "Sequence", "decoders": [{ "type": "ByteLevel" }, strip] });
    let ours = fixtures::load(&value);
    let [a, space, open] = ["a", "Ġ", "ð"].map(|token| ours.id(token).unwrap());
    let decode = |ids: &[u32]| ours.decode(ids, true).unwrap();
    assert_eq!(decode(&[a, space, open]), "a \u{fffd}");
    assert_eq!([decode(&[a, space]), decode(&[a, space, space])], ["a", "a "]);
}
