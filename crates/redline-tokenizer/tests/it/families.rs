//! Ids and offsets of every family's form, compared with the reference library on real and generated texts.

use crate::dice::Dice;
use crate::forms::{self, Form};
use crate::repository;
use crate::strings;
use redline_tokenizer::{Encoder, Encoding};
use std::collections::BTreeMap;

/// Number of texts that each test draws; there are five such tests.
const GENERATED: usize = 20_000;

/// Describes a difference from the reference.
pub(crate) fn difference(form: &Form, text: &str, special: bool) -> Option<String> {
    let expected = form.library.encode(text, special).unwrap();
    let ids = form.ours.encode(text, special).unwrap();
    if ids != expected.get_ids() {
        let tokens: Vec<_> = ids.iter().map(|id| form.ours.token(*id).unwrap_or_default()).collect();
        return Some(format!("special {special}: ids of {tokens:?} instead of {:?}", expected.get_tokens()));
    }
    let Encoding { ids: again, offsets } = form.ours.encode_with_offsets(text, special).unwrap();
    let offsets: Vec<_> = offsets.into_iter().map(|place| (place.start, place.end)).collect();
    if again != ids {
        return Some(format!("special {special}: {again:?} with offsets, {ids:?} without"));
    }
    let places = expected.get_offsets();
    (offsets != places).then(|| format!("special {special}: places {offsets:?} instead of {places:?}"))
}

/// The difference, and the shortest text found that still shows it.
pub(crate) fn fault(form: &Form, text: &str, specials: &[bool]) -> Option<String> {
    let differs = |text: &str| specials.iter().find_map(|special| difference(form, text, *special));
    let (text, what) = shrunk(text, differs(text)?, differs);
    Some(format!("{}: {text:?}: {what}", form.name))
}

/// Maximum number of attempts to shorten a text, because each one on a long text is slow.
const TRIES: usize = 500;

/// Removes ever smaller parts of the text while the difference remains.
fn shrunk(text: &str, mut what: String, differs: impl Fn(&str) -> Option<String>) -> (String, String) {
    let mut left: Vec<char> = text.chars().collect();
    let mut size = left.len();
    let mut tries = 0;
    while size > 0 {
        let mut at = 0;
        while at < left.len() && tries < TRIES {
            tries += 1;
            let rest: String = left[..at].iter().chain(left.iter().skip(at + size)).collect();
            match differs(&rest) {
                Some(still) => (left, what) = (rest.chars().collect(), still),
                None => at += size,
            }
        }
        size /= 2;
    }
    (left.into_iter().collect(), what)
}

/// Fails with the first difference of every form.
fn check_generated(forms: &[Form], seed: u64) {
    let mut dice = Dice::new(seed);
    let mut faults = BTreeMap::new();
    for i in 0..GENERATED {
        let form = &forms[i % forms.len()];
        let text = strings::text(&mut dice, form);
        if !faults.contains_key(&form.name) {
            faults.extend(fault(form, &text, &[false, true]).map(|fault| (&form.name, fault)));
        }
    }
    assert!(faults.is_empty(), "{:#?}", faults.values());
}

/// Whether every form encodes every file. This takes minutes in a debug build, so it must be enabled at build time.
/// By default, forms take turns with the pieces of the files.
const EVERY: bool = option_env!("REDLINE_TOKENIZER_EVERY_FILE").is_some();

/// Checks files in pieces and as a whole. Fails with the first difference of every form.
fn check_files(forms: &[Form]) {
    let mut dice = Dice::new(1);
    let mut faults = BTreeMap::new();
    let mut next = 0;
    for (name, text) in repository::files() {
        for piece in repository::pieces(&text, &mut dice).into_iter().chain([text.as_str()]) {
            next += 1;
            let turn = next % forms.len();
            for form in if EVERY { forms } else { &forms[turn..=turn] } {
                if !faults.contains_key(&form.name) {
                    let fault = fault(form, piece, &[true]);
                    faults.extend(fault.map(|fault| (&form.name, format!("{name}: {fault}"))));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{:#?}", faults.values());
}

#[test]
fn the_native_encoder_covers_every_family() {
    let left: Vec<_> = forms::families()
        .filter(|form| form.ours.encoder() != Encoder::Native)
        .map(|form| format!("{}: {}", form.name, form.ours.fallback().unwrap_or("no reason")))
        .collect();
    assert!(left.is_empty(), "the library encodes for {left:#?}");
}

#[test]
fn files_byte_level() {
    check_files(&forms::BYTE_LEVEL);
}

#[test]
fn files_sentencepiece() {
    check_files(&forms::SENTENCEPIECE);
}

#[test]
fn files_with_added_tokens() {
    check_files(&forms::ADDED);
}

#[test]
fn generated_byte_level() {
    check_generated(&forms::BYTE_LEVEL, 1);
}

#[test]
fn generated_sentencepiece() {
    check_generated(&forms::SENTENCEPIECE, 2);
}

#[test]
fn generated_with_unknown_characters() {
    check_generated(&forms::UNKNOWN, 3);
}

#[test]
fn generated_with_added_tokens() {
    check_generated(&forms::ADDED, 4);
}

#[test]
fn generated_with_every_post_processor() {
    check_generated(&forms::POST_PROCESSED, 5);
}

/// The texts distinguish the forms: for each pair of forms with different rules, some text has different ids.
#[test]
fn generated_texts_tell_the_forms_apart() {
    for forms in [&forms::BYTE_LEVEL, &forms::SENTENCEPIECE] {
        let mut dice = Dice::new(6);
        let texts: Vec<String> = (0..2000).map(|_| strings::text(&mut dice, &forms[0])).collect();
        let ids = |form: &Form| -> Vec<Vec<u32>> {
            texts.iter().map(|text| form.ours.encode(text, false).unwrap()).collect()
        };
        let all: Vec<_> = forms.iter().map(|form| (ids(form), &form.name)).collect();
        for (i, (ids, name)) in all.iter().enumerate() {
            for (others, other) in &all[i + 1..] {
                // If no token contains a space, Gemma's split has nothing to do after its normaliser.
                let same = *name == "gemma" && *other == "mistral never split false";
                assert_eq!(ids == others, same, "{name} and {other}");
            }
        }
    }
}

#[test]
fn byte_level_texts_come_back() {
    let mut dice = Dice::new(7);
    let plain = |form: &&Form| {
        form.json["normalizer"].is_null() && form.json["pre_tokenizer"]["add_prefix_space"] != true
    };
    for form in forms::BYTE_LEVEL.iter().filter(plain) {
        for _ in 0..1000 {
            let text = strings::text(&mut dice, form);
            let ids = form.ours.encode(&text, false).unwrap();
            assert_eq!(form.ours.decode(&ids, false).unwrap(), text, "{}", form.name);
        }
    }
}

#[test]
fn batches_are_their_texts_one_by_one() {
    let files = repository::files();
    let mut dice = Dice::new(8);
    for form in forms::families() {
        let mut texts: Vec<String> = (0..40).map(|_| strings::text(&mut dice, form)).collect();
        // Some texts are long enough to be shared between threads.
        texts.extend((0..4).filter(|_| !files.is_empty()).map(|_| {
            let (_, text) = &files[dice.below(files.len())];
            text[..text.floor_char_boundary(12_000)].to_owned()
        }));
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let expected: Vec<_> = texts.iter().map(|text| form.ours.encode(text, true).unwrap()).collect();
        for threads in 1..=3 {
            let batch = form.ours.encode_batch(&texts, true, threads).unwrap();
            assert_eq!(batch, expected, "{} on {threads} threads", form.name);
        }
    }
}
