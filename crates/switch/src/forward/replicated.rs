// SPDX-License-Identifier: Apache-2.0
//! Changes of tables on their way to a standby, and from the active switch: a forwarding thread reads and applies them in parts, each in a
//! few tens of microseconds.

use quietwire_tables::changes::{Applied, ApplyError, Replicate};

/// Changes that one order applies.
const CHANGES_AN_ORDER: usize = 32;

/// Entries that a thread reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    /// Changes since the last time.
    Changes,
    /// All entries, from a position on.
    All,
    /// Nothing: the thread notes no further changes.
    End,
}

/// Result of applying changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ApplyCounts {
    /// Entries that are new.
    pub(crate) added: u64,
    /// Entries with new contents.
    pub(crate) updated: u64,
    /// Entries removed.
    pub(crate) removed: u64,
    /// Entries without space.
    pub(crate) full: u64,
    /// Entries that this switch cannot have.
    pub(crate) invalid: u64,
}

/// Entries on their way to a standby.
#[derive(Debug)]
pub(crate) struct Outgoing<T> {
    pub(crate) take: Take,
    /// The forwarding thread never exceeds its capacity.
    pub(crate) list: Vec<T>,
    /// Changes that were lost since the last time.
    pub(crate) lost: u64,
}

/// Entries on their way to a standby or from the active switch.
#[derive(Debug)]
pub(crate) enum Replicated<T> {
    /// To a standby.
    Outgoing(Outgoing<T>),
    /// From the active switch, and what became of them.
    Incoming(Vec<T>, ApplyCounts),
}

impl ApplyCounts {
    /// Adds those of another thread.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "counts of 64 bits do not overflow"
    )]
    pub(crate) const fn add(&mut self, other: &Self) {
        self.added += other.added;
        self.updated += other.updated;
        self.removed += other.removed;
        self.full += other.full;
        self.invalid += other.invalid;
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "counts of 64 bits do not overflow"
    )]
    const fn count(&mut self, result: Result<Applied, ApplyError>) {
        match result {
            Ok(Applied::Added) => self.added += 1,
            Ok(Applied::Updated) => self.updated += 1,
            Ok(Applied::Removed) => self.removed += 1,
            Ok(Applied::Absent) => {}
            Err(ApplyError::Full) => self.full += 1,
            Err(ApplyError::Invalid) => self.invalid += 1,
        }
    }
}

impl<T> Outgoing<T> {
    /// Returns a request with space for this number of entries.
    pub(crate) fn new(take: Take, space: usize) -> Self {
        Self {
            take,
            list: Vec::with_capacity(space),
            lost: 0,
        }
    }
}

impl<T> Replicated<T> {
    /// Returns true if a list has no space for further entries.
    pub(crate) const fn is_full(&self) -> bool {
        match self {
            Self::Outgoing(out) => out.list.len() >= out.list.capacity(),
            Self::Incoming(..) => false,
        }
    }

    /// Executes the part from position `from` on: reads at most `budget` entries, or applies some. Returns the position of the next part;
    /// `None` at the end. Allocates nothing.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "counts of 64 bits do not overflow"
    )]
    pub(super) fn run(
        &mut self,
        table: &mut impl Replicate<Change = T>,
        (from, budget): (u32, usize),
        now_s: u32,
    ) -> Option<u32> {
        match self {
            Self::Outgoing(out) => {
                let limits = (out.list.capacity(), budget);
                match out.take {
                    Take::All => table.share_into(from, limits, &mut out.list),
                    Take::Changes => {
                        let has_more = table.take_changes(limits, &mut out.list);
                        out.lost += table.take_lost_changes();
                        has_more.then_some(0)
                    }
                    Take::End => {
                        table.end_changes();
                        None
                    }
                }
            }
            Self::Incoming(list, counts) => {
                let start = from as usize;
                let part = list.get(start..).unwrap_or_default();
                for change in part.iter().take(CHANGES_AN_ORDER) {
                    counts.count(table.apply(change, now_s));
                }
                let next = start.saturating_add(CHANGES_AN_ORDER);
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
    use quietwire_tables::connections::{
        ConnectionChange, Packet, SAVED_OCTETS, SavedConnection, Settings, Tracker,
    };

    use super::*;

    /// Returns a datagram between port 53 of 10.0.0.2 and this port of 10.0.0.1.
    fn packet(port: u16, is_answer: bool) -> Packet {
        let (hosts, ports) = match is_answer {
            false => ([10, 0, 0, 1, 10, 0, 0, 2], [port, 53]),
            true => ([10, 0, 0, 2, 10, 0, 0, 1], [53, port]),
        };
        let mut octets = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        octets.extend(hosts);
        octets.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        octets.extend([0, 8, 0, 0]);
        Packet::read(0x0800, &octets, octets.len(), 0)
    }

    /// Runs all parts. Returns their number.
    fn run<T>(replicated: &mut Replicated<T>, table: &mut impl Replicate<Change = T>) -> usize {
        let (mut from, mut parts) = (Some(0), 0);
        while let Some(start) = from {
            from = replicated.run(table, (start, 64), 0);
            parts += 1;
        }
        parts
    }

    fn outgoing(take: Take) -> Replicated<ConnectionChange> {
        Replicated::Outgoing(Outgoing::new(take, 200))
    }

    fn list_of(replicated: Replicated<ConnectionChange>) -> (Vec<ConnectionChange>, u64) {
        match replicated {
            Replicated::Outgoing(out) => (out.list, out.lost),
            Replicated::Incoming(..) => panic!("another direction"),
        }
    }

    #[test]
    fn connections_go_to_a_standby_as_changes_and_as_a_whole() {
        let mut first = Tracker::new(&Settings::of_size(256)).unwrap();
        first.allow_changes();
        let mut begin = outgoing(Take::Changes);
        assert_eq!(run(&mut begin, &mut first), 1);
        assert_eq!(list_of(begin), (Vec::new(), 1));
        for port in 1..=100 {
            first.commit(&packet(port, false), 0).unwrap();
            first.commit(&packet(port, true), 0).unwrap();
        }
        let mut changes = outgoing(Take::Changes);
        assert_eq!(run(&mut changes, &mut first), 2);
        let (changes, lost) = list_of(changes);
        assert_eq!((changes.len(), lost), (100, 0));
        let mut whole = outgoing(Take::All);
        assert_eq!(run(&mut whole, &mut first), 256 / 64);
        assert_eq!(list_of(whole).0.len(), 100);
        let mut list = changes.clone();
        let invalid = SavedConnection::from_octets([0xff; SAVED_OCTETS]);
        list.push(ConnectionChange::Present(invalid));
        list.push(changes[0]);
        let mut second = Tracker::new(&Settings::of_size(99)).unwrap();
        let mut incoming = Replicated::Incoming(list, ApplyCounts::default());
        assert_eq!(run(&mut incoming, &mut second), 102usize.div_ceil(32));
        let Replicated::Incoming(_, counts) = incoming else {
            panic!("another direction");
        };
        let expected = ApplyCounts {
            added: 99,
            updated: 1,
            removed: 0,
            full: 1,
            invalid: 1,
        };
        assert_eq!((counts, second.len()), (expected, 99));
        assert_eq!(run(&mut outgoing(Take::End), &mut first), 1);
    }
}
