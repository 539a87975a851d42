//! Generates short texts from characters on which tokenizers are likely to disagree.

use crate::dice::Dice;
use crate::forms::Form;

/// Characters by general category. The last rows were added in Unicode 15.1 to 17, so older tables lack them.
const CLASSES: [&[(u32, u32)]; 22] = [
    // Lu
    &[
        (0x41, 0x5a),
        (0xc0, 0xd6),
        (0x391, 0x3a1),
        (0x410, 0x42f),
        (0x1c90, 0x1cba),
        (0x1e9e, 0x1e9e),
        (0x1d400, 0x1d419),
    ],
    // Ll
    &[
        (0x61, 0x7a),
        (0xdf, 0xf6),
        (0x17f, 0x17f),
        (0x3b1, 0x3c9),
        (0x430, 0x44f),
        (0xfb00, 0xfb06),
        (0x1d41a, 0x1d433),
    ],
    // Lt
    &[(0x1c5, 0x1c5), (0x1c8, 0x1c8), (0x1cb, 0x1cb), (0x1f2, 0x1f2), (0x1f88, 0x1f8f), (0x1ffc, 0x1ffc)],
    // Lm
    &[(0x2b0, 0x2c1), (0x640, 0x640), (0x3005, 0x3005), (0x309d, 0x309e), (0x30fc, 0x30fe), (0xa7f8, 0xa7f9)],
    // Lo
    &[
        (0xaa, 0xaa),
        (0xba, 0xba),
        (0x5d0, 0x5ea),
        (0x627, 0x63a),
        (0x905, 0x939),
        (0xe01, 0xe30),
        (0x3041, 0x3096),
    ],
    // Lo, astral and wide
    &[(0x4e00, 0x4eff), (0xac00, 0xac80), (0xfa0e, 0xfa0f), (0x103a0, 0x103c3), (0x20000, 0x20040)],
    // Mn
    &[
        (0x300, 0x36f),
        (0x591, 0x5bd),
        (0x64b, 0x65f),
        (0xe31, 0xe31),
        (0xe34, 0xe3a),
        (0xfe00, 0xfe0f),
        (0xe0100, 0xe0110),
    ],
    // Mc
    &[(0x903, 0x903), (0x93e, 0x940), (0xb3e, 0xb3e), (0xbbe, 0xbc2), (0x302e, 0x302f), (0x1d165, 0x1d166)],
    // Me
    &[(0x488, 0x489), (0x20dd, 0x20e0), (0x20e2, 0x20e4)],
    // Nd
    &[(0x30, 0x39), (0x660, 0x669), (0x966, 0x96f), (0xff10, 0xff19), (0x1d7ce, 0x1d7ff)],
    // Nl
    &[(0x16ee, 0x16f0), (0x2160, 0x2188), (0x3007, 0x3007), (0x3021, 0x3029), (0x10140, 0x10174)],
    // No
    &[(0xb2, 0xb3), (0xb9, 0xb9), (0xbc, 0xbe), (0x2070, 0x2070), (0x2460, 0x249b), (0x10107, 0x10133)],
    // Punctuation
    &[
        (0x21, 0x23),
        (0x25, 0x2a),
        (0x2c, 0x2f),
        (0x3a, 0x3b),
        (0x5b, 0x5d),
        (0x5f, 0x5f),
        (0x2010, 0x2027),
        (0x3001, 0x3003),
    ],
    // Symbols
    &[
        (0x24, 0x24),
        (0x2b, 0x2b),
        (0x3c, 0x3e),
        (0x5e, 0x5e),
        (0x60, 0x60),
        (0xa2, 0xa9),
        (0x20a0, 0x20bf),
        (0x2190, 0x2200),
    ],
    // Zs and the separators of lines and paragraphs
    &[
        (0x20, 0x20),
        (0xa0, 0xa0),
        (0x1680, 0x1680),
        (0x2000, 0x200a),
        (0x2028, 0x2029),
        (0x202f, 0x202f),
        (0x205f, 0x205f),
        (0x3000, 0x3000),
    ],
    // Cc
    &[(0x0, 0x1f), (0x7f, 0x9f)],
    // Cf
    &[
        (0xad, 0xad),
        (0x600, 0x605),
        (0x180e, 0x180e),
        (0x200b, 0x200f),
        (0x2060, 0x2064),
        (0xfeff, 0xfeff),
        (0xe0020, 0xe007f),
    ],
    // Unassigned and private
    &[
        (0x378, 0x379),
        (0x530, 0x530),
        (0xfdd0, 0xfdef),
        (0x1fffe, 0x1ffff),
        (0xe000, 0xe010),
        (0xf0000, 0xf0010),
        (0x10fffe, 0x10ffff),
    ],
    // Recently added letters
    &[
        (0x1c89, 0x1c8a),
        (0xa7cb, 0xa7dc),
        (0x105c0, 0x105f3),
        (0x11380, 0x113b7),
        (0x16d40, 0x16d6c),
        (0x1e6c0, 0x1e6de),
        (0x2ebf0, 0x2ec00),
    ],
    // Recently added digits
    &[
        (0x10d40, 0x10d49),
        (0x116d0, 0x116e3),
        (0x11bf0, 0x11bf9),
        (0x11de0, 0x11de9),
        (0x16d70, 0x16d79),
        (0x1ccf0, 0x1ccf9),
    ],
    // Recently added marks
    &[
        (0x897, 0x897),
        (0x10d69, 0x10d6d),
        (0x10efa, 0x10eff),
        (0x113ce, 0x113d2),
        (0x1611e, 0x1612f),
        (0x1e5ee, 0x1e5ef),
        (0x1e6e3, 0x1e6f5),
    ],
    // Cases: capitals and small letters that are far apart, or have no counterpart
    &[
        (0x130, 0x131),
        (0x149, 0x149),
        (0x1c4, 0x1cc),
        (0x1f80, 0x1fbc),
        (0x2126, 0x212b),
        (0x24b6, 0x24e9),
        (0x1f130, 0x1f149),
    ],
];

const WHITESPACE: [&str; 16] = [
    " ", " ", "  ", "    ", "\n", "\n", "\r\n", "\r", "\t", "\u{85}", "\u{a0}", "\u{2028}", "\u{3000}",
    "\u{b}", "\u{c}", "\u{1f}",
];

const CONTRACTIONS: [&str; 14] =
    ["s", "t", "re", "ve", "m", "ll", "d", "\u{17f}", "sa", "rex", "l", "v", "\u{17f}t", "İ"];

const LITERALS: [&str; 16] = [
    "▁", "▁▁", "Ġ", "Ċ", "<0x0A>", "<0xFF>", "<0xf>", "▁the", "Ġthe", "<unk>", "<s>", "</s>", "\u{fffd}",
    "\u{feff}", "/", "//\n",
];

const EMOJI: [&str; 8] = ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "1️⃣", "☺️", "🧑🏿‍🚀"];

/// Marks of different canonical combining classes; the starters among them compose.
const MARKS: [char; 16] = [
    '\u{334}',
    '\u{5b0}',
    '\u{327}',
    '\u{323}',
    '\u{301}',
    '\u{308}',
    '\u{30a}',
    '\u{345}',
    '\u{315}',
    '\u{338}',
    '\u{93c}',
    '\u{9be}',
    '\u{3099}',
    '\u{307}',
    '\u{653}',
    '\u{1d165}',
];

/// Characters that composition leaves unchanged, decomposes, or joins across kinds.
const COMPOSED: [&str; 28] = [
    "\u{958}",
    "\u{f43}",
    "\u{2adc}",
    "\u{fb1d}",
    "\u{fb2a}",
    "\u{340}",
    "\u{344}",
    "\u{374}",
    "\u{37e}",
    "\u{387}",
    "\u{1f71}",
    "\u{1fd3}",
    "\u{2126}",
    "\u{212a}",
    "\u{212b}",
    "\u{2001}",
    "\u{f900}",
    "\u{2f800}",
    "\u{1d15e}",
    "\u{9c7}\u{9be}",
    "\u{cc6}\u{cc2}\u{cd5}",
    "\u{11099}\u{110ba}",
    "\u{105d2}\u{307}",
    "\u{11382}\u{113c9}",
    "\u{16d67}\u{16d67}",
    "\u{b47}\u{300}\u{b3e}",
    "\u{e9}\u{323}",
    "\u{1100}\u{301}\u{1161}",
];

type Piece = fn(&mut Dice, &Form, &mut String);

const PIECES: [Piece; 18] = [
    token,
    token,
    token,
    any_class,
    one_class,
    whitespace,
    whitespace,
    contraction,
    digits,
    added,
    added,
    literal,
    marks,
    jamo,
    composed,
    emoji,
    anything,
    word,
];

/// A text of 0 to 40 characters, made of pieces of a few kinds.
pub(crate) fn text(dice: &mut Dice, form: &Form) -> String {
    let kinds: Vec<Piece> = (0..=dice.below(5)).map(|_| dice.pick(&PIECES)).collect();
    let length = dice.below(41);
    let mut text = String::new();
    while text.chars().count() < length {
        dice.pick(&kinds)(dice, form, &mut text);
    }
    text.chars().take(length).collect()
}

/// The text of a vocabulary token, so that merges of every depth occur.
fn token(dice: &mut Dice, form: &Form, text: &mut String) {
    let id = dice.below(form.ours.vocab_size()) as u32;
    match form.ours.token_text(id) {
        Ok(token) if !token.contains('\u{fffd}') && dice.below(12) == 0 => *text += &token.to_uppercase(),
        Ok(token) if !token.contains('\u{fffd}') => *text += &token,
        _ => text.push('a'),
    }
}

fn within(dice: &mut Dice, (first, last): (u32, u32)) -> char {
    let n = first as usize + dice.below((last - first + 1) as usize);
    char::from_u32(n as u32).unwrap_or('\u{fffd}')
}

fn class_char(dice: &mut Dice, class: &[(u32, u32)]) -> char {
    let range = dice.pick(class);
    within(dice, range)
}

fn any_class(dice: &mut Dice, _: &Form, text: &mut String) {
    let class = dice.pick(&CLASSES);
    text.push(class_char(dice, class));
}

fn one_class(dice: &mut Dice, _: &Form, text: &mut String) {
    let class = dice.pick(&CLASSES);
    for _ in 0..=dice.below(5) {
        text.push(class_char(dice, class));
    }
}

fn whitespace(dice: &mut Dice, _: &Form, text: &mut String) {
    for _ in 0..=dice.below(4) {
        text.push_str(dice.pick(&WHITESPACE));
    }
}

fn contraction(dice: &mut Dice, _: &Form, text: &mut String) {
    text.push_str(dice.pick(&["'", "'", "'", "’", "''", "a'", " '"]));
    for c in dice.pick(&CONTRACTIONS).chars() {
        if dice.below(3) == 0 {
            text.extend(c.to_uppercase());
        } else {
            text.push(c);
        }
    }
}

fn digits(dice: &mut Dice, _: &Form, text: &mut String) {
    for _ in 0..=dice.below(8) {
        text.push(within(dice, (0x30, 0x39)));
    }
}

/// An added token, or a similar text.
fn added(dice: &mut Dice, form: &Form, text: &mut String) {
    if form.added.is_empty() {
        return text.push('<');
    }
    let token = &form.added[dice.below(form.added.len())];
    let mut characters: Vec<char> = token.chars().collect();
    let at = dice.below(characters.len());
    match dice.below(12) {
        0 => drop(characters.remove(at)),
        1 => characters.insert(at, characters[at]),
        2 => characters.insert(at, ' '),
        3 => characters.extend(["x", "s", "_", "é", "1", "\u{301}"][dice.below(6)].chars()),
        4 => characters.insert(0, dice.pick(&['x', '_', 'é', '7', '-', '\u{301}'])),
        5 => characters = token.to_uppercase().chars().collect(),
        _ => {}
    }
    text.extend(characters);
}

fn literal(dice: &mut Dice, _: &Form, text: &mut String) {
    text.push_str(dice.pick(&LITERALS));
}

/// A letter with marks in any order.
fn marks(dice: &mut Dice, _: &Form, text: &mut String) {
    text.push(dice.pick(&['a', 'E', 'o', 's', 'क', 'か', 'ö', '≤', 'α', ' ']));
    for _ in 0..dice.below(5) {
        text.push(dice.pick(&MARKS));
    }
}

/// Hangul as letters, which compose, and as syllables, which may still join a final letter.
fn jamo(dice: &mut Dice, _: &Form, text: &mut String) {
    let kind = dice.pick(&[(0x1100, 0x1113), (0x1161, 0x1176), (0x11a7, 0x11c3), (0xac00, 0xd7a3)]);
    text.push(within(dice, kind));
    if dice.below(2) == 0 {
        text.push(within(dice, (0x1161, 0x1175)));
        text.push(within(dice, (0x11a7, 0x11c2)));
    }
}

fn composed(dice: &mut Dice, _: &Form, text: &mut String) {
    text.push_str(dice.pick(&COMPOSED));
}

fn emoji(dice: &mut Dice, _: &Form, text: &mut String) {
    text.push_str(dice.pick(&EMOJI));
}

fn anything(dice: &mut Dice, _: &Form, text: &mut String) {
    let plane = dice.pick(&[(0x0, 0x2ff), (0x0, 0xffff), (0x1_0000, 0x1_ffff), (0x0, 0x10_ffff)]);
    text.push(within(dice, plane));
}

/// A word in one of several spellings, with a possible prefix.
fn word(dice: &mut Dice, _: &Form, text: &mut String) {
    const WORDS: [&str; 8] =
        ["the", "engine", "straße", "naïve", "привет", "cafe\u{301}", "don't", "red line"];
    text.push_str(dice.pick(&["", " ", " ", "(", "_", "\n", "-"]));
    let word = dice.pick(&WORDS);
    match dice.below(4) {
        0 => text.push_str(&word.to_uppercase()),
        1 => text.extend(word.chars().enumerate().flat_map(|(i, c)| {
            let upper = i % 3 == 0;
            c.to_uppercase().filter(move |_| upper).chain(Some(c).filter(|_| !upper))
        })),
        _ => text.push_str(word),
    }
}

/// Random bytes, decoded as UTF-8 with replacement.
pub(crate) fn lossy(dice: &mut Dice, bytes: usize) -> String {
    let bytes: Vec<u8> = (0..bytes).map(|_| dice.below(256) as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
