//! Random answers, token by token.

use redline_grammar::{GrammarKind, Matcher};

use crate::{Bytes, END, matcher, meets};
use redline_grammar::Words as _;

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

fn allowed(mask: &[u32]) -> Vec<u32> {
    (0..mask.len() as u32 * 32).filter(|id| mask[*id as usize / 32] >> (id % 32) & 1 == 1).collect()
}

/// An answer of random tokens; `None` if it became too long.
fn walk(matcher: &mut Matcher, random: &mut Random) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    for step in 0..400 {
        if matcher.is_complete() {
            return Some(text);
        }
        let all = allowed(matcher.mask());
        assert!(
            !all.is_empty(),
            "no token may come after {:?}: {:?}",
            String::from_utf8_lossy(&text),
            matcher.failure()
        );
        // An answer soon ends where it may.
        let token = if step > 20 && all.contains(&END) { END } else { all[random.below(all.len())] };
        assert!(matcher.accepts(token));
        matcher.push(token);
        if token != END {
            text.extend(Bytes.bytes(token));
        }
    }
    None
}

#[test]
fn every_answer_is_read_again_byte_by_byte() {
    let schemas = [
        r#"{"type":"object","properties":{"a":{"enum":["ab","true",null]},"b":{"type":"array","items":{"type":"boolean"},"maxItems":3}},"required":["a","b"],"additionalProperties":false}"#,
        r#"{"anyOf":[{"type":"integer","minimum":-5,"maximum":999},{"type":"string","maxLength":4}]}"#,
        r#"{"type":"array","prefixItems":[{"const":1},{"type":"string","format":"date"}],"items":false,"minItems":2}"#,
    ];
    let mut finished = 0;
    for schema in schemas {
        for seed in 0..40 {
            let mut answering = matcher(GrammarKind::JsonSchema, schema).unwrap();
            let Some(answer) = walk(&mut answering, &mut Random(seed)) else { continue };
            finished += 1;
            let text = String::from_utf8(answer).unwrap();
            serde_json::from_str::<serde_json::Value>(&text)
                .unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(meets(&mut matcher(GrammarKind::JsonSchema, schema).unwrap(), &text), "{schema}: {text}");
        }
    }
    assert!(finished > 100, "{finished} of 120 answers came to an end");
}

/// What a token allows next depends on the bytes before it, however they became tokens.
#[test]
fn what_may_come_depends_on_bytes_only() {
    let schema = r#"{"type":"object","properties":{"ab":{"type":"boolean"}},"required":["ab"],"additionalProperties":false}"#;
    let mask_after = |tokens: &[u32]| {
        let mut matcher = matcher(GrammarKind::JsonSchema, schema).unwrap();
        for token in tokens {
            matcher.push(*token);
        }
        matcher.mask().to_vec()
    };
    let byte = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
    // `{"`, `ab` and `":` are tokens too.
    let longer = mask_after(&[256, 261, 257]);
    assert_eq!(longer, mask_after(&byte("{\"ab\":")));
    assert!(longer.iter().any(|word| *word != 0));
}
