// SPDX-License-Identifier: Apache-2.0
//! Kernel routes and their changes (rtnetlink(7)).
//!
//! The follower dumps the whole table first, and again whenever the kernel reports lost notifications (ENOBUFS). Routes missing from a
//! complete dump are gone; one that the kernel marks as interrupted is requested again. Notifications during a dump are newer than the
//! dump, whichever arrives first: what a dump says of their routes is ignored. A dump of IPv6 routes that change meanwhile counts as
//! interrupted: after a change the kernel starts from the root and skips as many nodes as it had dumped (`fib6_dump_table` in
//! net/ipv6/ip6_fib.c), although some of them may be gone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

#[cfg(test)]
mod faults;
#[cfg(test)]
mod tests;

use ipnet::IpNet;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::dump::Dumps;
use super::netlink::{Kind, NetlinkEvent, NetlinkSocket, attributes};

/// Notification groups (linux/rtnetlink.h): RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_ROUTE.
/// The kernel does not report each IPv4 route that is removed with a link or an address.
const GROUPS: [u32; 5] = [1, 5, 7, 9, 11];
/// Types of messages (linux/rtnetlink.h).
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_DELADDR: u16 = 21;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
/// Families to dump; the last is dumped first.
const FAMILIES: [AddressFamily; 2] = [AddressFamily::Inet6, AddressFamily::Inet];

/// Target of a kernel route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KernelTarget {
    /// Next hops: gateway, interface index of the kernel, weight.
    Via(Vec<(Option<IpAddr>, u32, u8)>),
    Blackhole,
    Unreachable,
    Prohibit,
}

/// A change: the new target of a prefix, or its removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) table: u32,
    pub(crate) prefix: IpNet,
    /// The route and its metric.
    pub(crate) route: Option<(u32, KernelTarget)>,
}

/// Identity of a route: table, prefix and metric.
type Key = (u32, IpNet, u32);

/// Follower of kernel routing tables.
pub(crate) struct RouteMonitor {
    line: NetlinkSocket,
    tables: BTreeSet<u32>,
    known: BTreeMap<Key, KernelTarget>,
    /// Routes named by the latest dump of their family, and by notifications since its request.
    named: BTreeSet<Key>,
    /// Routes with notifications since the request of the running dump.
    notified: BTreeSet<Key>,
    dumps: Dumps<AddressFamily>,
}

impl std::fmt::Debug for RouteMonitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "RouteMonitor({:?}, {} routes)",
            self.tables,
            self.known.len()
        )
    }
}

impl RouteMonitor {
    /// Follows the routes of these tables (254 is the main table).
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn new(tables: BTreeSet<u32>) -> std::io::Result<Self> {
        Ok(Self::over(NetlinkSocket::new(&GROUPS)?, tables))
    }

    /// Follows the routes of these tables through an open socket.
    fn over(line: NetlinkSocket, tables: BTreeSet<u32>) -> Self {
        Self {
            line,
            tables,
            known: BTreeMap::new(),
            named: BTreeSet::new(),
            notified: BTreeSet::new(),
            dumps: Dumps::of("routes", &FAMILIES),
        }
    }

    /// Reports all routes again and requests a new dump, after taps have changed.
    pub(crate) fn resynchronise(&mut self, report: &mut dyn FnMut(Event)) {
        let mut reported = None;
        for key in self.known.keys() {
            if reported != Some((key.0, key.1)) {
                reported = Some((key.0, key.1));
                self.report_best(*key, report);
            }
        }
        self.ask_for_all();
    }

    fn ask_for_all(&mut self) {
        self.dumps.restart(&FAMILIES);
    }

    /// Reads pending messages, up to a limit, and reports the changes.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn turn(
        &mut self,
        now: Instant,
        report: &mut dyn FnMut(Event),
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
        self.dumps.ask(|family| {
            forget(named, notified, family);
            let mut route = RouteMessage::default();
            route.header.address_family = family;
            line.ask(RouteNetlinkMessage::GetRoute(route))
        })
    }

    pub(super) fn handle(&mut self, event: NetlinkEvent, report: &mut dyn FnMut(Event)) {
        match event {
            NetlinkEvent::Message(kind, message) => self.take(kind, message, report),
            NetlinkEvent::Unparsed(kind, message_type, octets) => {
                self.take_unparsed(kind, message_type, &octets, report);
            }
            NetlinkEvent::Dump(event) => {
                if let Some(family) = self.dumps.handle(event) {
                    self.withdraw_unnamed(family, report);
                }
            }
            NetlinkEvent::Missed => {
                tracing::debug!("notifications of kernel routes were lost, requesting a new dump");
                self.ask_for_all();
            }
        }
    }

    fn take(&mut self, kind: Kind, message: RouteNetlinkMessage, report: &mut dyn FnMut(Event)) {
        match message {
            RouteNetlinkMessage::NewRoute(route) => {
                self.note_change(kind, route.header.address_family);
                let Some((key, target)) = self.parse(&route) else {
                    return;
                };
                if self.is_superseded(kind, key) {
                    return;
                }
                self.named.insert(key);
                if self.known.insert(key, target.clone()) != Some(target) {
                    self.report_best(key, report);
                }
            }
            RouteNetlinkMessage::DelRoute(route) => {
                self.note_change(kind, route.header.address_family);
                if let Some((key, _)) = self.parse(&route)
                    && !self.is_superseded(kind, key)
                {
                    self.withdraw(key, report);
                }
            }
            RouteNetlinkMessage::NewLink(_)
            | RouteNetlinkMessage::DelLink(_)
            | RouteNetlinkMessage::DelAddress(_) => self.ask_for_all(),
            _ => {}
        }
    }

    /// Handles a message that the library cannot parse. A route that is there is not withdrawn for it.
    fn take_unparsed(
        &mut self,
        kind: Kind,
        message_type: u16,
        octets: &[u8],
        report: &mut dyn FnMut(Event),
    ) {
        if matches!(message_type, RTM_NEWLINK | RTM_DELLINK | RTM_DELADDR) {
            self.ask_for_all();
            return;
        }
        if !matches!(message_type, RTM_NEWROUTE | RTM_DELROUTE) {
            return;
        }
        if let Some(family) = octets.first() {
            self.note_change(kind, AddressFamily::from(*family));
        }
        let Some(key) = key_of(octets) else {
            return;
        };
        if self.is_superseded(kind, key) {
            return;
        }
        if message_type == RTM_NEWROUTE {
            self.named.insert(key);
        } else {
            self.withdraw(key, report);
        }
    }

    /// Takes note of a change of a family's routes.
    fn note_change(&mut self, kind: Kind, family: AddressFamily) {
        if kind == Kind::Notification && family == AddressFamily::Inet6 {
            self.dumps.interrupt(family);
        }
    }

    /// Returns true for a part of a dump about a route of which there was a notification since the dump was requested.
    fn is_superseded(&mut self, kind: Kind, key: Key) -> bool {
        if kind == Kind::Notification {
            if self.dumps.is_running() {
                self.notified.insert(key);
            }
            return false;
        }
        self.notified.contains(&key)
    }

    fn withdraw(&mut self, key: Key, report: &mut dyn FnMut(Event)) {
        self.named.remove(&key);
        if self.known.remove(&key).is_some() {
            self.report_best(key, report);
        }
    }

    /// Withdraws the routes of a family that its complete dump did not name.
    fn withdraw_unnamed(&mut self, family: AddressFamily, report: &mut dyn FnMut(Event)) {
        let is_v4 = family == AddressFamily::Inet;
        let gone: Vec<Key> = self
            .known
            .keys()
            .filter(|key| key.1.addr().is_ipv4() == is_v4 && !self.named.contains(key))
            .copied()
            .collect();
        for key in gone {
            self.withdraw(key, report);
        }
    }

    /// Reports the route with the lowest metric.
    fn report_best(&self, (table, prefix, _): Key, report: &mut dyn FnMut(Event)) {
        let all = (table, prefix, 0)..=(table, prefix, u32::MAX);
        let best = self.known.range(all).next();
        report(Event {
            table,
            prefix,
            route: best.map(|((_, _, metric), target)| (*metric, target.clone())),
        });
    }

    /// Returns a relevant route: in a followed table, configured by a user or a daemon, and with a target.
    fn parse(&self, message: &RouteMessage) -> Option<(Key, KernelTarget)> {
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
                            // The kernel's value is the weight minus one.
                            (gateway, one.interface_index, one.hops.saturating_add(1))
                        })
                        .collect();
                }
                _ => {}
            }
        }
        // The router creates routes to its own addresses itself. Router advertisements and redirects are of any host on a link.
        let is_other = matches!(
            protocol,
            RouteProtocol::Kernel | RouteProtocol::Ra | RouteProtocol::IcmpRedirect
        ) || flags.contains(RouteFlags::Cloned);
        if !self.tables.contains(&table) || is_other {
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

/// Forgets what earlier dumps of a family named, when one is requested.
fn forget(named: &mut BTreeSet<Key>, notified: &mut BTreeSet<Key>, family: AddressFamily) {
    let is_v4 = family == AddressFamily::Inet;
    named.retain(|key| key.1.addr().is_ipv4() != is_v4);
    notified.clear();
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

/// Returns the identity of a route from the octets of its message (struct rtmsg of linux/rtnetlink.h).
fn key_of(octets: &[u8]) -> Option<Key> {
    const FIXED: usize = 12;
    const RTA_DST: u16 = 1;
    const RTA_PRIORITY: u16 = 6;
    const RTA_TABLE: u16 = 15;
    let [family, length, _, _, table, ..] = *octets.first_chunk::<FIXED>()?;
    let (mut table, mut metric) = (u32::from(table), 0);
    let is_v4 = AddressFamily::from(family) == AddressFamily::Inet;
    let mut destination = if is_v4 {
        IpAddr::from([0; 4])
    } else {
        IpAddr::from([0; 16])
    };
    for (kind, value) in attributes(octets.get(FIXED..)?) {
        match kind {
            RTA_DST if is_v4 => destination = IpAddr::from(<[u8; 4]>::try_from(value).ok()?),
            RTA_DST => destination = IpAddr::from(<[u8; 16]>::try_from(value).ok()?),
            RTA_PRIORITY => metric = u32::from_ne_bytes(value.try_into().ok()?),
            RTA_TABLE => table = u32::from_ne_bytes(value.try_into().ok()?),
            _ => {}
        }
    }
    let prefix = IpNet::new(destination, length).ok()?;
    Some((table, prefix.trunc(), metric))
}
