//! `redline demo`: scoring and generation with the embedded models, in a few seconds.

use std::process::ExitCode;

use clap::Args;
use redline_demo::Question;
use redline_engine::{
    BlockCache, Cancel, DiffuseOutcome, DiffuseRequest, Engine, GenerateOutcome, GenerateRequest, Label,
    Prompt, Sampling, ScoreRequest, Ticket,
};
use redline_lab::limits;
use redline_system::{Machine, number};

use super::Context;
use crate::message::Failure;
use crate::model::{MachineFlags, ModelName};
use crate::output::{self, Stream};

/// Number of questions that are scored.
const QUESTIONS: usize = 20;
/// Number of questions that are shown.
const SHOWN: usize = 4;
/// Longest part of a question that is shown, in characters.
const SHOWN_CHARS: usize = 68;
/// Generated text breaks at the first space after this many characters.
const LINE_CHARS: usize = 84;
/// Length of the prompt, in words of held-out text.
const PROMPT_WORDS: usize = 12;
/// New tokens.
const NEW_TOKENS: usize = 160;
/// Number of masks to fill.
const NEW_MASKS: usize = 64;
/// Sampling parameters of the continuation.
const SAMPLING: Sampling =
    Sampling { temperature: 0.8, top_k: 0, top_p: 0.95, min_p: 0.0, typical_p: 1.0, seed: 7 };

/// Flags of `demo`.
#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    #[command(flatten)]
    machine: MachineFlags,
}

/// Shows the machine, the model, its scores, its text and its speed.
pub(super) fn run(args: &DemoArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = args.machine.resolve(context.environment, &context.clock)?;
    let clock = context.clock.as_fn();
    let start = clock();
    let engine = settings.clone().load(&ModelName::embedded(redline_demo::NAME), context.environment)?.engine;
    let load_s = (clock() - start) as f64 / 1e9;
    output::piece(&introduction(&engine, load_s))?;
    score(&engine)?;
    let outcome = continue_text(&engine)?;
    let (threads, bytes) = (engine.info().threads, engine.info().bytes_per_token as usize);
    let bandwidth = limits::read_bandwidth(threads, bytes, &context.clock)
        .map_err(|error| Failure::failed(error.to_string(), None))?;
    output::piece(&speed(&engine, &outcome, bandwidth))?;
    drop(engine);
    let diffusion = ModelName::embedded(redline_demo::DIFFUSION.name);
    fill_masks(&settings.load(&diffusion, context.environment)?.engine)?;
    Ok(ExitCode::SUCCESS)
}

fn introduction(engine: &Engine, load_s: f64) -> String {
    let info = engine.info();
    format!(
        "machine  {}\nrunning  {} on {}\nmodel    {}: {}, {} parameters as {}, {}; context {}; loaded in {}\n",
        Machine::here().one_line(),
        info.kernel_path,
        number::count(info.threads, "thread"),
        info.name,
        info.architecture,
        number::large_count(info.parameters),
        info.format,
        number::bytes(info.weight_bytes),
        info.context,
        number::seconds(load_s),
    )
}

/// Scores which word comes next in text that the model was not trained on.
fn score(engine: &Engine) -> Result<(), Failure> {
    output::piece("\nScore: which word comes next? (text the model was never trained on)\n")?;
    let questions = redline_demo::questions();
    let chosen = &questions[..QUESTIONS.min(questions.len())];
    let (mut right, mut seconds) = (0, 0.0);
    for (at, question) in chosen.iter().enumerate() {
        let outcome = engine.score(request(question))?;
        seconds += outcome.cost.compute_s;
        let Some(Ok(item)) = outcome.items.first() else { continue };
        let best = best(&item.scores);
        right += usize::from(best == question.answer);
        if at < SHOWN {
            output::piece(&shown(question, &item.scores, best))?;
        }
    }
    let n = chosen.len();
    output::line(&format!(
        "\n  {right} of {n} such questions right (guessing: {}); {} for all",
        n / 4,
        number::seconds(seconds)
    ))
}

fn request(question: &Question) -> ScoreRequest {
    let labels = question.choices.iter().cloned().map(Label::Text).collect();
    let query = Prompt::Text(question.context.clone());
    ScoreRequest { softmax: true, ..ScoreRequest::new(query, vec![Prompt::Text(String::new())], labels) }
}

/// The index of the highest score; the first one on a tie.
fn best(scores: &[f32]) -> usize {
    (1..scores.len()).fold(0, |best, at| if scores[at] > scores[best] { at } else { best })
}

/// The last whole words of a text on one line, marked if the text was cut.
fn tail(text: &str) -> String {
    let mut tail = String::new();
    for word in text.split_whitespace().rev() {
        if tail.chars().count() + word.chars().count() >= SHOWN_CHARS {
            return format!("… {tail}");
        }
        tail = if tail.is_empty() { word.to_owned() } else { format!("{word} {tail}") };
    }
    tail
}

fn shown(question: &Question, scores: &[f32], best: usize) -> String {
    let mut text = format!("\n  {} ___\n", tail(&question.context));
    for (at, (choice, score)) in question.choices.iter().zip(scores).enumerate() {
        let mark = match (at == best, at == question.answer) {
            (true, true) => "  <- right",
            (true, false) => "  <- wrong",
            (false, true) => "  <- would be right",
            (false, false) => "",
        };
        text.push_str(&format!("    {:<14} {:>5.1} %{mark}\n", choice.trim(), score * 100.0));
    }
    text
}

/// Continues the held-out text after its first words.
fn continue_text(engine: &Engine) -> Result<GenerateOutcome, Failure> {
    let prompt = beginning();
    output::piece(&format!(
        "\nGenerate: temperature {}, seed {}\n\n  {prompt} |",
        SAMPLING.temperature, SAMPLING.seed
    ))?;
    let request = GenerateRequest {
        sampling: SAMPLING,
        ignore_eos: true,
        ..GenerateRequest::new(Prompt::Text(prompt.clone()), NEW_TOKENS)
    };
    let cancel = Cancel::new();
    let mut stream = Stream::default();
    let mut lines = Lines { column: prompt.chars().count() };
    let mut on_text = |text: &str| {
        if !stream.push(&lines.wrap(text)) {
            cancel.cancel();
        }
    };
    let outcome = engine.generate(request, &cancel, &mut on_text)?;
    stream.finish()?;
    Ok(outcome)
}

/// Continues the same beginning with the model that fills masks: first one mask per pass, then with a faster setting.
fn fill_masks(engine: &Engine) -> Result<(), Failure> {
    let prompt = beginning();
    let exact =
        DiffuseRequest { ignore_eos: true, ..DiffuseRequest::new(Prompt::Text(prompt.clone()), NEW_MASKS) };
    let fast = DiffuseRequest { cache: BlockCache::Dual, threshold: Some(0.5), ..exact.clone() };
    output::piece(&format!(
        "\nDiffuse: {NEW_MASKS} masks after the same words, the most confident first\n\n  {prompt} |"
    ))?;
    let mut lines = Lines { column: prompt.chars().count() };
    let exact = engine.submit_diffuse(exact, &Cancel::new()).and_then(Ticket::wait)?;
    output::piece(&format!("{}\n", lines.wrap(&exact.text)))?;
    let fast = engine.submit_diffuse(fast, &Cancel::new()).and_then(Ticket::wait)?;
    let summary = |outcome: &DiffuseOutcome| {
        format!("{} passes, {}", outcome.passes.len(), number::seconds(outcome.compute_s))
    };
    output::line(&format!(
        "\n  One by one: {}. In blocks with a cache, all of which it is sure at once: {}.",
        summary(&exact),
        summary(&fast)
    ))
}

/// The first words of the held-out text.
fn beginning() -> String {
    redline_demo::HELD_OUT.split_whitespace().take(PROMPT_WORDS).collect::<Vec<_>>().join(" ")
}

/// Breaks streamed text into indented lines.
struct Lines {
    column: usize,
}

impl Lines {
    fn wrap(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for char in text.chars() {
            if char == '\n' || (char == ' ' && self.column >= LINE_CHARS) {
                out.push_str("\n  ");
                self.column = 0;
            } else {
                out.push(char);
                self.column += 1;
            }
        }
        out
    }
}

fn speed(engine: &Engine, outcome: &GenerateOutcome, bandwidth: f64) -> String {
    let Some(rate) = outcome.decode_tokens_per_s else { return String::new() };
    let bytes = engine.info().bytes_per_token;
    let reached = rate * bytes as f64;
    format!(
        "\nSpeed: {rate:.0} tokens/s, after {} for the prompt\n  Every token reads {} of weights: {}/s, {:.0} % of \
         the {}/s at which {} read a buffer of that size here.\n",
        number::seconds(outcome.prefill_s),
        number::bytes(bytes),
        number::bytes(reached as u64),
        100.0 * reached / bandwidth,
        number::bytes(bandwidth as u64),
        number::count(engine.info().threads, "thread"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equals_is_best() {
        assert_eq!(best(&[0.1, 0.4, 0.4, 0.1]), 1);
        assert_eq!(best(&[0.25; 4]), 0);
    }

    #[test]
    fn text_is_broken_at_spaces_wherever_it_was_cut() {
        let text = "word ".repeat(40) + "\nlast";
        let whole = Lines { column: 0 }.wrap(&text);
        let mut lines = Lines { column: 0 };
        let pieces: String =
            text.as_bytes().chunks(3).map(|c| lines.wrap(std::str::from_utf8(c).unwrap())).collect();
        assert_eq!(pieces, whole);
        assert!(whole.lines().all(|line| line.len() <= LINE_CHARS + 7), "{whole}");
        assert!(whole.ends_with("\n  last"));
    }

    #[test]
    fn a_question_shows_what_was_right() {
        let question = Question {
            context: "word ".repeat(40),
            choices: vec![" a".to_owned(), " b".to_owned()],
            answer: 1,
        };
        let text = shown(&question, &[0.75, 0.25], 0);
        assert!(
            text.contains("…")
                && text.contains("75.0 %  <- wrong")
                && text.contains("25.0 %  <- would be right")
        );
    }
}
