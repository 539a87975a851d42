//! Functions and calls of the Berkeley Function Calling Leaderboard: every call that is right may be written in the form of every family,
//! and is read as the same one.

use redline_chat::{Demand, Reasoned, Tool, Tools};
use redline_grammar::Compiler;
use serde_json::{Map, Value};

use crate::grammars::{Bytes, Random, accepts, read, walk, written};
use crate::round_trips::Writer;
use crate::{TEMPLATES, format, parsed};

/// See `tests/golden/calls.py`.
const CALLS: &str = include_str!("../../../../tests/golden/calls.json");

/// The functions of a question, and calls of them.
struct Group {
    tools: Tools,
    calls: Vec<(String, Map<String, Value>)>,
}

fn groups() -> Vec<Group> {
    let all: Vec<Value> = serde_json::from_str(CALLS).unwrap();
    let group = |of: &Value| {
        let functions = of["functions"].as_object().unwrap().iter();
        let tools = functions.map(|(name, schema)| Tool {
            name: name.clone(),
            parameters: Some(schema.clone()),
            strict: true,
        });
        let calls = of["calls"].as_array().unwrap().iter().map(|call| {
            let arguments = call["arguments"].as_object().unwrap();
            (call["name"].as_str().unwrap().to_owned(), arguments.clone())
        });
        Group { tools: Tools(tools.collect()), calls: calls.collect() }
    };
    all.iter().map(group).collect()
}

#[test]
fn right_calls_may_be_written_and_are_read_in_every_format() {
    let groups = groups();
    let mut counts = Vec::new();
    for (family, _) in TEMPLATES {
        let compiler = Compiler::new(Box::new(Bytes));
        let (mut forced, mut equal) = (0, 0);
        for Group { tools, calls } in &groups {
            let grammar = format(family, true).grammar(tools, &Demand::Calls, true, Reasoned::No, None);
            let matcher = grammar.ok().map(|grammar| {
                compiler
                    .matcher(&grammar, None)
                    .unwrap_or_else(|error| panic!("{family}: {error}\n{}", grammar.source))
            });
            for (name, arguments) in calls {
                let mut writer = Writer(Vec::new());
                let Some(()) = writer.call(family, name, arguments, true) else {
                    panic!("{family}: {name} {arguments:?}")
                };
                // Templates end some calls with a line end, or a token that ends the answer.
                writer.0.pop_if(|piece| match piece {
                    Ok(mark) => mark.name == "<|call|>",
                    Err(text) => text == "\n",
                });
                if let Some(matcher) = &matcher {
                    assert!(accepts(matcher, &writer.0), "{family}: {:?}", writer.0);
                    forced += 1;
                }
                let whole = parsed(format(family, true), tools.clone(), &writer.0, false);
                let [(read, json)] = whole.calls.as_slice() else {
                    panic!("{family}: {whole:?} {:?}", writer.0)
                };
                assert_eq!((read, whole.content.as_str()), (name, ""), "{family}");
                assert_eq!(
                    serde_json::from_str::<Value>(json).unwrap(),
                    Value::from(arguments.clone()),
                    "{family}"
                );
                equal += 1;
            }
        }
        counts.push((forced, equal));
    }
    for ((family, _), counts) in TEMPLATES.iter().zip(counts) {
        assert_eq!(counts, (113, 113), "{family}");
    }
}

/// What a model writes that knows nothing of the functions but the grammar.
#[test]
fn demanded_calls_have_the_arguments_of_their_schema() {
    let groups = groups();
    for (at, (family, _)) in TEMPLATES.iter().enumerate() {
        let compiler = Compiler::new(Box::new(Bytes));
        let mut ended = 0;
        // Other functions for every family.
        for (seed, Group { tools, .. }) in groups.iter().enumerate().skip(at).step_by(TEMPLATES.len()) {
            let Ok(grammar) = format(family, true).grammar(tools, &Demand::Calls, false, Reasoned::No, None)
            else {
                continue;
            };
            let mut matcher = compiler.matcher(&grammar, None).unwrap();
            let Some(tokens) = walk(&mut matcher, &mut Random(seed as u64)) else { continue };
            // What knows nothing of numbers writes some that no double holds.
            let is_exponent =
                |after: &str| after.trim_start_matches(['+', '-']).starts_with(|c: char| c.is_ascii_digit());
            if written(&tokens).split(['e', 'E']).skip(1).any(is_exponent) {
                continue;
            }
            let whole = read(family, tools.clone(), &tokens, false);
            let [(name, json)] = whole.calls.as_slice() else { panic!("{family}: {}", written(&tokens)) };
            let tool = tools.0.iter().find(|tool| tool.name == *name).unwrap();
            let schema = tool.parameters.as_ref().unwrap();
            let value: Value = serde_json::from_str(json).unwrap();
            let valid = jsonschema::validator_for(schema).unwrap();
            assert!(valid.is_valid(&value), "{family}: {schema} {}", written(&tokens));
            ended += 1;
        }
        assert!(ended > 0, "{family}: {ended}");
    }
}
