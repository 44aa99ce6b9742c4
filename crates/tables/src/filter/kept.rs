// SPDX-License-Identifier: Apache-2.0
//! Classifiers of which the next one keeps the trees, if few rules have changed.

use std::sync::Arc;

use crate::classifier::{Classifier, Key, Rule, Shape};

/// Number of rules, or of elements of the sets of a field, from which on a change of few of them compiles only these. Fewer are compiled in a
/// few milliseconds.
pub const CHANGED_MIN: usize = 1024;

/// A classifier, and the rules that its trees are compiled from.
#[derive(Debug)]
pub(super) struct KeptClassifier {
    classifier: Classifier,
    in_trees: Arc<Vec<Rule>>,
}

impl KeptClassifier {
    /// Returns the classifier of rules. It has the trees of the former one, if there are many rules and few differ.
    pub(super) fn after(former: Option<&Self>, rules: &Arc<Vec<Rule>>) -> Self {
        if rules.len() >= CHANGED_MIN
            && let Some(former) = former
            && let Some(classifier) = former.classifier.changed(&former.in_trees, rules)
        {
            return Self {
                classifier,
                in_trees: Arc::clone(&former.in_trees),
            };
        }
        Self {
            classifier: Classifier::new(rules),
            in_trees: Arc::clone(rules),
        }
    }

    /// Returns true if the trees are compiled from these rules, without later changes.
    pub(super) fn is_compiled_from(&self, rules: &Arc<Vec<Rule>>) -> bool {
        Arc::ptr_eq(&self.in_trees, rules)
    }

    /// Returns size and worst case, with the memory of the rules.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "octets of memory that exists"
    )]
    pub(super) fn shape(&self) -> Shape {
        let shape = self.classifier.shape();
        Shape {
            octets: shape.octets + size_of_val(&self.in_trees[..]),
            ..shape
        }
    }

    /// Finds the first rule that matches each key, as [`Classifier::lookup`].
    #[inline(always)]
    pub(super) fn lookup(&self, keys: &[Key], found: &mut [u32]) {
        self.classifier.lookup(keys, found);
    }
}
