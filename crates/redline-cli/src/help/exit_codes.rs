//! Exit codes, for the help of every command.

/// The codes of all commands.
const TABLE: &str = "\
Exit codes:
  0    done; of a comparison: the same, faster, or nothing to compare with
  1    failed, also if what is asked does not suit the model (a prompt beyond
       its context); of a comparison: slower, missing, or a gate missed
  2    wrong usage, whatever the model: an unknown flag, a bad value of a flag
       or a variable, flags that do not fit together, or results that cannot be
       read or used
  3    inconclusive (compare, bench)
  4    not comparable (compare, bench)
  5    too noisy, or an invalid row (compare, bench)
  6    wrong outputs (compare, bench, parity)
  130  interrupted by Ctrl-C";

/// Commands that do one thing.
const PLAIN: &str = "Exit codes: 0 done; 1 failed; 2 wrong usage.";
/// Commands that answer requests.
const REQUESTS: &str = "Exit codes: 0 done; 1 failed, also if only one line of --jsonl did, or one that --resume finds answered with \
    an error; 2 wrong usage; 130 interrupted by Ctrl-C.";
/// Commands that end early at Ctrl-C.
const LONG: &str = "Exit codes: 0 done; 1 failed; 2 wrong usage; 130 interrupted by Ctrl-C.";
/// Commands that check one thing against another.
const FITS: &str = "Exit codes: 0 done; 1 failed, also if the adapter does not fit the model; 2 wrong usage.";
/// Work on tables.
const TABLES: &str =
    "Exit codes: 0 done; 1 failed, also if only one row did; 2 wrong usage; 130 interrupted by Ctrl-C.";
/// The server.
const SERVER: &str = "Exit codes: 0 ended by SIGTERM or Ctrl-C; 1 failed; 2 wrong usage; 130 ended by a second signal before all \
    requests were answered.";
/// The question whether a server is ready.
const READY: &str = "Exit codes: 0 ready; 1 not ready, or no answer; 2 wrong usage.";
/// Commands that read results, which must be of the right form.
const RESULTS: &str = "Exit codes: 0 done; 1 failed; 2 wrong usage, or a file that cannot be read or used.";

/// The section about exit codes in the help of a command; empty if the command's own text has one.
pub(super) fn section(path: &str) -> String {
    let text = match path.split(' ').next().unwrap_or_default() {
        "" => TABLE,
        "score" | "classify" | "rerank" | "generate" | "diffuse" | "tokenize" => REQUESTS,
        "batch" => TABLES,
        "run" | "chat" | "perplexity" | "convert" | "synth" => LONG,
        "adapter" if path == "adapter merge" => LONG,
        "adapter" => FITS,
        "export" | "import" => RESULTS,
        "serve" => SERVER,
        "health" => READY,
        "bench" if path == "bench" => "Exit codes: those of the lane; `redline help bench LANE` lists them.",
        "bench" | "compare" | "report" | "parity" | "verify" => "",
        _ => PLAIN,
    };
    text.to_owned()
}
