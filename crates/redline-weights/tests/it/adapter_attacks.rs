//! The hostile adapters of `attacks/`, one test each: the exact error message.

use std::path::Path;

use redline_weights::{AdapterFiles, BaseModule, ModuleKind};

const CONFIG: &str = "adapter_config.json";
const TENSORS: &str = "adapter_model.safetensors";
/// The highest rank that the caller allows.
const MAX_RANK: usize = 8;

/// One test per attack: its directory, and the fact its message states about `$file`.
macro_rules! attacks {
    ($list:ident, $file:expr, { $($name:ident => $fact:expr,)* }) => {
        pub(crate) const $list: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() {
                refused(stringify!($name), $file, $fact);
            }
        )*
    };
}

attacks!(OF_CONFIG, CONFIG, {
    adapter_config_alpha_infinite =>
        "the scaling of module `layers.0.q` is 1e300 / 1, which is not a finite number",
    adapter_config_alpha_text => "`lora_alpha` is \"2\", but a number is needed",
    adapter_config_bias => "`bias` is \"lora_only\", but only `none` is supported",
    adapter_config_duplicate_key => "not a JSON object: the key `r` stands twice at line 1 column 33",
    adapter_config_expression_backtracks =>
        "the pattern `(?:(?:(?:(?:(?=.).)+)+)+)+x` of `target_modules` cannot be used: Error executing regex: Max limit for backtracking count exceeded",
    adapter_config_expression_broken =>
        "the pattern `(q` of `target_modules` cannot be used: Parsing error at position 2: Opening parenthesis without closing parenthesis",
    adapter_config_expression_huge =>
        "the pattern `(?:(?:a{1,1000}){1,1000}){1,1000}` of `target_modules` cannot be used: Error compiling regex: Regex error: error building NFA",
    adapter_config_expression_long =>
        &format!("the pattern `{}...` of `rank_pattern` cannot be used: it has 5000 bytes, but at most 4096 are read", "+".repeat(160)),
    adapter_config_expressions_many => "`rank_pattern` has more than 64 regular expressions",
    adapter_config_invocation_tokens =>
        "`alora_invocation_tokens` is [1,2], but only an absent or empty value is supported",
    adapter_config_layer_replication =>
        "`layer_replication` is [[0,1]], but only an absent or empty value is supported",
    adapter_config_layers_negative =>
        "`layers_to_transform` is [-1], but an index or a list of them is needed",
    adapter_config_layers_pattern_alone =>
        "`layers_pattern` is \"layers\", but only `null` without `layers_to_transform` is supported",
    adapter_config_layers_with_expression =>
        "`layers_to_transform` is [0], but only `null` beside a pattern in `target_modules` is supported",
    adapter_config_lora_bias => "`lora_bias` is true, but only an absent or empty value is supported",
    adapter_config_megatron =>
        "`megatron_config` is {\"a\":1}, but only an absent or empty value is supported",
    adapter_config_modules_to_save =>
        "`modules_to_save` is [\"lm_head\"], but only an absent or empty value is supported",
    adapter_config_not_object => "not a JSON object: [1]",
    adapter_config_pattern_not_object => "`rank_pattern` is [\"q\"], but an object is needed",
    adapter_config_pattern_rank_zero => "`rank_pattern.q` is 0, but a rank of 1 or more is needed",
    adapter_config_pissa =>
        "`init_lora_weights` is `pissa_niter_16`, which changes the weights of the base model, too",
    adapter_config_prefix_tuning => "`peft_type` is \"PREFIX_TUNING\", but only `LORA` is supported",
    adapter_config_qalora => "`use_qalora` is true, but only an absent or empty value is supported",
    adapter_config_rank_negative => "`r` is -1, but a whole number of 0 or more is needed",
    adapter_config_rank_zero => "`r` is 0, but only a value of 1 or more is supported",
    adapter_config_target_parameters =>
        "`target_parameters` is [\"q.weight\"], but only an absent or empty value is supported",
    adapter_config_targets_number => "`target_modules` is 7, but a list of strings is needed",
    adapter_config_targets_numbers => "`target_modules` is [\"q\",7], but a list of strings is needed",
    adapter_config_token_indices =>
        "`trainable_token_indices` is [5], but only an absent or empty value is supported",
    adapter_config_unknown_key =>
        "`use_something_new` is 1, but only an absent or empty value is supported",
    adapter_config_weight_tying =>
        "`ensure_weight_tying` is true, but only an absent or empty value is supported",
    adapter_config_without_targets =>
        "`target_modules` is absent, but only a list of module names or a pattern is supported",
    adapter_config_without_type => "the key `peft_type` is missing",
});

attacks!(OF_TENSORS, TENSORS, {
    adapter_config_rank_huge =>
        "module `layers.0.q` has rank 9223372036854775808, but at most 8 is allowed",
    adapter_empty => "the adapter has no LoRA tensors",
    adapter_file_truncated =>
        "tensor `base_model.model.layers.0.q.lora_B.weight` ends at 20, but the file has 19 data bytes",
    adapter_magnitude_missing => "module `layers.0.q` has no magnitudes, but `use_dora` is true",
    adapter_magnitude_shape =>
        "tensor `base_model.model.layers.0.q.lora_magnitude_vector` is 2, but this model needs 3",
    adapter_magnitude_without_dora => "module `layers.0.q` has magnitudes, but `use_dora` is false",
    adapter_rank_of_pattern =>
        "tensor `base_model.model.layers.0.q.lora_A.weight` is 1 x 2, but the configuration gives this module rank 3",
    adapter_rank_of_shape =>
        "tensor `base_model.model.layers.0.q.lora_A.weight` is 1 x 2, but the configuration gives this module rank 2",
    adapter_rank_over_limit => "module `layers.0.q` has rank 9, but at most 8 is allowed",
    adapter_shape_base_copy =>
        "tensor `base_model.model.embed.base_layer.weight` is 5 x 2, but this model needs 4 x 2",
    adapter_shape_embedding =>
        "tensor `base_model.model.embed.lora_embedding_A` is 1 x 5, but this model needs 1 x 4",
    adapter_shape_flat =>
        "tensor `base_model.model.layers.0.q.lora_A.weight` is 2, but this model needs 1 x 2",
    adapter_shape_head_copy => "tensor `base_model.model.lm_head.base_layer.weight` is 2 x 4, but this model needs 4 x 2",
    adapter_shape_inputs =>
        "tensor `base_model.model.layers.0.q.lora_A.weight` is 1 x 3, but this model needs 1 x 2",
    adapter_shape_outputs =>
        "tensor `base_model.model.layers.0.q.lora_B.weight` is 4 x 1, but this model needs 3 x 1",
    adapter_target_without_tensors => "2 modules are targeted, but have no tensors: `embed`, ...",
    adapter_tensor_bias => "tensor `base_model.model.layers.0.q.lora_B.bias` is not part of a LoRA adapter",
    adapter_tensor_embedding_as_linear =>
        "tensor `base_model.model.embed.lora_A.weight` is not of the kind that adapts module `embed`",
    adapter_tensor_fixed_module =>
        "tensor `base_model.model.positions.lora_embedding_A` belongs to module `positions`, which cannot be adapted",
    adapter_tensor_linear_as_embedding =>
        "tensor `base_model.model.layers.0.q.lora_embedding_A` is not of the kind that adapts module `layers.0.q`",
    adapter_tensor_mixed_kinds =>
        "module `layers.0.q` has `base_model.model.layers.0.q.lora_A.weight`, but no `lora_embedding_A`",
    adapter_tensor_not_targeted =>
        "tensor `base_model.model.layers.0.q.lora_A.weight` belongs to module `layers.0.q`, which the configuration does not target",
    adapter_tensor_of_base =>
        "tensor `base_model.model.layers.0.q.base_layer.weight` is not part of a LoRA adapter",
    adapter_tensor_other_module =>
        "tensor `base_model.model.layers.0.qx.lora_A.weight` belongs to module `layers.0.qx`, which this model does not have",
    adapter_tensor_twice =>
        "tensors `base_model.model.layers.0.q.lora_A.default.weight` and `base_model.model.layers.0.q.lora_A.weight` are the same part of one module",
    adapter_tensor_whole_weight => "tensor `base_model.model.embed.weight` is not part of a LoRA adapter",
    adapter_tensor_without_half =>
        "module `layers.0.q` has `base_model.model.layers.0.q.lora_A.weight`, but no `lora_B`",
    adapter_tensor_without_module =>
        "tensor `base_model.model..lora_A.weight` is not part of a LoRA adapter",
    adapter_tensor_without_prefix => "tensor `layers.0.q.lora_A.weight` is not part of a LoRA adapter",
    adapter_value_infinite => "tensor `base_model.model.layers.0.q.lora_B.weight` is inf at element 2",
    adapter_value_integers =>
        "tensor `base_model.model.layers.0.q.lora_A.weight` is I64, but weights are read from F32, F16 and BF16",
    adapter_value_magnitude_nan =>
        "tensor `base_model.model.layers.0.q.lora_magnitude_vector` is NaN at element 0",
    adapter_value_nan => "tensor `base_model.model.layers.0.q.lora_A.weight` is NaN at element 1",
});

/// The modules of the model that the adapters are read for.
fn modules() -> Vec<BaseModule> {
    let module = |path: &str, kind, inputs, outputs| BaseModule { path: path.into(), kind, inputs, outputs };
    vec![
        module("embed", ModuleKind::Embedding, 4, 2),
        module("layers.0.q", ModuleKind::Linear, 2, 3),
        module("lm_head", ModuleKind::Head, 2, 4),
        module("positions", ModuleKind::Fixed, 8, 2),
    ]
}

/// Every hint, with an attack that leads to it.
const HINTS: &[(&str, &str)] = &[
    ("config_expression_broken", "a list of module names needs no regular expression"),
    ("config_expressions_many", "write module names instead of regular expressions"),
    (
        "config_pissa",
        "save the adapter again with `path_initial_model_for_weight_conversion`, which makes it an ordinary LoRA adapter",
    ),
    (
        "tensor_bias",
        "only `lora_A`, `lora_B`, `lora_embedding_A`, `lora_embedding_B` and `lora_magnitude_vector` are read, with the prefix \
         `base_model.model.`",
    ),
    (
        "tensor_without_half",
        "the file is incomplete, or the training did not gather the parts of its weights before saving",
    ),
    ("tensor_other_module", "the adapter was trained on another base model"),
    ("shape_inputs", "the adapter was trained on another base model"),
    (
        "tensor_embedding_as_linear",
        "an embedding has `lora_embedding_A` and `lora_embedding_B`, a linear layer `lora_A` and `lora_B`",
    ),
    ("tensor_fixed_module", "linear layers, the token embedding and the head can be adapted"),
    ("rank_of_shape", "`adapter_config.json` and the tensors are not from one adapter"),
    ("target_without_tensors", "`adapter_config.json` and the tensors are not from one adapter"),
];

#[test]
fn a_refusal_comes_with_advice() {
    for (attack, hint) in HINTS {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("attacks").join(format!("adapter_{attack}"));
        let read = AdapterFiles::open(&dir).and_then(|files| files.read(&modules(), MAX_RANK));
        let found = read.expect_err(attack).hint().map(|hint| hint.to_string());
        assert_eq!(found.as_deref(), Some(*hint), "{attack}");
    }
}

fn refused(attack: &str, file: &str, fact: &str) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("attacks").join(attack);
    let read = AdapterFiles::open(&dir).and_then(|files| files.read(&modules(), MAX_RANK));
    let message = read.expect_err(attack).to_string();
    let (first, place) = message.split_once('\n').expect(&message);
    assert_eq!(first, fact);
    assert!(place.starts_with(&format!("  in `{}`", dir.join(file).display())), "{place}");
}
