// SPDX-License-Identifier: Apache-2.0
//! Kernel neighbours and their changes (rtnetlink(7), RTM_NEWNEIGH; linux/neighbour.h).
//!
//! Only neighbours in the states permanent and reachable are relevant. The kernel is still resolving or doubting all others, and the router
//! resolves those better itself.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use quietwire_packet::MacAddress;

use super::dump::Dumps;
use super::netlink::{Kind, NetlinkEvent, NetlinkSocket, attributes};

/// RTNLGRP_NEIGH (linux/rtnetlink.h).
const GROUPS: [u32; 1] = [3];
/// Types of messages (linux/rtnetlink.h).
const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
/// One dump has the neighbours of all families.
const ALL: [(); 1] = [()];

/// Interface index of the kernel, and an address on its link.
type Key = (u32, IpAddr);

/// A neighbour that the kernel has confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelNeighbour {
    pub(crate) mac: MacAddress,
    /// Configured in the kernel, and never probed.
    pub(crate) is_permanent: bool,
}

/// A change of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NeighbourEvent {
    /// Interface index of the kernel.
    pub(crate) index: u32,
    pub(crate) address: IpAddr,
    /// `None` if the kernel no longer confirms the neighbour, or has removed it.
    pub(crate) neighbour: Option<KernelNeighbour>,
}

/// Follower of the neighbours on kernel interfaces.
pub(crate) struct NeighbourMonitor {
    line: NetlinkSocket,
    indexes: BTreeSet<u32>,
    known: BTreeMap<Key, KernelNeighbour>,
    /// Neighbours named by the latest dump, and by notifications since its request.
    named: BTreeSet<Key>,
    /// Neighbours with notifications since the request of the running dump. They are newer than it, whichever arrives first.
    notified: BTreeSet<Key>,
    dumps: Dumps<()>,
}

impl std::fmt::Debug for NeighbourMonitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (indexes, known) = (&self.indexes, self.known.len());
        write!(f, "NeighbourMonitor({indexes:?}, {known} neighbours)")
    }
}

impl NeighbourMonitor {
    /// Follows the neighbours on these interface indexes.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn new(indexes: BTreeSet<u32>) -> std::io::Result<Self> {
        Ok(Self {
            line: NetlinkSocket::new(&GROUPS)?,
            indexes,
            known: BTreeMap::new(),
            named: BTreeSet::new(),
            notified: BTreeSet::new(),
            dumps: Dumps::of("neighbours", &ALL),
        })
    }

    /// Returns all confirmed neighbours known so far.
    pub(crate) fn all(&self) -> impl Iterator<Item = NeighbourEvent> + '_ {
        self.known
            .iter()
            .map(|((index, address), neighbour)| NeighbourEvent {
                index: *index,
                address: *address,
                neighbour: Some(*neighbour),
            })
    }

    fn ask_for_all(&mut self) {
        self.dumps.restart(&ALL);
    }

    /// Reads pending messages, up to a limit, and reports the changes.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn turn(
        &mut self,
        now: Instant,
        report: &mut dyn FnMut(NeighbourEvent),
    ) -> std::io::Result<()> {
        self.dumps.set_time(now);
        for event in self.line.receive_events()? {
            self.handle(event, report);
        }
        let line = &mut self.line;
        if line.is_congested() {
            return Ok(());
        }
        let (named, notified) = (&mut self.named, &mut self.notified);
        self.dumps.ask(|()| {
            named.clear();
            notified.clear();
            // AF_UNSPEC: all families.
            let question = NeighbourMessage::default();
            line.ask(RouteNetlinkMessage::GetNeighbour(question))
        })
    }

    pub(super) fn handle(&mut self, event: NetlinkEvent, report: &mut dyn FnMut(NeighbourEvent)) {
        match event {
            NetlinkEvent::Message(kind, RouteNetlinkMessage::NewNeighbour(message)) => {
                if let Some((key, neighbour)) = self.parse(&message)
                    && !self.is_superseded(kind, key)
                {
                    self.note(key, neighbour, report);
                }
            }
            NetlinkEvent::Message(kind, RouteNetlinkMessage::DelNeighbour(message)) => {
                if let Some((key, _)) = self.parse(&message)
                    && !self.is_superseded(kind, key)
                {
                    self.note(key, None, report);
                }
            }
            NetlinkEvent::Message(..) => {}
            NetlinkEvent::Unparsed(kind, message_type @ (RTM_NEWNEIGH | RTM_DELNEIGH), octets) => {
                let Some(key) = key_of(&octets) else {
                    return;
                };
                if self.is_superseded(kind, key) {
                    return;
                }
                if message_type == RTM_DELNEIGH {
                    self.note(key, None, report);
                } else {
                    // A neighbour that is there is not withdrawn because the library cannot parse it.
                    self.named.insert(key);
                }
            }
            NetlinkEvent::Unparsed(..) => {}
            NetlinkEvent::Dump(event) => {
                if let Some(()) = self.dumps.handle(event) {
                    self.withdraw_unnamed(report);
                }
            }
            NetlinkEvent::Missed => {
                tracing::debug!(
                    "notifications of kernel neighbours were lost, requesting a new dump"
                );
                self.ask_for_all();
            }
        }
    }

    /// Returns true for a part of a dump about a neighbour of which there was a notification since the dump was requested. A
    /// notification marks the running dump as interrupted: the kernel counts the entries of a bucket that it has dumped (`neigh_dump_table`
    /// in net/core/neighbour.c), although some of them may be gone.
    fn is_superseded(&mut self, kind: Kind, key: Key) -> bool {
        if kind == Kind::Notification {
            if self.dumps.is_running() {
                self.notified.insert(key);
                self.dumps.interrupt(());
            }
            return false;
        }
        self.notified.contains(&key)
    }

    fn note(
        &mut self,
        key: Key,
        neighbour: Option<KernelNeighbour>,
        report: &mut dyn FnMut(NeighbourEvent),
    ) {
        let (has_changed, (index, address)) = match neighbour {
            Some(neighbour) => {
                self.named.insert(key);
                (self.known.insert(key, neighbour) != Some(neighbour), key)
            }
            None => {
                self.named.remove(&key);
                (self.known.remove(&key).is_some(), key)
            }
        };
        if has_changed {
            report(NeighbourEvent {
                index,
                address,
                neighbour,
            });
        }
    }

    /// Withdraws the neighbours that a complete dump did not name.
    fn withdraw_unnamed(&mut self, report: &mut dyn FnMut(NeighbourEvent)) {
        let unnamed = self.known.keys().filter(|key| !self.named.contains(key));
        let gone: Vec<Key> = unnamed.copied().collect();
        for key in gone {
            self.note(key, None, report);
        }
    }

    /// Returns a neighbour on a followed link, and its confirmed state.
    fn parse(&self, message: &NeighbourMessage) -> Option<(Key, Option<KernelNeighbour>)> {
        let index = message.header.ifindex;
        if !self.indexes.contains(&index) {
            return None;
        }
        let (mut address, mut mac) = (None, None);
        for attribute in &message.attributes {
            match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(one)) => {
                    address = Some(IpAddr::V4(*one));
                }
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(one)) => {
                    address = Some(IpAddr::V6(*one));
                }
                NeighbourAttribute::LinkLayerAddress(octets) => {
                    mac = octets.first_chunk().copied().map(MacAddress);
                }
                _ => {}
            }
        }
        let is_permanent = match message.header.state {
            NeighbourState::Permanent => Some(true),
            NeighbourState::Reachable => Some(false),
            _ => None,
        };
        let neighbour = is_permanent
            .zip(mac)
            .map(|(is_permanent, mac)| KernelNeighbour { mac, is_permanent });
        Some(((index, address?), neighbour))
    }
}

/// Returns the identity of a neighbour from the octets of its message (struct ndmsg of linux/neighbour.h).
fn key_of(octets: &[u8]) -> Option<Key> {
    const FIXED: usize = 12;
    const INDEX: usize = 4;
    const NDA_DST: u16 = 1;
    let index = u32::from_ne_bytes(*octets.get(INDEX..FIXED)?.first_chunk()?);
    let (_, value) = attributes(octets.get(FIXED..)?).find(|(kind, _)| *kind == NDA_DST)?;
    let address = match value.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(value).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(value).ok()?),
    };
    Some((index, address))
}
