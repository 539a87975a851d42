//! Formats of other tools: names, limits, and malicious texts.

use super::*;
use crate::stats::{Direction, Samples};

fn read(text: &str) -> Result<Run, BadFile> {
    import(text, None, &Said::default())
}

fn refused(text: &str, place: Place, fact: &str) {
    let error = read(text).expect_err(text);
    assert_eq!(error.place, place, "{error} in {text}");
    assert!(error.to_string().contains(fact), "{error} lacks `{fact}`");
    assert!(!error.hint.is_empty());
}

fn gbench(entries: &str) -> String {
    format!("{{\"context\":{{}},\n\"benchmarks\":[{entries}]}}")
}

/// More names than a case may have.
fn counters() -> String {
    (0..=MAX_NAMES).map(|i| format!("\"c{i}\":1,")).collect::<Vec<_>>().concat()
}

const ENTRY: &str =
    r#"{"name":"a","run_type":"iteration","repetition_index":0,"real_time":1,"cpu_time":1,"time_unit":"ns"}"#;
const TEST: &str =
    r#"{"n_prompt":512,"n_gen":0,"n_threads":2,"avg_ts":100.0,"samples_ts":[99.0,101.0],"test_time":"a"}"#;

#[test]
fn formats_have_names_of_their_own_and_recognise_only_themselves() {
    let names: BTreeSet<&str> = ALL.iter().map(|format| format.name).collect();
    assert_eq!(names.len(), ALL.len());
    let texts = [
        ("gbench-json", gbench(ENTRY)),
        ("gbench-csv", "name,iterations,real_time,cpu_time,time_unit\n".to_owned()),
        ("llama-bench-json", format!("[{TEST}]")),
        ("llama-bench-jsonl", format!("{TEST}\n{TEST}\n")),
        ("llama-bench-csv", "n_prompt,n_gen,avg_ts\n".to_owned()),
    ];
    for (name, text) in &texts {
        let found = ALL.iter().filter(|f| f.read.is_some_and(|r| (r.recognises)(text))).map(|f| f.name);
        assert_eq!(found.collect::<Vec<_>>(), [*name]);
    }
    let read: Vec<&str> = ALL.iter().filter(|f| f.read.is_some()).map(|f| f.name).collect();
    assert_eq!(read.len(), texts.len());
}

#[test]
fn what_is_no_result_is_refused() {
    refused("", Place::File, "empty");
    refused(" \n\t", Place::File, "empty");
    refused("hello", Place::File, "none of the formats");
    refused("{}", Place::File, "none of the formats");
    refused(&gbench(""), Place::File, "no results");
    let error = import("[]", format("bmf"), &Said::default()).unwrap_err();
    assert!(error.fact.contains("written, not read"), "{error}");
    let error = import("[]", format("llama-bench-json"), &Said::default()).unwrap_err();
    assert!(error.fact.contains("no results"), "{error}");
}

#[test]
fn damaged_benchmarks_are_refused_with_their_entry() {
    let second = |from: &str, to: &str| {
        gbench(&format!("{ENTRY},{}", ENTRY.replace("\"a\"", "\"b\"").replace(from, to)))
    };
    refused(&gbench(&ENTRY[..40]), Place::Line(2), "");
    refused(&second("\"real_time\":1", "\"real_time\":NaN"), Place::Line(2), "expected value");
    refused(&second("\"real_time\":1", "\"real_time\":\"NaN\""), Place::Entry(2), "`real_time` is `NaN`");
    refused(&second("\"real_time\":1", "\"real_time\":-1"), Place::Entry(2), "`real_time` is -1");
    refused(&second("\"real_time\":1", "\"real_time\":1e999"), Place::Line(2), "out of range");
    refused(&second("\"real_time\":1,", ""), Place::Entry(2), "no `real_time`");
    refused(&second("\"ns\"", "\"fortnights\""), Place::Entry(2), "`time_unit` is `fortnights`");
    refused(&second("\"b\"", "\"a\""), Place::Entry(2), "repetition 0 of `a` stands twice");
    refused(&second("\"b\"", "\"\""), Place::Entry(2), "no `name`");
    refused(&second("\"ns\"", "\"ns\",\"items_per_second\":-5"), Place::Entry(2), "items_per_second");
    refused(&gbench("7"), Place::Entry(1), "no object");
    let counters = counters();
    refused(&gbench(&format!("{{{counters}{}", &ENTRY[1..])), Place::Entry(1), "counters, more than");
}

#[test]
fn damaged_lines_are_refused_with_their_number() {
    const HEAD: &str = "noise before\nname,iterations,real_time,cpu_time,time_unit,items_per_second\n";
    let with = |line: &str| format!("{HEAD}a,1,2,2,ns,5\n{line}\n");
    refused(&with("b,1,2"), Place::Line(4), "3 cells under 6 titles");
    refused(&with("b,1,nan,2,ns,5"), Place::Line(4), "`real_time` is `nan`");
    refused(&with("b,1,-2,2,ns,5"), Place::Line(4), "below 0");
    refused(&with("b,1,2,2,weeks,5"), Place::Line(4), "`time_unit` is `weeks`");
    refused(&with("b,1,2,2,ns,many"), Place::Line(4), "`items_per_second` is `many`");
    refused(&with(",1,2,2,ns,5"), Place::Line(4), "no `name`");
    refused("name,iterations,real_time,cpu_time\na,1,2,2\n", Place::Line(1), "`time_unit` is missing");
    refused("name,iterations,real_time,cpu_time,time_unit,x,x\n", Place::Line(1), "stands twice");
}

#[test]
fn damaged_tests_are_refused_with_their_place() {
    let second = |from: &str, to: &str| format!("{TEST}\n{}\n", TEST.replace("512", "128").replace(from, to));
    refused(&second("[99.0,101.0]", "[99.0,-1]"), Place::Line(2), "`samples_ts[1]` is -1");
    refused(&second("[99.0,101.0]", "[99.0,null]"), Place::Line(2), "`samples_ts[1]` is null");
    refused(&second("[99.0,101.0]", "7"), Place::Line(2), "is no list");
    refused(&second("[99.0,101.0]", "[99.0,NaN]"), Place::Line(2), "");
    refused(&second("128", "1.5"), Place::Line(2), "`n_prompt` is 1.5");
    refused(&second("128", "0"), Place::Line(2), "nothing was measured");
    refused(&second("128", "512"), Place::Line(2), "stands twice");
    refused(&second("[99.0,101.0]", "[99.0],\"samples_ns\":[1,2]"), Place::Line(2), "holds 1 values");
    refused(&second("[99.0,101.0]", "[99.0],\"samples_ns\":[5]"), Place::Line(2), "tokens/s for");
    refused(&second("\"n_gen\"", "\"build_commit\":\"x\",\"n_gen\""), Place::Line(2), "another build");
    refused(&format!("[{TEST},"), Place::Line(1), "EOF");
    refused(&format!("[{TEST},5]"), Place::Entry(2), "no object");
    refused(
        &second(",\"avg_ts\":100.0,\"samples_ts\":[99.0,101.0]", ""),
        Place::Line(2),
        "`avg_ts` is missing",
    );
    let fields = counters();
    refused(
        &second("{\"n_prompt\"", &format!("{{{fields}\"n_prompt\"")),
        Place::Line(2),
        "fields, more than",
    );
}

#[test]
fn what_is_too_much_is_refused() {
    let lines: Vec<String> = (0..=MAX_CASES).map(|i| ENTRY.replace("\"a\"", &format!("\"{i}\""))).collect();
    let text = gbench(&lines.join(","));
    refused(&text, Place::Entry(MAX_CASES + 1), "more than 10000 cases");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large");
    File::create(&path).unwrap().set_len(MAX_BYTES + 1).unwrap();
    assert!(read_text(&path).unwrap_err().fact.contains("longer than 64 MiB"));
    std::fs::write(&path, b"ab\xff").unwrap();
    assert!(read_text(&path).unwrap_err().fact.contains("byte 2 is not UTF-8"));
    assert!(read_text(folder.path()).is_err());
}

#[test]
fn a_prefix_of_a_good_file_never_panics() {
    let fixtures = [gbench(ENTRY), format!("[{TEST}]"), format!("{TEST}\n{TEST}")];
    for text in fixtures {
        for end in 0..text.len() {
            for format in ALL.iter().filter(|f| f.read.is_some()) {
                let _ = import(&text[..end], Some(format), &Said::default());
            }
        }
    }
}

#[test]
fn metrics_are_judged_by_what_they_are() {
    let cases = [
        ("items_per_second", "items/s", Direction::Higher),
        ("tokens_per_s", "tokens/s", Direction::Higher),
        ("prefill_tokens_per_s", "tokens/s", Direction::Higher),
        ("real_time", "s", Direction::Lower),
        ("decode_s", "s", Direction::Lower),
        ("p95_ms", "ms", Direction::Lower),
        ("weights_bytes", "bytes", Direction::Lower),
        ("ms_per_token", "", Direction::Info),
        ("share", "share", Direction::Info),
        ("FLOPS", "", Direction::Info),
    ];
    for (name, unit, direction) in cases {
        assert_eq!(values::kind(name), (unit.to_owned(), direction), "{name}");
    }
}

#[test]
fn names_are_distinct_and_cannot_move_the_cursor() {
    let mut rows = vec![Row::new("a"), Row::new("a"), Row::new("a"), Row::new("a/2")];
    rows[2].arm = Some("b".to_owned());
    assert_eq!(names(&rows), ["a", "a/2", "a/arm:b", "a/2/2"]);
    let run = read(&gbench(&ENTRY.replace("\"a\"", "\"\\u001b[31mx\\n\""))).unwrap();
    assert_eq!(run.rows[0].case, "?[31mx?");
}

#[test]
fn what_cannot_be_said_is_told() {
    let mut run = read(&format!("[{TEST}]")).unwrap();
    let error = export(&run, &ALL[0], false).unwrap_err();
    assert!(error.fact.contains("none of 1 rows") && error.hint.contains("--invalid"), "{error}");
    run.rows[0].checked = true;
    let slow = Samples::new("tokens/s", Direction::Higher, vec![0.0]).unwrap();
    run.rows.push(Row { checked: true, ..Row::new("gemm").metric("tokens_per_s", slow) });
    run.rows.push(Row::new("unchecked"));
    let exported = export(&run, format("gbench-json").unwrap(), false).unwrap();
    let notes = exported.notes.join("\n");
    assert!(notes.contains("`unchecked` is left out: not checked"), "{notes}");
    assert!(notes.contains("`gemm` is left out: a rate of 0"), "{notes}");
    let exported = export(&run, format("llama-bench-jsonl").unwrap(), false).unwrap();
    assert!(exported.notes.join("\n").contains("`gemm` is left out: it is neither"), "{:?}", exported.notes);
    run.rows.remove(0);
    let error = export(&run, format("llama-bench-csv").unwrap(), true).unwrap_err();
    assert!(error.fact.contains("no row of lane `forward`"), "{error}");
    let error = export(&run, format("github-action-smaller").unwrap(), true).unwrap_err();
    assert!(error.hint.contains("`--to github-action`"), "{error}");
    run.rows.clear();
    assert!(export(&run, &ALL[0], true).unwrap_err().fact.contains("no rows"));
}
