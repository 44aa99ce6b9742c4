// SPDX-License-Identifier: Apache-2.0
//! Changes of the links of network cards.

/// Link of a network card as it was when it was last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    is_up: Option<bool>,
    /// Changes since the port was opened.
    pub(crate) changes: u64,
}

impl Link {
    /// Records a state. Returns true if it differs from the last one.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "counts of 64 bits do not overflow"
    )]
    pub(super) fn note(&mut self, is_up: bool) -> bool {
        let former = self.is_up.replace(is_up);
        let is_changed = former.is_some_and(|former| former != is_up);
        self.changes += u64::from(is_changed);
        is_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_a_link_are_counted_and_its_first_state_is_none() {
        let mut link = Link::default();
        let noted = [true, true, false, false, true].map(|is_up| link.note(is_up));
        assert_eq!(noted, [false, false, true, false, true]);
        assert_eq!(link.changes, 2);
    }
}
