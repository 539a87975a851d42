//! The prefix cache: the same ids, with less work.

use crate::dice::Dice;
use crate::fixtures;
use crate::forms;
use crate::strings;
use redline_tokenizer::{PrefixCacheCounters, PrefixCacheOptions, Tokenizer};

fn cached(form: &str, entries: usize, bytes: usize) -> Tokenizer {
    fixtures::load(&forms::named(form).json).with_prefix_cache(PrefixCacheOptions { entries, bytes })
}

fn counters(tokenizer: &Tokenizer) -> PrefixCacheCounters {
    tokenizer.prefix_cache().unwrap()
}

#[test]
fn ids_do_not_depend_on_it() {
    let mut dice = Dice::new(12);
    for form in forms::families() {
        let mut tokenizer = fixtures::load(&form.json);
        for bytes in [1, 2, 3, 5, 8, 13, 21, 34] {
            tokenizer = tokenizer.with_prefix_cache(PrefixCacheOptions { entries: 4, bytes });
            for _ in 0..3 {
                let shared = strings::text(&mut dice, form) + &strings::text(&mut dice, form);
                let tails: Vec<_> = (0..3).map(|_| strings::text(&mut dice, form)).collect();
                // The texts share the cached prefix, or slightly less or more.
                let ends = (bytes.saturating_sub(4)..bytes + 5).filter(|end| shared.is_char_boundary(*end));
                for text in ends.flat_map(|end| tails.iter().map(move |tail| (end, tail))) {
                    let text = format!("{}{}", &shared[..text.0], text.1);
                    let expected = form.ours.encode(&text, true).unwrap();
                    let ids = tokenizer.encode(&text, true).unwrap();
                    assert_eq!(ids, expected, "{}, {bytes} bytes: {text:?}", form.name);
                }
            }
        }
        let PrefixCacheCounters { hits, misses, .. } = counters(&tokenizer);
        assert!(hits + misses <= 81, "{}: {hits} + {misses}, each text once", form.name);
    }
}

#[test]
fn what_it_did_is_counted() {
    let prompt = "You are the engine that reads the weights once, and again for every token. ";
    let tokenizer = cached("llama3", 2, 64);
    assert_eq!(counters(&tokenizer), PrefixCacheCounters::default());
    let mut reused = 0;
    for n in 0..10_u64 {
        let text = format!("{prompt}Question {n}?");
        assert_eq!(
            tokenizer.encode(&text, true).unwrap(),
            forms::named("llama3").ours.encode(&text, true).unwrap()
        );
        let counters = counters(&tokenizer);
        assert_eq!((counters.hits, counters.misses), (n, 1));
        let more = counters.reused_bytes - reused;
        // All but the last words, which following text could change.
        assert!(if n == 0 { more == 0 } else { (32..=64).contains(&more) }, "{more} bytes of 64");
        reused = counters.reused_bytes;
    }
    // 64 bytes end within "every", which following text could change: what is kept ends before it.
    assert!(prompt[..64].ends_with(" for ev"), "{}", &prompt[..64]);
    assert!((reused / 9) as usize <= 64 - " ev".len() && reused % 9 == 0, "{reused} bytes in 9 texts");
    // Too short to be looked up.
    tokenizer.encode(&prompt[..60], true).unwrap();
    assert_eq!((counters(&tokenizer).hits, counters(&tokenizer).misses), (9, 1));
    assert_eq!(fixtures::load(&forms::named("llama3").json).prefix_cache(), None);
}

#[test]
fn the_one_not_used_for_longest_makes_room() {
    let tokenizer = cached("gpt2", 2, 32);
    let hits = |beginning: &str| {
        let before = counters(&tokenizer).hits;
        tokenizer.encode(&format!("{beginning} and so on, and more of it"), false).unwrap();
        counters(&tokenizer).hits > before
    };
    let seen: Vec<bool> =
        ["aaaaaaaa", "bbbbbbbb", "aaaaaaaa", "cccccccc", "aaaaaaaa", "cccccccc", "bbbbbbbb", "aaaaaaaa"]
            .into_iter()
            .map(hits)
            .collect();
    assert_eq!(seen, [false, false, true, false, true, true, false, false]);
    let none = cached("gpt2", 0, 16);
    none.encode("nothing is kept of this", false).unwrap();
    none.encode("nothing is kept of this", false).unwrap();
    assert_eq!(counters(&none).hits, 0);
}

#[test]
fn threads_share_it() {
    let tokenizer = cached("qwen2", 3, 40);
    let beginning = "The river runs along the old road between the mill and the harbour. ";
    let texts: Vec<String> =
        (0..600).map(|n| format!("{}{beginning}{n}", ["", "a", "b", "c"][n % 4])).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let expected = forms::named("qwen2").ours.encode_batch(&texts, true, 1).unwrap();
    assert_eq!(tokenizer.encode_batch(&texts, true, 3).unwrap(), expected);
    let PrefixCacheCounters { hits, misses, .. } = counters(&tokenizer);
    assert_eq!(hits + misses, 600);
}

#[test]
fn a_text_that_is_not_longer_than_the_prefix_is_not_looked_up() {
    let tokenizer = cached("llama3", 2, 64);
    let text = "the river ".repeat(10);
    for (length, misses) in [(63, 0), (64, 0), (65, 1)] {
        tokenizer.encode(&text[..length], false).unwrap();
        assert_eq!((counters(&tokenizer).hits, counters(&tokenizer).misses), (0, misses), "{length} bytes");
    }
    // A prefix of no bytes is a prefix of every text.
    let nothing = cached("llama3", 2, 0);
    nothing.encode(&text, false).unwrap();
    assert_eq!(counters(&nothing), PrefixCacheCounters::default());
}

/// The beginning of a long word has no ids that a continuation could not change.
#[test]
fn a_prefix_of_which_nothing_can_be_kept_takes_no_room() {
    let tokenizer = cached("gpt2", 1, 32);
    let (useful, useless) = ("the river runs along the old road and on", "a".repeat(40));
    let mut hits = Vec::new();
    for text in [useful, useless.as_str(), useless.as_str(), useful] {
        tokenizer.encode(text, false).unwrap();
        hits.push(counters(&tokenizer).hits);
    }
    assert_eq!(hits, [0, 0, 0, 1]);
    assert_eq!(counters(&tokenizer).misses, 3);
}
