// SPDX-License-Identifier: Apache-2.0
//! Steering rules of a port without a device that steers: they divide its frames between the switch and a tap of the kernel.
//!
//! The rules are evaluated linearly; the first that matches decides. Without a match, the kernel gets the frame.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quietwire_base::BURST_MAX;

use super::packet::PacketMatch;
use super::pattern::{ADDRESSES, Headers, Pattern, after_tags};

/// Maximum number of steering rules of a port.
pub const STEERING_MAX: usize = 128;
/// Length of an Ethernet header, octets.
const ETHERNET: usize = 14;

/// A steering rule. Fields that are not set match every frame.
#[derive(Clone, Debug, Default)]
pub struct SteeringRule {
    /// Source MAC address.
    pub source_mac: Option<[u8; 6]>,
    /// Destination MAC address.
    pub destination_mac: Option<[u8; 6]>,
    /// VLAN of the outermost tag.
    pub vlan: Option<u16>,
    /// Packet to match.
    pub packet: PacketMatch,
    /// Whether matching frames go to the kernel.
    pub is_for_kernel: bool,
    /// Number of frames that the rule has decided on.
    pub frames: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Compared {
    source_mac: Option<[u8; 6]>,
    destination_mac: Option<[u8; 6]>,
    vlan: Option<u16>,
    pattern: Pattern,
    is_for_kernel: bool,
}

/// The steering rules of a port, with their counters.
#[derive(Debug)]
pub struct Steering {
    rules: Vec<Compared>,
    counters: Vec<Arc<AtomicU64>>,
    unmatched: Arc<AtomicU64>,
}

impl Compared {
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "the place is one of the Ethernet header"
    )]
    #[inline(always)]
    fn matches(&self, frame: &[u8], vlan: Option<u16>, headers: &Headers) -> bool {
        let is = |asked: Option<[u8; 6]>, at: usize| {
            asked.is_none_or(|asked| frame.get(at..at + 6) == Some(&asked[..]))
        };
        (self.vlan.is_none() || self.vlan == vlan)
            && is(self.destination_mac, 0)
            && is(self.source_mac, ADDRESSES / 2)
            && self.pattern.matches(headers)
    }
}

impl Steering {
    /// Compiles rules, of which there are at most [`STEERING_MAX`]. `unmatched` counts frames that match none.
    #[must_use]
    pub fn new(rules: impl IntoIterator<Item = SteeringRule>, unmatched: Arc<AtomicU64>) -> Self {
        let (rules, counters) = rules
            .into_iter()
            .take(STEERING_MAX)
            .map(|rule| {
                let compared = Compared {
                    source_mac: rule.source_mac,
                    destination_mac: rule.destination_mac,
                    vlan: rule.vlan,
                    pattern: Pattern::new(&rule.packet),
                    is_for_kernel: rule.is_for_kernel,
                };
                (compared, rule.frames)
            })
            .unzip();
        Self {
            rules,
            counters,
            unmatched,
        }
    }

    /// Returns the number of the rule that decides on a frame.
    #[inline(always)]
    fn find(&self, frame: &[u8]) -> Option<usize> {
        let (vlan, rest) = after_tags(frame)?;
        let headers = Headers::from_ethertype_on(rest).unwrap_or(Headers::NOTHING);
        let mut rules = self.rules.iter();
        rules.position(|rule| rule.matches(frame, vlan, &headers))
    }

    /// Decides which frames of a burst go to the kernel, and counts. Returns their number. A frame that is shorter than an Ethernet header
    /// stays with the switch, which drops it.
    #[expect(clippy::arithmetic_side_effects, reason = "at most BURST_MAX frames")]
    pub fn judge<'frame>(
        &self,
        frames: impl Iterator<Item = &'frame [u8]>,
        is_for_kernel: &mut [bool; BURST_MAX],
    ) -> usize {
        let mut hits = [0_u64; STEERING_MAX];
        let (mut unmatched, mut for_kernel) = (0_u64, 0);
        for (frame, verdict) in frames.zip(is_for_kernel) {
            if frame.len() < ETHERNET {
                *verdict = false;
                continue;
            }
            let found = self.find(frame);
            match found.and_then(|rule| hits.get_mut(rule)) {
                Some(count) => *count += 1,
                None => unmatched += 1,
            }
            let rule = found.and_then(|rule| self.rules.get(rule));
            *verdict = rule.is_none_or(|rule| rule.is_for_kernel);
            for_kernel += usize::from(*verdict);
        }
        let counts = self.counters.iter().zip(hits);
        for (sum, count) in counts.chain([(&self.unmatched, unmatched)]) {
            if count > 0 {
                sum.fetch_add(count, Ordering::Relaxed);
            }
        }
        for_kernel
    }
}
