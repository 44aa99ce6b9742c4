// SPDX-License-Identifier: Apache-2.0
//! The kernel's neighbours as they are and as they change (rtnetlink(7), RTM_NEWNEIGH; linux/neighbour.h).
//!
//! Of interest are those that the kernel is sure of: set there (permanent), or heard of not long ago (reachable). The rest it
//! only asks for, or has its doubts about, and asking is something that the router does better by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use quietwire_packet::MacAddress;

use super::netlink::{Heard, Line};

/// RTNLGRP_NEIGH (linux/rtnetlink.h).
const GROUPS: [u32; 1] = [3];

/// The number of the kernel's interface, and an address on its link.
type Key = (u32, IpAddr);

/// What the kernel is sure of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelNeighbour {
    pub(crate) mac: MacAddress,
    /// Set there; it is never asked.
    pub(crate) is_permanent: bool,
}

/// Something has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NeighbourEvent {
    /// The number of the kernel's interface.
    pub(crate) index: u32,
    pub(crate) address: IpAddr,
    /// None when the kernel is not sure any more, or has forgotten it.
    pub(crate) neighbour: Option<KernelNeighbour>,
}

/// Follows the neighbours on some of the kernel's interfaces.
pub(crate) struct NeighbourFollower {
    line: Line,
    indexes: BTreeSet<u32>,
    known: BTreeMap<Key, KernelNeighbour>,
    /// What the answer that is under way has named.
    named: BTreeSet<Key>,
    is_to_ask: bool,
    is_answering: bool,
    /// The answer under way is to an old question.
    is_stale: bool,
}

impl std::fmt::Debug for NeighbourFollower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (indexes, known) = (&self.indexes, self.known.len());
        write!(f, "NeighbourFollower({indexes:?}, {known} neighbours)")
    }
}

impl NeighbourFollower {
    /// Follows the neighbours on interfaces by their numbers.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn new(indexes: BTreeSet<u32>) -> std::io::Result<Self> {
        Ok(Self {
            line: Line::new(&GROUPS)?,
            indexes,
            known: BTreeMap::new(),
            named: BTreeSet::new(),
            is_to_ask: true,
            is_answering: false,
            is_stale: false,
        })
    }

    /// All that the kernel is sure of, as far as it has been heard of.
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
            // Of no family: all of them.
            let question = NeighbourMessage::default();
            self.line.ask(RouteNetlinkMessage::GetNeighbour(question))?;
            (self.is_to_ask, self.is_answering) = (false, true);
        }
        Ok(())
    }

    /// Reads what there is, up to a bound, and tells what has changed.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn turn(&mut self, tell: &mut dyn FnMut(NeighbourEvent)) -> std::io::Result<()> {
        self.ask()?;
        for heard in self.line.hear()? {
            match heard {
                Heard::Message(RouteNetlinkMessage::NewNeighbour(message)) => {
                    if let Some((key, neighbour)) = self.understand(&message) {
                        self.note(key, neighbour, tell);
                    }
                }
                Heard::Message(RouteNetlinkMessage::DelNeighbour(message)) => {
                    if let Some((key, _)) = self.understand(&message) {
                        self.note(key, None, tell);
                    }
                }
                Heard::Message(_) => {}
                Heard::Done => self.answered(tell),
                Heard::Refused(code) => {
                    tracing::debug!("asking for the kernel's neighbours: error {code}");
                    self.is_answering = false;
                    self.ask_for_all();
                }
                Heard::Missed => {
                    tracing::debug!("changes of the kernel's neighbours were missed; asking anew");
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
        tell: &mut dyn FnMut(NeighbourEvent),
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
            tell(NeighbourEvent {
                index,
                address,
                neighbour,
            });
        }
    }

    /// All neighbours were named; what was not is gone.
    fn answered(&mut self, tell: &mut dyn FnMut(NeighbourEvent)) {
        self.is_answering = false;
        // One that was begun before all was asked for anew may lack what `named` lacks.
        if std::mem::take(&mut self.is_stale) {
            return;
        }
        let unnamed = self.known.keys().filter(|key| !self.named.contains(key));
        let gone: Vec<Key> = unnamed.copied().collect();
        for key in gone {
            self.note(key, None, tell);
        }
    }

    /// A neighbour on a link that is followed, and what the kernel is sure of.
    fn understand(&self, message: &NeighbourMessage) -> Option<(Key, Option<KernelNeighbour>)> {
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
