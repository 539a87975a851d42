//! Answers of chat models, through the parsers of all families: the pieces in which they come do not matter, and nothing takes long.
#![no_main]

mod families;

use families::{MARKS, TEMPLATES, marker};
use libfuzzer_sys::fuzz_target;
use redline_chat::{ChatFormat, Delta, Input, Marker, Parser, Tool, Tools};

/// The parts of an answer, each kind together.
fn parts(format: &ChatFormat, pieces: &[Result<Marker, String>], by_characters: bool) -> Vec<Delta> {
    let tool = |name: &str| Tool { name: name.to_owned(), ..Tool::default() };
    let mut parser = Parser::new(format.clone(), Tools(vec![tool("f"), tool("g")]), false, 3);
    let mut all: Vec<Delta> = Vec::new();
    let mut add = |new: Vec<Delta>| {
        for delta in new {
            match (all.last_mut(), delta) {
                (Some(Delta::Content(a)), Delta::Content(b))
                | (Some(Delta::Reasoning(a)), Delta::Reasoning(b))
                | (Some(Delta::Arguments(a)), Delta::Arguments(b)) => a.push_str(&b),
                (_, delta) => all.push(delta),
            }
        }
    };
    for piece in pieces {
        match piece {
            Ok(marker) => add(parser.push(Input::Marker(marker))),
            Err(text) if by_characters => {
                text.chars().for_each(|c| add(parser.push(Input::Text(c.encode_utf8(&mut [0; 4])))));
            }
            Err(text) => add(parser.push(Input::Text(text))),
        }
    }
    add(parser.finish());
    all
}

fuzz_target!(|data: &[u8]| {
    let Some((family, rest)) = data.split_first() else { return };
    let template = TEMPLATES[usize::from(*family) % TEMPLATES.len()];
    let has_tokens = family & 0x80 == 0;
    let format = ChatFormat::of_template(template, &|name| marker(name).filter(|_| has_tokens), Vec::new());
    let mut pieces = Vec::new();
    let mut text = Vec::new();
    for &byte in rest {
        let mark = byte.checked_sub(0xC8).and_then(|index| MARKS.get(usize::from(index)));
        match mark {
            Some(mark) => {
                pieces.push(Err(String::from_utf8_lossy(&std::mem::take(&mut text)).into_owned()));
                pieces.push(if has_tokens { Ok(marker(mark).unwrap()) } else { Err((*mark).to_owned()) });
            }
            None => text.push(byte),
        }
    }
    pieces.push(Err(String::from_utf8_lossy(&text).into_owned()));
    assert_eq!(parts(&format, &pieces, false), parts(&format, &pieces, true), "{template}");
});
