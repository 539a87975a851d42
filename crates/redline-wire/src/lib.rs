//! The JSON types of requests and answers.
//!
//! The types depend on serde and on the names of settings, not on the engine; callers convert between the two. Requests reject unknown keys
//! by name, and a value of the wrong type is reported with the expected type. Answers print every `f32` with the
//! fewest digits that parse back to the same `f32`, and cannot contain NaN or infinity.

#![forbid(unsafe_code)]

mod adapter;
mod cases;
mod chat;
mod cost;
mod diffuse;
mod embed;
mod fault;
mod finite;
mod foreign;
mod generate;
mod id;
mod input;
mod inspection;
mod judge;
pub mod limits;
mod named;
mod object;
mod parity;
mod parse;
mod perplexity;
mod plan;
mod profile;
mod receipt;
mod schema;
mod score;
mod shape;
mod tokenize;
mod trace;
mod usage;

pub use adapter::{AdapterName, AdapterNames};
pub use cases::{restrict_to_autoregressive, restrict_to_diffusion};
pub use chat::{ChatKeys, JsonText, TypedObject};
pub use cost::CostMeta;
pub use diffuse::{DiffuseLine, Diffusion, DiffusionChoice, DiffusionKeys, DiffusionMeta, DiffusionStep};
pub use embed::{EmbedLine, Embeddings};
pub use fault::LineFault;
pub use finite::Finite;
pub use foreign::adapters::{AdapterEntry, AdapterList, LoadAdapterBody, UnloadAdapterBody};
pub use foreign::canvas::{CanvasEvent, GenerationMeta};
pub use foreign::chat::{
    AssistantMessage, ChatCompletion, ChatCompletionBody, ChatCompletionChoice, ChatCompletionDelta,
    ChatCompletionEvent, ChatLogprobs, ChatPosition, ChatToken, MessageDelta,
};
pub use foreign::classify::{ClassifiedText, ClassifyAnswer, ClassifyBody};
pub use foreign::completion::{
    CompletionBody, CompletionDelta, CompletionEvent, LegacyLogprobs, NamedLogprobs, OpenAiChoice,
    OpenAiCompletion,
};
pub use foreign::decision::{
    DecisionAnswer, DecisionBody, DecisionChoiceBody, DecisionDiagnostics, DecisionInput,
    DecisionInputDetails, DecisionItem, DecisionItemKind, DecisionKind, DecisionLevelBody,
    DecisionOutputDetails, DecisionPart, DecisionPartKind, DecisionQuestionBody, DecisionRole, DecisionText,
    DecisionUsage, DecisionValue, DecisionsAnswer, LevelProbability, OptionProbability, PromptCacheOptions,
};
pub use foreign::embeddings::{
    EmbeddedText, EmbeddingsAnswer, EmbeddingsBody, EncodingFormat, WrittenVector,
};
pub use foreign::fault::{
    ErrorBody, ErrorDetail, LocationPart, TeiErrorBody, ValidationBody, ValidationDetail,
};
pub use foreign::models::{ModelEntry, ModelList};
pub use foreign::pairs::{PairScore, PairsAnswer, PairsBody};
pub use foreign::rerank::{DocumentBody, RankedDocument, RankedDocuments, RerankBody, TeiRank};
pub use foreign::responses::{
    IncompleteDetails, InputTokensDetails, OutputTokensDetails, ResponseEvent, ResponseEventContent,
    ResponseFailure, ResponseMessage, ResponseObject, ResponseTextForm, ResponseTextFormat, ResponseTextPart,
    ResponseUsage, ResponsesBody, ResponsesItem, ResponsesPart, ResponsesText, TextOrParts,
};
pub use foreign::score::{ScoreAnswer, ScoreBody};
pub use foreign::stream::{ServerEvent, StreamChunk, StreamEvent, StreamOptions};
pub use foreign::systemone::{
    Criteria, Entries, SystemOneAnswer, SystemOneAnswers, SystemOneBody, SystemOneKind, SystemOneQuestion,
    SystemOneUsage,
};
pub use foreign::tei::{
    EmbedBody, PredictBody, PredictInputs, PredictedClass, Predictions, TeiClasses, TeiEmbedding, TeiInfo,
    TeiModelType, TeiPooling, TruncationDirection,
};
pub use foreign::tokens::{DetokenizeAnswer, DetokenizeBody, TokenizeAnswer, TokenizeBody, TokenizerInfo};
pub use generate::{CompletionChoice, GenerateLine, GenerateMeta, LogprobEntry, TextCompletion, TokenEntry};
pub use id::{RequestId, request_id};
pub use input::{Items, LabelIds, LogitBias, Prompts, Strings, TextOrIds, TextOrLabelIds};
pub use inspection::{AdapterInspection, AdapterModelFit, AdapterTarget};
pub use judge::{ClassResult, Classification, ClassifyLine, JudgeMeta, RerankLine, RerankResult, Reranking};
pub use parity::{Parity, ParityChoice, ParityLine, ParityMeta, ParityTop};
pub use parse::{BadJson, in_json_terms, number_type, parse};
pub use perplexity::{Against, KlDivergence, Perplexity, PerplexityEstimate, PerplexityMeta, PerplexityRun};
pub use plan::{Manifest, ManifestCounters, ManifestEntry};
pub use profile::{TraceArgs, TraceDocument, TraceEvent};
pub use receipt::{
    ReceiptAdapterEntry, ReceiptAnswerEntry, ReceiptChoice, ReceiptDiffusion, ReceiptDigests,
    ReceiptDocument, ReceiptEmbedding, ReceiptGeneration, ReceiptLayerEntry, ReceiptModel, ReceiptPrompt,
    ReceiptSampling, ReceiptScoring, ReceiptSettings, ReceiptVerdict,
};
pub use redline_settings::{
    Algorithm, BlockCache, FinishReason, LabelEnd, LongLabels, Pooling, Tokenization, Truncate,
};
pub use schema::SchemaVersion;
pub use score::{ItemFault, MonteCarlo, ScoreLine, ScoreMeta, Scoring};
pub use tokenize::{TokenIds, TokenizeLine, Tokenized, TokenizedMeta};
pub use trace::TraceLine;
pub use usage::{PrefixCacheUse, PromptTokensDetails, Usage};
