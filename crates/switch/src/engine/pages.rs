// SPDX-License-Identifier: Apache-2.0
//! Pages of a list over the tables of all forwarding threads, one behind the other.

/// The table of a thread in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PagedTable {
    /// CPU of the thread.
    pub(super) cpu: u32,
    /// Position of its first entry in the list.
    pub(super) base: u32,
    /// Position behind its last entry.
    end: u32,
}

/// Puts tables of these sizes behind each other, by the CPUs of their threads. Entries beyond 2^32 are not listed.
pub(super) fn paged(sizes: impl IntoIterator<Item = (u32, u64)>) -> Vec<PagedTable> {
    let mut tables = Vec::new();
    let mut base: u32 = 0;
    for (cpu, size) in sizes {
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let end = base.saturating_add(size);
        tables.push(PagedTable { cpu, base, end });
        base = end;
    }
    tables
}

/// Returns the tables from a position of the list on, each with the position in it.
pub(super) fn from_position(
    tables: &[PagedTable],
    position: u32,
) -> impl Iterator<Item = (PagedTable, u32)> + '_ {
    let left = tables
        .iter()
        .filter(move |table| position < table.end && table.base < table.end);
    left.map(move |table| (*table, position.saturating_sub(table.base)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_in_the_table_of_one_thread() {
        let tables = paged([(2, 10), (3, 0), (5, 7)]);
        let of = |position| -> Vec<(u32, u32)> {
            let left = from_position(&tables, position);
            left.map(|(table, start)| (table.cpu, start)).collect()
        };
        assert_eq!(of(0), [(2, 0), (5, 0)]);
        assert_eq!(of(9), [(2, 9), (5, 0)]);
        assert_eq!(of(10), [(5, 0)]);
        assert_eq!(of(16), [(5, 6)]);
        assert!(of(17).is_empty());
        assert_eq!(tables[2].base, 10);
        let large = paged([(0, u64::MAX), (1, 5)]);
        assert_eq!(from_position(&large, u32::MAX).count(), 0);
    }
}
