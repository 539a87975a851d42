//! The labels of a judgement, and whether their end is scored.

use redline_settings::{LabelEnd, Setting, hint};

use crate::error::EngineError;
use crate::request::Label;

/// The labels and what is known of their end.
pub(super) struct Ended {
    /// What is scored after every label.
    pub(super) end: Option<Label>,
    /// A label and another that begins with it, if the end is not scored.
    pub(super) prefix: Option<(usize, usize)>,
}

/// Decides whether the end of the labels is scored. `tokens` are those of each label, `end` is what the model writes after a
/// label, if that is known, and `noun` names the labels in messages.
pub(super) fn ended(
    tokens: &[Vec<u32>],
    policy: LabelEnd,
    end: Option<Label>,
    noun: &str,
) -> Result<Ended, EngineError> {
    let pair = first_pair(tokens);
    if let Some((one, other)) = pair
        && tokens[one] == tokens[other]
    {
        let (one, other) = (one.min(other), one.max(other));
        let fact = format!("{noun} {one} and {noun} {other} are the same tokens: {:?}", tokens[one]);
        return Err(EngineError::request(fact, format!("give every {noun} once")));
    }
    let needed = match policy {
        LabelEnd::Auto => pair.is_some(),
        LabelEnd::Always => true,
        LabelEnd::Never => false,
    };
    if needed && end.is_none() && policy == LabelEnd::Always {
        let fact =
            format!("the end of every {noun} is to be scored, and the model names no end-of-text token");
        return Err(EngineError::request(
            fact,
            hint!["give the text that ends it, or ", Setting::LabelEnd.to("never")],
        ));
    }
    let end = end.filter(|_| needed);
    let prefix = pair.filter(|_| end.is_none());
    Ok(Ended { end, prefix })
}

/// A label and another that begins with its tokens, or has the same.
fn first_pair(tokens: &[Vec<u32>]) -> Option<(usize, usize)> {
    let mut order: Vec<usize> = (0..tokens.len()).collect();
    order.sort_by_key(|&label| &tokens[label]);
    // In this order, the labels that begin with a label follow it directly.
    let pairs = order.windows(2).map(|pair| (pair[0], pair[1]));
    let mut prefixes: Vec<(usize, usize)> =
        pairs.filter(|&(one, other)| tokens[other].starts_with(&tokens[one])).collect();
    // Labels with the same tokens first.
    prefixes.sort_by_key(|&(one, other)| tokens[one] != tokens[other]);
    prefixes.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(lists: &[&[u32]]) -> Vec<Vec<u32>> {
        lists.iter().map(|ids| ids.to_vec()).collect()
    }

    #[test]
    fn a_label_that_begins_another_is_seen_wherever_it_stands() {
        assert_eq!(first_pair(&labels(&[&[5], &[6], &[7, 5]])), None);
        assert_eq!(first_pair(&labels(&[&[5, 6], &[4], &[5]])), Some((2, 0)));
        assert_eq!(first_pair(&labels(&[&[5, 6, 7], &[5, 6, 1], &[5, 7], &[5, 6]])), Some((3, 1)));
        assert_eq!(first_pair(&labels(&[&[5], &[5, 6], &[9], &[9]])), Some((2, 3)));
    }

    #[test]
    fn the_end_is_scored_where_it_is_needed_and_known() {
        let end = || Some(Label::Ids(vec![2]));
        let (apart, nested) = (labels(&[&[5], &[6, 5]]), labels(&[&[5, 6], &[5]]));
        let decided = |tokens: &[Vec<u32>], policy, end| {
            let Ended { end, prefix } = ended(tokens, policy, end, "class").unwrap();
            (end.is_some(), prefix)
        };
        assert_eq!(decided(&apart, LabelEnd::Auto, end()), (false, None));
        assert_eq!(decided(&nested, LabelEnd::Auto, end()), (true, None));
        assert_eq!(decided(&nested, LabelEnd::Auto, None), (false, Some((1, 0))));
        assert_eq!(decided(&nested, LabelEnd::Never, end()), (false, Some((1, 0))));
        assert_eq!(decided(&apart, LabelEnd::Always, end()), (true, None));
        let refusal = |tokens: &[Vec<u32>], policy, end| {
            ended(tokens, policy, end, "class").err().map(|error| error.to_string()).unwrap()
        };
        assert!(refusal(&apart, LabelEnd::Always, None).contains("no end-of-text token"));
        let twice = refusal(&labels(&[&[5, 6], &[4], &[5, 6]]), LabelEnd::Auto, end());
        assert_eq!(twice, "class 0 and class 2 are the same tokens: [5, 6]");
    }
}
