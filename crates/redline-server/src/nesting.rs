//! The depth of JSON, found before anything is parsed.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_count_outside_of_strings() {
        let deep = |json: &str, most| is_deeper(json.as_bytes(), most);
        assert!(!deep(r#"{"a":[1,[2]]}"#, 3) && deep(r#"{"a":[1,[2]]}"#, 2));
        assert!(!deep(r#"{"a":"[[[[\"[[["}"#, 1));
        assert!(!deep("[],[],[]", 1) && !deep("]]]][", 1));
        assert!(deep(&"[".repeat(100_000), 64));
    }
}
