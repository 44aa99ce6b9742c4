// SPDX-License-Identifier: Apache-2.0
//! Steering of an interface's frames by an XDP program: frames that match go to AF_XDP sockets, all others to the kernel.
//!
//! A list of rules becomes an eBPF program ([`program`]), which the kernel checks and runs on each received frame. No compiler and no file
//! is required. A change loads a new program and replaces the former one in a single step (bpf(2), `BPF_LINK_UPDATE`), so a frame meets
//! either all former or all new rules. The program belongs to a BPF link, which the kernel removes with the process.
//!
//! A rule can also select a receive queue or a virtual function. The card then delivers the frames there by a flow rule of its driver
//! (ethtool n-tuple rules: [`flow_spec`], [`card_rules`]), and the program counts frames that come in elsewhere. A card with a DPDK driver
//! gets flow rules by that driver ([`offload`]).
//!
//! This module knows rules, programs and maps. It must not know ports.

pub(crate) mod card_rules;
pub(crate) mod flow_spec;
pub(crate) mod offload;
mod program;
mod rule;
mod slots;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::ebpf::bpf;
use program::Maps;
use slots::Slots;

pub use rule::{CardTarget, STEER_RULES_MAX, SteerMatch, SteerRule, SteerTarget};

/// Frames counted by an interface's program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SteerHits {
    /// Frames that each rule decided on, in the order of the rules, since the rule was added.
    pub rules: Vec<u64>,
    /// Frames among them that the card should have delivered to another queue, or to a virtual function.
    pub misplaced: Vec<u64>,
    /// Frames that matched no rule, since the first rule of the port was added.
    pub unmatched: u64,
}

/// Program and maps that are loaded, but not attached.
#[derive(Debug)]
pub(crate) struct Prepared {
    maps: Maps<OwnedFd>,
    program: OwnedFd,
    slots: Slots,
}

/// The program on an interface. It is detached when this value is dropped, and when the process ends.
#[derive(Debug)]
pub(crate) struct Steering {
    maps: Maps<OwnedFd>,
    link: OwnedFd,
    slots: Slots,
}

impl Prepared {
    /// Loads a program for rules. Frames for the switch go to the AF_XDP socket of the receive queue that they came in on, one of the first
    /// `queues`.
    ///
    /// # Errors
    /// The kernel's error; on refusal of the program, with the end of the verifier's log.
    pub(crate) fn new(queues: u32, rules: &[SteerRule]) -> io::Result<Self> {
        let maps = Maps {
            sockets: bpf::socket_map(queues.max(1))?,
            hits: bpf::counter_map(slots::COUNT_ALL)?,
        };
        let slots = Slots::default().with(rules).0;
        let program = load(&maps, &slots)?;
        Ok(Self {
            maps,
            program,
            slots,
        })
    }

    /// Sets the sockets of receive queues.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn set_sockets<'socket>(
        &self,
        sockets: impl Iterator<Item = (u32, BorrowedFd<'socket>)>,
    ) -> io::Result<()> {
        for (queue, socket) in sockets {
            bpf::set_socket(self.maps.sockets.as_fd(), queue, socket)?;
        }
        Ok(())
    }

    /// Attaches the program to an interface without XDP program, in a mode (linux/if_link.h, `XDP_FLAGS_*_MODE`).
    ///
    /// # Errors
    /// The kernel's error, such as EBUSY if another program is attached.
    pub(crate) fn attach(self, interface: u32, mode: u32) -> io::Result<Steering> {
        let link = bpf::attach(self.program.as_fd(), interface, mode)?;
        Ok(Steering {
            maps: self.maps,
            link,
            slots: self.slots,
        })
    }
}

impl Steering {
    /// Replaces all rules in one step. Equal rules keep their counters. Without rules, all frames go to the switch.
    ///
    /// # Errors
    /// The kernel's error. The former rules stay.
    pub(crate) fn replace(&mut self, rules: &[SteerRule]) -> io::Result<()> {
        if self.slots.rules().map(|(rule, _)| rule).eq(rules) {
            return Ok(());
        }
        let (slots, fresh) = self.slots.with(rules);
        let program = load(&self.maps, &slots)?;
        // The running program counts in other slots.
        for slot in fresh {
            bpf::clear_counter(self.maps.hits.as_fd(), slot)?;
            bpf::clear_counter(self.maps.hits.as_fd(), slots::misplaced(slot))?;
        }
        bpf::update(self.link.as_fd(), program.as_fd())?;
        self.slots = slots;
        Ok(())
    }

    /// Returns the counters.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn hits(&self) -> io::Result<SteerHits> {
        let hits = self.maps.hits.as_fd();
        let (mut rules, mut misplaced) = (Vec::new(), Vec::new());
        for (_, slot) in self.slots.rules() {
            let elsewhere = bpf::counter(hits, slots::misplaced(slot))?;
            rules.push(bpf::counter(hits, slot)?.wrapping_add(elsewhere));
            misplaced.push(elsewhere);
        }
        Ok(SteerHits {
            rules,
            misplaced,
            unmatched: bpf::counter(hits, slots::UNMATCHED)?,
        })
    }
}

fn load(maps: &Maps<OwnedFd>, slots: &Slots) -> io::Result<OwnedFd> {
    let program = program::generate(slots, &maps.as_fds(), program::PASS);
    bpf::load(&program.map_err(io::Error::other)?)
}
