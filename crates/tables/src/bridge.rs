// SPDX-License-Identifier: Apache-2.0
//! The learning bridge: selects the output port of a frame (IEEE 802.1Q, sections 8.6 and 8.7).
//!
//! [`decide`] takes a burst of frames as bytes and returns one decision each. It uses no packet buffers, and knows ports by number only, so
//! that tests can call it with any bytes and without DPDK. [`decide_with`] does the same for bridges with VLANs, limits, split-horizon
//! groups or interfaces of their own. [`Settings`] describe such a bridge; [`BridgeTables`] are built from them for forwarding threads.
//!
//! Order of processing and its source (IEEE 802.1Q): the port's acceptable frame types (6.9), the frame's VLAN (6.9.1), ingress filtering
//! (8.6.2), reserved addresses (8.6.3, table 8-1), learning (8.7), the bridge's own address (8.13), forwarding by the filtering database
//! (8.6.3, 8.8), egress filtering (8.6.4), egress tagging (6.9.2). Frames dropped by a step up to the reserved addresses are not learned
//! from.
//!
//! An address with a static entry is not learned on any other port (8.8.1, 8.8.3). A frame with such a source address on another port is
//! counted and still forwarded, because 8.6 does not filter by source.

mod addresses;
mod decision;
mod plain;
#[cfg(any(test, feature = "reference"))]
#[allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "slow and obvious, for tests only"
)]
mod reference;
mod settings;
mod storm;
mod tables;
#[cfg(test)]
mod tests;
mod vlans;

use quietwire_base::BURST_MAX;
use quietwire_packet::ETHERNET_HEADER_LENGTH;

use crate::drops::PortDrop;
use crate::fdb::{Fdb, Hash, Learned, Now};
use addresses::{Addresses, BROADCAST, Hashes};
use tables::{INSIDE, Input};

pub use decision::{Decision, Decisions, Flood, Tally};
pub use plain::decide;
#[cfg(any(test, feature = "reference"))]
pub use reference::{Disposition, Exit, ReferenceBridge, carry_out};
pub use settings::{
    BridgePort, Flooding, Interface, OverLimit, PortVlans, Settings, SettingsError, StormLimits,
    Trunk, Tunnel,
};
pub use storm::{Kind, Storm};
pub use tables::{BridgeTables, Copy, Ingress};
pub use vlans::{Egress, Membership, TagAction, TagType, VlanSet, VlanSetError};

/// The current time, obtained without a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Seconds of the coarse clock, for ageing.
    pub now_s: u32,
    /// Ticks of the clock passed to [`Storm::new`], for storm limits.
    pub ticks: u64,
}

/// A frame between the two passes.
#[derive(Clone, Copy)]
struct Classified {
    addresses: Addresses,
    membership: Result<Membership, PortDrop>,
    hashes: Hashes,
}

/// Decides on a burst received from `from` and learns its source addresses. Frames beyond [`BURST_MAX`] are ignored. `storm` is the
/// remaining storm budget of the port. `decisions` is overwritten.
///
/// In a plain bridge ([`BridgeTables::is_plain`]) this is [`decide`].
#[expect(clippy::arithmetic_side_effects, reason = "at most BURST_MAX frames")]
#[inline]
pub fn decide_with<'frame>(
    tables: &BridgeTables,
    fdb: &Fdb,
    from: Ingress,
    storm: &mut Storm,
    clock: Clock,
    frames: impl Iterator<Item = &'frame [u8]>,
    decisions: &mut Decisions,
) -> Tally {
    if let (true, Ingress::Port(port)) = (tables.is_plain(), from) {
        return decide(fdb, port, clock.now_s, frames, decisions);
    }
    decisions.clear();
    let mut tally = Tally::default();
    let Some(input) = tables.input(from) else {
        for _ in frames.take(BURST_MAX) {
            let decision = Decision::Drop(PortDrop::NoInput);
            tally.count(decision);
            decisions.push(decision);
        }
        return tally;
    };
    let none = Classified {
        addresses: Addresses::NONE,
        membership: Err(PortDrop::Short),
        hashes: Hashes::new(fdb, 0, Addresses::NONE),
    };
    let mut classified = [none; BURST_MAX];
    let mut count = 0;
    for (frame, place) in frames.zip(&mut classified) {
        *place = classify(fdb, input, frame, none);
        count += 1;
    }
    storm.fill(clock.ticks);
    let mut stage = Stage {
        tables,
        fdb,
        input,
        storm,
        now: fdb.now(clock.now_s),
        tally,
    };
    for frame in classified.iter().take(count) {
        let decision = stage.decide(frame);
        stage.tally.count(decision);
        decisions.push(decision);
    }
    stage.tally
}

#[inline(always)]
fn classify(fdb: &Fdb, input: &Input, frame: &[u8], none: Classified) -> Classified {
    let Some(header) = frame.first_chunk::<ETHERNET_HEADER_LENGTH>() else {
        return none;
    };
    let addresses = Addresses::of_header(header);
    match input.classify(header, frame) {
        Ok(membership) => Classified {
            addresses,
            membership: Ok(membership),
            hashes: Hashes::new(fdb, membership.vlan(), addresses).prefetch(fdb),
        },
        Err(reason) => Classified {
            membership: Err(reason),
            ..none
        },
    }
}

/// The second pass over a burst.
struct Stage<'burst> {
    tables: &'burst BridgeTables,
    fdb: &'burst Fdb,
    input: &'burst Input,
    storm: &'burst mut Storm,
    now: Now,
    tally: Tally,
}

impl Stage<'_> {
    #[inline(always)]
    fn decide(&mut self, frame: &Classified) -> Decision {
        self.try_decide(frame).unwrap_or_else(Decision::Drop)
    }

    #[inline(always)]
    fn try_decide(&mut self, frame: &Classified) -> Result<Decision, PortDrop> {
        let membership = frame.membership?;
        let addresses = frame.addresses;
        if addresses.is_reserved() {
            return Err(PortDrop::ReservedAddress);
        }
        let vlan = self.tables.vlan(membership.vlan());
        // A looped frame of our own is not learned from.
        if self.input.learns && addresses.has_station() && addresses.source != vlan.address {
            self.learn(frame.hashes.source)?;
        }
        if addresses.is_to_group() {
            let kind = if addresses.destination == BROADCAST {
                Kind::Broadcast
            } else {
                Kind::Multicast
            };
            return self.flood(kind, membership);
        }
        if addresses.destination == vlan.address && !self.input.is_interface {
            let action = membership.action(INSIDE);
            return Ok(Decision::Local(vlan.interface, action));
        }
        match self.fdb.look_up(frame.hashes.destination, self.now) {
            Some(port) if port == self.input.port => Err(PortDrop::Filtered),
            Some(port) => {
                let egress = self.tables.egress(self.input, membership.vlan(), port)?;
                Ok(match membership.action(egress) {
                    TagAction::None => Decision::Forward(port),
                    action => Decision::ForwardTag(port, action),
                })
            }
            None => self.flood(Kind::UnknownUnicast, membership),
        }
    }

    #[inline(always)]
    fn learn(&mut self, source: Hash) -> Result<(), PortDrop> {
        let Input {
            port,
            learning_limit,
            ..
        } = *self.input;
        match self.fdb.learn(source, port, self.now, learning_limit) {
            Learned::Known => {}
            other => return self.learned(other),
        }
        Ok(())
    }

    #[cold]
    fn learned(&mut self, learned: Learned) -> Result<(), PortDrop> {
        self.tally.count_learned(learned);
        if learned == Learned::OverLimit && self.input.over_limit == OverLimit::Drop {
            return Err(PortDrop::OverLimit);
        }
        Ok(())
    }

    #[inline(always)]
    fn flood(&mut self, kind: Kind, membership: Membership) -> Result<Decision, PortDrop> {
        let set = self.tables.vlan(membership.vlan()).flood(kind);
        if self.tables.is_silent(set) {
            return Err(PortDrop::NotFlooded);
        }
        if !self.storm.allows(kind) {
            return Err(kind.storm());
        }
        Ok(Decision::FloodSet(Flood { set, membership }))
    }
}
