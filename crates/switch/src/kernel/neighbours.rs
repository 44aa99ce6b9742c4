// SPDX-License-Identifier: Apache-2.0
//! Kernel neighbours and their changes (rtnetlink(7), RTM_NEWNEIGH; linux/neighbour.h).
//!
//! Only neighbours in the states permanent and reachable are relevant. The kernel is still resolving or doubting all others, and the router
//! resolves those better itself.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use quietwire_packet::MacAddress;

use super::netlink::{NetlinkEvent, NetlinkSocket};

/// RTNLGRP_NEIGH (linux/rtnetlink.h).
const GROUPS: [u32; 1] = [3];

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
    /// Neighbours named by the dump in progress.
    named: BTreeSet<Key>,
    is_to_ask: bool,
    is_answering: bool,
    /// The dump in progress is outdated.
    is_stale: bool,
}

impl std::fmt::Debug for NeighbourMonitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (indexes, known) = (&self.indexes, self.known.len());
        write!(f, "NeighbourFollower({indexes:?}, {known} neighbours)")
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
            is_to_ask: true,
            is_answering: false,
            is_stale: false,
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
        self.named.clear();
        self.is_to_ask = true;
        self.is_stale = self.is_answering;
    }

    fn ask(&mut self) -> std::io::Result<()> {
        if self.is_to_ask && !self.is_answering {
            // AF_UNSPEC: all families.
            let question = NeighbourMessage::default();
            self.line.ask(RouteNetlinkMessage::GetNeighbour(question))?;
            (self.is_to_ask, self.is_answering) = (false, true);
        }
        Ok(())
    }

    /// Reads pending messages, up to a limit, and reports the changes.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn turn(&mut self, report: &mut dyn FnMut(NeighbourEvent)) -> std::io::Result<()> {
        self.ask()?;
        for received in self.line.receive_events()? {
            match received {
                NetlinkEvent::Message(RouteNetlinkMessage::NewNeighbour(message)) => {
                    if let Some((key, neighbour)) = self.parse(&message) {
                        self.note(key, neighbour, report);
                    }
                }
                NetlinkEvent::Message(RouteNetlinkMessage::DelNeighbour(message)) => {
                    if let Some((key, _)) = self.parse(&message) {
                        self.note(key, None, report);
                    }
                }
                NetlinkEvent::Message(_) => {}
                NetlinkEvent::Done => self.answered(report),
                NetlinkEvent::Refused(code) => {
                    tracing::debug!("dump of the kernel's neighbours failed: error {code}");
                    self.is_answering = false;
                    self.ask_for_all();
                }
                NetlinkEvent::Missed => {
                    tracing::debug!(
                        "notifications of kernel neighbours were lost, requesting a new dump"
                    );
                    self.ask_for_all();
                }
            }
        }
        Ok(())
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

    /// Completes the dump; neighbours that it did not name are gone.
    fn answered(&mut self, report: &mut dyn FnMut(NeighbourEvent)) {
        self.is_answering = false;
        // A dump that started before the latest request may lack neighbours that `named` lacks.
        if std::mem::take(&mut self.is_stale) {
            return;
        }
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
