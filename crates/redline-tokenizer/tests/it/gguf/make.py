"""Makes small vocabularies as GGUF files store them, with the ids that the reference gives.

Run by hand in this folder, with `tokenizers` 0.22 and `transformers` 5: python make.py
"""

import base64
import json
import os
import random
import runpy
import struct

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer, UnigramTrainer, WordPieceTrainer
from transformers.convert_slow_tokenizer import generate_merges

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)

os.chdir(os.path.dirname(os.path.abspath(__file__)))
shared = runpy.run_path("../fixtures/make.py", run_name="fixtures")
TEXT, AWKWARD = shared["TEXT"], shared["AWKWARD"] + [
    "Hello, y'all! How are you 😁 ?", "<|im_start|>user\nHi<|im_end|>", "<start> <think>hm</think> <end>", "3 33 333 3333 33333",
    "[CLS] the [MASK] runs [SEP]", "ﬁve Ａ ① tabs\there", "e\u0301te\u0301 été", "      six spaces", "a  b   c    d",
]
CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def f32(number):
    return struct.unpack("f", struct.pack("f", number))[0]


def save(name, tokenizer, metadata, document=True):
    """Writes the metadata, the tokenizer.json if it is small, and what the reference gives for awkward texts."""
    encodings, decodings = [], []
    for text in AWKWARD:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        encodings.append([text, ids, tokenizer.encode(text).ids])
        decodings.append([ids, tokenizer.decode(ids, skip_special_tokens=False), tokenizer.decode(ids)])
    dice = random.Random(11)
    size = tokenizer.get_vocab_size()
    for length in [1, 2, 3, 5, 8, 13] * 3:
        ids = [dice.randrange(dice.choice([260, size])) for _ in range(length)]
        decodings.append([ids, tokenizer.decode(ids, skip_special_tokens=False), tokenizer.decode(ids)])
    value = {"metadata": metadata, "encode": encodings, "decode": decodings}
    if document:
        value["tokenizer"] = json.loads(tokenizer.to_str())
    with open(f"small/{name}.json", "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")


def tokens_of(tokenizer, kinds):
    """The tokens by id, the type of each and a filler after the last one."""
    vocab = {id: token for token, id in tokenizer.get_vocab().items()}
    tokens = [vocab[id] for id in range(len(vocab))]
    types = [kinds.get(token, NORMAL) for token in tokens]
    return tokens + [f"[PAD{len(tokens)}]"], types + [UNUSED]


def template(tokenizer, before, after):
    ids = [(token, tokenizer.token_to_id(token)) for token in [before, after] if token]
    single = " ".join(part for part in [before, "$A", after] if part)
    tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=ids)


def byte_level(name, splits, nfc=False, ignore_merges=False, bos=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = BpeTrainer(vocab_size=420, show_progress=False, initial_alphabet=alphabet)
    tokenizer.train_from_iterator([TEXT], trainer)
    if ignore_merges:
        # A token that the merges do not produce.
        model = json.loads(tokenizer.to_str())["model"]
        vocab = model["vocab"] | {"Ġengine": len(model["vocab"])}
        merges = [tuple(merge) for merge in model["merges"]]
        tokenizer.model = models.BPE(vocab=vocab, merges=merges, ignore_merges=True)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    control, user = ["<|begin_of_text|>", "<|im_start|>", "<|im_end|>"], ["<think>", "</think>", "   "]
    tokenizer.add_special_tokens(control)
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in user])
    if bos:
        template(tokenizer, "<|begin_of_text|>", None)
    tokens, types = tokens_of(tokenizer, dict.fromkeys(control, CONTROL) | dict.fromkeys(user, USER))
    save(name, tokenizer, {
        "model": "gpt2", "pre": name, "tokens": tokens, "types": types, "merges": [" ".join(merge) for merge in merges],
        "special": {"bos": tokens.index("<|begin_of_text|>"), "eos": tokens.index("<|im_end|>")},
    })


def pieces():
    """A vocabulary and merges in SentencePiece style."""
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Tokenizer(models.BPE(fuse_unk=True, byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    text = "\n".join(line for line in TEXT.splitlines() if all(ord(c) < 0x250 for c in line))
    tokenizer.train_from_iterator([text], BpeTrainer(vocab_size=600, show_progress=False, special_tokens=special))
    model = json.loads(tokenizer.to_str())["model"]
    vocab, merges = model["vocab"], [tuple(merge) for merge in model["merges"]]
    for run in [2, 4]:
        vocab[run * "▁"] = len(vocab)
        merges.append((run // 2 * "▁", run // 2 * "▁"))
    return vocab, merges


def kinds_of_pieces(user):
    kinds = {"<unk>": UNKNOWN, "<s>": CONTROL, "</s>": CONTROL} | dict.fromkeys(user, USER)
    return kinds | {f"<0x{byte:02X}>": BYTE for byte in range(256)}


def llama():
    """Scores instead of merges. Two tokens in a row have the same score, so that their ids and lengths decide."""
    vocab, _ = pieces()
    scores = {token: f32(0.0 if id < 259 else -((id - 259) // 2)) for token, id in vocab.items()}
    kinds = kinds_of_pieces(["<start>"])
    skipped = [token for token in vocab if token in kinds]
    merges = generate_merges(vocab, scores, skipped)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, fuse_unk=True, byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in ["<unk>", "<s>", "</s>"]])
    tokenizer.add_tokens([AddedToken("<start>", normalized=False)])
    template(tokenizer, "<s>", None)
    tokens, types = tokens_of(tokenizer, kinds)
    save("llama", tokenizer, {
        "model": "llama", "pre": "default", "tokens": tokens, "types": types,
        "scores": [scores.get(token, -1000.0) for token in tokens],
        "special": {"bos": 1, "eos": 2, "unk": 0},
    })


def gemma4():
    vocab, merges = pieces()
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, fuse_unk=True, byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in ["<unk>", "<s>", "</s>"]])
    tokenizer.add_tokens([AddedToken("<start>", normalized=False)])
    template(tokenizer, "<s>", None)
    tokens, types = tokens_of(tokenizer, kinds_of_pieces(["<start>"]))
    save("gemma4", tokenizer, {
        "model": "gemma4", "tokens": tokens, "types": types, "merges": [" ".join(merge) for merge in merges],
        "special": {"bos": 1, "eos": 2, "unk": 0}, "add_space_prefix": False,
    })


def bert():
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator([TEXT], WordPieceTrainer(vocab_size=500, show_progress=False, special_tokens=special))
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokens, types = tokens_of(tokenizer, dict.fromkeys(special, CONTROL))

    def phantom(token, kind):
        if kind in [CONTROL, UNUSED]:
            return token
        return token[2:] if token.startswith("##") else "▁" + token

    save("bert", tokenizer, {
        "model": "bert", "pre": "jina-v2-en", "tokens": list(map(phantom, tokens, types)), "types": types,
        "special": {"unk": 1, "sep": 3, "pad": 0, "cls": 2, "mask": 4},
    })


def charsmap(replacements):
    """A compiled character map: a double array in which every node has a block of its own."""
    texts, trie = "", {}
    for key, text in replacements.items():
        node = trie
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[0] = len(texts.encode())
        texts += text + "\0"
    units, size = {}, 256

    def place(node, at, label):
        nonlocal size
        base, size = size, size + 256
        units[at] = label | (0 in node) << 8 | (at ^ base) << 10
        for byte, child in node.items():
            if byte:
                place(child, base ^ byte, byte)
            else:
                units[base] = child | 1 << 31

    place(trie, 0, 0)
    return units, size, texts


def t5():
    units, size, texts = charsmap({"ﬁ": "fi", "Ａ": "A", "①": "1", "\t": " ", "\n": " ", "\u00a0": " ", "\u200b": ""})
    table = [units.get(at, 0) for at in range(size)]
    binary = struct.pack("<I", 4 * size) + struct.pack(f"<{size}I", *table) + texts.encode()
    special = ["<pad>", "</s>", "<unk>"]
    metaspace = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = metaspace
    trainer = UnigramTrainer(vocab_size=400, show_progress=False, special_tokens=special, unk_token="<unk>")
    tokenizer.train_from_iterator(TEXT.splitlines(), trainer)
    vocab = [(token, f32(score)) for token, score in json.loads(tokenizer.to_str())["model"]["vocab"]]
    tokenizer = Tokenizer(models.Unigram(vocab, 2, False))
    # As transformers converts T5.
    document = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(binary).decode()}
    document = json.loads(tokenizer.to_str()) | {"normalizer": document}
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.normalizer = normalizers.Sequence(
        [tokenizer.normalizer, normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")]
    )
    tokenizer.pre_tokenizer = metaspace
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens([AddedToken("<start>", normalized=False)])
    template(tokenizer, None, "</s>")
    kinds = {"<pad>": CONTROL, "</s>": CONTROL, "<unk>": UNKNOWN, "<start>": USER}
    tokens, types = tokens_of(tokenizer, kinds)
    scores = dict(vocab)
    low = min(scores.values())
    save("t5", tokenizer, {
        "model": "t5", "tokens": tokens, "types": types, "scores": [scores.get(token, low) for token in tokens],
        "special": {"eos": 1, "unk": 2, "pad": 0}, "remove_extra_whitespaces": True, "add_space_prefix": True,
        "charsmap": {"size": size, "units": sorted(units.items()), "replacements": texts},
    }, document=False)


def main():
    os.makedirs("small", exist_ok=True)
    plain = pre_tokenizers.ByteLevel(False, use_regex=False)
    split = lambda regex: pre_tokenizers.Split(Regex(regex), "isolated")
    byte_level("llama-bpe", [split(CL100K), plain], ignore_merges=True, bos=True)
    byte_level("qwen2", [split(QWEN2), plain], nfc=True)
    byte_level("starcoder", [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False)])
    byte_level("deepseek-coder", [
        split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[一-龥ࠀ-一가-퟿]+"), pre_tokenizers.Digits(True), plain,
    ])
    llama()
    gemma4()
    bert()
    t5()


if __name__ == "__main__":
    main()
