//! Vectors of tokens and late interaction: those of the reference; the same bits however passes are cut; what is refused.

use std::path::{Path, PathBuf};

use redline_engine::{
    Buckets, Cancel, EmbedRequest, EncodeOutcome, Engine, Label, Options, PlanOptions, Pooling, Prompt,
    ReceiptOptions, RerankRequest, Tier, Truncate, VectorForm, max_sim,
};
use serde_json::Value;

use crate::encoding::reference_of;
use crate::models::{demo, options, refusal, text};

fn golden_dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/vectors").join(name)
}

fn load(dir: &Path) -> Engine {
    Engine::load(options(dir)).unwrap()
}

/// Texts of a task with the reference's vectors.
fn reference(name: &str, task: &str) -> Vec<(String, Vec<Vec<f32>>)> {
    let json: Value =
        serde_json::from_slice(&std::fs::read(golden_dir(name).join("texts.json")).unwrap()).unwrap();
    let row = |row: &Value| row.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect();
    let of = |one: &Value| {
        let vectors = one["vectors"].as_array().unwrap().iter().map(row).collect();
        (one["text"].as_str().unwrap().to_owned(), vectors)
    };
    json[task].as_array().unwrap().iter().map(of).collect()
}

/// The reference's similarity of each query to each document.
fn similarities(name: &str) -> Vec<Vec<f64>> {
    let json: Value =
        serde_json::from_slice(&std::fs::read(golden_dir(name).join("texts.json")).unwrap()).unwrap();
    serde_json::from_value(json["similarity"].clone()).unwrap()
}

fn of(texts: Vec<Prompt>, task: &str) -> EmbedRequest {
    EmbedRequest {
        form: VectorForm::MultiVector,
        prompt_name: Some(task.to_owned()),
        truncate: Some(Truncate::Right),
        ..EmbedRequest::new(texts)
    }
}

fn bits(outcome: &EncodeOutcome) -> Vec<Vec<u32>> {
    outcome.texts.iter().map(|text| text.values.iter().map(|x| x.to_bits()).collect()).collect()
}

const MODELS: [&str; 4] = ["colbert-a", "colbert-b", "colbert-pylate-a", "colbert-stanford-a"];

#[test]
fn vectors_match_the_reference() {
    for name in MODELS {
        let engine = load(&golden_dir(name));
        assert_eq!(engine.info().multi_vector.unwrap().width, 16);
        for task in ["query", "document"] {
            let texts = reference(name, task);
            let prompts = texts.iter().map(|(one, _)| text(one)).collect();
            let outcome = engine.embed(of(prompts, task)).unwrap();
            assert_eq!(outcome.form, VectorForm::MultiVector);
            for (found, (one, want)) in outcome.texts.iter().zip(&texts) {
                assert_eq!(found.vectors, want.len(), "{name} {task} {one}");
                for (found, want) in found.each_vector().zip(want) {
                    let error = found.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                    assert!(error < 2e-5, "{name} {task} {one}: {error}");
                }
            }
        }
    }
}

/// Documents come in the order of the reference's similarities.
#[test]
fn late_interaction_reranks() {
    for name in MODELS {
        let engine = load(&golden_dir(name));
        assert!(engine.summary().ranks && !engine.summary().embeds);
        let documents: Vec<String> = reference(name, "document").into_iter().map(|(one, _)| one).collect();
        for ((query, _), want) in reference(name, "query").into_iter().zip(similarities(name)) {
            let mut request = RerankRequest::new(query.clone(), documents.clone());
            request.options.truncate = Some(Truncate::Right);
            let ranked = engine.rerank(request.clone()).unwrap().results;
            let ranked: Vec<_> = ranked.into_iter().map(Result::unwrap).collect();
            assert_eq!(ranked.len(), documents.len());
            assert!(ranked.is_sorted_by(|a, b| a.relevance >= b.relevance));
            for document in &ranked {
                let error = (f64::from(document.relevance) - want[document.index]).abs();
                assert!(error < 1e-4, "{name} {query} {}: {error}", document.index);
            }
            let best = RerankRequest { top_n: Some(1), threshold: Some(ranked[1].relevance), ..request };
            let best = engine.rerank(best).unwrap().results;
            assert_eq!(best.len(), 1);
            assert_eq!(best[0].as_ref().unwrap().index, ranked[0].index);
        }
    }
}

/// bge-m3: no vector for the first token, and the mean over those of the query.
#[test]
fn a_model_may_have_vectors_of_tokens_beside_others() {
    let engine = load(&golden_dir("bge-a"));
    let texts = reference_of(&golden_dir("bge-a"), "vectors");
    let ids = texts.iter().map(|(ids, _)| Prompt::Ids(ids.clone()));
    // A text of one token has none.
    let one: Vec<bool> = texts.iter().map(|(ids, _)| ids.len() == 1).collect();
    let prompts: Vec<Prompt> = ids.zip(&one).filter(|(_, one)| !**one).map(|(ids, _)| ids).collect();
    let outcome = engine.embed(of(prompts, "document")).unwrap();
    let wanted = texts.iter().filter(|(ids, _)| ids.len() > 1);
    for (found, (ids, want)) in outcome.texts.iter().zip(wanted) {
        assert_eq!((found.vectors, found.values.len()), (ids.len() - 1, 20 * (ids.len() - 1)));
        let error = found.values.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(error < 1e-5, "{error}");
    }
    let message = refusal(engine.embed(of(vec![Prompt::Ids(vec![0])], "document")));
    assert!(message.contains("none of its 1 tokens gets a vector"), "{message}");
    assert!(engine.info().multi_vector.unwrap().mean);
}

/// Alone and together, queries beside documents, in passes of any size, on any number of threads and any tier.
#[test]
fn vectors_have_the_same_bits_however_they_are_computed() {
    for name in MODELS {
        let tasks = ["query", "document"];
        let texts =
            |task| -> Vec<Prompt> { reference(name, task).iter().map(|(one, _)| text(one)).collect() };
        let engine = load(&golden_dir(name));
        let alone: Vec<Vec<Vec<u32>>> = tasks
            .iter()
            .map(|task| {
                let of_one = |one| bits(&engine.embed(of(vec![one], task)).unwrap()).remove(0);
                texts(task).into_iter().map(of_one).collect()
            })
            .collect();
        for tier in Tier::ALL.iter().filter(|tier| tier.available().is_ok()) {
            for (threads, chunk) in [(1, 4096), (2, 32), (3, 64)] {
                let buckets = Buckets::new(Buckets::TOKENS, Buckets::ROWS, chunk);
                let plans = PlanOptions { buckets, ..PlanOptions::default() };
                let plain = options(&golden_dir(name));
                let options = Options { threads, tier: Some(*tier), plans, poison: true, ..plain };
                let engine = Engine::load(options).unwrap();
                let hold = engine.hold().unwrap();
                let tickets =
                    tasks.map(|task| engine.submit_embed(of(texts(task), task), &Cancel::new()).unwrap());
                drop(hold);
                for (ticket, alone) in tickets.into_iter().zip(&alone) {
                    assert_eq!(&bits(&ticket.wait().unwrap()), alone, "{name} {tier:?} {threads} {chunk}");
                }
            }
        }
    }
}

#[test]
fn what_late_interaction_does_not_know_is_refused() {
    let engine = load(&golden_dir("colbert-a"));
    let embed = |request: EmbedRequest| refusal(engine.embed(request));
    let dense = EmbedRequest { form: VectorForm::Dense, ..of(vec![text("rain")], "query") };
    assert!(embed(dense).contains("makes a vector for each token"));
    let pooled = EmbedRequest { pooling: Some(Pooling::Mean), ..of(vec![text("rain")], "query") };
    assert!(embed(pooled).contains("only dense vectors"));
    // Both lengths are those of the model, of which queries have one of their own.
    let long = "rain ".repeat(20);
    for (task, most) in [("query", 12), ("document", 14)] {
        let whole = EmbedRequest { truncate: None, ..of(vec![text(&long)], task) };
        assert!(embed(whole).contains(&format!("exceed the maximum of {most}")), "{task}");
    }
    assert!(embed(of(vec![text("rain")], "passage")).contains("no prompt `passage`"));
    let plain = RerankRequest::new("rain".to_owned(), vec!["sea".to_owned()]);
    let rerank = |change: &dyn Fn(&mut RerankRequest)| {
        let mut request = plain.clone();
        change(&mut request);
        refusal(engine.rerank(request))
    };
    assert!(rerank(&|request| request.top_n = Some(0)).contains("0 documents"));
    assert!(rerank(&|request| request.yes = Label::Text("good".to_owned())).contains("write yes or no"));
    let template = "{query} {document}".to_owned();
    assert!(rerank(&|request| request.options.template = Some(template.clone())).contains("`template`"));
    let receipt = ReceiptOptions { layers: None, most_rows: Some(8) };
    assert!(rerank(&|request| request.options.receipt = Some(receipt.clone())).contains("no receipts"));
    let message = refusal(demo().embed(of(vec![text("a")], "query")));
    assert!(message.contains("`demo` makes no vectors of single tokens"), "{message}");
    // Queries are filled up to 12 tokens.
    let small = Engine::load(Options { max_context: Some(11), ..options(&golden_dir("colbert-a")) }).unwrap();
    let message = refusal(small.embed(of(vec![text("rain")], "query")));
    assert!(message.contains("up to 12 tokens, more than the maximum of 11"), "{message}");
    assert!(small.embed(of(vec![text("rain")], "document")).is_ok());
    // An item may fail alone.
    let mut request = RerankRequest::new("rain".to_owned(), vec!["sea".to_owned(), long]);
    request.options.item_errors = true;
    let results = engine.rerank(request).unwrap().results;
    assert_eq!((results[0].as_ref().unwrap().index, results[1].as_ref().unwrap_err().index), (0, 1));
    let both = engine.embed(of(vec![text("rain"), text("sea")], "document")).unwrap().texts;
    assert!((max_sim(&both[0], &both[0]) - both[0].vectors as f32).abs() < 1e-4);
}
