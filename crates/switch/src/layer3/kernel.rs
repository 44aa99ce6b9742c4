// SPDX-License-Identifier: Apache-2.0
//! Kernel integration: taps of interfaces, and imported routes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

use ipnet::IpNet;
use quietwire_packet::MacAddress;

use super::{Layer3, no_memory};
use crate::error::SwitchError;
use crate::forward::Mark;
use crate::kernel::{Event, KernelTarget, NeighbourEvent, NeighbourMonitor, RouteMonitor, Tap};
use quietwire_tables::route::NextHopError;
use quietwire_tables::route::rib::{RibError, Route, Source, Target, Via};

/// Kernel tables to follow, each imported into a VRF, and what reads them.
#[derive(Debug)]
pub(crate) struct FollowedTables {
    tables: BTreeMap<u32, u16>,
    monitor: Option<RouteMonitor>,
}

impl Layer3 {
    /// Creates and configures missing taps in advance, each with the addresses, the MAC address and the MTU of its interface, so that
    /// nothing must be undone if one cannot be created.
    ///
    /// # Errors
    /// [`SwitchError::MissingPrerequisite`] for a tap that cannot be created or configured. No tap is created in that case.
    pub(crate) fn prepare_taps<'plan>(
        &mut self,
        wanted: impl Iterator<Item = (&'plan str, &'plan [IpNet], MacAddress, u16)>,
    ) -> Result<(), SwitchError> {
        self.drop_spare_taps();
        for (name, addresses, mac, mtu) in wanted {
            if self.taps.values().any(|tap| tap.name() == name) {
                continue;
            }
            let made = Tap::new(name).and_then(|tap| {
                tap.configure(addresses, mac, mtu)?;
                Ok(tap)
            });
            match made {
                Ok(tap) => self.spare_taps.push(tap),
                Err(error) => {
                    self.drop_spare_taps();
                    return Err(no_memory(error));
                }
            }
        }
        Ok(())
    }

    /// Removes taps that no interface uses.
    pub(crate) fn drop_spare_taps(&mut self) {
        self.spare_taps.clear();
    }

    /// Gives each interface its tap and configures it. Other taps are spare afterwards.
    pub(super) fn settle_taps(&mut self) -> Result<(), SwitchError> {
        let mut all: BTreeMap<String, Tap> = std::mem::take(&mut self.taps)
            .into_values()
            .chain(std::mem::take(&mut self.spare_taps))
            .map(|tap| (tap.name().to_owned(), tap))
            .collect();
        let mut outcome = Ok(());
        for (number, known) in &self.interfaces {
            let tap = known.kernel.as_ref().and_then(|name| all.remove(name));
            if let Some(tap) = tap {
                let info = &known.interface_info;
                let configured = tap.configure(&info.addresses, info.mac, known.mtu);
                outcome = outcome.and(configured.map_err(no_memory));
                self.taps.insert(*number, tap);
            }
        }
        self.spare_taps.extend(all.into_values());
        outcome?;
        self.settle_neighbour_monitor()
    }

    /// Imports the kernel's routes and neighbours again after taps have changed.
    pub(super) fn resynchronise(&mut self, former: &BTreeMap<u16, u32>) {
        let taps = self.tap_indexes();
        let now = self.now();
        for (interface, _) in former
            .iter()
            .filter(|(number, index)| taps.get(number) != Some(index))
        {
            self.neighbours
                .forget_kernel(now, *interface, &mut self.actions);
        }
        // Routes through new taps may have been reported before the taps were known.
        let mut events = Vec::new();
        if let Some(monitor) = &mut self.monitor {
            monitor.resynchronise(&mut |event| events.push(event));
        }
        for event in events {
            self.take_event(event);
        }
        self.requery_kernel_neighbours();
    }

    /// Prepares following these kernel tables, each imported into a VRF; `None` if they are followed already.
    ///
    /// # Errors
    /// [`SwitchError::MissingPrerequisite`] if the kernel refuses.
    pub(crate) fn prepare_follow(
        &self,
        tables: BTreeMap<u32, u16>,
    ) -> Result<Option<FollowedTables>, SwitchError> {
        if self.kernel_tables == tables {
            return Ok(None);
        }
        if tables.is_empty() {
            let monitor = None;
            return Ok(Some(FollowedTables { tables, monitor }));
        }
        let wanted = tables.keys().copied().collect();
        let monitor = RouteMonitor::new(wanted).map_err(|error| {
            SwitchError::MissingPrerequisite(format!("cannot follow the kernel's routes: {error}"))
        })?;
        let monitor = Some(monitor);
        Ok(Some(FollowedTables { tables, monitor }))
    }

    /// Follows the kernel tables of [`Self::prepare_follow`].
    pub(crate) fn follow(&mut self, followed: FollowedTables) {
        let FollowedTables { tables, monitor } = followed;
        let gone: Vec<u16> = self
            .kernel_tables
            .iter()
            .filter(|(table, vrf)| tables.get(table) != Some(vrf))
            .map(|(_, vrf)| *vrf)
            .collect();
        for vrf in gone {
            self.rib.remove_all(vrf, Source::Kernel);
        }
        self.kernel_tables = tables;
        self.late.clear();
        self.monitor = monitor;
    }

    /// Sends frames from the kernel out of their interfaces.
    pub(super) fn receive_from_kernel(&mut self) -> bool {
        let mut frames = Vec::new();
        for (number, tap) in &self.taps {
            tap.receive(|frame| frames.push((*number, frame.to_vec())));
        }
        let busy = !frames.is_empty();
        for (interface, frame) in frames {
            self.push(Mark::Send(interface, false), &frame);
        }
        busy
    }

    /// Passes a frame of an interface to the kernel. Returns false if the interface has no tap.
    pub(super) fn send_to_kernel(&mut self, interface: u16, frame: &[u8]) -> bool {
        let Some(tap) = self.taps.get(&interface) else {
            return false;
        };
        if tap.send(frame) {
            self.counts.to_kernel = self.counts.to_kernel.saturating_add(1);
        } else {
            self.counts.kernel_refused = self.counts.kernel_refused.saturating_add(1);
        }
        true
    }

    /// Imports changes of kernel routes.
    pub(super) fn follow_kernel(&mut self) {
        let Some(mut monitor) = self.monitor.take() else {
            return;
        };
        let mut events = Vec::new();
        if let Err(error) = monitor.turn(Instant::now(), &mut |event| events.push(event)) {
            tracing::warn!("cannot read the kernel's routes: {error}");
        }
        self.monitor = Some(monitor);
        for event in events {
            self.take_event(event);
        }
        if std::mem::take(&mut self.has_reclaimed) {
            let late: Vec<Event> = self.late.values().cloned().collect();
            for event in late {
                self.take_event(event);
            }
        }
    }

    fn take_event(&mut self, event: Event) {
        // The newer event replaces the older one.
        let was_late = self.late.remove(&(event.table, event.prefix)).is_some();
        let again = event.clone();
        let Some(vrf) = self.kernel_tables.get(&event.table).copied() else {
            return;
        };
        let target = event.route.and_then(|(metric, target)| {
            let target = match target {
                KernelTarget::Blackhole => Target::Blackhole,
                KernelTarget::Unreachable => Target::Unreachable,
                KernelTarget::Prohibit => Target::Prohibit,
                KernelTarget::Via(ways) => Target::Via(self.next_hops(ways)?),
            };
            Some((metric, target))
        });
        let Some((metric, target)) = target else {
            self.rib.remove(vrf, event.prefix, Source::Kernel);
            return;
        };
        let route = Route {
            source: Source::Kernel,
            metric,
            target,
        };
        if let Err(error) = self.rib.add(vrf, event.prefix, route) {
            if !was_late {
                tracing::warn!(
                    "cannot import the kernel's route to {}: {error}",
                    event.prefix
                );
            }
            // The former route no longer exists in the kernel, so it is removed.
            self.rib.remove(vrf, event.prefix, Source::Kernel);
            if matches!(
                error,
                RibError::NextHop(NextHopError::Full) | RibError::Fib(_)
            ) {
                self.late.insert((again.table, again.prefix), again);
            }
        }
    }

    /// Returns the next hops of a kernel route that use taps; `None` if there are none.
    fn next_hops(&self, ways: Vec<(Option<IpAddr>, u32, u8)>) -> Option<Vec<Via>> {
        let ways: Vec<Via> = ways
            .into_iter()
            .filter_map(|(gateway, index, weight)| {
                let (interface, _) = self.taps.iter().find(|(_, tap)| tap.index() == index)?;
                Some(Via {
                    gateway,
                    interface: *interface,
                    weight,
                })
            })
            .collect();
        (!ways.is_empty()).then_some(ways)
    }

    /// Returns the interfaces and the kernel's indexes of their taps.
    pub(super) fn tap_indexes(&self) -> BTreeMap<u16, u32> {
        let taps = self.taps.iter();
        taps.map(|(number, tap)| (*number, tap.index())).collect()
    }

    /// Follows the neighbours of the current taps.
    fn settle_neighbour_monitor(&mut self) -> Result<(), SwitchError> {
        let indexes: BTreeSet<u32> = self.tap_indexes().into_values().collect();
        if indexes == self.followed_taps {
            return Ok(());
        }
        let monitor = match indexes.is_empty() {
            true => None,
            false => Some(
                NeighbourMonitor::new(indexes.iter().copied().collect()).map_err(|error| {
                    SwitchError::MissingPrerequisite(format!(
                        "cannot follow the kernel's neighbours: {error}"
                    ))
                })?,
            ),
        };
        self.neighbour_monitor = monitor;
        self.followed_taps = indexes;
        Ok(())
    }

    /// Imports the neighbours configured in the kernel again.
    pub(super) fn requery_kernel_neighbours(&mut self) {
        let Some(monitor) = &self.neighbour_monitor else {
            return;
        };
        let is_set = |event: &NeighbourEvent| event.neighbour.is_some_and(|one| one.is_permanent);
        let events: Vec<NeighbourEvent> = monitor.all().filter(is_set).collect();
        for event in events {
            self.take_neighbour(event);
        }
    }

    /// Imports changes of kernel neighbours.
    pub(super) fn follow_neighbours(&mut self) {
        let Some(mut monitor) = self.neighbour_monitor.take() else {
            return;
        };
        let mut events = Vec::new();
        if let Err(error) = monitor.turn(Instant::now(), &mut |event| events.push(event)) {
            tracing::warn!("cannot read the kernel's neighbours: {error}");
        }
        self.neighbour_monitor = Some(monitor);
        for event in events {
            self.take_neighbour(event);
        }
    }

    fn take_neighbour(&mut self, event: NeighbourEvent) {
        let NeighbourEvent {
            index,
            address,
            neighbour,
        } = event;
        let mut taps = self.taps.iter();
        let Some((number, _)) = taps.find(|(_, tap)| tap.index() == index) else {
            return;
        };
        let Some(known) = self.interfaces.get(number) else {
            return;
        };
        let now = self.now();
        match neighbour {
            Some(one) => self.neighbours.kernel_has(
                now,
                &known.interface_info,
                address,
                (one.mac, one.is_permanent),
                &mut self.actions,
            ),
            None => self
                .neighbours
                .kernel_lost(now, *number, address, &mut self.actions),
        }
    }
}
