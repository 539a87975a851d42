//! Reads the reference values of each golden checkpoint, and runs a model in the simplest way.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use redline_kernels::op::kv::{AttentionMask, KvFormat};
use redline_kernels::{Exec, Format, Simd, Stopwatch, Team};
use redline_models::adapter::Adapters;
use redline_models::kv::{KvCache, SeqId};
use redline_models::model::Batch;
use redline_models::step::{Arena, Watchers};
use redline_models::{LoadOptions, Model, ModelFiles, load};

/// Results of the reference implementation.
pub(crate) struct Reference {
    pub(crate) prompt: Vec<u32>,
    /// `[prompt, vocab]`
    pub(crate) logits: Vec<f32>,
    /// Empty for a model that fills masks.
    pub(crate) greedy: Vec<u32>,
}

pub(crate) fn golden_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

/// The configuration of a checkpoint.
pub(crate) fn config_in(dir: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(dir.join("config.json")).unwrap()).unwrap()
}

/// Architectures that fill masks.
const MASKED: &[&str] = &["DreamModel", "LLaDAModelLM"];

/// Whether an architecture is an encoder, by its name; decoders are `ForCausalLM`, or have `LM` in another place.
fn encodes(name: &str) -> bool {
    let ends =
        ["Model", "ForSequenceClassification", "ForMaskedLM", "ForPreTraining", "ForTokenClassification"];
    !name.contains("LMHead") && ends.iter().any(|end| name.ends_with(end))
}

/// Every golden checkpoint of an autoregressive model.
pub(crate) fn goldens() -> Vec<PathBuf> {
    let dirs = checkpoints(false);
    // A decoder that also reads images is another one's.
    let reads_images = |name: &str| name.ends_with("ForConditionalGeneration");
    let is_other = |name| MASKED.contains(&name) || encodes(name) || reads_images(name);
    let others = redline_models::arch::ALL.iter().filter(|it| is_other(it.name));
    let architectures = redline_models::arch::ALL.len() - others.count();
    assert!(dirs.len() >= 2 * architectures, "two checkpoints per architecture, found {dirs:?}");
    dirs
}

/// Every golden checkpoint of a model that fills masks.
pub(crate) fn masked_goldens() -> Vec<PathBuf> {
    let dirs = checkpoints(true);
    assert!(dirs.len() >= 2 * MASKED.len(), "two checkpoints per architecture, found {dirs:?}");
    dirs
}

fn checkpoints(masked: bool) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = std::fs::read_dir(golden_root())
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.join("reference.safetensors").exists() && p.join("diffusion.json").exists() == masked)
        .collect();
    dirs.sort();
    dirs
}

pub(crate) fn reference(dir: &Path) -> Reference {
    reference_in(&dir.join("reference.safetensors"))
}

pub(crate) fn reference_in(file: &Path) -> Reference {
    let values = Values::read(file);
    let greedy = if values.has("greedy") { values.ids("greedy") } else { Vec::new() };
    Reference { prompt: values.ids("prompt"), logits: values.floats("logits"), greedy }
}

/// The tensors of a safetensors file.
pub(crate) struct Values {
    bytes: Vec<u8>,
    header: usize,
    json: serde_json::Value,
}

impl Values {
    pub(crate) fn read(file: &Path) -> Self {
        let bytes = std::fs::read(file).unwrap();
        let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let json = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
        Self { bytes, header, json }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        !self.json[name].is_null()
    }

    fn data(&self, name: &str, dtype: &str) -> &[u8] {
        assert_eq!(self.json[name]["dtype"], dtype, "{name}");
        let at = |i: usize| self.json[name]["data_offsets"][i].as_u64().unwrap() as usize + 8 + self.header;
        &self.bytes[at(0)..at(1)]
    }

    /// Token ids, or other numbers that are not negative.
    pub(crate) fn ids(&self, name: &str) -> Vec<u32> {
        let number = |b: &[u8]| i64::from_le_bytes(b.try_into().unwrap()) as u32;
        self.data(name, "I64").chunks_exact(8).map(number).collect()
    }

    pub(crate) fn floats(&self, name: &str) -> Vec<f32> {
        let number = |b: &[u8]| f32::from_le_bytes(b.try_into().unwrap());
        self.data(name, "F32").chunks_exact(4).map(number).collect()
    }
}

pub(crate) fn open(path: &Path, format: Option<Format>) -> Model {
    let files = ModelFiles::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let options = LoadOptions { format, ..LoadOptions::default() };
    let mut model = on_team(|exec| load(exec, files.config(), files.weights(), options))
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    model.reserve_positions(model.facts().context.min(256)).unwrap();
    model
}

/// Runs `work` with two threads.
pub(crate) fn on_team<T>(work: impl FnOnce(Exec<'_>) -> T) -> T {
    let team = Team::new(2).unwrap();
    work(Exec { simd: Simd::best(), team: &team })
}

/// The format of keys and values for a weight format.
pub(crate) fn kv(format: Format) -> KvFormat {
    if format == Format::F32 { KvFormat::F32 } else { KvFormat::Bf16 }
}

/// A model with everything a pass needs.
pub(crate) struct Bench {
    pub(crate) model: Model,
    kv: KvCache,
    arena: Arena,
    team: Team,
    simd: Simd,
}

impl Bench {
    pub(crate) fn new(model: Model, kv_format: KvFormat, simd: Simd, threads: usize) -> Self {
        let kv = KvCache::new(&model.page_shape(kv_format), usize::MAX);
        let arena = Arena::new(model.arena_size(512, 512)).unwrap();
        Self { model, kv, arena, team: Team::new(threads).unwrap(), simd }
    }

    /// The same with a team of two members on as many logical devices.
    pub(crate) fn on_devices(self, devices: usize) -> Self {
        Self { team: Team::with_devices(2, devices).unwrap(), ..self }
    }

    /// Number of regions that more than one thread could enter since the last call, times the other threads.
    pub(crate) fn regions(&mut self) -> u64 {
        self.team.take_participation().requested
    }

    pub(crate) fn sequence(&mut self) -> SeqId {
        self.kv.create()
    }

    /// Logits of every row of one pass over `parts`.
    pub(crate) fn pass(&mut self, parts: &[(SeqId, &[u32])]) -> Vec<Vec<f32>> {
        self.watched_pass(parts, Watchers::default())
    }

    /// A new sequence of these tokens in pieces of `size`, with the bits of the logits of every row.
    pub(crate) fn in_pieces(&mut self, tokens: &[u32], size: usize) -> (SeqId, Vec<u32>) {
        let sequence = self.sequence();
        let pieces = tokens.chunks(size).flat_map(|piece| bits(&self.pass(&[(sequence, piece)])));
        (sequence, pieces.collect())
    }

    /// Runs a pass without logits in an arena that is made for its rows.
    pub(crate) fn exact_pass(&mut self, parts: &[(SeqId, &[u32])]) {
        let rows = parts.iter().map(|(_, tokens)| tokens.len()).sum();
        self.arena = Arena::new(self.model.arena_size(rows, 0)).unwrap();
        let adapted = |&(sequence, tokens)| (sequence, tokens, Adapters::default());
        let parts: Vec<_> = parts.iter().map(adapted).collect();
        assert!(self.wanted_pass(&parts, &[]).is_empty());
    }

    /// The same with observers.
    pub(crate) fn watched_pass(
        &mut self,
        parts: &[(SeqId, &[u32])],
        watchers: Watchers<'_>,
    ) -> Vec<Vec<f32>> {
        let rows: Vec<usize> = (0..parts.iter().map(|(_, tokens)| tokens.len()).sum()).collect();
        self.watched_rows(parts, &rows, watchers)
    }

    /// The same of some rows.
    pub(crate) fn watched_rows(
        &mut self,
        parts: &[(SeqId, &[u32])],
        rows: &[usize],
        watchers: Watchers<'_>,
    ) -> Vec<Vec<f32>> {
        let mut batch = Batch::default();
        for &(sequence, tokens) in parts {
            self.kv.reserve(sequence, tokens.len()).unwrap();
            batch.push(
                sequence,
                self.kv.tokens(sequence),
                tokens,
                AttentionMask::Causal,
                Adapters::default(),
            );
        }
        self.run_rows(&batch, rows, watchers)
    }

    /// Logits of every row of one pass over parts with adapters.
    pub(crate) fn adapted_pass(&mut self, parts: &[(SeqId, &[u32], Adapters)]) -> Vec<Vec<f32>> {
        let rows: Vec<usize> = (0..parts.iter().map(|(_, tokens, _)| tokens.len()).sum()).collect();
        self.wanted_pass(parts, &rows)
    }

    /// Logits of some rows of one pass over parts with adapters.
    pub(crate) fn wanted_pass(
        &mut self,
        parts: &[(SeqId, &[u32], Adapters)],
        rows: &[usize],
    ) -> Vec<Vec<f32>> {
        let mut batch = Batch::default();
        for (sequence, tokens, adapters) in parts {
            self.kv.reserve(*sequence, tokens.len()).unwrap();
            let start = self.kv.tokens(*sequence);
            batch.push(*sequence, start, tokens, AttentionMask::Causal, adapters.clone());
        }
        self.run_rows(&batch, rows, Watchers::default())
    }

    /// Final states of some rows of one pass over whole texts, each with the position of the first token of its second text.
    pub(crate) fn states(
        &mut self,
        texts: &[(SeqId, &[u32], Option<usize>)],
        rows: Option<&[usize]>,
    ) -> Vec<Vec<f32>> {
        let mut batch = Batch::default();
        for &(sequence, tokens, second) in texts {
            self.kv.reserve(sequence, tokens.len() - self.kv.tokens(sequence)).unwrap();
            let causal = self.model.facts().objective.is_causal();
            let attention =
                if causal { AttentionMask::Causal } else { AttentionMask::Bidirectional(tokens.len()) };
            batch.push(sequence, 0, tokens, attention, Adapters::default());
            if let Some(second) = second {
                batch.set_second_text(second);
            }
        }
        let all: Vec<usize> = (0..batch.rows()).collect();
        let rows = rows.unwrap_or(&all);
        let read: Vec<usize> = (0..rows.len()).collect();
        let exec = Exec { simd: self.simd, team: &self.team };
        let (arena, kv, run) = (&mut self.arena, &mut self.kv, (&batch, rows));
        self.model.run(exec, arena, kv, run, None, Watchers::default(), |model, x, step| {
            let states = model.states(x, &read, step);
            let values = step.read(states);
            read.iter().map(|&r| values.row(r).to_vec()).collect()
        })
    }

    /// Logits of every row of one pass over parts of canvases: the position of the first row, tokens, and tokens of the canvas.
    pub(crate) fn draw(&mut self, parts: &[(SeqId, usize, &[u32], usize)]) -> Vec<Vec<f32>> {
        let mut batch = Batch::default();
        for &(sequence, start, tokens, keys) in parts {
            self.kv.reserve(sequence, keys - self.kv.tokens(sequence)).unwrap();
            batch.push(sequence, start, tokens, AttentionMask::Bidirectional(keys), Adapters::default());
        }
        self.run(&batch, Watchers::default())
    }

    fn run(&mut self, batch: &Batch, watchers: Watchers<'_>) -> Vec<Vec<f32>> {
        let rows: Vec<usize> = (0..batch.rows()).collect();
        self.run_rows(batch, &rows, watchers)
    }

    fn run_rows(&mut self, batch: &Batch, rows: &[usize], watchers: Watchers<'_>) -> Vec<Vec<f32>> {
        let all: Vec<usize> = (0..rows.len()).collect();
        let exec = Exec { simd: self.simd, team: &self.team };
        self.model.run(
            exec,
            &mut self.arena,
            &mut self.kv,
            (batch, rows),
            None,
            watchers,
            |model, x, step| {
                let logits = model.logits(x, &all, None, None, step);
                let values = step.read(logits);
                all.iter().map(|&r| values.row(r).to_vec()).collect()
            },
        )
    }

    /// Records work from now on.
    pub(crate) fn set_stopwatch(&mut self, stopwatch: Arc<Stopwatch>) {
        self.team.set_stopwatch(stopwatch);
    }

    /// The largest number of tokens up to `most` after which a sequence can be continued.
    pub(crate) fn continuable(&self, sequence: SeqId, most: usize) -> usize {
        self.kv.continuable(sequence, most)
    }

    /// Takes back all but the first `tokens` tokens of a sequence, if that is possible for so many.
    pub(crate) fn take_back(&mut self, sequence: SeqId, tokens: usize) -> bool {
        let possible = self.kv.tokens(sequence) - tokens <= self.kv.rollback_limit();
        if possible {
            self.kv.truncate(sequence, tokens);
        }
        possible
    }

    pub(crate) fn fork(&mut self, parent: SeqId, tokens: usize) -> SeqId {
        self.kv.fork(parent, tokens)
    }
}

pub(crate) fn argmax(row: &[f32]) -> u32 {
    let mut best = 0;
    for (i, x) in row.iter().enumerate() {
        if *x > row[best] {
            best = i;
        }
    }
    best as u32
}

/// Squared error over squared reference.
pub(crate) fn nmse(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let error: f64 = got.iter().zip(want).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
    let power: f64 = want.iter().map(|b| f64::from(*b).powi(2)).sum();
    error / power
}

pub(crate) fn bits(rows: &[Vec<f32>]) -> Vec<u32> {
    rows.iter().flatten().map(|x| x.to_bits()).collect()
}
