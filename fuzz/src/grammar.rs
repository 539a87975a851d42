//! Grammars of requests, of all kinds: what compiles gives masks that are never empty, as long as the answer goes on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use redline_grammar::{Compiler, Grammar, GrammarKind, Words};

const KINDS: [GrammarKind; 5] =
    [GrammarKind::JsonSchema, GrammarKind::Regex, GrammarKind::Lark, GrammarKind::Gbnf, GrammarKind::Choice];

/// A vocabulary of bytes and an end.
struct Bytes;

impl Words for Bytes {
    fn count(&self) -> usize {
        257
    }

    fn bytes(&self, id: u32) -> Vec<u8> {
        if id < 256 { vec![id as u8] } else { Vec::new() }
    }

    fn marker(&self, id: u32) -> Option<String> {
        (id == 256).then(|| "<end>".to_owned())
    }

    fn ends(&self) -> Vec<u32> {
        vec![256]
    }
}

thread_local! {
    static COMPILER: Compiler = Compiler::new(Box::new(Bytes));
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, source)) = data.split_first() else { return };
    let Ok(source) = std::str::from_utf8(source) else { return };
    let grammar = Grammar::new(KINDS[usize::from(*kind) % KINDS.len()], source);
    let Ok(mut matcher) = COMPILER.with(|compiler| compiler.matcher(&grammar, None)) else { return };
    let mut random = data.iter().fold(1_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    for _ in 0..64 {
        if matcher.is_complete() {
            return;
        }
        let mask = matcher.mask().to_vec();
        let all: Vec<u32> = (0..257)
            .filter(|id| mask.get(*id as usize / 32).is_some_and(|word| word >> (id % 32) & 1 == 1))
            .collect();
        // A limit of the library ends an answer with an error that says so.
        if matcher.failure().is_some() {
            return;
        }
        // Not every language of Lark has an end from everywhere.
        if all.is_empty() {
            return;
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let token = all[(random >> 33) as usize % all.len()];
        assert!(matcher.accepts(token));
        matcher.push(token);
        assert!(matcher.failure().is_none(), "{:?}", matcher.failure());
        if token == 256 {
            return;
        }
    }
});
