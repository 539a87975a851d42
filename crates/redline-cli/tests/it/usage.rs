//! Invalid command lines: exit code 2, a fact, a hint, and nothing on standard output.

use crate::harness::{commands, redline, redline_reading};

/// Arguments, and the texts that the message must contain.
const WRONG: &[(&[&str], &[&str])] = &[
    (&[], &["no command given", "redline demo"]),
    (&["scroe"], &["scroe", "did you mean `score`"]),
    (&["--frobnicate"], &["--frobnicate"]),
    (&["demo", "extra"], &["extra", "redline demo --help"]),
    (&["run"], &["MODEL", "redline run --help"]),
    (&["run", "demo", "--max-new-tokens", "0"], &["--max-new-tokens", "from 1"]),
    (&["list", "extra"], &["extra", "redline list --help"]),
    (&["lst"], &["lst", "did you mean `list`"]),
    (&["show"], &["MODEL", "redline show --help"]),
    (&["show", "demo", "extra"], &["extra", "redline show --help"]),
    (&["demo", "--threads", "0"], &["--threads", "counted from 1"]),
    (&["demo", "--threads", "two"], &["two", "a number of threads"]),
    (&["demo", "--threads", "-1"], &["hint: "]),
    (&["demo", "--isa", "sse9"], &["sse9", "one of auto, scalar, avx2, avx512, amx"]),
    (&["demo", "--format", "f8"], &["f8", "one of ", "bf16"]),
    (&["demo", "--kv-format", "int8"], &["int8", "one of ", "bf16"]),
    (&["demo", "--max-context", "0"], &["from 1"]),
    (&["demo", "--threads"], &["--threads"]),
    (&["demo", "--threads", "1", "--threads", "2"], &["--threads"]),
    (&["demo", "--model", "demo"], &["--model"]),
    (&["score"], &["no model given", "--model demo"]),
    (&["score", "--model", ""], &["no model given"]),
    (&["score", "--model", "demo"], &["no query given", "--query"]),
    (&["score", "--model", "demo", "--query", "q"], &["no item given", "--item"]),
    (&["score", "--model", "demo", "--query-ids", "1"], &["no item given", "--item-ids"]),
    (&["score", "--model", "demo", "--query", "q", "--item", "i"], &["no label given", "--label"]),
    (&["score", "--model", "demo", "--query", "q", "--query-ids", "1"], &["--query", "cannot be used with"]),
    (&["score", "--model", "demo", "--query", "q", "--item-ids", "1"], &["--query", "--item-ids"]),
    (&["score", "--model", "demo", "--query-ids", "1", "--item", "i"], &["--query-ids", "--item"]),
    (
        &["score", "--model", "demo", "--query-ids", "1", "--items-file", "f"],
        &["--items-file", "--query-ids"],
    ),
    (&["score", "--model", "demo", "--item", "i", "--items-file", "f"], &["--items-file", "--item"]),
    (&["score", "--model", "demo", "--jsonl", "f", "--query", "q"], &["--jsonl", "--query"]),
    (&["score", "--model", "demo", "--jsonl", "f", "--item-ids", "1"], &["--jsonl", "--item-ids"]),
    (&["score", "--model", "demo", "--query-ids", "1,x"], &["`x` is not a token id", "1,2,3"]),
    (&["score", "--model", "demo", "--label-id", "yes"], &["yes", "--label-id"]),
    (&["score", "--model", "demo", "--label-id", "1.5"], &["1.5", "--label-id"]),
    (&["score", "--model", "demo", "--lable", "x"], &["--lable", "did you mean `--label`"]),
    (&["score", "--model", "demo", "--query", "--item", "x"], &["--query", "--flag='-text'"]),
    (&["score", "--model", "demo", "--tokenization", "both"], &["both", "hint: "]),
    (&["score", "--model", "demo", "--truncate", "middle"], &["middle", "hint: "]),
    (&["score", "--model", "demo", "--truncate", "lef"], &["lef", "did you mean `left`"]),
    (&["embed"], &["no model given", "--model demo"]),
    (&["embed", "--model", "demo"], &["no text given", "--text", "--file", "--jsonl"]),
    (&["embed", "--model", "demo", "--text", "t", "--pooling", "max"], &["max", "cls", "mean", "last"]),
    (&["embed", "--model", "demo", "--text", "t", "--jsonl", "f"], &["--text", "cannot be used with"]),
    (&["classify"], &["no model given", "--model demo"]),
    (&["classify", "--model", "demo"], &["no text given", "--text", "--file"]),
    (&["classify", "--model", "demo", "--text", "t"], &["no class given", "--class"]),
    (&["classify", "--model", "demo", "--text", "t", "--class", "a"], &["1 class leaves", "at least two"]),
    (&["classify", "--model", "demo", "--text", "t", "--class", "a", "--class", ""], &["class 1 is empty"]),
    (&["classify", "--model", "demo", "--text", "t", "--file", "f"], &["--text", "cannot be used with"]),
    (
        &[
            "classify",
            "--model",
            "demo",
            "--text",
            "t",
            "--class",
            "a",
            "--class",
            "b",
            "--template",
            "{txt}",
        ],
        &["the template has no `{text}`", "`{classes}` once"],
    ),
    (&["classify", "--model", "demo", "--truncate", "middle"], &["middle", "hint: "]),
    (&["rerank"], &["no model given", "--model demo"]),
    (&["rerank", "--model", "demo"], &["no query given", "--query"]),
    (&["rerank", "--model", "demo", "--query", "q"], &["no document given", "--document", "--file"]),
    (&["rerank", "--model", "demo", "--document", "d", "--file", "f"], &["--file", "cannot be used with"]),
    (
        &["rerank", "--model", "demo", "--query", "q", "--document", "d", "--top-n", "0"],
        &["0 documents", "--top-n"],
    ),
    (
        &["rerank", "--model", "demo", "--query", "q", "--document", "d", "--top-n", "few"],
        &["few", "--top-n"],
    ),
    (
        &[
            "rerank",
            "--model",
            "demo",
            "--query",
            "q",
            "--document",
            "d",
            "--template",
            "{query}{query}{document}",
        ],
        &["`{query}` 2 times", "`{query}` and `{document}` once"],
    ),
    (
        &["rerank", "--model", "demo", "--query", "q", "--document", "d", "--yes", " no"],
        &["the same label", "two labels"],
    ),
    (
        &["generate", "--model", "demo", "--jsonl", "-", "--tools", "-"],
        &["`--jsonl -` and `--tools -` both read standard input", "from a file"],
    ),
    (
        &["rerank", "--model", "demo", "--file", "-", "--documents", "-"],
        &["`--file -` and `--documents -` both"],
    ),
    (
        &["score", "--model", "demo", "--items-file", "-", "--tools", "-"],
        &["`--items-file -` and `--tools -`"],
    ),
    (&["diffuse", "--tools", "-", "--documents", "-"], &["`--tools -` and `--documents -`"]),
    (&["chat", "--model", "demo", "--tools", "-"], &["the conversation and `--tools -` both read"]),
    (&["pull", "no id"], &["`no id` is not the id of a model", "ORG/NAME"]),
    (&["chat"], &["no model given", "--model demo"]),
    (&["chat", "--model", "demo", "--temperature", "hot"], &["hot", "--temperature"]),
    (&["generate"], &["no model given", "--model demo"]),
    (&["generate", "--model", "demo"], &["no prompt given", "--prompt"]),
    (
        &["generate", "--model", "demo", "--prompt", "p", "--prompt-ids", "1"],
        &["--prompt", "cannot be used with"],
    ),
    (&["generate", "--model", "demo", "--jsonl", "f", "--prompt", "p"], &["--jsonl", "--prompt"]),
    (
        &["generate", "--model", "demo", "--prompt", "p", "--max-new-tokens", "0"],
        &["--max-new-tokens", "from 1"],
    ),
    (&["generate", "--model", "demo", "--prompt", "p", "--max-new-tokens", "-3"], &["hint: "]),
    (
        &["generate", "--model", "demo", "--prompt", "p", "--temperature", "-1"],
        &["--temperature", "from 0 to 100"],
    ),
    (
        &["generate", "--model", "demo", "--prompt", "p", "--temperature", "NaN"],
        &["--temperature", "from 0 to 100"],
    ),
    (&["generate", "--model", "demo", "--prompt", "p", "--temperature", "hot"], &["hot", "from 0 to 100"]),
    (
        &["generate", "--model", "demo", "--prompt", "p", "--top-p", "0"],
        &["--top-p", "above 0 and at most 1"],
    ),
    (
        &["generate", "--model", "demo", "--prompt", "p", "--top-p", "1.5"],
        &["--top-p", "above 0 and at most 1"],
    ),
    (&["generate", "--model", "demo", "--prompt", "p", "--min-p", "2"], &["--min-p", "from 0 to 1"]),
    (&["generate", "--model", "demo", "--prompt", "p", "--top-k", "-2"], &["hint: "]),
    (&["generate", "--model", "demo", "--prompt", "p", "--seed", "x"], &["--seed", "hint: "]),
    (&["generate", "--model", "demo", "--prompt", "p", "--logprobs", "many"], &["--logprobs", "hint: "]),
    (&["perplexity"], &["no model given", "--model demo"]),
    (&["perplexity", "--model", "demo"], &["no text given", "--text", "--file", "--ids"]),
    (&["perplexity", "--model", "demo", "--text", "t", "--ids", "g"], &["--text", "cannot be used with"]),
    (&["perplexity", "--model", "demo", "--text", "t", "--file", "f"], &["--text", "cannot be used with"]),
    (&["perplexity", "--model", "demo", "--file", "f", "--ids", "g"], &["--file", "cannot be used with"]),
    (&["perplexity", "--model", "demo", "--text", ""], &["0 bytes of text", "at least 2 tokens"]),
    (&["perplexity", "--model", "demo", "--text", "f", "--window", "1"], &["--window", "from 2"]),
    (&["perplexity", "--model", "demo", "--text", "f", "--window", "-5"], &["hint: "]),
    (
        &["perplexity", "--model", "demo", "--text", "f", "--against", ""],
        &["no reference given", "--against"],
    ),
    (&["perplexity", "--model", "demo", "--text", "f", "--against-format", "f32"], &["--against", "hint: "]),
    (
        &["perplexity", "--model", "demo", "--text", "f", "--against", "demo", "--against-format", "f8"],
        &["f8", "one of ", "bf16"],
    ),
    (&["health", "ftp://x"], &["ftp://x", "http://127.0.0.1:8000"]),
    (&["health", "--timeout", "0"], &["--timeout", "above 0"]),
    (&["serve", "--unix-socket", "s", "--port", "1"], &["--unix-socket", "cannot be used with"]),
    (&["serve", "--tls-cert", "c"], &["--tls-key"]),
    (&["tokenize", "t"], &["no model given", "--model demo"]),
    (&["tokenize", "--model", "demo"], &["no text given", "--file", "--jsonl"]),
    (&["tokenize", "--model", "demo", "--tokenizer", "f", "t"], &["--tokenizer", "cannot be used with"]),
    (&["tokenize", "--model", "demo", "--text", "t", "--file", "f"], &["--text", "cannot be used with"]),
    (&["tokenize", "--model", "demo", "t", "--jsonl", "f"], &["--jsonl", "cannot be used with"]),
    (&["tokenize", "--model", "demo", "t", "--threads", "0"], &["--threads", "counted from 1"]),
    (&["parity", "--model", "demo"], &["--reference", "redline parity --help"]),
    (&["parity", "--reference", "d"], &["no model given"]),
    (&["batch"], &["--input", "redline batch --help"]),
    (&["batch", "sing", "--model", "demo", "-i", "x.jsonl", "-o", "y"], &["sing", "one of score, classify"]),
    (
        &["batch", "embed", "--model", "demo", "-i", "x.jsonl", "-o", "y", "--shard", "3/2"],
        &["`3/2` is no shard"],
    ),
    (
        &["batch", "embed", "--model", "demo", "-i", "x.jsonl", "-o", "y", "--set", "a"],
        &["`a` has no key and value"],
    ),
    (
        &["batch", "embed", "--model", "demo", "-i", "Cargo.toml", "-o", "y"],
        &["is of no format", "Parquet (.parquet"],
    ),
    (&["verify"], &["RECEIPT", "redline verify --help"]),
    (&["verify", "r.json"], &["no model given", "--model demo"]),
    (&["verify", "r.json", "--model", "demo", "--json", "--quiet"], &["--json", "cannot be used with"]),
    (
        &["generate", "--model", "demo", "--prompt", "a", "--receipt", "r", "--receipt-layers", "1,x"],
        &["`x` is not a layer"],
    ),
    (
        &["generate", "--model", "demo", "--prompt", "a", "--receipt-layers", "1"],
        &["--receipt", "redline generate --help"],
    ),
    (&["embed", "--model", "demo", "--jsonl", "f", "--receipt", "r"], &["--receipt", "cannot be used with"]),
    (&["convert"], &["SRC", "redline convert --help"]),
    (&["convert", "demo", "/tmp/x", "--format", "w5"], &["w5", "one of ", "w4"]),
    (&["adapter"], &["no command given", "redline adapter --help"]),
    (&["adapter", "inpsect"], &["inpsect", "did you mean `inspect`"]),
    (&["adapter", "convert", "/tmp/x", "/tmp/y"], &["OUT", "redline adapter convert --help"]),
    (&["adapter", "inspect"], &["DIR", "redline adapter inspect --help"]),
    (&["adapter", "inspect", "/tmp/x", "--format", "w8"], &["--model", "redline adapter inspect --help"]),
    (&["adapter", "inspect", "/tmp/x", "--outliers", "0.1"], &["--model"]),
    (&["adapter", "merge", "/tmp/x", "/tmp/y"], &["OUT", "redline adapter merge --help"]),
    (&["adapter", "merge", "/tmp/x", "/tmp/y", "/tmp/z", "--scale", "nan"], &["`nan` is no scale", "0.5"]),
    (&["synth"], &["SHAPE", "redline synth --help"]),
    (&["synth", "gpt5", "/tmp/x"], &["gpt5", "one of ", "gpt2"]),
    (&["synth", "gpt2"], &["no directory given", "`--output DIR`"]),
    (&["synth", "gpt2", "/tmp/x", "-o", "/tmp/y"], &["DIR", "cannot be used with"]),
    (&["convert", "/tmp/x", "--format", "w8"], &["no directory given", "`--output DIR`"]),
    (&["synth", "gpt2", "/tmp/x", "--format", "f8"], &["f8", "one of "]),
    (&["synth", "gpt2", "/tmp/x", "--seed", "-1"], &["hint: "]),
    (
        &["synth", "gpt2", "/tmp/x", "--format", "w4", "--group", "16"],
        &["w4 has no group of 16", "32, 64, 128"],
    ),
    (&["synth", "gpt2", "/tmp/x", "--group", "64"], &["`--group 64` without"]),
    (&["score", "--model", "demo", "--kv-format", "w3"], &["w3", "one of f32, bf16"]),
    (&["precompile", "--tokens", "64"], &["no model given"]),
    (&["precompile", "--model", "demo", "--rows", "0"], &["--rows", "from 1"]),
    (&["bench"], &["no lane given", "--list"]),
    (&["bench", "no-such-lane"], &["no-such-lane", "one of ", "generate"]),
    (&["bench", "generate", "--batch", "0"], &["`--batch` is `0`"]),
    (&["bench", "gemm", "--profile", "huge"], &["no profile", "smoke, standard or full"]),
    (&["bench", "gemm", "--update-baseline"], &["--reason"]),
    (
        &["bench", "gemm", "--output", "x.csv", "--csv-style", "score"],
        &["no layout of lane gemm", "it has: gemm"],
    ),
    (&["bench", "all", "--only", "no-such-lane"], &["no lane `no-such-lane`"]),
    (&["bench", "all", "--baseline", "/nonexistent"], &["no such directory", "--update-baseline"]),
    (&["bench", "generate", "--no-such-flag"], &["--no-such-flag"]),
    (&["bench", "generate", "--model", "demo", "--threads", "1,0"], &["counted from 1"]),
    (&["bench", "generate", "--model", "demo", "--num-runs", "0"], &["--num-runs", "at least 1"]),
    (&["bench", "generate", "--model", "demo", "--kv-cache", "maybe"], &["--kv-cache", "on, off, both"]),
    (
        &["bench", "generate", "--model", "demo", "--json", "--output", "x.csv"],
        &["--json", "cannot be used with"],
    ),
    (&["bench", "gemm", "-o", "x.csv", "--output", "-"], &["`x.csv` and `-`", "at most one directory"]),
    (&["bench", "gemm", "-o", "x", "-o", "y"], &["`x` and `y`", "at most one directory"]),
    (&["bench", "gemm", "-o", "Cargo.toml"], &["`--output Cargo.toml` is a file", "ends in .csv"]),
    (
        &["bench", "gemm", "--benchmark-format", "json", "--output", "-"],
        &["both write to standard output", "--output FILE.csv"],
    ),
    (&["bench", "gemm", "-o", "x", "--csv-style", "gemm"], &["without a file", "--output FILE.csv"]),
    (&["bench", "tokenizer", "--model", "demo", "--min-speedup=-1"], &["`--min-speedup` is `-1`"]),
    (
        &["bench", "tokenizer", "--model", "demo", "--min-speedup", "x"],
        &["`--min-speedup` is `x`", "at least 0"],
    ),
    (&["bench", "tokenizer", "--model", "demo", "--prefix-k", "0"], &["`--prefix-k` is `0`"]),
    (&["diffuse", "--model", "demo-diffusion"], &["no prompt given", "--prompt-ids"]),
    (&["diffuse", "--cfg-scale", "-3"], &["-3", "from 0 to 100"]),
    (&["diffuse", "--threshold", "2"], &["2", "from 0 to 1"]),
    (&["diffuse", "--algorithm", "best"], &["`best` is not known", "maskgit-plus"]),
    (
        &["bench", "diffusion", "--arms", "fastest", "--threads", "1"],
        &["`--arms` is `fastest`", "dual+threshold"],
    ),
    (&["compare", "one"], &["NEW", "redline compare --help"]),
    (&["compare", "/nonexistent/a", "/nonexistent/b"], &["/nonexistent/a"]),
    (&["compare", "a", "b", "--threshold", "none"], &["none", "percent above 0"]),
    (&["report", "/nonexistent/a", "-o", "x.html"], &["/nonexistent/a", "run.json"]),
    (&["export", "/nonexistent/a", "--to", "bmf"], &["/nonexistent/a"]),
    (&["import", "/nonexistent/a", "-o", "x"], &["/nonexistent/a"]),
    (&["report", "/nonexistent/a"], &["--output", "redline report --help"]),
    (&["doctor", "extra"], &["extra", "redline doctor --help"]),
    (&["completions", "cmd"], &["cmd", "one of bash, elvish, fish, powershell, zsh"]),
    (&["man", "a", "b"], &["unexpected argument 'b'", "redline man --help"]),
    (&["help", "scroe"], &["scroe", "did you mean `score`"]),
    (&["help", "bench", "gem"], &["gem", "did you mean `gemm"]),
    (&["score", "--model", "demo", "--verbose"], &["--verbose"]),
    (&["serve", "--model", "demo", "--queue", "0"], &["--queue", "0 is out of range", "from 1 to 256"]),
];

#[test]
fn wrong_use_is_refused_with_a_hint() {
    for (arguments, expect) in WRONG {
        let run = redline(arguments);
        assert_eq!(run.code, 2, "{arguments:?}: {} {}", run.out, run.err);
        run.usage(expect);
    }
}

/// Names that the help does not list, and names that have little in common, are not suggested.
#[test]
fn what_is_suggested_is_near_and_listed() {
    for arguments in [
        &["demo", "--max-tokens", "8"][..],
        &["demo", "--force-pat", "scalar"],
        &["generate", "--max_new_token", "8"],
        &["cs"],
        &["score", "--tokens"],
    ] {
        let run = redline(arguments);
        run.usage(&[]);
        let suggestion =
            run.err.split_once("did you mean `").map(|(_, rest)| rest.split('`').next().unwrap());
        let expect = (arguments[0] == "generate").then_some("--max-new-tokens");
        assert_eq!(suggestion, expect, "{}", run.err);
    }
}

#[test]
fn every_command_refuses_an_unknown_flag_and_has_a_case_of_its_own() {
    for name in commands() {
        redline(&[&name, "--no-such-flag"]).usage(&["--no-such-flag"]);
        let own = WRONG.iter().any(|(arguments, _)| arguments.len() > 1 && arguments[0] == name);
        assert!(own || name == "bench" || name == "doctor", "no case of wrong use for `{name}`");
    }
}

#[test]
fn a_tier_that_is_missing_is_named_with_those_that_were_found() {
    for tier in ["avx2", "avx512", "amx"] {
        let run = redline(&["score", "--isa", tier]);
        if !run.err.contains("no model given") {
            run.usage(&[tier, "found here: scalar"]);
        }
    }
}

#[test]
fn bad_flags_are_found_before_input_is_read() {
    redline_reading(&["score", "--jsonl", "-"], b"{").usage(&["no model given"]);
}
