//! `POST /tokenize`, `POST /detokenize`.

use redline_api::error::ApiError;
use redline_api::vllm::tokens::{
    DetokenizeAnswer, DetokenizeBody, TokenizeAnswer, TokenizeBody, TokenizerInfo,
};
use redline_engine::EngineError;

use crate::admission::{Place, placed};
use crate::answer::Answer;
use crate::fault::Fault;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] = &[
    Route::post("/tokenize", tokenize, TOKENIZE),
    Route::post("/detokenize", detokenize, DETOKENIZE),
    Route::get("/tokenizer_info", tokenizer_info, INFO),
];

const TOKENIZE: Operation = Operation {
    summary: "The tokens of a text.",
    request_bodies: &[schema_of::<TokenizeBody>],
    response: ResponseBody::Json(&[schema_of::<TokenizeAnswer>]),
    further_statuses: &[],
};

const DETOKENIZE: Operation = Operation {
    summary: "The text of tokens.",
    request_bodies: &[schema_of::<DetokenizeBody>],
    response: ResponseBody::Json(&[schema_of::<DetokenizeAnswer>]),
    further_statuses: &[],
};

const INFO: Operation = Operation {
    summary: "What clients need to know of the tokenizer.",
    request_bodies: &[],
    response: ResponseBody::Json(&[schema_of::<TokenizerInfo>]),
    further_statuses: &[501],
};

fn tokenize(call: Call) -> Handled {
    Box::pin(async move {
        let body: TokenizeBody = call.parse().await?;
        call.head_with_adapters("tokens", body.model.as_deref(), None)?;
        let place = Place::take(&call, 1, "prompt")?;
        let answer = placed(&call.app, place, move |app| {
            let engine = &app.model.engine;
            let none = || EngineError::NoTokenizer(app.model.name.clone());
            let tokenizer = engine.tokenizer().ok_or_else(none)?;
            let tokens = engine.encode(&body.prompt, body.add_special_tokens.unwrap_or(true))?;
            let written = |&id: &u32| tokenizer.token(id).unwrap_or_default();
            let token_strs =
                body.return_token_strs.unwrap_or(false).then(|| tokens.iter().map(written).collect());
            let (count, max_model_len) = (tokens.len(), engine.info().context);
            Ok::<_, EngineError>(TokenizeAnswer { tokens, count, max_model_len, token_strs })
        });
        let answer = answer.await?.1.map_err(|error| Fault::of_engine(&error, "prompt"))?;
        Answer::json(&answer)
    })
}

fn tokenizer_info(call: Call) -> Handled {
    Box::pin(async move {
        let (app, engine) = (&call.app, &call.app.model.engine);
        let none = || EngineError::NoTokenizer(app.model.name.clone());
        let tokenizer = engine.tokenizer().ok_or_else(|| Fault::of_engine(&none(), "model"))?;
        let chat = app.config.chat.as_ref();
        let named = |name: &str| chat.and_then(|chat| chat.special_token(name)).map(str::to_owned);
        let first = |ids: &[u32]| ids.first().and_then(|&id| tokenizer.token(id));
        Answer::json(&TokenizerInfo {
            bos_token: named("bos_token").or_else(|| first(tokenizer.prefix_ids())),
            eos_token: named("eos_token").or_else(|| first(engine.end_ids())),
            pad_token: named("pad_token"),
            unk_token: named("unk_token"),
            add_bos_token: tokenizer.adds_bos(),
            chat_template: chat.and_then(|chat| chat.source()).map(str::to_owned),
            vocab_size: tokenizer.vocab_size(),
            model_max_length: engine.info().context,
        })
    })
}

fn detokenize(call: Call) -> Handled {
    Box::pin(async move {
        let body: DetokenizeBody = call.parse().await?;
        call.head_with_adapters("tokens", body.model.as_deref(), None)?;
        let place = Place::take(&call, 1, "tokens")?;
        let text = placed(&call.app, place, move |app| {
            let none = || EngineError::NoTokenizer(app.model.name.clone());
            let tokenizer = app.model.engine.tokenizer().ok_or_else(none)?;
            let mut ids = Vec::with_capacity(body.tokens.len());
            for (at, &id) in body.tokens.iter().enumerate() {
                let known = u32::try_from(id).ok().filter(|&id| tokenizer.token(id).is_some());
                ids.push(known.ok_or_else(|| ApiError::Field {
                    param: format!("tokens[{at}]"),
                    fact: format!("{id} is no token; there are {}", tokenizer.vocab_size()),
                    hint: None,
                })?);
            }
            tokenizer.decode(&ids, false).map_err(ApiError::from)
        });
        let prompt = text.await?.1.map_err(|error| Fault::of(error, "tokens"))?;
        Answer::json(&DetokenizeAnswer { prompt })
    })
}
