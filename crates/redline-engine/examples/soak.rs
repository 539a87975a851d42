//! Sends requests for a long time: `soak SECONDS`. The process must not accumulate memory, files or threads.
//!
//! Every prompt is new and requests log-probabilities; one request in five is cancelled, one in twenty is rejected. After each
//! round the engine is idle, so that only the prefix cache holds sequences, and memory, open files and threads are measured. The
//! first third of the time is warm-up.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

use redline_engine::{
    Cancel, Engine, EngineUse, GenerateRequest, Label, LongLabels, Options, Prompt, ScoreRequest, Source,
};
use redline_kernels::op::kv::PAGE_TOKENS;
use redline_models::random::{STEP, mix};
use redline_system::Clock;
use redline_system::memory::{CountingAllocator, current_bytes};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Requests per round.
const ROUND: u64 = 60;
/// Pages of keys and values: few, so that sequences must be preempted.
const PAGES: u64 = 24;
/// Allowed difference in allocated bytes between two idle moments. It is not 0, because cached prefixes differ in
/// length.
const MAX_ALLOCATED: u64 = 128 << 10;
/// Allowed difference in resident bytes: the system's allocator keeps freed memory.
const MAX_RESIDENT: u64 = 2 << 20;

/// The resources of the process while the engine is idle.
#[derive(Clone, Copy, Debug)]
struct Holding {
    allocated: u64,
    /// RssAnon and VmSwap.
    resident: u64,
    files: u64,
    threads: u64,
}

impl Holding {
    fn now() -> Result<Self, String> {
        let status =
            std::fs::read_to_string("/proc/self/status").map_err(|e| format!("/proc/self/status: {e}"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        let files = std::fs::read_dir("/proc/self/fd").map_err(|e| format!("/proc/self/fd: {e}"))?;
        Ok(Self {
            allocated: current_bytes(),
            resident: (field("RssAnon") + field("VmSwap")) << 10,
            files: files.count() as u64,
            threads: field("Threads"),
        })
    }
}

/// A stream of random numbers (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0) % end
    }

    /// A text that was not used before.
    fn text(&mut self) -> String {
        let words: Vec<String> =
            (0..4 + self.below(20)).map(|_| format!("{:x}", self.below(1 << 40))).collect();
        words.join(" ")
    }
}

fn load(clock: &Clock) -> Result<Engine, String> {
    let source = Source::Path(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo"));
    let options = |memory| Options {
        threads: 2,
        adaptive_threads: true,
        memory,
        clock: clock.as_fn(),
        ..Options::new(source.clone())
    };
    let info = Engine::load(options(None)).map_err(|e| e.to_string())?.info().clone();
    let pages = PAGES * PAGE_TOKENS as u64 * info.kv_bytes_per_token;
    Engine::load(options(Some(info.weight_bytes + info.activation_bytes + pages))).map_err(|e| e.to_string())
}

/// Runs a round of requests and waits until the engine is idle.
fn round(engine: &Engine, dice: &mut Dice, number: u64) -> Result<EngineUse, String> {
    let cancel = Cancel::new();
    let (mut generations, mut scores) = (Vec::new(), Vec::new());
    for i in 0..ROUND {
        let given_up = dice.below(5) == 0;
        let salt = format!("{}", dice.below(3));
        if i % 2 == 0 {
            let asked = GenerateRequest {
                logprobs: Some(3),
                cache_salt: salt,
                // A number of tokens that exceeds every context.
                max_new_tokens: if dice.below(10) == 0 { 1 << 20 } else { 1 + dice.below(24) as usize },
                ..GenerateRequest::new(Prompt::Text(dice.text()), 1)
            };
            let ticket = engine.submit_generate(asked, &cancel).ok();
            generations.extend(ticket.filter(|_| !given_up));
        } else {
            let items = (0..3).map(|_| Prompt::Text(dice.text())).collect();
            let labels = [" yes", " no"].map(|label| Label::Text(label.to_owned())).to_vec();
            let plain = ScoreRequest::new(Prompt::Text(dice.text()), items, labels);
            let ticket = engine.submit_score(
                ScoreRequest { cache_salt: salt, long_labels: LongLabels::Sum, ..plain },
                &cancel,
            );
            scores.extend(ticket.ok().filter(|_| !given_up));
        }
    }
    let failed = |error| format!("round {number}: {error}");
    generations.into_iter().try_for_each(|t| t.wait().map(drop)).map_err(failed)?;
    scores.into_iter().try_for_each(|t| t.wait().map(drop)).map_err(failed)?;
    loop {
        let held = engine.in_use().map_err(|e| e.to_string())?;
        if held.requests == 0 {
            return Ok(held);
        }
    }
}

fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// Compares the first quarter of the measurements with the last.
fn judge(held: &[Holding]) -> Result<(), String> {
    let quarter = held.len() / 4;
    if quarter < 5 {
        return Err(format!("{} rounds are too few to tell", held.len()));
    }
    let parts = [&held[..quarter], &held[held.len() - quarter..]];
    for (name, of, most) in [
        ("allocated bytes", (|h| h.allocated) as fn(&Holding) -> u64, MAX_ALLOCATED),
        ("resident bytes", |h| h.resident, MAX_RESIDENT),
        ("open files", |h| h.files, 0),
        ("threads", |h| h.threads, 0),
    ] {
        let [first, last] = parts.map(|part| median(part.iter().map(of)));
        println!("{name}: {first}, then {last}");
        if last > first + most {
            return Err(format!("{name} grew from {first} to {last}, by more than {most}"));
        }
    }
    Ok(())
}

fn soak(seconds: f64) -> Result<(), String> {
    let clock = Clock::start();
    let engine = load(&clock)?;
    let (start, mut dice, mut held, mut rounds) = (clock.now_ns(), Dice(1), Vec::new(), 0);
    while clock.elapsed_s(start) < seconds {
        let rest = round(&engine, &mut dice, rounds)?;
        rounds += 1;
        if rest.sequences != rest.kept || rest.pages > PAGES as usize {
            return Err(format!("round {rounds}: at rest, {rest:?}"));
        }
        if clock.elapsed_s(start) > seconds / 3.0 {
            held.push(Holding::now()?);
        }
    }
    println!("{} requests in {rounds} rounds", rounds * ROUND);
    judge(&held)
}

fn main() -> ExitCode {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let Some(seconds) = seconds else {
        eprintln!("error: give the number of seconds\n\nhint: cargo xtask soak 600");
        return ExitCode::from(2);
    };
    match soak(seconds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fact) => {
            eprintln!("error: {fact}");
            ExitCode::FAILURE
        }
    }
}
