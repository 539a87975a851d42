//! Formats text from files for messages: control characters are escaped, long text is cut.

use std::fmt::{self, Write};

const LONGEST: usize = 160;

/// Displays at most 160 characters, with control characters escaped.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, c) in self.0.chars().enumerate() {
            if place == LONGEST {
                return f.write_str("...");
            }
            if c.is_control() { write!(f, "{}", c.escape_default())? } else { f.write_char(c)? }
        }
        Ok(())
    }
}

/// Displays a shape as `4096 x 11008`, the empty shape as `a scalar`.
pub(crate) struct Dims<'a, T = usize>(pub(crate) &'a [T]);

impl<T: fmt::Display> fmt::Display for Dims<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((first, rest)) = self.0.split_first() else { return f.write_str("a scalar") };
        write!(f, "{first}")?;
        rest.iter().try_for_each(|dim| write!(f, " x {dim}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_after_its_first_160_characters() {
        let shown = |length: usize| Quoted(&"\u{e9}".repeat(length)).to_string();
        assert_eq!(shown(160), "\u{e9}".repeat(160));
        assert_eq!(shown(161), format!("{}...", "\u{e9}".repeat(160)));
    }
}
