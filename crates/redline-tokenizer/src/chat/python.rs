//! What templates expect of Python: `json.dumps`, `strftime`, and methods of strings.

use std::io::{self, Write};

use jiff::fmt::strtime;
use minijinja::value::{Kwargs, Tuple, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::Serialize as _;

use super::ChatDate;

/// Maximum indentation of JSON in spaces; more counts as this number.
const MAX_INDENT: usize = 16;
/// Maximum number of digits of a width in `str.format`.
const WIDTH_DIGITS: usize = 3;

/// The filter `tojson` of transformers: `json.dumps` with `ensure_ascii` (default false), `indent`, `separators` and `sort_keys`.
pub(super) fn to_json(
    value: &Value,
    ensure_ascii: Option<Value>,
    indent: Option<Value>,
    separators: Option<Value>,
    options: Kwargs,
) -> Result<Value, Error> {
    let argument = |positional: Option<Value>, name: &str| match positional {
        Some(value) => Ok(Some(value)),
        None => options.get::<Option<Value>>(name),
    };
    let ensure_ascii = argument(ensure_ascii, "ensure_ascii")?.is_some_and(|value| value.is_true());
    let indent = argument(indent, "indent")?.as_ref().map(indentation).transpose()?;
    let separators = argument(separators, "separators")?;
    let sort_keys = argument(None, "sort_keys")?.is_some_and(|value| value.is_true());
    options.assert_all_used()?;
    let (item, key) = match &separators {
        Some(both) => pair(both)?,
        None => ((if indent.is_some() { "," } else { ", " }).to_owned(), ": ".to_owned()),
    };
    let formatter = Json { ensure_ascii, indent, item, key, depth: 0, has_items: false };
    let mut bytes = Vec::new();
    let value = if sort_keys { sorted(value)? } else { value.clone() };
    value
        .serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, formatter))
        .map_err(|error| failed(error.to_string()))?;
    Ok(Value::from_safe_string(String::from_utf8_lossy(&bytes).into_owned()))
}

/// The text of one level of indentation, from a number of spaces or a text.
fn indentation(value: &Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.chars().take(MAX_INDENT).collect());
    }
    let spaces = value.as_i64().ok_or_else(|| failed(format!("indent is a {}", value.kind())))?;
    Ok(" ".repeat(usize::try_from(spaces).unwrap_or(0).min(MAX_INDENT)))
}

/// The filter `indent` of Jinja, for widths of at most `MAX_INDENT`.
pub(super) fn indent(
    text: &str,
    width: Option<Value>,
    first: Option<bool>,
    blank: Option<bool>,
    options: Kwargs,
) -> Result<String, Error> {
    let width = match width {
        Some(width) => Some(width),
        None => options.get("width")?,
    };
    let first = first.or(options.get("first")?).unwrap_or(false);
    let blank = blank.or(options.get("blank")?).unwrap_or(false);
    options.assert_all_used()?;
    let spaces = match width {
        None => " ".repeat(4),
        Some(width) if width.as_i64().is_some_and(|width| width > MAX_INDENT as i64) => {
            return Err(failed(format!("indent of more than {MAX_INDENT} spaces")));
        }
        Some(width) => indentation(&width)?,
    };
    let lines = text.split('\n').enumerate().map(|(index, line)| match index {
        0 if first => format!("{spaces}{line}"),
        1.. if blank || !line.is_empty() => format!("{spaces}{line}"),
        _ => line.to_owned(),
    });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// The two separators.
fn pair(value: &Value) -> Result<(String, String), Error> {
    let texts: Vec<Value> = value.try_iter()?.collect();
    match texts.as_slice() {
        [item, key] => match (item.as_str(), key.as_str()) {
            (Some(item), Some(key)) => Ok((item.to_owned(), key.to_owned())),
            _ => Err(failed("separators are not texts".to_owned())),
        },
        _ => Err(failed(format!("{} separators instead of 2", texts.len()))),
    }
}

/// The value with the keys of all its maps in order.
fn sorted(value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Map => {
            let mut pairs = Vec::new();
            for key in value.try_iter()? {
                let item = sorted(&value.get_item(&key)?)?;
                pairs.push((key, item));
            }
            pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
            Ok(Value::from_pairs(pairs))
        }
        ValueKind::Seq => {
            value.try_iter()?.map(|item| sorted(&item)).collect::<Result<Vec<_>, _>>().map(Value::from)
        }
        _ => Ok(value.clone()),
    }
}

/// JSON in Python's format.
struct Json {
    ensure_ascii: bool,
    /// Text of one level of indentation; `None` writes everything on one line.
    indent: Option<String>,
    /// Written between items.
    item: String,
    /// Written between a key and its value.
    key: String,
    depth: usize,
    /// Whether the innermost list or object that is open has items.
    has_items: bool,
}

impl Json {
    fn open<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.has_items = false;
        out.write_all(bracket)
    }

    fn close<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if self.has_items {
            self.new_line(out)?;
        }
        out.write_all(bracket)
    }

    fn begin_item<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if !first {
            out.write_all(self.item.as_bytes())?;
        }
        self.new_line(out)
    }

    fn new_line<W: ?Sized + Write>(&self, out: &mut W) -> io::Result<()> {
        let Some(indent) = &self.indent else { return Ok(()) };
        out.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| out.write_all(indent.as_bytes()))
    }
}

impl serde_json::ser::Formatter for Json {
    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        out.write_all(float(value).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
        if !self.ensure_ascii {
            return out.write_all(text.as_bytes());
        }
        for c in text.chars() {
            match c {
                ' '..='~' => out.write_all(&[c as u8])?,
                _ => c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(out, "\\u{unit:04x}"))?,
            }
        }
        Ok(())
    }

    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.begin_item(out, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_items = true;
        Ok(())
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.begin_item(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(self.key.as_bytes())
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_items = true;
        Ok(())
    }
}

/// A number as Python's `repr` has it: the fewest digits that are read back as the same number, with an exponent below 1e-4 and from 1e16.
fn float(value: f64) -> String {
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ if value.fract() == 0.0 => format!("{value:.1}"),
        _ => value.to_string(),
    }
}

/// The date in a format of Python's `strftime`.
pub(super) fn strftime(date: ChatDate, format: &str) -> Result<String, Error> {
    let text = strtime::format(format, date.0.at(0, 0, 0, 0));
    text.map_err(|error| failed(format!("strftime_now({format:?}): {error}")))
}

/// Methods of Python's strings, lists and dictionaries.
pub(super) fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let Some(text) = value.as_str() else { return unknown_method_callback(state, value, name, args) };
    match name {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let is_first = name == "partition";
            let parts = if is_first { text.split_once(separator) } else { text.rsplit_once(separator) };
            let parts = match parts {
                Some((before, after)) => [before, separator, after],
                None if is_first => [text, "", ""],
                None => ["", "", text],
            };
            Ok(Value::from(Tuple::from(parts.map(Value::from))))
        }
        "rsplit" => {
            let (separator, splits): (&str, Option<usize>) = from_args(args)?;
            let mut parts: Vec<&str> = match splits {
                Some(splits) => text.rsplitn(splits.saturating_add(1), separator).collect(),
                None => text.rsplit(separator).collect(),
            };
            parts.reverse();
            Ok(parts.into_iter().map(Value::from).collect())
        }
        // A width can create a text of any length from a number.
        "format" if text.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > WIDTH_DIGITS) => {
            Err(failed(format!("a width of more than {WIDTH_DIGITS} digits in format()")))
        }
        _ => unknown_method_callback(state, value, name, args),
    }
}

fn failed(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_python() {
        // What `repr` prints in Python 3.11.
        for (value, expected) in [
            (1.0, "1.0"),
            (-0.5, "-0.5"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (9007199254740993.0, "9007199254740992.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.25e100, "1.25e+100"),
            (123456.789, "123456.789"),
        ] {
            assert_eq!(float(value), expected);
        }
    }
}
