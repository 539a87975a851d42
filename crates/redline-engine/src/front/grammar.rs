//! Grammars of answers, compiled for the vocabulary of the model.

use std::sync::Arc;
use std::time::Duration;

use redline_grammar::{Compiler, Grammar, GrammarError, Matcher, Words};
use redline_tokenizer::Tokenizer;

use super::Engine;
use crate::error::EngineError;
use crate::mode::autoregressive::guide::{Allowed, Constraint};

/// The vocabulary of a model.
struct Vocabulary {
    tokenizer: Arc<Tokenizer>,
    /// The width of the logits.
    width: usize,
    ends: Vec<u32>,
}

impl Words for Vocabulary {
    fn count(&self) -> usize {
        self.width
    }

    fn bytes(&self, id: u32) -> Vec<u8> {
        self.tokenizer.token_bytes(id).unwrap_or_default()
    }

    fn marker(&self, id: u32) -> Option<String> {
        self.tokenizer.is_marker(id).then(|| self.tokenizer.token(id)).flatten()
    }

    fn ends(&self) -> Vec<u32> {
        self.ends.clone()
    }

    /// A grammar can wait, and answers should not.
    fn compiling(&self) {
        redline_system::threads::give_way();
    }
}

impl Constraint for Matcher {
    fn allowed(&mut self) -> Allowed<'_> {
        Allowed::These(self.mask())
    }

    fn accepts(&mut self, token: u32) -> bool {
        self.accepts(token)
    }

    fn push(&mut self, token: u32) {
        self.push(token);
    }

    fn is_complete(&self) -> bool {
        self.is_complete()
    }

    fn failure(&self) -> Option<&str> {
        self.failure()
    }
}

impl Engine {
    /// Compiles the grammar of a request in the background, so that the request does not wait for it later. `done` is called on the
    /// compiling thread, or at once.
    ///
    /// # Errors
    /// The grammar is wrong or not supported, the model has no tokenizer, or too many grammars wait.
    pub fn prepare_grammar(
        &self,
        grammar: &Grammar,
        done: impl FnOnce(Result<(), EngineError>) + Send + 'static,
    ) {
        match self.grammars() {
            Ok(grammars) => {
                grammars.prepare(grammar, Box::new(|prepared| done(prepared.map_err(refused))));
            }
            Err(error) => done(Err(error)),
        }
    }

    /// What follows an answer to a grammar, from its beginning.
    pub(super) fn matcher(&self, grammar: &Grammar, timeout_s: Option<f64>) -> Result<Matcher, EngineError> {
        let longest = timeout_s.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        self.grammars()?.matcher(grammar, longest).map_err(refused)
    }

    fn grammars(&self) -> Result<&Compiler, EngineError> {
        let tokenizer =
            self.tokenizer.clone().ok_or_else(|| EngineError::NoTokenizer(self.info.name.clone()))?;
        Ok(self.grammars.get_or_init(|| {
            let (width, ends) = (self.info.vocab, self.end_ids.clone());
            Compiler::new(Box::new(Vocabulary { tokenizer, width, ends }))
        }))
    }
}

/// The error of a request whose grammar cannot be used.
fn refused(error: GrammarError) -> EngineError {
    if error.is_certain {
        EngineError::field("grammar", error.fact, error.hint)
    } else {
        EngineError::Grammar { fact: error.fact, hint: error.hint }
    }
}
