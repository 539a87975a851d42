//! Pairs the rows of two runs.

use std::collections::BTreeMap;

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
/// only `new` has. With `by_place`, rows are paired in order if the runs have different names but equally many rows.
pub(super) fn pairs<'a>(base: &'a [Row], new: &'a [Row], by_place: bool) -> Vec<Pair<'a>> {
    let (base_rows, new_rows) = (keyed(base), keyed(new));
    let in_base: BTreeMap<Key<'_>, &Row> = base_rows.iter().copied().collect();
    let in_new: BTreeMap<Key<'_>, &Row> = new_rows.iter().copied().collect();
    let same = in_base.keys().all(|key| in_new.contains_key(key));
    if by_place && base.len() == new.len() && !same {
        return base.iter().zip(new).map(|(b, n)| Pair::Both(b, n)).collect();
    }
    let of_base =
        base_rows.iter().map(|&(key, b)| in_new.get(&key).map_or(Pair::Base(b), |n| Pair::Both(b, n)));
    let of_new = new_rows.iter().filter(|(key, _)| !in_base.contains_key(key)).map(|&(_, n)| Pair::New(n));
    of_base.chain(of_new).collect()
}

/// Case, arm, and the number of earlier rows with the same case and arm.
type Key<'a> = (&'a str, Option<&'a str>, usize);

fn keyed<'a>(rows: &'a [Row]) -> Vec<(Key<'a>, &'a Row)> {
    let mut seen: BTreeMap<(&str, Option<&str>), usize> = BTreeMap::new();
    let keyed = |row: &'a Row| {
        let (case, arm) = (row.case.as_str(), row.arm.as_deref());
        let count = seen.entry((case, arm)).or_default();
        *count += 1;
        ((case, arm, *count - 1), row)
    };
    rows.iter().map(keyed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(names: &[&str]) -> Vec<Row> {
        names.iter().map(|name| Row::new(*name)).collect()
    }

    fn names(base: &[&str], new: &[&str], by_place: bool) -> Vec<String> {
        let (base, new) = (rows(base), rows(new));
        let kind = |pair: &Pair<'_>| match pair {
            Pair::Both(..) => "both",
            Pair::Base(_) => "base",
            Pair::New(_) => "new",
        };
        pairs(&base, &new, by_place).iter().map(|pair| format!("{} {}", pair.name(), kind(pair))).collect()
    }

    #[test]
    fn names_pair_whatever_their_order() {
        for by_place in [false, true] {
            assert_eq!(names(&["a", "b"], &["b", "a"], by_place), ["a both", "b both"]);
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
    fn arms_are_kept_apart() {
        let mut base = rows(&["a", "a"]);
        (base[0].arm, base[1].arm) = (Some("a".into()), Some("b".into()));
        let pairs = pairs(&base, &base, false);
        assert_eq!(pairs.iter().map(Pair::name).collect::<Vec<_>>(), ["a [a]", "a [b]"]);
        assert_eq!(pairs[1], Pair::Both(&base[1], &base[1]));
    }
}
