// SPDX-License-Identifier: Apache-2.0
//! Bridges with kernel forwarding: their state, their ports, and the stations that the kernel has.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use quietwire_dpdk::{
    Error, KERNEL_ADDRESSES_MAX, KernelCounts, KernelForwarding, KernelPort, KernelStation,
};
use quietwire_packet::{MacAddress, VlanId};
use quietwire_tables::fdb::{Fdb, Key};

use crate::report::{KernelForwardingReport, KernelForwardingState as State};

/// Buckets of the bridge's table that a turn copies entries from.
const BUCKETS_A_TURN: usize = 8192;
/// Maximum number of stations that the kernel gets in a turn.
const NEW_A_TURN: usize = 256;

/// Bridges with kernel forwarding, by name.
#[derive(Debug, Default)]
pub(super) struct KernelBridges {
    pub(super) bridges: BTreeMap<String, KernelBridge>,
    pub(super) turned: Option<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct KernelBridge {
    pub(super) state: State,
    /// The reason for another state than active.
    pub(super) reason: Option<String>,
    pub(super) forwarding: Option<KernelForwarding>,
    /// Ports by number.
    pub(super) members: BTreeMap<u16, Member>,
    /// Stations that the kernel has, but for those that it has removed itself.
    pub(super) stations: BTreeMap<Key, Station>,
    /// The last station that was asked for; `None` at the end of the list.
    pub(super) last_read: Option<Key>,
    pub(super) next_bucket: usize,
    pub(super) links_read: Option<Instant>,
}

/// A port that takes part.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) vlan: Option<VlanId>,
    pub(super) port: KernelPort,
    /// Longest frame to it, octets; `None` while its link is down.
    pub(super) length_max: Option<u32>,
    /// Counts that are in the port's own already.
    pub(super) counted: KernelCounts,
}

/// A station that the kernel has.
#[derive(Debug)]
pub(super) struct Station {
    pub(super) port: u16,
    /// When the kernel forwarded its last frame, by the kernel's clock; 0 before the first one.
    pub(super) last_frame: u64,
}

/// The part of a bridge in kernel forwarding, by the running plan.
pub(super) struct KernelPlan {
    pub(super) name: String,
    /// True if the settings of the bridge require it. Otherwise the kernel forwards if it can.
    pub(super) is_required: bool,
    pub(super) fdb: Arc<Fdb>,
    pub(super) ports: Vec<KernelPlanPort>,
    /// Addresses of the bridge's own interfaces.
    pub(super) own: BTreeSet<MacAddress>,
    /// The reason why the kernel must not forward.
    pub(super) obstacle: Option<&'static str>,
}

pub(super) struct KernelPlanPort {
    pub(super) number: u16,
    pub(super) name: String,
    pub(super) vlan: Option<VlanId>,
}

/// Returns a station in the kernel's form.
const fn station(key: Key) -> KernelStation {
    KernelStation {
        address: key.address(),
        vlan: key.vlan(),
    }
}

/// Returns an error as a reason.
pub(super) fn text(error: &Error) -> String {
    match error {
        Error::KernelForwarding { step, cause } => format!("{step}: {cause}"),
        other => other.to_string(),
    }
}

impl KernelBridge {
    /// Stops forwarding from the next frame on.
    pub(super) fn pause(&mut self, reason: &str) -> Result<(), Error> {
        if self.state == State::Active
            && let Some(forwarding) = &self.forwarding
        {
            forwarding.set_active(false)?;
        }
        self.state = State::Paused;
        self.reason = Some(reason.to_owned());
        Ok(())
    }

    pub(super) fn activate(&mut self) -> Result<(), Error> {
        if self.state != State::Active
            && let Some(forwarding) = &self.forwarding
        {
            forwarding.set_active(true)?;
            self.state = State::Active;
            self.reason = None;
        }
        Ok(())
    }

    /// Removes stations from the kernel.
    fn forget(&mut self, keys: &[Key]) -> Result<(), Error> {
        let Some(forwarding) = &self.forwarding else {
            return Ok(());
        };
        for key in keys {
            forwarding.remove_station(station(*key))?;
            self.stations.remove(key);
        }
        Ok(())
    }

    pub(super) fn forget_port(&mut self, port: u16) -> Result<(), Error> {
        let at_port = self.stations.iter().filter(|(_, one)| one.port == port);
        let keys: Vec<Key> = at_port.map(|(key, _)| *key).collect();
        self.forget(&keys)
    }

    /// Refreshes the entries of stations whose frames the kernel has forwarded, of at most `reads` stations, and removes all stations that
    /// the bridge does not know at their port any more.
    pub(super) fn follow(&mut self, fdb: &Fdb, now_s: u32, reads: usize) -> Result<(), Error> {
        let Some(forwarding) = &self.forwarding else {
            return Ok(());
        };
        let now = fdb.now(now_s);
        let after = self.last_read.take().filter(|_| reads < usize::MAX);
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut gone = Vec::new();
        let mut read = 0_usize;
        for (key, known) in self.stations.range_mut((after, Bound::Unbounded)) {
            if read == reads {
                break;
            }
            read = read.saturating_add(1);
            self.last_read = Some(*key);
            match forwarding.last_frame(station(*key))? {
                // It sent from elsewhere.
                None => gone.push(*key),
                Some(last_frame) if last_frame != known.last_frame => {
                    known.last_frame = last_frame;
                    fdb.refresh(fdb.hash(*key), known.port, now);
                }
                Some(_) => {}
            }
        }
        if read < reads {
            self.last_read = None;
        }
        let is_lost =
            |(key, known): &(&Key, &Station)| fdb.look_up(fdb.hash(**key), now) != Some(known.port);
        gone.extend(self.stations.iter().filter(is_lost).map(|(key, _)| *key));
        self.forget(&gone)
    }

    /// Gives the kernel stations that the bridge has learned.
    pub(super) fn learn(&mut self, plan: &KernelPlan, now_s: u32) -> Result<(), Error> {
        let Some(forwarding) = &self.forwarding else {
            return Ok(());
        };
        let first = self.next_bucket;
        let next = first.saturating_add(BUCKETS_A_TURN);
        self.next_bucket = if next < plan.fdb.buckets() { next } else { 0 };
        let mut left = NEW_A_TURN;
        for entry in plan.fdb.snapshot_of(first, BUCKETS_A_TURN, now_s) {
            let member = self.members.get(&entry.port);
            let Some(member) = member.filter(|member| member.vlan == entry.vlan) else {
                continue;
            };
            let is_own = plan.own.contains(&entry.address) || entry.address.is_multicast();
            let Some(length_max) = member.length_max.filter(|_| !is_own) else {
                continue;
            };
            let vlan = entry.vlan.map_or(0, VlanId::get);
            let key = Key::in_vlan(vlan, entry.address.to_u64());
            let known = self.stations.get(&key);
            if known.is_some_and(|known| known.port == entry.port) {
                continue;
            }
            let is_full = known.is_none() && self.stations.len() >= KERNEL_ADDRESSES_MAX;
            if left == 0 || is_full {
                break;
            }
            left = left.saturating_sub(1);
            forwarding.set_station(station(key), &member.port, length_max)?;
            let port = entry.port;
            self.stations.insert(
                key,
                Station {
                    port,
                    last_frame: 0,
                },
            );
        }
        Ok(())
    }

    /// Returns the state, and the reason for another one than active.
    pub(super) fn state_text(&self) -> String {
        let name = self.state.name();
        match &self.reason {
            Some(reason) => format!("{name}: {reason}"),
            None => name.to_owned(),
        }
    }

    pub(super) fn report(&self) -> KernelForwardingReport {
        let names = self.members.values().map(|member| member.name.clone());
        KernelForwardingReport {
            state: self.state,
            reason: self.reason.clone(),
            ports: names.collect(),
            addresses: u32::try_from(self.stations.len()).unwrap_or(u32::MAX),
        }
    }
}
