//! Renders a canvas as text: its tokens, and its state after every pass.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};

use redline_engine::{DiffusionPass, Engine};
use redline_tokenizer::{TextStream, Tokenizer};

/// Width of a frame, in columns.
const COLUMNS: usize = 84;
/// The character shown for a mask.
const MASK: &str = "░";
/// Terminal codes that begin and end faint text and new text.
const FAINT: &str = "\x1b[2m";
const NEW: &str = "\x1b[1;32m";
const PLAIN: &str = "\x1b[0m";

/// The text of each token; `None` for masks. A character that spans several tokens is attached to the last of them. Special tokens
/// are shown as written. Without a tokenizer, the ids.
pub(super) fn texts(tokenizer: Option<&Tokenizer>, tokens: &[Option<u32>]) -> Vec<Option<String>> {
    let Some(tokenizer) = tokenizer else {
        return tokens.iter().map(|token| token.map(|id| format!(" {id}"))).collect();
    };
    let mut texts: Vec<Option<String>> = Vec::with_capacity(tokens.len());
    let mut stream = TextStream::new(tokenizer);
    for token in tokens {
        let text = token.map(|id| match (stream.push(id), tokenizer.decode(&[id], true)) {
            (Ok(_), Ok(plain)) if plain.is_empty() => tokenizer.token(id).unwrap_or_default(),
            (Ok(text), _) => text,
            (Err(_), _) => format!("[{id}]"),
        });
        if text.is_none() {
            let rest = stream.finish();
            if let Some(Some(last)) = texts.last_mut() {
                last.push_str(&rest);
            }
        }
        texts.push(text);
    }
    let rest = stream.finish();
    if let Some(Some(last)) = texts.last_mut() {
        last.push_str(&rest);
    }
    texts
}

/// The tokens of a canvas; `None` for a mask.
pub(super) fn unmasked(engine: &Engine, canvas: &[u32]) -> Vec<Option<u32>> {
    let mask = engine.info().mask_id;
    canvas.iter().map(|&id| (Some(id) != mask).then_some(id)).collect()
}

/// Renders a canvas while it is being filled.
pub(super) struct Frames<'a> {
    engine: &'a Engine,
    /// `None` is a mask.
    tokens: Vec<Option<u32>>,
    passes: usize,
    /// Whether to redraw in place and use colours.
    terminal: bool,
    /// Height of the last frame, in lines.
    height: usize,
}

impl<'a> Frames<'a> {
    /// Starts with a canvas before its first pass.
    pub(super) fn new(engine: &'a Engine, canvas: &[u32]) -> Self {
        Self {
            engine,
            tokens: unmasked(engine, canvas),
            passes: 0,
            terminal: io::stdout().is_terminal(),
            height: 0,
        }
    }

    /// Renders the frame after a pass.
    pub(super) fn after(&mut self, pass: &DiffusionPass) -> String {
        self.passes += 1;
        for filled in &pass.filled {
            self.tokens[filled.position] = Some(filled.token);
        }
        let left = self.tokens.iter().filter(|token| token.is_none()).count();
        let rows = if pass.rows.len() == self.tokens.len() {
            "all rows".to_owned()
        } else {
            format!("rows {} to {}", pass.rows.start, pass.rows.end - 1)
        };
        let head = format!("pass {} over {rows}: {} filled, {left} left", self.passes, pass.filled.len());
        let texts = texts(self.engine.tokenizer(), &self.tokens);
        let is_new = |position: usize| pass.filled.iter().any(|filled| filled.position == position);
        let body = self.body(&texts, is_new);
        let mut frame = String::new();
        if self.terminal && self.height > 0 {
            let _ = write!(frame, "\x1b[{}F\x1b[J", self.height);
        }
        let _ = write!(frame, "{head}\n{body}\n");
        self.height = 2 + body.matches('\n').count();
        frame
    }

    /// Renders the lines of the canvas.
    fn body(&self, texts: &[Option<String>], is_new: impl Fn(usize) -> bool) -> String {
        let (mut out, mut column) = (String::from("  "), 0);
        for (position, text) in texts.iter().enumerate() {
            let style = match text {
                None => FAINT,
                Some(_) if is_new(position) => NEW,
                Some(_) => "",
            };
            let styled = self.terminal && !style.is_empty();
            if styled {
                out.push_str(style);
            }
            for char in text.as_deref().unwrap_or(MASK).chars() {
                let breaks = char == '\n'
                    || column >= COLUMNS + 16
                    || (column >= COLUMNS && (char == ' ' || text.is_none()));
                if breaks {
                    out.push_str("\n  ");
                    column = 0;
                }
                if char != '\n' && !(breaks && char == ' ') {
                    out.push(char);
                    column += 1;
                }
            }
            if styled {
                out.push_str(PLAIN);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_of_several_tokens_stands_at_the_last_of_them() {
        let tokenizer = Tokenizer::from_bytes("tokenizer.json", redline_demo::TOKENIZER).unwrap();
        let crab = tokenizer.encode("\u{1f980}", false).unwrap();
        let [first, .., last] = crab[..] else { panic!("one token: {crab:?}") };
        let shown = |tokens: &[Option<u32>]| texts(Some(&tokenizer), tokens);
        let whole = shown(&crab.iter().copied().map(Some).collect::<Vec<_>>());
        let mut expected = vec![Some(String::new()); crab.len() - 1];
        expected.push(Some("\u{1f980}".to_owned()));
        assert_eq!(whole, expected);
        // What a mask cuts off is shown before the mask.
        let cut = shown(&[Some(first), None, Some(last)]);
        let is_broken = |at: usize| cut[at].as_deref().is_some_and(|text| text.starts_with('\u{fffd}'));
        assert!(is_broken(0) && cut[1].is_none() && is_broken(2), "{cut:?}");
    }

    #[test]
    fn a_special_token_is_shown_as_written() {
        let tokenizer = Tokenizer::from_bytes("tokenizer.json", redline_demo::TOKENIZER).unwrap();
        let eos = tokenizer.encode("<|eos|>", false).unwrap();
        assert_eq!(texts(Some(&tokenizer), &[Some(eos[0])]), [Some("<|eos|>".to_owned())]);
    }
}
