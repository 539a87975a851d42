//! `redline classify`: the probability of each class for each text.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use redline_api::classify;
use redline_engine::{ClassifyOutcome, ClassifyRequest, Label, LongLabels};

use super::judge::{self, JudgeFlags};
use super::{Context, cost};
use crate::message::{self, Failure};
use crate::model::ModelFlag;
use crate::{display, output, table};

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
    /// The template into which each text is put; default: one for models that follow instructions (see below)
    #[arg(long, value_name = "TEMPLATE")]
    template: Option<String>,
    /// Score classes of several tokens by the geometric mean per token instead of the probability of all of them
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
         trained to classify needs the template of its training. With the default template a class gets a leading space; with \
         --template it is used unchanged, so it has to include a leading space if the model writes one.",
        ClassifyRequest::TEMPLATE
    )
}

/// Classifies the texts that the flags give.
pub(super) fn run(args: &ClassifyArgs, context: &Context) -> Result<ExitCode, Failure> {
    let model = args.model.resolve(context.environment)?;
    let request = request(args)?;
    let loaded = args.flags.load(&model, context)?;
    if args.flags.json {
        let answer = classify::answer(&loaded, &args.class, loaded.engine.classify(request)?);
        output::line(&output::json(&answer)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let texts = request.texts.clone();
    let outcome = loaded.engine.classify(request)?;
    output::piece(&render(&texts, &args.class, &outcome))?;
    if !args.flags.quiet {
        let prompts = outcome.texts.iter().map(|text| text.as_ref().ok());
        let prompts = prompts.map(|text| text.map(|text| (text.prompt_tokens, text.truncated)));
        message::say(cost::summary(&loaded, &outcome.cost, (texts.len(), "texts"), prompts));
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

/// One line per text: the best class, its margin, and one column per class.
fn render(texts: &[String], classes: &[String], outcome: &ClassifyOutcome) -> String {
    let class = |class: &String| display::shortened(class, CLASS_WIDTH);
    let mut header = ["text", "best", "margin"].map(str::to_owned).to_vec();
    header.extend(classes.iter().map(class));
    let mut rows = vec![header];
    for (text, classified) in texts.iter().zip(&outcome.texts) {
        let mut row = vec![display::shortened(text, TEXT_WIDTH)];
        match classified {
            Ok(found) => {
                row.extend([
                    classes.get(found.best).map(class).unwrap_or_default(),
                    display::probability(found.margin),
                ]);
                row.extend(found.probabilities.iter().copied().map(display::probability));
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
    use redline_engine::Truncate;

    use super::*;

    #[test]
    fn every_flag_of_the_command_reaches_the_request() {
        let line = "--text t --class a --class b --template {text}: --mean --truncate left --item-errors --timeout 2.5";
        let command = ClassifyArgs::augment_args(clap::Command::new("classify").no_binary_name(true));
        let matches = command.try_get_matches_from(line.split(' ')).unwrap();
        let request = request(&ClassifyArgs::from_arg_matches(&matches).unwrap()).unwrap();
        let classes = ["a", "b"].map(|class| Label::Text(class.to_owned())).to_vec();
        let expected = ClassifyRequest {
            template: Some("{text}:".to_owned()),
            long_labels: LongLabels::Mean,
            truncate: Some(Truncate::Left),
            item_errors: true,
            timeout_s: Some(2.5),
            ..ClassifyRequest::new(vec!["t".to_owned()], classes)
        };
        assert_eq!(format!("{request:#?}"), format!("{expected:#?}"));
    }
}
