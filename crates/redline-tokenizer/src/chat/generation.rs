//! The tag `generation`, with which templates mark the text of the assistant.

/// Replaces the tags `generation` and `endgeneration` with `with` and `endwith`, which minijinja knows. Both pairs render their body, and
/// names that are set in it are not visible after it. Comments, raw blocks and expressions stay as they are.
pub(super) fn replaced(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find('{') {
        let (before, tag) = rest.split_at(at);
        text.push_str(before);
        let end = match tag.as_bytes().get(1) {
            Some(b'#') => tag.find("#}").map_or(tag.len(), |at| at + 2),
            Some(b'{') => end_of_code(tag, "}}"),
            Some(b'%') => end_of_block(tag),
            _ => 1,
        };
        let (tag, after) = tag.split_at(end);
        push_tag(&mut text, tag);
        rest = after;
    }
    text.push_str(rest);
    text
}

/// The end of a block tag; of a raw block, the end of its last tag.
fn end_of_block(tag: &str) -> usize {
    let end = end_of_code(tag, "%}");
    if name(tag).1 != "raw" {
        return end;
    }
    let mut at = end;
    while let Some(found) = tag[at..].find("{%") {
        at += found;
        let end = at + end_of_code(&tag[at..], "%}");
        if name(&tag[at..]).1 == "endraw" {
            return end;
        }
        at += 2;
    }
    tag.len()
}

/// The end of a tag that begins with two characters: after the first `close` outside strings and brackets.
fn end_of_code(tag: &str, close: &str) -> usize {
    let bytes = tag.as_bytes();
    let (mut at, mut depth) = (2, 0_usize);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            _ if depth == 0 && bytes[at..].starts_with(close.as_bytes()) => return at + close.len(),
            b'\'' | b'"' => at = end_of_string(bytes, at),
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    tag.len()
}

/// The position of the quote that ends the string which begins at `at`.
fn end_of_string(bytes: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while bytes.get(end).is_some_and(|byte| *byte != bytes[at]) {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    end
}

/// The name of a block tag, and what precedes it in the tag.
fn name(tag: &str) -> (&str, &str) {
    let inner = tag.get(2..).unwrap_or_default();
    let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner).trim_start();
    let before = tag.len() - inner.len();
    let length = inner.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(inner.len());
    (&tag[..before], &inner[..length])
}

/// Appends a tag, with another name if it is one of the two.
fn push_tag(text: &mut String, tag: &str) {
    let (before, old) = name(tag);
    let new = match old {
        "generation" => "with",
        "endgeneration" => "endwith",
        _ => return text.push_str(tag),
    };
    if !tag.starts_with("{%") {
        return text.push_str(tag);
    }
    text.push_str(before);
    text.push_str(new);
    text.push_str(&tag[before.len() + old.len()..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tags_are_replaced() {
        let check = |source: &str, expected: &str| assert_eq!(replaced(source), expected);
        check("a{% generation %}b{% endgeneration %}c", "a{% with %}b{% endwith %}c");
        check("{%- generation -%}\n{%+endgeneration+%}", "{%- with -%}\n{%+endwith+%}");
        for same in [
            "{# {% generation %} #}{{ generation }}{{ '{% generation %}' }}",
            "{% raw %}{% generation %}{% endraw %}",
            "{%- raw -%} {{ {% if %} {% generation %} {%- endraw -%}",
            "{% set generation = {'a': {'b': '%}'}} %}",
            "{{ {'a': {'b': 1}} }}{% if generation %}{ generation }{% endif %}",
            "{% generations %}{%",
            "{{ \"{% generation %}\\\"\" }}",
            "{",
            "{{ 'é",
            "{% raw %}",
            "{# é",
            "\u{1f600}{\u{1f600}",
        ] {
            check(same, same);
        }
        check("{% raw %}{% endraw %}{% generation %}", "{% raw %}{% endraw %}{% with %}");
        check("{{ {'a': {'b': 1}} }}{% generation %}", "{{ {'a': {'b': 1}} }}{% with %}");
        check("{# a #}{% generation %}", "{# a #}{% with %}");
    }
}
