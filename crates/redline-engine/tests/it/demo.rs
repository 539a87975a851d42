//! The demo model matches its card: greedy ids of the reference implementation, and the cloze questions.

use redline_engine::{Cancel, Engine, Label, Options};
use redline_kernels::Format;
use serde_json::Value;

use crate::models::{demo, demo_dir, generation, ids, options, request, text};

pub(crate) fn read(name: &str) -> String {
    std::fs::read_to_string(demo_dir().join(name)).unwrap()
}

#[test]
fn greedy_ids_are_those_of_the_reference() {
    let expected: Value = serde_json::from_str(&read("expected.json")).unwrap();
    // The reference ran the stored bf16 weights in f32 arithmetic.
    let engine = Engine::load(Options { format: Some(Format::F32), ..options(&demo_dir()) }).unwrap();
    let list = |v: &Value| v.as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect::<Vec<_>>();
    let prompts = expected["prompts"].as_array().unwrap();
    assert_eq!(prompts.len(), 3);
    for prompt in prompts {
        let want = list(&prompt["greedy_ids"]);
        for input in [text(prompt["prompt"].as_str().unwrap()), ids(&list(&prompt["prompt_ids"]))] {
            let got = engine.generate(generation(input, want.len()), &Cancel::new(), &mut |_| ()).unwrap();
            assert_eq!(got.prompt_token_ids.len(), list(&prompt["prompt_ids"]).len());
            assert_eq!(got.token_ids.iter().map(|&id| i64::from(id)).collect::<Vec<_>>(), want);
        }
    }
}

#[test]
fn held_out_cloze_questions_are_answered_as_the_card_says() {
    let expected: Value = serde_json::from_str(&read("expected.json")).unwrap();
    let engine = demo();
    let (mut right, mut asked) = (0u32, 0u32);
    for line in read("cloze.jsonl").lines() {
        let question: Value = serde_json::from_str(line).unwrap();
        let choices = question["choices"].as_array().unwrap();
        let labels = choices.iter().map(|c| Label::Text(c.as_str().unwrap().into())).collect();
        let context = text(question["context"].as_str().unwrap());
        let scores =
            engine.score(request(context, vec![text("")], labels)).unwrap().items.remove(0).unwrap().scores;
        let best = (0..4).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap();
        right += u32::from(best as u64 == question["answer"].as_u64().unwrap());
        asked += 1;
    }
    assert_eq!(asked, 200);
    let accuracy = f64::from(right) / 200.0;
    let card = expected["cloze_accuracy"].as_f64().unwrap();
    assert!(accuracy >= 0.60 && (accuracy - card).abs() <= 0.02, "{accuracy}, the card says {card}");
}
