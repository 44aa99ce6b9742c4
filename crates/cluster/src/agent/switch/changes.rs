// SPDX-License-Identifier: Apache-2.0
//! Changes of a switch, and those that it rejected.

use quietwire_switch::config::Change;

use super::orders::Orders;
use crate::resources::RejectedChange;

/// Makes changes, and collects those that the switch rejects.
pub(super) struct SwitchChanges<'a, O> {
    pub(super) switch: &'a O,
    pub(super) rejected: Vec<RejectedChange>,
}

impl<'a, O: Orders> SwitchChanges<'a, O> {
    pub(super) fn new(switch: &'a O) -> Self {
        Self {
            switch,
            rejected: Vec::new(),
        }
    }

    /// Makes a change. Returns whether the switch accepted it.
    pub(super) fn change(&mut self, object: String, change: Change) -> bool {
        let done = self.switch.change(change);
        self.accepted(object, done).is_some()
    }

    /// Returns the value of a step. A problem becomes a rejected change.
    pub(super) fn accepted<T>(&mut self, object: String, done: Result<T, String>) -> Option<T> {
        match done {
            Ok(value) => Some(value),
            Err(message) => {
                self.reject(object, message);
                None
            }
        }
    }

    pub(super) fn reject(&mut self, object: String, message: String) {
        self.rejected.push(RejectedChange { object, message });
    }
}
