//! Compiles grammars for the vocabulary of a model, each once.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{Matcher as Inner, ParserFactory};

use crate::error::{GrammarError, first_lines};
use crate::grammar::Grammar;
use crate::levels;
use crate::matcher::Matcher;
use crate::vocabulary::{Vocabulary, Words};

/// Number of compiled grammars that are kept.
const KEPT: usize = 64;
/// Bytes that the sources of these grammars may have together; what is compiled takes many times as much.
const KEPT_BYTES: usize = 2 << 20;
/// Number of states that the lexer of a grammar may have. Each takes one to two KiB.
const LEXER_STATES: usize = 50_000;
/// Number of grammars that may wait to be compiled.
const WAITING: usize = 64;

/// A grammar that was compiled, before any token.
struct Template(Mutex<Inner>);

impl Template {
    fn matcher(&self) -> Matcher {
        // A deep copy shares nothing that one answer changes for another.
        Matcher::new(self.0.lock().unwrap_or_else(PoisonError::into_inner).deep_clone())
    }
}

type Compiled = Result<Arc<Template>, GrammarError>;
/// The same as it is kept: a copy asks for no memory.
type Kept = Result<Arc<Template>, Arc<GrammarError>>;
/// What receives a compiled grammar, on the compiling thread.
type Receive = Box<dyn FnOnce(Result<(), GrammarError>) + Send>;

/// Compiles grammars for one model.
pub struct Compiler {
    shared: Arc<Shared>,
    /// The compiling thread, from the first grammar on.
    thread: OnceLock<Result<SyncSender<(Grammar, Receive)>, GrammarError>>,
}

struct Shared {
    words: Box<dyn Words>,
    /// The vocabulary in the form of the library, from the first grammar on.
    factory: OnceLock<Result<ParserFactory, GrammarError>>,
    /// Compiled grammars, the latest used last.
    kept: Mutex<VecDeque<(Grammar, Kept)>>,
}

impl std::fmt::Debug for Compiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compiler").finish_non_exhaustive()
    }
}

impl Compiler {
    /// A compiler for these tokens. Nothing is computed before the first grammar.
    pub fn new(words: Box<dyn Words>) -> Self {
        let shared =
            Shared { words, factory: OnceLock::new(), kept: Mutex::new(VecDeque::with_capacity(KEPT + 1)) };
        Self { shared: Arc::new(shared), thread: OnceLock::new() }
    }

    /// Compiles a grammar in the background, unless it is kept. `done` is called on the compiling thread, or at once.
    pub fn prepare(&self, grammar: &Grammar, done: Box<dyn FnOnce(Result<(), GrammarError>) + Send>) {
        if let Some(compiled) = self.shared.find(grammar) {
            return done(compiled.map(drop));
        }
        let thread = self.thread.get_or_init(|| start(&self.shared));
        let refused = match thread {
            Ok(thread) => match thread.try_send((grammar.clone(), done)) {
                Ok(()) => return,
                Err(TrySendError::Full((_, done)) | TrySendError::Disconnected((_, done))) => {
                    let fact = format!("{WAITING} other grammars wait to be compiled");
                    (done, GrammarError::now(fact, "try again later"))
                }
            },
            Err(error) => (done, error.clone()),
        };
        (refused.0)(Err(refused.1));
    }

    /// A matcher for a grammar, which is compiled unless it is kept. Waits for that at most `longest`.
    ///
    /// # Errors
    /// The grammar is wrong or not supported, or there was no time.
    pub fn matcher(&self, grammar: &Grammar, longest: Option<Duration>) -> Result<Matcher, GrammarError> {
        if let Some(compiled) = self.shared.find(grammar) {
            return Ok(compiled?.matcher());
        }
        let (send, compiled) = channel();
        let done = move |compiled| {
            // Nobody receives it if the time was too short.
            let _ = send.send(compiled);
        };
        self.prepare(grammar, Box::new(done));
        let late = |_: RecvTimeoutError| {
            GrammarError::now("the grammar was not compiled in time", "give a simpler grammar, or more time")
        };
        compiled.recv_timeout(longest.unwrap_or(Duration::MAX)).map_err(late)??;
        // It was kept a moment ago. Other threads have no stack to compile it.
        let gone = || Err(GrammarError::now("others took the place of the grammar", "try again"));
        Ok(self.shared.find(grammar).unwrap_or_else(gone)?.matcher())
    }
}

/// Starts the compiling thread, which ends with its compiler.
fn start(shared: &Arc<Shared>) -> Result<SyncSender<(Grammar, Receive)>, GrammarError> {
    let (send, grammars) = sync_channel::<(Grammar, Receive)>(WAITING);
    let shared = Arc::clone(shared);
    let work = move || {
        shared.words.compiling();
        for (grammar, done) in grammars {
            let compiled = shared.find(&grammar).unwrap_or_else(|| {
                let compiled = catch_unwind(AssertUnwindSafe(|| shared.compile(&grammar)));
                let compiled = compiled.unwrap_or_else(|_| Err(refused("the compiler of grammars failed")));
                shared.keep(grammar, compiled.clone());
                compiled
            });
            done(compiled.map(drop));
        }
    };
    let started = std::thread::Builder::new()
        .name("redline-grammar".to_owned())
        .stack_size(levels::STACK_BYTES)
        .spawn(work);
    started.map(|_| send).map_err(|error| {
        GrammarError::now(format!("no thread to compile grammars: {error}"), "try again later")
    })
}

impl Shared {
    /// A kept grammar, which is now the latest used.
    fn find(&self, grammar: &Grammar) -> Option<Compiled> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let index = kept.iter().position(|(other, _)| other == grammar)?;
        let found = kept.remove(index)?;
        let compiled = found.1.clone();
        kept.push_back(found);
        drop(kept);
        Some(compiled.map_err(Arc::unwrap_or_clone))
    }

    /// Keeps a grammar, and gives up those that were used least recently. Under the lock, for which others wait, no memory is asked for or
    /// returned: that takes long, and the compiling thread may sleep there.
    fn keep(&self, grammar: Grammar, compiled: Compiled) {
        let (compiled, mut given_up) = (compiled.map_err(Arc::new), Vec::with_capacity(KEPT + 1));
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back((grammar, compiled));
        let mut bytes: usize = kept.iter().map(|(grammar, _)| grammar.source.len()).sum();
        while kept.len() > KEPT || (bytes > KEPT_BYTES && kept.len() > 1) {
            let first = kept.pop_front();
            bytes -= first.as_ref().map_or(0, |(first, _)| first.source.len());
            given_up.extend(first);
        }
        drop(kept);
        drop(given_up);
    }

    fn factory(&self) -> Result<&ParserFactory, GrammarError> {
        let made = self.factory.get_or_init(|| {
            let environment: llguidance::toktrie::TokEnv = Arc::new(Vocabulary::new(&*self.words)?);
            let slices = llguidance::earley::SlicedBiasComputer::general_slices();
            let factory = ParserFactory::new(&environment, InferenceCapabilities::default(), &slices);
            let mut factory = factory.map_err(|error| refused(&error.to_string()))?;
            let limits = factory.quiet().limits_mut();
            (limits.verbose_errors, limits.max_lexer_states) = (false, LEXER_STATES);
            Ok(factory)
        });
        made.as_ref().map_err(Clone::clone)
    }

    fn compile(&self, grammar: &Grammar) -> Compiled {
        let lark = grammar.lark()?;
        levels::check(&lark)?;
        let mut inner = Inner::new(self.factory()?.create_parser(TopLevelGrammar::from_lark(lark)));
        if let Some(error) = inner.get_error() {
            return Err(refused(&error));
        }
        // A grammar without any answer is found out at its first token.
        if !inner.is_stopped() {
            inner.compute_mask().map_err(|error| refused(&error.to_string()))?;
        }
        Ok(Arc::new(Template(Mutex::new(inner))))
    }
}

fn refused(message: &str) -> GrammarError {
    GrammarError::new(first_lines(message), "docs/generation.md says what grammars may have")
}
