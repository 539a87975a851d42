//! Receipts: what a model was asked, what it answered, and digests of what its layers computed between the two. As answers have the same
//! bits on every machine, any other machine with the model can run the request again and compare.
//!
//! A [`Recorder`] belongs to one request. The engine's thread adds the digests of the rows that the request reads, in whatever order they
//! run: their sum does not depend on it, nor on threads, batches, instructions and what the prefix cache holds.

use std::sync::{Mutex, PoisonError};

use redline_models::row_digests::RowDigests;
use redline_weights::{Checksum, Sha256Digest, Sha256Hasher};

use crate::identity::ModelIdentity;
use crate::request::{DiffuseRequest, EmbedRequest, GenerateRequest, Prompt, ScoreRequest};

/// What a model was asked and what it answered, with digests of what it computed.
#[derive(Clone, Debug)]
pub struct Receipt {
    /// The model.
    pub model: ModelIdentity,
    /// The adapters that were applied, in this order.
    pub adapters: Vec<ReceiptAdapter>,
    /// What the model was asked.
    pub request: ReceiptRequest,
    /// Number of rows of the residual stream that the digests are of: those whose logits or states were read.
    pub rows: u64,
    /// The layers that were chosen, ascending.
    pub layers: Vec<ReceiptLayer>,
    /// For each item of the request, or each continuation, what the model answered.
    pub answer: Vec<ReceiptAnswer>,
}

/// An adapter of a receipt.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiptAdapter {
    /// Its name where the receipt was made; another machine may know it by another name.
    pub name: String,
    /// Factor on its updates.
    pub scale: f32,
    /// A checksum over its weights.
    pub checksum: String,
}

/// A request in terms of token ids: all texts are ids, and what changes no answer (salt, time limit, tenant) is left out. Adapters are
/// those of the receipt.
#[derive(Clone, Debug)]
pub enum ReceiptRequest {
    /// To continue a prompt.
    Generate(Box<GenerateRequest>),
    /// To fill masks.
    Diffuse(Box<DiffuseRequest>),
    /// To score labels; classes and relevance too, of models that write their answer. The items are whole prompts.
    Score(Box<ScoreRequest>),
    /// To embed texts.
    Embed(Box<EmbedRequest>),
    /// To put texts, or pairs of texts, through the classifier of a model that has one.
    Classifier(Vec<ClassifierText>),
}

impl ReceiptRequest {
    /// Number of tokens of each prompt.
    fn lengths(&self) -> Vec<usize> {
        let length = |prompt: &Prompt| match prompt {
            Prompt::Ids(ids) => ids.len(),
            Prompt::Text(_) | Prompt::Formatted(_) => 0,
        };
        match self {
            Self::Generate(request) => vec![length(&request.prompt)],
            Self::Diffuse(request) => vec![length(&request.prompt)],
            Self::Score(request) => request.items.iter().map(length).collect(),
            Self::Embed(request) => request.texts.iter().map(length).collect(),
            Self::Classifier(texts) => texts.iter().map(|text| text.ids.len()).collect(),
        }
    }

    /// Number of prompts.
    pub(crate) fn prompts(&self) -> usize {
        self.lengths().len()
    }

    /// Number of tokens of all prompts.
    pub(crate) fn tokens(&self) -> usize {
        self.lengths().iter().sum()
    }
}

/// A text, or a pair of texts, as a classifier reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassifierText {
    /// Its tokens, special ones included.
    pub ids: Vec<u32>,
    /// The position of the first token that is of the second type, if the model tells texts apart by types.
    pub second_text: Option<usize>,
}

/// A digest of what a layer computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptLayer {
    /// The layer, counted from 0.
    pub layer: usize,
    /// SHA-256 over the number of rows (64 bits) and the sum, modulo 2^256, of the SHA-256 digests of all rows, in little-endian order.
    /// The digest of a row is that of the values of the residual stream after the layer, as little-endian f32.
    pub sha256: String,
}

/// What a model answered.
#[derive(Clone, Debug, PartialEq)]
pub enum ReceiptAnswer {
    /// New tokens, and their text. Of a canvas, all of its tokens.
    Tokens {
        /// The ids.
        ids: Vec<u32>,
        /// The text.
        text: String,
    },
    /// A score for each label, or the outputs of a classifier.
    Values(Vec<f32>),
    /// The digest of an embedding: of its values as little-endian f32.
    Vector(String),
}

impl ReceiptAnswer {
    /// The answer that is a vector.
    pub(crate) fn vector(values: &[f32]) -> Self {
        Self::Vector(Sha256Digest::of_values(values).to_string())
    }
}

/// Collects the digests of a request while it runs.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// Ascending.
    layers: Vec<usize>,
    most_rows: Option<u64>,
    recorded: Mutex<Recorded>,
}

/// What has been collected.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    rows: u64,
    /// For each layer, the sum of the digests of its rows.
    sums: Vec<Sum>,
    /// The checksums of the adapters.
    pub(crate) adapters: Vec<Checksum>,
}

/// A number modulo 2^256, the lowest word first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum([u64; 4]);

impl Sum {
    fn add(&mut self, digest: Sha256Digest) {
        let bytes = digest.to_bytes();
        let mut carry = false;
        for (word, bytes) in self.0.iter_mut().zip(bytes.as_chunks().0) {
            let (sum, first) = word.overflowing_add(u64::from_le_bytes(*bytes));
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            (*word, carry) = (sum, first || second);
        }
    }
}

impl Recorder {
    /// A recorder of these layers, ascending, and of at most so many rows.
    pub(crate) fn new(layers: Vec<usize>, most_rows: Option<u64>) -> Self {
        let recorded = Recorded { sums: vec![Sum::default(); layers.len()], ..Recorded::default() };
        Self { layers, most_rows, recorded: Mutex::new(recorded) }
    }

    /// Whether the request has read more rows than it may.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.most_rows.is_some_and(|most| self.lock().rows > most)
    }

    /// The layers whose digests are needed.
    pub(crate) fn layers(&self) -> &[usize] {
        &self.layers
    }

    /// Notes the adapters with which the request begins.
    pub(crate) fn begin(&self, adapters: &[Checksum]) {
        self.lock().adapters = adapters.to_vec();
    }

    /// Adds a row of a pass.
    pub(crate) fn add(&self, digests: &RowDigests, row: usize) {
        let mut recorded = self.lock();
        recorded.rows += 1;
        for (layer, sum) in self.layers.iter().zip(&mut recorded.sums) {
            if let Some(digest) = digests.of(*layer, row) {
                sum.add(digest);
            }
        }
    }

    /// What was collected.
    pub(crate) fn recorded(&self) -> Recorded {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorded {
    /// Number of rows, and the digests of `layers`.
    pub(crate) fn layers(&self, layers: &[usize]) -> (u64, Vec<ReceiptLayer>) {
        let digest = |(&layer, sum): (&usize, &Sum)| {
            let mut hasher = Sha256Hasher::default();
            hasher.add(&self.rows.to_le_bytes());
            for word in sum.0 {
                hasher.add(&word.to_le_bytes());
            }
            ReceiptLayer { layer, sha256: hasher.finish().to_string() }
        };
        (self.rows, layers.iter().zip(&self.sums).map(digest).collect())
    }
}

/// Where a receipt and a second run of its request differ, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptDifference {
    /// The place: `model.weights`, `layers[3]`, `answer[0].token_ids[5]`.
    pub place: String,
    /// What the receipt says.
    pub receipt: String,
    /// What was found instead.
    pub found: String,
}

impl ReceiptDifference {
    /// A difference at a place.
    pub fn new(place: impl Into<String>, receipt: impl ToString, found: impl ToString) -> Self {
        Self { place: place.into(), receipt: receipt.to_string(), found: found.to_string() }
    }
}

impl Receipt {
    /// Maximum number of prompt tokens in a receipt, which repeats what its prompts have in common.
    pub const MAX_TOKENS: usize = 1 << 18;

    /// The first difference between this receipt and one that was made now.
    pub(crate) fn difference(&self, now: &Self) -> Option<ReceiptDifference> {
        let differ = |place: &str, receipt: &dyn ToString, found: &dyn ToString| {
            let (receipt, found) = (receipt.to_string(), found.to_string());
            (receipt != found).then(|| ReceiptDifference::new(place, receipt, found))
        };
        let numbers = |layers: &[ReceiptLayer]| layers.iter().map(|it| it.layer).collect::<Vec<_>>();
        let (said, found) = (numbers(&self.layers), numbers(&now.layers));
        differ("rows", &self.rows, &now.rows)
            .or_else(|| first_difference("the numbers of `layers`", &said, &found))
            .or_else(|| {
                let layers = self.layers.iter().zip(&now.layers);
                layers.enumerate().find_map(|(index, (receipt, found))| {
                    let place = format!("layers[{index}] (layer {})", receipt.layer);
                    differ(&place, &receipt.sha256, &found.sha256)
                })
            })
            .or_else(|| differ("the length of `answer`", &self.answer.len(), &now.answer.len()))
            .or_else(|| {
                let mut answers = self.answer.iter().zip(&now.answer).enumerate();
                answers.find_map(|(index, (receipt, found))| receipt.difference(index, found))
            })
    }
}

impl ReceiptAnswer {
    fn difference(&self, index: usize, now: &Self) -> Option<ReceiptDifference> {
        let at = |key: &str| format!("answer[{index}].{key}");
        match (self, now) {
            (Self::Tokens { ids, text }, Self::Tokens { ids: found_ids, text: found_text }) => {
                first_difference(&at("token_ids"), ids, found_ids).or_else(|| {
                    (text != found_text).then(|| ReceiptDifference::new(at("text"), text, found_text))
                })
            }
            (Self::Values(values), Self::Values(found)) => {
                // By their bits: -0 and 0 differ, and NaN equals itself.
                let bits =
                    |values: &[f32]| -> Vec<Bits> { values.iter().map(|x| Bits(x.to_bits())).collect() };
                first_difference(&at("values"), &bits(values), &bits(found))
            }
            (Self::Vector(digest), Self::Vector(found)) => {
                (digest != found).then(|| ReceiptDifference::new(at("sha256"), digest, found))
            }
            _ => Some(ReceiptDifference::new(format!("answer[{index}]"), self.kind(), now.kind())),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Tokens { .. } => "tokens",
            Self::Values(_) => "values",
            Self::Vector(_) => "the digest of a vector",
        }
    }
}

/// A value that is compared by its bits, and shown as a number.
#[derive(PartialEq)]
struct Bits(u32);

impl std::fmt::Display for Bits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", f32::from_bits(self.0))
    }
}

/// The first place where two lists differ.
fn first_difference<T: PartialEq + ToString>(
    place: &str,
    receipt: &[T],
    found: &[T],
) -> Option<ReceiptDifference> {
    let differ = receipt.iter().zip(found).position(|(a, b)| a != b);
    match differ {
        Some(at) => Some(ReceiptDifference::new(
            format!("{place}[{at}]"),
            receipt[at].to_string(),
            found[at].to_string(),
        )),
        None if receipt.len() != found.len() => {
            Some(ReceiptDifference::new(format!("the length of `{place}`"), receipt.len(), found.len()))
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(digests: &[Sha256Digest]) -> Sum {
        let mut sum = Sum::default();
        for digest in digests {
            sum.add(*digest);
        }
        sum
    }

    #[test]
    fn a_sum_does_not_depend_on_the_order_and_carries() {
        let digests: Vec<Sha256Digest> = (0u8..40).map(|i| Sha256Digest::of(&[i])).collect();
        let mut reversed = digests.clone();
        reversed.reverse();
        assert_eq!(sum(&digests), sum(&reversed));
        assert_ne!(sum(&digests), sum(&digests[1..]));
        // Twice a digest is its shift by one bit; the highest bit is lost.
        let bytes = digests[0].to_bytes();
        let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let doubled = |i: usize| words[i] << 1 | if i > 0 { words[i - 1] >> 63 } else { 0 };
        assert_eq!(sum(&[digests[0], digests[0]]).0, std::array::from_fn(doubled));
        let mut all = Sum([u64::MAX, u64::MAX, u64::MAX, 7]);
        all.add(Sha256Digest::of(b"abc"));
        let of_abc = sum(&[Sha256Digest::of(b"abc")]).0;
        // A carry into a word of ones is carried on.
        let mut ones = Sum([u64::MAX, !of_abc[1], 0, 0]);
        ones.add(Sha256Digest::of(b"abc"));
        assert_eq!(ones.0, [of_abc[0] - 1, 0, of_abc[2] + 1, of_abc[3]]);
        assert_eq!(all.0, [of_abc[0] - 1, of_abc[1], of_abc[2], of_abc[3].wrapping_add(8)]);
    }

    #[test]
    fn answers_differ_at_the_first_place() {
        let tokens = |ids: &[u32], text: &str| ReceiptAnswer::Tokens { ids: ids.to_vec(), text: text.into() };
        let place = |a: &ReceiptAnswer, b: &ReceiptAnswer| a.difference(2, b).map(|it| it.place);
        assert_eq!(place(&tokens(&[1, 2], "a"), &tokens(&[1, 2], "a")), None);
        assert_eq!(place(&tokens(&[1, 2], "a"), &tokens(&[1, 3], "a")).unwrap(), "answer[2].token_ids[1]");
        let shorter = place(&tokens(&[1, 2], "a"), &tokens(&[1], "a")).unwrap();
        assert_eq!(shorter, "the length of `answer[2].token_ids`");
        assert_eq!(place(&tokens(&[1], "a"), &tokens(&[1], "b")).unwrap(), "answer[2].text");
        let values = |values: &[f32]| ReceiptAnswer::Values(values.to_vec());
        assert_eq!(place(&values(&[0.0, f32::NAN]), &values(&[0.0, f32::NAN])), None);
        assert_eq!(place(&values(&[1.0, 0.0]), &values(&[1.0, -0.0])).unwrap(), "answer[2].values[1]");
        assert_eq!(place(&values(&[1.0]), &tokens(&[1], "a")).unwrap(), "answer[2]");
        let vector = ReceiptAnswer::vector;
        assert_eq!(place(&vector(&[0.5, 1.0]), &vector(&[0.5, 1.0])), None);
        assert_eq!(place(&vector(&[0.5, 1.0]), &vector(&[0.5, -1.0])).unwrap(), "answer[2].sha256");
        let bytes: Vec<u8> = [0.5f32, 1.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(vector(&[0.5, 1.0]), ReceiptAnswer::Vector(Sha256Digest::of(&bytes).to_string()));
    }
}
