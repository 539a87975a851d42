//! `--chat`: prompts in the model's chat template.

use std::fs;
use std::path::Path;

use redline_wire::Diffusion;

use crate::checkpoint;
use crate::harness::{Run, redline, redline_reading};

const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}{% if add_generation_prompt %}king:{% endif %}";

fn model() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    checkpoint::copy_to(folder.path());
    fs::write(folder.path().join("chat_template.jinja"), TEMPLATE).unwrap();
    let path = folder.path().to_str().unwrap().to_owned();
    (folder, path)
}

#[test]
fn a_prompt_is_put_into_the_template() {
    let (_folder, model) = model();
    let generate = |prompt: &str, more: &[&str]| -> Run {
        let asked = ["generate", "--model", &model, "--prompt", prompt, "--max-new-tokens", "6", "--quiet"];
        redline(&[&asked[..], more].concat()).ok()
    };
    let plain = generate("user: Who goes there?\nking:", &[]);
    assert_eq!(generate(" Who goes there?  ", &["--chat"]).out, plain.out);
    let told = generate("Who goes there?", &["--chat", "--system", "Speak."]);
    assert_eq!(told.out, generate("system: Speak.\nuser: Who goes there?\nking:", &[]).out);
    // A template writes the special tokens itself, so the tokenizer adds none.
    let text = "user: Who goes there?\nking:";
    let ids = redline(&["tokenize", "--model", &model, "--no-special", text]).ok().out;
    let counted = generate("Who goes there?", &["--chat", "--json"]).completion().usage;
    assert_eq!(counted.prompt_tokens, ids.split_whitespace().count());
    let lines = "{\"prompt\":\"Who goes there?\"}\n{\"prompt\":[5]}\n";
    let asked = ["generate", "--model", &model, "--chat", "--max-new-tokens", "6", "--jsonl", "-"];
    let run = redline_reading(&asked, lines.as_bytes());
    let first: serde_json::Value = serde_json::from_str(run.out.lines().next().unwrap()).unwrap();
    assert_eq!(first["choices"][0]["text"].as_str().unwrap(), plain.out.trim_end_matches('\n'));
    assert!(run.code == 1 && run.out.contains("a prompt of token ids"), "{}", run.out);
}

#[test]
fn what_cannot_be_put_into_a_template_is_refused() {
    let (folder, model) = model();
    redline(&["generate", "--model", "demo", "--chat", "--prompt", "p"])
        .usage(&["`demo` has no chat template"]);
    redline(&["diffuse", "--model", "demo-diffusion", "--chat", "--prompt", "p"])
        .usage(&["no chat template"]);
    redline(&["generate", "--model", &model, "--chat", "--prompt-ids", "1,2"]).usage(&["takes text"]);
    redline(&["generate", "--model", &model, "--system", "s", "--prompt", "p"]).usage(&["--chat"]);
    fs::write(folder.path().join("chat_template.jinja"), "{{ raise_exception('no questions') }}").unwrap();
    redline(&["generate", "--model", &model, "--chat", "--prompt", "p"]).failed(&[
        "no questions",
        "chat_template.jinja",
        "leave out `--chat`",
    ]);
}

#[test]
fn a_model_that_fills_masks_may_have_a_template() {
    let folder = tempfile::tempdir().unwrap();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-diffusion");
    for name in ["config.json", "generation_config.json", "tokenizer.json", "model.safetensors"] {
        fs::copy(demo.join(name), folder.path().join(name)).unwrap();
    }
    fs::write(folder.path().join("chat_template.jinja"), TEMPLATE).unwrap();
    let model = folder.path().to_str().unwrap();
    let whole = "user: Who goes there?\nking:";
    let ids = redline(&["tokenize", "--model", model, "--no-special", whole]).ok().out;
    let expected = ids.split_whitespace().count();
    let prompt_tokens = |run: Run| {
        let answer: Diffusion = serde_json::from_str(&run.ok().out).unwrap();
        answer.usage.prompt_tokens
    };
    let ask = ["diffuse", "--model", model, "--chat", "--max-new-tokens", "2"];
    let one = redline(&[&ask[..], &["--json", "--prompt", "Who goes there?"]].concat());
    assert_eq!(prompt_tokens(one), expected);
    let line = b"{\"prompt\":\"Who goes there?\"}\n";
    assert_eq!(prompt_tokens(redline_reading(&[&ask[..], &["--jsonl", "-"]].concat(), line)), expected);
}
