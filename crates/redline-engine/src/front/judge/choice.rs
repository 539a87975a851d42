//! The choice among classes.

/// The index of the largest probability, the first among equals, if it reaches the threshold; and its margin over the second.
pub(super) fn chosen(probabilities: &[f32], threshold: f32) -> (Option<usize>, f32) {
    let (best, margin) = best(probabilities);
    (probabilities.get(best).is_some_and(|&share| share >= threshold).then_some(best), margin)
}

/// The index of the largest probability, the first among equals, and its margin over the second.
fn best(probabilities: &[f32]) -> (usize, f32) {
    let largest = |except: Option<usize>| {
        let others = probabilities.iter().copied().enumerate().filter(|(place, _)| Some(*place) != except);
        others.reduce(|best, other| if other.1 > best.1 { other } else { best })
    };
    let Some((place, first)) = largest(None) else { return (0, 0.0) };
    let second = largest(Some(place)).map_or(0.0, |(_, second)| second);
    (place, first - second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equals_is_the_best() {
        assert_eq!(best(&[0.25, 0.5, 0.25]), (1, 0.25));
        assert_eq!(best(&[0.125, 0.4375, 0.4375]), (1, 0.0));
        assert_eq!(best(&[0.5, 0.125, 0.375]), (0, 0.125));
        assert_eq!(best(&[0.25, 0.75]), (1, 0.5));
    }

    #[test]
    fn a_choice_reaches_the_threshold() {
        assert_eq!(chosen(&[0.25, 0.75], 0.75), (Some(1), 0.5));
        assert_eq!(chosen(&[0.25, 0.75], 0.76), (None, 0.5));
        assert_eq!(chosen(&[], 0.0), (None, 0.0));
    }
}
