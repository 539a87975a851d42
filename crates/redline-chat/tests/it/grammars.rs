//! Answers that have to be calls: whatever a model writes under the grammar is read as a call of a tool, with arguments of its schema.

use redline_chat::{Demand, Input, Marker, Parser, Reasoned, Subject, Tools};
use redline_grammar::{Compiler, Grammar, GrammarKind, Matcher, Words};
use serde_json::{Value, json};

use crate::{FIRST, MARKS, TEMPLATES, Whole, format, marker, tools};

const END: u32 = FIRST + MARKS.len() as u32;

/// A vocabulary of bytes and marks.
pub(crate) struct Bytes;

impl Words for Bytes {
    fn count(&self) -> usize {
        END as usize + 1
    }

    fn bytes(&self, id: u32) -> Vec<u8> {
        if id < FIRST { vec![id as u8] } else { Vec::new() }
    }

    fn marker(&self, id: u32) -> Option<String> {
        if id == END {
            Some("<end>".to_owned())
        } else {
            Some((*MARKS.get(id.checked_sub(FIRST)? as usize)?).to_owned())
        }
    }

    fn ends(&self) -> Vec<u32> {
        vec![END]
    }
}

pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// A random answer; printable characters, so that it ends.
pub(crate) fn walk(matcher: &mut Matcher, random: &mut Random) -> Option<Vec<u32>> {
    let mut tokens = Vec::new();
    for _ in 0..1000 {
        if matcher.is_complete() {
            return Some(tokens);
        }
        let mask = matcher.mask().to_vec();
        let all: Vec<u32> = (0..=END).filter(|id| mask[*id as usize / 32] >> (id % 32) & 1 == 1).collect();
        assert!(!all.is_empty(), "no token may come after {:?}: {:?}", written(&tokens), matcher.failure());
        // What ends a string, a list or the answer is chosen often.
        let closing: Vec<u32> =
            all.iter().copied().filter(|id| *id >= FIRST || b"\"]}</".contains(&(*id as u8))).collect();
        let from = if !closing.is_empty() && random.below(3) == 0 { &closing } else { &all };
        let token = from[random.below(from.len())];
        matcher.push(token);
        if token == END {
            return Some(tokens);
        }
        tokens.push(token);
    }
    None
}

pub(crate) fn written(tokens: &[u32]) -> String {
    let piece = |id: &u32| {
        if *id < FIRST { vec![*id as u8] } else { MARKS[(*id - FIRST) as usize].as_bytes().to_vec() }
    };
    String::from_utf8_lossy(&tokens.iter().flat_map(piece).collect::<Vec<_>>()).into_owned()
}

pub(crate) fn read(family: &str, tools: Tools, tokens: &[u32], reasons: bool) -> Whole {
    let mut parser = Parser::new(format(family, true), tools, reasons, usize::MAX);
    let mut whole = Whole::default();
    let mut bytes = Vec::new();
    for id in tokens {
        if *id < FIRST {
            bytes.push(*id as u8);
        } else {
            whole.add(parser.push(Input::Text(&String::from_utf8_lossy(&std::mem::take(&mut bytes)))));
            whole.add(parser.push(Input::Marker(&marker(MARKS[(*id - FIRST) as usize]).unwrap())));
        }
    }
    whole.add(parser.push(Input::Text(&String::from_utf8_lossy(&bytes))));
    whole.add(parser.finish());
    whole
}

#[test]
fn whatever_is_written_is_a_call() {
    let compiler = Compiler::new(Box::new(Bytes));
    let mut forced = 0;
    for (family, _) in TEMPLATES {
        for parallel in [false, true] {
            let grammar =
                format(family, true).grammar(&tools(), &Demand::Calls, parallel, Reasoned::No, None);
            let Ok(grammar) = grammar else {
                assert!(family.contains("gemma"), "{family}: {grammar:?}");
                continue;
            };
            let matcher = compiler
                .matcher(&grammar, None)
                .unwrap_or_else(|error| panic!("{family}: {error}\n{}", grammar.source));
            let mut ended = 0;
            for seed in 0..30 {
                let Some(tokens) = walk(&mut matcher.clone(), &mut Random(seed)) else { continue };
                ended += 1;
                let whole = read(family, tools(), &tokens, false);
                assert!(!whole.calls.is_empty(), "{family}: {}", written(&tokens));
                assert!(parallel || whole.calls.len() == 1, "{family}: {}", written(&tokens));
                assert_eq!(whole.content, "", "{family}: {}", written(&tokens));
                for (name, json) in &whole.calls {
                    let arguments: Value = serde_json::from_str(json)
                        .unwrap_or_else(|error| panic!("{family}: {json}: {error}"));
                    let arguments = arguments.as_object().unwrap();
                    let known = ["text", "count", "on", "nested"];
                    assert!(arguments.keys().all(|key| known.contains(&&**key)), "{family}: {json}");
                    assert!(
                        match &**name {
                            "now" => arguments.is_empty(),
                            _ =>
                                arguments["text"].is_string()
                                    && arguments.get("count").is_none_or(Value::is_number),
                        },
                        "{family}: {name} {json}"
                    );
                }
            }
            assert!(ended > 10, "{family}: {ended} of 30 answers came to an end");
            forced += 1;
        }
    }
    assert_eq!(forced, 2 * (TEMPLATES.len() - 2));
}

/// Whether a text may be written, its marks as tokens, and may then end.
fn meets(matcher: &Matcher, text: &str) -> bool {
    accepts(matcher, &crate::inputs(text, true))
}

/// As [`meets`], for what is given in pieces.
pub(crate) fn accepts(matcher: &Matcher, pieces: &[Result<Marker, String>]) -> bool {
    let mut matcher = matcher.clone();
    for piece in pieces {
        let ids = match piece {
            Ok(marker) => vec![marker.id],
            Err(text) => text.bytes().map(u32::from).collect(),
        };
        for id in ids {
            if !matcher.accepts(id) {
                return false;
            }
            matcher.push(id);
        }
    }
    matcher.is_complete() || matcher.accepts(END)
}

#[test]
fn a_grammar_begins_after_reasoning() {
    let compiler = Compiler::new(Box::new(Bytes));
    let text = Grammar::new(GrammarKind::JsonSchema, r#"{"type":"integer"}"#);
    let compiled = |demand: &Demand, parallel, reasoned, most| {
        let grammar = format("hermes", true).grammar(&tools(), demand, parallel, reasoned, most).unwrap();
        compiler.matcher(&grammar, None).unwrap_or_else(|error| panic!("{error}\n{}", grammar.source))
    };
    let number = Demand::Text(text.clone());
    let call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    let open = compiled(&number, false, Reasoned::Open, None);
    assert!(meets(&open, "Well {\"}: </thin</think>\n\n5"));
    assert!(!meets(&open, "5") && !meets(&open, "x</think>y") && !meets(&open, "x<tool_call></think>5"));
    let maybe = compiled(&number, false, Reasoned::Maybe, None);
    assert!(meets(&maybe, "5") && meets(&maybe, "<think>x</think>5") && !meets(&maybe, "x</think>5"));
    let short = compiled(&number, false, Reasoned::Open, Some(3));
    assert!(meets(&short, "abc</think>5") && meets(&short, "</think>5") && !meets(&short, "abcd</think>5"));
    let either = compiled(&Demand::CallsOrText(text), false, Reasoned::Maybe, None);
    assert!(meets(&either, "5"));
    assert!(meets(&either, call));
    assert!(meets(&either, &format!("<think>\nx\n</think>\n\n{call}")) && !meets(&either, "x"));
    let anything = compiled(&Demand::Anything, false, Reasoned::Open, Some(2));
    assert!(meets(&anything, "ab</think>any text\n") && !meets(&anything, "abc</think>x"));
    assert!(meets(&anything, &format!("a</think>{call}")), "a limit of reasoning leaves calls as they are");
    let free = compiled(&Demand::TextAndCalls, false, Reasoned::Maybe, None);
    assert!(meets(&free, "any {text}") && meets(&free, &format!("x {call}")) && meets(&free, call));
    assert!(!meets(&free, "<tool_call>\n{\"name\": \"other\"") && !meets(&free, &format!("{call}{call}")));
    let calls = compiled(&Demand::Calls, true, Reasoned::Open, None);
    assert!(
        meets(&calls, &format!("x</think>\n\n{call}\n{call}"))
            && !meets(&calls, &format!("x</think>y{call}"))
    );
}

#[test]
fn a_text_of_a_grammar_comes_in_the_last_channel() {
    let compiler = Compiler::new(Box::new(Bytes));
    let text = Demand::Text(Grammar::new(GrammarKind::JsonSchema, r#"{"type":"integer"}"#));
    let grammar = format("harmony", true).grammar(&tools(), &text, false, Reasoned::No, None).unwrap();
    let matcher = compiler.matcher(&grammar, None).unwrap();
    let last = "<|channel|>final<|message|>5";
    assert!(meets(&matcher, last));
    assert!(meets(&matcher, &format!("<|channel|>analysis<|message|>Hm<|end|><|start|>assistant{last}")));
    assert!(!meets(&matcher, "<|channel|>final<|message|>x") && !meets(&matcher, "5"));
    let limited = format("harmony", true).grammar(&tools(), &Demand::Anything, false, Reasoned::No, Some(5));
    assert_eq!(limited.unwrap_err().subject, Subject::Reasoning);
}

#[test]
fn reasoning_whose_end_is_no_token_is_followed_too() {
    let compiler = Compiler::new(Box::new(Bytes));
    let text = Demand::Text(Grammar::new(GrammarKind::Choice, r#"["yes"]"#));
    let format = format("hermes", false);
    let grammar = format.grammar(&tools(), &text, false, Reasoned::Open, None).unwrap();
    let matcher = compiler.matcher(&grammar, None).unwrap();
    let accepts = |text: &str| {
        let mut matcher = matcher.clone();
        let all = text.bytes().all(|byte| {
            matcher.accepts(byte.into()) && {
                matcher.push(byte.into());
                true
            }
        });
        all && (matcher.is_complete() || matcher.accepts(END))
    };
    assert!(accepts("no\n</think>yes") && !accepts("no</think>no") && !accepts("yes"));
    let error = format.grammar(&tools(), &text, false, Reasoned::Open, Some(5)).unwrap_err();
    assert_eq!(error.subject, Subject::Reasoning, "{error}");
}

#[test]
fn a_tool_with_a_schema_that_cannot_be_met_is_named() {
    let mut tools = tools();
    tools.0[1].parameters = Some(json!({ "type": "object", "not": {} }));
    let demand = Demand::Calls;
    let error = format("hermes", true).grammar(&tools, &demand, false, Reasoned::No, None).unwrap_err();
    assert_eq!(error.subject, Subject::Tool(1));
    assert!(error.fact.contains("#/not"), "{error}");
    tools.0[1].strict = false;
    assert!(format("hermes", true).grammar(&tools, &demand, false, Reasoned::No, None).is_ok());
    let error = format("gemma4", true).grammar(&tools, &demand, false, Reasoned::No, None).unwrap_err();
    assert!(error.subject == Subject::Demand && error.fact.contains("gemma4"), "{error}");
}
