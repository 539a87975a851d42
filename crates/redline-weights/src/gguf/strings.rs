//! Arrays of strings.

/// Strings in one text, which takes no more memory than they took in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GgufStrings {
    text: String,
    /// End of each string in the text, ascending.
    ends: Vec<usize>,
}

impl GgufStrings {
    pub(super) fn new(text: String, ends: Vec<usize>) -> Self {
        Self { text, ends }
    }

    /// Number of strings.
    #[allow(clippy::len_without_is_empty)] // nothing needs it
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The strings, in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, &end)| &self.text[begin..end])
    }
}
