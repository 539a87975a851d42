//! Answers that have to be calls: whatever a model writes under the grammar is read as a call of a tool, with arguments of its schema.

use redline_chat::{Demand, Input, Marker, Parser, Reasoned, Subject, Tool, Tools};
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
    for (family, _) in TEMPLATES {
        for parallel in [false, true] {
            let grammar =
                format(family, true).grammar(&tools(), &Demand::Calls, parallel, Reasoned::No, None).unwrap();
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
        }
    }
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
}

/// A tool with these properties, of which all are required, and the matcher of its calls.
fn matcher_of(family: &str, has_tokens: bool, strict: bool, properties: Value) -> Result<Matcher, String> {
    let names: Vec<&String> = properties.as_object().unwrap().keys().collect();
    let schema = json!({ "type": "object", "properties": properties, "required": names, "additionalProperties": false });
    let tools = Tools(vec![Tool { name: "f".to_owned(), parameters: Some(schema), strict }]);
    let grammar = format(family, has_tokens).grammar(&tools, &Demand::Calls, false, Reasoned::No, None);
    let grammar = grammar.map_err(|error| format!("{error}; {}", error.hint))?;
    let compiler = Compiler::new(Box::new(Bytes));
    Ok(compiler
        .matcher(&grammar, None)
        .unwrap_or_else(|error| panic!("{family}: {error}\n{}", grammar.source)))
}

/// Texts that are written as they are meet lengths, patterns, formats and lists.
#[test]
fn texts_without_quotation_marks_meet_their_schema() {
    let cases: &[(Value, &[&str], &[&str])] = &[
        (json!({ "maxLength": 3 }), &["", "abc", "äöü", "a\nb"], &["abcd"]),
        (json!({ "minLength": 2 }), &["ab", "a b\nc"], &["", "a"]),
        (json!({ "pattern": "^[a-c]+$" }), &["a", "abc"], &["", "abd", "abc "]),
        (json!({ "pattern": "^ab" }), &["ab", "abx\ny"], &["xab", "a"]),
        (json!({ "pattern": "yz$|\\d" }), &["xyz", "a1b", "7"], &["yzx", ""]),
        (json!({ "pattern": "a/b" }), &["xa/bx"], &["ab"]),
        (json!({ "pattern": "^a$", "maxLength": 9 }), &["a"], &["aa"]),
        (json!({ "format": "date" }), &["2024-02-28"], &["2024-13-01", "28.2.2024"]),
        (json!({ "format": "date-time" }), &["2024-02-28T10:00:00Z"], &["2024-02-28"]),
        (json!({ "format": "time" }), &["23:59:59Z", "01:02:03.5+02:00"], &["24:00:00Z", "1:02:03Z"]),
        (
            json!({ "format": "duration" }),
            &["P3W", "P1Y2M", "PT5M", "P1DT2H"],
            &["P", "PT", "P1DT", "P1H", "PT1H2S"],
        ),
        (json!({ "format": "email" }), &["a.b+c@example.org"], &["a@b", "@example.org", "a b@example.org"]),
        (json!({ "format": "hostname" }), &["a", "a-b.example.org"], &["-a", "a-", "a..b", ""]),
        (json!({ "format": "ipv4" }), &["0.0.0.0", "255.9.10.1"], &["256.1.1.1", "1.2.3", "01.2.3.4"]),
        (
            json!({ "format": "ipv6" }),
            &["::", "1:2:3:4:5:6:7:8", "fe80::1"],
            &["1:2:3:4:5:6:7:8:9", ":::", "g::"],
        ),
        (json!({ "format": "uuid" }), &["123e4567-e89b-12d3-a456-426614174000"], &["123e4567"]),
        (json!({ "format": "uri" }), &["https://example.org/a?b=c#d"], &["example", "://a", "http:// a"]),
        (json!({ "format": "color" }), &["any"], &[]),
        (json!({ "enum": ["a", "ab", "say \"b\""] }), &["a", "ab", "say \"b\""], &["b", "abc"]),
        (json!({ "const": "a<b" }), &["a<b"], &["a"]),
        (json!({}), &["", "1 < 2 </parameter> <escape", "{\"a\": [1]}"], &[]),
    ];
    for (family, has_tokens) in [
        ("qwen-xml", true),
        ("qwen-xml", false),
        ("gemma4", true),
        ("gemma4", false),
        ("function-gemma", true),
    ] {
        for (schema, good, bad) in cases {
            let mut schema = schema.clone();
            schema["type"] = json!("string");
            let matcher = matcher_of(family, has_tokens, true, json!({ "k": schema })).unwrap();
            let call = |text: &str| match family {
                "qwen-xml" => format!(
                    "<tool_call>\n<function=f>\n<parameter=k>\n{text}\n</parameter>\n</function>\n</tool_call>"
                ),
                "gemma4" => format!("<|tool_call>call:f{{k:<|\"|>{text}<|\"|>}}<tool_call|>"),
                _ => format!("<start_function_call>call:f{{k:<escape>{text}<escape>}}<end_function_call>"),
            };
            let is_met = |text: &str| accepts(&matcher, &crate::inputs(&call(text), has_tokens));
            for text in *good {
                assert!(is_met(text), "{family} {has_tokens} {schema} {text:?}");
            }
            for text in *bad {
                assert!(!is_met(text), "{family} {has_tokens} {schema} {text:?}");
            }
        }
    }
}

/// What comes first ends a text, also where the text may not end yet.
#[test]
fn the_mark_after_a_text_is_not_in_it() {
    let properties = json!({ "k": { "type": "string", "minLength": 5 } });
    let matcher = matcher_of("qwen-xml", true, true, properties).unwrap();
    let call = "<tool_call>\n<function=f>\n<parameter=k>\n";
    let rest = "\n</parameter>\n</function>\n</tool_call>";
    assert!(meets(&matcher, &format!("{call}12345{rest}")));
    assert!(!meets(&matcher, &format!("{call}1\n</parameter>5{rest}")));
    let any = matcher_of("qwen-xml", true, true, json!({ "k": { "type": "string" } })).unwrap();
    assert!(!meets(&any, &format!("{call}1\n</parameter>5{rest}")));
}

#[test]
fn patterns_that_cannot_be_met_are_refused_where_the_schema_is_strict() {
    for (pattern, fact) in
        [("a(^b|c)", "anchor within"), ("(?=a)b", "cannot be read"), ("a\\b", "anchor within")]
    {
        for family in ["qwen-xml", "gemma4"] {
            let properties = json!({ "k": { "type": "string", "pattern": pattern } });
            let error = matcher_of(family, true, true, properties.clone()).unwrap_err();
            assert!(error.contains(fact), "{family} {pattern}: {error}");
            assert!(matcher_of(family, true, false, properties).is_ok(), "{family} {pattern}");
        }
    }
}

/// Values of all kinds, as Gemma writes them.
#[test]
fn values_of_gemma_meet_their_schema() {
    let call = |value: &str| format!("<|tool_call>call:f{{k:{value}}}<tool_call|>");
    let quoted = |text: &str| text.replace('\'', "<|\"|>");
    let cases: &[(Value, &[&str], &[&str])] = &[
        (json!({ "type": "integer", "minimum": 3 }), &["3", "12"], &["2", "'3'", "3.5"]),
        (json!({ "type": ["string", "null"] }), &["null", "'x'"], &["x", "1"]),
        (
            json!({ "enum": ["a", 1, [true, "b"], { "c": null }] }),
            &["'a'", "1", "[true,'b']", "{c:null}"],
            &["'b'", "a"],
        ),
        (
            json!({ "type": "array", "items": { "type": "boolean" } }),
            &["[]", "[true]", "[true,false]"],
            &["[1]", "[true", "[,]"],
        ),
        (
            json!({ "type": "array", "items": { "type": "integer" }, "minItems": 2, "maxItems": 3 }),
            &["[1,2]", "[1,2,3]"],
            &["[]", "[1]", "[1,2,3,4]"],
        ),
        (json!({ "type": "array", "maxItems": 0 }), &["[]"], &["[1]"]),
        (json!({ "anyOf": [{ "const": "a" }, { "type": "number" }] }), &["'a'", "1.5"], &["'b'", "true"]),
        (
            json!({ "type": "object", "properties": { "x": { "type": "string" }, "y": { "type": "integer" } }, "required": ["y"] }),
            &["{x:'1',y:2}", "{y:2}"],
            &["{x:'1'}", "{y:2,x:'1'}", "{'y':2}", "{y:2,z:1}"],
        ),
        (
            json!({ "type": "object", "additionalProperties": { "type": "integer" } }),
            &["{}", "{a:1,b:2}"],
            &["{a:'1'}"],
        ),
        (json!({ "type": "object", "additionalProperties": false }), &["{}"], &["{a:1}"]),
        (json!({}), &["1", "'x'", "[1,'x',{a:{}}]", "{a:[null]}"], &["", "x", "'x"]),
    ];
    for (schema, good, bad) in cases {
        let matcher = matcher_of("gemma4", true, true, json!({ "k": schema })).unwrap();
        for value in *good {
            assert!(meets(&matcher, &call(&quoted(value))), "{schema} {value}");
        }
        for value in *bad {
            assert!(!meets(&matcher, &call(&quoted(value))), "{schema} {value}");
        }
    }
    for schema in [
        json!({ "type": "array", "prefixItems": [{}] }),
        json!({ "allOf": [{ "type": "integer" }, { "minimum": 1 }] }),
        json!({ "$ref": "#/$defs/none" }),
        json!({ "type": "object", "minProperties": 1 }),
    ] {
        assert!(matcher_of("gemma4", true, true, json!({ "k": schema })).is_err(), "{schema}");
        assert!(matcher_of("gemma4", true, false, json!({ "k": schema })).is_ok(), "{schema}");
    }
    assert!(matcher_of("gemma4", true, false, json!({ "a:b": {} })).unwrap_err().contains("\"a:b\""));
}

/// Trees have a rule that contains itself; what has no end is refused.
#[test]
fn schemas_of_gemma_may_contain_themselves() {
    let tools = |node: Value, strict| {
        let schema = json!({
            "type": "object", "properties": { "tree": { "$ref": "#/$defs/node" } }, "required": ["tree"],
            "additionalProperties": false, "$defs": { "node": node }
        });
        Tools(vec![Tool { name: "f".to_owned(), parameters: Some(schema), strict }])
    };
    let list = json!({ "type": "object", "properties": { "next": { "$ref": "#/$defs/node" } } });
    let demand =
        |tools: &Tools| format("gemma4", true).grammar(tools, &Demand::Calls, false, Reasoned::No, None);
    let grammar = demand(&tools(list, true)).unwrap();
    let matcher = Compiler::new(Box::new(Bytes)).matcher(&grammar, None).unwrap();
    let call = |value: &str| format!("<|tool_call>call:f{{tree:{value}}}<tool_call|>");
    assert!(meets(&matcher, &call("{}")) && meets(&matcher, &call("{next:{next:{}}}")));
    assert!(!meets(&matcher, &call("{next:1}")));
    let definitions: serde_json::Map<String, Value> = (0..1300)
        .map(|i| (format!("d{i}"), json!({ "$ref": format!("#/$defs/d{}", i + 1) })))
        .chain([("d1300".to_owned(), json!({ "type": "null" }))])
        .collect();
    let mut chained = tools(json!({}), true);
    chained.0[0].parameters = Some(json!({
        "type": "object", "properties": { "tree": { "$ref": "#/$defs/d0" } }, "required": ["tree"], "$defs": definitions
    }));
    let matcher = Compiler::new(Box::new(Bytes)).matcher(&demand(&chained).unwrap(), None).unwrap();
    assert!(meets(&matcher, &call("null")) && !meets(&matcher, &call("{}")));
    let endless = json!({ "$ref": "#/$defs/node" });
    assert_eq!(demand(&tools(endless.clone(), true)).unwrap_err().subject, Subject::Tool(0));
    let any = demand(&tools(endless, false)).unwrap();
    let matcher = Compiler::new(Box::new(Bytes)).matcher(&any, None).unwrap();
    assert!(meets(&matcher, &call("1")));
}
