//! The written form of results is stable and can be read back.

use crate::small_machine;
use redline_lab::result::{LaneResult, Ordered};
use redline_lab::{Direction, Row, Samples};
use redline_system::Machine;

fn samples(unit: &str, direction: Direction, values: &[f64]) -> Samples {
    Samples::new(unit, direction, values.to_vec()).expect("the values are finite")
}

fn decode() -> Row {
    let row = Row::new("decode/w8/b1")
        .param("threads", 2)
        .param("format", "w8")
        .metric("tpot", samples("ms", Direction::Lower, &[40.0, 42.0, 41.0]))
        .metric("rate", samples("tokens/s", Direction::Higher, &[25.0]))
        .limit("read_bandwidth", Some(0.834))
        .digest("ab");
    Row { kernel_path: Some("avx512".to_owned()), checked: true, ..row }
}

fn result(rows: Vec<Row>) -> LaneResult {
    LaneResult { lane: "generate".to_owned(), machine: Machine::default(), rows }
}

#[test]
fn the_json_of_a_row_is_fixed() {
    let json = serde_json::to_string(&decode()).unwrap();
    let expected = concat!(
        r#"{"case":"decode/w8/b1","params":{"threads":2,"format":"w8"},"metrics":{"#,
        r#""tpot":{"unit":"ms","direction":"lower","median":41.0,"mean":41.0,"std":1.0,"min":40.0,"max":42.0,"#,
        r#""n":3,"samples":[40.0,42.0,41.0],"headline":41.0,"processes":[[40.0,42.0,41.0]]},"#,
        r#""rate":{"unit":"tokens/s","direction":"higher","median":25.0,"mean":25.0,"std":null,"min":25.0,"max":25.0,"#,
        r#""n":1,"samples":[25.0],"headline":25.0,"processes":[[25.0]]}},"#,
        r#""limit":"read_bandwidth","share_of_limit":0.834,"kernel_path":"avx512","checked":true,"digest":"ab","#,
        r#""limit_method":"probe/1"}"#,
    );
    assert_eq!(json, expected);
}

#[test]
fn the_document_has_lane_machine_rows() {
    let result = LaneResult { machine: small_machine(), ..result(vec![decode()]) };
    let json = serde_json::to_string(&result).unwrap();
    assert!(json.starts_with(r#"{"lane":"generate","machine":{"summary":"AMD EPYC"#), "{json}");
    assert!(json.contains(r#"},"rows":[{"case":"#), "{json}");
}

#[test]
fn documents_read_back() {
    let result = LaneResult { machine: small_machine(), ..result(vec![decode(), Row::new("empty")]) };
    let json = result.json().unwrap();
    assert!(json.ends_with("}\n"));
    assert_eq!(serde_json::from_str::<LaneResult>(&json).unwrap(), result);
}

#[test]
fn unknown_fields_are_ignored_and_summaries_are_computed() {
    let json = r#"{"case":"a","params":{},"metrics":{"m":{"unit":"s","direction":"info","median":99,"later":1,
                  "samples":[1,2]}},"limit":null,"share_of_limit":null,"kernel_path":null,"checked":true,"later":2}"#;
    let row: Row = serde_json::from_str(json).unwrap();
    assert_eq!(row.metrics.get("m").unwrap().median(), Some(1.5));
    let bad = json.replace("[1,2]", "[1,null]");
    assert!(serde_json::from_str::<Row>(&bad).is_err());
}

#[test]
fn a_row_needs_only_its_case_and_metrics() {
    let json = r#"{"case":"a","metrics":{"m":{"unit":"s","direction":"lower","samples":[3,1,2]}}}"#;
    let row: Row = serde_json::from_str(json).unwrap();
    let expected = Row::new("a").metric("m", samples("s", Direction::Lower, &[3.0, 1.0, 2.0]));
    assert_eq!(row, expected);
    assert_eq!(row.invalid().as_deref(), Some("not checked"));
}

#[test]
fn processes_hold_the_samples() {
    let metric = |processes: &str| {
        let json = format!(r#"{{"unit":"s","direction":"lower","samples":[1,2,3],"processes":{processes}}}"#);
        serde_json::from_str::<redline_lab::Samples>(&json)
    };
    let read = metric("[[1,3],[2]]").unwrap();
    assert_eq!(read.processes().collect::<Vec<_>>(), [&[1.0, 3.0][..], &[2.0]]);
    assert_eq!(read.headline(), Some(2.0));
    assert_eq!(metric("null").unwrap().processes().len(), 1);
    for bad in ["[[1,2]]", "[[1,2,4]]", "[]", "[[1,2,3],[3]]"] {
        let error = metric(bad).unwrap_err().to_string();
        assert!(error.contains("holds not the values of `samples` (3 values)"), "{error}");
    }
}

#[test]
fn names_keep_their_first_place() {
    let mut map = Ordered::default();
    assert!(map.is_empty());
    for (name, value) in [("z", 1), ("a", 2), ("z", 3)] {
        map.insert(name.to_owned(), value);
    }
    assert_eq!((map.len(), map.get("a"), map.get("b")), (2, Some(&2), None));
    let json = r#"{"z":3,"a":2}"#;
    assert_eq!(serde_json::to_string(&map).unwrap(), json);
    assert_eq!(serde_json::from_str::<Ordered<i32>>(json).unwrap(), map);
}

#[test]
fn rows_that_must_not_be_believed_say_why() {
    let share = |share| decode().limit("read_bandwidth", Some(share)).invalid();
    assert_eq!((share(0.0), share(1.0), share(1.15)), (None, None, None));
    assert_eq!(share(1.2).as_deref(), Some("120.0 % of the limit"));
    assert!(share(-0.1).is_some() && share(f64::NAN).is_some());
    let unchecked = Row { checked: false, ..decode() };
    assert_eq!(unchecked.invalid().as_deref(), Some("not checked"));
}

#[test]
fn the_table_lines_up() {
    let unchecked = Row { checked: false, ..Row::new("broken") };
    let table = result(vec![decode(), unchecked]).table();
    let expected = "\
case          metric  median  unit       mean    std    var    min    max  n  of limit  limit           kernels
decode/w8/b1  tpot     41.00  ms        41.00  1.000  2.4 %  40.00  42.00  3    83.4 %  read_bandwidth  avx512
              rate     25.00  tokens/s  25.00      -      -  25.00  25.00  1
broken                                                                                                           INVALID: not checked
";
    assert_eq!(table, expected);
}

#[test]
fn csv_has_one_line_per_row_and_metric() {
    let odd = Row::new("a,\"b\"").metric("m", samples("s", Direction::Info, &[]));
    let mut out = Vec::new();
    result(vec![decode(), odd, Row::new("no metric")]).write_csv(&mut out).unwrap();
    let expected = "\
lane,case,metric,unit,median,mean,std,min,max,n
generate,decode/w8/b1,tpot,ms,41,41,1,40,42,3
generate,decode/w8/b1,rate,tokens/s,25,25,,25,25,1
generate,\"a,\"\"b\"\"\",m,s,,,,,,0
";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn csv_keeps_every_digit() {
    let third = 1.0 / 3.0;
    let mut out = Vec::new();
    let row = Row::new("c").metric("m", samples("s", Direction::Lower, &[third]));
    result(vec![row]).write_csv(&mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let median: f64 = text.lines().nth(1).unwrap().split(',').nth(4).unwrap().parse().unwrap();
    assert_eq!(median.to_bits(), third.to_bits());
}

#[test]
fn a_lane_may_have_columns_of_its_own() {
    const COLUMNS: &[&str] = &[
        "name=@case|unit='ns'|threads|format|time=~tpot*1e3|none=max:tpot*0|std=std:rate|n=#tpot|~absent",
        "@share|@limit|@kernels",
    ];
    let mut csv = Vec::new();
    result(vec![decode(), Row::new("a,b")]).write_columns(COLUMNS, &mut csv).unwrap();
    let expected = "name,unit,threads,format,time,none,std,n,absent,share,limit,kernels\n\
                    decode/w8/b1,ns,2,w8,41000,0,,3,,0.834,read_bandwidth,avx512\n\
                    \"a,b\",ns,,,,,,,,,,\n";
    assert_eq!(String::from_utf8(csv).unwrap(), expected);
}
