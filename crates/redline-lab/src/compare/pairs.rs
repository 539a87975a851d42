//! Pairs the rows of two runs.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::result::Row;

/// A row with its counterpart, if there is one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pair<'a> {
    /// In both runs.
    Both(&'a Row, &'a Row),
    /// Only in the base.
    Base(&'a Row),
    /// Only in the new run.
    New(&'a Row),
}

impl Pair<'_> {
    pub(super) fn name(&self) -> String {
        let name = |row: &Row| match &row.arm {
            Some(arm) => format!("{} [{arm}]", row.case),
            None => row.case.clone(),
        };
        match self {
            Self::Both(base, new) if base.case != new.case => format!("{} -> {}", name(base), name(new)),
            Self::Both(row, _) | Self::Base(row) | Self::New(row) => name(row),
        }
    }
}

/// Pairs rows by case and arm; if a name occurs several times, the k-th with the k-th. Base rows come first, then rows that
/// only `new` has. Flags of `arms` change names: if a name of the base is not in the new run, rows are paired by their other
/// parameters, leaving out those that the arms set differently: the k-th with the k-th, or if one run has more rows than the other,
/// rows of the same name first. Without such parameters they are paired by place.
pub(super) fn pairs<'a>(base: &'a [Row], new: &'a [Row], arms: bool) -> Vec<Pair<'a>> {
    let name = |row: &Row| (row.case.clone(), row.arm.clone());
    let (by_name, names) = (numbered(base, name), numbered(new, name));
    let same = by_name.iter().all(|(key, _)| names.iter().any(|(other, _)| other == key));
    if !arms || same {
        return joined(&by_name, &names);
    }
    let differing = differing_params(base, new);
    if !differing.is_empty() {
        let kind = |row: &Row| other_params(row, &differing);
        let counts = [base, new].map(|rows| counted(rows, kind));
        let names = [base, new].map(|rows| rows.iter().map(name).collect::<BTreeSet<_>>());
        let key = |row: &Row| {
            let (kind, name) = (kind(row), name(row));
            let uneven = counts[0].get(&kind) != counts[1].get(&kind);
            let in_both = names.iter().all(|names| names.contains(&name));
            (kind, (uneven && in_both).then_some(name))
        };
        return joined(&numbered(base, key), &numbered(new, key));
    }
    if base.len() == new.len() {
        return base.iter().zip(new).map(|(b, n)| Pair::Both(b, n)).collect();
    }
    joined(&by_name, &names)
}

/// A key, and the number of earlier rows with the same key.
type Numbered<K> = (K, usize);

fn numbered<K: Ord + Clone>(rows: &[Row], key: impl Fn(&Row) -> K) -> Vec<(Numbered<K>, &Row)> {
    let mut seen: BTreeMap<K, usize> = BTreeMap::new();
    let numbered = |row| {
        let key = key(row);
        let count = seen.entry(key.clone()).or_default();
        *count += 1;
        ((key, *count - 1), row)
    };
    rows.iter().map(numbered).collect()
}

/// The number of rows with each key.
fn counted<K: Ord>(rows: &[Row], key: impl Fn(&Row) -> K) -> BTreeMap<K, usize> {
    let mut counts = BTreeMap::new();
    for row in rows {
        *counts.entry(key(row)).or_default() += 1;
    }
    counts
}

fn joined<'a, K: Ord>(base: &[(K, &'a Row)], new: &[(K, &'a Row)]) -> Vec<Pair<'a>> {
    let in_base: BTreeMap<&K, &Row> = base.iter().map(|(key, row)| (key, *row)).collect();
    let in_new: BTreeMap<&K, &'a Row> = new.iter().map(|(key, row)| (key, *row)).collect();
    let of_base = base.iter().map(|(key, b)| in_new.get(key).map_or(Pair::Base(b), |n| Pair::Both(b, n)));
    let of_new = new.iter().filter(|(key, _)| !in_base.contains_key(key)).map(|(_, n)| Pair::New(n));
    of_base.chain(of_new).collect()
}

/// The parameters whose sets of values differ between two runs, and whether both runs have the parameter.
fn differing_params(base: &[Row], new: &[Row]) -> BTreeMap<String, bool> {
    let values = |rows: &[Row]| {
        let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (name, value) in rows.iter().flat_map(|row| row.params.iter()) {
            values.entry(name.to_owned()).or_default().insert(value.to_string());
        }
        values
    };
    let (base, new) = (values(base), values(new));
    let differing = base.keys().chain(new.keys()).filter(|name| base.get(*name) != new.get(*name));
    differing.map(|name| (name.clone(), base.contains_key(name) && new.contains_key(name))).collect()
}

/// The parameters of a row: names of all that both runs have, and values of those that do not differ.
fn other_params(row: &Row, differing: &BTreeMap<String, bool>) -> BTreeMap<String, Option<String>> {
    let value = |name: &str, value: &Value| (!differing.contains_key(name)).then(|| value.to_string());
    let of_both = row.params.iter().filter(|(name, _)| differing.get(*name) != Some(&false));
    of_both.map(|(name, one)| (name.to_owned(), value(name, one))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(names: &[&str]) -> Vec<Row> {
        names.iter().map(|name| Row::new(*name)).collect()
    }

    fn names(base: &[&str], new: &[&str], arms: bool) -> Vec<String> {
        shown(&rows(base), &rows(new), arms)
    }

    fn shown(base: &[Row], new: &[Row], arms: bool) -> Vec<String> {
        let kind = |pair: &Pair<'_>| match pair {
            Pair::Both(..) => "both",
            Pair::Base(_) => "base",
            Pair::New(_) => "new",
        };
        pairs(base, new, arms).iter().map(|pair| format!("{} {}", pair.name(), kind(pair))).collect()
    }

    #[test]
    fn names_pair_whatever_their_order() {
        for arms in [false, true] {
            assert_eq!(names(&["a", "b"], &["b", "a"], arms), ["a both", "b both"]);
        }
        assert_eq!(names(&["a", "b"], &["b", "c"], false), ["a base", "b both", "c new"]);
        assert_eq!(names(&["a", "a"], &["a"], true), ["a both", "a base"]);
        assert_eq!(names(&[], &["a"], false), ["a new"]);
    }

    #[test]
    fn places_pair_arms_whose_names_differ() {
        assert_eq!(
            names(&["w8/t1", "w8/t2"], &["w4/t1", "w4/t2"], true),
            ["w8/t1 -> w4/t1 both", "w8/t2 -> w4/t2 both"]
        );
        assert_eq!(names(&["a/t1"], &["a/t1", "a/t2"], true), ["a/t1 both", "a/t2 new"]);
        assert_eq!(names(&["w8"], &["w4"], false), ["w8 base", "w4 new"]);
    }

    #[test]
    fn arms_pair_by_the_parameters_that_they_do_not_change() {
        let row = |case: &str, cache: Option<bool>, threads: usize| {
            let row = Row::new(case).param("threads", threads);
            cache.map_or(row.clone(), |cache| row.param("kv_cache", cache))
        };
        let off = [row("prefill/t1", None, 1), row("decode-recompute/t1", Some(false), 1)];
        let on = [row("decode/t1", Some(true), 1), row("prefill/t1", None, 1)];
        let paired = ["prefill/t1 both", "decode-recompute/t1 -> decode/t1 both"];
        assert_eq!(shown(&off, &on, true), paired);
        // A row whose counterpart the arm does not measure stays alone.
        assert_eq!(shown(&off, &on[..1], true), ["prefill/t1 base", "decode-recompute/t1 -> decode/t1 both"]);
        assert_eq!(shown(&off, &on, false)[1..], ["decode-recompute/t1 base", "decode/t1 new"]);
        // Several values of the changed parameter pair in order, whatever else differs between rows.
        let of = |counts: [usize; 2]| {
            let each =
                counts.map(|n| [row(&format!("a/t{n}"), Some(true), n), row(&format!("b/t{n}"), None, n)]);
            each.concat()
        };
        let expected = ["a/t1 -> a/t2", "b/t1 -> b/t2", "a/t2 -> a/t4", "b/t2 -> b/t4"];
        assert_eq!(shown(&of([1, 2]), &of([2, 4]), true), expected.map(|pair| format!("{pair} both")));
        // If a row is missing, no row is paired with another one than that of its name, unless its name is missing too.
        let arm =
            |counts: &[usize]| counts.iter().map(|&n| row(&format!("a/t{n}"), None, n)).collect::<Vec<_>>();
        let expected = ["a/t1 base", "a/t2 both", "a/t4 both"];
        assert_eq!(shown(&arm(&[1, 2, 4]), &arm(&[2, 4]), true), expected);
        let expected = ["a/t1 -> a/t8 both", "a/t4 both", "a/t2 new"];
        assert_eq!(shown(&arm(&[1, 4]), &arm(&[8, 2, 4]), true), expected);
        // A parameter that only one arm has, such as a prompt, does not part all of its rows from the other's.
        let prompted = [row("decode/t2", Some(true), 2).param("prompt", "x"), row("prefill/t2", None, 2)];
        let expected = ["decode/t1 -> decode/t2 both", "prefill/t1 -> prefill/t2 both"];
        let plain = [row("decode/t1", Some(true), 1), row("prefill/t1", None, 1)];
        assert_eq!(shown(&plain, &prompted, true), expected);
    }

    #[test]
    fn arms_are_kept_apart() {
        let mut base = rows(&["a", "a"]);
        (base[0].arm, base[1].arm) = (Some("a".into()), Some("b".into()));
        let pairs = pairs(&base, &base, false);
        assert_eq!(pairs.iter().map(Pair::name).collect::<Vec<_>>(), ["a [a]", "a [b]"]);
        assert_eq!(pairs[1], Pair::Both(&base[1], &base[1]));
    }
}
