//! llama-bench's SQL: a table `test`, one statement per test.

use serde_json::{Map, Value};

use super::super::{BadFile, Exported, Imported, NotExported, Place, values};
use super::record::Record;
use super::{COLUMNS, Kind, exported, imported};
use crate::run::Run;

const SHAPE: &str =
    "a file of `llama-bench -o sql` has statements INSERT INTO test (COLUMN, ...) VALUES ('VALUE', ...);";

pub(super) fn recognises(text: &str) -> bool {
    text.contains("INSERT INTO test")
}

/// An SQL token.
#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// A name, a keyword or a number.
    Word(String),
    /// A quoted text.
    Text(String),
    Sign(char),
}

/// Tokens with line numbers.
struct Tokens<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    line: u64,
}

impl Tokens<'_> {
    fn next(&mut self) -> Result<Option<(u64, Token)>, BadFile> {
        self.skip_blanks();
        let line = self.line;
        let Some(first) = self.rest.next() else { return Ok(None) };
        let token = match first {
            '\'' | '"' => self.quoted(first, line)?,
            c if word(c) => {
                let mut text = String::from(c);
                while let Some(c) = self.rest.next_if(|c| word(*c)) {
                    text.push(c);
                }
                Token::Word(text)
            }
            sign => Token::Sign(sign),
        };
        Ok(Some((line, token)))
    }

    fn skip_blanks(&mut self) {
        while let Some(c) = self.rest.next_if(|c| c.is_whitespace()) {
            self.line += u64::from(c == '\n');
        }
    }

    /// Reads a quoted text after its opening quote; a doubled quote stands for one.
    fn quoted(&mut self, quote: char, line: u64) -> Result<Token, BadFile> {
        let mut text = String::new();
        loop {
            match self.rest.next() {
                None => return Err(BadFile::at(Place::Line(line), "a quote has no end", SHAPE)),
                Some(c) if c == quote => {
                    if self.rest.next_if_eq(&quote).is_none() {
                        let value = quote == '\'';
                        return Ok(if value { Token::Text(text) } else { Token::Word(text) });
                    }
                    text.push(quote);
                }
                Some(c) => {
                    self.line += u64::from(c == '\n');
                    text.push(c);
                }
            }
        }
    }

    fn expect(&mut self, wanted: &str) -> Result<u64, BadFile> {
        match self.next()? {
            Some((line, Token::Word(word))) if word.eq_ignore_ascii_case(wanted) => Ok(line),
            Some((line, Token::Sign(sign))) if wanted.starts_with(sign) => Ok(line),
            other => Err(self.fault(other.as_ref(), &format!("`{wanted}`"))),
        }
    }

    fn fault(&self, found: Option<&(u64, Token)>, wanted: &str) -> BadFile {
        let (line, what) = match found {
            None => (self.line, "the end".to_owned()),
            Some((line, Token::Word(text) | Token::Text(text))) => {
                (*line, format!("`{}`", values::shortened(text)))
            }
            Some((line, Token::Sign(sign))) => (*line, format!("`{sign}`")),
        };
        BadFile::at(Place::Line(line), format!("{what} stands where {wanted} is needed"), SHAPE)
    }

    /// Reads a parenthesised list after its opening parenthesis.
    fn list(&mut self) -> Result<Vec<Value>, BadFile> {
        let mut list = Vec::new();
        loop {
            match self.next()? {
                Some((_, Token::Text(text))) => list.push(Value::String(text)),
                Some((_, Token::Word(word))) if word.eq_ignore_ascii_case("null") => list.push(Value::Null),
                Some((_, Token::Word(word))) => list.push(Value::String(word)),
                other => return Err(self.fault(other.as_ref(), "a value")),
            }
            match self.next()? {
                Some((_, Token::Sign(','))) => {}
                Some((_, Token::Sign(')'))) => return Ok(list),
                other => return Err(self.fault(other.as_ref(), "`,` or `)`")),
            }
        }
    }
}

fn word(c: char) -> bool {
    c.is_alphanumeric() || "_.+-".contains(c)
}

pub(super) fn read(text: &str) -> Result<Imported, BadFile> {
    let mut tokens = Tokens { rest: text.chars().peekable(), line: 1 };
    let mut records = Vec::new();
    while let Some((line, token)) = tokens.next()? {
        match token {
            Token::Word(word) if word.eq_ignore_ascii_case("insert") => {}
            // Other statements create the table.
            Token::Word(_) => {
                while let Some((_, token)) = tokens.next()? {
                    if token == Token::Sign(';') {
                        break;
                    }
                }
                continue;
            }
            Token::Sign(';') => continue,
            other => return Err(tokens.fault(Some(&(line, other)), "a statement")),
        }
        tokens.expect("into")?;
        tokens.expect("test")?;
        tokens.expect("(")?;
        let columns = tokens.list()?;
        tokens.expect("values")?;
        tokens.expect("(")?;
        let cells = tokens.list()?;
        tokens.expect(";")?;
        if columns.len() != cells.len() {
            let fact = format!("{} values for {} columns", cells.len(), columns.len());
            return Err(BadFile::at(Place::Line(line), fact, SHAPE));
        }
        let named = columns.into_iter().filter_map(|name| name.as_str().map(ToOwned::to_owned)).zip(cells);
        records.push(Record::new(Place::Line(line), named.collect::<Map<_, _>>())?);
    }
    imported(records)
}

fn quoted(text: &str) -> String {
    // SQLite ends a statement at a NUL.
    format!("'{}'", text.replace('\0', "").replace('\'', "''"))
}

pub(super) fn write(run: &Run) -> Result<Exported, NotExported> {
    let column = |(name, kind): &(&str, Kind)| {
        let kind = match kind {
            Kind::Text => "TEXT",
            Kind::Integer | Kind::Switch => "INTEGER",
            Kind::Real => "REAL",
        };
        format!("  {name} {kind}")
    };
    let table = COLUMNS.iter().map(column).collect::<Vec<_>>().join(",\n");
    let names = COLUMNS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    exported(run, |records| {
        let statement = |record: &Record| {
            let cell =
                |(name, _): &(&str, Kind)| record.cell(name).map_or("NULL".to_owned(), |text| quoted(&text));
            let cells = COLUMNS.iter().map(cell).collect::<Vec<_>>().join(", ");
            format!("INSERT INTO test ({names}) VALUES ({cells});\n")
        };
        let statements: String = records.iter().map(statement).collect();
        format!("CREATE TABLE IF NOT EXISTS test (\n{table}\n);\n\n{statements}")
    })
}
