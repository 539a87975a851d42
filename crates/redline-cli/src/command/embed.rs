//! `redline embed`: one vector for each text, or weights of tokens.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use redline_api::jsonl::embed::{self, EmbedLine};
use redline_api::model::LoadedModel;
use redline_engine::{
    Cancel, EmbedRequest, EncodeOutcome, Encoded, EngineError, Pooling, Prompt, Truncate, VectorForm, max_sim,
};

use super::receipt::ReceiptFlags;
use super::{Context, cost, judge};
use crate::adapters::AdapterFlags;
use crate::interrupt::Interrupt;
use crate::jsonl::{self, Answer, Answers, Done, Lines, TargetFlags};
use crate::message::{self, Failure};
use crate::model::{MachineFlags, ModelFlag, ModelName};
use crate::prefix_cache::PrefixCacheFlags;
use crate::{display, output, table, value};

/// Longest part of a text that is shown, in characters.
const TEXT_WIDTH: usize = 40;
/// Number of values of a vector that are shown.
const VALUES: usize = 4;
/// Number of weights of tokens that are shown.
const WEIGHTS: usize = 8;

/// Flags of `embed`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct EmbedArgs {
    #[command(flatten)]
    model: ModelFlag,
    /// A text (repeatable)
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    text: Vec<String>,
    /// Texts from a file, one per line, or from a table in CSV (`.csv`, see --column); `-` is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The column of --file with the texts; the file is a table in CSV then, with a header
    #[arg(long, value_name = "NAME", requires = "file")]
    column: Option<String>,
    /// Requests from a file, one JSON object per line; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["text", "file", "json", "csv"])]
    jsonl: Option<PathBuf>,
    #[command(flatten)]
    target: TargetFlags,
    /// Weigh tokens of the vocabulary, most of them with zero, instead of making one vector (SPLADE, bge-m3)
    #[arg(long, conflicts_with_all = ["pooling", "normalize", "dimensions"])]
    sparse: bool,
    /// Make a vector for each token, for late interaction (ColBERT, bge-m3); `--prompt-name query` reads texts as queries, and `document`
    /// as documents
    #[arg(long, conflicts_with_all = ["sparse", "pooling", "normalize", "dimensions"])]
    multi_vector: bool,
    /// How the states of a text become one vector: that of the first token (cls), the mean of all, or that of the last token; default:
    /// as the model's `modules.json` says
    #[arg(long, value_parser = value::choice::<Pooling>(), value_name = "HOW")]
    pooling: Option<Pooling>,
    /// Whether vectors are divided by their length, to length 1; default: as the model says, or if it says nothing, true
    #[arg(long, value_name = "BOOL", alias = "normalise")]
    normalize: Option<bool>,
    /// Keep only the first N values of a vector, for models that are trained for it
    #[arg(long, value_name = "N", value_parser = value::count)]
    dimensions: Option<usize>,
    /// The task whose prompt is put before every text, such as `query`; default: the model's default, or no prompt
    #[arg(long, value_name = "TASK")]
    prompt_name: Option<String>,
    /// Which end of a text is cut if it exceeds the maximum length; without this flag, such a text is an error
    #[arg(long, value_parser = value::choice::<Truncate>(), value_name = "END")]
    truncate: Option<Truncate>,
    /// Time limit of a request in seconds; a request that exceeds it fails
    #[arg(long, value_name = "S", value_parser = value::seconds)]
    timeout: Option<f64>,
    /// Print one JSON document
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values with a header
    #[arg(long)]
    csv: bool,
    /// Print nothing but the answer
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    receipt: ReceiptFlags,
    #[command(flatten)]
    machine: MachineFlags,
    #[command(flatten)]
    prefix_cache: PrefixCacheFlags,
    #[command(flatten)]
    adapters: AdapterFlags,
}

/// The help text about models and lines.
const HELP: &str = "A model of sentence-transformers says itself how its states become a vector (`modules.json`); with any other model, \
     give --pooling. Without --json and --csv, the first values of each vector are shown, and how similar the text is to the first \
     one: the cosine of the angle between their vectors. With --sparse, the tokens with the largest weights are shown, and the sum \
     of the products of the weights of the tokens that a text has in common with the first one. With --multi-vector, it is the sum \
     over the first text's vectors of the largest product with any vector of the text.\n\n\
     Keys of a line of --jsonl: id (any value; the answer repeats it), text or texts, form (dense, sparse, multi_vector, or states: the \
     state of each token), prompt_name, pooling, normalize, dimensions, truncate, cache_salt, adapter (a name, or a list of names and of objects with name and scale), timeout_s, receipt (true, or an object \
     with layers). An absent key takes \
     the value of the command's flag. Up to 64 lines are run together; answers come in the order of the lines.";

/// Embeds the texts that the flags give, or answers a file of requests.
pub(super) fn run(args: &EmbedArgs, context: &Context) -> Result<ExitCode, Failure> {
    args.target.check(args.jsonl.is_some())?;
    let model = args.model.resolve(context.environment)?;
    if let Some(path) = &args.jsonl {
        let lines = Lines::open(path)?;
        let loaded = load(args, &model, context)?;
        let mut embeddings = EmbeddedLines { loaded: &loaded, defaults: request(args, Vec::new()) };
        let interrupt = Interrupt::install()?;
        let answered =
            interrupt.during(|_| jsonl::answer_all(lines, &args.target, &mut embeddings, Some(&interrupt)));
        return Ok(answered?.code());
    }
    if args.text.is_empty() && args.file.is_none() {
        let hint = "`--text TEXT` for each text, `--file FILE`, or requests with `--jsonl FILE`";
        return Err(Failure::usage("no text given", hint));
    }
    let texts = judge::texts(&args.text, args.file.as_deref(), args.column.as_deref())?;
    let loaded = load(args, &model, context)?;
    let request = EmbedRequest { receipt: args.receipt.options(), ..request(args, texts.clone()) };
    let outcome = loaded.engine.embed(request)?;
    let receipt = outcome.receipt.clone();
    if args.json {
        output::line(&output::json(&embed::answer(&loaded, outcome))?)?;
    } else if args.csv {
        let rows = match outcome.form {
            VectorForm::Sparse => weights(&texts, &outcome),
            VectorForm::MultiVector => token_vectors(&texts, &outcome),
            _ => values(&texts, &outcome),
        };
        output::piece(&judge::csv(&rows)?)?;
    } else {
        let shown = match outcome.form {
            VectorForm::Sparse => render_sparse(&texts, &outcome, &loaded),
            VectorForm::MultiVector => render_token_vectors(&texts, &outcome),
            _ => render(&texts, &outcome),
        };
        output::piece(&shown)?;
        if !args.quiet {
            let prompts = outcome.texts.iter().map(|text| Some((text.prompt_tokens, text.truncated)));
            message::say(cost::summary(&loaded, &outcome.cost, (texts.len(), "text"), prompts));
        }
    }
    args.receipt.write(receipt.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

fn load(args: &EmbedArgs, model: &ModelName, context: &Context) -> Result<LoadedModel, Failure> {
    let settings = args.machine.resolve(context.environment, &context.clock)?;
    let settings = args.prefix_cache.resolve(settings, context.environment)?.with_adapters(&args.adapters);
    settings.load(model, context.environment)
}

/// The request that the flags make of texts.
fn request(args: &EmbedArgs, texts: Vec<String>) -> EmbedRequest {
    EmbedRequest {
        form: match (args.sparse, args.multi_vector) {
            (true, _) => VectorForm::Sparse,
            (_, true) => VectorForm::MultiVector,
            _ => VectorForm::Dense,
        },
        pooling: args.pooling,
        normalise: args.normalize,
        dimensions: args.dimensions,
        prompt_name: args.prompt_name.clone(),
        truncate: args.truncate,
        adapters: args.adapters.choices(),
        timeout_s: args.timeout,
        ..EmbedRequest::new(texts.into_iter().map(Prompt::Text).collect())
    }
}

/// Answers JSON lines with embeddings.
struct EmbeddedLines<'a> {
    loaded: &'a LoadedModel,
    defaults: EmbedRequest,
}

impl Answers for EmbeddedLines<'_> {
    type Request = EmbedLine;
    type Context = ();
    type Outcome = Result<EncodeOutcome, EngineError>;

    fn begin(&mut self, line: EmbedLine, done: Done<Self::Outcome>) -> Result<(), Failure> {
        let request = embed::request(line, &self.defaults);
        done.when_ended(self.loaded.engine.submit_embed(request, &Cancel::new())?, |outcome| outcome);
        Ok(())
    }

    fn answer(&mut self, (): (), outcome: Self::Outcome) -> Result<Answer, Failure> {
        let json = output::json(&embed::answer(self.loaded, outcome?))?;
        Ok(Answer { json, stop: false })
    }
}

/// The rows of the comma-separated values: the text and its vector.
fn values(texts: &[String], outcome: &EncodeOutcome) -> Vec<Vec<String>> {
    let width = outcome.texts.first().map_or(0, |text| text.values.len());
    let header = std::iter::once("text".to_owned()).chain((0..width).map(|i| i.to_string())).collect();
    let row = |(text, Encoded { values, .. }): (&String, &Encoded)| {
        std::iter::once(text.clone()).chain(values.iter().map(f32::to_string)).collect()
    };
    std::iter::once(header).chain(texts.iter().zip(&outcome.texts).map(row)).collect()
}

/// One line per text: its tokens, its similarity to the first text, and the first values of its vector.
fn render(texts: &[String], outcome: &EncodeOutcome) -> String {
    let width = outcome.texts.first().map_or(0, |text| text.values.len());
    let shown = VALUES.min(width);
    let mut header = ["text", "tokens", "similarity"].map(str::to_owned).to_vec();
    header.extend((0..shown).map(|i| format!("[{i}]")));
    header.extend((width > shown).then(|| format!("... [{}]", width - 1)));
    let columns = header.len();
    let mut rows = vec![header];
    for (text, Encoded { values, prompt_tokens, .. }) in texts.iter().zip(&outcome.texts) {
        let mut row = vec![display::shortened(text, TEXT_WIDTH), prompt_tokens.to_string()];
        row.push(format!("{:.4}", cosine(&outcome.texts[0].values, values)));
        row.extend(values[..shown].iter().map(|value| format!("{value:.5}")));
        row.extend(values.last().filter(|_| width > shown).map(|value| format!("{value:.5}")));
        rows.push(row);
    }
    table::align(&rows, columns)
}

/// The rows of the comma-separated values of sparse vectors: a text, a token, its id, and its weight.
fn weights(texts: &[String], outcome: &EncodeOutcome) -> Vec<Vec<String>> {
    let header = ["text", "index", "weight"].map(str::to_owned).to_vec();
    let rows = texts.iter().zip(&outcome.texts).flat_map(|(text, Encoded { indices, values, .. })| {
        let weights = indices.iter().zip(values);
        weights.map(|(index, weight)| vec![text.clone(), index.to_string(), weight.to_string()])
    });
    std::iter::once(header).chain(rows).collect()
}

/// The rows of the comma-separated values of vectors of tokens: a text, the number of the vector, and the vector.
fn token_vectors(texts: &[String], outcome: &EncodeOutcome) -> Vec<Vec<String>> {
    let width = outcome.texts.iter().find_map(|text| text.each_vector().next()).map_or(0, <[f32]>::len);
    let header = ["text", "vector"].map(str::to_owned).into_iter().chain((0..width).map(|i| i.to_string()));
    let rows = texts.iter().zip(&outcome.texts).flat_map(|(text, encoded)| {
        encoded.each_vector().enumerate().map(|(at, vector)| {
            let place = [text.clone(), at.to_string()];
            place.into_iter().chain(vector.iter().map(f32::to_string)).collect()
        })
    });
    std::iter::once(header.collect()).chain(rows).collect()
}

/// One line per text: its tokens, its vectors, its similarity to the first text, and the first values of its first vector.
fn render_token_vectors(texts: &[String], outcome: &EncodeOutcome) -> String {
    let header = ["text", "tokens", "vectors", "similarity", "first vector"].map(str::to_owned).to_vec();
    let mut rows = vec![header];
    for (text, encoded) in texts.iter().zip(&outcome.texts) {
        let first = encoded.each_vector().next().unwrap_or_default();
        let shown: Vec<String> = first.iter().take(VALUES).map(|value| format!("{value:.5}")).collect();
        let more = if first.len() > VALUES { " ..." } else { "" };
        rows.push(vec![
            display::shortened(text, TEXT_WIDTH),
            encoded.prompt_tokens.to_string(),
            encoded.vectors.to_string(),
            format!("{:.4}", max_sim(&outcome.texts[0], encoded)),
            format!("{}{more}", shown.join(" ")),
        ]);
    }
    table::align(&rows, 4)
}

/// One line per text: its tokens, its similarity to the first text, the number of its weights, and the largest ones.
fn render_sparse(texts: &[String], outcome: &EncodeOutcome, loaded: &LoadedModel) -> String {
    let header = ["text", "tokens", "similarity", "weights", "largest"].map(str::to_owned).to_vec();
    let token = |index: u32| {
        let text = loaded.engine.tokenizer().and_then(|tokenizer| tokenizer.token(index));
        text.unwrap_or_else(|| format!("#{index}"))
    };
    let mut rows = vec![header];
    for (text, encoded) in texts.iter().zip(&outcome.texts) {
        let mut weights: Vec<(u32, f32)> =
            encoded.indices.iter().copied().zip(encoded.values.iter().copied()).collect();
        weights.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let largest =
            weights.iter().take(WEIGHTS).map(|(index, weight)| format!("{} {weight:.3}", token(*index)));
        rows.push(vec![
            display::shortened(text, TEXT_WIDTH),
            encoded.prompt_tokens.to_string(),
            format!("{:.4}", common(&outcome.texts[0], encoded)),
            weights.len().to_string(),
            largest.collect::<Vec<_>>().join(", "),
        ]);
    }
    table::align(&rows, 4)
}

/// The sum of the products of the weights of the tokens that two sparse vectors have in common.
fn common(a: &Encoded, b: &Encoded) -> f64 {
    let weights: BTreeMap<u32, f32> = a.indices.iter().copied().zip(a.values.iter().copied()).collect();
    let products = b.indices.iter().zip(&b.values);
    products.map(|(index, y)| weights.get(index).map_or(0.0, |x| f64::from(*x) * f64::from(*y))).sum()
}

/// The cosine of the angle between two vectors; 0 if one of them is zero.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if lengths > 0.0 { dot(a, b) / lengths } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;

    #[test]
    fn every_flag_of_the_command_reaches_the_request() {
        let of = |line: &str| {
            let command = EmbedArgs::augment_args(clap::Command::new("embed").no_binary_name(true));
            let matches = command.try_get_matches_from(line.split_whitespace()).unwrap();
            let args = EmbedArgs::from_arg_matches(&matches).unwrap();
            format!("{:#?}", request(&args, vec!["t".to_owned()]))
        };
        for (flag, form) in [("--sparse", VectorForm::Sparse), ("--multi-vector", VectorForm::MultiVector)] {
            let expected = EmbedRequest { form, ..EmbedRequest::new(vec![Prompt::Text("t".to_owned())]) };
            assert_eq!(of(flag), format!("{expected:#?}"));
        }
        let line = "--pooling cls --normalize false --dimensions 8 --prompt-name query --truncate left --timeout 2.5";
        let expected = EmbedRequest {
            pooling: Some(Pooling::First),
            normalise: Some(false),
            dimensions: Some(8),
            prompt_name: Some("query".to_owned()),
            truncate: Some(Truncate::Left),
            timeout_s: Some(2.5),
            ..EmbedRequest::new(vec![Prompt::Text("t".to_owned())])
        };
        assert_eq!(of(line), format!("{expected:#?}"));
    }

    #[test]
    fn tokens_of_both_texts_count() {
        let text = |indices: &[u32], values: &[f32]| Encoded {
            values: values.to_vec(),
            indices: indices.to_vec(),
            vectors: 1,
            prompt_tokens: 1,
            truncated: false,
        };
        let (a, b) = (text(&[2, 5, 9], &[1.0, 2.0, 4.0]), text(&[1, 5, 9], &[8.0, 3.0, 0.5]));
        assert_eq!((common(&a, &b), common(&b, &a)), (8.0, 8.0));
        assert_eq!(common(&a, &text(&[], &[])), 0.0);
    }

    #[test]
    fn the_similarity_is_a_cosine() {
        assert_eq!(cosine(&[3.0, 4.0], &[6.0, 8.0]), 1.0);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 2.0]), 0.0);
        assert_eq!(cosine(&[1.0, 0.0], &[-2.0, 0.0]), -1.0);
        assert_eq!(cosine(&[0.0, 0.0], &[1.0, 0.0]), 0.0);
    }
}
