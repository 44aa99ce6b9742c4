// SPDX-License-Identifier: Apache-2.0
//! Connections that outlive a restart: a forwarding thread saves and restores them in parts, each in a few tens of microseconds.

use quietwire_tables::connections::{ConnectionChange, RestoreError, SavedConnection, Tracker};

use super::replicated::Replicated;

/// Connections that one order restores.
const RECORDS_AN_ORDER: usize = 32;

/// Result of restoring connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RestoreCounts {
    /// Restored.
    pub(crate) restored: u64,
    /// Already there.
    pub(crate) known: u64,
    /// Without space.
    pub(crate) full: u64,
    /// None of a connection of this switch.
    pub(crate) invalid: u64,
}

/// Connections on their way from a tracker, or to it.
#[derive(Debug)]
pub(crate) enum Transfer {
    /// None.
    None,
    /// Saved connections. The forwarding thread never exceeds the capacity of the list.
    Save(Vec<SavedConnection>),
    /// Connections to restore, and what became of them.
    Restore(Vec<SavedConnection>, RestoreCounts),
    /// Connections of an active switch and its standby.
    Replicated(Replicated<ConnectionChange>),
}

impl RestoreCounts {
    /// Adds those of another thread.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "counts of 64 bits do not overflow"
    )]
    pub(crate) const fn add(&mut self, other: &Self) {
        self.restored += other.restored;
        self.known += other.known;
        self.full += other.full;
        self.invalid += other.invalid;
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "counts of 64 bits do not overflow"
    )]
    fn count(&mut self, result: Result<(), RestoreError>) {
        let counter = match result {
            Ok(()) => &mut self.restored,
            Err(RestoreError::Known) => &mut self.known,
            Err(RestoreError::Full) => &mut self.full,
            Err(RestoreError::Invalid | RestoreError::NoZone) => &mut self.invalid,
        };
        *counter += 1;
    }
}

impl Transfer {
    /// Executes the part from position `from` on: of the table, at most `budget` entries; of the list, some records. Returns the position
    /// of the next part; `None` at the end. Allocates nothing.
    pub(super) fn run(
        &mut self,
        tracker: &mut Tracker,
        (from, budget): (u32, usize),
        now_s: u32,
    ) -> Option<u32> {
        match self {
            Self::None => None,
            Self::Save(list) => {
                let limits = (list.capacity(), budget);
                tracker.save_into(from, limits, list)
            }
            Self::Replicated(replicated) => replicated.run(tracker, (from, budget), now_s),
            Self::Restore(list, counts) => {
                let start = from as usize;
                let part = list.get(start..).unwrap_or_default();
                for saved in part.iter().take(RECORDS_AN_ORDER) {
                    counts.count(tracker.restore(saved, now_s));
                }
                let next = start.saturating_add(RECORDS_AN_ORDER);
                if next < list.len() {
                    u32::try_from(next).ok()
                } else {
                    None
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use quietwire_tables::connections::{Packet, SAVED_OCTETS, Settings};

    use super::*;

    /// Returns a datagram from 10.0.0.1, from this port to port 53 of 10.0.0.2.
    fn packet(port: u16) -> Packet {
        let mut octets = vec![
            0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        octets.extend(port.to_be_bytes());
        octets.extend([0, 53, 0, 8, 0, 0]);
        Packet::read(0x0800, &octets, octets.len(), 0)
    }

    /// Runs all parts of a transfer. Returns their number.
    fn run(transfer: &mut Transfer, tracker: &mut Tracker) -> usize {
        let (mut from, mut parts) = (Some(0), 0);
        while let Some(start) = from {
            from = transfer.run(tracker, (start, 64), 0);
            parts += 1;
        }
        parts
    }

    #[test]
    fn connections_go_from_one_tracker_to_another_in_parts() {
        let mut first = Tracker::new(&Settings::of_size(256)).unwrap();
        for port in 1..=100 {
            first.commit(&packet(port), 0).unwrap();
        }
        let mut save = Transfer::Save(Vec::with_capacity(200));
        assert_eq!(run(&mut save, &mut first), 256 / 64);
        let Transfer::Save(mut list) = save else {
            panic!("another transfer");
        };
        assert_eq!(list.len(), 100);
        list.push(SavedConnection::from_octets([0xff; SAVED_OCTETS]));
        let mut second = Tracker::new(&Settings::of_size(99)).unwrap();
        second.commit(&packet(1), 0).unwrap();
        let mut restore = Transfer::Restore(list, RestoreCounts::default());
        assert_eq!(run(&mut restore, &mut second), 101usize.div_ceil(32));
        let Transfer::Restore(_, counts) = restore else {
            panic!("another transfer");
        };
        let expected = RestoreCounts {
            restored: 98,
            known: 1,
            full: 1,
            invalid: 1,
        };
        assert_eq!((counts, second.len()), (expected, 99));
    }
}
