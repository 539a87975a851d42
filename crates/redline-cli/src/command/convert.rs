//! `redline convert`: packs a model into an INFQ directory.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use redline_engine::{EngineError, Source, tokenizer_files};
use redline_models::{Companion, ConvertOptions, ModelFiles, convert, convert_gguf, convert_stored};
use redline_weights::{Gguf, Infq};

use super::Context;
use super::directory::DirectoryArgs;
use crate::env::{self, or_else};
use crate::message::Failure;
use crate::model::{self, SignedFlag, WeightFlags};
use crate::progress::Bar;
use crate::value::{self, Isa};
use crate::writing;

/// The help of `--format`, which is required here.
const FORMAT: &str = "Format of weights: f32, bf16, w8 or w4; there is no default [env: REDLINE_FORMAT]";

/// Flags of `convert`.
#[derive(Debug, Args)]
#[command(mut_arg("format", |flag| flag.help(FORMAT)))]
pub(super) struct ConvertArgs {
    /// The model: a directory with safetensors or `pytorch_model.bin`, a GGUF file, or a Hugging Face id in the local cache
    #[arg(value_name = "SRC", required_unless_present = "in")]
    source: Option<String>,
    /// The model: another way to give SRC
    #[arg(long = "in", id = "in", value_name = "SRC", conflicts_with = "source")]
    input: Option<String>,
    #[command(flatten)]
    signed: SignedFlag,
    #[command(flatten)]
    destination: DirectoryArgs,
    #[command(flatten)]
    weights: WeightFlags,
    /// Number of threads; default: one per physical core that this process may use [env: REDLINE_THREADS]
    #[arg(long, value_name = "N", value_parser = value::threads)]
    threads: Option<usize>,
    /// Instruction set: auto, scalar, avx2, avx512 or amx; it does not change the output [env: REDLINE_ISA]
    #[arg(long, value_name = "ISA", value_parser = value::isa)]
    isa: Option<Isa>,
}

/// What is converted, and to what.
enum Conversion {
    /// Without options, every matrix keeps its format.
    Gguf {
        gguf: Gguf,
        companions: Vec<Companion>,
        options: Option<ConvertOptions>,
    },
    Directory(ConvertOptions),
    /// Every matrix keeps its format.
    Stored,
}

/// Converts the model and prints the directory.
pub(super) fn run(args: &ConvertArgs, context: &Context) -> Result<ExitCode, Failure> {
    let format = args.weights.resolve(context.environment)?;
    let destination = args.destination.path()?;
    let Some(source) = args.source.as_ref().or(args.input.as_ref()) else {
        return Err(Failure::usage("no model given", "`redline convert SRC DIR --format w8`"));
    };
    let named = args.signed.of(source, context.environment)?;
    let source = match named.source(context.environment)? {
        Source::Path(dir) => dir,
        Source::Embedded(embedded) => {
            let fact = format!("`{}` is inside the program", embedded.name);
            return Err(Failure::usage(fact, "load it with `--model demo --format w8`"));
        }
    };
    let threads = model::threads(args.threads, context.environment)?;
    let options = format.map(|format| ConvertOptions { format, outliers: args.weights.outliers });
    let isa = or_else(args.isa, || context.environment.value(env::ISA, value::isa))?;
    let gguf = if Gguf::is(&source) { Some(Gguf::open(&source).map_err(EngineError::from)?) } else { None };
    let from = match (gguf, options) {
        (Some(gguf), options) => Conversion::Gguf { companions: tokenizer_files(&gguf)?, gguf, options },
        (None, Some(options)) => Conversion::Directory(options),
        (None, None) if stores_blocks(&source)? => Conversion::Stored,
        (None, None) => {
            return Err(Failure::usage(
                "no format given",
                "`--format w8` halves a bf16 model, `--format w4` quarters it; only a GGUF file or a checkpoint with quantised weights is converted without",
            ));
        }
    };
    let bar = Bar::new(format.map_or("converting".to_owned(), |format| format!("converting to {format}")));
    writing::directory(&bar, destination, |watch| {
        model::with_team(threads, isa.and_then(|isa| isa.0), |exec| match &from {
            Conversion::Gguf { gguf, companions, options } => {
                convert_gguf(exec, gguf, companions, destination, *options, watch)
            }
            Conversion::Stored => convert_stored(exec, &source, destination, watch),
            Conversion::Directory(options) => convert(exec, &source, destination, *options, watch),
        })
    })
}

/// Whether a directory holds matrices as integers with scales; a converted one is refused later.
fn stores_blocks(source: &Path) -> Result<bool, Failure> {
    if Infq::is(source) {
        return Ok(false);
    }
    let files = ModelFiles::open(source).map_err(EngineError::from)?;
    Ok(files.stores_blocks().map_err(EngineError::from)?)
}
