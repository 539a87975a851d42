//! Finds the kept sequence that shares the longest prefix with a new one, and decides which kept sequence is evicted next.
//!
//! Every namespace (the salt of a request) has a radix tree over token ids. Each leaf keeps one sequence, and sequences diverge at
//! inner nodes, so no kept sequence is a prefix of another. Matching is per token: a match may end inside an edge. The caller owns
//! the keys and values of the kept sequences; the trees hold their token ids only.
//!
//! The share of a namespace is the number of tokens in all trees divided by the number of trees. The next sequence to be evicted is
//! the least recently used one of the namespaces above their share, or of all namespaces if none is above. So a namespace that
//! floods the cache evicts its own sequences, never those of a namespace within its share. All shares are equal: a client that may
//! choose many namespaces has many shares. Finding the next sequence takes time proportional to the number of namespaces.

use std::collections::BTreeMap;

/// The kept sequences of all namespaces. `T` is the caller's handle of a kept sequence.
#[derive(Debug)]
pub(crate) struct PrefixCache<T> {
    nodes: Vec<Node<T>>,
    /// Unused indices of `nodes`.
    free: Vec<usize>,
    /// The trees by namespace.
    trees: BTreeMap<String, Tree>,
    /// Number of tokens in all trees.
    tokens: usize,
    /// Number of kept sequences.
    leaves: usize,
    /// Number of uses so far, which serves as the time of a use.
    uses: u64,
}

/// The radix tree of a namespace.
#[derive(Debug)]
struct Tree {
    root: usize,
    /// Number of tokens on all edges: tokens that sequences share count once.
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
    /// Time of the last use.
    last_use: u64,
}

/// The end of a walk along some tokens.
struct Walk {
    /// The last node whose whole edge matched.
    node: usize,
    /// The child whose edge matched in part, and the number of matching tokens of that edge.
    partial: Option<(usize, usize)>,
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
        Self { nodes: Vec::new(), free: Vec::new(), trees: BTreeMap::new(), tokens: 0, leaves: 0, uses: 0 }
    }

    /// Finds a kept sequence that can be continued after the longest prefix of `tokens`, and the length of that prefix, at least 1.
    /// Marks it as used. `usable(kept, n)` is the longest prefix of at most `n` tokens after which `kept` can be continued.
    pub(crate) fn find(
        &mut self,
        namespace: &str,
        tokens: &[u32],
        usable: impl Fn(T, usize) -> usize,
    ) -> Option<(T, usize)> {
        let walk = self.walk(self.trees.get(namespace)?.root, tokens);
        let (node, matched) = self.usable_leaf(&walk, usable)?;
        self.uses += 1;
        let now = self.uses;
        let leaf = self.nodes[node].leaf.as_mut()?;
        let by_use = &mut self.trees.get_mut(namespace)?.by_use;
        by_use.remove(&leaf.last_use);
        by_use.insert(now, node);
        leaf.last_use = now;
        Some((leaf.kept, matched))
    }

    /// A kept sequence that begins with all of these tokens, and for which this holds; marks nothing as used.
    pub(crate) fn covering(&self, namespace: &str, tokens: &[u32], holds: impl Fn(T) -> bool) -> Option<T> {
        let walk = self.walk(self.trees.get(namespace)?.root, tokens);
        let covers = |kept, matched| if matched == tokens.len() && holds(kept) { matched } else { 0 };
        let (node, _) = self.usable_leaf(&walk, covers)?;
        Some(self.nodes[node].leaf.as_ref()?.kept)
    }

    /// Number of kept sequences.
    pub(crate) fn len(&self) -> usize {
        self.leaves
    }

    /// Number of tokens in all trees: those that sequences of one namespace share count once.
    pub(crate) fn tokens(&self) -> usize {
        self.tokens
    }

    /// Number of tokens that [`PrefixCache::find`] would match; marks nothing as used.
    pub(crate) fn matching(
        &self,
        namespace: &str,
        tokens: &[u32],
        usable: impl Fn(T, usize) -> usize,
    ) -> usize {
        self.trees.get(namespace).map_or(0, |tree| {
            let walk = self.walk(tree.root, tokens);
            self.usable_leaf(&walk, usable).map_or(0, |(_, matched)| matched)
        })
    }

    /// A leaf that can be continued after as many tokens of a walk as any, and their number.
    fn usable_leaf(&self, walk: &Walk, usable: impl Fn(T, usize) -> usize) -> Option<(usize, usize)> {
        let (mut top, mut matched) = walk.partial.unwrap_or((walk.node, self.nodes[walk.node].edge.len()));
        let mut tokens = walk.tokens;
        while tokens > 0 {
            if let Some(found) = self.leaf_below(top, |kept| usable(kept, tokens)) {
                return Some(found);
            }
            tokens -= matched;
            top = self.nodes[top].parent?;
            matched = self.nodes[top].edge.len();
        }
        None
    }

    /// The first leaf below a node, or the node itself, that can be continued at all, and after how many tokens. All leaves below a
    /// node share the same tokens; another one may be continued after a few more.
    fn leaf_below(&self, node: usize, usable: impl Fn(T) -> usize) -> Option<(usize, usize)> {
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            let Node { children, leaf, .. } = &self.nodes[node];
            let tokens = leaf.map_or(0, |leaf| usable(leaf.kept));
            if tokens > 0 {
                return Some((node, tokens));
            }
            open.extend(children.values().rev());
        }
        None
    }

    /// Keeps a sequence of these tokens. Returns the sequence that is no longer needed, if there is one: `kept` itself if a kept
    /// sequence begins with these tokens, or the kept sequence that these tokens continue.
    pub(crate) fn insert(&mut self, namespace: &str, tokens: &[u32], kept: T) -> Option<T> {
        if tokens.is_empty() {
            return Some(kept);
        }
        let root = match self.trees.get(namespace) {
            Some(tree) => tree.root,
            None => {
                let root = self.add_node(Vec::new(), None);
                let tree = Tree { root, tokens: 0, by_use: BTreeMap::new() };
                self.trees.insert(namespace.to_owned(), tree);
                root
            }
        };
        let walk = self.walk(root, tokens);
        let rest = &tokens[walk.tokens..];
        if rest.is_empty() {
            return Some(kept);
        }
        let tree = self.trees.get_mut(namespace)?;
        tree.tokens += rest.len();
        self.tokens += rest.len();
        if walk.partial.is_none()
            && let Some(leaf) = &mut self.nodes[walk.node].leaf
        {
            // The kept sequence is a prefix of the new one, which replaces it.
            let replaced = std::mem::replace(&mut leaf.kept, kept);
            self.nodes[walk.node].edge.extend_from_slice(rest);
            return Some(replaced);
        }
        let parent = match walk.partial {
            Some((child, matched)) => self.split(child, matched),
            None => walk.node,
        };
        let node = self.add_node(rest.to_vec(), Some(parent));
        self.nodes[parent].children.insert(rest[0], node);
        self.uses += 1;
        self.nodes[node].leaf = Some(Leaf { kept, last_use: self.uses });
        self.leaves += 1;
        self.trees.get_mut(namespace)?.by_use.insert(self.uses, node);
        None
    }

    /// Evicts the next sequence, in the order that the module documentation states.
    pub(crate) fn evict(&mut self) -> Option<T> {
        let namespace = self.next_to_evict()?.to_owned();
        let tree = self.trees.get_mut(&namespace)?;
        let (_, node) = tree.by_use.pop_first()?;
        tree.tokens -= self.nodes[node].edge.len();
        self.tokens -= self.nodes[node].edge.len();
        if tree.by_use.is_empty() {
            self.trees.remove(&namespace);
        }
        let kept = self.nodes[node].leaf.take()?.kept;
        self.leaves -= 1;
        self.remove_leaf(node);
        Some(kept)
    }

    /// The namespace whose least recently used sequence is evicted next.
    fn next_to_evict(&self) -> Option<&str> {
        let order = |tree: &Tree| {
            let is_above = tree.tokens * self.trees.len() > self.tokens;
            // Namespaces above their share come first, and among them the one with the least recently used sequence.
            (!is_above, tree.by_use.keys().next().copied())
        };
        let (name, _) = self.trees.iter().min_by_key(|(_, tree)| order(tree))?;
        Some(name)
    }

    /// Follows the tokens from a root as far as they match.
    fn walk(&self, root: usize, tokens: &[u32]) -> Walk {
        let mut walk = Walk { node: root, partial: None, tokens: 0 };
        while let Some(&child) =
            tokens.get(walk.tokens).and_then(|next| self.nodes[walk.node].children.get(next))
        {
            let edge = &self.nodes[child].edge;
            let matched = edge.iter().zip(&tokens[walk.tokens..]).take_while(|(a, b)| a == b).count();
            walk.tokens += matched;
            if matched < edge.len() {
                walk.partial = Some((child, matched));
                return walk;
            }
            walk.node = child;
        }
        walk
    }

    fn add_node(&mut self, edge: Vec<u32>, parent: Option<usize>) -> usize {
        let node = Node { edge, parent, ..Node::empty() };
        match self.free.pop() {
            Some(index) => {
                self.nodes[index] = node;
                index
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
        let node = self.add_node(edge, parent);
        if let Some(parent) = parent {
            self.nodes[parent].children.insert(first, node);
        }
        self.nodes[child].parent = Some(node);
        self.nodes[node].children.insert(next, child);
        node
    }

    /// Removes a leaf. If its parent is a root without further children, removes the root. If its parent is an inner node with a
    /// single further child, merges the parent into that child.
    fn remove_leaf(&mut self, node: usize) {
        let Some(parent) = self.nodes[node].parent else { return };
        let first = self.nodes[node].edge[0];
        self.nodes[parent].children.remove(&first);
        self.free_node(node);
        let Some(grandparent) = self.nodes[parent].parent else {
            if self.nodes[parent].children.is_empty() {
                self.free_node(parent);
            }
            return;
        };
        let children = &self.nodes[parent].children;
        if children.len() == 1
            && let Some(&child) = children.values().next()
        {
            let mut edge = std::mem::take(&mut self.nodes[parent].edge);
            self.nodes[grandparent].children.insert(edge[0], child);
            edge.append(&mut self.nodes[child].edge);
            self.nodes[child].edge = edge;
            self.nodes[child].parent = Some(grandparent);
            self.free_node(parent);
        }
    }

    fn free_node(&mut self, node: usize) {
        self.nodes[node] = Node::empty();
        self.free.push(node);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Every kept sequence is usable.
    fn any<T>(_: T, tokens: usize) -> usize {
        tokens
    }

    #[test]
    fn a_sequence_that_is_not_usable_is_not_matched() {
        let mut cache = PrefixCache::new();
        cache.insert("", &[1, 2, 3, 4], 'a');
        cache.insert("", &[1, 2, 5, 6], 'b');
        let only = |usable: char| move |kept: char, tokens| if kept == usable { tokens } else { 0 };
        assert_eq!(cache.find("", &[1, 2, 9], only('b')), Some(('b', 2)));
        // What is not usable after three tokens may hide what is usable after two.
        assert_eq!(cache.find("", &[1, 2, 3], only('b')), Some(('b', 2)));
        assert_eq!(cache.find("", &[1, 2, 3], only('c')), None);
        assert_eq!((cache.matching("", &[1, 2], only('b')), cache.matching("", &[1, 2], only('c'))), (2, 0));
        assert_eq!(
            cache.matching("", &[1, 2, 3, 4, 5], |kept, tokens| if kept == 'a' { tokens / 3 * 3 } else { 0 }),
            3
        );
    }

    #[test]
    fn a_match_may_end_anywhere() {
        let mut cache = PrefixCache::new();
        assert_eq!(cache.find("", &[1, 2], any), None);
        assert_eq!(cache.insert("", &[1, 2, 3, 4], 'a'), None);
        assert_eq!(cache.find("", &[1, 2, 9], any), Some(('a', 2)));
        assert_eq!(cache.find("", &[1, 2, 3, 4, 5], any), Some(('a', 4)));
        assert_eq!(cache.find("", &[2], any), None);
        assert_eq!(cache.insert("", &[1, 2, 7], 'b'), None);
        assert_eq!(cache.find("", &[1, 2, 7, 8], any), Some(('b', 3)));
        assert_eq!(cache.find("", &[1, 2, 3], any), Some(('a', 3)));
        assert_eq!(cache.matching("", &[1, 2, 8], any), 2);
    }

    #[test]
    fn namespaces_do_not_share() {
        let mut cache = PrefixCache::new();
        cache.insert("tenant", &[1, 2], 'a');
        assert_eq!(cache.find("", &[1, 2], any), None);
        assert_eq!(cache.find("tenant", &[1, 2], any), Some(('a', 2)));
        assert_eq!(cache.evict(), Some('a'));
        assert!(cache.trees.is_empty());
    }

    #[test]
    fn what_another_covers_is_handed_back() {
        let mut cache = PrefixCache::new();
        assert_eq!(cache.insert("", &[], 'x'), Some('x'));
        cache.insert("", &[1, 2], 'a');
        assert_eq!(cache.insert("", &[1, 2, 3], 'b'), Some('a'), "the longer one replaces the shorter");
        assert_eq!(cache.insert("", &[1], 'c'), Some('c'), "a shorter one adds nothing");
        assert_eq!(cache.insert("", &[1, 2, 3], 'd'), Some('d'));
        assert_eq!(cache.find("", &[1, 2, 3, 4], any), Some(('b', 3)));
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut cache = PrefixCache::new();
        cache.insert("", &[1, 1], 'a');
        cache.insert("", &[1, 2], 'b');
        cache.insert("", &[3], 'c');
        cache.find("", &[1, 1], any);
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
        assert_eq!(cache.find("quiet", &[1, 2, 3, 4], any), Some((1000, 4)));
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

    /// Reference implementation of the cache, without trees.
    #[derive(Default)]
    struct Model {
        /// The handle, the namespace, the tokens and the time of the last use of each kept sequence.
        kept: Vec<(usize, usize, Vec<u32>, u64)>,
        uses: u64,
    }

    fn common(a: &[u32], b: &[u32]) -> usize {
        a.iter().zip(b).take_while(|(a, b)| a == b).count()
    }

    impl Model {
        fn longest(&self, namespace: usize, tokens: &[u32]) -> usize {
            let all = self.kept.iter().filter(|k| k.1 == namespace);
            all.map(|k| common(&k.2, tokens)).max().unwrap_or(0)
        }

        fn find(&mut self, namespace: usize, tokens: &[u32], found: Option<(usize, usize)>) {
            assert_eq!(found.map_or(0, |f| f.1), self.longest(namespace, tokens));
            if let Some((id, matched)) = found {
                self.uses += 1;
                let entry = self.kept.iter_mut().find(|k| k.0 == id).expect("a sequence that is kept");
                assert!(entry.1 == namespace && common(&entry.2, tokens) == matched);
                entry.3 = self.uses;
            }
        }

        fn insert(&mut self, id: usize, namespace: usize, tokens: &[u32], returned: Option<usize>) {
            if tokens.is_empty() || self.longest(namespace, tokens) == tokens.len() {
                return assert_eq!(returned, Some(id));
            }
            let shorter = self.kept.iter_mut().find(|k| k.1 == namespace && tokens.starts_with(&k.2));
            if let Some(shorter) = shorter {
                assert_eq!(returned, Some(shorter.0));
                return *shorter = (id, namespace, tokens.to_vec(), shorter.3);
            }
            assert_eq!(returned, None);
            self.uses += 1;
            self.kept.push((id, namespace, tokens.to_vec(), self.uses));
        }

        /// Number of tokens that a namespace keeps: the distinct prefixes of its sequences.
        fn tokens(&self, namespace: usize) -> usize {
            let sequences = self.kept.iter().filter(|k| k.1 == namespace);
            let prefixes: BTreeSet<_> = sequences.flat_map(|k| (1..=k.2.len()).map(|n| &k.2[..n])).collect();
            prefixes.len()
        }

        fn evict(&mut self, evicted: Option<usize>) {
            let namespaces: BTreeSet<usize> = self.kept.iter().map(|k| k.1).collect();
            let all: usize = namespaces.iter().map(|&namespace| self.tokens(namespace)).sum();
            let above = |namespace: usize| self.tokens(namespace) * namespaces.len() > all;
            let any = namespaces.iter().any(|&namespace| above(namespace));
            let candidates = (0..self.kept.len()).filter(|&i| !any || above(self.kept[i].1));
            let oldest = candidates.min_by_key(|&i| self.kept[i].3);
            assert_eq!(evicted, oldest.map(|i| self.kept.remove(i).0));
        }
    }

    impl PrefixCache<usize> {
        fn check(&self) {
            let mut reachable = 0;
            for tree in self.trees.values() {
                let (mut leaves, mut tokens) = (0, 0);
                let mut unvisited = vec![tree.root];
                while let Some(node) = unvisited.pop() {
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
                        "sequences diverge at an inner node"
                    );
                    if let Some(leaf) = &this.leaf {
                        leaves += 1;
                        assert_eq!(tree.by_use.get(&leaf.last_use), Some(&node));
                    }
                    for (&first, &child) in &this.children {
                        assert!(self.nodes[child].parent == Some(node) && self.nodes[child].edge[0] == first);
                        unvisited.push(child);
                    }
                }
                assert_eq!((leaves, tokens), (tree.by_use.len(), tree.tokens));
            }
            assert_eq!(self.tokens, self.trees.values().map(|tree| tree.tokens).sum::<usize>());
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
            for (id, (action, namespace, tokens)) in steps.into_iter().enumerate() {
                let name = names[namespace];
                match action {
                    0..=3 => model.insert(id, namespace, &tokens, cache.insert(name, &tokens, id)),
                    4..=6 => {
                        let matching = cache.matching(name, &tokens, any);
                        prop_assert_eq!(matching, model.longest(namespace, &tokens));
                        model.find(namespace, &tokens, cache.find(name, &tokens, any));
                    }
                    _ => model.evict(cache.evict()),
                }
                cache.check();
            }
        }
    }
}
