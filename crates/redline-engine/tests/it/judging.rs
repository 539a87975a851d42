//! Classification and reranking: the same bits as scores of whole prompts; templates; texts that are too long; invalid
//! requests.

use redline_engine::{
    Cancel, Classified, ClassifyOutcome, ClassifyRequest, Engine, JudgeOptions, Label, LongLabels, Options,
    RerankOutcome, RerankRequest, ScoreRequest, Truncate,
};

use crate::models::{bits, demo, demo_dir, golden, options, refusal, request, scores, text};

const VERSES: [&str; 4] = [
    "And the king said unto his servants, Go ye out into the city.",
    "He that hath pity upon the poor lendeth unto the Lord.",
    "And the ships were broken at Ezion-geber.",
    "The king shall joy in thy strength, O Lord.",
];
const SUBJECTS: [&str; 3] = [" king", " poor", " ships of the sea"];

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn labels(texts: &[&str]) -> Vec<Label> {
    texts.iter().map(|&text| Label::Text(text.to_owned())).collect()
}

fn subjects() -> ClassifyRequest {
    ClassifyRequest::new(owned(&VERSES), labels(&SUBJECTS))
}

fn who_is_king() -> RerankRequest {
    RerankRequest::new("Who is king?".to_owned(), owned(&VERSES))
}

/// The bits of the softmax over the labels after each prompt, computed by `score`.
fn by_score(
    engine: &Engine,
    prompts: &[String],
    labels: Vec<Label>,
    long_labels: LongLabels,
) -> Vec<Vec<u32>> {
    let items = prompts.iter().map(|prompt| text(prompt)).collect();
    let asked = ScoreRequest { softmax: true, long_labels, ..request(text(""), items, labels) };
    bits(&scores(&engine.score(asked).unwrap()))
}

fn classified(outcome: &ClassifyOutcome) -> Vec<&Classified> {
    outcome.texts.iter().map(|text| text.as_ref().unwrap()).collect()
}

fn probabilities(outcome: &ClassifyOutcome) -> Vec<Vec<u32>> {
    bits(&classified(outcome).iter().map(|text| text.probabilities.clone()).collect::<Vec<_>>())
}

/// Index and bits of the relevance of every document, in the order of the results.
fn ranking(outcome: &RerankOutcome) -> Vec<(usize, u32)> {
    let ranked = outcome.results.iter().map(|result| result.as_ref().unwrap());
    ranked.map(|document| (document.index, document.relevance.to_bits())).collect()
}

/// The relevance of every document, in the order of the request.
fn relevance(outcome: &RerankOutcome) -> Vec<u32> {
    let mut all = ranking(outcome);
    all.sort_unstable();
    all.into_iter().map(|(_, relevance)| relevance).collect()
}

#[test]
fn classes_have_the_scores_of_whole_prompts() {
    let engine = demo();
    for long_labels in [LongLabels::Sum, LongLabels::Mean] {
        let prompts = VERSES.map(|verse| {
            format!("Classify the text as one of: king, poor, ships of the sea\n\nText: {verse}\n\nClass:")
        });
        let outcome = engine
            .classify(ClassifyRequest {
                options: JudgeOptions { long_labels, ..JudgeOptions::default() },
                ..subjects()
            })
            .unwrap();
        assert_eq!(probabilities(&outcome), by_score(&engine, &prompts, labels(&SUBJECTS), long_labels));
        assert!(outcome.class_token_ids[2].len() > 1);
        let prompts = VERSES.map(|verse| format!("{verse} This verse tells of the"));
        let template = Some("{text} This verse tells of the".to_owned());
        let outcome = engine
            .classify(ClassifyRequest {
                options: JudgeOptions { template, long_labels, ..JudgeOptions::default() },
                ..subjects()
            })
            .unwrap();
        assert_eq!(probabilities(&outcome), by_score(&engine, &prompts, labels(&SUBJECTS), long_labels));
    }
}

#[test]
fn the_best_class_and_its_margin() {
    let outcome = demo().classify(subjects()).unwrap();
    for text in classified(&outcome) {
        let mut sorted = text.probabilities.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        assert_eq!(text.probabilities[text.best.unwrap()], sorted[0]);
        assert_eq!(text.margin, sorted[0] - sorted[1]);
        assert!((sorted.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert!(!text.truncated && text.prompt_tokens > 0);
    }
}

#[test]
fn a_class_given_twice_is_refused() {
    let engine = demo();
    let given = |classes: &[&str]| {
        refusal(engine.classify(ClassifyRequest { classes: labels(classes), ..subjects() }))
    };
    let message = given(&[" king", " poor", " king"]);
    assert!(message.contains("class 0 and class 2 are the same tokens"), "{message}");
    // The default template puts the space in front.
    assert!(given(&[" poor", "king", " king"]).contains("class 1 and class 2"));
}

#[test]
fn the_default_template_asks_for_classes_with_a_space_in_front() {
    let engine = demo();
    let spaced = engine.classify(subjects()).unwrap();
    let bare =
        engine.classify(ClassifyRequest { classes: labels(&SUBJECTS.map(str::trim)), ..subjects() }).unwrap();
    assert_eq!(
        (probabilities(&bare), &bare.class_token_ids),
        (probabilities(&spaced), &spaced.class_token_ids)
    );
    let own = |classes: &[&str]| {
        let template = Some("{text} This verse tells of the".to_owned());
        engine
            .classify(ClassifyRequest {
                classes: labels(classes),
                options: JudgeOptions { template, ..JudgeOptions::default() },
                ..subjects()
            })
            .unwrap()
    };
    let bare = own(&["king", "poor"]);
    assert_ne!(bare.class_token_ids, own(&[" king", " poor"]).class_token_ids);
    assert_eq!(bare.class_token_ids[0], engine.tokenizer().unwrap().encode("king", false).unwrap());
}

#[test]
fn relevance_is_the_score_of_yes_after_the_whole_prompt() {
    let engine = demo();
    let answers = || labels(&[" yes", " no"]);
    let yes = |rows: Vec<Vec<u32>>| rows.into_iter().map(|row| row[0]).collect::<Vec<_>>();
    let prompts = VERSES.map(|verse| {
        let question = "Does the document answer the query? Reply with yes or no.\n\n";
        format!("{question}Query: Who is king?\n\nDocument: {verse}\n\nAnswer:")
    });
    let outcome = engine.rerank(who_is_king()).unwrap();
    assert_eq!(relevance(&outcome), yes(by_score(&engine, &prompts, answers(), LongLabels::Sum)));
    // The document first, and a boundary inside a word.
    let prompts = VERSES.map(|verse| format!("<<{verse}>> Who is king?s answer is it"));
    let template = Some("<<{document}>> {query}s answer is it".to_owned());
    let outcome = engine
        .rerank(RerankRequest {
            options: JudgeOptions { template, ..JudgeOptions::default() },
            ..who_is_king()
        })
        .unwrap();
    assert_eq!(relevance(&outcome), yes(by_score(&engine, &prompts, answers(), LongLabels::Sum)));
    let (yes_label, no_label) = (Label::Text(" verily".into()), Label::Ids(vec![7]));
    let prompts = VERSES.map(|verse| format!("I ple{verse} Who is king?"));
    let own = RerankRequest {
        yes: yes_label.clone(),
        no: no_label.clone(),
        options: JudgeOptions {
            template: Some("I ple{document} {query}".to_owned()),
            long_labels: LongLabels::Mean,
            ..JudgeOptions::default()
        },
        ..who_is_king()
    };
    let outcome = engine.rerank(own).unwrap();
    assert!(outcome.label_token_ids[0].len() > 1 && outcome.label_token_ids[1] == [7]);
    let expect = by_score(&engine, &prompts, vec![yes_label, no_label], LongLabels::Mean);
    assert_eq!(relevance(&outcome), yes(expect));
}

#[test]
fn documents_come_by_relevance_and_equals_by_index() {
    let engine = demo();
    let documents = owned(&[VERSES[1], VERSES[0], VERSES[1], VERSES[2], VERSES[0], VERSES[3], VERSES[1]]);
    let outcome = engine.rerank(RerankRequest { documents, ..who_is_king() }).unwrap();
    let ranking = ranking(&outcome);
    assert_eq!(ranking.len(), 7);
    for pair in ranking.windows(2) {
        let (first, second) = (f32::from_bits(pair[0].1), f32::from_bits(pair[1].1));
        assert!(first > second || first == second && pair[0].0 < pair[1].0, "{ranking:?}");
    }
    let of = |index| ranking.iter().find(|ranked| ranked.0 == index).unwrap().1;
    assert_eq!([of(0), of(2), of(1)], [of(6), of(6), of(4)], "equal documents are equally relevant");
    // With the labels swapped, the relevance is one minus the original.
    let turned =
        RerankRequest { yes: Label::Text(" no".into()), no: Label::Text(" yes".into()), ..who_is_king() };
    let (turned, straight) = (engine.rerank(turned).unwrap(), engine.rerank(who_is_king()).unwrap());
    for (no, yes) in relevance(&turned).into_iter().zip(relevance(&straight)) {
        assert!((f32::from_bits(no) + f32::from_bits(yes) - 1.0).abs() < 1e-6);
    }
}

#[test]
fn top_n_is_the_head_of_the_list() {
    let engine = demo();
    let all = ranking(&engine.rerank(who_is_king()).unwrap());
    let top = |top_n| engine.rerank(RerankRequest { top_n: Some(top_n), ..who_is_king() });
    for n in [1, 3, 4, 5, usize::MAX] {
        assert_eq!(ranking(&top(n).unwrap()), all[..n.min(4)]);
    }
    let message = refusal(top(0));
    assert!(message.contains("0 documents") && message.contains("at least 1"), "{message}");
}

#[test]
fn templates_that_lack_a_place_are_refused() {
    let engine = demo();
    let classify = |template: &str| {
        refusal(engine.classify(ClassifyRequest {
            options: JudgeOptions { template: Some(template.into()), ..JudgeOptions::default() },
            ..subjects()
        }))
    };
    let message = classify("Text: {txt}");
    assert!(message.contains("no `{text}`") && message.contains("`{classes}` once"), "{message}");
    assert!(classify("{text} or {text}").contains("`{text}` 2 times"));
    assert!(classify("{classes} {text} {classes}").contains("`{classes}` 2 times"));
    assert!(classify("").contains("no `{text}`"));
    let rerank = |template: &str| {
        refusal(engine.rerank(RerankRequest {
            options: JudgeOptions { template: Some(template.into()), ..JudgeOptions::default() },
            ..who_is_king()
        }))
    };
    assert!(rerank("{document}").contains("no `{query}`"));
    assert!(rerank("{query}").contains("no `{document}`"));
    let message = rerank("{query} {document} {document}");
    assert!(message.contains("`{document}` 2 times") && message.contains("`{query}` and `{document}` once"));
    let ids = ClassifyRequest { classes: vec![Label::Text("a".into()), Label::Ids(vec![7])], ..subjects() };
    let message = refusal(engine.classify(ids.clone()));
    assert!(message.contains("class 1 is token ids") && message.contains("{classes}"), "{message}");
    engine
        .classify(ClassifyRequest {
            options: JudgeOptions { template: Some("{text}:".into()), ..ids.options.clone() },
            ..ids
        })
        .unwrap();
}

#[test]
fn braces_in_texts_are_text() {
    let engine = demo();
    let texts = ["{classes} {text}", "{text}", "a {query}"];
    let classes = [" {text}", " {classes}"];
    let outcome = engine.classify(ClassifyRequest {
        options: JudgeOptions {
            template: Some("[{classes}] {text} is".to_owned()),
            ..JudgeOptions::default()
        },
        ..ClassifyRequest::new(owned(&texts), labels(&classes))
    });
    let prompts = texts.map(|text| format!("[{{text}}, {{classes}}] {text} is"));
    let expect = by_score(&engine, &prompts, labels(&classes), LongLabels::Sum);
    assert_eq!(probabilities(&outcome.unwrap()), expect);
    let documents = ["{query}", "{document}{query}"];
    let outcome = engine.rerank(RerankRequest {
        options: JudgeOptions {
            template: Some("{query} / {document} / ".to_owned()),
            ..JudgeOptions::default()
        },
        ..RerankRequest::new("{document} {query}".to_owned(), owned(&documents))
    });
    let prompts = documents.map(|document| format!("{{document}} {{query}} / {document} / "));
    let expect = by_score(&engine, &prompts, labels(&[" yes", " no"]), LongLabels::Sum);
    assert_eq!(relevance(&outcome.unwrap()), [expect[0][0], expect[1][0]]);
}

#[test]
fn the_shared_beginning_is_computed_once_and_kept_per_salt() {
    let engine = demo();
    let head = "Does the document answer the query? Reply with yes or no.\n\nQuery: Who is king?\n\nDocument";
    let head = engine.tokenizer().unwrap().encode(head, true).unwrap().len();
    let first = engine.rerank(who_is_king()).unwrap().cost;
    assert!(first.shared_prefix_tokens >= head, "{first:?}");
    assert_eq!(first.computed_tokens, first.usage.prompt_tokens - 3 * first.shared_prefix_tokens);
    assert_eq!(first.usage.cached_tokens, 0);
    let salted = |salt: &str| {
        engine
            .rerank(RerankRequest {
                options: JudgeOptions { cache_salt: salt.to_owned(), ..JudgeOptions::default() },
                ..who_is_king()
            })
            .unwrap()
            .cost
    };
    assert!(salted("").usage.cached_tokens >= head);
    assert_eq!(salted("other").usage.cached_tokens, 0);
    assert_eq!(salted("other").prefix_cache.unwrap().hits, 4);
}

/// An engine whose context is `tokens`.
fn narrow(tokens: usize) -> Engine {
    Engine::load(Options { max_context: Some(tokens), ..options(&demo_dir()) }).unwrap()
}

fn long_text() -> String {
    VERSES.concat().repeat(3)
}

/// Prompts of the longest parts of the text that fit, found by trying all. There are several, because a part that ends inside a
/// word may take more tokens than the whole word.
fn fitting(engine: &Engine, end: Truncate, most: usize, prompt: impl Fn(&str) -> String) -> Vec<String> {
    let long = long_text();
    let fits = |prompt: &String| engine.tokenizer().unwrap().encode(prompt, true).unwrap().len() <= most;
    let parts = (0..long.len()).rev().map(|n| match end {
        Truncate::Right => &long[..n],
        Truncate::Left => &long[long.len() - n..],
    });
    parts.map(prompt).filter(fits).take(8).collect()
}

#[test]
fn an_over_long_document_is_refused_or_told_behind_the_others() {
    let engine = narrow(64);
    let documents = vec![VERSES[0].to_owned(), long_text(), VERSES[1].to_owned(), long_text()];
    let request = RerankRequest { documents, ..who_is_king() };
    let message = refusal(engine.rerank(request.clone()));
    for part in ["document 1: ", "context of 64", "`truncate`"] {
        assert!(message.contains(part), "{message}");
    }
    let outcome = engine
        .rerank(RerankRequest {
            options: JudgeOptions { item_errors: true, ..request.options.clone() },
            ..request.clone()
        })
        .unwrap();
    let failed: Vec<_> = outcome.results[2..].iter().map(|result| result.as_ref().unwrap_err()).collect();
    assert_eq!((outcome.results.len(), failed[0].index, failed[1].index), (4, 1, 3));
    assert!(failed[0].message.starts_with("document 1: "), "{}", failed[0].message);
    let alone = RerankRequest { documents: owned(&[VERSES[0], VERSES[1]]), ..who_is_king() };
    let alone = ranking(&engine.rerank(alone).unwrap());
    let others = RerankOutcome { results: outcome.results[..2].to_vec(), ..outcome };
    let others: Vec<_> = ranking(&others).into_iter().map(|(index, bits)| (index / 2, bits)).collect();
    assert_eq!(others, alone);
    let top = engine
        .rerank(RerankRequest {
            top_n: Some(1),
            options: JudgeOptions { item_errors: true, ..request.options.clone() },
            ..request
        })
        .unwrap();
    assert_eq!(top.results.len(), 3, "what failed is told in any case");
}

#[test]
fn an_over_long_document_is_cut_inside_its_template() {
    let engine = narrow(64);
    let prompt = |document: &str| {
        let question = "Does the document answer the query? Reply with yes or no.\n\n";
        format!("{question}Query: Who is king?\n\nDocument: {document}\n\nAnswer:")
    };
    for end in [Truncate::Left, Truncate::Right] {
        let request = RerankRequest {
            documents: vec![long_text(), VERSES[0].to_owned()],
            options: JudgeOptions { truncate: Some(end), ..JudgeOptions::default() },
            ..who_is_king()
        };
        let outcome = engine.rerank(request).unwrap();
        let prompts = [vec![prompt(VERSES[0])], fitting(&engine, end, 64, prompt)].concat();
        let expect = by_score(&engine, &prompts, labels(&[" yes", " no"]), LongLabels::Sum);
        let relevance = relevance(&outcome);
        assert_eq!(relevance[1], expect[0][0]);
        assert!(expect[1..].iter().any(|row| row[0] == relevance[0]), "{end:?}");
        for ranked in outcome.results.iter().flatten() {
            assert_eq!(ranked.truncated, ranked.index == 0);
            assert!(ranked.prompt_tokens <= 64 && (ranked.index == 1 || ranked.prompt_tokens > 60));
        }
    }
    let query = "Who is king? ".repeat(20);
    let request = RerankRequest {
        query,
        options: JudgeOptions { truncate: Some(Truncate::Right), ..JudgeOptions::default() },
        ..who_is_king()
    };
    let message = refusal(engine.rerank(request));
    assert!(message.contains("document 0: what stands around it") && message.contains("of 64"), "{message}");
}

#[test]
fn a_document_that_fits_exactly_is_not_cut() {
    let request = || RerankRequest { documents: owned(&[VERSES[0]]), ..who_is_king() };
    let whole = narrow(512).rerank(request()).unwrap();
    let tokens = whole.results[0].as_ref().unwrap().prompt_tokens;
    for (context, cut) in [(tokens, false), (tokens - 1, true)] {
        for end in [Truncate::Left, Truncate::Right] {
            let outcome = narrow(context)
                .rerank(RerankRequest {
                    options: JudgeOptions { truncate: Some(end), ..request().options.clone() },
                    ..request()
                })
                .unwrap();
            let ranked = outcome.results[0].as_ref().unwrap();
            assert_eq!((ranked.truncated, ranked.prompt_tokens < tokens), (cut, cut), "of {context}");
            assert_eq!(relevance(&outcome) == relevance(&whole), !cut);
        }
    }
}

#[test]
fn an_over_long_text_leaves_room_for_the_longest_class() {
    let engine = narrow(48);
    let prompt = |verse: &str| format!("Of what is: {verse}\nOf the");
    let request = ClassifyRequest {
        options: JudgeOptions {
            template: Some("Of what is: {text}\nOf the".to_owned()),
            truncate: Some(Truncate::Right),
            ..JudgeOptions::default()
        },
        ..ClassifyRequest::new(vec![VERSES[0].to_owned(), long_text()], labels(&SUBJECTS))
    };
    let outcome = engine.classify(request.clone()).unwrap();
    let longest = outcome.class_token_ids.iter().map(Vec::len).max().unwrap();
    assert!(longest > 1);
    let cut = fitting(&engine, Truncate::Right, 48 - (longest - 1), prompt);
    let prompts = [vec![prompt(VERSES[0])], cut].concat();
    let expect = by_score(&engine, &prompts, labels(&SUBJECTS), LongLabels::Sum);
    let found = probabilities(&outcome);
    assert_eq!(found[0], expect[0]);
    assert!(expect[1..].contains(&found[1]));
    assert_eq!(classified(&outcome).iter().map(|text| text.truncated).collect::<Vec<_>>(), [false, true]);
    let refused =
        ClassifyRequest { options: JudgeOptions { truncate: None, ..request.options.clone() }, ..request };
    assert!(refusal(engine.classify(refused.clone())).contains("text 1: "));
    let told = engine
        .classify(ClassifyRequest {
            options: JudgeOptions { item_errors: true, ..refused.options.clone() },
            ..refused
        })
        .unwrap();
    assert_eq!(bits(&[told.texts[0].as_ref().unwrap().probabilities.clone()])[0], expect[0]);
    assert!(told.texts[1].as_ref().unwrap_err().message.starts_with("text 1: "));
}

#[test]
fn no_texts_are_an_empty_answer_and_no_choice_is_refused() {
    let engine = demo();
    let none = engine.classify(ClassifyRequest { texts: Vec::new(), ..subjects() }).unwrap();
    assert!(none.texts.is_empty() && none.cost.usage.prompt_tokens == 0);
    let none = engine.rerank(RerankRequest { documents: Vec::new(), ..who_is_king() }).unwrap();
    assert!(none.results.is_empty() && none.cost.computed_tokens == 0);
    for truncate in [None, Some(Truncate::Left)] {
        let empty = RerankRequest {
            documents: owned(&["", ""]),
            options: JudgeOptions { truncate, ..JudgeOptions::default() },
            ..who_is_king()
        };
        assert_eq!(ranking(&engine.rerank(empty).unwrap()).len(), 2);
    }
    let classes = |classes: &[&str]| {
        refusal(engine.classify(ClassifyRequest { classes: labels(classes), ..subjects() }))
    };
    assert!(classes(&[]).contains("0 classes leave"));
    assert!(classes(&["king"]).contains("1 class leaves"));
    assert!(classes(&["king", ""]).contains("class 1 is empty"));
    let answers = |yes: Label, no: Label| refusal(engine.rerank(RerankRequest { yes, no, ..who_is_king() }));
    assert!(answers(Label::Text("yes".into()), Label::Text(" yes".into())).contains("the same label"));
    assert!(answers(Label::Ids(Vec::new()), Label::Ids(vec![1])).contains("label for yes is empty"));
    assert!(answers(Label::Ids(vec![1]), Label::Ids(vec![-5])).contains("-5"));
}

#[test]
fn what_score_refuses_is_refused() {
    assert!(refusal(golden().rerank(who_is_king())).contains("tokenizer"));
    let engine = demo();
    let timeout_s = Some(0.0);
    assert!(
        refusal(engine.classify(ClassifyRequest {
            options: JudgeOptions { timeout_s, ..JudgeOptions::default() },
            ..subjects()
        }))
        .contains("no time")
    );
    let cancel = Cancel::new();
    cancel.cancel();
    let classify = engine.submit_classify(subjects(), &cancel).unwrap();
    assert!(refusal(classify.wait()).contains("cancelled"));
    let rerank = engine.submit_rerank(who_is_king(), &cancel).unwrap();
    assert!(refusal(rerank.wait()).contains("cancelled"));
    let long = ClassifyRequest {
        options: JudgeOptions { long_labels: LongLabels::Refuse, ..JudgeOptions::default() },
        ..subjects()
    };
    assert!(refusal(engine.classify(long)).contains("ships of the sea"));
}

#[test]
fn a_template_that_fits_exactly_leaves_room_for_an_empty_document() {
    let empty = RerankRequest { documents: owned(&[""]), ..who_is_king() };
    let around = demo().rerank(empty).unwrap().results[0].as_ref().unwrap().prompt_tokens;
    for end in [Truncate::Left, Truncate::Right] {
        let request = || RerankRequest {
            documents: vec![long_text()],
            options: JudgeOptions { truncate: Some(end), ..JudgeOptions::default() },
            ..who_is_king()
        };
        let outcome = narrow(around).rerank(request()).unwrap();
        let ranked = outcome.results[0].as_ref().unwrap();
        assert!(ranked.truncated && ranked.prompt_tokens <= around, "{end:?}: {ranked:?}");
        let message = refusal(narrow(around - 1).rerank(request()));
        assert!(message.contains(&format!("what stands around it is {around} tokens")), "{message}");
    }
}

#[test]
fn texts_of_another_salt_share_nothing() {
    let engine = demo();
    let cached = |salt: &str| {
        let head = "And it came to pass in those days that the king said unto the people of the land";
        let template = Some(format!("{head}: {{text}} This verse tells of the"));
        let request = ClassifyRequest {
            options: JudgeOptions { template, cache_salt: salt.to_owned(), ..JudgeOptions::default() },
            ..subjects()
        };
        engine.classify(request).unwrap().cost.usage.cached_tokens
    };
    assert_eq!(cached(""), 0);
    assert!(cached("") > 0);
    assert_eq!(cached("tenant"), 0);
    assert!(cached("tenant") > 0);
}

#[test]
fn a_time_limit_is_that_of_the_scores() {
    let engine = demo();
    let timeout_s = Some(0.0);
    assert!(
        refusal(engine.classify(ClassifyRequest {
            options: JudgeOptions { timeout_s, ..JudgeOptions::default() },
            ..subjects()
        }))
        .contains("leaves no time")
    );
    assert!(
        refusal(engine.rerank(RerankRequest {
            options: JudgeOptions { timeout_s, ..JudgeOptions::default() },
            ..who_is_king()
        }))
        .contains("leaves no time")
    );
}

#[test]
fn a_class_that_begins_with_any_white_space_gets_no_other() {
    let engine = demo();
    let classes = ["\nking", "\tking", "king"];
    let outcome = engine.classify(ClassifyRequest { classes: labels(&classes), ..subjects() }).unwrap();
    let written = ["\nking", "\tking", " king"];
    let tokenizer = engine.tokenizer().unwrap();
    assert_eq!(outcome.class_token_ids, written.map(|class| tokenizer.encode(class, false).unwrap()));
}
