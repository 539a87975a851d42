//! Models that predict the next token.

use redline_engine::{Continuation, Event, GenerateOutcome, GenerateRequest, GeneratedPiece};

use crate::generation::mode::{
    GeneratedChoice, GenerationEvent, GenerationOutcome, GenerationPiece, GenerationSeconds, PieceTokens,
    PromptEnd, SharedFields,
};

pub(crate) fn shared(request: &mut GenerateRequest) -> SharedFields<'_> {
    SharedFields {
        prompt: &mut request.prompt,
        stop_ids: &mut request.stop_ids,
        ignore_eos: request.ignore_eos,
    }
}

pub(crate) fn event(of: Event<GenerateOutcome, GeneratedPiece>) -> GenerationEvent {
    match of {
        Event::Progress(piece) => Event::Progress(GenerationPiece {
            choice: piece.continuation,
            new_tokens: usize::from(piece.token_id.is_some()),
            tokens: piece.token_id.map_or(PieceTokens::None, PieceTokens::One),
            text: piece.text,
            logprobs: piece.logprobs,
            finish_reason: piece.finish_reason,
            prompt: piece.prompt,
            canvas: None,
        }),
        Event::Done(ended) => Event::Done(ended.map(outcome)),
    }
}

pub(crate) fn outcome(mut of: GenerateOutcome) -> GenerationOutcome {
    let choice = |one: Continuation| GeneratedChoice {
        text: one.text,
        token_ids: one.token_ids,
        finish_reason: one.finish_reason,
        logprobs: one.logprobs,
    };
    GenerationOutcome {
        end: PromptEnd {
            counts: of.usage,
            cancelled: of.cancelled,
            meta: None,
            seconds: GenerationSeconds {
                queue: of.queue_s,
                prompt: (of.prefill_s - of.queue_s).max(0.0),
                text: of.decode_s,
            },
        },
        choices: of.take_continuations().into_iter().map(choice).collect(),
        prompt_token_ids: of.prompt_token_ids,
        prompt_logprobs: of.prompt_logprobs,
        receipt: of.receipt,
    }
}
