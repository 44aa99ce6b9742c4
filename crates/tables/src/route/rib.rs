// SPDX-License-Identifier: Apache-2.0
//! The routing information base: all known routes of all sources, and the selection for the forwarding tables. Belongs to the control side;
//! forwarding threads read its output.
//!
//! Of several routes to a prefix, the one of the best source wins, then the one with the lowest metric. A route is usable while one of its
//! next hops is: an existing interface whose link contains the gateway.

mod parts;
mod targets;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use quietwire_packet::MacAddress;

use super::next_hops::{NextHop, NextHopError, NextHopWriter};
use super::router::Vrf;
use crate::arena::{Epoch, NoMemory};
use crate::fib::{FibError, Ipv4Routes, Ipv6Routes, NO_ROUTE};
use parts::{Prefix, Prefixes};
use targets::{StoredTarget, Targets};

pub use targets::{Target, Via};

/// Origin of a route.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Address of the router itself.
    Local,
    /// Link of an interface.
    Connected,
    /// Static route of an operator.
    Static,
    /// Kernel route, for example of a routing daemon.
    Kernel,
    /// Resolved neighbour on a link.
    Neighbour,
}

impl Source {
    /// Returns its name in JSON and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Connected => "connected",
            Self::Static => "static",
            Self::Kernel => "kernel",
            Self::Neighbour => "neighbour",
        }
    }
}

/// A route to a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Its origin. A prefix has at most one route per origin.
    pub source: Source,
    /// Metric among the routes of one origin. Lower is better.
    pub metric: u32,
    /// Its target.
    pub target: Target,
}

/// A route in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteInfo {
    /// The prefix.
    pub prefix: IpNet,
    /// The route.
    pub route: Route,
    /// True if the route is used for forwarding.
    pub is_active: bool,
}

/// Addresses and VRF of an interface, as routes require them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Number of its VRF.
    pub vrf: u16,
    /// Its addresses, each with the length of its link's prefix.
    pub addresses: Vec<IpNet>,
}

/// Error of adding a route. Nothing changes in that case.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RibError {
    /// Unknown VRF.
    #[error("no such VRF: {0}")]
    Vrf(u16),
    /// Next hop through an interface that does not exist or is in another VRF.
    #[error("no interface {0} in this VRF")]
    Interface(u16),
    /// Gateway of the other IP version.
    #[error("gateway {0} and prefix {1} have different IP versions")]
    Version(IpAddr, IpNet),
    /// Gateway that is our own address.
    #[error("the gateway {0} is an address of the router itself")]
    OwnAddress(IpAddr),
    /// No next hops, or too many.
    #[error(transparent)]
    NextHop(#[from] NextHopError),
    /// The table is full.
    #[error(transparent)]
    Fib(#[from] FibError),
}

/// A stored route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StoredRoute {
    source: Source,
    metric: u32,
    target: StoredTarget,
}

/// Routes to one prefix, nearly always one.
#[derive(Clone, Debug)]
enum Candidates {
    One(StoredRoute),
    Many(Vec<StoredRoute>),
}

impl Candidates {
    fn as_slice(&self) -> &[StoredRoute] {
        match self {
            Self::One(kept) => std::slice::from_ref(kept),
            Self::Many(all) => all,
        }
    }

    /// Inserts a route and returns the previous route of the same source.
    #[expect(clippy::indexing_slicing, reason = "the position is one of the list")]
    fn put(&mut self, kept: StoredRoute) -> Option<StoredRoute> {
        let mut all = self.as_slice().to_vec();
        let at = all.iter().position(|one| one.source == kept.source);
        let former = at.map(|at| std::mem::replace(&mut all[at], kept));
        if former.is_none() {
            all.push(kept);
        }
        *self = Self::of(all);
        former
    }

    fn of(mut all: Vec<StoredRoute>) -> Self {
        match all.len() {
            1 => Self::One(all.remove(0)),
            _ => Self::Many(all),
        }
    }
}

#[derive(Debug)]
struct Tables {
    ipv4: Ipv4Routes,
    ipv6: Ipv6Routes,
    routes4: Prefixes<Ipv4Net, Candidates>,
    routes6: Prefixes<Ipv6Net, Candidates>,
}

/// Sizes of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Number of different /24 with longer prefixes, per VRF.
    pub ipv4_groups: u32,
    /// Number of nodes of the IPv6 table, per VRF; half a million routes take about a million.
    pub ipv6_nodes: u32,
    /// Number of next hops, over all VRFs.
    pub next_hops: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            ipv4_groups: 1 << 17,
            ipv6_nodes: 1 << 21,
            next_hops: 1 << 20,
        }
    }
}

/// All routes.
#[derive(Debug)]
pub struct Rib {
    sizes: Sizes,
    vrfs: Vec<Option<Tables>>,
    links: BTreeMap<u16, Link>,
    targets: Targets,
}

impl Rib {
    /// Creates a base without VRFs.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new(sizes: Sizes) -> Result<Self, NoMemory> {
        Ok(Self {
            sizes,
            vrfs: Vec::new(),
            links: BTreeMap::new(),
            targets: Targets::new(NextHopWriter::new(sizes.next_hops)?)?,
        })
    }

    /// Creates the tables of a VRF, unless they exist.
    ///
    /// # Errors
    /// [`FibError::Memory`].
    pub fn add_vrf(&mut self, vrf: u16) -> Result<(), FibError> {
        let at = usize::from(vrf);
        if self.vrfs.len() <= at {
            self.vrfs.resize_with(at + 1, || None);
        }
        if let Some(free @ None) = self.vrfs.get_mut(at) {
            *free = Some(Tables {
                ipv4: Ipv4Routes::new(self.sizes.ipv4_groups)?,
                ipv6: Ipv6Routes::new(self.sizes.ipv6_nodes)?,
                routes4: Prefixes::new(),
                routes6: Prefixes::new(),
            });
        }
        Ok(())
    }

    /// Removes a VRF and its routes. Forwarding threads may hold its tables longer.
    pub fn del_vrf(&mut self, vrf: u16) {
        if let Some(tables) = self.vrfs.get_mut(usize::from(vrf)).and_then(Option::take) {
            let all = tables
                .routes4
                .into_values()
                .chain(tables.routes6.into_values());
            for kept in all.flat_map(|candidates| candidates.as_slice().to_vec()) {
                self.targets.release(kept.target);
            }
        }
    }

    /// Returns the tables of forwarding threads by VRF number; `None` for unused numbers.
    #[must_use]
    pub fn vrfs(&self) -> Vec<Option<Vrf>> {
        let vrf = |tables: &Tables| Vrf {
            ipv4: tables.ipv4.fib(),
            ipv6: tables.ipv6.fib(),
        };
        self.vrfs
            .iter()
            .map(|tables| tables.as_ref().map(vrf))
            .collect()
    }

    /// Returns the next hop table of forwarding threads.
    #[must_use]
    pub fn next_hops(&self) -> std::sync::Arc<super::NextHops> {
        self.targets.shared()
    }

    /// Replaces the set of interfaces. Their addresses and links have routes. Other routes through removed interfaces are unusable until
    /// the interfaces return.
    ///
    /// # Errors
    /// [`RibError`] if there is no space; some routes may be missing in that case.
    pub fn set_links(&mut self, links: BTreeMap<u16, Link>) -> Result<(), RibError> {
        let former = std::mem::replace(&mut self.links, links);
        for (number, link) in &former {
            if self.links.get(number) != Some(link) {
                self.unlink(*number, link);
            }
        }
        let new: Vec<(u16, Link)> = self
            .links
            .iter()
            .filter(|(number, link)| former.get(number) != Some(link))
            .map(|(number, link)| (*number, link.clone()))
            .collect();
        for (number, link) in new {
            self.link(number, &link)?;
        }
        Ok(())
    }

    fn link(&mut self, number: u16, link: &Link) -> Result<(), RibError> {
        self.targets.set_up(number)?;
        for (prefix, route) in own_routes(number, link) {
            self.put(link.vrf, prefix, route)?;
        }
        self.settle(link.vrf)
    }

    fn unlink(&mut self, number: u16, link: &Link) {
        for (prefix, route) in own_routes(number, link) {
            self.remove(link.vrf, prefix, route.source);
        }
        let hosts: Vec<IpAddr> = self.targets.hosts_on(number).collect();
        for address in hosts {
            self.remove_host(Some(link.vrf), number, address);
        }
        self.targets.set_down(number);
        // Even without space this cannot fail: routes are only removed.
        drop(self.settle(link.vrf));
    }

    /// Adds a route, or replaces the route of the same source.
    ///
    /// # Errors
    /// [`RibError`]; nothing changes in that case.
    pub fn add(&mut self, vrf: u16, prefix: IpNet, route: Route) -> Result<(), RibError> {
        if let Target::Via(ways) = &route.target {
            for via in ways {
                self.check(vrf, prefix, via)?;
            }
        }
        self.put(vrf, prefix, route)
    }

    fn check(&self, vrf: u16, prefix: IpNet, via: &Via) -> Result<(), RibError> {
        let link = self
            .links
            .get(&via.interface)
            .filter(|link| link.vrf == vrf)
            .ok_or(RibError::Interface(via.interface))?;
        if let Some(gateway) = via.gateway {
            if gateway.is_ipv4() != prefix.addr().is_ipv4() {
                return Err(RibError::Version(gateway, prefix));
            }
            if link.addresses.iter().any(|net| net.addr() == gateway) {
                return Err(RibError::OwnAddress(gateway));
            }
        }
        Ok(())
    }

    fn put(&mut self, vrf: u16, prefix: IpNet, route: Route) -> Result<(), RibError> {
        let prefix = prefix.trunc();
        if self.tables(vrf).is_none() {
            return Err(RibError::Vrf(vrf));
        }
        let kept = StoredRoute {
            source: route.source,
            metric: route.metric,
            target: self.targets.hold(route.target)?,
        };
        let former = self.candidates(vrf, prefix, |candidates| match candidates {
            Some(candidates) => {
                let mut candidates = candidates.clone();
                let former = candidates.put(kept);
                (Some(candidates), former)
            }
            None => (Some(Candidates::One(kept)), None),
        });
        if let Err(error) = self.choose(vrf, prefix) {
            self.put_back(vrf, prefix, kept.source, former);
            self.targets.release(kept.target);
            return Err(error);
        }
        if let Some(former) = former {
            self.targets.release(former.target);
        }
        Ok(())
    }

    /// Restores the previous route after a lack of space.
    fn put_back(&mut self, vrf: u16, prefix: IpNet, source: Source, former: Option<StoredRoute>) {
        self.candidates(vrf, prefix, |candidates| {
            let mut all = candidates.map_or_else(Vec::new, |one| one.as_slice().to_vec());
            all.retain(|one| one.source != source);
            all.extend(former);
            (
                (!all.is_empty()).then(|| Candidates::of(all)),
                None::<StoredRoute>,
            )
        });
    }

    /// Removes the route of a source. Returns false if there is none.
    pub fn remove(&mut self, vrf: u16, prefix: IpNet, source: Source) -> bool {
        let prefix = prefix.trunc();
        if self.tables(vrf).is_none() {
            return false;
        }
        let former = self.candidates(vrf, prefix, |candidates| {
            let Some(candidates) = candidates else {
                return (None, None);
            };
            let mut all = candidates.as_slice().to_vec();
            let at = all.iter().position(|one| one.source == source);
            let former = at.map(|at| all.remove(at));
            ((!all.is_empty()).then(|| Candidates::of(all)), former)
        });
        if let Some(former) = former {
            if let Err(error) = self.choose(vrf, prefix) {
                tracing::error!(
                    "cannot remove the route to {prefix} from the forwarding table: {error}"
                );
            }
            self.targets.release(former.target);
        }
        former.is_some()
    }

    /// Removes all routes of a source.
    pub fn remove_all(&mut self, vrf: u16, source: Source) {
        let shown = self
            .routes(vrf)
            .filter(|shown| shown.route.source == source);
        let prefixes: Vec<IpNet> = shown.map(|shown| shown.prefix).collect();
        for prefix in prefixes {
            self.remove(vrf, prefix, source);
        }
    }

    fn tables(&mut self, vrf: u16) -> Option<&mut Tables> {
        self.vrfs.get_mut(usize::from(vrf))?.as_mut()
    }

    /// Applies `change` to the candidates of a prefix.
    fn candidates<T>(
        &mut self,
        vrf: u16,
        prefix: IpNet,
        change: impl FnOnce(Option<&Candidates>) -> (Option<Candidates>, Option<T>),
    ) -> Option<T> {
        let tables = self.tables(vrf)?;
        match prefix {
            IpNet::V4(prefix) => exchange(&mut tables.routes4, prefix, change),
            IpNet::V6(prefix) => exchange(&mut tables.routes6, prefix, change),
        }
    }

    /// Installs the best usable route to a prefix in the forwarding table.
    fn choose(&mut self, vrf: u16, prefix: IpNet) -> Result<(), RibError> {
        let Some(tables) = self.vrfs.get_mut(usize::from(vrf)).and_then(Option::as_mut) else {
            return Err(RibError::Vrf(vrf));
        };
        let candidates = match prefix {
            IpNet::V4(prefix) => tables.routes4.get(&prefix),
            IpNet::V6(prefix) => tables.routes6.get(&prefix),
        };
        let best = candidates.and_then(|candidates| best(candidates, &self.targets));
        let number = best.map_or(NO_ROUTE, |(number, _)| number);
        match prefix {
            IpNet::V4(prefix) if number == NO_ROUTE => {
                tables.ipv4.remove(prefix);
            }
            IpNet::V4(prefix) => {
                tables.ipv4.insert(prefix, number)?;
            }
            IpNet::V6(prefix) if number == NO_ROUTE => {
                tables.ipv6.remove(prefix)?;
            }
            IpNet::V6(prefix) => {
                tables.ipv6.insert(prefix, number)?;
            }
        }
        Ok(())
    }

    /// Selects the best routes of all prefixes of a VRF again after interfaces were added or removed.
    fn settle(&mut self, vrf: u16) -> Result<(), RibError> {
        let Some(tables) = self.tables(vrf) else {
            return Ok(());
        };
        let has_ways = |candidates: &&Candidates| {
            let mut all = candidates.as_slice().iter();
            all.any(|kept| matches!(kept.target, StoredTarget::Set(_)))
        };
        let of4 = tables.routes4.iter().filter(|(_, all)| has_ways(all));
        let of6 = tables.routes6.iter().filter(|(_, all)| has_ways(all));
        let prefixes: Vec<IpNet> = of4
            .map(|(prefix, _)| IpNet::V4(*prefix))
            .chain(of6.map(|(prefix, _)| IpNet::V6(*prefix)))
            .collect();
        for prefix in prefixes {
            self.choose(vrf, prefix)?;
        }
        Ok(())
    }

    /// Notes that a neighbour is resolved: routes through it, and packets to it, use it from now on.
    ///
    /// # Errors
    /// [`RibError`] if there is no space for another next hop.
    pub fn found(
        &mut self,
        interface: u16,
        address: IpAddr,
        mac: MacAddress,
    ) -> Result<(), RibError> {
        self.targets.found(interface, address, mac);
        let Some(link) = self.links.get(&interface) else {
            return Ok(());
        };
        if !link.addresses.iter().any(|net| net.contains(&address)) {
            return Ok(());
        }
        let vrf = link.vrf;
        let via = Via {
            gateway: Some(address),
            interface,
            weight: 1,
        };
        let route = Route {
            source: Source::Neighbour,
            metric: 0,
            target: Target::Via(vec![via]),
        };
        self.targets.note_host(interface, address);
        self.put(vrf, IpNet::from(address), route)
    }

    /// Notes that a neighbour is no longer resolved.
    pub fn lost(&mut self, interface: u16, address: IpAddr) {
        let vrf = self.links.get(&interface).map(|link| link.vrf);
        self.remove_host(vrf, interface, address);
    }

    fn remove_host(&mut self, vrf: Option<u16>, interface: u16, address: IpAddr) {
        if self.targets.forget_host(interface, address)
            && let Some(vrf) = vrf
        {
            self.remove(vrf, IpNet::from(address), Source::Neighbour);
        }
        self.targets.lost(interface, address);
    }

    /// Returns the neighbours that packets to a destination wait for: interfaces and addresses.
    #[must_use]
    pub fn neighbours_for(&self, vrf: u16, destination: IpAddr) -> Vec<(u16, IpAddr)> {
        let number = self.look_up(vrf, destination);
        match self.targets.shared().get(number) {
            NextHop::Glean { interface } => vec![(interface, destination)],
            _ => self.targets.gateways_of(number),
        }
    }

    /// Returns the next hop of a destination.
    #[must_use]
    pub fn next_hop(&self, vrf: u16, destination: IpAddr) -> NextHop {
        let shared = self.targets.shared();
        match shared.get(self.look_up(vrf, destination)) {
            NextHop::Group(group) => shared.choose(group, 0),
            next_hop => next_hop,
        }
    }

    fn look_up(&self, vrf: u16, destination: IpAddr) -> u32 {
        let Some(Some(tables)) = self.vrfs.get(usize::from(vrf)) else {
            return NO_ROUTE;
        };
        match destination {
            IpAddr::V4(address) => tables.ipv4.fib().look_up(address.to_bits()),
            IpAddr::V6(address) => tables.ipv6.fib().look_up(address.to_bits()),
        }
    }

    /// Returns new unresolved gateways, each once.
    pub fn take_wanted(&mut self) -> Vec<(u16, IpAddr)> {
        self.targets.take_wanted()
    }

    /// Returns the unresolved gateways of routes.
    #[must_use]
    pub fn missing_gateways(&self) -> Vec<(u16, IpAddr)> {
        self.targets.missing()
    }

    /// Returns the route of a source to exactly this prefix.
    #[must_use]
    pub fn route(&self, vrf: u16, prefix: IpNet, source: Source) -> Option<Route> {
        let tables = self.vrfs.get(usize::from(vrf))?.as_ref()?;
        let candidates = match prefix.trunc() {
            IpNet::V4(prefix) => tables.routes4.get(&prefix)?,
            IpNet::V6(prefix) => tables.routes6.get(&prefix)?,
        };
        let kept = candidates
            .as_slice()
            .iter()
            .find(|kept| kept.source == source)?;
        Some(Route {
            source,
            metric: kept.metric,
            target: self.targets.target(kept.target),
        })
    }

    /// Returns all routes of a VRF, unordered.
    pub fn routes(&self, vrf: u16) -> impl Iterator<Item = RouteInfo> + '_ {
        (0..Self::PARTS).flat_map(move |part| self.routes_in(vrf, part))
    }

    /// Number of parts of a VRF, for listings that read one part at a time.
    pub const PARTS: usize = parts::PARTS;

    /// Returns the routes of one part of a VRF, unordered.
    pub fn routes_in(&self, vrf: u16, part: usize) -> impl Iterator<Item = RouteInfo> + '_ {
        self.part(vrf, part)
            .flat_map(move |(prefix, all)| self.shown(prefix, all))
    }

    /// Returns the prefixes of one part of a VRF, unordered, each with its number of routes.
    pub fn prefixes_in(&self, vrf: u16, part: usize) -> impl Iterator<Item = (IpNet, usize)> + '_ {
        self.part(vrf, part)
            .map(|(prefix, all)| (prefix, all.as_slice().len()))
    }

    /// Returns the routes to exactly this prefix.
    pub fn routes_to(&self, vrf: u16, prefix: IpNet) -> impl Iterator<Item = RouteInfo> + '_ {
        let tables = self.vrfs.get(usize::from(vrf)).and_then(Option::as_ref);
        let all = tables.and_then(|tables| match &prefix {
            IpNet::V4(prefix) => tables.routes4.get(prefix),
            IpNet::V6(prefix) => tables.routes6.get(prefix),
        });
        all.into_iter().flat_map(move |all| self.shown(prefix, all))
    }

    fn part(&self, vrf: u16, part: usize) -> impl Iterator<Item = (IpNet, &Candidates)> {
        let tables = self.vrfs.get(usize::from(vrf)).and_then(Option::as_ref);
        let all4 = tables
            .into_iter()
            .flat_map(move |tables| tables.routes4.part(part));
        let all6 = tables
            .into_iter()
            .flat_map(move |tables| tables.routes6.part(part));
        all4.map(|(prefix, all)| (IpNet::V4(*prefix), all))
            .chain(all6.map(|(prefix, all)| (IpNet::V6(*prefix), all)))
    }

    fn shown<'rib>(
        &'rib self,
        prefix: IpNet,
        all: &'rib Candidates,
    ) -> impl Iterator<Item = RouteInfo> + 'rib {
        let active = best(all, &self.targets).map(|(_, source)| source);
        all.as_slice().iter().map(move |kept| RouteInfo {
            prefix,
            route: Route {
                source: kept.source,
                metric: kept.metric,
                target: self.targets.target(kept.target),
            },
            is_active: active == Some(kept.source),
        })
    }

    /// Returns the number of active routes of a VRF: IPv4 and IPv6.
    #[must_use]
    pub fn len(&self, vrf: u16) -> (usize, usize) {
        match self.vrfs.get(usize::from(vrf)) {
            Some(Some(tables)) => (tables.ipv4.len(), tables.ipv6.len()),
            _ => (0, 0),
        }
    }

    /// Sets the epoch of memory that is freed from now on.
    pub fn set_epoch(&mut self, epoch: Epoch) {
        self.targets.set_epoch(epoch);
        for tables in self.vrfs.iter_mut().flatten() {
            tables.ipv4.set_epoch(epoch);
            tables.ipv6.set_epoch(epoch);
        }
    }

    /// Reuses memory freed before this epoch.
    pub fn reclaim(&mut self, epoch: Epoch) {
        self.targets.reclaim(epoch);
        for tables in self.vrfs.iter_mut().flatten() {
            tables.ipv4.reclaim(epoch);
            tables.ipv6.reclaim(epoch);
        }
    }
}

fn exchange<P: Prefix, T>(
    routes: &mut Prefixes<P, Candidates>,
    prefix: P,
    change: impl FnOnce(Option<&Candidates>) -> (Option<Candidates>, Option<T>),
) -> Option<T> {
    let (candidates, result) = change(routes.get(&prefix));
    routes.set(prefix, candidates);
    result
}

/// Returns the next hop number of the best usable route, and its source.
fn best(candidates: &Candidates, targets: &Targets) -> Option<(u32, Source)> {
    candidates
        .as_slice()
        .iter()
        .filter_map(|kept| Some((kept, targets.number(kept.target)?)))
        .min_by_key(|(kept, _)| (kept.source, kept.metric))
        .map(|(kept, number)| (number, kept.source))
}

/// Returns the routes to an interface's own addresses and links.
fn own_routes(number: u16, link: &Link) -> Vec<(IpNet, Route)> {
    let via = Via {
        gateway: None,
        interface: number,
        weight: 1,
    };
    let mut routes = Vec::new();
    for net in &link.addresses {
        let route = |source, target| Route {
            source,
            metric: 0,
            target,
        };
        routes.push((IpNet::from(net.addr()), route(Source::Local, Target::Local)));
        if net.prefix_len() < net.max_prefix_len() {
            let link = route(Source::Connected, Target::Via(vec![via]));
            routes.push((net.trunc(), link));
        }
        // Directed broadcasts are not forwarded (RFC 2644).
        if let IpNet::V4(net) = net
            && net.prefix_len() < 31
        {
            let broadcast = IpNet::from(IpAddr::V4(net.broadcast()));
            routes.push((broadcast, route(Source::Local, Target::Blackhole)));
        }
    }
    routes
}
