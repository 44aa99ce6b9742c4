// SPDX-License-Identifier: Apache-2.0
//! Reports for the control socket, read from counters and tables while these change.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use quietwire_dpdk::cycles;
use quietwire_host::threads::ReadError;
use quietwire_packet::VlanId;

use crate::bridge_view::BridgeView;
use crate::config::Group;
use crate::counters::{Counter, RouterCounters, Step, ThreadCounters};
use crate::engine::{Engine, Forwarder, Slot};
use crate::report::{
    BridgeCounts, CyclesReport, FdbReport, FlappingReport, GuestReport, MoveReport, NodeMemory,
    ObjectsReport, PortCounts, PortDrop, PortDrops, PortReport, QueueCycles, RouterCounts,
    RuleEffects, StatsReport, StepCounts, ThreadCounts, ThreadCycles, ThreadReport, VlanReport,
};
use crate::threads::{self, forwarding_name};
use quietwire_tables::bridge::{BridgePort, PortVlans, VlanSet};
use quietwire_tables::drops::RouterDrop;
use quietwire_tables::route::Punt;

impl Engine {
    /// Returns the reports of ports.
    pub(crate) fn port_reports(&mut self) -> Vec<PortReport> {
        let counts = self.port_counts();
        counts
            .into_iter()
            .zip(self.ports())
            .filter(|(_, (_, slot))| !slot.is_closing)
            .map(|(counts, (number, slot))| PortReport {
                kept_card_rules: self.rules_kept_by_card(number),
                kernel_forwarding: self.kernel_forwarding_of_port(number),
                ..port_report(self.group_name(&counts.name), counts, slot)
            })
            .chain(self.removed_reports())
            .collect()
    }

    /// Returns the names of the configured objects.
    pub(crate) fn objects_report(&self) -> ObjectsReport {
        let plan = &self.plan;
        let bridges = plan.groups.iter().filter_map(|group| match group {
            Group::Bridge(bridge) => Some(bridge.name.clone()),
            Group::CrossConnect(_) => None,
        });
        let interfaces = plan.layer3.interfaces.iter();
        ObjectsReport {
            ports: plan.ports.iter().map(|port| port.name.clone()).collect(),
            bridges: bridges.collect(),
            // The first one is the main one.
            vrfs: plan.layer3.vrfs.iter().skip(1).cloned().collect(),
            interfaces: interfaces.map(|one| one.name.clone()).collect(),
            nats: plan.nats.iter().map(|nat| nat.name.clone()).collect(),
            load_balancers: plan
                .load_balancers
                .iter()
                .map(|one| one.name.clone())
                .collect(),
            steering: plan.steer.iter().map(|rule| rule.name.clone()).collect(),
            // Maps with keys of text can always be values.
            connections: plan
                .connections
                .as_ref()
                .and_then(|one| serde_json::to_value(one).ok()),
            forwarding_cpus: plan.forwarding_cpus.clone(),
        }
    }

    /// Returns the group of a port; `None` if the port does not exist.
    pub(crate) fn group_of_port(&self, port: &str) -> Option<String> {
        let is_planned = self.plan.ports.iter().any(|one| one.name == port);
        is_planned.then(|| self.group_name(port))
    }

    fn group_name(&self, port: &str) -> String {
        match self.group_of(port) {
            Some(Group::Bridge(bridge)) => bridge.name.clone(),
            Some(Group::CrossConnect(_)) => "cross-connect".to_owned(),
            None => "none".to_owned(),
        }
    }

    /// Returns the threads of the process, with the state of the forwarding ones.
    pub(crate) fn thread_reports(&self) -> Result<Vec<ThreadReport>, ReadError> {
        let mut threads = threads::list()?;
        for thread in &mut threads {
            let mut forwarders = self.forwarders.iter();
            let forwarder = forwarders.find(|one| forwarding_name(one.cpu) == thread.name);
            thread.is_asleep = forwarder.and_then(Forwarder::is_asleep);
            let late = forwarder.and_then(Forwarder::late_for);
            thread.late_s = late.map(|late| late.as_secs_f64());
        }
        Ok(threads)
    }

    /// Returns the counters of all ports.
    pub(crate) fn port_counts(&mut self) -> Vec<PortCounts> {
        for slot in self.slots.iter_mut().flatten() {
            slot.driver.update(&slot.handle);
        }
        self.count_kernel_forwarding();
        self.ports()
            .map(|(number, slot)| since(&self.counted(number), slot))
            .collect()
    }

    /// Returns the addresses that bridges know.
    pub(crate) fn fdb_reports(&self) -> Vec<FdbReport> {
        let now_s = self.shared.now_s.load(Ordering::Relaxed);
        let mut entries = Vec::new();
        for bridge in &self.bridges {
            entries.extend(bridge.fdb.snapshot(now_s).map(|entry| {
                FdbReport {
                    bridge: bridge.name.clone(),
                    vlan: entry.vlan,
                    mac: entry.address,
                    port: self
                        .slot(entry.port)
                        .map_or_else(|| entry.port.to_string(), |slot| slot.plan.name.clone()),
                    age_s: entry.age_s,
                    is_static: entry.is_static,
                }
            }));
        }
        entries
    }

    /// Returns the flapping addresses.
    pub(crate) fn flapping_reports(&self) -> Vec<FlappingReport> {
        let now_s = self.shared.now_s.load(Ordering::Relaxed);
        let mut reports = Vec::new();
        for bridge in &self.bridges {
            reports.extend(bridge.fdb.flapping(now_s).map(|one| FlappingReport {
                bridge: bridge.name.clone(),
                vlan: one.vlan,
                mac: one.address,
                moves: one.moves,
                since_s: one.since_s,
            }));
        }
        reports
    }

    /// Returns the VLANs of bridges.
    pub(crate) fn vlan_reports(&self) -> Vec<VlanReport> {
        let mut reports: BTreeMap<(String, VlanId), VlanReport> = BTreeMap::new();
        for group in &self.plan.groups {
            let Group::Bridge(plan) = group else { continue };
            let number_of = |index: usize| u16::try_from(index).ok();
            let Ok(settings) = plan.settings(&self.plan.ports, number_of, Vec::new()) else {
                continue;
            };
            for setting in &settings.ports {
                let Some(port) = self.plan.ports.get(usize::from(setting.number)) else {
                    continue;
                };
                for (vlan, is_tagged) in vlans_of(&setting.vlans) {
                    let report =
                        reports
                            .entry((plan.name.clone(), vlan))
                            .or_insert_with(|| VlanReport {
                                bridge: plan.name.clone(),
                                vlan,
                                tagged: Vec::new(),
                                untagged: Vec::new(),
                                entries: 0,
                            });
                    let list = if is_tagged {
                        &mut report.tagged
                    } else {
                        &mut report.untagged
                    };
                    list.push(port.name.clone());
                }
            }
            // For trunks of all VLANs, the list has only VLANs that another port names.
            let trunks = settings
                .ports
                .iter()
                .filter(|port| is_for_all(port))
                .count();
            reports.retain(|(bridge, _), report| {
                let ports = report.tagged.len().saturating_add(report.untagged.len());
                *bridge != plan.name || ports > trunks
            });
        }
        for entry in self.fdb_reports() {
            if let Some(vlan) = entry.vlan
                && let Some(report) = reports.get_mut(&(entry.bridge, vlan))
            {
                report.entries = report.entries.saturating_add(1);
            }
        }
        reports.into_values().collect()
    }

    /// Returns all counters.
    pub(crate) fn stats_report(&mut self) -> StatsReport {
        StatsReport {
            uptime_s: self.started.elapsed().as_secs_f64(),
            ports: self.port_counts(),
            threads: self.forwarders.iter().map(thread_counts).collect(),
            router: self.router_counts(),
            bridges: self
                .bridges
                .iter()
                .map(|bridge| self.bridge_counts(bridge))
                .collect(),
        }
    }

    /// Returns the cycles of forwarding threads.
    pub(crate) fn cycles_report(&self) -> CyclesReport {
        let queues = self.queue_reports().into_iter().map(|queue| QueueCycles {
            port: queue.port,
            queue: queue.queue,
            cpu: queue.cpu,
            frames: queue.frames,
            burst_sizes: queue.burst_sizes,
        });
        let threads = self.forwarders.iter().map(|one| ThreadCycles {
            cpu: one.cpu,
            steps: step_counts(&one.counters),
        });
        CyclesReport {
            uptime_s: self.started.elapsed().as_secs_f64(),
            hz: cycles::hz(),
            threads: threads.collect(),
            queues: queues.collect(),
        }
    }

    /// Returns the moves of receive queues, oldest first.
    pub(crate) fn move_reports(&self) -> Vec<MoveReport> {
        self.moved.clone()
    }

    fn bridge_counts(&self, bridge: &BridgeView) -> BridgeCounts {
        let sums = bridge.history.sums(|port| self.sums_of(port));
        let [
            flooded,
            learned,
            moved,
            flapped,
            not_learned,
            static_elsewhere,
        ] = sums;
        BridgeCounts {
            name: bridge.name.clone(),
            entries: bridge.fdb.entries(),
            max_entries: bridge.fdb.entries_max(),
            flooded,
            learned,
            moved,
            flapped,
            not_learned,
            static_elsewhere,
            aged: bridge.aged.load(Ordering::Relaxed),
            kernel_forwarding: self.kernel_forwarding_report(&bridge.name),
        }
    }
}

fn is_for_all(port: &BridgePort) -> bool {
    matches!(&port.vlans, PortVlans::Trunk(trunk) if trunk.allowed == VlanSet::all())
}

impl Engine {
    fn router_counts(&self) -> RouterCounts {
        let all: Vec<&ThreadCounters> = self.counters().collect();
        let sum = |of: &dyn Fn(&RouterCounters) -> u64| -> u64 {
            all.iter().map(|thread| of(&thread.router)).sum()
        };
        let named = |names: Vec<(&'static str, usize)>, of: fn(&RouterCounters) -> &[Counter]| {
            names
                .into_iter()
                .map(|(name, at)| {
                    (
                        name.to_owned(),
                        sum(&|one| of(one).get(at).map_or(0, Counter::get)),
                    )
                })
                .collect()
        };
        let dropped = RouterDrop::ALL.map(|reason| (reason.name(), reason as usize));
        let punted = Punt::ALL.map(|punt| (punt.name(), punt as usize));
        let layer3 = self.layer3.lock();
        let neighbours = layer3.neighbours.counts();
        RouterCounts {
            forwarded: sum(&|one| one.forwarded.get()),
            fragmented: sum(&|one| one.fragmented.get()),
            segmented: sum(&|one| one.segmented.get()),
            dropped: named(dropped.to_vec(), |one| &one.dropped),
            punted: named(punted.to_vec(), |one| &one.punted),
            service_full: sum(&|one| one.service_full.get()),
            not_sent: sum(&|one| one.not_sent.get()).saturating_add(layer3.counts.not_sent),
            echoed: layer3.counts.echoed,
            errors: layer3.counts.errors,
            unknown_protocol: layer3.counts.unknown_protocol,
            to_kernel: layer3.counts.to_kernel,
            kernel_refused: layer3.counts.kernel_refused,
            neighbour_requests: neighbours.asked,
            neighbour_requests_limited: neighbours.not_asked,
            neighbours_evicted: neighbours.evicted,
            neighbour_table_full: neighbours.no_space,
            neighbour_queue_drops: neighbours.overflowed,
            address_conflicts: neighbours.conflicts,
        }
    }
}

/// Returns the VLANs of a port, and whether its frames leave tagged.
fn vlans_of(vlans: &PortVlans) -> Vec<(VlanId, bool)> {
    match vlans {
        PortVlans::Transparent => Vec::new(),
        PortVlans::Access(vlan) => vec![(*vlan, false)],
        PortVlans::Tunnel(tunnel) => vec![(tunnel.vlan, false)],
        PortVlans::Trunk(trunk) => {
            let native = trunk
                .native
                .filter(|vlan| !trunk.allowed.contains(vlan.get()));
            trunk
                .allowed
                .iter()
                .chain(native)
                .map(|vlan| {
                    let is_untagged =
                        trunk.native == Some(vlan) || trunk.untagged.contains(vlan.get());
                    (vlan, !is_untagged)
                })
                .collect()
        }
    }
}

fn port_report(group: String, counts: PortCounts, slot: &Slot) -> PortReport {
    let handle = &slot.handle;
    let link_up = handle.link_is_up();
    let state = match (handle.uri().role(), link_up) {
        (Some(_), true) => "connected",
        (Some(_), false) => "waiting",
        (None, true) => "up",
        (None, false) => "down",
    };
    let (rx_ring_size, tx_ring_size) = handle.ring_sizes();
    let guest = handle.guest().map(|guest| GuestReport {
        features: guest.feature_names(),
        rings: guest.rings,
        ring_size: guest.ring_size,
    });
    PortReport {
        uri: handle.uri().to_string(),
        group,
        link_up,
        state: state.to_owned(),
        waiting_reason: handle.down_reason().filter(|_| !link_up),
        xdp_mode: handle.xdp_mode().map(|mode| mode.to_string()),
        kernel_forwarding: None,
        speed_mbps: handle.speed_mbps(),
        flow_control: handle.flow_control().map(|mode| mode.name().to_owned()),
        link_changes: slot.link.changes,
        kept_card_rules: Vec::new(),
        rx_queues: u16::try_from(slot.queues.len()).unwrap_or(u16::MAX),
        tx_queues: slot.tx_queues,
        rx_ring_size,
        tx_ring_size,
        guest,
        memory: memory_of(&handle.memory_by_node()),
        driver: handle.extended_stats().into_iter().collect(),
        counts,
    }
}

fn memory_of(octets_by_node: &BTreeMap<u32, u64>) -> Vec<NodeMemory> {
    let nodes = octets_by_node.iter();
    let memory = nodes.map(|(node, octets)| NodeMemory {
        node: *node,
        kib: octets / 1024,
    });
    memory.collect()
}

/// Returns the counts since the port was opened.
fn since(all: &PortCounts, slot: &Slot) -> PortCounts {
    let base = &slot.base;
    let driver = &slot.driver;
    let kernel = &slot.kernel;
    // Those of forwarding threads, and those of the kernel.
    let sum = |all: u64, base: u64, kernel: u64| all.saturating_sub(base).saturating_add(kernel);
    PortCounts {
        name: slot.plan.name.clone(),
        rx_frames: sum(all.rx_frames, base.rx_frames, kernel.rx_frames),
        rx_octets: sum(all.rx_octets, base.rx_octets, kernel.rx_octets),
        tx_frames: sum(all.tx_frames, base.tx_frames, kernel.tx_frames),
        tx_octets: sum(all.tx_octets, base.tx_octets, kernel.tx_octets),
        tx_tso_frames: all.tx_tso_frames.saturating_sub(base.tx_tso_frames),
        segmented: all.segmented.saturating_sub(base.segmented),
        merged: all.merged.saturating_sub(base.merged),
        kernel_forwarded: kernel.rx_frames,
        drops: PortDrops::of(|reason| match reason {
            PortDrop::NoBuffers => driver.no_buffers(),
            PortDrop::RxMissed => driver.rx_missed(),
            PortDrop::RxErrors => driver.rx_errors(),
            counted => all.drops[counted].saturating_sub(base.drops[counted]),
        }),
        effects: RuleEffects::of(|effect| all.effects[effect].saturating_sub(base.effects[effect])),
    }
}

fn thread_counts(forwarder: &Forwarder) -> ThreadCounts {
    let counters = &forwarder.counters;
    // In this reading order, the second is never larger than the first.
    let empty_polls = counters.empty_polls.get();
    let polls = counters.polls.get().max(empty_polls);
    ThreadCounts {
        cpu: forwarder.cpu,
        polls,
        empty_polls,
        bursts: polls.saturating_sub(empty_polls),
        yields: counters.yields.get(),
        late_s: forwarder.late_for().map_or(0.0, |late| late.as_secs_f64()),
        rx_frames: counters.ports.iter().map(|port| port.rx_frames.get()).sum(),
        tx_frames: counters.ports.iter().map(|port| port.tx_frames.get()).sum(),
        steps: step_counts(counters),
    }
}

fn step_counts(counters: &ThreadCounters) -> Vec<StepCounts> {
    let counts = Step::ALL.map(|step| {
        let counters = counters.steps.of(step);
        StepCounts {
            step: step.name().to_owned(),
            cycles: counters.cycles.get(),
            bursts: counters.bursts.get(),
            frames: counters.frames.get(),
        }
    });
    counts.to_vec()
}
