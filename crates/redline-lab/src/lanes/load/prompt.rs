//! The texts of requests: words drawn from a seed, so that no two prompts begin alike unless they shall, or lines of a file.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::kind::Kind;
use crate::bench::random::Random;
use crate::bench::{LaneError, Result};
use redline_system::digest;

/// Words of everyday English; most vocabularies have a token for each, with the space before it.
const WORDS: &[&str] = &[
    "the", "of", "and", "to", "in", "is", "you", "that", "it", "he", "was", "for", "on", "are", "as", "with",
    "his", "they", "at", "be", "this", "have", "from", "or", "one", "had", "by", "word", "but", "not",
    "what", "all", "were", "we", "when", "your", "can", "said", "there", "use", "an", "each", "which", "she",
    "do", "how", "their", "if", "will", "up", "other", "about", "out", "many", "then", "them", "these", "so",
    "some", "her", "would", "make", "like", "him",
];
/// Words of a short text: a query of documents, an item of a query, a question about a state.
const SHORT: usize = 8;

/// The texts of all requests of a lane.
#[derive(Clone, Debug)]
pub(super) struct Prompts {
    pub(super) seed: u64,
    /// Words of a prompt, the shared ones included.
    pub(super) words: usize,
    /// Words with which every prompt begins.
    pub(super) shared: usize,
    /// Items, documents, texts or questions of a request.
    pub(super) items: usize,
    /// Fields of bodies, in turn; empty without a file.
    pub(super) lines: Vec<Map<String, Value>>,
    /// The digest of the file.
    pub(super) digest: Option<String>,
}

/// Which of all requests: a block (a run of a case), and the number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) block: usize,
    pub(super) index: usize,
}

impl Prompts {
    pub(super) fn new(seed: u64, items: usize) -> Self {
        Self { seed, words: 1, shared: 0, items, lines: Vec::new(), digest: None }
    }

    /// Reads a file with one JSON object on every line, whose fields replace those of a request.
    pub(super) fn reading(self, path: &Path) -> Result<Self> {
        let failed = |fact: String| LaneError::Input(format!("{fact}\n  in `{}`", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let filled = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let object = |(index, line): (usize, &str)| {
            serde_json::from_str::<Map<String, Value>>(line)
                .map_err(|error| failed(format!("line {}: {error}", index + 1)))
        };
        let lines = filled.map(object).collect::<Result<Vec<_>>>()?;
        if lines.is_empty() {
            return Err(failed("there is no line with a request".to_owned()));
        }
        Ok(Self { lines, digest: Some(digest::digest(text.bytes())), ..self })
    }

    /// The fields that the user gave for a request. A `prompt` becomes the message of a chat.
    pub(super) fn line(&self, place: Place, kind: Kind) -> Option<Map<String, Value>> {
        let mut line = self.lines.get(place.index % self.lines.len().max(1))?.clone();
        if kind == Kind::Chat
            && let Some(prompt) = line.remove("prompt")
        {
            line.insert("messages".to_owned(), json!([{"role": "user", "content": prompt}]));
        }
        Some(line)
    }

    /// The texts of a request.
    pub(super) fn texts(&self, place: Place, kind: Kind) -> Vec<String> {
        // Seeds that differ in a few bits share no prompts: the product spreads them over all bits.
        let seed = self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut random = Random::new(seed ^ ((place.block as u64 + 1) << 32) ^ place.index as u64);
        // The shared part follows from the seed alone.
        let shared = words(self.shared, &mut Random::new(!self.seed));
        let mut long = || {
            let own = words(self.words.saturating_sub(self.shared).max(1), &mut random);
            if shared.is_empty() { own } else { format!("{shared} {own}") }
        };
        let mut texts = match kind {
            Kind::Completion | Kind::Chat | Kind::Diffusion | Kind::Score | Kind::Decisions => vec![long()],
            Kind::Rerank | Kind::Classify => (0..self.items).map(|_| long()).collect(),
        };
        match kind {
            Kind::Completion | Kind::Chat | Kind::Diffusion => {}
            Kind::Score | Kind::Decisions => texts.extend((0..self.items).map(|_| words(SHORT, &mut random))),
            Kind::Rerank | Kind::Classify => texts.insert(0, words(SHORT, &mut random)),
        }
        texts
    }
}

/// So many words.
fn words(count: usize, random: &mut Random) -> String {
    let word = |_| WORDS[(random.uniform() * WORDS.len() as f64) as usize % WORDS.len()];
    (0..count).map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(block: usize, index: usize) -> Place {
        Place { block, index }
    }

    #[test]
    fn prompts_differ_but_for_what_they_share() {
        let prompts = Prompts { words: 40, shared: 25, ..Prompts::new(3, 2) };
        let text = |place| prompts.texts(place, Kind::Completion).remove(0);
        let begin = |text: &str| text.split(' ').take(25).map(str::to_owned).collect::<Vec<_>>();
        let places = [at(0, 0), at(0, 1), at(1, 0), at(1, 1), at(2, 7)];
        let all: Vec<String> = places.iter().map(|place| text(*place)).collect();
        for (index, one) in all.iter().enumerate() {
            assert_eq!(one.split(' ').count(), 40);
            assert_eq!(begin(one), begin(&all[0]));
            assert!(all[..index].iter().all(|other| other != one));
        }
        assert_eq!(text(at(1, 1)), all[3], "they follow from the seed");
        assert_ne!(Prompts { seed: 4, ..prompts }.texts(at(1, 1), Kind::Completion)[0], all[3]);
    }

    #[test]
    fn another_seed_gives_other_prompts() {
        let mut seen = std::collections::HashSet::new();
        for seed in [0, 1, 2, 3, 8, 1 << 32, 2 << 32] {
            let prompts = Prompts { words: 20, ..Prompts::new(seed, 1) };
            for (block, index) in (0..4).flat_map(|block| (0..16).map(move |index| (block, index))) {
                let text = prompts.texts(at(block, index), Kind::Completion).remove(0);
                assert!(seen.insert(text), "seed {seed}, block {block}, request {index}");
            }
        }
    }

    #[test]
    fn a_request_has_the_texts_of_its_kind() {
        let prompts = Prompts { words: 20, ..Prompts::new(0, 3) };
        let lengths = |kind| {
            let texts = prompts.texts(at(0, 0), kind);
            texts.iter().map(|text| text.split(' ').count()).collect::<Vec<_>>()
        };
        assert_eq!(lengths(Kind::Completion), [20]);
        assert_eq!(lengths(Kind::Score), [20, 8, 8, 8]);
        assert_eq!(lengths(Kind::Decisions), [20, 8, 8, 8]);
        assert_eq!(lengths(Kind::Rerank), [8, 20, 20, 20]);
        assert_eq!(lengths(Kind::Classify), [8, 20, 20, 20]);
    }

    #[test]
    fn lines_of_a_file_take_turns() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prompts.jsonl");
        std::fs::write(&path, "{\"prompt\": \"a\"}\n\n{\"prompt\": \"b\", \"max_tokens\": 3}\n").unwrap();
        let prompts = Prompts::new(0, 1).reading(&path).unwrap();
        let line = |index, kind| Value::Object(prompts.line(at(5, index), kind).unwrap());
        assert_eq!(line(0, Kind::Completion), json!({"prompt": "a"}));
        assert_eq!(line(3, Kind::Completion), json!({"prompt": "b", "max_tokens": 3}));
        let chat = json!({"max_tokens": 3, "messages": [{"role": "user", "content": "b"}]});
        assert_eq!(line(1, Kind::Chat), chat);
        assert_eq!(Prompts::new(0, 1).line(at(0, 0), Kind::Chat), None);
        for (text, part) in [("{}\n[1]\n", "line 2"), ("\n", "no line"), ("{", "line 1")] {
            std::fs::write(&path, text).unwrap();
            let Err(LaneError::Input(fact)) = Prompts::new(0, 1).reading(&path) else { panic!("{text}") };
            assert!(fact.contains(part) && fact.contains("prompts.jsonl"), "{fact}");
        }
    }
}
