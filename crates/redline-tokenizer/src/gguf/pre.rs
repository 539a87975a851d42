//! The rules that split text into words for byte-level BPE, by their name in `tokenizer.ggml.pre`.
//!
//! A file stores only the name, which its converter found by a digest of ids. The regexes are those of the tokenizers
//! that the names stand for; where llama.cpp approximates one, the original counts.

use super::document::{byte_level, sequence};
use crate::TokenizerError;
use crate::native::{CL100K, O200K, QWEN2, TEKKEN};
use serde_json::{Value, json};

/// A rule, with the settings that the name implies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    cuts: &'static [Cut],
    pub(super) style: Style,
    /// Whether texts are normalised to NFC.
    pub(super) nfc: bool,
    /// Whether a word that is a token becomes that token, even if the merges give another result.
    pub(super) ignore_merges: bool,
    /// Whether BOS is put before a text unless the file says otherwise.
    pub(super) add_bos: bool,
}

/// How tokens represent text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// One character per byte.
    Bytes,
    /// SentencePiece style: a mark per space, and byte tokens for unknown characters.
    Marks,
}

/// One step of splitting: each match becomes a word, and so does the text between two matches.
#[derive(Debug, Clone, Copy)]
enum Cut {
    Regex(&'static str),
    /// GPT-2's regex.
    Gpt2,
    /// Runs of punctuation.
    Punctuation,
}

use Cut::{Gpt2, Punctuation, Regex};

const NUMBER: Cut = Regex(r"\p{N}");
const NUMBERS: Cut = Regex(r"\p{N}{1,3}");
const LINE_END: Cut = Regex(r"[\r\n]");
const LINES: Cut = Regex(r"[^\n]+|[\n]+");
const KANA: Cut = Regex("[一-龥぀-ゟ゠-ヿ]+");
const CJK: Cut = Regex("[一-龥ࠀ-一가-퟿]+");
/// Digits in groups of three, counted from the last one.
const GROUPS: Cut = Regex(r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))");
const DEEPSEEK3: Cut = Regex(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
);
/// Letters of Latin, Greek, Cyrillic and some other scripts, without the others.
const DEEPSEEK_LETTERS: Cut = Regex(
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\x{1F7D}ᾀ-ᾴᾶ-ᾼ\x{1FBE}ῂ-ῄῆ-ῌῐ-\x{1FD3}ῖ-\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
);
const BLOOM: Cut = Regex(r" ?[^(\s|.,!?…。，、।۔،)]+");

const GPT2: Rule =
    Rule { cuts: &[Gpt2], style: Style::Bytes, nfc: false, ignore_merges: false, add_bos: false };
const GPT2_NFC: Rule = Rule { nfc: true, ..GPT2 };
const fn cuts(cuts: &'static [Cut]) -> Rule {
    Rule { cuts, ..GPT2 }
}
const DIGITS: Rule = cuts(&[NUMBER, Gpt2]);
const CL100K_RULE: Rule = cuts(&[Regex(CL100K)]);
const LLAMA3: Rule = Rule { ignore_merges: true, add_bos: true, ..CL100K_RULE };
const GLM4: Rule = Rule { ignore_merges: true, ..CL100K_RULE };
const QWEN2_RULE: Rule = Rule { nfc: true, ..cuts(&[Regex(QWEN2)]) };
const QWEN2_PLAIN: Rule = cuts(&[Regex(QWEN2)]);
const O200K_RULE: Rule = cuts(&[Regex(O200K)]);
const DEEPSEEK3_RULE: Rule = cuts(&[NUMBERS, KANA, DEEPSEEK3]);
const BLOOM_RULE: Rule = cuts(&[BLOOM]);
const GROUPED_O200K: Rule = cuts(&[Regex(r"\d{1,3}(?=(?:\d{3})*\b)"), Regex(O200K)]);
const BAILING: Rule = cuts(&[Regex(
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
)]);
const MARKS: Rule = Rule { cuts: &[], style: Style::Marks, ..GPT2 };
const GEMMA4: Rule = Rule { add_bos: true, ..MARKS };

/// Every name with its rule.
const NAMES: &[(&str, Rule)] = &[
    ("a.x-4.0", GPT2),
    (
        "afmoe",
        cuts(&[GROUPS, Regex("[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+"), DEEPSEEK3]),
    ),
    ("bailingmoe", BAILING),
    ("bailingmoe2", BAILING),
    ("bloom", BLOOM_RULE),
    ("chameleon", Rule { add_bos: true, ..CHAMELEON }),
    ("chatglm-bpe", CL100K_RULE),
    ("codeshell", DIGITS),
    ("cohere2moe", GROUPED_O200K),
    ("command-r", Rule { nfc: true, ..DIGITS }),
    ("dbrx", CL100K_RULE),
    ("deepseek-coder", cuts(&[LINE_END, Regex(r"\s?\p{L}+"), Regex(r"\s?\p{P}+"), CJK, NUMBER])),
    (
        "deepseek-llm",
        cuts(&[
            LINE_END,
            DEEPSEEK_LETTERS,
            Regex(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"),
            Regex(r"\s+$"),
            CJK,
            NUMBER,
        ]),
    ),
    ("deepseek-r1-qwen", QWEN2_PLAIN),
    ("deepseek-v3", DEEPSEEK3_RULE),
    ("default", cuts(&[Regex(r"[\p{P}\$\+<=>\^~\|]+"), Gpt2, Regex(r"\p{N}+"), Regex("[0-9][0-9][0-9]")])),
    ("exaone", DIGITS),
    (
        "exaone-moe",
        cuts(&[Regex(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
        )]),
    ),
    ("exaone4", GPT2),
    ("f2llmv2", QWEN2_RULE),
    ("falcon", cuts(&[Punctuation, Gpt2, Regex("[0-9][0-9][0-9]")])),
    ("falcon-h1", LLAMA3),
    ("falcon3", LLAMA3),
    ("gemma4", GEMMA4),
    ("gigachat", GPT2),
    ("glm4", GLM4),
    ("glm5", GLM4),
    ("gpt-2", GPT2),
    ("gpt-4o", O200K_RULE),
    ("gpt3-finnish", BLOOM_RULE),
    ("granite-docling", GPT2),
    ("granite-embed-multi-311m", GEMMA4),
    ("granite-embed-multi-97m", Rule { ignore_merges: true, ..O200K_RULE }),
    ("grok-2", QWEN2_PLAIN),
    ("hunyuan", QWEN2_PLAIN),
    ("hunyuan-dense", DEEPSEEK3_RULE),
    ("hy_v4", DEEPSEEK3_RULE),
    ("jais", GPT2),
    (
        "jais-2",
        cuts(&[Regex(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}",
        )]),
    ),
    ("jina-de", GPT2),
    ("jina-es", GPT2),
    ("jina-v1-en", GPT2),
    ("jina-v2-code", GPT2),
    ("jina-v2-de", GPT2),
    ("jina-v2-es", GPT2),
    ("jina-v5-nano", LLAMA3),
    ("joyai-llm", DEEPSEEK3_RULE),
    ("kanana2", O200K_RULE),
    (
        "kimi-k2",
        cuts(&[Regex(
            r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        )]),
    ),
    ("kormo", QWEN2_RULE),
    ("laguna", cuts(&[LINES, Regex(QWEN2)])),
    ("lfm2", LLAMA3),
    ("llada-moe", BAILING),
    ("llama-bpe", LLAMA3),
    ("llama-v3", LLAMA3),
    ("llama3", LLAMA3),
    ("llama4", O200K_RULE),
    ("megrez", QWEN2_RULE),
    ("mellum", GPT2),
    ("mellum2", DIGITS),
    ("midm-2.0", LLAMA3),
    ("minerva-7b", DIGITS),
    (
        "minicpm5",
        Rule {
            ignore_merges: true,
            ..cuts(&[
                NUMBERS,
                Regex(
                    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
                ),
            ])
        },
    ),
    ("minimax-m2", O200K_RULE),
    ("modern-bert", GPT2_NFC),
    ("mpt", GPT2_NFC),
    ("olmo", GPT2_NFC),
    ("phi-2", GPT2),
    ("pixtral", LLAMA3),
    ("poro-chat", BLOOM_RULE),
    ("qwen2", QWEN2_RULE),
    (
        "qwen35",
        cuts(&[Regex(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        )]),
    ),
    ("refact", DIGITS),
    ("roberta-bpe", GPT2),
    ("sarvam-moe", MARKS),
    (
        "seed-coder",
        cuts(&[Regex(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
        )]),
    ),
    ("smaug-bpe", CL100K_RULE),
    ("smollm", DIGITS),
    ("solar-open", QWEN2_PLAIN),
    (
        "spark2_5",
        cuts(&[
            NUMBERS,
            KANA,
            Regex(
                r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"##,
            ),
            NUMBER,
        ]),
    ),
    ("stablelm2", QWEN2_PLAIN),
    ("starcoder", DIGITS),
    ("superbpe", cuts(&[Regex(r"\p{N}+"), Regex(r"(?=(\d{3})+(?!\d))")])),
    ("talkie", O200K_RULE),
    ("tekken", Rule { ignore_merges: true, add_bos: true, ..cuts(&[Regex(TEKKEN)]) }),
    ("tiny_aya", GROUPED_O200K),
    ("trillion", GPT2),
    (
        "ufakzeka",
        cuts(&[Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")]),
    ),
    ("viking", cuts(&[BLOOM, NUMBER])),
    (
        "youtu",
        Rule {
            ignore_merges: true,
            ..cuts(&[
                Regex("[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+"),
                Regex(
                    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
                ),
            ])
        },
    ),
];

const CHAMELEON: Rule = cuts(&[
    Regex("<sentinel:[0-9]+>"),
    Regex("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"),
    Regex(r"([\t\n]|    |  )"),
    NUMBER,
    Regex(r"[\p{P}!-/:-@\[-`{-~]"),
    Gpt2,
]);

/// The rule of a name.
pub(super) fn rule(place: &str, name: &str) -> Result<Rule, TokenizerError> {
    let found = NAMES.iter().find(|(known, _)| *known == name).map(|(_, rule)| *rule);
    found.ok_or_else(|| {
        let known = NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join("`, `");
        TokenizerError::Unsupported {
            place: place.to_owned(),
            part: "tokenizer.ggml.pre",
            found: name.to_owned(),
            known: format!("`{known}`"),
        }
    })
}

impl Rule {
    /// The pre-tokenizer of a byte-level model.
    pub(super) fn pre_tokenizer(&self) -> Value {
        let split = |regex: &str| {
            let pattern = json!({ "Regex": regex });
            json!({ "type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": false })
        };
        let punctuation = json!({ "type": "Punctuation", "behavior": "Contiguous" });
        let gpt2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
        let last = self.cuts.len().saturating_sub(1);
        let mut parts = Vec::new();
        let mut done = false;
        for (at, cut) in self.cuts.iter().enumerate() {
            parts.push(match cut {
                Regex(regex) => split(regex),
                Punctuation => punctuation.clone(),
                // The last step can also represent bytes by characters.
                Gpt2 if at == last => {
                    done = true;
                    byte_level(true)
                }
                Gpt2 => split(gpt2),
            });
        }
        if !done {
            parts.push(byte_level(false));
        }
        sequence("pretokenizers", parts)
    }
}
