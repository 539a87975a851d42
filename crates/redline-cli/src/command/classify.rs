//! `redline classify`: the probability of each class for each text.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use redline_engine::{Classified, ClassifyOutcome, ClassifyRequest, ItemError, Label, LongLabels};
use redline_wire::{ClassResult, Classification, Finite};

use super::judge::{self, JudgeFlags};
use super::{Context, taken};
use crate::model::{Loaded, ModelFlag};
use crate::report::{self, Failure};
use crate::{figure, output, table};

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
    /// Texts from a file, one per line; `-` is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// A class, of one or more tokens (repeatable, at least two)
    #[arg(long, value_name = "TEXT")]
    class: Vec<String>,
    /// What stands around a text: the model's own template (see below)
    #[arg(long, value_name = "TEMPLATE")]
    template: Option<String>,
    /// Take classes of several tokens by the geometric mean per token, not by the probability of all of them
    #[arg(long)]
    mean: bool,
    #[command(flatten)]
    flags: JudgeFlags,
}

/// The help text about templates.
fn help() -> String {
    format!(
        "The template is a text with {{text}} once and {{classes}} (the classes, with commas between them) at most once, ending \
         where the model is to write the class. The default one is {:?}, for models that follow instructions; a model that was \
         trained to classify needs the template of its training. With the default template a class gets a space in front; with \
         --template it is taken as it is, so mind the space.",
        ClassifyRequest::TEMPLATE
    )
}

/// Classifies the texts that the flags give.
pub(super) fn run(args: &ClassifyArgs, context: &Context) -> Result<ExitCode, Failure> {
    let model = args.model.resolve(context.environment)?;
    let request = request(args)?;
    let loaded = args.flags.load(&model, context)?;
    if args.flags.json {
        let answer = answer(&loaded, &args.class, loaded.engine.classify(request)?);
        output::line(&output::json(&answer)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let texts = request.texts.clone();
    let outcome = loaded.engine.classify(request)?;
    output::piece(&render(&texts, &args.class, &outcome))?;
    if !args.flags.quiet {
        let prompts = outcome.texts.iter().map(|text| text.as_ref().ok());
        let prompts = prompts.map(|text| text.map(|text| (text.prompt_tokens, text.truncated)));
        report::say(taken::summary(&loaded, &outcome.taken, (texts.len(), "texts"), prompts));
    }
    Ok(ExitCode::SUCCESS)
}

fn request(args: &ClassifyArgs) -> Result<ClassifyRequest, Failure> {
    if args.text.is_empty() && args.file.is_none() {
        return Err(Failure::usage("no text given", "`--text TEXT` for each text, or `--file FILE`"));
    }
    if args.class.is_empty() {
        return Err(Failure::usage("no class given", "`--class TEXT` for each class, at least two"));
    }
    let request = ClassifyRequest {
        template: args.template.clone(),
        long_labels: if args.mean { LongLabels::Mean } else { LongLabels::Sum },
        truncate: args.flags.truncate,
        item_errors: args.flags.item_errors,
        timeout_s: args.flags.timeout,
        ..ClassifyRequest::new(Vec::new(), args.class.iter().cloned().map(Label::Text).collect())
    };
    request.check().map_err(judge::senseless)?;
    Ok(ClassifyRequest { texts: judge::texts(&args.text, args.file.as_deref())?, ..request })
}

/// Builds the JSON document.
fn answer(loaded: &Loaded, classes: &[String], outcome: ClassifyOutcome) -> Classification {
    let result = |(index, text)| match text {
        Ok(Classified { probabilities, best, margin, prompt_tokens, truncated }) => ClassResult {
            index,
            class: classes.get(best).cloned(),
            probabilities: Some(probabilities.into_iter().map(Finite).collect()),
            margin: Some(Finite(margin)),
            prompt_tokens: Some(prompt_tokens),
            truncated: Some(truncated),
            error: None,
        },
        Err(ItemError { message, .. }) => {
            ClassResult { index, error: Some(message), ..ClassResult::default() }
        }
    };
    Classification {
        object: "classification".to_owned(),
        model: loaded.name.clone(),
        classes: classes.to_vec(),
        results: outcome.texts.into_iter().enumerate().map(result).collect(),
        usage: taken::tokens(outcome.taken.usage),
        meta: judge::meta(loaded, outcome.class_token_ids, outcome.taken),
    }
}

/// One line per text: the best class, its margin, and one column per class.
fn render(texts: &[String], classes: &[String], outcome: &ClassifyOutcome) -> String {
    let class = |class: &String| figure::shortened(class, CLASS_WIDTH);
    let mut header = ["text", "best", "margin"].map(str::to_owned).to_vec();
    header.extend(classes.iter().map(class));
    let mut rows = vec![header];
    for (text, classified) in texts.iter().zip(&outcome.texts) {
        let mut row = vec![figure::shortened(text, TEXT_WIDTH)];
        match classified {
            Ok(found) => {
                row.extend([
                    classes.get(found.best).map(class).unwrap_or_default(),
                    figure::probability(found.margin),
                ]);
                row.extend(found.probabilities.iter().copied().map(figure::probability));
            }
            Err(error) => row.push(format!("error: {}", error.message)),
        }
        rows.push(row);
    }
    table::align(&rows, classes.len() + 3)
}
