//! Sizes in bytes as people write them.

use std::fmt;

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSize {
    fact: String,
    hint: &'static str,
}

impl BadSize {
    /// What a size looks like.
    pub fn hint(&self) -> &'static str {
        self.hint
    }
}

impl fmt::Display for BadSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fact)
    }
}

impl std::error::Error for BadSize {}

/// Parses a size in bytes: a number with a binary unit (`8GiB`, `8G`), a decimal one (`8GB`), or none.
pub fn bytes(text: &str) -> Result<u64, BadSize> {
    let hint = "a size such as 8GiB (binary), 8GB (decimal) or a number of bytes";
    let bad = |fact: String, hint| Err(BadSize { fact, hint });
    let digits = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (number, unit) = text.split_at(digits);
    let lower = unit.trim().to_ascii_lowercase();
    let with_prefix = |(prefix, power)| match lower.strip_prefix(prefix)? {
        "" | "i" | "ib" => Some(1024f64.powi(power)),
        "b" => Some(1000f64.powi(power)),
        _ => None,
    };
    let factor = match lower.as_str() {
        "" | "b" => Some(1.0),
        _ => "kmgtpe".chars().zip(1..).find_map(with_prefix),
    };
    let Some(factor) = factor else { return bad(format!("no unit `{unit}`"), hint) };
    match number.parse::<f64>() {
        // Sizes below a byte, and of 2^63 bytes and more, are rejected.
        Ok(n) if (1.0..2f64.powi(63)).contains(&(n * factor)) => Ok((n * factor) as u64),
        Ok(_) => bad("out of range".to_owned(), "a size such as 8GiB, of at least one byte"),
        Err(_) => bad(format!("`{text}` is not a size"), hint),
    }
}
