//! Classes of different lengths: the end of a class, lengths, calibration, the preference for a class that begins another.

use redline_engine::{
    Cancel, ClassifyOutcome, ClassifyRequest, ClassifyTicket, Engine, ItemError, JudgeOptions, Label,
    LabelEnd, LongLabels, Ranked, RerankRequest, ScoreRequest,
};
use redline_models::random::{STEP, mix};

use crate::models::{bits, demo, demo_dir, options, refusal, request, scores, text};

const TEMPLATE: &str = "{text} This verse tells of the";
const VERSE: &str = "And the king said unto his servants, Go ye out into the city.";

fn classes(texts: &[&str]) -> Vec<Label> {
    texts.iter().map(|&text| Label::Text(text.to_owned())).collect()
}

fn verse(classes: Vec<Label>, options: JudgeOptions) -> ClassifyRequest {
    let options = JudgeOptions { template: Some(TEMPLATE.to_owned()), ..options };
    ClassifyRequest { options, ..ClassifyRequest::new(vec![VERSE.to_owned()], classes) }
}

fn probabilities(outcome: &ClassifyOutcome, text: usize) -> &[f32] {
    &outcome.texts[text].as_ref().unwrap().probabilities
}

/// The logarithms of the labels after the prompt, computed by `score`.
fn logprobs(engine: &Engine, prompt: &str, labels: Vec<Label>, long_labels: LongLabels) -> Vec<f32> {
    let request = ScoreRequest { long_labels, ..request(text(""), vec![text(prompt)], labels) };
    engine.score(request).unwrap().items.remove(0).unwrap().logprobs
}

fn softmax(logprobs: &[f32]) -> Vec<f32> {
    let shares: Vec<f64> = logprobs.iter().map(|&x| f64::from(x).exp()).collect();
    shares.iter().map(|share| (share / shares.iter().sum::<f64>()) as f32).collect()
}

fn close(one: &[f32], other: &[f32]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-5)
}

#[test]
fn without_an_end_a_class_that_begins_another_wins_and_is_named() {
    let engine = demo();
    let given = classes(&[" king of the land", " poor", " king"]);
    let never = JudgeOptions { label_end: LabelEnd::Never, ..JudgeOptions::default() };
    let outcome = engine.classify(verse(given.clone(), never)).unwrap();
    assert_eq!(outcome.prefix_class, Some((2, 0)));
    assert!(outcome.end_token_ids.is_empty());
    let whole = request(text(""), vec![text(&TEMPLATE.replace("{text}", VERSE))], given);
    let whole = ScoreRequest { softmax: true, long_labels: LongLabels::Sum, ..whole };
    let whole = scores(&engine.score(whole).unwrap());
    assert_eq!(bits(&[probabilities(&outcome, 0).to_vec()]), bits(&whole));
    assert!(whole[0][2] > whole[0][0]);
}

#[test]
fn the_end_is_scored_where_a_class_begins_another() {
    let engine = demo();
    let outcome =
        engine.classify(verse(classes(&[" king of", " poor", " king"]), JudgeOptions::default())).unwrap();
    let [end] = outcome.end_token_ids[..] else { panic!("{:?}", outcome.end_token_ids) };
    assert_eq!(outcome.prefix_class, None);
    let ended = |class: &str| {
        let ids = engine.tokenizer().unwrap().encode(class, false).unwrap();
        Label::Ids(ids.into_iter().chain([end]).map(i64::from).collect())
    };
    let ended: Vec<Label> = [" king of", " poor", " king"].map(ended).into();
    let whole = logprobs(&engine, &TEMPLATE.replace("{text}", VERSE), ended, LongLabels::Sum);
    assert!(close(probabilities(&outcome, 0), &softmax(&whole)));
    let apart = engine.classify(verse(classes(&[" king", " poor"]), JudgeOptions::default())).unwrap();
    assert!(apart.end_token_ids.is_empty(), "no class begins another");
    let always = JudgeOptions { label_end: LabelEnd::Always, ..JudgeOptions::default() };
    let apart = engine.classify(verse(classes(&[" king", " poor"]), always)).unwrap();
    assert_eq!(apart.end_token_ids, [end]);
}

#[test]
fn the_end_may_be_a_text() {
    let engine = demo();
    let full_stop = JudgeOptions { end: Some(Label::Text(".".to_owned())), ..JudgeOptions::default() };
    let outcome = engine.classify(verse(classes(&[" king of", " king"]), full_stop)).unwrap();
    assert_eq!(outcome.end_token_ids, engine.tokenizer().unwrap().encode(".", false).unwrap());
    assert_eq!(outcome.class_token_ids[1], engine.tokenizer().unwrap().encode(" king", false).unwrap());
}

#[test]
fn lengths_divide_the_logarithm() {
    let engine = demo();
    let given = [" ships of the sea", " poor"];
    let prompt = TEMPLATE.replace("{text}", VERSE);
    let sums = logprobs(&engine, &prompt, classes(&given), LongLabels::Sum);
    let tokens = given.map(|class| engine.tokenizer().unwrap().encode(class, false).unwrap().len());
    let bytes = given.map(str::len);
    for (long_labels, divisors) in [(LongLabels::Mean, tokens), (LongLabels::Bytes, bytes)] {
        let expected: Vec<f32> = sums.iter().zip(divisors).map(|(sum, by)| sum / by as f32).collect();
        let scored = logprobs(&engine, &prompt, classes(&given), long_labels);
        assert!(close(&scored, &expected), "{long_labels:?}: {scored:?} {expected:?}");
        let outcome = engine
            .classify(verse(classes(&given), JudgeOptions { long_labels, ..JudgeOptions::default() }))
            .unwrap();
        assert!(close(probabilities(&outcome, 0), &softmax(&expected)));
    }
}

#[test]
fn calibration_divides_by_the_probabilities_for_the_text_without_content() {
    let engine = demo();
    let plain = |text: &str| {
        let request = ClassifyRequest {
            texts: vec![text.to_owned()],
            ..verse(classes(&[" king", " poor", " ships of the sea"]), JudgeOptions::default())
        };
        probabilities(&engine.classify(request).unwrap(), 0).to_vec()
    };
    let (verse_alone, nothing) = (plain(VERSE), plain("N/A"));
    let calibrate = JudgeOptions { calibrate: Some("N/A".to_owned()), ..JudgeOptions::default() };
    let request = verse(classes(&[" king", " poor", " ships of the sea"]), calibrate);
    let texts = vec![VERSE.to_owned(), "N/A".to_owned()];
    let outcome = engine.classify(ClassifyRequest { texts, ..request }).unwrap();
    let ratios: Vec<f32> = verse_alone.iter().zip(&nothing).map(|(a, b)| a / b).collect();
    let expected: Vec<f32> = ratios.iter().map(|ratio| ratio / ratios.iter().sum::<f32>()).collect();
    assert!(close(probabilities(&outcome, 0), &expected));
    assert!(close(probabilities(&outcome, 1), &[1.0 / 3.0; 3]), "nothing speaks for any class");
    assert_eq!(outcome.texts.len(), 2, "the text without content is no answer");
}

#[test]
fn below_the_threshold_no_class_is_the_best() {
    let engine = demo();
    let given = || verse(classes(&[" king", " poor"]), JudgeOptions::default());
    let best = engine.classify(given()).unwrap().texts.remove(0).unwrap();
    let first = best.probabilities[best.best.unwrap()];
    let at = |threshold| {
        let request = ClassifyRequest { threshold: Some(threshold), ..given() };
        engine.classify(request).unwrap().texts.remove(0).unwrap().best
    };
    assert_eq!(at(first), best.best);
    assert_eq!(at(first.next_up()), None);
    let message = refusal(engine.classify(ClassifyRequest { threshold: Some(1.5), ..given() }));
    assert!(message.contains("the threshold is 1.5"), "{message}");
}

#[test]
fn documents_below_the_threshold_are_left_out() {
    let engine = demo();
    let documents = || ["a king", "a ship", "the sea"].map(str::to_owned).to_vec();
    let all = engine.rerank(RerankRequest::new("Who is king?".to_owned(), documents())).unwrap();
    let second = all.results[1].as_ref().unwrap().relevance;
    let some = RerankRequest {
        threshold: Some(second),
        ..RerankRequest::new("Who is king?".to_owned(), documents())
    };
    let indices = |results: &[Result<Ranked, ItemError>]| {
        results.iter().map(|ranked| ranked.as_ref().unwrap().index).collect::<Vec<_>>()
    };
    assert_eq!(indices(&engine.rerank(some).unwrap().results), indices(&all.results[..2]));
}

/// The share of random sets of classes in which a short class ranks above a long one, for random texts. The long class begins with
/// the short one if `is_prefix`, and else with another word.
fn short_wins(engine: &Engine, is_prefix: bool, options: &JudgeOptions) -> f64 {
    const SETS: usize = 500;
    let tokenizer = engine.tokenizer().unwrap();
    let names: Vec<&str> = WORDS.split_whitespace().collect();
    let words: Vec<Vec<i64>> = names
        .iter()
        .map(|word| {
            tokenizer.encode(&format!(" {word}"), false).unwrap().into_iter().map(i64::from).collect()
        })
        .collect();
    let mut state = 7_u64;
    let mut below = |limit: usize| {
        state = state.wrapping_add(STEP);
        (mix(state) % limit as u64) as usize
    };
    let mut random = || {
        let mut rest: Vec<usize> = (0..words.len()).collect();
        let [short, other, tail, third] = [(); 4].map(|()| &words[rest.swap_remove(below(rest.len()))]);
        let long = [if is_prefix { short } else { other }, tail].map(Vec::as_slice).concat();
        let classes = [short, &long, third].map(|ids| Label::Ids(ids.clone())).to_vec();
        let text: Vec<&str> = (0..8).map(|_| names[below(names.len())]).collect();
        ClassifyRequest {
            options: JudgeOptions { template: Some(TEMPLATE.to_owned()), ..options.clone() },
            ..ClassifyRequest::new(vec![format!("The {}.", text.join(" "))], classes)
        }
    };
    let mut wins = 0;
    for _ in 0..SETS / 50 {
        let submit = |request| engine.submit_classify(request, &Cancel::new()).unwrap();
        let tickets: Vec<ClassifyTicket> = (0..50).map(|_| submit(random())).collect();
        for ticket in tickets {
            let outcome = ticket.wait().unwrap();
            let scores = probabilities(&outcome, 0);
            wins += usize::from(scores[0] > scores[1]);
        }
    }
    wins as f64 / SETS as f64
}

const WORDS: &str = "king poor ships sea city land house mountain river prophet priest people lamb shepherd gold silver \
    temple altar bread wine water fire sword war peace mercy truth wisdom law sin death life heaven earth day night";

/// Over 1,000 random sets of classes, a class wins no more often for beginning another one. Without the end it always does.
#[test]
fn a_class_is_not_preferred_for_beginning_another() {
    for name in ["demo", "demo-diffusion"] {
        let engine = Engine::load(options(&demo_dir().with_file_name(name))).unwrap();
        let never = JudgeOptions { label_end: LabelEnd::Never, ..JudgeOptions::default() };
        assert_eq!(short_wins(&engine, true, &never), 1.0, "{name}");
        let calibrated = JudgeOptions {
            label_end: LabelEnd::Always,
            calibrate: Some(JudgeOptions::CONTENT_FREE.to_owned()),
            ..JudgeOptions::default()
        };
        let [prefix, other] = [true, false].map(|is_prefix| short_wins(&engine, is_prefix, &calibrated));
        // Four standard errors of the difference of two shares of 500.
        assert!((prefix - other).abs() < 0.126, "{name}: {prefix} beside {other}");
        assert!((0.4..0.65).contains(&prefix), "{name}: {prefix}");
    }
}
