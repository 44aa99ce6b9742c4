// SPDX-License-Identifier: Apache-2.0
//! Removal of mappings by request.

use super::super::mapping::MappingInfo;
use super::Nat;

impl Nat {
    /// Removes the mappings that match, without static ones, from position `from` on, 0 at first, out of at most `budget` entries. Returns the
    /// number of removed mappings, and the position to continue from; `None` at the end.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "counts at most all mappings"
    )]
    pub fn flush(
        &mut self,
        matches: impl Fn(&MappingInfo) -> bool,
        from: u32,
        budget: usize,
    ) -> (usize, Option<u32>) {
        let capacity = self.mappings.capacity();
        let end = (from as usize).saturating_add(budget).min(capacity);
        let end = u32::try_from(end).unwrap_or(u32::MAX);
        let mut removed = 0;
        for number in from..end {
            let mapping = self.mappings.get(number);
            let mapping = mapping.filter(|one| !one.is_static());
            let info = mapping.and_then(|one| one.info(self.now));
            if info.is_some_and(|info| matches(&info)) {
                self.remove(number);
                removed += 1;
            }
        }
        (removed, ((end as usize) < capacity).then_some(end))
    }
}
