//! The architectures: one file each, one line in [`ALL`] for each form.

use redline_weights::ConfigFile;

use crate::ModelError;
use crate::gguf::adapted;
use crate::gguf::dialect::GgufDialect;
use crate::spec::DecoderSpec;

pub mod bamba;
pub mod bert;
pub mod cohere;
pub mod colbert;
pub mod deberta_v2;
pub mod distilbert;
pub mod dream;
pub mod electra;
pub mod ernie4_5;
pub mod exaone4;
pub mod falcon_h1;
pub mod gemma2;
pub mod gemma3;
pub mod gemma4;
pub mod glm;
pub mod gpt2;
pub mod gpt_oss;
pub mod granite;
pub mod granite_hybrid;
pub mod gte;
pub mod hunyuan;
pub mod jina_bert;
pub mod jina_embeddings_v3;
pub mod lfm2;
pub mod lfm2_moe;
pub mod llada;
pub mod llama;
pub mod ministral3;
pub mod mistral;
pub mod mixtral;
pub mod modernbert;
pub mod mpnet;
pub mod nemotron_h;
pub mod nomic_bert;
pub mod olmo2;
pub mod olmo3;
pub mod phi3;
pub mod qwen2;
pub mod qwen2_moe;
pub mod qwen3;
pub mod qwen3_5;
pub mod qwen3_moe;
pub mod roberta;
pub mod seed_oss;
pub mod smollm3;
pub mod xlm_roberta;

/// An architecture as the loader sees it.
#[derive(Clone, Copy, Debug)]
pub struct Architecture {
    /// The entry of `architectures` in `config.json`.
    pub name: &'static str,
    /// `model_type` in `config.json`, used if `architectures` is absent.
    pub model_type: &'static str,
    /// Makes a decoder specification from a configuration.
    pub spec: fn(&ConfigFile) -> Result<DecoderSpec, ModelError>,
    /// How GGUF files of the architecture are made, if they have a name of their own for it.
    pub gguf: Option<GgufDialect>,
}

/// All architectures.
pub const ALL: &[Architecture] = &[
    bamba::ARCHITECTURE,
    bert::MODEL,
    bert::MASKED,
    bert::CLASSIFIER,
    cohere::ARCHITECTURE,
    cohere::COHERE2,
    colbert::MODEL,
    deberta_v2::MODEL,
    deberta_v2::CLASSIFIER,
    distilbert::MODEL,
    distilbert::MASKED,
    distilbert::CLASSIFIER,
    dream::ARCHITECTURE,
    electra::MODEL,
    electra::PRETRAINED,
    electra::CLASSIFIER,
    ernie4_5::ARCHITECTURE,
    exaone4::ARCHITECTURE,
    falcon_h1::ARCHITECTURE,
    gemma2::ARCHITECTURE,
    gemma2::CLASSIFIER,
    gemma3::ARCHITECTURE,
    gemma3::CLASSIFIER,
    gemma3::ENCODER,
    gemma4::ARCHITECTURE,
    gemma4::WITH_IMAGES,
    glm::ARCHITECTURE,
    glm::GLM4,
    gpt2::ARCHITECTURE,
    gpt_oss::ARCHITECTURE,
    granite::ARCHITECTURE,
    granite_hybrid::ARCHITECTURE,
    gte::MODEL,
    gte::MASKED,
    gte::CLASSIFIER,
    gte::NEW_MODEL,
    gte::NEW_TOKENS,
    gte::NEW_MASKED,
    gte::NEW_CLASSIFIER,
    hunyuan::ARCHITECTURE,
    jina_bert::MODEL,
    jina_bert::MASKED,
    jina_embeddings_v3::MODEL,
    lfm2::ARCHITECTURE,
    lfm2::ENCODER,
    lfm2_moe::ARCHITECTURE,
    llada::ARCHITECTURE,
    llama::ARCHITECTURE,
    llama::CLASSIFIER,
    ministral3::ARCHITECTURE,
    mistral::ARCHITECTURE,
    mistral::CLASSIFIER,
    mixtral::ARCHITECTURE,
    modernbert::MODEL,
    modernbert::MASKED,
    modernbert::CLASSIFIER,
    mpnet::MODEL,
    mpnet::MASKED,
    mpnet::CLASSIFIER,
    nemotron_h::ARCHITECTURE,
    nomic_bert::MODEL,
    olmo2::ARCHITECTURE,
    olmo3::ARCHITECTURE,
    phi3::ARCHITECTURE,
    qwen2::ARCHITECTURE,
    qwen2::CLASSIFIER,
    qwen2_moe::ARCHITECTURE,
    qwen3::ARCHITECTURE,
    qwen3::CLASSIFIER,
    qwen3_5::ARCHITECTURE,
    qwen3_5::WITH_IMAGES,
    qwen3_5::EXPERTS,
    qwen3_5::EXPERTS_WITH_IMAGES,
    qwen3_5::NEXT,
    qwen3_moe::ARCHITECTURE,
    roberta::MODEL,
    roberta::MASKED,
    roberta::CLASSIFIER,
    seed_oss::ARCHITECTURE,
    smollm3::ARCHITECTURE,
    xlm_roberta::MODEL,
    xlm_roberta::MASKED,
    xlm_roberta::CLASSIFIER,
];

/// The names, for messages.
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|a| a.name).collect()
}

/// The architecture that a configuration names, and the decoder that it describes.
pub fn specification(config: &ConfigFile) -> Result<(&'static Architecture, DecoderSpec), ModelError> {
    let architecture = find(config)?;
    let mut spec = (architecture.spec)(config)?;
    adapted::adapt(config, &mut spec)?;
    Ok((architecture, spec))
}

/// The architecture that a configuration names.
pub fn find(config: &ConfigFile) -> Result<&'static Architecture, ModelError> {
    let named = config.strings("architectures")?;
    let (name, found) = match named.first() {
        Some(name) => (name.clone(), ALL.iter().find(|a| a.name == name)),
        None => {
            let model_type = config.str("model_type")?;
            (model_type.to_owned(), ALL.iter().find(|a| a.model_type == model_type))
        }
    };
    found.ok_or_else(|| ModelError::UnknownArchitecture {
        name,
        file: config.file().display().to_string(),
        known: names(),
    })
}
