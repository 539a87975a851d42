//! The texts to encode: prose, code and prompts.

use crate::Size;
use crate::dice::Dice;
use crate::repository;
use crate::vocabulary::Public;

/// Texts of one kind.
pub(crate) struct Texts {
    pub(crate) name: &'static str,
    pub(crate) texts: Vec<String>,
    /// Length in bytes of their common prefix, if they are meant to have one.
    pub(crate) common: usize,
}

impl Texts {
    pub(crate) fn bytes(&self) -> usize {
        self.texts.iter().map(String::len).sum()
    }
}

/// Tokens in the common prefix of all prompts, and characters after it.
const BEGINNING: usize = 128;
const QUESTION: usize = 200;

/// Texts of every kind.
pub(crate) fn all(public: &Public, size: &Size) -> [Texts; 3] {
    let prose = prose(size.text);
    let code = code(size.text);
    let (common, prompts) = prompts(public, size.prompts, &prose);
    let documents = |name, text: &str| {
        let pieces = repository::pieces(text, &mut Dice::new(2));
        Texts { name, texts: pieces.into_iter().map(str::to_owned).collect(), common: 0 }
    };
    [documents("prose", &prose), documents("code", &code), Texts { name: "prompts", texts: prompts, common }]
}

/// Random sentences of the demo's held-out text, so that sentences repeat, but not their surroundings.
fn prose(bytes: usize) -> String {
    let path = repository::root().join("models/demo/held-out.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let sentences: Vec<&str> = text.split_inclusive(['.', '?', '!', '\n']).collect();
    let mut dice = Dice::new(3);
    let mut prose = String::new();
    while prose.len() < bytes {
        prose.push_str(dice.pick(&sentences));
    }
    prose
}

/// The Rust code of this repository, repeated as needed.
fn code(bytes: usize) -> String {
    let rust = |name: &str| std::path::Path::new(name).extension().is_some_and(|kind| kind == "rs");
    let files: Vec<_> = repository::files().into_iter().filter(|(name, _)| rust(name)).collect();
    let mut code = String::new();
    for (_, text) in files.iter().cycle() {
        if code.len() >= bytes {
            break;
        }
        code.push_str(text);
    }
    code
}

/// A common prefix with its length, and prompts that begin with it.
fn prompts(public: &Public, count: usize, prose: &str) -> (usize, Vec<String>) {
    let peer = (public.peer)();
    let beginning = &prose[..prose.floor_char_boundary(16 * BEGINNING)];
    let beginning = peer.decode(&peer.encode(beginning)[..BEGINNING]).expect("prose in ASCII");
    let mut dice = Dice::new(4);
    let question = |i| {
        let at = prose.floor_char_boundary(dice.below(prose.len() - 2 * QUESTION));
        let question: String = prose[at..].chars().take(QUESTION).collect();
        format!("{beginning}\n\nQuestion {i}: {question}")
    };
    (beginning.len(), (0..count).map(question).collect())
}
