//! Patterns of PEFT configurations: regular expressions as Python's `re` reads them.
//!
//! Names of modules with at most `^`, `.` and `\.` besides letters, digits and `_` are compared directly. Everything else
//! goes to a backtracking engine with a limit, so that a hostile pattern is an error and cannot take long.

use fancy_regex::{Regex, RegexBuilder};

use super::fault::AdapterFault;

/// Maximum length of a regular expression in bytes.
const MAX_LENGTH: usize = 4096;
/// Maximum number of backtracking steps for one module.
const MAX_STEPS: usize = 5_000;
/// Maximum size of the parts that are matched without backtracking, in bytes.
const MAX_SIZE: usize = 1 << 19;

/// A key of `rank_pattern` or `alpha_pattern`.
///
/// It matches as in PEFT's `get_pattern_key`: `re.match(rf"(.*\.)?({key})$", module)`.
#[derive(Debug, Clone)]
pub(super) enum Suffix {
    /// The end of a name, after a dot or from its first character; the whole name if `whole`.
    Plain {
        pattern: Vec<Character>,
        whole: bool,
    },
    Other(Expression),
}

/// One character of a plain pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Character {
    Any,
    Is(u8),
}

/// A regular expression, with the key and the text that it stands for in messages.
#[derive(Debug, Clone)]
pub(super) struct Expression {
    key: &'static str,
    text: String,
    regex: Regex,
}

impl Suffix {
    pub(super) fn new(key: &'static str, text: &str) -> Result<Self, AdapterFault> {
        let (whole, rest) = text.strip_prefix('^').map_or((false, text), |rest| (true, rest));
        match plain(rest) {
            Some(pattern) => Ok(Self::Plain { pattern, whole }),
            None => Expression::new(key, text, &format!(r"\A(?:(.*\.)?({text})$)")).map(Self::Other),
        }
    }

    pub(super) fn is_plain(&self) -> bool {
        matches!(self, Self::Plain { .. })
    }

    pub(super) fn matches(&self, module: &str) -> Result<bool, AdapterFault> {
        match self {
            Self::Plain { pattern, whole } => Ok(ends_with(module.as_bytes(), pattern, *whole)),
            Self::Other(expression) => expression.matches(module),
        }
    }
}

impl Expression {
    /// An expression that matches a whole name, as `re.fullmatch`.
    pub(super) fn whole(key: &'static str, text: &str) -> Result<Self, AdapterFault> {
        Self::new(key, text, &format!(r"\A(?:{text})\z"))
    }

    /// The expression with which PEFT finds the index of a layer after a name out of `layers_pattern`.
    pub(super) fn layer_index(key: &'static str, text: &str) -> Result<Self, AdapterFault> {
        Self::new(key, text, &format!(r"\A(?:(?:^|.*?\.){text}\.(?P<idx>\d+)\.)"))
    }

    /// Whether it matches.
    ///
    /// # Errors
    /// Running out of backtracking steps.
    pub(super) fn matches(&self, module: &str) -> Result<bool, AdapterFault> {
        self.regex.is_match(module).map_err(|error| self.fault(&error))
    }

    /// The index that [`Self::layer_index`] finds; `None` if the expression does not match, or matches without an index.
    pub(super) fn index(&self, module: &str) -> Result<Option<usize>, AdapterFault> {
        let found = self.regex.captures(module).map_err(|error| self.fault(&error))?;
        Ok(found.and_then(|found| found.name("idx")?.as_str().parse().ok()))
    }

    /// Compiles `full`, which contains `text`.
    fn new(key: &'static str, text: &str, full: &str) -> Result<Self, AdapterFault> {
        let refuse = |message| AdapterFault::Pattern { key, pattern: text.to_owned(), message };
        if text.len() > MAX_LENGTH {
            return Err(refuse(format!("it has {} bytes, but at most {MAX_LENGTH} are read", text.len())));
        }
        refuse_other_meanings(text).map_err(refuse)?;
        let build = |pattern| {
            let mut builder = RegexBuilder::new(pattern);
            builder.backtrack_limit(MAX_STEPS);
            builder.delegate_size_limit(MAX_SIZE).delegate_dfa_size_limit(MAX_SIZE);
            builder.build().map_err(|error| refuse(error.to_string()))
        };
        // The text alone must be an expression, too; its errors count characters from its beginning.
        build(text)?;
        let regex = build(full)?;
        Ok(Self { key, text: text.to_owned(), regex })
    }

    fn fault(&self, error: &fancy_regex::Error) -> AdapterFault {
        AdapterFault::Pattern { key: self.key, pattern: self.text.clone(), message: error.to_string() }
    }
}

/// A pattern without operators; `None` if it has any.
fn plain(pattern: &str) -> Option<Vec<Character>> {
    let mut bytes = pattern.bytes();
    let mut characters = Vec::with_capacity(pattern.len());
    while let Some(byte) = bytes.next() {
        characters.push(match byte {
            b'.' => Character::Any,
            b'\\' if bytes.next() == Some(b'.') => Character::Is(b'.'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => Character::Is(byte),
            _ => return None,
        });
    }
    Some(characters)
}

fn ends_with(module: &[u8], pattern: &[Character], whole: bool) -> bool {
    let Some(start) = module.len().checked_sub(pattern.len()) else { return false };
    let free = start == 0 || (!whole && module[start - 1] == b'.');
    let same = |(&byte, &character): (&u8, &Character)| match character {
        Character::Any => true,
        Character::Is(wanted) => byte == wanted,
    };
    free && module[start..].iter().zip(pattern).all(same)
}

/// Refuses what Python reads in another way than the engine used here: some escapes, and operators inside `[...]`.
fn refuse_other_meanings(pattern: &str) -> Result<(), String> {
    // Whether the position is in a class, and how many characters of the class were read.
    let (mut class, mut read) = (false, 0);
    let mut rest = pattern.chars().peekable();
    while let Some(character) = rest.next() {
        let next = rest.peek().copied();
        match (character, next) {
            ('\\', Some(escaped)) => {
                rest.next();
                let known = "AbBdDsSwWZafnrtvxuUN".contains(escaped);
                if (escaped.is_ascii_alphabetic() && !known) || matches!(escaped, '<' | '>') {
                    return Err(format!("`\\{escaped}` is not an escape of Python"));
                }
            }
            ('[', _) if class => return Err("`[` in a class is not escaped".into()),
            ('&' | '-' | '~' | '|', Some(same)) if class && same == character => {
                return Err(format!("`{character}{character}` in a class is not escaped"));
            }
            ('[', _) => {
                if next == Some('^') {
                    rest.next();
                }
                (class, read) = (true, 0);
                continue;
            }
            (']', _) if class && read > 0 => class = false,
            _ => {}
        }
        read += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(key: &str, module: &str) -> bool {
        Suffix::new("rank_pattern", key).unwrap().matches(module).unwrap()
    }

    fn refused(pattern: &str) -> String {
        match Expression::whole("target_modules", pattern) {
            Err(AdapterFault::Pattern { message, .. }) => message,
            other => panic!("{other:?}"),
        }
    }

    const MODULES: &[&str] = &[
        "model.layers.0.self_attn.q_proj",
        "model.layers.10.self_attn.q_proj",
        "model.layers.1.mlp.up_proj",
        "layers.1.mlp.up_proj",
        "lm_head",
        "a",
        "",
    ];

    /// The direct comparison must agree with the expression that it replaces.
    #[test]
    fn plain_patterns_match_as_the_expression_does() {
        let keys = "q_proj ^q_proj proj layers.0.self_attn.q_proj ^model.layers.0.self_attn.q_proj lm_head ^lm_head m_head \
                    mlp\\.up_proj mlp.up_proj mlpxup_proj mlp.up.proj . ^. .. ^ \\.up_proj .up_proj layers.1.mlp.up_proj \
                    0.self_attn.q_proj";
        for key in keys.split(' ').chain([""]) {
            assert!(Suffix::new("", key).unwrap().is_plain(), "{key}");
            let expression = Expression::new("", key, &format!(r"\A(?:(.*\.)?({key})$)")).unwrap();
            for module in MODULES {
                assert_eq!(
                    matched(key, module),
                    expression.matches(module).unwrap(),
                    "`{key}` on `{module}`"
                );
            }
        }
        assert!(matched("mlp.up_proj", "model.layers.1.mlp.up_proj") && !matched("proj", "model.up_proj"));
    }

    #[test]
    fn expressions_match_whole_parts_of_a_name() {
        assert!(matched("layers.[01].self_attn.q_proj", MODULES[0]));
        assert!(!matched("layers.[01].self_attn.q_proj", MODULES[1]));
        assert!(matched("(q|k)_proj", MODULES[0]) && !matched("(q|k)_pro", MODULES[0]));
        // The alternatives are inside the group.
        assert!(matched("k_proj|q_proj", MODULES[0]) && !matched("up_proj|layers", "model.layers.1"));
    }

    #[test]
    fn what_python_reads_in_another_way_is_refused() {
        assert_eq!(refused(r"\h+"), r"`\h` is not an escape of Python");
        assert_eq!(refused(r"\<q"), r"`\<` is not an escape of Python");
        assert_eq!(refused("[a[b]"), "`[` in a class is not escaped");
        assert_eq!(refused("[a-z&&b]"), "`&&` in a class is not escaped");
        assert_eq!(refused("[]--a]"), "`--` in a class is not escaped");
        for pattern in [r"[\[a]&&", "[^]a]b--", r"a\.b", "[a-z]+[b]"] {
            Expression::whole("target_modules", pattern).unwrap();
        }
        assert_eq!(refused(&"a".repeat(4097)), "it has 4097 bytes, but at most 4096 are read");
        assert!(refused("(q").starts_with("Parsing error at position 2"), "{}", refused("(q"));
        assert!(refused("q)|(k").starts_with("Parsing error"), "not an expression by itself");
    }

    #[test]
    fn a_hostile_expression_is_an_error_and_ends() {
        let expression = Expression::whole("target_modules", "(?:(?=a)(a|aa)+)+$x").unwrap();
        let error = expression.matches(&"a".repeat(80)).unwrap_err().to_string();
        assert!(error.contains("backtrack"), "{error}");
        // Three loops, one inside the other, need too many steps even for nine characters.
        let expression = Expression::whole("target_modules", "(?:(?:(?:(?=.).)+)+)+x").unwrap();
        assert!(expression.matches(&"a".repeat(9)).is_err() && !expression.matches("aaa").unwrap());
        refused(&"(?:a{1,1000}){1,1000}".repeat(3));
        refused(&format!("{}a{}", "(".repeat(1000), ")".repeat(1000)));
    }
}
