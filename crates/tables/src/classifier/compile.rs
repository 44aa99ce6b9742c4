// SPDX-License-Identifier: Apache-2.0
//! Compilation of rules into decision trees.

use std::collections::{BinaryHeap, HashMap};

use super::cut::{Cut, choose};
use super::entry::{Entry, Rest};
use super::node::{DEPTH_MAX, Node, TREES_MAX};
use super::region::{Region, Window};
use super::rule::Rule;
use crate::arena::compacted;

/// Leaves have at most this number of rules, if a window separates them.
const LEAF: usize = 3;
/// Copies of rules: this number for each rule, and some more.
const COPIES_A_RULE: usize = 8;
const COPIES_SPARE: usize = 8192;
/// Nodes: so many per copy of a rule, and some more.
const NODES_A_COPY: usize = 8;
const NODES_SPARE: usize = 512;
/// Temporary copies in the lists of the children of a node: this number for each rule, and some more.
const LISTS_A_RULE: usize = 64;
/// A classifier of more copies of rules than fit in a first-level cache prefetches them.
const LARGE: usize = 256;

/// A decision tree.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) root: Node,
    /// Longest path of nodes.
    pub(super) depth: usize,
    /// Number of rules of the longest leaf.
    pub(super) longest: usize,
}

/// Compiled rules.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) trees: Vec<Tree>,
    pub(super) nodes: Vec<Node>,
    pub(super) entries: Vec<Entry>,
    pub(super) rest: Vec<Rest>,
    /// First rule that matches every packet; the rules behind it match none.
    pub(super) any: u32,
    /// Number of rules.
    pub(super) rules: usize,
    /// Rules behind which some node, or the end of the rules, has left out others that match only packets of this rule there.
    pub(super) hides: Vec<bool>,
    pub(super) is_large: bool,
}

/// A node to be made. The largest is made first, so that long lists are split as long as there is memory for copies.
#[derive(Debug)]
struct Pending {
    /// Index in the nodes, one for each.
    places: Vec<u32>,
    /// Rules that can match, in order.
    list: Vec<u32>,
    region: Region,
    depth: usize,
}

impl PartialEq for Pending {
    fn eq(&self, other: &Self) -> bool {
        self.list.len() == other.list.len()
    }
}

impl Eq for Pending {}

impl PartialOrd for Pending {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pending {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.list.len().cmp(&other.list.len())
    }
}

struct Compiler<'rules> {
    rules: &'rules [Rule],
    compiled: Compiled,
    /// Index of the rest of a rule, by rule.
    rest: HashMap<u32, u32>,
    /// Leaves by their rules.
    leaves: HashMap<Vec<u32>, Node>,
    /// Copies of rules in leaves and pending nodes.
    copies: usize,
    copies_max: usize,
}

/// Returns a number of rules, nodes or copies, of which there are fewer than 2^32.
pub(super) fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Compiles rules.
pub(super) fn compile(rules: &[Rule]) -> Compiled {
    let any = rules.iter().position(Rule::is_any);
    let mut list: Vec<u32> = (0..number(any.unwrap_or(rules.len()))).collect();
    let mut compiler = Compiler {
        rules,
        compiled: Compiled {
            trees: Vec::new(),
            nodes: Vec::new(),
            entries: Vec::new(),
            rest: Vec::new(),
            any: any.map_or(u32::MAX, number),
            rules: rules.len(),
            hides: vec![false; rules.len()],
            is_large: false,
        },
        rest: HashMap::new(),
        leaves: HashMap::new(),
        copies: 0,
        copies_max: rules
            .len()
            .saturating_mul(COPIES_A_RULE)
            .saturating_add(COPIES_SPARE),
    };
    if let Some(any) = any {
        compiler.hide_behind(any);
    }
    for tree in 1..=TREES_MAX {
        if list.is_empty() {
            break;
        }
        list = compiler.tree(list, tree < TREES_MAX);
    }
    let mut compiled = compiler.compiled;
    compiled.is_large = compiled.entries.len() > LARGE;
    compiled.nodes = compacted(compiled.nodes);
    compiled.entries = compacted(compiled.entries);
    compiled.rest = compacted(compiled.rest);
    compiled
}

impl Compiler<'_> {
    /// Makes a tree. Returns the rules that it leaves to the next one, in order.
    fn tree(&mut self, list: Vec<u32>, may_move: bool) -> Vec<u32> {
        let root = number(self.compiled.nodes.len());
        self.compiled.nodes.push(Node::EMPTY);
        self.copies = self.copies.saturating_add(list.len());
        let mut moved = Vec::new();
        let (mut depth, mut longest) = (0, 0);
        let mut pending = BinaryHeap::from([Pending {
            places: vec![root],
            list,
            region: Region::ALL,
            depth: 0,
        }]);
        while let Some(mut node) = pending.pop() {
            self.prune(&mut node);
            let made = match self.cut(&node, may_move) {
                Some(cut) => self.split(&node, cut, &mut pending, &mut moved),
                None => None,
            };
            let made = made.unwrap_or_else(|| {
                longest = longest.max(node.list.len());
                depth = depth.max(node.depth);
                self.leaf(node.list)
            });
            for place in node.places {
                if let Some(node) = self.compiled.nodes.get_mut(place as usize) {
                    *node = made;
                }
            }
        }
        let root = self.compiled.nodes.get(root as usize).copied();
        self.compiled.trees.push(Tree {
            root: root.unwrap_or(Node::EMPTY),
            depth,
            longest,
        });
        moved.sort_unstable();
        moved.dedup();
        moved
    }

    fn rule(&self, number: u32) -> &Rule {
        self.rules.get(number as usize).unwrap_or(&Rule::ANY)
    }

    /// Removes the rules behind the first that matches all packets of the node.
    fn prune(&mut self, node: &mut Pending) {
        let covers = |number: &u32| node.region.is_covered_by(self.rule(*number));
        if let Some(last) = node.list.iter().position(covers) {
            let kept = last.saturating_add(1);
            let hidden = node.list.len().saturating_sub(kept);
            if hidden > 0
                && let Some(rule) = node.list.get(last)
            {
                self.hide_behind(*rule as usize);
            }
            self.copies = self.copies.saturating_sub(hidden);
            node.list.truncate(kept);
        }
    }

    /// Notes that rules are left out behind this one.
    fn hide_behind(&mut self, rule: usize) {
        if let Some(hides) = self.compiled.hides.get_mut(rule) {
            *hides = true;
        }
    }

    fn cut(&self, node: &Pending, may_move: bool) -> Option<Cut> {
        let is_split = node.list.len() > LEAF && node.depth < DEPTH_MAX;
        if !is_split {
            return None;
        }
        choose(self.rules, &node.list, &node.region, may_move)
    }

    /// Distributes the rules of a node over its children; `None` if there is no memory for the copies, or nothing is gained.
    fn split(
        &mut self,
        node: &Pending,
        cut: Cut,
        pending: &mut BinaryHeap<Pending>,
        moved: &mut Vec<u32>,
    ) -> Option<Node> {
        let Cut { window, values_max } = cut;
        let children = Children::new(node, window, values_max, self.rules)?;
        let groups = children.groups();
        let copies: usize = groups.iter().map(|(list, _)| list.len()).sum();
        let is_progress = groups.iter().all(|(list, _)| list.len() < node.list.len());
        let nodes = self.compiled.nodes.len().saturating_add(window.size());
        let nodes_max = self.copies_max.saturating_mul(NODES_A_COPY);
        let nodes_max = nodes_max.saturating_add(NODES_SPARE);
        let copies = self.copies.saturating_add(copies);
        let has_space =
            copies <= self.copies_max.saturating_add(node.list.len()) && nodes <= nodes_max;
        if !is_progress || !has_space {
            return None;
        }
        self.copies = copies.saturating_sub(node.list.len());
        moved.extend(&children.moved);
        let first = number(self.compiled.nodes.len());
        self.compiled.nodes.resize(nodes, Node::EMPTY);
        for (list, values) in groups {
            if list.is_empty() {
                continue;
            }
            let region = match values.as_slice() {
                [value] => node.region.part(window, *value),
                _ => node.region,
            };
            pending.push(Pending {
                places: values
                    .into_iter()
                    .map(|value| first.saturating_add(value))
                    .collect(),
                list: list.to_vec(),
                region,
                depth: node.depth.saturating_add(1),
            });
        }
        Some(Node::inner(first, window))
    }

    /// Makes a leaf, or finds the one with the same rules.
    fn leaf(&mut self, list: Vec<u32>) -> Node {
        if list.is_empty() {
            return Node::EMPTY;
        }
        if let Some(leaf) = self.leaves.get(&list) {
            self.copies = self.copies.saturating_sub(list.len());
            return *leaf;
        }
        let first = number(self.compiled.entries.len());
        for number in &list {
            let rule = *self.rule(*number);
            let rest = self.rest_of(*number, &rule);
            self.compiled.entries.push(Entry::new(&rule, *number, rest));
        }
        let leaf = Node::leaf(first, number(list.len()));
        self.leaves.insert(list, leaf);
        leaf
    }

    fn rest_of(&mut self, of: u32, rule: &Rule) -> Option<u32> {
        let rest = Rest::of(rule)?;
        let all = &mut self.compiled.rest;
        Some(*self.rest.entry(of).or_insert_with(|| {
            let place = number(all.len());
            all.push(rest);
            place
        }))
    }
}

/// Rules of the children of a node.
struct Children {
    /// Rules of all children, child after child.
    lists: Vec<u32>,
    /// End of the rules of each child.
    ends: Vec<usize>,
    /// Rules that move to the next tree.
    moved: Vec<u32>,
}

impl Children {
    /// Distributes rules; `None` if the lists before the search for equal ones are too long.
    fn new(node: &Pending, window: Window, values_max: usize, rules: &[Rule]) -> Option<Self> {
        let mut ends = vec![0usize; window.size().saturating_add(1)];
        let mut moved = Vec::new();
        let values = |number: u32| {
            let rule = rules.get(number as usize).unwrap_or(&Rule::ANY);
            node.region.values(rule, window)
        };
        for number in &node.list {
            let values = values(*number);
            if values.count() > values_max {
                moved.push(*number);
            } else {
                values.each(window, |value| {
                    if let Some(end) = ends.get_mut(value.saturating_add(1)) {
                        *end = end.saturating_add(1);
                    }
                });
            }
        }
        let mut all = 0usize;
        for end in &mut ends {
            all = all.saturating_add(*end);
            *end = all;
        }
        let all_max = node.list.len().saturating_mul(LISTS_A_RULE);
        if all > all_max.saturating_add(COPIES_SPARE) {
            return None;
        }
        let mut lists = vec![0; all];
        for number in &node.list {
            let values = values(*number);
            if values.count() <= values_max {
                values.each(window, |value| {
                    let Some(end) = ends.get_mut(value) else {
                        return;
                    };
                    if let Some(place) = lists.get_mut(*end) {
                        *place = *number;
                    }
                    *end = end.saturating_add(1);
                });
            }
        }
        ends.truncate(window.size());
        Some(Self { lists, ends, moved })
    }

    /// Returns the different lists of rules with their children.
    fn groups(&self) -> Vec<(&[u32], Vec<u32>)> {
        let mut numbers: HashMap<&[u32], usize> = HashMap::new();
        let mut groups: Vec<(&[u32], Vec<u32>)> = Vec::new();
        let mut begin = 0;
        for (child, end) in (0u32..).zip(&self.ends) {
            let list = self.lists.get(begin..*end).unwrap_or_default();
            begin = *end;
            let group = numbers.get(list).copied();
            match group.and_then(|group| groups.get_mut(group)) {
                Some((_, children)) => children.push(child),
                None => {
                    numbers.insert(list, groups.len());
                    groups.push((list, vec![child]));
                }
            }
        }
        groups
    }
}
