//! Models that fill masks.

use redline_engine::{
    DiffuseOutcome, DiffuseRequest, DiffusionProgress, Event, FinishReason, ReportedPrompt, TokenCounts,
};

use crate::generation::mode::{
    CanvasPiece, GeneratedChoice, GenerationEvent, GenerationMeta, GenerationOutcome, GenerationPiece,
    GenerationSeconds, PieceTokens, PromptEnd, SharedFields,
};
use crate::jsonl::diffuse::filled;

pub(crate) fn shared(request: &mut DiffuseRequest) -> SharedFields<'_> {
    SharedFields {
        prompt: &mut request.prompt,
        stop_ids: &mut request.stop_ids,
        ignore_eos: request.ignore_eos,
    }
}

/// Reports an event of a canvas whose prompt is followed by this number of masks. The outcome comes after a piece with the reason of
/// the end.
pub(crate) fn events(
    of: Event<DiffuseOutcome, DiffusionProgress>,
    new_tokens: usize,
    report: &mut impl FnMut(GenerationEvent),
) {
    match of {
        Event::Progress(progress) => report(Event::Progress(piece(progress, new_tokens))),
        Event::Done(ended) => {
            if let Ok(outcome) = &ended {
                report(Event::Progress(GenerationPiece {
                    tokens: PieceTokens::All(outcome.token_ids.clone()),
                    finish_reason: Some(outcome.finish_reason),
                    ..GenerationPiece::default()
                }));
            }
            report(Event::Done(ended.map(self::outcome)));
        }
    }
}

fn piece(of: DiffusionProgress, new_tokens: usize) -> GenerationPiece {
    let plain = GenerationPiece::default();
    match of {
        DiffusionProgress::Canvas(tokens) => {
            let prompt = tokens.iter().take(tokens.len().saturating_sub(new_tokens));
            let prompt =
                ReportedPrompt { token_ids: prompt.copied().collect(), logprobs: None, cached_tokens: 0 };
            GenerationPiece {
                prompt: Some(Box::new(prompt)),
                canvas: Some(CanvasPiece::Begun(tokens)),
                ..plain
            }
        }
        DiffusionProgress::Pass(pass) => GenerationPiece {
            new_tokens: pass.filled.len(),
            canvas: Some(CanvasPiece::Passed(pass)),
            ..plain
        },
        DiffusionProgress::Text(text) => GenerationPiece { text, ..plain },
    }
}

pub(crate) fn outcome(of: DiffuseOutcome) -> GenerationOutcome {
    let counts =
        TokenCounts { prompt_tokens: of.prompt_tokens, completion_tokens: filled(&of), cached_tokens: 0 };
    let meta = GenerationMeta {
        algorithm: of.algorithm,
        passes: of.passes.len(),
        computed_tokens: of.computed_tokens,
        prompt_masks: of.prompt_masks,
    };
    GenerationOutcome {
        end: PromptEnd {
            counts,
            cancelled: of.finish_reason == FinishReason::Cancelled,
            meta: Some(meta),
            seconds: GenerationSeconds { queue: of.queue_s, prompt: 0.0, text: of.compute_s },
        },
        prompt_token_ids: Vec::new(),
        prompt_logprobs: None,
        receipt: of.receipt,
        choices: vec![GeneratedChoice {
            text: of.text,
            token_ids: of.token_ids,
            finish_reason: of.finish_reason,
            logprobs: None,
        }],
    }
}
