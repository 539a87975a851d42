//! `POST /tokenize`, `POST /detokenize`, `POST /decode`, `GET /tokenizer_info`.

use redline_api::error::ApiError;
use redline_api::tei::tokens as tei;
use redline_api::tei::tokens::{DecodeBody, TeiTextToken, TeiTokenizeBody, known_ids};
use redline_api::vllm::tokens::{
    DetokenizeAnswer, DetokenizeBody, TokenizeAnswer, TokenizeBody, TokenizerInfo,
};
use redline_engine::EngineError;

use crate::admission::{Place, placed};
use crate::answer::Answer;
use crate::error_format::ErrorFormat;
use crate::fault::Fault;
use crate::models::Purpose;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] = &[
    Route::post("/tokenize", tokenize, TOKENIZE).of_purpose(Purpose::Any),
    Route::post("/detokenize", detokenize, DETOKENIZE).of_purpose(Purpose::Any),
    Route::get("/tokenizer_info", tokenizer_info, INFO),
    Route {
        error_format: ErrorFormat::Tei,
        ..Route::post("/decode", decode, DECODE).of_purpose(Purpose::Any)
    },
];

const TOKENIZE: Operation = Operation {
    summary: "The tokens of a text.",
    request_bodies: &[schema_of::<TokenizeBody>, schema_of::<TeiTokenizeBody>],
    response: ResponseBody::Json(&[schema_of::<TokenizeAnswer>, schema_of::<Vec<Vec<TeiTextToken>>>]),
    further_statuses: &[],
};

const DETOKENIZE: Operation = Operation {
    summary: "The text of tokens.",
    request_bodies: &[schema_of::<DetokenizeBody>],
    response: ResponseBody::Json(&[schema_of::<DetokenizeAnswer>]),
    further_statuses: &[],
};

const DECODE: Operation = Operation {
    summary: "The texts of tokens, in the form of Text Embeddings Inference.",
    request_bodies: &[schema_of::<DecodeBody>],
    response: ResponseBody::Json(&[schema_of::<Vec<String>>]),
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
        if call.has(["inputs"]).await == [true] {
            return tokenize_inputs(&call).await;
        }
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
            let ids = known_ids(tokenizer, "tokens", &body.tokens)?;
            tokenizer.decode(&ids, false).map_err(ApiError::from)
        });
        let prompt = text.await?.1.map_err(|error| Fault::of(error, "tokens"))?;
        Answer::json(&DetokenizeAnswer { prompt })
    })
}

/// Bytes that a token of an answer with places takes: with its text, in memory and in JSON.
const TOKEN: usize = 160;

/// Answers `/tokenize` in the form of Text Embeddings Inference.
async fn tokenize_inputs(call: &Call) -> Result<Answer, Fault> {
    let body: TeiTokenizeBody = call.parse().await?;
    let special = body.add_special_tokens.unwrap_or(true);
    let task = call.app.model.engine.task_prompt(body.prompt_name.as_deref());
    let task = task.map_err(|error| Fault::of_engine(&error, "prompt_name"))?;
    let texts = tei::texts(body, task).map_err(|error| Fault::of(error, "inputs"))?;
    let bytes = texts.iter().map(|text| (text.len() + 2) * TOKEN).fold(0, usize::saturating_add);
    let place = Place::take(call, 1, "inputs")?.with_memory(bytes, "inputs")?;
    let (place, tokens) = placed(&call.app, place, move |app| {
        let none = || EngineError::NoTokenizer(app.model.name.clone());
        let tokenizer = app.model.engine.tokenizer().ok_or_else(none)?;
        let of = |text: &String| tei::tokens_of(tokenizer, text, special).map_err(EngineError::from);
        texts.iter().map(of).collect::<Result<Vec<_>, _>>()
    })
    .await?;
    let tokens = tokens.map_err(|error| Fault::of_engine(&error, "inputs"))?;
    let answer = Answer::json(&tokens);
    drop(place);
    answer
}

fn decode(call: Call) -> Handled {
    Box::pin(async move {
        let body: DecodeBody = call.parse().await?;
        let skip = body.skip_special_tokens.unwrap_or(true);
        let lists = tei::id_lists(body).map_err(|error| Fault::of(error, "ids"))?;
        let place = Place::take(&call, 1, "ids")?;
        let texts = placed(&call.app, place, move |app| {
            let none = || EngineError::NoTokenizer(app.model.name.clone());
            let tokenizer = app.model.engine.tokenizer().ok_or_else(none)?;
            let text = |ids: &Vec<i64>| Ok(tokenizer.decode(&known_ids(tokenizer, "ids", ids)?, skip)?);
            lists.iter().map(text).collect::<Result<Vec<String>, ApiError>>()
        });
        Answer::json(&texts.await?.1.map_err(|error| Fault::of(error, "ids"))?)
    })
}
