//! Schemas of tools whose calls are demanded, in the formats of all families: what may be written is read as a call of the tool.
#![no_main]

mod families;

use std::cell::RefCell;
use std::collections::HashMap;

use families::{MARKS, TEMPLATES, marker};
use libfuzzer_sys::fuzz_target;
use redline_chat::{ChatFormat, Delta, Demand, Input, Marker, Parser, Reasoned, Tool, Tools};
use redline_grammar::{Compiler, Words};

/// The token of the first mark; bytes come before it, and an end after the last.
const FIRST: u32 = 256;
const END: u32 = FIRST + MARKS.len() as u32;

/// A vocabulary of bytes, marks if it has them, and an end.
struct Bytes {
    has_marks: bool,
}

impl Words for Bytes {
    fn count(&self) -> usize {
        END as usize + 1
    }

    fn bytes(&self, id: u32) -> Vec<u8> {
        if id < FIRST { vec![id as u8] } else { Vec::new() }
    }

    fn marker(&self, id: u32) -> Option<String> {
        match id.checked_sub(FIRST)? as usize {
            index if index == MARKS.len() => Some("<end>".to_owned()),
            index => Some(if self.has_marks { MARKS[index].to_owned() } else { format!("<unused {index}>") }),
        }
    }

    fn ends(&self) -> Vec<u32> {
        vec![END]
    }
}

thread_local! {
    static COMPILERS: RefCell<HashMap<bool, Compiler>> = RefCell::default();
}

fuzz_target!(|data: &[u8]| {
    let Some((family, schema)) = data.split_first() else { return };
    let template = TEMPLATES[usize::from(*family & 0x1F) % TEMPLATES.len()];
    let (has_marks, strict, parallel) = (family & 0x80 == 0, family & 0x40 == 0, family & 0x20 == 0);
    let Ok(serde_json::Value::Object(mut schema)) = serde_json::from_slice(schema) else { return };
    // Arguments are an object, which the server sees to.
    schema.insert("type".to_owned(), "object".into());
    let marker = |name: &str| {
        marker(name).filter(|_| has_marks).map(|marker| Marker { id: marker.id + FIRST, ..marker })
    };
    let format = ChatFormat::of_template(template, &marker, (FIRST..=END).collect());
    let tools = Tools(vec![Tool { name: "f".to_owned(), parameters: Some(schema.into()), strict }]);
    let Ok(grammar) = format.grammar(&tools, &Demand::Calls, parallel, Reasoned::No, None) else { return };
    let matcher = COMPILERS.with_borrow_mut(|all| {
        let compiler = all.entry(has_marks).or_insert_with(|| Compiler::new(Box::new(Bytes { has_marks })));
        compiler.matcher(&grammar, None)
    });
    let Ok(mut matcher) = matcher else { return };
    let mut parser = Parser::new(format, tools, false, usize::MAX);
    let mut deltas = Vec::new();
    let mut text = Vec::new();
    let mut random = data.iter().fold(1_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    let mut ended = false;
    for _ in 0..400 {
        ended = matcher.is_complete();
        if ended {
            break;
        }
        let mask = matcher.mask().to_vec();
        // Characters of ASCII, so that texts are read as they were written.
        let is_in = |id: &u32| mask.get(*id as usize / 32).is_some_and(|word| word >> (id % 32) & 1 == 1);
        let all: Vec<u32> = (0..=END).filter(|id| (*id < 128 || *id >= FIRST) && is_in(id)).collect();
        if matcher.failure().is_some() || all.is_empty() {
            return;
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // What ends something is chosen often.
        let closing: Vec<u32> =
            all.iter().copied().filter(|id| *id >= FIRST || b"\"]})<\n".contains(&(*id as u8))).collect();
        let from = if closing.is_empty() || random >> 62 != 0 { &all } else { &closing };
        let token = from[(random >> 33) as usize % from.len()];
        matcher.push(token);
        if token == END {
            ended = true;
            break;
        }
        if token < FIRST {
            text.push(token as u8);
        } else {
            deltas.extend(parser.push(Input::Text(&String::from_utf8_lossy(&std::mem::take(&mut text)))));
            let marker = marker(MARKS[(token - FIRST) as usize]).unwrap();
            deltas.extend(parser.push(Input::Marker(&marker)));
        }
    }
    deltas.extend(parser.push(Input::Text(&String::from_utf8_lossy(&text))));
    deltas.extend(parser.finish());
    if !ended {
        return;
    }
    let mut arguments: Vec<String> = Vec::new();
    for delta in &deltas {
        match delta {
            Delta::Call(name) => {
                assert_eq!(name, "f", "{template}");
                arguments.push(String::new());
            }
            Delta::Arguments(json) => arguments.last_mut().unwrap().push_str(json),
            Delta::Content(text) => assert!(text.trim().is_empty(), "{template}: {text:?}"),
            Delta::Reasoning(_) => {}
        }
    }
    assert!(!arguments.is_empty(), "{template}: {deltas:?}");
    for json in arguments {
        let value = serde_json::from_str::<serde_json::Value>(&json);
        assert!(value.as_ref().is_ok_and(serde_json::Value::is_object) || is_large(&json), "{template}: {json}");
    }
});

/// Whether there may be a number that no double holds.
fn is_large(json: &str) -> bool {
    json.contains(['e', 'E'])
}
