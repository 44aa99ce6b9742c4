// SPDX-License-Identifier: Apache-2.0
//! Kernel filters: rules that pass packets to the kernel although they are not for the router's own addresses. Matching packets go to the
//! tap of their ingress interface and are not forwarded.
//!
//! The rules are evaluated linearly, after all other decisions. Without rules the cost is one test of an `Option` per burst.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::decision::{Decision, Decisions, Punt};
use super::interfaces::Interfaces;
use crate::drops::RouterDrop;
use crate::filter::{Headers, PacketMatch, Pattern};

/// Maximum number of rules.
pub const FILTER_RULES_MAX: usize = 64;

/// Packet match of a rule. Fields that are not set match everything. IP rules with ports match only the first fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterRule {
    /// Number of the ingress interface.
    pub interface: Option<u16>,
    /// Number of the VRF of the ingress interface.
    pub vrf: Option<u16>,
    /// Packet to match.
    pub packet: PacketMatch,
}

/// Compiled rule.
#[derive(Clone, Copy, Debug)]
struct Compared {
    /// Interface number, or [`ANY`].
    interface: u32,
    vrf: u32,
    pattern: Pattern,
}

const ANY: u32 = u32::MAX;

/// All rules and their match counters.
#[derive(Debug)]
pub struct KernelFilter {
    rules: Vec<Compared>,
    matched: Vec<Arc<AtomicU64>>,
    /// Whether an interface has a tap, by number of the interface.
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
    fn matches(&self, headers: &Headers, interface: u16, vrf: u16) -> bool {
        let is = |asked: u32, is: u16| asked == ANY || asked == u32::from(is);
        is(self.interface, interface) && is(self.vrf, vrf) && self.pattern.matches(headers)
    }
}

/// Returns whether rules may override a decision. Packets that are damaged, for another station, or from an untrusted source stay dropped.
/// Packets for the service thread reach the kernel from there.
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
    /// Creates the filter from rules with their match counters, and the numbers of interfaces with taps. Rules beyond [`FILTER_RULES_MAX`]
    /// are ignored.
    #[expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "the list has space for the number, of 16 bits"
    )]
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

    /// Overrides decisions on matching frames. The first matching rule counts the frame.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "counts at most BURST_MAX packets"
    )]
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
            let Some(headers) = Headers::of_untagged(frame) else {
                continue;
            };
            let mut rules = self.rules.iter().zip(&mut matched);
            let matching = rules.find(|(rule, _)| rule.matches(&headers, *number, interface.vrf));
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
