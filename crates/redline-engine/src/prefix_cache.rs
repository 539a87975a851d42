//! Which token sequences were computed before, found by the longest prefix they share with a new one.
//!
//! A radix tree over token ids for every namespace. Each leaf keeps one sequence, inner nodes are where sequences part; so
//! no kept sequence is a prefix of another. Matching is per token: a match may end inside an edge. What a leaf
//! keeps is the caller's (pages are shared and counted there); the tree only says which one to let go, the least recently
//! used first, in O(log n).

use std::collections::BTreeMap;

/// See the module. `T` names a kept sequence.
#[derive(Debug)]
pub(crate) struct PrefixCache<T> {
    nodes: Vec<Node<T>>,
    /// Places of `nodes` to be used again.
    free: Vec<usize>,
    roots: BTreeMap<String, usize>,
    /// Leaves by when they were used.
    by_use: BTreeMap<u64, usize>,
    uses: u64,
}

#[derive(Debug)]
struct Node<T> {
    /// Tokens between the parent and this node; empty for roots only.
    edge: Vec<u32>,
    /// `None` for roots.
    parent: Option<usize>,
    /// By the first token of their edges.
    children: BTreeMap<u32, usize>,
    leaf: Option<Leaf<T>>,
    /// Roots only: their key.
    namespace: String,
}

#[derive(Clone, Copy, Debug)]
struct Leaf<T> {
    kept: T,
    used: u64,
}

/// Where the walk along some tokens ended.
struct Walk {
    /// The last node whose whole edge matched.
    node: usize,
    /// The child whose edge matched in part, and how many of its tokens.
    inside: Option<(usize, usize)>,
    /// Tokens that matched.
    tokens: usize,
}

impl<T> Node<T> {
    fn empty() -> Self {
        Self {
            edge: Vec::new(),
            parent: None,
            children: BTreeMap::new(),
            leaf: None,
            namespace: String::new(),
        }
    }
}

impl<T: Copy> PrefixCache<T> {
    pub(crate) fn new() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), roots: BTreeMap::new(), by_use: BTreeMap::new(), uses: 0 }
    }

    /// A kept sequence that shares the longest prefix with `tokens`, and its length, at least 1. It counts as used.
    pub(crate) fn find(&mut self, namespace: &str, tokens: &[u32]) -> Option<(T, usize)> {
        let walk = self.walk(*self.roots.get(namespace)?, tokens);
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
        self.by_use.remove(&leaf.used);
        self.by_use.insert(now, node);
        leaf.used = now;
        Some((leaf.kept, walk.tokens))
    }

    /// Sequences that are kept.
    pub(crate) fn len(&self) -> usize {
        self.by_use.len()
    }

    /// How many tokens [`PrefixCache::find`] would match; nothing counts as used.
    pub(crate) fn matching(&self, namespace: &str, tokens: &[u32]) -> usize {
        self.roots.get(namespace).map_or(0, |&root| self.walk(root, tokens).tokens)
    }

    /// Keeps a sequence of these tokens. Returns what is not needed any more: `kept` itself where a kept sequence begins with
    /// these tokens, or the one that these tokens continue.
    pub(crate) fn insert(&mut self, namespace: &str, tokens: &[u32], kept: T) -> Option<T> {
        if tokens.is_empty() {
            return Some(kept);
        }
        let root = match self.roots.get(namespace) {
            Some(&root) => root,
            None => {
                let root = self.add(Vec::new(), None);
                namespace.clone_into(&mut self.nodes[root].namespace);
                self.roots.insert(namespace.to_owned(), root);
                root
            }
        };
        let walk = self.walk(root, tokens);
        let rest = &tokens[walk.tokens..];
        if rest.is_empty() {
            return Some(kept);
        }
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
        self.by_use.insert(self.uses, node);
        None
    }

    /// Lets go of the sequence that was not used for the longest time.
    pub(crate) fn evict(&mut self) -> Option<T> {
        let (_, node) = self.by_use.pop_first()?;
        let kept = self.nodes[node].leaf.take()?.kept;
        self.remove(node);
        Some(kept)
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

    /// Removes a node without children, and what has no purpose without it: a parent with one child left joins it, a root
    /// without children goes.
    fn remove(&mut self, node: usize) {
        let Some(parent) = self.nodes[node].parent else { return };
        let first = self.nodes[node].edge[0];
        self.nodes[parent].children.remove(&first);
        self.discard(node);
        let Some(above) = self.nodes[parent].parent else {
            if self.nodes[parent].children.is_empty() {
                self.roots.remove(&std::mem::take(&mut self.nodes[parent].namespace));
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
        assert!(cache.roots.is_empty());
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

    /// What the tree says, without a tree.
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

        fn evict(&mut self, gone: Option<usize>) {
            let oldest = (0..self.kept.len()).min_by_key(|&i| self.kept[i].3);
            assert_eq!(gone, oldest.map(|i| self.kept.remove(i).0));
        }
    }

    impl PrefixCache<usize> {
        fn check(&self) {
            let mut leaves = 0;
            let mut reachable = 0;
            let mut open: Vec<usize> = self.roots.values().copied().collect();
            while let Some(node) = open.pop() {
                reachable += 1;
                let this = &self.nodes[node];
                assert_eq!(
                    this.leaf.is_some(),
                    this.children.is_empty(),
                    "leaves keep, and nothing else does"
                );
                assert_eq!(this.parent.is_none(), this.edge.is_empty());
                assert!(this.parent.is_none() || this.children.len() != 1, "an inner node parts sequences");
                if let Some(leaf) = &this.leaf {
                    leaves += 1;
                    assert_eq!(self.by_use.get(&leaf.used), Some(&node));
                }
                for (&first, &child) in &this.children {
                    assert!(self.nodes[child].parent == Some(node) && self.nodes[child].edge[0] == first);
                    open.push(child);
                }
            }
            assert_eq!((leaves, reachable + self.free.len()), (self.by_use.len(), self.nodes.len()));
        }
    }

    proptest! {
        #[test]
        fn the_tree_agrees_with_a_list(
            steps in prop::collection::vec((0u8..8, 0usize..2, prop::collection::vec(0u32..3, 0..9)), 1..120),
        ) {
            let (mut cache, mut model) = (PrefixCache::new(), Model::default());
            let names = ["", "other"];
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
