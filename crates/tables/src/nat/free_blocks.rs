// SPDX-License-Identifier: Apache-2.0
//! Free port blocks of an external address, by the range of their ports.

use super::settings::PortPool;

/// First port behind the well-known ones (RFC 6335, section 6).
const WELL_KNOWN_END: u16 = 1024;

/// Range of ports. The external port of a mapping is of the range of the inside port if the host can have such a port (RFC 4787, REQ-3a).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortRange {
    /// 0 to 1023.
    WellKnown,
    /// 1024 to 65535.
    Other,
}

impl PortRange {
    /// Returns the range of a port.
    pub(super) const fn of(port: u16) -> Self {
        if port < WELL_KNOWN_END {
            Self::WellKnown
        } else {
            Self::Other
        }
    }

    /// Returns true if a port from `first` to `last` is of this range.
    pub(super) const fn has_some_of(self, first: u16, last: u16) -> bool {
        match self {
            Self::WellKnown => first < WELL_KNOWN_END,
            Self::Other => last >= WELL_KNOWN_END,
        }
    }

    /// Returns true if the blocks of a pool have ports of both ranges.
    pub(super) fn are_both_of(pool: &PortPool) -> bool {
        let ports = pool.blocks().saturating_mul(usize::from(pool.block_size));
        let end = usize::from(pool.first_port).saturating_add(ports);
        pool.first_port < WELL_KNOWN_END && end > usize::from(WELL_KNOWN_END)
    }
}

/// Free blocks. A block with ports of both ranges is among those of well-known ports.
#[derive(Debug)]
pub(super) struct FreeBlocks {
    /// Number of the first block without well-known ports.
    others_from: u16,
    well_known: Vec<u16>,
    others: Vec<u16>,
}

impl FreeBlocks {
    /// Creates the lists from blocks of a pool. They have space for these blocks, and get no others.
    pub(super) fn new(pool: &PortPool, blocks: impl Iterator<Item = u16>) -> Self {
        let well_known = WELL_KNOWN_END.saturating_sub(pool.first_port);
        let others_from = well_known.div_ceil(pool.block_size.max(1));
        let (well_known, others) = blocks.partition(|block| *block < others_from);
        Self {
            others_from,
            well_known,
            others,
        }
    }

    /// Returns the range of a block.
    pub(super) const fn range_of(&self, block: u16) -> PortRange {
        if block < self.others_from {
            PortRange::WellKnown
        } else {
            PortRange::Other
        }
    }

    fn list_of(&mut self, block: u16) -> &mut Vec<u16> {
        match self.range_of(block) {
            PortRange::WellKnown => &mut self.well_known,
            PortRange::Other => &mut self.others,
        }
    }

    /// Returns the number of blocks of a range, or of all.
    pub(super) fn count(&self, range: Option<PortRange>) -> usize {
        match range {
            Some(PortRange::WellKnown) => self.well_known.len(),
            Some(PortRange::Other) => self.others.len(),
            None => self.well_known.len().saturating_add(self.others.len()),
        }
    }

    /// Returns true if a block is one of them.
    pub(super) fn contains(&self, block: u16) -> bool {
        self.well_known.contains(&block) || self.others.contains(&block)
    }

    /// Adds a block.
    pub(super) fn push(&mut self, block: u16) {
        self.list_of(block).push(block);
    }

    /// Removes a block. Returns false if it is not there.
    pub(super) fn remove(&mut self, block: u16) -> bool {
        let list = self.list_of(block);
        let place = list.iter().position(|one| *one == block);
        place.map(|place| list.swap_remove(place)).is_some()
    }

    /// Removes the block at a place below the [`count`](Self::count) of a range, or of all, and returns it.
    pub(super) fn take_at(&mut self, range: Option<PortRange>, place: usize) -> Option<u16> {
        let (list, place) = match range {
            Some(PortRange::WellKnown) => (&mut self.well_known, place),
            Some(PortRange::Other) => (&mut self.others, place),
            None => match place.checked_sub(self.others.len()) {
                None => (&mut self.others, place),
                Some(behind) => (&mut self.well_known, behind),
            },
        };
        (place < list.len()).then(|| list.swap_remove(place))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;

    use super::super::settings::HoldDown;
    use super::*;

    fn pool(first_port: u16, last_port: u16, block_size: u16) -> PortPool {
        PortPool {
            addresses: vec![Ipv4Addr::new(198, 51, 100, 1)],
            first_port,
            last_port,
            block_size,
            blocks_per_host: 1,
            deterministic: Vec::new(),
            hold_down: HoldDown::default(),
        }
    }

    #[test]
    fn a_pool_has_both_ranges_if_its_blocks_do() {
        for (first, last, size, expected) in [
            (1, 65_535, 512, true),
            (1023, 1024, 1, true),
            (1023, 1024, 2, true),
            (1024, 65_535, 512, false),
            (1, 1023, 31, false),
            // The last port fills no block.
            (1022, 1024, 2, false),
        ] {
            let pool = pool(first, last, size);
            assert_eq!(PortRange::are_both_of(&pool), expected, "{first} {last}");
        }
    }

    #[test]
    fn each_block_is_taken_once_by_its_range_or_by_none() {
        let pool = pool(1000, 1063, 16);
        let all = || FreeBlocks::new(&pool, 0..4);
        // 1000 to 1015, and 1016 to 1031.
        let mut free = all();
        assert_eq!(free.count(Some(PortRange::WellKnown)), 2);
        assert_eq!(free.count(Some(PortRange::Other)), 2);
        assert_eq!(free.range_of(1), PortRange::WellKnown);
        assert_eq!(free.range_of(2), PortRange::Other);
        assert_eq!(free.take_at(Some(PortRange::WellKnown), 1), Some(1));
        assert_eq!(free.take_at(Some(PortRange::WellKnown), 1), None);
        assert_eq!(free.take_at(Some(PortRange::Other), 0), Some(2));
        assert!(free.contains(0) && !free.contains(1) && !free.contains(2));
        free.push(1);
        assert!(free.remove(1) && !free.remove(1));
        assert!(free.remove(3) && free.remove(0));
        assert_eq!((free.count(None), free.take_at(None, 0)), (0, None));
        for place in 0..4 {
            let mut free = all();
            let mut taken: BTreeSet<u16> = free.take_at(None, place).into_iter().collect();
            while let Some(block) = free.take_at(None, 0) {
                taken.insert(block);
            }
            let expected: BTreeSet<u16> = (0..4).collect();
            assert_eq!(taken, expected, "{place}");
        }
    }
}
