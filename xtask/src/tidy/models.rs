//! Architectures are independent of formats, instructions, adapters and batches; `forward` cannot fail or allocate.

use super::tree::{Findings, Tree};

/// Words that do not belong in an architecture's file.
const FOREIGN: &[(&str, &[&str])] = &[
    ("a weight format", &["bf16", "f16", "fp16", "w8", "w4", "q8", "q4", "int8", "int4", "infq"]),
    ("a weight format", &["quantise", "quantised", "quantize", "quantized", "dequantise", "dequantize"]),
    ("an instruction set", &["avx", "avx2", "avx512", "vnni", "amx", "sse", "neon", "sve", "simd"]),
    ("an adapter", &["lora", "dora", "peft", "adapter", "adapters"]),
    ("a batch mode", &["batch", "batches", "batched", "batching"]),
];

/// Calls that are not allowed in `forward`.
const ALLOCATIONS: &[&str] = &[
    "Vec :: new",
    "Vec :: with_capacity",
    "vec !",
    "Box :: new",
    "format !",
    "String :: new",
    "String :: from",
    ". to_vec (",
    ". to_owned (",
    ". to_string (",
    ". collect (",
    ". collect ::",
];

/// No file of an architecture names a weight format, an instruction set, an adapter or a batch mode.
pub(super) fn architectures(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    for source in tree.rust(&["crates/redline-models/src/arch/"], &mut findings) {
        for (index, line) in source.text.lines().enumerate() {
            for word in words(line) {
                if let Some((what, _)) = FOREIGN.iter().find(|(_, names)| names.contains(&word.as_str())) {
                    let message = format!("`{word}` names {what}: that lives inside the blocks");
                    findings.broken(source.path, index + 1, message);
                }
            }
        }
    }
    findings
}

/// The words of a line in lower case; identifiers are split at `_` and capitals.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in line.chars() {
        if !c.is_ascii_alphanumeric() || (c.is_ascii_uppercase() && !before.is_ascii_uppercase()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_ascii_alphanumeric()) {
            word.push(c.to_ascii_lowercase());
        }
        before = c;
    }
    words.retain(|w| !w.is_empty());
    words
}

/// `forward` cannot fail or allocate: that is done at load or plan time.
pub(super) fn forward(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    let sources = tree.rust(&["crates/redline-models/src/"], &mut findings);
    findings.seen = 0;
    for source in sources {
        for function in
            source.functions().iter().filter(|f| f.name == "forward" || f.name.starts_with("forward_"))
        {
            let name = function.name;
            findings.seen += 1;
            if !source.find(function.signature.clone(), "Result").is_empty() {
                findings.broken(
                    source.path,
                    function.line,
                    format!("`{name}` returns a Result: fail at load"),
                );
            }
            for call in ALLOCATIONS {
                for at in source.find(function.body.clone(), call) {
                    let call = call.replace(' ', "");
                    let message = format!("`{call}` allocates in `{name}`: lay memory out in the plan");
                    findings.broken(source.path, source.line(at), message);
                }
            }
        }
    }
    if findings.seen == 0 {
        findings.absent.push("a function `forward` in redline-models".to_string());
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_taken_apart() {
        assert_eq!(
            words("let lora_a = BatchSize::W8(x2);"),
            ["let", "lora", "a", "batch", "size", "w8", "x2"]
        );
        assert_eq!(words("// AVX512, \"bf16\""), ["avx512", "bf16"]);
    }
}
