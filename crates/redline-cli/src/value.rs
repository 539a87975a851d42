//! Parsers for the values of flags and environment variables, one per kind, each with a hint for bad values.

use std::fmt;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use redline_batch::{BadShard, Json, Shard};
use redline_engine::settings::Named;
use redline_engine::{Buckets, MAX_DEVICES, PrefixCacheSize};
use redline_kernels::op::kv::KvFormat;
use redline_kernels::{Format, Tier};
use redline_lab::lanes::LaneProfile;
use redline_tokenizer::{ChatDate, ChatValue};
use redline_weights::{HubId, SigningKey};

/// An invalid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadValue {
    /// What is wrong with the value.
    pub(crate) fact: String,
    /// What a valid value looks like.
    pub(crate) hint: String,
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fact)
    }
}

impl std::error::Error for BadValue {}

/// Returns an error for a bad value.
pub(crate) fn bad<T>(fact: impl Into<String>, hint: impl Into<String>) -> Result<T, BadValue> {
    Err(BadValue { fact: fact.into(), hint: hint.into() })
}

/// Maximum number of threads of a team.
const MAX_THREADS: usize = 1024;

/// A list of token ids, as `1,2,3`. The empty string is the empty list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ids(pub(crate) Vec<i64>);

/// Parses `1,2,3`.
pub(crate) fn ids(text: &str) -> Result<Ids, BadValue> {
    if text.trim().is_empty() {
        return Ok(Ids(Vec::new()));
    }
    let parse = |part: &str| {
        part.trim()
            .parse()
            .or_else(|_| bad(format!("`{part}` is not a token id"), "token ids are given as `1,2,3`"))
    };
    text.split(',').map(parse).collect::<Result<_, _>>().map(Ids)
}

/// A list of layers, as `0,5,11`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layers(pub(crate) Vec<usize>);

/// Parses `0,5,11`.
pub(crate) fn layers(text: &str) -> Result<Layers, BadValue> {
    let parse = |part: &str| {
        part.trim().parse().or_else(|_| {
            bad(format!("`{part}` is not a layer"), "layers are counted from 0 and given as `0,5,11`")
        })
    };
    text.split(',').map(parse).collect::<Result<_, _>>().map(Layers)
}

/// An instruction-set tier, or the best one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Isa(pub(crate) Option<Tier>);

/// Parses `auto` or the name of a tier that this machine has.
pub(crate) fn isa(text: &str) -> Result<Isa, BadValue> {
    if text == "auto" {
        return Ok(Isa(None));
    }
    let Some(tier) = Tier::parse(text) else {
        return bad("no such instruction set", format!("one of {}", isa_choices()));
    };
    match tier.available() {
        Ok(()) => Ok(Isa(Some(tier))),
        Err(why) => {
            let found: Vec<_> =
                Tier::ALL.iter().filter(|t| t.available().is_ok()).map(|t| t.name()).collect();
            bad(why.to_string(), format!("found here: {}; `auto` takes the best of them", found.join(", ")))
        }
    }
}

/// The values of `--isa`.
pub(crate) fn isa_choices() -> String {
    let tiers: Vec<_> = Tier::ALL.iter().map(|t| t.name()).collect();
    format!("auto, {}", tiers.join(", "))
}

/// Parses the name of a format of weights.
pub(crate) fn format(text: &str) -> Result<Format, BadValue> {
    let names: Vec<_> = Format::ALL.iter().map(|f| f.name()).collect();
    Format::parse(text).map_or_else(|| bad("no such format", format!("one of {}", names.join(", "))), Ok)
}

/// Parses a signing key: base64, or the path of a file that holds it.
pub(crate) fn signing_key(text: &str) -> Result<SigningKey, BadValue> {
    const LONGEST: u64 = 1 << 14;
    let hint = "`minisign -G` makes keys; the public one stands in `minisign.pub`";
    if let Some(key) = SigningKey::parse(text) {
        return Ok(key);
    }
    let read = redline_weights::read_file(Path::new(text), LONGEST);
    let bytes =
        read.or_else(|_| bad("neither a public key of minisign nor a file that can be read", hint))?;
    let key = std::str::from_utf8(&bytes).ok().and_then(SigningKey::parse);
    key.map_or_else(|| bad("the file holds no public key of minisign", hint), Ok)
}

/// Parses the id of a model on the hub, with or without a revision.
pub(crate) fn hub_id(text: &str) -> Result<HubId, BadValue> {
    HubId::parse(text).map_or_else(
        || bad(format!("`{text}` is not the id of a model"), "an id is `ORG/NAME`, or `ORG/NAME@REVISION`"),
        Ok,
    )
}

/// Parses a date such as `2026-07-26`.
pub(crate) fn date(text: &str) -> Result<ChatDate, BadValue> {
    ChatDate::parse(text).or_else(|error| bad(error.to_string(), error.hint().unwrap_or_default()))
}

/// Parses `NAME=VALUE`. The value is JSON, or else text.
pub(crate) fn template_argument(text: &str) -> Result<(String, ChatValue), BadValue> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            let value = ChatValue::from_json(value).unwrap_or_else(|_| ChatValue::text(value));
            Ok((name.to_owned(), value))
        }
        _ => bad(format!("`{text}` has no name and value"), "such as `enable_thinking=false`"),
    }
}

/// Parses a key of a request and its value for all rows; a value that is not JSON is text.
pub(crate) fn key_value(text: &str) -> Result<(String, Json), BadValue> {
    let (key, value) = pair(text, "such as `max_new_tokens=64` or `classes=[\"good\",\"bad\"]`")?;
    Ok((key, serde_json::from_str(&value).unwrap_or(Json::Text(value))))
}

/// Parses a key of a request and the column that gives its values.
pub(crate) fn key_column(text: &str) -> Result<(String, String), BadValue> {
    pair(text, "such as `text=review`: the key of the request, then the name of the column")
}

fn pair(text: &str, hint: &'static str) -> Result<(String, String), BadValue> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => bad(format!("`{text}` has no key and value"), hint),
    }
}

/// Parses `I/N`, one of N shards.
pub(crate) fn shard(text: &str) -> Result<Shard, BadValue> {
    text.parse().or_else(|error: BadShard| {
        bad(error.to_string(), "from 1/N to N/N: the first of four workers has 1/4")
    })
}

/// Parses the name of a format of keys and values.
pub(crate) fn kv_format(text: &str) -> Result<KvFormat, BadValue> {
    let names: Vec<_> = KvFormat::ALL.iter().map(|f| f.name()).collect();
    KvFormat::parse(text).map_or_else(|| bad("no such format", format!("one of {}", names.join(", "))), Ok)
}

/// A device that this version supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device;

/// Parses the name of a device.
pub(crate) fn device(text: &str) -> Result<Device, BadValue> {
    match text {
        "auto" | "cpu" => Ok(Device),
        _ => bad(
            "no such device here",
            "found: cpu; `auto` takes it, and `redline doctor` lists the accelerators it sees, none of which this version uses",
        ),
    }
}

/// Parses a fraction from 0 to 1.
pub(crate) fn fraction(text: &str) -> Result<f64, BadValue> {
    match text.parse::<f64>() {
        Ok(x) if (0.0..=1.0).contains(&x) => Ok(x),
        Ok(x) => bad(format!("{x} is no share"), "a number from 0 to 1"),
        Err(error) => bad(error.to_string(), "a number from 0 to 1"),
    }
}

/// Parses a normalised squared error.
pub(crate) fn tolerance(text: &str) -> Result<f64, BadValue> {
    let hint = "a number of at least 0, such as 1e-4";
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() && x >= 0.0 => Ok(x),
        Ok(x) => bad(format!("{x} is no tolerance"), hint),
        Err(error) => bad(error.to_string(), hint),
    }
}

/// Parses a number of logical devices.
pub(crate) fn devices(text: &str) -> Result<usize, BadValue> {
    let hint = format!("a number of devices, from 1 to {MAX_DEVICES}");
    match text.parse::<usize>() {
        Ok(n) if (1..=MAX_DEVICES).contains(&n) => Ok(n),
        Ok(n) => bad(format!("{n} devices"), hint),
        Err(error) => bad(error.to_string(), hint),
    }
}

/// The plan directory; `None` if plans are not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlanDir(pub(crate) Option<PathBuf>);

/// Parses a directory of plans, or `off`.
pub(crate) fn plan_dir(text: &str) -> Result<PlanDir, BadValue> {
    match text {
        "" => bad("no directory", "a directory, or off"),
        "off" => Ok(PlanDir(None)),
        _ => Ok(PlanDir(Some(text.into()))),
    }
}

/// Sizes of passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes(pub(crate) Vec<usize>);

/// Parses `64,128`.
pub(crate) fn sizes(text: &str) -> Result<Sizes, BadValue> {
    text.split(',').map(|part| chunk(part.trim())).collect::<Result<_, _>>().map(Sizes)
}

/// Parses the number of tokens of a pass.
pub(crate) fn chunk(text: &str) -> Result<usize, BadValue> {
    match count(text)? {
        n if n > Buckets::MAX_TOKENS => {
            bad(format!("{n} tokens"), format!("a number of tokens, from 1 to {}", Buckets::MAX_TOKENS))
        }
        n => Ok(n),
    }
}

/// Parses a number of threads.
pub(crate) fn threads(text: &str) -> Result<usize, BadValue> {
    match text.parse::<usize>() {
        Ok(0) => bad("0 threads", "threads are counted from 1; leave it out for one per physical core"),
        Ok(n) if n > MAX_THREADS => {
            bad(format!("more than {MAX_THREADS} threads"), "leave it out for one per physical core")
        }
        Ok(n) => Ok(n),
        Err(error) => {
            bad(error.to_string(), "a number of threads, from 1; leave it out for one per physical core")
        }
    }
}

/// Numbers of threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ThreadCounts(pub(crate) Vec<usize>);

/// Parses `1,2`.
pub(crate) fn thread_counts(text: &str) -> Result<ThreadCounts, BadValue> {
    text.split(',').map(|part| threads(part.trim())).collect::<Result<_, _>>().map(ThreadCounts)
}

/// Parses a positive count.
pub(crate) fn count(text: &str) -> Result<usize, BadValue> {
    match text.parse::<usize>() {
        Ok(0) => bad("nothing to do", "a number of tokens, from 1"),
        Ok(n) => Ok(n),
        Err(error) => bad(error.to_string(), "a number of tokens, from 1"),
    }
}

/// Parses a factor; 0 turns it off.
pub(crate) fn factor(text: &str) -> Result<f64, BadValue> {
    let hint = "a factor such as 5; 0 asks for none";
    match text.parse::<f64>() {
        Ok(x) if x >= 0.0 && x.is_finite() => Ok(x),
        Ok(x) => bad(format!("a factor of {x}"), hint),
        Err(error) => bad(error.to_string(), hint),
    }
}

/// Parses a time in seconds.
pub(crate) fn seconds(text: &str) -> Result<f64, BadValue> {
    let hint = "a number of seconds above 0, such as 2.5";
    match text.parse::<f64>() {
        Ok(s) if s > 0.0 && s.is_finite() => Ok(s),
        Ok(s) => bad(format!("{s} seconds"), hint),
        Err(error) => bad(error.to_string(), hint),
    }
}

/// As [`seconds`], up to `most`.
pub(crate) fn seconds_up_to(text: &str, most: f64) -> Result<f64, BadValue> {
    match seconds(text)? {
        s if s > most => bad(format!("{s} seconds"), format!("up to {most}")),
        s => Ok(s),
    }
}

/// Parses a time in milliseconds, as seconds.
pub(crate) fn milliseconds(text: &str) -> Result<f64, BadValue> {
    let hint = "a number of milliseconds, such as 20; 0 adds as little as possible";
    match text.parse::<f64>() {
        Ok(ms) if ms >= 0.0 && ms.is_finite() => Ok(ms * 1e-3),
        Ok(ms) => bad(format!("{ms} milliseconds"), hint),
        Err(error) => bad(error.to_string(), hint),
    }
}

/// Parses the length of a window.
pub(crate) fn window(text: &str) -> Result<usize, BadValue> {
    match text.parse::<usize>() {
        Ok(0 | 1) => bad("nothing in it can be predicted", "a number of tokens, from 2"),
        Ok(n) => Ok(n),
        Err(error) => bad(error.to_string(), "a number of tokens, from 2"),
    }
}

/// Maximum number of processes per arm.
const MAX_PROCESSES: usize = 1000;

/// Parses the number of processes per arm.
pub(crate) fn processes(text: &str) -> Result<usize, BadValue> {
    let hint = "a number from 1; of two arms an even one, since their order is A B B A";
    match text.parse::<usize>() {
        Ok(n) if n > MAX_PROCESSES => bad(format!("more than {MAX_PROCESSES} processes"), hint),
        Ok(n) if n > 0 => Ok(n),
        Ok(_) => bad("no process", hint),
        Err(error) => bad(error.to_string(), hint),
    }
}

/// Parses the profile of a lane.
pub(crate) fn profile(text: &str) -> Result<LaneProfile, BadValue> {
    match LaneProfile::ALL.iter().find(|(name, _)| *name == text) {
        Some((_, profile)) => Ok(*profile),
        None => bad("no profile", "smoke, standard or full"),
    }
}

/// Parses a percentage, with or without the sign, as a fraction.
pub(crate) fn percent(text: &str) -> Result<f64, BadValue> {
    let hint = "percent above 0 and at most 100, such as 3";
    match text.trim_end_matches('%').trim_end().parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent / 100.0),
        Ok(_) => bad("out of range", hint),
        Err(error) => bad(error.to_string(), hint),
    }
}

/// Parses `on` or `off`.
pub(crate) fn on_off(text: &str) -> Result<bool, BadValue> {
    match text {
        "on" | "1" => Ok(true),
        "off" | "0" => Ok(false),
        _ => bad(format!("`{text}` is neither"), "on or off, or 1 or 0"),
    }
}

/// How much the prefix cache may keep; `None`: there is no cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrefixCache(pub(crate) Option<PrefixCacheSize>);

/// Parses the size of the prefix cache: on (the default size), off, or a size.
pub(crate) fn prefix_cache(text: &str) -> Result<PrefixCache, BadValue> {
    match on_off(text) {
        Ok(on) => Ok(PrefixCache(on.then_some(PrefixCacheSize::Automatic))),
        Err(_) if !text.starts_with(|c: char| c.is_ascii_digit()) => {
            bad(format!("`{text}` is neither"), "on or off, or a size such as 8GiB")
        }
        Err(_) => bytes(text).map(|bytes| PrefixCache(Some(PrefixCacheSize::Bytes(bytes)))),
    }
}

/// Parses a size: a number with a binary unit (`8GiB`, `8G`), a decimal unit (`8GB`) or none, which means bytes.
pub(crate) fn bytes(text: &str) -> Result<u64, BadValue> {
    redline_engine::settings::bytes(text).or_else(|error| bad(error.to_string(), error.hint()))
}

/// Parses the name of a choice. The help lists the names.
pub(crate) fn choice<T: Named + Send + Sync>() -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(T::NAMES).try_map(|name| named(&name))
}

/// Parses the name of a choice, which may have underscores instead of hyphens.
pub(crate) fn named<T: Named>(text: &str) -> Result<T, BadValue> {
    let found = T::parse(&text.replace('_', "-"));
    found.map_or_else(|| bad(format!("`{text}` is not known"), format!("one of {}", T::NAMES.join(", "))), Ok)
}

#[cfg(test)]
mod tests {
    use redline_engine::Algorithm;

    use super::*;

    #[test]
    fn ids_are_lists() {
        assert_eq!(ids("1,2, 3"), Ok(Ids(vec![1, 2, 3])));
        assert_eq!(ids("-1"), Ok(Ids(vec![-1])));
        assert_eq!(ids(""), Ok(Ids(vec![])));
        for text in ["1,,2", "1.5", "a", "--item", "99999999999999999999"] {
            assert!(ids(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_tier_and_format_has_a_spelling() {
        for tier in Tier::ALL {
            let parsed = isa(tier.name());
            match tier.available() {
                Ok(()) => assert_eq!(parsed, Ok(Isa(Some(*tier)))),
                Err(_) => assert!(parsed.unwrap_err().hint.contains("found here: scalar")),
            }
        }
        assert_eq!(isa("auto"), Ok(Isa(None)));
        assert_eq!(isa("sse9").unwrap_err().hint, "one of auto, scalar, avx2, avx512, amx");
        for &one in Format::ALL {
            assert_eq!(format(one.name()), Ok(one));
            assert!(format("f8").unwrap_err().hint.contains(one.name()));
        }
    }

    #[test]
    fn numbers_stay_in_range() {
        assert_eq!(threads("4"), Ok(4));
        assert_eq!(thread_counts("1,2"), Ok(ThreadCounts(vec![1, 2])));
        assert!(thread_counts("1,,2").is_err() && thread_counts("").is_err() && thread_counts("0").is_err());
        for text in ["0", "-1", "two", "", "1025"] {
            assert!(threads(text).is_err(), "{text}");
        }
        assert_eq!((bytes("8GiB"), bytes("0.5m"), bytes("4096")), (Ok(8 << 30), Ok(1 << 19), Ok(4096)));
        for text in ["0", "-1", "", "GiB", "1e3", "1.2.3M", "8 apples", "9999999999T", "nan"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        assert_eq!((on_off("on"), on_off("off")), (Ok(true), Ok(false)));
        assert!(on_off("maybe").is_err() && on_off("").is_err());
        let kept = ["on", "off", "8GiB"].map(prefix_cache);
        let sizes = [Some(PrefixCacheSize::Automatic), None, Some(PrefixCacheSize::Bytes(8 << 30))];
        assert_eq!(kept, sizes.map(|size| Ok(PrefixCache(size))));
        assert!(["maybe", "", "8 apples"].iter().all(|text| prefix_cache(text).is_err()));
        assert!(count("0").is_err());
        assert_eq!((factor("0"), factor("3.5")), (Ok(0.0), Ok(3.5)));
        assert!(factor("-1").is_err() && factor("inf").is_err() && factor("fast").is_err());
        assert_eq!(window("2"), Ok(2));
        for text in ["0", "1", "-2", "2.5", ""] {
            assert!(window(text).is_err(), "{text}");
        }
        assert_eq!((processes("1"), processes("8")), (Ok(1), Ok(8)));
        for text in ["0", "-2", "1002", "x"] {
            assert!(processes(text).is_err(), "{text}");
        }
        // The largest valid value of each, then one more.
        assert_eq!((threads("1024"), processes("1000")), (Ok(1024), Ok(1000)));
        assert!(threads("1025").is_err() && processes("1001").is_err());
        assert_eq!((percent("3"), percent("2.5 %"), percent("100%")), (Ok(0.03), Ok(0.025), Ok(1.0)));
        for text in ["0", "-1", "101", "NaN", "inf", "", "%", "x"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }

    /// Checks for each text whether it is accepted or rejected.
    #[track_caller]
    fn bounds<T: fmt::Debug>(parse: fn(&str) -> Result<T, BadValue>, taken: &[&str], refused: &[&str]) {
        for text in taken {
            assert!(parse(text).is_ok(), "{text}: {:?}", parse(text));
        }
        for text in refused.iter().chain(&["", "x", "NaN", "-1"]) {
            let error = parse(text).map(drop).expect_err(text);
            assert!(!error.fact.is_empty() && !error.hint.is_empty(), "{text}");
        }
    }

    #[test]
    fn ranges_hold_their_ends() {
        bounds(fraction, &["0", "1", "0.5"], &["1.0001", "-0.0001", "inf"]);
        bounds(tolerance, &["0", "1e-4", "7"], &["inf", "-1e-9"]);
        bounds(seconds, &["0.001", "1e6"], &["0", "inf"]);
        bounds(milliseconds, &["0", "0.5"], &["inf", "-0.1"]);
        bounds(percent, &["0.001", "100"], &["0", "100.1"]);
        bounds(window, &["2"], &["0", "1"]);
        bounds(count, &["1"], &["0"]);
        let most = |n: usize| [n.to_string(), (n + 1).to_string()];
        let [taken, refused] = most(MAX_DEVICES);
        bounds(devices, &["1", &taken], &["0", &refused]);
        let [taken, refused] = most(Buckets::MAX_TOKENS);
        bounds(chunk, &["1", &taken], &["0", &refused]);
        bounds(sizes, &["1", &format!("1, {taken}")], &["0", "1,", &refused]);
    }

    #[test]
    fn units_are_what_they_are_called() {
        assert_eq!((milliseconds("20"), seconds("2.5")), (Ok(0.02), Ok(2.5)));
        assert_eq!((fraction("0.25"), tolerance("1e-4"), percent("50%")), (Ok(0.25), Ok(1e-4), Ok(0.5)));
        for (unit, bytes_of_one) in [
            ("", 1),
            ("B", 1),
            ("k", 1 << 10),
            ("MiB", 1 << 20),
            ("g", 1 << 30),
            ("TiB", 1 << 40),
            ("PiB", 1 << 50),
        ] {
            assert_eq!(bytes(&format!("3{unit}")), Ok(3 * bytes_of_one), "{unit}");
            assert_eq!(bytes(&format!("1.5 {unit}")), Ok(3 * bytes_of_one / 2), "{unit}");
        }
        for (unit, bytes_of_one) in
            [("KB", 1000), ("kB", 1000), ("MB", 1_000_000), ("gb", 1_000_000_000), ("TB", 10u64.pow(12))]
        {
            assert_eq!(bytes(&format!("3{unit}")), Ok(3 * bytes_of_one), "{unit}");
            assert_eq!(bytes(&format!("1.5 {unit}")), Ok(3 * bytes_of_one / 2), "{unit}");
        }
        for unit in ["x", "ib", "i", "bb", "kk", "kbb", "kiib", "mg", "iB", "ki b", "é"] {
            assert!(bytes(&format!("3{unit}")).is_err(), "{unit}");
        }
        // What is printed is accepted.
        for size in [1, 1023, 1024, 1536, 32 << 20, 47 << 29, 3 << 50, 1 << 62] {
            let printed = redline_system::number::bytes(size);
            assert_eq!(bytes(&printed), Ok(size), "{printed}");
        }
        assert_eq!(bytes("8388607TiB"), Ok(8388607 << 40));
        assert!(bytes("8388608TiB").is_err(), "2^63 bytes");
        assert!(["0", "0.5", "0.9B", "0.0001k"].iter().all(|less| bytes(less).is_err()), "less than a byte");
        assert_eq!(sizes("64, 128"), Ok(Sizes(vec![64, 128])));
    }

    #[test]
    fn words_have_one_meaning() {
        assert_eq!((on_off("1"), on_off("0")), (Ok(true), Ok(false)));
        assert_eq!((plan_dir("off"), plan_dir("d")), (Ok(PlanDir(None)), Ok(PlanDir(Some("d".into())))));
        assert!(plan_dir("").is_err());
        assert!(device("auto").is_ok() && device("cpu").is_ok() && device("cuda").is_err());
        for (name, one) in LaneProfile::ALL {
            assert_eq!(profile(name), Ok(*one));
        }
        for &one in Algorithm::ALL {
            assert_eq!(named(one.name()), Ok(one));
            assert_eq!(named(&one.name().replace('-', "_")), Ok(one));
        }
        for &one in KvFormat::ALL {
            assert_eq!(kv_format(one.name()), Ok(one));
        }
    }
}
