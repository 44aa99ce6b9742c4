// SPDX-License-Identifier: Apache-2.0
//! Huge pages on each node (kernel documentation: admin-guide/mm/hugetlbpage.rst).

use super::check::{APPLY, Check, UNREADABLE};
use super::machine::Machine;
use crate::partition::HugePages;
use crate::settings::MORE_HUGE_PAGES;

pub(super) fn checks(machine: &Machine<'_>) -> Vec<Check> {
    let pool = |pages: &HugePages| {
        let directory = pages.directory();
        let file = format!("/{directory}/nr_hugepages");
        let expected = format!("at least {} pages", pages.pages);
        let Some(total) = machine.value::<u64>(&format!("{directory}/nr_hugepages")) else {
            return Check::unknown("huge-pages", file, expected, UNREADABLE);
        };
        let free = machine.value::<u64>(&format!("{directory}/free_hugepages"));
        let free = free.map_or(String::new(), |free| format!(", {free} of them free"));
        Check::new(
            "huge-pages",
            file,
            expected,
            format!("{total}{free}"),
            total >= pages.pages,
            format!("{APPLY}; if that reserves too few, {MORE_HUGE_PAGES}"),
        )
    };
    machine.plan.huge_pages.iter().map(pool).collect()
}
