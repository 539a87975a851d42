//! A long text cut into windows.

use redline_settings::{Setting, hint};

use super::Limits;
use crate::error::EngineError;
use crate::request::Prompt;

/// A text as token ids, and how it is cut.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    /// The tokens that every window begins with.
    prefix: Vec<u32>,
    /// The text's own tokens.
    ids: Vec<u32>,
    /// Number of tokens in a window, prefix included.
    pub(crate) size: usize,
}

/// A window: all tokens from `first` on are predicted from those before them.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// At least 2.
    pub(crate) tokens: Vec<u32>,
    /// The first token that is counted, at least 1.
    pub(crate) first: usize,
}

impl Windows {
    /// The windows, in order. A remainder with nothing to predict is left out.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Window> + '_ {
        let first = self.prefix.len().max(1);
        let window = move |ids: &[u32]| Window { tokens: [&self.prefix, ids].concat(), first };
        self.ids.chunks(self.size - self.prefix.len()).map(window).filter(|w| w.tokens.len() > w.first)
    }

    /// Describes the first difference between two tokenisations of one text.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        if self.prefix != other.prefix {
            return Some(format!(
                "{:?} stands in front with one, {:?} with the other",
                self.prefix, other.prefix
            ));
        }
        let (ours, theirs) = (&self.ids, &other.ids);
        let at = (0..ours.len().max(theirs.len())).find(|&i| ours.get(i) != theirs.get(i))?;
        let shown = |id: Option<&u32>| id.map_or_else(|| "missing".to_owned(), u32::to_string);
        let (ours, theirs) = (shown(ours.get(at)), shown(theirs.get(at)));
        Some(format!("token {at} of the text is {ours} with one, {theirs} with the other"))
    }
}

impl Limits<'_> {
    /// Cuts a text into windows of `size` tokens.
    pub(crate) fn windows(&self, text: &Prompt, size: usize) -> Result<Windows, EngineError> {
        let (prefix, ids) = match text {
            Prompt::Ids(ids) => (Vec::new(), self.ids("text", ids)?),
            Prompt::Formatted(text) => (Vec::new(), self.tokenizer()?.encode(text, false)?),
            Prompt::Text(text) => {
                let tokenizer = self.tokenizer()?;
                let prefix = tokenizer.prefix_ids();
                let mut ids = tokenizer.encode(text, false)?;
                if ids.starts_with(prefix) {
                    ids.drain(..prefix.len());
                }
                (prefix.to_vec(), ids)
            }
        };
        self.check_ids("the text", &prefix)?;
        self.check_ids("the text", &ids)?;
        self.check_window(size, prefix.len())?;
        let (have, first) = (prefix.len() + ids.len(), prefix.len().max(1));
        if ids.is_empty() || have <= first {
            let count = ids.len();
            let fact = format!(
                "the text has {count} token{}: there is nothing to predict",
                if count == 1 { "" } else { "s" }
            );
            return Err(EngineError::request(fact, "give a text of at least 2 tokens"));
        }
        Ok(Windows { prefix, ids, size })
    }

    fn check_window(&self, size: usize, prefix: usize) -> Result<(), EngineError> {
        let (context, least) = (self.context, prefix.max(1) + 1);
        if size > context {
            let fact =
                format!("a window of {size} tokens exceeds the context of {context} of `{}`", self.model);
            return Err(EngineError::request(fact, hint!["give at most ", Setting::Window.to(context)]));
        }
        if size < least {
            let fact = format!("a window of {size} tokens has nothing to predict");
            return Err(EngineError::request(fact, hint!["give at least ", Setting::Window.to(least)]));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(prefix: &[u32], ids: u32, size: usize) -> Vec<Vec<u32>> {
        let windows = Windows { prefix: prefix.to_vec(), ids: (10..10 + ids).collect(), size };
        windows.iter().map(|w| w.tokens).collect()
    }

    #[test]
    fn windows_follow_each_other_and_a_rest_without_a_prediction_is_left_out() {
        assert_eq!(cut(&[], 7, 3), [vec![10, 11, 12], vec![13, 14, 15]]);
        assert_eq!(cut(&[], 8, 3), [vec![10, 11, 12], vec![13, 14, 15], vec![16, 17]]);
        assert_eq!(cut(&[1], 5, 3), [vec![1, 10, 11], vec![1, 12, 13], vec![1, 14]]);
        assert_eq!(cut(&[1, 2], 3, 4), [vec![1, 2, 10, 11], vec![1, 2, 12]]);
        assert_eq!(cut(&[], 2, 512), [vec![10, 11]]);
    }

    #[test]
    fn tokenisations_part_at_the_first_difference() {
        let windows =
            |prefix: &[u32], ids: &[u32]| Windows { prefix: prefix.to_vec(), ids: ids.to_vec(), size: 4 };
        let base = windows(&[1], &[5, 6]);
        assert_eq!(base.difference(&base), None);
        let differs = |prefix: &[u32], ids: &[u32]| base.difference(&windows(prefix, ids)).unwrap();
        assert_eq!(differs(&[1], &[5, 7]), "token 1 of the text is 6 with one, 7 with the other");
        assert_eq!(differs(&[1], &[5]), "token 1 of the text is 6 with one, missing with the other");
        assert_eq!(differs(&[1], &[5, 6, 0]), "token 2 of the text is missing with one, 0 with the other");
        assert_eq!(differs(&[], &[1, 5, 6]), "[1] stands in front with one, [] with the other");
    }

    #[test]
    fn the_tokens_in_front_of_a_window_are_not_counted() {
        let first = |prefix: &[u32]| -> Vec<usize> {
            let windows = Windows { prefix: prefix.to_vec(), ids: vec![10, 11, 12], size: 4 };
            windows.iter().map(|window| window.first).collect()
        };
        assert_eq!((first(&[]), first(&[1]), first(&[1, 2])), (vec![1], vec![1], vec![2, 2]));
    }
}
