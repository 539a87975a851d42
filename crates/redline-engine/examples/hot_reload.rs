//! Replaces an adapter again and again while requests use it: `hot_reload COUNT`. Half of the replacements are bad.
//!
//! No request may fail, and every answer must have the bits of one generation. Bad directories must be refused and change nothing.
//! Between rounds the engine is idle, and the adapters and the memory of the process must be those of the start. The first fifth of
//! the rounds is warm-up.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redline_engine::{
    AdapterChoice, AdapterInfo, AdapterOptions, Cancel, Engine, GenerateRequest, Label, LongLabels, Options,
    Prompt, ScoreRequest, Source,
};
use redline_system::Clock;
use redline_system::memory::{CountingAllocator, current_bytes};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The name that is replaced.
const NAME: &str = "live";
/// Number of times that the engine is idle.
const ROUNDS: usize = 20;
/// Threads that send requests.
const CLIENTS: usize = 3;
/// Different requests: scores, and one generation, which takes as long as several replacements.
const REQUESTS: usize = 5;
/// Number of tokens of the generation.
const NEW_TOKENS: usize = 32;
/// Allowed difference in allocated bytes between two idle moments: less than half an adapter.
const MAX_ALLOCATED: u64 = 128 << 10;
/// Allowed difference in resident bytes: the system's allocator keeps freed memory.
const MAX_RESIDENT: u64 = 4 << 20;

/// The bits of the scores, or the tokens, of every request.
type Bits = [Vec<u32>; REQUESTS];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The two adapters that replace each other.
fn good() -> [PathBuf; 2] {
    ["models/demo-adapter", "models/demo-adapter/jargon"].map(|dir| root().join(dir))
}

fn engine(clock: &Clock) -> Result<Engine, String> {
    let options = Options {
        threads: 2,
        adaptive_threads: true,
        adapters: Some(AdapterOptions { memory: 4 << 20, ..AdapterOptions::default() }),
        // Cached prefixes differ in length from round to round.
        prefix_cache: None,
        clock: clock.as_fn(),
        ..Options::new(Source::Path(root().join("models/demo")))
    };
    Engine::load(options).map_err(|e| e.to_string())
}

fn answer(engine: &Engine, request: usize) -> Result<Vec<u32>, String> {
    let texts = ["A daemon waits.", "And he said unto them", "It is a truth", "hack: n.", "The man"];
    let items = vec![Prompt::Text(" yes".to_owned()), Prompt::Text(" it was the best of times".to_owned())];
    let labels = [" the", " a", " program"].map(|label| Label::Text(label.to_owned())).to_vec();
    let adapters = vec![AdapterChoice { name: NAME.to_owned(), scale: 1.0 }];
    let prompt = Prompt::Text(texts[request].to_owned());
    if request == REQUESTS - 1 {
        let asked = GenerateRequest { adapters, ..GenerateRequest::new(prompt, NEW_TOKENS) };
        let ticket = engine.submit_generate(asked, &Cancel::new()).map_err(|e| e.to_string())?;
        return Ok(ticket.wait().map_err(|e| e.to_string())?.token_ids);
    }
    let plain = ScoreRequest::new(prompt, items, labels);
    let asked = ScoreRequest { adapters, long_labels: LongLabels::Sum, ..plain };
    let ticket = engine.submit_score(asked, &Cancel::new()).map_err(|e| e.to_string())?;
    let mut bits = Vec::new();
    for item in ticket.wait().map_err(|e| e.to_string())?.items {
        bits.extend(item.map_err(|e| format!("{e:?}"))?.logprobs.into_iter().map(f32::to_bits));
    }
    Ok(bits)
}

/// The answers with only one adapter ever loaded.
fn alone(clock: &Clock, dir: &Path) -> Result<Bits, String> {
    let engine = engine(clock)?;
    engine.load_adapter(NAME, dir, None).map_err(|e| e.to_string())?;
    let mut bits: Bits = Default::default();
    for (request, bits) in bits.iter_mut().enumerate() {
        *bits = answer(&engine, request)?;
    }
    Ok(bits)
}

/// Directories that must be refused, with a part of the message.
fn bad(folder: &Path) -> Result<Vec<(PathBuf, &'static str)>, String> {
    let from = &good()[1];
    let (config, tensors) = ("adapter_config.json", "adapter_model.safetensors");
    let read = |name: &str| fs::read(from.join(name)).map_err(|e| format!("{name}: {e}"));
    let (json, bytes) = (read(config)?, read(tensors)?);
    let text = String::from_utf8_lossy(&json).into_owned();
    let other_rank = text.replace("\"r\": 4", "\"r\": 5").replace("\"r\":4", "\"r\":5");
    let mut not_finite = bytes.clone();
    let end = not_finite.len();
    // The largest exponent in every type.
    not_finite[end - 4..].fill(0xff);
    let mut header = bytes.clone();
    header[0] ^= 0x55;
    let written = [
        ("cut", Some(json.clone()), &bytes[..bytes.len() - 9], "adapter_model.safetensors"),
        ("rank", Some(other_rank.into_bytes()), &bytes[..], "rank 5"),
        ("not-finite", Some(json.clone()), &not_finite[..], "finite"),
        ("header", Some(json.clone()), &header[..], "adapter_model.safetensors"),
        ("no-config", None, &bytes[..], "adapter_config.json"),
        ("no-tensors", Some(json), &[][..], "adapter_model.safetensors"),
    ];
    let mut all = vec![
        (root().join("tests/golden/adapters/llama-plain"), "this model needs"),
        (folder.join("missing"), "missing"),
    ];
    for (name, json, bytes, message) in written {
        let dir = folder.join(name);
        fs::create_dir(&dir).map_err(|e| e.to_string())?;
        let write = |name: &str, bytes: &[u8]| fs::write(dir.join(name), bytes).map_err(|e| e.to_string());
        json.map(|json| write(config, &json)).transpose()?;
        write(tensors, bytes)?;
        all.push((dir, message));
    }
    Ok(all)
}

/// What the process holds while the engine is idle.
#[derive(Clone, Copy, Debug)]
struct Holding {
    allocated: u64,
    /// RssAnon and VmSwap.
    resident: u64,
}

impl Holding {
    fn now() -> Result<Self, String> {
        let status =
            fs::read_to_string("/proc/self/status").map_err(|e| format!("/proc/self/status: {e}"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        Ok(Self { allocated: current_bytes(), resident: (field("RssAnon") + field("VmSwap")) << 10 })
    }
}

/// What all rounds have in common.
struct Run<'a> {
    engine: &'a Engine,
    clock: &'a Clock,
    expected: [Bits; 2],
    bad: Vec<(PathBuf, &'static str)>,
    /// Number of answers of each adapter.
    answered: [AtomicU64; 2],
    /// Milliseconds of the replacements that succeeded.
    times: Mutex<Vec<f64>>,
}

impl Run<'_> {
    /// Sends requests until the round is over.
    fn send(&self, first: usize, over: &AtomicBool) -> Result<(), String> {
        let mut request = first;
        while !over.load(Ordering::Relaxed) {
            request = (request + 1) % REQUESTS;
            let bits = answer(self.engine, request)?;
            let Some(of) = self.expected.iter().position(|expected| expected[request] == bits) else {
                return Err(format!("request {request} has the bits of no generation"));
            };
            self.answered[of].fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn answers(&self) -> u64 {
        self.answered.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// One replacement of a round that begins with `first`, and then a wait for an answer.
    fn reload(&self, number: usize, first: usize, over: &AtomicBool) -> Result<(), String> {
        let generation = || self.engine.adapters().first().map(|adapter| adapter.generation);
        let before = generation();
        if number % 2 == 0 {
            let (dir, message) = &self.bad[number / 2 % self.bad.len()];
            match self.engine.load_adapter(NAME, dir, None) {
                Ok(_) => return Err(format!("`{}` is not refused", dir.display())),
                Err(error) if !error.to_string().contains(message) => {
                    return Err(format!("`{}` is refused: {error}", dir.display()));
                }
                Err(_) => {}
            }
            if generation() != before {
                return Err(format!("`{}` changed the generation", dir.display()));
            }
        } else {
            let start = self.clock.now_ns();
            let next = &good()[number / 2 % 2];
            // The first good one of a round replaces none.
            let published = if number % 8 == 7 && number >= first + 2 {
                self.engine.roll_back_adapter(NAME)
            } else {
                self.engine.load_adapter(NAME, next, before)
            };
            published.map_err(|e| format!("replacement {number}: {e}"))?;
            let ms = self.clock.elapsed_s(start) * 1e3;
            self.times.lock().map_err(|e| e.to_string())?.push(ms);
        }
        let answers = self.answers();
        while self.answers() == answers && !over.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Some replacements, under load.
    fn round(&self, numbers: std::ops::Range<usize>) -> Result<(), String> {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let ends = |result: Result<(), String>| {
                // An error ends the round, too.
                over.store(true, Ordering::Relaxed);
                result
            };
            let over = &over;
            let clients: Vec<_> =
                (0..CLIENTS).map(|client| scope.spawn(move || ends(self.send(client, over)))).collect();
            let mut result =
                ends(numbers.clone().try_for_each(|number| self.reload(number, numbers.start, over)));
            for client in clients {
                let sent = client.join().unwrap_or_else(|_| Err("a client panicked".to_owned()));
                result = result.and(sent);
            }
            result
        })
    }
}

/// The published adapters, without their generations and times.
fn published(engine: &Engine) -> Vec<(String, PathBuf, u64)> {
    let facts = |info: AdapterInfo| (info.name, info.dir, info.bytes);
    engine.adapters().into_iter().map(facts).collect()
}

fn percentile(sorted: &[f64], share: f64) -> f64 {
    sorted
        .get(((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(0.0)
}

fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// Compares the memory after the warm-up with that of the end.
fn judge(held: &[Holding]) -> Result<(), String> {
    let held = &held[held.len() / 5..];
    let parts = [&held[..held.len() / 3], &held[held.len() - held.len() / 3..]];
    for (name, of, most) in [
        ("allocated bytes", (|h| h.allocated) as fn(&Holding) -> u64, MAX_ALLOCATED),
        ("resident bytes", |h| h.resident, MAX_RESIDENT),
    ] {
        let [first, last] = parts.map(|part| median(part.iter().map(of)));
        println!("{name}: {first}, then {last}");
        if last > first + most {
            return Err(format!("{name} grew from {first} to {last}, by more than {most}"));
        }
    }
    Ok(())
}

fn run(count: usize) -> Result<(), String> {
    let clock = Clock::start();
    let folder = std::env::temp_dir().join(format!("redline-hot-reload-{}", std::process::id()));
    fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let result = run_in(count, &clock, &folder);
    fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    result
}

fn run_in(count: usize, clock: &Clock, folder: &Path) -> Result<(), String> {
    let [first, second] = good();
    let expected = [alone(clock, &first)?, alone(clock, &second)?];
    if expected[0].iter().zip(&expected[1]).any(|(a, b)| a == b) {
        return Err("both adapters give the same answers".to_owned());
    }
    let engine = engine(clock)?;
    let begin = || engine.load_adapter(NAME, &first, None).map_err(|e| e.to_string());
    begin()?;
    let start = published(&engine);
    let run = Run {
        engine: &engine,
        clock,
        expected,
        bad: bad(folder)?,
        answered: [AtomicU64::new(0), AtomicU64::new(0)],
        times: Mutex::default(),
    };
    let mut held = Vec::new();
    for round in 0..ROUNDS {
        run.round(count * round / ROUNDS..count * (round + 1) / ROUNDS)?;
        // As at the start: one adapter, which replaced none.
        engine.unload_adapter(NAME, None).map_err(|e| e.to_string())?;
        if engine.in_use().map_err(|e| e.to_string())?.requests > 0 || !engine.adapters().is_empty() {
            return Err(format!("round {round}: requests or adapters are left"));
        }
        begin()?;
        if published(&engine) != start {
            return Err(format!("round {round}: {:?} instead of {start:?}", published(&engine)));
        }
        held.push(Holding::now()?);
    }
    let answered = run.answered.each_ref().map(|count| count.load(Ordering::Relaxed));
    let mut times = run.times.into_inner().map_err(|e| e.to_string())?;
    times.sort_by(f64::total_cmp);
    let good = times.len();
    println!(
        "{count} replacements: {good} good, {} refused; 1 adapter of {} bytes at the end",
        count - good,
        start[0].2
    );
    println!("answers: {} and {} of the two adapters, none failed", answered[0], answered[1]);
    let [p50, p95, p100] = [0.5, 0.95, 1.0].map(|share| percentile(&times, share));
    println!("a good replacement: median {p50:.2} ms, 95 % {p95:.2} ms, longest {p100:.2} ms");
    if count > 40 && answered.contains(&0) {
        return Err("one of the adapters gave no answer".to_owned());
    }
    judge(&held)
}

fn main() -> ExitCode {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let Some(count) = count else {
        eprintln!("error: give the number of replacements\n\nhint: cargo xtask hot-reload 1000");
        return ExitCode::from(2);
    };
    match run(count) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fact) => {
            eprintln!("error: {fact}");
            ExitCode::FAILURE
        }
    }
}
