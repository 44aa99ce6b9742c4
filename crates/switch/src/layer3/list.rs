// SPDX-License-Identifier: Apache-2.0
//! Listings of routes. They hold the lock for a few thousand routes at a time, so that address resolution and changes of routes go on
//! beside a listing of a million.

use std::time::Duration;

use ipnet::IpNet;

use super::SharedLayer3;
use super::ask::wrong;
use crate::config::layer3::{NeighbourSetting, RouteSetting, VRF_MAIN};
use crate::error::SwitchError;
use crate::report::{RouteReport, RoutesReport};
use quietwire_tables::route::rib::{Rib, Source};

/// Maximum number of routes of one page.
const PAGE_MAX: usize = 16_384;
/// Prefixes whose routes are read under one lock.
const CHUNK: usize = 1024;
/// Pause between two locks. Without it, the lock would be taken again before a waiting thread wakes up.
const PAUSE: Duration = Duration::from_micros(50);

/// Query of a list of routes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteQuery<'request> {
    /// Name of the VRF. Default: the main one.
    pub(crate) vrf: Option<&'request str>,
    /// Only routes within this prefix.
    pub(crate) prefix: Option<IpNet>,
    /// Only routes to prefixes after this one.
    pub(crate) after: Option<IpNet>,
    /// Maximum number of routes.
    pub(crate) limit: usize,
}

impl SharedLayer3 {
    /// Returns a page of the routes of a VRF, in the order of their prefixes.
    ///
    /// # Errors
    /// A VRF that does not exist.
    pub(crate) fn routes(&self, query: RouteQuery<'_>) -> Result<RoutesReport, SwitchError> {
        let name = query.vrf.unwrap_or(VRF_MAIN);
        let limit = query.limit.clamp(1, PAGE_MAX);
        let mut total = 0_u64;
        let mut visited = 0_usize;
        let mut prefixes: Vec<IpNet> = Vec::new();
        for part in 0..Rib::PARTS {
            let layer3 = self.lock();
            let number = layer3.vrf(name).ok_or_else(|| no_vrf(name))?;
            for (prefix, count) in layer3.rib.prefixes_in(number, part) {
                if query.prefix.is_none_or(|within| within.contains(&prefix)) {
                    total = total.saturating_add(count as u64);
                    if query.after.is_none_or(|after| prefix > after) {
                        prefixes.push(prefix);
                    }
                }
                visited = visited.saturating_add(1);
            }
            drop(layer3);
            pause_after(&mut visited);
            // One more prefix than has space shows that a further page follows.
            if prefixes.len() > limit.saturating_mul(2).saturating_add(CHUNK) {
                prefixes.select_nth_unstable(limit);
                prefixes.truncate(limit.saturating_add(1));
            }
        }
        prefixes.sort_unstable();
        let has_more = prefixes.len() > limit;
        prefixes.truncate(limit);
        let routes = self.routes_to(name, &prefixes)?;
        let layer3 = self.lock();
        let number = layer3.vrf(name).ok_or_else(|| no_vrf(name))?;
        let (ipv4, ipv6) = layer3.rib.len(number);
        Ok(RoutesReport {
            vrf: name.to_owned(),
            ipv4_active: ipv4 as u64,
            ipv6_active: ipv6 as u64,
            total,
            next: prefixes.last().copied().filter(|_| has_more),
            routes,
        })
    }

    /// Returns the routes to these prefixes. Routes that were removed meanwhile are missing.
    fn routes_to(&self, vrf: &str, prefixes: &[IpNet]) -> Result<Vec<RouteReport>, SwitchError> {
        let mut reports = Vec::new();
        for chunk in prefixes.chunks(CHUNK) {
            let layer3 = self.lock();
            let number = layer3.vrf(vrf).ok_or_else(|| no_vrf(vrf))?;
            for prefix in chunk {
                let mut routes: Vec<_> = layer3.rib.routes_to(number, *prefix).collect();
                routes.sort_unstable_by_key(|shown| shown.route.source);
                reports.extend(routes.into_iter().map(|shown| layer3.route_report(shown)));
            }
            drop(layer3);
            std::thread::sleep(PAUSE);
        }
        Ok(reports)
    }

    /// Returns the static routes and neighbours as settings.
    pub(crate) fn settings(&self) -> (Vec<RouteSetting>, Vec<NeighbourSetting>) {
        let names: Vec<String> = {
            let layer3 = self.lock();
            layer3.vrfs().map(|(_, name)| name.to_owned()).collect()
        };
        let mut routes = Vec::new();
        let mut visited = 0_usize;
        for name in names {
            let mut of_vrf: Vec<RouteSetting> = Vec::new();
            for part in 0..Rib::PARTS {
                let layer3 = self.lock();
                let number = layer3.vrf(&name);
                let shown = number.into_iter();
                let shown = shown.flat_map(|number| layer3.rib.routes_in(number, part));
                let shown = shown.inspect(|_| visited = visited.saturating_add(1));
                let statics = shown.filter(|shown| shown.route.source == Source::Static);
                of_vrf.extend(statics.filter_map(|shown| layer3.route_setting(&name, shown)));
                drop(layer3);
                pause_after(&mut visited);
            }
            of_vrf.sort_unstable_by_key(|setting| setting.prefix);
            routes.append(&mut of_vrf);
        }
        let neighbours = self.lock().neighbour_settings();
        (routes, neighbours)
    }
}

/// Pauses if the lock was held for about a chunk of routes since the last pause.
fn pause_after(visited: &mut usize) {
    if *visited >= CHUNK {
        *visited = 0;
        std::thread::sleep(PAUSE);
    }
}

fn no_vrf(name: &str) -> SwitchError {
    wrong("route", format!("no such VRF: '{name}'"))
}
