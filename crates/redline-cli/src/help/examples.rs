//! Examples for the help of every command. A test runs them as they are typed here, those of a command in order, in the root of
//! the repository or a directory that looks like it.

/// The examples of each command, by its name without `redline`.
const EXAMPLES: &[(&str, &str)] = &[
    ("", "redline demo\nredline help score\nredline help --all bench generate"),
    ("demo", "redline demo\nredline demo --threads 1"),
    (
        "run",
        r#"redline run demo "In the beginning" -n 8
redline run demo-chat "Who is king?""#,
    ),
    (
        "score",
        r#"redline score --model demo --query "I pledge allegiance" --item " to" \
    --item " of" --label " the" --label " a" --softmax
redline score --model demo --query "In the" --item "" --label " beginning" \
    --long-labels sum --brief
echo '{"query": "The", "items": [" king"], "labels": [" is"]}' |
    redline score --model demo --jsonl -"#,
    ),
    (
        "classify",
        r#"redline classify --model demo --text "I loved it" --class good --class bad
redline classify --model demo --text "I loved it" --text "Never again" \
    --class positive --class negative --json
printf 'id,review\n1,I loved it\n' |
    redline classify --model demo --file - --column review --class good,bad"#,
    ),
    (
        "rerank",
        r#"redline rerank --model demo --query "Who is king?" \
    --document "Henry is king." --document "It rains."
printf 'Henry is king.\nIt rains.\n' |
    redline rerank --model demo --query "Who is king?" --file - --top-n 1"#,
    ),
    (
        "embed",
        r#"redline embed --model demo --pooling mean --text "Henry is king." \
    --text "It rains."
echo '{"text": "Henry is king."}' |
    redline embed --model demo --pooling last --jsonl -"#,
    ),
    (
        "generate",
        r#"redline generate --model demo --prompt "In the beginning" --max-new-tokens 16
redline generate --model demo --prompt "In the beginning" --temperature 0.8 \
    --seed 7 --max-new-tokens 16 --json
echo '{"prompt": "To be"}' |
    redline generate --model demo --jsonl - --max-new-tokens 8"#,
    ),
    (
        "batch",
        r#"echo '{"id": 1, "review": "I loved it"}' > reviews.jsonl &&
    redline batch classify --model demo --input reviews.jsonl \
    --output classes --column text=review --set 'classes=["good","bad"]'
redline batch generate --model demo --input reviews.jsonl --output texts \
    --column prompt=review --set max_new_tokens=8 --shard 1/2"#,
    ),
    (
        "verify",
        r#"redline score --model demo --query "The king is " --item "old." \
    --label " yes" --label " no" --long-labels sum --receipt receipt.json &&
    redline verify receipt.json --model demo
echo '{"prompt": "To be", "receipt": true}' |
    redline generate --model demo --jsonl - --max-new-tokens 8 |
    redline verify - --model demo --isa scalar --threads 1"#,
    ),
    (
        "chat",
        r#"printf 'Who is king?\n/exit\n' | redline chat --model demo-chat
printf 'Hello!\nWhat is a bug?\n' | redline chat --model demo-chat \
    --system "Be brief." --quiet"#,
    ),
    (
        "pull",
        "redline pull Qwen/Qwen3-0.6B
redline pull Qwen/Qwen3-0.6B@main",
    ),
    ("list", "redline list\nredline ls"),
    ("show", "redline show demo\nredline show tests/golden/llama-a"),
    (
        "diffuse",
        r#"redline diffuse --model demo-diffusion --prompt "In the beginning" \
    --max-new-tokens 16
redline diffuse --model demo-diffusion --prompt "In the beginning" \
    --max-new-tokens 16 --threshold 0.9 --show-steps"#,
    ),
    (
        "serve",
        "redline serve --model demo
redline serve --model demo --port 9000 --api-key-file keys.txt --queue 64",
    ),
    ("health", "redline health\nredline health http://127.0.0.1:9000 --timeout 10"),
    (
        "perplexity",
        r#"redline perplexity --model demo --text "In the beginning was the word."
redline perplexity --model demo --file LICENSE-MIT --against demo \
    --against-format f32"#,
    ),
    (
        "parity",
        "redline parity --model tests/golden/llama-b --reference tests/parity/llama-b
redline parity --model tests/golden/llama-b --reference tests/parity/llama-b \\
    --all",
    ),
    (
        "tokenize",
        r#"redline tokenize --model demo "some text"
redline tokenize --model demo --file LICENSE-MIT --json
echo '{"text": "some text"}' |
    redline tokenize --model demo --jsonl - --offsets"#,
    ),
    (
        "convert",
        r#"redline convert models/demo demo-w8 --format w8
redline convert models/demo -o demo-w4 --format w4 --group 32
redline generate --model demo-w8 --prompt "To be" --max-new-tokens 8"#,
    ),
    (
        "adapter",
        "redline adapter inspect tests/golden/adapters/llama-plain
redline adapter merge tests/golden/llama-a tests/golden/adapters/llama-plain \\
    merged",
    ),
    (
        "adapter convert",
        "redline adapter convert tests/golden/llama-a \\
    tests/golden/adapters/llama-plain plain-w8 --format w8
redline generate --model tests/golden/llama-a --format w8 --adapter plain-w8 \\
    --prompt-ids 1,2,3 --max-new-tokens 8",
    ),
    (
        "adapter inspect",
        "redline adapter inspect tests/golden/adapters/llama-plain
redline adapter inspect tests/golden/adapters/llama-plain \\
    --model tests/golden/llama-a --format w8 --json",
    ),
    (
        "adapter merge",
        "redline adapter merge tests/golden/llama-a tests/golden/adapters/llama-plain \\
    merged
redline adapter merge tests/golden/llama-a tests/golden/adapters/llama-plain \\
    merged-half --scale 0.5
redline generate --model merged --prompt-ids 1,2,3 --max-new-tokens 8",
    ),
    (
        "synth",
        "redline synth small random --format w4
redline bench generate --model random --profile smoke",
    ),
    (
        "precompile",
        "redline precompile --model demo --tokens 64,128 --rows 1
redline precompile --model demo --tokens 64 --rows 1 --plan-cache plans --json",
    ),
    (
        "bench",
        "redline bench --list
redline bench forward --profile smoke
redline bench generate --profile smoke -o run -o run.csv",
    ),
    (
        "bench all",
        "redline bench all --profile smoke --only memory,forward -o runs
redline report runs -o runs.html",
    ),
    (
        "bench gemm",
        "redline bench gemm --profile smoke --rank 8,16 --adapters 1,2 --threads 1
redline bench gemm --profile smoke --rank 8 --threads 1 --out gemm_lora.csv \\
    --summary gemm_summary.json",
    ),
    (
        "bench sched-zipf",
        "redline bench sched-zipf --profile smoke --threads 1 --load_rps 30
redline bench sched-zipf --profile smoke --threads 1 --out sched_zipf.csv",
    ),
    (
        "bench load",
        "redline bench load --profile smoke --threads 1 --kind completion,score
redline bench load --profile smoke --threads 1 --rate 20 --slo e2e=1000 \\
    -o load-run",
    ),
    (
        "compare",
        "redline bench forward --profile smoke -o before
redline bench forward --profile smoke -o after
redline compare before after
redline compare before after --portable --json",
    ),
    (
        "report",
        "redline bench memory --profile smoke -o memory
redline report memory -o memory.html",
    ),
    (
        "export",
        "redline bench forward --profile smoke -o run
redline export run --to bmf
redline export run --to gbench-csv -o run.csv",
    ),
    (
        "import",
        "redline bench forward --profile smoke -o run
redline export run --to gbench-csv -o run.csv
redline import run.csv -o imported",
    ),
    ("doctor", "redline doctor\nredline doctor --noise"),
    ("completions", "redline completions bash\nredline completions zsh > _redline"),
    ("man", "redline man\nredline man pages"),
    ("help", "redline help score\nredline help --all bench generate"),
];

/// The section about examples in the help of a command; empty if there are none. A lane has the same examples as every other.
pub(super) fn section(path: &str) -> String {
    let own = EXAMPLES.iter().find(|(command, _)| *command == path).map(|(_, lines)| (*lines).to_owned());
    let of_lane = || {
        let lane = path.strip_prefix("bench ")?;
        Some(format!(
            "redline bench {lane} --profile smoke --threads 1 -o {lane}-run\nredline report {lane}-run -o {lane}.html"
        ))
    };
    let lines = own.or_else(of_lane);
    lines.map_or_else(String::new, |lines| format!("Examples:\n  {}", lines.replace('\n', "\n  ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_fit_a_terminal() {
        for (command, lines) in EXAMPLES {
            assert!(
                lines.lines().all(|line| line.len() <= 78),
                "{command}: a line is longer than a terminal"
            );
        }
    }
}
