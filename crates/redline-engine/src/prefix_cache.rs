//! Which token sequences were computed before, found by the longest prefix they share with a new one.
//!
//! There is a radix tree over token ids for every namespace. Each leaf keeps one sequence, and inner nodes are where sequences
//! diverge; so no kept sequence is a prefix of another. Matching is per token: a match may end inside an edge. The caller owns
//! the kept sequences, and shares and counts their pages; the tree only decides which one to evict.
//!
//! The share of a namespace is the number of kept tokens divided by the number of namespaces that keep any. The next sequence
//! to be evicted is the least recently used one of the namespaces above their share, or of all namespaces if none is above. So
//! a namespace that floods the cache evicts its own sequences, never those of a namespace within its share. Shares are equal: a
//! client that may choose many namespaces has many shares. Finding the next sequence takes time proportional to the number of
//! namespaces.

use std::collections::BTreeMap;

/// The kept sequences of all namespaces. `T` identifies a kept sequence.
#[derive(Debug)]
pub(crate) struct PrefixCache<T> {
    nodes: Vec<Node<T>>,
    /// Free places in `nodes`.
    free: Vec<usize>,
    spaces: BTreeMap<String, Space>,
    /// Number of tokens kept by all namespaces.
    tokens: usize,
    uses: u64,
}

/// The sequences of a namespace.
#[derive(Debug)]
struct Space {
    root: usize,
    /// Number of tokens on all edges; shared tokens count once.
    tokens: usize,
    /// Leaves by time of last use.
    by_use: BTreeMap<u64, usize>,
}

#[derive(Debug)]
struct Node<T> {
    /// Tokens between the parent and this node; empty for roots only.
    edge: Vec<u32>,
    /// `None` for roots.
    parent: Option<usize>,
    /// Children by the first token of their edges.
    children: BTreeMap<u32, usize>,
    leaf: Option<Leaf<T>>,
}

#[derive(Clone, Copy, Debug)]
struct Leaf<T> {
    kept: T,
    used: u64,
}

/// The end of a walk along some tokens.
struct Walk {
    /// The last node whose whole edge matched.
    node: usize,
    /// The child whose edge matched in part, and the number of matching tokens.
    inside: Option<(usize, usize)>,
    /// Total number of matching tokens.
    tokens: usize,
}

impl<T> Node<T> {
    fn empty() -> Self {
        Self { edge: Vec::new(), parent: None, children: BTreeMap::new(), leaf: None }
    }
}

impl<T: Copy> PrefixCache<T> {
    pub(crate) fn new() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), spaces: BTreeMap::new(), tokens: 0, uses: 0 }
    }

    /// Finds a kept sequence that shares the longest prefix with `tokens`, and the length of that prefix, at least 1. Marks it
    /// as used.
    pub(crate) fn find(&mut self, namespace: &str, tokens: &[u32]) -> Option<(T, usize)> {
        let walk = self.walk(self.spaces.get(namespace)?.root, tokens);
        if walk.tokens == 0 {
            return None;
        }
        let mut node = walk.inside.map_or(walk.node, |(child, _)| child);
        while let Some(&child) = self.nodes[node].children.values().next() {
            node = child;
        }
        self.uses += 1;
        let now = self.uses;
        let leaf = self.nodes[node].leaf.as_mut()?;
        let by_use = &mut self.spaces.get_mut(namespace)?.by_use;
        by_use.remove(&leaf.used);
        by_use.insert(now, node);
        leaf.used = now;
        Some((leaf.kept, walk.tokens))
    }

    /// Number of kept sequences.
    pub(crate) fn len(&self) -> usize {
        self.spaces.values().map(|space| space.by_use.len()).sum()
    }

    /// Number of tokens that [`PrefixCache::find`] would match; marks nothing as used.
    pub(crate) fn matching(&self, namespace: &str, tokens: &[u32]) -> usize {
        self.spaces.get(namespace).map_or(0, |space| self.walk(space.root, tokens).tokens)
    }

    /// Keeps a sequence of these tokens. Returns a sequence that is no longer needed: `kept` itself if a kept sequence begins
    /// with these tokens, or the sequence that these tokens continue.
    pub(crate) fn insert(&mut self, namespace: &str, tokens: &[u32], kept: T) -> Option<T> {
        if tokens.is_empty() {
            return Some(kept);
        }
        let root = match self.spaces.get(namespace) {
            Some(space) => space.root,
            None => {
                let root = self.add(Vec::new(), None);
                let space = Space { root, tokens: 0, by_use: BTreeMap::new() };
                self.spaces.insert(namespace.to_owned(), space);
                root
            }
        };
        let walk = self.walk(root, tokens);
        let rest = &tokens[walk.tokens..];
        if rest.is_empty() {
            return Some(kept);
        }
        let space = self.spaces.get_mut(namespace)?;
        space.tokens += rest.len();
        self.tokens += rest.len();
        if walk.inside.is_none()
            && let Some(leaf) = &mut self.nodes[walk.node].leaf
        {
            let replaced = std::mem::replace(&mut leaf.kept, kept);
            self.nodes[walk.node].edge.extend_from_slice(rest);
            return Some(replaced);
        }
        let parent = match walk.inside {
            Some((child, matched)) => self.split(child, matched),
            None => walk.node,
        };
        let node = self.add(rest.to_vec(), Some(parent));
        self.nodes[parent].children.insert(rest[0], node);
        self.uses += 1;
        self.nodes[node].leaf = Some(Leaf { kept, used: self.uses });
        self.spaces.get_mut(namespace)?.by_use.insert(self.uses, node);
        None
    }

    /// Evicts the next sequence in the order that the module describes.
    pub(crate) fn evict(&mut self) -> Option<T> {
        let namespace = self.next_to_evict()?.to_owned();
        let space = self.spaces.get_mut(&namespace)?;
        let (_, node) = space.by_use.pop_first()?;
        space.tokens -= self.nodes[node].edge.len();
        self.tokens -= self.nodes[node].edge.len();
        if space.by_use.is_empty() {
            self.spaces.remove(&namespace);
        }
        let kept = self.nodes[node].leaf.take()?.kept;
        self.remove(node);
        Some(kept)
    }

    /// The namespace that loses its least recently used sequence.
    fn next_to_evict(&self) -> Option<&str> {
        let order = |space: &Space| {
            let is_above = space.tokens * self.spaces.len() > self.tokens;
            // Namespaces above their share first, then by least recently used sequence.
            (!is_above, space.by_use.keys().next().copied())
        };
        let (name, _) = self.spaces.iter().min_by_key(|(_, space)| order(space))?;
        Some(name)
    }

    fn walk(&self, root: usize, tokens: &[u32]) -> Walk {
        let mut walk = Walk { node: root, inside: None, tokens: 0 };
        while let Some(&child) =
            tokens.get(walk.tokens).and_then(|next| self.nodes[walk.node].children.get(next))
        {
            let edge = &self.nodes[child].edge;
            let same = edge.iter().zip(&tokens[walk.tokens..]).take_while(|(a, b)| a == b).count();
            walk.tokens += same;
            if same < edge.len() {
                walk.inside = Some((child, same));
                return walk;
            }
            walk.node = child;
        }
        walk
    }

    fn add(&mut self, edge: Vec<u32>, parent: Option<usize>) -> usize {
        let node = Node { edge, parent, ..Node::empty() };
        match self.free.pop() {
            Some(place) => {
                self.nodes[place] = node;
                place
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        }
    }

    /// Puts a node between `child` and its parent, after `tokens` tokens of the child's edge.
    fn split(&mut self, child: usize, tokens: usize) -> usize {
        let rest = self.nodes[child].edge.split_off(tokens);
        let edge = std::mem::replace(&mut self.nodes[child].edge, rest);
        let (first, next) = (edge[0], self.nodes[child].edge[0]);
        let parent = self.nodes[child].parent;
        let node = self.add(edge, parent);
        if let Some(parent) = parent {
            self.nodes[parent].children.insert(first, node);
        }
        self.nodes[child].parent = Some(node);
        self.nodes[node].children.insert(next, child);
        node
    }

    /// Removes a node without children. Then a parent with a single child is merged with it, and a root without children is
    /// removed.
    fn remove(&mut self, node: usize) {
        let Some(parent) = self.nodes[node].parent else { return };
        let first = self.nodes[node].edge[0];
        self.nodes[parent].children.remove(&first);
        self.discard(node);
        let Some(above) = self.nodes[parent].parent else {
            if self.nodes[parent].children.is_empty() {
                self.discard(parent);
            }
            return;
        };
        let children = &self.nodes[parent].children;
        if children.len() == 1
            && let Some(&child) = children.values().next()
        {
            let mut edge = std::mem::take(&mut self.nodes[parent].edge);
            self.nodes[above].children.insert(edge[0], child);
            edge.append(&mut self.nodes[child].edge);
            self.nodes[child].edge = edge;
            self.nodes[child].parent = Some(above);
            self.discard(parent);
        }
    }

    fn discard(&mut self, node: usize) {
        self.nodes[node] = Node::empty();
        self.free.push(node);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_match_may_end_anywhere() {
        let mut cache = PrefixCache::new();
        assert_eq!(cache.find("", &[1, 2]), None);
        assert_eq!(cache.insert("", &[1, 2, 3, 4], 'a'), None);
        assert_eq!(cache.find("", &[1, 2, 9]), Some(('a', 2)));
        assert_eq!(cache.find("", &[1, 2, 3, 4, 5]), Some(('a', 4)));
        assert_eq!(cache.find("", &[2]), None);
        assert_eq!(cache.insert("", &[1, 2, 7], 'b'), None);
        assert_eq!(cache.find("", &[1, 2, 7, 8]), Some(('b', 3)));
        assert_eq!(cache.find("", &[1, 2, 3]), Some(('a', 3)));
        assert_eq!(cache.matching("", &[1, 2, 8]), 2);
    }

    #[test]
    fn namespaces_do_not_share() {
        let mut cache = PrefixCache::new();
        cache.insert("tenant", &[1, 2], 'a');
        assert_eq!(cache.find("", &[1, 2]), None);
        assert_eq!(cache.find("tenant", &[1, 2]), Some(('a', 2)));
        assert_eq!(cache.evict(), Some('a'));
        assert!(cache.spaces.is_empty());
    }

    #[test]
    fn what_another_covers_is_handed_back() {
        let mut cache = PrefixCache::new();
        assert_eq!(cache.insert("", &[], 'x'), Some('x'));
        cache.insert("", &[1, 2], 'a');
        assert_eq!(cache.insert("", &[1, 2, 3], 'b'), Some('a'), "the longer one replaces the shorter");
        assert_eq!(cache.insert("", &[1], 'c'), Some('c'), "a shorter one adds nothing");
        assert_eq!(cache.insert("", &[1, 2, 3], 'd'), Some('d'));
        assert_eq!(cache.find("", &[1, 2, 3, 4]), Some(('b', 3)));
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut cache = PrefixCache::new();
        cache.insert("", &[1, 1], 'a');
        cache.insert("", &[1, 2], 'b');
        cache.insert("", &[3], 'c');
        cache.find("", &[1, 1]);
        assert_eq!(
            [cache.evict(), cache.evict(), cache.evict(), cache.evict()],
            [Some('b'), Some('c'), Some('a'), None]
        );
    }

    #[test]
    fn a_namespace_that_floods_evicts_its_own_sequences() {
        let mut cache = PrefixCache::new();
        cache.insert("quiet", &[1, 2, 3, 4], 1000);
        for id in 0..100 {
            cache.insert("flood", &[id, id + 1, id + 2], id);
        }
        // Ten tokens in all make shares of five: down to that size, the quiet namespace is within its share.
        for id in 0..98 {
            assert_eq!(cache.evict(), Some(id), "the least recently used of the flood");
        }
        assert_eq!(cache.find("quiet", &[1, 2, 3, 4]), Some((1000, 4)));
        assert_eq!(
            [cache.evict(), cache.evict(), cache.evict(), cache.evict()],
            [Some(98), Some(1000), Some(99), None]
        );
    }

    #[test]
    fn tokens_that_sequences_share_count_once() {
        let mut cache = PrefixCache::new();
        cache.insert("shared", &[1, 2, 3, 4, 5, 6, 7], 'a');
        cache.insert("shared", &[1, 2, 3, 4, 5, 6, 8], 'b');
        cache.insert("apart", &[1, 2, 3, 4, 5], 'c');
        cache.insert("apart", &[2, 2, 3, 4, 5], 'd');
        // Eight tokens against ten, though the sequences are of fourteen and ten.
        assert_eq!(cache.evict(), Some('c'));
        assert_eq!(cache.evict(), Some('a'));
    }

    /// Reference implementation of the cache without a tree.
    #[derive(Default)]
    struct Model {
        kept: Vec<(usize, usize, Vec<u32>, u64)>,
        uses: u64,
    }

    fn common(a: &[u32], b: &[u32]) -> usize {
        a.iter().zip(b).take_while(|(a, b)| a == b).count()
    }

    impl Model {
        fn longest(&self, space: usize, tokens: &[u32]) -> usize {
            let all = self.kept.iter().filter(|k| k.1 == space);
            all.map(|k| common(&k.2, tokens)).max().unwrap_or(0)
        }

        fn find(&mut self, space: usize, tokens: &[u32], found: Option<(usize, usize)>) {
            assert_eq!(found.map_or(0, |f| f.1), self.longest(space, tokens));
            if let Some((id, matched)) = found {
                self.uses += 1;
                let entry = self.kept.iter_mut().find(|k| k.0 == id).expect("a sequence that is kept");
                assert!(entry.1 == space && common(&entry.2, tokens) == matched);
                entry.3 = self.uses;
            }
        }

        fn insert(&mut self, id: usize, space: usize, tokens: &[u32], back: Option<usize>) {
            if tokens.is_empty() || self.longest(space, tokens) == tokens.len() {
                return assert_eq!(back, Some(id));
            }
            let shorter = self.kept.iter_mut().find(|k| k.1 == space && tokens.starts_with(&k.2));
            if let Some(shorter) = shorter {
                assert_eq!(back, Some(shorter.0));
                return *shorter = (id, space, tokens.to_vec(), shorter.3);
            }
            assert_eq!(back, None);
            self.uses += 1;
            self.kept.push((id, space, tokens.to_vec(), self.uses));
        }

        /// Number of tokens that a namespace keeps: the distinct prefixes of its sequences.
        fn tokens(&self, space: usize) -> usize {
            let of = self.kept.iter().filter(|k| k.1 == space);
            let prefixes: BTreeSet<_> = of.flat_map(|k| (1..=k.2.len()).map(|n| &k.2[..n])).collect();
            prefixes.len()
        }

        fn evict(&mut self, gone: Option<usize>) {
            let spaces: BTreeSet<usize> = self.kept.iter().map(|k| k.1).collect();
            let all: usize = spaces.iter().map(|&space| self.tokens(space)).sum();
            let above = |space: usize| self.tokens(space) * spaces.len() > all;
            let any = spaces.iter().any(|&space| above(space));
            let candidates = (0..self.kept.len()).filter(|&i| !any || above(self.kept[i].1));
            let oldest = candidates.min_by_key(|&i| self.kept[i].3);
            assert_eq!(gone, oldest.map(|i| self.kept.remove(i).0));
        }
    }

    impl PrefixCache<usize> {
        fn check(&self) {
            let mut reachable = 0;
            for space in self.spaces.values() {
                let (mut leaves, mut tokens) = (0, 0);
                let mut open = vec![space.root];
                while let Some(node) = open.pop() {
                    reachable += 1;
                    let this = &self.nodes[node];
                    tokens += this.edge.len();
                    assert_eq!(
                        this.leaf.is_some(),
                        this.children.is_empty(),
                        "leaves keep, and nothing else does"
                    );
                    assert_eq!(this.parent.is_none(), this.edge.is_empty());
                    assert!(
                        this.parent.is_none() || this.children.len() != 1,
                        "an inner node parts sequences"
                    );
                    if let Some(leaf) = &this.leaf {
                        leaves += 1;
                        assert_eq!(space.by_use.get(&leaf.used), Some(&node));
                    }
                    for (&first, &child) in &this.children {
                        assert!(self.nodes[child].parent == Some(node) && self.nodes[child].edge[0] == first);
                        open.push(child);
                    }
                }
                assert_eq!((leaves, tokens), (space.by_use.len(), space.tokens));
            }
            assert_eq!(self.tokens, self.spaces.values().map(|space| space.tokens).sum::<usize>());
            assert_eq!(reachable + self.free.len(), self.nodes.len());
        }
    }

    proptest! {
        #[test]
        fn the_tree_agrees_with_a_list(
            steps in prop::collection::vec((0u8..8, 0usize..3, prop::collection::vec(0u32..3, 0..9)), 1..120),
        ) {
            let (mut cache, mut model) = (PrefixCache::new(), Model::default());
            let names = ["", "other", "third"];
            for (id, (what, space, tokens)) in steps.into_iter().enumerate() {
                match what {
                    0..=3 => model.insert(id, space, &tokens, cache.insert(names[space], &tokens, id)),
                    4..=6 => {
                        prop_assert_eq!(cache.matching(names[space], &tokens), model.longest(space, &tokens));
                        model.find(space, &tokens, cache.find(names[space], &tokens));
                    }
                    _ => model.evict(cache.evict()),
                }
                cache.check();
            }
        }
    }
}
