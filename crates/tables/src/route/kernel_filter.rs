// SPDX-License-Identifier: Apache-2.0
//! Packets that the kernel is to have although they are not for the router's own addresses: those that rules match go to the
//! tap of the interface that they came in by, instead of on.
//!
//! The rules are looked at one by one, after everything else was decided. Without rules there is none of this: a burst
//! costs one look at an `Option`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::decision::{Decision, Decisions, Punt};
use super::interfaces::Interfaces;
use crate::drops::RouterDrop;
use crate::filter::{Headers, PacketMatch, Pattern};

/// Rules that there can be.
pub const FILTER_RULES_MAX: usize = 64;

/// What a rule asks of a packet; what it does not name may be anything. Rules about IP match no fragment but the first
/// when they name ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterRule {
    /// Number of the interface that the packet came in by.
    pub interface: Option<u16>,
    /// Number of the VRF of that interface.
    pub vrf: Option<u16>,
    /// What is asked of its headers.
    pub packet: PacketMatch,
}

/// A rule as it is compared.
#[derive(Clone, Copy, Debug)]
struct Compared {
    /// [`ANY`] or a number.
    interface: u32,
    vrf: u32,
    pattern: Pattern,
}

const ANY: u32 = u32::MAX;

/// All rules, with what they have matched.
#[derive(Debug)]
pub struct KernelFilter {
    rules: Vec<Compared>,
    matched: Vec<Arc<AtomicU64>>,
    /// By number of the interface: whether it has a tap.
    taps: Vec<bool>,
}

impl Compared {
    fn new(rule: &FilterRule) -> Self {
        let number = |one: Option<u16>| one.map_or(ANY, u32::from);
        Self {
            interface: number(rule.interface),
            vrf: number(rule.vrf),
            pattern: Pattern::new(&rule.packet),
        }
    }

    #[inline(always)]
    fn matches(&self, seen: &Headers, interface: u16, vrf: u16) -> bool {
        let is = |asked: u32, is: u16| asked == ANY || asked == u32::from(is);
        is(self.interface, interface) && is(self.vrf, vrf) && self.pattern.matches(seen)
    }
}

/// Whether rules may say otherwise. What is damaged, for another station, or from a source that is not to be believed, stays
/// dropped; what goes to the service thread for the router's own sake gets to the kernel from there.
#[inline(always)]
const fn is_open(decision: Decision) -> bool {
    match decision {
        Decision::Forward(_) | Decision::Fragment(_) => true,
        Decision::Punt(punt) => !matches!(punt, Punt::Arp | Punt::ForUs),
        Decision::Drop(reason) => matches!(
            reason,
            RouterDrop::UnknownProtocol
                | RouterDrop::Martian
                | RouterDrop::Multicast
                | RouterDrop::Blackhole
        ),
    }
}

impl KernelFilter {
    /// Of rules, each with the count of what it matched, and the numbers of the interfaces that have taps. Rules beyond
    /// [`FILTER_RULES_MAX`] are left out.
    #[must_use]
    pub fn new(
        rules: impl IntoIterator<Item = (FilterRule, Arc<AtomicU64>)>,
        taps: impl IntoIterator<Item = u16>,
    ) -> Self {
        let (rules, matched) = rules
            .into_iter()
            .take(FILTER_RULES_MAX)
            .map(|(rule, matched)| (Compared::new(&rule), matched))
            .unzip();
        let mut has_tap = Vec::new();
        for interface in taps.into_iter().map(usize::from) {
            if has_tap.len() <= interface {
                has_tap.resize(interface + 1, false);
            }
            has_tap[interface] = true;
        }
        Self {
            rules,
            matched,
            taps: has_tap,
        }
    }

    /// Changes decisions on frames that a rule matches; the first one that does counts it.
    #[inline(never)]
    pub(super) fn apply<'a>(
        &self,
        all: &Interfaces,
        frames: impl Iterator<Item = &'a [u8]>,
        interfaces: &[u16],
        decisions: &mut Decisions,
    ) {
        let mut matched = [0u64; FILTER_RULES_MAX];
        for (place, (frame, number)) in frames.zip(interfaces).enumerate() {
            let Some(decision) = decisions.get(place) else {
                break;
            };
            let has_tap = self.taps.get(usize::from(*number)) == Some(&true);
            if !has_tap || !is_open(decision) {
                continue;
            }
            let Some(interface) = all.get(*number) else {
                continue;
            };
            let Some(seen) = Headers::of_untagged(frame) else {
                continue;
            };
            let mut rules = self.rules.iter().zip(&mut matched);
            let matching = rules.find(|(rule, _)| rule.matches(&seen, *number, interface.vrf));
            if let Some((_, count)) = matching {
                *count += 1;
                decisions.set(place, Decision::Punt(Punt::KernelFilter));
            }
        }
        for (sum, count) in self.matched.iter().zip(matched) {
            if count > 0 {
                sum.fetch_add(count, Ordering::Relaxed);
            }
        }
    }
}
