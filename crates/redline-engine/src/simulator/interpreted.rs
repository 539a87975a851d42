//! A second machine: the interpreter, whose state of a sequence is its tokens. The engine over it must answer as over the processor.

use std::path::Path;
use std::sync::Arc;

use redline_interpreter::Interpreter;
use redline_kernels::op::kv::{KvFormat, PAGE_TOKENS};
use redline_kernels::{Exec, Format, OutOfMemory, Rows, Simd, Team};
use redline_models::adapter::Adapters;
use redline_models::kv::KvCache;
use redline_models::model::Batch;
use redline_models::row_digests::RowDigests;
use redline_models::{LoadOptions, Loader, ModelFiles};
use redline_reference::{attention, vocabulary};

use super::Ledger;
use crate::adapters::resident::SequenceAdapters;
use crate::answer::outcome::GenerateOutcome;
use crate::answer::ticket::Ticket;
use crate::answer::transcript::Transcript;
use crate::heartbeat::core::{Arrival, Core};
use crate::heartbeat::machine::{Machine, Outputs};
use crate::heartbeat::runner::Inbox;
use crate::memory::cache::Cache;
use crate::mode::autoregressive::{GenerateJob, GenerateTask};
use crate::options::{Options, Source};
use crate::receipt::Recorder;
use crate::request::{GenerateRequest, Prompt, PromptLogprobs, Queueing, ReceiptOptions, Sampling};
use crate::scheduler::{CostModel, PassLimits, Scheduler};
use crate::task::RowOutput;
use crate::task::logits::Logits;
use crate::{Cancel, Engine, ReceiptLayer};

/// A model that is interpreted. Pages hold the tokens themselves, and every pass computes its sequences from their first token on.
struct Interpreted<'a> {
    interpreter: Interpreter<'a>,
    /// Only the engine's own work on logits uses it.
    team: Team,
}

impl Interpreted<'_> {
    /// The states of the rows of a batch.
    fn states(&self, kv: &mut KvCache<Ledger>, batch: &Batch, digests: Option<&RowDigests>) -> Vec<Vec<f32>> {
        let mut states = Vec::new();
        for part in batch.parts() {
            assert!(part.adapters.is_empty(), "adapters are not interpreted");
            let (pages, first, end) =
                (kv.pages(part.sequence).to_vec(), states.len(), part.start + part.tokens);
            let cells = kv.store_mut();
            let place = |position: usize| (pages[position / PAGE_TOKENS], position % PAGE_TOKENS);
            for (position, token) in (part.start..end).zip(&batch.tokens()[first..]) {
                *cells.cell(place(position)) = u64::from(*token);
            }
            let tokens: Vec<u32> = (0..end).map(|position| *cells.cell(place(position)) as u32).collect();
            let all = self.interpreter.watched_states(&tokens, None, |layer, rows| {
                for (row, values) in rows[part.start..].iter().enumerate() {
                    digests.inspect(|digests| digests.set(layer, first + row, values));
                }
            });
            states.extend_from_slice(&all[part.start..]);
            kv.store_with_drafts(part.sequence, end, part.drafts);
        }
        states
    }
}

impl Machine for Interpreted<'_> {
    type Pages = Ledger;
    type Labels = Vec<u32>;

    fn labels(&self, ids: &[u32], _adapters: &Adapters) -> Result<Vec<u32>, OutOfMemory> {
        Ok(ids.to_vec())
    }

    fn run(
        &mut self,
        kv: &mut KvCache<Ledger>,
        (batch, wanted): (&Batch, &[usize]),
        outputs: &[Outputs<'_, Vec<u32>>],
        digests: Option<&RowDigests>,
        read: &mut dyn FnMut(usize, Logits<'_>),
    ) {
        let states = self.states(kv, batch, digests);
        let exec = Exec { simd: Simd::best(), team: &self.team };
        for (index, output) in outputs.iter().enumerate() {
            let logits = |state: &Vec<f32>| match output.output {
                RowOutput::State => state.clone(),
                RowOutput::Vocabulary => self.interpreter.logits(state),
                RowOutput::Labels(ids) => {
                    let all = self.interpreter.logits(state);
                    ids.iter().map(|id| all[*id as usize]).collect()
                }
            };
            let rows: Vec<Vec<f32>> = output.rows.iter().map(|row| logits(&states[wanted[*row]])).collect();
            let log_sum_exp: Vec<f64> = if output.normalise {
                rows.iter().map(|row| vocabulary::log_sum_exp(row, vocabulary::CHUNK)).collect()
            } else {
                vec![0.0; rows.len()]
            };
            let (values, width) = (rows.concat(), rows[0].len());
            let rows = Rows::new(&values, rows.len(), width, width);
            read(index, Logits { exec, rows, log_sum_exp: &log_sum_exp });
        }
    }
}

/// What is asked of both: a prompt, an unrelated one at random, and one that begins with the first.
fn requests(vocab: usize) -> Vec<GenerateRequest> {
    let ids = |factor: i64, count: i64| (0..count).map(|i| (i * i * factor + i) % vocab as i64).collect();
    let asked = |ids: Vec<i64>, new, sampling| GenerateRequest {
        sampling,
        logprobs: Some(3),
        prompt_logprobs: Some(PromptLogprobs { from: 1, top: 2 }),
        ignore_eos: true,
        receipt: Some(ReceiptOptions::default()),
        ..GenerateRequest::new(Prompt::Ids(ids), new)
    };
    let random = Sampling { temperature: 0.9, top_p: 0.95, seed: 11, ..Sampling::default() };
    vec![
        asked(ids(7, 60), 35, Sampling::default()),
        asked(ids(5, 50), 33, random),
        asked(ids(7, 75), 20, Sampling::default()),
    ]
}

/// What must be equal: the new tokens, all log-probabilities by their bits, and the digests of the layers.
type Answer = (Vec<u32>, Vec<u32>, Vec<ReceiptLayer>);

fn answer(outcome: &GenerateOutcome, layers: Vec<ReceiptLayer>) -> Answer {
    let of_prompt = outcome.prompt_logprobs.iter().flatten().flatten();
    let positions = of_prompt.chain(outcome.logprobs.iter().flatten());
    let values = positions.flat_map(|position| std::iter::once(&position.chosen).chain(&position.top));
    (outcome.token_ids.clone(), values.map(|value| value.logprob.to_bits()).collect(), layers)
}

fn on_the_processor(dir: &Path, format: Format, kv: KvFormat) -> Vec<Answer> {
    let options = Options {
        threads: 2,
        format: Some(format),
        kv_format: Some(kv),
        ..Options::new(Source::Path(dir.into()))
    };
    let engine = Engine::load(options).unwrap();
    let ask = |request| engine.submit_generate(request, &Cancel::new()).unwrap();
    let tickets: Vec<_> = requests(engine.info().vocab).into_iter().map(ask).collect();
    let outcomes = tickets.into_iter().map(|ticket| ticket.wait().unwrap());
    outcomes.map(|outcome| answer(&outcome, outcome.receipt.clone().unwrap().layers)).collect()
}

fn on_the_interpreter(dir: &Path, format: Format, kv: KvFormat) -> Vec<Answer> {
    let files = ModelFiles::open(dir).unwrap();
    let options = LoadOptions { format: Some(format), ..LoadOptions::default() };
    let loader = Loader::new(files.config(), files.weights(), options).unwrap();
    let interpreter = Interpreter::new(&loader, attention::KvStorage::named(kv.name())).unwrap();
    let machine = Interpreted { interpreter, team: Team::new(1).unwrap() };
    let spec = loader.spec();
    // Fewer pages than the sequences grow to, and passes of a few rows.
    let shape = loader.footprint().page_shape(kv);
    let pages = KvCache::over(Ledger::default(), 4).with_conv_inputs(shape.inputs);
    let limits = PassLimits { rows: 24, open: 8, stall_s: None };
    let clock: crate::ClockFn = Arc::new(|| 0);
    let scheduler = Scheduler::new(limits, CostModel::new(0.5));
    let mut core = Core::new(machine, Cache::new(pages, Some(4)), scheduler, clock);
    let layers: Vec<usize> = (0..spec.layers.len()).collect();
    let inbox = Inbox::new(8).0;
    let begun = requests(spec.vocab).into_iter().map(|request| {
        let Prompt::Ids(prompt) = request.prompt else { panic!("prompts are ids") };
        let job = GenerateJob {
            prompt: prompt.iter().map(|id| *id as u32).collect(),
            max_new_tokens: request.max_new_tokens,
            sampling: request.sampling,
            penalties: request.penalties,
            logit_bias: Vec::new(),
            n: 1,
            continuations: 1,
            end_ids: Vec::new(),
            logprobs: request.logprobs,
            prompt_logprobs: request.prompt_logprobs,
            kv_cache: true,
            cache_salt: String::new(),
            kernel_path: String::new(),
        };
        let (ticket, reply) = Ticket::new();
        let recorder = Arc::new(Recorder::new(layers.clone(), None));
        core.arrive(Arrival {
            task: Box::new(GenerateTask::new(job, Simd::best(), Transcript::new(None, Vec::new()), reply)),
            at: 0,
            cancels: vec![Cancel::new()],
            timeout_s: None,
            queueing: Queueing::default(),
            place: inbox.place().unwrap(),
            adapters: SequenceAdapters::default(),
            recorder: Some(recorder.clone()),
        });
        (ticket, recorder)
    });
    let begun: Vec<_> = begun.collect();
    while !core.is_idle() {
        core.tick();
    }
    assert!(core.preemptions() > 0, "not all sequences fit");
    let answers = begun.into_iter().map(|(ticket, recorder)| {
        let outcome: GenerateOutcome = ticket.wait().unwrap();
        answer(&outcome, recorder.recorded().layers(&layers).1)
    });
    answers.collect()
}

#[test]
fn the_engine_answers_over_the_interpreter_as_over_the_processor() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    for (name, format, kv) in [
        ("llama-b", Format::F32, KvFormat::F32),
        ("gemma3-a", Format::Bf16, KvFormat::Bf16),
        ("qwen3moe-b", Format::W8 { group: 128 }, KvFormat::W8),
        ("lfm2-b", Format::W4 { group: 64 }, KvFormat::Bf16),
    ] {
        let dir = root.join(name);
        let (got, want) = (on_the_processor(&dir, format, kv), on_the_interpreter(&dir, format, kv));
        assert_eq!(got.len(), 3);
        for (index, (got, want)) in got.iter().zip(&want).enumerate() {
            assert!(!got.0.is_empty() && got.1.len() > 200 && got.2.len() > 1, "{name}: {index}");
            assert_eq!(got, want, "{name}: request {index}");
        }
    }
}
