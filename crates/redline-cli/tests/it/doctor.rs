//! `doctor`.

use crate::harness::redline;

#[test]
fn the_machine_is_described() {
    let text = redline(&["doctor"]).ok().out;
    for expect in ["scalar", "avx2", "avx512", "amx"] {
        assert!(text.contains(expect), "no `{expect}` in {text}");
    }
    let json = redline(&["doctor", "--json"]).ok().out;
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(value.is_object());
}
