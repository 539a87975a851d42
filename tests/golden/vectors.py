"""Write vectors/: tiny random models of sparse vectors and of late interaction with outputs of sentence-transformers (f32).

    python vectors.py             rewrite vectors/ in this folder
    python vectors.py --check     build in a temporary folder and compare with what lies here

Every model is a directory as its library saves it, plus `reference.safetensors`:

    ids         i64 [N, L]        token ids, filled up with the padding id
    lengths     i64 [N]           tokens of each sequence
    types       i64 [N, L]        token types: all 0
    weights     f32 [N, V]        models of sparse vectors: the weight of each token of the vocabulary

Models with a tokenizer also have `texts.json`: texts with their token ids and weights that are not zero, as the library encodes them.
`bge-a` has the files of bge-m3, which is no model of that library: its layers are applied as FlagEmbedding does. Its reference also has
`vectors`, f32 [N, L, D], those of all tokens but the first one.

The models of late interaction have `texts.json` only: queries and documents with their vectors, row by row, and the similarity of each
query (row) to each document (column). `colbert-pylate-a` has the configuration that PyLate up to version 3 writes. `colbert-stanford-a` has the files of the library of
ColBERT's authors, which is not installed: its texts are read and compared as that library does.

vectors/manifest.json: by model what it covers, and the least effect of a tensor of its head.
"""

import json
import shutil
import string

import encoders
import make  # first: it tells the Hugging Face libraries that there is no network
import torch
from make import VISIBLE, require, significant, size, write_json
from safetensors.torch import load_file, save_file
from sentence_transformers import MultiVectorEncoder, SparseEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sparse_encoder.modules import SpladePooling
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
LATE = [
    dict(
        name="colbert-a",
        covers="queries of 12 tokens, whose masks are not seen; two tokens without vectors in documents; head size 12",
        config=encoders.BERT | dict(hidden_size=48, intermediate_size=76, num_attention_heads=4, num_hidden_layers=2, vocab_size=131),
        expansion={"strategy": "fixed", "attend": False, "length": 12},
        skipped=[",", "."],
        prompts={"query": "[Q] ", "document": "[D] "},
    ),
    dict(
        name="colbert-b",
        covers="queries of at least 9 tokens, filled up with a given token that is seen; the mean; windows of 10; head size 10",
        config={key: value for key, value in encoders.MODERNBERT_B.items() if not key.endswith("2id") and key != "id2label"}
        | dict(num_hidden_layers=2, layer_types=[encoders.FULL, encoders.SLIDING]),
        expansion={"strategy": "min", "attend": True, "length": 9, "token": "[PAD]"},
        skipped=[],
        prompts={"query": "", "document": "a "},
        similarity="meanmaxsim",
    ),
    dict(
        name="colbert-pylate-a",
        covers="PyLate: markers as tokens, no masks in between, all punctuation without vectors in documents; head size 12",
        config=encoders.DISTILBERT | dict(dim=48, hidden_dim=76, n_heads=4, vocab_size=131),
        pylate=True,
    ),
]
STANFORD = dict(
    name="colbert-stanford-a",
    covers="the form of ColBERT's authors: a layer beside the encoder, queries of 10 tokens whose masks are not seen; head size 12",
    config=encoders.BERT | dict(hidden_size=48, intermediate_size=76, num_attention_heads=4, num_hidden_layers=2, vocab_size=131),
    metadata=dict(
        query_token_id="[unused0]",
        doc_token_id="[unused1]",
        query_maxlen=10,
        doc_maxlen=13,
        dim=16,
        mask_punctuation=True,
        attend_to_mask_tokens=False,
        similarity="cosine",
        interaction="colbert",
    ),
)
QUERIES = ["Who wrote this book?", "rain", "The old king and the new queen of the river house runs to the sea."]
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


@torch.no_grad()
def own_vectors(network, layer, inputs):
    """As in FlagEmbedding: those of all tokens but the first one."""
    rows = []
    for ids in each(inputs):
        vectors = torch.nn.functional.normalize(layer(network(input_ids=ids).last_hidden_state[0, 1:]), dim=-1)
        rows.append(torch.nn.functional.pad(vectors, (0, 0, 0, max(LENGTHS) - len(vectors))))
    return torch.stack(rows)


def make_late(model, out):
    generator = torch.Generator().manual_seed(2)
    network = build(AutoModel, model)
    encoders.fill(network, generator)
    directory = out / model["name"]
    fresh(directory)
    network.save_pretrained(directory)
    tokenizer(network.config.vocab_size).save_pretrained(directory)
    is_pylate = model.get("pylate", False)
    limits = {} if is_pylate else dict(document_length=14, query_expansion=model["expansion"])
    hidden = network.config.hidden_size
    transformer = Transformer(str(directory), **limits)
    dense = Dense(hidden, 16, bias=False, activation_function=torch.nn.Identity(), module_input_name="token_embeddings")
    with torch.no_grad():
        dense.linear.weight.copy_(encoders.uniform(dense.linear.weight.shape, 0.0, 0.3, generator))
    modules = [transformer, dense, MultiVectorMask(skiplist_words=model.get("skipped", [])), Normalize("token_embeddings")]
    similarity = dict(similarity_fn_name=model.get("similarity"))
    library = MultiVectorEncoder(modules=modules, prompts=model.get("prompts"), device="cpu", **similarity).eval()
    fresh(directory)
    library.save(str(directory), create_model_card=False)
    if is_pylate:
        as_pylate(directory)
    again = MultiVectorEncoder(str(directory), device="cpu").eval()
    encoded = {"query": [], "document": []}
    for task, texts in (("query", QUERIES), ("document", TEXTS)):
        encode = again.encode_query if task == "query" else again.encode_document
        for text in texts:
            encoded[task].append(torch.as_tensor(encode([text])[0]).float())
    write_texts(directory, encoded, lambda query, document: again.similarity([query], [document])[0, 0])
    return {"covers": model["covers"], "sentence_transformers": __import__("sentence_transformers").__version__}


@torch.no_grad()
def make_stanford(model, out):
    generator = torch.Generator().manual_seed(3)
    network = build(AutoModel, model)
    encoders.fill(network, generator)
    metadata = model["metadata"]
    layer = encoders.uniform((metadata["dim"], network.config.hidden_size), 0.0, 0.3, generator)
    directory = out / model["name"]
    fresh(directory)
    words = tokenizer(network.config.vocab_size)
    words.save_pretrained(directory)
    network.config.architectures = ["HF_ColBERT"]
    network.config.save_pretrained(directory)
    state = {f"bert.{name}": tensor.contiguous() for name, tensor in network.state_dict().items() if not name.startswith("pooler.")}
    save_file(state | {"linear.weight": layer}, directory / "model.safetensors")
    write_json(directory / "artifact.metadata", metadata)
    known = words.get_vocab()
    punctuation = {known[symbol] for symbol in string.punctuation if symbol in known}

    def ids_of(text, marker, most):
        inner = words(text, add_special_tokens=False)["input_ids"][: most - 3]
        return [words.cls_token_id, known[marker], *inner, words.sep_token_id]

    def vectors(ids, keys):
        mask = (torch.arange(len(ids)) < keys).long()[None]
        states = network(input_ids=torch.tensor([ids]), attention_mask=mask).last_hidden_state[0]
        return torch.nn.functional.normalize(states @ layer.T, dim=-1)

    def query(text):
        ids = ids_of(text, metadata["query_token_id"], metadata["query_maxlen"])
        return vectors(ids + [words.mask_token_id] * (metadata["query_maxlen"] - len(ids)), len(ids))

    def document(text):
        ids = ids_of(text, metadata["doc_token_id"], metadata["doc_maxlen"])
        return vectors(ids, len(ids))[[token not in punctuation for token in ids]]

    encoded = {"query": [query(text) for text in QUERIES], "document": [document(text) for text in TEXTS]}
    filled_up = [len(found) > len(ids_of(text, "[unused0]", 10)) for found, text in zip(encoded["query"], QUERIES)]
    require(any(filled_up), "no query is filled up")
    write_texts(directory, encoded, lambda query, document: (query @ document.T).amax(1).sum())
    return {"covers": model["covers"]}


def write_texts(directory, encoded, similarity):
    """`texts.json`: queries and documents with their vectors, and the similarity of each query to each document."""
    entry = {
        task: [{"text": text, "vectors": rounded_rows(rows)} for text, rows in zip(texts, encoded[task])]
        for task, texts in (("query", QUERIES), ("document", TEXTS))
    }
    scores = [[float(similarity(query, document)) for document in encoded["document"]] for query in encoded["query"]]
    entry["similarity"] = [[round(score, 6) for score in row] for row in scores]
    (directory / "texts.json").write_text(json.dumps(entry) + "\n", encoding="utf-8")
    require(size(directory) <= MAX_DIRECTORY_BYTES, f"{directory.name}: {size(directory)} bytes")
    print(f"{directory.name:20} {size(directory):7} bytes")


def rounded_rows(rows):
    return [[round(float(value), 6) for value in row] for row in rows]


def as_pylate(directory):
    """Rewrite the files of a model to the form of PyLate 3."""
    for module in ("2_MultiVectorMask", "3_Normalize"):
        shutil.rmtree(directory / module)
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"},
    ]
    write_json(directory / "modules.json", modules)
    dense = json.loads((directory / "1_Dense/config.json").read_text(encoding="utf-8"))
    dense = {key: value for key, value in dense.items() if not key.startswith("module_")}
    write_json(directory / "1_Dense/config.json", dense)
    write_json(directory / "sentence_bert_config.json", {"max_seq_length": 63, "do_lower_case": False})
    config = {
        "model_type": "ColBERT",
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": "cosine",
        "query_prefix": "[Q] ",
        "document_prefix": "[D] ",
        "query_length": 11,
        "document_length": 14,
        "attend_to_expansion_tokens": False,
    }
    write_json(directory / "config_sentence_transformers.json", config)


def make_bge(model, out):
    generator = torch.Generator().manual_seed(1)
    network = build(AutoModel, model | {"config": model["config"]})
    encoders.fill(network, generator)
    layer = torch.nn.Linear(network.config.hidden_size, 1)
    with torch.no_grad():
        layer.weight.copy_(encoders.uniform(layer.weight.shape, 0.0, 0.3, generator).half())
        layer.bias.copy_(torch.tensor([0.75]))
    inputs = encoders.make_inputs(network.config, generator)
    inputs["ids"][:, 0] = network.config.bos_token_id
    inputs["ids"][0, 7:9] = inputs["ids"][0, 30:32]  # tokens that occur twice
    for row, length in enumerate(LENGTHS):
        inputs["ids"][row, length - 1] = network.config.eos_token_id
    colbert = torch.nn.Linear(network.config.hidden_size, 20)
    with torch.no_grad():
        colbert.weight.copy_(encoders.uniform(colbert.weight.shape, 0.0, 0.3, generator).half())
        colbert.bias.copy_(encoders.uniform(colbert.bias.shape, 0.0, 0.3, generator).half())
    ref = inputs | {"weights": own_weights(network, layer, inputs), "vectors": own_vectors(network, colbert, inputs)}
    directory = out / model["name"]
    fresh(directory)
    network.save_pretrained(directory)
    write_json(directory / "config.json", dict(sorted((model["config"] | {"architectures": ["XLMRobertaModel"]}).items())))
    for layers, file in ((layer, "sparse_linear.pt"), (colbert, "colbert_linear.pt")):
        torch.save({name: tensor.half() for name, tensor in layers.state_dict().items()}, directory / file)
    encoders.save_layout(directory, encoders.Layout(pooling="cls"), network.config.hidden_size, [])
    least = effects(layer, lambda: own_weights(network, layer, inputs), ref["weights"], ["weight", "bias"])
    return written(directory, {"covers": model["covers"], "least_effect_of_a_tensor": least}, ref)


def make_all(out):
    folder = out / FOLDER
    folder.mkdir(exist_ok=True)
    manifest = {model["name"]: make_splade(model, folder) for model in SPLADE}
    manifest[BGE["name"]] = make_bge(BGE, folder)
    manifest |= {model["name"]: make_late(model, folder) for model in LATE}
    manifest[STANFORD["name"]] = make_stanford(STANFORD, folder)
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
