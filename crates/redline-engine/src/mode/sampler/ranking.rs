//! Candidates ordered by (probability, then token id), sorted only as far as needed.
//!
//! A sum over all candidates is defined in that order, so computing it requires sorting all of them. Usually the sum is only
//! compared with a bound, and an interval that contains the sum decides the comparison. If it does not, all candidates are
//! sorted and the sum is computed as defined. The result is always the same as after sorting everything first.

/// Number of candidates sorted first; whenever they do not suffice, the number grows by [`GROWTH`].
const FIRST: usize = 64;
const GROWTH: usize = 8;

/// A weight and a token id in one integer. Ascending integers are descending weights and, among equal weights, ascending ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate(u64);

impl Candidate {
    /// `weight` is at least +0.
    fn new(id: u32, weight: f32) -> Self {
        Self(u64::from(!weight.to_bits()) << 32 | u64::from(id))
    }

    fn id(self) -> u32 {
        self.0 as u32
    }

    fn weight(self) -> f64 {
        f64::from(f32::from_bits(!((self.0 >> 32) as u32)))
    }
}

/// The remaining candidates.
#[derive(Debug, Default)]
pub(super) struct Ranking {
    candidates: Vec<Candidate>,
    /// Number of candidates at the front that are the highest ones, in order.
    sorted: usize,
}

impl Ranking {
    /// Begins with every id whose weight is above 0.
    pub(super) fn fill(&mut self, weights: &[f32]) {
        let candidates = (0..).zip(weights).filter(|(_, weight)| **weight > 0.0);
        self.candidates.clear();
        self.candidates.extend(candidates.map(|(id, weight)| Candidate::new(id, *weight)));
        self.sorted = 0;
    }

    /// Keeps the `count` highest candidates.
    pub(super) fn keep_highest(&mut self, count: usize) {
        if count < self.candidates.len() {
            if count > self.sorted {
                self.candidates.select_nth_unstable(count - 1);
            }
            self.truncate(count);
        }
    }

    /// Keeps the shortest run of the highest candidates whose sum is at least `share` of the total; at least one.
    pub(super) fn keep_share(&mut self, share: f64) {
        let count = self.reach(share, |sum, enough| sum >= enough);
        self.truncate(count);
    }

    /// Keeps candidates of at least `share` of the highest weight; `share` is at most 1.
    pub(super) fn keep_likely(&mut self, share: f64) {
        let Some(highest) = self.highest() else { return };
        let least = share * highest.weight();
        self.candidates.retain(|candidate| candidate.weight() >= least);
        self.sorted = self.sorted.min(self.candidates.len());
    }

    /// Orders candidates by the distance of `-ln p` from the entropy, equals in the order of candidates, and keeps the shortest
    /// run whose sum is at least `share` of the total, with every candidate at the distance of its last. At least one is kept.
    pub(super) fn keep_typical(&mut self, share: f64) {
        self.sort(self.candidates.len());
        let total = self.total();
        let weights = || self.candidates.iter().map(|candidate| candidate.weight());
        // With p = w / total, `-ln p` less the entropy is the mean of `ln w` less `ln w`.
        let mean = weights().map(|weight| weight * libm::log(weight)).sum::<f64>() / total;
        let distance = |weight: f64| (libm::log(weight) - mean).abs();
        let mut typical: Vec<(f64, f64)> = weights().map(|weight| (distance(weight), weight)).collect();
        typical.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut sum, mut most) = (0.0, 0.0);
        for (distance, weight) in typical {
            (sum, most) = (sum + weight, distance);
            if sum >= share * total {
                break;
            }
        }
        self.candidates.retain(|candidate| distance(candidate.weight()) <= most);
        self.sorted = self.candidates.len();
    }

    /// Returns the first candidate whose cumulative sum exceeds `u` times the total, or the last.
    pub(super) fn draw(&mut self, u: f64) -> Option<u32> {
        let count = self.reach(u, |sum, target| sum > target);
        self.candidates[..count].last().map(|candidate| candidate.id())
    }

    fn highest(&self) -> Option<Candidate> {
        if self.sorted > 0 { self.candidates.first().copied() } else { self.candidates.iter().min().copied() }
    }

    fn truncate(&mut self, count: usize) {
        self.candidates.truncate(count);
        self.sorted = self.sorted.min(count);
    }

    /// Returns how many of the highest candidates are needed for a cumulative sum of `share` of the total; all if they never
    /// reach it. `reached` compares a cumulative sum with a bound; if it holds for a bound, it holds for every lower one.
    fn reach(&mut self, share: f64, reached: fn(f64, f64) -> bool) -> usize {
        let [mut low, mut high] = self.total_within().map(|total| share * total);
        let mut sum = 0.0;
        for place in 0..self.candidates.len() {
            if place == self.sorted {
                self.sort((self.sorted * GROWTH).max(FIRST));
            }
            sum += self.candidates[place].weight();
            if reached(sum, low) && !reached(sum, high) {
                self.sort(self.candidates.len());
                low = share * self.total();
                high = low;
            }
            if reached(sum, high) {
                return place + 1;
            }
        }
        self.candidates.len()
    }

    /// Sorts the `count` highest candidates.
    fn sort(&mut self, count: usize) {
        let rest = &mut self.candidates[self.sorted..];
        let more = count.saturating_sub(self.sorted).min(rest.len());
        if more > 0 && more < rest.len() {
            rest.select_nth_unstable(more - 1);
        }
        rest[..more].sort_unstable();
        self.sorted += more;
    }

    /// The sum of all weights in order; they must be sorted.
    fn total(&self) -> f64 {
        self.candidates.iter().map(|candidate| candidate.weight()).sum()
    }

    /// An interval that contains the sum of all weights in order; a single point if all are sorted.
    fn total_within(&self) -> [f64; 2] {
        if self.sorted == self.candidates.len() {
            return [self.total(); 2];
        }
        let (parts, rest) = self.candidates.as_chunks::<8>();
        let mut sums = [0f64; 8];
        for part in parts {
            for (sum, candidate) in sums.iter_mut().zip(part) {
                *sum += candidate.weight();
            }
        }
        let sum = sums.iter().sum::<f64>() + rest.iter().map(|candidate| candidate.weight()).sum::<f64>();
        // Summing n positive numbers in any order has an error of less than n / 2^53 of the sum, up to second-order terms, so
        // two orders differ by less than twice that. A factor of four leaves room for those terms and for the roundings here.
        let slack = sum * (self.candidates.len() as f64) * (2.0 * f64::EPSILON);
        [sum - slack, sum + slack]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mode::random::uniform;

    fn ranking(weights: &[f32]) -> Ranking {
        let mut ranking = Ranking::default();
        ranking.fill(weights);
        ranking
    }

    fn ids(ranking: &Ranking) -> Vec<u32> {
        let mut candidates = ranking.candidates.clone();
        candidates.sort_unstable();
        candidates.into_iter().map(Candidate::id).collect()
    }

    /// The ids and weights of everything above 0, sorted.
    fn sorted(weights: &[f32]) -> Vec<(u32, f64)> {
        let all = (0..).zip(weights.iter().map(|w| f64::from(*w)));
        let mut all: Vec<(u32, f64)> = all.filter(|(_, weight)| *weight > 0.0).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all
    }

    fn weights(seed: u64, count: usize, steepness: f64) -> Vec<f32> {
        let weight = |i| libm::exp(-steepness * uniform(seed, i)) as f32;
        (0..count as u64).map(weight).collect()
    }

    #[test]
    fn candidates_are_ordered_by_weight_and_then_by_id() {
        assert_eq!(ids(&ranking(&[0.5, 1.0, 0.0, 0.5, 1e-45, 1.0])), [1, 5, 0, 3, 4]);
        assert_eq!(Candidate::new(7, 0.3).weight(), f64::from(0.3f32));
        let mut top = ranking(&[0.5, 1.0, 0.5, 0.5, 0.25]);
        top.keep_highest(3);
        assert_eq!(ids(&top), [1, 0, 2]);
        top.keep_highest(9);
        assert_eq!(ids(&top), [1, 0, 2]);
    }

    #[test]
    fn a_share_is_reached_by_what_equals_it() {
        let kept = |share| {
            let mut ranking = ranking(&[1.0; 4]);
            ranking.keep_share(share);
            ids(&ranking)
        };
        assert_eq!(kept(0.5), [0, 1]);
        assert_eq!(kept(0.500_001), [0, 1, 2]);
        assert_eq!(kept(0.499_999), [0, 1]);
        assert_eq!(kept(1e-300), [0]);
        assert_eq!(kept(1.0), [0, 1, 2, 3]);
    }

    #[test]
    fn what_equals_the_least_share_of_the_highest_is_kept() {
        let kept = |share| {
            let mut ranking = ranking(&[0.25, 1.0, 0.5, 1.0, 0.125]);
            ranking.keep_likely(share);
            ids(&ranking)
        };
        assert_eq!(kept(0.5), [1, 3, 2]);
        assert_eq!(kept(0.500_001), [1, 3]);
        assert_eq!(kept(1.0), [1, 3]);
    }

    #[test]
    fn typical_candidates_are_those_near_the_entropy() {
        let kept = |weights: &[f32], share| {
            let mut ranking = ranking(weights);
            ranking.keep_typical(share);
            assert_eq!(ranking.sorted, ranking.candidates.len());
            ids(&ranking)
        };
        // The entropy of 1/2, 1/4, 1/8, 1/8 is that of a token with the probability 2^-1.75: the second is nearest.
        let halves = [1.0, 0.5, 0.25, 0.25];
        assert_eq!(kept(&halves, 0.25), [1]);
        assert_eq!(kept(&halves, 0.250_001), [0, 1]);
        // The last two are equally far, so both are kept.
        assert_eq!(kept(&halves, 0.750_001), [0, 1, 2, 3]);
        assert_eq!(kept(&[1.0; 4], 1e-9), [0, 1, 2, 3]);
        assert_eq!(kept(&[0.0, 3.0], 0.5), [1]);
    }

    #[test]
    fn a_draw_takes_the_first_whose_sum_exceeds_the_target() {
        let drawn = |u| ranking(&[1.0, 1.0, 1.0, 1.0]).draw(u);
        assert_eq!([0.0, 0.249, 0.25, 0.5, 0.999].map(drawn), [0, 0, 1, 2, 3].map(Some));
        assert_eq!(drawn(1.0), Some(3), "the last where rounding leaves no other");
        assert_eq!(ranking(&[]).draw(0.5), None);
    }

    /// Bounds at and next to cumulative sums, which an interval cannot decide.
    #[test]
    fn bounds_that_only_the_sum_in_order_decides() {
        for (count, steepness) in
            [(3, 1.0), (70, 20.0), (1000, 3.0), (5000, 30.0), (5000, 80.0), (9000, 0.01)]
        {
            for seed in 0..4 {
                let weights = weights(seed, count, steepness);
                let all = sorted(&weights);
                let total: f64 = all.iter().map(|(_, weight)| weight).sum();
                let mut sum = 0.0;
                let sums: Vec<f64> = all
                    .iter()
                    .map(|(_, weight)| {
                        sum += weight;
                        sum
                    })
                    .collect();
                for at in [0, 1, count / 3, count / 2, count - 1] {
                    let share = sums[at] / total;
                    for share in [share.next_down(), share, share.next_up()] {
                        let bound = share * total;
                        let first = |reached: &dyn Fn(f64) -> bool| {
                            sums.iter().position(|sum| reached(*sum)).map_or(all.len(), |at| at + 1)
                        };
                        let reach = |reached| ranking(&weights).reach(share, reached);
                        let place = format!("{count} {steepness} {seed} {at} {share}");
                        assert_eq!(reach(|sum, bound| sum >= bound), first(&|sum| sum >= bound), "{place}");
                        assert_eq!(reach(|sum, bound| sum > bound), first(&|sum| sum > bound), "{place}");
                    }
                }
            }
        }
    }
}
