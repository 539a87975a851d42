//! Nemotron-H (NVIDIA 2025) and Nemotron 3: every layer has one part only, which is Mamba-2, attention that is not rotated, a feed-forward
//! part or a mixture of experts.

use redline_kernels::op::activation::ActivationFunction;
use redline_weights::ConfigFile;

use super::Architecture;
use crate::ModelError;
use crate::experts;
use crate::family::{self, Heads, positive};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::mamba2::{self, Mamba2Keys, Mamba2Names};
use crate::spec::{
    AttentionSpec, DecoderSpec, ExpertsSpec, FfnSpec, HEAD, LayerSpec, LinearSpec, MixerSpec, MlpSpec,
    NormKind, NormSpec, NormsSpec, Orientation, Residual, Role, SharedExpertSpec, TensorSpec, WeightingSpec,
};

/// In `config.json`: `NemotronHForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "NemotronHForCausalLM", model_type: "nemotron_h", spec, gguf: Some(GGUF) };

const GGUF: GgufDialect = GgufDialect {
    pairs_rows: true,
    experts: Some("nemotron_h_moe"),
    mlp_norm: "attn_norm",
    ..GgufDialect::new("nemotron_h", gguf)
};

const KEYS: &[&str] = &[
    // The code that published files name is that of transformers.
    "auto_map",
    "mlp_bias",
    "use_bias",
    "moe_intermediate_size",
    "n_routed_experts",
    "n_shared_experts",
    "routed_scaling_factor",
];
/// The epsilon of the norms if its key is absent.
const DEFAULT_EPS: f32 = 1e-5;
/// Added to the sum of the weights of a row's experts.
const EPSILON: f32 = 1e-20;

/// The only part of a layer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Recurrence,
    Attention,
    FeedForward,
    Experts,
}

/// Their names in the list of transformers 5, in that of published files, and in the text of published files.
const PARTS: [(Part, [&str; 3]); 4] = [
    (Part::Recurrence, ["linear_attention", "mamba", "M"]),
    (Part::Attention, ["full_attention", "attention", "*"]),
    (Part::FeedForward, ["mlp", "mlp", "-"]),
    (Part::Experts, ["moe", "moe", "E"]),
];

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, KEYS)?;
    // In the reference these default to the values of one model.
    family::require(config, &["n_groups"])?;
    for (key, only) in [("mlp_hidden_act", "relu2"), ("mamba_hidden_act", "silu")] {
        if config.opt_str(key)?.is_some_and(|name| name != only) {
            return Err(config.refuse(key, format!("`{only}`")).into());
        }
    }
    let parts = parts(config)?;
    let hidden = positive(config, "hidden_size")?;
    let model = Model::read(config, hidden)?;
    let heads = (positive(config, "mamba_num_heads")?, positive(config, "mamba_head_dim")?);
    let recurrence = Mamba2Keys::with_names(config, hidden, heads, Mamba2Names::NEMOTRON, DEFAULT_EPS)?;
    let layer = |(i, part): (usize, &Part)| {
        let norms = NormsSpec::before(model.norm(format!("layers.{i}.norm")));
        let (mixer, mlp) = match part {
            Part::Recurrence => (MixerSpec::Mamba2(recurrence.layer(i)), FfnSpec::None),
            Part::Attention => (MixerSpec::Attention(model.attention(i)), FfnSpec::None),
            Part::FeedForward => {
                let inner = positive(config, "intermediate_size")?;
                let mlp = model.mlp(&format!("layers.{i}.mixer"), inner, model.mlp_bias);
                (MixerSpec::None, FfnSpec::Dense(mlp))
            }
            Part::Experts => {
                let experts = model.experts(i, &Mixture::read(config)?);
                (MixerSpec::None, FfnSpec::Experts(Box::new(experts)))
            }
        };
        let (mixer_norms, mlp_norms) = match mixer {
            MixerSpec::None => (NormsSpec::default(), norms),
            _ => (norms, NormsSpec::default()),
        };
        Ok(LayerSpec { mixer, mixer_norms, mlp, mlp_norms, residual: Residual::default(), end: None })
    };
    Ok(DecoderSpec {
        prefix: "backbone.",
        hidden,
        vocab: positive(config, "vocab_size")?,
        context: positive(config, "max_position_embeddings")?,
        embedding: "embeddings".into(),
        layers: parts.iter().enumerate().map(layer).collect::<Result<_, ModelError>>()?,
        final_norm: Some(model.norm("norm_f".into())),
        tied: config.bool_or("tie_word_embeddings", false)?,
        outside: &[HEAD],
        // Layers that predict further tokens.
        ignored: &["mtp."],
        ..DecoderSpec::default()
    })
}

/// The part of each layer, from a list or from a text with a letter for each.
fn parts(config: &ConfigFile) -> Result<Vec<Part>, ModelError> {
    const LIST: &str = "layers_block_type";
    const TEXT: &str = "hybrid_override_pattern";
    let mut listed = config.strings(LIST)?;
    let key = if listed.is_empty() { TEXT } else { LIST };
    if listed.is_empty() {
        listed = config.str(TEXT)?.chars().map(String::from).collect();
    }
    let names = || {
        let names = PARTS.iter().flat_map(|(_, names)| if key == TEXT { &names[2..] } else { &names[..2] });
        names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    let part = |name: &String| {
        let known = PARTS.iter().find(|(_, names)| names.contains(&name.as_str()));
        Ok(known.ok_or_else(|| config.refuse(key, names()))?.0)
    };
    let parts: Vec<Part> = listed.iter().map(part).collect::<Result<_, ModelError>>()?;
    if !parts.iter().any(|part| matches!(part, Part::Recurrence | Part::Attention)) {
        return Err(config.refuse(key, "a layer of Mamba-2 or attention").into());
    }
    let count = config.opt_usize("num_hidden_layers")?.unwrap_or(parts.len());
    if count != parts.len() {
        let fact = format!("`{key}` has {} entries for {count} layers", parts.len());
        return Err(family::config_error(config, fact));
    }
    family::check_layers(config, key, count)?;
    Ok(parts)
}

/// What all layers have in common.
struct Model {
    hidden: usize,
    eps: f32,
    heads: Heads,
    mlp_bias: bool,
}

/// What all mixtures of experts have in common.
struct Mixture {
    /// Number of experts, and of those of a row.
    counts: (usize, usize),
    inner: usize,
    shared_inner: usize,
    /// Added to the sum of the weights of a row, if they are divided by it.
    epsilon: Option<f32>,
    scale: f32,
}

impl Mixture {
    fn read(config: &ConfigFile) -> Result<Self, ModelError> {
        for (key, only) in [("n_shared_experts", 1), ("n_group", 1), ("topk_group", 1)] {
            if config.usize_or(key, only)? != only {
                return Err(config.refuse(key, format!("`{only}`")).into());
            }
        }
        if config.opt_usize("moe_latent_size")?.is_some() {
            return Err(config.refuse("moe_latent_size", "`null`").into());
        }
        Ok(Self {
            counts: experts::counts(config, &["n_routed_experts"])?,
            inner: positive(config, "moe_intermediate_size")?,
            shared_inner: positive(config, "moe_shared_expert_intermediate_size")?,
            epsilon: config.bool_or("norm_topk_prob", true)?.then_some(EPSILON),
            scale: config.f32_or("routed_scaling_factor", 1.0)?,
        })
    }
}

impl Model {
    fn read(config: &ConfigFile, hidden: usize) -> Result<Self, ModelError> {
        const EPS: &str = "layer_norm_epsilon";
        let eps = family::check_eps(config, EPS, config.f32_or(EPS, DEFAULT_EPS)?)?;
        let dim = match config.opt_usize("head_dim")? {
            Some(dim) => dim,
            // The key of the first configurations.
            None => config.usize("attention_head_dim")?,
        };
        let (heads, mlp_bias) = (Heads::of_width(config, dim)?, config.bool_or("mlp_bias", false)?);
        Ok(Self { hidden, eps, heads, mlp_bias })
    }

    fn norm(&self, name: String) -> NormSpec {
        NormSpec { name, width: self.hidden, eps: self.eps, kind: NormKind::Rms }
    }

    fn attention(&self, layer: usize) -> AttentionSpec {
        let name = |part: &str| format!("layers.{layer}.mixer.{part}");
        let Heads { query, kv, dim } = self.heads;
        let parts = [("q_proj", query), ("k_proj", kv), ("v_proj", kv)];
        let parts = parts.map(|(part, heads)| (name(part), heads * dim, false));
        let qkv = LinearSpec::of(Orientation::OutIn, self.hidden, parts);
        AttentionSpec::new(query, kv, dim, qkv, LinearSpec::plain(name("o_proj"), query * dim, self.hidden))
    }

    /// `down(relu(up(x))^2)`
    fn mlp(&self, name: &str, inner: usize, bias: bool) -> MlpSpec {
        let linear = |part: &str, inputs, outputs| {
            LinearSpec::of(Orientation::OutIn, inputs, [(format!("{name}.{part}"), outputs, bias)])
        };
        MlpSpec {
            activation: ActivationFunction::SquaredRelu,
            gate: None,
            up: linear("up_proj", self.hidden, inner),
            down: linear("down_proj", inner, self.hidden),
        }
    }

    fn experts(&self, layer: usize, mixture: &Mixture) -> ExpertsSpec {
        let (count, top_k) = mixture.counts;
        let name = |part: &str| format!("layers.{layer}.mixer.{part}");
        let router = name("gate");
        let correction = TensorSpec::new(format!("{router}.e_score_correction_bias"), [count], Role::Bias);
        let expert = |id: usize| self.mlp(&name(&format!("experts.{id}")), mixture.inner, false);
        ExpertsSpec {
            router: LinearSpec::plain(router, self.hidden, count),
            weighting: WeightingSpec::Sigmoid {
                correction: Some(correction),
                epsilon: mixture.epsilon,
                scale: mixture.scale,
            },
            experts: (0..count).map(expert).collect(),
            grouped: false,
            top_k,
            shared: Some(SharedExpertSpec {
                gate: None,
                mlp: self.mlp(&name("shared_experts"), mixture.shared_inner, self.mlp_bias),
            }),
        }
    }
}

/// A layer without KV heads and without a feed-forward width is Mamba-2. The layer at the end that predicts further tokens has both.
fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    let (attends, layers) = (keys.set_hybrid()?, keys.own_layers()?);
    let widths = keys.counts("feed_forward_length")?;
    let count = keys.opt_count("expert_count")?.unwrap_or(0);
    let kind = |(attends, width): (&bool, &u32)| match (attends, width) {
        (true, _) => "attention",
        (false, 0) => "mamba",
        (false, _) if count > 0 => "moe",
        (false, _) => "mlp",
    };
    let kinds: Vec<&str> = attends.iter().zip(&widths).map(kind).take(layers).collect();
    let first = |kind: &str| kinds.iter().position(|other| *other == kind).unwrap_or(0);
    mamba2::set_keys(keys, Mamba2Names::NEMOTRON, first("mamba"))?;
    keys.set_presence("mlp_bias", &format!("blk.{}.ffn_up.bias", first("mlp")));
    keys.config().set("intermediate_size", widths.get(first("mlp")).copied().unwrap_or(0));
    // Files have one of both, or the same twice.
    keys.copy_numbers(&[
        ("attention.layer_norm_epsilon", "layer_norm_epsilon"),
        ("attention.layer_norm_rms_epsilon", "layer_norm_epsilon"),
        ("expert_weights_scale", "routed_scaling_factor"),
    ])?;
    if count > 0 {
        keys.copy_counts(&[
            ("expert_count", "n_routed_experts"),
            ("expert_used_count", "num_experts_per_tok"),
            ("expert_feed_forward_length", "moe_intermediate_size"),
            ("expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"),
            ("expert_shared_count", "n_shared_experts"),
        ])?;
        for (name, key) in [("expert_group_count", "n_group"), ("expert_group_used_count", "topk_group")] {
            let count = keys.opt_count(name)?.unwrap_or(1);
            keys.config().set(key, count);
        }
        let normalises = keys.opt_bool("expert_weights_norm")?.unwrap_or(false);
        keys.config().set("norm_topk_prob", normalises);
    }
    let config = keys.config();
    config.set("num_hidden_layers", layers);
    config.set("layers_block_type", kinds);
    // Nothing is rotated.
    config.remove("partial_rotary_factor");
    config.remove("rope_theta");
    Ok(())
}
