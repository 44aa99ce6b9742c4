// SPDX-License-Identifier: Apache-2.0
//! Kernel routes and their changes (rtnetlink(7)).
//!
//! The follower dumps the whole table first, and again whenever the kernel reports lost notifications (ENOBUFS). Routes missing from the
//! dump are gone. Notifications during a dump are newer than the dump and are applied as they arrive.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::netlink::{NetlinkEvent, NetlinkSocket};

/// Notification groups (linux/rtnetlink.h): RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_ROUTE.
/// The kernel does not report each IPv4 route that is removed with a link or an address.
const GROUPS: [u32; 5] = [1, 5, 7, 9, 11];
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
    /// Routes named by the dump in progress, and the families still to be requested.
    named: BTreeSet<Key>,
    asking: Vec<AddressFamily>,
    answering: Option<AddressFamily>,
    /// The dump in progress is outdated.
    is_stale: bool,
}

impl std::fmt::Debug for RouteMonitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Follower({:?}, {} routes)",
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
        let mut monitor = Self {
            line: NetlinkSocket::new(&GROUPS)?,
            tables,
            known: BTreeMap::new(),
            named: BTreeSet::new(),
            asking: Vec::new(),
            answering: None,
            is_stale: false,
        };
        monitor.ask_for_all();
        Ok(monitor)
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
        self.named.clear();
        self.asking = vec![AddressFamily::Inet6, AddressFamily::Inet];
        self.is_stale = self.answering.is_some();
    }

    /// Requests the dump of the next family, unless a dump is in progress.
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

    /// Reads pending messages, up to a limit, and reports the changes.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn turn(&mut self, report: &mut dyn FnMut(Event)) -> std::io::Result<()> {
        self.ask()?;
        for received in self.line.receive_events()? {
            match received {
                NetlinkEvent::Message(message) => self.take(message, report),
                NetlinkEvent::Done => self.answered(report)?,
                NetlinkEvent::Refused(code) => {
                    tracing::debug!("dump of the kernel's routes failed: error {code}");
                    // A failed dump is requested again.
                    self.answering = None;
                    self.ask_for_all();
                }
                NetlinkEvent::Missed => {
                    tracing::debug!(
                        "notifications of kernel routes were lost, requesting a new dump"
                    );
                    self.ask_for_all();
                    self.ask()?;
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, message: RouteNetlinkMessage, report: &mut dyn FnMut(Event)) {
        match message {
            RouteNetlinkMessage::NewRoute(route) => {
                if let Some((key, target)) = self.parse(&route) {
                    self.named.insert(key);
                    if self.known.insert(key, target.clone()) != Some(target) {
                        self.report_best(key, report);
                    }
                }
            }
            RouteNetlinkMessage::DelRoute(route) => {
                if let Some((key, _)) = self.parse(&route) {
                    self.named.remove(&key);
                    if self.known.remove(&key).is_some() {
                        self.report_best(key, report);
                    }
                }
            }
            RouteNetlinkMessage::NewLink(_)
            | RouteNetlinkMessage::DelLink(_)
            | RouteNetlinkMessage::DelAddress(_) => self.ask_for_all(),
            _ => {}
        }
    }

    /// Completes the dump of a family.
    fn answered(&mut self, report: &mut dyn FnMut(Event)) -> std::io::Result<()> {
        // A dump that started before the latest request may lack routes that `named` lacks.
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
            self.report_best(key, report);
        }
        self.ask()
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
        // The router creates routes to its own addresses itself.
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
