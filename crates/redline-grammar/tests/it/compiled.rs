//! What the answers to a grammar are.

use std::time::Duration;

use redline_grammar::{Grammar, GrammarKind};

use crate::{END, check, compiler, matcher};

#[test]
fn answers_are_values_of_the_schema() {
    let schema = r#"{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"boolean"}},
        "required":["a"],"additionalProperties":false}"#;
    let space = "{\n\t\"a\" : 1 , \"b\":true}";
    check(
        GrammarKind::JsonSchema,
        schema,
        &[r#"{"a":1}"#, r#"{"a": -12, "b": false}"#, space, " {\"a\":1}"],
        &["", "{}", r#"{"b":true}"#, r#"{"a":1.5}"#, r#"{"a":1,"c":2}"#, r#"{"a":1}x"#, "[1]"],
    );
    // White space is bounded, so that an answer cannot consist of it.
    let spaces = |count: usize| format!("{{{}\"a\":1}}", " ".repeat(count));
    check(GrammarKind::JsonSchema, schema, &[&spaces(8)], &[&spaces(9)]);
    check(GrammarKind::CompactJsonSchema, schema, &[r#"{"a":1}"#], &[r#"{"a": 1}"#, " {\"a\":1}"]);
    check(GrammarKind::JsonSchema, "true", &["1", "[null]"], &["", "nul"]);
    let reference = r##"{"$ref":"#/$defs/x~1y","$defs":{"x/y":{"enum":["é\"",{"k":[1]}]}}}"##;
    check(GrammarKind::JsonSchema, reference, &["\"é\\\"\"", r#"{"k":[1]}"#], &["\"é\"", r#"{"k":[2]}"#]);
}

#[test]
fn answers_match_the_whole_expression() {
    check(GrammarKind::Regex, "(ab|c)+/[0-9]{2}", &["ab/12", "cab/00"], &["ab/1", "xab/12", "ab/123", ""]);
    check(GrammarKind::Regex, "é+", &["é", "éé"], &["e"]);
}

#[test]
fn answers_are_one_of_the_choices() {
    let choices = r#"["yes","yes, but","no\"\n","é"]"#;
    check(GrammarKind::Choice, choices, &["yes", "yes, but", "no\"\n", "é"], &["", "y", "yes,", "YES"]);
}

#[test]
fn a_grammar_may_be_written_in_lark() {
    let lark = "start: \"a\" rest\nrest: \"b\" rest | \"c\"\n";
    check(GrammarKind::Lark, lark, &["ac", "abbc"], &["a", "abb", "bc"]);
}

#[test]
fn a_grammar_may_be_written_as_llama_cpp_does() {
    let gbnf = r#"
# A move, and what comes of it.
root   ::= move ("; " move)* result?
move   ::= piece? [a-h] [1-8] "+"? |
           "O-O" ("-O")?
piece  ::= [KQRBN]
result ::= " " ("1-0" | "0-1") "" end-mark{2,3}
end-mark ::= [^a-zA-Z\x30-\u0039\]-]
"#;
    let answers = ["e4", "Ke4+; O-O-O", "O-O; e4 1-0!!", "e4 0-1?é?"];
    let others = ["", "e9", "e4;", "e4 1-0!", "e4 1-0!!!!", "e4 1-0a!", "e4 1-0]]", "e4 1-0--"];
    check(GrammarKind::Gbnf, gbnf, &answers, &others);
    check(
        GrammarKind::Gbnf,
        "root ::= . \"\\n\"+ Two{2,}\nTwo ::= \"ab\"",
        &["x\nabab", "\n\n\nababab"],
        &["xab", "x\nab"],
    );
    for (source, expected) in [
        ("", "there is no rule `root`"),
        ("a ::= \"x\"", "there is no rule `root`"),
        ("root ::= b-c", "there is no rule `b-c`"),
        ("root ::= \"x\" root ::= \"y\"", "the rule `root` is defined twice"),
        ("root = \"x\"", "expected `::=`, found `=`"),
        ("root ::= (\"x\"", "expected `)`, found the end"),
        ("root ::= \"x", "found the end"),
        ("root ::= [x", "expected `]`"),
        ("root ::= \"\\q\"", "a character after"),
        ("root ::= [\\ud800]", "the number of a character"),
        ("root ::= \"x\"{3,2}", "from 3 to 2 repetitions"),
        ("root ::= \"x\"{99999}", "99999 repetitions"),
        ("root ::= !", "found `!`"),
    ] {
        let error = matcher(GrammarKind::Gbnf, source).expect_err(source);
        assert!(error.fact.contains(expected), "{source}: {error}");
    }
    let deep = format!("root ::= {}\"x\"{}", "(".repeat(200), ")".repeat(200));
    assert!(matcher(GrammarKind::Gbnf, &deep).unwrap_err().fact.contains("nested too deeply"));
}

#[test]
fn markers_are_no_text() {
    let mut text = matcher(GrammarKind::JsonSchema, r#"{"type":"string"}"#).unwrap();
    text.push(u32::from(b'"'));
    assert!(text.accepts(u32::from(b'<')) && !text.accepts(END) && !text.accepts(END + 1));
    // Nor are ids without a token.
    assert!(!text.accepts(299) && !text.accepts(300) && !text.accepts(u32::MAX));
}

#[test]
fn an_answer_is_complete_when_nothing_may_follow() {
    let mut object =
        matcher(GrammarKind::JsonSchema, r#"{"type":"object","additionalProperties":false}"#).unwrap();
    object.push(u32::from(b'{'));
    assert!(!object.is_complete());
    object.push(u32::from(b'}'));
    assert!(object.is_complete() && object.mask().is_empty() && object.failure().is_none());
    // A number may go on, so it ends with a token of its own.
    let mut number = matcher(GrammarKind::JsonSchema, r#"{"type":"integer"}"#).unwrap();
    number.push(u32::from(b'1'));
    assert!(!number.is_complete() && number.accepts(END) && number.accepts(u32::from(b'0')));
    number.push(END);
    assert!(number.is_complete());
}

#[test]
fn an_answer_may_have_further_end_tokens() {
    // A chat template ends answers with a token of its own, such as this marker.
    let marker = END + 1;
    let number = || matcher(GrammarKind::JsonSchema, r#"{"type":"integer"}"#).unwrap();
    for ends in [&[marker][..], &[marker, END, 1_000_000]] {
        let mut number = number().ending_with(ends);
        assert!(!number.accepts(marker) && number.mask()[marker as usize / 32] >> (marker % 32) & 1 == 0);
        number.push(u32::from(b'1'));
        assert!(number.accepts(marker) && number.accepts(END) && number.accepts(u32::from(b'0')));
        assert_eq!(number.mask()[marker as usize / 32] >> (marker % 32) & 1, 1);
        assert!(number.accepts(marker) && !number.accepts(1_000_000));
        number.push(marker);
        assert!(number.is_complete() && number.failure().is_none());
    }
    let mut plain = number();
    plain.push(u32::from(b'1'));
    assert!(!plain.accepts(marker));
}

#[test]
fn a_token_that_may_not_come_is_a_failure() {
    let mut choice = matcher(GrammarKind::Choice, r#"["ab"]"#).unwrap();
    choice.push(u32::from(b'b'));
    assert!(!choice.is_complete() && choice.mask().is_empty() && choice.failure().is_some());
}

#[test]
fn what_is_wrong_is_said() {
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    for (kind, source, expected) in [
        (GrammarKind::JsonSchema, "{", "not valid JSON"),
        (GrammarKind::JsonSchema, "[]", "a JSON schema is an object"),
        (GrammarKind::JsonSchema, "false", "no finite answer"),
        (GrammarKind::JsonSchema, &deep, "not valid JSON: recursion limit"),
        (GrammarKind::JsonSchema, r#"{"type":"nothing"}"#, "nothing"),
        (GrammarKind::JsonSchema, r##"{"$ref":"#/$defs/none"}"##, "none"),
        (GrammarKind::JsonSchema, r##"{"$ref":"#"}"##, "no finite answer"),
        (GrammarKind::JsonSchema, r#"{"$ref":"http://a/b"}"#, "http://a/b"),
        (GrammarKind::JsonSchema, r#"{"type":"string","pattern":"(?=a)"}"#, "look-around"),
        (GrammarKind::JsonSchema, r#"{"type":"integer","minimum":5,"maximum":4}"#, "minimum"),
        (GrammarKind::Regex, "(", "unclosed group"),
        (GrammarKind::Choice, "[]", "0 choices"),
        (GrammarKind::Choice, r#"["a",""]"#, "a choice is empty"),
        (GrammarKind::Choice, r#"{"a":1}"#, "not a list of strings"),
        (GrammarKind::Lark, "start: nothing", "nothing"),
        (GrammarKind::Lark, "", "start"),
    ] {
        let error = matcher(kind, source).expect_err(source);
        assert!(error.fact.contains(expected) && error.is_certain, "{source}: {error}");
        assert!(error.fact.len() < 500 && !error.fact.contains('\n'), "{source}: {error}");
    }
    let long = "x".repeat((1 << 20) + 1);
    assert!(matcher(GrammarKind::Lark, &long).unwrap_err().fact.contains("1048577 bytes"));
    assert!(matcher(GrammarKind::Regex, &"x".repeat(16_385)).unwrap_err().fact.contains("16385 bytes"));
}

#[test]
fn a_grammar_that_takes_long_is_not_waited_for() {
    let compiler = compiler();
    let slow = Grammar::new(GrammarKind::JsonSchema, r#"{"type":"integer","multipleOf":99991}"#);
    let late = compiler.matcher(&slow, Some(Duration::ZERO)).unwrap_err();
    assert!(!late.is_certain && late.fact.contains("not compiled in time"), "{late}");
}

#[test]
fn a_grammar_is_compiled_once() {
    let compiler = compiler();
    let grammar = Grammar::new(GrammarKind::Choice, r#"["ab"]"#);
    let (send, done) = std::sync::mpsc::channel();
    let prepared = send.clone();
    compiler.prepare(&grammar, Box::new(move |compiled| prepared.send(compiled).unwrap()));
    done.recv().unwrap().unwrap();
    // It is kept: no time is needed, and two answers do not see each other.
    let mut one = compiler.matcher(&grammar, Some(Duration::ZERO)).unwrap();
    let mut two = compiler.matcher(&grammar, Some(Duration::ZERO)).unwrap();
    one.push(u32::from(b'a'));
    assert!(one.accepts(u32::from(b'b')) && two.accepts(u32::from(b'a')) && !two.accepts(u32::from(b'b')));
    let wrong = Grammar::new(GrammarKind::Choice, "[]");
    let first = compiler.matcher(&wrong, None).unwrap_err();
    assert_eq!(compiler.matcher(&wrong, Some(Duration::ZERO)).unwrap_err(), first);
}

#[test]
fn the_grammars_used_least_recently_are_given_up() {
    let compiler = compiler();
    let choice = |number: usize| Grammar::new(GrammarKind::Choice, format!(r#"["a{number}"]"#));
    let is_kept = |grammar: &Grammar| compiler.matcher(grammar, Some(Duration::ZERO)).is_ok();
    for number in 0..64 {
        compiler.matcher(&choice(number), None).unwrap();
    }
    assert!(is_kept(&choice(0)));
    compiler.matcher(&choice(64), None).unwrap();
    assert!(is_kept(&choice(0)) && is_kept(&choice(64)));
    // Finding out compiles it in the background, so each is looked at once.
    assert!(!is_kept(&choice(1)));
    // There is room for the bytes of two long ones.
    let long = |letter: &str| {
        Grammar::new(GrammarKind::Lark, format!("start: \"{letter}\" //{}\n", "x".repeat(1_040_000)))
    };
    for letter in ["a", "b", "c"] {
        compiler.matcher(&long(letter), None).unwrap();
    }
    assert!(is_kept(&long("b")) && is_kept(&long("c")) && !is_kept(&long("a")));
}

/// A grammar of so many parts.
type Chain<'a> = &'a dyn Fn(usize) -> String;

/// Rules and schemas that lead to each other are compiled or refused, however many there are, and end no process.
#[test]
fn long_chains_are_compiled_or_refused() {
    let lines = |count: usize, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
    let rules = |n| format!("start: r0\n{}r{n}: \"a\"\n", lines(n, &|i| format!("r{i}: r{}\n", i + 1)));
    let terminals = |n| format!("start: R0\n{}R{n}: \"a\"\n", lines(n, &|i| format!("R{i}: R{}\n", i + 1)));
    let groups = |n| {
        let (open, close) = ("(".repeat(25), ")".repeat(25));
        format!("start: r0\n{}r{n}: \"a\"\n", lines(n, &|i| format!("r{i}: {open}\"b\" r{}{close}\n", i + 1)))
    };
    let gbnf = |n| {
        format!("root ::= r0\n{}r{n} ::= \"a\"\n", lines(n, &|i| format!("r{i} ::= r{} |\n \"b\"\n", i + 1)))
    };
    let objects = |n| {
        let definition = |i| {
            let next = format!("{{\"$ref\":\"#/$defs/d{}\"}}", i + 1);
            format!("\"d{i}\":{{\"type\":\"object\",\"properties\":{{\"a\":{next}}},\"required\":[\"a\"]}},")
        };
        let definitions = lines(n, &definition);
        format!("{{\"$ref\":\"#/$defs/d0\",\"$defs\":{{{definitions}\"d{n}\":{{\"type\":\"null\"}}}}}}")
    };
    let embedded = |n| format!("start: %json {}\n", objects(n));
    let chains: [(GrammarKind, Chain<'_>, [usize; 2]); 6] = [
        (GrammarKind::Lark, &rules, [16_000, 17_000]),
        (GrammarKind::Lark, &terminals, [3_000, 17_000]),
        (GrammarKind::Lark, &groups, [600, 700]),
        (GrammarKind::Gbnf, &gbnf, [5_000, 17_000]),
        (GrammarKind::JsonSchema, &objects, [1_300, 1_400]),
        (GrammarKind::Lark, &embedded, [1_300, 1_400]),
    ];
    for (kind, chain, [most, beyond]) in chains {
        if let Err(error) = matcher(kind, &chain(most)) {
            panic!("{kind:?}, {most}: {error}");
        }
        let error = matcher(kind, &chain(beyond)).err().map(|error| error.fact).unwrap();
        assert!(
            error.contains("rules and brackets") || error.contains("levels") || error.contains("bytes"),
            "{kind:?}: {error}"
        );
    }
}
