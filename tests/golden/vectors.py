"""Write vectors/: tiny random models of sparse vectors with reference outputs from sentence-transformers (f32).

    python vectors.py             rewrite vectors/ in this folder
    python vectors.py --check     build in a temporary folder and compare with what lies here

Every model is a directory as its library saves it, plus `reference.safetensors`:

    ids         i64 [N, L]        token ids, filled up with the padding id
    lengths     i64 [N]           tokens of each sequence
    types       i64 [N, L]        token types: all 0
    weights     f32 [N, V]        the weight of each token of the vocabulary

Models with a tokenizer also have `texts.json`: texts with their token ids and weights that are not zero, as the library encodes them.
`bge-a` has the files of bge-m3, which is no model of that library: its layer is applied as FlagEmbedding does.

vectors/manifest.json: by model what it covers, and the least effect of a tensor of its head.
"""

import json
import shutil

import encoders
import make  # first: it tells the Hugging Face libraries that there is no network
import torch
from make import VISIBLE, require, significant, size, write_json
from safetensors.torch import load_file, save_file
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import SpladePooling
from sentence_transformers.base.modules import Transformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, PreTrainedTokenizerFast

FOLDER = "vectors"
LENGTHS = encoders.LENGTHS
TOLERANCE = 1e-4
MAX_DIRECTORY_BYTES = 400_000
WORDS = "the a king queen rain falls on fields and old new house of stone river runs to sea who wrote this book".split()
PIECES = ["##s", "##ing", "##ed"] + [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
LETTERS = list("abcdefghijklmnopqrstuvwxyz.,!?")
TEXTS = ["The old king wrote this book.", "Rain falls on the fields, and the river runs to the sea!", "queens", "who?"]

SPLADE = [
    dict(
        name="distilbert-splade-a",
        covers="the largest logit; a tokenizer; gelu in the head; head size 12",
        config=encoders.DISTILBERT | dict(dim=48, hidden_dim=76, n_heads=4, vocab_size=131),
        pooling={},
        tokenizer=True,
    ),
    dict(
        name="bert-splade-a",
        covers="the sum, two logarithms; gelu_new in the head, epsilon 1e-6; head size 14",
        config=encoders.BERT
        | dict(
            hidden_act="gelu_new",
            hidden_size=56,
            intermediate_size=84,
            layer_norm_eps=1e-6,
            num_attention_heads=4,
            num_hidden_layers=2,
            vocab_size=131,
        ),
        pooling={"pooling_strategy": "sum", "activation_function": "log1p_relu"},
    ),
    dict(
        name="roberta-splade-a",
        covers="no modules.json; relu in the layers but not in the head; head size 18",
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
        ),
        pooling=None,
    ),
    dict(
        name="modernbert-splade-a",
        covers="no modules.json; biases of the norms and of the layer before the head, relu there; head size 10",
        config={key: value for key, value in encoders.MODERNBERT_B.items() if not key.endswith("2id") and key != "id2label"}
        | dict(num_hidden_layers=2, layer_types=[encoders.FULL, encoders.SLIDING]),
        pooling=None,
    ),
]
BGE = dict(
    name="bge-a",
    covers="weights of a text's own tokens; a dense vector too; head size 12",
    config=encoders.XLMR | dict(hidden_size=48, intermediate_size=90, num_attention_heads=4, num_hidden_layers=2, vocab_size=167),
)


def tokenizer(vocabulary):
    """A WordPiece tokenizer with so many tokens."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[Q]", "[D]"] + WORDS + LETTERS + PIECES
    tokens = list(dict.fromkeys(tokens))
    tokens += [f"[unused{index}]" for index in range(vocabulary - len(tokens))]
    require(len(tokens) == vocabulary, f"{len(tokens)} tokens")
    ids = {token: index for index, token in enumerate(tokens)}
    backend = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
    special = dict(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=64, **special)


def build(auto_class, model):
    config = AutoConfig.for_model(**json.loads(json.dumps(model["config"])))
    return auto_class.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()


def each(inputs):
    """The ids of each sequence, alone."""
    return [inputs["ids"][[row], :length] for row, length in enumerate(LENGTHS)]


@torch.no_grad()
def splade(network, pooling, inputs):
    module = SpladePooling(**(pooling or {})).eval()

    def weights(ids):
        logits = network(input_ids=ids).logits
        return module({"token_embeddings": logits, "attention_mask": torch.ones_like(ids)})["sentence_embedding"][0]

    return torch.stack([weights(ids) for ids in each(inputs)])


def effects(network, run, ref, names):
    """The smallest change that leaving out one of the tensors makes."""
    found = []
    parameters = dict(network.named_parameters())
    for name in names:
        kept = parameters[name].detach().clone()
        with torch.no_grad():
            parameters[name].fill_(encoders.neutral(network, name))
            found.append((float((run() - ref).abs().max()), name))
            parameters[name].copy_(kept)
    least, name = min(found)
    require(least > VISIBLE, f"{name} hardly matters ({least})")
    return significant(least)


def head_of(network):
    trunk = {f"{network.base_model_prefix}.{name}" for name, _ in network.base_model.named_parameters()}
    return [name for name, _ in network.named_parameters() if name not in trunk]


def fresh(directory):
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir()


def written(directory, entry, ref):
    save_file({name: tensor.contiguous() for name, tensor in ref.items()}, directory / "reference.safetensors")
    require(size(directory) <= MAX_DIRECTORY_BYTES, f"{directory.name}: {size(directory)} bytes")
    print(f"{directory.name:20} {size(directory):7} bytes")
    return entry | {"sentence_transformers": __import__("sentence_transformers").__version__}


def make_splade(model, out):
    generator = torch.Generator().manual_seed(1)
    network = build(AutoModelForMaskedLM, model)
    encoders.fill(network, generator)
    network.tie_weights()
    inputs = encoders.make_inputs(network.config, generator)
    inputs["types"].zero_()
    ref = inputs | {"weights": splade(network, model["pooling"], inputs)}
    directory = out / model["name"]
    fresh(directory)
    network.save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    texts = None
    if model["pooling"] is not None:
        # The library needs a tokenizer to save a model, which most of these models do not keep.
        own = tokenizer(network.config.vocab_size)
        own.save_pretrained(directory)
        transformer = Transformer(str(directory), transformer_task="fill-mask")
        library = SparseEncoder(modules=[transformer, SpladePooling(**model["pooling"])], device="cpu").eval()
        fresh(directory)
        library.save(str(directory), create_model_card=False)
        again = SparseEncoder(str(directory), device="cpu").eval()
        if model.get("tokenizer"):
            texts = []
            for text in TEXTS:
                weights = again.encode([text], convert_to_sparse_tensor=False)[0]
                indices = [int(index) for index in weights.nonzero().flatten()]
                texts.append(
                    {
                        "text": text,
                        "ids": again.tokenizer(text)["input_ids"],
                        "indices": indices,
                        "values": [round(float(weights[index]), 7) for index in indices],
                    }
                )
            write_json(directory / "texts.json", texts)
        else:
            for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
                (directory / name).unlink(missing_ok=True)
        again = again[0].auto_model
    else:
        again = AutoModelForMaskedLM.from_pretrained(directory, attn_implementation="eager").eval()
    change = float((splade(again, model["pooling"], inputs) - ref["weights"]).abs().max())
    require(change < TOLERANCE, f"{model['name']}: weights after reading differ by {change}")
    least = effects(network, lambda: splade(network, model["pooling"], inputs), ref["weights"], head_of(network))
    entry = {"covers": model["covers"], "least_effect_of_a_tensor": least}
    return written(directory, entry, ref)


@torch.no_grad()
def own_weights(network, layer, inputs):
    """As in FlagEmbedding: the most that a token is given, without special tokens."""
    config = network.config
    rows = []
    for ids in each(inputs):
        hidden = network(input_ids=ids).last_hidden_state[0]
        given = torch.relu(layer(hidden))[:, 0]
        weights = torch.zeros(config.vocab_size)
        weights.scatter_reduce_(0, ids[0], given, "amax")
        # The id of `<unk>` is known by the tokenizer only.
        weights[[config.bos_token_id, config.pad_token_id, config.eos_token_id]] = 0
        rows.append(weights)
    return torch.stack(rows)


def make_bge(model, out):
    generator = torch.Generator().manual_seed(1)
    network = build(AutoModel, model | {"config": model["config"]})
    encoders.fill(network, generator)
    layer = torch.nn.Linear(network.config.hidden_size, 1)
    with torch.no_grad():
        layer.weight.copy_(encoders.uniform(layer.weight.shape, 0.0, 0.3, generator).half())
        layer.bias.copy_(torch.tensor([0.125]))
    inputs = encoders.make_inputs(network.config, generator)
    inputs["ids"][:, 0] = network.config.bos_token_id
    inputs["ids"][0, 7:9] = inputs["ids"][0, 30:32]  # tokens that occur twice
    for row, length in enumerate(LENGTHS):
        inputs["ids"][row, length - 1] = network.config.eos_token_id
    ref = inputs | {"weights": own_weights(network, layer, inputs)}
    directory = out / model["name"]
    fresh(directory)
    network.save_pretrained(directory)
    write_json(directory / "config.json", dict(sorted((model["config"] | {"architectures": ["XLMRobertaModel"]}).items())))
    half = {name: tensor.half() for name, tensor in layer.state_dict().items()}
    torch.save(half, directory / "sparse_linear.pt")
    encoders.save_layout(directory, encoders.Layout(pooling="cls"), network.config.hidden_size, [])
    least = effects(layer, lambda: own_weights(network, layer, inputs), ref["weights"], ["weight", "bias"])
    return written(directory, {"covers": model["covers"], "least_effect_of_a_tensor": least}, ref)


def make_all(out):
    folder = out / FOLDER
    folder.mkdir(exist_ok=True)
    manifest = {model["name"]: make_splade(model, folder) for model in SPLADE}
    manifest[BGE["name"]] = make_bge(BGE, folder)
    write_json(folder / "manifest.json", manifest)


def differences(ours, theirs):
    """What differs between two golden folders: bytes, except for numbers that depend on the CPU's rounding."""
    folders = [folder / FOLDER for folder in (ours, theirs)]
    names = {str(path.relative_to(folder)) for folder in folders for path in folder.rglob("*") if path.is_file()}
    for name in sorted(names):
        a, b = (folder / name for folder in folders)
        if not (a.is_file() and b.is_file()):
            yield f"{name}: only in one of the folders"
        elif name.endswith("reference.safetensors"):
            x, y = load_file(a), load_file(b)
            if x.keys() != y.keys() or any(not torch.allclose(x[key].double(), y[key].double(), atol=1e-3) for key in x):
                yield f"{name}: other values"
        elif not name.endswith((".pt", "manifest.json", "texts.json")) and a.read_bytes() != b.read_bytes():
            yield f"{name}: other bytes"


if __name__ == "__main__":
    make.command(__doc__, make_all, differences)
