//! A line of a conversation.

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input<'a> {
    /// Nothing.
    Blank,
    /// A message of the user.
    Message(&'a str),
    /// Set the system message, or remove it.
    System(Option<&'a str>),
    /// Forget the messages.
    Reset,
    /// Write the messages to a file.
    Save(&'a str),
    /// A command to save that names no file.
    NoFile,
    /// Leave.
    Exit,
    /// A command that does not exist.
    Unknown(&'a str),
}

impl<'a> Input<'a> {
    /// Reads a line.
    pub(super) fn of(line: &'a str) -> Self {
        if line.trim().is_empty() {
            return Self::Blank;
        }
        let Some(command) = line.strip_prefix('/') else { return Self::Message(line) };
        if command.starts_with('/') {
            return Self::Message(command);
        }
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = Some(rest.trim()).filter(|rest| !rest.is_empty());
        match (name, rest) {
            ("/system", text) => Self::System(text),
            ("/save", Some(path)) => Self::Save(path),
            ("/save", None) => Self::NoFile,
            ("/reset", None) => Self::Reset,
            ("/exit", None) => Self::Exit,
            _ => Self::Unknown(line.trim_end()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_message_or_a_command() {
        for (line, expected) in [
            ("  ", Input::Blank),
            (" hi /exit ", Input::Message(" hi /exit ")),
            ("//etc is a folder", Input::Message("/etc is a folder")),
            ("/system  Be short. ", Input::System(Some("Be short."))),
            ("/system", Input::System(None)),
            ("/reset ", Input::Reset),
            ("/save a b.jsonl", Input::Save("a b.jsonl")),
            ("/save ", Input::NoFile),
            ("/exit", Input::Exit),
            ("/exit now", Input::Unknown("/exit now")),
            ("/etc", Input::Unknown("/etc")),
            ("/", Input::Unknown("/")),
        ] {
            assert_eq!(Input::of(line), expected, "{line:?}");
        }
    }
}
