// SPDX-License-Identifier: Apache-2.0
//! Run-time requests: routes and neighbours, and their reports.

use std::net::IpAddr;

use ipnet::IpNet;

use super::Layer3;
use crate::config::layer3::{NeighbourSetting, RouteKind, RouteSetting, VRF_MAIN, ViaSetting};
use crate::error::SwitchError;
use crate::report::{NeighbourReport, RouteReport, ViaReport};
use quietwire_tables::neighbour::{InterfaceInfo, Origin};
use quietwire_tables::route::rib::{Route, RouteInfo, Source, Target, Via};

pub(super) fn wrong(place: &str, what: impl ToString) -> SwitchError {
    SwitchError::Config {
        location: place.to_owned(),
        what: what.to_string(),
    }
}

/// Checks that a gateway is on the link of its interface, or configured as on-link.
fn check_gateway(
    interface_info: &InterfaceInfo,
    interface: &str,
    gateway: Option<IpAddr>,
    onlink: bool,
) -> Result<(), String> {
    match gateway {
        Some(gateway) if !onlink && !interface_info.is_on_link(gateway) => Err(format!(
            "{gateway} is not on the link of interface '{interface}' (add onlink if it is reachable on that link nevertheless)"
        )),
        _ => Ok(()),
    }
}

impl Layer3 {
    /// Adds static routes, all or none.
    ///
    /// # Errors
    /// The first invalid route.
    pub(crate) fn add_routes(&mut self, settings: &[RouteSetting]) -> Result<(), SwitchError> {
        let mut done = Vec::new();
        for setting in settings {
            let before = self.static_route(setting);
            match self.add_route(setting) {
                Ok(vrf) => done.push((vrf, setting.prefix, before)),
                Err(error) => {
                    self.undo(done);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn undo(&mut self, done: Vec<(u16, IpNet, Option<Route>)>) {
        for (vrf, prefix, before) in done.into_iter().rev() {
            match before {
                // The former routes had space.
                Some(route) => drop(self.rib.add(vrf, prefix, route)),
                None => drop(self.rib.remove(vrf, prefix, Source::Static)),
            }
        }
    }

    fn static_route(&self, setting: &RouteSetting) -> Option<Route> {
        let vrf = self.vrf(setting.vrf.as_deref().unwrap_or(VRF_MAIN))?;
        self.rib.route(vrf, setting.prefix, Source::Static)
    }

    fn add_route(&mut self, setting: &RouteSetting) -> Result<u16, SwitchError> {
        let RouteSetting { prefix, .. } = setting;
        let place = format!("route {prefix}");
        let name = setting.vrf.as_deref().unwrap_or(VRF_MAIN);
        let vrf = self
            .vrf(name)
            .ok_or_else(|| wrong(&place, format!("no such VRF: '{name}'")))?;
        let route = Route {
            source: Source::Static,
            metric: 0,
            target: self
                .target(vrf, setting)
                .map_err(|what| wrong(&place, what))?,
        };
        self.rib
            .add(vrf, *prefix, route)
            .map_err(|error| wrong(&place, error))?;
        Ok(vrf)
    }

    fn target(&self, vrf: u16, setting: &RouteSetting) -> Result<Target, String> {
        let kind = setting.kind.unwrap_or_default();
        let target = match kind {
            RouteKind::Unicast if setting.via.is_empty() => {
                return Err(
                    "the route has no next hop (set an address, an interface, or both)".to_owned(),
                );
            }
            RouteKind::Unicast => {
                let ways = setting.via.iter().map(|via| self.via(vrf, via));
                return Ok(Target::Via(ways.collect::<Result<_, _>>()?));
            }
            RouteKind::Blackhole => Target::Blackhole,
            RouteKind::Unreachable => Target::Unreachable,
            RouteKind::Prohibit => Target::Prohibit,
        };
        if setting.via.is_empty() {
            Ok(target)
        } else {
            Err("a route of this type has no next hops (remove them)".to_owned())
        }
    }

    fn via(&self, vrf: u16, setting: &ViaSetting) -> Result<Via, String> {
        let interface = match (&setting.interface, setting.address) {
            (Some(name), gateway) => {
                let (number, known) = self
                    .interface(name)
                    .ok_or_else(|| format!("no such interface: '{name}'"))?;
                check_gateway(&known.interface_info, name, gateway, setting.onlink)?;
                number
            }
            (None, Some(address)) => self.interface_towards(vrf, address)?,
            (None, None) => {
                return Err("a next hop requires an address, an interface, or both".to_owned());
            }
        };
        Ok(Via {
            gateway: setting.address,
            interface,
            weight: setting.weight.unwrap_or(1).max(1),
        })
    }

    /// Returns the interface whose link contains an address.
    fn interface_towards(&self, vrf: u16, address: IpAddr) -> Result<u16, String> {
        if let IpAddr::V6(address) = address
            && address.is_unicast_link_local()
        {
            return Err(format!(
                "link-local address {address} requires an interface"
            ));
        }
        let of_vrf = self.interfaces.iter().filter(|(_, known)| known.vrf == vrf);
        let nets = of_vrf.flat_map(|(number, known)| {
            known
                .interface_info
                .addresses
                .iter()
                .map(move |net| (*number, net))
        });
        nets.filter(|(_, net)| net.contains(&address))
            .max_by_key(|(_, net)| net.prefix_len())
            .map(|(number, _)| number)
            .ok_or_else(|| {
                format!(
                    "{address} is on the link of no interface of VRF '{}'",
                    self.vrf_name(vrf)
                )
            })
    }

    /// Removes static routes, all or none.
    ///
    /// # Errors
    /// The first prefix without a static route.
    pub(crate) fn del_routes(
        &mut self,
        vrf: Option<&str>,
        prefixes: &[IpNet],
    ) -> Result<(), SwitchError> {
        let name = vrf.unwrap_or(VRF_MAIN);
        let vrf = self
            .vrf(name)
            .ok_or_else(|| wrong("route", format!("no such VRF: '{name}'")))?;
        for prefix in prefixes {
            if self.rib.route(vrf, *prefix, Source::Static).is_none() {
                let what = format!("no such static route in VRF '{name}'");
                return Err(wrong(&format!("route {prefix}"), what));
            }
        }
        for prefix in prefixes {
            self.rib.remove(vrf, *prefix, Source::Static);
        }
        Ok(())
    }

    /// Sets a static neighbour.
    ///
    /// # Errors
    /// An invalid neighbour.
    pub(crate) fn add_neighbour(&mut self, setting: &NeighbourSetting) -> Result<(), SwitchError> {
        let place = format!("neighbour {}", setting.address);
        let (number, known) = self.interface(&setting.interface).ok_or_else(|| {
            wrong(
                &place,
                format!("no such interface: '{}'", setting.interface),
            )
        })?;
        if setting.mac.is_multicast() || setting.mac.to_u64() == 0 {
            let what = format!("{} is not a unicast MAC address", setting.mac);
            return Err(wrong(&place, what));
        }
        if known.interface_info.is_own(setting.address) {
            return Err(wrong(&place, "it is the address of the interface itself"));
        }
        if !known.interface_info.is_on_link(setting.address) {
            let what = format!("it is not on the link of interface '{}'", setting.interface);
            return Err(wrong(&place, what));
        }
        let now = self.now();
        let mut actions = std::mem::take(&mut self.actions);
        let has_space =
            self.neighbours
                .set(now, number, setting.address, setting.mac, &mut actions);
        self.actions = actions;
        self.settle();
        if has_space {
            Ok(())
        } else {
            Err(wrong(
                &place,
                "the table of neighbours is full of static entries",
            ))
        }
    }

    /// Removes a neighbour, static or dynamic.
    ///
    /// # Errors
    /// A neighbour that does not exist.
    pub(crate) fn del_neighbour(
        &mut self,
        interface: &str,
        address: IpAddr,
    ) -> Result<(), SwitchError> {
        let place = format!("neighbour {address}");
        let (number, _) = self
            .interface(interface)
            .ok_or_else(|| wrong(&place, format!("no such interface: '{interface}'")))?;
        let was_there = self.neighbours.remove(number, address, &mut self.actions);
        // A neighbour configured in the kernel stays in force, even if it is removed here.
        self.requery_kernel_neighbours();
        self.settle();
        if was_there {
            Ok(())
        } else {
            Err(wrong(
                &place,
                format!("no such neighbour on interface '{interface}'"),
            ))
        }
    }

    pub(super) fn route_report(&self, shown: RouteInfo) -> RouteReport {
        let (kind, ways) = match shown.route.target {
            Target::Via(ways) => ("unicast", ways),
            Target::Local => ("local", Vec::new()),
            Target::Blackhole => ("blackhole", Vec::new()),
            Target::Unreachable => ("unreachable", Vec::new()),
            Target::Prohibit => ("prohibit", Vec::new()),
        };
        let via = |via: Via| ViaReport {
            address: via.gateway,
            interface: self.interface_name(via.interface).to_owned(),
            weight: via.weight,
        };
        RouteReport {
            prefix: shown.prefix,
            source: shown.route.source,
            metric: shown.route.metric,
            kind: kind.to_owned(),
            via: ways.into_iter().map(via).collect(),
            is_active: shown.is_active,
        }
    }

    /// Returns the reports of all neighbours.
    pub(crate) fn neighbour_reports(&self) -> Vec<NeighbourReport> {
        let all = self.neighbours.list(self.now());
        all.map(|shown| NeighbourReport {
            interface: self.interface_name(shown.interface).to_owned(),
            address: shown.address,
            mac: shown.mac,
            state: shown.state,
            source: shown.origin,
            age_s: shown.age.as_secs_f64(),
        })
        .collect()
    }

    /// Returns the static neighbours as settings.
    pub(super) fn neighbour_settings(&self) -> Vec<NeighbourSetting> {
        let all = self.neighbours.list(self.now());
        let set = all.filter(|shown| shown.origin == Origin::Static);
        let neighbours = set.filter_map(|shown| {
            Some(NeighbourSetting {
                interface: self.interface_name(shown.interface).to_owned(),
                address: shown.address,
                mac: shown.mac?,
            })
        });
        neighbours.collect()
    }

    pub(super) fn route_setting(&self, vrf: &str, shown: RouteInfo) -> Option<RouteSetting> {
        let (kind, ways) = match shown.route.target {
            Target::Via(ways) => (RouteKind::Unicast, ways),
            Target::Blackhole => (RouteKind::Blackhole, Vec::new()),
            Target::Unreachable => (RouteKind::Unreachable, Vec::new()),
            Target::Prohibit => (RouteKind::Prohibit, Vec::new()),
            Target::Local => return None,
        };
        let via = |via: Via| ViaSetting {
            address: via.gateway,
            interface: Some(self.interface_name(via.interface).to_owned()),
            weight: (via.weight != 1).then_some(via.weight),
            // A gateway outside the prefixes of the link requires onlink when the settings are read again.
            onlink: via.gateway.is_some_and(|gateway| {
                let known = self.interfaces.get(&via.interface);
                known.is_some_and(|known| !known.interface_info.is_on_link(gateway))
            }),
        };
        Some(RouteSetting {
            prefix: shown.prefix,
            vrf: (vrf != VRF_MAIN).then(|| vrf.to_owned()),
            kind: (kind != RouteKind::Unicast).then_some(kind),
            via: ways.into_iter().map(via).collect(),
        })
    }
}
