// SPDX-License-Identifier: Apache-2.0
//! The kernel's routes as they are and as they change (rtnetlink(7)).
//!
//! The whole table is asked for first, and again whenever the kernel says that it could not tell all changes (ENOBUFS):
//! what is not in the answer then is gone. Changes that come in between are taken as they come, as they are newer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::netlink::{Heard, Line};

/// Groups of changes (linux/rtnetlink.h): RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_IFADDR,
/// RTNLGRP_IPV6_ROUTE. IPv4 routes that go with a link or an address are not told of one by one.
const GROUPS: [u32; 5] = [1, 5, 7, 9, 11];
/// Where a route of the kernel's leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KernelTarget {
    /// Gateway, number of the kernel's interface, weight.
    Via(Vec<(Option<IpAddr>, u32, u8)>),
    Blackhole,
    Unreachable,
    Prohibit,
}

/// Something has changed: what a prefix leads to now, or that it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) table: u32,
    pub(crate) prefix: IpNet,
    /// With its metric.
    pub(crate) route: Option<(u32, KernelTarget)>,
}

/// A route to a prefix, told apart by its metric.
type Key = (u32, IpNet, u32);

/// Follows some tables.
pub(crate) struct Follower {
    line: Line,
    tables: BTreeSet<u32>,
    known: BTreeMap<Key, KernelTarget>,
    /// What the answer that is under way has named; the families that are still to be asked for.
    named: BTreeSet<Key>,
    asking: Vec<AddressFamily>,
    answering: Option<AddressFamily>,
    /// The answer under way is to an old question.
    is_stale: bool,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Follower({:?}, {} routes)",
            self.tables,
            self.known.len()
        )
    }
}

impl Follower {
    /// Follows the routes of tables by their numbers (254 is the main one).
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn new(tables: BTreeSet<u32>) -> std::io::Result<Self> {
        let mut follower = Self {
            line: Line::new(&GROUPS)?,
            tables,
            known: BTreeMap::new(),
            named: BTreeSet::new(),
            asking: Vec::new(),
            answering: None,
            is_stale: false,
        };
        follower.ask_for_all();
        Ok(follower)
    }

    /// Tells everything once more, and asks for all of it again: taps are other ones now.
    pub(crate) fn begin_anew(&mut self, tell: &mut dyn FnMut(Event)) {
        let mut told = None;
        for key in self.known.keys() {
            if told != Some((key.0, key.1)) {
                told = Some((key.0, key.1));
                self.tell_best(*key, tell);
            }
        }
        self.ask_for_all();
    }

    fn ask_for_all(&mut self) {
        self.named.clear();
        self.asking = vec![AddressFamily::Inet6, AddressFamily::Inet];
        self.is_stale = self.answering.is_some();
    }

    /// Asks for the next family, unless an answer is under way.
    fn ask(&mut self) -> std::io::Result<()> {
        if self.answering.is_some() {
            return Ok(());
        }
        let Some(family) = self.asking.pop() else {
            return Ok(());
        };
        let mut route = RouteMessage::default();
        route.header.address_family = family;
        self.line.ask(RouteNetlinkMessage::GetRoute(route))?;
        self.answering = Some(family);
        Ok(())
    }

    /// Reads what there is, up to a bound, and tells what has changed.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn turn(&mut self, tell: &mut dyn FnMut(Event)) -> std::io::Result<()> {
        self.ask()?;
        for heard in self.line.hear()? {
            match heard {
                Heard::Message(message) => self.take(message, tell),
                Heard::Done => self.answered(tell)?,
                Heard::Refused(code) => {
                    tracing::debug!("asking for the kernel's routes: error {code}");
                    // A question that was not answered is asked anew.
                    self.answering = None;
                    self.ask_for_all();
                }
                Heard::Missed => {
                    tracing::debug!("changes of the kernel's routes were missed; asking anew");
                    self.ask_for_all();
                    self.ask()?;
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, message: RouteNetlinkMessage, tell: &mut dyn FnMut(Event)) {
        match message {
            RouteNetlinkMessage::NewRoute(route) => {
                if let Some((key, target)) = self.understand(&route) {
                    self.named.insert(key);
                    if self.known.insert(key, target.clone()) != Some(target) {
                        self.tell_best(key, tell);
                    }
                }
            }
            RouteNetlinkMessage::DelRoute(route) => {
                if let Some((key, _)) = self.understand(&route) {
                    self.named.remove(&key);
                    if self.known.remove(&key).is_some() {
                        self.tell_best(key, tell);
                    }
                }
            }
            RouteNetlinkMessage::NewLink(_)
            | RouteNetlinkMessage::DelLink(_)
            | RouteNetlinkMessage::DelAddress(_) => self.ask_for_all(),
            _ => {}
        }
    }

    /// All routes of a family were named.
    fn answered(&mut self, tell: &mut dyn FnMut(Event)) -> std::io::Result<()> {
        // One that was begun before all was asked for anew may lack what `named` lacks.
        let Some(family) = self.answering.take().filter(|_| !self.is_stale) else {
            self.is_stale = false;
            return self.ask();
        };
        let is_v4 = family == AddressFamily::Inet;
        let gone: Vec<Key> = self
            .known
            .keys()
            .filter(|key| key.1.addr().is_ipv4() == is_v4 && !self.named.contains(key))
            .copied()
            .collect();
        for key in gone {
            self.known.remove(&key);
            self.tell_best(key, tell);
        }
        self.ask()
    }

    /// Tells the route with the lowest metric that there is now.
    fn tell_best(&self, (table, prefix, _): Key, tell: &mut dyn FnMut(Event)) {
        let all = (table, prefix, 0)..=(table, prefix, u32::MAX);
        let best = self.known.range(all).next();
        tell(Event {
            table,
            prefix,
            route: best.map(|((_, _, metric), target)| (*metric, target.clone())),
        });
    }

    /// A route that is of interest: in a table that is followed, made by somebody, and leading somewhere.
    fn understand(&self, message: &RouteMessage) -> Option<(Key, KernelTarget)> {
        let RouteHeader {
            table,
            protocol,
            kind,
            flags,
            destination_prefix_length,
            ..
        } = message.header;
        let mut table = u32::from(table);
        let mut destination = match message.header.address_family {
            AddressFamily::Inet => IpAddr::from([0; 4]),
            AddressFamily::Inet6 => IpAddr::from([0; 16]),
            _ => return None,
        };
        let (mut metric, mut gateway, mut out, mut ways) = (0, None, None, Vec::new());
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Table(number) => table = *number,
                RouteAttribute::Destination(address) => destination = ip(address)?,
                RouteAttribute::Priority(priority) => metric = *priority,
                RouteAttribute::Gateway(address) => gateway = ip(address),
                RouteAttribute::Oif(index) => out = Some(*index),
                RouteAttribute::MultiPath(all) => {
                    ways = all
                        .iter()
                        .map(|one| {
                            let gateway =
                                one.attributes.iter().find_map(|attribute| match attribute {
                                    RouteAttribute::Gateway(address) => ip(address),
                                    _ => None,
                                });
                            // The kernel writes one less than the weight.
                            (gateway, one.interface_index, one.hops.saturating_add(1))
                        })
                        .collect();
                }
                _ => {}
            }
        }
        // What the kernel makes of its own addresses, the router has by itself.
        let is_own = protocol == RouteProtocol::Kernel || flags.contains(RouteFlags::Cloned);
        if !self.tables.contains(&table) || is_own {
            return None;
        }
        if let Some(out) = out {
            ways.push((gateway, out, 1));
        }
        let target = match kind {
            RouteType::Unicast if !ways.is_empty() => KernelTarget::Via(ways),
            RouteType::BlackHole => KernelTarget::Blackhole,
            RouteType::Unreachable => KernelTarget::Unreachable,
            RouteType::Prohibit => KernelTarget::Prohibit,
            _ => return None,
        };
        let prefix = IpNet::new(destination, destination_prefix_length).ok()?;
        Some(((table, prefix.trunc(), metric), target))
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}
