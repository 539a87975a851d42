//! Formats of other tools: names, limits, and malicious texts.

use super::FilePosition::{Entry, File, Line};
use super::*;
use crate::stats::{Direction, Samples};

fn read(text: &str) -> Result<Run> {
    import(text, None, &Said::default())
}

fn refused(text: &str, place: FilePosition, fact: &str) {
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

#[test]
fn formats_have_names_of_their_own_and_recognise_only_themselves() {
    let names: BTreeSet<&str> = ALL.iter().map(|format| format.name).collect();
    assert_eq!(names.len(), ALL.len());
    let texts = [
        ("gbench-json", gbench(ENTRY)),
        ("gbench-csv", "name,iterations,real_time,cpu_time,time_unit\n".to_owned()),
    ];
    for (name, text) in &texts {
        let reading = ALL.iter().filter(|f| f.read.is_some_and(|r| (r.recognises)(text))).map(|f| f.name);
        assert_eq!(reading.collect::<Vec<_>>(), [*name]);
    }
    let read: Vec<&str> = ALL.iter().filter(|f| f.read.is_some()).map(|f| f.name).collect();
    assert_eq!(read.len(), texts.len());
}

#[test]
fn what_is_no_result_is_refused() {
    let texts =
        [("", "empty"), (" \n\t", "empty"), ("hello", "none of the formats"), ("{}", "none of the formats")];
    for (text, fact) in texts {
        refused(text, File, fact);
    }
    refused(&gbench(""), File, "no results");
    let error = import("[]", format("bmf"), &Said::default()).unwrap_err();
    assert!(error.fact.contains("written, not read"), "{error}");
}

#[test]
fn damaged_benchmarks_are_refused_with_their_entry() {
    let counters = format!("{{{}\"name\"", counters());
    let cases = [
        ("\"real_time\":1", "\"real_time\":NaN", Line(2), "expected value"),
        ("\"real_time\":1", "\"real_time\":\"NaN\"", Entry(2), "`real_time` is `NaN`"),
        ("\"real_time\":1", "\"real_time\":-1", Entry(2), "`real_time` is -1"),
        ("\"real_time\":1", "\"real_time\":1e999", Line(2), "out of range"),
        ("\"real_time\":1,", "", Entry(2), "no `real_time`"),
        ("\"ns\"", "\"fortnights\"", Entry(2), "`time_unit` is `fortnights`"),
        ("\"b\"", "\"a\"", Entry(2), "repetition 0 of `a` stands twice"),
        ("\"b\"", "\"\"", Entry(2), "no `name`"),
        ("\"ns\"", "\"ns\",\"items_per_second\":-5", Entry(2), "items_per_second"),
        ("{\"name\"", &counters, Entry(2), "counters, more than"),
    ];
    for (from, to, place, fact) in cases {
        let second = ENTRY.replace("\"a\"", "\"b\"").replace(from, to);
        refused(&gbench(&format!("{ENTRY},{second}")), place, fact);
    }
    refused(&gbench(&ENTRY[..40]), Line(2), "");
    refused(&gbench("7"), Entry(1), "no object");
}

#[test]
fn damaged_lines_are_refused_with_their_number() {
    const HEAD: &str = "noise before\nname,iterations,real_time,cpu_time,time_unit,items_per_second\n";
    let cases = [
        ("b,1,2", "3 cells under 6 titles"),
        ("b,1,nan,2,ns,5", "`real_time` is `nan`"),
        ("b,1,-2,2,ns,5", "below 0"),
        ("b,1,2,2,weeks,5", "`time_unit` is `weeks`"),
        ("b,1,2,2,ns,many", "`items_per_second` is `many`"),
        (",1,2,2,ns,5", "no `name`"),
    ];
    for (line, fact) in cases {
        refused(&format!("{HEAD}a,1,2,2,ns,5\n{line}\n"), Line(4), fact);
    }
    refused("name,iterations,real_time,cpu_time\na,1,2,2\n", Line(1), "`time_unit` is missing");
    refused("name,iterations,real_time,cpu_time,time_unit,x,x\n", Line(1), "stands twice");
}

#[test]
fn what_is_too_much_is_refused() {
    let lines: Vec<String> = (0..=MAX_CASES).map(|i| ENTRY.replace("\"a\"", &format!("\"{i}\""))).collect();
    let text = gbench(&lines.join(","));
    refused(&text, Entry(MAX_CASES + 1), "more than 10000 cases");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large");
    fs::File::create(&path).unwrap().set_len(MAX_BYTES + 1).unwrap();
    assert!(read_text(&path).unwrap_err().fact.contains("longer than 64 MiB"));
    fs::write(&path, b"ab\xff").unwrap();
    assert!(read_text(&path).unwrap_err().fact.contains("byte 2 is not UTF-8"));
    assert!(read_text(folder.path()).is_err());
}

#[test]
fn a_prefix_of_a_good_file_never_panics() {
    let text = gbench(ENTRY);
    for (format, end) in ALL.iter().flat_map(|format| (0..text.len()).map(move |end| (format, end))) {
        let _ = import(&text[..end], Some(format), &Said::default());
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
        ("peak_memory", "bytes", Direction::Lower),
        ("cpu_time", "s", Direction::Lower),
        ("seconds", "s", Direction::Lower),
        ("wait_us", "us", Direction::Lower),
        ("call_ns", "ns", Direction::Lower),
        ("share_of_forward", "share", Direction::Info),
        ("share", "share", Direction::Info),
        ("FLOPS", "", Direction::Info),
    ];
    for (name, unit, direction) in cases {
        assert_eq!(values::kind(name), (unit.to_owned(), direction), "{name}");
    }
}

#[test]
fn names_are_distinct_and_cannot_move_the_cursor() {
    let mut rows = ["a", "a", "a", "a/2"].map(Row::new);
    rows[2].arm = Some("b".to_owned());
    assert_eq!(names(&rows), ["a", "a/2", "a/arm:b", "a/2/2"]);
    let run = read(&gbench(&ENTRY.replace("\"a\"", "\"\\u001b[31mx\\n\""))).unwrap();
    assert_eq!(run.rows[0].case, "?[31mx?");
    let said = Said { engine: Some("a\u{1b}[2Jb".to_owned()), trust: false };
    assert_eq!(import(&gbench(ENTRY), None, &said).unwrap().engine.name, "a?[2Jb");
}

#[test]
fn what_cannot_be_said_is_told() {
    let mut run = read(&gbench(ENTRY)).unwrap();
    let to = |run: &Run, name: &str, invalid: bool| export(run, format(name).unwrap(), invalid);
    let error = to(&run, "gbench-json", false).unwrap_err();
    assert!(error.fact.contains("none of 1 rows") && error.hint.contains("--invalid"), "{error}");
    run.rows[0].checked = true;
    let slow = Samples::new("tokens/s", Direction::Higher, vec![0.0]).unwrap();
    run.rows.push(Row { checked: true, ..Row::new("gemm").metric("tokens_per_s", slow) });
    run.rows.push(Row::new("unchecked"));
    let exported = to(&run, "gbench-json", false).unwrap();
    let notes = exported.notes.join("\n");
    assert!(notes.contains("`unchecked` is left out: not checked"), "{notes}");
    assert!(notes.contains("`gemm` is left out: a rate of 0"), "{notes}");
    run.rows.clear();
    assert!(to(&run, "gbench-json", true).unwrap_err().fact.contains("no rows"));
}

#[test]
fn a_case_that_failed_is_not_believed_wherever_the_file_says_so() {
    let again = ENTRY.replace(
        "\"repetition_index\":0",
        "\"repetition_index\":1,\"error_occurred\":true,\"error_message\":\"late\"",
    );
    let entries = [
        ENTRY,
        again.as_str(),
        r#"{"name":"b\u0007","error_occurred":true,"error_message":"odd name"}"#,
        r#"{"name":"c","skipped":true,"skip_message":"no device","real_time":0,"cpu_time":0,"time_unit":"ns"}"#,
        r#"{"name":"d","skipped":"by the user","real_time":0,"cpu_time":0,"time_unit":"ns"}"#,
        r#"{"name":"e","real_time":1,"cpu_time":1,"time_unit":"ns"}"#,
    ];
    let run = import(&gbench(&entries.join(",")), None, &Said { engine: None, trust: true }).unwrap();
    let expected = [
        ("a", false, Some("late")),
        ("b?", false, Some("odd name")),
        ("c", false, Some("no device")),
        ("d", false, Some("it went wrong")),
        ("e", true, None),
    ];
    assert_eq!(run.rows.len(), expected.len());
    for (row, expected) in run.rows.iter().zip(expected) {
        let error = row.params.get("error").and_then(Value::as_str);
        assert_eq!((row.case.as_str(), row.checked, error), expected);
    }
    let times = |row: usize| run.rows[row].samples_of("real_time").map(|s| s.values().to_vec());
    assert_eq!((times(0), times(2)), (Some(vec![1e-9]), None), "what was measured before it failed is kept");
}

#[test]
fn times_without_a_unit_are_nanoseconds() {
    let run = read(&gbench(&ENTRY.replace(",\"time_unit\":\"ns\"", ""))).unwrap();
    assert_eq!(run.rows[0].metrics.get("real_time").unwrap().values(), [1e-9]);
}

#[test]
fn a_name_that_ends_like_a_statistic_may_be_a_case() {
    const HEAD: &str = "name,iterations,real_time,cpu_time,time_unit\n";
    let run = read(&format!("{HEAD}find_max,1,5,5,ns\ncut_mean,1,7,7,ns\n")).unwrap();
    let cases: Vec<&str> = run.rows.iter().map(|row| row.case.as_str()).collect();
    assert_eq!(cases, ["find_max", "cut_mean"]);
}

#[test]
fn what_a_message_quotes_is_short_and_moves_no_cursor() {
    let long = format!("\"real_time\":\"\\u001b[2J{}\"", "9x".repeat(500));
    let error = read(&gbench(&ENTRY.replace("\"real_time\":1", &long))).unwrap_err();
    assert!(error.fact.starts_with("`real_time` is `[2J9x9x") && error.fact.contains('…'), "{error:?}");
    assert!(error.fact.chars().count() < 120 && !error.fact.contains('\u{1b}'), "{error:?}");
}

#[test]
fn a_file_of_the_largest_size_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full");
    fs::File::create(&path).unwrap().set_len(MAX_BYTES).unwrap();
    assert_eq!(read_text(&path).unwrap().len() as u64, MAX_BYTES);
}

#[test]
fn an_engine_is_named_or_is_the_program() {
    let engine = |context: &str| {
        read(&format!("{{\"context\":{context},\"benchmarks\":[{ENTRY}]}}")).unwrap().engine.name
    };
    assert_eq!(engine(r#"{"executable":"C:\\build\\bench.exe"}"#), "bench");
    assert_eq!(engine(r#"{"executable":"./bench","engine":"mine"}"#), "mine");
    assert_eq!(engine("{}"), "unknown");
}

#[test]
fn a_case_that_says_that_it_did_not_fail_is_believed() {
    let trusted = |text: &str| import(text, None, &Said { engine: None, trust: true }).unwrap();
    let said = ENTRY.replace("\"cpu_time\":1", "\"cpu_time\":1,\"error_occurred\":false,\"skipped\":false");
    let run = trusted(&gbench(&said));
    assert!(run.rows[0].checked && run.rows[0].params.get("error").is_none());
    let run = trusted(
        "name,iterations,real_time,cpu_time,time_unit,error_occurred,error_message\n\
         a,1,2,2,ns,false,\nb,1,2,2,ns,TRUE,late\n",
    );
    assert_eq!(run.rows.iter().map(|row| row.checked).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn only_numbers_of_an_entry_are_counters() {
    let noted = ENTRY.replace("\"cpu_time\":1", "\"cpu_time\":1,\"note\":\"cold\",\"parts\":[1],\"hits\":3");
    let run = read(&gbench(&noted)).unwrap();
    let names: Vec<&str> = run.rows[0].samples().map(|(name, _)| name).collect();
    assert_eq!(names, ["real_time", "cpu_time", "hits"]);
}

#[test]
fn statistics_and_fits_of_a_case_are_no_cases() {
    let statistics = ["mean", "median", "stddev", "cv", "min", "max"];
    let lines = statistics.map(|name| format!("a_{name},1,5,5,ns\n")).concat();
    let text = format!(
        "name,iterations,real_time,cpu_time,time_unit\na,1,5,5,ns\n{lines}a_BigO,,5,5,N\na_RMS,,5,5,%\n"
    );
    let run = read(&text).unwrap();
    assert_eq!(run.rows.iter().map(|row| row.case.as_str()).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn as_many_counters_as_are_allowed_are_read() {
    // The two times of an entry count as well.
    let counters = (0..MAX_NAMES - 2).map(|i| format!("\"c{i}\":1,")).collect::<Vec<_>>().concat();
    let run = read(&gbench(&ENTRY.replace("{\"name\"", &format!("{{{counters}\"name\"")))).unwrap();
    assert_eq!(run.rows[0].metrics.iter().count(), MAX_NAMES);
}
