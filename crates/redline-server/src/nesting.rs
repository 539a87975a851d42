//! The depth and the keys of JSON, found before anything is parsed.

/// Whether arrays and objects are nested more deeply than `most`. Text that is not JSON has some depth too; the parser refuses it.
pub(crate) fn is_deeper(json: &[u8], most: usize) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for &byte in json {
        if escaped {
            escaped = false;
        } else if in_string {
            match byte {
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
        } else {
            match byte {
                b'"' => in_string = true,
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth > most {
                return true;
            }
        }
    }
    false
}

/// Whether an object has one of these keys itself, not in a value. Text that is not JSON may have some; the parser refuses it.
pub(crate) fn has_key(json: &[u8], keys: &[&str]) -> bool {
    let (mut depth, mut is_key) = (0usize, false);
    let mut rest = json;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'"' => {
                let mut escaped = false;
                let end = rest.iter().position(|&byte| {
                    let ends = byte == b'"' && !escaped;
                    escaped = byte == b'\\' && !escaped;
                    ends
                });
                let (string, after) = rest.split_at(end.unwrap_or(rest.len()));
                if is_key && keys.iter().any(|key| key.as_bytes() == string) {
                    return true;
                }
                rest = after.get(1..).unwrap_or_default();
                is_key = false;
            }
            b'[' | b'{' => {
                depth += 1;
                is_key = depth == 1;
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => is_key = depth == 1,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_object_itself() {
        let has = |json: &str| has_key(json.as_bytes(), &["a", "b"]);
        assert!(has(r#"{"a":1}"#) && has(r#"{"x":[{"y":1},"z"] , "b":"#) && has("{\"x\":\"\u{0}\",\"a\":"));
        for json in [
            r#"{"x":"a","y":["a","b"],"z":{"a":1}}"#,
            r#"{"x":"\",\"a\":"}"#,
            r#"{"\"a":1}"#,
            "",
            "[[",
            r#"{"x"#,
        ] {
            assert!(!has(json), "{json}");
        }
    }

    #[test]
    fn brackets_count_outside_of_strings() {
        let deep = |json: &str, most| is_deeper(json.as_bytes(), most);
        assert!(!deep(r#"{"a":[1,[2]]}"#, 3) && deep(r#"{"a":[1,[2]]}"#, 2));
        assert!(!deep(r#"{"a":"[[[[\"[[["}"#, 1));
        assert!(!deep("[],[],[]", 1) && !deep("]]]][", 1));
        assert!(deep(&"[".repeat(100_000), 64));
    }
}
