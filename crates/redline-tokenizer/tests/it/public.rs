//! Public vocabularies: compared with the reference library and with `bpe-openai`, from which the vocabularies come.

use crate::dice::Dice;
use crate::forms::Form;
use crate::repository;
use crate::strings;
use crate::vocabulary::{PUBLIC, Public};

/// Number of generated texts per vocabulary.
const GENERATED: usize = 4_000;

fn check(public: &Public) {
    let form = Form::new(public.name, public.json(&[]));
    let peer = (public.peer)();
    let (mut texts, mut apart) = (0, 0);
    let mut check = |text: &str| {
        let ids = form.ours.encode(text, false).unwrap();
        let library = form.library.encode_fast(text, false).unwrap();
        let name = public.name;
        assert!(ids == library.get_ids(), "{name}: {text:?}: {ids:?} instead of {:?}", library.get_ids());
        assert!(form.ours.decode(&ids, false).unwrap() == text, "{name}: {text:?} does not come back");
        texts += 1;
        // The two agree except for a token that can be made in two ways of equal rank.
        apart += usize::from(peer.encode(text) != ids);
    };
    for (_, text) in repository::files() {
        check(&text);
    }
    let mut dice = Dice::new(10);
    for _ in 0..GENERATED {
        check(&strings::text(&mut dice, &form));
    }
    assert_eq!(apart, 0, "{}: {apart} of {texts} texts are not as in bpe-openai", public.name);
}

#[test]
fn cl100k() {
    check(&PUBLIC[0]);
}

#[test]
fn o200k() {
    check(&PUBLIC[1]);
}
