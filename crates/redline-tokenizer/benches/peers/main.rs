//! Compares this encoder with other crates on one public vocabulary: throughput, and whether time grows linearly with
//! the length.
//!
//! Run `cargo bench -p redline-tokenizer --bench peers`, with `-- --quick` for a short run that only shows that it
//! works, and with `-- o200k` for that vocabulary. Ids are compared before anything is timed.
#![forbid(unsafe_code)]

mod arms;
mod clock;
#[path = "../../tests/it/dice.rs"]
mod dice;
#[path = "../../tests/it/repository.rs"]
mod repository;
mod scaling;
mod texts;
#[path = "../../tests/it/vocabulary.rs"]
mod vocabulary;

use arms::Arm;
use dice::Dice;
use texts::Texts;
use vocabulary::PUBLIC;

/// The amount of work.
struct Size {
    /// Bytes per text.
    text: usize,
    prompts: usize,
    rounds: usize,
    /// Bytes of the shorter text in the scaling test.
    hostile: usize,
}

const FULL: Size = Size { text: 2_000_000, prompts: 2000, rounds: 9, hostile: 5_000_000 };
const QUICK: Size = Size { text: 40_000, prompts: 40, rounds: 2, hostile: 50_000 };

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let given = |name: &str| arguments.iter().any(|argument| argument == name);
    let size = if given("--quick") { QUICK } else { FULL };
    let public = &PUBLIC[usize::from(given("o200k"))];
    let kinds = texts::all(public, &size);
    let common = kinds.iter().map(|texts| texts.common).max().unwrap_or(0);
    let arms = arms::all(public, common);
    println!("{}, {} rounds, one thread where nothing else is said\n", public.name, size.rounds);
    for texts in &kinds {
        compare(&arms, texts, size.rounds);
    }
    scaling::print(public, size.hostile);
}

/// Times every encoder on the texts, in rounds that each begin with another encoder, and prints a row for each.
fn compare(arms: &[Arm], texts: &Texts, rounds: usize) {
    let arms: Vec<&Arm> = arms.iter().filter(|arm| texts.common > 0 || !arm.alike).collect();
    let notes: Vec<String> = arms.iter().map(|arm| arm.agreement(arms[0], texts)).collect();
    let mut order: Vec<usize> = (0..arms.len()).collect();
    let mut dice = Dice::new(1);
    let mut seconds = vec![Vec::new(); arms.len()];
    for _ in 0..rounds {
        dice.shuffle(&mut order);
        for &arm in &order {
            seconds[arm].push(clock::seconds(|| arms[arm].run(texts)));
        }
    }
    let bytes = texts.bytes() as f64;
    println!("{}: {} texts, {bytes} bytes", texts.name, texts.texts.len());
    println!("{:<28}{:>10}   {:<24}", "", "MB/s", "ours is faster by");
    for ((arm, times), note) in arms.iter().zip(&seconds).zip(notes) {
        let ratios: Vec<f64> = times.iter().zip(&seconds[0]).map(|(theirs, ours)| theirs / ours).collect();
        let (low, middle, high) = spread(&ratios);
        let speed = bytes / 1e6 / spread(times).1;
        println!("{:<28}{speed:>10.1}   {middle:.2} ({low:.2} to {high:.2}){note}", arm.name);
    }
    println!();
}

/// Minimum, median and maximum.
fn spread(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len() - 1;
    (sorted[0], f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)]), sorted[last])
}
