//! The commands, one file each, with their flags.

mod adapter;
mod batch;
mod bench;
mod chat;
mod classify;
mod compare;
mod completions;
mod convert;
mod cost;
mod demo;
mod diffuse;
mod directory;
mod doctor;
mod embed;
mod export;
mod finish;
mod generate;
mod grammar;
mod health;
mod help;
mod import;
mod judge;
mod list;
mod man;
mod parity;
mod perplexity;
mod precompile;
mod prompt;
mod pull;
mod receipt;
mod report;
mod rerank;
mod run;
mod score;
mod serve;
mod show;
mod synth;
mod template;
mod tokenize;
mod verify;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use redline_system::Clock;

use crate::env::{self, Environment};
use crate::help::Listed;
use crate::message::Failure;
use crate::{help as texts, usage};

/// LLM inference engine: scores, generates, fills masks, embeds, and measures.
#[derive(Debug, Parser)]
#[command(name = "redline", version, after_help = env::help(), disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// All commands and their flags.
#[cfg(test)]
pub(crate) fn tree() -> clap::Command {
    Cli::command()
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Score, generate and fill masks with the embedded models, in a few seconds
    Demo(demo::DemoArgs),
    /// Answer a prompt, or converse
    Run(Box<run::RunArgs>),
    /// Compute the probability of each label as the next token after query and item
    Score(Box<score::ScoreArgs>),
    /// Compute the probability of each class for each text
    Classify(Box<classify::ClassifyArgs>),
    /// Order documents by their relevance to a query
    Rerank(Box<rerank::RerankArgs>),
    /// Make a vector of each text
    Embed(Box<embed::EmbedArgs>),
    /// Continue a prompt
    Generate(Box<generate::GenerateArgs>),
    /// Answer the rows of tables, with any number of workers
    Batch(Box<batch::BatchArgs>),
    /// Run the requests of receipts again, and tell whether this machine computes the same
    Verify(Box<verify::VerifyArgs>),
    /// Converse with a model that has a chat template
    Chat(Box<chat::ChatArgs>),
    /// Fill masks after a prompt, or in it, with a diffusion model
    Diffuse(Box<diffuse::DiffuseArgs>),
    /// Answer requests over HTTP, in the forms of OpenAI, SGLang, vLLM, Cohere and others
    Serve(Box<serve::ServeArgs>),
    /// Ask a server whether it takes requests
    Health(health::HealthArgs),
    /// Measure the perplexity of a text, and KL divergence and top-1 agreement against another model or format
    Perplexity(Box<perplexity::PerplexityArgs>),
    /// Compare every activation with a reference dump, and report the first that diverges
    Parity(Box<parity::ParityArgs>),
    /// Encode text as token ids
    Tokenize(tokenize::TokenizeArgs),
    /// Download a model from the Hugging Face hub, so that `--model` finds it
    Pull(pull::PullArgs),
    /// List the models that `--model` finds by name
    #[command(visible_alias = "ls")]
    List(list::ListArgs),
    /// Describe a model without loading it
    Show(show::ShowArgs),
    /// Pack a model once, so that it loads quickly and in a smaller format
    Convert(convert::ConvertArgs),
    /// Inspect LoRA adapters, and merge them into models
    Adapter(adapter::AdapterArgs),
    /// Write a model with the shape of a real one and random weights
    Synth(synth::SynthArgs),
    /// Make a plan for every size of pass, and print the plans
    Precompile(Box<precompile::PrecompileArgs>),
    /// Run a benchmark lane
    Bench(Box<bench::BenchArgs>),
    /// Compare a run with an earlier one, with a verdict for every metric
    Compare(compare::CompareArgs),
    /// Write one HTML page about runs: roofline, distributions, comparison
    Report(report::ReportArgs),
    /// Write a run in the format of another tool
    Export(export::ExportArgs),
    /// Read results of another tool, such as Google Benchmark, as a run
    Import(import::ImportArgs),
    /// Describe this machine, and which of its features can be used
    Doctor(doctor::DoctorArgs),
    /// Print the script with which a shell completes commands and flags
    Completions(completions::CompletionsArgs),
    /// Print the manual page, or write the pages of all commands
    Man(man::ManArgs),
    /// Print the help of a command
    Help(help::HelpArgs),
}

/// Process-wide context that every command receives besides its arguments.
#[derive(Clone, Debug)]
struct Context {
    environment: Environment,
    clock: Clock,
}

/// Names of flags as other programs have them, the same in every command: the long name, the short one, and another long one.
const NAMES: &[(&str, char, Option<&str>)] = &[
    ("model", 'm', None),
    ("prompt", 'p', None),
    ("max-new-tokens", 'n', Some("max-tokens")),
    ("max-context", 'c', None),
    ("threads", 't', None),
];

/// The command definitions with their help texts. Each flag also accepts underscores for dashes, as other programs use.
fn definition(listed: Listed) -> clap::Command {
    fn underscored(command: clap::Command) -> clap::Command {
        let command = command.mut_args(|flag| {
            let names = NAMES.iter().find(|(long, ..)| flag.get_long() == Some(long));
            let flag = match names {
                Some(&(_, short, other)) => flag.short(short).aliases(other),
                None => flag,
            };
            let names: Vec<String> = flag
                .get_long()
                .into_iter()
                .chain(flag.get_all_aliases().unwrap_or_default())
                .filter(|name| name.contains('-'))
                .map(|name| name.replace('-', "_"))
                .collect();
            flag.aliases(names)
        });
        command.mut_subcommands(underscored)
    }
    underscored(texts::complete(Cli::command(), listed))
}

/// The command definitions for manual pages and completions: with all flags, and without `redline bench help`.
fn documented() -> clap::Command {
    definition(Listed::All).mut_subcommand("bench", |bench| bench.disable_help_subcommand(true))
}

/// Runs the command that the arguments name.
pub(crate) fn run(arguments: &[OsString]) -> Result<ExitCode, Failure> {
    let mut definition = definition(Listed::for_arguments(arguments));
    let parsed =
        definition.try_get_matches_from_mut(arguments).and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            return usage::refusal(&error, arguments, &definition).map_or(Ok(ExitCode::SUCCESS), Err);
        }
    };
    let context = Context { environment: Environment::of_process(), clock: Clock::start() };
    match cli.command {
        Command::Demo(args) => demo::run(&args, &context),
        Command::Run(args) => run::run(&args, &context),
        Command::Score(args) => score::run(&args, &context),
        Command::Classify(args) => classify::run(&args, &context),
        Command::Rerank(args) => rerank::run(&args, &context),
        Command::Embed(args) => embed::run(&args, &context),
        Command::Generate(args) => generate::run(&args, &context),
        Command::Batch(args) => batch::run(&args, &context),
        Command::Verify(args) => verify::run(&args, &context),
        Command::Chat(args) => chat::run(&args, &context),
        Command::Diffuse(args) => diffuse::run(&args, &context),
        Command::Serve(args) => serve::run(&args, &context),
        Command::Health(args) => health::run(&args),
        Command::Perplexity(args) => perplexity::run(&args, &context),
        Command::Parity(args) => parity::run(&args, &context),
        Command::Tokenize(args) => tokenize::run(&args, &context),
        Command::Pull(args) => pull::run(&args, &context),
        Command::List(args) => list::run(&args, &context),
        Command::Show(args) => show::run(&args, &context),
        Command::Convert(args) => convert::run(&args, &context),
        Command::Adapter(args) => adapter::run(&args, &context),
        Command::Synth(args) => synth::run(&args, &context),
        Command::Precompile(args) => precompile::run(&args, &context),
        Command::Bench(args) => bench::run(&args, &context),
        Command::Compare(args) => compare::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Doctor(args) => doctor::run(&args, &context),
        Command::Completions(args) => completions::run(&args, documented()),
        Command::Man(args) => man::run(&args, documented()),
        Command::Help(args) => run(&args.arguments()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        definition(Listed::Own).debug_assert();
        definition(Listed::All).debug_assert();
        documented().debug_assert();
    }

    #[test]
    fn every_command_and_flag_has_help() {
        for command in Cli::command().get_subcommands() {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
            }
        }
    }
}
