// SPDX-License-Identifier: Apache-2.0
//! Network cards while the switch runs: changes of their links, resets, and their removal from the machine. A removed card costs only its
//! own port: its queues leave their threads, and its device is closed, for which the kernel waits.

use quietwire_dpdk::PortUri;

use super::{Engine, Slot};
use crate::report::PortReport;

impl Engine {
    /// Reads the links of network cards, and logs changes. It polls because several drivers report no event when a link changes. A link
    /// that returns may be that of a card which was reset, and has lost its flow rules.
    pub(crate) fn watch_links(&mut self) {
        for slot in self.slots.iter_mut().flatten() {
            let is_card =
                matches!(slot.plan.uri, PortUri::Pci { .. }) || slot.handle.has_flow_rules();
            if slot.is_closing || !is_card {
                continue;
            }
            let is_up = slot.handle.link_is_up();
            if !slot.link.note(is_up) {
                continue;
            }
            let name = &slot.plan.name;
            match slot.handle.speed_mbps() {
                _ if !is_up => tracing::warn!("port '{name}': the link is down"),
                Some(speed) => tracing::info!("port '{name}': the link is up, {speed} Mbit/s"),
                None => tracing::info!("port '{name}': the link is up"),
            }
            match slot.handle.renew_flow_rules() {
                Ok(0) => {}
                Ok(count) => {
                    tracing::warn!(
                        "port '{name}': restored {count} flow rules that the card had lost"
                    );
                }
                Err(error) => tracing::error!("{error}"),
            }
        }
    }

    /// Logs ports whose device was reset, by its physical function or its firmware. The ports stay open.
    pub(crate) fn report_resets(&self) {
        for (_, slot) in self.ports() {
            if !slot.is_closing && slot.handle.take_reset() {
                tracing::error!(
                    "port '{}': the device of {} was reset, and may forward no frames; other ports are not affected (delete the port, and add it again)",
                    slot.plan.name,
                    slot.plan.uri
                );
            }
        }
    }

    /// Takes ports out of service whose device was removed.
    pub(crate) fn retire_removed(&mut self) {
        let is_removed = |slot: &Slot| !slot.is_closing && slot.handle.is_removed();
        let numbers: Vec<u16> = self
            .ports()
            .filter(|(_, slot)| is_removed(slot))
            .map(|(number, _)| number)
            .collect();
        if !numbers.is_empty() {
            self.retire(&numbers);
        }
    }

    /// Returns the last reports of ports whose device was removed.
    pub(crate) fn removed_reports(&self) -> Vec<PortReport> {
        self.removed.reports().collect()
    }

    /// Takes ports out of service. Steps that a late thread prevents follow once it replies.
    pub(super) fn retire(&mut self, numbers: &[u16]) {
        let reports = self.port_reports();
        for number in numbers {
            let Some(slot) = self.slot_mut(*number) else {
                continue;
            };
            slot.is_closing = true;
            let plan = slot.plan.clone();
            let uri = &plan.uri;
            tracing::error!(
                "port '{}': the device of {uri} was removed; other ports are not affected (delete the port, and add it again when the device is back)",
                plan.name
            );
            let report = reports.iter().find(|one| one.counts.name == plan.name);
            self.removed.add(plan, report.cloned().unwrap_or_default());
        }
        let plan = self.plan.clone();
        if let Err(error) = self.apply(plan) {
            self.loose.is_unsettled = true;
            tracing::warn!("the removed port is closed later: {error}");
        }
    }
}
