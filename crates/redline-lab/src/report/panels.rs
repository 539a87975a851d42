//! Small charts of many cases: a group per lane and machine, with a table of all of its charts.

use super::page::{Figure, Fold, Group, Table};
use super::subject::{Measured, Subjects, gather};

/// Draws at most `most` charts, each of metrics that belong together. The note says how many of the `nouns` are not drawn.
pub(super) fn panels<'a>(
    subjects: &Subjects<'_>,
    charts: &[Vec<Measured<'a>>],
    (most, nouns): (usize, &str),
    figure: impl Fn(&[Measured<'a>]) -> Figure,
    table: impl Fn(&[&Vec<Measured<'a>>]) -> Table,
) -> (Vec<Group>, Option<String>) {
    let place = |chart: &[Measured<'a>]| chart[0].entry.subject.place();
    let places = gather(charts.iter(), |group, chart| place(group[0]) == place(chart));
    let wanted: Vec<usize> = places.iter().map(Vec::len).collect();
    let allotted = allot(&wanted, most);
    let mut groups: Vec<Group> = Vec::new();
    for (charts, &drawn) in places.iter().zip(&allotted) {
        groups.push(Group {
            title: subjects.place(place(charts[0])),
            folded: Fold::after(&groups),
            grid: true,
            figures: charts.iter().take(drawn).map(|chart| figure(chart)).collect(),
            tables: vec![table(charts)],
        });
    }
    let left_out = charts.len() - allotted.iter().sum::<usize>();
    (groups, omitted(left_out, charts.len(), nouns, "the tables hold all of them."))
}

/// The note that some figures are not drawn.
pub(super) fn omitted(left_out: usize, all: usize, nouns: &str, where_else: &str) -> Option<String> {
    (left_out > 0).then(|| format!("{left_out} of {all} {nouns} are not drawn; {where_else}"))
}

/// Distributes `total` places among groups that want `wanted` each, in turns, so that places which a group does not need go to
/// others. Each group gets at least one.
fn allot(wanted: &[usize], total: usize) -> Vec<usize> {
    let mut given: Vec<usize> = wanted.iter().map(|&n| n.min(1)).collect();
    let mut left = total.saturating_sub(given.iter().sum());
    while left > 0 && given != wanted {
        for (given, &wanted) in given.iter_mut().zip(wanted) {
            if *given < wanted && left > 0 {
                *given += 1;
                left -= 1;
            }
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_shared_out_in_turns() {
        assert_eq!(allot(&[10, 1, 4], 9), [4, 1, 4]);
        assert_eq!(allot(&[2, 0, 3], 100), [2, 0, 3]);
        assert_eq!(allot(&[5, 5], 1), [1, 1]);
        assert!(allot(&[], 3).is_empty());
    }
}
