//! Getters of metadata: every type of value, and the messages for wrong ones.

use redline_weights::{Gguf, GgufArray, GgufMetadata, GgufValue};

use super::made;
use redline_testing::gguf::Writer;

fn reference() -> Gguf {
    Gguf::open(&made("single/model.gguf")).unwrap()
}

#[test]
fn every_type_of_value_is_read() {
    let gguf = reference();
    let metadata = gguf.metadata();
    let get = |key: &str| metadata.get(&format!("test.{key}")).unwrap().clone();
    assert_eq!(get("u8"), GgufValue::U8(u8::MAX));
    assert_eq!(get("i8"), GgufValue::I8(i8::MIN));
    assert_eq!(get("u16"), GgufValue::U16(u16::MAX));
    assert_eq!(get("i16"), GgufValue::I16(i16::MIN));
    assert_eq!(get("u32"), GgufValue::U32(u32::MAX));
    assert_eq!(get("i32"), GgufValue::I32(i32::MIN));
    assert_eq!(get("u64"), GgufValue::U64(u64::MAX));
    assert_eq!(get("i64"), GgufValue::I64(i64::MIN));
    assert_eq!(get("f32"), GgufValue::F32(0.1));
    assert_eq!(get("f64"), GgufValue::F64(0.1));
    assert_eq!(get("true"), GgufValue::Bool(true));
    assert_eq!(get("false"), GgufValue::Bool(false));
    assert_eq!(get("string"), GgufValue::String("G\u{fc}te \u{1f600}\n\0".to_owned()));
    let array = |kind: &str| match get(&format!("array.{kind}")) {
        GgufValue::Array(array) => array,
        other => panic!("{other}"),
    };
    assert_eq!(array("uint8"), GgufArray::U8(vec![0, 255]));
    assert_eq!(array("int8"), GgufArray::I8(vec![-128, 127]));
    assert_eq!(array("uint16"), GgufArray::U16(vec![65535]));
    assert_eq!(array("int16"), GgufArray::I16(vec![-1, 2]));
    assert_eq!(array("uint32"), GgufArray::U32(vec![u32::MAX, 0]));
    assert_eq!(array("int32"), GgufArray::I32(vec![i32::MIN, 3]));
    assert_eq!(array("uint64"), GgufArray::U64(vec![u64::MAX]));
    assert_eq!(array("int64"), GgufArray::I64(vec![-1]));
    assert_eq!(array("float32"), GgufArray::F32(vec![0.5, -1.5]));
    assert_eq!(array("float64"), GgufArray::F64(vec![0.1]));
    assert_eq!(array("bool"), GgufArray::Bool(vec![true, false, true]));
    let GgufArray::String(strings) = array("string") else { panic!("no strings") };
    assert_eq!(strings.iter().collect::<Vec<_>>(), ["", "a", "\u{e9}\u{e9}", ""]);
    assert_eq!(strings.len(), 4);
    assert_eq!(metadata.keys().count(), 27);
    assert_eq!(metadata.string("general.architecture").unwrap(), "test");
}

#[test]
fn getters_return_values_and_defaults() {
    let gguf = reference();
    let metadata = gguf.metadata();
    assert_eq!(metadata.u32("test.u8").unwrap(), 255);
    assert_eq!(metadata.u32("test.u32").unwrap(), u32::MAX);
    assert_eq!(metadata.u32_or("absent", 7).unwrap(), 7);
    assert_eq!(metadata.u32_or("test.u16", 7).unwrap(), 65535);
    assert_eq!(metadata.opt_u32("absent").unwrap(), None);
    assert_eq!(metadata.f32("test.f32").unwrap(), 0.1);
    assert_eq!(metadata.f32_or("absent", 2.5).unwrap(), 2.5);
    assert!(metadata.bool_or("test.true", false).unwrap());
    assert!(metadata.bool_or("absent", true).unwrap());
    assert_eq!(metadata.opt_bool("test.false").unwrap(), Some(false));
    assert_eq!(metadata.opt_string("test.empty").unwrap(), Some("\u{200b}"));
    assert_eq!(metadata.opt_string("absent").unwrap(), None);
    assert_eq!(metadata.strings("test.array.string").unwrap(), ["", "a", "\u{e9}\u{e9}", ""]);
    assert!(metadata.strings("absent").unwrap().is_empty());
    assert_eq!(metadata.f32s("test.array.float32").unwrap(), [0.5, -1.5]);
    assert_eq!(metadata.u32s("test.array.uint8").unwrap(), [0, 255]);
    assert_eq!(metadata.u32s("test.u16").unwrap(), [65535]);
    assert_eq!(metadata.i32s("test.array.int32").unwrap(), [i32::MIN, 3]);
    assert_eq!(metadata.i32s("test.array.int64").unwrap(), [-1]);
    assert_eq!(metadata.bools("test.array.bool").unwrap(), [true, false, true]);
    assert!(metadata.bools("absent").unwrap().is_empty() && metadata.f32s("absent").unwrap().is_empty());
}

#[test]
fn a_wrong_type_is_an_error_that_names_both() {
    let gguf = reference();
    let metadata = gguf.metadata();
    type Get = fn(&GgufMetadata, &str) -> redline_weights::Result<()>;
    let cases: &[(&str, Get, &str)] = &[
        ("absent", |m, k| m.u32(k).map(drop), "the key `absent` is missing"),
        ("absent", |m, k| m.string(k).map(drop), "the key `absent` is missing"),
        ("absent", |m, k| m.f32(k).map(drop), "the key `absent` is missing"),
        ("test.i8", |m, k| m.u32_or(k, 1).map(drop), "`test.i8` is -128 (i8), but u32 is needed"),
        (
            "test.u64",
            |m, k| m.u32(k).map(drop),
            "`test.u64` is 18446744073709551615 (u64), but u32 is needed",
        ),
        ("test.f32", |m, k| m.u32(k).map(drop), "`test.f32` is 0.1 (f32), but u32 is needed"),
        ("test.true", |m, k| m.u32(k).map(drop), "`test.true` is true (bool), but u32 is needed"),
        ("test.f64", |m, k| m.f32(k).map(drop), "`test.f64` is 0.1 (f64), but a finite f32 is needed"),
        ("test.u8", |m, k| m.f32_or(k, 1.0).map(drop), "`test.u8` is 255 (u8), but a finite f32 is needed"),
        ("test.u8", |m, k| m.bool_or(k, true).map(drop), "`test.u8` is 255 (u8), but bool is needed"),
        ("test.u8", |m, k| m.string(k).map(drop), "`test.u8` is 255 (u8), but string is needed"),
        (
            "test.string",
            |m, k| m.u32(k).map(drop),
            "`test.string` is \"G\u{fc}te \u{1f600}\\n\\0\" (string), but u32 is needed",
        ),
        (
            "test.array.int32",
            |m, k| m.strings(k).map(drop),
            "`test.array.int32` is an array of 2 i32, but an array of string is needed",
        ),
        (
            "test.array.int32",
            |m, k| m.u32s(k).map(drop),
            "`test.array.int32` is an array of 2 i32, but u32 or an array of u32 is needed",
        ),
        (
            "test.array.string",
            |m, k| m.f32s(k).map(drop),
            "`test.array.string` is an array of 4 string, but an array of f32 is needed",
        ),
        (
            "test.array.float64",
            |m, k| m.i32s(k).map(drop),
            "`test.array.float64` is an array of 1 f64, but i32 or an array of i32 is needed",
        ),
        (
            "test.true",
            |m, k| m.bools(k).map(drop),
            "`test.true` is true (bool), but an array of bool is needed",
        ),
        ("test.u8", |m, k| Err(m.refuse(k, "`1`")), "`test.u8` is 255 (u8), but only `1` is supported"),
        ("absent", |m, k| Err(m.refuse(k, "`1`")), "`absent` is absent, but only `1` is supported"),
    ];
    for (key, get, fact) in cases {
        let message = get(metadata, key).expect_err(fact).to_string();
        assert_eq!(message, format!("{fact}\n  in `{}`", made("single/model.gguf").display()));
    }
}

#[test]
fn numbers_that_are_not_finite_are_no_numbers() {
    for (value, shown) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        let file = Writer::new().number("x", 6, &value.to_le_bytes()).finish();
        let gguf = Gguf::from_bytes("embedded", file.leak()).unwrap();
        let message = gguf.metadata().f32_or("x", 1.0).unwrap_err().to_string();
        assert_eq!(message, format!("`x` is {shown} (f32), but a finite f32 is needed\n  in `embedded`"));
    }
}

#[test]
fn arrays_longer_than_what_is_read_at_a_time() {
    let numbers: Vec<[u8; 4]> = (0..100_000u32).map(u32::to_le_bytes).collect();
    let long = "\u{20ac}".repeat(50_000);
    let texts: Vec<&str> = std::iter::repeat_n(["a", "", "bc", &long[..30_000]], 500).flatten().collect();
    let file = Writer::new().numbers("n", 4, &numbers).string("long", &long).strings("t", &texts).finish();
    let gguf = Gguf::from_bytes("embedded", file.leak()).unwrap();
    assert!(gguf.metadata().u32s("n").unwrap().into_iter().eq(0..100_000));
    assert_eq!(gguf.metadata().string("long").unwrap(), long);
    assert_eq!(gguf.metadata().strings("t").unwrap(), texts);
    assert_eq!(gguf.names().count(), 0);
}

#[test]
fn empty_arrays_and_texts_are_values() {
    let file = Writer::new().numbers::<4>("n", 4, &[]).strings("t", &[]).string("s", "").finish();
    let gguf = Gguf::from_bytes("embedded", file.leak()).unwrap();
    assert!(gguf.metadata().u32s("n").unwrap().is_empty());
    assert!(gguf.metadata().strings("t").unwrap().is_empty());
    assert_eq!(gguf.metadata().string("s").unwrap(), "");
}
