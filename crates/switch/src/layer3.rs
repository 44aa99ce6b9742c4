// SPDX-License-Identifier: Apache-2.0
//! Control side of the router: routes, neighbours, and punted packets. The service thread and the control thread share it behind a lock
//! that forwarding threads never take.

mod ask;
mod exchange;
mod gateways;
mod kernel;
mod list;
mod mac;
mod nat64;
mod service;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ipnet::IpNet;
use quietwire_packet::MacAddress;

use crate::error::SwitchError;
use crate::kernel::{Event, NeighbourMonitor, RouteMonitor, Tap};
use crate::observe::Tracer;
use quietwire_tables::arena::Epoch;
use quietwire_tables::icmp::{ERRORS_PER_SECOND, InterfaceRateLimits, RateLimit};
use quietwire_tables::neighbour::{Action, InterfaceInfo, Limits, Neighbours, Origin};
use quietwire_tables::route::Vrf;
use quietwire_tables::route::rib::{Link, Rib, Sizes};

pub(crate) use exchange::Exchange;
pub(crate) use kernel::FollowedTables;
pub(crate) use list::RouteQuery;
pub(crate) use mac::derived_mac;
pub(crate) use nat64::Nat64Addresses;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoutedInterface {
    pub(crate) name: String,
    pub(crate) interface_info: InterfaceInfo,
    pub(crate) vrf: u16,
    pub(crate) mtu: u16,
    /// Name of the kernel tap.
    pub(crate) kernel: Option<String>,
}

/// Origin of a punted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketOrigin {
    /// The ingress interface.
    pub(crate) interface: u16,
    /// The packet is known to have the destination that its sender has given it, so an ICMP error about it contains it as it is (RFC 1812,
    /// section 4.3.2.3).
    pub(crate) is_as_sent: bool,
}

/// A frame that waits for address resolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// A frame to be routed again.
    Frame(PacketOrigin, Vec<u8>),
    /// A packet of the router itself, and whether no translator changes a packet in it.
    Packet(Vec<u8>, bool),
}

/// Counters of the service thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Punted packets received.
    pub(crate) received: u64,
    /// Echo requests answered.
    pub(crate) echoed: u64,
    /// Errors sent.
    pub(crate) errors: u64,
    /// Packets to the router itself without a receiver.
    pub(crate) unknown_protocol: u64,
    /// Frames passed to the kernel.
    pub(crate) to_kernel: u64,
    /// Frames that the kernel refused.
    pub(crate) kernel_refused: u64,
    /// Frames not sent: no buffer, or a full ring.
    pub(crate) not_sent: u64,
}

/// Layer 3 state of the control and service threads.
#[derive(Debug)]
pub(crate) struct Layer3 {
    pub(crate) rib: Rib,
    pub(crate) neighbours: Neighbours<Waiting>,
    interfaces: BTreeMap<u16, RoutedInterface>,
    vrfs: Vec<Option<String>>,
    nat64: Vec<Nat64Addresses>,
    /// External addresses of NAT without NAT64, with the numbers of their VRFs.
    externals: BTreeSet<(u16, IpAddr)>,
    errors: InterfaceRateLimits,
    exchange: Exchange,
    actions: Vec<Action<Waiting>>,
    missing: gateways::Missing,
    /// Taps by number of the interface.
    taps: BTreeMap<u16, Tap>,
    /// Taps that are created and not in use yet.
    spare_taps: Vec<Tap>,
    monitor: Option<RouteMonitor>,
    /// Present while there are taps.
    neighbour_monitor: Option<NeighbourMonitor>,
    /// The kernel's indexes of the taps whose neighbours are followed.
    followed_taps: BTreeSet<u32>,
    /// Kernel routes that did not fit. They are tried again in the next epoch.
    late: BTreeMap<(u32, IpNet), Event>,
    has_reclaimed: bool,
    /// VRFs that import a kernel table.
    kernel_tables: BTreeMap<u32, u16>,
    pub(crate) counts: Counts,
    started: Instant,
    epoch: Epoch,
    /// Active trace.
    tracer: Option<Tracer>,
}

/// Shared handle of [`Layer3`].
#[derive(Clone, Debug)]
pub(crate) struct SharedLayer3(Arc<Mutex<Layer3>>);

impl SharedLayer3 {
    pub(crate) fn new(exchange: Exchange, started: Instant) -> Result<Self, SwitchError> {
        let mut rib = Rib::new(Sizes::default()).map_err(no_memory)?;
        rib.add_vrf(0).map_err(no_memory)?;
        Ok(Self(Arc::new(Mutex::new(Layer3 {
            rib,
            neighbours: Neighbours::new(Limits::default(), seed()),
            interfaces: BTreeMap::new(),
            vrfs: vec![Some(crate::config::layer3::VRF_MAIN.to_owned())],
            nat64: Vec::new(),
            externals: BTreeSet::new(),
            errors: InterfaceRateLimits::new(RateLimit::new(ERRORS_PER_SECOND)),
            exchange,
            actions: Vec::new(),
            missing: gateways::Missing::default(),
            taps: BTreeMap::new(),
            spare_taps: Vec::new(),
            monitor: None,
            neighbour_monitor: None,
            followed_taps: BTreeSet::new(),
            late: BTreeMap::new(),
            has_reclaimed: false,
            kernel_tables: BTreeMap::new(),
            counts: Counts::default(),
            started,
            epoch: 0,
            tracer: None,
        }))))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Layer3> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_memory(error: impl ToString) -> SwitchError {
    SwitchError::MissingPrerequisite(error.to_string())
}

/// Returns a seed that differs from run to run.
fn seed() -> u64 {
    use std::hash::BuildHasher;
    std::hash::RandomState::new().hash_one(0)
}

impl Layer3 {
    /// Returns true if only forwarding threads have work for the service thread, besides timers: no interface has a tap, and nothing is followed.
    pub(crate) fn serves_threads_only(&self) -> bool {
        self.taps.is_empty() && self.monitor.is_none() && self.neighbour_monitor.is_none()
    }

    /// Assigns numbers to these VRFs. Existing VRFs keep theirs; new VRFs get tables.
    ///
    /// # Errors
    /// [`SwitchError::MissingPrerequisite`] if there is not enough memory.
    pub(crate) fn add_vrfs(&mut self, names: &[String]) -> Result<(), SwitchError> {
        for name in names {
            if self.vrf(name).is_some() {
                continue;
            }
            let free = self.vrfs.iter().position(Option::is_none);
            let number = free.unwrap_or(self.vrfs.len());
            // A plan has few VRFs.
            let vrf = u16::try_from(number).map_err(no_memory)?;
            self.rib.add_vrf(vrf).map_err(no_memory)?;
            match self.vrfs.get_mut(number) {
                Some(free) => *free = Some(name.clone()),
                None => self.vrfs.push(Some(name.clone())),
            }
        }
        Ok(())
    }

    /// Removes all VRFs except these and the main one.
    pub(crate) fn keep_vrfs(&mut self, names: &[String]) {
        for (number, vrf) in (0..).zip(&mut self.vrfs).skip(1) {
            if vrf.as_ref().is_some_and(|name| !names.contains(name)) {
                *vrf = None;
                self.rib.del_vrf(number);
            }
        }
    }

    /// Returns the number of a VRF.
    pub(crate) fn vrf(&self, name: &str) -> Option<u16> {
        let number = self
            .vrfs
            .iter()
            .position(|one| one.as_deref() == Some(name))?;
        u16::try_from(number).ok()
    }

    pub(crate) fn vrf_name(&self, number: u16) -> &str {
        self.vrfs
            .get(usize::from(number))
            .and_then(Option::as_deref)
            .unwrap_or("-")
    }

    /// Returns the VRFs with their numbers.
    pub(crate) fn vrfs(&self) -> impl Iterator<Item = (u16, &str)> {
        let numbered = (0u16..).zip(&self.vrfs);
        numbered.filter_map(|(number, name)| Some((number, name.as_deref()?)))
    }

    /// Returns the tables of VRFs by number. Unused numbers have the tables of the main VRF.
    pub(crate) fn tables(&self) -> Vec<Vrf> {
        let tables = self.rib.vrfs();
        let main = tables.first().cloned().flatten();
        let or_main = |vrf: Option<Vrf>| vrf.or_else(|| main.clone());
        tables.into_iter().filter_map(or_main).collect()
    }

    /// Replaces the set of interfaces.
    ///
    /// # Errors
    /// The resource that is exhausted. The former interfaces stay.
    pub(crate) fn set_interfaces(
        &mut self,
        interfaces: BTreeMap<u16, RoutedInterface>,
    ) -> Result<(), SwitchError> {
        let former = std::mem::replace(&mut self.interfaces, interfaces);
        let former_taps = self.tap_indexes();
        let is_same = former == self.interfaces;
        let changed: Vec<u16> = former
            .iter()
            .filter(|(number, known)| {
                let now = self.interfaces.get(number).map(|now| &now.interface_info);
                now != Some(&known.interface_info)
            })
            .map(|(number, _)| *number)
            .collect();
        let settled = self.settle_links().and_then(|()| self.settle_taps());
        if settled.is_err() {
            self.interfaces = former;
            let restored = self.settle_links().and_then(|()| self.settle_taps());
            if let Err(error) = restored {
                tracing::error!("cannot restore all interfaces after a failed change: {error}");
            }
        }
        self.drop_spare_taps();
        self.flush_neighbours(&changed);
        // Most changes of the configuration concern no interface, and the kernel may have 100,000 routes.
        if !is_same || self.tap_indexes() != former_taps {
            self.resynchronise(&former_taps);
        }
        self.settle();
        settled
    }

    fn settle_links(&mut self) -> Result<(), SwitchError> {
        let link = |known: &RoutedInterface| Link {
            vrf: known.vrf,
            addresses: known.interface_info.addresses.clone(),
        };
        let links = self.interfaces.iter();
        let links = links
            .map(|(number, known)| (*number, link(known)))
            .collect();
        self.rib.set_links(links).map_err(no_memory)
    }

    /// Forgets the neighbours of changed interfaces. Static neighbours that are still valid stay.
    fn flush_neighbours(&mut self, changed: &[u16]) {
        let mut actions = std::mem::take(&mut self.actions);
        let mut kept = Vec::new();
        for number in changed {
            kept.extend(self.static_on(*number));
            self.neighbours.flush(*number, &mut actions);
        }
        self.actions = actions;
        let now = self.now();
        for (number, address, mac) in kept {
            let interface_info = self
                .interfaces
                .get(&number)
                .map(|known| &known.interface_info);
            if interface_info.is_some_and(|interface_info| {
                interface_info.is_on_link(address) && !interface_info.is_own(address)
            }) {
                let has_space = self
                    .neighbours
                    .set(now, number, address, mac, &mut self.actions);
                if !has_space {
                    tracing::warn!("no space for static neighbour {address}");
                }
            }
        }
    }

    /// Returns the static neighbours of an interface.
    fn static_on(&self, interface: u16) -> Vec<(u16, IpAddr, MacAddress)> {
        let all = self.neighbours.list(self.now());
        let of_it = all.filter(|one| one.interface == interface && one.origin == Origin::Static);
        of_it
            .filter_map(|one| Some((interface, one.address, one.mac?)))
            .collect()
    }

    /// Replaces the addresses of NAT64.
    pub(crate) fn set_nat64(&mut self, addresses: Vec<Nat64Addresses>) {
        self.nat64 = addresses;
    }

    /// Replaces the external addresses of NAT without NAT64, with the numbers of their VRFs.
    pub(crate) fn set_externals(&mut self, externals: BTreeSet<(u16, IpAddr)>) {
        self.externals = externals;
    }

    pub(crate) fn interface(&self, name: &str) -> Option<(u16, &RoutedInterface)> {
        let mut all = self.interfaces.iter();
        all.find(|(_, known)| known.name == name)
            .map(|(number, known)| (*number, known))
    }

    pub(crate) fn interface_name(&self, number: u16) -> &str {
        self.interfaces
            .get(&number)
            .map_or("-", |known| known.name.as_str())
    }

    pub(crate) fn has_interfaces(&self) -> bool {
        !self.interfaces.is_empty()
    }

    /// Begins an epoch: memory released from now on is separated from memory released before. Returns the number of the epoch, for
    /// [`Self::end_epoch`] once all forwarding threads have finished their current work.
    pub(crate) fn begin_epoch(&mut self) -> Epoch {
        self.epoch = self.epoch.wrapping_add(1);
        self.rib.set_epoch(self.epoch);
        self.epoch
    }

    pub(crate) fn end_epoch(&mut self, epoch: Epoch) {
        self.rib.reclaim(epoch);
        self.has_reclaimed = true;
    }

    pub(crate) fn exchange(&mut self) -> &mut Exchange {
        &mut self.exchange
    }
}

#[cfg(test)]
mod tests {
    use super::ERRORS_PER_SECOND;

    /// The guide has the limit.
    #[test]
    fn the_limit_of_errors_is_that_of_the_guide() {
        let page = include_str!("../../../docs/router.md");
        let text = format!("| ICMP errors | {ERRORS_PER_SECOND} per second and interface |");
        assert!(page.contains(&text), "no '{text}'");
    }
}
