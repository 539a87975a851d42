"""Small tokenizers for models with random weights: `tokenizer.json` and `tokenizer_config.json`."""

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

TEXT = """\
In the beginning God created the heaven and the earth. And the earth was without form, and void; and darkness was upon the face of the
deep. And the Spirit of God moved upon the face of the waters. And God said, Let there be light: and there was light. And God saw the
light, that it was good: and God divided the light from the darkness. And God called the light Day, and the darkness he called Night.
Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be "yes"
or "no". Given a web search query, retrieve relevant passages that answer the query. The king of Israel reigned forty years. yes yes no no
"""
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def word_piece(size):
    """BERT's tokenizer. Its trainer breaks ties at random, so the vocabulary is put together here: characters, endings, frequent words."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [word for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(TEXT.lower())]
    letters = sorted(set("".join(words)))
    ends = [f"##{end}" for end in [*(letter for letter in letters if letter.isalpha()), "ed", "ing", "ness"]]
    frequent = sorted((word for word in set(words) if len(word) > 1), key=lambda word: (-words.count(word), word))
    vocabulary = (special + letters + ends + frequent)[:size]
    vocab = {token: id for id, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(zip(["pad_token", "unk_token", "cls_token", "sep_token", "mask_token"], special))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def trained(size, special):
    tokenizer = Tokenizer(models.BPE())
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    return tokenizer


def roberta(size):
    """RoBERTa's tokenizer."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = trained(size, special)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    names = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, cls_token="<s>", sep_token="</s>", **names)


def qwen(size):
    """Qwen's tokenizer, in which `yes` and `no` are tokens."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = trained(size - len(special) - 2, [])
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(QWEN2), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in ["<think>", "</think>"]])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
