//! Cuts texts whose prompts exceed the context; the template stays whole.

use redline_tokenizer::Tokenizer;

use super::template::Frame;
use crate::error::EngineError;
use crate::front::prompt::Limits;
use crate::request::Truncate;

/// The prompts of texts.
pub(super) struct Prompts<'a> {
    pub(super) limits: Limits<'a>,
    pub(super) frame: &'a Frame,
    pub(super) add_special_tokens: bool,
    /// Maximum number of tokens.
    pub(super) context: usize,
    /// The name of a text in messages.
    pub(super) noun: &'static str,
}

impl Prompts<'_> {
    fn tokens(&self, text: &str) -> Result<usize, EngineError> {
        let prompt = [&self.frame.head, text, &self.frame.tail].concat();
        Ok(self.limits.text(&prompt, self.add_special_tokens)?.len())
    }
}

/// Cuts each text at `end` so that its prompt fits the context. Returns which texts were cut.
pub(super) fn all(
    prompts: &Prompts<'_>,
    texts: &mut [String],
    end: Truncate,
) -> Result<Vec<bool>, EngineError> {
    let &Prompts { context, noun, .. } = prompts;
    let tokens = |text: &str| prompts.tokens(text);
    let mut cut = Vec::with_capacity(texts.len());
    for (index, text) in texts.iter_mut().enumerate() {
        // A text that cannot be tokenised is left unchanged; scoring reports the error.
        let too_long = tokens(text).is_ok_and(|n| n > context);
        cut.push(too_long);
        if !too_long {
            continue;
        }
        let without = tokens("")?;
        if without > context {
            let fact = format!(
                "{noun} {index}: what stands around it is {without} tokens, which exceed the context of {context}"
            );
            return Err(EngineError::request(fact, "shorten the template or what it asks for"));
        }
        *text = fitting_part(text, end, |part| Ok(tokens(part)? <= context))?.to_owned();
    }
    Ok(cut)
}

/// Cuts each text behind this number of tokens. Returns which texts were cut.
pub(super) fn to_tokens(
    tokenizer: &Tokenizer,
    texts: &mut [String],
    most: usize,
) -> Result<Vec<bool>, EngineError> {
    let mut cut = Vec::with_capacity(texts.len());
    for text in texts {
        let offsets = tokenizer.encode_with_offsets(text, false)?.offsets;
        let is_long = offsets.len() > most;
        if is_long {
            let end = most.checked_sub(1).and_then(|last| offsets.get(last)).map_or(0, |range| range.end);
            text.truncate(text.floor_char_boundary(end));
        }
        cut.push(is_long);
    }
    Ok(cut)
}

/// Finds, by bisection, a long part of a text that fits, with its end or its beginning cut. The whole text does not fit; the
/// empty text does. If the part ends inside a word, a few more characters might need fewer tokens and also fit.
fn fitting_part(
    text: &str,
    end: Truncate,
    fits: impl Fn(&str) -> Result<bool, EngineError>,
) -> Result<&str, EngineError> {
    let part = |bytes: usize| match end {
        Truncate::Right => &text[..text.floor_char_boundary(bytes)],
        Truncate::Left => &text[text.ceil_char_boundary(text.len() - bytes)..],
    };
    let (mut fitting, mut too_long) = (0, text.len());
    while too_long - fitting > 1 {
        let middle = fitting + (too_long - fitting) / 2;
        if fits(part(middle))? {
            fitting = middle;
        } else {
            too_long = middle;
        }
    }
    Ok(part(fitting))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_as_fits_is_kept_in_whole_characters() {
        let kept = |text, end, most| fitting_part(text, end, |part| Ok(part.len() <= most)).unwrap();
        assert_eq!(kept("abcdef", Truncate::Right, 4), "abcd");
        assert_eq!(kept("abcdef", Truncate::Left, 4), "cdef");
        assert_eq!(kept("abcdef", Truncate::Right, 0), "");
        assert_eq!(kept("żółw", Truncate::Right, 3), "ż");
        assert_eq!(kept("żółw", Truncate::Left, 4), "łw");
        assert_eq!(kept("żółw", Truncate::Left, 6), "ółw");
    }
}
