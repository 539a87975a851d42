//! `redline classify`: the probability of each class for each text.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use redline_api::jsonl::classify::{self, ClassifyLine};
use redline_api::jsonl::judge::ChatFrames;
use redline_api::model::LoadedModel;
use redline_engine::{Cancel, ClassifyOutcome, ClassifyRequest, EngineError, JudgeOptions, Label};

use super::judge::{self, JudgeFlags};
use super::receipt::ReceiptFlags;
use super::{Context, cost};
use crate::interrupt::Interrupt;
use crate::jsonl::{self, Answer, Answers, Done, Lines, TargetFlags};
use crate::message::{self, Failure};
use crate::model::ModelFlag;
use crate::{display, output, table, value};

/// Longest part of a text that is shown, in characters.
const TEXT_WIDTH: usize = 40;
/// Longest part of a class that is shown, in characters.
const CLASS_WIDTH: usize = 16;

/// Flags of `classify`.
#[derive(Debug, Args)]
#[command(after_help = help())]
pub(super) struct ClassifyArgs {
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
    /// A class, of one or more tokens (repeatable, at least two; or all at once, as `good,bad`); none for a model with classes of its own
    #[arg(long, alias = "classes", value_name = "TEXT")]
    class: Vec<String>,
    /// A text whose best class is less probable than this gets no class
    #[arg(long, value_name = "P", value_parser = value::fraction)]
    threshold: Option<f64>,
    #[command(flatten)]
    flags: JudgeFlags,
    #[command(flatten)]
    receipt: ReceiptFlags,
}

/// The help text about templates, labels and lines.
fn help() -> String {
    format!(
        "The template is a text with {{text}} once and {{classes}} (the classes, with commas between them) at most once, ending \
         where the model is to write the class. The default one is {:?}, for models that follow instructions; a model that was \
         trained to classify needs the template of its training. With the default template a class gets a leading space; with \
         --template it is used unchanged, so it has to include a leading space if the model writes one. With --chat, the template \
         is the user's message in the model's chat template, {:?} unless given, and a class is the beginning of the answer.\n\n\
         {}\n\nKeys of a line of --jsonl: id (any value; the answer repeats it), text or texts, classes, {}",
        ClassifyRequest::TEMPLATE,
        ClassifyRequest::INSTRUCTION,
        judge::LABELS,
        judge::KEYS
    )
}

/// Classifies the texts that the flags give, or answers a file of requests.
pub(super) fn run(args: &ClassifyArgs, context: &Context) -> Result<ExitCode, Failure> {
    args.target.check(args.jsonl.is_some())?;
    let inputs = [("`--jsonl -`", args.jsonl.as_deref()), ("`--file -`", args.file.as_deref())];
    args.flags.check_input(&inputs)?;
    let model = args.model.resolve(context.environment)?;
    if let Some(path) = &args.jsonl {
        let lines = Lines::open(path)?;
        let (loaded, chat) = args.flags.load(&model, context)?;
        let mut classifications =
            Classifications { loaded: &loaded, defaults: defaults(args), chat, quiet: args.flags.quiet };
        let interrupt = Interrupt::install()?;
        let answered = interrupt
            .during(|_| jsonl::answer_all(lines, &args.target, &mut classifications, Some(&interrupt)));
        return Ok(answered?.code());
    }
    let request = request(args)?;
    let (loaded, mut chat) = args.flags.load(&model, context)?;
    if args.class.is_empty() && loaded.engine.info().classes.is_none() {
        return Err(Failure::usage("no class given", "`--class TEXT` for each class, at least two"));
    }
    let options = judge::framed(chat.as_mut(), request.options, ClassifyRequest::INSTRUCTION)?;
    let options = JudgeOptions { receipt: args.receipt.options(), ..options };
    classify_once(&loaded, args, ClassifyRequest { options, ..request })
}

fn classify_once(
    loaded: &LoadedModel,
    args: &ClassifyArgs,
    request: ClassifyRequest,
) -> Result<ExitCode, Failure> {
    let texts = request.texts.clone();
    let outcome = loaded.engine.classify(request)?;
    let receipt = outcome.receipt.clone();
    let classes = names(&outcome.classes);
    warn(&classes, &outcome, args.flags.quiet);
    if args.flags.json {
        output::line(&output::json(&classify::answer(loaded, outcome))?)?;
    } else if args.flags.csv {
        output::piece(&judge::csv(&values(&texts, &classes, &outcome))?)?;
    } else {
        output::piece(&render(&texts, &classes, &outcome))?;
        if !args.flags.quiet {
            let prompts = outcome.texts.iter().map(|text| text.as_ref().ok());
            let prompts = prompts.map(|text| text.map(|text| (text.prompt_tokens, text.truncated)));
            message::say(cost::summary(loaded, &outcome.cost, (texts.len(), "text"), prompts));
        }
    }
    args.receipt.write(receipt.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

/// The values that the flags give to all requests.
fn defaults(args: &ClassifyArgs) -> ClassifyRequest {
    ClassifyRequest {
        threshold: args.threshold.map(|threshold| threshold as f32),
        options: args.flags.options(),
        ..ClassifyRequest::new(Vec::new(), judge::classes(&args.class).into_iter().map(Label::Text).collect())
    }
}

fn request(args: &ClassifyArgs) -> Result<ClassifyRequest, Failure> {
    if args.text.is_empty() && args.file.is_none() {
        let hint = "`--text TEXT` for each text, `--file FILE`, or requests with `--jsonl FILE`";
        return Err(Failure::usage("no text given", hint));
    }
    let request = defaults(args);
    request.check().map_err(Failure::senseless)?;
    Ok(ClassifyRequest {
        texts: judge::texts(&args.text, args.file.as_deref(), args.column.as_deref())?,
        ..request
    })
}

/// The texts of the classes.
fn names(classes: &[Label]) -> Vec<String> {
    let name = |class: &Label| if let Label::Text(text) = class { text.clone() } else { String::new() };
    classes.iter().map(name).collect()
}

fn warn(classes: &[String], outcome: &ClassifyOutcome, quiet: bool) {
    let class = |index: usize| classes.get(index).map_or("", String::as_str);
    judge::warn_of_prefix(
        outcome.prefix_class.filter(|_| !quiet).map(|(one, other)| (class(one), class(other))),
    );
}

/// Answers JSON lines with classifications.
struct Classifications<'a> {
    loaded: &'a LoadedModel,
    defaults: ClassifyRequest,
    chat: Option<ChatFrames>,
    /// Whether warnings are left out. A warning is printed once.
    quiet: bool,
}

impl Answers for Classifications<'_> {
    type Request = ClassifyLine;
    type Context = ();
    type Outcome = Result<ClassifyOutcome, EngineError>;

    fn begin(&mut self, line: ClassifyLine, done: Done<Self::Outcome>) -> Result<(), Failure> {
        let request = classify::request(line, &self.defaults);
        let options = judge::framed(self.chat.as_mut(), request.options, ClassifyRequest::INSTRUCTION)?;
        let request = ClassifyRequest { options, ..request };
        done.when_ended(self.loaded.engine.submit_classify(request, &Cancel::new())?, |outcome| outcome);
        Ok(())
    }

    fn answer(&mut self, (): (), outcome: Self::Outcome) -> Result<Answer, Failure> {
        let outcome = outcome?;
        warn(&names(&outcome.classes), &outcome, self.quiet);
        self.quiet |= outcome.prefix_class.is_some();
        let json = output::json(&classify::answer(self.loaded, outcome))?;
        Ok(Answer { json, stop: false })
    }
}

/// The rows of the comma-separated values: the text, its class (empty below the threshold), the margin, the probability of each class,
/// and the error.
fn values(texts: &[String], classes: &[String], outcome: &ClassifyOutcome) -> Vec<Vec<String>> {
    let mut header = ["text", "class", "margin"].map(str::to_owned).to_vec();
    header.extend(classes.iter().cloned());
    header.push("error".to_owned());
    let mut rows = vec![header];
    for (text, classified) in texts.iter().zip(&outcome.texts) {
        let mut row = vec![text.clone()];
        match classified {
            Ok(classified) => {
                let class = classified.best.and_then(|best| classes.get(best)).cloned();
                row.extend([class.unwrap_or_default(), classified.margin.to_string()]);
                row.extend(classified.probabilities.iter().map(f32::to_string));
                row.push(String::new());
            }
            Err(error) => {
                row.resize(classes.len() + 3, String::new());
                row.push(error.message.clone());
            }
        }
        rows.push(row);
    }
    rows
}

/// One line per text: the best class, its margin, and one column per class.
fn render(texts: &[String], classes: &[String], outcome: &ClassifyOutcome) -> String {
    let class = |class: &String| display::shortened(class, CLASS_WIDTH);
    let mut header = ["text", "best", "margin"].map(str::to_owned).to_vec();
    header.extend(classes.iter().map(class));
    let mut rows = vec![header];
    for (text, classified) in texts.iter().zip(&outcome.texts) {
        let mut row = vec![display::shortened(text, TEXT_WIDTH)];
        match classified {
            Ok(classified) => {
                let best = classified.best.map(|best| classes.get(best).map(class).unwrap_or_default());
                row.extend([best.unwrap_or_else(|| "-".to_owned()), display::probability(classified.margin)]);
                row.extend(classified.probabilities.iter().copied().map(display::probability));
            }
            Err(error) => row.push(format!("error: {}", error.message)),
        }
        rows.push(row);
    }
    table::align(&rows, classes.len() + 3)
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;
    use redline_engine::{JudgeOptions, LabelEnd, LongLabels, Truncate};

    use super::*;

    fn parsed(line: &[&str]) -> ClassifyArgs {
        let command = ClassifyArgs::augment_args(clap::Command::new("classify").no_binary_name(true));
        ClassifyArgs::from_arg_matches(&command.try_get_matches_from(line).unwrap()).unwrap()
    }

    #[test]
    fn every_flag_of_the_command_reaches_the_request() {
        let line = "--text t --class a --class b --threshold 0.5 --template {text}: --length bytes --label-end always --end . \
                    --calibrate=nothing --truncate left --item-errors --timeout 2.5";
        let request = request(&parsed(&line.split_whitespace().collect::<Vec<_>>())).unwrap();
        let classes = ["a", "b"].map(|class| Label::Text(class.to_owned())).to_vec();
        let expected = ClassifyRequest {
            threshold: Some(0.5),
            options: JudgeOptions {
                template: Some("{text}:".to_owned()),
                long_labels: LongLabels::Bytes,
                label_end: LabelEnd::Always,
                end: Some(Label::Text(".".to_owned())),
                calibrate: Some("nothing".to_owned()),
                truncate: Some(Truncate::Left),
                item_errors: true,
                timeout_s: Some(2.5),
                ..JudgeOptions::default()
            },
            ..ClassifyRequest::new(vec!["t".to_owned()], classes)
        };
        assert_eq!(format!("{request:#?}"), format!("{expected:#?}"));
    }

    #[test]
    fn a_text_without_content_has_a_default() {
        let calibrate = |line: &[&str]| parsed(line).flags.options().calibrate;
        assert_eq!(calibrate(&["--calibrate", "--class", "a"]).as_deref(), Some("N/A"));
        assert_eq!(calibrate(&["--class", "a"]), None);
    }
}
