//! Messages in channels: gpt-oss. `<|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>`.

use super::Family;
use crate::buffer::{Buffer, Needle, find, held, visible};
use crate::deltas::Deltas;
use crate::reader::{CallReader, Step};
use crate::rules::{Rules, literal};
use crate::tool::Tools;

const MARKS: [&str; 7] =
    ["<|message|>", "<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>", "<|constrain|>"];

pub(super) const HARMONY: Family = Family {
    name: "harmony",
    fits: |source| {
        source.has("<|channel|>") && source.has_token("<|channel|>") && source.has_token("<|message|>")
    },
    openers: &[],
    starts: &[],
    marks: &MARKS,
    reader: |format| {
        let marks = MARKS.map(|mark| format.needle(mark));
        Box::new(Messages { marks, place: Place::Header })
    },
    rules: |rules| {
        let [channel, constrain, message] =
            ["<|channel|>", "<|constrain|>", "<|message|>"].map(|name| rules.mark(name));
        let body = rules.alternatives("call", |rules, tool| {
            let schema = rules.arguments(tool)?;
            let recipient = literal(&format!("commentary to=functions.{} ", rules.tool(tool).name));
            // The mark after a call ends the answer, as any end does.
            Ok(format!(r#"{channel} {recipient} {constrain} "json" {message} {schema}"#))
        })?;
        let thoughts = thoughts(rules);
        rules.define("calls", &format!("{thoughts} {body}"));
        Ok(())
    },
};

/// The messages before a call or a text, as the body of a rule.
fn thoughts(rules: &Rules<'_>) -> String {
    let [channel, message, end, start] =
        ["<|channel|>", "<|message|>", "<|end|>", "<|start|>"].map(|name| rules.mark(name));
    format!(r#"({channel} "analysis" {message} {} {end} {start} "assistant")*"#, rules.any_text())
}

/// A text in its channel, as the body of a rule.
pub(crate) fn final_text(rules: &Rules<'_>, text: &str) -> String {
    let (channel, message) = (rules.mark("<|channel|>"), rules.mark("<|message|>"));
    format!(r#"{} {channel} "final" {message} {text}"#, thoughts(rules))
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before `<|message|>`.
    Header,
    Reasoning,
    Content,
    Arguments,
}

/// The messages of an answer.
#[derive(Clone, Debug)]
struct Messages {
    /// As in [`MARKS`].
    marks: [Needle; 7],
    place: Place,
}

impl CallReader for Messages {
    fn reasons(&self) -> bool {
        self.place == Place::Reasoning
    }

    fn read(&mut self, buffer: &mut Buffer, deltas: &mut Deltas, tools: &Tools) -> Step {
        loop {
            let ends: Vec<&Needle> = match self.place {
                Place::Header => vec![&self.marks[0]],
                _ => self.marks[1..5].iter().collect(),
            };
            let found = find(buffer.rest(), &ends);
            if self.place == Place::Header {
                let Some((at, _)) = found else {
                    // A header without a message says nothing.
                    if buffer.ended {
                        buffer.take(usize::MAX);
                    }
                    return if buffer.ended { Step::Done } else { Step::More };
                };
                let header = visible_with_marks(&buffer.take(at), &self.marks);
                buffer.take(self.marks[0].len());
                self.place = begin(&header, deltas, !tools.0.is_empty());
                continue;
            }
            let rest = buffer.rest();
            let all = if buffer.ended { rest.len() } else { rest.len() - held(rest, &ends) };
            let text = visible(&buffer.take(found.map_or(all, |(at, _)| at)));
            match self.place {
                Place::Reasoning => deltas.reasoning(&text),
                Place::Arguments => deltas.arguments(&text),
                Place::Content | Place::Header => deltas.content(&text),
            }
            let Some((_, which)) = found else {
                return if buffer.ended { Step::Done } else { Step::More };
            };
            buffer.take(ends[which].len());
            if self.place == Place::Reasoning {
                deltas.end_part();
            }
            self.place = Place::Header;
        }
    }
}

/// What a message with this header is.
fn begin(header: &str, deltas: &mut Deltas, has_tools: bool) -> Place {
    let recipient = header.split("to=").nth(1).map(|rest| {
        let end = rest.find(|c: char| c.is_whitespace() || c == '<').unwrap_or(rest.len());
        &rest[..end]
    });
    match recipient.map(|to| to.strip_prefix("functions.").unwrap_or(to)).filter(|name| !name.is_empty()) {
        Some(name) if has_tools => {
            deltas.call(name);
            Place::Arguments
        }
        None if header.contains("analysis") => Place::Reasoning,
        _ => Place::Content,
    }
}

/// The text of a header, in which marks separate words.
fn visible_with_marks(bytes: &[u8], marks: &[Needle]) -> String {
    let all: Vec<&Needle> = marks.iter().collect();
    let mut text = String::new();
    let mut rest = bytes;
    while let Some((at, which)) = find(rest, &all) {
        text.push_str(&visible(&rest[..at]));
        text.push(' ');
        rest = &rest[at + all[which].len()..];
    }
    text + &visible(rest)
}
