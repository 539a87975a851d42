//! Perplexity of a text in windows, with one engine or with two that take turns.

use std::sync::mpsc::channel;

use redline_models::adapter::Adapters;
use redline_system::memory::PeakMeter;

use super::Engine;
use crate::answer::outcome::{ComparisonOutcome, Divergence, PerplexityOutcome};
use crate::answer::statistics;
use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::front::prompt::{Window, Windows};
use crate::heartbeat::runner::Job;
use crate::memory::cache::WindowId;
use crate::mode::perplexity::{Distributions, EvaluateJob, Evaluated, Wanted};
use crate::plan::OUTPUT_ROWS;
use crate::request::PerplexityRequest;

/// Default number of tokens in a window.
const WINDOW: usize = 512;

impl Engine {
    /// Computes the perplexity of a text. The figures have the same bits for every tier, number of threads and size of passes.
    pub fn perplexity(
        &self,
        request: PerplexityRequest,
        cancel: &Cancel,
    ) -> Result<PerplexityOutcome, EngineError> {
        self.check_predicts_next()?;
        let size = request.window.unwrap_or(WINDOW.min(self.info.context));
        let windows = self.limits().windows(&request.text, size)?;
        let adapters = self.perplexity_adapters(&request)?;
        let meter = PeakMeter::begin();
        let mut tally = Tally::default();
        'text: for window in windows.iter() {
            let mut open = OpenWindow::new(self, adapters.clone());
            for pass in passes(&window, self.info.max_chunk) {
                if cancel.is_cancelled() {
                    tally.cancelled = true;
                    break 'text;
                }
                tally.begin(&pass);
                tally.add(self, &open.run(&window, pass, Wanted::Nothing)?)?;
            }
        }
        tally.outcome(self, &windows, meter.peak_bytes())
    }

    /// Computes [`Engine::perplexity`] of this model and of a reference model without adapters, and how much the two predicted
    /// distributions differ. The engines take turns, so that at most 64 rows of logits are held at a time.
    pub fn compare(
        &self,
        reference: &Self,
        request: PerplexityRequest,
        cancel: &Cancel,
    ) -> Result<ComparisonOutcome, EngineError> {
        self.check_predicts_next()?;
        reference.check_predicts_next()?;
        let windows = self.common_windows(reference, &request)?;
        let adapters = self.perplexity_adapters(&request)?;
        let meter = PeakMeter::begin();
        let (mut own, mut theirs) = (Tally::default(), Tally::default());
        let (mut kl, mut same_top) = (Vec::new(), 0usize);
        let mut memory = Distributions::default();
        'text: for window in windows.iter() {
            let mut first = OpenWindow::new(reference, Adapters::default());
            let mut second = OpenWindow::new(self, adapters.clone());
            for pass in passes(&window, OUTPUT_ROWS) {
                if cancel.is_cancelled() {
                    (own.cancelled, theirs.cancelled) = (true, true);
                    break 'text;
                }
                own.begin(&pass);
                theirs.begin(&pass);
                let evaluated = first.run(&window, pass.clone(), Wanted::Distributions(memory))?;
                theirs.add(reference, &evaluated)?;
                let distributions = evaluated.readings.distributions;
                let evaluated = second.run(&window, pass, Wanted::Divergence(distributions))?;
                own.add(self, &evaluated)?;
                memory = evaluated.readings.distributions;
                for distance in &evaluated.readings.distances {
                    if !distance.kl.is_finite() {
                        return Err(own.not_finite(self, kl.len() + 1));
                    }
                    kl.push(distance.kl);
                    same_top += usize::from(distance.same_top);
                }
            }
        }
        let model = own.outcome(self, &windows, meter.peak_bytes())?;
        let reference = theirs.outcome(reference, &windows, meter.peak_bytes())?;
        let differences: Vec<f64> = own.nll.iter().zip(&theirs.nll).map(|(q, p)| q - p).collect();
        let (kl_median, kl_p99, kl_max) = statistics::quantiles(&kl);
        let divergence = Divergence {
            kl: statistics::mean(&kl),
            kl_median,
            kl_p99,
            kl_max,
            top1_agreement: same_top as f64 / kl.len() as f64,
            ln_ratio: statistics::mean(&differences),
        };
        Ok(ComparisonOutcome { model, reference, divergence })
    }

    fn perplexity_adapters(&self, request: &PerplexityRequest) -> Result<Adapters, EngineError> {
        Ok(if request.adapters.is_empty() {
            Adapters::default()
        } else {
            self.loader()?.resolve(&request.adapters)?.uses
        })
    }

    /// The text as token ids and windows, which must be the same for both models.
    fn common_windows(&self, reference: &Self, request: &PerplexityRequest) -> Result<Windows, EngineError> {
        let (own, theirs) = (&self.info, &reference.info);
        if own.vocab != theirs.vocab {
            let fact = format!(
                "`{}` has a vocabulary of {} entries and `{}` one of {}: their distributions cannot be compared",
                own.name, own.vocab, theirs.name, theirs.vocab
            );
            return Err(EngineError::request(fact, "compare models of one family, or formats of one model"));
        }
        let size = request.window.unwrap_or(WINDOW.min(own.context).min(theirs.context));
        let windows = self.limits().windows(&request.text, size)?;
        let Some(difference) = windows.difference(&reference.limits().windows(&request.text, size)?) else {
            return Ok(windows);
        };
        let fact =
            format!("`{}` and `{}` tokenise the text differently: {difference}", own.name, theirs.name);
        Err(EngineError::request(fact, "compare models of one tokenizer, or give the text as token ids"))
    }
}

/// A pass over tokens `from..to` of a window; it predicts tokens `from + 1..=to`.
type Pass = std::ops::Range<usize>;

/// The passes over a window. The last token predicts nothing and is not run.
fn passes(window: &Window, tokens: usize) -> impl Iterator<Item = Pass> + use<> {
    let end = window.tokens.len() - 1;
    (0..end).step_by(tokens).map(move |from| from..end.min(from + tokens))
}

/// A window in an engine; dropping it releases its keys and values.
struct OpenWindow<'a> {
    engine: &'a Engine,
    adapters: Adapters,
    id: Option<WindowId>,
}

impl<'a> OpenWindow<'a> {
    fn new(engine: &'a Engine, adapters: Adapters) -> Self {
        Self { engine, adapters, id: None }
    }

    /// Runs the next pass of the window.
    fn run(&mut self, window: &Window, pass: Pass, wanted: Wanted) -> Result<Evaluated, EngineError> {
        let (reply, answer) = channel();
        let job = EvaluateJob {
            window: self.id.take(),
            next: window.tokens[window.first.clamp(pass.start + 1, pass.end + 1)..=pass.end].to_vec(),
            tokens: window.tokens[..pass.end].to_vec(),
            adapters: self.adapters.clone(),
            wanted,
            reply,
        };
        self.engine.inbox()?.send(Job::Evaluate(job))?;
        let evaluated = answer.recv().map_err(|_| EngineError::Stopped)??;
        self.id = Some(evaluated.window);
        Ok(evaluated)
    }
}

impl Drop for OpenWindow<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            // A stopped engine has released everything already.
            let _ = self.engine.inbox().and_then(|inbox| inbox.send(Job::Release(id)));
        }
    }
}

/// Sums over all passes so far.
#[derive(Default)]
struct Tally {
    /// One value per counted token.
    nll: Vec<f64>,
    windows: usize,
    seconds: f64,
    cancelled: bool,
}

impl Tally {
    /// Called before each pass.
    fn begin(&mut self, pass: &Pass) {
        self.windows += usize::from(pass.start == 0);
    }

    fn add(&mut self, engine: &Engine, evaluated: &Evaluated) -> Result<(), EngineError> {
        self.seconds += evaluated.seconds;
        for &nll in &evaluated.readings.nll {
            if !nll.is_finite() {
                return Err(self.not_finite(engine, self.nll.len() + 1));
            }
            self.nll.push(nll);
        }
        Ok(())
    }

    fn not_finite(&self, engine: &Engine, token: usize) -> EngineError {
        let place = format!("counted token {token}, in window {}\n  in `{}`", self.windows, engine.info.name);
        EngineError::NonFinite(place)
    }

    fn outcome(
        &self,
        engine: &Engine,
        windows: &Windows,
        peak_memory_bytes: Option<u64>,
    ) -> Result<PerplexityOutcome, EngineError> {
        if self.nll.is_empty() {
            return Err(EngineError::Cancelled);
        }
        let nll = statistics::mean(&self.nll);
        Ok(PerplexityOutcome {
            perplexity: statistics::perplexity(nll),
            nll,
            tokens: self.nll.len(),
            windows: self.windows,
            window: windows.size,
            cancelled: self.cancelled,
            compute_s: self.seconds,
            peak_memory_bytes,
            kernel_path: engine.info.kernel_path.clone(),
        })
    }
}
