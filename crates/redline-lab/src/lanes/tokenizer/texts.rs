//! The texts to encode: read from a file, or generated from built-in parts by a fixed number sequence.

use redline_models::random::{STEP, mix};
use std::path::Path;

use crate::bench::{LaneError, Result};

/// Texts of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Input {
    /// The kind.
    pub(super) name: &'static str,
    /// The texts; at least one.
    pub(super) texts: Vec<String>,
}

impl Input {
    /// The texts as slices.
    pub(super) fn texts(&self) -> Vec<&str> {
        self.texts.iter().map(String::as_str).collect()
    }

    /// Bytes of all texts.
    pub(super) fn bytes(&self) -> usize {
        self.texts.iter().map(String::len).sum()
    }
}

/// Reads the lines of a file, without blank lines.
pub(super) fn read(path: &Path) -> Result<Input> {
    let refused = |fact: String| LaneError::Input(format!("{fact}\n  in `{}`", path.display()));
    let bytes = std::fs::read(path).map_err(|error| refused(error.to_string()))?;
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let at = error.valid_up_to();
        refused(format!("byte {at} is {:#04x}, which is not UTF-8 there", bytes[at]))
    })?;
    let texts: Vec<String> = text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
    if texts.is_empty() {
        return Err(refused(format!("no line of {} bytes holds a text", bytes.len())));
    }
    Ok(Input { name: "file", texts })
}

/// Generates a text.
type Generate = fn(&mut Numbers) -> String;

/// The kinds of text.
const KINDS: &[(&str, Generate)] = &[("prose", prose), ("code", code), ("chat", chat)];

/// Generates `count` texts of every kind, always the same.
pub(super) fn of_our_own(count: usize) -> Vec<Input> {
    let texts = (0..).zip(KINDS).map(|(seed, &(name, make))| {
        let mut numbers = Numbers(seed);
        Input { name, texts: (0..count).map(|_| make(&mut numbers)).collect() }
    });
    texts.collect()
}

/// A pseudo-random number sequence (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number from `from` to `to`.
    fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from + 1)
    }

    /// One of the phrases between bars.
    fn pick(&mut self, phrases: &'static str) -> &'static str {
        let phrases: Vec<&str> = phrases.split('|').collect();
        phrases[(self.next() % phrases.len() as u64) as usize]
    }
}

/// Phrases between bars, from which sentences are made.
const WHO: &str = "\
    The old lighthouse keeper|A clerk from the harbour office|Margarethe|Our neighbour's eldest daughter|\
    The surveyor|Nobody in the valley|A travelling bookbinder|Dr. Okonkwo|The second violin|\
    An apprentice of nineteen|José, who ran the café on the corner,|The committee";
const DID: &str = "\
    had never quite believed|wrote down in a careful hand|tried, without much success, to forget|\
    could have explained in ten minutes|measured twice and then measured again|\
    spoke of at length over supper|carried up the hill|would not hear a word against|\
    remembered only when the rain began|drew on the back of an envelope|sold for less than it was worth";
const WHAT: &str = "\
    the story of the flooded quarry|a bridge that nobody had asked for|the smell of tar and wet rope|\
    what the almanac said about the winter of 1887|forty-two barrels of salted herring|\
    the difference between weather and climate|a clock that struck thirteen|\
    her grandfather's map of the marshes|the new railway, its timetables and its tunnels|\
    an unreasonable fondness for geometry|the price of copper, which had doubled since March";
const HOW: &str = "\
    and the matter rested there|though it wasn't, strictly speaking, allowed|while the kettle boiled over|\
    as if the last twenty years hadn't happened|\u{2014} not for money, but for the sake of the argument|\
    because somebody had to|until the lamps were lit along the quay|(a habit of long standing)|\
    and said so: \u{201c}I won't, and that's that\u{201d}|in spite of everything they'd agreed on Tuesday|\
    at half past six, in the 3rd carriage";
const WHEN: &str = "\
    In the end,|That spring,|Meanwhile,|Some years later,|On most evenings,|To everyone's surprise,|\
    If the letters can be trusted,|By then";

/// Paragraphs of sentences.
fn prose(numbers: &mut Numbers) -> String {
    let mut text = String::new();
    for paragraph in 0..numbers.within(1, 3) {
        text += if paragraph == 0 { "" } else { "\n\n" };
        for sentence in 0..numbers.within(2, 5) {
            text += if sentence == 0 { "" } else { " " };
            text += &self::sentence(numbers);
        }
    }
    text
}

fn sentence(numbers: &mut Numbers) -> String {
    let (who, did, what, how) = (numbers.pick(WHO), numbers.pick(DID), numbers.pick(WHAT), numbers.pick(HOW));
    match numbers.within(0, 3) {
        0 => format!("{} {} {did} {what}.", numbers.pick(WHEN), lower(who)),
        1 => format!("{who} {did} {what}, {how}; {} {}.", lower(numbers.pick(WHO)), numbers.pick(DID)),
        _ => format!("{who} {did} {what} {how}."),
    }
}

/// A noun phrase with a lower-case article.
fn lower(who: &str) -> String {
    let article = ["The ", "A ", "An ", "Our ", "Nobody "].iter().any(|article| who.starts_with(article));
    let (first, rest) = who.split_at(usize::from(article));
    first.to_lowercase() + rest
}

/// Words between bars, from which functions are made.
const NAMES: &str = "\
    count|buffer|index|total_bytes|user_id|response|matrix|offset|queue|maxDepth|nodeList|cfg|timeoutMs|\
    checksum|path|entry";
const VERBS: &str = "read|parse|flush|merge|compute|validate|resize|encode|collect|update";
const TYPES: &str = "u32|usize|Vec<u8>|&str|Option<i64>|HashMap<String, f64>";

/// A function in one of three languages.
fn code(numbers: &mut Numbers) -> String {
    let name = format!("{}_{}", numbers.pick(VERBS), numbers.pick(NAMES));
    let language = numbers.within(0, 2);
    let mut text = match language {
        0 => {
            let (a, b, result) = (numbers.pick(NAMES), numbers.pick(TYPES), numbers.pick(TYPES));
            format!(
                "/// See issue #{}.\npub fn {name}({a}: {b}) -> Result<{result}, Error> {{\n",
                numbers.within(1, 9999)
            )
        }
        1 => {
            let (a, value) = (numbers.pick(NAMES), numbers.within(0, 4096));
            format!("def {name}(self, {a}, *, limit={value}):\n    \"\"\"TODO: document me.\"\"\"\n")
        }
        _ => format!("export async function {name}({}) {{\n", numbers.pick(NAMES)),
    };
    for _ in 0..numbers.within(3, 14) {
        text += &statement(numbers, language);
    }
    text += ["    Ok(out)\n}\n", "        return None\n", "  return { ok: true };\n}\n"][language as usize];
    text
}

fn statement(numbers: &mut Numbers, language: u64) -> String {
    let (a, b, verb) = (numbers.pick(NAMES), numbers.pick(NAMES), numbers.pick(VERBS));
    let (n, mask) = (numbers.within(0, 70_000), numbers.next() as u32);
    match (language, numbers.within(0, 3)) {
        (0, 0) => format!("    let mut {a} = {b}.{verb}(0x{mask:08x})?;\n"),
        (0, 1) => format!(
            "    if {a} >= {n} && !{b}.is_empty() {{\n        return Err(Error::{verb}(\"{a}\"));\n    }}\n"
        ),
        (0, 2) => format!("    for (i, {a}) in {b}.iter().enumerate().skip({n}) {{ out[i] ^= {a} << 3; }}\n"),
        (0, _) => format!("    // {verb} {a} before {b}: the order matters here\n"),
        (1, 0) => format!("    {a} = [{b} ** 2 for {b} in range({n}) if {b} % 7 != 0]\n"),
        (1, 1) => format!(
            "    if self.{a} is None or len({b}) > {n}:\n        raise ValueError(f\"{a}={{{b}!r}}\")\n"
        ),
        (1, 2) => format!("    with open('{a}.json', 'rb') as {b}:\n\t{a} = json.loads({b}.read())\n"),
        (1, _) => format!("    # {verb} {a}, then {b}\n"),
        (_, 0) => format!("  const {a} = await fetch(`/api/v2/${{{b}}}/{verb}?limit={n}`);\n"),
        (_, 1) => {
            format!("  if ({a} !== undefined && {a}.length <= {n}) {{ return {b}?.{verb}() ?? null; }}\n")
        }
        (_, 2) => format!("  {a}.forEach(({b}) => console.log(\"{verb}:\", {b}, 0x{mask:x}));\n"),
        (_, _) => format!("  /* {verb} {a} */ {b} += {n}.5e-3;\n"),
    }
}

/// The common system prompt of all chats.
const SYSTEM: &str = "<|im_start|>system\nYou are the assistant of a small public library. Answer in a few plain sentences, say so \
    when you are not sure, and never invent titles, authors or dates. Opening hours: Mon\u{2013}Fri 09:00\u{2013}18:30, Sat \
    10:00\u{2013}14:00.<|im_end|>\n";
const QUESTIONS: &str = "\
    can i renew a book online?? it's due tmrw|\
    What would you recommend to someone who liked stories about the sea?|\
    How do I cite a map that has no author?|¿Tienen libros en español para niños?|\
    pls list 3 things i need for a library card \u{1f64f}|\
    Is the reading room open on public holidays, e.g. 26 December?|\
    Habt ihr auch Hörbücher? Größere Schrift wäre schön.|\
    Where can I find the 1987 council minutes (vol. 12, pp. 330\u{2013}345)?";
const ANSWERS: &str = "\
    Yes. Log in, open \"My loans\" and choose \"Renew\"; it works until midnight of the last day.|\
    I'm not sure. The desk can tell you: call extension 204 or write to desk@library.example.|\
    You need an identity card, proof of address and $5.00. Children under 14 pay nothing.|\
    Certainly! Here is a short list:\n1. Adventure, shelf A3\n2. Voyages, shelf C17\n3. Letters, shelf F2";

/// A conversation under the common system prompt.
fn chat(numbers: &mut Numbers) -> String {
    let mut text = SYSTEM.to_owned();
    for turn in 0..numbers.within(1, 4) {
        if turn > 0 {
            text += &format!("<|im_start|>assistant\n{}<|im_end|>\n", numbers.pick(ANSWERS));
        }
        let (question, more) = (numbers.pick(QUESTIONS), sentence(numbers));
        let ticket = numbers.within(100, 99_999);
        text += &format!("<|im_start|>user\n{question} {more} (ticket {ticket})<|im_end|>\n");
    }
    text + "<|im_start|>assistant\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_texts_are_always_the_same_and_differ_from_each_other() {
        let inputs = of_our_own(200);
        assert_eq!(inputs, of_our_own(200));
        assert_eq!(inputs.iter().map(|input| input.name).collect::<Vec<_>>(), ["prose", "code", "chat"]);
        for input in &inputs {
            let distinct: std::collections::BTreeSet<_> = input.texts.iter().collect();
            assert!(distinct.len() > 190, "{}: {} of 200", input.name, distinct.len());
            let mean = input.bytes() / 200;
            assert!((200..2000).contains(&mean), "{}: {mean} bytes", input.name);
            assert!(
                input.texts[..7] == of_our_own(7).iter().find(|i| i.name == input.name).unwrap().texts[..]
            );
        }
        assert!(inputs[2].texts.iter().all(|text| text.starts_with(SYSTEM)) && SYSTEM.len() > 128);
    }

    #[test]
    fn a_file_has_a_text_per_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("texts");
        let of = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            read(&path)
        };
        assert_eq!(of(b"one\r\n\ntwo \n").unwrap().texts, ["one", "two "]);
        let fact = |bytes: &[u8]| match of(bytes) {
            Err(LaneError::Input(fact)) => fact,
            other => panic!("{other:?}"),
        };
        assert!(fact(b"\n\n").starts_with("no line of 2 bytes"));
        assert!(fact(b"ab\n\xff").starts_with("byte 3 is 0xff") && fact(b"\xff").contains("texts`"));
        assert!(matches!(read(Path::new("/nonexistent")), Err(LaneError::Input(_))));
    }
}
