// SPDX-License-Identifier: Apache-2.0
//! Filter rules of one port: the first match decides, stateless. Rules are evaluated linearly, one burst at a time. A port without rules
//! has no filter stage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quietwire_base::BURST_MAX;
use quietwire_packet::ETHERNET_HEADER_LENGTH;

use super::RULES_MAX;
use super::action::{Action, MalformedAction};
use super::malformed::{Malformation, malformation};
use super::packet::PacketMatch;
use super::pattern::{Headers, Pattern, after_tags};

/// A rule of a port.
#[derive(Clone, Debug)]
pub struct PortRule {
    /// Its index among all rules of the switch, for traces.
    pub number: u16,
    /// VLAN of the outermost tag.
    pub vlan: Option<u16>,
    /// Packet to match.
    pub packet: PacketMatch,
    /// Action for matching frames.
    pub action: Action,
    /// Frames that it has decided on, at all ports.
    pub frames: Arc<AtomicU64>,
}

/// Verdict of the rules for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A rule with this number decided.
    Rule(u16, Action),
    /// The default action: no rule matches.
    Default(Action),
    /// Dropped as malformed.
    Malformed(Malformation),
    /// The frame is shorter than its header: the next stage drops and counts it.
    Short,
}

impl Verdict {
    /// Returns true if the frame is accepted.
    #[inline(always)]
    pub const fn accepts(self) -> bool {
        !self.is_denied() && !matches!(self, Self::Malformed(_))
    }

    /// Returns true if a rule or the default drops the frame.
    #[inline(always)]
    const fn is_denied(self) -> bool {
        matches!(
            self,
            Self::Rule(_, Action::Drop) | Self::Default(Action::Drop)
        )
    }
}

/// Verdict for each frame of a burst.
pub type Verdicts = [Verdict; BURST_MAX];

#[derive(Debug)]
struct Compared {
    pattern: Pattern,
    /// VLAN number, or [`ANY_VLAN`].
    vlan: u16,
    number: u16,
    action: Action,
}

/// No frame has this VLAN: VLAN numbers have twelve bits.
const ANY_VLAN: u16 = u16::MAX;

/// Decisions on frames that no rule decides on, and their counters, which all ports share.
#[derive(Clone, Debug, Default)]
pub struct Fallback {
    /// Action for frames that no rule matches.
    pub default: Action,
    /// Frames that no rule matches.
    pub default_frames: Arc<AtomicU64>,
    /// Action for malformed frames.
    pub malformed: MalformedAction,
    /// Frames dropped as malformed.
    pub malformed_frames: Arc<AtomicU64>,
}

/// Dropped frames of a burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// By a rule or by the default.
    pub denied: usize,
    /// As malformed.
    pub malformed: usize,
}

impl Dropped {
    /// Returns the number of dropped frames.
    #[must_use]
    pub const fn sum(self) -> usize {
        self.denied + self.malformed
    }
}

/// All rules of a port, in order.
#[derive(Debug)]
pub struct PortRules {
    rules: Vec<Compared>,
    frames: Vec<Arc<AtomicU64>>,
    fallback: Fallback,
}

impl PortRules {
    /// Creates the rules of a port, in order, and the decisions on frames without a rule. Rules beyond [`RULES_MAX`] are ignored.
    pub fn new(rules: impl IntoIterator<Item = PortRule>, fallback: Fallback) -> Self {
        let compared = |rule: PortRule| {
            let compared = Compared {
                pattern: Pattern::new(&rule.packet),
                vlan: rule.vlan.unwrap_or(ANY_VLAN),
                number: rule.number,
                action: rule.action,
            };
            (compared, rule.frames)
        };
        let (rules, frames) = rules.into_iter().take(RULES_MAX).map(compared).unzip();
        Self {
            rules,
            frames,
            fallback,
        }
    }

    /// Judges a burst and counts. Each frame is the octets of its first buffer, and its length.
    pub fn judge<'frame>(
        &self,
        frames: impl Iterator<Item = (&'frame [u8], u32)>,
        verdicts: &mut Verdicts,
    ) -> Dropped {
        let mut matched = [0u16; RULES_MAX];
        let mut unmatched = 0;
        let mut dropped = Dropped::default();
        for ((octets, length), verdict) in frames.zip(verdicts) {
            *verdict = match self.first(octets, length) {
                Found::Short => Verdict::Short,
                Found::Nothing => {
                    unmatched += 1;
                    Verdict::Default(self.fallback.default)
                }
                Found::Malformed(kind) => {
                    dropped.malformed += 1;
                    Verdict::Malformed(kind)
                }
                Found::Rule(place, rule) => {
                    if let Some(count) = matched.get_mut(place) {
                        *count += 1;
                    }
                    Verdict::Rule(rule.number, rule.action)
                }
            };
            dropped.denied += usize::from(verdict.is_denied());
        }
        for (sum, count) in self.frames.iter().zip(matched) {
            add(sum, u64::from(count));
        }
        add(&self.fallback.default_frames, unmatched);
        add(&self.fallback.malformed_frames, dropped.malformed as u64);
        dropped
    }

    #[inline(always)]
    fn first(&self, octets: &[u8], length: u32) -> Found<'_> {
        let length = length as usize;
        if length < ETHERNET_HEADER_LENGTH {
            return Found::Short;
        }
        // A frame whose first buffer ends within the addresses is malformed.
        let (vlan, rest) = after_tags(octets).unwrap_or_default();
        if self.fallback.malformed == MalformedAction::Drop
            && let Some(kind) = malformation(octets, length, vlan, rest)
        {
            return Found::Malformed(kind);
        }
        // A frame truncated within its tags matches only rules without packet fields.
        let headers = Headers::from_ethertype_on(rest).unwrap_or(Headers::NOTHING);
        let mut rules = self.rules.iter().enumerate();
        let found = rules.find(|(_, rule)| {
            (rule.vlan == ANY_VLAN || vlan == Some(rule.vlan)) && rule.pattern.matches(&headers)
        });
        found.map_or(Found::Nothing, |(place, rule)| Found::Rule(place, rule))
    }
}

/// Result of the search for the rule of a frame.
enum Found<'rules> {
    /// The first rule that matches, and its index.
    Rule(usize, &'rules Compared),
    /// No rule matches.
    Nothing,
    /// The frame is malformed.
    Malformed(Malformation),
    /// The frame is shorter than its header.
    Short,
}

#[inline(always)]
fn add(sum: &AtomicU64, count: u64) {
    if count > 0 {
        sum.fetch_add(count, Ordering::Relaxed);
    }
}
