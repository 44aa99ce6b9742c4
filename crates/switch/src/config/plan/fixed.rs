// SPDX-License-Identifier: Apache-2.0
//! Settings that are fixed at start-up.

use super::Plan;
use crate::config::connections::{self, ReplicationSetting};
use crate::error::SwitchError;

impl Plan {
    /// Returns the settings of replication, with or without connection tracking.
    pub(crate) fn replication(&self) -> Option<&ReplicationSetting> {
        let tracking = self.connections.as_ref();
        let of_tracking = tracking.and_then(|one| one.replication.as_ref());
        of_tracking.or(self.replication.as_ref())
    }

    /// Refuses changes of settings that are fixed at start-up.
    pub(crate) fn check_changeable(&self, next: &Self) -> Result<(), SwitchError> {
        let same = [
            ("service-cpus", self.service_cpus == next.service_cpus),
            ("control-cpus", self.control_cpus == next.control_cpus),
            ("rx-ring-size", self.rx_ring_size == next.rx_ring_size),
            ("tx-ring-size", self.tx_ring_size == next.tx_ring_size),
            ("frame-size-max", self.frame_size_max == next.frame_size_max),
            ("idle", self.idle == next.idle),
            ("pinning", self.pinning == next.pinning),
            ("huge-pages", self.huge_pages == next.huge_pages),
            ("memory-mib", self.memory_mib == next.memory_mib),
            ("user", self.user == next.user),
            ("seccomp", self.seccomp == next.seccomp),
            ("later-ports", self.later_ports == next.later_ports),
            ("metrics", self.metrics == next.metrics),
            ("control-socket", self.control_socket == next.control_socket),
            ("replication", self.replication == next.replication),
            ("nat-log", self.nat_log == next.nat_log),
            (
                "nat-log-collector",
                self.nat_log_collector == next.nat_log_collector,
            ),
            ("nat-log-events", self.nat_log_events == next.nat_log_events),
        ];
        let different = same.iter().find(|(_, same)| !same).map(|(key, _)| *key);
        let tracking = (self.connections.as_ref(), next.connections.as_ref());
        match different.or_else(|| connections::fixed_key(tracking)) {
            None => Ok(()),
            Some(key) => Err(SwitchError::Config {
                location: key.to_owned(),
                what: "this setting cannot change at run time (restart the switch)".to_owned(),
            }),
        }
    }
}
