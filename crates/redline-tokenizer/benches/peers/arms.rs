//! The encoders compared: this crate with different settings, and other crates, all with the same vocabulary.

use crate::texts::Texts;
use crate::vocabulary::Public;
use kitoken::Kitoken;
use redline_tokenizer::{PrefixCacheOptions, Tokenizer};

type Encode = Box<dyn Fn(&[&str]) -> Vec<Vec<u32>>>;

/// An encoder.
pub(crate) struct Arm {
    pub(crate) name: &'static str,
    /// Whether it only runs on texts with a common prefix.
    pub(crate) alike: bool,
    encode: Encode,
    /// Whether different ids are an error.
    exact: bool,
}

impl Arm {
    /// Encodes all texts.
    pub(crate) fn run(&self, texts: &Texts) -> Vec<Vec<u32>> {
        let texts: Vec<&str> = texts.texts.iter().map(String::as_str).collect();
        (self.encode)(&texts)
    }

    /// Compares its ids with those of another encoder. A difference of an inexact peer is reported.
    pub(crate) fn agreement(&self, first: &Self, texts: &Texts) -> String {
        let (ids, expected) = (self.run(texts), first.run(texts));
        let apart = ids.iter().zip(&expected).filter(|(ids, expected)| ids != expected).count();
        assert!(!self.exact || apart == 0, "{}, {}: other ids in {apart} texts", texts.name, self.name);
        if apart == 0 { String::new() } else { format!("   other ids in {apart} texts") }
    }
}

fn one_by_one(name: &'static str, encode: impl Fn(&str) -> Vec<u32> + 'static) -> Arm {
    let encode = Box::new(move |texts: &[&str]| texts.iter().map(|text| encode(text)).collect());
    Arm { name, alike: false, encode, exact: true }
}

/// All encoders, ours first. The prefix cache covers `bytes` bytes of each text.
pub(crate) fn all(public: &Public, bytes: usize) -> Vec<Arm> {
    let json = public.json(&[]).to_string().into_bytes();
    let load = || Tokenizer::from_bytes(public.name, &json).expect("the vocabulary loads");
    let (ours, threads) = (load(), load());
    let cached = load().with_prefix_cache(PrefixCacheOptions { entries: 16, bytes });
    println!("ours: {:?} {}", ours.encoder(), ours.fallback().unwrap_or(""));
    let load = || tokenizers::Tokenizer::from_bytes(&json).expect("the library loads the vocabulary");
    let (full, fast) = (load(), load());
    let peer = (public.peer)();
    let kitoken = Kitoken::from_tokenizers_slice(&json).expect("kitoken loads the vocabulary");
    vec![
        one_by_one("ours", move |text| ours.encode(text, false).expect("ids")),
        Arm {
            alike: true,
            ..one_by_one("ours, prefix cache", move |text| cached.encode(text, false).expect("ids"))
        },
        Arm {
            encode: Box::new(move |texts| threads.encode_batch(texts, false, 2).expect("ids")),
            ..one_by_one("ours, 2 threads", |_| Vec::new())
        },
        one_by_one("tokenizers, encode_fast", move |text| {
            fast.encode_fast(text, false).expect("ids").get_ids().to_vec()
        }),
        one_by_one("tokenizers, encode", move |text| {
            full.encode(text, false).expect("ids").get_ids().to_vec()
        }),
        one_by_one("bpe-openai", move |text| peer.encode(text)),
        Arm { exact: false, ..one_by_one("kitoken", move |text| kitoken.encode(text, false).expect("ids")) },
    ]
}
