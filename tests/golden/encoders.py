"""Write encoders/: tiny random encoders, embedding models and classifiers with reference outputs from Hugging Face transformers (f32).

    python encoders.py             rewrite encoders/ in this folder
    python encoders.py --check     build in a temporary folder and compare with what lies here

Classifiers that were made from decoders, whose tokens see only those before them, are among them.

Every encoder is a Hugging Face directory, embedding models with the files of sentence-transformers beside (modules.json and what it
names), plus `reference.safetensors`:

    ids         i64 [N, L]        token ids, filled up with the padding id
    lengths     i64 [N]           tokens of each sequence
    types       i64 [N, L]        token types, 0 and 1 where the model has two
    hidden      f32 [N, L, H]     last hidden state, each sequence computed alone; zeros beyond its length
    embeddings  f32 [N, D]        embedding models: pooled, projected and normalised as modules.json says
    logits      f32 [N, labels]   classifiers

encoders/manifest.json: by encoder what it covers, its shape, and what the checks found.

The weights come from a seed: the first one for which rounding matrices and linear inputs to bf16 changes little and no classifier's
decision is close. Before anything is written, the script makes sure that the directory, read back by transformers, gives the same
outputs; that a padded batch with a mask does as well; that every tensor, the types, the pooling and the normalisation matter, as in
make.py; and that every config value under `matters` does, and those under `subtle` a little less. Two kinds of tensor cannot matter:
the pooler of an embedding model that does not use it, and the bias of the keys where nothing is rotated, which adds the same number
to all scores of a query.
"""

import copy
import itertools
import json
import shutil
from dataclasses import dataclass, field, replace

import make  # first: it tells the Hugging Face libraries that there is no network
import jina_bert  # noqa: F401  (transformers does not have it)
import lfm2_encoder  # noqa: F401  (the same)
import torch
import transformers
from make import MAX_BF16_NMSE, VISIBLE, require, rounded, significant, size, write_json
from safetensors.torch import load_file, save_file
from torch.nn.functional import normalize
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

FOLDER = "encoders"
LENGTHS = [41, 17, 1, 33]
MAX_SEED = 200
MIN_MARGIN = 0.05
SUBTLE = 5e-4
READ_TOLERANCE = 1e-5  # weights read from a file are aligned otherwise, which changes the order of a few sums
PADDED_TOLERANCE = 1e-4
CHECK_TOLERANCE = 1e-3
MAX_DIRECTORY_BYTES = 500_000
MAX_TOTAL_BYTES = 7_000_000
FULL, SLIDING = "full_attention", "sliding_attention"
MODES = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "mean_sqrt_len_tokens": "mean_sqrt_len_tokens"}
LATER_MODES = {"weightedmean": "weightedmean_tokens", "lasttoken": "lasttoken"}


@dataclass
class Layout:
    """What sentence-transformers stores beside the model."""

    pooling: str
    normalize: bool = True
    dense: list[int] = field(default_factory=list)  # outputs of each projection
    max_seq_length: int = 64
    prompts: dict | None = None
    # 2: pooling_mode_* for four modes; 3: for six, and include_prompt; 6: pooling_mode, and the class names of version 6.
    version: int = 3


@dataclass
class Encoder:
    name: str
    style: str  # as in checkpoint.py
    covers: str
    config: dict
    matters: list[dict] = field(default_factory=list)
    subtle: list[dict] = field(default_factory=list)  # matters by more than SUBTLE: the two forms of GELU are that close
    layout: Layout | None = None  # None: a classifier
    pooler: bool | None = True  # BERT and RoBERTa without a classifier: the pooler is in the file; None: the class has none
    position_ids: bool = False  # the buffer that transformers stored until 4.30
    layer_types: list[str] | None = None
    padding_inside: bool = False  # in the first text are two tokens of padding
    padded_end: bool = False  # the first text ends with padding that belongs to it
    lengths: list[int] = field(default_factory=lambda: LENGTHS)
    published: dict | None = None  # config.json as models are published whose code comes with them, which transformers' class does not read


DROPOUT = {"attention_probs_dropout_prob": 0.1, "classifier_dropout": None, "hidden_dropout_prob": 0.1}
BERT = DROPOUT | {
    "gradient_checkpointing": False,
    "hidden_act": "gelu",
    "initializer_range": 0.02,
    "max_position_embeddings": 80,
    "model_type": "bert",
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "torch_dtype": "float32",
    "type_vocab_size": 2,
    "use_cache": True,
}
XLMR = DROPOUT | {
    "bos_token_id": 0,
    "eos_token_id": 2,
    "hidden_act": "gelu",
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-05,
    "max_position_embeddings": 82,
    "model_type": "xlm-roberta",
    "output_past": True,
    "pad_token_id": 1,
    "position_embedding_type": "absolute",
    "torch_dtype": "float32",
    "type_vocab_size": 1,
    "use_cache": True,
}
MPNET = DROPOUT | {
    "bos_token_id": 0,
    "eos_token_id": 2,
    "hidden_act": "gelu",
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-05,
    "max_position_embeddings": 302,
    "model_type": "mpnet",
    "pad_token_id": 1,
    "relative_attention_num_buckets": 32,
    "torch_dtype": "float32",
    "transformers_version": "4.8.2",
}
DEBERTA = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "max_relative_positions": -1,
    "model_type": "deberta-v2",
    "pad_token_id": 0,
    "pooler_dropout": 0,
    "relative_attention": True,
    "share_att_key": True,
    "torch_dtype": "float32",
}
NOMIC = dict(model_type="nomic_bert", num_hidden_layers=2, max_position_embeddings=80, pad_token_id=0)
GTE = dict(model_type="gte", num_hidden_layers=2, max_position_embeddings=80, pad_token_id=1)
DISTILBERT = {
    "activation": "gelu",
    "attention_dropout": 0.1,
    "dropout": 0.1,
    "initializer_range": 0.02,
    "max_position_embeddings": 80,
    "model_type": "distilbert",
    "n_layers": 2,
    "pad_token_id": 0,
    "qa_dropout": 0.1,
    "seq_classif_dropout": 0.2,
    "sinusoidal_pos_embds": False,
    "tie_weights_": True,
}
MODERNBERT = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128,
    "classifier_activation": "gelu",
    "classifier_bias": False,
    "classifier_dropout": 0.0,
    "classifier_pooling": "mean",
    "cls_token_id": 128,
    "decoder_bias": True,
    "deterministic_flash_attn": False,
    "embedding_dropout": 0.0,
    "eos_token_id": 129,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "gradient_checkpointing": False,
    "hidden_activation": "gelu",
    "hidden_size": 48,
    "initializer_cutoff_factor": 2.0,
    "initializer_range": 0.02,
    "intermediate_size": 52,
    "layer_norm_eps": 1e-05,
    "local_attention": 12,
    "local_rope_theta": 10000.0,
    "max_position_embeddings": 80,
    "mlp_bias": False,
    "mlp_dropout": 0.0,
    "model_type": "modernbert",
    "norm_bias": False,
    "norm_eps": 1e-05,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "pad_token_id": 130,
    "position_embedding_type": "absolute",
    "sep_token_id": 129,
    "sparse_pred_ignore_index": -100,
    "sparse_prediction": False,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "transformers_version": "4.48.0",
    "vocab_size": 131,
}


def rope(theta):
    return {"rope_type": "default", "rope_theta": theta}


MODERNBERT_B = dict(
    model_type="modernbert",
    vocab_size=131,
    hidden_size=50,
    intermediate_size=70,
    num_hidden_layers=3,
    num_attention_heads=5,
    max_position_embeddings=80,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    cls_token_id=1,
    sep_token_id=2,
    hidden_activation="gelu",
    norm_eps=1e-3,
    attention_bias=True,
    mlp_bias=True,
    norm_bias=True,
    classifier_bias=True,
    classifier_pooling="mean",
    classifier_activation="relu",
    local_attention=10,
    layer_types=[FULL, SLIDING, SLIDING],
    rope_parameters={FULL: rope(80000.0), SLIDING: rope(5000.0)},
    id2label={0: "contradiction", 1: "entailment", 2: "neutral"},
    label2id={"contradiction": 0, "entailment": 1, "neutral": 2},
)


# theta * factor as the base, and all frequencies divided by factor^(2 / head size).
NTK_FACTOR, NTK_THETA, NTK_HEAD = 8.0, 2000.0, 10

ENCODERS = [
    Encoder(
        name="bert-a",
        style="classic",
        covers="mean of the tokens, normalised; two types, position_ids and an unused pooler in the file; head size 12",
        config=BERT
        | {
            "architectures": ["BertModel"],
            "hidden_size": 60,
            "intermediate_size": 90,
            "layer_norm_eps": 1e-12,
            "num_attention_heads": 5,
            "num_hidden_layers": 2,
            "transformers_version": "4.8.2",
            "vocab_size": 167,
        },
        matters=[{"hidden_act": "relu"}, {"layer_norm_eps": 1e-2}],
        subtle=[{"hidden_act": "gelu_new"}],
        layout=Layout(pooling="mean", version=2),
        position_ids=True,
    ),
    Encoder(
        name="bert-b",
        style="classic",
        covers="three labels with names, gelu_new, epsilon 1e-6; head size 14",
        config=BERT
        | {
            "architectures": ["BertForSequenceClassification"],
            "hidden_act": "gelu_new",
            "hidden_size": 56,
            "id2label": {"0": "negative", "1": "neutral", "2": "positive"},
            "intermediate_size": 84,
            "label2id": {"negative": 0, "neutral": 1, "positive": 2},
            "layer_norm_eps": 1e-06,
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "problem_type": "single_label_classification",
            "transformers_version": "4.30.2",
            "vocab_size": 131,
        },
        matters=[{"hidden_act": "relu"}, {"layer_norm_eps": 1e-2}],
        subtle=[{"hidden_act": "gelu"}],
    ),
    Encoder(
        name="xlmr-a",
        style="classic",
        covers="the first token, normalised; positions from 2 without those of padding, one type, no pooler; head size 12",
        config=XLMR
        | {
            "architectures": ["XLMRobertaModel"],
            "hidden_size": 48,
            "intermediate_size": 90,
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "transformers_version": "4.33.0",
            "vocab_size": 167,
        },
        matters=[{"pad_token_id": 0}, {"layer_norm_eps": 1e-2}],
        layout=Layout(pooling="cls"),
        pooler=False,
        padding_inside=True,
    ),
    Encoder(
        name="xlmr-b",
        style="classic",
        covers="one label, epsilon 1e-3; head size 20",
        config=XLMR
        | {
            "architectures": ["XLMRobertaForSequenceClassification"],
            "hidden_size": 60,
            "id2label": {"0": "LABEL_0"},
            "intermediate_size": 72,
            "label2id": {"LABEL_0": 0},
            "layer_norm_eps": 1e-3,
            "num_attention_heads": 3,
            "num_hidden_layers": 2,
            "transformers_version": "4.38.1",
            "vocab_size": 131,
        },
        matters=[{"pad_token_id": 0}, {"layer_norm_eps": 1e-5}],
    ),
    Encoder(
        name="roberta-a",
        style="transformers-5",
        covers="four labels with names, relu; head size 18",
        config=dict(
            model_type="roberta",
            vocab_size=157,
            hidden_size=54,
            intermediate_size=76,
            num_hidden_layers=2,
            num_attention_heads=3,
            max_position_embeddings=82,
            type_vocab_size=1,
            layer_norm_eps=1e-5,
            hidden_act="relu",
            pad_token_id=1,
            bos_token_id=0,
            eos_token_id=2,
            id2label={0: "anger", 1: "joy", 2: "optimism", 3: "sadness"},
            label2id={"anger": 0, "joy": 1, "optimism": 2, "sadness": 3},
        ),
        matters=[{"pad_token_id": 0}, {"hidden_act": "gelu"}, {"layer_norm_eps": 1e-2}],
    ),
    Encoder(
        name="roberta-b",
        style="classic",
        covers="mean of the tokens, normalised; padding inside a text, an unused pooler in the file; head size 12",
        config=DROPOUT
        | {
            "architectures": ["RobertaModel"],
            "bos_token_id": 0,
            "eos_token_id": 2,
            "gradient_checkpointing": False,
            "hidden_act": "gelu",
            "hidden_size": 36,
            "initializer_range": 0.02,
            "intermediate_size": 64,
            "layer_norm_eps": 1e-05,
            "max_position_embeddings": 82,
            "model_type": "roberta",
            "num_attention_heads": 3,
            "num_hidden_layers": 2,
            "pad_token_id": 1,
            "position_embedding_type": "absolute",
            "torch_dtype": "float32",
            "transformers_version": "4.28.1",
            "type_vocab_size": 1,
            "use_cache": True,
            "vocab_size": 300,
        },
        matters=[{"pad_token_id": 0}, {"hidden_act": "relu"}, {"layer_norm_eps": 1e-2}],
        layout=Layout(pooling="mean", version=2),
        padding_inside=True,
    ),
    Encoder(
        name="distilbert-a",
        style="classic",
        covers="mean of the tokens, normalised; no types and no pooler, epsilon without a key; head size 12",
        config=DISTILBERT
        | {
            "architectures": ["DistilBertModel"],
            "dim": 36,
            "hidden_dim": 58,
            "n_heads": 3,
            "transformers_version": "4.28.1",
            "vocab_size": 167,
        },
        matters=[{"activation": "relu"}],
        subtle=[{"activation": "gelu_new"}],
        layout=Layout(pooling="mean", version=2),
        pooler=None,
    ),
    Encoder(
        name="distilbert-b",
        style="classic",
        covers="two labels with names, relu in the layers and before the labels; head size 14",
        config=DISTILBERT
        | {
            "activation": "relu",
            "architectures": ["DistilBertForSequenceClassification"],
            "dim": 56,
            "finetuning_task": "sst-2",
            "hidden_dim": 84,
            "id2label": {"0": "NEGATIVE", "1": "POSITIVE"},
            "label2id": {"NEGATIVE": 0, "POSITIVE": 1},
            "n_heads": 4,
            "transformers_version": "4.21.0",
            "vocab_size": 131,
        },
        matters=[{"activation": "gelu"}],
    ),
    Encoder(
        name="electra-a",
        style="classic",
        covers="mean of the tokens, normalised; embeddings narrower than the states, two types; head size 12",
        config=BERT
        | {
            "architectures": ["ElectraForPreTraining"],
            "embedding_size": 28,
            "hidden_size": 60,
            "intermediate_size": 90,
            "layer_norm_eps": 1e-12,
            "model_type": "electra",
            "num_attention_heads": 5,
            "num_hidden_layers": 2,
            "vocab_size": 167,
        },
        matters=[{"hidden_act": "relu"}, {"layer_norm_eps": 1e-2}],
        layout=Layout(pooling="mean", version=2),
        pooler=None,
    ),
    Encoder(
        name="electra-b",
        style="classic",
        covers="one label without a name, embeddings as wide as the states, epsilon 1e-6; head size 14",
        config=BERT
        | {
            "architectures": ["ElectraForSequenceClassification"],
            "embedding_size": 56,
            "hidden_size": 56,
            "id2label": {"0": "LABEL_0"},
            "intermediate_size": 84,
            "label2id": {"LABEL_0": 0},
            "layer_norm_eps": 1e-06,
            "model_type": "electra",
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "vocab_size": 131,
        },
        matters=[{"hidden_act": "relu"}, {"layer_norm_eps": 1e-2}],
    ),
    Encoder(
        name="mpnet-a",
        style="classic",
        covers="mean of the tokens, normalised; numbers by distance, positions from 2 without those of padding; head size 12",
        config=MPNET
        | {
            "architectures": ["MPNetForMaskedLM"],
            "hidden_size": 36,
            "intermediate_size": 60,
            "num_attention_heads": 3,
            "num_hidden_layers": 2,
            "vocab_size": 131,
        },
        matters=[{"layer_norm_eps": 1e-2}, {"hidden_act": "relu"}],
        layout=Layout(pooling="mean", version=2, max_seq_length=300),
        padding_inside=True,
        lengths=[293, 17, 1, 150],
    ),
    Encoder(
        name="mpnet-b",
        style="classic",
        covers="three labels with names, epsilon without a key; head size 20",
        config={key: value for key, value in MPNET.items() if key != "layer_norm_eps"}
        | {
            "architectures": ["MPNetForSequenceClassification"],
            "hidden_size": 60,
            "id2label": {"0": "contradiction", "1": "entailment", "2": "neutral"},
            "intermediate_size": 72,
            "label2id": {"contradiction": 0, "entailment": 1, "neutral": 2},
            "num_attention_heads": 3,
            "num_hidden_layers": 2,
            "vocab_size": 131,
        },
        matters=[{"layer_norm_eps": 1e-2}],
    ),
    Encoder(
        name="nomic-a",
        style="transformers-5",
        covers="mean of the tokens, normalised; config.json as published, gates, two types, no biases; head size 12",
        config=NOMIC | dict(hidden_size=48, intermediate_size=76, num_attention_heads=4, vocab_size=167),
        matters=[{"rope_parameters": rope(10000.0)}, {"layer_norm_eps": 1e-2}, {"hidden_act": "gelu"}],
        layout=Layout(pooling="mean", prompts={"query": "search_query: ", "document": "search_document: "}),
        pooler=None,
        published={
            "activation_function": "swiglu",
            "architectures": ["NomicBertModel"],
            "attn_pdrop": 0.0,
            "auto_map": {"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"},
            "causal": False,
            "dense_seq_output": True,
            "embd_pdrop": 0.0,
            "fused_bias_fc": True,
            "fused_dropout_add_ln": True,
            "initializer_range": 0.02,
            "layer_norm_epsilon": 1e-12,
            "max_trained_positions": 40,
            "mlp_fc1_bias": False,
            "mlp_fc2_bias": False,
            "model_type": "nomic_bert",
            "n_embd": 48,
            "n_head": 4,
            "n_inner": 76,
            "n_layer": 2,
            "n_positions": 80,
            "pad_vocab_size_multiple": 64,
            "parallel_block": False,
            "parallel_block_tied_norm": False,
            "prenorm": False,
            "qkv_proj_bias": False,
            "reorder_and_upcast_attn": False,
            "resid_pdrop": 0.0,
            "rotary_emb_base": 1000,
            "rotary_emb_fraction": 1.0,
            "rotary_emb_interleaved": False,
            "rotary_emb_scale_base": None,
            "rotary_scaling_factor": None,
            "scale_attn_by_inverse_layer_idx": False,
            "scale_attn_weights": True,
            "torch_dtype": "float32",
            "type_vocab_size": 2,
            "use_cache": True,
            "use_flash_attn": True,
            "use_rms_norm": False,
            "use_xentropy": True,
            "vocab_size": 167,
        },
    ),
    Encoder(
        name="nomic-b",
        style="transformers-5",
        covers="the first token as it is, config.json of transformers, GELU, one type, theta 10000, epsilon 1e-3; head size 14",
        config=NOMIC
        | dict(
            hidden_size=56,
            intermediate_size=60,
            num_attention_heads=4,
            vocab_size=131,
            type_vocab_size=1,
            hidden_act="gelu",
            layer_norm_eps=1e-3,
            rope_parameters=rope(10000.0),
        ),
        matters=[{"rope_parameters": rope(1000.0)}, {"layer_norm_eps": 1e-5}, {"hidden_act": "silu"}],
        layout=Layout(pooling="cls", normalize=False),
        pooler=None,
    ),
    Encoder(
        name="gte-a",
        style="transformers-5",
        covers="the first token, normalised; config.json as published, no types, rotations scaled by a factor; head size 10",
        config=GTE
        | dict(
            hidden_size=50,
            intermediate_size=70,
            num_attention_heads=5,
            vocab_size=131,
            type_vocab_size=0,
            rope_parameters={
                "rope_type": "linear",
                "rope_theta": NTK_THETA * NTK_FACTOR,
                "factor": NTK_FACTOR ** (2 / NTK_HEAD),
            },
        ),
        matters=[
            {"rope_parameters": rope(NTK_THETA * NTK_FACTOR)},
            {"rope_parameters": rope(NTK_THETA)},
            {"layer_norm_eps": 1e-2},
            {"hidden_act": "silu"},
        ],
        layout=Layout(pooling="cls"),
        pooler=None,
        published={
            "architectures": ["NewModel"],
            "attention_probs_dropout_prob": 0.0,
            "auto_map": {"AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel"},
            "classifier_dropout": None,
            "hidden_act": "gelu",
            "hidden_dropout_prob": 0.1,
            "hidden_size": 50,
            "initializer_range": 0.02,
            "intermediate_size": 70,
            "layer_norm_eps": 1e-12,
            "layer_norm_type": "layer_norm",
            "logn_attention_clip1": False,
            "logn_attention_scale": False,
            "max_position_embeddings": 80,
            "model_type": "new",
            "num_attention_heads": 5,
            "num_hidden_layers": 2,
            "pack_qkv": True,
            "pad_token_id": 1,
            "position_embedding_type": "rope",
            "rope_scaling": {"factor": NTK_FACTOR, "type": "ntk"},
            "rope_theta": NTK_THETA,
            "torch_dtype": "float16",
            "type_vocab_size": 0,
            "unpad_inputs": False,
            "use_memory_efficient_attention": False,
            "vocab_size": 131,
        },
    ),
    Encoder(
        name="gte-b",
        style="transformers-5",
        covers="one label without a name, config.json of transformers, one type; head size 12",
        config=GTE
        | dict(
            hidden_size=48,
            intermediate_size=84,
            num_attention_heads=4,
            vocab_size=167,
            id2label={0: "LABEL_0"},
            label2id={"LABEL_0": 0},
        ),
        matters=[{"rope_parameters": rope(10000.0)}, {"layer_norm_eps": 1e-2}, {"hidden_act": "silu"}],
    ),
    Encoder(
        name="jina3-a",
        style="transformers-5",
        covers="mean of the tokens, normalised; XLM-R with rotations, one type, an unused pooler in the file; head size 12",
        config=dict(
            model_type="jina_embeddings_v3",
            hidden_size=48,
            intermediate_size=84,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=80,
            vocab_size=131,
        ),
        matters=[{"rope_parameters": rope(10000.0)}, {"layer_norm_eps": 1e-2}, {"hidden_act": "silu"}],
        layout=Layout(pooling="mean"),
    ),
    Encoder(
        name="jina2-a",
        style="transformers-5",
        covers="mean of the tokens, normalised; slopes of six heads, gates, two types, an unused pooler in the file; head size 6",
        config=dict(
            model_type="jina_bert",
            hidden_size=36,
            intermediate_size=56,
            num_hidden_layers=2,
            num_attention_heads=6,
            max_position_embeddings=300,
            vocab_size=131,
            feed_forward_type="geglu",
        ),
        matters=[{"layer_norm_eps": 1e-2}, {"feed_forward_type": "reglu"}, {"num_attention_heads": 4}],
        layout=Layout(pooling="mean", version=2, max_seq_length=300),
        lengths=[270, 17, 1, 33],
        published={
            "architectures": ["JinaBertForMaskedLM"],
            "attention_probs_dropout_prob": 0.0,
            "attn_implementation": None,
            "auto_map": {"AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"},
            "classifier_dropout": None,
            "emb_pooler": "mean",
            "feed_forward_type": "geglu",
            "gradient_checkpointing": False,
            "hidden_act": "gelu",
            "hidden_dropout_prob": 0.1,
            "hidden_size": 36,
            "initializer_range": 0.02,
            "intermediate_size": 56,
            "layer_norm_eps": 1e-12,
            "max_position_embeddings": 300,
            "model_max_length": 300,
            "model_type": "bert",
            "num_attention_heads": 6,
            "num_hidden_layers": 2,
            "pad_token_id": 0,
            "position_embedding_type": "alibi",
            "torch_dtype": "float32",
            "type_vocab_size": 2,
            "use_cache": True,
            "vocab_size": 131,
        },
    ),
    Encoder(
        name="jina2-b",
        style="transformers-5",
        covers="the first token as it is; slopes of four heads, ReLU, one type, epsilon 1e-3; head size 10",
        config=dict(
            model_type="jina_bert",
            architectures=["JinaBertModel"],
            hidden_size=40,
            intermediate_size=44,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=80,
            type_vocab_size=1,
            vocab_size=167,
            layer_norm_eps=1e-3,
            feed_forward_type="reglu",
            position_embedding_type="alibi",
        ),
        matters=[{"layer_norm_eps": 1e-5}, {"feed_forward_type": "geglu"}],
        layout=Layout(pooling="cls", normalize=False),
    ),
    Encoder(
        name="deberta-a",
        style="classic",
        covers="mean of the tokens, normalised; buckets of distances that grow from eight on, with a norm, no positions; head size 12",
        config=DEBERTA
        | {
            "architectures": ["DebertaV2Model"],
            "hidden_size": 36,
            "intermediate_size": 60,
            "layer_norm_eps": 1e-07,
            "max_position_embeddings": 300,
            "norm_rel_ebd": "layer_norm",
            "num_attention_heads": 3,
            "num_hidden_layers": 2,
            "pos_att_type": "p2c|c2p",
            "position_biased_input": False,
            "position_buckets": 16,
            "type_vocab_size": 0,
            "vocab_size": 131,
        },
        matters=[{"layer_norm_eps": 1e-2}, {"hidden_act": "relu"}, {"max_relative_positions": 200}],
        layout=Layout(pooling="mean", max_seq_length=300),
        pooler=None,
        position_ids=True,
        lengths=[299, 17, 1, 130],
    ),
    Encoder(
        name="deberta-b",
        style="classic",
        covers="three labels with names; a bucket for each distance up to 24, learned positions too, two types; head size 10",
        config=DEBERTA
        | {
            "architectures": ["DebertaV2ForSequenceClassification"],
            "hidden_size": 40,
            "id2label": {"0": "entailment", "1": "neutral", "2": "contradiction"},
            "intermediate_size": 44,
            "label2id": {"entailment": 0, "neutral": 1, "contradiction": 2},
            "layer_norm_eps": 1e-05,
            "max_position_embeddings": 80,
            "max_relative_positions": 24,
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "pooler_hidden_act": "relu",
            "pos_att_type": ["c2p", "p2c"],
            "position_biased_input": True,
            "type_vocab_size": 2,
            "vocab_size": 131,
        },
        matters=[{"layer_norm_eps": 1e-2}, {"pooler_hidden_act": "gelu"}, {"pos_att_type": ["c2p"]}],
    ),
    Encoder(
        name="modernbert-a",
        style="classic",
        covers="mean of the tokens as they are, windows of 12 in every other layer, thetas of both kinds of layer; head size 12",
        config=MODERNBERT
        | {
            "architectures": ["ModernBertModel"],
            "global_attn_every_n_layers": 2,
            "num_hidden_layers": 4,
        },
        matters=[
            {"local_attention": 10},
            {"local_attention": 14},
            {"global_attn_every_n_layers": 3},
            {"global_rope_theta": 10000.0},
            {"local_rope_theta": 160000.0},
            {"hidden_activation": "silu"},
            {"norm_eps": 1e-2},
        ],
        layout=Layout(pooling="mean", normalize=False, version=6),
        layer_types=[FULL, SLIDING, FULL, SLIDING],
    ),
    Encoder(
        name="modernbert-b",
        style="transformers-5",
        covers="three labels by the mean, biases everywhere, relu in the head, epsilon 1e-3, layer types given; head size 10",
        config=MODERNBERT_B,
        matters=[
            {"local_attention": 8},
            {"local_attention": 12},
            {"layer_types": [FULL, SLIDING, FULL]},
            {"rope_parameters": {FULL: rope(80000.0), SLIDING: rope(10000.0)}},
            {"rope_parameters": {FULL: rope(160000.0), SLIDING: rope(5000.0)}},
            {"hidden_activation": "silu"},
            {"classifier_pooling": "cls"},
            {"classifier_activation": "gelu"},
            {"norm_eps": 1e-5},
        ],
        layer_types=[FULL, SLIDING, SLIDING],
    ),
    Encoder(
        name="modernbert-c",
        style="classic",
        covers="two labels without names by the first token, norm_eps unlike layer_norm_eps; head size 12",
        config=MODERNBERT
        | {
            "architectures": ["ModernBertForSequenceClassification"],
            "classifier_pooling": "cls",
            "norm_eps": 1e-3,
        },
        matters=[
            {"local_attention": 10},
            {"local_attention": 14},
            {"global_attn_every_n_layers": 2},
            {"classifier_pooling": "mean"},
            {"classifier_activation": "relu"},
            {"norm_eps": 1e-5},
        ],
        layer_types=[FULL, SLIDING, SLIDING],
    ),
    Encoder(
        name="lfm2-embed-a",
        style="transformers-5",
        covers="the first token, normalised; LFM2 with a centred convolution of five taps before attention in both directions; head size 12, 2:1",
        config=dict(
            model_type="lfm2_encoder",
            hidden_size=48,
            intermediate_size=66,
            block_auto_adjust_ff_dim=False,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            layer_types=["conv", FULL],
            conv_L_cache=5,
            max_position_embeddings=80,
            vocab_size=131,
            pad_token_id=0,
            rope_parameters=rope(10000.0),
        ),
        matters=[{"rope_parameters": rope(1000000.0)}, {"norm_eps": 1e-2}],
        layout=Layout(pooling="cls"),
        layer_types=["conv", FULL],
        pooler=None,
        published={
            "architectures": ["Lfm2BidirectionalModel"],
            "auto_map": {"AutoModel": "modeling_lfm2_bidirectional.Lfm2BidirectionalModel"},
            "block_auto_adjust_ff_dim": False,
            "block_dim": 48,
            "block_ff_dim": 66,
            "block_multiple_of": 256,
            "conv_L_cache": 5,
            "conv_bias": False,
            "hidden_size": 48,
            "intermediate_size": 66,
            "layer_types": ["conv", FULL],
            "max_position_embeddings": 80,
            "model_type": "lfm2",
            "norm_eps": 1e-5,
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "num_key_value_heads": 2,
            "pad_token_id": 0,
            "rope_theta": 10000.0,
            "torch_dtype": "float32",
            "use_cache": False,
            "vocab_size": 131,
        },
    ),
    Encoder(
        name="lfm2-embed-b",
        style="transformers-5",
        covers="the mean as it is; LFM2 with a centred convolution of three taps after attention in both directions; head size 10",
        config=dict(
            model_type="lfm2_encoder",
            hidden_size=40,
            intermediate_size=66,
            block_auto_adjust_ff_dim=False,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            layer_types=[FULL, "conv"],
            conv_L_cache=3,
            norm_eps=1e-4,
            max_position_embeddings=80,
            vocab_size=131,
            pad_token_id=0,
            rope_parameters=rope(10000.0),
        ),
        matters=[{"rope_parameters": rope(1000000.0)}, {"norm_eps": 1e-2}],
        layout=Layout(pooling="mean", normalize=False),
        layer_types=[FULL, "conv"],
        pooler=None,
        published={
            "architectures": ["Lfm2BidirectionalModel"],
            "auto_map": {"AutoModel": "modeling_lfm2_bidirectional.Lfm2BidirectionalModel"},
            "block_auto_adjust_ff_dim": False,
            "block_dim": 40,
            "block_ff_dim": 66,
            "block_multiple_of": 256,
            "conv_L_cache": 3,
            "conv_bias": False,
            "hidden_size": 40,
            "intermediate_size": 66,
            "layer_types": [FULL, "conv"],
            "max_position_embeddings": 80,
            "model_type": "lfm2",
            "norm_eps": 1e-4,
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "num_key_value_heads": 4,
            "pad_token_id": 0,
            "rope_theta": 10000.0,
            "torch_dtype": "float32",
            "use_cache": False,
            "vocab_size": 131,
        },
    ),
    Encoder(
        name="qwen3-embed-a",
        style="classic",
        covers="the last token of a decoder, normalised, names without model., prompts; head size 20, 2:1",
        config={
            "architectures": ["Qwen3ForCausalLM"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": 129,
            "eos_token_id": 129,
            "head_dim": 20,
            "hidden_act": "silu",
            "hidden_size": 48,
            "initializer_range": 0.02,
            "intermediate_size": 84,
            "max_position_embeddings": 80,
            "max_window_layers": 2,
            "model_type": "qwen3",
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "num_key_value_heads": 2,
            "pad_token_id": 130,
            "rms_norm_eps": 1e-06,
            "rope_scaling": None,
            "rope_theta": 1000000,
            "sliding_window": None,
            "tie_word_embeddings": True,
            "torch_dtype": "float32",
            "transformers_version": "4.51.3",
            "use_cache": True,
            "use_sliding_window": False,
            "vocab_size": 131,
        },
        matters=[{"rope_theta": 10000}, {"rms_norm_eps": 1e-2}],
        layout=Layout(pooling="lasttoken", prompts={"query": "Instruct: Find the passage\nQuery:", "document": ""}),
        layer_types=[FULL] * 2,
    ),
    Encoder(
        name="gemma3-embed-a",
        style="classic",
        covers="the mean, two projections, normalised; attention in both directions, windows of 12 but for one layer; head size 28, 3:1",
        config={
            "_sliding_window_pattern": 6,
            "architectures": ["Gemma3TextModel"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "attn_logit_softcapping": None,
            "bos_token_id": 2,
            "dtype": "float32",
            "eos_token_id": 1,
            "final_logit_softcapping": None,
            "head_dim": 28,
            "hidden_activation": "gelu_pytorch_tanh",
            "hidden_size": 48,
            "initializer_range": 0.02,
            "intermediate_size": 76,
            "layer_types": [SLIDING, SLIDING, FULL],
            "max_position_embeddings": 80,
            "model_type": "gemma3_text",
            "num_attention_heads": 3,
            "num_hidden_layers": 3,
            "num_key_value_heads": 1,
            "pad_token_id": 0,
            "query_pre_attn_scalar": 24,
            "rms_norm_eps": 1e-06,
            "rope_local_base_freq": 10000.0,
            "rope_scaling": None,
            "rope_theta": 1000000.0,
            "sliding_window": 12,
            "transformers_version": "4.57.0",
            "use_bidirectional_attention": True,
            "use_cache": True,
            "vocab_size": 131,
        },
        matters=[
            {"use_bidirectional_attention": False},
            {"sliding_window": 10},
            {"sliding_window": 14},
            {"sliding_window": 24},
            {"layer_types": [SLIDING, SLIDING, SLIDING]},
            {"query_pre_attn_scalar": 28},
            {"rope_local_base_freq": 1000000.0},
            {"rope_theta": 10000.0},
            {"hidden_activation": "silu"},
        ],
        subtle=[{"hidden_activation": "gelu"}],
        layout=Layout(
            pooling="mean",
            dense=[90, 40],
            prompts={"query": "task: search result | query: ", "document": "title: none | text: "},
        ),
        layer_types=[SLIDING, SLIDING, FULL],
    ),
    Encoder(
        name="qwen3-class-a",
        style="classic",
        covers="one label of the last token of a decoder that is no padding; head size 20, 2:1",
        config={
            "architectures": ["Qwen3ForSequenceClassification"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": 129,
            "eos_token_id": 129,
            "head_dim": 20,
            "hidden_act": "silu",
            "hidden_size": 48,
            "id2label": {"0": "LABEL_0"},
            "initializer_range": 0.02,
            "intermediate_size": 84,
            "label2id": {"LABEL_0": 0},
            "max_position_embeddings": 80,
            "max_window_layers": 2,
            "model_type": "qwen3",
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "num_key_value_heads": 2,
            "pad_token_id": 130,
            "rms_norm_eps": 1e-06,
            "rope_scaling": None,
            "rope_theta": 1000000,
            "sliding_window": None,
            "tie_word_embeddings": True,
            "torch_dtype": "float32",
            "transformers_version": "4.52.4",
            "use_cache": True,
            "use_sliding_window": False,
            "vocab_size": 131,
        },
        matters=[{"rope_theta": 10000}, {"rms_norm_eps": 1e-2}],
        layer_types=[FULL] * 2,
        padded_end=True,
    ),
    Encoder(
        name="gemma2-class-a",
        style="transformers-5",
        covers="three labels with names, windows of 12 in every other layer, soft caps; head size 22, 2:1",
        config=dict(
            model_type="gemma2",
            vocab_size=131,
            hidden_size=44,
            intermediate_size=72,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=22,
            max_position_embeddings=80,
            sliding_window=12,
            query_pre_attn_scalar=18,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=3.0,
            hidden_activation="gelu_pytorch_tanh",
            rms_norm_eps=1e-6,
            pad_token_id=0,
            bos_token_id=2,
            eos_token_id=1,
            id2label={0: "negative", 1: "neutral", 2: "positive"},
            label2id={"negative": 0, "neutral": 1, "positive": 2},
        ),
        matters=[
            {"sliding_window": 10},
            {"query_pre_attn_scalar": 22},
            {"attn_logit_softcapping": 50.0},
            {"rms_norm_eps": 1e-2},
        ],
        layer_types=[SLIDING, FULL],
    ),
]


# ---------------------------------------------------------------------------------------------------------- weights


def auto_class(encoder):
    return AutoModel if encoder.layout else AutoModelForSequenceClassification


def extra_arguments(encoder):
    return {"add_pooling_layer": False} if encoder.pooler is False else {}


def build(encoder, config_values):
    config = AutoConfig.for_model(**json.loads(json.dumps(config_values)))
    arguments = dict(dtype=torch.float32, attn_implementation="eager") | extra_arguments(encoder)
    return auto_class(encoder).from_config(config, **arguments).eval()


def is_norm_weight(name):
    return name.lower().endswith("norm.weight")


def neutral(model, name):
    """As in make.py: 0, or 1 for a norm weight, which Gemma stores as the difference to 1."""
    return 1.0 if is_norm_weight(name) and not model.config.model_type.startswith("gemma") else 0.0


def uniform(shape, centre, spread, generator):
    return centre + spread * (2 * torch.rand(shape, generator=generator) - 1)


def fill(model, generator):
    """Seeded uniform numbers, large enough that every tensor shows in the outputs."""
    gemma = model.config.model_type.startswith("gemma")
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            module = name.split(".")[-2]
            if is_norm_weight(name):
                centre, spread = neutral(model, name), 0.2
                if gemma and module in ("q_norm", "k_norm"):
                    centre -= 0.4
            elif name.endswith(".bias"):
                centre, spread = 0.0, 0.4
            elif module.endswith(("embeddings", "embed_tokens")):
                centre, spread = 0.0, 0.4 / (model.config.hidden_size**0.25 if gemma else 1)
                # Errors of products of projections are then small beside the residual stream.
                spread *= 6 if model.config.model_type == "lfm2_encoder" else 1
            else:
                gain = {"query": 0.8, "key": 0.8, "q": 0.8, "k": 0.8, "q_proj": 0.6, "k_proj": 0.6, "Wqkv": 0.9}.get(module, 1.2)
                centre, spread = 0.0, gain * (3 / parameter[0].numel()) ** 0.5
            parameter.copy_(uniform(parameter.shape, centre, spread, generator))


def make_dense(encoder, width, generator):
    """The weights of the projections after pooling."""
    weights = []
    for outputs in encoder.layout.dense if encoder.layout else []:
        weights.append(uniform((outputs, width), 0.0, 1.2 * (3 / width) ** 0.5, generator))
        width = outputs
    return weights


def make_inputs(config, generator, padding_inside=False, padded_end=False, lengths=LENGTHS):
    longest, padding = max(lengths), config.pad_token_id
    choice = torch.tensor([token for token in range(config.vocab_size) if token != padding])
    ids = choice[torch.randint(len(choice), (len(lengths), longest), generator=generator)]
    ids[0, :2] = choice[[-1, 0]]  # both ends of the embedding table
    types = torch.zeros_like(ids)
    if getattr(config, "type_vocab_size", 1) > 1:
        for row, start in ((0, 23), (3, 9)):
            types[row, start : lengths[row]] = 1
    for row, length in enumerate(lengths):
        ids[row, length:] = padding
    if padding_inside:
        ids[0, [5, 11]] = padding
    if padded_end:
        ids[0, lengths[0] - 2 : lengths[0]] = padding
    return {"ids": ids, "lengths": torch.tensor(lengths), "types": types}


# --------------------------------------------------------------------------------------------------------- forward


def pool(hidden, mode):
    """One sequence, without padding."""
    return {"cls": hidden[0], "mean": hidden.mean(0), "lasttoken": hidden[-1]}[mode]


def embedding(hidden, layout, dense):
    x = pool(hidden, layout.pooling)
    for weight in dense:
        x = weight @ x
    return normalize(x, dim=-1) if layout.normalize else x


def arguments_of(model, inputs, rows, length):
    arguments = {"input_ids": inputs["ids"][rows, :length]}
    if getattr(model.config, "type_vocab_size", 1) > 1:
        arguments["token_type_ids"] = inputs["types"][rows, :length]
    return arguments


@torch.no_grad()
def outputs(model, encoder, dense, inputs, layout=None):
    """Hidden states and embeddings or logits, each sequence alone."""
    layout = layout or encoder.layout
    states, results = [], []
    lengths = inputs["lengths"].tolist()
    for row, length in enumerate(lengths):
        arguments = arguments_of(model, inputs, [row], length)
        hidden = model.base_model(**arguments).last_hidden_state[0]
        results.append(embedding(hidden, layout, dense) if layout else model(**arguments).logits[0])
        states.append(torch.nn.functional.pad(hidden, (0, 0, 0, max(lengths) - length)))
    return {"hidden": torch.stack(states), "embeddings" if layout else "logits": torch.stack(results)}


@torch.no_grad()
def padded_outputs(model, encoder, dense, inputs):
    """The same from one padded batch with a mask."""
    lengths = inputs["lengths"].tolist()
    mask = (torch.arange(max(lengths)) < inputs["lengths"][:, None]).long()
    arguments = arguments_of(model, inputs, slice(None), max(lengths)) | {"attention_mask": mask}
    hidden = model.base_model(**arguments).last_hidden_state * mask[..., None]
    if not encoder.layout:
        return {"hidden": hidden, "logits": model(**arguments).logits}
    rows = [embedding(states[:length], encoder.layout, dense) for states, length in zip(hidden, lengths)]
    return {"hidden": hidden, "embeddings": torch.stack(rows)}


def change(ours, theirs, keys=None):
    return max(float((ours[key] - theirs[key]).abs().max()) for key in keys or ours)


# ---------------------------------------------------------------------------------------------------------- checks


def result_key(encoder):
    return "embeddings" if encoder.layout else "logits"


def cannot_matter(encoder, tensor):
    rotated = encoder.config["model_type"] not in ("bert", "distilbert", "electra", "jina_bert", "mpnet", "roberta", "xlm-roberta")
    is_key_bias = tensor.endswith((".key.bias", ".k_lin.bias", ".attn.k.bias"))
    return encoder.layout and tensor.startswith("pooler.") or is_key_bias and not rotated


def check_tensors(model, encoder, dense, ref):
    """The smallest effect that leaving out one tensor has."""
    effects = {}
    with torch.no_grad():
        for tensor, parameter in model.named_parameters():
            kept = parameter.clone()
            parameter.fill_(neutral(model, tensor))
            effects[tensor] = change(outputs(model, encoder, dense, ref), ref, ["hidden", result_key(encoder)])
            parameter.copy_(kept)
    for tensor in [tensor for tensor in effects if cannot_matter(encoder, tensor)]:
        effect = effects.pop(tensor)
        require(effect < PADDED_TOLERANCE, f"{encoder.name}: {tensor} matters after all ({effect})")
    weakest = min(effects, key=effects.get)
    require(effects[weakest] > VISIBLE, f"{encoder.name}: {weakest} hardly matters ({effects[weakest]})")
    return effects[weakest]


def check_config(model, encoder, dense, ref):
    effects = {}
    for values in encoder.matters + encoder.subtle:
        other = build(encoder, encoder.config | values)
        other.load_state_dict(model.state_dict())
        effects[json.dumps(values)] = change(outputs(other, encoder, dense, ref), ref, ["hidden", result_key(encoder)])
    if ref["types"].any():
        other = outputs(model, encoder, dense, ref | {"types": torch.zeros_like(ref["types"])})
        effects["all types 0"] = change(other, ref, ["hidden", result_key(encoder)])
    if encoder.layout:
        for mode in sorted({"cls", "mean", "lasttoken"} - {encoder.layout.pooling}):
            layout = replace(encoder.layout, pooling=mode)
            effects[f"pooling {mode}"] = change(outputs(model, encoder, dense, ref, layout), ref, ["embeddings"])
        layout = replace(encoder.layout, normalize=not encoder.layout.normalize)
        effects["normalised or not"] = change(outputs(model, encoder, dense, ref, layout), ref, ["embeddings"])
    subtle = [json.dumps(values) for values in encoder.subtle]
    for label, effect in effects.items():
        require(effect > (SUBTLE if label in subtle else VISIBLE), f"{encoder.name}: {label} hardly matters ({effect})")
    return dict(sorted(effects.items()))


@torch.no_grad()
def bf16_nmse(model, encoder, dense, ref):
    """As in make.py, the larger of hidden states and results."""
    other = copy.deepcopy(model)
    for parameter in other.parameters():
        # The taps of a convolution are not a matrix.
        if parameter.dim() == 2:
            parameter.copy_(rounded(parameter))
    for module in other.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(lambda _, inputs: (rounded(inputs[0]), *inputs[1:]))
    found = outputs(other, encoder, dense, ref)
    return max(float((found[key] - ref[key]).square().sum() / ref[key].square().sum()) for key in found)


def margin(ref):
    """How clear the least clear decision of a classifier is."""
    logits = ref.get("logits")
    if logits is None:
        return float("inf")
    if logits.shape[1] == 1:
        return float(logits.abs().min())
    best = logits.topk(2, dim=-1).values
    return float((best[:, 0] - best[:, 1]).min())


def read_back(directory, encoder, model):
    """The model as transformers reads it from disk; it must be the one that was saved."""
    loaded, info = auto_class(encoder).from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager", output_loading_info=True, **extra_arguments(encoder)
    )
    name = encoder.name
    unexpected = {key for key in info["unexpected_keys"] if not key.endswith("position_ids")}
    require(not info["missing_keys"], f"{name}: missing {info['missing_keys']}")
    require(not info["mismatched_keys"], f"{name}: mismatched {info['mismatched_keys']}")
    require(not unexpected, f"{name}: unexpected {unexpected}")
    ours, theirs = dict(model.named_parameters()), dict(loaded.named_parameters())
    require(ours.keys() == theirs.keys(), f"{name}: read back with other parameters")
    require(all(torch.equal(ours[key], theirs[key]) for key in ours), f"{name}: read back with other weights")
    found = getattr(loaded.config, "layer_types", None)
    require(found == encoder.layer_types, f"{name}: layer types {found}")
    return loaded.eval()


# ----------------------------------------------------------------------------------------------------------- files


def pooling_config(layout, width):
    if layout.version == 6:
        return {"embedding_dimension": width, "pooling_mode": layout.pooling, "include_prompt": True}
    modes = MODES if layout.version == 2 else MODES | LATER_MODES
    values = {"word_embedding_dimension": width}
    values |= {f"pooling_mode_{key}": mode == layout.pooling for mode, key in modes.items()}
    return values if layout.version == 2 else values | {"include_prompt": True}


def save_layout(directory, layout, width, dense):
    classes = {
        "Transformer": "base.modules.transformer",
        "Pooling": "sentence_transformer.modules.pooling",
        "Dense": "base.modules.dense",
        "Normalize": "base.modules.normalize",
    }
    kinds = ["Transformer", "Pooling"] + ["Dense"] * len(dense) + ["Normalize"] * layout.normalize
    modules = []
    for index, kind in enumerate(kinds):
        path = f"{index}_{kind}" if index else ""
        module = classes[kind] if layout.version == 6 else "models"
        modules.append({"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.{module}.{kind}"})
    write_json(directory / "modules.json", modules)
    write_json(directory / "sentence_bert_config.json", {"max_seq_length": layout.max_seq_length, "do_lower_case": False})
    (directory / "1_Pooling").mkdir()
    write_json(directory / "1_Pooling" / "config.json", pooling_config(layout, width))
    for index, weight in enumerate(dense, start=2):
        folder = directory / f"{index}_Dense"
        folder.mkdir()
        values = {"in_features": weight.shape[1], "out_features": weight.shape[0], "bias": False}
        write_json(folder / "config.json", values | {"activation_function": "torch.nn.modules.linear.Identity"})
        save_file({"linear.weight": weight}, folder / "model.safetensors", {"format": "pt"})
    if layout.prompts is not None:
        values = {"prompts": layout.prompts, "default_prompt_name": None, "similarity_fn_name": "cosine"}
        write_json(directory / "config_sentence_transformers.json", values)


def save(model, encoder, dense, directory):
    if directory.exists():
        shutil.rmtree(directory)
    model.save_pretrained(directory)
    if encoder.style == "classic":
        write_json(directory / "config.json", dict(sorted(encoder.config.items())))
    (directory / "generation_config.json").unlink(missing_ok=True)
    if encoder.position_ids:
        weights = directory / "model.safetensors"
        positions = torch.arange(model.config.max_position_embeddings)[None]
        save_file(load_file(weights) | {"embeddings.position_ids": positions}, weights, {"format": "pt"})
    if encoder.layout:
        save_layout(directory, encoder.layout, model.config.hidden_size, dense)


def shape_summary(config):
    heads = config.num_attention_heads
    return {
        "layers": config.num_hidden_layers,
        "hidden": config.hidden_size,
        "heads": heads,
        "kv_heads": getattr(config, "num_key_value_heads", heads),
        "head_dim": getattr(config, "head_dim", None) or config.hidden_size // heads,
        "intermediate": getattr(config, "intermediate_size", None) or config.hidden_dim,
        "vocab": config.vocab_size,
        "positions": config.max_position_embeddings,
        "types": getattr(config, "type_vocab_size", 0),
    }


def make_encoder(encoder, out):
    """Write one encoder and return its manifest entry."""
    model = build(encoder, encoder.config)
    for seed in range(1, MAX_SEED + 1):
        generator = torch.Generator().manual_seed(seed)
        fill(model, generator)
        dense = make_dense(encoder, model.config.hidden_size, generator)
        inputs = make_inputs(model.config, generator, encoder.padding_inside, encoder.padded_end, encoder.lengths)
        ref = inputs | outputs(model, encoder, dense, inputs)
        if margin(ref) >= MIN_MARGIN and bf16_nmse(model, encoder, dense, ref) <= MAX_BF16_NMSE:
            break
    else:
        require(False, f"{encoder.name}: no seed will do")
    directory = out / encoder.name
    save(model, encoder, dense, directory)
    loaded = read_back(directory, encoder, model)
    key = result_key(encoder)
    require(change(outputs(loaded, encoder, dense, ref), ref, ["hidden", key]) < READ_TOLERANCE, f"{encoder.name}: outputs after reading")
    padded = change(padded_outputs(loaded, encoder, dense, ref), ref, ["hidden", key])
    require(padded < PADDED_TOLERANCE, f"{encoder.name}: a padded batch differs by {padded}")
    tensor_effect = check_tensors(loaded, encoder, dense, ref)
    config_effects = check_config(loaded, encoder, dense, ref)
    if encoder.published:
        write_json(directory / "config.json", encoder.published)
    save_file({name: tensor.contiguous() for name, tensor in ref.items()}, directory / "reference.safetensors")
    require(size(directory) <= MAX_DIRECTORY_BYTES, f"{encoder.name}: {size(directory)} bytes")
    entry = {
        "architecture": encoder.config["model_type"],
        "class": type(loaded).__name__,
        "config_style": encoder.style,
        "covers": encoder.covers,
        "seed": seed,
        "shape": shape_summary(loaded.config),
        "parameters": sum(parameter.numel() for parameter in loaded.parameters()),
        "outputs": {key: ref[key].shape[1]},
    }
    if encoder.layout:
        entry |= {"pooling": encoder.layout.pooling, "normalised": encoder.layout.normalize}
    else:
        entry |= {"labels": [loaded.config.id2label[label] for label in range(loaded.config.num_labels)]}
        entry |= {"min_margin": significant(margin(ref))}
    print(f"{encoder.name:14} seed {seed:3}  {size(directory):7} bytes  a padded batch differs by {padded:.1e}")
    return entry | {
        "bf16_nmse": significant(bf16_nmse(loaded, encoder, dense, ref)),
        "least_effect_of_a_tensor": significant(tensor_effect),
        "effect_of_other_values": {label: significant(effect) for label, effect in config_effects.items()},
        "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
    }


# ------------------------------------------------------------------------------------------------------------- main


def differences(ours, theirs):
    """What differs between two golden folders: bytes, except for numbers that depend on the CPU's rounding."""
    folders = [folder / FOLDER for folder in (ours, theirs)]
    names = {str(path.relative_to(folder)) for folder in folders for path in folder.rglob("*") if path.is_file()}
    # minilm.py writes minilm.json and minilm.safetensors.
    for name in sorted(name for name in names if not name.startswith("minilm.")):
        a, b = (folder / name for folder in folders)
        if not (a.is_file() and b.is_file()):
            yield f"{name}: only in one of the folders"
        elif name.endswith("reference.safetensors"):
            x, y = load_file(a), load_file(b)
            for key in sorted(x.keys() | y.keys()):
                if key not in x or key not in y or x[key].shape != y[key].shape:
                    yield f"{name}: {key} has another shape"
                elif not torch.allclose(x[key].double(), y[key].double(), rtol=0, atol=CHECK_TOLERANCE):
                    yield f"{name}: {key} differs by {float((x[key] - y[key]).abs().max())}"
        elif name == "manifest.json":
            x, y = (json.loads(path.read_text(encoding="utf-8")) for path in (a, b))
            moving = ("bf16_nmse", "min_margin", "least_effect_of_a_tensor", "effect_of_other_values")
            for manifest, entry in itertools.product((x, y), moving):
                for values in manifest.values():
                    values.pop(entry, None)
            if x != y:
                yield f"{name}: other contents"
        elif a.read_bytes() != b.read_bytes():
            yield f"{name}: other bytes"


def make_all(out):
    folder = out / FOLDER
    folder.mkdir(exist_ok=True)
    manifest = {encoder.name: make_encoder(encoder, folder) for encoder in ENCODERS}
    write_json(folder / "manifest.json", manifest)
    total = sum(size(folder / name) for name in manifest)
    require(total <= MAX_TOTAL_BYTES, f"{total} bytes in all")
    print(f"{len(manifest)} encoders, {total} bytes")


if __name__ == "__main__":
    make.command(__doc__, make_all, differences)
