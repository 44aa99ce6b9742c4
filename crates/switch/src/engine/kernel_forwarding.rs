// SPDX-License-Identifier: Apache-2.0
//! Kernel forwarding between `veth` ports of a bridge: the kernel gets stations that the bridge knows, and forwards the frames between them.
//!
//! The kernel applies no settings of the switch. Whatever must see or change frames between the ports pauses it ([`Engine::obstacle`]), and
//! so does each change of the configuration, until the threads have the new settings. The table of the bridge stays the original: the
//! control thread copies its entries, and refreshes those whose frames only the kernel receives.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use quietwire_dpdk::{Error, KernelForwarding, PortHandle, PortKind};
use quietwire_packet::VlanId;
use quietwire_tables::bridge::{BridgePort, PortVlans};

use super::Engine;
use super::kernel_bridge::{KernelBridge, KernelPlan, KernelPlanPort, Member, text};
use crate::config::rules::Action;
use crate::config::{BridgePlan, Group};
use crate::counters::PORTS_MAX;
use crate::report::{KernelForwardingReport, KernelForwardingState as State};

/// Minimum interval between two turns.
const TURN: Duration = Duration::from_millis(50);
/// Interval between readings of links and MTUs.
const LINKS: Duration = Duration::from_secs(1);
/// Maximum number of stations of which a turn asks the kernel whether they have sent frames: all of them in less than a second, which is the
/// shortest ageing time.
const READS_A_TURN: usize = 512;

/// Minimum number of ports that the kernel forwards between.
const PORTS_MIN: usize = 2;

/// Returns the VLAN of a port that takes part, or `None` inside if the bridge has none. Ports whose frames change their tags take no part.
fn vlan_of(port: &BridgePort) -> Option<Option<VlanId>> {
    match &port.vlans {
        PortVlans::Transparent => Some(None),
        PortVlans::Access(vlan) => Some(Some(*vlan)),
        PortVlans::Trunk(_) | PortVlans::Tunnel(_) => None,
    }
}

impl Engine {
    /// Stops kernel forwarding until [`Self::settle_kernel_forwarding`]. Afterwards, the threads receive every frame.
    pub(super) fn pause_kernel_forwarding(&mut self) {
        let mut all = std::mem::take(&mut self.kernel_forwarding);
        for (name, bridge) in &mut all.bridges {
            self.count_kernel_frames(bridge);
            if let Err(error) = bridge.pause("a change of the configuration is in progress") {
                tracing::warn!("bridge '{name}': {error}");
                self.end_kernel_bridge(bridge);
            }
        }
        self.kernel_forwarding = all;
    }

    /// Brings kernel forwarding in line with the running plan, and with the addresses that bridges know.
    pub(crate) fn settle_kernel_forwarding(&mut self) {
        // An error of the kernel may be gone.
        let bridges = &mut self.kernel_forwarding.bridges;
        bridges.retain(|_, bridge| bridge.state != State::Unavailable);
        self.keep_kernel_forwarding(usize::MAX);
    }

    /// Does a part of that, at a bounded rate.
    pub(crate) fn turn_kernel_forwarding(&mut self) {
        let turned = self.kernel_forwarding.turned;
        if turned.is_none_or(|turned| turned.elapsed() >= TURN) {
            self.kernel_forwarding.turned = Some(Instant::now());
            self.keep_kernel_forwarding(READS_A_TURN);
        }
    }

    fn keep_kernel_forwarding(&mut self, reads: usize) {
        let plans = self.kernel_plans();
        let mut all = std::mem::take(&mut self.kernel_forwarding);
        all.bridges.retain(|name, bridge| {
            let is_planned = plans.iter().any(|plan| plan.name == *name);
            if !is_planned {
                self.end_kernel_bridge(bridge);
            }
            is_planned
        });
        // A port may have changed its bridge: it leaves one before it joins the other.
        let steps = [true, false].into_iter();
        let steps = steps.flat_map(|leaves| plans.iter().map(move |plan| (leaves, plan)));
        for (leaves, plan) in steps {
            let bridge = all.bridges.entry(plan.name.clone()).or_default();
            if bridge.state == State::Unavailable {
                continue;
            }
            let kept = match leaves {
                true => self.leave_kernel_ports(bridge, plan),
                false => self.keep_kernel_bridge(bridge, plan, reads),
            };
            if let Err(error) = kept {
                let (name, effect) = (&plan.name, "the switch forwards all frames");
                if plan.is_required {
                    tracing::warn!("bridge '{name}': {error} ({effect})");
                } else {
                    tracing::info!("bridge '{name}': {error} ({effect})");
                }
                self.end_kernel_bridge(bridge);
                bridge.state = State::Unavailable;
                bridge.reason = Some(text(&error));
            }
        }
        self.kernel_forwarding = all;
    }

    fn keep_kernel_bridge(
        &mut self,
        bridge: &mut KernelBridge,
        plan: &KernelPlan,
        reads: usize,
    ) -> Result<(), Error> {
        if let Some(reason) = plan.obstacle {
            return bridge.pause(reason);
        }
        if bridge.forwarding.is_none() {
            let ports_max = u16::try_from(PORTS_MAX).unwrap_or(u16::MAX);
            bridge.forwarding = Some(KernelForwarding::new(ports_max)?);
        }
        self.join_kernel_ports(bridge, plan)?;
        self.read_kernel_links(bridge)?;
        let now_s = self.shared.now_s.load(Ordering::Relaxed);
        bridge.follow(&plan.fdb, now_s, reads)?;
        bridge.learn(plan, now_s)?;
        bridge.activate()
    }

    /// Removes the ports that the plan does not contain.
    fn leave_kernel_ports(
        &mut self,
        bridge: &mut KernelBridge,
        plan: &KernelPlan,
    ) -> Result<(), Error> {
        let is_planned = |number: u16, member: &Member| {
            let mut ports = plan.ports.iter();
            ports.any(|port| {
                port.number == number && port.name == member.name && port.vlan == member.vlan
            })
        };
        let members = bridge.members.iter();
        let leaving = members.filter(|(number, member)| !is_planned(**number, member));
        let leaving: Vec<u16> = leaving.map(|(number, _)| *number).collect();
        if leaving.is_empty() {
            return Ok(());
        }
        self.count_kernel_frames(bridge);
        for number in leaving {
            bridge.forget_port(number)?;
            if let Some(member) = bridge.members.remove(&number) {
                self.leave_kernel_port(number, member);
            }
        }
        Ok(())
    }

    /// Ends the part of a port. The port may be closed already.
    fn leave_kernel_port(&self, number: u16, member: Member) {
        let slot = self.slot(number);
        if let Some(slot) = slot.filter(|slot| slot.plan.name == member.name) {
            slot.handle.leave_kernel_forwarding(member.port);
        }
    }

    fn join_kernel_ports(&self, bridge: &mut KernelBridge, plan: &KernelPlan) -> Result<(), Error> {
        for planned in &plan.ports {
            let KernelPlanPort { number, name, vlan } = planned;
            let slot = self.slot(*number);
            let (Some(forwarding), Some(slot)) = (&bridge.forwarding, slot) else {
                continue;
            };
            if bridge.members.contains_key(number) {
                continue;
            }
            // The port may have the number of a former one.
            let counted = forwarding.counts(*number)?;
            let port = slot
                .handle
                .join_kernel_forwarding(forwarding, *number, *vlan)?;
            let member = Member {
                name: name.clone(),
                vlan: *vlan,
                port,
                length_max: None,
                counted,
            };
            bridge.members.insert(*number, member);
            bridge.links_read = None;
        }
        Ok(())
    }

    /// Reads the links and MTUs of ports from time to time. A station of a port whose link is down, or whose MTU has changed, is removed.
    fn read_kernel_links(&self, bridge: &mut KernelBridge) -> Result<(), Error> {
        if bridge.links_read.is_some_and(|read| read.elapsed() < LINKS) {
            return Ok(());
        }
        bridge.links_read = Some(Instant::now());
        let mut changed = Vec::new();
        for (number, member) in &mut bridge.members {
            let handle = self.slot(*number).map(|slot| &slot.handle);
            let is_up = |handle: &&PortHandle| handle.link_is_up();
            let length_max = handle.filter(is_up).and_then(PortHandle::kernel_length_max);
            if length_max != member.length_max {
                member.length_max = length_max;
                changed.push(*number);
            }
        }
        changed
            .into_iter()
            .try_for_each(|number| bridge.forget_port(number))
    }

    /// Ends kernel forwarding of a bridge.
    fn end_kernel_bridge(&mut self, bridge: &mut KernelBridge) {
        self.count_kernel_frames(bridge);
        for (number, member) in std::mem::take(&mut bridge.members) {
            self.leave_kernel_port(number, member);
        }
        *bridge = KernelBridge::default();
    }

    /// Adds the frames that the kernel has forwarded since the last call to the counts of their ports.
    pub(crate) fn count_kernel_forwarding(&mut self) {
        let mut all = std::mem::take(&mut self.kernel_forwarding);
        for bridge in all.bridges.values_mut() {
            self.count_kernel_frames(bridge);
        }
        self.kernel_forwarding = all;
    }

    fn count_kernel_frames(&mut self, bridge: &mut KernelBridge) {
        let Some(forwarding) = &bridge.forwarding else {
            return;
        };
        for (number, member) in &mut bridge.members {
            let counts = match forwarding.counts(*number) {
                Ok(counts) => counts,
                Err(error) => {
                    tracing::warn!("port '{}': frames are not counted: {error}", member.name);
                    continue;
                }
            };
            let slot = self.slot_mut(*number);
            if let Some(slot) = slot.filter(|slot| slot.plan.name == member.name) {
                slot.kernel = slot.kernel.plus(counts.since(member.counted));
            }
            member.counted = counts;
        }
    }

    fn kernel_plans(&self) -> Vec<KernelPlan> {
        let bridges = self.plan.groups.iter().filter_map(|group| match group {
            Group::Bridge(bridge) => bridge
                .kernel_forwarding
                .unwrap_or(self.forwards_in_kernel)
                .then_some(bridge),
            Group::CrossConnect(_) => None,
        });
        bridges
            .filter_map(|bridge| self.kernel_plan(bridge))
            .collect()
    }

    fn kernel_plan(&self, bridge: &BridgePlan) -> Option<KernelPlan> {
        let view = self.bridges.iter().find(|view| view.name == bridge.name)?;
        let number_of = |index: usize| self.number_in_use(&self.plan.ports.get(index)?.name);
        // Settings that are in force are valid.
        let settings = bridge.settings(&self.plan.ports, number_of, Vec::new());
        let mut settings = settings.ok()?.ports;
        settings.retain(|port| vlan_of(port).is_some() && self.is_veth(port.number));
        let is_required = bridge.kernel_forwarding.is_some();
        if settings.len() < PORTS_MIN && !is_required {
            return None;
        }
        let port = |port: &BridgePort| {
            Some(KernelPlanPort {
                number: port.number,
                name: self.slot(port.number)?.plan.name.clone(),
                vlan: vlan_of(port)?,
            })
        };
        let own = self.interfaces_on(&bridge.name, &self.plan);
        Some(KernelPlan {
            name: bridge.name.clone(),
            is_required,
            fdb: Arc::clone(&view.fdb),
            ports: settings.iter().filter_map(port).collect(),
            own: own.into_iter().map(|one| one.address).collect(),
            obstacle: self.obstacle(&settings),
        })
    }

    fn is_veth(&self, number: u16) -> bool {
        let slot = self.slot(number);
        slot.is_some_and(|slot| slot.plan.uri.kind() == PortKind::Veth)
    }

    /// Returns the reason why the kernel must not forward between these ports: something that sees or decides on frames between known
    /// stations. Limits of learning and of storms do not, because they concern other frames.
    fn obstacle(&self, ports: &[BridgePort]) -> Option<&'static str> {
        let any = |is_it: &dyn Fn(u16) -> bool| ports.iter().any(|port| is_it(port.number));
        let has_steering = |number: u16| {
            let slot = self.slot(number);
            slot.is_some_and(|slot| self.plan.steering_of(&slot.plan.name).next().is_some())
        };
        let obstacles = [
            (self.watches.has_capture(), "a capture is running"),
            (self.watches.has_trace(), "a trace is running"),
            (self.plan.connections.is_some(), "connections are tracked"),
            (
                self.plan.rules.default != Action::Accept,
                "the default of the filter rules is not accept",
            ),
            (
                any(&|number| self.has_rules(number, false) || self.has_rules(number, true)),
                "filter rules concern its ports",
            ),
            (
                any(&|number| self.guard_of(number).is_some()),
                "a port has a source guard",
            ),
            (
                any(&|number| has_steering(number) || self.steered_port(number).is_some()),
                "steering rules concern its ports",
            ),
            (
                ports.iter().any(|port| port.split_horizon.is_some()),
                "a port is in a split-horizon group",
            ),
            (
                ports.len() < PORTS_MIN,
                "fewer than two veth ports are access ports or without VLANs",
            ),
        ];
        let found = obstacles.into_iter().find(|(is_there, _)| *is_there);
        found.map(|(_, reason)| reason)
    }

    /// Returns the state of kernel forwarding at a port, if the port takes part or would.
    pub(crate) fn kernel_forwarding_of_port(&self, number: u16) -> Option<String> {
        let bridge = self.bridge_of(&self.slot(number)?.plan.name)?;
        let kernel = self.kernel_forwarding.bridges.get(bridge)?;
        let takes_part = match kernel.state {
            State::Active => kernel.members.contains_key(&number),
            State::Paused | State::Unavailable => self.is_veth(number),
        };
        takes_part.then(|| kernel.state_text())
    }

    /// Returns the report about a bridge with kernel forwarding.
    pub(crate) fn kernel_forwarding_report(&self, bridge: &str) -> Option<KernelForwardingReport> {
        let kernel = self.kernel_forwarding.bridges.get(bridge)?;
        Some(kernel.report())
    }
}
