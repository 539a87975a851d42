//! Drafts and constraints of a caller: drafts change no token, a constraint admits only its own.

use std::sync::Arc;

use redline_engine::{
    Allowed, Cancel, Constraint, Drafter, Engine, EngineError, GenerateOutcome, GenerateRequest, Guides,
    ReceiptOptions, Sampling,
};

use crate::models::{generation, ids, options, tiny};

fn engine() -> Engine {
    let folder = tempfile::tempdir().unwrap();
    Engine::load(options(&tiny(folder.path(), |_, _| ()))).unwrap()
}

fn request(new: usize) -> GenerateRequest {
    let prompt: Vec<i64> = (0..70).map(|i| i * i % 50).collect();
    GenerateRequest { logprobs: Some(2), ..generation(ids(&prompt), new) }
}

fn run(
    engine: &Engine,
    request: GenerateRequest,
    guides: Guides<'_>,
) -> Result<GenerateOutcome, EngineError> {
    engine.submit_guided(request, guides, &Cancel::new())?.wait()
}

/// Drafts a text, with a wrong token wherever `wrong` divides the position.
struct Known {
    all: Arc<Vec<u32>>,
    wrong: usize,
    seen: usize,
}

impl Drafter for Known {
    fn push(&mut self, tokens: &[u32]) {
        self.seen += tokens.len();
    }

    fn draft(&mut self, most: usize) -> Vec<u32> {
        let next = (self.seen..self.all.len()).take(most);
        next.map(|at| if at % self.wrong == 0 { 3 } else { self.all[at] }).collect()
    }
}

/// Number of drafts that were run, and of those that were right, once the last pass has ended.
fn drafts(engine: &Engine) -> (u64, u64) {
    engine.in_use().unwrap();
    let gauges = engine.gauges();
    (gauges.drafted, gauges.accepted)
}

#[test]
fn drafts_change_no_token_and_no_log_probability() {
    let engine = engine();
    let random = Sampling { temperature: 1.0, seed: 5, ..Sampling::default() };
    for sampling in [Sampling::default(), random] {
        let request = GenerateRequest { sampling, ..request(40) };
        let plain = run(&engine, request.clone(), Guides::default()).unwrap();
        let all = Arc::new([&plain.prompt_token_ids[..], &plain.token_ids].concat());
        for wrong in [usize::MAX, 7, 1] {
            let before = drafts(&engine);
            let drafter = |_| -> Box<dyn Drafter> { Box::new(Known { all: all.clone(), wrong, seen: 0 }) };
            let guides = Guides { drafter: Some(&drafter), ..Guides::default() };
            let drafted = run(&engine, request.clone(), guides).unwrap();
            assert_eq!((&drafted.token_ids, &drafted.logprobs), (&plain.token_ids, &plain.logprobs));
            let after = drafts(&engine);
            let (ran, right) = (after.0 - before.0, after.1 - before.1);
            // The first token comes with the prompt, and no draft follows the last one.
            match wrong {
                usize::MAX => assert_eq!((ran, right), (38, 38)),
                1 => assert!(ran > 30 && right < 10, "{ran} drafts, {right} right"),
                _ => assert!(ran > right && right > 20, "{ran} drafts, {right} right"),
            }
        }
    }
}

/// Allows multiples of three, and then one token.
struct Thirds {
    words: Vec<u32>,
    chosen: usize,
}

impl Constraint for Thirds {
    fn allowed(&mut self) -> Allowed<'_> {
        if self.chosen == 10 { Allowed::Only(77) } else { Allowed::These(&self.words) }
    }

    fn push(&mut self, _: u32) {
        self.chosen += 1;
    }
}

#[test]
fn every_continuation_has_its_own_constraint_with_which_there_is_no_receipt() {
    let engine = engine();
    let sampling = Sampling { temperature: 1.5, seed: 9, ..Sampling::default() };
    let request = GenerateRequest { n: 3, sampling, ..request(12) };
    let constraint = |_| -> Box<dyn Constraint> {
        let word = |first: u32| (0..32).filter(|bit| (first + bit) % 3 == 0).map(|bit| 1 << bit).sum();
        Box::new(Thirds { words: (0..4).map(|word_index| word(32 * word_index)).collect(), chosen: 0 })
    };
    let guides = Guides { constraint: Some(&constraint), ..Guides::default() };
    let mut outcome = run(&engine, request.clone(), guides).unwrap();
    let all = outcome.take_continuations();
    assert_eq!(all.len(), 3);
    for one in &all {
        assert_eq!((one.token_ids.len(), one.token_ids[10]), (12, 77));
        let others = one.token_ids.iter().enumerate().filter(|(at, _)| *at != 10);
        assert!(others.map(|(_, id)| *id).all(|id| id % 3 == 0 && id < 128), "{:?}", one.token_ids);
    }
    assert!(all[0].token_ids != all[1].token_ids);
    let receipt = Some(ReceiptOptions::default());
    let error = run(&engine, GenerateRequest { receipt, ..request }, guides).unwrap_err();
    assert!(
        error.to_string().starts_with("a receipt was asked for with constraints on the tokens"),
        "{error}"
    );
}
