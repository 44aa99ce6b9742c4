// SPDX-License-Identifier: Apache-2.0
//! Lookups in the rules that hold: compiled ones, and what has changed since.

use std::sync::Arc;

use quietwire_base::BURST_MAX;

use super::compile::{Compiled, compile};
use super::key::Key;
use super::patch::Patch;
use super::rule::Rule;
use super::search::Shape;

/// Maximum number of rules.
pub const RULES_MAX: usize = 1 << 20;

/// Compiled rules.
#[derive(Debug)]
pub struct Classifier {
    compiled: Arc<Compiled>,
    /// Changes since they were compiled.
    patch: Option<Patch>,
}

impl Classifier {
    /// Compiles rules. Rules beyond [`RULES_MAX`] are ignored.
    #[must_use]
    pub fn new(rules: &[Rule]) -> Self {
        let rules = rules.get(..RULES_MAX).unwrap_or(rules);
        Self {
            compiled: Arc::new(compile(rules)),
            patch: None,
        }
    }

    /// Returns the classifier of rules that differ little from `compiled`, those that [`Self::new`] compiled: it shares the trees, and
    /// compiles only the rules that are new or were hidden by rules that are gone. `self` may have been changed before. `None` if it would
    /// compile more than [`CHANGED_MAX`](super::CHANGED_MAX) rules, or `compiled` are others: then compile all rules.
    #[must_use]
    pub fn changed(&self, compiled: &[Rule], rules: &[Rule]) -> Option<Self> {
        let compiled = compiled.get(..RULES_MAX).unwrap_or(compiled);
        let rules = rules.get(..RULES_MAX).unwrap_or(rules);
        let patch = Patch::new((&self.compiled, compiled), rules)?;
        Some(Self {
            compiled: Arc::clone(&self.compiled),
            patch: Some(patch),
        })
    }

    /// Returns size and worst case.
    #[must_use]
    pub fn shape(&self) -> Shape {
        let shape = self.compiled.shape();
        self.patch
            .as_ref()
            .map_or(shape, |patch| patch.shape(shape))
    }

    /// Finds the first rule that matches each key: its index, or [`NO_RULE`](super::NO_RULE). At most [`BURST_MAX`] keys; results of further
    /// keys do not change.
    pub fn lookup(&self, keys: &[Key], found: &mut [u32]) {
        let count = keys.len().min(found.len()).min(BURST_MAX);
        let (Some(keys), Some(found)) = (keys.get(..count), found.get_mut(..count)) else {
            return;
        };
        match &self.patch {
            None => self.compiled.find(keys, found, |_| true),
            Some(patch) => patch.find(&self.compiled, keys, found),
        }
    }
}
