//! Lane `forward`: a single pass over whole sequences that are not cached, which gives the prefill speed by batch and length.
//!
//! The sequences are token ids that begin differently, so that no prefix is shared, and the engine computes every token. There are two
//! arms. `last` evaluates the vocabulary after the last token of each sequence, which is what generation needs; it is a score request.
//! `all` evaluates the vocabulary after every token, as a forward pass does in PyTorch; it asks for the log-probabilities of the
//! prompt. With a model that fills masks, each sequence is a canvas whose last token is a mask. An encoder embeds the sequences by the
//! state of the last token, or by the mean of all.

use redline_engine::{
    Cancel, DiffuseRequest, EmbedRequest, Engine, GenerateRequest, Label, Mask, ModelInfo, Objective, Output,
    Pooling, Prompt, PromptLogprobs, ScoreRequest, Ticket,
};

use super::prelude::*;
use crate::bench::requests::{continuation, diffuse, ids, item_scores};
use crate::roofline::keys_seen;

pub(super) const LANE: Lane = Lane {
    asks: "How fast does the model read sequences it has not seen, by batch and length?",
    checks: "the probabilities in the first and the last sequence are those of each alone, bit for bit, in every run",
    against: "the machine's read bandwidth and arithmetic peak, read around every run",
    metrics: "+tokens_per_s tokens/s|-seconds s|ms_per_token ms|share share|limit",
    flags: &Flags::ALL,
    smoke: "batch=1,3 length=7 num-runs=2",
    standard: "batch=1,4 length=128,256",
    // The columns of the seed's forward benchmark, then ours.
    columns: &["batch_size=batch|seq_length=length|logits|num_runs=#seconds|\
                tokens_per_second=~tokens_per_s|~ms_per_token|mean_s=mean:seconds|std_s=std:seconds|\
                min_s=min:seconds|max_s=max:seconds|threads|format|@limit|share_of_limit=@share|\
                kernel_path=@kernels"],
    ..Lane::new("forward", 0.05, LaneFunction::Model(run))
};

flags! {
    struct Flags;
    batches: Vec<usize> = "batch", "N,..", "1,2,4,8", "Sequences";
    lengths: Vec<usize> = "length", "N,..", "128,256,512", "Tokens of each";
    arms: &'static [Wanted] = "logits", "WHICH", "both",
        "Arms: logits after the last token of each sequence (last), after every token, as PyTorch computes (all), or both",
        |flag, text| {
            const BOTH: &[Wanted] = &[Wanted::Last, Wanted::All];
            flag.choice(text, &[("last", &BOTH[..1]), ("all", &BOTH[1..]), ("both", BOTH)])
        };
    timed: usize = "num-runs", "N", "5", RUNS;
    warmups: usize = "warmup-runs", "N", "1", WARMUPS;
}

#[derive(Clone, Copy)]
struct Case {
    batch: usize,
    length: usize,
    logits: Wanted,
}

/// The tokens after which the vocabulary is evaluated.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wanted {
    /// The last of each sequence.
    Last,
    /// All.
    All,
}

fn run(bench: &Bench<'_>, model: &BenchModel<'_>, values: &Values) -> Result<()> {
    let Flags { batches, lengths, arms, timed, warmups } = Flags::of(values)?;
    within_batch("batch", &batches)?;
    let longest = lengths.iter().copied().max().unwrap_or(0);
    for &threads in &bench.threads {
        let trials = Trials::load(bench, model, Setup::new(threads), Runs { timed, warmups }, longest)?;
        let arms_of = |&length| measurable(bench, trials.info(), arms, length).map(|arms| (length, arms));
        for (length, arms) in lengths.iter().map(arms_of).collect::<Result<Vec<_>>>()? {
            for &batch in &batches {
                let row = |&logits: &Wanted| checked_row(&trials, Case { batch, length, logits });
                let rows = arms.iter().map(row).collect::<Result<Vec<Row>>>()?;
                bench.done(&format!("{threads} threads, batch {batch}, length {length}"), rows)?;
            }
        }
    }
    Ok(())
}

/// The arms that can be measured at this length. Log-probabilities of a prompt come with a new token, for which the context must have
/// room.
fn measurable(bench: &Bench<'_>, info: &ModelInfo, arms: &[Wanted], length: usize) -> Result<Vec<Wanted>> {
    if info.objective != Objective::NEXT || length < info.context || !arms.contains(&Wanted::All) {
        return Ok(arms.to_vec());
    }
    let fact = format!(
        "logits after every token of {length} need a context of {} tokens, but that of the model is {}",
        length + 1,
        info.context
    );
    require(arms.len() > 1, || fact.clone())?;
    (bench.note)(&format!("left out: {fact}"));
    Ok(vec![Wanted::Last])
}

fn checked_row(trials: &Trials<'_>, case: Case) -> Result<Row> {
    let (info, engine) = (trials.info(), &trials.engine);
    let sequences: Vec<Vec<i64>> = (0..case.batch).map(|index| ids(case.length, index, info.vocab)).collect();
    let pass = |sequences: &[Vec<i64>]| match (info.objective.output, info.objective.mask, case.logits) {
        (Output::States, _, states) => texts(engine, sequences, states),
        (Output::Tokens, Mask::Bidirectional, logits) => canvases(trials.bench, engine, sequences, logits),
        (Output::Tokens, Mask::Causal, Wanted::Last) => pass(engine, sequences),
        (Output::Tokens, Mask::Causal, Wanted::All) => prompts(trials.bench, engine, sequences),
    };
    let (_, expected) = pass(&sequences)?;
    for index in [0, case.batch - 1] {
        let (_, alone) = pass(&sequences[index..=index])?;
        same(&alone, &expected[index..=index])?;
    }
    let (warmup, passes) = trials.run(|| pass(&sequences))?;
    for pass in &passes {
        same(&expected, &pass.value.1)?;
    }
    Ok(row(info, case, &passes)?.digest(digest::of_ids(&expected.concat())).warmed(warmup))
}

/// Seconds of a pass, and the bits of probabilities in each sequence.
type Passed = (f64, Vec<Vec<u32>>);

/// Runs canvases whose last token is a mask. The bits are those of the confidence for that token.
fn canvases(bench: &Bench<'_>, engine: &Engine, sequences: &[Vec<i64>], logits: Wanted) -> Result<Passed> {
    let mask = engine.info().mask_id.map(i64::from);
    // Replace ids that happen to be the mask, so that each canvas has only one.
    let known = |ids: &Vec<i64>| ids[1..].iter().map(|&id| if Some(id) == mask { 0 } else { id }).collect();
    let request = |ids| DiffuseRequest {
        steps: Some(1),
        ignore_eos: true,
        savings: logits == Wanted::Last,
        ..DiffuseRequest::new(Prompt::Ids(known(ids)), 1)
    };
    let requests: Vec<DiffuseRequest> = sequences.iter().map(request).collect();
    let (outcomes, ns) = bench.clock.time(|| diffuse(engine, requests));
    let outcomes = outcomes?;
    let filled = outcomes.iter().map(|outcome| outcome.passes.iter().flat_map(|pass| &pass.filled));
    let bits = filled.map(|filled| filled.map(|filled| (filled.confidence as f32).to_bits()).collect());
    Ok((ns as f64 * 1e-9, bits.collect()))
}

/// Runs whole sequences together and evaluates the vocabulary after every token. The bits are those of the log-probability of each
/// token but the first, and of one more after the last.
fn prompts(bench: &Bench<'_>, engine: &Engine, sequences: &[Vec<i64>]) -> Result<Passed> {
    let request = |ids: &Vec<i64>| GenerateRequest {
        logprobs: Some(0),
        prompt_logprobs: Some(PromptLogprobs { from: 1, top: 0 }),
        ..continuation(ids.clone(), 1)
    };
    let requests: Vec<GenerateRequest> = sequences.iter().map(request).collect();
    let cancel = Cancel::new();
    let run = || {
        let tickets = requests.into_iter().map(|request| engine.submit_generate(request, &cancel));
        let tickets = tickets.collect::<Result<Vec<_>, _>>()?;
        tickets.into_iter().map(Ticket::wait).collect::<Result<Vec<_>, _>>()
    };
    let (outcomes, ns) = bench.clock.time(run);
    let mut bits = Vec::new();
    for (outcome, sequence) in outcomes?.into_iter().zip(sequences) {
        let prompt = outcome.prompt_logprobs.unwrap_or_default().into_iter().flatten();
        let positions = prompt.chain(outcome.logprobs.unwrap_or_default());
        let of_sequence: Vec<u32> = positions.map(|position| position.chosen.logprob.to_bits()).collect();
        let (some, all) = (of_sequence.len(), sequence.len());
        verify(some == all, || format!("{some} log-probabilities of {all} tokens"))?;
        bits.push(of_sequence);
    }
    Ok((ns as f64 * 1e-9, bits))
}

/// Runs whole sequences and evaluates the vocabulary after each. The bits are those of a log-probability.
fn pass(engine: &Engine, sequences: &[Vec<i64>]) -> Result<Passed> {
    let (query, labels) = (Prompt::Ids(Vec::new()), vec![Label::Ids(vec![0])]);
    let items = sequences.iter().cloned().map(Prompt::Ids).collect();
    let outcome = engine.score(ScoreRequest::new(query, items, labels))?;
    let (some, all) = (outcome.cost.computed_tokens, outcome.cost.usage.prompt_tokens);
    verify(some == all, || format!("the pass ran {some} of {all} tokens"))?;
    let bits = item_scores(&outcome)?.into_iter().map(|item| vec![item.logprobs[0].to_bits()]);
    Ok((outcome.cost.compute_s, bits.collect()))
}

/// Embeds whole sequences. The bits are those of the embeddings.
fn texts(engine: &Engine, sequences: &[Vec<i64>], states: Wanted) -> Result<Passed> {
    let texts = sequences.iter().cloned().map(Prompt::Ids).collect();
    let pooling = match states {
        Wanted::Last => Pooling::Last,
        Wanted::All => Pooling::Mean,
    };
    let outcome = engine.embed(EmbedRequest { pooling: Some(pooling), ..EmbedRequest::new(texts) })?;
    let bits = outcome.texts.iter().map(|text| text.values.iter().map(|value| value.to_bits()).collect());
    Ok((outcome.cost.compute_s, bits.collect()))
}

fn same(expected: &[Vec<u32>], now: &[Vec<u32>]) -> Result<()> {
    let values = |bits: &[Vec<u32>]| bits.concat().into_iter().map(f32::from_bits).collect::<Vec<_>>();
    verify(expected == now, || {
        format!("values {:?} alone or before, {:?} now", values(expected), values(now))
    })
}

/// The minimum work of a pass: read the weights once, multiply every token with the weights and with the keys it attends
/// to, and multiply the tokens whose logits are wanted with the vocabulary.
fn work(info: &ModelInfo, case: Case) -> Work {
    let (batch, length) = (case.batch as f64, case.length as f64);
    let keys = match info.objective.mask {
        Mask::Causal => keys_seen(0, case.length),
        Mask::Bidirectional => length * length,
    };
    let outputs = match case.logits {
        Wanted::Last => batch,
        Wanted::All => batch * length,
    };
    Work::of_pass(info, batch * length, batch * keys, outputs)
}

fn row(info: &ModelInfo, case: Case, passes: &[Held<Passed>]) -> Result<Row> {
    let tokens = (case.batch * case.length) as f64;
    let seconds = |pass: &Held<Passed>| pass.value.0;
    let (all, logits) = match case.logits {
        Wanted::Last => ("", "last"),
        Wanted::All => ("/all", "all"),
    };
    Row::of_model(format!("forward/b{}/l{}{all}/t{}", case.batch, case.length, info.threads), info)
        .param("batch", case.batch)
        .param("length", case.length)
        .param("logits", logits)
        .measured(LANE.metrics, passes)
        .each("tokens_per_s", |pass| tokens / seconds(pass))?
        .each("seconds", seconds)?
        .each("ms_per_token", |pass| seconds(pass) * 1e3 / tokens)?
        .held(info.format.arithmetic(), work(info, case), seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::tests::{bench, info, timed};
    use redline_system::Clock;

    const CASE: Case = Case { batch: 2, length: 3, logits: Wanted::Last };

    #[test]
    fn a_pass_reads_weights_once_and_multiplies_every_token() {
        // Per sequence: 3 tokens, 1 + 2 + 3 keys, one row of logits.
        let expected =
            Work { bytes: 1000.0, operations: 2.0 * (3.0 * 100.0 + 50.0), attention: 2.0 * 6.0 * 3.0 };
        assert_eq!(work(&info(), CASE), expected);
        // Three rows of logits per sequence.
        let all = Case { logits: Wanted::All, ..CASE };
        assert_eq!(work(&info(), all).operations, 2.0 * (3.0 * 100.0 + 3.0 * 50.0));
    }

    #[test]
    fn a_row_tells_rate_and_share() {
        let passes = [timed((2.0, vec![]))];
        assert_eq!(
            row(&info(), Case { logits: Wanted::All, ..CASE }, &passes).unwrap().case,
            "forward/b2/l3/all/t1"
        );
        let row = row(&info(), CASE, &passes).unwrap();
        assert_eq!(row.case, "forward/b2/l3/t1");
        let median = |name: &str| row.samples_of(name).unwrap().median().unwrap();
        assert_eq!((median("tokens_per_s"), median("seconds")), (3.0, 2.0));
        assert!((median("ms_per_token") - 1000.0 / 3.0).abs() < 1e-9);
        // The bound is 700 operations at 1000 per second plus 36 at 500, not 1000 bytes at 10000.
        assert_eq!(row.limit.as_deref(), Some("f32_peak"));
        assert!((row.share_of_limit.unwrap() - 0.772 / 2.0).abs() < 1e-9);
    }

    #[test]
    fn all_logits_of_a_sequence_as_long_as_the_context_are_left_out() {
        let (clock, both) = (Clock::scripted(|| 0), [Wanted::Last, Wanted::All]);
        let bench = bench(&clock);
        let of = |info: &ModelInfo, arms: &[Wanted], length| measurable(&bench, info, arms, length);
        assert_eq!(of(&info(), &both, 99).unwrap(), both);
        assert_eq!(of(&info(), &both, 100).unwrap(), [Wanted::Last]);
        assert_eq!(of(&info(), &both[..1], 100).unwrap(), [Wanted::Last]);
        let Err(LaneError::Usage(fact)) = of(&info(), &both[1..], 100) else { panic!("accepted") };
        assert!(fact.contains("need a context of 101 tokens"), "{fact}");
        let masked = ModelInfo { objective: Objective::MASKED, ..info() };
        assert_eq!(of(&masked, &both, 100).unwrap(), both);
    }

    #[test]
    fn different_outputs_are_incorrect() {
        assert!(same(&[vec![1, 2]], &[vec![1, 2]]).is_ok());
        assert!(matches!(same(&[vec![1, 3]], &[vec![1, 2]]), Err(LaneError::Incorrect(_))));
    }

    #[test]
    fn every_token_of_a_canvas_sees_all_of_it() {
        let masked = ModelInfo { objective: Objective::MASKED, ..info() };
        let expected = Work { attention: 2.0 * 3.0 * 3.0 * 3.0, ..work(&info(), CASE) };
        assert_eq!(work(&masked, CASE), expected);
    }
}
