//! The parts of an answer.

/// What is new of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// Text.
    Content(String),
    /// Reasoning before the text.
    Reasoning(String),
    /// A call of this tool begins. Its arguments follow.
    Call(String),
    /// More of the arguments of the latest call. Together they are JSON, an object unless the model writes something else.
    Arguments(String),
}

/// Collects parts. White space before and after calls and reasoning belongs to the format, and is left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deltas {
    all: Vec<Delta>,
    /// White space that follows what was collected, and is left out unless more of the same kind follows.
    space: String,
    /// What the latest part was.
    latest: Latest,
    /// Number of calls.
    pub(crate) calls: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Latest {
    /// Nothing yet, or text.
    #[default]
    Content,
    /// Reasoning, of which something was shown.
    Reasoning,
    /// Reasoning or a call that has ended; white space that follows is left out.
    Ended,
}

impl Deltas {
    pub(crate) fn content(&mut self, text: &str) {
        let text = if self.latest == Latest::Content { text } else { text.trim_start() };
        if !text.is_empty() {
            self.latest = Latest::Content;
            self.push(text, Delta::Content);
        }
    }

    pub(crate) fn reasoning(&mut self, text: &str) {
        let text = if self.latest == Latest::Reasoning { text } else { text.trim_start() };
        if !text.is_empty() {
            if self.latest != Latest::Reasoning {
                self.space.clear();
            }
            self.latest = Latest::Reasoning;
            self.push(text, Delta::Reasoning);
        }
    }

    pub(crate) fn call(&mut self, name: &str) {
        self.end_part();
        self.calls += 1;
        self.all.push(Delta::Call(name.to_owned()));
    }

    pub(crate) fn arguments(&mut self, json: &str) {
        if json.is_empty() {
            return;
        }
        match self.all.last_mut() {
            Some(Delta::Arguments(before)) => before.push_str(json),
            _ => self.all.push(Delta::Arguments(json.to_owned())),
        }
    }

    /// The answer has ended: text keeps its white space, unless it follows a call.
    pub(crate) fn finish(&mut self) {
        let space = std::mem::take(&mut self.space);
        if self.latest == Latest::Content && !space.is_empty() {
            self.all.push(Delta::Content(space));
        }
    }

    pub(crate) fn take(&mut self) -> Vec<Delta> {
        std::mem::take(&mut self.all)
    }

    /// The reasoning, or a call, has ended.
    pub(crate) fn end_part(&mut self) {
        self.space.clear();
        self.latest = Latest::Ended;
    }

    fn push(&mut self, text: &str, kind: impl Fn(String) -> Delta) {
        let shown = text.trim_end();
        if shown.is_empty() {
            return self.space.push_str(text);
        }
        let space = std::mem::replace(&mut self.space, text[shown.len()..].to_owned());
        match (self.all.last_mut(), kind(space + shown)) {
            (Some(Delta::Content(before)), Delta::Content(text))
            | (Some(Delta::Reasoning(before)), Delta::Reasoning(text)) => before.push_str(&text),
            (_, delta) => self.all.push(delta),
        }
    }
}
