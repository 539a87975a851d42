//! The order of the pieces of several texts in one stream.

use std::collections::VecDeque;

/// Puts the pieces of several texts in order: the first piece of every text, then the second one of every text that has one, and so
/// on. So the order does not depend on when they come, which depends on what else the engine runs.
#[derive(Debug)]
pub(crate) struct PieceOrder<T> {
    texts: Vec<Text<T>>,
    /// The text whose turn it is.
    turn: usize,
}

/// The pieces of a text whose turn has not come.
#[derive(Debug)]
struct Text<T> {
    held: VecDeque<T>,
    has_ended: bool,
}

impl<T> PieceOrder<T> {
    pub(crate) fn new(texts: usize) -> Self {
        let texts = (0..texts).map(|_| Text { held: VecDeque::new(), has_ended: false }).collect();
        Self { texts, turn: 0 }
    }

    /// Takes the next piece of a text.
    pub(crate) fn put(&mut self, text: usize, piece: T) {
        self.texts[text].held.push_back(piece);
    }

    /// No more pieces of a text follow.
    pub(crate) fn end(&mut self, text: usize) {
        self.texts[text].has_ended = true;
    }

    /// The next piece, if it has come.
    pub(crate) fn next(&mut self) -> Option<T> {
        for _ in 0..self.texts.len() {
            let text = &mut self.texts[self.turn];
            let piece = text.held.pop_front();
            if piece.is_none() && !text.has_ended {
                return None;
            }
            self.turn = (self.turn + 1) % self.texts.len();
            if piece.is_some() {
                return piece;
            }
        }
        None
    }

    /// All pieces whose turn has not come, text by text.
    pub(crate) fn into_pieces(self) -> impl Iterator<Item = T> {
        self.texts.into_iter().flat_map(|text| text.held)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_take_turns_until_they_end() {
        let mut order = PieceOrder::new(3);
        order.put(2, "2a");
        order.put(2, "2b");
        order.put(0, "0a");
        assert_eq!((order.next(), order.next()), (Some("0a"), None), "nothing of text 1 has come");
        order.end(1);
        assert_eq!((order.next(), order.next()), (Some("2a"), None));
        order.put(0, "0b");
        order.end(0);
        assert_eq!([order.next(), order.next(), order.next()], [Some("0b"), Some("2b"), None]);
        order.put(2, "2c");
        assert_eq!(order.into_pieces().collect::<Vec<_>>(), ["2c"]);
    }

    proptest! {
        #[test]
        fn the_order_does_not_depend_on_when_pieces_come(
            lengths in prop::collection::vec(0usize..6, 1..5),
            arrivals in prop::collection::vec(any::<prop::sample::Index>(), 40),
        ) {
            let mut expected = Vec::new();
            for place in 0..6 {
                let told = (0..lengths.len()).filter(|&text| place < lengths[text]);
                expected.extend(told.map(|text| (text, place)));
            }
            let mut order = PieceOrder::new(lengths.len());
            let (mut told, mut got) = (vec![0; lengths.len()], Vec::new());
            let mut open: Vec<usize> = (0..lengths.len()).collect();
            let mut arrivals = arrivals.into_iter();
            while !open.is_empty() {
                let at = arrivals.next().map_or(0, |index| index.index(open.len()));
                let text = open[at];
                if told[text] == lengths[text] {
                    order.end(text);
                    open.remove(at);
                } else {
                    order.put(text, (text, told[text]));
                    told[text] += 1;
                }
                got.extend(std::iter::from_fn(|| order.next()));
            }
            prop_assert_eq!(got, expected);
        }
    }
}
