//! Upper bounds for prefix cache use: tokens that requests with the same salt and the same adapters may have stored.

/// Tokens that a request may store for others.
#[derive(Clone, Debug)]
pub(in crate::simulator) struct Stored {
    /// Contents and scales of its adapters, in their order.
    pub(in crate::simulator) adapters: Vec<(u64, f32)>,
    pub(in crate::simulator) salt: String,
    pub(in crate::simulator) sequences: Vec<Vec<u32>>,
    /// Number of unknown tokens that may follow each of them.
    pub(in crate::simulator) more: usize,
}

fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Stored {
    /// How many leading tokens of `tokens` it may have stored.
    fn shares(&self, with: &Self, tokens: &[u32]) -> usize {
        if self.salt != with.salt || self.adapters != with.adapters {
            return 0;
        }
        let of = |own: &Vec<u32>| {
            let shared = common(own, tokens);
            if shared == own.len() { (shared + self.more).min(tokens.len()) } else { shared }
        };
        self.sequences.iter().map(of).max().unwrap_or(0)
    }
}

/// For each prompt, the most tokens that the request `own` can have taken from `others`. The last token of a prompt is always run.
pub(in crate::simulator) fn most<'a>(
    own: &Stored,
    prompts: &[Vec<u32>],
    others: impl Iterator<Item = &'a Stored> + Clone,
) -> Vec<usize> {
    let most = |prompt: &Vec<u32>| {
        let tokens = &prompt[..prompt.len() - 1];
        others.clone().map(|other| other.shares(own, tokens)).max().unwrap_or(0)
    };
    prompts.iter().map(most).collect()
}

/// The fewest tokens that must be run for prompts, given how many each may have taken from others. Tokens that prompts of the
/// request share may be run once.
pub(in crate::simulator) fn fewest_computed(prompts: &[Vec<u32>], from_others: &[usize]) -> usize {
    let own = |(i, prompt): (usize, &Vec<u32>)| {
        let before = prompts[..i].iter().map(|other| common(other, prompt)).max().unwrap_or(0);
        prompt.len() - before.max(from_others[i]).min(prompt.len() - 1)
    };
    prompts.iter().enumerate().map(own).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_hand() {
        let stored = |salt: &str, tokens: &[u32], more| Stored {
            adapters: vec![(3, 1.0)],
            salt: salt.into(),
            sequences: vec![tokens.to_vec()],
            more,
        };
        let others = [stored("", &[1, 2, 3], 0), stored("", &[1, 2], 2), stored("b", &[1, 2, 3, 4, 5], 0)];
        let prompts = [vec![1, 2, 3, 4, 5, 6], vec![1, 2, 9], vec![7]];
        let own = stored("", &[], 0);
        let most = most(&own, &prompts, others.iter());
        assert_eq!(most, [4, 2, 0]);
        let scaled = Stored { adapters: vec![(3, 0.5)], ..own };
        assert_eq!(super::most(&scaled, &prompts, others.iter()), [0, 0, 0]);
        assert_eq!(fewest_computed(&prompts, &most), 2 + 1 + 1);
        assert_eq!(fewest_computed(&prompts, &[0, 0, 0]), 6 + 1 + 1);
    }
}
